//! Signs before figures that are no plain estimates, the same in every form of an answer: `<~` before executions that
//! are only bounded from above, `>~` before cycles that are bounded from below by them, `~` before both where it is hardly known how
//! often a block ran against those that the bound is of; and probabilities with no more
//! digits than the branch samples behind them allow.

use super::number::{executions, interval};
use whither_cycles::results::analysis::{Analysis, BlockAnalysis, Confidence, EdgeAnalysis, Estimate, Scale};

/// Fewer decided branch samples than this tell a probability to a few percent at best.
const FEW: u64 = 20;

/// Between the ends of an interval that says hardly anything.
const LOOSE: f64 = 2.0;
/// Cycles over the best case up to which a block is near it.
const NEAR_BEST: f64 = 1.25;

/// Whether executions, and so cycles, are known as such and not only bounded.
pub(crate) fn is_absolute(a: &Analysis) -> bool {
    matches!(a.scale, Scale::Absolute(_) | Scale::Counted | Scale::Sampled)
}

/// Before executions.
pub(crate) fn at_most(a: &Analysis) -> &'static str {
    if a.scale == Scale::Bounded { "<~ " } else { "" }
}

/// Before cycles.
pub(crate) fn at_least(a: &Analysis) -> &'static str {
    if is_absolute(a) { "" } else { ">~ " }
}

/// Before cycles of a block.
pub(crate) fn at_least_of(a: &Analysis, b: &BlockAnalysis) -> &'static str {
    if is_loose(a, b) { "~ " } else { at_least(a) }
}

/// Whether the bound is of blocks that this one was hardly compared with: one near its own best case is bounded by itself.
pub(crate) fn is_loose(a: &Analysis, b: &BlockAnalysis) -> bool {
    let f = &b.frequency;
    let unknown = f.confidence == Confidence::Low && f.high > LOOSE * f.low;
    a.scale == Scale::Bounded && unknown && b.cycles.is_some_and(|c| c > NEAR_BEST * b.best_cycles)
}

/// Executions of a block; `~ 1.6e8, shape (3.5e7..7.7e8)` where the bound is hardly one of it.
pub(crate) fn count_of(a: &Analysis, b: &BlockAnalysis) -> String {
    if is_loose(a, b) { with_sign(a, &b.frequency, "~ ") } else { count(a, &b.frequency) }
}

/// `1.53e9 +-4 %`, `3.2 per call +-5 %`, `<~ 2.68e9, shape +-2 %`: what bounds all executions together says nothing of
/// how far off they are, the interval is that against one another.
pub(crate) fn count(a: &Analysis, f: &Estimate) -> String {
    with_sign(a, f, at_most(a))
}

fn with_sign(a: &Analysis, f: &Estimate, sign: &str) -> String {
    let (per, between) = match a.scale {
        Scale::Relative => (" per call", ""),
        Scale::Bounded => ("", ", shape"),
        Scale::Absolute(_) | Scale::Counted | Scale::Sampled => ("", ""),
    };
    let interval = interval(f);
    let between = if interval.is_empty() { "" } else { between };
    format!("{sign}{}{per}{between}{interval}", executions(f.value))
}

/// Decided branch samples at the end of each block.
pub(crate) fn seen(a: &Analysis) -> Vec<u64> {
    let mut out = vec![0; a.blocks.len()];
    for e in a.edges.iter().filter(|e| e.from < a.blocks.len()) {
        out[e.from] += e.evidence;
    }
    out
}

/// `99.98 %`; of few samples whole percents, of none `None`.
pub(crate) fn probability(e: &EdgeAnalysis, seen: u64, decimals: usize) -> Option<String> {
    let percent = (e.probability * 100.0).clamp(0.0, 100.0);
    let smallest = 0.5 * 0.1f64.powi(i32::try_from(decimals).unwrap_or(2));
    match seen {
        _ if !percent.is_finite() => None,
        0 => None,
        n if n < FEW => Some(format!("{percent:.0} %")),
        _ if percent > 0.0 && percent < smallest => Some(format!("<{:.decimals$} %", 2.0 * smallest)),
        _ => Some(format!("{percent:.decimals$} %")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis_fixture;

    #[test]
    fn a_bound_says_so_and_that_its_interval_is_that_of_the_shape() {
        let mut a = analysis_fixture::analysis();
        let f = a.blocks[1].frequency;
        assert_eq!((count(&a, &f).as_str(), at_least(&a)), ("1.53e9 +-4 %", ""));
        a.scale = Scale::Bounded;
        assert_eq!((count(&a, &f).as_str(), at_least(&a)), ("<~ 1.53e9, shape +-4 %", ">~ "));
        assert_eq!(at_least_of(&a, &a.blocks[1]), ">~ ");
        let low = Estimate { low: f.value / 5.0, high: f.value * 5.0, confidence: Confidence::Low, ..f };
        let mut loose = BlockAnalysis { frequency: low, best_cycles: 1.0, cycles: Some(5.0), ..a.blocks[1].clone() };
        let told = "~ 1.53e9, shape (3.06e8..7.65e9)";
        assert_eq!((count_of(&a, &loose).as_str(), at_least_of(&a, &loose)), (told, "~ "));
        loose.cycles = Some(1.1);
        assert_eq!((count_of(&a, &loose), at_least_of(&a, &loose)), (format!("<{told}"), ">~ "));
        a.scale = Scale::Relative;
        assert_eq!(count(&a, &f), "1.53e9 per call +-4 %");
    }

    #[test]
    fn a_probability_has_the_digits_that_were_seen() {
        let a = analysis_fixture::analysis();
        let way = |probability| EdgeAnalysis { probability, ..a.edges[1].clone() };
        assert_eq!(probability(&way(0.5005), 0, 2), None);
        assert_eq!(probability(&way(0.5005), 3, 2).unwrap(), "50 %");
        assert_eq!(probability(&way(0.5005), 20, 2).unwrap(), "50.05 %");
        assert_eq!(probability(&way(0.00001), 5000, 2).unwrap(), "<0.01 %");
        assert_eq!(probability(&way(0.0), 5000, 1).unwrap(), "0.0 %");
        assert_eq!(probability(&way(f64::NAN), 5000, 1), None);
        assert_eq!(seen(&a), [80, 36_915, 0, 0]);
    }
}
