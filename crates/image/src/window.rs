//! Which bytes at a function's entry may be replaced by a jump: whole instructions that can run elsewhere,
//! with no branch, no pointer and no return leading inside. Where five bytes are too many, filler behind
//! the function or near by is looked for. Nothing is written here, and names are not looked at.
//! Constraint: a wrong "yes" kills a running program, so every doubt is a "no" with its reason.

mod filler;
mod go;
mod sites;
mod targets;

pub use sites::CallSite;

use crate::bytes::Bytes;
use crate::code_names::{CodeName, NameKind};
use crate::disasm::{Flow, Insn, decode};
use crate::error::{ImageError, Problem};
use crate::extents::extents;
use crate::go_names::is_go;
use crate::ids::Svma;
use crate::jump_tables;
use crate::relocate::{LONGEST_WINDOW, RelocateError, relocate};
use crate::return_reads::touches_return_address;
use crate::stated::StatedBytes;
use crate::symbols::code_ranges;
use crate::unwind_rows::UnwindRows;
use crate::view::View;
use iced_x86::Mnemonic;
use object::elf;
use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;
use targets::{Found, Interest};

/// `jmp rel32`.
const JUMP: u64 = 5;
/// `jmp rel8`.
const SHORT_JUMP: u64 = 2;
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// Longer bodies are decoded only so far; branches from behind are found by the search over the image.
const LONGEST_BODY: u64 = 1 << 20;

/// The code of one image: where functions begin and end, and what branches where.
pub struct CodeMap {
    bytes: StatedBytes,
    /// Executable sections without procedure linkage stubs.
    code: Vec<Range<u64>>,
    linkage: Vec<Range<u64>>,
    unwound: Vec<Range<u64>>,
    sized: Vec<Range<u64>>,
    /// Where something begins: entries, and labels that may be entries.
    starts: Vec<u64>,
    spans: Spans,
    relatives: Found,
    go: bool,
    found: OnceLock<Found>,
}

/// How a function's entry can be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Which way.
    pub kind: PlanKind,
    /// Bytes that stay in front (`endbr64`, and what asks whether Go's stack suffices): the jump stands at the function's address
    /// plus these.
    pub skip: u8,
    /// Bytes displaced from there, whole instructions; filler behind the function included.
    pub window: u8,
    /// For [`PlanKind::Short`]: places for the long jump, nearest first. Each serves one function only,
    /// and so does filler that a padded window of a neighbour takes.
    pub fillers: Vec<Svma>,
}

/// Ways to replace an entry, better ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlanKind {
    /// Five bytes of the function.
    Jump,
    /// Five bytes, the last of them filler behind the function.
    Padded,
    /// Two bytes, and five of filler near by.
    Short,
}

/// Why an entry cannot be replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryRefusal {
    /// Too short, and no filler to be had.
    #[error("only {bytes} bytes long, with no padding behind it")]
    TooShort {
        /// Bytes of the function.
        bytes: u64,
    },
    /// Something leads inside the bytes.
    #[error("a branch at {from:#x} lands inside its first bytes")]
    BranchInto {
        /// Stated address of the branch, of the pointer, or of the entry itself.
        from: u64,
    },
    /// A call would return inside the bytes.
    #[error("a call inside its first bytes returns there")]
    CallInside,
    /// Calls return inside the bytes that nobody makes: Go's run-time system has every goroutine begin as if it had been
    /// called from behind the first byte of `runtime.goexit`.
    #[error("the return addresses of goroutines point into its first bytes")]
    ReturnInside,
    /// An instruction does not work elsewhere.
    #[error("{what}")]
    Immovable {
        /// Which.
        what: String,
    },
    /// Not instructions.
    #[error("its first bytes are no instructions")]
    Undecodable,
    /// Not in the code of this image.
    #[error("its address is not in the code of the file")]
    NotCode,
}

/// Why the end of a call cannot be seen, as far as the code tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoExit {
    /// `ret n`: it removes arguments, and ours would be among them.
    PopsArguments,
    /// No way out of the function that leads back.
    NeverReturns,
    /// The run-time system moves stacks and reads return addresses.
    Go,
}

/// What is known of a function's entry.
#[derive(Clone, Debug)]
pub struct Entry {
    /// From the entry to the end of the function.
    pub extent: Range<u64>,
    /// How to replace it.
    pub plan: Result<Plan, EntryRefusal>,
    /// The end of a call cannot be seen.
    pub no_exit: Option<NoExit>,
    /// Address of a conditional branch of its own that leads back to the jump: each turn of that loop
    /// would count as a call.
    pub repeats: Option<Svma>,
}

impl CodeMap {
    /// Reads where functions are in an ELF file for x86-64; `names` are those of the file and of its
    /// debug file ([`crate::code_names()`]). Branches are searched at the first question.
    ///
    /// # Errors
    /// When it is no such file or its headers cannot be read.
    pub fn from_elf(file: &Bytes, names: &[CodeName]) -> Result<Self, ImageError> {
        let view = View::parse(file)?;
        if view.machine != elf::EM_X86_64 || !view.is_64 {
            let detail = format!("machine {} is not x86-64, the only one that can be instrumented", view.machine.0);
            return Err(ImageError::broken("code", detail));
        }
        let (linkage, code): (Vec<_>, Vec<_>) =
            code_ranges(&view).into_iter().partition(|(_, name)| name.starts_with(b".plt"));
        let [linkage, code] = [linkage, code].map(|l| l.into_iter().map(|(r, _)| r).collect::<Vec<_>>());
        let inside = |r: &Range<u64>| code.iter().any(|c| c.contains(&r.start) && r.end <= c.end);
        let mut problems: Vec<Problem> = Vec::new();
        let mut unwound = extents(&view, &mut problems).ranges;
        unwound.retain(inside);
        let mut sized: Vec<Range<u64>> = names
            .iter()
            .filter(|n| n.size > 0 && n.kind != NameKind::Mark)
            .map(|n| n.address.0..n.address.0.saturating_add(n.size))
            .filter(inside)
            .collect();
        sized.sort_unstable_by_key(|r| (r.start, r.end));
        let mut starts: Vec<u64> = unwound.iter().map(|r| r.start).chain(names.iter().map(|n| n.address.0)).collect();
        starts.sort_unstable();
        starts.dedup();
        let spans = Spans::new(unwound.iter().chain(&sized));
        Ok(Self {
            bytes: StatedBytes::from_elf(file)?,
            relatives: relatives(&view),
            go: is_go(&view),
            found: OnceLock::new(),
            code,
            linkage,
            unwound,
            sized,
            starts,
            spans,
        })
    }

    /// Stated bytes of the image.
    #[must_use]
    pub fn bytes(&self) -> &StatedBytes {
        &self.bytes
    }

    /// Where functions begin by the unwind information: all that a stripped file tells.
    pub fn unwind_starts(&self) -> impl Iterator<Item = Svma> + '_ {
        self.unwound.iter().map(|r| Svma(r.start))
    }

    /// Whether an address is in code that is not a procedure linkage stub.
    #[must_use]
    pub fn is_code(&self, at: Svma) -> bool {
        self.code.iter().any(|r| r.contains(&at.0))
    }

    /// Whether an address is in procedure linkage stubs.
    #[must_use]
    pub fn is_linkage(&self, at: Svma) -> bool {
        self.linkage.iter().any(|r| r.contains(&at.0))
    }

    /// First byte of the function that holds an address, by unwind information, else by symbols.
    #[must_use]
    pub fn function_of(&self, at: Svma) -> Option<Svma> {
        let in_symbol = holding(&self.sized, at.0);
        let in_unwound = holding(&self.unwound, at.0);
        in_symbol.into_iter().chain(in_unwound).map(|r| Svma(r.start)).max()
    }

    /// From an entry to where its function ends: its unwind entry, its symbol, or the next beginning.
    #[must_use]
    pub fn extent(&self, at: Svma) -> Option<Range<u64>> {
        let section = self.code.iter().find(|r| r.contains(&at.0))?;
        let own = holding(&self.unwound, at.0).or_else(|| holding(&self.sized, at.0)).map(|r| r.end);
        let next = || self.starts.get(self.starts.partition_point(|s| *s <= at.0)).copied();
        Some(at.0..own.or_else(next).unwrap_or(section.end).min(section.end))
    }

    /// The instructions of the function that begins at an address.
    #[must_use]
    pub fn body(&self, at: Svma) -> Option<Vec<Insn>> {
        let extent = self.extent(at)?;
        let end = extent.end.min(extent.start.saturating_add(LONGEST_BODY));
        Some(decode(self.bytes.get(extent.start..end)?, at))
    }

    /// Whether the function that begins at an address looks at its return address or changes it.
    #[must_use]
    pub fn touches_return_address(&self, at: Svma, rows: &UnwindRows) -> bool {
        self.body(at).is_some_and(|body| touches_return_address(&body, rows))
    }

    /// What can be done with the function that begins at an address.
    #[must_use]
    pub fn entry(&self, at: Svma) -> Entry {
        let (Some(extent), Some(body)) = (self.extent(at), self.body(at)) else {
            let plan = Err(EntryRefusal::NotCode);
            return Entry { extent: at.0..at.0, plan, no_exit: None, repeats: None };
        };
        let landing = self.bytes.get(at.0..at.0.saturating_add(4)).is_some_and(|b| b == ENDBR64);
        let skip = match landing {
            true => ENDBR64.len() as u8,
            false if self.go => go::stack_check(&body),
            false => 0,
        };
        let site = |skip: u8| Site { map: self, at: at.0 + u64::from(skip), extent: &extent, body: &body };
        let plan = match site(skip).plan(skip) {
            Err(_) if self.go && skip > 0 => site(0).plan(0),
            plan => plan,
        };
        let site = site(skip);
        let (repeats, no_exit) = (site.repeats(), self.no_exit(&site));
        Entry { extent, plan, no_exit, repeats }
    }

    fn no_exit(&self, site: &Site<'_>) -> Option<NoExit> {
        if self.go {
            return Some(NoExit::Go);
        }
        let pops = |i: &&Insn| i.raw.mnemonic() == Mnemonic::Ret && i.raw.op_count() > 0;
        if site.body.iter().any(|i| pops(&i)) {
            return Some(NoExit::PopsArguments);
        }
        let whole = site.extent.end - site.extent.start < LONGEST_BODY;
        (whole && !site.leaves()).then_some(NoExit::NeverReturns)
    }

    /// Where something leads into the first bytes of functions, or into filler.
    fn found(&self) -> &Found {
        self.found.get_or_init(|| {
            let mut interest = Interest::new(&self.code);
            for &start in &self.starts {
                interest.add(self.first_bytes(start));
            }
            for gap in self.spans.gaps() {
                interest.add(gap.start..gap.end.min(gap.start + filler::LONGEST));
            }
            self.find(&interest)
        })
    }

    /// Where the patch of a function that begins there may stand, but for its first byte, to which everything may lead.
    fn first_bytes(&self, start: u64) -> Range<u64> {
        let in_front = if self.go { go::LONGEST_CHECK } else { ENDBR64.len() as u64 };
        start + 1..start.saturating_add(in_front + JUMP)
    }

    fn find(&self, interest: &Interest) -> Found {
        let mut found = targets::branches(&self.bytes, &self.code, &self.spans, interest);
        found.extend(self.relatives.iter().filter(|(target, _)| interest.holds(*target)));
        for (at, data) in self.bytes.segments() {
            targets::pointers(data, at, interest, &mut found);
        }
        found.sort_unstable();
        found
    }

    /// Something outside of a function's own short branches that leads to one of these bytes.
    fn lands(&self, wanted: &Range<u64>, own: &Range<u64>, searched: bool) -> Option<u64> {
        let begins = self.starts.get(self.starts.partition_point(|s| *s < wanted.start));
        if let Some(start) = begins.filter(|s| wanted.contains(s)) {
            return Some(*start);
        }
        let first = |found: &Found| {
            let i = found.partition_point(|(target, _)| *target < wanted.start);
            found.get(i).filter(|(target, _)| wanted.contains(target)).map(|(_, from)| *from)
        };
        let far = if searched {
            first(self.found())
        } else {
            // A place that nothing said to be an entry was not among those searched for.
            let mut interest = Interest::new(&self.code);
            interest.add(wanted.clone());
            first(&self.find(&interest))
        };
        far.or_else(|| targets::short_branches(&self.bytes, &self.spans, wanted, own).first().map(|(_, from)| *from))
    }
}

impl fmt::Debug for CodeMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodeMap")
            .field("code", &self.code)
            .field("functions", &self.starts.len())
            .finish_non_exhaustive()
    }
}

/// An entry under examination.
struct Site<'m> {
    map: &'m CodeMap,
    /// Where the jump would stand.
    at: u64,
    extent: &'m Range<u64>,
    body: &'m [Insn],
}

impl Site<'_> {
    fn plan(&self, skip: u8) -> Result<Plan, EntryRefusal> {
        let plan = |kind, window: u64, fillers| Plan { kind, skip, window: window as u8, fillers };
        let refusal = match self.window(JUMP) {
            Ok(window) => return Ok(plan(PlanKind::Jump, window, Vec::new())),
            Err(EntryRefusal::TooShort { .. }) if self.padded() => {
                return Ok(plan(PlanKind::Padded, JUMP, Vec::new()));
            }
            Err(refusal) => refusal,
        };
        let short = self.window(SHORT_JUMP).ok().map(|window| (window, filler::places(self.map, self.at)));
        match short {
            Some((window, fillers)) if !fillers.is_empty() => Ok(plan(PlanKind::Short, window, fillers)),
            _ => Err(refusal),
        }
    }

    /// Bytes of the whole instructions that cover `patch` bytes, when they can be displaced.
    fn window(&self, patch: u64) -> Result<u64, EntryRefusal> {
        let end = self.at.saturating_add(patch);
        if self.map.go && self.is_goexit() {
            return Err(EntryRefusal::ReturnInside);
        }
        let covering = |i: &&Insn| i.address.0 >= self.at && i.address.0 < end;
        let insns: Vec<&Insn> = self.body.iter().filter(covering).collect();
        if insns.iter().any(|i| i.flow == Flow::Invalid) {
            return Err(EntryRefusal::Undecodable);
        }
        let last = insns.last().map_or(self.at, |i| i.end().0);
        if last < end {
            return Err(EntryRefusal::TooShort { bytes: self.extent.end.saturating_sub(self.extent.start) });
        }
        self.movable(self.at..last)?;
        match self.lands(&(self.at + 1..end)) {
            Some(from) => Err(EntryRefusal::BranchInto { from }),
            None => Ok(last - self.at),
        }
    }

    /// By what it is, as names may be gone: a no-operation of one byte, then a call. No function compiled from Go begins so.
    fn is_goexit(&self) -> bool {
        const NOP: u8 = 0x90;
        let first = self.map.bytes.get(self.at..self.at.saturating_add(1));
        let second = self.body.iter().find(|i| i.address.0 > self.at);
        first == Some(&[NOP]) && second.is_some_and(|i| matches!(i.flow, Flow::Call(_)))
    }

    fn movable(&self, window: Range<u64>) -> Result<(), EntryRefusal> {
        let length = window.end - window.start;
        if length > LONGEST_WINDOW as u64 {
            return Err(EntryRefusal::Immovable { what: format!("its first instructions take {length} bytes") });
        }
        let bytes = self.map.bytes.get(window.clone()).ok_or(EntryRefusal::NotCode)?;
        // From any address that reaches the same things.
        relocate(bytes, Svma(window.start), Svma(window.start)).map(drop).map_err(|e| match e {
            RelocateError::Undecodable { .. } => EntryRefusal::Undecodable,
            RelocateError::CallInside { .. } => EntryRefusal::CallInside,
            other => EntryRefusal::Immovable { what: other.to_string() },
        })
    }

    /// Five bytes with the filler behind a function that is shorter.
    fn padded(&self) -> bool {
        let end = self.at.saturating_add(JUMP);
        filler::behind(self.map, self.extent.end).is_some_and(|filler| filler.end >= end)
            && self.body.last().is_some_and(ends)
            && self.movable(self.at..end).is_ok()
            && self.lands(&(self.at + 1..end)).is_none()
    }

    /// Something that leads to one of these bytes.
    fn lands(&self, wanted: &Range<u64>) -> Option<u64> {
        let own = self
            .body
            .iter()
            .find(|i| matches!(i.flow, Flow::Jump(t) | Flow::Branch(t) | Flow::Call(t) if wanted.contains(&t.0)));
        // Beyond the first bytes nothing was searched for.
        let first = self.map.first_bytes(self.extent.start);
        let searched = self.map.starts.binary_search(&self.extent.start).is_ok()
            && first.start <= wanted.start
            && wanted.end <= first.end;
        own.map(|i| i.address.0)
            .or_else(|| self.table(wanted))
            .or_else(|| self.map.lands(wanted, self.extent, searched))
    }

    /// The same, but for branches with a 32-bit distance and pointers.
    fn lands_from_near(&self, wanted: &Range<u64>) -> Option<u64> {
        let own = self
            .body
            .iter()
            .find(|i| matches!(i.flow, Flow::Jump(t) | Flow::Branch(t) | Flow::Call(t) if wanted.contains(&t.0)));
        let short = || targets::short_branches(&self.map.bytes, &self.map.spans, wanted, self.extent);
        own.map(|i| i.address.0).or_else(|| self.table(wanted)).or_else(|| short().first().map(|(_, from)| *from))
    }

    /// A jump table of the function with a target there.
    fn table(&self, wanted: &Range<u64>) -> Option<u64> {
        let extent = std::slice::from_ref(self.extent);
        let jumps = self.body.iter().enumerate().filter(|(_, i)| i.flow == Flow::IndirectJump);
        let mut tables = jumps.filter_map(|(i, _)| jump_tables::resolve(self.body, i, extent, &self.map.bytes));
        tables.find(|t| t.targets.iter().any(|t| wanted.contains(&t.0))).map(|t| t.jump.0)
    }

    /// A conditional branch of its own back to the jump.
    fn repeats(&self) -> Option<Svma> {
        self.body.iter().find(|i| matches!(i.flow, Flow::Branch(t) if t.0 == self.at)).map(|i| i.address)
    }

    /// Whether control can leave for the caller: a return, or a jump to somewhere else.
    fn leaves(&self) -> bool {
        let outside = |t: Svma| !self.extent.contains(&t.0);
        let out = self.body.iter().any(|i| match i.flow {
            Flow::Return | Flow::IndirectJump | Flow::Invalid => true,
            Flow::Jump(t) | Flow::Branch(t) => outside(t),
            _ => false,
        });
        // Falling out of the end leads somewhere too, unless a call that never returns stands there.
        out || self.body.last().is_some_and(|i| i.flow == Flow::Next)
    }
}

/// Control never goes on behind it.
fn ends(insn: &Insn) -> bool {
    matches!(insn.flow, Flow::Jump(_) | Flow::IndirectJump | Flow::Return | Flow::Trap)
}

fn holding(ranges: &[Range<u64>], at: u64) -> Option<&Range<u64>> {
    let i = ranges.partition_point(|r| r.start <= at).checked_sub(1)?;
    Some(&ranges[i]).filter(|r| r.contains(&at))
}

/// Functions as disjoint ranges in order; where they overlap, the first keeps its bytes.
pub(crate) struct Spans(Vec<Range<u64>>);

impl Spans {
    fn new<'r>(ranges: impl Iterator<Item = &'r Range<u64>>) -> Self {
        let mut all: Vec<Range<u64>> = ranges.cloned().collect();
        all.sort_unstable_by_key(|r| (r.start, std::cmp::Reverse(r.end)));
        let mut end = 0;
        all.retain_mut(|r| {
            r.start = r.start.max(end);
            end = end.max(r.end);
            r.start < r.end
        });
        Self(all)
    }

    fn index(&self, at: u64) -> Option<usize> {
        let i = self.0.partition_point(|r| r.start <= at).checked_sub(1)?;
        self.0[i].contains(&at).then_some(i)
    }

    fn get(&self, i: usize) -> &Range<u64> {
        &self.0[i]
    }

    /// What lies between one function and the next.
    fn gaps(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.windows(2).map(|w| w[0].end..w[1].start).filter(|g| !g.is_empty())
    }

    /// Ranges near an address: those that begin or end within `reach` of it.
    fn near(&self, at: u64, reach: u64) -> &[Range<u64>] {
        let from = self.0.partition_point(|r| r.end < at.saturating_sub(reach));
        let to = self.0.partition_point(|r| r.start <= at.saturating_add(reach));
        self.0.get(from..to).unwrap_or_default()
    }
}

/// (Address, place) of each relative relocation: addresses taken as values in position-independent files.
fn relatives(view: &View<'_>) -> Found {
    const RELOCATION_SIZE: usize = 24;
    const RELATIVE: u64 = 8;
    let sections = view.sections.iter().filter(|s| s.kind == elf::SHT_RELA);
    let entries = sections.flat_map(|s| view.bytes(s).unwrap_or_default().chunks_exact(RELOCATION_SIZE));
    let pair = |entry: &[u8]| {
        let (at, info, addend) = (view.u64(entry, 0)?, view.u64(entry, 8)?, view.u64(entry, 16)?);
        (info & 0xffff_ffff == RELATIVE).then_some((addend, at))
    };
    entries.filter_map(pair).collect()
}
