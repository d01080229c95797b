//! Text patched and given back: a whole batch in one stop of every process that shares the text. Lives
//! here: when bytes may be written, threads that stand in the way, and proof that what is overwritten is
//! what was expected. Not here: which bytes (`stub`, `resolve`). Constraints: nothing but writes of a few
//! bytes happens while the target stands still, and a window that anything else has changed is left alone.

pub(crate) mod arena;
mod haste;
mod text;

pub(crate) use haste::{Haste, sleep_promptly};

use crate::api::{Pause, Refusal};
use crate::error::ProbeError;
use crate::gate::Gate;
use crate::stub::{ALIGN, Stub};
use crate::target::{self, Caller, Memory, Stopped};
use rustc_hash::FxHashSet;
use std::ops::Range;
use std::time::{Duration, Instant};
use whither_kernel::proc;

/// Bytes of text and what replaces them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) at: u64,
    pub(crate) old: Vec<u8>,
    pub(crate) new: Vec<u8>,
}

/// One function's detour.
#[derive(Clone, Debug)]
pub(crate) struct Patch {
    /// In the order in which they are made; taken back in the other.
    pub(crate) writes: Vec<Write>,
    /// The displaced bytes.
    pub(crate) window: Range<u64>,
    /// Their stub.
    pub(crate) stub: Stub,
    /// Where it stands.
    pub(crate) stub_at: u64,
    /// What stands in front of it, of a point that only some callers reach.
    pub(crate) gate: Option<Gate>,
}

impl Patch {
    /// Bytes that no thread may stand on when they are written: all but the first.
    fn interior(&self) -> Range<u64> {
        let end = self.writes.last().map_or(self.window.end, |w| w.at + w.new.len() as u64);
        self.window.start + 1..self.window.end.max(end.min(self.window.start + 5))
    }
}

/// A process standing still, in one of two ways.
pub(crate) enum Still<'a> {
    /// All threads stopped.
    Stopped(Box<Stopped>),
    /// Its first thread is borrowed, at the program's entry point, in nobody's way. The others, which
    /// libraries have started by then, are stopped.
    Held(&'a Memory, Option<Box<Stopped>>),
}

impl Still<'_> {
    fn memory(&self) -> &Memory {
        match self {
            Self::Stopped(stopped) => stopped.memory(),
            Self::Held(memory, _) => memory,
        }
    }

    /// The threads that may stand anywhere.
    fn threads(&mut self) -> Option<&mut Stopped> {
        match self {
            Self::Stopped(stopped) => Some(stopped),
            Self::Held(_, others) => others.as_deref_mut(),
        }
    }

    /// Lets everything run until these threads have had a turn each.
    fn let_move(self, tids: &[u32], limit: Duration) -> Pause {
        match self {
            Self::Stopped(stopped) => target::let_move(*stopped, tids, limit),
            Self::Held(_, Some(others)) => target::let_move(*others, tids, limit),
            Self::Held(_, None) => Pause::default(),
        }
    }

    fn release(self) -> Pause {
        match self {
            Self::Stopped(stopped) => stopped.release(),
            Self::Held(_, others) => others.map_or(Pause::default(), |others| others.release()),
        }
    }
}

/// What became of a batch.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Longest time that a process was held up.
    pub(crate) pause: Pause,
    /// Index into the batch, and why it was not done.
    pub(crate) failed: Vec<(usize, Refusal)>,
}

/// How long is tried to find a moment when no signal handler has interrupted a window.
const PATIENCE: Duration = Duration::from_millis(500);

/// Writes the stubs: nothing leads to them yet.
pub(crate) fn write_stubs(memory: &Memory, patches: &[&Patch]) -> Result<(), ProbeError> {
    // Neighbours in one piece: a thousand stubs are a few writes. Only what aligning them leaves lies between neighbours;
    // what lies further apart may have anything between, of another batch or of the target.
    let mut run: Option<(u64, Vec<u8>)> = None;
    for patch in patches {
        match &mut run {
            Some((at, bytes)) if (*at + bytes.len() as u64).next_multiple_of(ALIGN) == patch.stub_at => {
                bytes.resize((patch.stub_at - *at) as usize, 0xcc);
                bytes.extend(&patch.stub.bytes);
            }
            _ => {
                if let Some((at, bytes)) = run.replace((patch.stub_at, patch.stub.bytes.clone())) {
                    memory.write(at, &bytes)?;
                }
            }
        }
    }
    match run {
        Some((at, bytes)) => Ok(memory.write(at, &bytes)?),
        None => Ok(()),
    }
}

/// Of some addresses, which are not in a file's code any more that has patches: asked while the process stands still.
pub(crate) type Lost<'a> = &'a dyn Fn(u32, &[u64]) -> Vec<bool>;

/// Makes the detours in one process.
pub(crate) fn install(
    pid: u32,
    held: Option<&Caller>,
    patches: &[&Patch],
    lost: Lost<'_>,
) -> Result<Outcome, ProbeError> {
    let interiors = Interiors::of(patches);
    let handlers = catches_signals(pid);
    let began = Instant::now();
    let mut outcome = Outcome::default();
    loop {
        let mut still = hold(pid, held)?;
        let in_the_way = step_aside(&mut still, patches, &interiors, handlers);
        let left = PATIENCE.saturating_sub(began.elapsed());
        if !in_the_way.is_empty() && left > Duration::ZERO {
            outcome.pause = outcome.pause.max(still.let_move(&in_the_way, left));
            continue;
        }
        outcome.failed = make(&mut still, patches, !in_the_way.is_empty());
        let gone = lost_among(pid, patches, &outcome.failed, lost);
        let gone = outcome.failed.iter_mut().filter(|(index, _)| gone.contains(index));
        gone.for_each(|(_, refusal)| *refusal = Refusal::NotMapped);
        outcome.pause = outcome.pause.max(still.release());
        return Ok(outcome);
    }
}

/// Writes into stubs of one process that are in use.
pub(crate) fn rewrite(pid: u32, held: Option<&Caller>, writes: &[(u64, &[u8])]) -> Result<Pause, ProbeError> {
    let still = hold(pid, held)?;
    for (at, bytes) in writes {
        still.memory().write(*at, bytes)?;
    }
    Ok(still.release())
}

fn hold<'a>(pid: u32, held: Option<&'a Caller>) -> Result<Still<'a>, ProbeError> {
    match held {
        Some(caller) => {
            let others = Stopped::beside(pid, caller.tid())?.map(Box::new);
            Ok(Still::Held(caller.memory(), others))
        }
        None => Ok(Still::Stopped(Box::new(Stopped::stop(pid)?))),
    }
}

/// Moves threads out of the windows; those that cannot be moved now.
fn step_aside(still: &mut Still<'_>, patches: &[&Patch], interiors: &Interiors, handlers: bool) -> Vec<u32> {
    let Some(stopped) = still.threads() else { return Vec::new() };
    let within = |ip: u64| interiors.holding(ip);
    let there = |stopped: &Stopped| {
        let all = stopped.places().into_iter().filter(|&(_, ip, _)| within(ip).is_some());
        all.map(|(tid, ..)| tid).collect::<Vec<u32>>()
    };
    let caught = there(stopped);
    if !caught.is_empty() {
        if stopped.move_ips(&|ip| patches[within(ip)?].stub.moved(ip)).is_err() {
            return caught;
        }
        let caught = there(stopped);
        if !caught.is_empty() {
            return caught;
        }
    }
    if handlers { target::inside(stopped, &interiors.ranges) } else { Vec::new() }
}

/// Where no thread may stand, by address; made before the stop.
struct Interiors {
    ranges: Vec<Range<u64>>,
    /// The patch of each.
    owners: Vec<usize>,
}

impl Interiors {
    fn of(patches: &[&Patch]) -> Self {
        let mut all: Vec<(Range<u64>, usize)> = patches.iter().map(|p| p.interior()).zip(0..).collect();
        all.sort_by_key(|(range, _)| range.start);
        let (ranges, owners) = all.into_iter().unzip();
        Self { ranges, owners }
    }

    /// The patch whose interior an instruction pointer is in.
    fn holding(&self, ip: u64) -> Option<usize> {
        let place = self.ranges.partition_point(|r| r.start <= ip).checked_sub(1)?;
        self.ranges.get(place)?.contains(&ip).then(|| self.owners.get(place).copied())?
    }
}

/// Writes the detours of those patches that may be made; the others with their reasons.
fn make(still: &mut Still<'_>, patches: &[&Patch], in_the_way: bool) -> Vec<(usize, Refusal)> {
    let mut failed = Vec::new();
    let mut fit: Vec<usize> = Vec::new();
    for (index, patch) in patches.iter().enumerate() {
        if in_the_way && busy(still, patch) {
            let what = "a signal handler has interrupted them all the while".into();
            failed.push((index, Refusal::Immovable { what }));
        } else {
            fit.push(index);
        }
    }
    let memory = still.memory();
    let mut all = Batch::of(patches, &fit, |_| true);
    let foreign = all.owners_where(&text::stand(memory, &all.pieces(|w| &w.old)));
    failed.extend(foreign.iter().map(|&index| (index, Refusal::Foreign)));
    fit.retain(|index| !foreign.contains(index));
    // What leads to the detour comes last of each patch: we may be killed in between.
    for last in [false, true] {
        all = Batch::of(patches, &fit, |is_last| is_last == last);
        let refused = all.owners_where(&text::write(memory, &all.pieces(|w| &w.new)));
        for &index in &refused {
            for write in patches[index].writes.iter().rev() {
                // It could be written a moment ago, or never was.
                let _ = memory.write(write.at, &write.old);
            }
            let what = "the kernel does not let them be written".into();
            failed.push((index, Refusal::Immovable { what }));
        }
        fit.retain(|index| !refused.contains(index));
    }
    failed
}

/// Writes of several patches, to be done together.
struct Batch<'a> {
    /// Index of the patch, and one of its writes.
    writes: Vec<(usize, &'a Write)>,
}

impl<'a> Batch<'a> {
    /// Those of some patches; `which` is told whether a write is the last of its patch.
    fn of(patches: &[&'a Patch], some: &[usize], which: impl Fn(bool) -> bool) -> Self {
        let mut writes = Vec::new();
        for &index in some {
            let own = &patches[index].writes;
            let chosen = own.iter().enumerate().filter(|(i, _)| which(i + 1 == own.len()));
            writes.extend(chosen.map(|(_, write)| (index, write)));
        }
        Self { writes }
    }

    fn pieces(&self, bytes: impl Fn(&'a Write) -> &'a Vec<u8>) -> Vec<text::Piece<'a>> {
        self.writes.iter().map(|&(_, write)| (write.at, bytes(write).as_slice())).collect()
    }

    /// Indexes of the patches of which a write is answered by no.
    fn owners_where(&self, answers: &[bool]) -> FxHashSet<usize> {
        self.writes.iter().zip(answers).filter(|(_, yes)| !**yes).map(|((index, _), _)| *index).collect()
    }
}

fn busy(still: &mut Still<'_>, patch: &Patch) -> bool {
    still.threads().is_some_and(|stopped| !target::inside(stopped, &[patch.interior()]).is_empty())
}

/// Those of the patches whose bytes were not the expected ones that are in a library which was unloaded, or is being
/// loaded anew just now.
fn lost_among(pid: u32, patches: &[&Patch], failed: &[(usize, Refusal)], lost: Lost<'_>) -> FxHashSet<usize> {
    let foreign: Vec<usize> = failed.iter().filter(|(_, why)| *why == Refusal::Foreign).map(|(i, _)| *i).collect();
    if foreign.is_empty() {
        return FxHashSet::default();
    }
    let places: Vec<u64> = foreign.iter().filter_map(|&i| Some(patches.get(i)?.window.start)).collect();
    foreign.into_iter().zip(lost(pid, &places)).filter(|(_, gone)| *gone).map(|(i, _)| i).collect()
}

/// Takes the detours back in one process; what is not mapped any more needs nothing. Threads in the copies run on: the
/// stubs stay.
pub(crate) fn uninstall(
    pid: u32,
    held: Option<&Caller>,
    patches: &[&Patch],
    lost: Lost<'_>,
) -> Result<Outcome, ProbeError> {
    let still = hold(pid, held)?;
    let mut failed = restore(still.memory(), patches);
    let gone = lost_among(pid, patches, &failed, lost);
    failed.retain(|(index, _)| !gone.contains(index));
    Ok(Outcome { failed, pause: still.release() })
}

/// Writes the original bytes, where ours still stand; the patches of which something else stands there.
pub(crate) fn restore(memory: &Memory, patches: &[&Patch]) -> Vec<(usize, Refusal)> {
    let everything: Vec<usize> = (0..patches.len()).collect();
    // The way into the detour goes first.
    for last in [true, false] {
        let mut batch = Batch::of(patches, &everything, |is_last| is_last == last);
        let ours = text::stand(memory, &batch.pieces(|w| &w.new));
        let mut stands = ours.iter();
        batch.writes.retain(|_| stands.next() == Some(&true));
        text::write(memory, &batch.pieces(|w| &w.old));
    }
    let all = Batch::of(patches, &everything, |_| true);
    let mut failed: Vec<usize> = all.owners_where(&text::stand(memory, &all.pieces(|w| &w.old))).into_iter().collect();
    failed.sort_unstable();
    failed.into_iter().map(|index| (index, Refusal::Foreign)).collect()
}

/// Whether anything of a detour stands in the text.
pub(crate) fn stands(memory: &Memory, patch: &Patch) -> bool {
    let pieces: Vec<text::Piece<'_>> = patch.writes.iter().map(|write| (write.at, write.new.as_slice())).collect();
    text::stand(memory, &pieces).contains(&true)
}

/// Whether the process has signal handlers, so that code may stand interrupted below one.
fn catches_signals(pid: u32) -> bool {
    let caught = proc::status_word(pid, "SigCgt:").and_then(|w| u64::from_str_radix(&w, 16).ok());
    caught != Some(0)
}

#[cfg(test)]
mod tests;
