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

/// `late LIBRARY`: loads it and calls its `work` 50 times. Where nothing shows that it loads libraries it does so a moment
/// after its begin, and waits before it calls.
const LATE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
static void nap(long ms) { struct timespec t = { ms / 1000, ms % 1000 * 1000000 }; nanosleep(&t, 0); }
int main(int argc, char **argv) {
#ifdef SECRETLY
    nap(100);
    void *(*open)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_DEFAULT, "dlopen");
    void *library = open(argv[1], RTLD_NOW);
#else
    void *library = dlopen(argv[1], RTLD_NOW);
#endif
    long (*work)(long) = library ? (long (*)(long))dlsym(library, "work") : 0;
    if (!work) return 1;
#ifdef SECRETLY
    nap(1000);
#endif
    long sum = 0;
    for (long i = 0; i < 50; i++) sum += work(i);
    return sum == 50 * 49 / 2 * 3 ? 5 : 2;
}
"#;
const WORK: &str = "__attribute__((noinline)) long work(long x) { return x * 3; }";

#[test]
fn a_library_loaded_later_is_measured_from_its_first_call() {
    let dir = tempfile::tempdir().unwrap();
    let compile = |name: &str, source: &str, flags: &[&str]| {
        let (c, to) = (dir.path().join(format!("{name}.c")), dir.path().join(name));
        std::fs::write(&c, source).unwrap();
        let made = Command::new("gcc").args(["-O2", "-o"]).arg(&to).arg(&c).args(flags).status();
        made.is_ok_and(|status| status.success()).then(|| to.display().to_string())
    };
    let (Some(library), Some(late), Some(secret)) = (
        compile("libwork.so", WORK, &["-shared", "-fPIC"]),
        compile("late", LATE, &["-ldl"]),
        compile("secret", LATE, &["-ldl", "-DSECRETLY"]),
    ) else {
        eprintln!("SKIP: gcc");
        return;
    };
    for (program, missed) in [(&late, false), (&secret, true)] {
        for follow in [true, false] {
            let it = measure(&[program, &library], Options { follow, ..Options::default() });
            assert_eq!((it.calls(), it.status), (50, Some(5)), "{program}, follow {follow}: {:?}", it.notes);
            let said = it.notes.iter().any(|n| n.contains("first milliseconds"));
            assert_eq!(said, missed, "{program}, follow {follow}: {:?}", it.notes);
        }
        let script = format!("{program} {library}; test $? = 5 && exit 3");
        let it = measure(&["sh", "-c", &script], Options::default());
        assert_eq!((it.calls(), it.status), (50, Some(3)), "{program}: {:?}", it.notes);
    }
}

/// A function of which only the entry can be probed, and only by the kernel.
const TINY: &str = r#"
long work(long);
__asm__(".text\n.globl work\n.type work,@function\nwork:\n.cfi_startproc\nmov %edi,%eax\nret\n.cfi_endproc\n.size work,.-work\n"
    ".type next,@function\nnext:\n.cfi_startproc\nxor %eax,%eax\nret\n.cfi_endproc\n.size next,.-next\n");
int main(void) { long sum = 0; for (long i = 0; i < 40; i++) sum += work(i); return sum == 780 ? 5 : 1; }
"#;

#[test]
fn a_program_of_which_only_the_kernel_counts_is_one_of_the_tree() {
    let dir = tempfile::tempdir().unwrap();
    let (c, tiny) = (dir.path().join("t.c"), dir.path().join("tiny"));
    std::fs::write(&c, TINY).unwrap();
    let made = Command::new("gcc").args(["-O2", "-o"]).arg(&tiny).arg(&c).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("SKIP: gcc");
        return;
    }
    let script = format!("{0}; {0}; test $? = 5 && exit 3", text(&tiny));
    let it = measure(&["sh", "-c", &script], Options::default());
    if it.notes.iter().any(|n| n.contains("uprobe") && n.contains("permi")) {
        eprintln!("SKIP: {:?}", it.notes);
        return;
    }
    assert_eq!((it.calls(), it.status, it.executed), (80, Some(3), 2), "{:?}", it.notes);
}

/// Runs until its file is gone.
const STEADY: &str = r#"
#include <time.h>
#include <unistd.h>
volatile long sink;
__attribute__((noinline, noclone)) long work(long x) { sink += x; return x * 3; }
__attribute__((noinline, noclone)) long extra(long x) { sink -= x; return x * 5; }
int main(int argc, char **argv) {
    struct timespec t = { 0, 1000000 };
    for (long i = 0; !access(argv[1], F_OK); i++) { sink += work(i) + extra(i); nanosleep(&t, 0); }
    return 5;
}
"#;

#[test]
fn what_is_added_and_taken_back_is_so_in_all_programs_of_a_tree() {
    let dir = tempfile::tempdir().unwrap();
    let (c, steady, flag) = (dir.path().join("s.c"), dir.path().join("steady"), dir.path().join("flag"));
    std::fs::write(&c, STEADY).unwrap();
    std::fs::write(&flag, "").unwrap();
    let made = Command::new("gcc").args(["-O2", "-o"]).arg(&steady).arg(&c).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("SKIP: gcc");
        return;
    }
    let script = format!("{0} {1} & {0} {1} & wait; exec {0} {1}", text(&steady), text(&flag));
    let named = |name: &str| vec![Order::Include(Select::Name { function: name.into(), module: None })];
    let words = ["sh", "-c", &script].map(String::from);
    let mut engine = Engine::launch(&words, Options { threads: true, ..Options::default() }).unwrap();
    engine.keep(named("work"), vec![PointAction::Path]);
    engine.resume().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    // Calls of a function, by thread.
    let calls = |snapshot: &CallSnapshot, name: &str| -> Vec<u64> {
        let point = snapshot.points.iter().position(|p| p.names[0] == name);
        let paths = snapshot.paths.iter().filter(|p| Some(p.point as usize) == point);
        let mut calls: Vec<u64> = paths.flat_map(|p| p.threads.iter().map(|t| t.1.calls)).collect();
        calls.sort_unstable();
        calls
    };
    let until = |engine: &mut Engine, what: &str, done: &dyn Fn(&CallSnapshot) -> bool| {
        loop {
            engine.poll(Duration::from_millis(10)).unwrap();
            let snapshot = engine.snapshot();
            if done(&snapshot) {
                return snapshot;
            }
            assert!(Instant::now() < end, "{what}: {snapshot:?}");
        }
    };
    until(&mut engine, "both run", &|s| calls(s, "work").len() == 2);
    assert!(engine.resolve(&named("extra")).unwrap().is_empty(), "the shell has none");
    let added = engine.extend(&named("extra"), &[PointAction::Path]).unwrap();
    assert_eq!((added.ids.len(), added.refused.len()), (2, 0), "{added:?}");
    let many = |s: &CallSnapshot, name: &str| calls(s, name).len() == 2 && calls(s, name).iter().all(|n| *n > 20);
    let snapshot = until(&mut engine, "both are counted", &|s| many(s, "extra"));
    let work = snapshot.points.iter().find(|p| p.names[0] == "work").unwrap();
    let id = whither_probe::PointId(work.id);
    engine.enable(&[id], false);
    assert_eq!(engine.remove(&[id]).unwrap().ids, [id]);
    let before = engine.snapshot();
    let extra: u64 = calls(&before, "extra").iter().sum();
    let after = until(&mut engine, "the other one goes on", &|s| calls(s, "extra").iter().sum::<u64>() > extra + 50);
    assert_eq!(calls(&after, "work"), calls(&before, "work"), "taken back in both");
    // Programs executed later get what was added, and not what was taken back: the shell becomes one.
    assert!(engine.extend(&named("no_such"), &[]).unwrap().ids.is_empty());
    let children: Vec<u32> = after.threads.iter().map(|t| t.pid).collect();
    for pid in children {
        kill(pid);
    }
    let last = until(&mut engine, "the third is counted", &|s| calls(s, "extra").len() == 3);
    assert_eq!(calls(&last, "work"), calls(&before, "work"), "not given to the third");
    std::fs::remove_file(&flag).unwrap();
    until(&mut engine, "the end", &|s| s.processes.iter().all(|p| !Path::new(&format!("/proc/{}", p.pid)).exists()));
    assert!(engine.detach().unwrap().left.is_empty());
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}
