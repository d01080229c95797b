//! The gap method: how long an interrupt keeps a CPU away from what runs there. A loop reads the
//! time-stamp counter; a jump between two readings is time somebody else took (design note 3.1).

use std::time::Duration;

/// What the gaps of one measurement look like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gaps {
    /// Gaps longer than 300 ns.
    pub count: usize,
    /// Median length of those gaps, ns.
    pub median_ns: f64,
}

/// Spins for `span` on the calling thread and looks at the gaps. `None` when the machine has no
/// usable time-stamp counter or nothing interrupted the loop.
#[must_use]
pub fn measure(span: Duration) -> Option<Gaps> {
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
    let mut long: Vec<f64> = gaps.iter().map(|&g| g as f64 / per_ns).filter(|&ns| ns > 300.0).collect();
    long.sort_by(f64::total_cmp);
    let median_ns = *long.get(long.len() / 2)?;
    Some(Gaps { count: long.len(), median_ns })
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
    #[test]
    fn a_spin_of_twenty_milliseconds_ends() {
        let t = std::time::Instant::now();
        if let Some(g) = super::measure(std::time::Duration::from_millis(20)) {
            assert!(g.count > 0 && g.median_ns > 300.0);
        }
        assert!(t.elapsed().as_secs() < 5);
    }
}
