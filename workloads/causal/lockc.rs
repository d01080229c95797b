//! K4 in Rust: threads with a critical section (1 ms) under std's `Mutex` and a private one (2 ms). With two threads
//! on two cores: critical s/3, private min(2s/3, 1/3). Plain rustc, no crate; options: `--seconds N`,
//! `--scale PART=X`, `--set threads=N`, `--per-ms N`.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

static VISITS: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn critical(steps: u64) -> u64 {
    (0..steps).fold(steps, |x, _| black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11)))
}

#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn apart(steps: u64) -> u64 {
    (0..steps).fold(steps, |x, _| black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(13)))
}

#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn progress() {
    // The kernel cannot probe an instruction with a lock prefix: another one comes first.
    VISITS.fetch_add(black_box(1), Relaxed);
}

/// Steps per millisecond: the fastest of many tries.
fn measure() -> u64 {
    let steps = 4_000_000;
    let took = |_| {
        let start = Instant::now();
        black_box(apart(steps));
        start.elapsed().as_nanos() as u64
    };
    steps * 1_000_000 / (0..8).map(took).min().unwrap().max(1)
}

fn main() {
    let (mut seconds, mut per_ms, mut threads, mut scale) = (2.0, 0, 2, [1.0, 1.0]);
    let words: Vec<String> = std::env::args().skip(1).collect();
    for pair in words.chunks(2) {
        match (pair[0].as_str(), pair.get(1).map(|v| v.split_once('=').unwrap_or((v, "")))) {
            ("--seconds", Some((v, _))) => seconds = v.parse().unwrap(),
            ("--per-ms", Some((v, _))) => per_ms = v.parse().unwrap(),
            ("--set", Some(("threads", v))) => threads = v.parse().unwrap(),
            ("--scale", Some(("critical", v))) => scale[0] = v.parse().unwrap(),
            ("--scale", Some(("apart", v))) => scale[1] = v.parse().unwrap(),
            _ => panic!("usage: lockc [--seconds N] [--scale critical|apart=X] [--set threads=N] [--per-ms N]"),
        }
    }
    per_ms = if per_ms == 0 { measure() } else { per_ms };
    let steps = [1.0, 2.0].map(|ms: f64| ms * per_ms as f64);
    let lock = Mutex::new(0_u64);
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while Instant::now() < end {
                    *lock.lock().unwrap() ^= black_box(critical((steps[0] * scale[0]) as u64));
                    black_box(apart((steps[1] * scale[1]) as u64));
                    progress();
                }
            });
        }
    });
    let visits = VISITS.load(Relaxed);
    let period = start.elapsed().as_nanos() as f64 / visits.max(1) as f64;
    println!("visits {visits}\nperiod_ns {period:.0}\nrate {:.3}\nper_ms {per_ms}", 1e9 / period);
}
