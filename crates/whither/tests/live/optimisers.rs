//! Profiles for optimisers are read by the optimisers: BOLT reorders a program by one, `llvm-profdata` shows another and
//! clang compiles with it, and what comes out does what the program did. Packages llvm-N, bolt-N; without them the test
//! says so.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use crate::support::{Recording, alone, need_root, record, text, whither};
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static unsigned long long s = 88172645463325252ull;
static inline unsigned long long draw(void) { s ^= s << 13; s ^= s >> 7; s ^= s << 17; return s; }
__attribute__((noinline)) long seldom(long x) { return x * 7 + 3; }
__attribute__((noinline)) long step(unsigned long long r, long a) {
    if (r % 100 == 0) { for (int i = 0; i < 3; i++) a += seldom(a); }
    else if (r % 100 < 90) a ^= (long)(r >> 3);
    else a -= 5;
    switch (r & 7) { case 0: return a + 1; case 3: return a ^ 77; case 5: return a * 3; default: return a + (a >> 9); }
}
int main(int argc, char **argv) {
    long a = 1;
    for (long i = atol(argv[1]); i > 0; i--) a = step(draw(), a);
    printf("%ld\n", a);
}
"#;

/// The newest of a tool that Debian installs by version.
fn tool(name: &str) -> Option<PathBuf> {
    let there = |path: &String| Path::new(path).exists();
    let versions = (11..40).rev().map(|v| format!("/usr/bin/{name}-{v}"));
    let found = std::iter::once(format!("/usr/bin/{name}")).chain(versions).find(there).map(PathBuf::from);
    if found.is_none() {
        println!("SKIP: {name} is not installed");
    }
    found
}

fn must(command: &mut Command) -> String {
    let done = command.output().unwrap();
    let told = text(&done.stdout) + &text(&done.stderr);
    assert!(done.status.success(), "{command:?}: {told}");
    told
}

fn compiled(dir: &Path, compiler: &str, name: &str, flags: &[&str]) -> PathBuf {
    let (source, program) = (dir.join("p.c"), dir.join(name));
    std::fs::write(&source, PROGRAM).unwrap();
    must(Command::new(compiler).args(["-O2", "-g"]).args(flags).arg("-o").arg(&program).arg(&source));
    program
}

fn recorded(program: &Path) -> Recording {
    record(&["--rate", "4999"], &[program.as_os_str().to_owned(), "200000000".into()])
}

fn exported(run: &Recording, format: &str, to: &Path) {
    must(whither().args(["export", format]).arg(run.path()).arg("-o").arg(to));
}

#[test]
fn bolt_reorders_a_program() {
    need_root!();
    let _alone = alone();
    let Some(bolt) = tool("llvm-bolt") else { return };
    let dir = tempfile::tempdir().unwrap();
    let flags = ["-fno-reorder-blocks-and-partition", "-Wl,--emit-relocs"];
    let program = compiled(dir.path(), "gcc", "plain", &flags);
    let (data, better) = (dir.path().join("p.fdata"), dir.path().join("better"));
    exported(&recorded(&program), "bolt", &data);
    let mut command = Command::new(bolt);
    command.arg(&program).arg("-o").arg(&better).arg(format!("-data={}", data.display()));
    let told = must(command.args(["-reorder-blocks=ext-tsp", "-reorder-functions=hfsort"]));
    let read = told.lines().find(|l| l.contains("have non-empty execution profile")).unwrap_or(&told);
    assert!(!read.contains(" 0 out of"), "{told}");
    assert!(told.contains("modified layout of"), "{told}");
    must(Command::new("chmod").arg("+x").arg(&better));
    assert_eq!(must(Command::new(&better).arg("1000")), must(Command::new(&program).arg("1000")));
}

#[test]
fn clang_compiles_with_a_profile() {
    need_root!();
    let _alone = alone();
    let Some(show) = tool("llvm-profdata") else { return };
    let dir = tempfile::tempdir().unwrap();
    let program = compiled(dir.path(), "clang", "plain", &[]);
    let profile = dir.path().join("p.afdo");
    exported(&recorded(&program), "autofdo", &profile);
    let shown = must(Command::new(show).args(["show", "--sample"]).arg(&profile));
    assert!(shown.contains("Function: main:") || shown.contains("Function: step:"), "{shown}");
    let flag = format!("-fprofile-sample-use={}", profile.display());
    let better = compiled(dir.path(), "clang", "better", &[&flag]);
    assert_eq!(must(Command::new(&better).arg("1000")), must(Command::new(&program).arg("1000")));
}
