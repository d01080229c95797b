//! 2: Rust panics caught behind 1 and 30 probed frames, on the main thread and on others, a panic in
//! drop, and values dropped by unwinding that call probed functions.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static SHALLOW: AtomicU64 = AtomicU64::new(0);
static DEEP: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

struct Guard<'a>(&'a AtomicU64, bool);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        probed_drop(self.0);
        if self.1 && !std::thread::panicking() {
            panic!("in drop");
        }
    }
}

#[inline(never)]
#[unsafe(no_mangle)]
fn probed_drop(sum: &AtomicU64) {
    DROPPED.fetch_add(1, Relaxed);
    sum.fetch_add(1, Relaxed);
}

#[inline(never)]
#[unsafe(no_mangle)]
fn probed_shallow(x: u64, sum: &AtomicU64) -> u64 {
    SHALLOW.fetch_add(1, Relaxed);
    let _guard = Guard(sum, x % 5 == 0);
    if x % 3 == 0 {
        panic!("{x}");
    }
    std::hint::black_box(x * 2)
}

#[inline(never)]
#[unsafe(no_mangle)]
fn probed_deep(left: u64, sum: &AtomicU64) -> u64 {
    DEEP.fetch_add(1, Relaxed);
    let _guard = Guard(sum, false);
    std::hint::black_box(if left == 0 { probed_shallow(3, sum) } else { probed_deep(left - 1, sum) } + 1)
}

fn round() -> (u64, u64) {
    let (sum, mut caught) = (AtomicU64::new(0), 0);
    for i in 0..300 {
        match catch_unwind(AssertUnwindSafe(|| probed_shallow(i, &sum))) {
            Ok(v) => caught += v,
            Err(_) => caught += 1000,
        }
    }
    for _ in 0..20 {
        caught += u64::from(catch_unwind(AssertUnwindSafe(|| probed_deep(30, &sum))).is_err());
    }
    (caught, sum.into_inner())
}

fn main() {
    std::panic::set_hook(Box::new(|_| ()));
    let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(round)).collect();
    println!("{:?}", round());
    for thread in threads {
        println!("{:?}", thread.join().unwrap());
    }
    let died = std::thread::spawn(|| probed_shallow(9, &AtomicU64::new(0))).join();
    println!("{}", died.is_err());
    if let Some(path) = std::env::var_os("WHITHER_TRUTH") {
        let mut file = std::fs::File::options().append(true).create(true).open(path).unwrap();
        for (name, calls) in [("probed_shallow", &SHALLOW), ("probed_deep", &DEEP), ("probed_drop", &DROPPED)] {
            writeln!(file, "{name} {} exact", calls.load(Relaxed)).unwrap();
        }
    }
}
