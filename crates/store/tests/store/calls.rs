//! A call-path recording reads back as it was written, replaces only its own kind, and says so when it is
//! damaged or of another version.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use std::fs;
use whither_image::ImageId;
use whither_store::call_steps::{CallChange, CallFunction, CallScript, CallStep};
use whither_store::calls::*;
use whither_store::calls_recording::{is_recording, load, save};
use whither_store::{OnExisting, StoreError};

fn totals(seed: u64) -> PathTotals {
    let mut hist = vec![0; 64];
    (hist[0], hist[(seed % 64) as usize]) = (3, seed + 1);
    PathTotals {
        calls: seed,
        done: seed / 2,
        wall_ns: u64::MAX - seed,
        cpu_ns: seed * 7,
        min_ns: 1,
        max_ns: seed,
        values: [i64::MIN + seed as i64, -3],
        usage: seed.is_multiple_of(2).then_some(Usage { switches: seed, faults_minor: 1, faults_major: 0 }),
        hist: match seed % 3 {
            0 => None,
            1 => Some(hist),
            _ => Some(vec![0; 64]),
        },
    }
}

fn snapshot(seed: u64, paths: u32) -> CallSnapshot {
    let path = |i: u32| CallPath {
        id: 100 + i,
        point: i % 2,
        frame: if i == 0 { u32::MAX } else { i - 1 },
        parent: (i % 3 == 1).then_some(99 + i),
        same: (i % 5) as u16,
        folded: i % 7 == 6,
        totals: totals(seed + u64::from(i)),
        threads: (0..i % 3).map(|t| (1000 + t, totals(seed + u64::from(t)))).collect(),
    };
    let frame = |i: u32| CallFrame {
        kind: [FrameKind::Caller, FrameKind::Truncated, FrameKind::Other][(i % 3) as usize],
        module: if i % 4 == 3 { u32::MAX } else { 0 },
        offset: seed + u64::from(i) * 16,
        caller: if i == 0 { u32::MAX } else { i - 1 },
        by_frame_pointer: i % 2 == 1,
    };
    let point = |id: u32, refused: bool| CallPoint {
        id,
        names: vec![format!("f{id}<\"a\", b>"), "alias".into()],
        module: 0,
        offset: 0x1000 * u64::from(id),
        size: 5,
        patch: (!refused).then_some(PatchKind::PaddedJump),
        state: if refused { PointState::Refused } else { PointState::On },
        entry_only: refused.then(|| "returns twice".into()),
        refused: refused.then(|| "only 3 bytes long".into()),
        values: vec!["bytes".into()],
    };
    CallSnapshot {
        at_ns: seed,
        whole: Whole {
            wall_ns: 9,
            cpu_ns: 8,
            thread_ns: 7,
            threads: 6,
            threads_ended: 5,
            thread_unsure_ns: 4,
            ran_ns: 3,
            queued_ns: 2,
        },
        processes: vec![CallProcess {
            pid: 7,
            exe: "/bin/ä".into(),
            command: "ä -x".into(),
            status: Some(0),
            since_ns: 5,
        }],
        threads: vec![CallThread { tid: 1000, pid: 7, name: "main".into(), lived_ns: 5 }],
        modules: vec![CallModule {
            path: "/bin/ä".into(),
            id: Some(ImageId([3; 20])),
            bias: 0x5555_0000,
            start: 1,
            end: 2,
        }],
        points: vec![point(1, false), point(2, true)],
        frames: (0..paths).map(frame).collect(),
        paths: (0..paths).map(path).collect(),
        late: vec![LatePoint { id: 1, after_ns: 5, spent: Some(Spent { cpu_ns: 3, thread_ns: 2 }) }],
        gaps: vec![Gap {
            id: 1,
            from: Moment::default(),
            until: Some(Moment { after_ns: 6, spent: Spent::default() }),
        }],
        in_progress: vec![InProgress { tid: 1000, pid: 7, path: 100, elapsed_ns: 3, cpu_ns: Some(2) }],
        lost: CallLost { busy: 1, paths: 2, ..CallLost::default() },
        own_cost: OwnCost {
            inside_ps: 1,
            whole_ps: 2,
            step_ps: 3,
            count_ps: 7,
            count_least_ps: Some(2),
            kernel_ns: Some(4),
            hit_ps: 6,
            apart_ns: 5,
            most: Some(MostCost {
                timed: MostOfKind { same_ps: 8, deep_ps: 9, varied_ps: 10 },
                counted: MostOfKind { same_ps: 11, deep_ps: 12, varied_ps: 13 },
                frames: 14,
            }),
        },
        notes: vec!["a note".into()],
    }
}

/// A step of each kind.
fn script() -> CallScript {
    let function = |file: Option<&str>| CallFunction { name: "f<\"a\", b>".into(), file: file.map(Into::into) };
    let functions = vec![function(None), function(Some("libä.so.1"))];
    let changes = [
        CallChange::Add { patterns: vec!["MPI_.*".into()], exclude: vec!["'x'".into()] },
        CallChange::Switch { functions: functions.clone(), on: false },
        CallChange::Expand { function: function(None), only: None },
        CallChange::Expand { function: function(None), only: Some(functions.clone()) },
        CallChange::Callers { function: function(Some("libä.so.1")) },
        CallChange::Reset { label: "warm\n".into() },
        CallChange::Remove { functions },
    ];
    let step = |(i, change)| CallStep { after_ns: u64::MAX - 10 + i, change };
    CallScript {
        functions: vec![".*".into()],
        exclude: vec!["y".into()],
        steps: (0..).zip(changes).map(step).collect(),
    }
}

fn recording(seed: u64, paths: u32) -> CallRecording {
    let position = |line| CallPosition { function: "inner".into(), file: "/src/a.c".into(), line };
    let place = |positions| CallPlace {
        function: "main".into(),
        start: Some(0x1000),
        positions,
        site: CallSite::Direct { target: 0x4000, function: "solve".into() },
    };
    CallRecording {
        command: "whither calls -f x".into(),
        host: "box".into(),
        tool: "0.1.0".into(),
        start_ns: seed,
        metrics: vec!["wall".into(), "off".into()],
        script: (!seed.is_multiple_of(4)).then(script),
        epochs: vec![
            CallEpoch { name: "1".into(), snapshot: snapshot(seed, paths) },
            CallEpoch { name: "warm".into(), snapshot: CallSnapshot::default() },
            CallEpoch { name: "3".into(), snapshot: snapshot(seed + 1, paths / 2) },
        ],
        names: vec![
            CallName { module: "/bin/ä".into(), address: 0x1001, place: place(vec![position(1), position(2)]) },
            CallName { module: "/bin/ä".into(), address: 0x1002, place: place(vec![position(3)]) },
            CallName {
                module: "/bin/ä".into(),
                address: 0x1003,
                place: CallPlace { start: None, site: CallSite::Signal, ..place(vec![]) },
            },
        ],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn what_is_read_is_what_was_written(seed in 0..1_u64 << 40, paths in 0..300_u32) {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("deep/run.wh");
        let written = recording(seed, paths);
        save(&dir, &written, OnExisting::Refuse).unwrap();
        prop_assert!(is_recording(&dir));
        prop_assert_eq!(load(&dir).unwrap(), written);
        prop_assert_eq!(fs::read_dir(dir.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
    }
}

#[test]
fn replaces_its_own_kind_only() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("run.wh");
    save(&dir, &recording(1, 5), OnExisting::Refuse).unwrap();
    assert!(matches!(save(&dir, &recording(2, 5), OnExisting::Refuse), Err(StoreError::Exists { .. })));
    save(&dir, &recording(2, 0), OnExisting::Replace).unwrap();
    assert_eq!(load(&dir).unwrap(), recording(2, 0));

    fs::write(dir.join("thesis.tex"), "mine").unwrap();
    assert!(matches!(save(&dir, &recording(3, 5), OnExisting::Replace), Err(StoreError::NotOurs { .. })));
    let other = tmp.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), "mine").unwrap();
    assert!(matches!(save(&other, &recording(3, 5), OnExisting::Replace), Err(StoreError::NotOurs { .. })));
    assert!(matches!(load(&other), Err(StoreError::NotAStore { .. })));
    let link = tmp.path().join("link");
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    assert!(matches!(save(&link, &recording(3, 5), OnExisting::Replace), Err(StoreError::NotOurs { .. })));
}

#[test]
fn damage_and_other_versions_are_told() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("run.wh");
    save(&dir, &recording(1, 50), OnExisting::Refuse).unwrap();
    let files: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(files.len(), 6);
    for file in files {
        let whole = fs::read(&file).unwrap();
        for at in [0, whole.len() / 2, whole.len() - 3] {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            fs::write(&file, &damaged).unwrap();
            assert!(matches!(load(&dir), Err(StoreError::Corrupt { .. })), "{} at {at}", file.display());
        }
        fs::write(&file, &whole).unwrap();
    }
    assert!(load(&dir).is_ok());
    let text = fs::read_to_string(dir.join("calls.json")).unwrap();
    fs::write(dir.join("calls.json"), text.replace("\"version\": 1", "\"version\": 2")).unwrap();
    assert!(matches!(load(&dir), Err(StoreError::Version { found: 2, .. })));
}

/// Recordings made before steps were kept still open, and say that they have none; half a step is damage.
#[test]
fn steps_are_absent_in_recordings_of_old_and_damage_where_they_are_no_steps() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("run.wh");
    save(&dir, &recording(1, 5), OnExisting::Refuse).unwrap();
    let file = dir.join("calls.json");
    let text = fs::read_to_string(&file).unwrap();
    let sealed = |text: &str| {
        let body = text.rsplit_once(",\n  \"crc32c\"").unwrap().0;
        fs::write(&file, format!("{body},\n  \"crc32c\": {}\n}}\n", crc32c::crc32c(body.as_bytes()))).unwrap();
    };
    sealed(&text.replace("\"script\"", "\"unknown\""));
    assert_eq!(load(&dir).unwrap(), CallRecording { script: None, ..recording(1, 5) });
    for (whole, broken) in
        [("\"label\"", "\"lebal\""), ("\"steps\": [", "\"steps\": [7, "), ("\"after_ns\": ", "\"after_ns\": -")]
    {
        assert!(text.contains(whole), "{text}");
        sealed(&text.replace(whole, broken));
        assert!(matches!(load(&dir), Err(StoreError::Corrupt { .. })), "{broken}");
    }
}
