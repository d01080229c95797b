//! Compaction, merging, retention, check and repair: totals stay, damage is told, nothing foreign is
//! touched.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::{WINDOW, facts, meta, random_profile};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use whither_store::model::Profile;
use whither_store::{
    CompactPolicy, Database, EpochWriter, Limit, OnExisting, RetentionPolicy, Selection, Severity, StoreError, check,
    compact, load, rebuild, repair,
};

const HOUR_NS: u64 = 3_600_000_000_000;

fn read(path: &Path) -> BTreeMap<String, u64> {
    let loaded = load(&[path.to_owned()], &Selection::default()).unwrap();
    assert_eq!(loaded.problems, []);
    facts(&loaded.profile)
}

fn recording(dir: &Path, parts: u64) -> PathBuf {
    fs::create_dir_all(dir).unwrap();
    let path = dir.join("run.wh");
    let mut writer = EpochWriter::create(&path, meta(), OnExisting::Refuse).unwrap();
    for i in 0..parts {
        writer.append(&random_profile(i, 500), WINDOW).unwrap();
    }
    writer.seal(WINDOW.1).unwrap();
    path
}

/// A database with one closed epoch per hour.
fn database(dir: &Path, epochs: u64) -> (Database, Vec<Profile>) {
    let db = Database::open_or_create(&dir.join("db")).unwrap();
    let parts: Vec<Profile> = (0..epochs).map(|i| random_profile(50 + i, 300)).collect();
    for (part, i) in parts.iter().zip(0..) {
        let mut m = meta();
        m.start_ns += i * HOUR_NS;
        m.losses.dropped = 1;
        m.label = format!("e{i}");
        let end = m.start_ns + HOUR_NS;
        let mut writer = db.new_epoch(m.clone()).unwrap();
        writer.append(part, (m.start_ns, end)).unwrap();
        writer.seal(end).unwrap();
    }
    (db, parts)
}

fn segment_names(epoch: &Path) -> Vec<String> {
    let names = fs::read_dir(epoch).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|n| n.starts_with("seg-")).collect();
    names.sort();
    names
}

#[test]
fn compaction_keeps_every_row() {
    let tmp = tempfile::tempdir().unwrap();
    let path = recording(tmp.path(), 7);
    let before = read(&path);
    let done = compact(&path, CompactPolicy::default()).unwrap();
    assert_eq!((done.epochs, done.segments, done.problems.len()), (1, 7, 0));
    assert!(done.rows.1 < done.rows.0, "equal rows of several segments are one now");
    assert_eq!(segment_names(&path), ["seg-000001-000007"]);
    assert_eq!(read(&path), before);
    assert_eq!(check(&path).unwrap(), []);
    let again = compact(&path, CompactPolicy::default()).unwrap();
    assert_eq!(again.epochs, 0, "nothing left to do");
}

#[test]
fn an_epoch_being_written_is_compacted_up_to_its_newest_segment() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("run.wh");
    let mut writer = EpochWriter::create(&path, meta(), OnExisting::Refuse).unwrap();
    for i in 0..4 {
        writer.append(&random_profile(i, 100), WINDOW).unwrap();
    }
    compact(&path, CompactPolicy::default()).unwrap();
    assert_eq!(segment_names(&path), ["seg-000001-000003", "seg-000004-000004"]);
    writer.append(&random_profile(4, 100), WINDOW).unwrap();
    assert_eq!(segment_names(&path).len(), 3);
    drop(writer);
    let mut writer = EpochWriter::resume(&path).unwrap();
    writer.append(&random_profile(5, 100), WINDOW).unwrap();
    assert!(segment_names(&path).contains(&"seg-000006-000006".to_owned()));
    assert_eq!(check(&path).unwrap(), []);
}

#[test]
fn parts_without_a_description_are_told_and_described_anew() {
    let tmp = tempfile::tempdir().unwrap();
    let path = recording(tmp.path(), 3);
    let before = read(&path);
    for damage in ["", "{\"version\""] {
        let file = path.join("epoch.json");
        fs::write(&file, damage).unwrap();
        if damage.is_empty() {
            fs::remove_file(&file).unwrap();
        }
        let told = load(std::slice::from_ref(&path), &Selection::default()).unwrap_err().to_string();
        assert!(told.contains("in 3 parts") && told.contains("db check --repair"), "{told}");
        assert_eq!(rebuild(&path).unwrap(), std::slice::from_ref(&path));
        assert_eq!(read(&path), before);
        let loaded = load(std::slice::from_ref(&path), &Selection::default()).unwrap();
        assert_eq!(loaded.profile.epochs[0].start_ns, WINDOW.0);
        assert!(loaded.profile.epochs[0].notes[0].contains("made anew"));
        assert_eq!((rebuild(&path).unwrap(), check(&path).unwrap()), (vec![], vec![]));
    }
    assert_eq!(rebuild(tmp.path()).unwrap(), Vec::<PathBuf>::new(), "what is no store stays as it is");
}

#[test]
fn an_epoch_that_lost_its_description_is_not_passed_over_in_silence() {
    let tmp = tempfile::tempdir().unwrap();
    let (db, _) = database(tmp.path(), 3);
    let before = read(db.path());
    let (epochs, _) = db.epochs().unwrap();
    fs::remove_file(epochs[1].path.join("epoch.json")).unwrap();
    let loaded = load(&[db.path().to_owned()], &Selection::default()).unwrap();
    assert_eq!(loaded.problems.len(), 1, "{:?}", loaded.problems);
    assert_eq!(rebuild(db.path()).unwrap(), [epochs[1].path.clone()]);
    assert_eq!(read(db.path()), before);
}

#[test]
fn an_interrupted_compaction_counts_nothing_twice() {
    let tmp = tempfile::tempdir().unwrap();
    let path = recording(tmp.path(), 3);
    let before = read(&path);
    let saved = tmp.path().join("saved");
    fs::create_dir(&saved).unwrap();
    for name in segment_names(&path) {
        copy_dir(&path.join(&name), &saved.join(&name));
    }
    compact(&path, CompactPolicy::default()).unwrap();
    // As if the crash came after the wide segment appeared and before the narrow ones went.
    for name in fs::read_dir(&saved).unwrap().map(|e| e.unwrap().file_name()) {
        copy_dir(&saved.join(&name), &path.join(&name));
    }
    fs::create_dir(path.join(".tmp-seg-000009-000009")).unwrap();
    assert_eq!(segment_names(&path).len(), 4);
    assert_eq!(read(&path), before);
    let findings = check(&path).unwrap();
    assert_eq!(findings.len(), 4);
    assert!(findings.iter().all(|f| f.severity == Severity::Leftover));
    assert_eq!(repair(&path).unwrap().len(), 4);
    assert_eq!(check(&path).unwrap(), []);
    assert_eq!(read(&path), before);
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn compaction_leaves_an_epoch_with_damage_alone() {
    let tmp = tempfile::tempdir().unwrap();
    let path = recording(tmp.path(), 3);
    let victim = path.join("seg-000002-000002/samples.parquet");
    fs::write(&victim, b"nonsense").unwrap();
    let done = compact(&path, CompactPolicy::default()).unwrap();
    assert_eq!((done.epochs, done.problems.len()), (0, 1));
    assert_eq!(segment_names(&path).len(), 3);
    let findings = check(&path).unwrap();
    assert!(findings.iter().any(|f| f.severity == Severity::Damage));
}

#[test]
fn merged_epochs_are_the_sum() {
    let tmp = tempfile::tempdir().unwrap();
    let (db, _) = database(tmp.path(), 4);
    let before = read(db.path());
    let merged = db.merge("e1..e2").unwrap();
    let (epochs, _) = db.epochs().unwrap();
    assert_eq!(epochs.len(), 3);
    assert_eq!(merged.label, "e1");
    assert_eq!(merged.end_ns, meta().start_ns + 3 * HOUR_NS);
    assert_eq!(read(db.path()), before);
    assert_eq!(load(&[db.path().to_owned()], &Selection::default()).unwrap().profile.losses().dropped, 4);
    assert_eq!(check(db.path()).unwrap(), []);
    assert!(matches!(db.merge("e0"), Err(StoreError::Selection { .. })));
}

#[test]
fn epochs_with_another_between_them_are_not_merged() {
    let tmp = tempfile::tempdir().unwrap();
    let (db, _) = database(tmp.path(), 3);
    db.label("e0", "ends").unwrap();
    db.label("e2", "ends").unwrap();
    let refused = db.merge("ends");
    assert!(matches!(&refused, Err(StoreError::Selection { why, .. }) if why.contains("lies between")), "{refused:?}");
    assert_eq!(db.epochs().unwrap().0.len(), 3);
}

#[test]
fn an_interrupted_merge_counts_nothing_twice() {
    let tmp = tempfile::tempdir().unwrap();
    let (db, _) = database(tmp.path(), 2);
    let before = read(db.path());
    let saved: Vec<(PathBuf, PathBuf)> = db
        .epochs()
        .unwrap()
        .0
        .into_iter()
        .enumerate()
        .map(|(i, e)| (e.path, tmp.path().join(format!("saved{i}"))))
        .collect();
    for (path, copy) in &saved {
        copy_tree(path, copy);
    }
    let merged = db.merge("all").unwrap();
    // As if the crash came before the replaced epochs were removed: they are back, and so is the list.
    for (path, copy) in &saved {
        copy_tree(copy, path);
    }
    let names: Vec<_> = saved.iter().map(|(p, _)| p.strip_prefix(db.path()).unwrap()).collect();
    fs::write(merged.path.join("replaces.json"), serde_json::to_vec(&names).unwrap()).unwrap();
    assert_eq!(read(db.path()), before);
    assert_eq!(check(db.path()).unwrap().len(), 2);
    assert_eq!(repair(db.path()).unwrap().len(), 2);
    assert_eq!(check(db.path()).unwrap(), []);
    assert_eq!(read(db.path()), before);
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn retention_drops_the_oldest_and_tells() {
    let tmp = tempfile::tempdir().unwrap();
    let (db, parts) = database(tmp.path(), 5);
    let now = meta().start_ns + 5 * HOUR_NS;
    let age = RetentionPolicy { max_age: Some(Duration::from_secs(3 * 3600 + 60)), max_bytes: None };
    let report = db.gc(age, now).unwrap();
    assert_eq!(report.dropped.iter().map(|d| (d.label.as_str(), d.why)).collect::<Vec<_>>(), [("e0", Limit::Age)]);
    assert!(report.dropped[0].rows > 0 && report.dropped[0].bytes > 0);

    let one = db.epochs().unwrap().0[0].bytes;
    let size = RetentionPolicy { max_age: None, max_bytes: Some(2 * one + one / 2) };
    let report = db.gc(size, now).unwrap();
    assert_eq!(report.dropped.iter().map(|d| d.label.as_str()).collect::<Vec<_>>(), ["e1", "e2"]);
    assert!(report.bytes <= 2 * one + one / 2);
    let total = |p: &Profile| facts(p).values().sum::<u64>();
    assert_eq!(read(db.path()).values().sum::<u64>(), total(&parts[3]) + total(&parts[4]));
}

#[test]
fn retention_spares_what_is_being_written() {
    let tmp = tempfile::tempdir().unwrap();
    let db = Database::open_or_create(&tmp.path().join("db")).unwrap();
    let mut writer = db.new_epoch(meta()).unwrap();
    for i in 0..3 {
        writer.append(&random_profile(i, 100), WINDOW).unwrap();
    }
    let policy = RetentionPolicy { max_age: Some(Duration::ZERO), max_bytes: Some(1) };
    let report = db.gc(policy, u64::MAX).unwrap();
    assert_eq!(report.dropped.len(), 2, "its older segments, as nothing else was left");
    assert_eq!(segment_names(writer.path()), ["seg-000003-000003"]);
    writer.append(&random_profile(9, 100), WINDOW).unwrap();
    assert_eq!(check(db.path()).unwrap(), []);
}

#[test]
fn labels_and_selections() {
    let tmp = tempfile::tempdir().unwrap();
    let (db, _) = database(tmp.path(), 4);
    let labels = |selector: &str| db.select(selector).map(|v| v.into_iter().map(|e| e.label).collect::<Vec<_>>());
    assert_eq!(labels("last").unwrap(), ["e3"]);
    assert_eq!(labels("last-1").unwrap(), ["e2"]);
    assert_eq!(labels("e1..last").unwrap(), ["e1", "e2", "e3"]);
    assert_eq!(labels("e3,e0").unwrap(), ["e0", "e3"]);
    assert_eq!(labels("20231115T00").unwrap(), ["e2"]);
    assert_eq!(labels("2023-11-14").unwrap(), ["e0", "e1"]);
    let error = labels("nope").unwrap_err().to_string();
    assert!(error.contains("`nope` matches none") && error.contains("(e3)"), "{error}");
    assert!(labels("last-9").is_err());
    db.label("e0", "before the change").unwrap();
    assert_eq!(labels("before the change").unwrap().len(), 1);
    db.remove("e1").unwrap();
    assert_eq!(labels("all").unwrap(), ["before the change", "e2", "e3"]);
}

#[test]
fn two_writers_are_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("run.wh");
    let first = EpochWriter::create(&path, meta(), OnExisting::Refuse).unwrap();
    assert!(matches!(EpochWriter::resume(&path), Err(StoreError::Busy { .. })));
    assert!(matches!(EpochWriter::create(&path, meta(), OnExisting::Replace), Err(StoreError::Busy { .. })));
    drop(first);
    EpochWriter::resume(&path).unwrap().seal(1).unwrap();
    assert!(matches!(EpochWriter::resume(&path), Err(StoreError::Sealed { .. })));
}

#[test]
fn replacing_never_deletes_what_is_not_ours() {
    let tmp = tempfile::tempdir().unwrap();
    let create = |path: &Path, on| EpochWriter::create(path, meta(), on).map(drop);
    let foreign = tmp.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("thesis.tex"), "years of work").unwrap();
    assert!(matches!(create(&foreign, OnExisting::Replace), Err(StoreError::NotOurs { .. })));

    let path = recording(tmp.path(), 1);
    assert!(matches!(create(&path, OnExisting::Refuse), Err(StoreError::Exists { .. })));
    fs::write(path.join("notes.txt"), "mine").unwrap();
    let error = create(&path, OnExisting::Replace).unwrap_err().to_string();
    assert!(error.contains("notes.txt"), "{error}");
    assert!(path.join("seg-000001-000001").exists());
    fs::remove_file(path.join("notes.txt")).unwrap();

    let link = tmp.path().join("link.wh");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(create(&link, OnExisting::Replace), Err(StoreError::NotOurs { .. })));

    let json = tmp.path().join("other");
    fs::create_dir(&json).unwrap();
    fs::write(json.join("epoch.json"), r#"{"version": 3}"#).unwrap();
    assert!(matches!(create(&json, OnExisting::Replace), Err(StoreError::NotOurs { .. })));

    create(&path, OnExisting::Replace).unwrap();
    assert_eq!(segment_names(&path), [] as [&str; 0]);
    let empty = tmp.path().join("empty");
    fs::create_dir(&empty).unwrap();
    create(&empty, OnExisting::Refuse).unwrap();
}

#[test]
fn an_unknown_version_is_refused_with_a_clear_message() {
    let tmp = tempfile::tempdir().unwrap();
    let path = recording(tmp.path(), 1);
    let meta_file = path.join("epoch.json");
    let text = fs::read_to_string(&meta_file).unwrap();
    fs::write(&meta_file, text.replace("\"version\": 1", "\"version\": 2")).unwrap();
    let error = load(&[path], &Selection::default()).unwrap_err();
    assert!(matches!(error, StoreError::Version { found: 2, supported: 1, .. }));
    assert!(error.to_string().contains("format version 2, this whither reads version 1"), "{error}");

    let (db, _) = database(tmp.path(), 1);
    fs::write(db.path().join("db.toml"), "version = 9\n").unwrap();
    assert!(matches!(Database::open_or_create(db.path()), Err(StoreError::Version { found: 9, .. })));
    assert!(matches!(Database::open(tmp.path()), Err(StoreError::NotAStore { .. })));
    assert!(matches!(Database::open_or_create(tmp.path()), Err(StoreError::NotAStore { .. })));
    let one = recording(&tmp.path().join("one"), 1);
    let error = Database::open(&one).unwrap_err().to_string();
    assert!(error.contains("is one recording, not a database"), "{error}");
}

#[test]
fn a_store_is_private() {
    let tmp = tempfile::tempdir().unwrap();
    let (db, _) = database(tmp.path(), 1);
    let mut pending = vec![db.path().to_owned()];
    let mut seen = 0;
    while let Some(path) = pending.pop() {
        let meta = fs::metadata(&path).unwrap();
        let expect = if meta.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(meta.permissions().mode() & 0o777, expect, "{}", path.display());
        if meta.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
        seen += 1;
    }
    assert!(seen > 8);
}

#[test]
fn an_epoch_that_could_not_be_begun_is_a_leftover() {
    let dir = tempfile::tempdir().unwrap();
    let (db, _) = database(dir.path(), 1);
    let begun = db.epochs().unwrap().0[0].path.clone();
    let empty = begun.with_file_name(format!("{}9", begun.file_name().unwrap().to_str().unwrap()));
    fs::create_dir(&empty).unwrap();
    fs::write(empty.join("LOCK"), "").unwrap();
    let root = dir.path().join("db");
    let found: Vec<_> = check(&root).unwrap().into_iter().map(|f| (f.path, f.severity)).collect();
    assert_eq!(found, [(empty.clone(), Severity::Leftover)]);
    assert_eq!(repair(&root).unwrap(), std::slice::from_ref(&empty));
    assert_eq!(check(&root).unwrap(), []);
    // What has rows in it is no leftover.
    fs::create_dir_all(empty.join("seg-000001")).unwrap();
    assert!(check(&root).unwrap().iter().all(|f| f.severity == Severity::Damage));
    assert_eq!(repair(&root).unwrap(), [] as [PathBuf; 0]);
}
