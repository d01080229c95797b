//! What measuring cost, as a part of the CPU time: its two ends. Not here: what is taken off times (sums).
//!
//! What a probed call costs depends on what its program does beside it: processors hide most of a probe behind work that
//! waits for something else. The lower end is what it costs on a function with such work, the upper one what it costs where
//! nothing hides any of it. Between them the truth lies, unless threads wait more than they run: calls behind waits find caches that
//! others have used since. Then there is a lower end only.

use crate::analysis::Analysis;
use crate::results::OwnCostRow;
use crate::sums::{clocks, cost_ns, no_more_than_all, share};
use whither_store::calls::{CallSnapshot, MostCost, MostOfKind};

/// Frames of the path that the usual cost was measured by, or so.
const FRAMES: u32 = 10;

/// Upper ends are stretched by this: calibration has the caches to itself, and a processor that shares its core with nobody. Of 15
/// timed runs of short calls five cost up to 1.45 times what it had found where nothing hides.
const MARGIN: (u128, u128) = (3, 2);

impl Analysis<'_> {
    /// What measuring cost. Of calls by way of signals (`int3`) it is not known.
    #[must_use]
    pub fn own_cost(&self) -> OwnCostRow {
        let (cost, cpu_ns) = (self.snapshot.own_cost, self.snapshot.whole.cpu_ns);
        let (timed, counted) = self.patched_calls();
        let calls = timed.saturating_add(counted);
        let usual = if cost.count_ps == 0 { cost.whole_ps } else { cost.count_ps };
        // With an upper end beside it, what is told is the lower one.
        let count_ps = cost.most.and(cost.count_least_ps).unwrap_or(usual);
        let all_ps = cost_ns(timed, cost.whole_ps.saturating_mul(1000))
            .saturating_add(cost_ns(counted, count_ps.saturating_mul(1000)));
        let per_call = no_more_than_all(self.snapshot, calls, all_ps.checked_div(calls).unwrap_or(cost.whole_ps));
        // An estimate: no more than there is.
        let kernel_ns = cost.kernel_ns.unwrap_or(0).min(cpu_ns);
        let apart_ns = cost.apart_ns.min(cpu_ns);
        let patched = cost_ns(calls, per_call);
        let other = kernel_ns.saturating_add(apart_ns);
        let ns = patched.saturating_add(other).min(cpu_ns.max(patched));
        let most = cost.most.map(|most| self.most_of_calls(&most).saturating_add(other).clamp(ns, cpu_ns.max(ns)));
        OwnCostRow {
            ns_per_call: per_call as f64 / 1000.0,
            inside_ns_per_call: cost.inside_ps as f64 / 1000.0,
            ns,
            most_ns: most,
            kernel_ns,
            apart_ns,
            // Short calls lose besides what they had overlapped with: by how much is known with the upper end only. Nor is it known
            // what ever new paths leave of the program's caches: 7,088 functions of python3 were told as 14 to 19 % of its CPU time
            // where samples had 19 % in the agent alone, and runs without it took 16 to 37 % less.
            open: cost.kernel_ns.is_none()
                || self.has_traps()
                || (most.is_none() && timed > 0 && patched > cpu_ns / 10)
                || (ns > cpu_ns / 100 && apart_ns > patched)
                || (ns > cpu_ns / 100 && self.mostly_waits()),
            rough: kernel_ns > ns / 2 || (most.is_none() && counted > timed),
            // Without a calibration the cost is not known, and not nothing.
            share: if cost.whole_ps == 0 && calls > 0 { f64::NAN } else { share(ns, cpu_ns) },
            share_most: most.map_or(f64::NAN, |most| share(most, cpu_ns)),
        }
    }

    /// Whether threads wait more than they run. Then calls come behind waits, with caches that others have used since: they cost more
    /// than calibration, which makes them one after the other, can know (about twice as much: 28 % of CPU where 12 were known).
    fn mostly_waits(&self) -> bool {
        let whole = self.snapshot.whole;
        whole.cpu_ns.saturating_mul(2) < whole.thread_ns
    }

    /// Nanoseconds that all patched calls have cost where nothing has hidden any part of it.
    fn most_of_calls(&self, most: &MostCost) -> u64 {
        let (mut all, mut largest, mut sum_ps, mut of_kind) = (0_u64, 0_u64, 0_u128, [0_u64; 2]);
        for (path, timed) in self.patched_paths() {
            let calls = self.sums[path].calls;
            let cost = if timed { most.timed } else { most.counted };
            all = all.saturating_add(calls);
            largest = largest.max(calls);
            of_kind[usize::from(timed)] = of_kind[usize::from(timed)].saturating_add(calls);
            sum_ps += u128::from(calls) * u128::from(by_frames(&cost, most.frames, frames_of(self.snapshot, path)));
        }
        // A call by another path than the one before it, or one before such a call, is by a path that is not the most frequent.
        let changes = all.saturating_sub(largest).saturating_mul(2);
        for (calls, cost) in of_kind.into_iter().zip([most.counted, most.timed]) {
            let more = cost.varied_ps.saturating_sub(cost.same_ps);
            sum_ps += u128::from(calls.min(changes)) * u128::from(more);
        }
        u64::try_from(sum_ps * MARGIN.0 / MARGIN.1 / 1000).unwrap_or(u64::MAX)
    }

    /// Paths of calls by way of the agent, and whether these have times.
    fn patched_paths(&self) -> impl Iterator<Item = (usize, bool)> + '_ {
        let wall = clocks(self.snapshot).wall;
        let patched = self.snapshot.paths.iter().enumerate().filter(|(_, p)| self.is_patched(p.point));
        patched.map(move |(i, path)| {
            let entry_only = self.snapshot.points.get(path.point as usize).is_some_and(|p| p.entry_only.is_some());
            (i, wall && !entry_only)
        })
    }

    /// Calls by way of the agent: those that have times, and those that are counted only.
    fn patched_calls(&self) -> (u64, u64) {
        let mut calls = (0_u64, 0_u64);
        for (path, timed) in self.patched_paths() {
            let of = if timed { &mut calls.0 } else { &mut calls.1 };
            *of = of.saturating_add(self.sums[path].calls);
        }
        calls
    }
}

/// Picoseconds of a call by a path of so many frames: each is one comparison more.
fn by_frames(cost: &MostOfKind, deep: u32, frames: u32) -> u64 {
    let more = u128::from(cost.deep_ps.saturating_sub(cost.same_ps)) * u128::from(frames.saturating_sub(FRAMES));
    cost.same_ps.saturating_add(u64::try_from(more / u128::from(deep.max(1))).unwrap_or(u64::MAX))
}

/// Frames of a path; a loop, which no engine writes, ends.
fn frames_of(snapshot: &CallSnapshot, path: usize) -> u32 {
    const MOST: usize = 4096;
    let at = |frame: u32| snapshot.frames.get(frame as usize).map(|f| f.caller);
    let first = Some(snapshot.paths[path].frame).filter(|&f| at(f).is_some());
    let frames = std::iter::successors(first, |&f| at(f).filter(|&next| at(next).is_some()));
    u32::try_from(frames.take(MOST).count()).unwrap_or(u32::MAX)
}
