//! `whither causal --executor sleep`: delays that are slept give the curves that spun ones give, and a program that cannot
//! stand interrupted system calls does not notice them.

#![allow(clippy::unwrap_used, reason = "tests")]

mod causal_live;
mod support;
use causal_live::{AMOUNTS, Ran, SHORT, causal, knee};
use support::{alone, need_root};

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

/// A feeder that gains nothing and does no harm. Servers that wait for cores on which delays are spun made it look harmful.
#[test]
fn k20_a_feeder_of_a_full_queue_harms_nobody() {
    need_root!();
    let _alone = alone();
    if !can_sleep() {
        return;
    }
    let args = ["--progress", "progress", "--unit", "function", "--target", "feed", "--speedups", AMOUNTS];
    let (spun, slept) = (causal(&args, 8, &["feeder"]), slept("feed", 8, &["feeder"]));
    for run in [&spun, &slept] {
        if !run.spoilt() {
            assert!(!["contention", "fix-this", "helps-until"].contains(&run.verdict("feed")), "{}", run.told());
        }
    }
    assert_eq!(slept.answer["executor"], "sleep", "{}", slept.told());
}
