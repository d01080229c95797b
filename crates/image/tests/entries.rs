//! How the functions of real programs can be replaced at their entries: figures over whole files, and the
//! rows of unwind rules against another reader of the same bytes.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests: a panic is the verdict, a skip is told")]

use std::collections::BTreeMap;
use std::time::Instant;
use whither_image::{Bytes, CodeMap, EntryRefusal, PlanKind, Svma, UnwindRows, code_names};

/// Files with at least so many functions patched, in percent.
const FILES: [(&str, f64); 10] = [
    ("/bin/bash", 99.5),
    ("/usr/bin/git", 99.5),
    ("/usr/bin/python3.11", 98.0),
    ("/lib/x86_64-linux-gnu/libc.so.6", 98.0),
    ("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", 99.0),
    ("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", 99.0),
    ("/usr/bin/gdb", 99.0),
    ("/usr/lib/gcc/x86_64-linux-gnu/12/cc1", 99.0),
    ("/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1", 99.0),
    ("RUSTC_DRIVER", 99.0),
];

/// Half a minute of work: `cargo test --release -p whither-image --test entries -- --ignored --nocapture`.
#[test]
#[ignore = "reads 500 MB of libraries"]
fn nearly_every_function_can_be_patched() {
    for (path, at_least) in FILES {
        let path = if path == "RUSTC_DRIVER" { rustc_driver() } else { Some(path.to_owned()) };
        let Some((path, bytes)) = path.and_then(|p| Some((p.clone(), std::fs::read(p).ok()?))) else {
            println!("SKIP: no {at_least}");
            continue;
        };
        let share = coverage(&path, Bytes::from(bytes));
        assert!(share >= at_least, "{path}: {share:.2} % instead of {at_least}");
    }
}

fn rustc_driver() -> Option<String> {
    let root = std::process::Command::new("rustc").arg("--print=sysroot").output().ok()?;
    let lib = format!("{}/lib", String::from_utf8(root.stdout).ok()?.trim());
    let files = std::fs::read_dir(lib).ok()?.filter_map(Result::ok);
    let mut names = files.map(|f| f.path().to_string_lossy().into_owned());
    names.find(|n| n.contains("librustc_driver") && n.ends_with(".so"))
}

fn coverage(path: &str, file: Bytes) -> f64 {
    let started = Instant::now();
    let rows = UnwindRows::from_elf(&file).unwrap();
    let unwound = started.elapsed();
    let names = code_names(&file, None);
    let started = Instant::now();
    let map = CodeMap::from_elf(&file, &names).unwrap();
    let opened = started.elapsed();
    let mut starts: Vec<Svma> = map.unwind_starts().collect();
    let cold = |at: &Svma| names.iter().any(|n| n.address == *at && n.name.contains(".cold"));
    starts.sort_unstable();
    starts.dedup();
    if starts.len() < 30_000 {
        starts.retain(|at| !cold(at));
    }
    let started = Instant::now();
    let _ = map.entry(starts[0]);
    let first = started.elapsed();
    let started = Instant::now();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let mut repeats = 0;
    for &at in &starts {
        let entry = map.entry(at);
        repeats += usize::from(entry.repeats.is_some());
        let kind = match entry.plan {
            Ok(plan) => format!("{:?}", plan.kind),
            Err(EntryRefusal::TooShort { .. }) => "short".into(),
            Err(EntryRefusal::BranchInto { .. }) => "branch".into(),
            Err(EntryRefusal::CallInside) => "call".into(),
            Err(EntryRefusal::Immovable { .. }) => "immovable".into(),
            Err(e) => e.to_string(),
        };
        *kinds.entry(kind).or_default() += 1;
        if let Some(n) = entry.no_exit {
            *kinds.entry(format!("({n:?})")).or_default() += 1;
        }
    }
    let all = started.elapsed();
    let of = |kind: PlanKind| kinds.get(&format!("{kind:?}")).copied().unwrap_or(0);
    let plain = of(PlanKind::Jump) as f64 / starts.len() as f64 * 100.0;
    let good = of(PlanKind::Jump) + of(PlanKind::Padded) + of(PlanKind::Short);
    let share = good as f64 / starts.len() as f64 * 100.0;
    println!(
        "{path}: {} functions, jmp5 {plain:.2} %, all {share:.2} %; {kinds:?} repeats {repeats}; rows {} ({} big, {:?}) in {unwound:?}; \
         opened {opened:?}, first {first:?}, all {all:?}",
        starts.len(),
        rows.rows.len(),
        rows.big.len(),
        rows.problems
    );
    share
}
