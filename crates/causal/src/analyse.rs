//! From a run to an answer: one row per target, ranked, and what limits the trust in them.

use crate::asked;
use crate::begun;
use crate::carry;
use crate::crowd;
use crate::elsewhere;
use crate::estimate::{Effect, Estimate, Method, estimate};
use crate::latency;
use crate::options::{AnalyseOptions, Combine, Sort};
use crate::pauses::{self, Pauses};
use crate::phase;
use crate::points;
use crate::quality::{self, Quality};
use crate::results::*;
use crate::series::{Baselines, Measure, plain_series, series, value};
use crate::sleepers;
use crate::turns::{self, Pace};
use crate::verdict::{self, Facts};
use crate::waits;
use rustc_hash::FxHashMap;
use whither_store::causal::{CausalRun, DropReason, Selection, Target, Window};

/// Draws of the bootstrap.
const DRAWS: usize = 2000;

/// Of fewer windows even the width of an interval is a guess, and no effect is told while amounts or windows lack.
const TOLD: usize = 8;

/// Everything a run says.
#[must_use]
pub fn analyse(run: &CausalRun, options: &AnalyseOptions) -> CausalAnswer {
    let analysis = Analysis::new(run, options);
    let mut targets = analysis.targets();
    verdict::join(&mut targets, &analysis.facts());
    rank(&mut targets, options.sort);
    let point_rows = analysis.points();
    CausalAnswer {
        schema: SCHEMA,
        meta: run.meta.clone(),
        points: point_rows.clone(),
        assume: options.assume,
        confidence: options.confidence,
        sort: options.sort,
        combine: options.combine,
        latency: latency::rows(&analysis),
        waits: waits::rows(run),
        elsewhere: elsewhere::row(run),
        dropped: quality::dropped(run),
        drift: quality::drift(&analysis),
        windows: analysis.counts(),
        executor: run.meta.executor,
        executor_reason: run.meta.executor_reason.clone(),
        load: analysis.quality.load,
        load_reason: analysis.quality.load_reason.clone(),
        lost: LostRow { observations: run.windows.iter().map(|w| w.lost).fold(0, u64::saturating_add) },
        overhead: quality::overhead(run),
        seed: run.meta.seed,
        warnings: analysis.quality.warnings.clone(),
        notes: run
            .notes
            .iter()
            .cloned()
            .chain(quality::dear_ticks(run))
            .chain(analysis.paces(&targets))
            .chain(crowd::note(&analysis, &targets))
            .chain(points::never_reached(&point_rows))
            .collect(),
        targets,
    }
}

/// A run with what all answers need.
pub(crate) struct Analysis<'a> {
    pub(crate) run: &'a CausalRun,
    pub(crate) options: &'a AnalyseOptions,
    /// Windows that count.
    pub(crate) kept: Vec<&'a Window>,
    pub(crate) by_target: FxHashMap<u32, Vec<&'a Window>>,
    pub(crate) quality: Quality,
    /// What windows cut off between visits, by point.
    pauses: Vec<Option<Pauses>>,
    /// Windows that do not count since later ones were made longer for pauses.
    outgrown: u32,
    pub(crate) began_ns: u64,
}

impl<'a> Analysis<'a> {
    fn new(run: &'a CausalRun, options: &'a AnalyseOptions) -> Self {
        let from = carry::settled_from(&run.windows, |w| quality::counts(w, options));
        let counts = |w: &Window| quality::counts(w, options) && w.stratum >= from;
        let settled: Vec<&Window> = run.windows.iter().filter(|w| counts(w)).collect();
        let shortest = pauses::shortest(&settled);
        let counts = |w: &Window| counts(w) && w.wall_ns >= shortest;
        let kept: Vec<&Window> = settled.iter().copied().filter(|w| counts(w)).collect();
        let of = |point: u32| Pauses::of(kept.iter().copied(), point);
        let pauses: Vec<Option<Pauses>> = (0..run.points.len() as u32).map(of).collect();
        let carried = carry::traces(&carry::followed(&run.windows, counts)).filter(carry::Carried::matters);
        let mut by_target: FxHashMap<u32, Vec<&Window>> = FxHashMap::default();
        kept.iter().for_each(|w| by_target.entry(w.target).or_default().push(w));
        let began_ns = run.windows.iter().map(|w| w.begin_ns).min().unwrap_or(0);
        let quality = Quality::of(run, &kept, carried, pauses.first().copied().flatten());
        let outgrown = (settled.len() - kept.len()) as u32;
        Self { run, options, kept, by_target, quality, pauses, outgrown, began_ns }
    }

    /// The estimate of one target for one measure.
    pub(crate) fn estimate(&self, target: u32, measure: Measure, baselines: &Baselines) -> Option<Estimate> {
        let own = self.by_target.get(&target)?.iter().copied();
        let (observations, robust) = match self.options.combine {
            Combine::Ours => (series(own, measure, baselines), !self.hold_pauses(measure)),
            Combine::Sum => (plain_series(own, measure), false),
        };
        let seed = self.run.meta.seed ^ u64::from(target).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let assume = f64::from(self.options.assume.min(100)) / 100.0;
        let bends = matches!(measure, Measure::Latency(..));
        let confidence = self.options.confidence;
        estimate(&observations, &Method { assume, confidence, draws: DRAWS, bends, robust, seed })
    }

    /// Whether windows were made long enough for pauses, so that one with more or fewer of them than others is not wild.
    fn hold_pauses(&self, measure: Measure) -> bool {
        let are_long = self.pauses(measure).is_some_and(|p| p.wanted_ns().is_none());
        self.outgrown > 0 || are_long
    }

    pub(crate) fn at_s(&self, window: &Window) -> f64 {
        window.begin_ns.saturating_sub(self.began_ns) as f64 / 1e9
    }

    /// Gain with its interval.
    pub(crate) fn gain(&self, target: u32, estimate: &Estimate, many: usize, measure: Measure) -> Gain {
        let (low, high) = self.interval(target, self.options.assume, &estimate.assumed, many, measure);
        // Intervals are told by their half, so that the figure is in the middle.
        let is_apart = self.pauses(measure).is_some() || self.hidden(target, self.options.assume) > 0.0;
        let y = if is_apart { f64::midpoint(low, high) } else { estimate.assumed.y };
        gain(self.options.assume, y, low, high)
    }

    /// What windows cut off between visits. Latencies do not hang on that.
    pub(crate) fn pauses(&self, measure: Measure) -> Option<Pauses> {
        match measure {
            Measure::Period(point) => self.pauses.get(point as usize).copied().flatten(),
            Measure::Latency(..) => None,
        }
    }

    /// Interval of an effect, with what windows cannot tell: it is wider where the machine is not to be trusted;
    /// it allows for a quarter of a delay per window, which is what the insertion of delays itself missed in
    /// the simulator (a delay reaches the other threads only at their next tick); where ticks are dear it
    /// allows for half of their share, all of it where threads wait for one another; for turns that threads take
    /// faster than ticks come; for what windows show of those before them; for cores that spinning takes from others; and
    /// for pauses that windows cut off. Upwards alone, for what sleepers, unknown requests and programs just begun hide.
    pub(crate) fn interval(
        &self,
        target: u32,
        percent: u8,
        effect: &Effect,
        many: usize,
        measure: Measure,
    ) -> (f64, f64) {
        let missed = self.missed(target, percent) + self.quality.mistold(effect.y);
        let (low, high) = effect.interval(many);
        let (low, high) = self.quality.widened(effect.y, (low - missed, high + missed));
        let crowding = crowd::crowding(self, target, percent);
        let seen = (low - crowding, high + crowding + self.hidden(target, percent));
        self.pauses(measure).map_or(seen, |p| p.interval(percent, seen))
    }

    /// What no number of windows tells of the height of a curve.
    fn missed(&self, target: u32, percent: u8) -> f64 {
        let own = self.by_target.get(&target).map_or(&[][..], Vec::as_slice);
        let mean = own.iter().map(|w| w.wall_ns as f64).sum::<f64>() / own.len().max(1) as f64;
        let late = f64::from(percent) / 100.0 * self.run.tick_ns() as f64 / mean.max(1.0) / 4.0;
        late + self.allowance(target, percent) + self.quality.carried
    }

    /// The curve's shape. Where the heights of its two lines are off, so is the place where they meet: the more, the flatter the angle.
    pub(crate) fn fit(&self, target: u32, estimate: &Estimate) -> Fit {
        let fit = estimate.fit;
        let Some(knee) = fit.knee else { return fit };
        let angle = (fit.slope - fit.slope_after.unwrap_or(0.0)).abs().max(0.1);
        let off = 100.0 * self.missed(target, knee.round().clamp(0.0, 100.0) as u8) / angle;
        let (low, high) =
            (fit.knee_low.map(|low| (low - off).max(0.0)), fit.knee_high.map(|high| (high + off).min(100.0)));
        Fit { knee_low: low, knee_high: high, ..fit }
    }

    /// By how much effects may be told too small: sleepers, requests of which nobody knows what they waited for, and programs that
    /// had just been begun.
    fn hidden(&self, target: u32, percent: u8) -> f64 {
        sleepers::hide(self, target, percent) + asked::hide(self, target, percent) + begun::hide(self, target, percent)
    }

    /// What dear ticks, and ticks that come too seldom, may make of an effect of nothing.
    pub(crate) fn allowance(&self, target: u32, percent: u8) -> f64 {
        quality::ticks_mistell(self.run, percent, turns::are_taken(self.run)) + self.late(target, percent)
    }

    /// The latter, what a back end misses, and what breakpoints of points took that was charged to the code around them.
    fn late(&self, target: u32, percent: u8) -> f64 {
        let paced = Pace::of(self, target).map_or(0.0, |pace| pace.allowance(percent));
        paced + quality::naps_miss(self.run, percent) + f64::from(percent) / 100.0 * self.quality.points
    }

    /// A curve whose intervals allow for delays that come late or stand in other threads' way.
    pub(crate) fn curve(&self, target: u32, estimate: &Estimate, measure: Measure) -> Vec<CurvePoint> {
        let pauses = self.pauses(measure);
        let widened = |p: &CurvePoint| {
            let late = self.late(target, p.percent) + crowd::crowding(self, target, p.percent);
            let late = late + self.quality.mistold(p.y);
            let seen = (p.low - late, p.high + late + self.hidden(target, p.percent));
            let (low, high) = pauses.map_or(seen, |all| all.interval(p.percent, seen));
            CurvePoint { y: pauses.map_or(p.y, |all| all.effect(p.percent, p.y)), low, high, ..*p }
        };
        estimate.curve.iter().map(widened).collect()
    }

    /// What is said of such targets, where something is said of them at all.
    fn paces(&self, targets: &[TargetRow]) -> Vec<String> {
        let told = targets.iter().filter(|t| t.verdict.is_an_answer());
        told.filter_map(|t| Pace::of(self, t.id)?.note(&t.name)).collect()
    }

    fn targets(&self) -> Vec<TargetRow> {
        let measure = Measure::Period(0);
        let baselines = Baselines::new(self.kept.iter().copied(), measure);
        let listed: Vec<(u32, &Target)> =
            self.run.targets.iter().enumerate().map(|(i, t)| (i as u32, t)).filter(|(_, t)| self.is_asked(t)).collect();
        let estimates: Vec<Option<Estimate>> =
            listed.iter().map(|(id, _)| self.estimate(*id, measure, &baselines)).collect();
        let enough = |(id, _): &(u32, &Target)| verdict::missing(self, *id).is_none();
        let many = listed.iter().zip(&estimates).filter(|(t, e)| e.is_some() && enough(t)).count();
        let phases = phase::Phases::new(self.run, self.options);
        listed
            .iter()
            .zip(&estimates)
            .map(|((id, target), estimate)| self.row(*id, target, estimate.as_ref(), many, &phases, &baselines))
            .collect()
    }

    /// Whether a target has windows enough for a figure.
    pub(crate) fn is_told(&self, id: u32) -> bool {
        self.by_target.get(&id).map_or(0, Vec::len) >= TOLD || verdict::missing(self, id).is_none()
    }

    /// CPUs that the program kept busy without speed-up.
    fn busy(&self) -> f64 {
        let zeros = self.kept.iter().filter(|w| w.percent == 0);
        let (ran, wall) = zeros.fold((0.0, 0.0), |(ran, wall), w| {
            (ran + w.samples as f64 * self.run.meta.period_ns as f64, wall + w.wall_ns as f64)
        });
        if wall > 0.0 { (ran / wall).max(1.0) } else { 1.0 }
    }

    fn is_asked(&self, target: &Target) -> bool {
        let only = &self.options.only;
        let place = format!("{}:{}", target.file, target.line);
        only.is_empty() || only.iter().any(|o| *o == target.name || *o == place || place.ends_with(&format!("/{o}")))
    }

    fn row(
        &self,
        id: u32,
        target: &Target,
        estimate: Option<&Estimate>,
        many: usize,
        phases: &phase::Phases,
        baselines: &Baselines,
    ) -> TargetRow {
        let own = self.by_target.get(&id).map_or(&[][..], Vec::as_slice);
        let (samples, share) = phases.share(id);
        let phase = phases.factor(id, own, self.options.confidence);
        let told = estimate.filter(|_| self.is_told(id));
        let measure = Measure::Period(0);
        let gains = told.map(|e| (self.gain(id, e, many, measure), self.gain(id, e, 1, measure)));
        let applied = phase.filter(|p| p.applied);
        let verdict = verdict::of(self, id, estimate, many, applied);
        let verdict = verdict::of_little(verdict, target.unit, share * self.busy());
        let other_points = points::others(self, id, many, applied);
        let verdict = points::with_others(verdict, self.run, &other_points);
        let verdict = verdict::by_load(verdict, self.quality.waits_outside);
        // Who waits for a clock waits out what is saved: time per visit falls only as far as waits are shortened with it.
        let gains = gains.filter(|_| verdict != Verdict::RateFixed && !self.quality.is_void);
        TargetRow {
            id,
            unit: target.unit,
            name: target.name.clone(),
            file: target.file.clone(),
            line: target.line,
            path: target.path.clone(),
            aliases: target.aliases.clone(),
            module: target.module.clone(),
            share,
            samples,
            windows: own.len() as u32,
            zero_windows: own.iter().filter(|w| w.percent == 0).count() as u32,
            curve: estimate.map(|e| self.curve(id, e, measure)).unwrap_or_default(),
            fit: estimate.map_or(Fit::NOTHING, |e| self.fit(id, e)),
            gain: gains.map(|(joint, _)| applied.map_or(joint, |p| phase::over_the_run(&joint, &p))),
            local: gains.map(|(_, local)| local),
            phase,
            slope: estimate.map(|e| e.slope),
            other_points,
            dots: self.dots(id, estimate, baselines),
            verdict,
            reason: String::new(),
        }
    }

    fn dots(&self, id: u32, estimate: Option<&Estimate>, baselines: &Baselines) -> Vec<Dot> {
        let zero = |w: &Window| match self.options.combine {
            Combine::Ours => Some(baselines.of(w.stratum)? * estimate?.zero),
            Combine::Sum => Some(estimate?.zero),
        };
        let y = |w: &Window| Some(1.0 - value(w, Measure::Period(0))?.0 / zero(w)?).filter(|y| y.is_finite());
        let own = self.run.windows.iter().filter(|w| w.target == id);
        let dots = own.map(|w| Dot {
            percent: w.percent,
            y: y(w),
            at_s: self.at_s(w),
            stratum: w.stratum,
            selection: w.selection,
            dropped: w.dropped,
        });
        dots.collect()
    }

    fn facts(&self) -> Facts<'_> {
        Facts { run: self.run, assume: self.options.assume }
    }

    fn points(&self) -> Vec<PointRow> {
        let of = |i: usize, measure: Measure| {
            let values = self.kept.iter().filter(|w| w.percent == 0).filter_map(|w| value(w, measure));
            let (time, periods) = values.fold((0.0, 0.0), |(t, n), (v, k)| (t + v * k, n + k));
            let visits = self.kept.iter().flat_map(|w| &w.visits).filter(|v| v.point as usize == i);
            (visits.map(|v| v.visits).fold(0, u64::saturating_add), if time > 0.0 { 1e9 * periods / time } else { 0.0 })
        };
        let rows = self.run.points.iter().enumerate().map(|(i, p)| {
            let (visits, mut per_second) = of(i, Measure::Period(i as u32));
            if per_second == 0.0 {
                per_second = self.rate(i as u32, |_| true);
            } else if self.pauses(Measure::Period(i as u32)).is_some() {
                let undisturbed = |w: &Window| matches!(w.dropped, None | Some(DropReason::NoVisits));
                per_second = self.rate(i as u32, undisturbed);
            }
            PointRow { name: p.name.clone(), kind: p.kind, end: p.end, visits, per_second }
        });
        rows.collect()
    }

    /// Visits per second of the whole length of such windows without speed-up: where none is kept, or pauses are cut off.
    fn rate(&self, point: u32, counts: impl Fn(&Window) -> bool) -> f64 {
        let plain = self.run.windows.iter().filter(|w| w.percent == 0 && counts(w));
        let (visits, ns) = plain.fold((0, 0), |(visits, ns), w| {
            let own = w.visits.iter().filter(|v| v.point == point).map(|v| v.visits).sum::<u64>();
            (visits + own, ns + w.wall_ns)
        });
        if ns > 0 { visits as f64 * 1e9 / ns as f64 } else { 0.0 }
    }

    fn counts(&self) -> WindowCounts {
        let of = |s: Selection| self.kept.iter().filter(|w| w.selection == s).count() as u32;
        let short = |w: &&&Window| w.visits.iter().find(|v| v.point == 0).is_none_or(|v| v.visits < 5);
        let kept = self.kept.len() as u32;
        let last = self.kept.iter().map(|w| w.stratum).max();
        let seconds = self.run.meta.duration_ns as f64 / 1e9;
        WindowCounts {
            kept,
            dropped: self.run.windows.len() as u32 - kept,
            outgrown: self.outgrown,
            lottery: of(Selection::Lottery),
            block: of(Selection::Block),
            fixed: of(Selection::Fixed),
            short: self.kept.iter().filter(short).count() as u32,
            per_second: if seconds > 0.0 { f64::from(kept) / seconds } else { 0.0 },
            settle: last.filter(|_| self.run.meta.pid > 0).map(carry::settle),
        }
    }
}

pub(crate) fn gain(percent: u8, y: f64, low: f64, high: f64) -> Gain {
    // Beyond 100 % there is no time left.
    let rate_gain = 1.0 / (1.0 - y.min(0.999)) - 1.0;
    Gain { percent, y, low, high, rate_gain }
}

/// Best first; those that nothing can be said of come last, by their samples.
fn rank(targets: &mut [TargetRow], sort: Sort) {
    let key = |t: &TargetRow| {
        let known = t.verdict.is_an_answer();
        let figure = match sort {
            Sort::Gain => t.gain.map_or(f64::NEG_INFINITY, |g| g.low),
            Sort::Slope => t.slope.unwrap_or(f64::NEG_INFINITY),
            Sort::Share => t.share,
        };
        (known, if known { figure } else { t.share }, t.share)
    };
    targets.sort_by(|a, b| {
        let (a_known, a_figure, a_share) = key(a);
        let (b_known, b_figure, b_share) = key(b);
        b_known
            .cmp(&a_known)
            .then(b_figure.total_cmp(&a_figure))
            .then(b_share.total_cmp(&a_share))
            .then(a.id.cmp(&b.id))
    });
}

#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod tests_points;
