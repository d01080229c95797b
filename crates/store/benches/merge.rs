//! Speed of merging and loading on generated samples, one line per figure.
//!
//! `cargo bench -p whither-store --bench merge`. Under `cargo test` it only checks that it runs.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss, reason = "a program for developers")]

use std::time::Instant;
use whither_store::merge::{into_run, merge_runs};
use whither_store::model::{
    EpochMeta, Event, EventIx, EventUnit, IdKind, Image, ImageId, ImageIx, ImageKind, ImageOffset, Precision, Process,
    ProcessIx, Profile, Sample,
};
use whither_store::{CompactPolicy, Database, Selection, compact, load};

const IMAGES: u64 = 200;

fn main() {
    let quick = !std::env::args().any(|a| a == "--bench");
    let (runs, rows) = if quick { (4, 1_000) } else { (64, 150_000) };
    merge_speed(runs, rows);
    database_speed(runs, rows);
}

fn merge_speed(runs: u64, rows: usize) {
    let runs: Vec<Vec<Sample>> = (0..runs).map(|seed| into_run(samples(seed, rows))).collect();
    let total: usize = runs.iter().map(Vec::len).sum();
    let threads = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let start = Instant::now();
    let merged = threads.install(|| merge_runs(runs));
    report("merge, one core", total, start);
    assert!(merged.is_sorted());
}

fn database_speed(epochs: u64, rows: usize) {
    let tmp = tempfile::tempdir().unwrap();
    let db = Database::open_or_create(&tmp.path().join("db")).unwrap();
    let start = Instant::now();
    let mut total = 0;
    for i in 0..epochs {
        let start_ns = 1_700_000_000_000_000_000 + i * 3_600_000_000_000;
        let meta = EpochMeta { host: "bench".into(), start_ns, slice_s: 60, ..EpochMeta::default() };
        let mut writer = db.new_epoch(meta).unwrap();
        for seed in [i, i + 1] {
            total += writer.append(&profile(seed, rows), (start_ns, start_ns + 60_000_000_000)).unwrap().rows as usize;
        }
        writer.seal(start_ns + 3_600_000_000_000).unwrap();
    }
    report("append (fsync included)", total, start);
    let bytes: u64 = db.epochs().unwrap().0.iter().map(|e| e.bytes).sum();
    println!("{:<28} {:.2} B/row", "size sealed", bytes as f64 / total as f64);
    let start = Instant::now();
    let done = compact(db.path(), CompactPolicy::default()).unwrap();
    report("compact", done.rows.0 as usize, start);
    let one = [db.epochs().unwrap().0[0].path.clone()];
    let start = Instant::now();
    let loaded = load(&one, &Selection::default()).unwrap();
    report("load one epoch", loaded.profile.samples.len(), start);
    let start = Instant::now();
    let loaded = load(&[db.path().to_owned()], &Selection::default()).unwrap();
    report("load the database", done.rows.1 as usize, start);
    assert_eq!(loaded.problems, []);
}

fn report(what: &str, rows: usize, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    println!("{what:<28} {rows:>10} rows {:>9.1} ms {:>7.1} M rows/s", seconds * 1e3, rows as f64 / seconds / 1e6);
}

/// Rows as sampling gives them: few hot places, many cold ones, counts mostly 1.
fn samples(seed: u64, rows: usize) -> Vec<Sample> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut roll = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    };
    let row = |_| Sample {
        image: ImageIx((roll(IMAGES) * roll(IMAGES) / IMAGES) as u32),
        event: EventIx(0),
        process: ProcessIx((roll(8) * roll(8) / 8) as u32),
        tid: 0,
        slice: 1_700_000_000,
        offset: ImageOffset(4 * (roll(1 << 12) * roll(1 << 12) / 64)),
        period: 192_307,
        count: 1 + (roll(16) / 15) as u32,
    };
    (0..rows).map(row).collect()
}

fn profile(seed: u64, rows: usize) -> Profile {
    let image = |n: u64| {
        let mut id = [0; 20];
        id[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        let path = format!("/usr/lib/lib{n}.so");
        Image { id: ImageId(id), id_kind: IdKind::BuildId, kind: ImageKind::Elf, path, segments: Vec::new(), size: 1 }
    };
    let process = |key: u64| Process {
        key,
        pid: 0,
        start_ns: 0,
        comm: format!("c{key}"),
        exe: String::new(),
        cgroup: String::new(),
    };
    Profile {
        events: vec![Event { name: "cpu-clock".into(), unit: EventUnit::Nanoseconds, precision: Precision::Skid(1) }],
        images: (0..IMAGES).map(image).collect(),
        processes: (0..8).map(process).collect(),
        samples: samples(seed, rows),
        ..Profile::default()
    }
}
