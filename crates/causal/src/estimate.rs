//! From the windows of one target to a curve with intervals: a tenth of the windows at most is set aside as
//! wild, the part of the noise that comes from the sampler is regressed out, cross-validation over pieces of
//! the run chooses the shape, and a studentised bootstrap gives the intervals: the signs of the windows'
//! residuals are drawn anew, the knee is looked for again in each draw.

use crate::results::{CurvePoint, Fit, FitKind};
use crate::series::Observation;
use crate::shape::{Group, STEP, Shape, fit, knees_alike};
use blend::{Blend, Ways};
use whither_stats::describe::robust_deviation;
use whither_stats::distribution::{normal_quantile, student_quantile};
use whither_stats::random::Random;

/// How to estimate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method {
    /// Amount of interest, 0 to 1.
    pub(crate) assume: f64,
    /// Of the intervals.
    pub(crate) confidence: f64,
    /// Bootstrap draws; 0: by Student's distribution alone.
    pub(crate) draws: usize,
    /// Whether lines may bend, as those of latencies do: of a queue the first part that is saved saves the most.
    pub(crate) bends: bool,
    /// Whether wild windows are set aside and the sampler's noise is regressed out.
    pub(crate) robust: bool,
    /// Of the draws.
    pub(crate) seed: u64,
}

/// What the windows of a target say.
#[derive(Clone, Debug)]
pub(crate) struct Estimate {
    pub(crate) curve: Vec<CurvePoint>,
    pub(crate) fit: Fit,
    /// Slope of a line through everything.
    pub(crate) slope: f64,
    /// At the assumed amount.
    pub(crate) assumed: Effect,
    /// At the largest amount measured.
    pub(crate) largest: Effect,
    /// That amount in percent.
    pub(crate) largest_percent: u8,
    /// Value without speed-up, relative to the stratum's.
    pub(crate) zero: f64,
}

/// An effect and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Effect {
    pub(crate) y: f64,
    pub(crate) error: f64,
    /// By how much it may be more or less for want of smaller amounts, beside the error.
    unseen: f64,
    /// Of the studentised deviation at the confidence asked for.
    quantile: f64,
    degrees: f64,
    confidence: f64,
}

impl Effect {
    /// The interval such that `many` of them hold at once.
    pub(crate) fn interval(&self, many: usize) -> (f64, f64) {
        let tail = |c: f64| student_quantile(0.5 + c / 2.0, self.degrees);
        let joint = self.confidence.powf(1.0 / many.max(1) as f64);
        let half = self.error * self.quantile * tail(joint) / tail(self.confidence) + self.unseen;
        (self.y - half, self.y + half)
    }
}

/// `None` where the windows determine nothing: no window of 0 %, none of another amount, or too few in all.
pub(crate) fn estimate(observations: &[Observation], method: &Method) -> Option<Estimate> {
    let clean = Clean::new(observations, method.robust)?;
    let kind = chosen(&clean);
    let ways = Ways { queues: method.bends, assume: method.assume };
    let blend = Blend::of(&clean, ways)?;
    let largest = clean.observations.iter().map(|o| o.percent).max().unwrap_or(100);
    let amounts = [method.assume, f64::from(largest) / 100.0];
    let draws = bootstrap(&clean, &blend, amounts, method, ways);
    // Of all that is possible the middle: intervals are told by their half.
    let unseen = amounts.map(|s| blend.unseen(s) / 2.0);
    let few = 1.0 + FEW / (clean.observations.len() as f64).powi(2);
    let effect = |i: usize| Effect {
        y: blend.y(amounts[i]) + unseen[i],
        error: blend.error(&clean, amounts[i], &clean.residuals(&blend), &blend.stretches()).hypot(NEAR_ENOUGH) * few,
        unseen: unseen[i],
        quantile: draws.quantiles[i],
        degrees: clean.degrees(blend.parameters()),
        confidence: method.confidence,
    };
    Some(Estimate {
        curve: curve(observations, &clean, method.confidence),
        fit: described(kind, &blend, &draws, &clean, method.confidence),
        slope: blend.line.a / blend.line.c,
        assumed: effect(0),
        largest: effect(1),
        largest_percent: largest,
        zero: blend.value(0.0),
    })
}

/// Few windows choose a shape, and tell their own noise, better than they are: errors of a dozen are a quarter larger, of two dozen a
/// fifteenth (simulated: 82 to 90 of 100 intervals held else, with 10 to 16 windows).
const FEW: f64 = 40.0;

/// Standard error that no number of windows takes away: no curve of a program is exactly one of the shapes.
const NEAR_ENOUGH: f64 = 0.0025;

fn described(kind: FitKind, blend: &Blend, draws: &Draws, clean: &Clean, confidence: f64) -> Fit {
    match (kind, blend.knee) {
        (FitKind::Nothing, _) => Fit::NOTHING,
        (FitKind::Line, _) | (_, None) => straight(blend),
        // What bends looks like a knee to who knows but straight lines.
        (FitKind::Knee, _) if blend.weight < 0.5 => straight(blend),
        (FitKind::Knee, Some(shape)) => bent(&shape, blend.flat_from(), knees(draws, clean, confidence)),
    }
}

/// The likeliest line.
fn straight(blend: &Blend) -> Fit {
    let shape = blend.likeliest_line();
    let bend = (shape.bend != 0.0).then_some(shape.bend);
    Fit { kind: FitKind::Line, slope: shape.a / shape.c, bend, ..Fit::NOTHING }
}

/// Where the knee may be: in the draws, or where it describes the windows hardly worse, and until halfway to the next place that
/// was tried.
fn knees(draws: &Draws, clean: &Clean, confidence: f64) -> (f64, f64) {
    let degrees = (clean.observations.len() as f64 - 4.0).max(1.0);
    let times = 1.0 + student_quantile(0.5 + confidence / 2.0, degrees).powi(2) / degrees;
    let (low, high) = draws.knee;
    let (low, high) =
        knees_alike(&clean.groups, clean.within, times).map_or((low, high), |(a, b)| (low.min(a), high.max(b)));
    (low - STEP / 2.0, high + STEP / 2.0)
}

/// A knee; one that lies before the first amount is told in the middle of where it may be.
fn bent(shape: &Shape, flat_from: Option<f64>, (mut low, high): (f64, f64)) -> Fit {
    let (mut knee, mut slope) = (shape.knee, shape.a / shape.c);
    if let Some(first) = flat_from {
        let reached = shape.y(first);
        low = low.min(reached);
        if reached > 0.0 && reached < knee {
            knee = f64::midpoint(reached, knee);
            slope = reached / knee;
        }
    }
    Fit {
        kind: FitKind::Knee,
        slope,
        bend: None,
        knee: Some(100.0 * knee),
        knee_low: Some(100.0 * low.min(knee)),
        knee_high: Some(100.0 * high.max(knee)),
        slope_after: Some(shape.b / shape.c),
    }
}

/// Observations without wild ones and without the sampler's share of the noise.
struct Clean {
    observations: Vec<Observation>,
    /// Of each observation.
    group: Vec<usize>,
    groups: Vec<Group>,
    /// Sum of squares within groups.
    within: f64,
    /// Estimates the deviation of a window of weight 1.
    deviation: f64,
}

impl Clean {
    fn new(observations: &[Observation], robust: bool) -> Option<Self> {
        let mut clean = Self::grouped(observations.to_vec());
        if observations.len() < 4 || clean.groups.first().is_none_or(|g| g.s > 0.0) || clean.groups.len() < 2 {
            return None;
        }
        if robust {
            clean = clean.without_wild()?;
            clean.adjust();
        }
        // Times per visit are positive; anything else is no baseline.
        let shape = clean.flexible().filter(|_| clean.groups[0].mean > 0.0)?;
        let squares: f64 = clean.observations.iter().map(|o| (o.value - shape.value(o.s())).powi(2)).sum();
        clean.deviation = (squares / clean.degrees(shape.parameters() as f64)).sqrt();
        Some(clean)
    }

    fn grouped(observations: Vec<Observation>) -> Self {
        let mut amounts: Vec<u8> = observations.iter().map(|o| o.percent).collect();
        amounts.sort_unstable();
        amounts.dedup();
        let group = observations.iter().map(|o| amounts.partition_point(|a| *a < o.percent)).collect();
        let groups = amounts.iter().map(|a| Group { s: f64::from(*a) / 100.0, weight: 0.0, mean: 0.0 }).collect();
        let mut clean = Self { observations, group, groups, within: 0.0, deviation: 0.0 };
        let weights: Vec<f64> = clean.observations.iter().map(|o| o.weight).collect();
        clean.regroup(&weights);
        clean
    }

    fn regroup(&mut self, weights: &[f64]) {
        self.groups.iter_mut().for_each(|g| (g.weight, g.mean) = (0.0, 0.0));
        for ((o, &at), w) in self.observations.iter().zip(&self.group).zip(weights) {
            self.groups[at].weight += w;
            self.groups[at].mean += w * o.value;
        }
        self.groups.iter_mut().for_each(|g| g.mean /= g.weight.max(f64::MIN_POSITIVE));
        let parts = self.observations.iter().zip(&self.group).zip(weights);
        self.within = parts.map(|((o, &at), w)| w * (o.value - self.groups[at].mean).powi(2)).sum();
    }

    /// The most flexible shape that the amounts determine.
    fn flexible(&self) -> Option<Shape> {
        let spare = |shape: &Shape| self.observations.len() > shape.parameters() + 1;
        let knee = fit(&self.groups, FitKind::Knee).map(|(s, _)| s).filter(spare);
        knee.or_else(|| fit(&self.groups, FitKind::Line).map(|(s, _)| s))
    }

    fn residuals(&self, blend: &Blend) -> Vec<f64> {
        self.observations.iter().map(|o| o.value - blend.value(o.s())).collect()
    }

    fn degrees(&self, parameters: f64) -> f64 {
        (self.observations.len() as f64 - parameters).max(1.0)
    }

    /// Sets aside up to a tenth of the windows: those that are further from a robust fit than noise explains.
    fn without_wild(mut self) -> Option<Self> {
        let n = self.observations.len();
        let mut residuals = Vec::new();
        let mut deviation = 0.0;
        for _ in 0..4 {
            let shape = self.flexible()?;
            residuals = self.observations.iter().map(|o| o.value - shape.value(o.s())).collect::<Vec<_>>();
            deviation = robust_deviation(&residuals).max(1e-9);
            let huber = |r: f64| (1.5 * deviation / r.abs().max(f64::MIN_POSITIVE)).min(1.0);
            let weights: Vec<f64> =
                self.observations.iter().zip(&residuals).map(|(o, r)| o.weight * huber(*r)).collect();
            self.regroup(&weights);
        }
        // Few windows: the deviation itself is uncertain.
        let limit = 3.5 * (1.0 + 3.0 / n as f64) * deviation;
        let mut wild: Vec<usize> = (0..n).filter(|&i| residuals[i].abs() > limit).collect();
        wild.sort_by(|&a, &b| residuals[b].abs().total_cmp(&residuals[a].abs()));
        wild.truncate(n.div_ceil(10));
        let kept = self.observations.iter().enumerate().filter(|(i, _)| !wild.contains(i)).map(|(_, o)| *o).collect();
        let clean = Self::grouped(kept);
        (clean.groups.len() >= 2 && clean.groups[0].s == 0.0).then_some(clean)
    }

    /// A window that had by chance more samples in the target than it should have inserted more delay than it
    /// should: what the value owes to that is taken out. Hits are compared with what is usual at the amount,
    /// because a speed-up may really change how often the target runs.
    fn adjust(&mut self) {
        let n = self.observations.len();
        let Some(shape) = self.flexible().filter(|_| n >= 10) else { return };
        let usual = regression(&self.observations);
        let z: Vec<f64> = self.observations.iter().map(|o| o.s() * (o.hits - usual.0 - usual.1 * o.s())).collect();
        let r: Vec<f64> = self.observations.iter().map(|o| o.value - shape.value(o.s())).collect();
        let zz: f64 = z.iter().map(|z| z * z).sum();
        let zr: f64 = z.iter().zip(&r).map(|(z, r)| z * r).sum();
        let rr: f64 = r.iter().map(|r| r * r).sum();
        let explained = if zz > 0.0 { zr * zr / zz } else { 0.0 };
        // Worth it only where it certainly explains something.
        if explained * (n as f64) > 4.0 * rr {
            self.observations.iter_mut().zip(&z).for_each(|(o, z)| o.value -= zr / zz * z);
            let weights: Vec<f64> = self.observations.iter().map(|o| o.weight).collect();
            self.regroup(&weights);
        }
    }

    /// Standard error of what has this influence; the noise may depend on the amount.
    fn error(&self, influence: &[f64], residuals: &[f64], stretches: &[f64]) -> f64 {
        let parts = self.observations.iter().zip(&self.group).zip(residuals);
        parts.map(|((o, &g), r)| (influence[g] * stretches[g] * o.weight * r).powi(2)).sum::<f64>().sqrt()
    }
}

/// Hits per period by amount: value at 0 and slope.
fn regression(observations: &[Observation]) -> (f64, f64) {
    let n = observations.len() as f64;
    let (s, h) = observations.iter().fold((0.0, 0.0), |(s, h), o| (s + o.s() / n, h + o.hits / n));
    let (mut ss, mut sh) = (0.0, 0.0);
    for o in observations {
        ss += (o.s() - s).powi(2);
        sh += (o.s() - s) * (o.hits - h);
    }
    let slope = if ss > 0.0 { sh / ss } else { 0.0 };
    (h - slope * s, slope)
}

/// The simplest shape that predicts windows it has not seen no worse than the others: a more complex one must
/// be better by more than its advantage scatters between pieces of the run.
fn chosen(clean: &Clean) -> FitKind {
    let mut best = FitKind::Nothing;
    for kind in [FitKind::Line, FitKind::Knee] {
        let (Some(simple), Some(complex)) = (losses(clean, best), losses(clean, kind)) else { continue };
        let gains: Vec<f64> = simple.iter().zip(&complex).map(|(a, b)| a - b).collect();
        let summary = whither_stats::Summary::of(&gains);
        if summary.mean > summary.deviation / (gains.len() as f64).sqrt() {
            best = kind;
        }
    }
    best
}

/// Squared errors of prediction by piece of the run.
fn losses(clean: &Clean, kind: FitKind) -> Option<Vec<f64>> {
    let n = clean.observations.len();
    let folds = (n / 3).clamp(2, 10);
    let fold = |i: usize| i * folds / n;
    (0..folds)
        .map(|f| {
            let rest = clean.observations.iter().enumerate().filter(|(i, _)| fold(*i) != f).map(|(_, o)| *o);
            let rest = Clean::grouped(rest.collect());
            let (shape, _) = fit(&rest.groups, kind)?;
            let held = clean.observations.iter().enumerate().filter(|(i, _)| fold(*i) == f);
            Some(held.map(|(_, o)| o.weight * (o.value - shape.value(o.s())).powi(2)).sum())
        })
        .collect()
}

/// What the draws say.
struct Draws {
    /// Of the studentised deviations, for both amounts.
    quantiles: [f64; 2],
    /// Interval of the knee.
    knee: (f64, f64),
}

/// How far draws stray, in units of each one's own error and in plain figures; the narrower of both counts. A draw in which another
/// shape is the likeliest is told with that shape's error, which may be a tenth of the others': in such units it is far away (of a lock
/// 28 points either way were told, of 24 windows that scatter by 2.4 %). In plain figures a noisy draw counts too much. Simulated over twelve
/// curves the narrower holds as often as the first, to within a point, and is a quarter narrower.
fn bootstrap(clean: &Clean, blend: &Blend, amounts: [f64; 2], method: &Method, ways: Ways) -> Draws {
    let n = clean.observations.len();
    let student = student_quantile(0.5 + method.confidence / 2.0, clean.degrees(blend.parameters()));
    let stretches = blend.stretches();
    let expected: Vec<f64> = clean.observations.iter().map(|o| blend.value(o.s())).collect();
    let residuals: Vec<f64> = clean.residuals(blend).iter().zip(&clean.group).map(|(r, g)| r * stretches[*g]).collect();
    let truth = amounts.map(|s| blend.y(s));
    let mut random = Random::new(method.seed);
    let mut draw = Clean::grouped(clean.observations.clone());
    let weights: Vec<f64> = clean.observations.iter().map(|o| o.weight).collect();
    let (mut deviations, mut knees) = ([Vec::new(), Vec::new()], Vec::new());
    let mut strays = [Vec::new(), Vec::new()];
    for _ in 0..method.draws {
        let mut bits = 0;
        for i in 0..n {
            if i % 64 == 0 {
                bits = random.bits();
            }
            let r = if bits & 1 == 0 { residuals[i] } else { -residuals[i] };
            bits >>= 1;
            draw.observations[i].value = expected[i] + r;
        }
        draw.regroup(&weights);
        let Some(drawn) = Blend::of(&draw, ways) else { continue };
        let left = draw.residuals(&drawn);
        for (i, s) in amounts.into_iter().enumerate() {
            strays[i].push((drawn.y(s) - truth[i]).abs());
            let error = drawn.error(&draw, s, &left, &stretches);
            if error > 0.0 && error.is_finite() {
                deviations[i].push(((drawn.y(s) - truth[i]) / error).abs());
            }
        }
        if let Some(knee) = drawn.knee {
            knees.push(knee.knee);
        }
    }
    let normal = normal_quantile(0.5 + method.confidence / 2.0);
    let left = clean.residuals(blend);
    let of = |values: &mut Vec<f64>, strays: &mut Vec<f64>, s: f64| {
        // A handful of windows gives few different signs.
        if values.len() < 200 {
            return student;
        }
        let error = blend.error(clean, s, &left, &stretches).max(f64::MIN_POSITIVE);
        let plain = quantile(strays, method.confidence) / error * student / normal;
        quantile(values, method.confidence).min(plain).clamp(student, 4.0 * student)
    };
    let tail = (1.0 - method.confidence) / 2.0;
    let [first, second] = &mut deviations;
    let [near, far] = &mut strays;
    let knee = (quantile(&mut knees, tail), quantile(&mut knees, 1.0 - tail));
    Draws { quantiles: [of(first, near, amounts[0]), of(second, far, amounts[1])], knee }
}

fn quantile(values: &mut [f64], p: f64) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let at = ((values.len() - 1) as f64 * p).round() as usize;
    *values.select_nth_unstable_by(at, f64::total_cmp).1
}

/// The effects amount by amount.
fn curve(all: &[Observation], clean: &Clean, confidence: f64) -> Vec<CurvePoint> {
    let plain = Clean::grouped(all.to_vec());
    let zero = clean.groups[0];
    let error = |i: usize| {
        let (sum, squares) = clean
            .observations
            .iter()
            .zip(&clean.group)
            .filter(|(_, g)| **g == i)
            .fold((0.0, 0.0), |(sum, squares), (o, _)| (sum + o.weight, squares + o.weight * o.weight));
        if sum > 0.0 { clean.deviation * f64::sqrt(squares) / sum } else { 0.0 }
    };
    let left = (clean.observations.len() as f64 - 4.0).max(1.0);
    let t = student_quantile(0.5 + confidence / 2.0, left);
    let zero_error = error(0);
    let points = clean.groups.iter().enumerate().map(|(i, group)| {
        let ratio = group.mean / zero.mean;
        let half = if i == 0 { 0.0 } else { t * error(i).hypot(ratio * zero_error) / zero.mean };
        let percent = (100.0 * group.s).round() as u8;
        let own = all.iter().filter(|o| o.percent == percent);
        let plain = plain.groups.iter().find(|g| g.s == group.s).map_or(ratio, |g| g.mean / plain.groups[0].mean);
        CurvePoint {
            percent,
            windows: own.clone().count() as u32,
            visits: own.map(|o| o.visits).sum::<f64>() as u64,
            y: 1.0 - ratio,
            low: 1.0 - ratio - half,
            high: 1.0 - ratio + half,
            plain_mean: 1.0 - plain,
        }
    });
    points.collect()
}

mod blend;
#[cfg(test)]
mod tests;
