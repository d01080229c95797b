//! Functions counted by the kernel's breakpoints, on real processes with known answers: counts, paths
//! without frame pointers, times, exceptions, forked children, and nothing left behind. Needs a compiler,
//! ptrace and BPF; where one is missing it says so.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use crate::common::{PATHS, Talker, compile, compile_with, words};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use whither_probe::{Engine, Happening, Options, Order, PointAction, PointSpec, Refusal, Select};
use whither_store::calls::{CallSnapshot, FrameKind, PatchKind};

fn safe() -> Options {
    Options { safe: true, ..Options::default() }
}

const TIMES: [PointAction; 4] = [PointAction::Path, PointAction::Wall, PointAction::Cpu, PointAction::Hist];

fn specs(engine: &mut Engine, function: &str) -> Vec<PointSpec> {
    let select = Select::Name { function: function.into(), module: None };
    let found = engine.resolve(&[Order::Include(select)]).unwrap();
    assert!(!found.is_empty(), "{function} not found");
    found.into_iter().map(|candidate| PointSpec { candidate, actions: TIMES.to_vec() }).collect()
}

/// Adds functions; `None` where the kernel does not let us.
fn add(engine: &mut Engine, function: &str) -> Option<usize> {
    let specs = specs(engine, function);
    let added = engine.add(&specs).unwrap();
    if let Some((name, Refusal::Uprobe(why))) = added.refused.first()
        && why.contains("kernel refused")
    {
        eprintln!("SKIP: {name}: {why}");
        return None;
    }
    assert_eq!(added.refused, Vec::new());
    Some(added.ids.len())
}

/// Runs a launched command to its end.
fn finish(engine: &mut Engine) -> i32 {
    engine.resume().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        for happened in engine.poll(Duration::from_millis(50)).unwrap() {
            if let Happening::Ended { pid, status } = happened
                && pid == engine.pid()
            {
                return status.unwrap();
            }
        }
        assert!(Instant::now() < end, "it did not end");
    }
}

/// Calls by chain of frames (module's file name and address), innermost first.
fn chains(snapshot: &CallSnapshot) -> BTreeMap<Vec<(String, u64)>, u64> {
    let mut all = BTreeMap::new();
    for path in &snapshot.paths {
        let mut chain = Vec::new();
        let mut at = path.frame;
        while let Some(frame) = snapshot.frames.get(at as usize) {
            assert_eq!(frame.kind, FrameKind::Caller, "{chain:?}");
            let module = snapshot.modules.get(frame.module as usize).map_or("", |m| m.path.as_str());
            chain.push((module.rsplit('/').next().unwrap().to_string(), frame.offset));
            at = frame.caller;
        }
        *all.entry(chain).or_insert(0) += path.totals.calls;
    }
    all
}

fn calls(snapshot: &CallSnapshot) -> u64 {
    snapshot.paths.iter().map(|p| p.totals.calls).sum()
}

#[test]
fn the_same_paths_as_the_agents_without_frame_pointers() {
    let Some((_dir, program)) = compile(PATHS, &[]) else { return };
    let run = |options: Options| {
        let mut engine = Engine::launch(&words(&program, &["1000"]), options).unwrap();
        let Some(count) = add(&mut engine, "target") else {
            engine.abandon();
            return None;
        };
        assert_eq!((count, finish(&mut engine)), (1, 7));
        let snapshot = engine.snapshot();
        engine.detach().unwrap();
        Some(snapshot)
    };
    let Some(by_kernel) = run(safe()) else { return };
    let by_agent = run(Options::default()).unwrap();
    assert_eq!(by_kernel.points[0].patch, Some(PatchKind::Uprobe));
    assert_ne!(by_agent.points[0].patch, Some(PatchKind::Uprobe));
    let (kernel, agent) = (chains(&by_kernel), chains(&by_agent));
    assert_eq!(kernel.values().sum::<u64>(), 1700);
    assert!(kernel.keys().all(|chain| chain.len() >= 8), "{kernel:?}");
    assert_eq!(kernel, agent);
    assert!(by_kernel.notes.iter().any(|n| n.contains("counted by uprobes")), "{:?}", by_kernel.notes);
    let path = &by_kernel.paths[0].totals;
    assert!(path.done == path.calls && path.min_ns > 0 && path.max_ns >= path.min_ns && path.wall_ns > 0, "{path:?}");
    assert_eq!(path.hist.as_ref().map(|h| h.iter().sum::<u64>()), Some(path.calls));
}

/// Spins for a known time, and says how long it took.
const SPIN: &str = r#"
#include <stdio.h>
#include <time.h>
#define N __attribute__((noinline, noclone))
static long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000L + t.tv_nsec; }
N void leaf(long ns) { long t = now(); while (now() - t < ns); __asm__ volatile("" ::: "memory"); }
N void nap(void) { struct timespec t = {0, 2000000}; nanosleep(&t, 0); __asm__ volatile("" ::: "memory"); }
N void both(long ns) { leaf(ns); nap(); __asm__ volatile("" ::: "memory"); }
int main(void) { long t = now(); for (int i = 0; i < 40; i++) both(1000000); printf("%ld\n", now() - t); return 0; }
"#;

/// The traps by which whither measures what one costs are its own: they were told as 1.5 ms of two calls.
#[test]
fn what_measuring_a_trap_took_is_not_the_targets() {
    let Some((_dir, program)) = compile(PATHS, &[]) else { return };
    let mut engine = Engine::launch(&words(&program, &["1000"]), safe()).unwrap();
    if add(&mut engine, "target").is_none() {
        engine.abandon();
        return;
    }
    assert_eq!(engine.snapshot().own_cost.kernel_ns, Some(0), "it has not run yet");
    assert_eq!(finish(&mut engine), 7);
    let snapshot = engine.snapshot();
    assert!(calls(&snapshot) > 0 && snapshot.own_cost.kernel_ns > Some(0), "{:?}", snapshot.own_cost);
}

#[test]
fn times_of_known_spins_and_who_called_whom() {
    let Some((_dir, program)) = compile(SPIN, &[]) else { return };
    let mut engine = Engine::launch(&words(&program, &[]), safe()).unwrap();
    let Some(count) = add(&mut engine, "leaf|nap|both") else { return engine.abandon() };
    assert_eq!((count, finish(&mut engine)), (3, 0));
    let snapshot = engine.snapshot();
    engine.detach().unwrap();
    let of = |name: &str| {
        let row = snapshot.points.iter().position(|p| p.names[0] == name).unwrap() as u32;
        let mut paths = snapshot.paths.iter().filter(|p| p.point == row);
        let path = paths.next().unwrap();
        assert!(paths.next().is_none(), "{name}");
        assert_eq!((path.totals.calls, path.totals.done), (40, 40), "{name}");
        path
    };
    let (leaf, nap, both) = (of("leaf"), of("nap"), of("both"));
    assert_eq!((leaf.parent, nap.parent, both.parent), (Some(both.id), Some(both.id), None));
    // Others may run meanwhile, so wall times have a lower bound only, and CPU time an upper one.
    assert!(leaf.totals.wall_ns >= 40_000_000 && leaf.totals.min_ns >= 1_000_000, "{leaf:?}");
    assert!(leaf.totals.min_ns < 1_200_000, "{leaf:?}");
    assert!(leaf.totals.cpu_ns <= leaf.totals.wall_ns && leaf.totals.cpu_ns > 10_000_000, "{leaf:?}");
    assert!(nap.totals.wall_ns >= 80_000_000 && nap.totals.cpu_ns < 20_000_000, "{nap:?}");
    assert!(both.totals.wall_ns >= leaf.totals.wall_ns + nap.totals.wall_ns, "{both:?}");
    assert!(both.totals.wall_ns < (leaf.totals.wall_ns + nap.totals.wall_ns) * 3 / 2, "{both:?}");
}

const THROWS: &str = r#"
#include <stdexcept>
#define N __attribute__((noinline, noclone))
volatile int kept;
N int third(int n) { if (n % 3 == 0) throw std::runtime_error("third"); kept += n; return n; }
N int second(int n) { int r = third(n) + 1; kept += r; return r; }
N int first(int n) { try { int r = second(n); kept += r; return r; } catch (const std::exception &e) { kept += 7; return -1; } }
int main() { long sum = 0; for (int i = 0; i < 300; i++) sum += first(i); return (sum * 31 + kept) % 97 + 1; }
"#;

#[test]
fn exceptions_pass_through() {
    let Some((_dir, program)) = compile_with("g++", "cc", THROWS, &[]) else { return };
    let alone = Command::new(&program).status().unwrap().code().unwrap();
    let mut engine = Engine::launch(&words(&program, &[]), safe()).unwrap();
    let Some(count) = add(&mut engine, "first|second|third") else { return engine.abandon() };
    assert_eq!((count, finish(&mut engine)), (3, alone));
    let snapshot = engine.snapshot();
    engine.detach().unwrap();
    let of = |name: &str| {
        let row = snapshot.points.iter().position(|p| p.names[0] == name).unwrap() as u32;
        let paths: Vec<_> = snapshot.paths.iter().filter(|p| p.point == row).collect();
        let sum = |f: fn(&whither_store::calls::PathTotals) -> u64| paths.iter().map(|p| f(&p.totals)).sum::<u64>();
        (sum(|t| t.calls), sum(|t| t.done))
    };
    assert_eq!(of("first"), (300, 300));
    assert_eq!(of("second"), (300, 200));
    assert_eq!(of("third"), (300, 200));
    assert!(snapshot.in_progress.is_empty(), "{:?}", snapshot.in_progress);
}

/// A function with a branch to its second byte cannot be patched.
const SHORT: &str = r#"
#include <stdio.h>
#define N __attribute__((noinline, noclone))
volatile long kept;
N void inner(void) { kept++; }
__asm__(".text\n.globl begins\n.type begins,@function\nbegins:\n.cfi_startproc\ncld\n1: inc %edi\ntest $7,%dil\njne 1b\nret\n.cfi_endproc\n.size begins,.-begins\n");
void begins(void);
N void outer(void) { kept += 2; begins(); inner(); kept += 3; }
int main(void) { for (int i = 0; i < 500; i++) outer(); return 5; }
"#;

#[test]
fn what_cannot_be_patched_is_counted_by_the_kernel() {
    let Some((_dir, program)) = compile(SHORT, &[]) else { return };
    let mut engine = Engine::launch(&words(&program, &[]), Options::default()).unwrap();
    let Some(count) = add(&mut engine, "begins|outer|inner") else { return engine.abandon() };
    assert_eq!((count, finish(&mut engine)), (3, 5));
    let snapshot = engine.snapshot();
    let by = |name: &str| {
        let row = snapshot.points.iter().position(|p| p.names[0] == name).unwrap();
        let paths = snapshot.paths.iter().filter(|p| p.point as usize == row);
        (snapshot.points[row].patch, paths.map(|p| p.totals.calls).sum::<u64>())
    };
    assert_eq!(by("begins"), (Some(PatchKind::Uprobe), 500));
    assert_eq!((by("outer").1, by("inner").1), (500, 500));
    assert_ne!(by("outer").0, Some(PatchKind::Uprobe));
    // Its caller's return address is in the agent's keeping, and found there.
    let row = snapshot.points.iter().position(|p| p.names[0] == "begins").unwrap() as u32;
    let path = snapshot.paths.iter().find(|p| p.point == row).unwrap();
    let mut at = path.frame;
    let mut depth = 0;
    while let Some(frame) = snapshot.frames.get(at as usize) {
        assert_eq!(frame.kind, FrameKind::Caller, "frame {depth}");
        (at, depth) = (frame.caller, depth + 1);
    }
    assert!(depth >= 3, "{depth}");
    engine.detach().unwrap();
}

#[test]
fn without_uprobes_it_stays_refused() {
    let Some((_dir, program)) = compile(SHORT, &[]) else { return };
    let options = Options { uprobes: false, ..Options::default() };
    let mut engine = Engine::launch(&words(&program, &[]), options).unwrap();
    let specs = specs(&mut engine, "begins");
    assert!(specs[0].candidate.patch.is_err(), "{:?}", specs[0].candidate);
    engine.abandon();
}

/// The program's text in memory, and the names of its mappings but those of the kernel's breakpoints.
fn looks(pid: u32) -> (Vec<Vec<u8>>, Vec<String>) {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = whither_probe::target::Memory::open(pid).unwrap();
    let (mut text, mut names) = (Vec::new(), Vec::new());
    for line in maps.lines().filter(|l| !l.contains("[uprobes") && !l.contains("[heap]") && !l.contains("[stack]")) {
        names.push(line.to_string());
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        if line.contains("r-xp") && !line.contains("[v") {
            let start = u64::from_str_radix(start, 16).unwrap();
            let mut bytes = vec![0; (u64::from_str_radix(end, 16).unwrap() - start) as usize];
            memory.read(start, &mut bytes).unwrap();
            text.push(bytes);
        }
    }
    (text, names)
}

/// The first byte that differs; all of them would be megabytes.
fn difference(now: &(Vec<Vec<u8>>, Vec<String>), before: &(Vec<Vec<u8>>, Vec<String>)) -> String {
    if now.1 != before.1 {
        return format!("mappings {:#?}, before {:#?}", now.1, before.1);
    }
    let bytes = now.0.iter().flatten().zip(before.0.iter().flatten());
    let differing: Vec<_> = bytes.enumerate().filter(|(_, (a, b))| a != b).take(8).collect();
    format!("bytes {differing:x?}")
}

#[test]
fn attached_removed_and_as_before() {
    let Some((_dir, program)) = compile(PATHS, &[]) else { return };
    let alone = Command::new(&program).arg("200").output().unwrap().stdout;
    let mut talker = Talker::start(&program, &["200", "x"]);
    assert_eq!(talker.hear(), "ready");
    let pid = talker.child.id();
    let before = looks(pid);
    let mut engine = Engine::attach(pid, safe()).unwrap();
    assert!(looks(pid) == before, "something was put in");
    if add(&mut engine, "target|red.|green.").is_none() {
        return;
    }
    assert!(looks(pid).0 != before.0, "no breakpoint was set");
    let reds: Vec<_> =
        engine.snapshot().points.iter().filter(|p| p.names[0].starts_with("red")).map(|p| p.id).collect();
    let reds: Vec<_> = reds.into_iter().map(whither_probe::api::PointId).collect();
    assert_eq!(engine.remove(&reds).unwrap().ids.len(), 9);
    talker.say();
    assert_eq!(talker.hear().as_bytes(), alone.trim_ascii());
    let snapshot = engine.snapshot();
    // `target` by three ways, and nine functions of the green one.
    assert_eq!(calls(&snapshot), 200 + 100 + 40 + 9 * 100);
    engine.reset();
    assert_eq!(calls(&engine.snapshot()), 0);
    let detached = engine.detach().unwrap();
    assert_eq!((detached.restored, detached.left), (10, Vec::new()));
    // On a busy machine the kernel takes its breakpoints out a little after their links are closed.
    let until = Instant::now() + Duration::from_secs(10);
    while looks(pid) != before {
        assert!(Instant::now() < until, "not as before: {}", difference(&looks(pid), &before));
        std::thread::sleep(Duration::from_millis(5));
    }
    talker.say();
    assert_eq!(talker.child.wait().unwrap().code(), Some(7));
}

/// A process between fork and exec: until this is dropped, it has a copy of all our descriptors.
struct Unborn {
    go: std::io::PipeWriter,
    started: Option<std::thread::JoinHandle<()>>,
}

impl Unborn {
    #[allow(unsafe_code)]
    fn new() -> Self {
        use std::os::unix::process::CommandExt;
        let (mut told, go) = std::io::pipe().unwrap();
        let (mut heard, mut is_there) = std::io::pipe().unwrap();
        let started = std::thread::spawn(move || {
            let mut command = Command::new("true");
            let wait = move || {
                // SAFETY: no memory is passed. Nobody else would end it if this test were killed.
                unsafe { libc::alarm(60) };
                is_there.write_all(b"1")?;
                std::io::Read::read_exact(&mut told, &mut [0])
            };
            // SAFETY: three system calls and nothing else.
            unsafe { command.pre_exec(wait) };
            let _ = command.status();
        });
        std::io::Read::read_exact(&mut heard, &mut [0]).unwrap();
        Self { go, started: Some(started) }
    }
}

impl Drop for Unborn {
    fn drop(&mut self) {
        let _ = self.go.write_all(b"1");
        let _ = self.started.take().map(std::thread::JoinHandle::join);
    }
}

#[test]
fn some_are_removed_while_the_others_count() {
    remove_some(|| None);
}

/// Closing a link takes nothing away then: breakpoints of up to eight turns stand where one should.
#[test]
fn breakpoints_whose_links_others_hold_count_nothing_twice() {
    remove_some(|| Some(Unborn::new()));
}

/// Removes functions one by one, `between` before each, while a program calls them and others. How long a removal takes is the
/// kernel's matter (it waits for all CPUs), so a program that was done before is run again, for longer.
fn remove_some(between: impl Fn() -> Option<Unborn>) {
    let Some((_dir, program)) = compile(PATHS, &[]) else { return };
    let went_on = [6_000, 24_000, 96_000].into_iter().any(|rounds| went_on_while_removed(&program, rounds, &between));
    assert!(went_on, "the program was done before the removals each time");
}

/// Whether the program still called when all were removed.
fn went_on_while_removed(program: &Path, rounds: u64, between: &impl Fn() -> Option<Unborn>) -> bool {
    let mut talker = Talker::start(program, &[&rounds.to_string(), "x"]);
    assert_eq!(talker.hear(), "ready");
    let pid = talker.child.id();
    let mut engine = Engine::attach(pid, safe()).unwrap();
    let first_byte = |address: u64| {
        let mut byte = [0];
        whither_probe::target::Memory::open(pid).unwrap().read(address, &mut byte).unwrap();
        byte[0]
    };
    let reds: Vec<(u64, u8)> =
        specs(&mut engine, "red.").iter().map(|s| (s.candidate.address, first_byte(s.candidate.address))).collect();
    if add(&mut engine, "target|red.|green.").is_none() {
        return true;
    }
    assert!(reds.iter().all(|(at, was)| first_byte(*at) != *was));
    let number = |p: &whither_store::calls::CallPoint| whither_probe::api::PointId(p.id);
    let points = engine.snapshot().points;
    let ids: Vec<_> = points.iter().filter(|p| p.names[0].starts_with("red")).map(number).collect();
    talker.say();
    // The calls go on meanwhile: a removal that lost some of the others' or counted them twice would show.
    let mut holders = Vec::new();
    for id in &ids {
        holders.extend(between());
        assert_eq!(engine.remove(&[*id]).unwrap().ids, [*id]);
    }
    let amid = calls(&engine.snapshot());
    assert_ne!(talker.hear(), "");
    let snapshot = engine.snapshot();
    let went_on = amid < calls(&snapshot);
    let mut of: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for path in &snapshot.paths {
        let name = snapshot.points[path.point as usize].names[0].as_str();
        let sum = of.entry(name).or_default();
        *sum = (sum.0 + path.totals.calls, sum.1 + path.totals.done);
    }
    let ways = rounds + rounds / 2 + rounds / 5;
    assert_eq!(of.get("target"), Some(&(ways, ways)), "{of:?}");
    for way in 0..9 {
        assert_eq!(of.get(format!("green{way}").as_str()), Some(&(rounds / 2, rounds / 2)), "{of:?}");
    }
    drop(holders);
    assert!(reds.iter().all(|(at, was)| first_byte(*at) == *was), "a breakpoint stayed");
    engine.detach().unwrap();
    talker.say();
    assert_eq!(talker.child.wait().unwrap().code(), Some(7));
    went_on
}

#[test]
fn sqlite_answers_as_always() {
    let sql = "with recursive t(x) as (select 1 union all select x+1 from t where x<500) select sum(x) from t;";
    let Ok(alone) = Command::new("sqlite3").args([":memory:", sql]).output() else {
        eprintln!("SKIP: no sqlite3");
        return;
    };
    let path = std::env::var_os("PATH").unwrap();
    let program = std::env::split_paths(&path).map(|d| d.join("sqlite3")).find(|p| p.is_file()).unwrap();
    let mut engine = Engine::launch(&words(&program, &[":memory:", sql]), safe()).unwrap();
    let Some(count) = add(&mut engine, "sqlite3_step|sqlite3_prepare_v2|sqlite3_malloc64") else {
        return engine.abandon();
    };
    assert!(count >= 2, "{count}");
    assert_eq!(finish(&mut engine), 0);
    let snapshot = engine.snapshot();
    engine.detach().unwrap();
    assert!(alone.status.success() && calls(&snapshot) > 2, "{snapshot:?}");
    let mut undone = snapshot.paths.iter().filter(|p| p.totals.done != p.totals.calls);
    let exits = |p: &whither_store::calls::CallPath| snapshot.points[p.point as usize].entry_only.is_none();
    assert!(undone.all(|p| !exits(p)), "{:?}", snapshot.paths);
}
