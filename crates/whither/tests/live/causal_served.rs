//! `whither causal -p` on a server whose clients, other programs on this machine, ask over loopback TCP (K27 of
//! workloads/causal/EXPECTED.md): what a faster server would gain is told, though nobody of the program wakes its threads.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::causal_agent::program_of;
use crate::causal_live::{AMOUNTS, Ran, attach, start};
use crate::support::{alone, need_root};
use std::time::Duration;

/// Ten seconds of a server with such clients; `None`, said, where others or too few cores spoilt them.
fn served(mode: &str, more: &[&str]) -> Option<Ran> {
    if !two_cores() {
        return None;
    }
    let mut child = start(&["served", "--mode", mode, "--seconds", "14"]);
    std::thread::sleep(Duration::from_millis(500));
    let pid = program_of(child.id()).expect("the program starts");
    let args = ["--progress", "progress", "--unit", "function", "-t", "lookup", "--speedups", AMOUNTS];
    let run = attach(&[&args[..], more].concat(), 10, pid);
    assert!(child.wait().is_ok_and(|status| status.success()));
    (!run.spoilt()).then_some(run)
}

/// A client that polls has a core for itself.
#[allow(clippy::print_stdout, reason = "a skip must be seen")]
fn two_cores() -> bool {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cores < 2 {
        println!("SKIP: one core is not enough for a server and a client that never sleeps");
    }
    cores >= 2
}

/// The gain at 30 % is that of a round of so many milliseconds, 1.2 of them in `lookup`.
fn assert_gain(run: &Ran, round_ms: f64) {
    let gain = &run.target("lookup")["gain"];
    let number = |key: &str| 100.0 * gain[key].as_f64().unwrap_or_else(|| panic!("no gain; {}", run.told()));
    let (y, low, high, truth) = (number("y"), number("low"), number("high"), 30.0 * 1.2 / round_ms);
    assert!(
        (y - truth).abs() <= truth / 3.0 && low > 0.0,
        "{y:.1} ({low:.1} to {high:.1}) for {truth:.1}; {}",
        run.told()
    );
}

/// Whoever looks at his socket without sleeping is woken by nobody, so the socket itself has to tell when he could ask. Of such
/// requests "do not bother" was told for all that the server does.
#[test]
fn k27_a_client_that_polls_asks_earlier() {
    need_root!();
    let _alone = alone();
    let Some(run) = served("poll", &[]) else { return };
    // From outside nothing tells him from one who asks at times of his own, but the worker has hardly any time to spare.
    run.assert_verdict("lookup", &["fix-this", "helps-until", "depends-on-load"]);
    assert_gain(&run, 2.05);
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k27_a_client_that_sleeps_after_each_answer_asks_earlier() {
    need_root!();
    let _alone = alone();
    let Some(run) = served("think", &["--load", "closed"]) else { return };
    run.assert_verdict("lookup", &["fix-this", "helps-until"]);
    assert_gain(&run, 3.1);
}

/// Clients that sleep until their answers are there are known by who woke them.
#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k27_several_clients_ask_earlier() {
    need_root!();
    let _alone = alone();
    let Some(run) = served("many", &["--load", "closed"]) else { return };
    run.assert_verdict("lookup", &["fix-this", "helps-until"]);
    assert_gain(&run, 2.05);
}

/// A new connection tells nothing of the answer that it waited for, but before it the old one ends. The kernel wakes who waits for that
/// before it tells of any data: +2 to +7 were told for 17, twice as "fix this".
#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k27_who_ends_a_connection_after_its_answer_asks_earlier() {
    need_root!();
    let _alone = alone();
    let Some(run) = served("fresh", &["--load", "closed"]) else { return };
    run.assert_verdict("lookup", &["fix-this", "helps-until"]);
    assert_gain(&run, 2.1);
}

/// A datagram of anybody tells nothing of the answer that it waited for.
#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k27_what_nobody_knows_is_no_reason_not_to_bother() {
    need_root!();
    let _alone = alone();
    let Some(run) = served("udp", &["--load", "closed"]) else { return };
    let row = run.target("lookup");
    let high = row["gain"]["high"].as_f64().unwrap_or_else(|| panic!("no gain; {}", run.told()));
    assert!(!["do-not-bother", "contention"].contains(&run.verdict("lookup")), "{row}; {}", run.told());
    assert!(high > 0.16, "up to {high} for a truth of 0.17; {}", run.told());
}
