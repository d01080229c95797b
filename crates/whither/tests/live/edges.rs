//! Branch directions from sampled registers, against a program that counts its own branches: what is stored is the
//! truth within chance, memory operands are read where they decide, and the program is not disturbed.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::support::{Recording, alone, need_root, record, record_system, text, try_record, workload};
use serde_json::Value;
use std::process::Command;
use whither_store::model::{Course, EdgeSource, Profile, Way};
use whither_store::{Selection, load};

const BRANCHES: [&str; 6] = ["register_50", "register_90", "register_99", "memory_50", "memory_90", "memory_99"];
const LOOPS: [&str; 8] = ["end_2", "end_4", "end_8", "end_16", "late_2", "late_8", "head_1", "head_4"];
/// The samples of a program are not quite independent, so chance is this much wider.
const ROUNDS: f64 = 4.0;

fn profile(run: &Recording) -> Profile {
    let loaded = load(&[run.path()], &Selection::default()).unwrap();
    assert_eq!(loaded.problems, []);
    loaded.profile
}

/// How often a branch of the program was seen, and how often it was taken.
fn seen(profile: &Profile, run: &Recording, branch: &str) -> (u64, u64) {
    let at = run.truth().number(&format!("{branch}_at")) as u64;
    let (mut all, mut taken) = (0, 0);
    for e in profile.edges.iter().filter(|e| e.branch.0 == at && profile.image(e.image).path.ends_with("/branchy")) {
        match e.way {
            Way::Taken => taken += u64::from(e.count),
            Way::Fall => {}
            Way::To(_) | Way::Undecided => continue,
        }
        all += u64::from(e.count);
    }
    (all, taken)
}

fn assert_probability(profile: &Profile, run: &Recording, branch: &str) {
    let truth = run.truth().number(branch);
    let (all, taken) = seen(profile, run, branch);
    assert!(all >= 30, "{branch} was seen {all} times only");
    let measured = taken as f64 / all as f64;
    let chance = 4.0 * (truth * (1.0 - truth) * ROUNDS / all as f64).sqrt();
    assert!((measured - truth).abs() <= 0.01 + chance, "{branch}: {measured:.4}, truth {truth:.4}, {all} decisions");
}

fn notes(profile: &Profile) -> String {
    profile.epochs[0].notes.join("\n")
}

#[test]
fn branches_have_the_probabilities_the_program_counted() {
    need_root!();
    let _alone = alone();
    let run = record(&["--rate", "9999", "--edges", "mem"], &[workload("branchy"), "4".into()]);
    let profile = profile(&run);
    for branch in BRANCHES {
        assert_probability(&profile, &run, branch);
    }
    assert!(!notes(&profile).contains("directions are missing"), "{}", notes(&profile));
    // One set of registers in eight samples of user code; each gives one row at least.
    let samples: u64 = profile.samples.iter().map(|s| u64::from(s.count)).sum();
    let rows: u64 = profile.edges.iter().map(|e| u64::from(e.count)).sum();
    assert!(rows * 16 > samples, "{rows} rows of {samples} samples");
    assert!(profile.edges.iter().all(|e| profile.image(e.image).path != "[kernel]"));
}

/// How often the branch at an address falls through, as `annotate` has it, and how many decisions it rests on.
fn falls(annotation: &Value, at: u64) -> (f64, f64) {
    let analysis = &annotation["analysis"];
    let list = |of: &Value| of.as_array().unwrap_or_else(|| panic!("a list: {annotation}")).clone();
    let (insns, blocks) = (list(&annotation["insns"]), list(&analysis["blocks"]));
    let last = |b: &Value| &insns[b["first"].as_u64().unwrap() as usize + b["len"].as_u64().unwrap() as usize - 1];
    let own = blocks.iter().position(|b| last(b)["address"].as_u64() == Some(at)).expect("a block ends there") as u64;
    let ways: Vec<Value> = list(&analysis["edges"]).into_iter().filter(|e| e["from"] == own).collect();
    let fall = ways.iter().find(|e| e["kind"] == "fall").expect("the way out");
    (fall["probability"].as_f64().unwrap(), ways.iter().map(|e| e["evidence"].as_f64().unwrap()).sum())
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn loops_of_few_turns_are_left_as_often_as_the_program_counted() {
    need_root!();
    let _alone = alone();
    let run = record(&["--rate", "15000", "--edges", "mem"], &[workload("turns"), "6".into()]);
    for name in LOOPS {
        let truth = run.truth().number(name);
        let at = run.truth().number(&format!("{name}_at")) as u64;
        let (left, decisions) = falls(&run.annotate(&format!("{name}_loop"), &[]), at);
        assert!(decisions >= 200.0, "{name}: {decisions} decisions only");
        let chance = 3.0 * (truth * (1.0 - truth) / decisions).sqrt();
        assert!(
            (left - truth).abs() <= 0.15 * truth + chance,
            "{name}: {left:.4}, truth {truth:.4}, {decisions} decisions\n{}",
            by_place(&profile(&run), at)
        );
    }
}

/// Executions of the block that holds an address, as `annotate` has them.
fn executions(annotation: &Value, at: u64) -> f64 {
    let (insns, blocks) = (&annotation["insns"], annotation["analysis"]["blocks"].as_array().expect("blocks"));
    let first = |b: &Value| insns[b["first"].as_u64().unwrap() as usize]["address"].as_u64().unwrap();
    let own = blocks.iter().rfind(|b| first(b) <= at).expect("a block begins before it");
    own["frequency"]["value"].as_f64().unwrap()
}

#[test]
fn rounds_of_loops_are_counted_by_the_registers_that_they_step() {
    need_root!();
    let _alone = alone();
    // At a rate that is asked for walks take more of the program's time than the budget, of some loops more than of others.
    let run = record(&["--budget", "3%"], &[workload("uneven"), "6".into()]);
    let profile = profile(&run);
    if profile.epochs[0].backend != "bpf" {
        println!("SKIP: second moments need BPF");
        return;
    }
    let pairs: u64 = profile.laps.iter().map(|l| l.pairs).sum();
    assert!(pairs >= 200, "{pairs} pairs in six seconds");
    let annotation = run.annotate("rounds", &[]);
    let of = |name: &str| executions(&annotation, run.truth().number(&format!("{name}_at")) as u64);
    let truth = |name: &str| run.truth().number(name);
    let told = &annotation["analysis"]["scale"];
    assert_eq!(told["kind"], "counted", "{pairs} pairs, {told}");
    for name in ["gather", "chain"] {
        let off = of(name) / truth(name);
        assert!((0.8..1.2).contains(&off), "{name}: {off:.2} of the truth, {pairs} pairs");
    }
    let (told, truth) = (of("gather") / of("chain"), truth("gather") / truth("chain"));
    println!("gather over chain: {told:.3}, truth {truth:.3}; {:.3e} {:.3e}, {pairs} pairs", of("gather"), of("chain"));
    assert!((told / truth - 1.0).abs() < 0.15, "gather over chain: {told:.3}, truth {truth:.3}, {pairs} pairs");
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn loops_of_many_rounds_inside_of_others_are_told_by_what_is_to_go() {
    need_root!();
    let _alone = alone();
    let run = record(&["--budget", "3%"], &[workload("nested"), "6".into()]);
    let profile = profile(&run);
    if profile.epochs[0].backend != "bpf" {
        println!("SKIP: moments with registers of this kind need BPF");
        return;
    }
    let remaining = profile.laps.iter().filter(|l| matches!(l.course, Course::Remaining(_)));
    let moments: u64 = remaining.map(|l| l.pairs).sum();
    assert!(moments >= 400, "{moments} moments in six seconds");
    let annotation = run.annotate("rounds", &[]);
    assert!(annotation["analysis"]["remaining"].as_u64() >= Some(2), "{}", annotation["analysis"]["remaining"]);
    let of = |name: &str| executions(&annotation, run.truth().number(&format!("{name}_at")) as u64);
    let truth = |name: &str| run.truth().number(name);
    for (name, within) in [("inner", 0.15), ("growing", 0.25)] {
        let (told, truth) = (of(name) / of("outer"), truth(name) / truth("outer"));
        println!(
            "{name} over outer: {told:.1}, truth {truth:.1}; {:.3e} {:.3e}, {moments} moments",
            of(name),
            of("outer")
        );
        assert!(
            (told / truth - 1.0).abs() < within,
            "{name} over outer: {told:.1}, truth {truth:.1}, {moments} moments"
        );
    }
}

/// By the pace of its register the inner loop would be told a fifth of its executions, and its time as a stall.
#[test]
fn a_loop_that_begins_where_another_has_got_to_is_not_counted_by_the_pace_of_that_one() {
    need_root!();
    let _alone = alone();
    let run = record(&["--budget", "3%"], &[workload("sliding"), "3".into()]);
    let annotation = run.annotate("rounds", &[]);
    let told = executions(&annotation, run.truth().number("inner_at") as u64);
    let (off, scale) = (told / run.truth().number("inner"), &annotation["analysis"]["scale"]);
    // A bound may be too high.
    assert!(off > 0.8 && (off < 1.2 || scale["kind"] == "bounded"), "{off:.2} of the truth, {scale}");
}

/// How often walks passed a branch, and how often they took it.
fn walked(profile: &Profile, at: u64) -> (f64, f64) {
    let (mut all, mut taken) = (0.0, 0.0);
    for e in profile.edges.iter().filter(|e| e.source == EdgeSource::Walks) {
        let path = &profile.image(e.image).path;
        if (path.ends_with("/branchy") || path.ends_with("/halves")) && e.pc.0 <= at && at <= e.branch.0 {
            all += f64::from(e.count);
            taken += if e.branch.0 == at { f64::from(e.count) } else { 0.0 };
        }
    }
    (all, taken)
}

#[test]
fn walks_go_on_as_the_program_does() {
    need_root!();
    let _alone = alone();
    let run = record(&["--rate", "9999", "--edges", "walk"], &[workload("branchy"), "4".into()]);
    let profile = profile(&run);
    if profile.edges.iter().all(|e| e.source != EdgeSource::Walks) {
        assert!(notes(&profile).contains("bpf_loop"), "{}", notes(&profile));
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let major: u32 = release.split('.').next().and_then(|n| n.parse().ok()).unwrap();
        assert!(major < 6, "walks were not loaded on Linux {release}");
        println!("SKIP: this kernel has no walks");
        return;
    }
    for branch in BRANCHES {
        let truth = run.truth().number(branch);
        let (all, taken) = walked(&profile, run.truth().number(&format!("{branch}_at")) as u64);
        assert!(all >= 500.0, "{branch}: walks passed it {all} times only");
        // Executions of one walk are not independent.
        let chance = 4.0 * (truth * (1.0 - truth) * 8.0 / all).sqrt();
        let measured = taken / all;
        assert!((measured - truth).abs() <= 0.01 + chance, "{branch}: {measured:.4}, truth {truth:.4}, {all} times");
    }
}

/// It is position independent, so each process has its code elsewhere, and none lives long enough to be asked about it.
#[test]
fn a_process_is_walked_in_by_what_others_of_its_program_have_taught() {
    need_root!();
    let _alone = alone();
    let again = "i=0; while [ $i -lt 200 ]; do \"$0\" 0.01 > /dev/null; i=$((i+1)); done; exec \"$0\" 0.01";
    let command = ["sh".into(), "-c".into(), again.into(), workload("branchy")];
    let run = record(&["--rate", "9999", "--edges", "walk"], &command);
    let profile = profile(&run);
    if profile.edges.iter().all(|e| e.source != EdgeSource::Walks) {
        println!("SKIP: this kernel has no walks");
        return;
    }
    let mut passed = 0.0;
    for branch in BRANCHES {
        let truth = run.truth().number(branch);
        let (all, taken) = walked(&profile, run.truth().number(&format!("{branch}_at")) as u64);
        let chance = 4.0 * (truth * (1.0 - truth) * 8.0 / all.max(1.0)).sqrt();
        let measured = taken / all;
        assert!((measured - truth).abs() <= 0.02 + chance, "{branch}: {measured:.4}, truth {truth:.4}, {all} times");
        passed += all;
    }
    // Two seconds of samples. Where each process had to ask first it was 16,000, and is 58,000.
    assert!(passed >= 25_000.0, "walks passed the branches {passed} times only");
}

/// Another program begins just before each process, which must not keep the tool from being told of the process at once.
#[test]
fn short_lives_are_walked_in_from_their_beginning() {
    need_root!();
    let _alone = alone();
    let again = "i=0; while [ $i -lt 60 ]; do /bin/true; \"$0\" 0.08 > /dev/null; i=$((i+1)); done; exec \"$0\" 0.08";
    let command = ["sh".into(), "-c".into(), again.into(), workload("halves")];
    let run = record(&["--rate", "2000", "--edges", "walk"], &command);
    let profile = profile(&run);
    if profile.edges.iter().all(|e| e.source != EdgeSource::Walks) {
        println!("SKIP: this kernel has no walks");
        return;
    }
    let truth = run.truth().number("branch");
    let (all, taken) = walked(&profile, run.truth().number("branch_at") as u64);
    assert!(all >= 500.0, "walks passed it {all} times only");
    assert!((taken / all - truth).abs() <= 0.15, "{:.3} of {all} times, truth {truth}", taken / all);
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn walks_leave_loops_of_few_turns_as_often_as_the_program_does() {
    need_root!();
    let _alone = alone();
    let run = record(&["--rate", "9999", "--edges", "walk"], &[workload("turns"), "6".into()]);
    for name in LOOPS {
        let truth = run.truth().number(name);
        let at = run.truth().number(&format!("{name}_at")) as u64;
        let (left, seen) = falls(&run.annotate(&format!("{name}_loop"), &[]), at);
        let chance = 4.0 * (truth * (1.0 - truth) * 8.0 / seen).sqrt();
        assert!(seen >= 500.0, "{name}: {seen} executions only");
        assert!((left - truth).abs() <= 0.1 * truth + chance, "{name}: {left:.4}, truth {truth:.4}, {seen} executions");
    }
}

/// Rows of a branch.
fn by_place(profile: &Profile, at: u64) -> String {
    let rows = profile.edges.iter().filter(|e| e.branch.0 == at && profile.image(e.image).path.ends_with("/turns"));
    rows.map(|e| format!("{:#x} {:?} {}\n", e.pc.0, e.way, e.count)).collect()
}

#[test]
fn memory_operands_are_read_when_asked_for_only() {
    need_root!();
    let _alone = alone();
    let decided = |how: &str| {
        let run = record(&["--rate", "9999", "--edges", how], &[workload("branchy"), "2".into()]);
        let profile = profile(&run);
        let of = |kind: &str| -> u64 {
            let names = BRANCHES.iter().filter(|b| b.starts_with(kind));
            names.map(|b| seen(&profile, &run, b).0).sum()
        };
        (of("register"), of("memory"), profile.edges.len())
    };
    let (registers, with_loads, _) = decided("mem");
    let (without, few, _) = decided("regs");
    assert!(registers > 100 && without > 100, "{registers} and {without} decisions by registers");
    // Between the load and its branch the flags tell, without any load.
    assert!(with_loads > 60 && few * 2 < with_loads, "{with_loads} with loads, {few} without");
    assert_eq!(decided("off"), (0, 0, 0));
}

#[test]
fn rings_bring_registers_when_asked_for_and_say_when_not() {
    need_root!();
    let _alone = alone();
    let run = record(&["--rate", "4999", "--backend", "ring", "--edges", "regs"], &[workload("branchy"), "2".into()]);
    let rows = profile(&run);
    for branch in BRANCHES.iter().filter(|b| b.starts_with("register")) {
        assert_probability(&rows, &run, branch);
    }
    for (how, note) in [("auto", "branch directions are missing"), ("mem", "where registers decide them")] {
        let run = record(&["--backend", "ring", "--edges", how], &["true"]);
        assert!(notes(&profile(&run)).contains(note), "{how}: {}", notes(&profile(&run)));
    }
}

#[test]
fn branch_records_are_taken_or_refused_but_never_silently_missing() {
    need_root!();
    let _alone = alone();
    let run = try_record(&["--edges", "records"], &[workload("branchy"), "1".into()]);
    if run.output.status.success() {
        let profile = profile(&run);
        assert!(notes(&profile).contains("the CPU's branch records"), "{}", notes(&profile));
        assert!(profile.edges.iter().any(|e| e.source != EdgeSource::Registers));
    } else {
        let said = text(&run.output.stderr);
        assert!(said.contains("--edges records") && said.contains("Leave --edges away"), "{said}");
        assert!(!run.path().exists(), "an empty recording was left behind");
    }
}

#[test]
fn samples_of_other_events_bring_no_registers_and_that_is_said() {
    need_root!();
    let run = record(&["-e", "page-faults"], &["true"]);
    let profile = profile(&run);
    assert_eq!(profile.edges, []);
    assert!(notes(&profile).contains("branch directions are missing"), "{}", notes(&profile));
}

/// Of a process that maps what is no plain file no memory is read any more; nothing else changes.
#[test]
fn a_process_that_maps_a_device_ends_no_recording() {
    need_root!();
    let _alone = alone();
    let script = "
import mmap, os, time
def spin(seconds):
    end, n = time.process_time() + seconds, 0
    while time.process_time() < end:
        for i in range(1000): n += i
spin(1.5)
try:
    mapped = mmap.mmap(os.open('/sys/kernel/btf/vmlinux', os.O_RDONLY), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ)
    print('mapped')
except OSError:
    pass
spin(3)";
    let run = record_system(&[], &["/usr/bin/python3", "-c", script]);
    if !text(&run.output.stdout).contains("mapped") {
        println!("SKIP: this kernel's type information cannot be mapped");
        return;
    }
    assert!(profile(&run).samples.len() > 100);
}

#[test]
fn the_program_prints_what_it_prints_alone() {
    need_root!();
    let _alone = alone();
    let script = "seq 1 400000 | sort -R --random-source=/dev/zero | sha256sum; seq 1 200000 | gzip -9 | wc -c";
    let plain = Command::new("sh").args(["-c", script]).env("LC_ALL", "C").output().unwrap();
    let run = record(&["--rate", "9999", "--edges", "mem"], &["sh", "-c", script]);
    assert_eq!(text(&run.output.stdout), text(&plain.stdout));
    assert!(!profile(&run).edges.is_empty(), "nothing was interpreted");
}
