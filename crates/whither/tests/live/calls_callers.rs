//! Calls of a function from some modules only (`-f tick@liba`): exact for direct callers, for libraries loaded
//! later, and after probes are taken back; what passes by is not counted.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::calls_live::WHITHER;
use crate::support::{alone, need_root, text};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const BASE: &str = "long tick(long n) { volatile long x = n; for (int i = 0; i < 20; i++) x += i; return x; }";
const A: &str = "long tick(long); long from_a(long n) { long s = 0; while (n--) s += tick(n); return s + 1; }";
const B: &str = "long tick(long); long from_b(long n) { long s = 0; while (n--) s += tick(n); return s + 1; }";
const MAIN: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
long tick(long), from_a(long);
int main(void) {
    long s = 0;
    for (int i = 0; i < 3000; i++) s += tick(i);
    s += from_a(5000);
    void *b = dlopen("./libb.so", RTLD_NOW);
    long (*from_b)(long) = (long (*)(long))dlsym(b, "from_b");
    s += from_b(7000);
    printf("%ld\n", s);
}
"#;

fn compile(dir: &Path, out: &str, source: &str, flags: &[&str]) {
    let file = format!("{out}.c");
    std::fs::write(dir.join(&file), source).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.current_dir(dir).args(["-O2", "-g", "-o", out, &file, "-L.", "-Wl,-rpath,$ORIGIN"]).args(flags);
    let done = gcc.output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
}

/// The program and what it prints when nobody looks.
fn program() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let shared = ["-shared", "-fPIC", "-fno-optimize-sibling-calls"];
    compile(dir.path(), "libbase.so", BASE, &shared);
    compile(dir.path(), "liba.so", A, &[&shared[..], &["-lbase"]].concat());
    compile(dir.path(), "libb.so", B, &[&shared[..], &["-lbase"]].concat());
    compile(dir.path(), "app", MAIN, &["-la", "-lbase", "-ldl"]);
    let alone = Command::new("./app").current_dir(dir.path()).output().unwrap();
    (dir, text(&alone.stdout))
}

/// Calls counted for a pattern, and all that was said.
fn counted(dir: &Path, pattern: &str) -> (u64, String, Value) {
    let out = dir.join("out.json");
    let mut whither = Command::new(WHITHER);
    whither.current_dir(dir).args(["calls", "--json", "-f", pattern, "--", "sh", "-c"]);
    let done = whither.arg(format!("exec ./app > {}", out.display())).output().unwrap();
    let told: Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
    let calls = told["functions"].as_array().into_iter().flatten();
    let calls = calls.filter_map(|f| f["totals"]["calls"].as_u64()).sum();
    (calls, text(&done.stderr), told)
}

#[test]
fn only_the_calls_of_some_modules_are_counted() {
    need_root!();
    let _alone = alone();
    let (dir, truth) = program();
    for (pattern, calls) in [
        ("tick", 15_000),
        ("tick@app", 3_000),
        ("tick@liba", 5_000),
        ("tick@libb", 7_000),
        ("tick@lib[ab]", 12_000),
        ("libbase.so!t.*@(app|libb.so)", 10_000),
        ("tick@.*", 15_000),
    ] {
        let (counted, said, told) = counted(dir.path(), pattern);
        assert_eq!(counted, calls, "{pattern}: {said} {told}");
        assert_eq!(std::fs::read_to_string(dir.path().join("out.json")).unwrap(), truth, "{pattern}");
    }
    let (none, said, _) = counted(dir.path(), "tick@libnone");
    assert!(none == 0 && said.contains("no module of that name"), "{said}");
}
