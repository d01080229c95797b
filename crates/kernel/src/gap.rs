//! The gap method: how long an interrupt keeps a CPU away from what runs there. A loop reads the
//! time-stamp counter; a jump between two readings is time somebody else took (design note 3.1). A hypervisor has work of its own
//! at times, thousands of a microsecond each a second, so that the median of all jumps may be its: as many of the longest count as
//! there were interrupts.

use std::time::Duration;

/// What the gaps of one measurement look like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gaps {
    /// Gaps longer than 300 ns.
    pub count: usize,
    /// Median length of the longest of them, as many as were expected, ns.
    pub median_ns: f64,
}

/// Spins for `span` on the calling thread, which is interrupted `hertz` times a second, and looks at the gaps. `None` when the
/// machine has no usable time-stamp counter or nothing interrupted the loop.
#[must_use]
pub fn measure(span: Duration, hertz: f64) -> Option<Gaps> {
    let t0 = std::time::Instant::now();
    let first = tick();
    let mut gaps = Vec::with_capacity(4096);
    let mut last = first;
    // The loop must not call the kernel, so it counts turns and looks at the clock seldom.
    while t0.elapsed() < span && gaps.len() < 100_000 {
        for _ in 0..2_000 {
            let now = tick();
            gaps.push(now.wrapping_sub(last));
            if gaps[gaps.len() - 1] < 500 {
                gaps.pop();
            }
            last = now;
        }
    }
    let per_ns = last.wrapping_sub(first) as f64 / t0.elapsed().as_nanos() as f64;
    let long: Vec<f64> = gaps.iter().map(|&g| g as f64 / per_ns).filter(|&ns| ns > 300.0).collect();
    let count = long.len();
    let median_ns = of_longest(long, (t0.elapsed().as_secs_f64() * hertz).round() as usize)?;
    Some(Gaps { count, median_ns })
}

/// Median of the `expected` longest; of all where there are no more.
fn of_longest(mut gaps: Vec<f64>, expected: usize) -> Option<f64> {
    gaps.sort_by(|a, b| b.total_cmp(a));
    gaps.truncate(expected);
    gaps.get(gaps.len() / 2).copied()
}

#[cfg(target_arch = "x86_64")]
fn tick() -> u64 {
    // SAFETY: `rdtsc` exists on every x86-64 CPU and has no side effect.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn tick() -> u64 {
    crate::clock::monotonic_ns()
}

#[cfg(test)]
mod tests {
    use super::of_longest;

    #[test]
    fn a_hypervisors_jumps_are_no_interrupts() {
        let mixed = |noise: usize| [vec![1_500.0; noise], vec![12_000.0; 250], vec![90_000.0; 5]].concat();
        assert_eq!(of_longest(mixed(10), 250), Some(12_000.0));
        assert_eq!(of_longest(mixed(622), 250), Some(12_000.0), "more jumps than interrupts");
        assert_eq!(of_longest(vec![12_000.0; 100], 250), Some(12_000.0), "some came late");
        assert_eq!(of_longest(vec![1_500.0; 9], 0), None, "nothing was sampled");
    }

    #[test]
    fn a_spin_of_twenty_milliseconds_ends() {
        let t = std::time::Instant::now();
        if let Some(g) = super::measure(std::time::Duration::from_millis(20), 1_000.0) {
            assert!(g.count > 0 && g.median_ns > 300.0);
        }
        assert!(t.elapsed().as_secs() < 5);
    }
}
