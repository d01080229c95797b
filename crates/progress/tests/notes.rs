//! Points leave notes that whither finds: in this test program by the macros, and in C and C++ by the header.
//! Both must leave the same, at an address that holds one nop.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;
use whither_image::{Mark, marks};

#[inline(never)]
fn twice(n: u32) -> u32 {
    whither_progress::begin!("request");
    let sum = (0..n).map(std::hint::black_box).sum();
    whither_progress::progress!("rounds");
    whither_progress::end!("request");
    whither_progress::progress!("rounds");
    sum
}

fn names(marks: &[Mark]) -> Vec<&str> {
    let mut names: Vec<&str> = marks.iter().filter(|m| m.provider == "whither").map(|m| m.name.as_str()).collect();
    names.sort_unstable();
    names
}

#[test]
fn macros_leave_notes() {
    assert_eq!(twice(3), 3);
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let found = marks(&own);
    assert_eq!(names(&found), ["request_begin", "request_end", "rounds", "rounds"]);
    assert!(found.iter().all(|m| m.semaphore.0 == 0));
    // Where the notes point there is a nop, in order of the source.
    let at = |name: &str| found.iter().filter(|m| m.name == name).map(|m| m.at.0).min().unwrap();
    assert!(at("request_begin") < at("rounds") && at("rounds") < at("request_end"), "{found:?}");
}

const SOURCE: &str = r#"
#include "whither.h"
static inline int more(int n) { WHITHER_PROGRESS("rounds"); return n + 1; }
int work(int n);
int work(int n)
{
    if (n)
        WHITHER_BEGIN("request");
    else
        WHITHER_END("request");
    return more(n);
}
"#;

#[allow(clippy::print_stdout, reason = "a skip must be seen")]
fn compiled(compiler: &str, arguments: &[&str], to: &Path) -> Option<Vec<u8>> {
    let source = to.join("points.c");
    std::fs::write(&source, SOURCE).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let object = to.join("points.so");
    let mut command = Command::new(compiler);
    command.args(arguments).args(["-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fPIC", "-shared", "-nostdlib"]);
    let Ok(output) = command.arg("-I").arg(include).arg("-o").arg(&object).arg(&source).output() else {
        println!("SKIP: {compiler} is not installed");
        return None;
    };
    assert!(output.status.success(), "{compiler} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(std::fs::read(object).unwrap())
}

/// Compilers and dialects that the header is for; without the C library.
#[test]
fn the_header_leaves_the_same_notes() {
    let directory = tempfile::tempdir().unwrap();
    let c = ["-x", "c", "-std=c99"];
    let cpp = ["-x", "c++", "-std=c++11"];
    for (compiler, arguments) in [("gcc", c), ("g++", cpp), ("clang", c), ("clang++", cpp)] {
        let Some(file) = compiled(compiler, &arguments, directory.path()) else { continue };
        assert_eq!(names(&marks(&file)), ["request_begin", "request_end", "rounds"], "{compiler} {arguments:?}");
        let off = compiled(compiler, &[&arguments[..], &["-DWHITHER_OFF"]].concat(), directory.path()).unwrap();
        assert_eq!(names(&marks(&off)), [""; 0], "switched off, {compiler} {arguments:?}");
    }
}
