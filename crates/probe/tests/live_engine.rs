//! The engine on real processes, with known answers: counts, paths, adding and removing while threads
//! run, and nothing left behind. Programs are compiled here; where that or ptrace is missing it says so.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use whither_probe::{Engine, Options, Order, PointAction, PointSpec, Select};
use whither_store::calls::{CallSnapshot, FrameKind};

/// Three ways of eleven frames to `target`, without frame pointers.
const PATHS: &str = r#"
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

/// Compiles a program into a directory of its own.
fn compile(source: &str, flags: &[&str]) -> Option<(tempfile::TempDir, PathBuf)> {
    let dir = tempfile::tempdir().unwrap();
    let (c, program) = (dir.path().join("p.c"), dir.path().join("program"));
    std::fs::write(&c, source).unwrap();
    let mut command = Command::new("gcc");
    command.args(["-O2", "-fomit-frame-pointer", "-o"]).arg(&program).arg(&c).args(flags);
    match command.status() {
        Ok(status) if status.success() => Some((dir, program)),
        other => {
            eprintln!("SKIP: gcc: {other:?}");
            None
        }
    }
}

fn words(program: &Path, args: &[&str]) -> Vec<String> {
    std::iter::once(program.display().to_string()).chain(args.iter().map(|a| (*a).to_string())).collect()
}

fn named(function: &str) -> Vec<Order> {
    vec![Order::Include(Select::Name { function: function.into(), module: None })]
}

const TIMES: [PointAction; 3] = [PointAction::Path, PointAction::Wall, PointAction::Cpu];

fn specs(engine: &mut Engine, function: &str) -> Vec<PointSpec> {
    let found = engine.resolve(&named(function)).unwrap();
    assert!(!found.is_empty(), "{function} not found");
    found.into_iter().map(|candidate| PointSpec { candidate, actions: TIMES.to_vec() }).collect()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn finish(engine: &mut Engine) -> i32 {
    let mut status = None;
    until("the program does not end", || {
        engine.poll(Duration::from_millis(10)).unwrap();
        status = engine.status();
        status.is_some()
    });
    status.unwrap()
}

fn total(snapshot: &CallSnapshot) -> u64 {
    snapshot.paths.iter().map(|p| p.totals.calls).sum()
}

/// Stated addresses of a path's frames, innermost first.
fn chain(snapshot: &CallSnapshot, mut frame: u32) -> Vec<(FrameKind, u32, u64)> {
    let mut all = Vec::new();
    while let Some(f) = snapshot.frames.get(frame as usize) {
        all.push((f.kind, f.module, f.offset));
        frame = f.caller;
    }
    all
}

#[test]
fn a_launched_program_is_counted_by_path() {
    let Some((_dir, program)) = compile(PATHS, &[]) else { return };
    let mut engine = Engine::launch(&words(&program, &["1000"]), Options::default()).unwrap();
    let specs = specs(&mut engine, "target");
    let added = engine.add(&specs).unwrap();
    assert_eq!((added.ids.len(), added.refused.len()), (1, 0), "{added:?}");
    engine.resume().unwrap();
    assert_eq!(finish(&mut engine), 7);
    let snapshot = engine.snapshot();
    let mut calls: Vec<u64> = snapshot.paths.iter().map(|p| p.totals.calls).collect();
    calls.sort_unstable();
    assert_eq!(calls, [200, 500, 1000], "{snapshot:#?}");
    for path in &snapshot.paths {
        assert_eq!(path.totals.done, path.totals.calls);
        assert!(path.totals.wall_ns > 0 && path.totals.min_ns <= path.totals.max_ns);
        let chain = chain(&snapshot, path.frame);
        assert!(chain.len() >= 11, "{chain:?}");
        assert!(chain.iter().all(|f| f.0 == FrameKind::Caller), "{chain:?}");
    }
    eprintln!("own cost {:?}, lost {:?}, whole {:?}", snapshot.own_cost, snapshot.lost, snapshot.whole);
    let detached = engine.detach().unwrap();
    eprintln!("{detached:?}");
}
