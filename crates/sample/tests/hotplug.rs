//! CPUs that come and go, played to running collectors: the list of CPUs on line is a value, so the
//! machine's own CPUs stay as they are while events are really closed and opened.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests: a panic is the verdict, a skip is told")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use whither_kernel::{events, proc};
use whither_sample::{Book, BookOptions, Chosen, Collector, Coverage, EdgeMode, Folding, SampleError, StackMode};
use whither_store::model::{Precision, Rate};

fn chosen() -> Chosen {
    let spec = events::parse("cpu-clock").unwrap();
    Chosen { spec, period: 500_000, precision: Precision::Skid(1), turns: 1, units_per_ns: 1.0 }
}

fn book(chosen: &Chosen) -> Book {
    Book::new(BookOptions {
        events: vec![chosen.event()],
        folding: Folding::PerProcess,
        per_process: None,
        threads: false,
        slice_s: 1,
    })
}

/// Keeps every CPU busy until dropped, so that each has samples to give.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn all(cpus: &[u32]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        for &cpu in cpus {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut set = rustix::thread::CpuSet::new();
                set.set(cpu as usize);
                rustix::thread::sched_setaffinity(None, &set).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(stop)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Accounts of the next 300 ms.
fn accounts(collector: &mut Collector, book: &mut Book) -> Vec<Rate> {
    collector.drain(book);
    collector.account(book);
    book.cut();
    std::thread::sleep(Duration::from_millis(300));
    collector.drain(book);
    collector.account(book);
    book.cut().0.rates
}

fn delivered(rates: &[Rate], cpu: u32) -> u64 {
    rates.iter().filter(|r| r.cpu == cpu).map(|r| r.delivered).sum()
}

type Open = fn(&[Chosen], &Coverage, StackMode, &mut Book) -> Result<Collector, SampleError>;

fn check(open: Open) {
    let cpus = proc::online_cpus();
    let [first, .., last] = cpus[..] else {
        println!("SKIP: one CPU alone cannot leave");
        return;
    };
    let chosen = chosen();
    let mut book = book(&chosen);
    let mut collector = match open(std::slice::from_ref(&chosen), &Coverage::System, StackMode::Off, &mut book) {
        Ok(collector) => collector,
        Err(e) if e.is_refusal() => {
            println!("SKIP: the whole system may not be sampled here: {e}");
            return;
        }
        Err(e) => panic!("{e}"),
    };
    let _busy = Busy::all(&cpus);
    collector.enable().unwrap();
    let before = accounts(&mut collector, &mut book);
    assert!(delivered(&before, first) > 50 && delivered(&before, last) > 50, "{before:?}");

    let rest: Vec<u32> = cpus.iter().copied().filter(|c| *c != last).collect();
    let told = collector.follow_cpus(&rest, &mut book);
    assert!(told.len() == 1 && told[0].contains(&format!("CPU {last} went off line")), "{told:?}");
    let without = accounts(&mut collector, &mut book);
    assert_eq!(delivered(&without, last), 0, "its events are closed");
    assert!(delivered(&without, first) > 50, "the others go on: {without:?}");
    let skipped: u64 = without.iter().filter(|r| r.cpu == last).map(|r| r.skipped).sum();
    assert_eq!(skipped, 0, "nothing was to be expected of it");

    let told = collector.follow_cpus(&cpus, &mut book);
    assert!(told.len() == 1 && told[0].contains(&format!("CPU {last} came on line")), "{told:?}");
    let after = accounts(&mut collector, &mut book);
    assert!(delivered(&after, last) > 50 && delivered(&after, first) > 50, "{after:?}");
    assert!(collector.follow_cpus(&cpus, &mut book).is_empty(), "nothing changed since");
}

#[test]
fn bpf_follows_cpus_that_come_and_go() {
    check(|chosen, coverage, stacks, book| Collector::bpf(chosen, coverage, stacks, EdgeMode::Off, false, book));
}

#[test]
fn rings_follow_cpus_that_come_and_go() {
    check(|chosen, coverage, stacks, book| Collector::ring(chosen, coverage, stacks, EdgeMode::Off, None, book));
}

#[test]
fn a_cpu_that_does_not_exist_is_refused_and_told() {
    let chosen = chosen();
    let mut book = book(&chosen);
    let open = Collector::bpf(
        std::slice::from_ref(&chosen),
        &Coverage::System,
        StackMode::Off,
        EdgeMode::Off,
        false,
        &mut book,
    );
    let mut collector = match open {
        Ok(collector) => collector,
        Err(e) if e.is_refusal() => {
            println!("SKIP: the whole system may not be sampled here: {e}");
            return;
        }
        Err(e) => panic!("{e}"),
    };
    collector.enable().unwrap();
    let mut cpus = proc::online_cpus();
    cpus.push(4000);
    let told = collector.follow_cpus(&cpus, &mut book);
    assert!(told.len() == 1 && told[0].starts_with("CPU 4000 came on line meanwhile and is not sampled: "), "{told:?}");
    assert!(delivered(&accounts(&mut collector, &mut book), cpus[0]) > 0, "the others go on");
}
