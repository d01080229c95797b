//! Bubbles: what stands above a stalled instruction. Letters of the suspects, as long as the logarithm of the
//! stall, and per suspect the range of cycles it can be guilty of and the instruction at fault.

use super::number::cycles;
use super::signs::{at_least, at_least_of, is_absolute};
use whither_cycles::results::analysis::{Analysis, Cause, Culprit, InsnAnalysis, Origin};

/// A bubble, ready to be laid out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bubble {
    /// `dD=====`.
    pub(crate) shape: String,
    /// How long it stalls.
    pub(crate) length: Length,
    /// `d D-cache miss 22.7..28.9`, likeliest first.
    pub(crate) suspects: Vec<String>,
}

/// How long an instruction stalls beyond the best case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Length {
    /// So many cycles per execution, after a sign that tells what they are.
    Cycles(&'static str, f64),
    /// Not at all: what it waits for is part of the best case.
    Static,
    /// Nobody knows.
    Unknown,
}

impl Length {
    /// `>~ 28.9`.
    pub(crate) fn figure(&self) -> Option<String> {
        match self {
            Self::Cycles(sign, c) => Some(format!("{sign}{}", cycles(*c))),
            _ => None,
        }
    }
}

impl Bubble {
    /// Shape and length in cycles.
    pub(crate) fn head(&self) -> String {
        match self.length.figure() {
            Some(figure) => format!("{}  {figure} cy", self.shape),
            None => self.shape.clone(),
        }
    }
}

/// Stalls shorter than this are not worth a line.
const SHORTEST: f64 = 0.1;
/// Instructions with a smaller share of the procedure's samples get no bubble.
const LEAST_SHARE: f64 = 0.001;
/// In short blocks a stall of this part of the block's time is.
const LEAST_PART: f64 = 0.05;
/// Longest bubble.
const LONGEST: usize = 24;

/// The bubble of an instruction, if it stalls.
pub(crate) fn bubble(a: &Analysis, index: usize) -> Option<Bubble> {
    let insn = &a.insns[index];
    let total: f64 = a.blocks.iter().map(|b| b.samples).sum();
    if insn.samples <= 0.0 || insn.samples < total * LEAST_SHARE {
        return None;
    }
    let stall = insn.stall_cycles.map(|s| s.max(0.0) + insn.busy_cycles);
    let bounded = !is_absolute(a);
    let dynamic = stall.is_none_or(|s| s >= SHORTEST);
    let still = insn.static_stall.iter().filter(|s| s.max_cycles >= SHORTEST);
    // Of bounded executions the stall is the least there can be: about none on the very instruction that sets the bound,
    // however long it waits.
    let least = SHORTEST.min(block_cycles(a, insn) * LEAST_PART);
    let suspected = |c: &&Culprit| dynamic || bounded && c.max_cycles >= least;
    let guilty: Vec<&Culprit> = insn.culprits.iter().filter(suspected).chain(still).collect();
    let unexplained = unexplained(insn).filter(|_| dynamic);
    if guilty.is_empty() && unexplained.is_none() {
        return None;
    }
    let letters: String = guilty.iter().map(|c| c.cause.letter()).chain(unexplained.map(|_| '?')).collect();
    let mut suspects: Vec<String> = guilty.iter().map(|c| suspect(a, index, c, stall.is_some())).collect();
    suspects.extend(unexplained.map(|u| format!("? unexplained {}", cycles(u))));
    let length = match stall {
        _ if guilty.iter().all(|c| c.cause.is_static()) && unexplained.is_none() => Length::Static,
        Some(s) => Length::Cycles(sign(a, insn), s),
        None => Length::Unknown,
    };
    Some(Bubble { shape: shape(&letters, stall.filter(|_| dynamic)), length, suspects })
}

fn sign(a: &Analysis, insn: &InsnAnalysis) -> &'static str {
    insn.block.and_then(|b| a.blocks.get(b)).map_or_else(|| at_least(a), |b| at_least_of(a, b))
}

fn block_cycles(a: &Analysis, insn: &InsnAnalysis) -> f64 {
    insn.block.and_then(|b| a.blocks.get(b)?.cycles).unwrap_or(0.0)
}

fn unexplained(insn: &InsnAnalysis) -> Option<f64> {
    let stall = insn.stall_cycles?;
    (insn.unexplained >= SHORTEST && insn.unexplained >= stall * 0.05).then_some(insn.unexplained)
}

fn suspect(a: &Analysis, index: usize, c: &Culprit, with_cycles: bool) -> String {
    let mut text = format!("{} {}", c.cause.letter(), c.cause.name());
    if with_cycles {
        text.push(' ');
        text.push_str(&range(c.min_cycles, c.max_cycles));
    }
    if let Some(origin) = a.insns[index].origin.filter(|_| c.cause == Cause::DCache) {
        text.push_str(match origin {
            Origin::BeyondL2 => ", some from beyond L2",
            Origin::Memory => ", some from memory or another core",
        });
    }
    if let Some(at) = c.at.filter(|at| *at != index).and_then(|at| a.insns.get(at)) {
        text.push_str(&format!(" (at {:x})", at.address));
    }
    text
}

/// `22.7..28.9`, or one figure where both show alike.
fn range(min: f64, max: f64) -> String {
    span(&cycles(min), &cycles(max))
}

pub(super) fn span(low: &str, high: &str) -> String {
    if low == high { high.to_owned() } else { format!("{low}..{high}") }
}

/// Letters, filled up to a length that grows with the logarithm of the stall.
fn shape(letters: &str, cycles: Option<f64>) -> String {
    let length = cycles.map_or(0, |c| (2.0 * (1.0 + c.clamp(0.0, 1e9)).log2()).round() as usize).min(LONGEST);
    let filled = length.saturating_sub(letters.chars().count());
    format!("{letters}{}", "=".repeat(filled))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis_fixture;

    #[test]
    fn a_bubble_grows_with_the_logarithm_of_the_stall() {
        assert_eq!(shape("d", Some(1.0)), "d=");
        assert_eq!(shape("dD", Some(31.0)), "dD========");
        assert_eq!(shape("dDw", Some(0.1)), "dDw");
        assert_eq!(shape("d", Some(f64::INFINITY)).len(), LONGEST);
        assert_eq!(shape("d", None), "d");
    }

    #[test]
    fn suspects_name_their_range_and_the_instruction_at_fault() {
        let a = analysis_fixture::analysis();
        let b = bubble(&a, 3).unwrap();
        let expect = ["w store buffer 0.0..3.1", "a operand dependency 0.6 (at 1180)", "? unexplained 1.0"];
        assert_eq!(b.suspects, expect);
        assert_eq!(b.head(), "wa?==  4.1 cy");
        assert_eq!(bubble(&a, 4), None, "no suspect, no bubble");
    }

    #[test]
    fn what_lies_behind_the_cache_is_named_where_the_stall_tells() {
        let mut a = analysis_fixture::analysis();
        a.insns[2].origin = Some(Origin::Memory);
        let b = bubble(&a, 2).unwrap();
        assert_eq!(b.suspects[0], "d D-cache miss 22.7..28.9, some from memory or another core");
        assert!(!b.suspects[1].contains("memory"), "{:?}", b.suspects);
    }

    #[test]
    fn bounded_executions_hide_no_suspect_where_they_leave_no_stall() {
        let mut a = analysis_fixture::analysis();
        a.insns[2].stall_cycles = Some(-0.1);
        a.insns[2].static_stall = Some(culprit_of(&a, 3));
        let only = bubble(&a, 2).unwrap();
        assert_eq!((only.head().as_str(), only.length), ("a", Length::Static), "known executions rule the others out");
        a.scale = whither_cycles::results::analysis::Scale::Bounded;
        let b = bubble(&a, 2).unwrap();
        assert_eq!(b.head(), "dDa  >~ 0.0 cy");
        assert!(b.suspects[0].starts_with("d D-cache miss 22.7..28.9"), "{:?}", b.suspects);
        assert_eq!(bubble(&a, 3).unwrap().head(), "wa?==  >~ 4.1 cy");
    }

    fn culprit_of(a: &Analysis, index: usize) -> Culprit {
        a.insns[index].static_stall.clone().unwrap()
    }

    #[test]
    fn without_a_scale_there_are_letters_and_no_figures() {
        let mut a = analysis_fixture::analysis();
        a.insns[2].stall_cycles = None;
        let b = bubble(&a, 2).unwrap();
        assert_eq!(
            (b.head().as_str(), b.suspects.as_slice()),
            ("dD", &["d D-cache miss".into(), "D DTLB miss".into()][..])
        );
    }
}
