//! Walks that end in code which is not prepared: the collector is told at once.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests: a panic is the verdict, a skip is told")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use whither_kernel::events;
use whither_sample::{Book, BookOptions, Chosen, Collector, Coverage, EdgeMode, Folding, StackMode};
use whither_store::model::Precision;

/// Nobody waits as long as this for a walk that samples of every millisecond begin.
const LONG: Duration = Duration::from_secs(5);

#[test]
fn who_waits_is_woken_by_a_walk_into_new_code() {
    let spec = events::parse("cpu-clock").unwrap();
    let chosen = Chosen { spec, period: 1_000_000, precision: Precision::Skid(1), turns: 1, units_per_ns: 1.0 };
    let options = BookOptions {
        events: vec![chosen.event()],
        folding: Folding::PerProcess,
        per_process: None,
        threads: false,
        slice_s: 1,
    };
    let mut book = Book::new(options);
    let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
    let (all, of) = (std::slice::from_ref(&chosen), Coverage::Processes(vec![child.id()]));
    let told = match Collector::bpf(all, &of, StackMode::Off, EdgeMode::Walks, false, &mut book) {
        Ok(mut collector) if collector.walks() => {
            collector.enable().unwrap();
            let begun = Instant::now();
            Some((collector.wait(LONG), begun.elapsed()))
        }
        Ok(_) => None,
        Err(e) if e.is_refusal() => None,
        Err(e) => panic!("{e}"),
    };
    child.kill().unwrap();
    child.wait().unwrap();
    let Some((woken, after)) = told else { return println!("SKIP: there are no walks here") };
    assert!(woken && after < LONG, "{after:?}");
}
