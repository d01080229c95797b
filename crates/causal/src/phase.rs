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
        Some(Phase { factor, low, high, applied: !(low..=high).contains(&1.0) })
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
