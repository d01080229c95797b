//! The processor's time stamp counter, and nanoseconds. Both sides stamp with it; only the controller
//! knows how long a tick is. Constraint: the counter must run evenly (`constant_tsc`, `nonstop_tsc`).

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;
use whither_kernel::clock::monotonic_ns;
use whither_kernel::perf::{Attr, PerfEvent, Watch};

/// From ticks to nanoseconds: `ns = ticks * mult >> 32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    mult: u64,
    step: u64,
}

/// Binary digits behind the point of [`Clock`]'s factor.
pub(crate) const SHIFT: u32 = 32;

impl Clock {
    /// Measures the length of a tick, once per process; takes 10 ms the first time.
    pub(crate) fn get() -> Self {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        *CLOCK.get_or_init(|| {
            let (ticks, ns) = pair();
            std::thread::sleep(Duration::from_millis(10));
            let (later, then) = pair();
            let (ticks, ns) = (later.wrapping_sub(ticks).max(1), then.saturating_sub(ns));
            let mult = (u128::from(ns) << SHIFT) / u128::from(ticks);
            Self { mult: u64::try_from(mult).unwrap_or(1 << SHIFT).max(1), step: step() }
        })
    }

    /// The factor, for the agent.
    pub(crate) fn mult(self) -> u64 {
        self.mult
    }

    /// Ticks by which the counter advances at a time: 1 on some processors, tens on others (26 on Zen 4).
    pub(crate) fn step(self) -> u64 {
        self.step
    }

    /// Nanoseconds of so many ticks.
    pub(crate) fn ns(self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.mult)) >> SHIFT).min(u128::from(u64::MAX)) as u64
    }

    /// Picoseconds of so many ticks.
    pub(crate) fn ps(self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.mult) * 1000) >> SHIFT).min(u128::from(u64::MAX)) as u64
    }

    /// Ticks in so much time.
    pub(crate) fn ticks(self, time: Duration) -> u64 {
        ((time.as_nanos() << SHIFT) / u128::from(self.mult)).min(u128::from(u64::MAX)) as u64
    }
}

/// The counter now.
pub(crate) fn now() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; it only reads.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Counter and clock at one moment: of several readings the one least interrupted.
fn pair() -> (u64, u64) {
    let reading = |_| {
        let before = now();
        let ns = monotonic_ns();
        let after = now();
        (after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), ns)
    };
    let best = (0..16).map(reading).min().unwrap_or_default();
    (best.1, best.2)
}

/// The greatest common divisor of the usual differences: one across an interruption or another CPU may be anything.
fn step() -> u64 {
    const READINGS: u32 = 4096;
    let mut last = now();
    let mut often = BTreeMap::<u64, u32>::new();
    for _ in 0..READINGS {
        let then = std::mem::replace(&mut last, now());
        *often.entry(last.wrapping_sub(then)).or_default() += 1;
    }
    often.into_iter().filter(|(_, n)| *n >= READINGS / 100).fold(0, |all, (ticks, _)| gcd(all, ticks)).max(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Whether the counter runs at one speed in all states of the processor.
pub(crate) fn runs_evenly() -> bool {
    static EVENLY: OnceLock<bool> = OnceLock::new();
    *EVENLY.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = text.lines().find(|l| l.starts_with("flags")).unwrap_or_default();
        ["constant_tsc", "nonstop_tsc"].iter().all(|f| flags.split_whitespace().any(|w| w == *f))
    })
}

/// Has the kernel look at events of threads whenever it switches between them, for as long as we live. Whoever opens the first such
/// event on a machine waits for all CPUs (`account_event` in kernel/events/core.c: some 6 ms), which had better be us than a thread
/// of the target that enters its first probed call.
pub(crate) fn prepare_events() {
    // `PERF_TYPE_SOFTWARE`, `PERF_COUNT_SW_DUMMY`: counts nothing.
    let nothing = Attr { kind: 1, config: 9, exclude_kernel: true, ..Attr::default() };
    static HELD: OnceLock<Option<PerfEvent>> = OnceLock::new();
    // Where it is refused, threads of the target will do without, too.
    HELD.get_or_init(|| PerfEvent::open(&nothing, Watch::Thread(0)).ok());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_the_kernels_nanoseconds() {
        let clock = Clock::get();
        let (ticks, ns) = pair();
        std::thread::sleep(Duration::from_millis(40));
        let (later, then) = pair();
        let (measured, true_ns) = (clock.ns(later - ticks) as f64, (then - ns) as f64);
        assert!((measured / true_ns - 1.0).abs() < 1e-3, "{measured} against {true_ns}");
        let second = clock.ns(clock.ticks(Duration::from_secs(1)));
        assert!(second.abs_diff(1_000_000_000) < 10, "{second}");
        assert_eq!(clock.ps(1000), clock.ns(1_000_000));
        assert!(clock.ns(clock.step()) < 100, "{} ticks at a time", clock.step());
        let first = now();
        assert_eq!(now().wrapping_sub(first) % clock.step(), 0);
    }
}
