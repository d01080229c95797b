//! `whither causal` on every program, means of waiting and build of workloads/causal: half an hour, part of
//! `make acceptance`. Each test collects what is wrong and fails at its end, so that one run tells everything.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stdout, reason = "the curve of each program is the record of an acceptance run")]

use crate::causal_live::{AMOUNTS, Bar, Curve, NOTHING, Ran, attach, built, causal, knee, line, start};
use crate::support::{alone, need_root};
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seconds of one curve.
const SECONDS: u32 = 20;
/// The project's bar is 2 points on 60 s; this is for a third of that.
const BAR: Bar = Bar { mean: 4.0, most: 6.0 };
/// Where the order in which a lock is handed on is the scheduler's.
const LOCK: Bar = Bar { mean: 6.0, most: 9.0 };

const PRODUCE: Curve = knee(1.0, 0.4);
const APART: Curve = knee(2.0 / 3.0, 1.0 / 3.0);
const WAITING: [&str; 9] = ["mutex", "atomicwait", "cppsem", "sem", "pipe", "socket", "eventfd", "c11", "spinfutex"];

/// One program's part and its truth.
struct Case<'a> {
    words: Vec<&'a str>,
    target: &'a str,
    args: Vec<&'a str>,
    truth: Curve,
    bar: Bar,
}

fn case<'a>(words: &[&'a str], target: &'a str, truth: Curve, bar: Bar) -> Case<'a> {
    Case { words: words.to_vec(), target, args: vec!["--unit", "function", "--target", target], truth, bar }
}

/// Runs each, prints its curve, and fails with all that were wrong.
fn all(cases: &[Case<'_>]) {
    let mut wrong = Vec::new();
    for case in cases.iter().filter(|c| built(c.words[0])) {
        let args = [&["--progress", "progress", "--speedups", AMOUNTS], &case.args[..]].concat();
        let run = causal(&args, SECONDS, &case.words);
        if run.spoilt() {
            continue;
        }
        let judged = catch_unwind(AssertUnwindSafe(|| {
            show(case, &run);
            run.assert_curve(case.target, case.truth, case.bar);
        }));
        if judged.is_err() {
            wrong.push(format!("{:?} {}", case.words, case.target));
        }
    }
    assert!(wrong.is_empty(), "wrong curves, reasons above:\n  {}", wrong.join("\n  "));
}

fn show(case: &Case<'_>, run: &Ran) {
    let points: Vec<String> =
        run.points(case.target, case.truth).iter().map(|(s, y, t)| format!("{s}: {y:.1} ({t:.1})")).collect();
    println!("{} {}: {}; {}", case.words.join(" "), case.target, points.join(", "), run.verdict(case.target));
}

#[test]
#[ignore = "minutes: make acceptance"]
fn plain_programs() {
    need_root!();
    let _alone = alone();
    all(&[
        case(&["serial"], "f", line(0.6), BAR),
        case(&["serial"], "g", line(0.4), BAR),
        case(&["twothread"], "a", knee(1.0, 0.25), BAR),
        case(&["twothread"], "b", NOTHING, BAR),
        case(&["twothread-barrier"], "a", knee(1.0, 0.25), BAR),
        case(&["twothread-latch"], "a", knee(1.0, 0.25), BAR),
        case(&["sleepy"], "cpu", line(0.5), BAR),
        case(&["callers"], "h", line(0.8), BAR),
        case(&["over"], "f", line(0.6), BAR),
        case(&["over"], "g", line(0.4), BAR),
        case(&["iobar"], "compute", NOTHING, BAR),
        case(&["ticker"], "work", NOTHING, BAR),
        case(&["ticker", "--mode", "relative"], "work", line(0.5), BAR),
        case(&["queue1"], "serve", NOTHING, BAR),
    ]);
}

#[test]
#[ignore = "minutes: make acceptance"]
fn queues_over_every_means_of_waiting() {
    need_root!();
    let _alone = alone();
    let names: Vec<String> = WAITING.iter().chain(&["rust"]).map(|w| format!("prodcons-{w}")).collect();
    let cases = names.iter().flat_map(|n| [case(&[n], "produce", PRODUCE, BAR), case(&[n], "consume", NOTHING, BAR)]);
    all(&cases.chain([case(&["prodcons-go"], "main.produce", PRODUCE, BAR)]).collect::<Vec<_>>());
}

#[test]
#[ignore = "minutes: make acceptance"]
fn locks_over_every_means_of_waiting() {
    need_root!();
    let _alone = alone();
    let names: Vec<String> = WAITING.iter().chain(&["rust"]).map(|w| format!("lockc-{w}")).collect();
    let cases =
        names.iter().flat_map(|n| [case(&[n], "critical", line(1.0 / 3.0), LOCK), case(&[n], "apart", APART, LOCK)]);
    let four = case(&["lockc-mutex", "--set", "threads=4"], "critical", line(1.0 / 3.0), Bar { mean: 8.0, most: 12.0 });
    all(&cases.chain([four]).collect::<Vec<_>>());
}

#[test]
#[ignore = "minutes: make acceptance"]
fn queues_between_processes_and_in_bursts() {
    need_root!();
    let _alone = alone();
    let names: Vec<String> = ["pipe", "socket", "eventfd", "sem"].iter().map(|w| format!("prodcons-{w}")).collect();
    let forked = names.iter().map(|n| case(&[n, "--mode", "fork"], "produce", PRODUCE, BAR));
    let burst = ["prodcons-mutex", "--set", "produce=50", "--set", "consume=30"];
    // A hand-over costs as much as a part: the program itself is up to 12 points off the curve (truth K11).
    let bursts = ["produce"].map(|part| case(&burst, part, PRODUCE, Bar { mean: 12.0, most: 15.0 }));
    all(&forked.chain(bursts).collect::<Vec<_>>());
}

#[test]
#[ignore = "minutes: make acceptance"]
fn every_build() {
    need_root!();
    let _alone = alone();
    let builds =
        ["static", "nopie", "dwarf4", "dwarf5", "stripped", "debuglink", "splitdwarf", "nodebug", "clang", "lld"];
    let serial: Vec<String> = builds.iter().chain(&["musl", "mold"]).map(|b| format!("serial-{b}")).collect();
    let queue: Vec<String> = builds.iter().map(|b| format!("build-prodcons-{b}")).collect();
    let cases = serial.iter().map(|n| case(&[n], "f", line(0.6), BAR));
    all(&cases.chain(queue.iter().map(|n| case(&[n], "produce", PRODUCE, BAR))).collect::<Vec<_>>());
}

/// A line and its function are the same code in these programs: so are their curves.
#[test]
#[ignore = "minutes: make acceptance"]
fn lines_as_targets() {
    need_root!();
    let _alone = alone();
    let by_line = |words: &[&'static str], place: &'static str, truth| Case {
        args: vec!["--unit", "line", "--target", place],
        ..case(words, place, truth, BAR)
    };
    let mut cases = vec![by_line(&["serial"], "serial.c:4", line(0.6))];
    for build in ["serial-dwarf4", "serial-splitdwarf", "serial-debuglink", "serial-lld", "serial-static"] {
        cases.push(by_line(&[build], "serial.c:4", line(0.6)));
    }
    all(&cases);
}

/// h made faster for one of its callers only.
#[test]
#[ignore = "minutes: make acceptance"]
fn callers_as_targets() {
    need_root!();
    let _alone = alone();
    let path = |target: &'static str, truth| Case {
        args: vec!["--unit", "path", "--target", target],
        ..case(&["callers"], "h", truth, BAR)
    };
    all(&[path("h < p", knee(0.8, 0.4)), path("h < q", NOTHING)]);
}

/// Time in the C library counts for the line that called it.
#[test]
#[ignore = "minutes: make acceptance"]
fn library_time_belongs_to_the_calling_line() {
    need_root!();
    let _alone = alone();
    let told =
        std::process::Command::new(crate::support::workload("causal-scope")).args(["--seconds", "1"]).output().unwrap();
    let told = crate::support::text(&told.stdout);
    let number = |key: &str| told.lines().find_map(|l| l.strip_prefix(key)?.trim().parse::<f64>().ok()).expect("told");
    let mut wrong = Vec::new();
    for part in ["copy", "sort", "int", "long"] {
        let place = format!("scope.cpp:{}", number(&format!("line_{part} ")));
        let args = ["--progress", "progress", "--unit", "line", "--target", &place, "--speedups", AMOUNTS];
        let run = causal(&args, SECONDS, &["scope"]);
        let truth = line(number(&format!("share_{part} ")) / 100.0);
        if catch_unwind(AssertUnwindSafe(|| run.assert_curve(&place, truth, BAR))).is_err() {
            wrong.push(place);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}; {told}");
}

/// A part that matters in a quarter of the time, and two that matter in one half of the run each.
#[test]
#[ignore = "minutes: make acceptance"]
fn phases_count_by_the_time_they_last() {
    need_root!();
    let _alone = alone();
    let mut wrong = Vec::new();
    for (words, target, while_it_runs, over_the_run) in [
        (&["phases", "--set", "phase=25"][..], "f", 0.6, 0.15),
        (&["warmup"], "x", 0.6, 0.3),
        (&["warmup"], "y", 0.6, 0.3),
    ] {
        let args = ["--progress", "progress", "--unit", "function", "--speedups", AMOUNTS];
        let run = causal(&args, 40, words);
        let row = run.target(target);
        let at = |key: &str| row[key]["y"].as_f64().map(|y| 100.0 * y / row[key]["percent"].as_f64().unwrap_or(1.0));
        let (local, gain) = (at("local"), at("gain"));
        println!("{words:?} {target}: local {local:?} (truth {while_it_runs}), over the run {gain:?} ({over_the_run})");
        let near = |found: Option<f64>, truth: f64, by: f64| found.is_some_and(|y| (y - truth).abs() <= by);
        if !near(local, while_it_runs, 0.2) || !near(gain, over_the_run, 0.1) {
            wrong.push(format!("{words:?} {target}: {local:?}, {gain:?}; {}", run.told()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Waits for the outside world are targets too.
#[test]
#[ignore = "minutes: make acceptance"]
fn waits_as_targets() {
    need_root!();
    let _alone = alone();
    let wait = |words: &[&'static str], class: &'static str, truth| Case {
        args: vec!["--off-cpu", class],
        ..case(words, class, truth, BAR)
    };
    let mut peer = start(&["sleepy", "--mode", "serve"]);
    let mut line_of_peer = String::new();
    BufReader::new(peer.stdout.take().unwrap()).read_line(&mut line_of_peer).unwrap();
    assert_eq!(line_of_peer.trim(), "serving");
    let judged = catch_unwind(|| {
        all(&[
            wait(&["sleepy"], "sleep", line(0.5)),
            wait(&["iobar"], "sleep", knee(1.0, 0.25)),
            wait(&["sleepy", "--mode", "receive"], "net", line(0.5)),
        ]);
    });
    let _ = (peer.kill(), peer.wait());
    assert!(judged.is_ok(), "see above");
}

/// Arrivals fix the rate; what a faster server buys is latency.
#[test]
#[ignore = "minutes: make acceptance"]
fn latency_between_two_points() {
    need_root!();
    let _alone = alone();
    let args = ["--latency", "mark:request", "--unit", "function", "--target", "serve", "--speedups", AMOUNTS];
    let run = causal(&args, 30, &["queue1"]);
    let rows = run.answer["latency"].as_array().expect("an answer has latencies");
    let row = rows.iter().find(|r| r["target_name"] == "serve").unwrap_or_else(|| panic!("{rows:?}; {}", run.told()));
    let slope = row["fit"]["slope"].as_f64().unwrap();
    assert!((slope - 1.0).abs() <= 0.1, "W = c(1-s): slope {slope}, truth 1; {}", run.told());
    let told = run.stdout.lines().find_map(|l| l.strip_prefix("latency_ns ")?.parse::<f64>().ok()).expect("told");
    println!("mean latency {} ns, the program's own mean with experiments {told} ns", row["mean_ns"]);
}

/// The same by attaching, and the program goes on as before.
#[test]
#[ignore = "minutes: make acceptance"]
fn attached_to_a_running_program() {
    need_root!();
    let _alone = alone();
    let mut child = start(&["twothread", "--seconds", "30"]);
    std::thread::sleep(std::time::Duration::from_millis(500));
    // `setsid -w` waits for the program: its only child chain ends in it.
    let pid = last_descendant(child.id());
    let args = ["--progress", "progress", "--unit", "function", "--target", "a", "--speedups", AMOUNTS];
    let run = attach(&args, SECONDS, pid);
    let status = child.wait().unwrap();
    assert!(status.success(), "the program ended with {status}");
    run.assert_curve("a", knee(1.0, 0.25), BAR);
}

fn last_descendant(pid: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().next().and_then(|c| c.parse().ok()).map_or(pid, last_descendant)
}
