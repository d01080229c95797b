//! What the engine is asked and what it answers: patterns, candidates, probe points with their actions,
//! refusals with reasons. Plain values; the machinery stands in the other modules.

use std::ops::Range;
use std::time::Duration;
use whither_store::calls::PatchKind;

/// Number of a point within a session, as the user sees it (`#12`). Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PointId(pub u32);

/// What the user wrote after `-f`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Select {
    /// A regular expression over the whole name, demangled (without parameters) or mangled, in the
    /// modules whose file name the second one matches (all when `None`): `'MPI_.*'`, `'libpg.so!.*Lookup.*'`.
    Name {
        /// Over the function's name.
        function: String,
        /// Over the module's file name or path.
        module: Option<String>,
    },
    /// `module+0x1a2b`: a stated address in a module, or `0x1a2b` in the executable.
    Address {
        /// File name of the module; `None` = the executable.
        module: Option<String>,
        /// Stated address.
        offset: u64,
    },
    /// `file.c:120`: the function around a line.
    Line {
        /// End of the source path.
        file: String,
        /// Line.
        line: u32,
    },
    /// `malloc@libfoo.so`: its calls from the modules whose file name the expression matches, and no others.
    CalledFrom {
        /// The function.
        callee: Box<Select>,
        /// Over the callers' file name or path.
        callers: String,
    },
    /// `#12`: a point of this session (for removing).
    Point(PointId),
}

/// Code whose calls alone are measured at a point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Index into the engine's modules.
    pub module: usize,
    /// Its code: where such calls return to.
    pub code: Range<u64>,
}

/// Whether a pattern adds to the choice or takes away from it (`-x`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Functions that match are chosen.
    Include(Select),
    /// Functions that match are not.
    Exclude(Select),
}

/// Rough cost of one call of a function patched this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CostClass {
    /// Nanoseconds: code in the process.
    Nanoseconds,
    /// A microsecond: a trap emulated by the kernel.
    Microsecond,
    /// Ten microseconds: a trap that is single-stepped.
    TenMicroseconds,
}

/// Why a function cannot be instrumented, or only in part. Printed as is after the function's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Too short for a jump, no usable padding.
    #[error("only {bytes} bytes long, with no padding behind it")]
    TooShort {
        /// Bytes of the function.
        bytes: u64,
    },
    /// A branch lands inside the bytes to be replaced.
    #[error("a branch at {from:#x} lands inside its first bytes")]
    BranchInto {
        /// Stated address of the branch.
        from: u64,
    },
    /// A branch of its own leads to its first byte: turns of a loop cannot be told from calls, and what the
    /// loop keeps below the stack pointer would be overwritten.
    #[error("a loop of its own (branch at {from:#x}) begins at its first byte")]
    LoopToEntry {
        /// Stated address of the branch.
        from: u64,
    },
    /// A call ends inside the bytes to be replaced: its return address would point into the jump.
    #[error("a call inside its first bytes returns there")]
    CallInside,
    /// Calls that nobody makes return inside the bytes to be replaced (Go's `runtime.goexit`).
    #[error("the return addresses of goroutines point into its first bytes")]
    ReturnInside,
    /// An instruction that cannot be moved.
    #[error("its first instructions cannot be moved ({what})")]
    Immovable {
        /// Which.
        what: String,
    },
    /// The bytes in memory are not those of the file: another tool, or self-modifying code.
    #[error("its bytes in memory differ from the file's: another tool may have patched it")]
    Foreign,
    /// A trap stands there that the file does not have: somebody's breakpoint.
    #[error(
        "a breakpoint of somebody else stands in its first bytes, a uprobe ('whither calls --safe', bpftrace, perf) or a \
         debugger's: end what has set it, then try again"
    )]
    Breakpoint,
    /// Bytes do not decode.
    #[error("its first bytes are no instructions")]
    Undecodable,
    /// No place for a stub within reach of a jump.
    #[error("no free address range within 2 GB of it")]
    NoRoom,
    /// Not code in this process.
    #[error("its address is not in mapped code")]
    NotMapped,
    /// The kernel's side cannot either.
    #[error("uprobes: {0}")]
    Uprobe(String),
    /// Already a point of this session.
    #[error("already probed as #{}", .0.0)]
    Already(PointId),
    /// The table of points is full.
    #[error("more than 65535 points in one session")]
    TooMany,
    /// A stub tells only so many callers apart.
    #[error("called from {pieces} modules that match; at most {most} can be told apart: choose fewer behind the @")]
    TooManyCallers {
        /// Pieces of code.
        pieces: usize,
        /// That a stub has room for.
        most: usize,
    },
    /// Callers are told apart by a stub.
    #[error(
        "calls from some modules only can be measured where code is patched, not by uprobes; choose it without the @"
    )]
    CallersByKernel,
}

impl Refusal {
    /// Why bytes are not those of the file.
    #[must_use]
    pub(crate) fn of_difference(there: &[u8], file: &[u8]) -> Self {
        const INT3: u8 = 0xcc;
        const CALL: u8 = 0xe8;
        const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
        let first = there.iter().zip(file).position(|(there, file)| there != file);
        match first {
            // A uprobe on this instruction is a call into memory of the kernel's, since Linux 6.18.
            Some(at) if there[at] == INT3 || (there[at] == CALL && file[at..].starts_with(&NOP5)) => Self::Breakpoint,
            _ => Self::Foreign,
        }
    }
}

/// A function that matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Address in the target.
    pub address: u64,
    /// Index into the engine's modules.
    pub module: usize,
    /// Stated address in the module.
    pub offset: u64,
    /// Bytes of the function, 0 when unknown.
    pub size: u64,
    /// All names of the address, demangled, preferred first.
    pub names: Vec<String>,
    /// How it would be patched, or why not.
    pub patch: Result<PatchKind, Refusal>,
    /// Cost of that.
    pub cost: CostClass,
    /// The exit cannot be seen, and why; only entries are counted then.
    pub entry_only: Option<String>,
    /// Calls from there alone are measured; empty: from everywhere.
    pub callers: Vec<Caller>,
}

/// Where a summed or emitted word comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Integer argument 1 to 6, or the word on the stack beyond (7 and up).
    Arg(u8),
    /// The return value.
    Ret,
    /// What a counter of the processor has counted during the call.
    Event(Counter),
}

/// A counter of the processor that a thread can read by itself, as `struct perf_event_attr` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// `type`.
    pub kind: u32,
    /// `config`.
    pub config: u64,
}

/// An integer summed per call path (`-m bytes=arg3`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSpec {
    /// Name of the column.
    pub name: String,
    /// Where it is.
    pub source: Source,
    /// Bytes used: 1, 2, 4 or 8.
    pub width: u8,
    /// Whether negative values occur.
    pub signed: bool,
    /// Width and sign are those that the function declares, where debug information tells; the others hold elsewhere.
    pub declared: bool,
    /// Offsets of dereferences, at most two.
    pub loads: Vec<i32>,
}

/// What happens at a point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PointAction {
    /// Count by call path instead of by function.
    Path,
    /// Wall time per call.
    Wall,
    /// Thread CPU time per call.
    Cpu,
    /// Histogram of wall times.
    Hist,
    /// Context switches and page faults per call (two system calls more).
    Usage,
    /// Sum an integer; at most two per point.
    Sum(ValueSpec),
    /// A record per call, with these words, to be drained.
    Emit(Vec<ValueSpec>),
}

/// A point to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointSpec {
    /// What was resolved.
    pub candidate: Candidate,
    /// What it does besides counting.
    pub actions: Vec<PointAction>,
}

/// How long threads of a target were held up by a change of its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// Time in which none of them ran: from the moment the last one was asked to stop until the first one was let
    /// go. Before that those run that were not asked yet, afterwards those that were let go already.
    pub still: Duration,
    /// At most so long one of them was held: from the moment the first one was asked until the last one was let go.
    /// Both end there: when a thread that may run gets a processor is the scheduler's matter.
    pub held: Duration,
}

impl Pause {
    /// The longer of both figures: several processes, or several tries.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { still: self.still.max(other.still), held: self.held.max(other.held) }
    }
}

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Points that count now, in the order asked for.
    pub ids: Vec<PointId>,
    /// Names and reasons of those that do not.
    pub refused: Vec<(String, Refusal)>,
    /// How long the target was held up.
    pub pause: Pause,
}

/// What was taken back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Points whose bytes are the original ones again.
    pub ids: Vec<PointId>,
    /// How long the target was held up.
    pub pause: Pause,
}

/// State of the target after leaving it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detached {
    /// Points restored.
    pub restored: usize,
    /// Return addresses put back on stacks.
    pub returns: usize,
    /// What could not be taken away, and why; empty = nothing of ours is left.
    pub left: Vec<String>,
    /// How long the target was held up.
    pub pause: Pause,
}

/// How an engine behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Most frames of a path.
    pub depth: u32,
    /// Levels of recursion kept apart.
    pub recursion: u32,
    /// Without heartbeat of a controller for so long, entries stop recording.
    pub patience: Duration,
    /// How long a `dlopen` may wait for its new functions to be patched, while the controller gives signs of life;
    /// zero: they are patched a little later and early calls are missed.
    pub load_wait: Duration,
    /// Never write into the target's text: uprobes only.
    pub safe: bool,
    /// Functions that cannot be patched are counted by uprobes.
    pub uprobes: bool,
    /// Instrument children too (fork) and programs they execute (exec).
    pub follow: bool,
    /// Executables (regular expression over the path) that are instrumented in a tree; others pass.
    pub executables: Option<String>,
    /// Snapshots carry the numbers of every thread too.
    pub threads: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            depth: 64,
            recursion: 64,
            patience: Duration::from_secs(5),
            load_wait: Duration::from_millis(500),
            safe: false,
            uprobes: true,
            follow: true,
            executables: None,
            threads: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakpoints_are_told_from_other_changes() {
        let of = Refusal::of_difference;
        assert_eq!(of(&[0xcc, 0x48, 0x89], &[0x55, 0x48, 0x89]), Refusal::Breakpoint);
        assert_eq!(of(&[0x55, 0xcc, 0x89], &[0x55, 0x48, 0x89]), Refusal::Breakpoint);
        assert_eq!(of(&[0xe8, 1, 2, 3, 4], &[0x0f, 0x1f, 0x44, 0, 0]), Refusal::Breakpoint);
        assert_eq!(of(&[0xe8, 1, 2, 3, 4], &[0x55, 0x48, 0x89, 0, 0]), Refusal::Foreign);
        assert_eq!(of(&[0xe9, 1, 0xcc, 3, 4], &[0x55, 0x48, 0x89, 0, 0]), Refusal::Foreign, "a jump of somebody's");
    }
}
