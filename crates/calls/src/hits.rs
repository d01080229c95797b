//! Calls that breakpoints of the kernel (uprobes) have measured: what these cost inside of a call, and what is left of a time
//! without it. Not here: what the agent's probes cost (sums).

use crate::sums::{KNOWN_PART, PathSum, cost_ns, no_more_than_all};
use whither_store::calls::{CallSnapshot, PatchKind, PathTotals};

/// What is left of a time is known to be of a call when it is so many times what was taken off. Breakpoints cost what caches and
/// the hypervisor make of them: calls of 2 ns, measured at 10.7 us each, were told as 5.5 us where a hit had been found to cost 5.2.
const SURE: u64 = 2;

/// Uprobes do not time nested calls.
pub(crate) fn is_by_uprobe(snapshot: &CallSnapshot, point: u32) -> bool {
    snapshot.points.get(point as usize).is_some_and(|p| p.patch == Some(PatchKind::Uprobe))
}

/// Hits of a path's breakpoints: entries, and exits where they are seen.
pub(crate) fn hits_of(snapshot: &CallSnapshot, path: usize, t: &PathTotals) -> u64 {
    let point = snapshot.paths[path].point;
    let entry_only = snapshot.points.get(point as usize).is_some_and(|p| p.entry_only.is_some());
    let hits = t.calls.saturating_add(if entry_only { 0 } else { t.done });
    if is_by_uprobe(snapshot, point) { hits } else { 0 }
}

/// What a hit has cost, picoseconds: no more than what all CPU time has had for each.
pub(crate) fn cost_of_hit(snapshot: &CallSnapshot) -> u64 {
    let hits = (0..snapshot.paths.len()).map(|i| hits_of(snapshot, i, &snapshot.paths[i].totals));
    no_more_than_all(snapshot, hits.fold(0, u64::saturating_add), snapshot.own_cost.hit_ps)
}

/// Takes off what breakpoints cost inside of the call itself: the way back from that at the entry and the way to that at the
/// exit, about one hit. (The agent does it for its own.)
pub(crate) fn without_hits(mut t: PathTotals, hit_ps: u64) -> PathTotals {
    if t.max_ns == 0 {
        return t;
    }
    let (one, all) = (hit_ps / 1000, cost_ns(t.done, hit_ps));
    t.wall_ns = t.wall_ns.saturating_sub(all);
    t.cpu_ns = t.cpu_ns.saturating_sub(all);
    t.min_ns = t.min_ns.saturating_sub(one);
    t.max_ns = t.max_ns.saturating_sub(one).max(1);
    t
}

/// Where hardly more is left than was taken off, the calls took no longer than was measured with all that the breakpoints cost: what a
/// hit costs here and now may be half of what it was found to cost.
pub(crate) fn doubt_remainder(sum: &mut PathSum, hit_ps: u64) {
    let all = cost_ns(sum.done, hit_ps);
    // Whatever bounds the times: they are no longer than this.
    sum.raw_wall = sum.raw_wall.saturating_add(all);
    sum.raw_cpu = if sum.raw_cpu > 0 { sum.raw_cpu.saturating_add(all) } else { 0 };
    if sum.done > 0 && sum.wall < all.saturating_mul(SURE) {
        (sum.doubt, sum.bound) = (sum.raw_wall, true);
    }
    if sum.cpu > 0 && sum.cpu < all.saturating_mul(SURE) {
        (sum.cpu_doubt, sum.cpu_bound) = (sum.raw_cpu, true);
    }
    // What one hit has cost the shortest call is not known.
    if sum.max > 0 && sum.min < (hit_ps / 1000).saturating_mul(KNOWN_PART) {
        sum.min = sum.min.saturating_add(hit_ps / 1000);
        sum.max = sum.max.saturating_add(hit_ps / 1000);
        sum.min_open = true;
    }
}
