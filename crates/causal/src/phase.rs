//! Phases of a program (equation 8 of the paper): an effect that was measured while a target was active, times
//! how active the target is over the whole run.

use crate::analyse::gain;
use crate::results::{Gain, Phase};
use crate::series::length;
use rustc_hash::FxHashMap;
use whither_stats::distribution::normal_quantile;
use whither_store::causal::{CausalRun, Window};

/// Samples without speed-up, by target.
pub(crate) struct Phases {
    by_target: FxHashMap<u32, u64>,
    /// Of all code.
    total: u64,
    /// In which they were taken.
    ns: f64,
}

impl Phases {
    /// A sample belongs to one line, one function and so on at once, so the whole is the unit with the largest
    /// sum.
    pub(crate) fn new(run: &CausalRun) -> Self {
        let mut by_target: FxHashMap<u32, u64> = FxHashMap::default();
        let mut lengths: FxHashMap<u32, u64> = FxHashMap::default();
        let mut outside = 0_u64;
        for row in &run.samples {
            match row.target {
                Some(target) => {
                    let samples = by_target.entry(target).or_default();
                    *samples = samples.saturating_add(row.plain);
                }
                None => outside = outside.saturating_add(row.plain),
            }
            let longest = lengths.entry(row.stratum).or_default();
            *longest = (*longest).max(row.plain_ns);
        }
        let mut units: FxHashMap<_, u64> = FxHashMap::default();
        for (target, samples) in &by_target {
            if let Some(t) = run.targets.get(*target as usize) {
                let sum = units.entry(t.unit).or_default();
                *sum = sum.saturating_add(*samples);
            }
        }
        let whole = units.values().copied().max().unwrap_or(0).saturating_add(outside);
        let zeros: u64 = run.windows.iter().filter(|w| w.percent == 0).map(|w| w.samples).fold(0, u64::saturating_add);
        let ns = lengths.values().map(|ns| *ns as f64).sum();
        // Without a table of samples the zero windows must do.
        Self { by_target, total: if whole == 0 { zeros } else { whole }, ns }
    }

    /// Samples of a target and their share.
    pub(crate) fn share(&self, target: u32) -> (u64, f64) {
        let samples = self.by_target.get(&target).copied().unwrap_or(0);
        (samples, if self.total == 0 { 0.0 } else { (samples as f64 / self.total as f64).min(1.0) })
    }

    /// Rate over the run by rate in own windows, both per virtual second without speed-up.
    pub(crate) fn factor(&self, target: u32, own: &[&Window], confidence: f64) -> Option<Phase> {
        let zeros = own.iter().filter(|w| w.percent == 0);
        let hits: f64 = zeros.clone().map(|w| w.hits as f64).sum();
        let ns: f64 = zeros.clone().map(|w| length(w)).sum();
        let (samples, _) = self.share(target);
        let samples = samples as f64;
        if hits < 1.0 || samples < 1.0 || ns <= 0.0 || self.ns <= 0.0 {
            return None;
        }
        let factor = (samples / self.ns) / (hits / ns);
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
