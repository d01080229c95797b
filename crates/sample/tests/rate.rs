//! A rate that changes while samples come: each weighs what it was taken with.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests: a panic is the verdict, a skip is told")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use whither_kernel::{clock, events};
use whither_sample::{Book, BookOptions, Chosen, Collector, Coverage, EdgeMode, Folding, StackMode};
use whither_store::model::Precision;

const OFTEN_NS: u64 = 200_000;
const SELDOM_NS: u64 = 20_000_000;

fn chosen() -> Chosen {
    let spec = events::parse("cpu-clock").unwrap();
    Chosen { spec, period: OFTEN_NS, precision: Precision::Skid(1), turns: 1, units_per_ns: 1.0 }
}

fn book(chosen: &Chosen) -> Book {
    let events = vec![chosen.event()];
    Book::new(BookOptions { events, folding: Folding::PerProcess, per_process: None, threads: false, slice_s: 1 })
}

/// Time of this process by its samples since the last cut, ns.
fn told(collector: &mut Collector, book: &mut Book) -> u64 {
    collector.drain(book);
    let (profile, _) = book.cut();
    let own = std::process::id();
    let of_us = profile.samples.iter().filter(|s| profile.processes[s.process.0 as usize].pid == own);
    of_us.map(|s| u64::from(s.count) * s.period).sum()
}

/// Samples every 20 ms are few, so the sum is right to a tenth. A hundred times as many from before, counted as such in the
/// milliseconds that a drain takes, would double it.
#[test]
fn samples_from_before_a_change_keep_their_weight() {
    let chosen = chosen();
    let mut book = book(&chosen);
    let all = std::slice::from_ref(&chosen);
    let mut collector = match Collector::bpf(all, &Coverage::System, StackMode::Off, EdgeMode::Off, false, &mut book) {
        Ok(collector) => collector,
        Err(e) if e.is_refusal() => {
            println!("SKIP: the whole system may not be sampled here: {e}");
            return;
        }
        Err(e) => panic!("{e}"),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let busy = Arc::clone(&stop);
    let busy = std::thread::spawn(move || {
        while !busy.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    collector.enable().unwrap();
    told(&mut collector, &mut book);
    let before = clock::own_cpu_ns();
    let mut sum = 0;
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(300));
        collector.change_time_period(SELDOM_NS, &mut book);
        std::thread::sleep(Duration::from_millis(600));
        collector.change_time_period(OFTEN_NS, &mut book);
        sum += told(&mut collector, &mut book);
    }
    let truth = clock::own_cpu_ns() - before;
    stop.store(true, Ordering::Relaxed);
    busy.join().unwrap();
    let ratio = sum as f64 / truth as f64;
    assert!((0.8..1.2).contains(&ratio), "{ratio:.2} times the CPU time");
}
