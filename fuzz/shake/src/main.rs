//! Runs every fuzz target over its kept seeds and over random damage of them, for some seconds each:
//! `whither-shake [SECONDS]`. The same inputs come in the same order in every run, so a failure comes
//! back. A target fails when it panics or ponders one input for too long; the input is kept in target/.

mod mutate;
// `no_main` in the targets is for the fuzzer and means nothing in a module.
#[allow(unused_attributes)]
#[path = "../../fuzz_targets/cfg.rs"]
mod cfg;
#[allow(unused_attributes)]
#[path = "../../fuzz_targets/coz.rs"]
mod coz;
#[allow(unused_attributes)]
#[path = "../../fuzz_targets/demangle.rs"]
mod demangle;
#[allow(unused_attributes)]
#[path = "../../fuzz_targets/disasm.rs"]
mod disasm;
#[allow(unused_attributes)]
#[path = "../../fuzz_targets/dwarf.rs"]
mod dwarf;
#[allow(unused_attributes)]
#[path = "../../fuzz_targets/elf.rs"]
mod elf;
#[allow(unused_attributes)]
#[path = "../../fuzz_targets/entries.rs"]
mod entries;
#[allow(unused_attributes)]
#[path = "../../fuzz_targets/function_table.rs"]
mod function_table;
#[allow(unused_attributes)]
#[path = "../../fuzz_targets/interp.rs"]
mod interp;
#[allow(unused_attributes)]
#[path = "../../fuzz_targets/jitdump.rs"]
mod jitdump;
#[allow(unused_attributes)]
#[path = "../../fuzz_targets/kallsyms.rs"]
mod kallsyms;
#[allow(unused_attributes)]
#[path = "../../fuzz_targets/perf_data.rs"]
mod perf_data;
#[allow(unused_attributes)]
#[path = "../../fuzz_targets/perfmap.rs"]
mod perfmap;
#[allow(unused_attributes)]
#[path = "../../fuzz_targets/relocate.rs"]
mod relocate;
#[allow(unused_attributes)]
#[path = "../../fuzz_targets/store_description.rs"]
mod store_description;
#[allow(unused_attributes)]
#[path = "../../fuzz_targets/store_table.rs"]
mod store_table;
#[allow(unused_attributes)]
#[path = "../../fuzz_targets/unwind.rs"]
mod unwind;

use mutate::Dice;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, take_hook};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Inputs are a few kilobytes; none needs longer in a build with checks on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

struct Target {
    name: &'static str,
    /// Folders of `seeds/`.
    seeds: &'static [&'static str],
    init: fn(),
    run: fn(&[u8]),
}

macro_rules! target {
    ($name:ident, $($seeds:literal),*) => {
        Target { name: stringify!($name), seeds: &[$($seeds),*], init: $name::init, run: $name::run }
    };
}

const TARGETS: &[Target] = &[
    target!(cfg, "disasm"),
    target!(coz, "coz"),
    target!(demangle, "demangle"),
    target!(disasm, "disasm"),
    target!(dwarf, "dwarf"),
    target!(elf, "elf"),
    target!(entries, "elf", "dwarf"),
    target!(function_table, "function_table"),
    target!(interp, "disasm"),
    target!(jitdump, "jitdump"),
    target!(kallsyms, "kallsyms"),
    target!(perf_data, "perf_data"),
    target!(perfmap, "perfmap"),
    target!(relocate, "disasm"),
    target!(store_description, "store_description"),
    target!(store_table, "store_table"),
    target!(unwind, "unwind"),
];

fn main() -> ExitCode {
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(1.0);
    let failed = shake_all(Duration::from_secs_f64(seconds));
    failed.iter().for_each(|why| eprintln!("FAILED {why}"));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every target for some time; returns what failed.
fn shake_all(time: Duration) -> Vec<String> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut failed = missing(&fuzz);
    for target in TARGETS {
        match shake(target, &fuzz, time) {
            Ok(inputs) => println!("{:<18} {inputs:>8} inputs", target.name),
            Err(why) => failed.push(format!("{}: {why}", target.name)),
        }
    }
    failed
}

/// Targets that are not in the table above, or not in the fuzzer's manifest.
fn missing(fuzz: &Path) -> Vec<String> {
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap_or_default();
    let built = |t: &&Target| manifest.contains(&format!("path = \"fuzz_targets/{}.rs\"", t.name));
    let unbuilt = TARGETS.iter().filter(|t| !built(t)).map(|t| format!("{}: add it to fuzz/Cargo.toml", t.name));
    let files = fs::read_dir(fuzz.join("fuzz_targets")).into_iter().flatten().flatten();
    let names = files.filter_map(|f| f.path().file_stem()?.to_str().map(str::to_owned));
    let unknown = names.filter(|n| TARGETS.iter().all(|t| t.name != n));
    unbuilt.chain(unknown.map(|n| format!("{n}: add it to fuzz/shake/src/main.rs"))).collect()
}

/// Runs the seeds as they are, then damaged ones until the time is over; returns how many.
fn shake(target: &Target, fuzz: &Path, time: Duration) -> Result<u64, String> {
    let mut seeds: Vec<Vec<u8>> = vec![Vec::new()];
    for folder in target.seeds {
        seeds.extend(files(&fuzz.join("seeds").join(folder))?);
    }
    (target.init)();
    let mut dice = Dice::new(target.name);
    let (start, mut done) = (Instant::now(), 0);
    let outcome = loop {
        let input = match seeds.get(done as usize) {
            Some(seed) => seed.clone(),
            None if start.elapsed() >= time => break Ok(done),
            None => dice.damaged(&seeds),
        };
        if let Err(why) = once(target, &input) {
            break Err(format!("{why}; input {done} is kept in {}", keep(target, &input).display()));
        }
        done += 1;
    };
    // A target may have silenced panics for itself.
    drop(take_hook());
    outcome
}

fn files(folder: &Path) -> Result<Vec<Vec<u8>>, String> {
    let unreadable = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        paths.push(entry.map_err(unreadable)?.path());
    }
    paths.sort();
    paths.iter().map(|p| fs::read(p).map_err(unreadable)).collect()
}

fn once(target: &Target, input: &[u8]) -> Result<(), String> {
    let start = Instant::now();
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|_| "it panicked".to_owned())?;
    if start.elapsed() > PATIENCE { Err(format!("it took {:.1?}", start.elapsed())) } else { Ok(()) }
}

fn keep(target: &Target, input: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(format!("shake-{}", target.name));
    // What cannot be kept comes again in the next run.
    let _ = fs::write(&path, input);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_survives_a_second_of_damage() {
        let failed = shake_all(Duration::from_secs(1));
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }
}
