//! Ranges per cause over many instructions (paper figure 4): executing, static and dynamic stalls, and what nothing
//! explains, as shares of the time.
//!
//! Where executions are only bounded from above, what they take at best is bounded from above with them, and the rest of
//! the time, which is dynamic, from below. What is faster than its best then says nothing but how loose the bound is.

use super::Certainty;
use super::units::most_on_the_way;
use crate::results::analysis::{Cause, CauseRange, InsnAnalysis, Summary};

/// Tallies instructions with how often each was executed. Instructions without cycles are left out. `kernel_share`: time that
/// the hypervisor took. Where the figures come from and what they are about is the caller's to fill in.
#[must_use]
pub fn summary<'a>(
    insns: impl IntoIterator<Item = (&'a InsnAnalysis, f64)>,
    certainty: Certainty,
    kernel_share: f64,
) -> Summary {
    let mut tally = Tally::default();
    for (insn, executions) in insns {
        tally.add(insn, executions);
    }
    let mut out = match certainty {
        Certainty::Known => tally.exact(),
        Certainty::AtLeast => tally.bounded(),
    };
    // Any instruction may have been the one that was interrupted; all of them together were no longer than it took. Those that the
    // hypervisor did itself took it no time that it told of.
    let most = kernel_share + tally.done_by_kernel(kernel_share);
    for row in out.causes.iter_mut().filter(|row| row.cause == Cause::Kernel) {
        (row.min, row.max) = (row.min.min(most), row.max.min(most));
    }
    out
}

/// Any access may have been the one that faulted; all of them together took no longer than so many faults as the handler had time for.
/// `share`: its part of `all` samples.
pub fn cap_page_faults(summary: &mut Summary, share: f64, all: f64) {
    let most = most_on_the_way(share, all, summary.samples);
    for row in summary.causes.iter_mut().filter(|row| row.cause == Cause::PageFault) {
        (row.min, row.max) = (row.min.min(most), row.max.min(most));
    }
}

#[derive(Default)]
struct Tally {
    time: f64,
    execution: f64,
    statics: f64,
    dynamic: f64,
    /// What causes not ruled out can have taken.
    most_dynamic: f64,
    unlikely: f64,
    unexplained: f64,
    unjudged: f64,
    gain: f64,
    ranges: [(f64, f64); Cause::ALL.len()],
    /// Of each instruction, what the hypervisor can have taken there.
    kernel: Vec<f64>,
    best: f64,
    executions: f64,
    samples: f64,
}

impl Tally {
    fn add(&mut self, insn: &InsnAnalysis, executions: f64) {
        let (Some(cycles), true) = (insn.cycles, executions > 0.0 && executions.is_finite()) else { return };
        let stall = insn.stall_cycles.unwrap_or(cycles - insn.best_cycles);
        let busy = insn.busy_cycles;
        let waits = insn.static_stall.as_ref().map_or(0.0, |s| s.max_cycles.min(insn.best_cycles - busy).max(0.0));
        let suspects = insn.culprits.iter().map(|c| c.max_cycles).chain(insn.in_sums.iter().map(|(_, most)| *most));
        let suspects = suspects.sum::<f64>() + insn.unlikely;
        self.time += executions * cycles;
        self.best += executions * insn.best_cycles;
        self.executions += executions;
        self.samples += insn.samples;
        self.statics += executions * waits;
        self.execution += executions * (insn.best_cycles - busy - waits);
        self.dynamic += executions * (busy + stall.max(0.0));
        self.most_dynamic += executions * suspects.max(busy + stall).clamp(0.0, cycles);
        self.unlikely += executions * insn.unlikely;
        self.gain += executions * (-stall).max(0.0);
        // What its own unit takes is named.
        let named: f64 = if insn.unjudged { insn.culprits.iter().map(|c| c.max_cycles).sum() } else { cycles };
        self.unjudged += executions * (cycles - named).max(0.0);
        self.unexplained += executions * insn.unexplained.clamp(0.0, stall.max(0.0));
        if let Some(s) = &insn.static_stall {
            self.range(s.cause, executions * waits, executions * waits);
        }
        let named = insn.culprits.iter().map(|c| (c.cause, c.min_cycles, c.max_cycles));
        for (cause, min, max) in named.chain(insn.in_sums.iter().map(|&(cause, most)| (cause, 0.0, most))) {
            self.kernel.extend((cause == Cause::Kernel).then_some(executions * max));
            self.range(cause, executions * min, executions * max);
        }
    }

    fn range(&mut self, cause: Cause, min: f64, max: f64) {
        if let Some(i) = Cause::ALL.iter().position(|c| *c == cause) {
            self.ranges[i].0 += min;
            self.ranges[i].1 += max;
        }
    }

    /// Share of the time at single instructions that is more than all it took elsewhere.
    fn done_by_kernel(&self, elsewhere: f64) -> f64 {
        let above = |k: &&f64| self.share(**k) > 1.01 * elsewhere;
        self.share(self.kernel.iter().filter(above).sum())
    }

    fn share(&self, x: f64) -> f64 {
        if self.time > 0.0 { x / self.time } else { 0.0 }
    }

    fn per_instruction(&self, cycles: f64) -> Option<f64> {
        (self.executions > 0.0).then(|| cycles / self.executions)
    }

    fn exact(&self) -> Summary {
        let told = self.share(self.execution + self.statics + self.dynamic - self.gain);
        let (dynamic, statics, execution) =
            (self.share(self.dynamic), self.share(self.statics), self.share(self.execution));
        let range = |(&cause, (min, max)): (&Cause, (f64, f64))| CauseRange {
            cause,
            min: self.share(min),
            max: self.share(max),
        };
        Summary {
            best_cpi: self.per_instruction(self.best),
            cpi: self.per_instruction(self.time),
            causes: Cause::ALL.iter().zip(self.ranges).map(range).collect(),
            unexplained_stall: self.share(self.unexplained),
            unjudged: self.share(self.unjudged),
            unlikely: self.share(self.unlikely),
            unexplained_gain: self.share(self.gain),
            dynamic,
            static_stall: statics,
            execution,
            dynamic_range: (dynamic, dynamic),
            static_range: (statics, statics),
            execution_range: (execution, execution),
            sampling_error: if self.time > 0.0 { 1.0 - told } else { 0.0 },
            samples: self.samples,
            ..Summary::default()
        }
    }

    /// Executions are at most what was tallied.
    fn bounded(&self) -> Summary {
        // Where blocks are faster than their best others ran less often too, or waited less long.
        let kept = if self.dynamic > self.gain { 1.0 - self.gain / self.dynamic } else { 0.0 };
        let least = (self.share(self.dynamic) * kept).min(1.0);
        let rest = 1.0 - least;
        let dynamic = (least, self.share(self.most_dynamic).clamp(least, 1.0));
        let statics = (0.0, self.share(self.statics).min(rest));
        let execution = (0.0, self.share(self.execution).min(rest));
        let range = |(&cause, (min, max)): (&Cause, (f64, f64))| {
            let most = if cause.is_static() { statics.1 } else { dynamic.1 };
            let max = self.share(max).min(most);
            let min = if cause.is_static() { 0.0 } else { (self.share(min) * kept).min(max) };
            CauseRange { cause, min, max }
        };
        let best_cpi = self.per_instruction(self.best);
        Summary {
            bounded: true,
            best_cpi,
            // It takes its best at the least.
            cpi: self.per_instruction(self.time).map(|c| c.max(best_cpi.unwrap_or(0.0))),
            causes: Cause::ALL.iter().zip(self.ranges).map(range).collect(),
            unexplained_stall: self.share(self.unexplained) * kept,
            unjudged: self.share(self.unjudged),
            unlikely: self.share(self.unlikely).min(dynamic.1),
            dynamic: dynamic.0,
            static_stall: statics.1,
            execution: execution.1,
            dynamic_range: dynamic,
            static_range: statics,
            execution_range: execution,
            samples: self.samples,
            ..Summary::default()
        }
    }
}
