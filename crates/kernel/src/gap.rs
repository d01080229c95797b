//! The gap method: how long an interrupt keeps a CPU away from what runs there. A loop reads the
//! time-stamp counter; a jump between two readings is time somebody else took (design note 3.1). A hypervisor has work of its own
//! at times, thousands of a microsecond each a second, so that most jumps may be its: as many of the longest count as
//! there were interrupts. Interrupts come in long ones and short ones, and what they take in all is what matters: their mean.

use std::time::Duration;

/// What the gaps of one measurement look like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gaps {
    /// Gaps longer than 300 ns.
    pub count: usize,
    /// Mean length of the longest of them, as many as were expected, ns: the middle of three parts of the span, where each has
    /// interrupts enough.
    pub mean_ns: f64,
    /// The least and the greatest of the three parts' means, ns: how far one measurement is to be believed.
    pub range_ns: (f64, f64),
}

/// Whoever is away for so long was not interrupted, but had to leave the CPU to another thread, ns.
const AWAY_NS: f64 = 500_000.0;
/// Interrupts that make a mean of their own.
const ENOUGH: usize = 20;
const PARTS: usize = 3;

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
    looked_at(&long, t0.elapsed().as_secs_f64(), hertz)
}

/// What gaps of so many seconds tell, in the order they came.
fn looked_at(gaps: &[f64], seconds: f64, hertz: f64) -> Option<Gaps> {
    let away: f64 = gaps.iter().filter(|ns| **ns > AWAY_NS).sum();
    let here: Vec<f64> = gaps.iter().copied().filter(|ns| *ns <= AWAY_NS).collect();
    let expected = ((seconds - away / 1e9).max(0.0) * hertz).round() as usize;
    let whole = of_longest(here.clone(), expected)?;
    // Gaps come as evenly as interrupts do, so that a third of them is a third of the time that was had.
    let parts = here.chunks(here.len().div_ceil(PARTS));
    let mut means: Vec<f64> = parts.filter_map(|p| of_longest(p.to_vec(), expected.div_ceil(PARTS))).collect();
    means.sort_by(f64::total_cmp);
    let enough = means.len() == PARTS && expected >= ENOUGH * PARTS;
    let mean_ns = if enough { means[PARTS / 2] } else { whole };
    let range_ns = means.iter().fold((mean_ns, mean_ns), |(least, most), m| (least.min(*m), most.max(*m)));
    Some(Gaps { count: gaps.len(), mean_ns, range_ns })
}

/// Mean of the `expected` longest; of all where there are no more. What is so many times longer than the middle one was no
/// interrupt: somebody else had the CPU.
fn of_longest(mut gaps: Vec<f64>, expected: usize) -> Option<f64> {
    const LONGEST: f64 = 4.0;
    gaps.sort_by(|a, b| b.total_cmp(a));
    gaps.truncate(expected);
    let longest = LONGEST * gaps.get(gaps.len() / 2)?;
    gaps.retain(|gap| *gap <= longest);
    Some(gaps.iter().sum::<f64>() / gaps.len() as f64)
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
    use super::{looked_at, of_longest};

    #[test]
    fn who_had_to_leave_the_cpu_was_not_interrupted_for_so_long() {
        // 60 ms at 4 kHz, of which other threads had 40: 80 interrupts, and as many short jumps of the hypervisor as there would have
        // been interrupts.
        let mut gaps: Vec<f64> = (0..80).flat_map(|_| [12_000.0, 1_000.0, 1_000.0]).collect();
        (0..10).for_each(|i| gaps.insert(24 * i, 4e6));
        let seen = looked_at(&gaps, 0.06, 4_000.0).expect("gaps");
        assert!((seen.mean_ns - 12_000.0).abs() < 1_500.0, "{seen:?}");
    }

    #[test]
    fn a_bad_third_is_left_out_and_told() {
        let gaps = [vec![12_000.0; 80], vec![26_000.0; 80], vec![12_500.0; 80]].concat();
        let seen = looked_at(&gaps, 0.06, 4_000.0).expect("gaps");
        assert_eq!((seen.mean_ns, seen.range_ns), (12_500.0, (12_000.0, 26_000.0)));
    }

    #[test]
    fn a_hypervisors_jumps_are_no_interrupts() {
        let mixed = |noise: usize| [vec![1_500.0; noise], vec![12_000.0; 250], vec![90_000.0; 5]].concat();
        assert_eq!(of_longest(mixed(10), 250), Some(12_000.0));
        assert_eq!(of_longest(mixed(622), 250), Some(12_000.0), "more jumps than interrupts");
        assert_eq!(of_longest(vec![12_000.0; 100], 250), Some(12_000.0), "some came late");
        assert_eq!(of_longest(vec![1_500.0; 9], 0), None, "nothing was sampled");
        let uneven = [vec![12_000.0; 150], vec![30_000.0; 100]].concat();
        assert_eq!(of_longest(uneven, 250), Some(19_200.0), "all of them cost");
    }

    #[test]
    fn a_spin_of_twenty_milliseconds_ends() {
        let t = std::time::Instant::now();
        if let Some(g) = super::measure(std::time::Duration::from_millis(20), 1_000.0) {
            assert!(g.count > 0 && g.mean_ns > 300.0);
        }
        assert!(t.elapsed().as_secs() < 5);
    }
}
