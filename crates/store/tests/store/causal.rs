//! A causal recording reads back as it was written, replaces only its own kind, and says so when it is
//! damaged or names what it does not have.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use std::fs;
use whither_image::ImageId;
use whither_store::causal::*;
use whither_store::causal_recording::{is_recording, load, save};
use whither_store::{OnExisting, StoreError};

fn target(n: u32) -> Target {
    let unit = [Unit::Line, Unit::Function, Unit::Inclusive, Unit::Path, Unit::OffCpu][(n % 5) as usize];
    Target {
        unit,
        name: format!("f{n}<\"ä\">"),
        file: if n.is_multiple_of(2) { String::new() } else { "src/ä.c".into() },
        line: n,
        path: if unit == Unit::Path { vec!["caller".into(), "main".into()] } else { Vec::new() },
        aliases: (0..n % 3).map(|i| format!("alias {i}")).collect(),
        module: "/bin/ä".into(),
        image: n.is_multiple_of(3).then_some(ImageId([n as u8; 20])),
        ranges: (0..u64::from(n % 4)).map(|i| (i << 60, u64::MAX - i)).collect(),
    }
}

fn window(n: u32, targets: u32) -> Window {
    let big = u64::MAX - u64::from(n);
    Window {
        run: n / 3,
        target: n % targets,
        percent: (n % 101) as u8,
        selection: [Selection::Lottery, Selection::Block, Selection::Fixed][(n % 3) as usize],
        probability: f64::from(n % 11) / 10.0,
        stratum: n / 4,
        begin_ns: 1_000 * u64::from(n),
        wall_ns: big,
        drain_ns: 1,
        delay_ns: 2,
        hits: 3,
        samples: 4,
        visits: (0..n % 3)
            .map(|point| PointVisits {
                point,
                visits: u64::from(n),
                first_ns: 1,
                last_ns: big,
                first_virtual_ns: -5,
                last_virtual_ns: i64::MIN,
                sum_virtual_ns: i64::MAX,
                under_way: -1,
            })
            .collect(),
        own_wait_ns: 5,
        foreign_wait_ns: 6,
        steal_ns: 7,
        major_faults: 8,
        threads: 9,
        max_debt_ns: 10,
        lost: 11,
        dropped: (n % 5 == 1).then_some(DropReason::ForeignLoad),
    }
}

fn run(windows: u32, targets: u32) -> CausalRun {
    let point = |name: &str, end| ProgressPoint { name: name.into(), kind: PointKind::Probe, end };
    CausalRun {
        meta: CausalMeta { command: "ä -x".into(), seed: u64::MAX, load: LoadKind::Open, ..CausalMeta::default() },
        points: vec![point("begin", Some(1)), point("end", None)],
        targets: (0..targets).map(target).collect(),
        windows: (0..windows).map(|n| window(n, targets)).collect(),
        samples: (0..windows)
            .map(|n| TargetSamples { target: (n % 2 == 0).then_some(0), stratum: n, plain: 1, plain_ns: 2, all: 3 })
            .collect(),
        turns: vec![whither_store::causal::Turns { target: 0, run_ns: 7, waits: 3, begun_ns: 5 }],
        asked: vec![whither_store::causal::FromOutside {
            target: 0,
            wall_ns: 9,
            times: 4,
            by_world: 1,
            unknown: 2,
            delay_ns: 3,
            paid_ns: 5,
            unknown_debt_ns: 6,
        }],
        waits: vec![Wait { site: target(1), blocked_ns: 5, woken_by: vec![(target(2), 7)] }],
        takes_over: vec![whither_store::causal::TakesOver { target: 0, by: 0 }],
        elsewhere: Elsewhere {
            all: 100,
            modules: vec![ModuleSamples { module: "/lib/ä.so".into(), outside: 7, charged: u64::MAX }],
        },
        overhead: CausalOverhead { startup_ns: 1, ..CausalOverhead::default() },
        notes: vec!["a note".into()],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn what_was_written_is_read(windows in 0..60_u32, targets in 1..9_u32) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.wh");
        let written = run(windows, targets);
        save(&path, &written, OnExisting::Refuse).unwrap();
        prop_assert!(is_recording(&path));
        prop_assert_eq!(load(&path).unwrap(), written);
    }
}

#[test]
fn only_its_own_kind_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.wh");
    save(&path, &run(3, 1), OnExisting::Refuse).unwrap();
    assert!(matches!(save(&path, &run(4, 1), OnExisting::Refuse), Err(StoreError::Exists { .. })));
    save(&path, &run(4, 1), OnExisting::Replace).unwrap();
    assert_eq!(load(&path).unwrap().windows.len(), 4);
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("precious"), "x").unwrap();
    assert!(matches!(save(&other, &run(1, 1), OnExisting::Replace), Err(StoreError::NotOurs { .. })));
    assert!(other.join("precious").exists());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing temporary stays");
}

#[test]
fn damage_and_dangling_numbers_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.wh");
    let mut broken = run(3, 1);
    broken.windows[2].target = 7;
    save(&path, &broken, OnExisting::Refuse).unwrap();
    let said = load(&path).unwrap_err().to_string();
    assert!(said.contains("target"), "{said}");
    save(&path, &run(9, 2), OnExisting::Replace).unwrap();
    for file in ["causal.json", "causal_windows.parquet"] {
        let file = path.join(file);
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        fs::write(&file, &bytes).unwrap();
        assert!(matches!(load(&path), Err(StoreError::Corrupt { .. })), "{}", file.display());
        bytes[middle] ^= 4;
        fs::write(&file, &bytes).unwrap();
    }
    assert!(load(&path).is_ok());
    assert!(matches!(load(dir.path()), Err(StoreError::NotAStore { .. })));
}
