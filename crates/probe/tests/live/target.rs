//! The target side on living processes: stopped, called into, given a module and left again, launched.
//! The programs (`programs/`) check themselves that nothing of it can be noticed, and say so at their end.

// Skips and figures are printed.
#![allow(clippy::print_stdout)]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child as Process, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use whither_probe::target::{self, Caller, Load, Seen, Stopped, Tree, Way, inject, launch, maps, remains, remove};
use whither_probe::{ProbeError, agent};

const BLOCKERS: &str = include_str!("../programs/blockers.c");
const MODULE: &str = include_str!("../programs/module.c");
const SIGNALS: &str = include_str!("../programs/signals.c");
const STRICT: &str = include_str!("../programs/strict.c");
const FILTERED: &str = include_str!("../programs/filtered.c");
const BUSY: &str = include_str!("../programs/busy.c");
const LOADING: &str = include_str!("../programs/loading.c");
const NO_FILES: &[String] = &[];

/// Compiles C; `None`, and says so, where there is no compiler for it.
fn compile(dir: &Path, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let (from, to) = (dir.join(format!("{name}.c")), dir.join(name));
    fs::write(&from, source).expect("writes");
    let out = Command::new("gcc").args(["-O1", "-w", "-o"]).arg(&to).arg(&from).args(flags).arg("-pthread").output();
    match out {
        Ok(out) if out.status.success() => return Some(to),
        Ok(out) => println!("SKIP: gcc {flags:?}: {}", String::from_utf8_lossy(&out.stderr)),
        Err(e) => println!("SKIP: no gcc: {e}"),
    }
    None
}

fn may_trace() -> bool {
    let root = rustix::process::geteuid().is_root();
    let may = root || whither_kernel::proc::sysctl("kernel.yama.ptrace_scope").unwrap_or(0) == 0;
    if !may {
        println!("SKIP: tracing needs root here");
    }
    may
}

/// Compiles and starts a program, where it may be traced.
fn start(dir: &Path, source: &str, flags: &[&str]) -> Option<Running> {
    let program = compile(dir, "program", source, flags).filter(|_| may_trace())?;
    Some(Running::start(&program, &[]))
}

/// A program that runs, and that is ended with the test.
struct Running {
    process: Process,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn start(program: &Path, words: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("starts");
        let out = BufReader::new(process.stdout.take().expect("piped"));
        let mut running = Self { process, out };
        assert_eq!(running.line(), "ready");
        running
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("reads");
        line.trim().to_string()
    }

    fn say(&mut self, word: &str) {
        // In one write: the programs read lines by single system calls.
        self.process.stdin.as_mut().expect("piped").write_all(format!("{word}\n").as_bytes()).expect("writes");
    }

    /// Longest gap that the spinning thread has seen since it was asked last.
    fn longest(&mut self) -> Duration {
        self.say("gap");
        Duration::from_nanos(self.line().parse().expect("a number"))
    }

    /// Ends it as it likes to be ended; its own verdict must be that nothing was wrong.
    fn end(mut self) {
        self.say("quit");
        assert_eq!(self.line(), "bad 0");
        assert!(self.process.wait().expect("ends").success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a process has, as far as others can see.
#[derive(Debug, PartialEq, Eq)]
struct Possessions {
    maps: Vec<String>,
    files: usize,
    threads: usize,
    tracer: u32,
}

fn possessions(pid: u32) -> Possessions {
    let of = |dir: &str| fs::read_dir(format!("/proc/{pid}/{dir}")).expect("lists").count();
    // The heap may grow by what the loader allocates for a while.
    let others = maps::read(pid).into_iter().filter(|m| m.path != "[heap]");
    let maps = others.map(|m| format!("{:x}-{:x} {}", m.start, m.end, m.path)).collect();
    Possessions { maps, files: of("fd"), threads: of("task"), tracer: whither_kernel::proc::tracer(pid) }
}

#[test]
fn stopping_is_not_noticed() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(target) = start(dir.path(), BLOCKERS, &[]) else { return };
    let before = possessions(target.pid());
    for _ in 0..200 {
        let stopped = Stopped::stop(target.pid()).expect("stops");
        assert_eq!(stopped.places().len(), 9);
        assert!(stopped.places().iter().all(|p| p.1 != 0 && p.2 != 0));
        let _ = stopped.release();
    }
    assert!(target::tend());
    assert_eq!(possessions(target.pid()), before);
    target.end();
}

#[test]
fn calls_are_not_noticed() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(target) = start(dir.path(), BLOCKERS, &[]) else { return };
    let before = possessions(target.pid());
    let mut shortest = Duration::MAX;
    for _ in 0..200 {
        let mut caller = Caller::pick(target.pid()).expect("a thread");
        let pid = caller.syscall("getpid", libc::SYS_getpid, [0; 6]).expect("calls");
        assert_eq!(pid, u64::from(target.pid()));
        let tid = caller.syscall("gettid", libc::SYS_gettid, [0; 6]).expect("calls");
        assert_eq!(tid, u64::from(caller.tid()));
        let e = caller.syscall("close", libc::SYS_close, [9999, 0, 0, 0, 0, 0]).expect_err("must fail");
        assert!(matches!(e, ProbeError::RemoteCall { ref source, .. } if source.raw_os_error() == Some(libc::EBADF)));
        shortest = shortest.min(caller.release());
    }
    println!("one thread held for 7 system calls: {shortest:?} at best");
    assert_eq!(possessions(target.pid()), before);
    target.end();
}

#[test]
fn a_module_comes_and_goes() {
    let dir = tempfile::tempdir().expect("a directory");
    if !may_trace() {
        return;
    }
    let Some(module) = compile(dir.path(), "module.so", MODULE, &["-shared", "-fPIC", "-nostdlib"]) else { return };
    let agent = fs::read(module).expect("reads");
    for (flags, by_hand) in [(&[][..], false), (&[][..], true), (&["-static"][..], false), (&["-no-pie"][..], false)] {
        if let Some(target) = start(dir.path(), BLOCKERS, flags) {
            let ways = if flags == ["-static"] || by_hand { 2 } else { 1 };
            come_and_go(&target, &load(&agent, by_hand), ways);
            target.end();
        }
    }
}

#[test]
fn the_agent_comes_and_goes() {
    let dir = tempfile::tempdir().expect("a directory");
    for (flags, by_hand) in [(&[][..], false), (&[][..], true), (&["-static"][..], false)] {
        let Some(target) = start(dir.path(), BLOCKERS, flags) else { return };
        let pid = target.pid();
        let before = possessions(pid);
        let load = Load {
            agent: agent::IMAGE,
            start: agent::Symbol::Start.offset(),
            segment_bytes: whither_abi::agent::SEGMENT_BYTES,
            shadow: agent::SHADOW,
            abi: whither_abi::agent::AGENT_ABI,
            by_hand,
        };
        let mut took = Vec::new();
        for _ in 0..20 {
            let began = Instant::now();
            let mut caller = Caller::pick(pid).expect("a thread");
            let placed = inject(&mut caller, &load, &mut header).expect("goes in");
            let _ = caller.release();
            took.push(began.elapsed());
            let code: Vec<_> = std::iter::once(placed.image.clone()).collect();
            let (stopped, caught) = target::stop_outside(pid, &code, Duration::from_secs(1)).expect("stops");
            assert!(caught.is_empty());
            let _ = stopped.release();
            let mut caller = Caller::pick_avoiding(pid, &code).expect("a thread");
            assert_eq!(remove(&mut caller, &placed, &[]), NO_FILES);
            let _ = caller.release();
        }
        took.sort_unstable();
        println!("the agent is in within {:?}, median {:?} ({flags:?}, by hand {by_hand})", took[0], took[10]);
        assert_eq!(possessions(pid), before, "{flags:?}, by hand {by_hand}");
        target.end();
    }
}

/// The first words of a segment: magic, layout version, off, length.
fn header(file: &fs::File) -> Result<(), ProbeError> {
    file.write_all_at(&whither_abi::agent::AGENT_MAGIC.to_le_bytes(), 0).expect("writes");
    file.write_all_at(&whither_abi::agent::AGENT_ABI.to_le_bytes(), 8).expect("writes");
    file.write_all_at(&whither_abi::agent::SEGMENT_BYTES.to_le_bytes(), 16).expect("writes");
    Ok(())
}

fn load(agent: &[u8], by_hand: bool) -> Load<'_> {
    Load { agent, start: symbol(agent, "wh_start"), segment_bytes: 256 << 20, shadow: 0, abi: 7, by_hand }
}

fn come_and_go(target: &Running, load: &Load<'_>, way: u64) {
    let pid = target.pid();
    let before = possessions(pid);
    let (mut fastest, mut slowest) = (Duration::MAX, Duration::ZERO);
    for round in 0..50 {
        let began = Instant::now();
        let mut caller = Caller::pick(pid).expect("a thread");
        let mut prepare = |file: &fs::File| {
            file.write_all_at(&40_u64.to_le_bytes(), 0).expect("writes");
            Ok(())
        };
        let placed = inject(&mut caller, load, &mut prepare).expect("goes in");
        let _ = caller.release();
        fastest = fastest.min(began.elapsed());
        slowest = slowest.max(began.elapsed());
        let mut word = [0; 8];
        placed.file.read_exact_at(&mut word, 0).expect("reads");
        assert_eq!(u64::from_le_bytes(word), 40 + way, "it wrote its way into the shared segment");
        assert_eq!(way == 1, matches!(placed.way, Way::Loader { .. }));
        assert!(remains(pid).len() >= 2);
        // Every other time as one who has found it.
        let placed = match target::find_agent(pid) {
            Ok(found) => {
                let found = found.expect("is there");
                assert_eq!((&found.image, found.segment), (&placed.image, placed.segment));
                if round % 2 == 1 { found } else { placed }
            }
            // /proc/PID/map_files is for root.
            Err(e) if !rustix::process::geteuid().is_root() => {
                assert!(e.to_string().contains("needs root"), "{e}");
                placed
            }
            Err(e) => panic!("{e}"),
        };
        let mut caller = Caller::pick(pid).expect("a thread");
        assert_eq!(remove(&mut caller, &placed, &[]), NO_FILES);
        let _ = caller.release();
    }
    println!("way {way}: in within {fastest:?} to {slowest:?}");
    assert_eq!(possessions(pid), before, "way {way}");
}

#[test]
fn a_module_that_refuses_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(target) = start(dir.path(), BLOCKERS, &[]) else { return };
    let Some(module) = compile(dir.path(), "module.so", MODULE, &["-shared", "-fPIC", "-nostdlib"]) else { return };
    let agent = fs::read(module).expect("reads");
    let good = load(&agent, false);
    let before = possessions(target.pid());
    for (load, message) in [
        (Load { abi: 8, ..good }, "refused to start (code 1)"),
        (Load { start: 0, ..good }, "signal"),
        (Load { agent: b"not an image", ..good }, "by its loader"),
    ] {
        let mut caller = Caller::pick(target.pid()).expect("a thread");
        let e = inject(&mut caller, &load, &mut |_| Ok(())).expect_err("must fail");
        assert!(e.to_string().contains(message), "{e}");
        let _ = caller.release();
        assert_eq!(possessions(target.pid()), before, "{message}");
    }
    let mut caller = Caller::pick(target.pid()).expect("a thread");
    let unprepared = inject(&mut caller, &good, &mut |_| Err(ProbeError::Agent { why: "test".to_string() }));
    assert!(unprepared.is_err());
    let _ = caller.release();
    assert_eq!(possessions(target.pid()), before);
    target.end();
}

fn symbol(image: &[u8], name: &str) -> u64 {
    use object::{Object, ObjectSymbol};
    let file = object::File::parse(image).expect("parses");
    file.dynamic_symbols().find(|s| s.name() == Ok(name)).expect("is there").address()
}

#[test]
fn programs_are_launched_at_their_entry() {
    if !may_trace() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("script");
    fs::write(&script, "#!/bin/sh\nexit 5\n").expect("writes");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("sets");
    let shell = |script: &str| vec!["sh".to_string(), "-c".to_string(), script.to_string()];
    let mut cases = vec![
        (vec!["true".to_string()], 0),
        (shell("exit 7"), 7),
        (shell("kill -9 $$"), 137),
        (shell("exec true"), 0),
        (shell("(exit 3); exit $?"), 3),
        (shell("kill -PIPE $$"), 128 + libc::SIGPIPE),
        (vec![script.to_string_lossy().into_owned()], 5),
    ];
    let source = "#include <stdlib.h>\nint main(void) { return getenv(\"PATH\") ? 4 : 1; }";
    for flag in ["-static", "-no-pie", "-pie", "-static-pie"] {
        let program = compile(dir.path(), &format!("program{flag}"), source, &[flag]);
        cases.extend(program.map(|p| (vec![p.to_string_lossy().into_owned()], 4)));
    }
    for (command, status) in cases {
        let launched = launch(&command).unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let (mut caller, mut child) = launched.into_caller().expect("stands");
        let pid = caller.syscall("getpid", libc::SYS_getpid, [0; 6]).expect("calls");
        assert_eq!(pid, u64::from(child.pid()));
        assert_eq!(child.status(), None);
        let stopped = caller.into_stopped().expect("stops");
        assert_eq!(stopped.places().len(), 1);
        let _ = stopped.release();
        assert_eq!(child.wait(), status, "{command:?}");
    }
    let missing = launch(&["/no/such/program".to_string()]).expect_err("must fail");
    assert!(missing.to_string().contains("cannot run '/no/such/program'"), "{missing}");
    let launched = launch(&["true".to_string()]).expect("launches");
    let pid = launched.pid();
    launched.abandon();
    assert!(!whither_kernel::proc::exists(pid));
}

/// Follows a command to its end; pids and programs that stood at their entry point.
fn follow(command: &[String], choose: &'static str) -> (Vec<String>, usize, i32) {
    let (caller, mut child) = launch(command).expect("launches").into_caller().expect("stands");
    let mut tree = Tree::new(move |exe| exe.ends_with(choose));
    tree.keep(caller).expect("runs");
    let (mut entries, mut forks) = (Vec::new(), 0);
    let deadline = Instant::now() + Duration::from_secs(20);
    let status = loop {
        for seen in tree.poll().expect("polls") {
            match seen {
                Seen::Entry { mut caller, exe } => {
                    let pid = caller.syscall("getpid", libc::SYS_getpid, [0; 6]).expect("calls");
                    assert_eq!(pid, u64::from(caller.pid()));
                    entries.push(exe);
                    // Every other one is let go, as if it had got an agent.
                    if entries.len() % 2 == 0 {
                        tree.keep(*caller).expect("runs");
                    } else {
                        let _ = caller.release();
                    }
                }
                Seen::Forked { .. } => forks += 1,
                Seen::Passed { exe, why, .. } => panic!("{exe}: {why}"),
                Seen::Ended { .. } => {}
            }
        }
        if let Some(status) = child.status() {
            break status;
        }
        assert!(Instant::now() < deadline, "{tree:?}");
        std::thread::sleep(Duration::from_micros(200));
    };
    (entries, forks, status)
}

#[test]
fn trees_are_followed() {
    if !may_trace() {
        return;
    }
    let shell = |script: &str| vec!["sh".to_string(), "-c".to_string(), script.to_string()];
    let (entries, forks, status) = follow(&shell("/bin/true; /bin/true & /bin/true | cat; wait; exit 9"), "/true");
    assert_eq!((entries.len(), forks, status), (3, 4, 9), "{entries:?}");
    let (entries, _, status) = follow(&shell("exec sh -c 'exec /bin/true'"), "/true");
    assert_eq!((entries.len(), status), (1, 0), "{entries:?}");
    let (entries, _, status) = follow(&shell("exec sh -c 'trap \"exit 6\" TERM; kill $$; exit 5'"), "/true");
    assert_eq!((entries.len(), status), (0, 6), "{entries:?}");
    let program = "import subprocess, threading\nt = [threading.Thread(target=lambda: subprocess.check_call(['/bin/true'])) for _ in range(20)]\n\
        [x.start() for x in t]; [x.join() for x in t]; subprocess.check_call(['/bin/sh', '-c', '(sleep 0.2; kill -CONT $$) & kill -STOP $$; wait; /bin/true; exit 0'])";
    if Command::new("python3").arg("-V").output().is_ok() {
        let began = Instant::now();
        let (entries, forks, status) = follow(&["python3".to_string(), "-c".to_string(), program.to_string()], "/true");
        println!("22 processes followed within {:?}", began.elapsed());
        assert!(forks >= 24, "{forks}");
        assert_eq!((entries.len(), status), (21, 0), "{entries:?}");
    } else {
        println!("SKIP: no python3");
    }
}

#[test]
fn a_controller_that_dies_in_a_call_harms_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(target) = start(dir.path(), BLOCKERS, &[]) else { return };
    let pid = target.pid();
    for _ in 0..20 {
        // When a thread ends, the kernel lets its tracees go, as when a whole tracer dies.
        let dying = std::thread::spawn(move || {
            let mut caller = Caller::pick(pid).expect("a thread");
            let at = caller.scratch(&[0; 16]).expect("maps");
            caller.begin_syscall(libc::SYS_nanosleep, [at, 0, 0, 0, 0, 0]).expect("begins");
            std::mem::forget(caller);
        });
        dying.join().expect("ends");
    }
    target.end();
}

#[test]
fn refusals_tell_why() {
    let dir = tempfile::tempdir().expect("a directory");
    if !may_trace() {
        return;
    }
    let why = |pid| Stopped::stop(pid).map(drop).expect_err("must refuse").to_string();
    assert!(why(0x3fff_fff0).contains("no such process"));
    assert!(why(std::process::id()).contains("this very process"));
    if let Some(target) = start(dir.path(), STRICT, &[]) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while whither_kernel::proc::status_word(target.pid(), "Seccomp:").as_deref() != Some("1") {
            assert!(Instant::now() < deadline);
        }
        assert!(why(target.pid()).contains("strict seccomp"));
    }
    if let Some(target) = start(dir.path(), SIGNALS, &["-m32"]) {
        assert!(why(target.pid()).contains("32-bit"));
    }
    let Some(target) = start(dir.path(), SIGNALS, &[]) else { return };
    let pid = target.pid();
    // Another thread of ours is another tracer to the kernel.
    let (said, told) = std::sync::mpsc::channel();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        let held = Stopped::stop(pid).expect("stops");
        said.send(()).expect("told");
        let _ = wait.recv();
        let _ = held.release();
    });
    told.recv().expect("told");
    let message = why(pid);
    done.send(()).expect("told");
    other.join().expect("ends");
    assert!(message.contains("traces it already"), "{message}");
    let _ = Stopped::stop(pid).expect("free again").release();
    target.end();
}

#[test]
fn a_seccomp_filter_does_not_kill_for_our_calls() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(target) = start(dir.path(), FILTERED, &[]) else { return };
    let deadline = Instant::now() + Duration::from_secs(5);
    while whither_kernel::proc::status_word(target.pid(), "Seccomp:").as_deref() != Some("2") {
        assert!(Instant::now() < deadline);
    }
    assert!(target::filtered(target.pid()));
    for _ in 0..20 {
        match Caller::pick(target.pid()) {
            Ok(mut caller) => {
                let pid = caller.syscall("getpid", libc::SYS_getpid, [0; 6]).expect("calls");
                assert_eq!(pid, u64::from(target.pid()));
            }
            Err(ProbeError::Seccomp { .. }) => {
                println!("SKIP: filters may not be suspended here");
                break;
            }
            Err(e) => panic!("{e}"),
        }
    }
    target.end();
}

#[test]
fn signals_arrive_and_stopped_programs_stay_stopped() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(mut target) = start(dir.path(), SIGNALS, &[]) else { return };
    let pid = target.pid();
    let send = |signal| {
        let process = Pid::from_raw(pid as i32).expect("a pid");
        kill_process(process, signal).expect("sends");
    };
    for sent in 1..=100 {
        if sent % 2 == 0 {
            let stopped = Stopped::stop(pid).expect("stops");
            send(Signal::USR1);
            let _ = stopped.release();
        } else {
            let mut caller = Caller::pick(pid).expect("a thread");
            send(Signal::USR1);
            caller.syscall("getpid", libc::SYS_getpid, [0; 6]).expect("calls");
            let _ = caller.release();
        }
        target.say("count");
        assert_eq!(target.line(), sent.to_string());
    }
    let wait_for = |wanted: char| {
        let deadline = Instant::now() + Duration::from_secs(5);
        let state = || {
            let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("reads");
            text.rsplit(") ").next().and_then(|s| s.chars().next())
        };
        while state() != Some(wanted) {
            assert!(Instant::now() < deadline, "state {:?}, not {wanted}", state());
            std::thread::yield_now();
        }
    };
    wait_for('S');
    send(Signal::STOP);
    wait_for('T');
    let _ = Stopped::stop(pid).expect("stops").release();
    wait_for('T');
    let mut caller = Caller::pick(pid).expect("a thread");
    assert_eq!(caller.syscall("getpid", libc::SYS_getpid, [0; 6]).expect("calls"), u64::from(pid));
    let _ = caller.release();
    wait_for('T');
    send(Signal::CONT);
    wait_for('S');
    target.end();
}

#[test]
fn a_busy_thread_keeps_its_state() {
    let dir = tempfile::tempdir().expect("a directory");
    if !may_trace() {
        return;
    }
    let Some(module) = compile(dir.path(), "module.so", MODULE, &["-shared", "-fPIC", "-nostdlib"]) else { return };
    let agent = fs::read(module).expect("reads");
    // With signals 3,000 times a second; then with a parent that sleeps in vfork.
    for words in [&[][..], &["vfork"][..]] {
        let Some(program) = compile(dir.path(), "busy", BUSY, &["-O3"]) else { return };
        let mut target = Running::start(&program, words);
        let pid = target.pid();
        let before = possessions(pid).files;
        for _ in 0..60 {
            let _ = Stopped::stop(pid).expect("stops").release();
            let mut caller = match Caller::pick(pid) {
                Ok(caller) => caller,
                Err(ProbeError::NoSafeThread { .. }) if !words.is_empty() => continue,
                Err(e) => panic!("{e}"),
            };
            let placed = inject(&mut caller, &load(&agent, false), &mut |_| Ok(())).expect("goes in");
            assert_eq!(remove(&mut caller, &placed, &[]), NO_FILES);
            let _ = caller.release();
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while !target::tend() {
            assert!(Instant::now() < deadline, "a thread is not let go");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(possessions(pid).files, before);
        std::thread::sleep(Duration::from_millis(200));
        kill_process(Pid::from_raw(pid as i32).expect("a pid"), Signal::TERM).expect("sends");
        assert_eq!(target.line(), "bad 0", "{words:?}");
    }
}

#[test]
fn a_loader_at_work_hinders_nobody() {
    let dir = tempfile::tempdir().expect("a directory");
    if !may_trace() {
        return;
    }
    let Some(module) = compile(dir.path(), "module.so", MODULE, &["-shared", "-fPIC", "-nostdlib"]) else { return };
    let Some(program) = compile(dir.path(), "loading", LOADING, &[]) else { return };
    let agent = fs::read(module).expect("reads");
    // Held again and again, so that it may be had in between; held for so long that it is not waited for.
    for (micros, rounds) in [(50_000, 5), (5_000_000, 1)] {
        let slow = format!(
            "#include <unistd.h>\n__attribute__((constructor)) static void begin(void) {{ usleep({micros}); }}"
        );
        let name = format!("slow{micros}.so");
        let Some(library) = compile(dir.path(), &name, &slow, &["-shared", "-fPIC"]) else { return };
        let target = Running::start(&program, &[&library.to_string_lossy()]);
        let deadline = Instant::now() + Duration::from_secs(5);
        while !maps::read(target.pid()).iter().any(|m| m.file_name() == name) {
            assert!(Instant::now() < deadline, "it does not load");
        }
        for _ in 0..rounds {
            let mut caller = Caller::pick(target.pid()).expect("a thread");
            let placed = inject(&mut caller, &load(&agent, false), &mut |_| Ok(())).expect("goes in");
            let by_hand = placed.way == Way::Mapped;
            println!("held for {micros} us: by hand {by_hand}");
            assert!(by_hand || rounds > 1, "it must not wait for so long");
            // What the loader has put in only the loader can take out, and that may not be had either.
            let left = remove(&mut caller, &placed, &[]);
            assert!(left.is_empty() || !by_hand, "{left:?}");
            let held = caller.release();
            // A second for each of the locks that loading and unloading take, one after the other: 1 to 3 s as a rule,
            // 10 s once in thirty. No call may take longer than 20.
            assert!(held < Duration::from_secs(20), "{held:?}");
        }
        target.end();
    }
}

#[test]
fn pauses_are_short() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(program) = compile(dir.path(), "blockers", BLOCKERS, &[]).filter(|_| may_trace()) else { return };
    for extra in [0, 7, 55, 247] {
        let mut target = Running::start(&program, &[&extra.to_string()]);
        let mut pauses: Vec<Duration> = Vec::new();
        let mut gaps: Vec<Duration> = Vec::new();
        for _ in 0..50 {
            target.longest();
            pauses.push(Stopped::stop(target.pid()).expect("stops").release().held);
            gaps.push(target.longest());
        }
        pauses.sort_unstable();
        gaps.sort_unstable();
        println!(
            "{} threads: pause {:?} median, {:?} longest; longest gap of a spinning thread {:?} median, {:?} longest",
            extra + 9,
            pauses[25],
            pauses[49],
            gaps[25],
            gaps[49]
        );
        // Other work on the machine may lengthen single ones: the median counts, with room.
        assert!(pauses[25] < Duration::from_millis(20), "{pauses:?}");
        target.end();
    }
}
