//! Habits that reviews would forget: every source file says what lives in it, none is longer than
//! 700 lines, none carries a mark of unfinished work, and `unsafe` stays in its rooms.

use std::path::{Path, PathBuf};

const LONGEST: usize = 700;
/// Folders with sources of ours.
const FOLDERS: &[&str] = &["crates", "bpf", "agent", "include", "fuzz", "workloads", "benches"];
/// Marks of unfinished work, spelled so that this file does not carry them.
const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:")];
/// Crates that may hold unsafe code, and the single files elsewhere that may.
const UNSAFE_CRATES: &[&str] = &["crates/kernel/", "crates/sample/", "crates/probe/"];
const UNSAFE_FILES: &[&str] = &["crates/store/src/mmap.rs", "crates/progress/src/lib.rs"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Path below the root and text of every source file.
fn sources() -> Vec<(String, String)> {
    let root = root().canonicalize().expect("the workspace has a root");
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(|f| root.join(f)).filter(|f| f.is_dir()).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a readable folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                if entry.file_name() != "target" {
                    folders.push(path);
                }
            } else if is_source(&path) {
                let name = path.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned();
                found.push((name, std::fs::read_to_string(&path).expect("sources are UTF-8")));
            }
        }
    }
    assert!(found.len() > 50, "only {} sources found", found.len());
    found
}

fn is_source(path: &Path) -> bool {
    path.extension().is_some_and(|e| ["rs", "c", "h", "S"].iter().any(|known| e == *known))
}

fn complain(what: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{what}:\n  {}", wrong.join("\n  "));
}

#[test]
fn every_file_says_what_lives_in_it() {
    let headless = |(name, text): &(String, String)| {
        let first = text.lines().find(|l| !l.trim().is_empty() && !l.contains("SPDX-License-Identifier")).unwrap_or("");
        let rust = name.ends_with(".rs");
        let good = if rust { first.starts_with("//!") } else { first.starts_with("/*") || first.starts_with("//") };
        (!good).then(|| name.clone())
    };
    let wrong: Vec<String> = sources().iter().filter_map(headless).collect();
    complain("files without a head comment (//! in Rust, /* or // in C)", &wrong);
}

#[test]
fn no_file_is_longer_than_it_can_be_read() {
    let long = |(name, text): &(String, String)| {
        let lines = text.lines().count();
        (lines > LONGEST).then(|| format!("{name}: {lines} lines"))
    };
    let wrong: Vec<String> = sources().iter().filter_map(long).collect();
    complain("files over 700 lines", &wrong);
}

#[test]
fn nothing_is_left_for_later() {
    let unfinished = |(name, text): &(String, String)| {
        let at = text.lines().position(|l| MARKS.iter().any(|m| l.contains(m)))?;
        Some(format!("{name}:{}", at + 1))
    };
    let wrong: Vec<String> = sources().iter().filter_map(unfinished).collect();
    complain("marks of unfinished work", &wrong);
}

#[test]
fn unsafe_stays_in_its_rooms() {
    let block = concat!("uns", "afe {");
    let function = concat!("uns", "afe fn");
    let stray = |(name, text): &(String, String)| {
        let allowed = UNSAFE_CRATES.iter().any(|c| name.starts_with(c)) || UNSAFE_FILES.contains(&name.as_str());
        let used = name.ends_with(".rs") && text.lines().any(|l| l.contains(block) || l.contains(function));
        (used && !allowed).then(|| name.clone())
    };
    let wrong: Vec<String> = sources().iter().filter_map(stray).collect();
    complain("unsafe code outside its rooms", &wrong);
}
