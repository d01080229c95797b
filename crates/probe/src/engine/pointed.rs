//! What a probed function calls through pointers: where such calls stand in its code, and which callees are known of
//! already, from the call paths of functions that are probed. Whom else it calls only its running threads can tell;
//! whoever looks at them finds here what is needed for it.

use super::Engine;
use crate::api::{Candidate, PointId};
use crate::error::ProbeError;
use crate::resolve;
use crate::target::Memory;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;
use whither_image::Bytes;
use whither_store::calls::{CallPath, CallSnapshot, PointState};

/// Calls and tail jumps through pointers of a probed function. Addresses are those of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PointedCalls {
    /// The function's preferred name.
    pub name: String,
    /// Its first byte.
    pub address: u64,
    /// Where its calls return to, in order.
    pub returns: Vec<u64>,
    /// How many tail jumps it has.
    pub jumps: usize,
    /// What was seen called before, each once.
    pub known: Vec<Sighting>,
    /// What its tail jumps lead to returns into here, and no other probed function has such jumps; `None`: nothing on a
    /// stack tells who jumped.
    pub exits: Option<Range<u64>>,
    /// Functions that return into there for other reasons: they are probed, or a probed function jumps to them directly.
    pub others: FxHashSet<u64>,
}

/// A callee seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sighting {
    /// Where the call returns to; `None`: a tail jump led there.
    pub site: Option<u64>,
    /// An address in the callee.
    pub callee: u64,
}

/// A piece of code of the process, for walks over its stacks.
#[derive(Clone, Debug)]
pub struct CodePiece {
    /// Where it is.
    pub range: Range<u64>,
    /// What is added to a stated address to get the one in the process.
    pub bias: u64,
    /// The file it comes from; our own code has none.
    pub file: Option<Bytes>,
}

/// Probes whose code is looked at for further tail jumps: each takes some 50 us, a large function milliseconds.
const MOST_POINTS: usize = 500;

impl Engine {
    /// Calls and tail jumps through pointers of a point's function.
    ///
    /// # Errors
    /// [`ProbeError`] when the point is unknown.
    pub fn pointed_calls(&mut self, id: PointId) -> Result<PointedCalls, ProbeError> {
        let candidate = self.book.get(id).ok_or(ProbeError::NoPoint { id: id.0 })?.candidate.clone();
        let (returns, jumps) = resolve::pointer_calls(self.modules.list(), candidate.address);
        let name = candidate.names.first().cloned();
        let mut found = PointedCalls {
            name: name.unwrap_or_else(|| format!("{:#x}", candidate.address)),
            address: candidate.address,
            returns,
            jumps,
            ..PointedCalls::default()
        };
        if found.jumps > 0 {
            found.exits = self.exits_of(id)?;
            found.others = self.returning_to_us()?;
        }
        if found.jumps > 0 || !found.returns.is_empty() {
            let snapshot = self.own_snapshot();
            found.known = known(&snapshot, id, &found.returns);
        }
        Ok(found)
    }

    /// The functions that hold these addresses, one for each; `None` where there is none that could be probed.
    pub fn functions_at(&mut self, addresses: &[u64]) -> Vec<Option<Candidate>> {
        let mut known: FxHashMap<u64, Option<Candidate>> = FxHashMap::default();
        let described = |start: u64| {
            let mut candidate = resolve::candidate_at(self.modules.list(), start)?;
            self.mark(&mut candidate);
            Some(candidate)
        };
        let function = |&address: &u64| {
            let start = resolve::function_at(self.modules.list(), address)?;
            known.entry(start).or_insert_with(|| described(start)).clone()
        };
        addresses.iter().map(function).collect()
    }

    /// All code that stacks lead through, ours among it.
    #[must_use]
    pub fn code_pieces(&self) -> Vec<CodePiece> {
        let modules = self.modules.list().iter().filter(|m| !m.gone);
        let pieces = modules.map(|m| CodePiece { range: m.start..m.end, bias: m.bias, file: m.file.clone() });
        let ours = self.our_code().into_iter().map(|range| CodePiece { range, bias: 0, file: None });
        pieces.chain(ours).collect()
    }

    /// Where calls of a point return to, if it alone of all points has tail jumps through pointers.
    fn exits_of(&self, id: PointId) -> Result<Option<Range<u64>>, ProbeError> {
        let jumps = |address: u64| resolve::pointer_calls(self.modules.list(), address).1 > 0;
        let mut others = self.living().filter(|(other, _)| *other != id);
        let alone = self.living().count() <= MOST_POINTS && !others.any(|(_, address)| jumps(address));
        let agent = self.seat.as_ref().map(|seat| seat.placed.image.clone());
        Ok(agent.filter(|_| alone))
    }

    fn returning_to_us(&self) -> Result<FxHashSet<u64>, ProbeError> {
        let memory = Memory::open(self.pid)?;
        let mut found = FxHashSet::default();
        for (_, address) in self.living().take(MOST_POINTS) {
            let direct = resolve::linked_callees(self.modules.list(), address, &|at| memory.word(at).ok());
            found.extend(direct.into_iter().map(|c| c.address));
            found.insert(address);
        }
        Ok(found)
    }

    fn living(&self) -> impl Iterator<Item = (PointId, u64)> + '_ {
        let living = self.book.list().iter().filter(|p| p.state != PointState::Removed);
        living.map(|p| (p.id, p.candidate.address))
    }
}

/// Callees of a point's function by call paths: its own return addresses in them, and what stands inside of those.
fn known(snapshot: &CallSnapshot, id: PointId, returns: &[u64]) -> Vec<Sighting> {
    let row = snapshot.points.iter().position(|p| p.id == id.0);
    let mut found: Vec<Sighting> =
        snapshot.paths.iter().flat_map(|path| called_on(snapshot, path, row, returns)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The same on one path.
fn called_on(snapshot: &CallSnapshot, path: &CallPath, row: Option<usize>, returns: &[u64]) -> Vec<Sighting> {
    let in_process = |module: u32, offset: u64| {
        let bias = snapshot.modules.get(module as usize).map(|m| m.bias);
        bias.map(|bias| offset.wrapping_add(bias))
    };
    let Some(callee) = snapshot.points.get(path.point as usize).and_then(|p| in_process(p.module, p.offset)) else {
        return Vec::new();
    };
    let parent = || snapshot.paths.iter().find(|p| Some(p.id) == path.parent);
    if snapshot.frames.get(path.frame as usize).is_none() {
        // Without a caller of its own it took the place of the call it happened in.
        let jumped = row.is_some() && parent().is_some_and(|p| Some(p.point as usize) == row);
        return if jumped { vec![Sighting { site: None, callee }] } else { Vec::new() };
    }
    let (mut inner, mut at) = (callee, path.frame);
    let mut found = Vec::new();
    for _ in 0..snapshot.frames.len() {
        let Some(frame) = snapshot.frames.get(at as usize) else { break };
        let Some(site) = in_process(frame.module, frame.offset) else { break };
        if returns.binary_search(&site).is_ok() {
            found.push(Sighting { site: Some(site), callee: inner });
        }
        (inner, at) = (site.wrapping_sub(1), frame.caller);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_store::calls::{CallFrame, CallModule, CallPoint, FrameKind, PathTotals};

    /// Frames by return address, the innermost first.
    fn snapshot(chains: &[(u32, Option<u32>, &[u64])]) -> CallSnapshot {
        let module = CallModule { path: "/bin/app".into(), id: None, bias: 0x5000_0000, start: 0, end: 0 };
        let point = |id: u32| CallPoint {
            id,
            names: vec![],
            module: 0,
            offset: u64::from(id) * 0x1000,
            size: 0x100,
            patch: None,
            state: PointState::On,
            entry_only: None,
            refused: None,
            values: vec![],
        };
        let mut all = CallSnapshot { modules: vec![module], points: (1..4).map(point).collect(), ..Default::default() };
        for (n, &(point, parent, chain)) in chains.iter().enumerate() {
            let mut caller = u32::MAX;
            for &offset in chain.iter().rev() {
                let kind = FrameKind::Caller;
                all.frames.push(CallFrame { kind, module: 0, offset, caller, by_frame_pointer: false });
                caller = all.frames.len() as u32 - 1;
            }
            let (id, totals) = (n as u32 + 1, PathTotals::default());
            let path =
                CallPath { id, point, frame: caller, parent, same: 0, folded: false, totals, threads: Vec::new() };
            all.paths.push(path);
        }
        all
    }

    #[test]
    fn paths_tell_who_was_called_through_pointers() {
        // #2 was called by #1 at 0x1010, #3 by a function at 0x8000 that #1 calls at 0x1020.
        let all = snapshot(&[(0, None, &[0x9000]), (1, Some(1), &[0x1010]), (2, Some(1), &[0x8042, 0x1020, 0x9000])]);
        let at = |offset: u64| 0x5000_0000 + offset;
        let sighting = |site, callee| Sighting { site: Some(at(site)), callee: at(callee) };
        assert_eq!(
            known(&all, PointId(1), &[at(0x1010), at(0x1020)]),
            [sighting(0x1010, 0x2000), sighting(0x1020, 0x8041)]
        );
        assert_eq!(known(&all, PointId(1), &[at(0x1030)]), []);
    }

    #[test]
    fn who_takes_the_place_of_a_probed_call_was_jumped_to() {
        let all = snapshot(&[(0, None, &[0x9000]), (1, Some(1), &[]), (2, None, &[])]);
        assert_eq!(known(&all, PointId(1), &[]), [Sighting { site: None, callee: 0x5000_2000 }]);
        assert_eq!(known(&all, PointId(2), &[]), []);
    }
}
