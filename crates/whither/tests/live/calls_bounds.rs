//! What `whither calls` cannot know of single calls is told as a bound, or left out and said, never as a fact: deep
//! recursion, calls left by exceptions, arguments where no memory is. Small programs made here, each with its truth.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests; a test that cannot run says so")]

use crate::calls_live::{WHITHER, number};
use crate::support::{alone, need_root, text};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A program made of its source; `None` without compiler.
pub(crate) fn made(directory: &tempfile::TempDir, name: &str, source: &str) -> Option<PathBuf> {
    made_with(directory, name, source, &[])
}

pub(crate) fn made_with(directory: &tempfile::TempDir, name: &str, source: &str, more: &[&str]) -> Option<PathBuf> {
    let (from, to) = (directory.path().join(name), directory.path().join(name.split('.').next().unwrap()));
    std::fs::write(&from, source).unwrap();
    const C: [&str; 4] = ["-O1", "-fno-optimize-sibling-calls", "-pthread", "-o"];
    let (compiler, flags): (&str, &[&str]) = match name.rsplit('.').next() {
        Some("cpp") => ("g++", &C),
        Some("go") => ("go", &["build", "-o"]),
        _ => ("gcc", &C),
    };
    let built = Command::new(compiler).args(more).args(flags).args([&to, &from]).output();
    if !built.is_ok_and(|b| b.status.success()) {
        println!("SKIP: no {compiler}");
        return None;
    }
    Some(to)
}

fn calls(args: &[&str], program: &PathBuf) -> Output {
    Command::new(WHITHER).arg("calls").args(args).arg("--").arg(program).output().unwrap()
}

pub(crate) fn document(args: &[&str], program: &PathBuf) -> Value {
    let run = calls(&[&["--json"], args].concat(), program);
    let out = text(&run.stdout);
    let line = out.lines().find(|l| l.starts_with('{')).unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {out}\n{}", text(&run.stderr)))
}

/// The top of this coroutine's stack is the end of what is mapped.
const COROUTINE: &str = r#"
#define _GNU_SOURCE
#include <ucontext.h>
#include <sys/mman.h>
#include <stdio.h>
static ucontext_t m, c; long n;
__attribute__((noinline)) void task(int a) { n += a; __asm__ volatile(""); }
int main(void) {
	char *b = mmap(0, 131072, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(b + 65536, 65536, 0);
	for (int i = 0; i < 1000; i++) {
		getcontext(&c);
		c.uc_stack.ss_sp = b; c.uc_stack.ss_size = 65536; c.uc_link = &m;
		makecontext(&c, (void (*)(void))task, 1, i);
		swapcontext(&m, &c);
	}
	return n == 499500 ? 0 : 1;
}
"#;

#[test]
fn an_argument_where_no_memory_is_harms_nobody() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = made(&directory, "coroutine.c", COROUTINE) else { return };
    for argument in ["arg9", "arg20", "arg99"] {
        let run = calls(&["-f", "task", "-m", &format!("count,a=arg1,b={argument}")], &program);
        let said = text(&run.stdout) + &text(&run.stderr);
        assert_eq!(run.status.code(), Some(0), "{argument}: {said}");
        assert!(said.contains("499,500") && said.contains("could not be read in 1000 calls"), "{argument}: {said}");
    }
}

/// Declared narrower than the registers that hold them, which hold other things besides.
const NARROW: &str = r#"
#include <stdint.h>
volatile uint64_t junk = 0xabcdef0000000000u;
__attribute__((noipa)) int turned(int n, signed char c) { return c ? -n : n; }
__attribute__((noipa)) void nothing(unsigned n) { (void)n; }
int (*volatile wide)(uint64_t, uint64_t) = (int (*)(uint64_t, uint64_t))turned;
int main(void) {
	long sum = 0;
	for (int i = 1; i <= 1000; i++) { sum += wide(junk | (uint32_t)i, junk | 0xff); nothing(i); }
	return sum == -500500 ? 0 : 1;
}
"#;

#[test]
fn integers_are_summed_as_wide_as_they_are_declared() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = made_with(&directory, "narrow.c", NARROW, &["-g"]) else { return };
    for (back_end, m) in [
        (&[][..], "n=arg1,got=ret"),
        (&["--safe"], "n=arg1,got=ret"),
        (&[], "c=arg2,n=arg1"),
        (&["--safe"], "c=arg2,n=arg1"),
    ] {
        let run = calls(&[&["-f", "turned", "-m", m, "--json"], back_end].concat(), &program);
        let answer: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
        let sum = |name: &str| answer["functions"][0]["totals"]["values"][name]["sum"].as_i64();
        let wanted =
            if m.starts_with('c') { [Some(500_500), Some(-1000), None] } else { [Some(500_500), None, Some(-500_500)] };
        assert_eq!([sum("n"), sum("c"), sum("got")], wanted, "{back_end:?} {m}: {}", text(&run.stderr));
        assert!(!answer.to_string().contains("whole registers"), "all of it is declared");
    }
    // What is not given back is not summed.
    let run = calls(&["-f", "nothing", "-m", "count,got=ret"], &program);
    let said = text(&run.stdout) + &text(&run.stderr);
    assert!(said.contains("got is not summed in nothing: by declaration no integer is given back"), "{said}");
    assert!(said.contains("1,000"), "it is counted all the same: {said}");
}

/// Twenty trees of 200 calls, the innermost waiting.
const DEEP: &str = r#"
#include <unistd.h>
__attribute__((noipa)) long deep(int n) { if (!n) { usleep(2000); return 1; } return deep(n - 1) + 1; }
int main(void) { long s = 0; for (int i = 0; i < 20; i++) s += deep(199); return s == 4000 ? 0 : 1; }
"#;

#[test]
fn recursion_deeper_than_is_kept_apart_is_neither_in_averages_nor_timed_again() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = made(&directory, "deep.c", DEEP) else { return };
    for back_end in [&[][..], &["--safe"]] {
        let answer = document(&[&["-f", "deep"], back_end].concat(), &program);
        let f = &answer["functions"][0]["totals"];
        let lived = number(&answer["whole"]["thread_ns"]);
        assert_eq!(number(&f["calls"]), 4000, "{back_end:?}: {f}");
        // All last as long as the innermost waits. Where uprobes seem to cost all that ran, no average is told.
        let average = f["average_ns"].as_f64();
        assert!(average.map_or(back_end == ["--safe"], |ns| ns >= 2e6), "{back_end:?}: {f}");
        assert!(f["min_ns"].is_null() && number(&f["min_below_ns"]) >= 2_000_000, "{back_end:?}: {f}");
        let total = number(&f["wall_ns"]);
        assert!((40_000_000..=lived).contains(&total) && number(&f["self_wall_ns"]) <= total, "{back_end:?}: {f}");
        let more =
            answer["paths"].as_array().unwrap().iter().filter(|p| number(&p["self_wall_ns"]) > number(&p["wall_ns"]));
        assert_eq!(more.count(), 0, "{back_end:?}: {answer}");
    }
}

/// Every second call ends by an exception; of two threads, each.
const HALF: &str = r#"
#include <unistd.h>
#include <pthread.h>
extern "C" __attribute__((noipa)) int pass(int n) { usleep(100); if (n & 1) throw n; return n; }
static void *work(void *) { for (int i = 0; i < 100; i++) try { pass(i); } catch (int) {} return 0; }
int main() { pthread_t t[2]; for (auto &one : t) pthread_create(&one, 0, work, 0); for (auto one : t) pthread_join(one, 0); }
"#;

/// A million calls of 3 ns by 60,000 paths: nearly all of the run is what measuring them costs.
const FIB: &str = r#"
#include <stdio.h>
__attribute__((noinline, noclone)) int fib(int k) { int r = k; if (k > 1) r = fib(k - 1) + fib(k - 2); __asm__ volatile("" : "+r"(r)); return r; }
int main(void) { int s = 0; for (int i = 0; i < 20; i++) s += fib(22); return s == 20 * 17711 ? 0 : 1; }
"#;

#[test]
fn calls_by_ever_new_paths_are_not_told_with_what_that_costs() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = made(&directory, "fib.c", FIB) else { return };
    let document = document(&["-f", "fib"], &program);
    let (cost, cpu) = (&document["own_cost"], number(&document["whole"]["cpu_ns"]));
    assert!(cost["share"].as_f64().unwrap() > 0.5, "a few milliseconds of this are the program's: {cost}");
    let totals = &document["functions"][0]["totals"];
    assert_eq!(number(&totals["calls"]), 20 * 57_313);
    // Not wall time, in which others run.
    assert!(number(&totals["cpu_ns"]) * 2 < cpu, "{totals} of {cpu} ns");
    assert!(totals["rough"] == true || !totals["wall_below_ns"].is_null(), "told as if it were known: {totals}");
}

/// A function of nothing but a few instructions, below eight callers of Go; it says what a call of it takes, in nanoseconds.
const GO: &str = r#"package main

import ("fmt"; "time")

//go:noinline
func leaf(x int) int { return x*3 + 1 }

//go:noinline
func down(n, x int) int {
	if n > 0 { return down(n-1, x) + 1 }
	for i := 0; i < 300000; i++ { x = leaf(x) }
	return x
}

func main() {
	began := time.Now()
	down(8, 1)
	fmt.Println(time.Since(began).Nanoseconds() / 300000)
}
"#;

/// Callers that only frame pointers tell are not followed anew at each call: that took five times as long as with one caller,
/// with system calls among it.
#[test]
fn paths_of_go_are_whole_and_known_again() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = made(&directory, "leaf.go", GO) else { return };
    let a_call = |more: &[&str]| {
        let run = calls(&[&["-f", "main.leaf"], more].concat(), &program);
        let out = text(&run.stdout);
        let said = out
            .lines()
            .next()
            .and_then(|l| l.parse::<f64>().ok())
            .unwrap_or_else(|| panic!("{out}{}", text(&run.stderr)));
        (said, out)
    };
    let (whole, table) = a_call(&[]);
    assert!(table.contains("runtime.goexit") && !table.contains("[truncated]"), "{table}");
    let (nearest, _) = a_call(&["--depth", "1"]);
    assert!(whole < 3.0 * nearest, "{whole} ns with all callers, {nearest} ns with one");
}

/// Each goroutine's stack is moved several times on its way down.
const GROWS: &str = r#"package main

import "fmt"

//go:noinline
func deep(n int, x [40]int) int {
	if n == 0 { return x[3] }
	x[n%40]++
	return deep(n-1, x) + x[5]
}

func main() {
	sum, done := 0, make(chan int)
	for g := 0; g < 200; g++ {
		go func() { done <- deep(99, [40]int{}) }()
		sum += <-done
	}
	fmt.Println(sum)
}
"#;

#[test]
fn calls_of_go_count_once_where_their_stack_is_moved() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = made(&directory, "grows.go", GROWS) else { return };
    let answer = document(&["-f", "main.deep"], &program);
    assert_eq!(number(&answer["functions"][0]["totals"]["calls"]), 20_000, "{answer}");
}

#[test]
fn calls_left_by_an_exception_are_marked_and_named() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = made(&directory, "half.cpp", HALF) else { return };
    let run = calls(&["-f", "pass", "--group", "function"], &program);
    let (table, said) = (text(&run.stdout), text(&run.stderr));
    let row = table.lines().find(|l| l.ends_with("pass")).unwrap_or_default();
    assert!(row.split("  ").filter(|cell| cell.trim().starts_with('>')).count() >= 3, "{table}{said}");
    assert!(said.contains("exception") && said.contains("of pass (100)"), "{said}");
    let answer = document(&["-f", "pass"], &program);
    assert_eq!(number(&answer["functions"][0]["totals"]["untimed"]), 100, "{answer}");
}

#[test]
fn rows_of_threads_are_in_the_document() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = made(&directory, "half.cpp", HALF) else { return };
    for (group, rows) in [("thread", vec![100, 100]), ("process", vec![200])] {
        let answer = document(&["-f", "pass", "--group", group], &program);
        let all = answer["listing"]["rows"].as_array().unwrap_or_else(|| panic!("{answer}"));
        assert_eq!(all.iter().map(|r| number(&r["figures"]["calls"])).collect::<Vec<_>>(), rows, "{answer}");
        assert!(all.iter().all(|r| number(&r["id"]) > 0), "{answer}");
    }
    assert!(document(&["-f", "pass"], &program)["listing"].is_null());
}

/// Four threads at a time, each of five naps and no more, as of a server that makes one for each request. It says what it knows itself:
/// nanoseconds of naps, and of threads without their birth and end.
const SHORT: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <time.h>
static long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000L + t.tv_nsec; }
__attribute__((noipa)) void nap(void) { struct timespec t = {0, 1000000}; nanosleep(&t, 0); __asm__ volatile(""); }
static long lived[4], napped[4];
static void *work(void *a) {
	long i = (long)a, from = now();
	for (int k = 0; k < 5; k++) { long t = now(); nap(); napped[i] += now() - t; }
	lived[i] += now() - from;
	return 0;
}
int main(void) {
	long from = now(), naps = 0;
	for (int r = 0; r < 100; r++) {
		pthread_t t[4];
		for (long i = 0; i < 4; i++) pthread_create(t + i, 0, work, (void *)i);
		for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
	}
	long all = now() - from;
	for (int i = 0; i < 4; i++) { naps += napped[i]; all += lived[i]; }
	fprintf(stderr, "naps %ld threads %ld\n", naps, all);
	return 0;
}
"#;

#[test]
fn threads_that_live_for_a_moment_are_all_part_of_the_whole() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = made(&directory, "short.c", SHORT) else { return };
    let run = calls(&["--json", "-f", "nap"], &program);
    let (out, said) = (text(&run.stdout), text(&run.stderr));
    let truth = |name: &str| -> f64 {
        let mut words = said.split_whitespace().skip_while(|w| *w != name);
        words.nth(1).and_then(|w| w.parse().ok()).unwrap_or_else(|| panic!("{said}"))
    };
    let answer: Value = serde_json::from_str(out.lines().find(|l| l.starts_with('{')).unwrap_or_default()).unwrap();
    let (whole, f) = (&answer["whole"], &answer["functions"][0]["totals"]);
    assert_eq!(number(&f["calls"]), 2000);
    assert!(f["wall_below_ns"].is_null(), "{f}");
    let ratio = |ns: &Value, name: &str| number(ns) as f64 / truth(name);
    assert!((0.95..1.02).contains(&ratio(&f["wall_ns"], "naps")), "{f} {said}");
    // Births and ends come on top, which the program cannot see.
    assert!((0.97..1.35).contains(&ratio(&whole["thread_ns"], "threads")), "{whole} {said}");
    assert_eq!(
        (number(&whole["threads"]) + number(&whole["threads_ended"]), number(&whole["thread_unsure_ns"])),
        (401, 0)
    );
}

/// Frames of several sizes, so that some return slot stands where a page begins: Go keeps stacks aligned to eight bytes only.
const SLOTS: &str = r#"package main

import "fmt"

//go:noinline
func deepA(n int) int { var b [256]byte; b[n%256] = 1; if n == 0 { return 1 }; return deepA(n-1) + int(b[n%256]) }

//go:noinline
func deepB(n int) int { var b [232]byte; b[n%232] = 1; if n == 0 { return 1 }; return deepB(n-1) + int(b[n%232]) }

//go:noinline
func deepC(n int) int { var b [40]byte; b[n%40] = 1; if n == 0 { return 1 }; return deepC(n-1) + int(b[n%40]) }

func main() {
	sum, done := 0, make(chan int)
	for g := 0; g < 8; g++ {
		go func() {
			s := 0
			for i := 0; i < 10; i++ { s += deepA(999) + deepB(999) + deepC(999) }
			done <- s
		}()
	}
	for g := 0; g < 8; g++ { sum += <-done }
	fmt.Println(sum)
}
"#;

#[test]
fn calls_of_go_count_where_a_page_begins() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = made(&directory, "slots.go", SLOTS) else { return };
    let answer = document(&["-f", "main.deep.*", "--group", "function"], &program);
    let calls: Vec<u64> =
        answer["functions"].as_array().unwrap().iter().map(|f| number(&f["totals"]["calls"])).collect();
    assert_eq!(calls, [80_000; 3], "{}", answer["lost"]);
}
