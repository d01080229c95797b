//! The tables are read by the real DuckDB, and the documented queries answer what was stored. Needs
//! a Python with DuckDB: `$WHITHER_DUCKDB_PYTHON` (see duckdb.sh beside this file), else `python3`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and tells what it skips")]

use crate::support::{WINDOW, meta, random_profile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use whither_store::calls::*;
use whither_store::causal::{CausalRun, DropReason, PointKind, PointVisits, ProgressPoint, Target, Unit, Window};
use whither_store::model::{EdgeSample, EdgeSource, ExactCount, ImageOffset, Profile, Way};
use whither_store::{
    CompactPolicy, Database, OnExisting, StoredFunction, StoredSymbols, calls_recording, causal_recording, compact,
};

/// `None` (told) without DuckDB.
fn python() -> Option<String> {
    let python = std::env::var("WHITHER_DUCKDB_PYTHON").unwrap_or_else(|_| "python3".into());
    let found = Command::new(&python).args(["-c", "import duckdb"]).output().is_ok_and(|o| o.status.success());
    if !found {
        println!("SKIPPED: {python} has no module duckdb; run crates/store/tests/duckdb.sh");
    }
    found.then_some(python)
}

fn sql_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sql")
}

fn query(python: &str, store: &Path, name: &str) -> Vec<Vec<String>> {
    let run = Command::new(python).arg(sql_dir().join("run.py")).arg(store).arg(name).output().unwrap();
    assert!(run.status.success(), "{name}: {}", String::from_utf8_lossy(&run.stderr));
    let text = String::from_utf8(run.stdout).unwrap();
    text.lines().map(|l| l.split('\t').map(str::to_owned).collect()).collect()
}

/// Two epochs; functions of 4 KiB in every image.
fn database(dir: &Path) -> (Database, Vec<Profile>) {
    let db = Database::open_or_create(&dir.join("db")).unwrap();
    let parts: Vec<Profile> = (0..4).map(|i| random_profile(i, 2000)).collect();
    for (epoch, hours) in parts.chunks(2).zip(0..) {
        let mut m = meta();
        m.start_ns += hours * 3_600_000_000_000;
        let mut writer = db.new_epoch(m).unwrap();
        epoch.iter().for_each(|p| drop(writer.append(p, WINDOW).unwrap()));
        writer.put_symbols(&symbols(&parts[0])).unwrap();
        writer.seal(WINDOW.1).unwrap();
    }
    (db, parts)
}

fn symbols(profile: &Profile) -> StoredSymbols {
    let function = |i: u64| whither_image::Function {
        start: ImageOffset(i << 12),
        size: if i == 3 { 0x800 } else { 0x1000 },
        name: format!("f{i}").into(),
        source: whither_image::NameSource::Symbol,
    };
    let of_image = |id| (0..4).map(move |i| StoredFunction { image: id, function: function(i) });
    StoredSymbols { funcs: profile.images.iter().flat_map(|i| of_image(i.id)).collect(), ..StoredSymbols::default() }
}

fn function_of(offset: u64) -> String {
    match offset >> 12 {
        3 if offset & 0xfff >= 0x800 => "?".into(),
        n if n < 4 => format!("f{n}"),
        _ => "?".into(),
    }
}

#[test]
fn documented_queries_answer_what_was_stored() {
    let Some(python) = python() else { return };
    let tmp = tempfile::tempdir().unwrap();
    let (db, parts) = database(tmp.path());
    for compacted in [false, true] {
        if compacted {
            assert_eq!(compact(db.path(), CompactPolicy::default()).unwrap().epochs, 2);
        }
        top_images(&python, db.path(), &parts);
        top_functions(&python, db.path(), &parts);
        epoch_diff(&python, db.path(), &parts);
        branches(&python, db.path(), &parts);
        exact(&python, db.path(), &parts, compacted);
        runs(&python, db.path(), &parts);
    }
}

fn top_images(python: &str, store: &Path, parts: &[Profile]) {
    let mut expect: BTreeMap<(String, String), u64> = BTreeMap::new();
    for p in parts {
        for s in &p.samples {
            let key = (p.event(s.event).name.clone(), p.image(s.image).path.clone());
            *expect.entry(key).or_default() += u64::from(s.count);
        }
    }
    let rows = query(python, store, "top_images.sql");
    let found = rows.iter().map(|r| ((r[0].clone(), r[1].clone()), r[2].parse().unwrap())).collect();
    assert_eq!(expect, found);
    let percent: f64 = rows.iter().map(|r| r[3].parse::<f64>().unwrap()).sum();
    assert!((percent - 200.0).abs() < 0.2, "two events of 100 % each: {percent}");
}

fn top_functions(python: &str, store: &Path, parts: &[Profile]) {
    let mut expect: BTreeMap<(String, String), u64> = BTreeMap::new();
    for p in parts {
        for s in p.samples.iter().filter(|s| p.event(s.event).name == "branch-misses") {
            let key = (p.image(s.image).path.clone(), function_of(s.offset.0));
            *expect.entry(key).or_default() += u64::from(s.count);
        }
    }
    let rows = query(python, store, "top_functions.sql");
    assert_eq!(rows.len(), 20);
    for r in rows {
        assert_eq!(expect[&(r[0].clone(), r[1].clone())], r[2].parse::<u64>().unwrap(), "{r:?}");
    }
}

fn epoch_diff(python: &str, store: &Path, parts: &[Profile]) {
    let share = |parts: &[Profile], path: &str| {
        let (mut part, mut all) = (0, 0);
        for p in parts {
            for s in p.samples.iter().filter(|s| p.event(s.event).name == "branch-misses") {
                all += s.weight();
                part += if p.image(s.image).path == path { s.weight() } else { 0 };
            }
        }
        100.0 * part as f64 / all as f64
    };
    let rows = query(python, store, "epoch_diff.sql");
    assert_eq!(rows.len(), 6);
    for r in rows {
        let [before, after] = [1, 2].map(|i: usize| r[i].parse::<f64>().unwrap());
        assert!((before - share(&parts[..2], &r[0])).abs() < 0.01, "{r:?}");
        assert!((after - share(&parts[2..], &r[0])).abs() < 0.01, "{r:?}");
    }
}

fn branches(python: &str, store: &Path, parts: &[Profile]) {
    let mut expect: BTreeMap<(String, u64), (u64, u64)> = BTreeMap::new();
    for p in parts {
        let told = |e: &&EdgeSample| matches!(e.way, Way::Fall | Way::Taken) && e.source == EdgeSource::Registers;
        for e in p.edges.iter().filter(told) {
            let (seen, taken) = expect.entry((p.image(e.image).path.clone(), e.branch.0)).or_default();
            *seen += u64::from(e.count);
            *taken += if e.way == Way::Taken { u64::from(e.count) } else { 0 };
        }
    }
    let rows = query(python, store, "branches.sql");
    assert_eq!(rows.len(), 20);
    for r in rows {
        let (seen, taken) = expect[&(r[0].clone(), r[1].parse().unwrap())];
        assert_eq!(r[2].parse::<u64>().unwrap(), seen);
        assert!((r[3].parse::<f64>().unwrap() - taken as f64 / seen as f64).abs() < 0.001, "{r:?}");
    }
}

fn runs(python: &str, store: &Path, parts: &[Profile]) {
    let mut expect: BTreeMap<(String, u64, u64), u64> = BTreeMap::new();
    for p in parts {
        for e in p.edges.iter().filter(|e| e.source != EdgeSource::Registers) {
            *expect.entry((p.image(e.image).path.clone(), e.pc.0, e.branch.0)).or_default() += u64::from(e.count);
        }
    }
    let rows = query(python, store, "runs.sql");
    assert_eq!(rows.len(), 20);
    for r in rows {
        let seen = expect[&(r[0].clone(), r[1].parse().unwrap(), r[2].parse().unwrap())];
        assert_eq!(r[3].parse::<u64>().unwrap(), seen);
    }
}

/// Rows of one segment, or of one epoch once it is compacted, are added up.
fn exact(python: &str, store: &Path, parts: &[Profile], compacted: bool) {
    let mut expect: Vec<(f64, String, u64, u64)> = Vec::new();
    for segments in parts.chunks(if compacted { 2 } else { 1 }) {
        let mut sums: BTreeMap<_, ExactCount> = BTreeMap::new();
        for p in segments {
            for e in &p.exact {
                sums.entry((p.image(e.image).path.clone(), e.offset, e.set, e.leads)).or_default().add(e);
            }
        }
        expect.extend(
            sums.into_iter()
                .filter(|(_, e)| e.hits > 0 && e.crowded * 20 < e.hits && e.hits_ns < e.enabled_ns)
                .map(|(k, e)| (e.hits as f64 * 1e9 / (e.enabled_ns - e.hits_ns) as f64, k.0, k.1.0, e.hits)),
        );
    }
    expect.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| (&a.1, a.2).cmp(&(&b.1, b.2))));
    let rows = query(python, store, "exact.sql");
    assert!(!rows.is_empty() && rows.len() == expect.len().min(20), "{rows:?}");
    for (r, e) in rows.iter().zip(expect) {
        assert_eq!((r[0].clone(), r[1].parse().unwrap(), r[2].parse().unwrap()), (e.1, e.2, e.3), "{r:?}");
        assert!((r[3].parse::<f64>().unwrap() - e.0).abs() <= 0.1 + 1e-6 * e.0, "{r:?} {}", e.0);
    }
}

/// `solve` calls `work` twice per round from one site, `main` once; a caller of another file has no name.
fn call_recording() -> CallRecording {
    let module = |path: &str| CallModule { path: path.into(), id: None, bias: 0, start: 0, end: 0x1000 };
    let point = |id: u32, name: &str| CallPoint {
        id,
        names: vec![name.into(), "alias".into()],
        module: 0,
        offset: u64::from(id) << 8,
        size: 64,
        patch: Some(PatchKind::Jump),
        state: PointState::On,
        entry_only: None,
        refused: None,
        values: vec![],
    };
    let frame =
        |module, offset, caller| CallFrame { kind: FrameKind::Caller, module, offset, caller, by_frame_pointer: false };
    let path = |id, point, frame, calls, wall_ns| CallPath {
        id,
        point,
        frame,
        parent: None,
        same: 0,
        folded: false,
        totals: PathTotals { calls, done: calls, wall_ns, ..PathTotals::default() },
        threads: vec![],
    };
    let snapshot = |rounds: u64| CallSnapshot {
        modules: vec![module("/bin/app"), module("/lib/other.so")],
        points: vec![point(1, "work"), point(2, "rest")],
        frames: vec![frame(0, 0x11, u32::MAX), frame(0, 0x25, 0), frame(1, 0x11, u32::MAX), frame(0, 0x29, 0)],
        paths: vec![
            path(10, 0, 0, rounds, 5 * rounds),
            path(11, 0, 1, 2 * rounds, 900 * rounds),
            path(12, 0, 3, rounds, 100 * rounds),
            path(13, 1, 2, 7, u64::MAX),
        ],
        ..CallSnapshot::default()
    };
    let name = |address, function: &str| CallName {
        module: "/bin/app".into(),
        address,
        place: CallPlace {
            function: function.into(),
            start: Some(0x10),
            positions: (1..3)
                .map(|line| CallPosition { function: function.into(), file: "a.c".into(), line })
                .collect(),
            ..CallPlace::default()
        },
    };
    CallRecording {
        epochs: [3, 4].map(|n| CallEpoch { name: n.to_string(), snapshot: snapshot(n) }).into(),
        names: vec![name(0x10, "main"), name(0x24, "solve"), name(0x28, "solve")],
        ..CallRecording::default()
    }
}

#[test]
fn call_paths_answer_who_calls_whom() {
    let Some(python) = python() else { return };
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("it's calls.wh");
    calls_recording::save(&dir, &call_recording(), OnExisting::Refuse).unwrap();
    let rows: Vec<String> = query(&python, &dir, "top_calls.sql").iter().map(|r| r.join(" ")).collect();
    let mut expect = Vec::new();
    for (epoch, rounds) in [(0, 3), (1, 4)] {
        expect.push(format!("{epoch} rest ? 7 {}", u64::MAX));
        expect.push(format!("{epoch} work solve {} {}", 3 * rounds, 1000 * rounds));
        expect.push(format!("{epoch} work main {rounds} {}", 5 * rounds));
    }
    assert_eq!(rows, expect);
}

/// One target made 0 and 50 % faster, a window each of 4 periods, and one that does not count.
fn causal_run() -> CausalRun {
    let window = |percent, period: i64, dropped| Window {
        percent,
        visits: vec![PointVisits { point: 0, visits: 5, last_virtual_ns: 4 * period, ..PointVisits::default() }],
        dropped,
        ..Window::default()
    };
    CausalRun {
        points: vec![ProgressPoint { name: "done".into(), kind: PointKind::Probe, end: None }],
        targets: vec![Target {
            unit: Unit::Line,
            name: "solve".into(),
            file: "a.c".into(),
            line: 7,
            path: vec![],
            aliases: vec![],
            module: "/bin/app".into(),
            image: None,
            ranges: vec![(16, 32)],
        }],
        windows: vec![
            window(0, 1000, None),
            window(50, 700, None),
            window(50, 900, None),
            window(50, 5, Some(DropReason::Steal)),
        ],
        ..CausalRun::default()
    }
}

#[test]
fn windows_answer_what_a_speed_up_would_buy() {
    let Some(python) = python() else { return };
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("causal.wh");
    causal_recording::save(&dir, &causal_run(), OnExisting::Refuse).unwrap();
    let rows: Vec<String> = query(&python, &dir, "causal_curve.sql").iter().map(|r| r.join(" ")).collect();
    assert_eq!(rows, ["solve 7 0 0 1 0.0", "solve 7 0 50 2 20.0"]);
}
