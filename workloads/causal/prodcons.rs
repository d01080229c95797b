//! K3 in Rust: produce 1 ms, consume 0.6 ms, a queue of 16 under std's `Mutex` and `Condvar`, which sleep by
//! direct futex calls that no preloaded library sees. produce: min(s, 0.4); consume: 0. Plain rustc, no crate;
//! options: `--seconds N`, `--scale PART=X`, `--per-ms N`.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

const ROOM: usize = 16;
static VISITS: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn produce(steps: u64) -> u64 {
    (0..steps).fold(steps, |x, _| black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11)))
}

#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn consume(steps: u64) -> u64 {
    (0..steps).fold(steps, |x, _| black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(13)))
}

#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn progress() {
    // The kernel cannot probe an instruction with a lock prefix: another one comes first.
    VISITS.fetch_add(black_box(1), Relaxed);
}

#[derive(Default)]
struct Queue {
    entries: Mutex<VecDeque<Option<u64>>>,
    not_full: Condvar,
    not_empty: Condvar,
}

impl Queue {
    fn put(&self, entry: Option<u64>) {
        let mut entries = self.entries.lock().unwrap();
        while entries.len() == ROOM {
            entries = self.not_full.wait(entries).unwrap();
        }
        entries.push_back(entry);
        self.not_empty.notify_one();
    }

    fn get(&self) -> Option<u64> {
        let mut entries = self.entries.lock().unwrap();
        while entries.is_empty() {
            entries = self.not_empty.wait(entries).unwrap();
        }
        self.not_full.notify_one();
        entries.pop_front().unwrap()
    }
}

/// Steps per millisecond: the fastest of many tries.
fn measure() -> u64 {
    let steps = 4_000_000;
    let took = |_| {
        let start = Instant::now();
        black_box(produce(steps));
        start.elapsed().as_nanos() as u64
    };
    steps * 1_000_000 / (0..8).map(took).min().unwrap().max(1)
}

fn main() {
    let (mut seconds, mut per_ms, mut scale) = (2.0, 0, [1.0, 1.0]);
    let words: Vec<String> = std::env::args().skip(1).collect();
    for pair in words.chunks(2) {
        match (pair[0].as_str(), pair.get(1).map(|v| v.split_once('=').unwrap_or((v, "")))) {
            ("--seconds", Some((v, _))) => seconds = v.parse().unwrap(),
            ("--per-ms", Some((v, _))) => per_ms = v.parse().unwrap(),
            ("--scale", Some(("produce", v))) => scale[0] = v.parse().unwrap(),
            ("--scale", Some(("consume", v))) => scale[1] = v.parse().unwrap(),
            _ => panic!("usage: prodcons [--seconds N] [--scale produce|consume=X] [--per-ms N]"),
        }
    }
    per_ms = if per_ms == 0 { measure() } else { per_ms };
    let steps = [1.0, 0.6].map(|ms: f64| ms * per_ms as f64);
    let queue = Queue::default();
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let (mut first, mut last) = (None, end);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while Instant::now() < end {
                queue.put(Some(black_box(produce((steps[0] * scale[0]) as u64))));
            }
            queue.put(None);
        });
        while queue.get().is_some() {
            black_box(consume((steps[1] * scale[1]) as u64));
            progress();
            last = Instant::now();
            first.get_or_insert(last);
        }
    });
    let visits = VISITS.load(Relaxed);
    let period = (last - first.unwrap_or(last)).as_nanos() as f64 / (visits.max(2) - 1) as f64;
    println!("visits {visits}\nperiod_ns {period:.0}\nrate {:.3}\nper_ms {per_ms}", 1e9 / period);
}
