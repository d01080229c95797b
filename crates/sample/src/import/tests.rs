//! Recorded files against what perf itself counts in them, and files that are damaged.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::PathBuf;
use whither_store::model::{EdgeSource, ImageKind, StackEnd, Way};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/perf-data")
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).expect("a fixture")
}

fn import(name: &str) -> Profile {
    read(Cursor::new(bytes(name)), 1_800_000_000_000_000_000, Lookup::Nothing).expect("readable").profile
}

/// Samples and weight by event, process and image, as the golden files have them.
fn counts(p: &Profile) -> BTreeMap<(String, u32, String), (u64, u64)> {
    let mut counts = BTreeMap::new();
    for s in &p.samples {
        let image = p.image(s.image);
        let label = match image.kind {
            ImageKind::Unknown => "[unknown]",
            ImageKind::Bpf => "[bpf]",
            _ => copies(&image.path),
        };
        let key = (p.event(s.event).name.clone(), p.process(s.process).pid, label.to_owned());
        let cell: &mut (u64, u64) = counts.entry(key).or_default();
        *cell = (cell.0 + u64::from(s.count), cell.1 + s.weight());
    }
    counts
}

/// The deleted file and the memfd are copies of one program, with one build-id: one image to us.
fn copies(path: &str) -> &str {
    if path.ends_with("/short-lived") || path == "/memfd:no-file" { "[copies]" } else { path }
}

fn golden(name: &str) -> BTreeMap<(String, u32, String), (u64, u64)> {
    let text = std::fs::read_to_string(folder().join(name)).expect("a golden file");
    let row = |line: &str| {
        let f: Vec<&str> = line.split('\t').collect();
        let number = |i: usize| f[i].parse::<u64>().expect("a number");
        let key = (f[0].to_owned(), u32::try_from(number(1)).expect("a pid"), copies(f[2]).to_owned());
        (key, (number(3), number(4)))
    };
    let mut counts: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for (key, (samples, weight)) in text.lines().map(row) {
        let cell = counts.entry(key).or_default();
        *cell = (cell.0 + samples, cell.1 + weight);
    }
    counts
}

#[test]
fn every_sample_is_where_perf_has_it() {
    for name in ["flat", "stacks", "system", "mmap-ids", "dwarf"] {
        let profile = import(&format!("{name}.data"));
        assert_eq!(counts(&profile), golden(&format!("{name}.golden")), "{name}");
    }
}

#[test]
fn programs_of_one_pid_keep_their_names_and_build_ids() {
    let p = import("mmap-ids.data");
    let comms: Vec<&str> = p.processes.iter().map(|p| p.comm.as_str()).collect();
    for comm in ["life", "life-after", "short-lived"] {
        assert!(comms.contains(&comm), "{comms:?}");
    }
    // A pid that ran two programs has two rows.
    let twice = p.processes.iter().filter(|a| p.processes.iter().any(|b| a.pid == b.pid && a.comm != b.comm)).count();
    assert!(twice >= 2, "{:?}", p.processes);
    let image = p.images.iter().find(|i| i.path.ends_with("/life")).expect("sampled");
    assert_eq!(image.id_kind, whither_image::IdKind::BuildId);
    let copies: Vec<&str> =
        p.images.iter().map(|i| i.path.as_str()).filter(|p| p.contains("short-lived") || p.contains("memfd")).collect();
    assert_eq!(copies.len(), 1, "{copies:?}");
}

#[test]
fn stacks_hold_the_chain_and_start_at_the_sample() {
    let p = import("stacks.data");
    let program = p.images.iter().position(|i| i.path.ends_with("deepstack-fp")).expect("sampled");
    let total: u32 = p.samples.iter().map(|s| s.count).sum();
    let stacked: u32 = p.stack_samples.iter().map(|s| s.count).sum();
    assert_eq!(stacked, total, "every sample of -g has a stack");
    let mut deep = 0;
    for row in &p.stack_samples {
        let stack = &p.stacks[row.stack.0 as usize];
        let in_program = stack.frames.iter().filter(|f| f.image.0 as usize == program).count();
        // main, outer, middle, inner, leaf or main, side, leaf.
        deep += if in_program == 5 || in_program == 3 { row.count } else { 0 };
        assert!(stack.frames.len() < 20, "{stack:?}");
        assert!(stack.end == StackEnd::Complete || in_program < 6, "{stack:?}");
        assert!(p.samples.iter().any(|s| Some(s.offset) == stack.frames.first().map(|f| f.offset)));
    }
    assert!(deep * 10 >= total * 9, "{deep} of {total} stacks hold a chain");
}

/// Runs by image, begin, end and target, as the golden files have them; of user code alone.
fn runs(p: &Profile) -> BTreeMap<(String, u64, u64, Option<u64>), u32> {
    let mut out = BTreeMap::new();
    for e in p.edges.iter().filter(|e| p.image(e.image).path.starts_with('/')) {
        let to = match e.way {
            Way::To(at) => Some(at.0),
            Way::Taken => None,
            Way::Fall | Way::Undecided => panic!("{e:?}"),
        };
        *out.entry((p.image(e.image).path.clone(), e.pc.0, e.branch.0, to)).or_default() += e.count;
    }
    out
}

#[test]
fn every_run_between_branch_records_is_where_perf_has_it() {
    let p = import("even-records.data");
    let text = std::fs::read_to_string(folder().join("even-records.golden")).expect("a golden file");
    let row = |line: &str| {
        let f: Vec<&str> = line.split('\t').collect();
        let hex = |i: usize| u64::from_str_radix(f[i], 16).expect("hexadecimal");
        let to = (f[3] != "-").then(|| hex(3));
        ((f[0].to_owned(), hex(1), hex(2), to), f[4].parse::<u32>().expect("a count"))
    };
    assert_eq!(runs(&p), text.lines().map(row).collect());
    // An event of taken branches with a fixed period: nothing is to be weighed.
    assert!(p.edges.iter().all(|e| e.source == EdgeSource::EvenRecords));
    let kernel: u32 = p.edges.iter().filter(|e| p.image(e.image).kind == ImageKind::Kernel).map(|e| e.count).sum();
    assert_eq!(kernel, 15, "one sample was taken there");
    let note = p.epochs[0].notes.iter().find(|n| n.starts_with("Branch records")).expect("told");
    assert!(note.contains(" 7500 runs") && note.contains("equally likely"), "{note}");
}

#[test]
fn records_that_came_with_time_are_weighed() {
    let p = import("records.data");
    let all: u32 = p.edges.iter().map(|e| e.count).sum();
    assert!(p.edges.iter().all(|e| e.source == EdgeSource::Records));
    // 499 samples have 31 runs each; stacks of slow stretches count less.
    assert!((5_000..=15_469).contains(&all), "{all}");
    assert_eq!(p.edges, import("records.data").edges, "the same file gives the same rows");
}

#[test]
fn records_of_some_kinds_of_branches_are_not_used_and_that_is_said() {
    let mut data = bytes("records.data");
    let attribute = data[104..104 + 72].to_vec();
    let places: Vec<usize> = (104..data.len() - 80).filter(|at| data[*at..].starts_with(&attribute)).collect();
    assert_eq!(places.len(), 2, "in the attributes and in their description");
    for at in places {
        // PERF_SAMPLE_BRANCH_USER | PERF_SAMPLE_BRANCH_ANY_CALL
        data[at + 72..at + 80].copy_from_slice(&(1_u64 | 1 << 4).to_le_bytes());
    }
    let p = read(Cursor::new(data), 0, Lookup::Nothing).expect("readable").profile;
    assert_eq!(p.edges, []);
    assert!(p.epochs[0].notes.iter().any(|n| n.contains("were not used")), "{:?}", p.epochs[0].notes);
}

#[test]
fn counts_at_anothers_samples_are_not_imported_and_that_is_said() {
    // perf record -e '{cpu-clock,page-faults}:S' -c 1000000
    let p = import("leader.data");
    let columns: Vec<&str> = p.events.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(columns, ["cpu-clock", "page-faults"]);
    let notes = &p.epochs[0].notes;
    assert!(notes.iter().any(|n| n.starts_with("page-faults was counted at samples of another event")), "{notes:?}");
    assert!(!notes.iter().any(|n| n.starts_with("cpu-clock was counted")));
}

#[test]
fn the_file_tells_of_its_machine() {
    let p = import("system.data");
    let meta = &p.epochs[0];
    assert!(meta.cpus == 2 && meta.kernel.starts_with("6.18") && meta.scope == "whole system", "{meta:?}");
    assert!(meta.command.iter().any(|w| w == "./life"), "{:?}", meta.command);
    let names: Vec<&str> = p.events.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["cpu-clock", "page-faults"]);
    let total: u64 = p.samples.iter().map(|s| u64::from(s.count)).sum();
    assert_eq!(p.rates.iter().map(|r| r.delivered).sum::<u64>(), total);
    let slices = (meta.start_ns / 1_000_000_000, meta.end_ns / 1_000_000_000 + 1);
    assert!(p.samples.iter().all(|s| (slices.0..=slices.1).contains(&u64::from(s.slice))), "{slices:?}");
}

#[test]
fn other_files_are_refused_with_the_reason() {
    let refuse = |bytes: Vec<u8>| read(Cursor::new(bytes), 0, Lookup::Nothing).expect_err("not importable").to_string();
    assert!(refuse(Vec::new()).contains("not a perf.data file"));
    assert!(refuse(b"\x7fELF and more than sixteen bytes".to_vec()).contains("not a perf.data file"));
    assert!(refuse([&b"PERFILE2"[..], &16u64.to_le_bytes(), &[0; 64]].concat()).contains("record to a file"));
    let mut killed = bytes("flat.data");
    killed[48..56].fill(0);
    assert!(refuse(killed).contains("let it finish"));
    let mut foreign = bytes("flat.data");
    foreign[..8].copy_from_slice(b"2ELIFREP");
    assert!(refuse(foreign).contains("big-endian"));
}

#[test]
fn a_file_cut_anywhere_is_an_error() {
    let whole = bytes("flat.data");
    for length in (0..whole.len()).step_by(61) {
        read(Cursor::new(&whole[..length]), 0, Lookup::Nothing).expect_err("cut");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn damage_never_panics(changes in prop::collection::vec((0usize..14_000, any::<u8>()), 1..12)) {
        // The last is the beginning of even-records.data.
        for name in ["mmap-ids.data", "stacks.data", "../../fuzz/seeds/perf_data/even-records.data"] {
            let mut damaged = bytes(name);
            let length = damaged.len();
            for (at, value) in &changes {
                damaged[at % length] = *value;
            }
            // Whatever it answers, it answers.
            let _ = read(Cursor::new(damaged), 0, Lookup::Nothing);
        }
    }
}
