//! What is appended is what is loaded: rows, names, stacks, rates, meta; filters; merging in any order.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::{WINDOW, facts, meta, process, random_profile};
use std::path::PathBuf;
use whither_store::model::{EdgeSample, EventIx, ExactCount, LapCount, ProcessIx, Profile, Sample, ThreadName};
use whither_store::{Database, EpochWriter, Loaded, OnExisting, Selection, StoreError, load};

fn write(dir: &std::path::Path, parts: &[Profile]) -> EpochWriter {
    let mut writer = EpochWriter::create(dir, meta(), OnExisting::Refuse).unwrap();
    for part in parts {
        writer.append(part, WINDOW).unwrap();
    }
    writer
}

fn load_all(path: PathBuf) -> Loaded {
    let loaded = load(&[path], &Selection::default()).unwrap();
    assert_eq!(loaded.problems, []);
    loaded
}

#[test]
fn one_part_comes_back_as_it_was() {
    let tmp = tempfile::tempdir().unwrap();
    let part = random_profile(1, 5000);
    write(&tmp.path().join("run.wh"), std::slice::from_ref(&part)).seal(WINDOW.1).unwrap();
    let loaded = load_all(tmp.path().join("run.wh"));
    assert_eq!(facts(&loaded.profile), facts(&part));
    let names: Vec<_> = loaded.profile.events.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["cycles", "branch-misses"], "columns stay in the order asked for");
    assert!(loaded.profile.samples.is_sorted());
    assert_eq!(loaded.profile.epochs.len(), 1);
    assert_eq!(loaded.profile.epochs[0].host, "testhost");
    assert_eq!(loaded.profile.epochs[0].end_ns, WINDOW.1);
}

#[test]
fn parts_add_up() {
    let tmp = tempfile::tempdir().unwrap();
    let parts: Vec<_> = (0..7).map(|i| random_profile(i, 400)).collect();
    drop(write(&tmp.path().join("run.wh"), &parts));
    let mut expect = std::collections::BTreeMap::new();
    for (key, count) in parts.iter().flat_map(facts) {
        *expect.entry(key).or_insert(0) += count;
    }
    let loaded = load_all(tmp.path().join("run.wh"));
    assert_eq!(facts(&loaded.profile), expect);
    let distinct = loaded.profile.samples.windows(2).all(|w| {
        let (mut a, mut b) = (w[0], w[1]);
        (a.count, b.count) = (0, 0);
        a < b
    });
    assert!(distinct, "rows are unique by everything but count");
}

#[test]
fn branches_are_unique_sorted_and_optional() {
    let tmp = tempfile::tempdir().unwrap();
    let part = random_profile(5, 900);
    let path = tmp.path().join("run.wh");
    drop(write(&path, &[part.clone(), part.clone()]));
    let profile = load_all(path).profile;
    let key = |e: &EdgeSample| (e.image, e.pc, e.branch, e.way, e.source);
    assert!(profile.edges.is_sorted_by(|a, b| key(a) < key(b)));
    let count = |p: &Profile| p.edges.iter().map(|e| u64::from(e.count)).sum::<u64>();
    assert_eq!(count(&profile), 2 * count(&part));

    // Only branches: their images are kept, and the rows are worth a segment. None: there is no file.
    let only = Profile { edges: part.edges.clone(), images: part.images.clone(), ..Profile::default() };
    drop(write(&tmp.path().join("only.wh"), std::slice::from_ref(&only)));
    assert_eq!(count(&load_all(tmp.path().join("only.wh")).profile), count(&part));
    let none = Profile { edges: vec![], ..part };
    drop(write(&tmp.path().join("none.wh"), std::slice::from_ref(&none)));
    assert!(!tmp.path().join("none.wh/seg-000001-000001/edges.parquet").exists());
    assert_eq!(load_all(tmp.path().join("none.wh")).profile.edges, []);
}

#[test]
fn exact_counts_add_up_and_are_optional() {
    let tmp = tempfile::tempdir().unwrap();
    let part = random_profile(6, 900);
    let path = tmp.path().join("run.wh");
    drop(write(&path, &[part.clone(), part.clone()]));
    let profile = load_all(path).profile;
    assert!(profile.exact.is_sorted_by(|a, b| a.key() < b.key()));
    let sums = |p: &Profile| {
        p.exact.iter().fold(ExactCount::default(), |mut sum, e| {
            sum.add(e);
            sum
        })
    };
    let mut twice = sums(&part);
    twice.add(&sums(&part));
    assert_eq!(sums(&profile), twice);
    // Only counts: their images are kept. None: there is no file, as in older recordings.
    let only = Profile { exact: part.exact.clone(), images: part.images.clone(), ..Profile::default() };
    drop(write(&tmp.path().join("only.wh"), std::slice::from_ref(&only)));
    assert_eq!(sums(&load_all(tmp.path().join("only.wh")).profile), sums(&part));
    let none = Profile { exact: vec![], ..part };
    drop(write(&tmp.path().join("none.wh"), std::slice::from_ref(&none)));
    assert!(!tmp.path().join("none.wh/seg-000001-000001/exact.parquet").exists());
    assert_eq!(load_all(tmp.path().join("none.wh")).profile.exact, []);
}

#[test]
fn pairs_of_moments_add_up_and_are_optional() {
    let tmp = tempfile::tempdir().unwrap();
    let part = random_profile(6, 900);
    let path = tmp.path().join("run.wh");
    drop(write(&path, &[part.clone(), part.clone()]));
    let profile = load_all(path).profile;
    assert!(profile.laps.is_sorted_by(|a, b| a.key() < b.key()));
    let sums = |p: &Profile| {
        let mut sums: std::collections::BTreeMap<_, LapCount> = std::collections::BTreeMap::new();
        for l in &p.laps {
            sums.entry((p.image(l.image).id, l.offset, l.span, l.course)).or_default().add(l);
        }
        sums.into_iter().map(|(k, l)| (k, l.pairs, l.laps, l.ns)).collect::<Vec<_>>()
    };
    let twice: Vec<_> = sums(&part).into_iter().map(|(k, pairs, laps, ns)| (k, 2 * pairs, 2 * laps, 2 * ns)).collect();
    assert!(!twice.is_empty());
    assert_eq!(sums(&profile), twice);
    let only = Profile { laps: part.laps.clone(), images: part.images.clone(), ..Profile::default() };
    drop(write(&tmp.path().join("only.wh"), std::slice::from_ref(&only)));
    assert_eq!(sums(&load_all(tmp.path().join("only.wh")).profile), sums(&part));
    let none = Profile { laps: vec![], ..part };
    drop(write(&tmp.path().join("none.wh"), std::slice::from_ref(&none)));
    assert!(!tmp.path().join("none.wh/seg-000001-000001/laps.parquet").exists());
    assert_eq!(load_all(tmp.path().join("none.wh")).profile.laps, []);
}

#[test]
fn the_latest_name_of_a_thread_is_kept() {
    let tmp = tempfile::tempdir().unwrap();
    let named = |name: &str| {
        let part = random_profile(6, 900);
        let threads = vec![ThreadName { process: ProcessIx(2), tid: 7, name: name.into() }];
        Profile { threads, ..part }
    };
    let path = tmp.path().join("run.wh");
    drop(write(&path, &[named("z starts"), named("a goes on")]));
    let profile = load_all(path).profile;
    let [name] = profile.threads.as_slice() else { panic!("{:?}", profile.threads) };
    assert_eq!(profile.thread_name(name.process, 7), Some("a goes on"));
    assert_eq!((profile.process(name.process), profile.thread_name(name.process, 8)), (&process(2), None));
}

#[test]
fn filters_select_rows() {
    let tmp = tempfile::tempdir().unwrap();
    let part = random_profile(3, 3000);
    drop(write(&tmp.path().join("run.wh"), std::slice::from_ref(&part)));
    let with = |selection: Selection| load(&[tmp.path().join("run.wh")], &selection).unwrap().profile;
    let sum = |p: &Profile, f: &dyn Fn(&whither_store::model::Sample) -> bool| -> u64 {
        p.samples.iter().filter(|s| f(s)).map(|s| u64::from(s.count)).sum()
    };

    let one = with(Selection { events: Some(vec!["branch-misses".into()]), ..Selection::default() });
    let branch = |p: &Profile, e: EventIx| p.event(e).name == "branch-misses";
    assert_eq!(sum(&one, &|_| true), sum(&part, &|s| branch(&part, s.event)));

    let second = 1_000_000_000;
    let time =
        with(Selection { time_ns: Some((1_700_000_060 * second, 1_700_000_061 * second)), ..Selection::default() });
    assert_eq!(sum(&time, &|_| true), sum(&part, &|s| s.slice == 1_700_000_060));

    let kernel = with(Selection { images: Some(Box::new(|i| i.path == "[kernel]")), ..Selection::default() });
    assert_eq!(sum(&kernel, &|_| true), sum(&part, &|s| s.image.0 == 0));
    assert!(sum(&kernel, &|_| true) > 0);
    let edges = |p: &Profile, kernel: bool| -> u64 {
        let of_kernel = |e: &&EdgeSample| (p.image(e.image).path == "[kernel]") == kernel;
        p.edges.iter().filter(of_kernel).map(|e| u64::from(e.count)).sum()
    };
    assert_eq!((edges(&kernel, true), edges(&kernel, false)), (edges(&part, true), 0));
    assert_eq!(
        (edges(&one, true), edges(&one, false)),
        (edges(&part, true), edges(&part, false)),
        "branches are evidence whatever event was sampled"
    );

    let nobody = with(Selection { hosts: vec!["elsewhere".into()], ..Selection::default() });
    assert!(nobody.samples.is_empty() && nobody.epochs.is_empty());
}

#[test]
fn a_database_is_the_sum_of_its_epochs() {
    let tmp = tempfile::tempdir().unwrap();
    let db = Database::open_or_create(&tmp.path().join("db")).unwrap();
    let parts: Vec<_> = (0..3).map(|i| random_profile(10 + i, 200)).collect();
    for (i, part) in parts.iter().enumerate() {
        let mut m = meta();
        m.host = if i == 2 { "other".into() } else { "testhost".into() };
        m.label = format!("l{i}");
        let mut writer = db.new_epoch(m).unwrap();
        writer.append(part, WINDOW).unwrap();
        writer.seal(WINDOW.1).unwrap();
    }
    let (epochs, problems) = db.epochs().unwrap();
    assert_eq!((epochs.len(), problems.len()), (3, 0));
    assert!(epochs.iter().all(|e| e.sealed && e.rows > 0 && e.bytes > 0));
    let path = vec![db.path().to_owned()];
    let one = load(&path, &Selection { epochs: Some("l1".into()), ..Selection::default() }).unwrap();
    assert_eq!(facts(&one.profile), facts(&parts[1]));
    let host = load(&path, &Selection { hosts: vec!["other".into()], ..Selection::default() }).unwrap();
    assert_eq!(facts(&host.profile), facts(&parts[2]));
    assert_eq!(load_all(db.path().to_owned()).profile.epochs.len(), 3);
    let wrong = load(&path, &Selection { epochs: Some("nope".into()), ..Selection::default() });
    assert!(matches!(wrong, Err(StoreError::Selection { .. })));
}

/// What an older version wrote is read, added to and merged as what this one writes.
#[test]
fn segments_of_version_1_are_read_and_merged() {
    let old = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/store/version1.wh");
    let read = load_all(old.clone());
    assert_eq!((read.problems.len(), read.profile.samples.len()), (0, 295));
    assert_eq!(read.profile.samples.iter().map(|s| u64::from(s.count)).sum::<u64>(), 440);
    assert!(read.profile.samples.is_sorted());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("both.wh");
    std::fs::create_dir_all(path.join("seg-000001-000001")).unwrap();
    for file in ["epoch.json", "LOCK"] {
        std::fs::copy(old.join(file), path.join(file)).unwrap();
    }
    for file in std::fs::read_dir(old.join("seg-000001-000001")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), path.join("seg-000001-000001").join(file.file_name())).unwrap();
    }
    let mut writer = EpochWriter::resume(&path).unwrap();
    writer.append(&read.profile, (0, 1)).unwrap();
    drop(writer);
    let newer = std::fs::read_to_string(path.join("seg-000002-000002/segment.json")).unwrap();
    assert!(newer.contains("\"version\": 2"), "older builds must refuse what they would read wrongly");
    let doubled = |p: &Profile| p.samples.iter().map(|s| Sample { count: s.count * 2, ..*s }).collect::<Vec<_>>();
    assert_eq!(load_all(path.clone()).profile.samples, doubled(&read.profile));
    whither_store::compact(&path, whither_store::CompactPolicy::default()).unwrap();
    let merged = load_all(path);
    assert_eq!((merged.profile.samples, merged.problems.len()), (doubled(&read.profile), 0));
}
