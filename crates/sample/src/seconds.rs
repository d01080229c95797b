//! The timer that finds second moments of sampled threads: one event per CPU with a period of its own, a part of the sampler's
//! interrupts at most. What it finds is read in `edges/laps`.

use crate::SampleError;
use whither_kernel::events;
use whither_kernel::perf::{Attr, PerfEvent, Watch};

/// Nanoseconds from one second moment to the next, at least: 397 a second and CPU. No multiple of any sampling period that
/// people ask for.
const PERIOD_NS: u64 = 2_518_913;
/// Periods of samples in one of second moments, at least, as a fraction that is no whole number.
const SAMPLES: (u64, u64) = (29, 7);

/// The events, and how often they have interrupted.
#[derive(Debug)]
pub(crate) struct Seconds {
    events: Vec<(u32, PerfEvent)>,
    period_ns: u64,
    /// Interrupts before the period last changed, and what the events had counted by then.
    before: (u64, u64),
}

impl Default for Seconds {
    fn default() -> Self {
        Self { events: Vec::new(), period_ns: PERIOD_NS, before: (0, 0) }
    }
}

impl Seconds {
    /// Opens the event of a CPU, for the caller to attach to and to hand back.
    pub(crate) fn open(&self, cpu: u32) -> Result<PerfEvent, SampleError> {
        let spec = events::parse("cpu-clock")?;
        let (kind, config, period) = (spec.kind, spec.config, self.period_ns);
        let attr = Attr { kind, config, period, disabled: true, ..Attr::default() };
        Ok(PerfEvent::open(&attr, Watch::Cpu(cpu))?)
    }

    /// Takes an event into the account.
    pub(crate) fn add(&mut self, cpu: u32, event: PerfEvent) {
        self.events.push((cpu, event));
    }

    /// Closes those of a CPU.
    pub(crate) fn leave(&mut self, cpu: u32) {
        self.events.retain(|(c, _)| *c != cpu);
    }

    /// The events.
    pub(crate) fn events(&self) -> impl Iterator<Item = &PerfEvent> {
        self.events.iter().map(|(_, e)| e)
    }

    /// Has them keep to samples that come so far apart. An event that does not change its period (its CPU went off line) finds no
    /// fewer pairs.
    pub(crate) fn keep_to(&mut self, sample_ns: u64) {
        let period_ns = period(sample_ns);
        if period_ns != self.period_ns {
            self.before = (self.interrupts(), self.counted());
            self.period_ns = period_ns;
            self.events().for_each(|e| {
                let _ = e.set_period(period_ns);
            });
        }
    }

    /// Interrupts so far.
    pub(crate) fn interrupts(&self) -> u64 {
        self.before.0 + self.counted().saturating_sub(self.before.1) / self.period_ns
    }

    fn counted(&self) -> u64 {
        self.events().map(|e| e.count().unwrap_or(0)).sum()
    }
}

fn period(sample_ns: u64) -> u64 {
    PERIOD_NS.max(sample_ns.saturating_mul(SAMPLES.0) / SAMPLES.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_moments_are_a_part_of_samples() {
        assert_eq!(period(100_000), PERIOD_NS);
        assert_eq!(period(7_000_000), 29_000_000);
        assert!(period(u64::MAX) >= PERIOD_NS);
    }
}
