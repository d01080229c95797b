//! Branch records of the CPU as evidence: between where one taken branch led and where the next one was taken, control
//! ran straight. A stack of records, the last one first, thus tells a run for each two neighbours; which conditional
//! branches of it fell through is for whoever has the code. Constraint: records are wrong sometimes (AMD's have been seen
//! to jump about), so a run that cannot have happened is left out and counted.
//!
//! Of the first record only where it led is used, and nothing of what runs after the last one: with ends of one kind more
//! than of the other, every branch would seem to be taken more or less often than it is.

mod begun;
mod weigh;

use crate::aggregate::EdgeKey;
use crate::book::{Book, CodeAt, Who};
use crate::lives::ImageNo;
use crate::plan::Chosen;
use whither_kernel::perf::{PerfEvent, SampleFields, Watch};
use whither_kernel::records::BranchEntry;
use whither_store::model::{EdgeSource, ImageOffset, Losses, Way};

pub(crate) use begun::{Begun, Walk};
pub(crate) use weigh::Weighing;

/// Bytes that control runs straight at most: longer stretches without any taken branch are hardly ever written.
const LONGEST: u64 = 1 << 16;

/// Of what is sampled, the event whose samples the kernel lets bring branch records; found by trying. Those that count
/// taken branches first: their records are even.
#[must_use]
pub fn branch_event(chosen: &[Chosen], cpu: &str) -> Option<u16> {
    choose(chosen, cpu, |c| {
        let fields = Some(SampleFields { branches: true, ..SampleFields::default() });
        let attr = whither_kernel::perf::Attr { fields, disabled: true, ..c.attr() };
        PerfEvent::open(&attr, Watch::Thread(0)).is_ok()
    })
}

fn choose(chosen: &[Chosen], cpu: &str, offers: impl Fn(&Chosen) -> bool) -> Option<u16> {
    let mut order: Vec<usize> = (0..chosen.len()).collect();
    order.sort_by_key(|&i| source_of(&chosen[i], cpu));
    order.into_iter().find(|&i| offers(&chosen[i])).and_then(|i| u16::try_from(i).ok())
}

/// What records that come with an event are.
pub(crate) fn source_of(chosen: &Chosen, cpu: &str) -> EdgeSource {
    let spec = &chosen.spec;
    if counts_taken(spec.kind, spec.config, &spec.name, cpu) { EdgeSource::EvenRecords } else { EdgeSource::Records }
}

/// Whether an event counts taken branches, all of them and nothing else.
pub(crate) fn counts_taken(kind: u32, config: u64, name: &str, cpu: &str) -> bool {
    const RAW: u32 = 4;
    /// Event select of AMD: bits 0 to 7 and 32 to 35, behind it the unit mask.
    const SELECT: u64 = 0xf_0000_ffff;
    let raw = kind == RAW
        && match cpu {
            c if c.contains("Intel") => config & 0xffff == 0x20c4,
            c if c.contains("AMD") => config & SELECT == 0xc4,
            _ => false,
        };
    let name = name.to_lowercase().replace(':', ".");
    let names =
        ["br_inst_retired.near_taken", "br_inst_exec.taken", "ex_ret_brn_tkn", "retired_taken_branch_instructions"];
    let named = |n: &&str| {
        name.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
            .any(|w| w.strip_prefix(*n).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    };
    raw || names.iter().any(named)
}

/// What two neighbouring records tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Where it began.
    start: u64,
    /// The instruction that ended it.
    end: u64,
    /// Where that led.
    to: u64,
}

/// The runs of a stack; `None` for those that cannot have happened.
fn runs(stack: &[BranchEntry]) -> impl Iterator<Item = Option<Run>> {
    let mut later: Option<&BranchEntry> = None;
    let taken = stack.iter().filter(|b| !b.is_wrong_path());
    taken.filter_map(move |earlier| run(earlier, later.replace(earlier)?))
}

/// `None` where the records tell of no run at all: one is empty, was taken back, or another ring of protection lies between.
fn run(earlier: &BranchEntry, later: &BranchEntry) -> Option<Option<Run>> {
    let (start, end) = (earlier.to, later.from);
    let kernel = |address: u64| address >> 63 == 1;
    if start == 0 || end == 0 || later.to == 0 || later.is_abort() || kernel(start) != kernel(end) {
        return None;
    }
    let straight = end.checked_sub(start).is_some_and(|length| length < LONGEST);
    Some(straight.then_some(Run { start, end, to: later.to }))
}

/// A position in an image.
pub(crate) type Place = (ImageNo, u64);

impl Run {
    /// As a row, from where its three addresses lie; `None` when its ends are not in one piece of one image.
    fn row(self, start: Place, end: Place, to: Option<Place>, source: EdgeSource) -> Option<EdgeKey> {
        let one_piece = start.0 == end.0 && end.1.checked_sub(start.1) == Some(self.end - self.start);
        let inside = to.filter(|to| to.0 == start.0);
        one_piece.then_some(EdgeKey {
            image: start.0,
            pc: ImageOffset(start.1),
            branch: ImageOffset(end.1),
            way: inside.map_or(Way::Taken, |to| Way::To(ImageOffset(to.1))),
            source,
        })
    }
}

/// Books the runs of a stack that came through a ring.
pub(crate) fn take(book: &mut Book, who: Who, stack: &[BranchEntry], source: EdgeSource) {
    // Most addresses of a stack lie in one mapping.
    let mut last: Option<CodeAt> = None;
    let found = rows(stack, source, &mut |address: u64| {
        let holds = |at: &CodeAt| (at.mapped.start..at.mapped.end).contains(&address);
        let at = last.filter(holds).or_else(|| book.code_at(who, address))?;
        last = Some(at);
        Some((at.mapped.image, at.mapped.offset_of(address)))
    });
    book.runs(found.under_way, &found.rows);
    book.lost(&Losses { impossible_runs: found.impossible, ..Losses::default() });
}

/// Transfers of control of a walk, the last one first.
pub(crate) struct Walked<'h> {
    pub(crate) hops: &'h [BranchEntry],
    /// So many of the first ones are passed over, and so many are near its beginning.
    pub(crate) passed: usize,
    pub(crate) near: usize,
    /// Instructions near its beginning.
    pub(crate) near_insns: u32,
    /// Instructions that tell, of one that got to its end.
    pub(crate) whole: Option<u32>,
}

/// Books a walk that began at a runtime address.
pub(crate) fn take_walk(book: &mut Book, who: Who, pc: u64, walk: &Walked<'_>) {
    let mut last: Option<CodeAt> = None;
    let mut place = |address: u64| {
        let holds = |at: &CodeAt| (at.mapped.start..at.mapped.end).contains(&address);
        let at = last.filter(holds).or_else(|| book.code_at(who, address))?;
        last = Some(at);
        Some((at.mapped.image, at.mapped.offset_of(address)))
    };
    let Some(start) = place(pc) else { return };
    let first = |n: usize| walk.hops.len() - n.min(walk.hops.len());
    let near = rows(&walk.hops[first(walk.near)..], EdgeSource::Walks, &mut place).rows;
    let told = rows(&walk.hops[..first(walk.passed)], EdgeSource::Walks, &mut place);
    book.walk(&Walk { start, near: &near, near_insns: walk.near_insns, told: &told.rows, whole: walk.whole });
    book.lost(&Losses { impossible_runs: told.impossible, ..Losses::default() });
}

/// What a stack tells.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) rows: Vec<EdgeKey>,
    /// Where the last record led.
    pub(crate) under_way: Option<Place>,
    /// Runs that cannot have happened.
    pub(crate) impossible: u64,
    /// Runs in code that lies in no file.
    pub(crate) elsewhere: u64,
}

/// The runs of a stack as rows. `place`: where an address lies, if that is code of a file.
pub(crate) fn rows(stack: &[BranchEntry], source: EdgeSource, place: &mut dyn FnMut(u64) -> Option<Place>) -> Rows {
    let under_way = stack.iter().find(|b| !b.is_wrong_path()).and_then(|b| place(b.to));
    let mut out = Rows { under_way, ..Rows::default() };
    for found in runs(stack) {
        let Some(run) = found else {
            out.impossible += 1;
            continue;
        };
        let (Some(start), Some(end)) = (place(run.start), place(run.end)) else {
            out.elsewhere += 1;
            continue;
        };
        match run.row(start, end, place(run.to), source) {
            Some(row) => out.rows.push(row),
            None => out.impossible += 1,
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use whither_kernel::events::{self, EventSpec};
    use whither_store::model::Precision;

    fn stack(of: &[(u64, u64)]) -> Vec<BranchEntry> {
        of.iter().map(|&(from, to)| BranchEntry { from, to, flags: 0 }).collect()
    }

    fn told(stack: &[BranchEntry]) -> Vec<Option<(u64, u64, u64)>> {
        runs(stack).map(|r| r.map(|r| (r.start, r.end, r.to))).collect()
    }

    #[test]
    fn neighbours_tell_a_run_each() {
        let s = stack(&[(0x50, 0x90), (0x48, 0x40), (0x48, 0x40), (0x99, 0x30)]);
        assert_eq!(told(&s), [Some((0x40, 0x50, 0x90)), Some((0x40, 0x48, 0x40)), Some((0x30, 0x48, 0x40))]);
        assert_eq!(told(&s[..1]), [], "one record alone has no beginning");
        assert_eq!(told(&[]), []);
    }

    #[test]
    fn what_cannot_have_happened_is_told_apart_from_what_nothing_is_known_of() {
        let kernel = 0xffff_ffff_8100_0000;
        let s = stack(&[(0x50, 0x90), (0x48, 0x60), (0x20_0048, 0x40), (0x10, 0x30)]);
        assert_eq!(told(&s), [None, Some((0x40, 0x48, 0x60)), None], "backwards; too far");
        assert_eq!(told(&stack(&[(0x50, 0x90), (0, 0x40), (0x48, 0x60)])), [Some((0x40, 0x50, 0x90))]);
        assert_eq!(told(&stack(&[(0x50, 0x90), (0, 0), (0x48, 0x60)])), [], "empty records");
        assert_eq!(told(&stack(&[(0x50, 0x90), (0x48, kernel)])), [], "the way back was not recorded");
        let mut s = stack(&[(0x50, 0x90), (0x44, 0x46), (0x48, 0x40)]);
        s[1].flags = 1 << 24;
        assert_eq!(told(&s), [Some((0x40, 0x50, 0x90))], "a wrong guess was never executed");
        let mut s = stack(&[(0x50, 0x90), (0x48, 0x40), (0x30, 0x40)]);
        s[1].flags = 1 << 3;
        assert_eq!(told(&s), [Some((0x40, 0x50, 0x90))], "what was given up did not happen");
    }

    #[test]
    fn rows_lie_in_one_piece_of_one_image() {
        let run = Run { start: 0x40, end: 0x50, to: 0x90 };
        let (a, b) = (ImageNo(1), ImageNo(2));
        let row = |end, to| run.row((a, 0x1040), end, to, EdgeSource::Records).map(|r| (r.pc.0, r.branch.0, r.way));
        let same = (a, 0x1050);
        assert_eq!(row(same, Some((a, 0x1090))), Some((0x1040, 0x1050, Way::To(ImageOffset(0x1090)))));
        assert_eq!(row(same, Some((b, 7))), Some((0x1040, 0x1050, Way::Taken)));
        assert_eq!(row(same, None), Some((0x1040, 0x1050, Way::Taken)));
        assert_eq!((row((b, 0x1050), None), row((a, 0x9050), None)), (None, None));
    }

    fn event(name: &str, kind: u32, config: u64) -> Chosen {
        let spec = EventSpec { name: name.into(), kind, config, ..events::parse("cpu-clock").expect("an event") };
        Chosen { spec, period: 1000, precision: Precision::Unknown, turns: 1, units_per_ns: 0.0 }
    }

    #[test]
    fn events_of_taken_branches_make_even_records() {
        let (intel, amd) = ("Intel(R) Xeon(R) CPU", "AMD EPYC 9B45");
        let even = |name: &str, kind, config, cpu| counts_taken(kind, config, name, cpu);
        assert!(even("br_inst_retired.near_taken:pp", 4, 0, intel) && even("br_inst_exec:taken", 4, 0x53_4088, intel));
        assert!(even("cpu/ex_ret_brn_tkn/", 4, 0, amd) && even("RETIRED_TAKEN_BRANCH_INSTRUCTIONS:k", 4, 0, amd));
        assert!(even("r20c4", 4, 0x20c4, intel) && even("r00c4", 4, 0xc4, amd) && !even("r00c4", 4, 0xc4, intel));
        assert!(!even("r20c4", 4, 0x20c4, amd) && !even("branches", 0, 4, amd) && !even("cycles", 0, 0x20c4, intel));
        assert!(!even("br_misp_retired.near_taken", 4, 0, intel) && !even("ex_ret_brn_tkn_misp", 4, 0, amd));
        assert!(!even("br_inst_retired.near_taken_x", 4, 0, intel));
    }

    #[test]
    fn the_event_is_found_by_trying_even_ones_first() {
        let chosen = [event("cpu-clock", 1, 0), event("cycles", 0, 0), event("r20c4", 4, 0x20c4)];
        let hardware = |c: &Chosen| c.spec.kind != 1;
        assert_eq!(choose(&chosen, "Intel", hardware), Some(2));
        assert_eq!(choose(&chosen, "AMD", hardware), Some(1));
        assert_eq!(choose(&chosen[..1], "AMD", hardware), None);
        assert_eq!(choose(&chosen, "Intel", |_| false), None);
        // Software events never have any, on any machine.
        assert_eq!(branch_event(&chosen[..1], "Intel"), None);
    }

    proptest! {
        /// Whatever a stack holds, a run is short, straight and made of what the stack says.
        #[test]
        fn any_stack_gives_runs_or_none(raw in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..64),
                                        near in prop::collection::vec((0..4096_u64, 0..4096_u64, 0..32_u64), 0..64)) {
            let entry = |&(from, to, flags): &(u64, u64, u64)| BranchEntry { from, to, flags };
            for stack in [raw.iter().map(entry).collect::<Vec<_>>(), near.iter().map(entry).collect()] {
                let runs: Vec<Run> = runs(&stack).flatten().collect();
                prop_assert!(runs.len() < stack.len().max(1));
                for r in runs {
                    prop_assert!(r.start <= r.end && r.end - r.start < LONGEST);
                    prop_assert!(stack.iter().any(|b| (b.from, b.to) == (r.end, r.to)) && stack.iter().any(|b| b.to == r.start));
                }
            }
        }
    }
}
