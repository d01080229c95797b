//! Phases of a program (equation 8 of the paper): an effect that was measured while a target was active, times
//! how active the target is over the whole run.

use crate::analyse::gain;
use crate::options::AnalyseOptions;
use crate::quality::is_disturbed;
use crate::results::{Gain, Phase};
use crate::series::length;
use rustc_hash::FxHashMap;
use whither_stats::distribution::normal_quantile;
use whither_store::causal::{CausalRun, Unit, Window};

/// Samples without speed-up, by target.
pub(crate) struct Phases {
    by_target: FxHashMap<u32, Activity>,
    by_unit: FxHashMap<Unit, Whole>,
    units: Vec<Unit>,
}

/// How often a target was met.
#[derive(Clone, Copy, Default)]
struct Activity {
    samples: u64,
    /// Of them, those of the time that nobody disturbed.
    undisturbed: f64,
}

/// All that was met while targets of a unit were looked for.
#[derive(Clone, Copy, Default)]
struct Whole {
    /// At least.
    samples: f64,
    /// As windows tell, where nobody counted.
    seen: f64,
    /// Time that nobody disturbed.
    undisturbed_ns: f64,
}

const UNITS: [Unit; 5] = [Unit::Line, Unit::Function, Unit::Inclusive, Unit::Path, Unit::OffCpu];

/// Where the ends of a factor's interval are so far apart, how active the target was in its windows says nothing of the run:
/// an effect over the run is then no better known, and to leave the factor out would be to claim that it is 1.
const VAGUE: f64 = 2.0;

impl Phases {
    pub(crate) fn new(run: &CausalRun, options: &AnalyseOptions) -> Self {
        let plain = Plain::of(run, options);
        let mut by_target: FxHashMap<u32, Activity> = FxHashMap::default();
        let mut strata: FxHashMap<u32, Stratum> = FxHashMap::default();
        for row in &run.samples {
            let stratum = strata.entry(row.stratum).or_default();
            stratum.ns = stratum.ns.max(row.plain_ns);
            match row.target.and_then(|t| Some((t, run.targets.get(t as usize)?.unit))) {
                Some((target, unit)) => {
                    let activity = by_target.entry(target).or_default();
                    activity.samples = activity.samples.saturating_add(row.plain);
                    activity.undisturbed += row.plain as f64 * plain.undisturbed(row.stratum).0;
                    stratum.met(unit, row.plain);
                }
                None => stratum.outside = stratum.outside.saturating_add(row.plain),
            }
        }
        let mut by_unit: FxHashMap<Unit, Whole> = FxHashMap::default();
        for (number, stratum) in &strata {
            for unit in UNITS.iter().filter(|u| stratum.knows(**u)) {
                let whole = by_unit.entry(*unit).or_default();
                let (samples, is_all) = stratum.whole(*unit);
                whole.samples += samples;
                whole.seen += if is_all { samples } else { plain.rate(*number) * stratum.ns as f64 };
                whole.undisturbed_ns += stratum.ns as f64 * plain.undisturbed(*number).1;
            }
        }
        let units = run.targets.iter().map(|t| t.unit).collect();
        Self { by_target, by_unit, units }
    }

    /// While there were targets like this one.
    fn whole(&self, target: u32) -> Whole {
        self.units.get(target as usize).and_then(|unit| self.by_unit.get(unit)).copied().unwrap_or_default()
    }

    /// Samples of a target and their share: of all samples of running threads, and for a wait of those of waits.
    pub(crate) fn share(&self, target: u32) -> (u64, f64) {
        let samples = self.by_target.get(&target).map_or(0, |a| a.samples);
        let Whole { samples: least, seen, .. } = self.whole(target);
        let total = least.max(seen);
        (samples, if total > 0.0 { (samples as f64 / total).min(1.0) } else { 0.0 })
    }

    /// Rate over the run by rate in own windows, both per virtual second without speed-up. Windows that others disturbed
    /// do not count, and neither does the time around them: the program got less of the CPUs in it, which is no phase of its own.
    pub(crate) fn factor(&self, target: u32, own: &[&Window], confidence: f64) -> Option<Phase> {
        let zeros = own.iter().filter(|w| w.percent == 0);
        let hits: f64 = zeros.clone().map(|w| w.hits as f64).sum();
        let ns: f64 = zeros.clone().map(|w| length(w)).sum();
        let samples = self.by_target.get(&target).map_or(0.0, |a| a.undisturbed);
        let whole_ns = self.whole(target).undisturbed_ns;
        if hits < 1.0 || samples < 1.0 || ns <= 0.0 || whole_ns <= 0.0 {
            return None;
        }
        let factor = (samples / whole_ns) / (hits / ns);
        // Counts scatter more than independent samples would: the windows tell how much.
        let expected = |w: &Window| hits * length(w) / ns;
        let squares: f64 = zeros.clone().map(|w| (w.hits as f64 - expected(w)).powi(2) / expected(w).max(1e-9)).sum();
        let scatter = (squares / (zeros.count() as f64 - 1.0).max(1.0)).max(1.0);
        let half = normal_quantile(0.5 + confidence / 2.0) * (scatter / hits + scatter.sqrt() / samples).sqrt();
        let (low, high) = (factor * (-half).exp(), factor * half.exp());
        Some(Phase { factor, low, high, applied: !(low..=high).contains(&1.0) || high > VAGUE * low })
    }
}

/// A piece of the run.
#[derive(Default)]
struct Stratum {
    /// By unit, the samples of all its targets and those of the largest one.
    units: FxHashMap<Unit, (u64, u64)>,
    outside: u64,
    ns: u64,
}

impl Stratum {
    /// Samples of one target.
    fn met(&mut self, unit: Unit, samples: u64) {
        let (sum, largest) = self.units.entry(unit).or_default();
        *sum = sum.saturating_add(samples);
        *largest = samples.max(*largest);
    }

    /// Whether targets of this unit were looked for. A recording may have been extended with other ones: then code was
    /// sampled as lines but never as functions, say. Callers and waits may just not have run.
    fn knows(&self, unit: Unit) -> bool {
        let code = [Unit::Line, Unit::Function, Unit::Inclusive];
        let has = |unit: &Unit| self.units.contains_key(unit);
        !code.contains(&unit) || has(&unit) || !code.iter().any(has)
    }

    /// Samples of which those of a target are a share, and whether these are all. A sample of a running thread belongs to
    /// one line, one function and so on at once, so the whole is the unit with the largest sum. Of functions with their
    /// callees it belongs to all that are on its stack, so that these have no sum.
    fn whole(&self, unit: Unit) -> (f64, bool) {
        let sum = |unit: &Unit| self.units.get(unit).map_or(0, |(sum, _)| *sum);
        if unit == Unit::OffCpu {
            return (sum(&unit) as f64, true);
        }
        let code = [Unit::Line, Unit::Function, Unit::Path].iter().map(sum).max().unwrap_or(0);
        let with_callees = self.units.get(&Unit::Inclusive).map(|(_, largest)| *largest);
        let samples = code.max(with_callees.unwrap_or(0)).saturating_add(self.outside);
        (samples as f64, with_callees.is_none() || self.units.contains_key(&Unit::Function))
    }
}

/// What windows without speed-up tell of the time without speed-up, in which samples were counted whoever disturbed it.
struct Plain {
    /// By stratum, what all of them hold and what those hold that nobody disturbed: samples and time.
    strata: FxHashMap<u32, [(f64, f64); 2]>,
}

impl Plain {
    fn of(run: &CausalRun, options: &AnalyseOptions) -> Self {
        let mut strata: FxHashMap<u32, [(f64, f64); 2]> = FxHashMap::default();
        for window in run.windows.iter().filter(|w| w.percent == 0) {
            let [all, undisturbed] = strata.entry(window.stratum).or_default();
            let add = |sums: &mut (f64, f64)| {
                sums.0 += window.samples as f64;
                sums.1 += window.wall_ns as f64;
            };
            add(all);
            if !is_disturbed(window, options) {
                add(undisturbed);
            }
        }
        Self { strata }
    }

    /// Samples of running threads per nanosecond of a stratum, or of the run where it has no window.
    fn rate(&self, stratum: u32) -> f64 {
        let per_ns = |(samples, ns): (f64, f64)| if ns > 0.0 { samples / ns } else { 0.0 };
        let run = || self.strata.values().fold((0.0, 0.0), |(s, t), [all, _]| (s + all.0, t + all.1));
        per_ns(self.strata.get(&stratum).map_or_else(run, |[all, _]| *all))
    }

    /// Of a stratum's samples and of its time, the parts that nobody disturbed; all of it where no window tells.
    fn undisturbed(&self, stratum: u32) -> (f64, f64) {
        let part = |of: f64, all: f64| if all > 0.0 { of / all } else { 1.0 };
        self.strata.get(&stratum).map_or((1.0, 1.0), |[all, own]| (part(own.0, all.0), part(own.1, all.1)))
    }
}

/// The effect over the whole run.
pub(crate) fn over_the_run(local: &Gain, phase: &Phase) -> Gain {
    let y = local.y * phase.factor;
    let spread = local.y * (phase.high - phase.low) / 2.0;
    let down = (phase.factor * (local.y - local.low)).hypot(spread);
    let up = (phase.factor * (local.high - local.y)).hypot(spread);
    gain(local.percent, y, y - down, y + up)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_store::causal::{DropReason, Target, TargetSamples};

    fn target(unit: Unit) -> Target {
        Target {
            unit,
            name: "f".to_owned(),
            file: String::new(),
            line: 0,
            path: Vec::new(),
            aliases: Vec::new(),
            module: String::new(),
            image: None,
            ranges: Vec::new(),
        }
    }

    /// A run of 10 s in which targets of these units, and code outside of them, have so many samples.
    fn run_of(of: &[(Unit, u64)], outside: u64) -> CausalRun {
        let row = |target, plain| TargetSamples { target, stratum: 0, plain, plain_ns: 10_000_000_000, all: plain };
        let mut samples = vec![row(None, outside)];
        samples.extend((0..).zip(of).map(|(i, (_, plain))| row(Some(i), *plain)));
        let targets = of.iter().map(|(unit, _)| target(*unit)).collect();
        CausalRun { targets, samples, ..CausalRun::default() }
    }

    fn phases(run: &CausalRun) -> Phases {
        Phases::new(run, &AnalyseOptions::default())
    }

    /// A window of 100 ms without speed-up.
    fn window(hits: u64, samples: u64) -> Window {
        Window { hits, samples, wall_ns: 100_000_000, ..Window::default() }
    }

    /// A run in which a target has so many samples in its windows of 100 ms without speed-up, and 5,000 in 10 s.
    fn factor(hits: &[u64]) -> Phase {
        let windows: Vec<Window> = hits.iter().map(|hits| window(*hits, 100)).collect();
        let own: Vec<&Window> = windows.iter().collect();
        phases(&run_of(&[(Unit::Function, 5_000)], 0)).factor(0, &own, 0.95).unwrap()
    }

    #[test]
    fn an_activity_that_is_not_known_widens_the_effect() {
        let local = gain(30, 0.3, 0.26, 0.34);
        // Now and then all the time, now and then not at all; as often as over the run, as far as four windows tell.
        let vague = factor(&[100, 0, 100, 0]);
        assert!(vague.applied && (vague.factor - 1.0).abs() < 1e-9 && vague.high > 2.0 * vague.low, "{vague:?}");
        let over = over_the_run(&local, &vague);
        assert!(over.low < 0.15 && over.high > 0.45, "{over:?}");
        let steady = factor(&[52, 48, 51, 49, 50, 50]);
        assert!(!steady.applied, "{steady:?}");
        assert!(factor(&[100, 98, 101, 102]).applied);
    }

    /// Three hogs on two CPUs for 4 of 26 s made it 0.91.
    #[test]
    fn time_in_which_others_had_the_cpus_is_no_phase_of_the_program() {
        let mut run = run_of(&[(Unit::Function, 4_500)], 4_500);
        // A fifth of the windows, in which the program got half of its time.
        run.windows = (0..20).map(|i| if i % 5 == 0 { window(25, 50) } else { window(50, 100) }).collect();
        let seen = |run: &CausalRun, options: &AnalyseOptions| {
            let own: Vec<&Window> = run.windows.iter().filter(|w| !is_disturbed(w, options)).collect();
            Phases::new(run, options).factor(0, &own, 0.95).unwrap()
        };
        let asked = AnalyseOptions::default();
        run.windows.iter_mut().step_by(5).for_each(|w| w.dropped = Some(DropReason::ForeignLoad));
        let kept = seen(&run, &asked);
        assert!((kept.factor - 1.0).abs() < 1e-9 && !kept.applied, "{kept:?}");
        // Who counts such windows counts that time.
        let all = seen(&run, &AnalyseOptions { keep_disturbed: true, ..asked.clone() });
        assert!((all.factor - 1.0).abs() < 1e-9, "{all:?}");
        // A program that idles by itself still does.
        run.windows.iter_mut().for_each(|w| w.dropped = None);
        run.windows.iter_mut().step_by(5).for_each(|w| w.dropped = Some(DropReason::NoVisits));
        let own: Vec<&Window> = run.windows.iter().filter(|w| w.dropped.is_none()).collect();
        let idle = phases(&run).factor(0, &own, 0.95).unwrap();
        assert!((idle.factor - 0.9).abs() < 1e-9, "{idle:?}");
    }

    #[test]
    fn functions_with_their_callees_share_the_samples_they_are_in() {
        // `main` is always on the stack, and half of the time calls the other.
        let mut run = run_of(&[(Unit::Inclusive, 9_900), (Unit::Inclusive, 5_000)], 100);
        run.windows = vec![window(0, 100); 4];
        let share = |run: &CausalRun, target| phases(run).share(target).1;
        assert!((share(&run, 0) - 0.99).abs() < 1e-9 && (share(&run, 1) - 0.5).abs() < 1e-9);
        // Two threads, of which each is in one of them.
        run.windows = vec![window(0, 150); 4];
        assert!((share(&run, 0) - 0.66).abs() < 1e-9);
        // Functions are known too, and every sample is in one.
        let run = run_of(&[(Unit::Inclusive, 4_000), (Unit::Function, 6_000), (Unit::Function, 2_000)], 0);
        assert!((share(&run, 0) - 0.5).abs() < 1e-9 && (share(&run, 1) - 0.75).abs() < 1e-9);
    }

    #[test]
    fn running_and_waiting_have_wholes_of_their_own() {
        let run = run_of(&[(Unit::Function, 600), (Unit::OffCpu, 3_000), (Unit::OffCpu, 1_000)], 200);
        let shares = [0, 1, 2].map(|target| phases(&run).share(target).1);
        assert_eq!(shares, [0.75, 0.75, 0.25]);
    }
}
