//! Import of perf.data: what whither answers from the imported file against `perf report` on the same
//! file, symbol by symbol.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::support::{Listing, alone, answer, need_root, text, whither, workload};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Returns from the test, saying so, where perf is not installed.
macro_rules! need_perf {
    () => {
        if Command::new("perf").arg("--version").output().is_err() {
            println!("SKIP: perf is not installed");
            return;
        }
    };
}

/// `perf record ARGS` of a workload, and its import.
fn record_and_import(directory: &Path, args: &[&str], program: &str) -> Listing {
    let data = directory.join("perf.data");
    let done = Command::new("perf")
        .args(["record", "-q", "-F", "1999", "-o"])
        .arg(&data)
        .args(args)
        .arg("--")
        .arg(workload(program))
        .arg("1")
        .output()
        .unwrap();
    assert!(done.status.success(), "perf record: {}", text(&done.stderr));
    let recording = directory.join("imported.wh");
    let done = whither().arg("import").arg(&data).arg("-o").arg(&recording).output().unwrap();
    assert!(done.status.success(), "whither import: {}", text(&done.stderr));
    Listing(answer(whither().arg("prof").arg(recording).args(["--by", "proc,image", "--all", "--json"])))
}

/// Samples per (symbol, image) as perf counts them.
fn perf_counts(directory: &Path) -> BTreeMap<(String, String), u64> {
    let report = Command::new("perf")
        .args(["report", "--stdio", "-q", "-t", "\t", "-n", "--no-children", "-g", "none", "--sort", "dso,sym", "-i"])
        .arg(directory.join("perf.data"))
        .output()
        .unwrap();
    let mut counts = BTreeMap::new();
    for line in text(&report.stdout).lines().filter(|l| !l.trim().is_empty()) {
        let fields: Vec<&str> = line.split('\t').map(str::trim).collect();
        let [_, samples, dso, symbol] = fields[..] else { panic!("perf report: {line}") };
        let name = symbol.split_once(' ').map_or(symbol, |(_, name)| name);
        *counts.entry((name.to_owned(), dso.to_owned())).or_default() += samples.parse::<u64>().unwrap();
    }
    counts
}

/// Kernel functions by address: of two names at one address each tool takes its own.
fn kernel_addresses() -> BTreeMap<String, String> {
    let mut addresses: BTreeMap<String, String> = BTreeMap::new();
    for line in std::fs::read_to_string("/proc/kallsyms").unwrap().lines() {
        let mut words = line.split_whitespace();
        if let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next()) {
            addresses.entry(name.to_owned()).or_insert_with(|| address.to_owned());
        }
    }
    addresses
}

fn compare(args: &[&str], program: &str) {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let ours = record_and_import(directory.path(), args, program);
    let perf = perf_counts(directory.path());
    let total: u64 = perf.values().sum();
    assert!(total > 300, "{total} samples");
    assert_eq!(ours.total(), total, "every sample arrived");
    let addresses = kernel_addresses();
    let place = |name: &str, image: &str| {
        let kernel = image.starts_with("[kernel");
        let name = if kernel { addresses.get(name).map_or(name, String::as_str) } else { name };
        (name.to_owned(), if kernel { "[kernel]" } else { image.rsplit('/').next().unwrap() }.to_owned())
    };
    let mut differences: BTreeMap<(String, String), i64> = BTreeMap::new();
    for ((name, dso), samples) in &perf {
        *differences.entry(place(name, dso)).or_default() += i64::try_from(*samples).unwrap();
    }
    for (labels, samples) in ours.rows() {
        *differences.entry(place(&labels[0], &labels[1])).or_default() -= i64::try_from(samples).unwrap();
    }
    let differing: u64 = differences.values().map(|d| d.unsigned_abs()).sum();
    // Code without symbols: perf makes up names from the nearest dynamic symbol.
    assert!(differing * 50 <= total, "{differing} of {total} samples differ: {differences:?}");
}

#[test]
fn symbols_have_the_counts_that_perf_reports() {
    need_root!();
    need_perf!();
    compare(&[], "shares");
}

#[test]
fn so_they_have_with_call_graphs() {
    need_root!();
    need_perf!();
    compare(&["-g"], "deepstack-fp");
}

#[test]
fn so_they_have_with_the_kernel_and_system_calls() {
    need_root!();
    need_perf!();
    compare(&[], "irqoff");
}

/// Shares of the call tree's nodes of a name, wherever they are, in percent.
fn percent(tree: &serde_json::Value, name: &str) -> f64 {
    let own = if tree["name"] == name { tree["total"].as_f64().unwrap() } else { 0.0 };
    own + tree["children"].as_array().into_iter().flatten().map(|c| percent(c, name)).sum::<f64>()
}

#[test]
fn copied_stacks_are_unwound_and_a_kernel_without_build_id_is_known_by_its_place() {
    need_root!();
    need_perf!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let listing = record_and_import(directory.path(), &["-B", "--call-graph", "dwarf"], "deepstack");
    let nameless = listing.rows().iter().filter(|(l, _)| l[0] == "[no symbol]" && l[1] == "[kernel]").count();
    assert_eq!(nameless, 0, "{:?}", listing.rows());
    let recording = directory.path().join("imported.wh");
    let answer = answer(whither().arg("prof").arg(recording).args(["--tree", "--json"]));
    let tree = &answer["tree"];
    let total = tree["total"].as_f64().unwrap();
    let share = |name: &str| 100.0 * percent(tree, name) / total;
    // leaf is called by inner (by middle, by outer) and by side; all of them from main.
    assert!(share("main") > 95.0, "{tree:#}");
    assert!((share("outer") + share("side") - share("main")).abs() < 2.0, "{tree:#}");
    assert!((share("outer") - share("inner")).abs() < 2.0, "{tree:#}");
    assert_eq!(answer["provenance"]["stacks"][0].as_u64().unwrap(), listing.total(), "every sample has a stack");
}

#[test]
fn what_is_no_perf_data_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("x.wh");
    let done = whither().args(["import", "/etc/passwd", "-o"]).arg(&output).output().unwrap();
    let said = text(&done.stderr);
    assert!(matches!(done.status.code(), Some(2 | 3)), "{said}");
    assert!(said.contains("/etc/passwd") && said.contains("not a perf.data file"), "{said}");
    assert!(!output.exists(), "an empty recording was left behind");
}
