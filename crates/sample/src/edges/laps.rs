//! Rounds of loops from pairs of moments: between two moments of one thread in one stretch of code, the difference of a register
//! that the code steps is how often the step was executed. A single sample says where time goes, never how often anything ran;
//! this does, for loops that are not left before the second moment. Of loops that end by count each moment alone tells how many
//! rounds are to go. Registers are used up here, only rows (place, length, outcome) leave. Whether threads stay long enough for the
//! rows to mean anything is told from all rows of a place, by those who read them.
//! Constraint: code is looked at where pairs come again, and little of it at a time.

use super::code::CodeFiles;
use crate::book::{Book, CodeAt, Who};
use crate::lives::ImageNo;
use rustc_hash::FxHashMap;
use std::rc::Rc;
use whither_abi::pairs::Pair;
use whither_image::counters::{Code, Counter, Exit, Exits};
use whither_image::jump_tables::Data;
use whither_image::{ImageOffset, Svma, load_bias, to_offset, to_svma};
use whither_store::model::{Course, LapCount};

/// Shorter pairs are left out: leaving the one handler and entering the other is too much of them.
const SHORTEST_NS: u64 = 16_000;
/// Code is looked at when so many pairs began in one line of it.
const WORTH_A_LOOK: u8 = 2;
/// Bytes of such a line, as a shift.
const LINE: u32 = 6;
/// Instructions looked at from one place on.
const MOST_INSNS: usize = 1500;
/// Looks at one call, which are half a second apart.
const MOST_LOOKS: u32 = 4;
/// When more addresses and lines are known than this, or stretches hold more, all are forgotten.
const MOST_KNOWN: usize = 40_000;
const MOST_HELD: usize = 400_000;
/// Addresses that stretches of exits may hold of one place: the smaller ones are kept.
const MOST_AROUND: usize = 4 * MOST_INSNS;
/// Rows of one pair, and of one moment.
const MOST_ROWS: usize = 4;

/// A counter where it stands in an image.
struct Place {
    at: Svma,
    counter: Counter,
    /// Addresses of its stretch.
    stretch: Vec<Svma>,
}

/// A branch that leaves by count.
struct Way {
    at: Svma,
    exit: Exit,
    /// Addresses of its stretch, and whether the register is there what will be compared next.
    stretch: Vec<(Svma, bool)>,
}

/// What was found from one address on.
#[derive(Default)]
struct Found {
    places: Vec<Place>,
    ways: Vec<Way>,
}

impl Found {
    fn addresses(&self) -> usize {
        let of_places = self.places.iter().map(|p| p.stretch.len()).sum::<usize>();
        of_places + self.ways.iter().map(|w| w.stretch.len()).sum::<usize>()
    }
}

/// What is known of code, and how much.
#[derive(Default)]
pub(super) struct Laps {
    /// What was found at each address looked at.
    known: FxHashMap<(ImageNo, Svma), Rc<Found>>,
    /// Pairs that began in a line that was not looked at.
    met: FxHashMap<(ImageNo, u64), u8>,
    /// Addresses that stretches hold.
    held: usize,
    looks: u32,
}

impl Laps {
    /// Counts what pairs tell.
    pub(super) fn take_all(&mut self, book: &mut Book, files: &mut CodeFiles, pairs: impl Iterator<Item = Pair>) {
        self.looks = 0;
        if self.known.len() + self.met.len() > MOST_KNOWN || self.held > MOST_HELD {
            *self = Self::default();
        }
        pairs.filter(|p| p.length_ns >= SHORTEST_NS).for_each(|p| {
            self.take(book, files, &p);
        });
    }

    fn take(&mut self, book: &mut Book, files: &mut CodeFiles, pair: &Pair) -> Option<()> {
        let who = Who::At { pid: pair.tgid, tid: pair.tgid, time: pair.time };
        let at = book.code_at(who, pair.pc[0])?;
        let first = stated(book, &at, pair.pc[0])?;
        let second = match pair.pc[1] {
            0 => Second::Kernel,
            pc => book
                .code_at(who, pc)
                .filter(|other| other.mapped.image == at.mapped.image)
                .and_then(|other| stated(book, &other, pc))
                .map_or(Second::Elsewhere, Second::At),
        };
        let image = at.mapped.image;
        let found = self.found(book, files, &at, first)?;
        let span = (pair.length_ns + pair.handler_ns).ilog2() as u8;
        for place in found.places.iter().filter(|p| p.stretch.binary_search(&first).is_ok()).take(MOST_ROWS) {
            let offset = to_offset(&book.image(image).segments, place.at)?;
            let (course, laps) = place.course(pair, second);
            let (ns, handler_ns) = (pair.length_ns, pair.handler_ns);
            book.lap(image, LapCount { offset, span, course, pairs: 1, laps, ns, handler_ns, ..LapCount::default() });
        }
        found.to_go(book, image, first, &pair.first);
        if let Second::At(second) = second {
            found.to_go(book, image, second, &pair.second);
        }
        Some(())
    }

    /// What is found from an address on; `None` where it is not worth a look.
    fn found(&mut self, book: &Book, files: &mut CodeFiles, at: &CodeAt, first: Svma) -> Option<Rc<Found>> {
        let image = at.mapped.image;
        if let Some(found) = self.known.get(&(image, first)) {
            return Some(Rc::clone(found));
        }
        let met = self.met.entry((image, first.0 >> LINE)).or_default();
        *met = met.saturating_add(1);
        if *met < WORTH_A_LOOK || self.looks >= MOST_LOOKS {
            return None;
        }
        self.looks += 1;
        let (found, seen) = look(files.get(book, at)?, first);
        let found = Rc::new(found);
        self.held += found.addresses();
        // What was found from a place in a loop is what would be found from any other place in it.
        for address in seen {
            self.known.entry((image, address)).or_insert_with(|| Rc::clone(&found));
        }
        self.known.insert((image, first), Rc::clone(&found));
        Some(found)
    }
}

impl Found {
    /// Counts how many rounds are to go in the loops around a moment.
    fn to_go(&self, book: &mut Book, image: ImageNo, at: Svma, registers: &[u64; 16]) -> Option<()> {
        let around = self.ways.iter().filter_map(|w| Some((w, w.stretch.binary_search_by_key(&at, |s| s.0).ok()?)));
        for (way, i) in around.take(MOST_ROWS) {
            let Some(laps) = way.exit.to_go(way.stretch[i].1, registers) else { continue };
            let Some(course) = Course::remaining(laps) else { continue };
            let offset = to_offset(&book.image(image).segments, way.at)?;
            book.lap(image, LapCount { offset, course, pairs: 1, laps, ..LapCount::default() });
        }
        Some(())
    }
}

/// Counters and exits of the loops around an address, and the addresses in them.
fn look(data: &dyn Data, first: Svma) -> (Found, Vec<Svma>) {
    let code = Code::from(data, first, MOST_INSNS);
    let mut places = places(&code);
    let whole = code.insns.len() < MOST_INSNS;
    let around = places.iter().filter(|p| p.stretch.binary_search(&first).is_ok());
    let mut seen: Vec<Svma> = around.flat_map(|p| p.stretch.iter().copied()).collect();
    seen.sort_unstable();
    seen.dedup();
    // Loops behind those around it are looked at from there.
    places.retain(|p| seen.binary_search(&p.at).is_ok());
    // Larger stretches are stayed in longer.
    places.sort_by_key(|p| (std::cmp::Reverse(p.stretch.len()), p.at));
    let ways = ways(&code, &seen);
    (Found { places, ways }, if whole { seen } else { Vec::new() })
}

fn places(code: &Code) -> Vec<Place> {
    let blocks = code.blocks();
    let mut places: Vec<Place> = Vec::new();
    let mut counted = Vec::new();
    for counter in code.counters() {
        // Others of one block count the same.
        let what = (blocks[counter.at], counter.stretch.len());
        if counted.contains(&what) {
            continue;
        }
        counted.push(what);
        let stretch: Vec<Svma> = counter.stretch.iter().map(|&i| code.insns[i].address).collect();
        places.push(Place { at: code.insns[counter.at].address, counter, stretch });
    }
    places
}

/// Exits among some addresses.
fn ways(code: &Code, among: &[Svma]) -> Vec<Way> {
    let mut exits = Exits::of(code);
    let branches = (0..code.insns.len()).filter(|&i| among.binary_search(&code.insns[i].address).is_ok());
    let way = |exit: Exit| {
        let settled = |i: &usize| exit.settled.binary_search(i).is_ok();
        let stretch = exit.stretch.iter().map(|i| (code.insns[*i].address, settled(i))).collect();
        Way { at: code.insns[exit.branch].address, exit, stretch }
    };
    let mut found: Vec<Exit> = branches.filter_map(|branch| exits.at(branch)).collect();
    found.sort_by_key(|e| (e.stretch.len(), e.branch));
    let mut left = MOST_AROUND;
    found.retain(|e| {
        let kept = left.checked_sub(e.stretch.len());
        left = kept.unwrap_or(0);
        kept.is_some()
    });
    found.into_iter().map(way).collect()
}

fn stated(book: &Book, at: &CodeAt, pc: u64) -> Option<Svma> {
    let segments = &book.image(at.mapped.image).segments;
    load_bias(segments, at.mapped.start, at.mapped.offset)?;
    to_svma(segments, ImageOffset(at.mapped.offset_of(pc)))
}

/// Where a thread was at the second moment.
#[derive(Clone, Copy)]
enum Second {
    At(Svma),
    Elsewhere,
    Kernel,
}

impl Place {
    fn course(&self, pair: &Pair, second: Second) -> (Course, u64) {
        match second {
            Second::Kernel => return (Course::Kernel, 0),
            Second::At(at) if self.stretch.binary_search(&at).is_ok() => {}
            Second::At(_) | Second::Elsewhere => return (Course::Left, 0),
        }
        let value = |of: &[u64; 16]| of[usize::from(self.counter.register)];
        let laps = self.counter.executions(value(&pair.first), value(&pair.second));
        let steps = laps.and_then(|n| Some((Course::steps(n, pair.length_ns)?, n)));
        steps.unwrap_or((Course::Otherwise, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(Vec<u8>);

    impl Data for Bytes {
        fn bytes(&self, at: Svma, len: usize) -> Option<&[u8]> {
            let from = usize::try_from(at.0.checked_sub(0x1000)?).ok()?;
            self.0.get(from..from.checked_add(len)?)
        }
    }

    #[test]
    fn a_pair_in_a_loop_tells_its_rounds() {
        // 1000 mov eax,[rdi]; 1002 add rdi,4; 1006 add edx,eax; 1008 dec ecx; 100a jne 1000; 100c ret
        let bytes = vec![0x8b, 0x07, 0x48, 0x83, 0xc7, 0x04, 0x01, 0xc2, 0xff, 0xc9, 0x75, 0xf4, 0xc3];
        let (Found { places, ways }, seen) = look(&Bytes(bytes), Svma(0x1006));
        assert_eq!((places.len(), seen.len()), (1, 5), "pointer and counter are of one block");
        let mut pair = Pair { length_ns: 100_000, ..Pair::default() };
        let (register, step) = (usize::from(places[0].counter.register), places[0].counter.step);
        pair.first[register] = 1 << 20;
        pair.second[register] = (1_u64 << 20).wrapping_add_signed(1000 * step);
        let at = |second| places[0].course(&pair, second);
        assert_eq!(at(Second::At(Svma(0x1008))), (Course::steps(1000, 100_000).expect("a pace"), 1000));
        assert_eq!(at(Second::At(Svma(0x100c))).0, Course::Left);
        assert_eq!(at(Second::Elsewhere).0, Course::Left);
        assert_eq!(at(Second::Kernel).0, Course::Kernel);
        pair.second[register] = pair.first[register];
        assert_eq!(places[0].course(&pair, Second::At(Svma(0x1008))).0, Course::Otherwise);
        assert_eq!((ways.len(), ways[0].at, ways[0].stretch.len()), (1, Svma(0x100a), 5));
        let mut registers = [0; 16];
        registers[1] = 5;
        let to_go = |at: usize| ways[0].exit.to_go(ways[0].stretch[at].1, &registers);
        assert_eq!([0, 3, 4].map(to_go), [Some(5), Some(5), Some(6)], "in front of the step, at it, and behind it");
    }
}
