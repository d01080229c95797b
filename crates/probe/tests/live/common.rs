//! What the tests of the engine share: a program of many paths, compiling, and programs that are told to go on. Engines, what they
//! add and how they end are each test's own.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Three ways of eleven frames to `target`, without frame pointers.
pub(crate) const PATHS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define N __attribute__((noinline, noclone))
volatile long sink;
N long target(long x, long y) { long a = x * 3 + y; a = a * a + x; sink = a; return a; }
#define STEP(way, to, from) N long way##to(long n) { long r = way##from(n + 1); sink += r; return r + 1; }
#define WAY(way) \
    N long way##0(long n) { long r = target(n, n + 1); sink += r; return r + 1; } \
    STEP(way, 1, 0) STEP(way, 2, 1) STEP(way, 3, 2) STEP(way, 4, 3) STEP(way, 5, 4) STEP(way, 6, 5) STEP(way, 7, 6) STEP(way, 8, 7)
WAY(red) WAY(green) WAY(blue)
int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    if (argc > 2) { puts("ready"); fflush(stdout); getchar(); }
    for (long i = 0; i < rounds; i++) {
        sink += red8(i);
        if (i % 2 == 0) sink += green8(i);
        if (i % 5 == 0) sink += blue8(i);
    }
    printf("%ld\n", sink);
    fflush(stdout);
    if (argc > 2) { getchar(); }
    return 7;
}
"#;

/// Compiles C into a directory of its own.
pub(crate) fn compile(source: &str, flags: &[&str]) -> Option<(tempfile::TempDir, PathBuf)> {
    compile_with("gcc", "c", source, flags)
}

/// Compiles a source whose file has a suffix.
#[allow(clippy::print_stderr, reason = "a skip is told")]
pub(crate) fn compile_with(
    compiler: &str,
    suffix: &str,
    source: &str,
    flags: &[&str],
) -> Option<(tempfile::TempDir, PathBuf)> {
    let dir = tempfile::tempdir().unwrap();
    let (text, program) = (dir.path().join(format!("p.{suffix}")), dir.path().join("program"));
    std::fs::write(&text, source).unwrap();
    let mut command = Command::new(compiler);
    command.args(["-O2", "-fomit-frame-pointer", "-o"]).arg(&program).arg(&text).args(flags);
    match command.status() {
        Ok(status) if status.success() => Some((dir, program)),
        other => {
            eprintln!("SKIP: {compiler}: {other:?}");
            None
        }
    }
}

/// A command line.
pub(crate) fn words(program: &Path, args: &[&str]) -> Vec<String> {
    std::iter::once(program.display().to_string()).chain(args.iter().map(|a| (*a).to_string())).collect()
}

/// A program told to go on by a line on its standard input.
pub(crate) struct Talker {
    pub(crate) child: Child,
    output: BufReader<ChildStdout>,
}

impl Talker {
    pub(crate) fn start(program: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        let mut child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_string()
    }

    pub(crate) fn say(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
