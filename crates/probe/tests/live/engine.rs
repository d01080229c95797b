//! The engine on real processes, with known answers: counts, paths, adding and removing while threads
//! run, and nothing left behind. Programs are compiled here; where that or ptrace is missing it says so.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use crate::common::{PATHS, Talker, compile, words};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use whither_probe::{Engine, Options, Order, PointAction, PointSpec, Select};
use whither_store::calls::{CallSnapshot, FrameKind};

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
        // What the probe takes is taken off, which may be all of calls this short.
        assert!(path.totals.min_ns <= path.totals.max_ns && path.totals.wall_ns < 1_000_000_000);
        let chain = chain(&snapshot, path.frame);
        assert!(chain.len() >= 11, "{chain:?}");
        assert!(chain.iter().all(|f| f.0 == FrameKind::Caller), "{chain:?}");
    }
    eprintln!("own cost {:?}, lost {:?}, whole {:?}", snapshot.own_cost, snapshot.lost, snapshot.whole);
    let detached = engine.detach().unwrap();
    eprintln!("{detached:?}");
}

/// What a process looks like from outside: mappings, descriptors, threads, and its text.
#[derive(Debug, PartialEq, Eq)]
struct Looks {
    maps: Vec<String>,
    fds: usize,
    threads: usize,
    text: Vec<Vec<u8>>,
}

impl Looks {
    fn of(pid: u32) -> Self {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let count = |dir: &str| std::fs::read_dir(format!("/proc/{pid}/{dir}")).unwrap().count();
        let memory = whither_probe::target::Memory::open(pid).unwrap();
        let mut text = Vec::new();
        let mut names = Vec::new();
        for line in maps.lines() {
            let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            let (start, end) = (u64::from_str_radix(start, 16).unwrap(), u64::from_str_radix(end, 16).unwrap());
            // The heap grows by the loader's own bookkeeping, which it gives back within.
            if line.contains("[heap]") || line.contains("[stack]") {
                continue;
            }
            names.push(line.to_string());
            if line.contains("r-xp") && !line.contains("[v") {
                let mut bytes = vec![0; (end - start) as usize];
                memory.read(start, &mut bytes).unwrap();
                text.push(bytes);
            }
        }
        Self { maps: names, fds: count("fd"), threads: count("task"), text }
    }
}

#[test]
fn attached_counted_detached_and_as_before() {
    let Some((_dir, program)) = compile(PATHS, &[]) else { return };
    let mut talker = Talker::start(&program, &["1000", "x"]);
    assert_eq!(talker.hear(), "ready");
    let before = Looks::of(talker.pid());
    let mut engine = Engine::attach(talker.pid(), Options::default()).unwrap();
    let specs = specs(&mut engine, "target");
    let added = engine.add(&specs).unwrap();
    assert_eq!(added.ids.len(), 1, "{added:?}");
    assert_eq!(engine.snapshot().own_cost.apart_ns, 0, "what calibration takes is no cost of the program's calls");
    talker.say();
    let plain = talker.hear();
    let snapshot = engine.snapshot();
    assert_eq!((snapshot.paths.len(), total(&snapshot)), (3, 1700), "{snapshot:#?}");
    let detached = engine.detach().unwrap();
    assert_eq!(detached.left, Vec::<String>::new());
    assert_eq!(detached.restored, 1);
    let after = Looks::of(talker.pid());
    assert_eq!(after.text, before.text);
    assert_eq!(after.maps, before.maps);
    assert_eq!((after.fds, after.threads), (before.fds, before.threads));
    talker.say();
    assert_eq!(talker.child.wait().unwrap().code(), Some(7));
    let alone = Command::new(&program).arg("1000").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&alone.stdout).trim(), plain);
}

/// Forty threads that make one call each and go on living; with an argument as much may be mapped as it says.
const STACKS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
static pthread_barrier_t all;
__attribute__((noinline, noclone)) long target(long i) { for (volatile int k = 0; k < 100; k++) i += k; return i; }
static void *one(void *i) { target((long)i); pthread_barrier_wait(&all); pthread_barrier_wait(&all); return 0; }
int main(int argc, char **argv)
{
    struct rlimit most = {argc > 1 ? atol(argv[1]) : RLIM_INFINITY, RLIM_INFINITY};
    pthread_t t[40];
    syscall(SYS_prlimit64, 0, RLIMIT_AS, &most, 0); /* what imports setrlimit may do so at any time */
    pthread_barrier_init(&all, 0, 41);
    puts("ready");
    fflush(stdout);
    getchar();
    for (long i = 0; i < 40; i++)
        pthread_create(&t[i], 0, one, (void *)i);
    pthread_barrier_wait(&all);
    puts("all");
    fflush(stdout);
    getchar();
    pthread_barrier_wait(&all);
    for (int i = 0; i < 40; i++)
        pthread_join(t[i], 0);
    return 0;
}
"#;

/// What is mapped 16 TB below the stacks of threads.
fn shadows(pid: u32) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let starts = maps.lines().filter_map(|line| u64::from_str_radix(line.split_once('-')?.0, 16).ok());
    starts.filter(|start| (0x6000_0000_0000..0x7000_0000_0000).contains(start)).count()
}

/// Kilobytes that would go into a core dump.
fn dumped(pid: u32) -> u64 {
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let (mut all, mut size) = (0, 0);
    for line in smaps.lines() {
        match line.split_once(':') {
            Some(("Size", kilobytes)) => size = kilobytes.trim().trim_end_matches(" kB").parse().unwrap(),
            Some(("VmFlags", flags)) if !flags.split(' ').any(|flag| flag == "dd") => all += size,
            _ => {}
        }
    }
    all
}

/// To map the shadow of each stack takes the lock of the address space, for which dozens of threads that begin at once wait for each other.
#[test]
fn shadows_of_many_stacks_are_mapped_at_once_where_that_costs_nothing() {
    let Some((_dir, program)) = compile(STACKS, &["-pthread"]) else { return };
    for (limit, expected) in [(None, 1..=6), (Some("20000000000"), 40..=50)] {
        let mut talker = Talker::start(&program, limit.as_slice());
        assert_eq!(talker.hear(), "ready");
        assert_eq!(shadows(talker.pid()), 0, "another layout of addresses");
        let without = dumped(talker.pid());
        let mut engine = Engine::attach(talker.pid(), Options::default()).unwrap();
        let wanted = specs(&mut engine, "target");
        assert_eq!(engine.add(&wanted).unwrap().ids.len(), 1);
        let more = dumped(talker.pid()) - without;
        assert!(more < 5_000, "a core dump would have {more} kB of ours, with a limit of {limit:?}");
        talker.say();
        assert_eq!(talker.hear(), "all");
        let (mapped, calls) = (shadows(talker.pid()), total(&engine.snapshot()));
        assert_eq!(calls, 40, "with a limit of {limit:?}");
        assert!(expected.contains(&mapped), "{mapped} shadows with a limit of {limit:?}");
        assert_eq!(engine.detach().unwrap().left, Vec::<String>::new());
        assert_eq!(shadows(talker.pid()), 0, "with a limit of {limit:?}");
        talker.say();
        assert_eq!(talker.child.wait().unwrap().code(), Some(0));
    }
}

/// Threads that make two calls each, and some that make twenty, of 50 us and more by their own clocks; prints the sum of these clocks.
const SHORT_LIVES: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#define N __attribute__((noinline, noclone))
static long sum;
static long cpu(void) { struct timespec t; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); return t.tv_sec * 1000000000l + t.tv_nsec; }
N void target(void) { long from = cpu(), to; while ((to = cpu()) < from + 50000); sum += to - from; }
static void *some(void *calls) { for (long i = 0; i < (long)calls; i++) target(); return 0; }
int main(void)
{
    puts("ready");
    fflush(stdout);
    getchar();
    for (long i = 0; i < 60; i++) {
        pthread_t t;
        pthread_create(&t, 0, some, (void *)(i % 6 ? 2l : 20l));
        pthread_join(t, 0);
    }
    printf("%ld\n", sum);
    fflush(stdout);
    return 0;
}
"#;

/// CPU time is as right while the kernel is asked for it as by the page of an event later on.
#[test]
fn cpu_time_of_a_thread_s_first_calls() {
    let Some((_dir, program)) = compile(SHORT_LIVES, &["-pthread"]) else { return };
    let mut talker = Talker::start(&program, &[]);
    assert_eq!(talker.hear(), "ready");
    let mut engine = Engine::attach(talker.pid(), Options::default()).unwrap();
    let specs = specs(&mut engine, "target");
    assert_eq!(engine.add(&specs).unwrap().ids.len(), 1);
    talker.say();
    let truth: f64 = talker.hear().parse().unwrap();
    let snapshot = engine.snapshot();
    let cpu: u64 = snapshot.paths.iter().map(|p| p.totals.cpu_ns).sum();
    assert_eq!(total(&snapshot), 10 * 20 + 50 * 2);
    // What the program does around its own readings is in ours: two readings, less than a microsecond.
    let per_call = (cpu as f64 - truth) / total(&snapshot) as f64;
    assert!((-100.0..1500.0).contains(&per_call), "{per_call} ns more a call than {truth} ns in all");
    engine.detach().unwrap();
}

/// Eight threads that call one function all the time; the sum of their calls is printed at the end.
const THREADS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#define N __attribute__((noinline, noclone))
static volatile int stop;
static long counts[8];
N long target(long x) { long a = x; for (int i = 0; i < 20; i++) a = a * 3 + i; return a; }
static void *work(void *arg) {
    long n = 0, sum = 0;
    while (!stop) { sum += target(n); n++; }
    counts[(long)arg] = n;
    return (void *)sum;
}
int main(void) {
    pthread_t all[8];
    for (long i = 0; i < 8; i++) pthread_create(&all[i], 0, work, (void *)i);
    puts("ready"); fflush(stdout); getchar();
    stop = 1;
    long sum = 0;
    for (int i = 0; i < 8; i++) { pthread_join(all[i], 0); sum += counts[i]; }
    printf("%ld\n", sum); fflush(stdout); getchar();
    return 0;
}
"#;

#[test]
fn added_and_removed_while_eight_threads_run() {
    let Some((_dir, program)) = compile(THREADS, &["-pthread"]) else { return };
    let mut talker = Talker::start(&program, &[]);
    assert_eq!(talker.hear(), "ready");
    let text = Looks::of(talker.pid()).text;
    let mut engine = Engine::attach(talker.pid(), Options::default()).unwrap();
    let wanted = specs(&mut engine, "target");
    let mut last = 0;
    let (mut pauses, mut rounds) = (Vec::new(), 0);
    let end = Instant::now() + Duration::from_secs(4);
    while Instant::now() < end {
        let added = engine.add(&wanted).unwrap();
        assert_eq!((added.ids.len(), added.refused.len()), (1, 0), "{added:?}");
        until("no thread calls it", || total(&engine.snapshot()) > last + 100);
        let removed = engine.remove(&added.ids).unwrap();
        assert_eq!(removed.ids, added.ids);
        last = total(&engine.snapshot());
        pauses.extend([added.pause.held, removed.pause.held]);
        rounds += 1;
    }
    pauses.sort_unstable();
    let median = pauses[pauses.len() / 2];
    eprintln!("{rounds} rounds, median pause {median:?}, longest {:?}", pauses[pauses.len() - 1]);
    assert!(rounds > 3);
    let snapshot = engine.snapshot();
    for path in &snapshot.paths {
        assert!(path.totals.calls - path.totals.done <= 8, "{path:?}");
    }
    assert!(snapshot.paths.iter().map(|p| p.point).collect::<std::collections::BTreeSet<_>>().len() == rounds);
    // Removed probes count nothing more.
    until("calls in progress at the removal do not end", || engine.snapshot().in_progress.is_empty());
    // A thread that lost its core on the way into the probe counts its one call when it gets a core again.
    let mut counted = total(&engine.snapshot());
    until("removed probes go on counting", || {
        std::thread::sleep(Duration::from_millis(20));
        let before = std::mem::replace(&mut counted, total(&engine.snapshot()));
        before == counted
    });
    assert_eq!(engine.detach().unwrap().left, Vec::<String>::new());
    assert_eq!(Looks::of(talker.pid()).text, text);
    talker.say();
    assert!(talker.hear().parse::<u64>().unwrap() > counted);
    talker.say();
    assert_eq!(talker.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_library_is_patched_before_its_first_call() {
    let library = r#"
        int calls;
        __attribute__((visibility("default"))) int late(int x) { calls += x; return calls * 3; }
    "#;
    let Some((dir, so)) = compile(library, &["-shared", "-fPIC"]) else { return };
    let source = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        int main(int argc, char **argv) {
            void *h = dlopen(argv[1], RTLD_NOW);
            if (!h) { puts(dlerror()); return 1; }
            int (*late)(int) = (int (*)(int))dlsym(h, "late");
            int r = 0;
            for (int i = 0; i < 25; i++) r += late(i);
            dlclose(h);
            return r & 3;
        }"#;
    let Some((_dir2, program)) = compile(source, &[]) else { return };
    let options = Options { load_wait: Duration::from_secs(5), ..Options::default() };
    let mut engine = Engine::launch(&words(&program, &[&so.display().to_string()]), options).unwrap();
    engine.keep(named("late"), TIMES.to_vec());
    // The agent comes with the first point.
    let first = specs(&mut engine, "main");
    assert_eq!(engine.add(&first).unwrap().ids.len(), 1);
    engine.resume().unwrap();
    assert_eq!(
        finish(&mut engine),
        (0..25)
            .scan(0, |c, i| {
                *c += i;
                Some(*c * 3)
            })
            .sum::<i32>()
            & 3
    );
    let snapshot = engine.snapshot();
    let late = snapshot.points.iter().position(|p| p.names.iter().any(|n| n == "late")).expect("late was found");
    let calls: u64 = snapshot.paths.iter().filter(|p| p.point as usize == late).map(|p| p.totals.calls).sum();
    assert_eq!(calls, 25, "{snapshot:#?}");
    drop(dir);
}

#[test]
fn forked_children_count_and_are_restored() {
    let source = r#"
        #include <stdio.h>
        #include <sys/wait.h>
        #include <unistd.h>
        __attribute__((noinline, noclone)) long target(long x) { return x * 3 + (x >> 2); }
        int main(void) {
            volatile long sum = 0;
            puts("ready"); fflush(stdout); getchar();
            for (int c = 0; c < 10; c++)
                if (fork() == 0) { for (int i = 0; i < 100; i++) sum += target(i); _exit(0); }
            for (int i = 0; i < 7; i++) sum += target(i);
            while (wait(0) > 0);
            puts("done"); fflush(stdout); getchar();
            return 0;
        }"#;
    let Some((_dir, program)) = compile(source, &[]) else { return };
    let mut talker = Talker::start(&program, &[]);
    assert_eq!(talker.hear(), "ready");
    let before = Looks::of(talker.pid());
    let mut engine = Engine::attach(talker.pid(), Options::default()).unwrap();
    let wanted = specs(&mut engine, "target");
    engine.add(&wanted).unwrap();
    talker.say();
    assert_eq!(talker.hear(), "done");
    assert_eq!(total(&engine.snapshot()), 1007);
    assert_eq!(engine.detach().unwrap().left, Vec::<String>::new());
    assert_eq!(Looks::of(talker.pid()), before);
    talker.say();
}

#[test]
fn a_killed_controller_is_replaced() {
    let Some((_dir, program)) = compile(THREADS, &["-pthread"]) else { return };
    let Some(controller) = example("controller") else { return eprintln!("SKIP: the example is not built") };
    let mut talker = Talker::start(&program, &[]);
    assert_eq!(talker.hear(), "ready");
    let before = Looks::of(talker.pid());
    for delay in [0, 3, 20] {
        let pid = talker.pid().to_string();
        let first = Command::new(&controller).args([&pid, "target"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut first = Ending(first);
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(first.0.stdout.take().unwrap()), &mut line).unwrap();
        assert_eq!(line.trim(), "1");
        assert!(Engine::take_over(talker.pid(), Options::default()).is_err(), "its controller lives");
        std::thread::sleep(Duration::from_millis(delay));
        first.0.kill().unwrap();
        first.0.wait().unwrap();
        let mut engine = Engine::take_over(talker.pid(), Options::default()).unwrap();
        let counted = total(&engine.snapshot());
        until("nothing is counted", || total(&engine.snapshot()) > counted + 100);
        let detached = engine.detach().unwrap();
        assert_eq!((detached.restored, detached.left), (1, vec![]));
        assert_eq!(Looks::of(talker.pid()).text, before.text);
    }
    assert_eq!(Looks::of(talker.pid()).maps, before.maps);
    talker.say();
    assert!(talker.hear().parse::<u64>().unwrap() > 0);
}

/// The word of the segment that tells the version of its layout, and its value.
fn layout_word(pid: u32) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let line = maps.lines().find(|l| l.contains("whither-segment")).expect("a segment");
    u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap() + 8
}

#[test]
fn an_agent_of_another_layout_is_refused_and_left_alone() {
    let Some((_dir, program)) = compile(THREADS, &["-pthread"]) else { return };
    let Some(controller) = example("controller") else { return eprintln!("SKIP: the example is not built") };
    let mut talker = Talker::start(&program, &[]);
    assert_eq!(talker.hear(), "ready");
    let pid = talker.pid().to_string();
    let first = Command::new(&controller).args([&pid, "target"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = Ending(first);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(first.0.stdout.take().unwrap()), &mut line).unwrap();
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    let memory = whither_probe::target::Memory::open(talker.pid()).unwrap();
    let at = layout_word(talker.pid());
    let mut ours = [0; 4];
    memory.read(at, &mut ours).unwrap();
    if u32::from_le_bytes(ours) != whither_abi::agent::AGENT_ABI {
        talker.say();
        return eprintln!("SKIP: the example is of an earlier build (cargo build --examples)");
    }
    for other in [u32::from_le_bytes(ours) - 1, u32::from_le_bytes(ours) + 1] {
        memory.write(at, &other.to_le_bytes()).unwrap();
        let before = Looks::of(talker.pid());
        for error in [
            Engine::take_over(talker.pid(), Options::default()).unwrap_err(),
            Engine::attach(talker.pid(), Options::default()).unwrap_err(),
        ] {
            let said = error.to_string();
            assert!(said.contains("another version's") && said.contains(&format!("layout {other}")), "{said}");
        }
        // Its threads call on, and the agent has pages for each from its first call on: mappings may come.
        let after = Looks::of(talker.pid());
        assert_eq!((after.text, after.fds, after.threads), (before.text, before.fds, before.threads));
    }
    memory.write(at, &ours).unwrap();
    let detached = Engine::take_over(talker.pid(), Options::default()).unwrap().detach().unwrap();
    assert_eq!((detached.restored, detached.left), (1, vec![]));
    talker.say();
    assert!(talker.hear().parse::<u64>().unwrap() > 0);
}

/// A process that does not outlive its test.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An example of this crate, built beside the tests.
fn example(name: &str) -> Option<PathBuf> {
    let me = std::env::current_exe().ok()?;
    let path = me.parent()?.parent()?.join("examples").join(name);
    path.exists().then_some(path)
}

#[test]
fn sqlite_is_profiled_as_a_user_would() {
    let Some(sqlite) = ["/usr/bin/sqlite3", "/bin/sqlite3"].iter().map(Path::new).find(|p| p.exists()) else {
        return eprintln!("SKIP: no sqlite3");
    };
    let script = "create table t(x); insert into t values(1),(2),(3); select sum(x) from t;";
    let mut engine = Engine::launch(&words(sqlite, &[":memory:", script]), Options::default()).unwrap();
    let wanted = specs(&mut engine, "sqlite3_step");
    assert!(!engine.add(&wanted).unwrap().ids.is_empty());
    engine.resume().unwrap();
    assert_eq!(finish(&mut engine), 0);
    let snapshot = engine.snapshot();
    // One row for each statement's end, and one with the sum.
    assert!(total(&snapshot) >= 4, "{:#?}", snapshot.paths);
    for path in &snapshot.paths {
        let chain = chain(&snapshot, path.frame);
        assert!(chain.len() >= 3 && chain.iter().all(|f| f.0 == FrameKind::Caller), "{chain:?}");
    }
}
