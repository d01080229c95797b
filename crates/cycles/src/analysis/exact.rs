//! What counts by breakpoints say of one procedure: how often its counted blocks ran against each other, and against time.
//! Rows come in, logarithms with errors go out; `frequency` hands them to the flow solver.
//!
//! Places of one set compare through whole rounds of its leading place; sets share places, so that all of a procedure
//! compare in the end. Time is one more node of that net: places that ran too rarely for hits to fill their windows compare
//! with it. Each comparison has the error of its chance, and of how far two ways to count disagree. The flow solver weighs those
//! inside a procedure; where it has no rare place, the least squares over all comparisons find a way to time through others.

use crate::flow::{Count, Ratio};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use whither_image::ImageOffset;
use whither_store::model::{ExactCount, ImageIx};

/// Fewer rounds of the leading place compare nothing.
const FEWEST_ROUNDS: u64 = 8;
/// One in so many executions may lie in crowded windows, else time tells nothing of a place.
const CROWDED: u64 = 20;
/// Part of a place's logarithm over the leading one that may be an error where it is the more frequent one: windows cut off
/// its longest bursts.
const DOUBT_OF_BURSTS: f64 = 0.2;
/// With a smaller part of a place's hits behind one of the leading place, they hardly run together.
const TOGETHER: f64 = 0.5;
/// How far a ratio differs from one window to another, as a logarithm: programs have phases.
const PHASES: f64 = 1.0;
/// By how much of the time that hits took it may be wrong: most of it is how they disturb the program, which is assumed.
const DOUBT_OF_COST: f64 = 1.0;
/// No comparison is better than this: windows end within rounds.
const LEAST_ERROR: f64 = 0.05;
/// A scale that came a long way and is less certain than this is none.
const MOST_ERROR: f64 = 0.3;
/// What is believed of a place that was watched and never hit: half an execution, give or take this factor's logarithm.
const NEVER: f64 = 2.0;
/// Time of watching without a hit that says something, nanoseconds.
const WATCHED_NS: u64 = 2_000_000;
/// More places are not compared at once.
const MOST_NODES: usize = 400;

/// What is known of a procedure's counted blocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counted {
    /// Blocks of one set.
    pub(crate) ratios: Vec<Ratio>,
    /// Blocks against time, in executions per nanosecond.
    pub(crate) rates: Vec<Count>,
    /// Some of them were hit, so that they tell the scale.
    pub(crate) has_rate: bool,
}

impl Counted {
    /// How many blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.all_blocks().len()
    }

    /// The blocks.
    pub(crate) fn all_blocks(&self) -> BTreeSet<usize> {
        let of_ratios = self.ratios.iter().flat_map(|r| [r.from, r.to]);
        of_ratios.chain(self.rates.iter().map(|c| c.block)).collect()
    }

    /// Whether blocks compare with each other.
    pub(crate) fn compares(&self) -> bool {
        self.blocks() > 1
    }
}

type Place = (ImageIx, ImageOffset);

/// Executions of `to` over those of `from` (`None`: nanoseconds).
struct Comparison {
    from: Option<Place>,
    to: Place,
    log: f64,
    variance: f64,
}

/// `block_of`: the block that begins at a place, where it is one of the procedure. `None` unless some were hit.
pub(crate) fn counted(rows: &[ExactCount], block_of: impl Fn(Place) -> Option<usize>) -> Option<Counted> {
    let mut hits: BTreeMap<Place, u64> = BTreeMap::new();
    for r in rows.iter().filter(|r| block_of((r.image, r.offset)).is_some()) {
        *hits.entry((r.image, r.offset)).or_default() += r.hits;
    }
    let (&most, _) = hits.iter().filter(|h| *h.1 > 0).max_by_key(|h| *h.1)?;
    let mut all = comparisons(rows);
    let own = |c: &Comparison| c.from.is_none() && block_of(c.to).is_some();
    let apart = between_sets(&all.iter().filter(|c| own(c)).collect::<Vec<_>>());
    all.iter_mut().filter(|c| own(c)).for_each(|c| c.variance += apart);
    let ratio = |c: &Comparison| {
        let (from, to) = (block_of(c.from?)?, block_of(c.to)?);
        Some(Ratio { from, to, log: c.log, error: c.variance.sqrt() })
    };
    let rate = |c: &Comparison| {
        let block = block_of(c.to).filter(|_| c.from.is_none())?;
        Some(Count { block, log: c.log, error: c.variance.sqrt() })
    };
    let mut out = Counted {
        ratios: all.iter().filter_map(ratio).collect(),
        rates: all.iter().filter_map(rate).collect(),
        has_rate: false,
    };
    if out.rates.is_empty() {
        out.rates = through_others(&all, most)
            .zip(block_of(most))
            .map(|((log, error), block)| Count { block, log, error })
            .into_iter()
            .collect();
    }
    out.has_rate = !out.rates.is_empty();
    // What was never hit is worth saying only beside what was.
    if out.has_rate {
        out.rates.extend(never(rows).iter().filter_map(rate));
    }
    Some(out)
}

/// The rate of a place by way of what was counted in other procedures.
fn through_others(all: &[Comparison], place: Place) -> Option<(f64, f64)> {
    let answers = Net::of(all, place)?.solve()?;
    // Time against the place: nanoseconds per execution.
    let (log, variance) = answers.of(None)?;
    Some((-log, variance.sqrt())).filter(|r| r.1 <= MOST_ERROR)
}

fn comparisons(rows: &[ExactCount]) -> Vec<Comparison> {
    let mut sets: BTreeMap<u64, Vec<&ExactCount>> = BTreeMap::new();
    rows.iter().for_each(|r| sets.entry(r.set).or_default().push(r));
    let mut out: Vec<Comparison> = sets.values().flat_map(|set| rounds(set)).collect();
    out.extend(rows.iter().filter_map(by_time));
    out
}

/// Windows that a place's executions came in, fewer where some had most of them; each may be a phase of its own.
fn phases(r: &ExactCount) -> f64 {
    let hits = r.hits as f64;
    PHASES.powi(2) * r.squares as f64 / (hits * hits).max(1.0)
}

/// How unevenly executions come: the variance of their number over windows, over that of independent ones.
fn unevenness(r: &ExactCount) -> f64 {
    if r.hits == 0 || r.windows < 2 {
        return 1.0;
    }
    let (hits, windows) = (r.hits as f64, r.windows as f64);
    (r.squares as f64 / hits - hits / windows).max(1.0)
}

/// Places of a set against its leading one.
fn rounds(set: &[&ExactCount]) -> Vec<Comparison> {
    let Some(lead) = set.iter().find(|r| r.leads && r.whole >= FEWEST_ROUNDS) else { return Vec::new() };
    let compare = |r: &&&ExactCount| {
        let (own, all) = (r.whole as f64, lead.whole as f64);
        let log = (own / all).ln();
        // What was hit before the leading place was, and what windows could not hold.
        let cut = (own / r.hits as f64).ln();
        let bursts = DOUBT_OF_BURSTS * log.max(0.0);
        let chance = unevenness(r) / own + 1.0 / all + phases(r).max(phases(lead));
        let variance = chance + cut.powi(2) + bursts.powi(2) + LEAST_ERROR.powi(2);
        Comparison { from: Some((lead.image, lead.offset)), to: (r.image, r.offset), log, variance }
    };
    let together = |r: &&&ExactCount| !r.leads && r.whole > 0 && r.whole as f64 >= TOGETHER * r.hits as f64;
    set.iter().filter(together).map(|r| compare(&r)).collect()
}

/// A place against time.
fn by_time(r: &ExactCount) -> Option<Comparison> {
    let own_ns = r.enabled_ns.checked_sub(r.hits_ns).filter(|ns| *ns > 0)? as f64;
    if r.hits == 0 || r.crowded * CROWDED >= r.hits {
        return None;
    }
    let hits = r.hits as f64;
    let taken = DOUBT_OF_COST * r.hits_ns as f64 / r.enabled_ns as f64;
    if taken > MOST_ERROR {
        return None;
    }
    let variance = unevenness(r) / hits + taken.powi(2) + LEAST_ERROR.powi(2);
    Some(Comparison { from: None, to: (r.image, r.offset), log: (hits / own_ns).ln(), variance })
}

/// Variance between what different sets tell of one place's rate, beyond what each is unsure by itself (DerSimonian and Laird, over all
/// places): sets are watched at different times, each for a moment, and what is the case then lasts longer than from one window to the next. So
/// more windows of one set make it no surer than this.
fn between_sets(rates: &[&Comparison]) -> f64 {
    let mut of_place: BTreeMap<Place, Vec<(f64, f64)>> = BTreeMap::new();
    rates.iter().for_each(|c| of_place.entry(c.to).or_default().push((c.log, 1.0 / c.variance)));
    let (mut above_chance, mut weight) = (0.0, 0.0);
    for told in of_place.values() {
        let sum: f64 = told.iter().map(|t| t.1).sum();
        let mean = told.iter().map(|t| t.0 * t.1).sum::<f64>() / sum;
        above_chance += told.iter().map(|t| t.1 * (t.0 - mean).powi(2)).sum::<f64>() - (told.len() - 1) as f64;
        weight += sum - told.iter().map(|t| t.1 * t.1).sum::<f64>() / sum;
    }
    if weight > 0.0 { (above_chance / weight).max(0.0) } else { 0.0 }
}

/// Places that were watched for long and never hit.
fn never(rows: &[ExactCount]) -> Vec<Comparison> {
    let mut watched: FxHashMap<Place, (u64, u64)> = FxHashMap::default();
    for r in rows {
        let sums = watched.entry((r.image, r.offset)).or_default();
        *sums = (sums.0 + r.hits, sums.1 + r.enabled_ns.saturating_sub(r.hits_ns));
    }
    let quiet = watched.into_iter().filter(|(_, (hits, ns))| *hits == 0 && *ns >= WATCHED_NS);
    let mut out: Vec<Comparison> = quiet
        .map(|(to, (_, ns))| Comparison { from: None, to, log: (0.5 / ns as f64).ln(), variance: NEVER * NEVER })
        .collect();
    // Maps have no order, sums do.
    out.sort_by_key(|c| c.to);
    out
}

/// Comparisons that reach one place, as equations over the others.
struct Net {
    nodes: Vec<Option<Place>>,
    /// From, to, logarithm, weight; the ground is `nodes.len()`.
    lines: Vec<(usize, usize, f64, f64)>,
}

struct Answers {
    nodes: Vec<Option<Place>>,
    values: Vec<(f64, f64)>,
}

impl Answers {
    fn of(&self, node: Option<Place>) -> Option<(f64, f64)> {
        let i = self.nodes.iter().position(|n| *n == node)?;
        Some(self.values[i])
    }
}

impl Net {
    fn of(comparisons: &[Comparison], ground: Place) -> Option<Self> {
        let mut near: BTreeMap<Option<Place>, Vec<Option<Place>>> = BTreeMap::new();
        for c in comparisons {
            near.entry(c.from).or_default().push(Some(c.to));
            near.entry(Some(c.to)).or_default().push(c.from);
        }
        let mut nodes = vec![Some(ground)];
        let mut seen = std::collections::BTreeSet::from([Some(ground)]);
        let mut next = 0;
        while let Some(node) = nodes.get(next).copied() {
            next += 1;
            let found = near.get(&node).into_iter().flatten().copied();
            nodes.extend(found.filter(|n| seen.insert(*n)).collect::<Vec<_>>());
        }
        nodes.remove(0);
        if nodes.len() > MOST_NODES {
            return None;
        }
        let number: FxHashMap<Option<Place>, usize> = nodes.iter().copied().zip(0..).collect();
        let of = |node: Option<Place>| {
            if node == Some(ground) { Some(nodes.len()) } else { number.get(&node).copied() }
        };
        let line = |c: &Comparison| Some((of(c.from)?, of(Some(c.to))?, c.log, 1.0 / c.variance));
        let lines = comparisons.iter().filter_map(line).collect();
        Some(Self { nodes, lines })
    }

    /// Values of all nodes against the ground, with their variances.
    fn solve(self) -> Option<Answers> {
        let n = self.nodes.len();
        let mut matrix = vec![vec![0.0; n]; n];
        let mut right = vec![0.0; n];
        for &(from, to, log, weight) in &self.lines {
            for (node, sign) in [(from, -1.0), (to, 1.0)] {
                if node < n {
                    matrix[node][node] += weight;
                    right[node] += sign * weight * log;
                }
            }
            if from < n && to < n {
                matrix[from][to] -= weight;
                matrix[to][from] -= weight;
            }
        }
        let inverse = inverse(matrix)?;
        let values: Vec<f64> = inverse.iter().map(|row| row.iter().zip(&right).map(|(a, b)| a * b).sum()).collect();
        let at = |node: usize| values.get(node).copied().unwrap_or(0.0);
        let misfit: f64 = self.lines.iter().map(|&(a, b, log, w)| w * (at(b) - at(a) - log).powi(2)).sum();
        // Comparisons that contradict each other by more than their chance: none is as good as it seems.
        let spare = self.lines.len().saturating_sub(n);
        let wider = if spare > 0 { (misfit / spare as f64).max(1.0) } else { 1.0 };
        let values = (0..n).map(|i| (values[i], inverse[i][i] * wider)).collect();
        Some(Answers { nodes: self.nodes, values })
    }
}

/// The inverse of a symmetric positive matrix, by Gauss and Jordan.
fn inverse(mut a: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let n = a.len();
    let mut out: Vec<Vec<f64>> = (0..n).map(|i| (0..n).map(|j| if i == j { 1.0 } else { 0.0 }).collect()).collect();
    for i in 0..n {
        let pivot = a[i][i];
        if !pivot.is_finite() || pivot <= 1e-12 {
            return None;
        }
        a[i].iter_mut().chain(&mut out[i]).for_each(|x| *x /= pivot);
        let (row, inverted) = (a[i].clone(), out[i].clone());
        for j in (0..n).filter(|j| *j != i) {
            let factor = a[j][i];
            if factor != 0.0 {
                a[j].iter_mut().zip(&row).for_each(|(x, r)| *x -= factor * r);
                out[j].iter_mut().zip(&inverted).for_each(|(x, r)| *x -= factor * r);
            }
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Place, set, leads, hits, whole, enabled and hits' time in microseconds.
    fn row(at: u64, set: u64, leads: bool, hits: u64, whole: u64, us: (u64, u64)) -> ExactCount {
        ExactCount {
            image: ImageIx(0),
            offset: ImageOffset(at),
            set,
            leads,
            hits,
            whole,
            crowded: if us.1 * 3 > us.0 { hits } else { 0 },
            // As even as independent ones are.
            squares: (hits * hits) / 100 + hits,
            windows: 100,
            enabled_ns: us.0 * 1000,
            hits_ns: us.1 * 1000,
        }
    }

    fn of(rows: &[ExactCount]) -> Counted {
        counted(rows, |(_, at)| (at.0 < 100).then_some(at.0 as usize)).expect("something was hit")
    }

    fn near(measured: f64, truth: f64, within: f64) {
        assert!((measured - truth).abs() <= within, "{measured} {truth}");
    }

    #[test]
    fn places_of_a_set_compare_and_rare_ones_with_time() {
        // Rates 8e6, 2e6, 1e5 and 5e3 per second; only the last set is thin enough for time.
        let rows = [
            row(0, 1, true, 8000, 7900, (100_000, 99_000)),
            row(1, 1, false, 2000, 1975, (100_000, 99_000)),
            row(2, 3, true, 5000, 4900, (100_000, 50_000)),
            row(3, 3, false, 250, 245, (100_000, 50_000)),
            row(3, 4, true, 1000, 950, (225_000, 25_000)),
        ];
        let c = of(&rows);
        let ratios: Vec<(usize, usize)> = c.ratios.iter().map(|r| (r.from, r.to)).collect();
        assert_eq!(ratios, [(0, 1), (2, 3)]);
        near(c.ratios[0].log, 0.25_f64.ln(), 0.01);
        near(c.ratios[1].log, 0.05_f64.ln(), 0.01);
        assert!(c.ratios[0].error < 0.2 && c.ratios[1].error > c.ratios[0].error, "{c:?}");
        assert!(c.has_rate && c.compares() && c.blocks() == 4);
        assert_eq!((c.rates.len(), c.rates[0].block), (1, 3));
        near(c.rates[0].log, (5e3_f64 / 1e9).ln(), 0.01);
        assert!(c.rates[0].error > 0.1 && c.rates[0].error < 0.15, "{c:?}");
    }

    #[test]
    fn without_a_rare_place_there_is_no_scale_and_without_hits_nothing() {
        let rows = [row(0, 1, true, 800, 790, (10_000, 9_000)), row(1, 1, false, 200, 198, (10_000, 9_000))];
        let c = of(&rows);
        assert!(!c.has_rate && c.rates.is_empty() && c.compares());
        assert_eq!(counted(&[row(0, 1, true, 0, 0, (9, 0))], |_| Some(0)), None);
        assert_eq!(counted(&rows, |_| None), None);
    }

    #[test]
    fn sets_that_tell_unlike_rates_of_a_place_are_no_surer_than_they_agree() {
        // In quiet moments 340 a second were counted many times, in busy ones 600 a few times.
        let many = row(0, 1, true, 714, 700, (2_175_000, 75_000));
        let alike = [many, row(0, 2, true, 17, 12, (51_000, 1_000)), row(0, 3, true, 20, 15, (61_000, 1_000))];
        let error = |rows: &[ExactCount]| of(rows).rates[0].error;
        assert!(error(&alike) < error(&[many]) + 0.02, "{} {}", error(&alike), error(&[many]));
        let apart = [many, row(0, 2, true, 45, 40, (76_000, 1_000)), row(0, 3, true, 50, 45, (84_000, 1_000))];
        assert!(error(&apart) > 0.2, "{}", error(&apart));
    }

    #[test]
    fn what_was_cut_off_is_doubted() {
        let even = of(&[row(0, 1, true, 1000, 990, (90, 80)), row(1, 1, false, 500, 495, (90, 80))]);
        // Seen as often, but hardly within whole rounds.
        let cut = of(&[row(0, 1, true, 1000, 990, (90, 80)), row(1, 1, false, 500, 300, (90, 80))]);
        assert!(cut.ratios[0].error > 3.0 * even.ratios[0].error, "{cut:?} {even:?}");
        // More frequent than what leads: the longest bursts do not fit into windows.
        let bursts = of(&[row(0, 1, true, 100, 99, (90, 80)), row(1, 1, false, 1000, 990, (90, 80))]);
        assert!(bursts.ratios[0].error > 0.4, "{bursts:?}");
        let apart = of(&[row(0, 1, true, 1000, 990, (90, 80)), row(1, 1, false, 500, 50, (90, 80))]);
        assert!(apart.ratios.is_empty(), "{apart:?}");
    }

    #[test]
    fn a_place_never_hit_is_rare() {
        let rows = [
            row(0, 1, true, 1000, 990, (1_000_000, 10_000)),
            row(1, 1, false, 0, 0, (1_000_000, 10_000)),
            row(2, 2, true, 0, 0, (1, 0)),
        ];
        let c = of(&rows);
        let never = c.rates.iter().find(|r| r.block == 1).expect("it was watched");
        assert!(never.log < c.rates[0].log + (1e-3_f64).ln() && never.error > 1.5, "{c:?}");
        assert!(c.rates.iter().all(|r| r.block != 2), "too little time to say anything: {c:?}");
    }

    #[test]
    fn places_of_other_procedures_carry_the_scale() {
        // Block 0 compares with a caller at 500, which compares with its own at 600, which is rare.
        let rows = [
            row(0, 1, true, 8000, 7900, (100_000, 99_000)),
            row(500, 1, false, 800, 790, (100_000, 99_000)),
            row(500, 2, true, 8000, 7900, (100_000, 99_000)),
            row(600, 2, false, 800, 790, (100_000, 99_000)),
            row(600, 3, true, 1000, 950, (110_000, 10_000)),
        ];
        let c = of(&rows);
        assert!(c.has_rate && c.ratios.is_empty());
        near(c.rates[0].log, (1e6_f64 / 1e9).ln(), 0.02);
        assert!(c.rates[0].error > 0.05, "a long way: {c:?}");
        assert!(of(&rows[..4]).rates.is_empty());
    }

    #[test]
    fn comparisons_that_contradict_each_other_are_worth_less() {
        let place = |at: u64| (ImageIx(0), ImageOffset(at));
        let line = |log: f64| Comparison { from: None, to: place(1), log, variance: 0.01 };
        let error = |logs: &[f64]| {
            let all: Vec<Comparison> = logs.iter().map(|l| line(*l)).collect();
            through_others(&all, place(1)).map(|r| r.1)
        };
        near(error(&[1.0, 1.0]).expect("close"), 0.1 / 2_f64.sqrt(), 1e-9);
        assert!(error(&[1.0, 1.4]).is_some_and(|e| e > 0.15));
        assert_eq!(error(&[1.0, 3.0]), None);
    }

    #[test]
    fn inverses_are_inverses() {
        let a = vec![vec![4.0, -1.0, 0.0], vec![-1.0, 3.0, -1.0], vec![0.0, -1.0, 2.0]];
        let b = inverse(a.clone()).expect("positive");
        for (i, row) in a.iter().enumerate() {
            for j in 0..3 {
                let sum: f64 = row.iter().zip(&b).map(|(x, column)| x * column[j]).sum();
                near(sum, if i == j { 1.0 } else { 0.0 }, 1e-12);
            }
        }
        assert_eq!(inverse(vec![vec![0.0]]), None);
    }
}
