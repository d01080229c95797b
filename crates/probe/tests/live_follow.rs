//! Programs executed in a tree, on real processes with known answers: through shells without a match, by
//! programs that have an agent, by vfork, and by the first process itself. Launchers stay untouched, output
//! and status are those of an unmeasured run.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use whither_probe::{Engine, Happening, Options, Order, PointAction, PointSpec, Select};
use whither_store::calls::{CallSnapshot, PointState};

/// `tool N [work|spawn|exec|fork]`: N calls of `work`, then perhaps the same again in another process.
const TOOL: &str = r#"
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
volatile long sink;
__attribute__((noinline, noclone)) long work(long x) { sink += x; return x * 3; }
int main(int argc, char **argv) {
    long n = atol(argv[1]);
    for (long i = 0; i < n; i++) sink += work(i);
    char *again[] = { argv[0], argv[1], "work", NULL };
    int status = 0;
    pid_t pid = 0;
    if (argc > 2 && !strcmp(argv[2], "spawn")) {
        for (int i = 0; i < 20; i++) {
            posix_spawn(&pid, argv[0], NULL, NULL, again, environ);
            /* Nobody may see that the child was stopped. */
            while (waitpid(pid, &status, 0) == pid && !WIFEXITED(status)) abort();
            if (WEXITSTATUS(status) != 5) abort();
        }
    }
    if (argc > 2 && !strcmp(argv[2], "fork")) {
        for (int i = 0; i < 10; i++) {
            if (!(pid = fork())) { sink += work(1); if (i % 2) execv(argv[0], again); _exit(5); }
            waitpid(pid, &status, 0);
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 5) abort();
        }
    }
    if (argc > 2 && !strcmp(argv[2], "exec")) execv(argv[0], again);
    if (argc > 2 && !strcmp(argv[2], "other")) execlp("true", "true", NULL);
    return 5;
}
"#;

fn tool() -> Option<(tempfile::TempDir, PathBuf)> {
    let dir = tempfile::tempdir().unwrap();
    let (c, program) = (dir.path().join("t.c"), dir.path().join("tool"));
    std::fs::write(&c, TOOL).unwrap();
    match Command::new("gcc").args(["-O2", "-o"]).arg(&program).arg(&c).status() {
        Ok(status) if status.success() => Some((dir, program)),
        other => {
            eprintln!("SKIP: gcc: {other:?}");
            None
        }
    }
}

struct Outcome {
    snapshot: CallSnapshot,
    status: Option<i32>,
    executed: usize,
    notes: Vec<String>,
}

impl Outcome {
    fn calls(&self) -> u64 {
        self.snapshot.paths.iter().map(|p| p.totals.calls).sum()
    }

    fn finished(&self) -> u64 {
        self.snapshot.paths.iter().map(|p| p.totals.done).sum()
    }
}

/// Measures `work` in a command and everything it executes, to its end.
fn measure(words: &[&str], options: Options) -> Outcome {
    let words: Vec<String> = words.iter().map(|w| (*w).to_string()).collect();
    let mut engine = Engine::launch(&words, options).unwrap();
    let orders = vec![Order::Include(Select::Name { function: "work".into(), module: None })];
    let actions = vec![PointAction::Path, PointAction::Wall];
    let found = engine.resolve(&orders).unwrap();
    let specs: Vec<PointSpec> =
        found.into_iter().map(|candidate| PointSpec { candidate, actions: actions.clone() }).collect();
    if !specs.is_empty() {
        engine.add(&specs).unwrap();
    }
    engine.keep(orders, actions);
    engine.resume().unwrap();
    let first = engine.pid();
    let end = Instant::now() + Duration::from_secs(60);
    let mut outcome = Outcome { snapshot: CallSnapshot::default(), status: None, executed: 0, notes: Vec::new() };
    let mut over = false;
    while !over {
        assert!(Instant::now() < end, "{words:?} does not end: {:?} {:?}", outcome.notes, engine);
        for happening in engine.poll(Duration::from_millis(50)).unwrap() {
            match happening {
                Happening::Ended { pid, .. } => over |= pid == first,
                Happening::Executed { .. } => outcome.executed += 1,
                Happening::Note(note) => outcome.notes.push(note),
                _ => {}
            }
        }
    }
    outcome.snapshot = engine.snapshot();
    outcome.status = engine.status();
    outcome.notes.extend(outcome.snapshot.notes.clone());
    outcome
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn programs_of_a_shell_are_measured_and_the_shell_is_not() {
    let Some((_dir, tool)) = tool() else { return };
    let script = format!("{0} 100; {0} 20; grep -c whither /proc/$$/maps; test $? = 1 && exit 3", text(&tool));
    let it = measure(&["sh", "-c", &script], Options::default());
    assert_eq!((it.calls(), it.finished(), it.executed), (120, 120, 2), "{:?}", it.notes);
    assert_eq!(it.status, Some(3), "the shell has an agent, or its status is lost");
    let points: Vec<_> = it.snapshot.points.iter().filter(|p| p.state != PointState::Refused).collect();
    assert_eq!(points.len(), 1, "one function of one program, however often it runs: {points:?}");
}

#[test]
fn a_launcher_that_becomes_the_program_is_the_first_program() {
    let Some((_dir, tool)) = tool() else { return };
    let it = measure(&["env", "A=1", text(&tool), "70"], Options::default());
    assert_eq!((it.calls(), it.status), (70, Some(5)), "{:?}", it.notes);
    assert_eq!(it.snapshot.points[0].id, 1);
}

#[test]
fn children_by_vfork_that_execute_are_measured() {
    let Some((_dir, tool)) = tool() else { return };
    let it = measure(&[text(&tool), "30", "spawn"], Options::default());
    assert_eq!((it.calls(), it.status, it.executed), (30 * 21, Some(5), 20), "{:?}", it.notes);
}

#[test]
fn forked_children_are_measured_before_and_after_they_execute() {
    let Some((_dir, tool)) = tool() else { return };
    let it = measure(&[text(&tool), "30", "fork"], Options::default());
    assert_eq!((it.calls(), it.status), (30 + 10 + 5 * 30, Some(5)), "{:?}", it.notes);
}

#[test]
fn a_program_may_execute_itself_or_another_one() {
    let Some((_dir, tool)) = tool() else { return };
    let it = measure(&[text(&tool), "40", "exec"], Options::default());
    assert_eq!((it.calls(), it.status), (80, Some(5)), "{:?}", it.notes);
    let it = measure(&[text(&tool), "40", "other"], Options::default());
    assert_eq!((it.calls(), it.status), (40, Some(0)), "{:?}", it.notes);
}

#[test]
fn who_shall_not_be_followed_or_measured_is_not() {
    let Some((_dir, tool)) = tool() else { return };
    let it = measure(&[text(&tool), "30", "spawn"], Options { follow: false, ..Options::default() });
    assert_eq!((it.calls(), it.status, it.executed), (30, Some(5), 0), "{:?}", it.notes);
    let script = format!("{} 9; exit 4", text(&tool));
    let only = |pattern: &str| Options { executables: Some(pattern.into()), ..Options::default() };
    assert_eq!(measure(&["sh", "-c", &script], only("/nothing$")).calls(), 0);
    let it = measure(&["sh", "-c", &script], only("/tool$"));
    assert_eq!((it.calls(), it.status), (9, Some(4)), "{:?}", it.notes);
    assert!(Engine::launch(&["true".to_string()], only("(")).is_err());
}
