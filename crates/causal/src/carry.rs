//! What one experiment leaves behind for the next one: a queue that a speed-up filled is worked off in the window
//! after it, which then looks faster than it is. Windows begin to count when the program has settled; whether it
//! had is tested here, and windows that were given less time for it than later ones are told apart.

use crate::series::{Baselines, Measure, trimmed_mean, value};
use rustc_hash::FxHashMap;
use whither_store::causal::Window;

/// A window that counts, with the target and the amount of the one before it in the same run.
pub(crate) type Followed<'a> = (&'a Window, Option<(u32, u8)>);

/// A trace of the window before in values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Carried {
    /// Relative change of windows without speed-up, on average.
    pub(crate) bias: f64,
    /// Of it, over its error.
    t: f64,
}

/// Of what is told.
const CERTAIN: f64 = 3.5;
/// The policy looks again and again, but a false alarm costs it only time.
const PROBABLE: f64 = 2.8;
/// Less than this is no matter.
const MATERIAL: f64 = 0.01;
/// Windows that a group of equal ones needs.
const GROUP: usize = 3;
/// Windows without speed-up that a test needs.
const ENOUGH: usize = 12;

impl Carried {
    /// Whether it is there for certain and large enough to bend curves.
    pub(crate) fn matters(&self) -> bool {
        self.t.abs() > CERTAIN && self.bias.abs() > MATERIAL
    }

    /// Whether more time to settle is worth a try.
    pub(crate) fn may_matter(&self) -> bool {
        self.t.abs() > PROBABLE && self.bias.abs() > MATERIAL
    }
}

/// Regression of the windows without speed-up, relative to those of the same target, on the effect of the window
/// before: beyond a knee nothing is seen of it, and those without are what all others are compared with. `None` where
/// windows are too few or nothing had an effect.
pub(crate) fn carried(windows: &[Followed<'_>]) -> Option<Carried> {
    let measure = Measure::Period(0);
    let baselines = Baselines::new(windows.iter().map(|(w, _)| *w), measure);
    let mut groups: FxHashMap<(u32, u8), Vec<f64>> = FxHashMap::default();
    let relative = |w: &Window| Some(value(w, measure)?.0 / baselines.of(w.stratum)?).filter(|v| v.is_finite());
    for (w, _) in windows {
        if let Some(v) = relative(w) {
            groups.entry((w.target, w.percent)).or_default().push(v);
        }
    }
    groups.retain(|_, values| values.len() >= GROUP);
    let effect = |(target, percent): (u32, u8)| {
        let of = |percent| groups.get(&(target, percent)).map(|v| trimmed_mean(v)).filter(|m| *m > 0.0);
        if percent == 0 { Some(0.0) } else { Some((1.0 - of(percent)? / of(0)?).clamp(-1.0, 1.0)) }
    };
    let mut rows: FxHashMap<u32, Vec<(f64, f64)>> = FxHashMap::default();
    for (w, before) in windows.iter().filter(|(w, _)| w.percent == 0 && groups.contains_key(&(w.target, 0))) {
        if let Some(row) = before.and_then(effect).zip(relative(w)) {
            rows.entry(w.target).or_default().push(row);
        }
    }
    regress(&rows)
}

/// Amounts from here on are looked at apart: only they may lie beyond a knee, where a queue is worked off that was full.
const LARGE: u8 = 50;
/// Windows with a speed-up, and ones without, that a comparison of their paces needs.
const PACES: usize = 10;

/// The same seen from within windows: where a speed-up empties a queue that was full, visits come fast until it is empty, and
/// such windows look faster than the program would be. Windows without speed-up show nothing of it.
pub(crate) fn unsettled(windows: &[Followed<'_>]) -> Option<Carried> {
    let of = |wanted: &dyn Fn(u8) -> bool| -> Vec<f64> {
        windows.iter().filter(|(w, _)| wanted(w.percent)).filter_map(|(w, _)| skew(w)).collect()
    };
    let plain = of(&|p| p == 0);
    let compared = |delayed: Vec<f64>| {
        if plain.len() < PACES || delayed.len() < PACES {
            return None;
        }
        let (a, b) = (whither_stats::Summary::of(&plain), whither_stats::Summary::of(&delayed));
        let error = (a.deviation.powi(2) / plain.len() as f64 + b.deviation.powi(2) / delayed.len() as f64).sqrt();
        // Visits that are early by a part of the window are twice as many too many if that came at its very beginning, and
        // four times as many if it went on to its middle.
        (error > 0.0).then(|| Carried { bias: 4.0 * (b.mean - a.mean), t: (b.mean - a.mean) / error })
    };
    let kinds = [compared(of(&|p| p > 0 && p < LARGE)), compared(of(&|p| p >= LARGE))];
    kinds.into_iter().flatten().max_by(|a, b| a.t.abs().total_cmp(&b.t.abs()))
}

/// How much later than the middle of a window its visits are on average, as a part of its length.
fn skew(window: &Window) -> Option<f64> {
    let v = window.visits.iter().find(|v| v.point == 0).filter(|v| v.visits >= 5 && v.sum_virtual_ns != 0)?;
    let (first, last) = (v.first_virtual_ns as f64, v.last_virtual_ns as f64);
    let mean = v.sum_virtual_ns as f64 / v.visits as f64;
    (last > first).then(|| (mean - (first + last) / 2.0) / (last - first))
}

/// What is seen of earlier windows in either way, the more certain one.
pub(crate) fn traces(windows: &[Followed<'_>]) -> Option<Carried> {
    let both = [carried(windows), unsettled(windows)];
    both.into_iter().flatten().max_by(|a, b| a.t.abs().total_cmp(&b.t.abs()))
}

/// Slope within groups, and what it makes of their windows.
fn regress(rows: &FxHashMap<u32, Vec<(f64, f64)>>) -> Option<Carried> {
    let (mut n, mut sum, mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for group in rows.values() {
        let size = group.len() as f64;
        let (x0, y0) = group.iter().fold((0.0, 0.0), |(x, y), r| (x + r.0 / size, y + r.1 / size));
        for (x, y) in group {
            xx += (x - x0).powi(2);
            xy += (x - x0) * (y - y0);
            yy += (y - y0).powi(2);
        }
        n += size;
        sum += size * x0;
    }
    let degrees = n - rows.len() as f64 - 1.0;
    if (n as usize) < ENOUGH || degrees < 8.0 || xx <= 1e-9 {
        return None;
    }
    let slope = xy / xx;
    let error = ((yy - slope * xy).max(0.0) / degrees / xx).sqrt();
    (error > 0.0).then(|| Carried { bias: slope * sum / n, t: slope / error })
}

/// Windows with those before them, the latter also where they do not count.
pub(crate) fn followed<'a>(all: &'a [Window], counts: impl Fn(&Window) -> bool) -> Vec<Followed<'a>> {
    let before = |i: usize| {
        let last = all.get(i.checked_sub(1)?)?;
        (last.run == all[i].run).then_some((last.target, last.percent))
    };
    all.iter().enumerate().filter(|(_, w)| counts(w)).map(|(i, w)| (w, before(i))).collect()
}

/// Part of a window's shortest length for which the program settles before it counts, and longer ones for programs
/// in which the window before is still seen after that.
pub(crate) const SETTLE: [f64; 3] = [1.0 / 3.0, 1.0, 3.0];

/// The part that windows of a stratum were given.
pub(crate) fn settle(stratum: u32) -> f64 {
    SETTLE.get((stratum / SETTLED) as usize).copied().unwrap_or(SETTLE[SETTLE.len() - 1])
}

/// The policy jumps to the next multiple of this when it gives the program more time to settle: strata below it hold
/// windows that had too little.
pub(crate) const SETTLED: u32 = 1000;

/// By how much strata of further experiments are to be raised so that they stay apart from these, and still tell how much
/// time their windows were given.
#[must_use]
pub fn strata_behind(before: impl Iterator<Item = u32>) -> u32 {
    before.map(|stratum| stratum % SETTLED + 1).max().unwrap_or(0)
}

/// From which stratum on windows count, where enough are left.
pub(crate) fn settled_from(all: &[Window], counts: impl Fn(&Window) -> bool) -> u32 {
    let level = |w: &Window| w.stratum / SETTLED;
    let last = all.iter().map(level).max().unwrap_or(0);
    let left = all.iter().filter(|w| level(w) == last && counts(w)).count();
    if left >= 2 * ENOUGH { last * SETTLED } else { 0 }
}

#[cfg(test)]
mod tests;
