//! Branch records from a perf.data file to executions. Files are made here from programs that are walked to the last
//! execution, and one was recorded on a real CPU (see fixtures/perf-data) of a program whose loop can be counted by hand.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

#[path = "../../../cycles/tests/cycles/walked.rs"]
mod walked;

use std::io::Cursor;
use std::path::{Path, PathBuf};
use walked::{Ask, BASE, Dice, PATH, Program, Shares, Walk, Walked, exact, walk};
use whither_cycles::accuracy::accuracy;
use whither_cycles::results::analysis::{Analysis, Evidence};
use whither_cycles::{AnalyseQuery, analyse};
use whither_image::ElfSummary;
use whither_sample::import::{Lookup, read};
use whither_store::model::{EdgeSource, Profile, Way};
use whither_store::{StoredSymbols, SymbolOptions, SymbolService};

/// Where the program of a made file is loaded.
const LOADED: u64 = 0x40_0000;
const HEADER: u64 = 104;
const ATTRIBUTE: u64 = 112;

/// `perf record -e cycles:u -c N -b`: attributes, event description, a mapping, samples with their stacks.
fn perf_data(program: &Program, walk: &Walk) -> Vec<u8> {
    let words = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let record = |kind: u32, misc: u16, body: &[u8]| {
        let size = u16::try_from(8 + body.len()).unwrap();
        [&kind.to_le_bytes()[..], &misc.to_le_bytes(), &size.to_le_bytes(), body].concat()
    };
    // IP, TID, TIME, PERIOD, BRANCH_STACK; USER and ANY.
    let sample_type = 1 | 1 << 1 | 1 << 2 | 1 << 8 | 1 << 11;
    let mut attribute = words(&[ATTRIBUTE << 32, 0, 4000, sample_type]);
    attribute.resize(ATTRIBUTE as usize, 0);
    attribute[72..80].copy_from_slice(&(1_u64 | 1 << 3).to_le_bytes());
    let length = (BASE + program.code.len() as u64).next_multiple_of(4096);
    let mapping = [
        &words(&[5 | 5 << 32, LOADED, length, 0])[..],
        &[20, 0, 0, 0],
        &[0xab; 20],
        &words(&[5]),
        PATH.as_bytes(),
        &[0; 8][..8 - PATH.len() % 8],
    ];
    let mut data = record(10, 2 | 1 << 14, &mapping.concat());
    for (i, (at, stack)) in walk.stacks.iter().enumerate() {
        let ip = LOADED + program.blocks[*at].start;
        let mut body = words(&[ip, 5 | 5 << 32, 1000 + i as u64, 4000, stack.len() as u64]);
        stack.iter().for_each(|b| body.extend(words(&[LOADED + b.0, LOADED + b.1, 0])));
        data.extend(record(9, 2, &body));
    }
    let name = b"cycles:u\0\0\0\0\0\0\0\0";
    let described = [&words(&[1 | ATTRIBUTE << 32])[..], &attribute, &words(&[16 << 32]), name].concat();
    let begin = HEADER + ATTRIBUTE + 16;
    let table = begin + data.len() as u64;
    let header =
        words(&[HEADER, ATTRIBUTE + 16, HEADER, ATTRIBUTE + 16, begin, data.len() as u64, 0, 0, 1 << 12, 0, 0, 0]);
    let section = words(&[table + 16, described.len() as u64]);
    [&b"PERFILE2"[..], &header, &attribute, &words(&[0, 0]), &data, &section, &described].concat()
}

fn import(bytes: Vec<u8>) -> Profile {
    read(Cursor::new(bytes), 1_800_000_000_000_000_000, Lookup::Nothing).unwrap().profile
}

#[test]
fn records_that_come_with_samples_of_time_tell_executions_too() {
    let mut sum = Shares::default();
    for seed in 1..=24_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let program = Program::new(&mut dice);
        let walk = walk(&program, 3_000_000, 32, Ask::Time(1000.0), seed);
        let profile = import(perf_data(&program, &walk));
        assert!(profile.edges.iter().all(|e| e.source == EdgeSource::Records) && !profile.edges.is_empty());
        assert_eq!(profile.epochs[0].losses.impossible_runs, 0);
        sum.add(&accuracy(&profile, &Walked(&program), &exact(&program, &walk), &AnalyseQuery::default()).unwrap());
    }
    let mean = sum.mean();
    println!("{mean:?}");
    // Some blocks here take a thousand times as long as others: without weighing, half of it would be out of reach.
    assert!(mean.meets_the_bars(), "{mean:?}");
    assert!(mean.sure.0 > 0.2 && mean.sure.1 > 0.9, "called sure: {mean:?}");
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/perf-data")
}

/// The names and code of the program of a Skylake's recording, put where debug files are looked for.
fn symbols(profile: &mut Profile, dir: &Path) -> SymbolService {
    let program = std::fs::read(fixtures().join("records.program")).unwrap();
    let image = profile.images.iter_mut().find(|i| i.path.ends_with("propeller_sample_1.bin.gen")).unwrap();
    // As if it had been where it was when it was recorded.
    image.segments = ElfSummary::parse(&program).unwrap().segments;
    let id = image.id.to_hex();
    let place = dir.join(".build-id").join(&id[..2]);
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(place.join(&id[2..]), program).unwrap();
    let options = SymbolOptions { debug_dirs: vec![dir.to_path_buf()], cache_dir: None, ..SymbolOptions::default() };
    SymbolService::new(options, StoredSymbols::default())
}

/// Share of the executions of the block at the end of which a branch stands that take it.
fn taken(a: &Analysis, branch: u64) -> f64 {
    let block = a.insns.iter().find(|i| i.address == branch).and_then(|i| i.block).unwrap();
    let edge = a.edges.iter().find(|e| e.from == block && e.kind == "taken").unwrap();
    assert!(edge.evidence > 300, "{edge:?}");
    edge.probability
}

#[test]
fn a_real_recording_tells_what_can_be_counted_by_hand() {
    let mut profile = import(std::fs::read(fixtures().join("records.data")).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let symbols = symbols(&mut profile, dir.path());
    let of = |name: &str| analyse(&profile, &symbols, name, &AnalyseQuery::default()).unwrap();
    // for (i = 0; i < 80,000,000; i++) { flag = i % 10 < 4 ? i + 1 : 0; if (flag) ...; if (count++ % 138,473,522 == 183) ... }
    let (main, flag) = (of("main"), of("compute_flag"));
    for a in [&main, &flag] {
        assert_eq!(a.evidence, Evidence::Records);
        assert!(a.recorded > 1000 && a.missing.is_empty(), "{} {:?}", a.recorded, a.missing);
        // The CPU, or its kernel, left out a record now and then.
        let told = a.notes.iter().find(|n| n.contains("left out"));
        let left_out = told.map_or(0, |n| n.split(' ').next().unwrap().parse::<u64>().unwrap());
        assert!(left_out * 50 < a.recorded, "{:?}", a.notes);
    }
    let shares = [taken(&flag, 0x18e3), taken(&main, 0x19de), taken(&main, 0x1982), taken(&main, 0x1a26)];
    println!("{shares:?}");
    for (share, truth) in shares.iter().zip([0.6, 0.6, 1.0, 1.0]) {
        assert!((share - truth).abs() <= 0.05, "{shares:?}");
    }
    // All blocks of the loop, against each other.
    let executions = |a: &Analysis, at: u64| a.blocks.iter().find(|b| b.address == at).unwrap().frequency;
    let around = executions(&main, 0x1957);
    for (at, truth) in [(0x1964, 1.0), (0x19da, 1.0), (0x19e4, 0.4), (0x1a12, 1.0), (0x1a60, 1.0), (0x1a65, 1.0)] {
        let found = executions(&main, at);
        let off = found.value / around.value / truth - 1.0;
        println!("{at:x}: {:.1} %, {:?}", 100.0 * off, found.confidence);
        assert!(off.abs() < 0.15, "{at:x}: {found:?} of {around:?}");
    }
    let note = profile.epochs[0].notes.iter().find(|n| n.starts_with("Branch records")).unwrap();
    assert!(note.contains("with samples of another event"), "{note}");
    assert!(profile.edges.iter().all(|e| matches!(e.way, Way::To(_) | Way::Taken)));
}
