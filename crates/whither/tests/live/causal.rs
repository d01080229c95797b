//! `whither causal` on programs with a known answer (workloads/causal): the curve and the verdict are those that follow
//! from the program's shape. The short list; all programs and builds are in live_causal_matrix.rs.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::causal_agent::program_of;
use crate::causal_live::{AMOUNTS, Bar, NOTHING, Ran, SHORT, attach, causal, knee, line, run, start};
use crate::support::{alone, need_root, workload};
use std::process::Command;
use std::time::Duration;

/// Ten seconds of experiments with one function; `None`, said, where others left too little of them.
fn one(target: &str, words: &[&str]) -> Option<Ran> {
    let args = ["--progress", "progress", "--unit", "function", "--target", target, "--speedups", AMOUNTS];
    let run = causal(&args, 10, words);
    if run.spoilt() {
        return None;
    }
    assert!(run.answer.is_object(), "no answer: {}\n{}", run.stdout, run.told());
    assert_eq!(run.answer["schema"], "whither.causal/1");
    Some(run)
}

/// What a part that is worth something is called.
const WORTH: &[&str] = &["fix-this", "helps-until"];
/// What a part without effect may be called in a run too short for a proof.
const IDLE: &[&str] = &["do-not-bother", "not-enough-data"];

#[test]
fn k1_one_thread() {
    need_root!();
    let _alone = alone();
    let Some(run) = one("f", &["serial"]) else { return };
    run.assert_curve("f", line(0.6), SHORT);
    run.assert_verdict("f", WORTH);
}

#[test]
fn k2_the_slower_of_two_threads_has_a_knee() {
    need_root!();
    let _alone = alone();
    let Some(run) = one("a", &["twothread", "--set", "pin=1"]) else { return };
    run.assert_curve("a", knee(1.0, 0.25), SHORT);
    run.assert_verdict("a", WORTH);
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k2_the_faster_of_two_threads_gains_nothing() {
    need_root!();
    let _alone = alone();
    let Some(run) = one("b", &["twothread", "--set", "pin=1"]) else { return };
    run.assert_curve("b", NOTHING, SHORT);
    run.assert_verdict("b", IDLE);
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k3_a_queue_between_two_threads() {
    need_root!();
    let _alone = alone();
    let Some(run) = one("produce", &["prodcons-mutex", "--set", "pin=1"]) else { return };
    run.assert_curve("produce", knee(1.0, 0.4), SHORT);
    run.assert_verdict("produce", WORTH);
}

/// Its lock sleeps by futex calls of its own: nothing that wraps library functions sees them.
#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k3_rust_queue_gains_nothing_from_its_consumer() {
    need_root!();
    let _alone = alone();
    if crate::causal_live::built("prodcons-rust") {
        let Some(run) = one("consume", &["prodcons-rust"]) else { return };
        run.assert_curve("consume", NOTHING, SHORT);
        run.assert_verdict("consume", IDLE);
    }
}

/// More threads than cores; what the lock's order of service adds to the curve is in the wider bar.
#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k4_four_threads_and_a_lock() {
    need_root!();
    let _alone = alone();
    let Some(run) = one("critical", &["lockc-mutex", "--set", "threads=4"]) else { return };
    let y = run.fitted("critical", 60.0);
    assert!((y - 20.0).abs() <= 12.0, "critical at 60 %: {y:.1}, truth 20 to 27; {}", run.told());
    run.assert_curve("critical", line(1.0 / 3.0), Bar { mean: 8.0, most: 12.0 });
    // Where spun delays keep cores from the others, they are slept.
    run.assert_verdict("critical", &[WORTH, &["not-enough-data"]].concat());
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k5_a_program_that_sleeps() {
    need_root!();
    let _alone = alone();
    let Some(run) = one("cpu", &["sleepy"]) else { return };
    run.assert_curve("cpu", line(0.5), SHORT);
    run.assert_verdict("cpu", WORTH);
}

/// The size is the machine's; the sign is the program's. Where windows scatter by more than the bar of a short run, the tool
/// may say that it lacks some; the sign stands all the same.
#[test]
#[allow(clippy::print_stdout, reason = "a skip must be seen")]
fn k7_faster_code_that_hurts() {
    need_root!();
    let _alone = alone();
    let Some(run) = one("think", &["hammer", "--set", "pin=1"]) else { return };
    let y = run.fitted("think", 60.0);
    assert!(y < -2.0, "think at 60 %: {y:.1} points; {}", run.told());
    let gain = &run.target("think")["gain"];
    let half = 50.0 * (gain["high"].as_f64().unwrap() - gain["low"].as_f64().unwrap());
    if run.verdict("think") == "not-enough-data" && half > SHORT.mean {
        println!("SKIP: think: windows of this program scatter by {half:.1} points here, too much for a verdict");
        return;
    }
    run.assert_verdict("think", &["contention"]);
}

/// Arrivals fix the rate; what a faster server buys is the latency between two marks.
#[test]
fn k8_latency_between_two_marks() {
    need_root!();
    let _alone = alone();
    let args = ["--latency", "mark:request", "--unit", "function", "--target", "serve", "--speedups", AMOUNTS];
    let run = causal(&args, 10, &["queue1", "--set", "pin=1"]);
    if run.spoilt() {
        return;
    }
    let rows = run.answer["latency"].as_array().unwrap_or_else(|| panic!("{}", run.told()));
    let row = rows.iter().find(|r| r["target_name"] == "serve").unwrap_or_else(|| panic!("{rows:?}; {}", run.told()));
    let y = 100.0 * row["gain"]["y"].as_f64().unwrap();
    assert!((y - 30.0).abs() < 8.0, "latency by {y:.1} % at 30 %, truth 30; {}", run.told());
}

/// A wait is asked for by the name of its kind, under which it is listed.
#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k5_a_wait_by_its_kind() {
    need_root!();
    let _alone = alone();
    let args = ["--progress", "progress", "--off-cpu", "sleep", "--target", "sleep", "--speedups", AMOUNTS];
    let run = causal(&args, 10, &["sleepy"]);
    if run.spoilt() {
        return;
    }
    run.assert_curve("sleep", line(0.5), SHORT);
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k10_more_threads_than_cores() {
    need_root!();
    let _alone = alone();
    let Some(run) = one("f", &["over"]) else { return };
    run.assert_curve("f", line(0.6), SHORT);
    run.assert_verdict("f", WORTH);
}

/// Two readers are let in by one wake-up, and the writer by whichever leaves last.
#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k22_the_writer_before_two_readers() {
    need_root!();
    let _alone = alone();
    let Some(run) = one("write_all", &["rwlock", "--set", "pin=1"]) else { return };
    run.assert_curve("write_all", line(0.5), SHORT);
    run.assert_verdict("write_all", WORTH);
}

#[test]
fn k13_a_rate_that_a_timer_fixes() {
    need_root!();
    let _alone = alone();
    let Some(run) = one("work", &["ticker"]) else { return };
    run.assert_curve("work", NOTHING, SHORT);
    run.assert_verdict("work", &["rate-fixed", "do-not-bother"]);
}

/// How long a round that is `draw` 30 % faster is shorter, in points: by the program itself, in turns.
fn really(mode: &str) -> f64 {
    let period = |scale: &str| {
        let args = ["--mode", mode, "--seconds", "1", "--scale", scale];
        let out = Command::new(workload("causal-paced")).args(args).output().unwrap();
        let out = String::from_utf8_lossy(&out.stdout).into_owned();
        let told = out.lines().find_map(|l| l.strip_prefix("period_ns ")?.parse::<f64>().ok());
        told.expect("the program tells its period")
    };
    let all: Vec<(f64, f64)> = (0..2).map(|_| (period("draw=1"), period("draw=0.7"))).collect();
    let (old, new) = all.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
    100.0 * (1.0 - new / old)
}

/// Waits for what remains of a round, made with time-outs and timers: "fix this: +7 ±1" was told of each,
/// for nothing. Waits as long as ever, by the same calls, are none.
#[test]
fn k28_waits_for_the_rest_of_a_round_gain_nothing() {
    need_root!();
    let _alone = alone();
    for mode in ["poll", "cond", "setitimer"] {
        let Some(run) = one("draw", &["paced", "--mode", mode]) else { continue };
        run.assert_verdict("draw", &["rate-fixed", "do-not-bother", "not-enough-data"]);
        assert!(really(mode).abs() < 3.0, "{mode}: the change itself does nothing");
    }
    let Some(run) = one("draw", &["paced", "--mode", "condsame"]) else { return };
    run.assert_curve("draw", line(1.0 / 3.0), SHORT);
    run.assert_verdict("draw", WORTH);
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k28_all_ways_to_wait_for_the_rest_of_a_round() {
    need_root!();
    let _alone = alone();
    let ways = [
        "nanosleep",
        "next",
        "deadline",
        "timerfd",
        "oneshot",
        "sleepms",
        "polldue",
        "epoll",
        "epolldue",
        "ppoll",
        "conddue",
        "vsync",
        "bucket",
    ];
    for mode in ways {
        let Some(run) = one("draw", &["paced", "--mode", mode]) else { continue };
        run.assert_verdict("draw", &["rate-fixed", "do-not-bother", "not-enough-data"]);
    }
    for mode in ["relative", "pollsame"] {
        let Some(run) = one("draw", &["paced", "--mode", mode]) else { continue };
        run.assert_curve("draw", line(1.0 / 3.0), SHORT);
    }
}

/// Its threads take turns several times between two ticks: what is measured then is not what a change would bring, and nobody may
/// be told so with confidence.
#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k17_turns_faster_than_ticks_have_no_verdict() {
    need_root!();
    let _alone = alone();
    let Some(run) = one("ping", &["pingpong-sem"]) else { return };
    let row = run.target("ping");
    if run.verdict("ping") == "cannot-say" {
        let reason = row["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("threads take turns every") || run.disturbed().is_some(), "{reason}; {}", run.told());
    } else {
        // Where a tick is cheap they come every 250 us, and it is as good as its interval.
        let (low, high) = (row["gain"]["low"].as_f64().unwrap(), row["gain"]["high"].as_f64().unwrap());
        assert!(low < 0.07 && high > 0.08, "{} for a truth of 7 to 10 points; {}", row["gain"], run.told());
    }
    let far: Vec<_> =
        run.points("ping", line(0.26)).into_iter().zip(row["curve"].as_array().unwrap().iter().skip(1)).collect();
    for ((percent, y, truth), point) in far {
        let (low, high) = (100.0 * point["low"].as_f64().unwrap(), 100.0 * point["high"].as_f64().unwrap());
        assert!(
            low < truth && truth < high,
            "at {percent} %: {y:.1} ({low:.1} to {high:.1}), truth {truth:.1}; {}",
            run.told()
        );
    }
}

/// Without debug information functions are targets all the same, and lines are refused with the reason.
#[test]
fn a_program_without_debug_information() {
    need_root!();
    let _alone = alone();
    let Some(run) = one("f", &["serial-nodebug"]) else { return };
    run.assert_curve("f", line(0.6), SHORT);
    let by_line = causal(&["--progress", "progress", "--target", "serial.c:4"], 2, &["serial-nodebug"]);
    assert_ne!(by_line.code, 0, "{}", by_line.told());
    assert!(by_line.stderr.contains("serial.c"), "{}", by_line.stderr);
}

/// Marks of Coz ask for their counters when they are first reached; the program sees nothing else of whither.
#[test]
fn marks_of_coz_are_progress_points() {
    need_root!();
    let _alone = alone();
    let args = ["--progress", "mark:served", "--unit", "function", "--target", "f", "--speedups", AMOUNTS];
    let run = causal(&args, 10, &["counted"]);
    // Without a mark as a point nothing is preloaded; the test itself may have left descriptors open.
    let plain = crate::causal_live::run(&["--progress", "progress", "-n", "1"], &["counted", "--rounds", "20"]);
    let found = |run: &Ran| {
        run.stdout.lines().filter(|l| l.starts_with("preloaded") || l.starts_with("open")).collect::<String>()
    };
    assert!(found(&run).starts_with("preloaded nothingopen "), "{}\n{}", run.stdout, run.told());
    assert_eq!(found(&run), found(&plain), "{}\n{}", run.stdout, run.told());
    if run.spoilt() {
        return;
    }
    assert!(run.answer["notes"].to_string().contains("that was preloaded into it"), "{}", run.told());
    assert_eq!(run.answer["points"][0]["name"], "mark:served", "{}", run.told());
    run.assert_curve("f", line(0.7), SHORT);
    run.assert_verdict("f", WORTH);
}

/// The unnamed one is `FILE:LINE`; a counter tells no times.
#[test]
fn marks_of_coz_are_named_and_refused_as_such() {
    need_root!();
    let _alone = alone();
    let source = include_str!("../../../../workloads/causal/counted.c");
    let at = 1 + source.lines().position(|l| l.contains("/* unnamed */")).expect("a mark");
    let run = run(&["--progress", &format!("mark:counted.c:{at}"), "-d", "3"], &["counted", "--rounds", "200"]);
    assert!(run.spoilt() || run.answer["points"][0]["visits"].as_u64() > Some(20), "{}", run.told());
    let told = |args: &[&str]| causal(args, 5, &["counted"]).stderr;
    let pair = told(&["--latency", "mark:serve"]);
    assert!(pair.contains("how often it was reached and not when"), "{pair}");
    let wrong = told(&["--progress", "mark:serving"]);
    assert!(wrong.contains("has not reached such a mark; it has reached"), "{wrong}");
}

/// Its points come to be while it runs, each in a file of its own.
#[test]
fn marks_of_a_python_program_are_visited() {
    need_root!();
    let _alone = alone();
    let args = ["--progress", "mark:rounds", "--latency", "mark:round", "--unit", "function"];
    let Some(run) = crate::causal_live::python(&args, "rounds.py", &["4"]) else { return };
    let told = run.stdout.lines().find_map(|l| l.strip_prefix("per_second ")).and_then(|n| n.parse::<f64>().ok());
    let truth = told.unwrap_or_else(|| panic!("the program did not end: {}\n{}", run.stdout, run.told()));
    if run.spoilt() {
        return;
    }
    let points = run.answer["points"].as_array().unwrap_or_else(|| panic!("{}", run.told()));
    let rate = |name: &str| points.iter().find(|p| p["name"] == name).and_then(|p| p["per_second"].as_f64());
    // Experiments slow the program down from window to window.
    for name in ["mark:rounds", "mark:round_begin", "mark:round_end"] {
        let seen = rate(name).unwrap_or_else(|| panic!("no {name}: {points:?}; {}", run.told()));
        assert!((0.5 * truth..2.0 * truth).contains(&seen), "{name}: {seen} a second, truth {truth}; {}", run.told());
    }
}

#[test]
fn an_unknown_point_is_answered_with_the_nearest_names() {
    need_root!();
    let _alone = alone();
    let run = causal(&["--progress", "progres"], 2, &["serial"]);
    assert_ne!(run.code, 0, "{}", run.told());
    assert!(run.stderr.contains("progress"), "no suggestion:\n{}", run.stderr);
    // It is in the source, and was inlined.
    let inlined = causal(&["--progress", "more"], 2, &["serial"]);
    assert!(inlined.stderr.contains("has no code of its own"), "{}", inlined.stderr);
    // A target, too, though a function may be there without symbols.
    let target = causal(&["--progress", "progress", "--target", "calibratin"], 20, &["serial"]);
    assert_ne!(target.code, 0, "{}", target.told());
    assert!(target.stderr.contains("no such code") && target.stderr.contains("calibrating"), "{}", target.stderr);
    assert!(!target.stdout.contains("visits"), "it was told at the end:\n{}", target.stdout);
    let mark = causal(&["--progress", "mark:rounds"], 2, &["serial"]);
    assert_ne!(mark.code, 0, "{}", mark.told());
    assert!(mark.stderr.contains("mark:round"), "no suggestion:\n{}", mark.stderr);
}

/// Never a good end with an empty answer.
#[test]
fn a_point_that_is_never_reached_is_said() {
    need_root!();
    let _alone = alone();
    let run = causal(&["--progress", "ask_peer"], 4, &["sleepy"]);
    assert_ne!(run.code, 0, "{}", run.told());
    assert!(run.stderr.contains("ask_peer"), "{}", run.stderr);
}

/// A visit each six nanoseconds: a trap for each of them would be all that the program does, for minutes. It is left alone at once.
#[test]
fn a_point_that_is_too_hot_for_a_breakpoint_is_refused() {
    need_root!();
    let _alone = alone();
    let mut command = Command::new(env!("CARGO_BIN_EXE_whither"));
    command.args(["causal", "--backend", "bpf", "--progress", "target", "--"]).arg(workload("calls-callcost"));
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    // 2, but where a first window was made before the program had run for long enough to be judged.
    assert!(matches!(output.status.code(), Some(1 | 2)), "{:?}: {stderr}", output.status);
    assert!(stderr.contains("its breakpoint takes") && stderr.contains("sampled:FILE:LINE"), "{stderr}");
}

/// A program that is over after one round of 10 ms, run once: no window fits, and that is said.
#[test]
fn a_program_that_ends_at_once() {
    need_root!();
    let _alone = alone();
    let words = ["serial", "--rounds", "1", "--per-ms", "1000000"];
    let run = run(&["-n", "1", "--progress", "progress"], &words);
    assert_ne!(run.code, 0, "{}", run.told());
    assert!(run.stdout.contains("visits 1"), "the program did not do its work:\n{}", run.stdout);
    assert!(!run.stderr.trim().is_empty(), "no reason");
}

/// The program that a child executes is made faster, too, as soon as it is there.
#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k23_a_program_executed_in_each_round() {
    need_root!();
    let _alone = alone();
    let Some(run) = one("f", &["execs"]) else { return };
    run.assert_curve("f", line(0.57), SHORT);
    run.assert_verdict("f", WORTH);
}

/// The same in programs of six milliseconds. Looked at a millisecond after they had begun, as they were, 62 of 64 windows were dropped
/// for that, which is found before what others do.
#[test]
fn k23_a_short_program_executed_in_each_round() {
    need_root!();
    let _alone = alone();
    let args = ["--progress", "progress", "--unit", "function", "--target", "f", "--speedups", AMOUNTS];
    let run = causal(&args, 10, &["execs", "--scale", "f=0.33", "--scale", "g=0.33"]);
    if !run.answer.is_object() && run.spoilt() {
        return;
    }
    let dropped = run.answer["dropped"].as_array().cloned().unwrap_or_default();
    let started: u64 = dropped.iter().filter(|d| d["reason"] == "started").filter_map(|d| d["n"].as_u64()).sum();
    let windows = &run.answer["windows"];
    let all = windows["kept"].as_u64().unwrap_or(0) + windows["dropped"].as_u64().unwrap_or(0);
    assert!(all > 10 && 2 * started < all, "{started} of {all}: {}", run.told());
    if run.spoilt() {
        return;
    }
    run.assert_curve("f", line(0.54), SHORT);
    run.assert_verdict("f", WORTH);
}

/// A command whose point is nowhere is stopped with the program that it runs, which went on as an orphan; and what is offered is of
/// that program, not of the shell. Whoever holds the other end of the pipe is waited for here.
#[test]
fn a_refused_command_leaves_nothing_running() {
    need_root!();
    let _alone = alone();
    let program = workload("causal-serial");
    let script = format!("{} --seconds 60; echo went on", program.display());
    let began = std::time::Instant::now();
    let ran = crate::support::whither()
        .args(["causal", "--progress", "progres", "--", "sh", "-c", &script])
        .output()
        .expect("it runs");
    let (told, printed) = (crate::support::text(&ran.stderr), crate::support::text(&ran.stdout));
    assert!(!ran.status.success() && told.contains("stopped again") && told.contains("there are progress"), "{told}");
    assert!(began.elapsed() < Duration::from_secs(40) && !printed.contains("went on"), "{printed}");
}

/// What a mistyped file may have meant, and why a stripped program has no functions, are told; not names of the C library.
#[test]
fn a_mistyped_file_and_a_stripped_program_are_told_as_such() {
    need_root!();
    let _alone = alone();
    let told = |progress: &str, program: &std::path::Path| {
        let command = ["causal", "--progress", progress, "--"];
        let ran =
            crate::support::whither().args(command).arg(program).args(["--rounds", "1"]).output().expect("it runs");
        assert!(!ran.status.success());
        crate::support::text(&ran.stderr)
    };
    let program = workload("causal-serial");
    let mistyped = told("serail.c:20", &program);
    assert!(mistyped.contains("comes from serail.c; there are serial.c"), "{mistyped}");
    let directory = tempfile::tempdir().expect("a directory");
    let stripped = directory.path().join("serial");
    let made = std::process::Command::new("strip").arg("-o").arg(&stripped).arg(&program).status();
    assert!(made.expect("strip runs").success());
    let nameless = told("progress", &stripped);
    assert!(nameless.contains("it was stripped") && !nameless.contains("__"), "{nameless}");
}

/// The head of a loop has code where it is entered and code where it turns: a point there counts turns. `serial.c` says in
/// which line its loop begins.
#[test]
fn a_point_at_the_head_of_a_loop_counts_its_turns() {
    need_root!();
    let _alone = alone();
    let source = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/causal/serial.c"))
        .expect("the source");
    let line = 1 + source.lines().position(|l| l.contains("for (uint64_t round")).expect("a loop");
    let run = run(&["--progress", &format!("serial.c:{line}"), "-d", "3"], &["serial", "--rounds", "200"]);
    if run.spoilt() {
        return;
    }
    let visits = run.answer["points"][0]["visits"].as_u64().unwrap_or(0);
    assert!(visits > 20, "{}", run.told());
}

/// Without a point and without marks there is still the time of whole runs.
#[test]
#[allow(clippy::print_stdout, reason = "a skip must be seen")]
fn without_a_point_whole_runs_are_compared() {
    need_root!();
    let _alone = alone();
    let args = ["causal", "--json", "-n", "3", "--"];
    let ran = crate::support::whither().args(args).arg(workload("shares")).arg("1").output().expect("whither runs");
    let (out, told) = (crate::support::text(&ran.stdout), crate::support::text(&ran.stderr));
    assert!(told.contains("its whole runs are compared"), "{told}");
    if told.contains("none of the") && told.contains("others used the CPUs") {
        println!("SKIP: others on this machine used the CPUs, and left no run to compare");
        return;
    }
    assert!(out.contains("end of the run"), "{out}{told}");
}

/// A client in another process waits for the answer and asks again: it hands on how far the server is in virtual time. Of a wait for
/// somebody unknown nothing was made, and every gain was told as none.
#[test]
fn k26_a_client_that_is_not_measured_asks_earlier() {
    need_root!();
    let _alone = alone();
    let mut child = start(&["asked", "--seconds", "14"]);
    std::thread::sleep(Duration::from_millis(500));
    let Some(pid) = program_of(child.id()) else { panic!("the program did not start") };
    // The client is a child of the server's, and would be measured with it.
    let args = ["--follow", "none", "--progress", "progress", "--unit", "function", "-t", "lookup", "--load", "closed"];
    let run = attach(&[&args[..], &["--speedups", AMOUNTS]].concat(), 10, pid);
    assert!(child.wait().is_ok_and(|status| status.success()));
    if run.spoilt() {
        return;
    }
    let told = run.fitted("lookup", 60.0);
    assert!((14.0..34.0).contains(&told), "{told:.1} points at 60 % for 23; {}", run.told());
}
