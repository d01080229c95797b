//! Phases of a program (equation 8 of the paper): an effect that was measured while a target was active, times
//! how active the target is over the whole run.

use crate::analyse::gain;
use crate::results::{Gain, Phase};
use crate::series::length;
use rustc_hash::FxHashMap;
use whither_stats::distribution::normal_quantile;
use whither_store::causal::{CausalRun, Unit, Window};

/// Samples without speed-up, by target.
pub(crate) struct Phases {
    by_target: FxHashMap<u32, u64>,
    /// By unit: samples of all code, and the time in which they were taken, where such targets were looked for.
    by_unit: FxHashMap<Unit, (u64, f64)>,
    units: Vec<Unit>,
}

const UNITS: [Unit; 5] = [Unit::Line, Unit::Function, Unit::Inclusive, Unit::Path, Unit::OffCpu];

/// Where the ends of a factor's interval are so far apart, how active the target was in its windows says nothing of the run:
/// an effect over the run is then no better known, and to leave the factor out would be to claim that it is 1.
const VAGUE: f64 = 2.0;

/// A piece of the run.
#[derive(Default)]
struct Stratum {
    units: FxHashMap<Unit, u64>,
    outside: u64,
    ns: u64,
}

impl Stratum {
    /// Whether targets of this unit were looked for. A recording may have been extended with other ones: then code was
    /// sampled as lines but never as functions, say. Callers and waits may just not have run.
    fn knows(&self, unit: Unit) -> bool {
        let code = [Unit::Line, Unit::Function, Unit::Inclusive];
        let has = |unit: &Unit| self.units.contains_key(unit);
        !code.contains(&unit) || has(&unit) || !code.iter().any(has)
    }
}

impl Phases {
    /// A sample belongs to one line, one function and so on at once, so the whole is the unit with the largest
    /// sum.
    pub(crate) fn new(run: &CausalRun) -> Self {
        let mut by_target: FxHashMap<u32, u64> = FxHashMap::default();
        let mut strata: FxHashMap<u32, Stratum> = FxHashMap::default();
        for row in &run.samples {
            let stratum = strata.entry(row.stratum).or_default();
            stratum.ns = stratum.ns.max(row.plain_ns);
            match row.target.and_then(|t| Some((t, run.targets.get(t as usize)?.unit))) {
                Some((target, unit)) => {
                    let samples = by_target.entry(target).or_default();
                    *samples = samples.saturating_add(row.plain);
                    let sum = stratum.units.entry(unit).or_default();
                    *sum = sum.saturating_add(row.plain);
                }
                None => stratum.outside = stratum.outside.saturating_add(row.plain),
            }
        }
        let mut by_unit: FxHashMap<Unit, (u64, f64)> = FxHashMap::default();
        for stratum in strata.values() {
            let whole = stratum.units.values().copied().max().unwrap_or(0).saturating_add(stratum.outside);
            for unit in UNITS.iter().filter(|u| stratum.knows(**u)) {
                let (samples, ns) = by_unit.entry(*unit).or_default();
                *samples = samples.saturating_add(whole);
                *ns += stratum.ns as f64;
            }
        }
        let units = run.targets.iter().map(|t| t.unit).collect();
        Self { by_target, by_unit, units }
    }

    /// Samples of all code while there were targets like this one, and the time in which they were taken.
    fn whole(&self, target: u32) -> (u64, f64) {
        self.units.get(target as usize).and_then(|unit| self.by_unit.get(unit)).copied().unwrap_or((0, 0.0))
    }

    /// Samples of a target and their share.
    pub(crate) fn share(&self, target: u32) -> (u64, f64) {
        let samples = self.by_target.get(&target).copied().unwrap_or(0);
        let total = self.whole(target).0;
        (samples, if total == 0 { 0.0 } else { (samples as f64 / total as f64).min(1.0) })
    }

    /// Rate over the run by rate in own windows, both per virtual second without speed-up.
    pub(crate) fn factor(&self, target: u32, own: &[&Window], confidence: f64) -> Option<Phase> {
        let zeros = own.iter().filter(|w| w.percent == 0);
        let hits: f64 = zeros.clone().map(|w| w.hits as f64).sum();
        let ns: f64 = zeros.clone().map(|w| length(w)).sum();
        let (samples, _) = self.share(target);
        let samples = samples as f64;
        let whole_ns = self.whole(target).1;
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
    use whither_store::causal::{Target, TargetSamples};

    /// A run in which a target has so many samples in its windows of 100 ms without speed-up, and 5,000 in 10 s.
    fn factor(hits: &[u64]) -> Phase {
        let target = Target {
            unit: Unit::Function,
            name: "f".to_owned(),
            file: String::new(),
            line: 0,
            path: Vec::new(),
            aliases: Vec::new(),
            module: String::new(),
            image: None,
            ranges: Vec::new(),
        };
        let samples = TargetSamples { target: Some(0), stratum: 0, plain: 5_000, plain_ns: 10_000_000_000, all: 5_000 };
        let run = CausalRun { targets: vec![target], samples: vec![samples], ..CausalRun::default() };
        let window = |hits: &u64| Window { hits: *hits, wall_ns: 100_000_000, ..Window::default() };
        let windows: Vec<Window> = hits.iter().map(window).collect();
        let own: Vec<&Window> = windows.iter().collect();
        Phases::new(&run).factor(0, &own, 0.95).unwrap()
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
}
