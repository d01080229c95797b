//! Call stacks of programs whose chains are known, by frame pointers and by unwind rules, read back
//! from the folded export.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::support::{Recording, alone, need_root, record, text, tolerance, whither, workload};

/// (frames from the outermost, weight) of every stack.
fn folded(run: &Recording) -> Vec<(Vec<String>, f64)> {
    let output = whither().args(["export", "folded"]).arg(run.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let stacks: Vec<_> = text(&output.stdout)
        .lines()
        .map(|line| {
            let (frames, weight) = line.rsplit_once(' ').expect("frames, a blank, a number");
            (frames.split(';').map(str::to_owned).collect(), weight.parse().expect("a number"))
        })
        .collect();
    assert!(!stacks.is_empty(), "no stacks");
    stacks
}

/// Weight of the stacks that hold the chain without a gap, in percent of those with its last frame.
fn percent(stacks: &[(Vec<String>, f64)], chain: &[&str]) -> f64 {
    let leaf = chain.last().expect("a chain has frames");
    let names = |frames: &[String], chain: &[&str]| {
        frames.windows(chain.len()).any(|w| w.iter().zip(chain).all(|(frame, name)| frame.starts_with(name)))
    };
    let of: f64 = stacks.iter().filter(|(f, _)| names(f, &[leaf])).map(|(_, w)| w).sum();
    let with: f64 = stacks.iter().filter(|(f, _)| names(f, chain)).map(|(_, w)| w).sum();
    assert!(of > 0.0, "no stack with {leaf}: {:?}", &stacks[..stacks.len().min(5)]);
    100.0 * with / of
}

const LONG: [&str; 5] = ["main", "outer", "middle", "inner", "leaf"];
const SHORT: [&str; 3] = ["main", "side", "leaf"];

fn check_chains(program: &str, how: &str) {
    let _alone = alone();
    let run = record(&[how], &[workload(program), "2".into()]);
    let (stacks, truth, leaves) = (folded(&run), run.truth(), run.prof(&["--all"]).samples("leaf"));
    for (chain, key) in [(&LONG[..], "share_outer"), (&SHORT[..], "share_side")] {
        let (measured, share) = (percent(&stacks, chain), truth.number(key));
        let good = (measured - share).abs() <= tolerance(3.0, share, leaves);
        assert!(good, "{program} {how}: {chain:?} {measured:.2} %, truth {share} %");
    }
}

#[test]
fn frame_pointers_give_the_chain() {
    need_root!();
    check_chains("deepstack-fp", "-g=fp");
}

#[test]
fn unwind_rules_give_the_chain_without_frame_pointers() {
    need_root!();
    check_chains("deepstack", "-g=dwarf");
}

#[test]
fn unwind_rules_for_debuggers_only_give_the_chain() {
    need_root!();
    check_chains("deepstack-debugger", "-g=dwarf");
}

#[test]
fn a_signal_handler_stands_on_what_it_interrupted() {
    need_root!();
    let _alone = alone();
    let run = record(&["-g=dwarf"], &[workload("handler"), "2".into()]);
    let (stacks, truth, leaves) = (folded(&run), run.truth(), run.prof(&["--all"]).samples("leaf"));
    let handled = ["main", "outer", "interrupted", "", "on_trap", "leaf"];
    for (chain, key) in [(&handled[..], "share_handler"), (&SHORT[..], "share_side")] {
        let (measured, share) = (percent(&stacks, chain), truth.number(key));
        let good = (measured - share).abs() <= tolerance(3.0, share, leaves);
        assert!(good, "{chain:?} {measured:.2} %, truth {share} %: {:?}", &stacks[..stacks.len().min(5)]);
    }
}

#[test]
fn rings_keep_up_with_copies_of_stacks() {
    need_root!();
    let _alone = alone();
    let run = record(&["-g=dwarf", "--backend", "ring"], &[workload("deepstack"), "2".into()]);
    let told = run.prof(&["--all"]).0["provenance"].clone();
    let lost = told["dropped"].as_u64().unwrap() + told["sideband_lost"].as_u64().unwrap();
    let seconds = told["events"][0]["weight"].as_u64().unwrap() as f64 / 1e9;
    // Two seconds of its own CPU time, and what it takes to measure its pace.
    assert!(lost == 0 && seconds > 1.9, "{lost} records lost, {seconds} s of CPU time seen");
}

/// Share of the stacks that whither calls cut short, in percent.
fn cut_short(how: &str) -> f64 {
    let run = record(&[how], &[workload("deepstack"), "1".into()]);
    let stacks = folded(&run);
    let weight = |cut: bool| -> f64 {
        let is_cut = |frames: &[String]| frames.iter().any(|f| f == "[stack cut short]");
        stacks.iter().filter(|(f, _)| is_cut(f) == cut && f.iter().any(|f| f == "leaf")).map(|(_, w)| w).sum()
    };
    100.0 * weight(true) / (weight(true) + weight(false))
}

#[test]
fn a_large_frame_is_behind_what_is_copied_or_not_and_that_is_said() {
    need_root!();
    let _alone = alone();
    let (little, enough) = (cut_short("-g=dwarf:8KiB"), cut_short("-g=dwarf"));
    assert!(little > 98.0 && enough < 2.0, "{little:.1} % are cut short with 8 KiB, {enough:.1} % with 16 KiB");
}

#[test]
fn recursion_has_its_depth() {
    need_root!();
    let _alone = alone();
    let run = record(&["-g=dwarf"], &[workload("recurse"), "2".into()]);
    let depth = run.truth().number("frames_of_descend") as usize;
    let (mut good, mut all) = (0.0, 0.0);
    for (frames, weight) in folded(&run) {
        if frames.iter().any(|f| f.starts_with("bottom")) && frames.iter().any(|f| f.starts_with("descend")) {
            all += weight;
            good += if frames.iter().filter(|f| f.starts_with("descend")).count() == depth { weight } else { 0.0 };
        }
    }
    assert!(all > 0.0 && good >= 0.9 * all, "{good} of {all} with {depth} frames of descend");
}
