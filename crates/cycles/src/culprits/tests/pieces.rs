//! A line comes in pieces: whether the later ones can have been late, by what the line itself was waited for.

use super::*;

/// Nops of a line and more: instruction 64 is the first of the second line, 80 of that line's second piece.
fn nops() -> Case {
    Case::straight(0x1000, &[0x90; 200])
}

/// Cycles of the instruction cache's part of a stall of ten cycles just before a piece of a line, whose first one took so many.
fn late_piece(case: &Case, line: f64) -> Option<f64> {
    let mut stalls = vec![0.0; case.insns.len()];
    (stalls[63], stalls[79]) = (line, 10.0);
    let judged = case.judge_all(&stalls).swap_remove(79);
    judged.culprits.iter().find(|c| c.cause == Cause::ICache).map(|c| c.max_cycles)
}

#[test]
fn a_piece_of_a_line_is_no_later_than_the_line_was() {
    let case = nops();
    assert_eq!(late_piece(&case, 0.0), None, "the line was there at once");
    assert_eq!(late_piece(&case, 4.0), Some(4.0));
    assert_eq!(late_piece(&case, 200.0), Some(10.0));
}

#[test]
fn where_samples_are_scattered_any_piece_may_be_late() {
    let mut case = nops();
    case.certainty = Certainty::AtLeast;
    case.samples = 1.0;
    assert_eq!(late_piece(&case, 0.0), Some(10.0));
    let mut stalls = vec![0.0; case.insns.len()];
    stalls[77] = 10.0;
    let within = case.judge_all(&stalls).swap_remove(77);
    assert!(within.culprits.iter().all(|c| c.cause != Cause::ICache), "the same piece: {within:?}");
}
