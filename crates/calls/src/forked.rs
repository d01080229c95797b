//! Calls during which their process was forked: the child is in them too, but their entry was seen in the parent alone, so what it does there
//! is counted for the probed calls inside only. A lower bound of it is known from these, whose callers lead through such functions without
//! a probed call around. Not here: calls that had begun before whither attached, whose functions do not count until they are entered anew.

use crate::frames::{Frames, Function};
use crate::hits::is_by_uprobe;
use crate::sums::{KNOWN_PART, Nesting, PathSum, has_exits};
use rustc_hash::FxHashMap;
use whither_store::calls::CallSnapshot;

/// Adds what was seen inside of such calls, and notes that there may be more, where that is a part that changes their time. How paths nest
/// when each that was seen in a child lies within the call that this was forked in; `None` where there is nothing of the kind.
pub(crate) fn add_children(
    snapshot: &CallSnapshot,
    nesting: &Nesting,
    frames: &Frames,
    sums: &mut [PathSum],
) -> Option<Nesting> {
    let first = snapshot.processes.first().map(|p| p.pid);
    if snapshot.processes.iter().all(|p| Some(p.pid) == first) {
        return None;
    }
    let entered = entered(snapshot, frames);
    let by_uprobe = |path: usize| is_by_uprobe(snapshot, snapshot.paths[path].point);
    let mut inside: FxHashMap<usize, (u64, u64)> = FxHashMap::default();
    let mut parents = nesting.parents.clone();
    for (path, sum) in sums.iter().enumerate().filter(|(path, _)| nesting.parents[*path].is_none()) {
        for chain in frames.chains.outwards(frames.ends[path]) {
            let function = frames.chains.last(chain).map(|frame| &frames.functions[frame as usize]);
            let Some(Function::At(module, start)) = function else { continue };
            let Some(&around) = entered.get(&(*module, *start, frames.chains.outer(chain))) else { continue };
            // The agent and the kernel each know of their own calls.
            if by_uprobe(path) != by_uprobe(around) {
                continue;
            }
            parents[path].get_or_insert(around);
            let all = inside.entry(around).or_default();
            *all = (all.0.saturating_add(sum.inside()), all.1.saturating_add(sum.inside_cpu()));
        }
    }
    for (&path, &(wall, cpu)) in &inside {
        let sum = &mut sums[path];
        let matters = wall > sum.inside() / KNOWN_PART || cpu > sum.inside_cpu() / KNOWN_PART;
        sum.lacking |= matters;
        sum.running.elapsed_ns = sum.running.elapsed_ns.saturating_add(wall);
        sum.running.cpu_ns = sum.running.cpu_ns.saturating_add(cpu);
    }
    (!inside.is_empty()).then(|| Nesting::of(parents))
}

/// Paths of functions that were probed all the time and whose calls are kept apart while they last, by module, first byte and callers.
fn entered(snapshot: &CallSnapshot, frames: &Frames) -> FxHashMap<(u32, u64, u32), usize> {
    let away = |id: u32| snapshot.late.iter().any(|late| late.id == id) || snapshot.gaps.iter().any(|gap| gap.id == id);
    let wanted = |path: usize| {
        let row = &snapshot.paths[path];
        let point = snapshot.points.get(row.point as usize)?;
        (has_exits(snapshot, path) && !away(point.id))
            .then_some(((point.module, point.offset, frames.ends[path]), path))
    };
    (0..snapshot.paths.len()).filter_map(wanted).collect()
}
