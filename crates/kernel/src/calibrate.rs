//! Measures the core this runs on: latencies, widths and penalties in core cycles, for a few hundredths of a second.
//! Each figure is the least of many short runs, as interruptions only ever add. The unit is the dependent addition,
//! which takes one cycle on every core; the time-stamp counter only carries times from one run to the other.
//! What comes out implausible is left out, and if the clock changed meanwhile all of it is refused. A neighbour on the
//! core takes part of its units for longer than a run: everything is measured twice, and what differs is left out.

mod chains;
mod loops;
mod memory;
mod skid;

use crate::KernelError;
use crate::clock::monotonic_ns;
use loops::Loop;
pub use skid::{Skid, skid};

/// Grows when the way of measuring changes, so that cached figures of another way are not used.
pub const METHOD: u32 = 6;

/// Most that the clock may differ between beginning and end.
const STEADY: f64 = 0.08;

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Name and value; names are those of the store's core facts.
    pub values: Vec<(&'static str, f64)>,
    /// What was left out, as sentences.
    pub notes: Vec<String>,
    /// Both passes agreed on everything: worth keeping.
    pub steady: bool,
}

/// Most that two passes may differ, and those that depend on caches shared with others.
const SAME: f64 = 0.12;
const SAME_SHARED: f64 = 0.6;
/// Figures that things shared with others decide, and those per cycle rather than in cycles.
const SHARED: [&str; 8] = ["l2", "l3", "dram", "dtlb_walk", "lock", "cpuid", "read_clock", "pause"];
const RATES: [&str; 3] = ["alus", "width", "taken"];

impl Figures {
    /// A figure by its name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|v| v.0 == name).map(|v| v.1)
    }

    /// Latencies of kinds of instructions, by the names of the processor model.
    pub fn chains(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        self.values.iter().copied().filter(|(name, _)| chains::is_one(name))
    }

    /// The better of two passes, where they agree.
    fn agreed(self, other: &Self) -> Self {
        let mut agreed = Self { values: Vec::new(), notes: self.notes, steady: true };
        for (name, first) in self.values {
            let Some(second) = other.get(name) else { continue };
            let is_rate = RATES.contains(&name);
            let limit = if SHARED.contains(&name) { SAME_SHARED } else { SAME };
            let (low, high) = (first.min(second), first.max(second));
            // Half a cycle apart is the same for what takes few.
            if high - low > (limit * high).max(if is_rate { 0.0 } else { 0.5 }) {
                agreed.steady = false;
                agreed.notes.push(format!("{name} was {first:.2}, then {second:.2}: others use this core; left out"));
            } else {
                agreed.values.push((name, if is_rate { high } else { low }));
            }
        }
        agreed
    }

    fn put(&mut self, name: &'static str, value: f64, plausible: std::ops::RangeInclusive<f64>) {
        if plausible.contains(&value) {
            self.values.push((name, (value * 100.0).round() / 100.0));
        } else {
            self.notes.push(format!("measuring {name} gave {value:.2}, which cannot be right: left out"));
        }
    }
}

/// Measures on a thread of its own that stays on one CPU.
///
/// # Errors
/// When the thread cannot be started, or the core's clock changed while measuring.
pub fn calibrate() -> Result<Figures, KernelError> {
    let failed = |source| KernelError::Call { what: "starting a thread to measure the core", source };
    let thread = std::thread::Builder::new().name("whither-core".into()).spawn(measure).map_err(failed)?;
    let gone = || failed(std::io::Error::other("it did not come back"));
    thread.join().map_err(|_| gone())?
}

/// Core cycles per second now, while one thread computes; a few milliseconds. Governors, heat and neighbours change the
/// clock, so that each recording asks.
///
/// # Errors
/// As [`calibrate`].
pub fn clock_hz() -> Result<f64, KernelError> {
    let failed = |source| KernelError::Call { what: "starting a thread to measure the clock", source };
    let thread = std::thread::Builder::new().name("whither-clock".into()).spawn(measure_clock).map_err(failed)?;
    let hz = thread.join().map_err(|_| failed(std::io::Error::other("it did not come back")))?;
    if (2e8..=1e10).contains(&hz) { Ok(hz) } else { Err(failed(std::io::Error::other(format!("{hz} Hz cannot be")))) }
}

fn measure_clock() -> f64 {
    stay();
    // The first runs wake the core up.
    let _ = loops::ticks_per_round(&loops::ADD);
    let (wall, tsc) = (monotonic_ns(), loops::ticks_now());
    let unit = (0..4).map(|_| loops::ticks_per_round(&loops::ADD)).fold(f64::INFINITY, f64::min);
    let ns = monotonic_ns().saturating_sub(wall).max(1) as f64;
    loops::ticks_now().wrapping_sub(tsc) as f64 / ns * 1e9 / unit
}

fn measure() -> Result<Figures, KernelError> {
    stay();
    let (wall, tsc) = (monotonic_ns(), loops::ticks_now());
    // The first runs wake the core up from whatever state it was in.
    let _ = loops::ticks_per_round(&loops::ADD);
    let unit = loops::ticks_per_round(&loops::ADD);
    let pass = || {
        let mut figures = Figures::default();
        latencies(&mut figures, unit);
        chains::measure(&mut figures, unit);
        figures.put("mispredict", loops::mispredict_ticks() / unit, 5.0..=80.0);
        memory::measure(&mut figures, unit);
        figures
    };
    let mut figures = pass().agreed(&pass());
    let again = loops::ticks_per_round(&loops::ADD);
    let ns = monotonic_ns().saturating_sub(wall).max(1) as f64;
    let per_ns = loops::ticks_now().wrapping_sub(tsc) as f64 / ns;
    if (again / unit - 1.0).abs() > STEADY || !unit.is_finite() || unit <= 0.0 {
        let why = format!("a dependent addition took {unit:.3} ticks first and {again:.3} later: the clock changed");
        return Err(KernelError::Call { what: "measuring the core", source: std::io::Error::other(why) });
    }
    figures.put("clock_hz", per_ns * 1e9 / unit.min(again), 2e8..=1e10);
    Ok(figures)
}

/// Moving to another CPU would mix two clocks. Best effort: a thread that is not moved needs no right.
fn stay() {
    let cpu = rustix::thread::sched_getcpu();
    let mut set = rustix::thread::CpuSet::new();
    if cpu < rustix::thread::CpuSet::MAX_CPU {
        set.set(cpu);
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

/// Chains and throughputs, in units of the dependent addition.
fn latencies(figures: &mut Figures, unit: f64) {
    let cycles = |l: &Loop| loops::ticks_per_round(l) / unit;
    figures.put("add_immediate", cycles(&loops::ADD_IMMEDIATE), 0.05..=1.2);
    figures.put("imul", cycles(&loops::IMUL), 1.8..=12.0);
    // One operation of a cycle restores the dividend.
    figures.put("div32", cycles(&loops::DIV32) - 1.0, 3.0..=60.0);
    figures.put("div64", cycles(&loops::DIV64) - 1.0, 3.0..=120.0);
    figures.put("div_every", cycles(&loops::DIV_EVERY), 0.9..=60.0);
    figures.put("load", cycles(&loops::LOAD), 2.8..=9.0);
    figures.put("fp_add", cycles(&loops::FP_ADD), 0.9..=9.0);
    let multiply = cycles(&loops::FP_MUL);
    figures.put("fp_mul", multiply, 1.8..=9.0);
    if std::arch::is_x86_feature_detected!("fma") {
        figures.put("fma", cycles(&loops::FMA), 1.8..=9.0);
    }
    figures.put("fp_div", cycles(&loops::FP_DIV), 4.0..=60.0);
    figures.put("fp_div_every", cycles(&loops::FP_DIV_EVERY), 0.9..=60.0);
    figures.put("sqrt", cycles(&loops::SQRT) - multiply, 4.0..=80.0);
    figures.put("sqrt_every", cycles(&loops::SQRT_EVERY), 0.9..=80.0);
    figures.put("alus", 1.0 / cycles(&loops::ADDS), 1.0..=10.0);
    figures.put("width", 1.0 / cycles(&loops::MIX), 1.5..=16.0);
    // Which branches a core takes at once depends on how they lie: the best of some ways counts.
    let jumps = [&loops::JUMPS, &loops::FAR_JUMPS, &loops::BRANCHES, &loops::ROUNDS];
    let least = jumps.into_iter().map(cycles).fold(f64::INFINITY, f64::min);
    figures.put("taken", 1.0 / least, 0.4..=4.0);
    // One class of instructions: what the quickest of them takes.
    figures.put("lock", cycles(&loops::LOCK).min(cycles(&loops::EXCHANGE)), 4.0..=150.0);
    figures.put("forward", cycles(&loops::FORWARD), 0.0..=20.0);
    figures.put("forward_fail", cycles(&loops::FORWARD_FAIL), 5.0..=100.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_is_measured_in_less_than_a_second() {
        let start = std::time::Instant::now();
        let figures = match calibrate() {
            Ok(figures) => figures,
            Err(e) => return println!("SKIP: {e}"),
        };
        let took = start.elapsed();
        println!("{took:?} {figures:?}");
        assert!(took.as_secs_f64() < 3.0, "measuring took {took:?}, on a busy machine too");
        if !figures.steady {
            return println!("SKIP: others use this core: {:?}", figures.notes);
        }
        assert!(figures.values.len() >= 16, "{figures:?}");
        let get = |name: &str| figures.get(name).unwrap_or(f64::NAN);
        assert!((1.8..=5.5).contains(&get("imul")), "{figures:?}");
        assert!(get("div64") >= get("imul"), "{figures:?}");
        assert!(get("forward_fail") > get("forward"), "{figures:?}");
        assert!(get("width") >= get("alus") * 0.9, "{figures:?}");
        assert!(get("taken") <= get("width"), "{figures:?}");
    }

    #[test]
    fn the_clock_alone_is_that_of_the_whole() {
        let (Ok(clock), Ok(figures)) = (clock_hz(), calibrate()) else { return println!("SKIP: the clock changes") };
        let whole = figures.get("clock_hz").unwrap();
        assert!((0.6..1.6).contains(&(clock / whole)), "{clock} and {whole} Hz");
    }

    #[test]
    fn passes_that_differ_are_left_out() {
        let pass = |values: &[(&'static str, f64)]| Figures { values: values.to_vec(), ..Figures::default() };
        let quiet = pass(&[("imul", 3.0), ("alus", 4.0), ("l3", 60.0), ("dram", 400.0)]);
        let busy = pass(&[("imul", 3.4), ("alus", 2.6), ("l3", 75.0)]);
        let both = quiet.clone().agreed(&busy);
        assert_eq!(both.values, [("imul", 3.0), ("l3", 60.0)]);
        assert!(!both.steady && both.notes[0].contains("alus"), "{both:?}");
        assert!(quiet.clone().agreed(&quiet).steady);
        assert_eq!(pass(&[("width", 5.6)]).agreed(&pass(&[("width", 5.8)])).values, [("width", 5.8)]);
    }

    #[test]
    fn implausible_figures_are_left_out_and_said() {
        let mut figures = Figures::default();
        figures.put("imul", 3.004, 1.0..=9.0);
        figures.put("load", 77.0, 1.0..=9.0);
        figures.put("dram", f64::NAN, 1.0..=9.0);
        assert_eq!(figures.values, [("imul", 3.0)]);
        assert_eq!(figures.notes.len(), 2);
        assert!(figures.notes[0].contains("load") && figures.notes[0].contains("77"));
    }
}
