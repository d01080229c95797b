//! Samples that come through perf rings, where BPF is refused or not wanted: they stand for as much time as passed, for
//! processes that fork, on CPUs that are idle, and for events that no period keeps to a rate.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::support::{Recording, alone, need_root, record, record_system};
use serde_json::Value;
use std::process::{Command, Stdio};

fn main_event(run: &Recording) -> Value {
    run.prof(&["--all"]).0["provenance"]["events"][0].clone()
}

/// One CPU's worth of work: the parent waits while each child runs.
const TAKING_TURNS: &str = "
import os, time
def spin(seconds):
    end, n = time.process_time() + seconds, 0
    while time.process_time() < end:
        for i in range(200): n += i
end = time.monotonic() + 3
while time.monotonic() < end:
    spin(0.01)
    if (child := os.fork()) == 0:
        spin(0.01)
        os._exit(0)
    os.waitpid(child, 0)";

/// The kernel swaps the events of a process with those that its child has inherited, whose period is that of their birth.
#[test]
fn a_process_that_forks_is_not_counted_twice() {
    need_root!();
    let _alone = alone();
    let mut target = Command::new("/usr/bin/python3").args(["-c", TAKING_TURNS]).stdout(Stdio::null()).spawn().unwrap();
    let pid = target.id().to_string();
    // The budget sets the rate when rings are about to be opened.
    let run = record(&["--backend", "ring", "--budget", "3%", "-p", &pid], &["sleep", "2"]);
    assert!(target.wait().unwrap().success());
    let answer = run.prof(&["--all"]).0;
    let weight = answer["provenance"]["events"][0]["weight"].as_f64().unwrap() / 1e9;
    let seconds = answer["provenance"]["seconds"].as_f64().unwrap();
    assert!((0.5 * seconds..1.1 * seconds).contains(&weight), "{weight} s of CPU time in {seconds} s");
}

#[test]
fn idle_cpus_are_counted_apart() {
    need_root!();
    let _alone = alone();
    let run = record_system(&["--backend", "ring"], &["sleep", "2"]);
    let event = main_event(&run);
    let (samples, idle) = (event["samples"].as_u64().unwrap(), event["idle"].as_u64().unwrap());
    assert!(idle > samples, "{idle} idle and {samples} others on a machine that slept");
}

#[test]
fn a_rate_holds_for_page_faults() {
    need_root!();
    let _alone = alone();
    let program = "import mmap, resource\nfor _ in range(1500):\n  m = mmap.mmap(-1, 50 * 4096)\n  \
        for i in range(50): m[i * 4096] = 1\n  m.close()\n\
        print('faults', resource.getrusage(resource.RUSAGE_SELF).ru_minflt)";
    let args = ["--backend", "ring", "-e", "page-faults", "--rate", "500"];
    let run = record(&args, &["/usr/bin/python3", "-c", program]);
    let (truth, event) = (run.truth().number("faults"), main_event(&run));
    let (samples, weight) = (event["samples"].as_f64().unwrap(), event["weight"].as_f64().unwrap());
    assert!(samples < truth / 20.0, "{samples} samples of {truth} faults");
    assert!((weight / truth - 1.0).abs() < 0.1, "{weight} of {truth}");
}
