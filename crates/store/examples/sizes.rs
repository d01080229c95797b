//! Bytes per row and speed of the store on recorded samples.
//!
//! Reads lines `image<TAB>offset<TAB>pid<TAB>tid<TAB>comm<TAB>minute<TAB>count` (see
//! docs/reference/schema.md for how such a file is made from a perf.data) and prints what they take.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for developers")]

use std::collections::{HashMap, HashSet};
use std::time::Instant;
use whither_store::model::*;
use whither_store::{CompactPolicy, EpochWriter, OnExisting, Selection, compact, load};

fn main() {
    let text = std::fs::read_to_string(std::env::args().nth(1).expect("usage: sizes FILE.tsv")).unwrap();
    for (name, fold) in [("one process", 0), ("by command", 1), ("by pid", 2)] {
        let profile = profile(&text, fold);
        let places: HashSet<_> = profile.samples.iter().map(|s| (s.image, s.offset)).collect();
        println!("{name}: {} places", places.len());
        measure(&profile, places.len());
    }
}

fn measure(profile: &Profile, places: usize) {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("run.wh");
    let meta = EpochMeta { host: "h".into(), slice_s: 60, ..EpochMeta::default() };
    let mut writer = EpochWriter::create(&dir, meta, OnExisting::Refuse).unwrap();
    let start = Instant::now();
    let info = writer.append(profile, (0, 60)).unwrap();
    let took = start.elapsed();
    println!("  append {took:.1?}");
    show("sealed", &info.path, info.rows, places);
    let start = Instant::now();
    let loaded = load(std::slice::from_ref(&dir), &Selection::default()).unwrap();
    println!("  load {:.1?} ({} rows)", start.elapsed(), loaded.profile.samples.len());
    writer.append(profile, (0, 60)).unwrap();
    writer.append(profile, (0, 60)).unwrap();
    drop(writer);
    let start = Instant::now();
    let done = compact(&dir, CompactPolicy::default()).unwrap();
    let rate = done.rows.0 as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("  compact {:.1?} {rate:.1} M rows/s", start.elapsed());
    show("compacted", &dir.join("seg-000001-000003"), done.rows.1, places);
}

fn show(what: &str, segment: &std::path::Path, rows: u64, places: usize) {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let path = segment.join("samples.parquet");
    let bytes = std::fs::metadata(&path).unwrap().len();
    println!(
        "  {what}: {rows} rows, {bytes} B, {:.2} B/row, {:.2} B/place",
        bytes as f64 / rows as f64,
        bytes as f64 / places as f64
    );
    let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
    let mut sizes: HashMap<String, i64> = HashMap::new();
    for group in reader.metadata().row_groups() {
        for column in group.columns() {
            *sizes.entry(column.column_path().string()).or_default() += column.compressed_size();
        }
    }
    let mut sizes: Vec<_> = sizes.into_iter().collect();
    sizes.sort();
    println!("    {sizes:?}");
}

fn profile(text: &str, fold: u8) -> Profile {
    let mut p = Profile {
        events: vec![Event { name: "cpu-clock".into(), unit: EventUnit::Nanoseconds, precision: Precision::Skid(1) }],
        ..Profile::default()
    };
    let (mut images, mut processes) = (HashMap::new(), HashMap::new());
    for line in text.lines() {
        let f: Vec<&str> = line.split('\t').collect();
        let image = *images.entry(f[0].to_owned()).or_insert_with(|| {
            let id = ImageId(hash(f[0]));
            p.images.push(Image {
                id,
                id_kind: IdKind::BuildId,
                kind: ImageKind::Elf,
                path: f[0].into(),
                segments: vec![],
                size: 0,
            });
            p.images.len() as u32 - 1
        });
        let (pid, comm) = match fold {
            0 => (0, "all"),
            1 => (0, f[4]),
            _ => (f[2].parse().unwrap(), f[4]),
        };
        let process = *processes.entry((pid, comm.to_owned())).or_insert_with(|| {
            let key = process_key("h", pid, 0, 0, comm, "");
            p.processes.push(Process {
                key,
                pid,
                start_ns: 0,
                comm: comm.into(),
                exe: String::new(),
                cgroup: String::new(),
            });
            p.processes.len() as u32 - 1
        });
        p.samples.push(Sample {
            image: ImageIx(image),
            event: EventIx(0),
            process: ProcessIx(process),
            tid: 0,
            slice: 60 * f[5].parse::<u32>().unwrap(),
            offset: ImageOffset(f[1].parse().unwrap()),
            period: 192_307,
            count: f[6].parse().unwrap(),
        });
    }
    p
}

fn hash(text: &str) -> [u8; 20] {
    let mut out = [0; 20];
    for (i, b) in out.iter_mut().enumerate() {
        *b = (process_key(text, i as u32, 0, 0, "", "") >> 24) as u8;
    }
    out
}
