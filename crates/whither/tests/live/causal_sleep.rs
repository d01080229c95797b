//! `whither causal --executor sleep`: delays that are slept give the curves that spun ones give, and a program that cannot
//! stand interrupted system calls does not notice them.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::causal_agent::program_of;
use crate::causal_live::{AMOUNTS, Ran, SHORT, attach, causal, knee, line, start};
use crate::support::{alone, need_root};
use std::time::{Duration, Instant};

/// Signals that carry a number can be sent since Linux 6.13.
#[allow(clippy::print_stdout, reason = "a skip must be seen")]
fn can_sleep() -> bool {
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let there = symbols.lines().any(|l| l.ends_with(" bpf_send_signal_task"));
    if !there {
        println!("SKIP: this kernel has no bpf_send_signal_task");
    }
    there
}

fn slept(target: &str, seconds: u32, words: &[&str]) -> Ran {
    let args = ["--executor", "sleep", "--progress", "progress", "--unit", "function", "--target", target];
    causal(&[&args[..], &["--speedups", AMOUNTS]].concat(), seconds, words)
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k2_slept_delays_give_the_curve() {
    need_root!();
    let _alone = alone();
    if !can_sleep() {
        return;
    }
    let run = slept("a", 10, &["twothread", "--set", "pin=1"]);
    if run.spoilt() {
        return;
    }
    assert_eq!(run.answer["executor"], "sleep", "{}", run.told());
    run.assert_curve("a", knee(1.0, 0.25), SHORT);
}

/// No call is interrupted, no signal is taken by somebody who waits for signals, the program's own timer goes on.
#[test]
#[ignore = "its own time, and the agent back end has the same: scripts/acceptance runs it"]
fn nobody_is_interrupted_and_no_signal_goes_astray() {
    need_root!();
    let _alone = alone();
    if !can_sleep() {
        return;
    }
    let run = slept("a", 6, &["eintr"]);
    let told = |key: &str| run.stdout.lines().find_map(|l| l.strip_prefix(key)?.trim().parse::<u64>().ok());
    assert_eq!((told("interrupted "), told("strange ")), (Some(0), Some(0)), "{}\n{}", run.stdout, run.told());
    assert!(told("alarms ") >= Some(50), "{}\n{}", run.stdout, run.told());
    if run.spoilt() {
        return;
    }
    let delay = run.answer["overhead"]["delay"].as_f64();
    assert!(delay > Some(0.01), "nothing was delayed: {}", run.told());
    assert_eq!(run.answer["executor"], "sleep", "delays were spun after all: {}", run.told());
}

/// Clients run for microseconds between a sleep and a question, and no tick meets them there: what they did not pay before they
/// asked kept the server busy, which was told to be worth +47 points at 80 %, without a knee, for a truth of 31.
#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k24_clients_that_slept_pay_before_they_ask() {
    need_root!();
    let _alone = alone();
    if !can_sleep() {
        return;
    }
    let run = slept("lookup", 15, &["clients"]);
    if run.spoilt() {
        return;
    }
    let truth = |s: f64| 100.0 * (0.6 * s).min((1.0 + 1.2 * s) / 6.0);
    for percent in [30.0, 60.0, 80.0] {
        let (fitted, real) = (run.fitted("lookup", percent), truth(percent / 100.0));
        assert!((fitted - real).abs() <= 8.0, "at {percent} %: {fitted:.1}, truth {real:.1}; {}", run.told());
    }
}

/// Who is killed gives no signal back; the next session does.
#[test]
fn what_a_killed_session_left_is_taken_away_by_the_next_one() {
    need_root!();
    let _alone = alone();
    if !can_sleep() {
        return;
    }
    let mut child = start(&["twothread", "--seconds", "9"]);
    std::thread::sleep(Duration::from_millis(500));
    let pid = program_of(child.id()).expect("the program starts");
    let caught = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().find(|l| l.starts_with("SigCgt:")).unwrap().to_owned()
    };
    let before = caught();
    let words = ["causal", "--executor", "sleep", "--progress", "progress", "-d", "30s", "-p", &pid.to_string()];
    let mut session = crate::support::whither();
    let session = session.args(words).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut killed = session.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while caught() == before && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_ne!(caught(), before, "no handler was put into the program");
    let run = attach(&["--progress", "progress"], 2, pid);
    assert_eq!(caught(), before, "{}", run.told());
    assert!(run.answer["notes"].to_string().contains("a killed session had left"), "{}", run.told());
    assert!(child.wait().unwrap().success());
}

fn by_default(target: &str, seconds: u32, words: &[&str]) -> Ran {
    let args = ["--progress", "progress", "--unit", "function", "--target", target, "--speedups", AMOUNTS];
    causal(&args, seconds, words)
}

/// Four threads on two cores. Delays that are spun keep cores from servers that would have had one, and there is no verdict; that is
/// seen without a word of the user's, and delays are slept from then on.
#[test]
fn k20_delays_that_keep_cores_are_slept_by_themselves() {
    need_root!();
    let _alone = alone();
    if !can_sleep() || !two_cores() {
        return;
    }
    let run = by_default("serve", 12, &["feeder"]);
    if run.spoilt() {
        return;
    }
    assert_eq!(run.answer["executor"], "sleep", "{}", run.told());
    let why = run.answer["executor_reason"].as_str().unwrap_or_default();
    assert!(why.starts_with("chosen: ") && why.contains("threads wait for cores"), "{why}");
    run.assert_curve("serve", line(0.2), SHORT);
    run.assert_verdict("serve", &["fix-this", "helps-until"]);
    let (low, high) = gain(&run, "serve");
    assert!(low < 0.06 && 0.06 < high, "{low} to {high} for a truth of 0.06; {}", run.told());
    // What was spun is told, and not part of the answer.
    let spun = run.answer["dropped"].as_array().and_then(|all| all.iter().find(|d| d["reason"] == "spun"));
    assert!(spun.is_some_and(|d| d["n"].as_u64() > Some(0)), "{}", run.told());
}

/// Threads that always wait for cores, and no longer for the delays: these stay where they are told best.
#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k10_threads_that_wait_anyway_are_no_reason_to_enter_the_program() {
    need_root!();
    let _alone = alone();
    let run = by_default("f", 8, &["over", "--set", "threads=4"]);
    if run.spoilt() {
        return;
    }
    assert_eq!(run.answer["executor"], "spin", "{}", run.told());
    run.assert_curve("f", line(0.6), SHORT);
    let (low, high) = gain(&run, "f");
    assert!(low < 0.18 && 0.18 < high, "{low} to {high} for a truth of 0.18; {}", run.told());
}

/// Bounds of the gain.
fn gain(run: &Ran, target: &str) -> (f64, f64) {
    let gain = &run.target(target)["gain"];
    let bound = |key: &str| gain[key].as_f64().unwrap_or_else(|| panic!("no gain; {}", run.told()));
    (bound("low"), bound("high"))
}

/// The feeder and its servers find cores for all of them on a larger machine.
#[allow(clippy::print_stdout, reason = "a skip must be seen")]
fn two_cores() -> bool {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cores != 2 {
        println!("SKIP: this machine has {cores} cores, the program lacks some on two");
    }
    cores == 2
}

/// A feeder that gains nothing and does no harm. Servers that wait for cores on which delays are spun made it look harmful.
#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k20_a_feeder_of_a_full_queue_harms_nobody() {
    need_root!();
    let _alone = alone();
    if !can_sleep() {
        return;
    }
    let args = ["--executor", "spin", "--progress", "progress", "--unit", "function", "--target", "feed"];
    let spun = causal(&[&args[..], &["--speedups", AMOUNTS]].concat(), 8, &["feeder"]);
    let (slept, chosen) = (slept("feed", 8, &["feeder"]), by_default("feed", 8, &["feeder"]));
    if spun.answer.is_object() {
        assert_eq!(spun.answer["executor_reason"], "as asked", "{}", spun.told());
    }
    for run in [&spun, &slept, &chosen] {
        if !run.spoilt() {
            assert!(!["contention", "fix-this", "helps-until"].contains(&run.verdict("feed")), "{}", run.told());
        }
    }
    assert_eq!(slept.answer["executor"], "sleep", "{}", slept.told());
}
