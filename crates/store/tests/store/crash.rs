//! What a crash, a full disk or damage may cost: the part that was not sealed, never more.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and tells what it skips")]

use crate::support::{Dice, WINDOW, facts, image, meta, process, random_profile};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use whither_store::model::{EventIx, ImageIx, ImageOffset, ProcessIx, Profile, Sample};
use whither_store::{
    CompactPolicy, EpochWriter, OnExisting, Selection, Severity, StoreError, check, compact, load, repair,
};

/// The directory the child of [`a_killed_writer_loses_only_what_was_not_sealed`] writes to.
const CHILD_DIR: &str = "WHITHER_TEST_WRITER_DIR";

/// A part that can be told from all others, with some bulk so that writing takes a while.
fn part(number: u64) -> Profile {
    let sample = |i: u64| Sample {
        image: ImageIx(0),
        event: EventIx(0),
        process: ProcessIx(0),
        tid: 0,
        slice: 0,
        offset: ImageOffset(number * 1_000_000 + i),
        period: 1,
        count: 1,
    };
    Profile {
        events: vec![crate::support::event("cycles")],
        images: vec![image(1)],
        processes: vec![process(1)],
        samples: (0..2000).map(sample).collect(),
        ..Profile::default()
    }
}

/// Numbers of the parts that are there, each whole.
fn parts_in(path: &Path) -> BTreeSet<u64> {
    let loaded = load(&[path.to_owned()], &Selection::default()).unwrap();
    assert_eq!(loaded.problems, []);
    let numbers: BTreeSet<u64> = loaded.profile.samples.iter().map(|s| s.offset.0 / 1_000_000).collect();
    assert_eq!(loaded.profile.samples.len(), numbers.len() * 2000, "parts are whole or not there");
    assert!(loaded.profile.samples.iter().all(|s| s.count == 1), "nothing is counted twice");
    numbers
}

/// Not a test of its own: the writer that is killed. It tells every sealed part on stdout.
#[test]
#[ignore = "started by a_killed_writer_loses_only_what_was_not_sealed"]
fn writer_to_be_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR).map(PathBuf::from) else { return };
    let mut writer = match EpochWriter::resume(&dir) {
        Ok(writer) => writer,
        Err(_) => EpochWriter::create(&dir, meta(), OnExisting::Refuse).unwrap(),
    };
    let first: u64 = std::env::var("WHITHER_TEST_FIRST_PART").unwrap().parse().unwrap();
    for number in first.. {
        writer.append(&part(number), WINDOW).unwrap();
        println!("sealed {number}");
        writer.update_meta(|m| m.label = format!("after {number}")).unwrap();
        if number % 3 == 0 {
            compact(&dir, CompactPolicy::default()).unwrap();
        }
    }
}

fn start_writer(dir: &Path, first: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::writer_to_be_killed", "--ignored", "--nocapture"])
        .env(CHILD_DIR, dir)
        .env("WHITHER_TEST_FIRST_PART", first.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_killed_writer_loses_only_what_was_not_sealed() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("run.wh");
    let mut dice = Dice(7);
    let mut told: BTreeSet<u64> = BTreeSet::new();
    // On a busy machine many are killed before they wrote anything.
    for round in 0..250 {
        if round >= 25 && told.len() > 20 {
            break;
        }
        let first = (round + 1) * 1000;
        let mut child = start_writer(&dir, first);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let reader = std::thread::spawn(move || {
            lines.map_while(Result::ok).filter(|l| l.contains("sealed")).collect::<Vec<_>>()
        });
        // The instant is random on purpose; what must hold does not depend on it.
        std::thread::sleep(Duration::from_micros(20_000 + dice.roll(60_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let lines = reader.join().unwrap();
        told.extend(lines.iter().filter_map(|l| l.rsplit(' ').next()?.parse::<u64>().ok()));
        if !dir.join("epoch.json").exists() {
            continue;
        }
        let found = parts_in(&dir);
        assert!(told.is_subset(&found), "round {round}: lost {:?}", told.difference(&found));
        let untold = found.difference(&told).count();
        assert!(untold <= round as usize + 1, "at most the part in flight of each round");
        assert!(check(&dir).unwrap().iter().all(|f| f.severity == Severity::Leftover));
    }
    assert!(told.len() > 20, "the writers got to write: {}", told.len());
    repair(&dir).unwrap();
    assert_eq!(check(&dir).unwrap(), []);
    assert!(told.is_subset(&parts_in(&dir)));
}

#[test]
fn damage_anywhere_is_told_and_the_rest_is_read() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("run.wh");
    let mut writer = EpochWriter::create(&dir, meta(), OnExisting::Refuse).unwrap();
    writer.append(&random_profile(1, 300), WINDOW).unwrap();
    writer.append(&random_profile(2, 300), WINDOW).unwrap();
    writer.seal(WINDOW.1).unwrap();
    let (whole, second) = (facts_of(&dir).unwrap(), facts(&random_profile(2, 300)));
    let victim = dir.join("seg-000001-000001");
    let mut dice = Dice(3);
    let files: Vec<PathBuf> = fs::read_dir(&victim).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(files.len(), 11);
    for file in files {
        let sound = fs::read(&file).unwrap();
        for _ in 0..40 {
            let at = dice.roll(sound.len() as u64) as usize;
            let mut damaged = sound.clone();
            match dice.roll(3) {
                0 => damaged.truncate(at),
                1 => damaged[at] ^= 1 << dice.roll(8),
                _ => damaged.extend_from_slice(b"tail"),
            }
            if damaged == sound {
                continue;
            }
            fs::write(&file, &damaged).unwrap();
            let loaded = load(std::slice::from_ref(&dir), &Selection::default()).unwrap();
            assert_eq!(loaded.problems.len(), 1, "{}: {:?}", file.display(), loaded.problems);
            if accompanies(&file) {
                assert!(samples_are_whole(&facts(&loaded.profile), &whole), "{}", file.display());
            } else {
                assert_eq!(facts(&loaded.profile), second, "{}", file.display());
            }
            assert!(check(&dir).unwrap().iter().any(|f| f.severity == Severity::Damage));
        }
        fs::remove_file(&file).unwrap();
        assert_eq!(load(std::slice::from_ref(&dir), &Selection::default()).unwrap().problems.len(), 1);
        fs::write(&file, sound).unwrap();
    }
    assert_eq!(facts_of(&dir).unwrap(), whole);
}

/// Tables that samples can be read without.
fn accompanies(file: &Path) -> bool {
    let tables = ["stacks", "frames", "edges", "exact", "laps", "threads", "rates"];
    tables.iter().any(|t| file.file_name().is_some_and(|name| name.to_string_lossy() == format!("{t}.parquet")))
}

/// Whether all samples are there, and nothing that was not.
fn samples_are_whole(
    found: &std::collections::BTreeMap<String, u64>,
    whole: &std::collections::BTreeMap<String, u64>,
) -> bool {
    let known = found.iter().all(|(key, n)| whole.get(key).is_some_and(|all| n <= all));
    known && whole.iter().filter(|(key, _)| key.starts_with("sample ")).all(|(key, n)| found.get(key) == Some(n))
}

fn facts_of(dir: &Path) -> Result<std::collections::BTreeMap<String, u64>, StoreError> {
    let loaded = load(&[dir.to_owned()], &Selection::default())?;
    assert_eq!(loaded.problems, []);
    Ok(facts(&loaded.profile))
}

/// A file system of so many KiB; `None` (told) without the rights to mount one.
fn small_disk(kib: u32) -> Option<Disk> {
    let dir = tempfile::tempdir().unwrap();
    let options = format!("size={kib}k");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(dir.path()).output();
    if mounted.is_ok_and(|o| o.status.success()) {
        return Some(Disk { dir });
    }
    println!("SKIPPED: needs the right to mount a tmpfs");
    None
}

struct Disk {
    dir: tempfile::TempDir,
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.dir.path()).status();
    }
}

#[test]
fn a_full_disk_loses_nothing_sealed_and_takes_the_part_again_later() {
    let Some(disk) = small_disk(512) else { return };
    let filler = disk.dir.path().join("filler");
    fs::write(&filler, vec![1; 128 << 10]).unwrap();
    let dir = disk.dir.path().join("run.wh");
    let mut writer = EpochWriter::create(&dir, meta(), OnExisting::Refuse).unwrap();
    let mut sealed = 0;
    let error = loop {
        match writer.append(&random_profile(sealed, 3000), WINDOW) {
            Ok(_) => sealed += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(error, StoreError::NoSpace { .. }), "{error}");
    assert!(error.to_string().contains("no space left"), "{error}");
    assert!(sealed > 0);
    assert_eq!(check(&dir).unwrap(), [], "nothing is left behind");
    let before: u64 = facts_of(&dir).unwrap().values().sum();
    fs::remove_file(&filler).unwrap();
    writer.append(&random_profile(sealed, 3000), WINDOW).unwrap();
    let total = |n: u64| facts(&random_profile(n, 3000)).values().sum::<u64>();
    assert_eq!(facts_of(&dir).unwrap().values().sum::<u64>(), before + total(sealed));
    assert_eq!(before, (0..sealed).map(total).sum::<u64>());
}
