//! Skid: time must be shown at the instruction that waits. `chase` and `divl` print the address of
//! the one load and the one division their time belongs to.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::support::{alone, answer, need_root, record, text, whither, workload};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// (address, samples) of every instruction, by the given member.
fn instructions(annotation: &Value, member: &str) -> Vec<(u64, f64)> {
    let insns = annotation["insns"].as_array().unwrap_or_else(|| panic!("an annotation has insns: {annotation}"));
    insns
        .iter()
        .map(|i| (i["address"].as_u64().expect("an address"), i[member][0].as_f64().expect("a count")))
        .collect()
}

fn check(program: &str, procedure: &str, key: &str) {
    let _alone = alone();
    let run = record(&[], &[workload(program), "2".into()]);
    let at = run.truth().address(key);
    let corrected = run.annotate(procedure, &[]);
    let raw = run.annotate(procedure, &["--raw"]);
    assert_eq!(corrected["corrected"], true, "{corrected}");
    assert_eq!(raw["corrected"], false, "{raw}");
    let (shown, delivered) = (instructions(&corrected, "samples"), instructions(&raw, "samples"));
    let sum = |rows: &[(u64, f64)]| rows.iter().map(|(_, n)| n).sum::<f64>();
    let on = |rows: &[(u64, f64)]| rows.iter().find(|(a, _)| *a == at).map_or(0.0, |(_, n)| *n);
    let total = sum(&delivered);
    assert!(total > 5_000.0, "only {total} samples in {procedure}");
    assert!((sum(&shown) - total).abs() < 1.0, "correction changed the total: {} and {total}", sum(&shown));
    assert!(on(&shown) >= 0.95 * total, "{} of {total} on {at:#x}: {shown:?}", on(&shown));
    // A load whose address is being translated is interrupted itself; how often is the hypervisor's and the
    // memory's. All else was delivered at the next instruction.
    let next = delivered.iter().find(|(a, _)| *a > at).expect("an instruction follows");
    assert!(next.1 >= 0.2 * total, "raw: {} of {total} on the next one {:#x}", next.1, next.0);
    assert!(
        on(&delivered) + next.1 >= 0.95 * total,
        "raw: {} on {at:#x}, {} behind it, of {total}",
        on(&delivered),
        next.1
    );
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn a_load_that_misses_gets_its_time() {
    need_root!();
    check("chase", "chase", "load_address");
}

#[test]
fn a_division_gets_its_time() {
    need_root!();
    check("divl", "divide", "divide_address");
}

#[test]
fn the_copy_loop_is_on_its_memory_instructions() {
    need_root!();
    let _alone = alone();
    let run = record(&[], &[workload("copy"), "2".into()]);
    let annotation = run.annotate("copy", &["--att"]);
    let insns = annotation["insns"].as_array().unwrap();
    let share = |pick: &dyn Fn(&str) -> bool| -> f64 {
        insns.iter().filter(|i| pick(i["text"].as_str().unwrap())).map(|i| i["share"].as_f64().unwrap()).sum()
    };
    assert!((share(&|_| true) - 1.0).abs() < 0.01, "shares of a procedure add up to 1");
    let memory = share(&|text| text.contains('(') && text.contains("mov"));
    assert!(memory >= 0.8, "{memory:.3} on loads and stores: {annotation}");
}

/// Starts a copy of `divl`, has its file go away, records it, and asks for its hot function.
fn annotate_without_file(go_away: fn(&Path)) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let (program, recording) = (directory.path().join("program"), directory.path().join("run.wh"));
    std::fs::copy(workload("divl"), &program).unwrap();
    let mut running = Command::new(&program).arg("20").stdout(Stdio::null()).spawn().unwrap();
    go_away(&program);
    let pid = running.id().to_string();
    let recorded = whither().args(["record", "-d", "2s", "-p", &pid, "-o"]).arg(&recording).output().unwrap();
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    answer(whither().args(["annotate", "divide"]).arg(&recording).arg("--json"))
}

#[test]
fn a_program_whose_file_is_gone_or_another_is_annotated_all_the_same() {
    need_root!();
    let _alone = alone();
    let replaced = |program: &Path| {
        let other = program.with_extension("new");
        std::fs::copy(workload("copy"), &other).unwrap();
        std::fs::rename(other, program).unwrap();
    };
    for (how, go_away) in [("deleted", (|p| std::fs::remove_file(p).unwrap()) as fn(&Path)), ("replaced", replaced)] {
        let annotation = annotate_without_file(go_away);
        let insns = annotation["insns"].as_array().unwrap_or_else(|| panic!("{how}: {annotation}"));
        let division = |i: &&Value| i["text"].as_str().is_some_and(|t| t.starts_with("div"));
        let on = insns.iter().find(division).unwrap_or_else(|| panic!("{how}: no division: {annotation}"));
        assert!(on["share"].as_f64().unwrap() > 0.8, "{how}: {on}");
    }
}

/// Causes of one procedure, as `annotate` and as `summary` have them.
fn causes(run: &Path, procedure: &str) -> (Value, Value) {
    let annotated = answer(whither().args(["annotate", procedure]).arg(run).arg("--json"));
    let summed = answer(whither().args(["summary", procedure]).arg(run).arg("--json"));
    (annotated["analysis"]["summary"]["causes"].clone(), summed["causes"].clone())
}

#[test]
fn a_function_that_jumps_by_a_table_can_be_analysed_when_its_file_has_changed() {
    need_root!();
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (program, run) = (dir.path().join("tables"), dir.path().join("run.wh"));
    std::fs::copy(workload("tables"), &program).unwrap();
    let recorded =
        whither().args(["record", "--rate", "2000", "-o"]).arg(&run).arg("--").arg(&program).arg("2").output();
    assert!(recorded.is_ok_and(|o| o.status.success()));
    let ways = || {
        let told = answer(whither().args(["annotate", "interpret"]).arg(&run).arg("--json"));
        let edges =
            told["analysis"]["edges"].as_array().map_or(0, |e| e.iter().filter(|e| e["kind"] == "table").count());
        (edges, told["analysis"]["missing"].clone())
    };
    let before = ways();
    assert!(before.0 >= 8 && before.1.as_array().is_some_and(Vec::is_empty), "{before:?}");
    let (annotated, summed) = causes(&run, "interpret");
    assert_eq!(annotated, summed, "one truth");
    std::fs::remove_file(&program).unwrap();
    std::fs::copy(workload("divl"), &program).unwrap();
    assert_eq!(ways(), before, "what it needs was kept");
    // As recordings were until now: code alone.
    let symbols = run.join("symbols");
    std::fs::remove_dir_all(&symbols).unwrap();
    let told = whither().args(["annotate", "interpret"]).arg(&run).output().unwrap();
    assert!(!text(&told.stdout).contains("block 1 of"), "nothing of half a graph: {}", text(&told.stdout));
}
