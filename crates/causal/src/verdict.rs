//! What to do about a target, in one word and one sentence. Every verdict is a statement about an interval:
//! a positive one, a negative one, one that is certainly small; anything else is "not enough data".

use crate::analyse::Analysis;
use crate::asked;
use crate::begun;
use crate::crowd;
use crate::estimate::Estimate;
use crate::fixed_time;
use crate::harm;
use crate::outside::Hangs;
use crate::phase::over_the_run;
use crate::quality::seconds;
use crate::results::{FitKind, Gain, Phase, TargetRow, Verdict};
use crate::series::Measure;
use crate::sleepers;
use crate::turns::Pace;
use crate::waits::label;
use std::collections::BTreeSet;
use whither_store::causal::{CausalRun, LoadKind, Selection, Target, Unit};

/// Verdicts are about the first point.
const MEASURE: Measure = Measure::Period(0);
/// An effect that is certainly smaller is not worth the work.
const SMALL: f64 = 0.02;
/// Windows of 0 % that a comparison needs.
const ZEROS: usize = 3;
/// A run of fewer windows may not have tried all its amounts.
const YOUNG: usize = 20;
/// More time than this, in seconds, is better spent on another measurement where that would tell more.
const PATIENCE: f64 = 180.0;
/// A slope beyond the knee that is smaller than this part of the one before it is "no more gain".
const LITTLE: f64 = 0.25;

impl Verdict {
    /// Whether it says something about the target, not only about the measurement.
    #[must_use]
    pub fn is_an_answer(&self) -> bool {
        !matches!(self, Self::NotEnoughData { .. } | Self::CannotSay { .. } | Self::CausedBy { .. })
    }

    /// How much longer measuring takes until it is one, in words, as far as that can be foreseen.
    #[must_use]
    pub fn more_time(&self) -> Option<String> {
        match self {
            Self::NotEnoughData { more_seconds: Some(s), .. } => Some(more(*s)),
            _ => None,
        }
    }
}

/// Verdict without sentence.
pub(crate) fn of(
    analysis: &Analysis<'_>,
    id: u32,
    estimate: Option<&Estimate>,
    many: usize,
    phase: Option<Phase>,
) -> Verdict {
    if let Some(who) = analysis.run.targets.get(id as usize).and_then(|t| caused_by(analysis.run, t)) {
        return Verdict::CausedBy { who };
    }
    if let Some(why) = analysis.quality.cannot_say.clone() {
        return Verdict::CannotSay { why };
    }
    // No more windows change that, where they are whole runs.
    if analysis.quality.load == LoadKind::Open && fixed_time::is_whole(analysis.run) {
        return Verdict::RateFixed;
    }
    if let Some((missing, more_seconds)) = missing(analysis, id) {
        return Verdict::NotEnoughData { missing, more_seconds };
    }
    if analysis.quality.load == LoadKind::Open {
        return Verdict::RateFixed;
    }
    if let Some(why) = Pace::of(analysis, id).and_then(Pace::cannot_say) {
        return Verdict::CannotSay { why };
    }
    let Some(estimate) = estimate else {
        let missing = "windows with enough visits".to_owned();
        return Verdict::NotEnoughData { missing, more_seconds: None };
    };
    let whole = |gain: Gain| phase.map_or(gain, |p| over_the_run(&gain, &p));
    judged(analysis, id, estimate, &whole(analysis.gain(id, estimate, many, MEASURE)), many)
}

/// What would gain or lose, where nobody knows whether visits would follow.
pub(crate) fn by_load(verdict: Verdict, waits_outside: Option<Hangs>) -> Verdict {
    match verdict {
        Verdict::FixThis | Verdict::HelpsUntil { .. } | Verdict::HelpsOther { .. } | Verdict::Contention { .. }
            if waits_outside.is_some() =>
        {
            Verdict::DependsOnLoad { closed: Box::new(verdict) }
        }
        other => other,
    }
}

/// What is said of code that does so little that no experiment is needed to know that it gains hardly anything: no
/// time makes it more. `at_most`: CPUs that it keeps busy, which is what its removal could save at most.
pub(crate) fn of_little(verdict: Verdict, unit: Unit, at_most: f64) -> Verdict {
    match verdict {
        Verdict::NotEnoughData { .. } if unit != Unit::OffCpu && at_most < SMALL => Verdict::NotEnoughData {
            missing: format!(
                "samples: it keeps a CPU busy for {:.1} % of the time, so that its removal can hardly gain more",
                100.0 * at_most
            ),
            more_seconds: None,
        },
        other => other,
    }
}

fn judged(analysis: &Analysis<'_>, id: u32, estimate: &Estimate, gain: &Gain, many: usize) -> Verdict {
    match weighed(analysis, id, estimate, gain, many) {
        Verdict::FixThis | Verdict::HelpsUntil { .. } if analysis.run.overhead.atomic > CROWDED_LINES => {
            Verdict::CannotSay { why: lines_hidden(analysis.run) }
        }
        other => other,
    }
}

/// From this part of the run time on threads that meet on cache lines decide how fast the program is.
const CROWDED_LINES: f64 = 0.2;

/// Measured with a thread that works for 3 ms and then has a line for 0.4: +3 to +15 were told for -10 to -50, as a delay that
/// lags by a tick or two keeps others away for just as long.
fn lines_hidden(run: &CausalRun) -> String {
    format!(
        "threads meet at atomic instructions for {:.0} % of the time, and code that gets there sooner makes others slower, which \
         delays that lag some {:.1} ms behind do not show; try the change itself (`whither causal verify`)",
        100.0 * run.overhead.atomic,
        2e-6 * run.tick_ns() as f64
    )
}

fn weighed(analysis: &Analysis<'_>, id: u32, estimate: &Estimate, gain: &Gain, many: usize) -> Verdict {
    let (low, high) = analysis.interval(id, estimate.largest_percent, &estimate.largest, many, MEASURE);
    let fit = analysis.fit(id, estimate);
    if gain.low > 0.0 {
        let ends = fit.kind == FitKind::Knee && fit.slope_after.unwrap_or(0.0) < LITTLE * fit.slope;
        let seen = ends && !crowd::hides_the_knee(analysis, id, estimate.largest_percent);
        return match fit.knee.filter(|_| seen) {
            Some(percent) => Verdict::HelpsUntil {
                percent,
                low: fit.knee_low.unwrap_or(percent),
                high: fit.knee_high.unwrap_or(percent),
            },
            None => Verdict::FixThis,
        };
    }
    if gain.high < 0.0 {
        if let Some(doubt) = harm::doubt(analysis, id, gain.percent) {
            return doubt;
        }
        let partner = analysis.run.waits.iter().max_by_key(|w| w.blocked_ns).map(|w| label(analysis.run, &w.site));
        return Verdict::Contention { partner };
    }
    // No interval gets narrower than what is allowed for ticks; then less can be ruled out, and it is said.
    let within = |percent: u8| SMALL + analysis.allowance(id, percent);
    let small = |low: f64, high: f64, within: f64| low > -within && high < within;
    let (of_all, of_some) = (within(estimate.largest_percent), within(gain.percent));
    if small(low, high, of_all) && small(gain.low, gain.high, of_some) {
        return Verdict::DoNotBother { up_to: estimate.largest_percent, within: of_all };
    }
    if small(gain.low, gain.high, of_some) {
        return Verdict::DoNotBother { up_to: gain.percent, within: of_some };
    }
    // Certain for its whole removal, not yet for the assumed amount, which must at least point there: one odd window
    // of a large amount proves nothing where the others are all over the place.
    if low > 0.0 && gain.y > 0.0 && (gain.high - gain.low) / 2.0 < low.max(gain.y) {
        return Verdict::FixThis;
    }
    let crowding = crowd::crowding(analysis, id, gain.percent);
    let pauses = analysis.pauses(MEASURE);
    let cut = pauses.map_or(0.0, |p| p.half(gain.percent));
    let hidden = sleepers::hide(analysis, id, gain.percent);
    let asked = asked::hide(analysis, id, gain.percent);
    let begun = begun::hide(analysis, id, gain.percent);
    let half =
        (gain.high - gain.low - hidden - asked - begun) / 2.0 - analysis.allowance(id, gain.percent) - crowding - cut;
    // More windows would not help: the rest alone is the wider part, or holds both a gain and none.
    let remains = crowding > SMALL && gain.y.abs() < crowding;
    if crowding > half.max(SMALL) || remains {
        return Verdict::CannotSay { why: crowd::cannot_say(analysis.run, crowding) };
    }
    if asked / 2.0 > half.max(SMALL) {
        return Verdict::CannotSay { why: asked::cannot_say(analysis.run, asked) };
    }
    if begun > half.max(SMALL) {
        return Verdict::CannotSay { why: begun::cannot_say(begun) };
    }
    if hidden / 2.0 > half.max(SMALL) {
        return Verdict::CannotSay { why: sleepers::cannot_say(hidden) };
    }
    if let Some(pauses) = pauses.filter(|_| cut > half.max(SMALL)) {
        return Verdict::CannotSay { why: pauses.told() };
    }
    let factor = (half / SMALL).powi(2) - 1.0;
    let own = analysis.by_target.get(&id).map_or(&[][..], Vec::as_slice);
    let spent = seconds(&analysis.kept).max(seconds(own));
    let more_seconds = Some((factor.max(0.1) * spent).min(1e6));
    let missing = "windows: the interval still holds both a gain and none".to_owned();
    // What makes it wider than windows do is the thing to change, before so much time is spent.
    if more_seconds > Some(PATIENCE) && (analysis.quality.is_doubled() || crowding > 0.0) {
        let what = if analysis.quality.is_doubled() { "doubled" } else { "wider" };
        let missing = format!(
            "free cores: the interval still holds both a gain and none, and is {what} for delays that are spun while other \
             threads wait for cores; {}",
            crowd::advice(analysis.run)
        );
        return Verdict::NotEnoughData { missing, more_seconds: None };
    }
    Verdict::NotEnoughData { missing, more_seconds }
}

/// Different amounts that this run tries at all (`--speedups`); any, while it is too young to tell.
fn tried(analysis: &Analysis<'_>) -> usize {
    if analysis.kept.len() < YOUNG {
        return usize::MAX;
    }
    let amounts: BTreeSet<u8> = analysis.kept.iter().map(|w| w.percent).filter(|p| *p > 0).collect();
    amounts.len().max(1)
}

/// What a curve lacks, and the seconds that would probably bring it.
pub(crate) fn missing(analysis: &Analysis<'_>, id: u32) -> Option<(String, Option<f64>)> {
    let own = analysis.by_target.get(&id).map_or(&[][..], Vec::as_slice);
    let zeros = own.iter().filter(|w| w.percent == 0).count();
    let amounts: BTreeSet<u8> = own.iter().map(|w| w.percent).filter(|p| *p > 0).collect();
    let fixed = own.iter().all(|w| w.selection == Selection::Fixed);
    let wanted = if fixed { 1 } else { analysis.options.min_amounts.min(tried(analysis)) };
    let lacking_zeros = ZEROS.saturating_sub(zeros);
    let lacking = wanted.saturating_sub(amounts.len());
    if lacking_zeros == 0 && lacking == 0 {
        return None;
    }
    let windows = (lacking_zeros + lacking) as f64;
    let rate = own.len() as f64 / seconds(&analysis.kept).max(1e-3);
    let more = (rate > 0.0).then(|| 2.0 * windows / rate);
    let mut parts = Vec::new();
    if lacking_zeros > 0 {
        parts.push(format!("{lacking_zeros} more windows without speed-up"));
    }
    if lacking > 0 {
        parts.push(format!("{lacking} more different amounts"));
    }
    Some((parts.join(" and "), more))
}

/// Who ends the waits at a place, when it is a wait for other threads.
fn caused_by(run: &CausalRun, target: &Target) -> Option<Vec<String>> {
    if target.unit != Unit::OffCpu {
        return None;
    }
    let here = |t: &Target| t.name == target.name && t.file == target.file && t.line == target.line;
    let wait = run.waits.iter().find(|w| here(&w.site))?;
    let mut wakers: Vec<_> = wait.woken_by.iter().collect();
    wakers.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.name.cmp(&b.0.name)));
    Some(wakers.into_iter().take(3).map(|(place, _)| label(run, place)).collect())
}

/// What sentences need.
pub(crate) struct Facts<'a> {
    pub(crate) run: &'a CausalRun,
    pub(crate) assume: u8,
}

/// Writes the sentences.
pub(crate) fn join(rows: &mut [TargetRow], facts: &Facts<'_>) {
    for row in rows {
        row.reason = sentence(row, facts);
    }
}

fn sentence(row: &TargetRow, facts: &Facts<'_>) -> String {
    worded(&row.verdict, row, facts)
}

fn worded(verdict: &Verdict, row: &TargetRow, facts: &Facts<'_>) -> String {
    let at = facts.assume;
    let gain = row.gain.as_ref().map_or_else(String::new, told);
    match verdict {
        Verdict::FixThis if row.gain.is_some_and(|g| g.low > 0.0) => format!("fix this: {gain} if {at} % faster"),
        Verdict::FixThis => format!(
            "fix this: its removal helps for certain; how much {at} % faster is worth is not known yet ({gain})"
        ),
        Verdict::HelpsUntil { percent, low, high } => {
            let limit = limit(row, facts);
            format!(
                "fix this: {gain} if {at} % faster; no more gain beyond {percent:.0} % ({low:.0} to {high:.0}{limit})"
            )
        }
        Verdict::DoNotBother { up_to: 100, within } => {
            format!("do not bother: its whole removal gains less than {:.0} %", 100.0 * within)
        }
        Verdict::DoNotBother { up_to, within } => {
            format!("do not bother: {up_to} % faster gains less than {:.0} %", 100.0 * within)
        }
        Verdict::HelpsOther { points, up_to, within } => helps_other(row, points, (*up_to, *within), facts),
        Verdict::Contention { partner } => {
            let place = partner.as_ref().map_or_else(String::new, |p| format!("; threads wait most in {p}"));
            format!("contention: making this faster hurts ({gain} if {at} % faster){place}")
        }
        Verdict::CausedBy { who } if who.is_empty() => "a wait for other threads of the program".to_owned(),
        Verdict::CausedBy { who } => format!("a wait that ends when {} gets there", who.join(", ")),
        Verdict::DependsOnLoad { closed } => format!(
            "if clients wait for answers, {}; if requests come at a rate of their own, no gain but in the time of each",
            worded(closed, row, facts)
        ),
        Verdict::RateFixed if fixed_time::is_whole(facts.run) => {
            "run time fixed by a clock: no change makes it shorter".to_owned()
        }
        Verdict::RateFixed => "rate fixed by a timer or by arrivals: look at latency instead".to_owned(),
        Verdict::NotEnoughData { missing, more_seconds: Some(s) } => {
            format!("not enough data: it lacks {missing}; {}", more(*s))
        }
        Verdict::NotEnoughData { missing, more_seconds: None } => format!("not enough data: it lacks {missing}"),
        Verdict::CannotSay { why } => format!("cannot say: {why}"),
    }
}

/// `helps pb (+22 ±3 %) if 30 % faster; pa gains less than 3 %`.
fn helps_other(row: &TargetRow, points: &[u32], (up_to, within): (u8, f64), facts: &Facts<'_>) -> String {
    let name = |point: u32| facts.run.points.get(point as usize).map_or("?", |p| p.name.as_str());
    let gain = |point: u32| row.other_points.iter().find(|e| e.point == point).and_then(|e| e.over_the_run);
    let one = |point: &u32| format!("{} ({})", name(*point), gain(*point).as_ref().map_or_else(String::new, told));
    let helped: Vec<String> = points.iter().map(one).collect();
    let (first, within, at) = (name(0), 100.0 * within, facts.assume);
    let helped = helped.join(", ");
    match up_to {
        _ if up_to == at => format!("helps {helped} if {at} % faster; {first} gains less than {within:.0} %"),
        100 => format!("helps {helped} if {at} % faster; {first} gains less than {within:.0} % from its whole removal"),
        _ => format!("helps {helped} if {at} % faster; {first} gains less than {within:.0} % at {up_to} %"),
    }
}

/// `+12 ±2 %`.
fn told(gain: &Gain) -> String {
    format!("{:+.0} \u{b1}{:.0} %", 100.0 * gain.y, (50.0 * (gain.high - gain.low)).clamp(1.0, 999.0))
}

/// How long it takes, as far as that can be foreseen.
fn more(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => "about 1 s more".to_owned(),
        s if s < 180.0 => format!("about {s:.0} s more"),
        s if s < 7200.0 => format!("about {:.0} min more", s / 60.0),
        _ => "hours more at this rate: a quieter machine, a steadier program or longer windows (--window) would help more".to_owned(),
    }
}

/// What limits the program beyond the knee, where it is clear what the target's threads wait for.
fn limit(row: &TargetRow, facts: &Facts<'_>) -> String {
    let known = facts.run.takes_over.iter().find(|t| t.target == row.id);
    let by = known.and_then(|t| facts.run.targets.get(t.by as usize));
    let file = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    match by {
        Some(by) if by.unit == Unit::Line => format!("; then {} {}:{} limits", by.name, file(&by.file), by.line),
        Some(by) => format!("; then {} limits", by.name),
        None => String::new(),
    }
}
