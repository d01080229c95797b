//! Shares of probes that came late: what they have counted is a part of the time since, not of all of it.

use crate::sums::{Adder, PathSum, ROUNDING, Wholes, share};
use whither_store::calls::{CallSnapshot, Spent};

/// Where the time of a late probe begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Since(
    /// What had been spent by then, where that was noted.
    Option<Spent>,
);

impl Since {
    /// Of a point; `None` where it was there from the begin.
    pub(crate) fn of(snapshot: &CallSnapshot, point: u32) -> Option<Self> {
        let id = snapshot.points.get(point as usize)?.id;
        snapshot.late.iter().find(|late| late.id == id).map(|late| Self(late.spent))
    }

    /// Parts of the CPU time and of the thread lifetimes since; NaN where these are not known.
    fn shares(self, cpu: u64, inside: u64, whole: &Wholes) -> (f64, f64) {
        let Some(spent) = self.0 else { return (f64::NAN, f64::NAN) };
        let rest = |all: u64, before: u64| all.saturating_sub(before);
        (share(cpu, rest(whole.cpu, spent.cpu_ns)), share(inside, rest(whole.thread, spent.thread_ns)))
    }
}

/// Outermost time of the paths whose probes came at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    since: Since,
    cpu: u64,
    inside: u64,
}

impl Adder {
    /// Notes an outermost path by the moment its probe came.
    pub(crate) fn add_late(&mut self, sum: &PathSum) {
        let Some(since) = sum.since else { return };
        let of = |late: &Late| late.since == since;
        let at = self.late.iter().position(of).unwrap_or_else(|| {
            self.late.push(Late { since, cpu: 0, inside: 0 });
            self.late.len() - 1
        });
        if let Some(late) = self.late.get_mut(at) {
            late.cpu = late.cpu.saturating_add(sum.cpu);
            late.inside = late.inside.saturating_add(sum.inside());
        }
    }

    /// Parts of the CPU time and of thread lifetimes. Time of probes that came at different moments is a part of different
    /// wholes: those parts are added. Where they come to more than all (the program has changed what it does), no number is right.
    pub(crate) fn shares(&self, whole: &Wholes) -> (f64, f64) {
        let (mut cpu, mut inside) = (self.cpu, self.inside);
        let mut all = (0.0, 0.0);
        for late in &self.late {
            (cpu, inside) = (cpu.saturating_sub(late.cpu), inside.saturating_sub(late.inside));
            let (exec, wall) = late.since.shares(late.cpu, late.inside, whole);
            all = (all.0 + exec, all.1 + wall);
        }
        // `f64::min` would make a number of NaN.
        let known = |part: f64| if part <= ROUNDING { part.min(1.0) } else { f64::NAN };
        let (exec, wall) = (all.0 + share(cpu, whole.cpu), all.1 + share(inside, whole.thread));
        (if whole.cpu_timed { known(exec) } else { f64::NAN }, known(wall))
    }
}
