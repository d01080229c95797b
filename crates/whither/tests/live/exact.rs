//! Exact counts by breakpoints, against programs that count their own branches: ratios and scale are the truth within
//! chance, the program is not disturbed, and nothing is left behind.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests: a panic is the verdict, a skip is told")]

use crate::support::{Recording, alone, answer, need_root, record, text, whither, workload};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use whither_store::model::{ExactCount, Profile};
use whither_store::{Selection, load};

fn profile(run: &Recording) -> Profile {
    let loaded = load(&[run.path()], &Selection::default()).unwrap();
    assert_eq!(loaded.problems, []);
    loaded.profile
}

/// Breakpoints cannot be had, as the recording says.
fn refused(run: &Recording) -> bool {
    let note = profile(run).epochs[0].notes.iter().find(|n| n.contains("breakpoints cannot be had")).cloned();
    if let Some(note) = &note {
        println!("SKIP: {note}");
    }
    note.is_some()
}

/// How often the branch at an address falls through, as `annotate` has it.
fn falls(annotation: &Value, at: u64) -> f64 {
    let analysis = &annotation["analysis"];
    let list = |of: &Value| of.as_array().unwrap_or_else(|| panic!("a list: {annotation}")).clone();
    let (insns, blocks) = (list(&annotation["insns"]), list(&analysis["blocks"]));
    let last = |b: &Value| &insns[b["first"].as_u64().unwrap() as usize + b["len"].as_u64().unwrap() as usize - 1];
    let own = blocks.iter().position(|b| last(b)["address"].as_u64() == Some(at)).expect("a block ends there") as u64;
    let edges = list(&analysis["edges"]);
    let fall = edges.iter().find(|e| e["from"] == own && e["kind"] == "fall").expect("the way out");
    fall["probability"].as_f64().unwrap()
}

/// Blocks of a hot loop against each other: `turns` counts how often its short loops end.
#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn counted_loops_end_as_often_as_the_program_counted() {
    need_root!();
    let _alone = alone();
    // No branch evidence: all that is known comes from counts.
    let run = record(
        &["--rate", "1999", "--edges", "off", "--exact", "^(end|late)_8_loop$"],
        &[workload("turns"), "8".into()],
    );
    if refused(&run) {
        return;
    }
    for name in ["end_8", "late_8"] {
        let annotation = run.annotate(&format!("{name}_loop"), &[]);
        assert_eq!(annotation["analysis"]["evidence"], "counts", "{name}: {:?}", rows(&profile(&run)));
        let truth = run.truth().number(name);
        let left = falls(&annotation, run.truth().number(&format!("{name}_at")) as u64);
        assert!((left / truth - 1.0).abs() <= 0.25, "{name}: {left:.4}, truth {truth:.4}\n{:?}", rows(&profile(&run)));
    }
}

fn rows(profile: &Profile) -> Vec<String> {
    let of = |e: &ExactCount| {
        let lead = if e.leads { "leads" } else { "" };
        format!(
            "\n{:#x} {:x} {lead} hits {} whole {} crowded {} windows {} {} us, hits {} us",
            e.offset.0,
            e.set,
            e.hits,
            e.whole,
            e.crowded,
            e.windows,
            e.enabled_ns / 1000,
            e.hits_ns / 1000
        )
    };
    profile.exact.iter().map(of).collect()
}

/// A function entered rarely gives the scale: executions while recorded. `branchy` runs its loops of 4,096 turns some ten
/// thousand times a second each.
#[test]
fn rare_entries_tell_the_scale() {
    need_root!();
    let _alone = alone();
    let run = record(&["--rate", "1999", "--exact", "^register_50_loop$"], &[workload("branchy"), "6".into()]);
    if refused(&run) {
        return;
    }
    let annotation = run.annotate("register_50_loop", &[]);
    let analysis = &annotation["analysis"];
    let all = rows(&profile(&run));
    if analysis["scale"]["kind"] != "counted" {
        // Where hits take much of every window, what they really take is not known well enough.
        assert_eq!(analysis["scale"]["kind"], "bounded", "{all:?}");
        println!("SKIP: hits are too dear here for a scale");
        return;
    }
    let edges = analysis["edges"].as_array().unwrap();
    let entries = |which: &str| -> f64 {
        edges.iter().filter(|e| e["kind"] == "enter").map(|e| e["frequency"][which].as_f64().unwrap()).sum()
    };
    let truth = run.truth().number("turns");
    let (value, low, high) = (entries("value"), entries("low"), entries("high"));
    // What a hit costs is measured before, and hits of a busy machine cost more: the interval allows for it. Its ends lay 2.7 to 8.1
    // times apart in eight recordings of one hour (2026-11-29), 4 in the middle.
    assert!(
        (value / truth).ln().abs() <= 0.7 && low <= truth * 1.05 && truth <= high * 1.05 && high < 10.0 * low,
        "{value} ({low} to {high}) entries, truth {truth}\n{all:?}"
    );
    let told = answered(&run, "register_50_loop");
    assert!(told.contains("counted by breakpoints") && told.contains("(counted, "), "{told}");
    assert!(!told.contains("<~") && !told.contains(">~"), "the scale is known: {told}");
}

fn answered(run: &Recording, procedure: &str) -> String {
    let output = whither().arg("annotate").arg(procedure).arg(run.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn the_program_prints_what_it_prints_alone_and_is_hardly_slowed() {
    need_root!();
    let _alone = alone();
    let script = "seq 1 400000 | sort -R --random-source=/dev/zero | sha256sum; seq 1 300000 | gzip -9 | cksum";
    let plain = Command::new("sh").args(["-c", script]).env("LC_ALL", "C").output().unwrap();
    let run = record(&["--exact", "fn@.*", "--exact", "mem.*"], &["sh", "-c", script]);
    assert_eq!(text(&run.output.stdout), text(&plain.stdout));
    let profile = profile(&run);
    if refused(&run) {
        return;
    }
    assert!(!profile.exact.is_empty(), "nothing was counted: {:?}", profile.epochs[0].notes);
    // Rows of a set share their windows.
    let mut sets: Vec<&ExactCount> = profile.exact.iter().filter(|e| e.leads).collect();
    sets.sort_by_key(|e| e.set);
    let taken: u64 = sets.iter().map(|e| e.hits_ns).sum();
    let ran: u64 = profile.samples.iter().map(whither_store::model::Sample::weight).sum();
    assert!(taken as f64 <= 0.06 * ran as f64, "hits took {taken} ns of {ran}");
}

#[test]
fn killed_whither_leaves_no_breakpoint() {
    need_root!();
    let _alone = alone();
    let mut target = Command::new(workload("branchy")).arg("60").stdout(Stdio::null()).spawn().unwrap();
    for round in 0..3 {
        let pid = target.id().to_string();
        let (mut recording, _directory) = crate::support::start(&["--rate", "1999", "--exact", ".*_loop", "-p", &pid]);
        std::thread::sleep(Duration::from_millis(2500));
        crate::support::send("KILL", recording.id());
        recording.wait().unwrap();
        // All four slots are free, and nothing slows the target: a second recording counts as the first did.
        assert!(slots_are_free(target.id()), "round {round}");
    }
    assert!(target.try_wait().unwrap().is_none(), "the target still runs");
    target.kill().unwrap();
    target.wait().unwrap();
}

/// The kernel frees events of a killed process a moment after its end.
fn slots_are_free(pid: u32) -> bool {
    let begun = Instant::now();
    let free = || whither_kernel::breakpoint::Breakpoints::open(pid, &[0x1000, 0x2000, 0x3000, 0x4000]).is_ok();
    while begun.elapsed() < Duration::from_secs(5) {
        if free() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

#[test]
fn what_cannot_be_counted_is_said() {
    need_root!();
    let _alone = alone();
    let run = record(&["--exact", "no_such_procedure_at_all"], &["sleep", "0.3"]);
    let notes = profile(&run).epochs[0].notes.join("\n");
    assert!(notes.contains("no procedure of the target matches") || notes.contains("cannot be had"), "{notes}");
    let told = crate::support::text(&run.output.stderr);
    assert!(told.contains("no exact counts: "), "{told}");
    // Breakpoints of others are respected: while all slots are taken, nothing is counted.
    let mut target = Command::new(workload("branchy")).arg("30").stdout(Stdio::null()).spawn().unwrap();
    let held = whither_kernel::breakpoint::Breakpoints::open(target.id(), &[0x1000, 0x2000, 0x3000, 0x4000]);
    if let Err(e) = &held {
        println!("SKIP: {e}");
    } else {
        let directory = tempfile::tempdir().unwrap();
        let output = whither()
            .args(["record", "-d", "3s", "--exact", ".*_loop", "-p", &target.id().to_string(), "-o"])
            .arg(directory.path().join("run.wh"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let loaded = load(&[directory.path().join("run.wh")], &Selection::default()).unwrap().profile;
        assert!(
            loaded.exact.is_empty() && loaded.epochs[0].notes.join(" ").contains("hardware breakpoints"),
            "{:?}",
            loaded.epochs[0].notes
        );
    }
    target.kill().unwrap();
    target.wait().unwrap();
    let whole = whither().args(["record", "-d", "1s", "--exact", "x"]).output().unwrap();
    assert_eq!(whole.status.code(), Some(2), "{}", text(&whole.stderr));
    assert!(text(&whole.stderr).contains("-p PID"), "{}", text(&whole.stderr));
    let doctor = answer(whither().args(["doctor", "--json"]));
    let finding = doctor["findings"].as_array().unwrap().iter().find(|f| f["id"] == "breakpoints").unwrap().clone();
    assert!(finding["detail"].as_str().is_some_and(|d| !d.is_empty()), "{finding}");
}
