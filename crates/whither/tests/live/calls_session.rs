//! What a session owes to the command it measures and to whoever reads its numbers, whatever happens around it: the
//! command's exit status, a word on processes that outlive it, a reset in the middle of a call.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::calls_live::{Guarded, WHITHER};
use crate::support::{alone, need_root, text};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

const MALLOC: &str = "libc.so.6!malloc";

#[test]
fn a_command_keeps_its_exit_status_when_nobody_reads_the_table() {
    need_root!();
    let _alone = alone();
    for (form, status) in [("exit 7", 7), ("exit 0", 0), ("kill -SEGV $$", 139)] {
        let mut whither = Command::new(WHITHER);
        whither.args(["calls", "-f", MALLOC, "--", "sh", "-c", form]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Guarded(whither.spawn().unwrap());
        // Its reader has gone before it writes.
        drop(child.0.stdout.take());
        let mut said = String::new();
        child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(child.0.wait().unwrap().code(), Some(status), "{form}: {said}");
    }
}

#[test]
fn a_process_that_outlives_the_command_is_named() {
    need_root!();
    let _alone = alone();
    let script = "sleep 60 < /dev/null > /dev/null 2>&1 & echo $!; true";
    let done = Command::new(WHITHER).args(["calls", "-f", MALLOC, "--", "sh", "-c", script]).output().unwrap();
    let shown = text(&done.stdout);
    let pid = shown.lines().next().unwrap().trim();
    assert!(Command::new("kill").args(["-9", pid]).status().unwrap().success(), "it goes on, unharmed: {shown}");
    let said = text(&done.stderr);
    assert!(said.contains(&format!("({pid}) goes on after it has ended")), "{said}");
}

/// Computes for half a second, says who it is, and waits for a line, all in one call.
const LONG: &str = r#"
#include <stdio.h>
#include <time.h>
#include <unistd.h>
__attribute__((noinline)) int long_call(void) {
    struct timespec t;
    do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); while (t.tv_sec == 0 && t.tv_nsec < 500000000);
    printf("%d\n", getpid());
    fflush(stdout);
    return getchar();
}
int main(void) { return long_call() == EOF; }
"#;

#[test]
fn a_call_in_progress_at_a_reset_counts_from_there() {
    need_root!();
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("long.c"), LONG).unwrap();
    let built = Command::new("gcc").current_dir(dir.path()).args(["-O1", "-o", "long", "long.c"]).output().unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    let mut whither = Command::new(WHITHER);
    whither.args(["calls", "--json", "-f", "long_call", "--"]).arg(dir.path().join("long"));
    let mut child = Guarded(whither.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut output = BufReader::new(child.0.stdout.take().unwrap());
    let mut pid = String::new();
    output.read_line(&mut pid).unwrap();
    let reset = Command::new(WHITHER).args(["calls", "reset", "-p", pid.trim()]).output().unwrap();
    assert!(reset.status.success(), "{}", text(&reset.stderr));
    // What the call lasts from here on.
    std::thread::sleep(Duration::from_millis(300));
    child.0.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut told = String::new();
    output.read_to_string(&mut told).unwrap();
    assert!(child.0.wait().unwrap().success());
    let last: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    let (whole, totals) = (&last["whole"], &last["functions"][0]["totals"]);
    let ms = |of: &Value, what: &str| of[what].as_f64().unwrap() / 1e6;
    let (wall, cpu) = (ms(totals, "wall_ns"), ms(totals, "cpu_ns"));
    assert!(wall >= 290.0 && wall <= ms(whole, "wall_ns"), "{last}");
    assert!(cpu < 100.0, "half a second of CPU time was before: {last}");
}

/// All of a thread's time is in one function.
const ALWAYS: &str = r#"
#include <unistd.h>
__attribute__((noinline)) int wait_some(void) { return usleep(5000) + 1; }
int main(void) { int n = 0; for (;;) n += wait_some(); }
"#;

#[test]
fn numbers_and_the_time_they_are_a_share_of_begin_at_one_moment() {
    need_root!();
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("always.c"), ALWAYS).unwrap();
    let built = Command::new("gcc").current_dir(dir.path()).args(["-O1", "-o", "always", "always.c"]).output().unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    let program = Guarded(Command::new(dir.path().join("always")).spawn().unwrap());
    let pid = program.0.id().to_string();
    for _ in 0..5 {
        let mut whither = Command::new(WHITHER);
        whither.args(["calls", "--json", "-p", &pid, "-f", "wait_some", "-d", "200ms"]);
        let done = whither.output().unwrap();
        let told: Value =
            serde_json::from_slice(&done.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&done.stderr)));
        let ns = |of: &Value, what: &str| of[what].as_f64().unwrap();
        // Calls in progress are in it.
        let wall = ns(&told["functions"][0]["totals"], "wall_ns");
        let whole = ns(&told["whole"], "wall_ns");
        assert!(wall > 0.9 * whole && wall <= 1.001 * whole, "{wall} of {whole}: {told}");
    }
}
