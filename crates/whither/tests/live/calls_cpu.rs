//! CPU time of calls: of those in progress, and of those that measuring itself and other threads leave nothing known of. Small
//! programs made here, each with its truth; times are judged against one another, as the machine may be busy.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests; a test that cannot run says so")]

use crate::calls_bounds::{document, made, made_with};
use crate::calls_live::number;
use crate::support::{alone, need_root};
use serde_json::Value;

fn totals<'a>(document: &'a Value, name: &str) -> &'a Value {
    let all = document["functions"].as_array().unwrap();
    &all.iter().find(|f| f["names"][0] == name).unwrap_or_else(|| panic!("no {name}: {document}"))["totals"]
}

/// `outer` lasts for 5 s; half of the time it burns, and half it sleeps.
const HALF: &str = r#"
#include <time.h>
#include <unistd.h>
static long cpu(void) { struct timespec t; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); return t.tv_sec * 1000000000L + t.tv_nsec; }
__attribute__((noinline)) void burn(void) { long until = cpu() + 10000000; while (cpu() < until) ; }
__attribute__((noinline)) void outer(void) { for (int i = 0; i < 250; i++) { burn(); usleep(10000); } }
int main(void) { outer(); return 0; }
"#;

#[test]
fn calls_in_progress_have_their_cpu_time() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = made(&directory, "half.c", HALF) else { return };
    let only = ["-m", "count,wall,cpu,off", "-d", "1.5s"];
    let judged = |document: &Value, cause: &str| {
        let (outer, burn) = (totals(document, "outer"), totals(document, "burn"));
        assert_eq!(number(&outer["running"]["calls"]), 1, "{cause}: {outer}");
        assert_eq!(number(&outer["running"]["cpu_unknown"]), 0, "{cause}: {outer}");
        let (cpu, off, wall) = (number(&outer["cpu_ns"]), number(&outer["off_cpu_ns"]), number(&outer["wall_ns"]));
        assert!((cpu + off).abs_diff(wall) <= wall / 1000, "{cause}: {outer}");
        let ratio = cpu as f64 / number(&burn["cpu_ns"]) as f64;
        assert!((0.97..1.06).contains(&ratio), "{cause}: all CPU time of outer is burn's: {ratio}\n{outer}\n{burn}");
        assert!(off > wall / 5, "{cause}: it sleeps: {outer}");
    };
    judged(&document(&[&["-f", "outer|burn"][..], &only].concat(), &program), "from its begin");
    // Nothing within it is probed, so nothing has set an anchor since its entry.
    let alone = document(&[&["-f", "outer"][..], &only].concat(), &program);
    let (outer, whole) = (totals(&alone, "outer"), &alone["whole"]);
    let ratio = number(&outer["cpu_ns"]) as f64 / number(&whole["cpu_ns"]) as f64;
    assert!((0.9..1.02).contains(&ratio), "of what the process has used: {ratio}\n{outer}\n{whole}");
}

/// Four threads recurse 45 deep, in calls of a nanosecond.
const DEEP: &str = r#"
#include <pthread.h>
volatile long sink;
__attribute__((noinline)) long deep(long n) { long r = n ? deep(n - 1) : 1; __asm__ volatile("" ::: "memory"); return r + 1; }
static void *work(void *a) { for (int i = 0; i < 8000; i++) sink = deep(44); return a; }
int main(void) {
	pthread_t t[4];
	for (int i = 0; i < 4; i++) pthread_create(t + i, 0, work, 0);
	for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
	return 0;
}
"#;

#[test]
fn waiting_for_cpus_on_account_of_probes_is_not_told_as_time_of_calls() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = made(&directory, "deep.c", DEEP) else { return };
    let answer = document(&["-f", "deep"], &program);
    let deep = totals(&answer, "deep");
    assert_eq!(number(&deep["calls"]), 4 * 8000 * 45);
    assert!(!deep["wall_below_ns"].is_null(), "the program alone takes 5 ms: {deep}");
}

/// The first probed calls are those of a child that shares its parent's memory: nothing can be calibrated before.
const FIRST: &str = r#"
#include <unistd.h>
#include <sys/wait.h>
volatile long sink;
__attribute__((noinline)) void leaf(int n) { for (int i = 0; i < n; i++) sink += i * n; }
int main(void) {
	for (int i = 0; i < 5; i++) {
		pid_t child = vfork();
		if (!child) { leaf(9); leaf(9); execl("/bin/true", "true", (char *)0); _exit(1); }
		waitpid(child, 0, 0);
	}
	return 0;
}
"#;

#[test]
fn a_program_that_cannot_be_calibrated_is_not_held_up_by_trying() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = made_with(&directory, "first.c", FIRST, &["-static"]) else { return };
    let answer = document(&["-f", "leaf"], &program);
    assert_eq!(number(&totals(&answer, "leaf")["calls"]), 10, "{answer}");
    let cpu_ns = number(&answer["whole"]["cpu_ns"]);
    assert!(cpu_ns < 1_000_000_000, "whether calls are recorded was asked 200,000 times: {cpu_ns} ns of CPU time");
}
