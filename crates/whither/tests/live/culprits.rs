//! Planted stalls (workloads/cycles): the cause that was planted is blamed first, at the instruction it was planted at,
//! for nearly all of the time it takes; and the twin that has not got it is not blamed for it. How long an execution
//! took is told only where the number of calls is: else its least is known alone.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::support::{Recording, Truth, alone, need_root, record, workload};
use serde_json::Value;

/// One procedure as the analysis sees it.
struct Analysed(Value);

impl Analysed {
    fn of(run: &Recording, procedure: &str) -> Self {
        let answer = run.annotate(procedure, &[]);
        assert!(answer["analysis"]["insns"].is_array(), "{procedure} was analysed: {}", answer["notes"]);
        Self(answer["analysis"].clone())
    }

    fn insns(&self) -> &[Value] {
        self.0["insns"].as_array().unwrap()
    }

    fn samples(&self) -> f64 {
        self.insns().iter().map(samples).sum()
    }

    /// Share of the samples at instructions whose first culprit is the cause, and, where told, at that address.
    fn blamed(&self, cause: &str, address: Option<u64>) -> f64 {
        let total = self.samples();
        assert!(total >= 400.0, "only {total} samples");
        let blamed = |i: &&Value| {
            let first = &i["culprits"][0];
            let at = first["at"].as_u64().map(|a| self.insns()[a as usize]["address"].as_u64().unwrap());
            first["cause"] == cause && (address.is_none() || at == address)
        };
        self.insns().iter().filter(blamed).map(samples).sum::<f64>() / total
    }

    /// Whether a cause is among the culprits of any instruction; where told, the one at this address alone.
    fn suspects(&self, cause: &str, address: Option<u64>) -> bool {
        let all = self.insns();
        let at = |c: &Value| c["at"].as_u64().and_then(|a| all[a as usize]["address"].as_u64());
        let is = |c: &Value| c["cause"] == cause && (address.is_none() || at(c) == address);
        all.iter().any(|i| i["culprits"].as_array().unwrap().iter().any(is))
    }

    /// Samples that decided the branch at an address.
    fn decided_at(&self, address: u64) -> u64 {
        let branch = self.insns().iter().find(|i| i["address"].as_u64() == Some(address)).unwrap();
        let edges = self.0["edges"].as_array().unwrap();
        edges.iter().filter(|e| e["from"] == branch["block"]).map(|e| e["evidence"].as_u64().unwrap()).sum()
    }

    /// Samples that decided a branch.
    fn decided(&self) -> u64 {
        self.0["decided"][0].as_u64().unwrap_or(0)
    }

    fn told(&self) -> String {
        let row = |i: &Value| format!("{:#x} {} {}", i["address"].as_u64().unwrap(), samples(i), i["culprits"]);
        self.insns().iter().filter(|i| samples(i) > 0.0).take(40).map(|i| row(i) + "\n").collect()
    }
}

fn samples(insn: &Value) -> f64 {
    insn["samples"].as_f64().unwrap()
}

fn run(program: &str) -> (Recording, Truth) {
    let run = record(&[], &[workload(program), "2".into()]);
    let truth = run.truth();
    (run, truth)
}

/// The planted cause stands first for so large a part of the procedure's time.
fn blames(run: &Recording, procedure: &str, cause: &str, address: Option<u64>, least: f64) -> Analysed {
    let analysed = Analysed::of(run, procedure);
    let share = analysed.blamed(cause, address);
    // The bars hold on the core they were written on (`scripts/acceptance` asks for them); on any core most of the time.
    let least = if std::env::var_os("WHITHER_STRICT").is_some() { least } else { 0.75 * least };
    assert!(share >= least, "{procedure}: {cause} first for {share:.3} of the time\n{}", analysed.told());
    analysed
}

#[test]
fn a_missing_load_is_the_data_caches() {
    need_root!();
    let _alone = alone();
    let (run, truth) = run("chase");
    blames(&run, "chase", "d-cache", Some(truth.address("load_address")), 0.95);
}

#[test]
fn a_division_is_its_units() {
    need_root!();
    let _alone = alone();
    let (run, truth) = run("divl");
    blames(&run, "divide", "unit", Some(truth.address("divide_address")), 0.95);
}

#[test]
fn a_branch_that_goes_both_ways_is_mispredicted() {
    need_root!();
    let _alone = alone();
    let run = record(&["--edges", "mem"], &[workload("mispredict"), "4".into()]);
    let truth = run.truth();
    blames(&run, "unforeseen", "mispredict", Some(truth.address("branch_address")), 0.9);
    let innocent = Analysed::of(&run, "foreseen");
    let twin = truth.address("foreseen_address");
    let decided = innocent.decided_at(twin);
    if decided < 300 {
        return println!("SKIP: {decided} samples decided the twin's branch, too few to acquit it");
    }
    assert!(!innocent.suspects("mispredict", Some(twin)), "{decided} decided it\n{}", innocent.told());
    // The loop's own branch may be seen too seldom to be acquitted of a fraction of a cycle.
    let share = innocent.blamed("mispredict", None);
    assert!(share < 0.2, "{share}\n{}", innocent.told());
}

#[test]
#[ignore = "sizes and penalties of the core decide: scripts/acceptance runs it"]
fn a_burst_of_stores_fills_their_buffer() {
    need_root!();
    let _alone = alone();
    let (run, truth) = run("storeburst");
    let analysed = Analysed::of(&run, "burst");
    if analysed.decided() < 300 {
        let share = analysed.blamed("store-buffer", Some(truth.address("store_address")));
        assert!(share >= 0.6, "{share}\n{}", analysed.told());
        return println!("SKIP: no branch evidence, so that the loop's own branch remains a suspect");
    }
    blames(&run, "burst", "store-buffer", Some(truth.address("store_address")), 0.95);
}

#[test]
#[ignore = "sizes and penalties of the core decide: scripts/acceptance runs it"]
fn a_load_of_two_stores_cannot_be_forwarded() {
    need_root!();
    let _alone = alone();
    let (run, truth) = run("fwdfail");
    blames(&run, "pieces", "forwarding", Some(truth.address("load_address")), 0.85);
    if truth.number("innocent_cpu_s") > 0.1 {
        let innocent = Analysed::of(&run, "whole");
        assert!(!innocent.suspects("forwarding", None), "{}", innocent.told());
    }
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn locked_additions_are_synchronisation() {
    need_root!();
    let _alone = alone();
    let (run, truth) = run("lockadd");
    blames(&run, "shared", "synchronisation", Some(truth.address("shared_address")), 0.9);
}

#[test]
#[ignore = "sizes and penalties of the core decide: scripts/acceptance runs it"]
fn code_that_fits_no_cache_is_the_instruction_caches() {
    need_root!();
    let _alone = alone();
    let run = record(&[], &[workload("imiss"), "4".into()]);
    let truth = run.truth();
    // The rest is work: so long the same code takes where it stays in the first cache.
    let stalled = 1.0 - truth.number("innocent_ns") / truth.number("guilty_ns");
    blames(&run, "straight0", "i-cache", None, 0.95 * stalled);
    let innocent = Analysed::of(&run, "fits").blamed("i-cache", None);
    assert!(innocent <= 0.05, "fits: the instruction cache first for {innocent:.3} of the time");
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn a_chain_of_multiplications_waits_for_itself() {
    need_root!();
    let _alone = alone();
    let (run, truth) = run("depchain");
    let analysed = Analysed::of(&run, "multiplies");
    let at = truth.address("multiply_address");
    let multiply = analysed.insns().iter().find(|i| i["address"].as_u64() == Some(at)).unwrap();
    // On a Xeon (2026) the branch that closes the loop has 9 to 12 % by phases of minutes, whatever version of whither asks.
    assert!(samples(multiply) >= 0.8 * analysed.samples(), "{}", analysed.told());
    assert_eq!(multiply["static_stall"]["cause"], "operand", "{multiply}");
    // A clock that is off by some per cent leaves a residue, of which nobody is guilty.
    let residue = multiply["stall_cycles"].as_f64().unwrap_or(f64::INFINITY);
    assert!(residue <= 0.15 * multiply["cycles"].as_f64().unwrap(), "{multiply}");
    let culprits = multiply["culprits"].as_array().unwrap();
    assert!(culprits.iter().all(|c| c["min_cycles"].as_f64() == Some(0.0)), "nothing dynamic: {multiply}");
}

/// With the number of calls known the entry runs so often, and what blocks cost adds up to what a call takes.
#[test]
fn calls_that_are_told_give_executions_and_cycles() {
    need_root!();
    let _alone = alone();
    let run = record(&["--rate", "4999", "--edges", "mem"], &[workload("depchain"), "4".into()]);
    let truth = run.truth();
    let (calls, ns) = (truth.number("straight_calls"), truth.number("straight_ns"));
    let analysis = run.annotate("straight", &["--calls", &format!("{calls}")])["analysis"].clone();
    assert_eq!(analysis["scale"]["kind"], "absolute", "{}", analysis["notes"]);
    let block = |b: &Value| {
        let executions = b["frequency"]["value"].as_f64().unwrap();
        (executions, executions * b["cycles"].as_f64().unwrap_or(0.0))
    };
    let blocks: Vec<(f64, f64)> = analysis["blocks"].as_array().unwrap().iter().map(block).collect();
    assert!((blocks[0].0 / calls - 1.0).abs() < 0.01, "entered {} times, {calls} in truth", blocks[0].0);
    assert!((blocks[1].0 / calls - 0.5).abs() < 0.125, "{} of {calls} calls took the second chain", blocks[1].0);
    let Some(clock) = analysis["clock_hz"].as_f64() else { return println!("SKIP: the core's clock is not known") };
    let took = blocks.iter().map(|b| b.1).sum::<f64>() / calls / clock * 1e9;
    assert!((took / ns - 1.0).abs() < 0.15, "took {took:.1} ns a call, {ns} in truth");
    // A hundred times as many do not fit into the time; of ten times as many nothing here shows that they do not overlap.
    let analysis = run.annotate("straight", &["--calls", &format!("{}", 100.0 * calls)])["analysis"].clone();
    assert_eq!(analysis["scale"]["kind"], "bounded");
    assert!(analysis["notes"].to_string().contains("do not fit the time"), "{}", analysis["notes"]);
}

/// A loop of thousands of rounds was hardly ever seen to end. Calls tell nothing of it then, and nothing is made of them, unless its registers
/// told how many rounds were to go; then they are well known.
#[test]
fn calls_tell_nothing_of_a_loop_whose_rounds_are_not_known() {
    need_root!();
    let _alone = alone();
    let run = record(&[], &[workload("calls-spans"), "2".into()]);
    let calls = run.truth().number("calls_span_5us");
    let analysis = run.annotate("span_5us", &["--calls", &format!("{calls}")])["analysis"].clone();
    if analysis["scale"]["kind"] != "absolute" {
        assert!(analysis["notes"].to_string().contains("calls give no scale"), "{}", analysis["notes"]);
        return;
    }
    let number = |b: &Value, key: &str| b["frequency"][key].as_f64().unwrap();
    let blocks = analysis["blocks"].as_array().unwrap();
    let hottest = blocks.iter().max_by(|a, b| number(a, "value").total_cmp(&number(b, "value"))).unwrap();
    assert!(number(hottest, "high") / number(hottest, "low") < 2.5, "{hottest}");
}
