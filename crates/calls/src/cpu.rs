//! CPU time of calls, and how well it is known. Measuring costs CPU time: what it cost in the callees of a path is taken off, and
//! where less than that is left there is a bound, however well the wall time may be known (a call that sleeps has much of that).
//! And while threads wait for CPUs, that cost is in wall times once more: they wait the longer for it.
//! Not here: how much is taken off (sums).

use crate::sums::{KNOWN_NS, KNOWN_PART, PathSum};
use whither_store::calls::{CallSnapshot, PathTotals};

/// CPU time of outermost calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuAdder {
    pub(crate) ns: u64,
    /// No less than `ns`, whatever callees cost to be measured.
    most: u64,
    /// What was taken off where no more than that was left.
    open: u64,
    /// How far off `ns` may be, and of how many completed calls that is.
    unsure: u64,
    done: u64,
    /// Off the CPU: in the wall time of calls whose CPU time is known.
    pub(crate) off: u64,
}

impl CpuAdder {
    pub(crate) fn add(&mut self, sum: &PathSum) {
        let inside = sum.inside_cpu();
        self.ns = self.ns.saturating_add(inside);
        self.most = self.most.saturating_add(if sum.cpu_bound { sum.raw_cpu } else { inside });
        self.open = self.open.saturating_add(if sum.cpu_bound { sum.cpu_doubt } else { 0 });
        let each = sum.done.saturating_mul(sum.resolution_ns);
        self.unsure = self.unsure.saturating_add(sum.cpu_doubt).saturating_add(each);
        self.done = self.done.saturating_add(sum.done);
        let running = sum.running;
        let (wall, cpu) = if running.cpu_unknown == 0 { (sum.inside(), inside) } else { (sum.wall, sum.cpu) };
        self.off = self.off.saturating_add(wall).saturating_sub(cpu);
    }

    pub(crate) fn unsure(&self) -> u64 {
        self.unsure
    }

    /// Where it is not known: it is no more than this.
    pub(crate) fn below(&self) -> Option<u64> {
        // A part that could not change it much is no reason to doubt it.
        let is_open = self.open > self.ns / 10;
        (is_open || (self.ns == 0 && self.unsure > 0)).then(|| self.most.max(1).saturating_add(self.rest()))
    }

    /// Without what is open.
    pub(crate) fn at_least(&self) -> u64 {
        if self.below().is_some() { self.ns.saturating_sub(self.open) } else { self.ns }
    }

    /// Of calls that nothing is left of.
    fn rest(&self) -> u64 {
        if self.ns == 0 { self.unsure } else { 0 }
    }

    /// Whether it may be off by more than times are told to be known to.
    pub(crate) fn is_rough(&self) -> bool {
        self.unsure > self.ns / KNOWN_PART && self.unsure > self.done.saturating_mul(KNOWN_NS)
    }
}

/// How long calls of a path have waited for CPUs on account of so much of their CPU time, which measuring cost.
pub(crate) fn queued_ns(snapshot: &CallSnapshot, cost_ns: u64, t: &PathTotals) -> u64 {
    let off = t.wall_ns.saturating_sub(t.cpu_ns);
    if is_queue(snapshot, off, t.cpu_ns) {
        return part(off, cost_ns.min(t.cpu_ns), t.cpu_ns);
    }
    part(cost_ns, snapshot.whole.queued_ns, snapshot.whole.ran_ns).min(off)
}

/// Measured CPU times up to so many times what measuring costs, or what can be told from nothing, are of that order only: beside others
/// probes cost twice what they do alone.
const ORDER: u64 = 3;

/// Where threads have waited for CPUs, and of the CPU time nothing is left that could be told from nothing, wall times are mostly
/// waiting on account of probes: functions of 2 ns were told as 400, and less than that is not known.
pub(crate) fn doubt_waiting(snapshot: &CallSnapshot, sum: &mut PathSum) {
    let unsure =
        sum.cpu_doubt.saturating_mul(ORDER - 1).max(sum.done.saturating_mul(sum.resolution_ns).saturating_mul(ORDER));
    let nothing_left = sum.cpu_bound || sum.cpu < unsure;
    let off = sum.raw_wall.saturating_sub(sum.raw_cpu);
    if nothing_left && sum.raw_cpu > 0 && off > sum.raw_wall / 4 && is_queue(snapshot, off, sum.raw_cpu) {
        (sum.bound, sum.doubt) = (true, sum.raw_wall);
    }
}

/// Whether so much time off the CPU may all have been spent waiting for one: the program has waited that much on average, or half of it,
/// as these calls may have been less lucky than others.
fn is_queue(snapshot: &CallSnapshot, off_ns: u64, cpu_ns: u64) -> bool {
    off_ns <= part(cpu_ns, snapshot.whole.queued_ns, snapshot.whole.ran_ns).saturating_mul(2)
}

fn part(of: u64, some: u64, all: u64) -> u64 {
    u64::try_from(u128::from(of) * u128::from(some) / u128::from(all.max(1))).unwrap_or(u64::MAX)
}
