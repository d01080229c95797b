//! `whither calls` on processes that run already: attach and leave without a trace, add and remove
//! probes, die and be taken over, meet other tools. Truth of the numbers: calls_truth.rs.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::calls_live::{Guarded, WHITHER, limited, looks, number, stop, told, wait_until};
use crate::support::{alone, need_root, send, text, workload};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A target that runs until told to end; its input and output are ours.
struct Running {
    process: Guarded,
    truth: tempfile::NamedTempFile,
    output: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(words: &[&str]) -> Self {
        let truth = tempfile::NamedTempFile::new().unwrap();
        let mut child = Command::new(workload(words[0]))
            .args(&words[1..])
            .env("WHITHER_TRUTH", truth.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { process: Guarded(child), truth, output }
    }

    /// All threads run, everything is loaded.
    fn ready(words: &[&str]) -> Self {
        let mut running = Self::start(words);
        assert_eq!(running.line(), "ready", "{words:?}");
        running
    }

    fn pid(&self) -> u32 {
        self.process.0.id()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn say(&mut self, what: &str) {
        self.process.0.stdin.as_mut().unwrap().write_all(what.as_bytes()).unwrap();
    }

    fn alive(&mut self) -> bool {
        self.process.0.try_wait().unwrap().is_none()
    }

    /// Lets it end; its last lines and its success.
    fn finish(mut self) -> (String, bool, tempfile::NamedTempFile) {
        drop(self.process.0.stdin.take());
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.output, &mut rest).unwrap();
        let ok = self.process.0.wait().unwrap().success();
        (rest, ok, self.truth)
    }
}

fn calls(args: &[&str]) -> Output {
    let command: Vec<String> = [WHITHER, "calls"].iter().chain(args).map(|a| (*a).to_owned()).collect();
    limited(&command).output().unwrap()
}

/// Attaches for a while; the document.
fn attach(pid: u32, args: &[&str]) -> Value {
    let pid = pid.to_string();
    let output = calls(&[&["-p", &pid, "--json"], args].concat());
    assert_eq!(output.status.code(), Some(0), "attach {args:?}:\n{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}:\n{}{}", text(&output.stdout), text(&output.stderr)))
}

fn counted(document: &Value, name: &str) -> u64 {
    let rows = document["functions"].as_array().unwrap();
    let named = |row: &&Value| row["names"].as_array().unwrap().iter().any(|n| n == name);
    rows.iter().filter(named).map(|row| number(&row["totals"]["calls"])).sum()
}

/// A session in the background; returns once its probes count.
fn session(pid: u32, args: &[&str]) -> Guarded {
    let pid = pid.to_string();
    let child = Command::new(WHITHER)
        .args(["calls", "-p", &pid, "--json"])
        .args(args)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut session = Guarded(child);
    wait_until("the session's first counts", || {
        assert!(session.0.try_wait().unwrap().is_none(), "the session on {pid} has ended");
        let shown = calls(&["show", "-p", &pid, "--json"]);
        let document: Value = serde_json::from_slice(&shown.stdout).unwrap_or_default();
        document["whole"]["calls"].as_u64().is_some_and(|n| n > 0)
    });
    session
}

#[test]
fn attaching_counts_and_leaves_no_trace() {
    need_root!();
    let _alone = alone();
    let mut target = Running::ready(&["calls-toggle", "60"]);
    let before = looks(target.pid());
    let document = attach(target.pid(), &["-f", "toggled", "-f", "steady", "-d", "1s"]);
    let (toggled, steady) = (counted(&document, "toggled"), counted(&document, "steady"));
    assert!(steady > 1000, "{steady} calls in a second");
    // steady is every fourth turn and calls toggled itself: 5 to 1, read while the threads run on.
    let apart = toggled.abs_diff(steady * 5);
    assert!(apart * 100 <= toggled, "{toggled} calls of toggled, {steady} of steady");
    before.assert_same(target.pid(), "after detaching");
    assert!(target.alive());
    let (rest, ok, _) = target.finish();
    assert!(ok && rest.starts_with("wrong 0\n"), "{rest}");
}

#[test]
fn bar_22_many_visits() {
    need_root!();
    let _alone = alone();
    let mut target = Running::ready(&["calls-toggle", "120"]);
    let before = looks(target.pid());
    for visit in 0..10 {
        let document = attach(target.pid(), &["-f", "toggled", "-d", "20ms"]);
        assert!(counted(&document, "toggled") > 0, "visit {visit}");
    }
    before.assert_same(target.pid(), "after 10 visits");
    assert!(target.alive());
    let (rest, ok, _) = target.finish();
    assert!(ok && rest.starts_with("wrong 0\n"), "{rest}");
}

#[test]
fn bar_23_killed_at_any_moment_and_taken_over() {
    need_root!();
    let _alone = alone();
    let mut target = Running::ready(&["calls-toggle", "120"]);
    let (pid, before) = (target.pid(), looks(target.pid()));
    for moment in 0..12u64 {
        let mut child = Command::new(WHITHER)
            .args(["calls", "-p", &pid.to_string(), "-f", "toggled", "-f", "steady"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Moments spread over attaching, patching and measuring.
        std::thread::sleep(Duration::from_millis(moment * moment * 4));
        send("KILL", child.id());
        child.wait().unwrap();
        assert!(target.alive(), "the target died with its controller, killed after {} ms", moment * moment * 4);
    }
    let document = attach(pid, &["-f", "steady", "-d", "300ms"]);
    assert!(counted(&document, "steady") > 1000, "after taking over: {}", document["functions"]);
    before.assert_same(pid, "after the last one left");
    let (rest, ok, _) = target.finish();
    assert!(ok && rest.starts_with("wrong 0\n"), "{rest}");
}

#[test]
fn bar_17_add_and_remove_while_eight_threads_call() {
    need_root!();
    let _alone = alone();
    let mut target = Running::ready(&["calls-toggle", "120"]);
    let pid = target.pid().to_string();
    let session = session(target.pid(), &["-f", "steady"]);
    for turn in 0..25 {
        for verb in ["add", "remove"] {
            let output = calls(&[verb, "-p", &pid, "toggled"]);
            assert!(output.status.success(), "{verb} {turn}: {}", text(&output.stderr));
        }
        assert!(target.alive());
    }
    stop(session);
    let (rest, ok, _) = target.finish();
    assert!(ok && rest.starts_with("wrong 0\n"), "{rest}");
}

#[test]
fn n37_n47_entered_before_and_left_after() {
    need_root!();
    let _alone = alone();
    for mode in ["read", "load"] {
        // Entered before patching, left while patched.
        let mut target = Running::ready(&["nasty-inside", mode]);
        let first = session_quiet(target.pid());
        target.say("go\n");
        let (rest, ok, truth) = target.finish();
        assert!(ok, "{mode}: {rest}");
        let document = first.end();
        let holders = told(truth.path())["holder"].calls;
        let inside = if mode == "read" { 3 } else { 1 };
        assert_eq!(counted(&document, "holder"), holders - inside, "{mode}: calls entered after attaching");
        // The other way round: attached and left while they sit inside; then they return.
        let mut target = Running::ready(&["nasty-inside", mode]);
        let before = looks(target.pid());
        attach(target.pid(), &["-f", "holder", "-f", "sleeper", "-f", "later", "-d", "200ms"]);
        before.assert_same(target.pid(), mode);
        target.say("go\n");
        let (again, ok, _) = target.finish();
        assert!(ok && again == rest, "{mode}: {again}, not {rest}");
    }
}

/// Entered while patched, left after detaching: blocked in read() below two probed calls.
#[test]
fn n37_entered_while_probed_and_left_after_detaching() {
    need_root!();
    let _alone = alone();
    let truth = tempfile::NamedTempFile::new().unwrap();
    let mut child = Command::new(WHITHER)
        .args(["calls", "--json", "-f", "holder|sleeper|later", "--"])
        .arg(workload("nasty-inside"))
        .arg("read")
        .env("WHITHER_TRUTH", truth.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let target: u32 = children.split_whitespace().next().expect("the target is a child of whither").parse().unwrap();
    // Detaches and prints; the target goes on by itself.
    send("TERM", child.id());
    let mut rest = String::new();
    wait_until("detaching", || {
        !std::fs::read_to_string(format!("/proc/{target}/maps")).is_ok_and(|m| m.contains("whither"))
    });
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    std::io::Read::read_to_string(&mut output, &mut rest).unwrap();
    child.wait().unwrap();
    wait_until("the target's truth", || told(truth.path()).contains_key("later"));
    let plain = {
        let mut target = Running::ready(&["nasty-inside", "read"]);
        target.say("go\n");
        target.finish().0
    };
    assert!(rest.contains(plain.trim_end()), "{rest}\nhas not {plain}");
}

/// A session whose document is kept.
struct Quiet(Guarded);

fn session_quiet(pid: u32) -> Quiet {
    let child = Command::new(WHITHER)
        .args(["calls", "-p", &pid.to_string(), "--json", "-f", "holder", "-f", "sleeper", "-f", "later"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let session = Quiet(Guarded(child));
    wait_until("probes in place", || {
        let listed = calls(&["list", "-p", &pid.to_string()]);
        listed.status.success() && text(&listed.stdout).contains("sleeper")
    });
    session
}

impl Quiet {
    /// Its target has ended: so has it.
    fn end(mut self) -> Value {
        let mut all = String::new();
        std::io::Read::read_to_string(&mut self.0.0.stdout.take().unwrap(), &mut all).unwrap();
        serde_json::from_str(&all).unwrap_or_else(|e| panic!("{e}: {all}"))
    }
}

#[test]
fn n29_a_traced_process_is_refused() {
    need_root!();
    let _alone = alone();
    let mut target = Running::start(&["nasty-traced"]);
    let child = target.line();
    let output = calls(&["-p", &child, "-f", "followed", "-d", "100ms"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("trace"), "{}", text(&output.stderr));
    target.say("\n");
    target.process.0.wait_with_code(9);
}

trait WaitWithCode {
    fn wait_with_code(&mut self, code: i32);
}

impl WaitWithCode for std::process::Child {
    fn wait_with_code(&mut self, code: i32) {
        assert_eq!(self.wait().unwrap().code(), Some(code));
    }
}

#[test]
fn n38_gdb_attaches_after_us_and_finds_main() {
    need_root!();
    let _alone = alone();
    if Command::new("gdb").arg("--version").output().is_err() {
        println!("SKIP: gdb is not installed");
        return;
    }
    let mut target = Running::ready(&["nasty-inside", "read"]);
    let session = session_quiet(target.pid());
    let gdb =
        limited(&["gdb", "-p", &target.pid().to_string(), "-batch", "-ex", "thread apply all bt"].map(str::to_owned));
    let mut gdb = gdb;
    let bt = text(&gdb.output().unwrap().stdout);
    for name in ["main", "holder", "sleeper"] {
        assert!(bt.contains(name), "no {name} in\n{bt}");
    }
    target.say("go\n");
    assert!(target.finish().1);
    session.end();
}

/// Calls in progress that were entered while probed: the agent's frames are between them, with unwind rules.
#[test]
fn n38_gdb_sees_through_probed_calls() {
    need_root!();
    let _alone = alone();
    if Command::new("gdb").arg("--version").output().is_err() {
        println!("SKIP: gdb is not installed");
        return;
    }
    let child = Command::new(WHITHER)
        .args(["calls", "--json", "-f", "holder|sleeper|later", "--"])
        .arg(workload("nasty-inside"))
        .arg("read")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut child = Guarded(child);
    let mut output = BufReader::new(child.0.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.0.id())).unwrap();
    let target = children.split_whitespace().next().expect("the target is a child of whither").to_owned();
    let mut gdb = limited(&["gdb", "-p", &target, "-batch", "-ex", "thread apply all bt"].map(str::to_owned));
    let bt = text(&gdb.output().unwrap().stdout);
    let threads = bt.split("\nThread ").filter(|thread| thread.contains("sleeper"));
    let in_order = |thread: &str| {
        let mut rest = thread;
        ["sleeper", "wh_exits", "holder", "wh_exits", "body", "clone"].iter().all(|name| {
            let Some(at) = rest.find(name) else { return false };
            rest = &rest[at + name.len()..];
            true
        })
    };
    let found = threads.map(in_order).collect::<Vec<_>>();
    assert_eq!(found, [true; 3], "{bt}");
    child.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut output, &mut rest).unwrap();
    assert!(child.0.wait().unwrap().success(), "{rest}");
}

#[test]
fn n40_a_second_controller_harms_nobody() {
    need_root!();
    let _alone = alone();
    let mut target = Running::ready(&["calls-toggle", "120"]);
    let before = looks(target.pid());
    let first = session(target.pid(), &["-f", "steady"]);
    let second = calls(&["-p", &target.pid().to_string(), "-f", "toggled", "-d", "200ms", "--json"]);
    // A client of the first, or refused with a reason.
    let code = second.status.code();
    assert!(code == Some(0) || (code == Some(3) && !second.stderr.is_empty()), "{code:?}: {}", text(&second.stderr));
    assert!(target.alive());
    stop(first);
    before.assert_same(target.pid(), "at the end");
    assert!(target.finish().0.starts_with("wrong 0\n"));
}

#[test]
fn n50_another_tools_uprobe_is_left_alone() {
    need_root!();
    let _alone = alone();
    let mut target = Running::ready(&["calls-toggle", "120"]);
    let program = format!("uprobe:{}:steady {{ @n = count(); }}", workload("calls-toggle").display());
    let Ok(child) =
        Command::new("bpftrace").args(["-e", &program]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    else {
        println!("SKIP: bpftrace is not installed");
        return;
    };
    let mut other = Guarded(child);
    let mut first = String::new();
    BufReader::new(other.0.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("Attaching"), "{first}");
    std::thread::sleep(Duration::from_millis(500));
    let before = looks(target.pid());
    let document = attach(target.pid(), &["-f", "toggled", "-f", "steady", "-d", "300ms"]);
    assert!(counted(&document, "toggled") > 0);
    before.assert_same(target.pid(), "the other tool's bytes are still there");
    drop(other);
    assert!(target.alive());
    assert!(target.finish().0.starts_with("wrong 0\n"));
}

#[test]
fn reading_does_not_pause_and_reset_counts_anew() {
    need_root!();
    let _alone = alone();
    let target = Running::ready(&["calls-toggle", "120"]);
    let pid = target.pid().to_string();
    let session = session(target.pid(), &["-f", "steady", "-f", "toggled"]);
    let shown = || {
        let output = calls(&["show", "-p", &pid, "--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let (a, b) = (counted(&shown(), "steady"), counted(&shown(), "steady"));
    assert!(b >= a && a > 0, "{a} then {b}");
    std::thread::sleep(Duration::from_millis(500));
    let c = counted(&shown(), "steady");
    assert!(calls(&["reset", "-p", &pid]).status.success());
    let d = counted(&shown(), "steady");
    assert!(d < c, "{d} after a reset, {c} before");
    stop(session);
    assert!(target.finish().0.starts_with("wrong 0\n"));
}

#[test]
fn dry_run_changes_nothing() {
    need_root!();
    let _alone = alone();
    let target = Running::ready(&["calls-toggle", "60"]);
    let before = looks(target.pid());
    let output = calls(&["--dry-run", "-p", &target.pid().to_string(), "-f", "toggled|steady"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let listed = text(&output.stdout);
    assert!(listed.contains("toggled") && listed.contains("steady"), "{listed}");
    before.assert_same(target.pid(), "at the end");
    assert!(target.finish().1);
}

/// Bar 28: from the outermost function to the culprit by `drill` alone, each time.
#[test]
fn bar_28_drill_finds_the_culprit() {
    need_root!();
    let _alone = alone();
    let cases = [
        (&["calls-lookup", "hash", "60000"][..], "insert_instrumentation", "find_func_by_addr"),
        (&["calls-halo", "original", "4000"], "ks_congrad", "MPI_Wait"),
    ];
    for (words, from, culprit) in cases {
        for turn in 0..2 {
            let target = Running::start(words);
            std::thread::sleep(Duration::from_millis(100));
            let pid = target.pid().to_string();
            let listening = Guarded(
                Command::new(WHITHER)
                    .args(["calls", "-p", &pid, "-f", from, "--json"])
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap(),
            );
            wait_until("the session", || calls(&["list", "-p", &pid]).status.success());
            // By number and by name in turn.
            let probe = if turn % 2 == 0 { "#1" } else { from };
            let drilled = calls(&["drill", "-p", &pid, probe, "-i", "300ms"]);
            let said = text(&drilled.stdout) + &text(&drilled.stderr);
            assert!(drilled.status.success(), "{words:?}: {said}");
            // The way down, from the first one to where it stopped.
            let way = said.lines().find(|l| l.starts_with(from)).unwrap_or_default();
            // It may go on below, into what the culprit does.
            let steps: Vec<&str> = way.split(':').next().unwrap_or_default().split(" > ").collect();
            let found = steps.iter().position(|step| step.starts_with(culprit));
            assert!(found.is_some_and(|at| at <= 6), "{words:?}, turn {turn}: {steps:?}\n{said}");
            stop(listening);
        }
    }
}

/// A program narrowed down by verbs, then replayed against the fixed one of another name: the same probes in the same
/// epochs, and of what is not there a sentence.
#[test]
fn a_narrowed_session_is_replayed_after_a_fix() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let [before, after] = ["before.wh", "after.wh"].map(|name| directory.path().join(name).display().to_string());
    let target = Running::start(&["calls-lookup", "hash", "60000"]);
    let pid = target.pid().to_string();
    std::thread::sleep(Duration::from_millis(100));
    let first = session(target.pid(), &["-f", "insert_instrumentation", "-m", "count,wall", "-o", &before]);
    for words in [
        &["expand", "insert_instrumentation"][..],
        &["reset", "--label", "wide"],
        &["disable", "#1"],
        &["remove", "write_patches"],
        &["add", "nowhere|resolve_calls"],
        &["drill", "catch_up", "-i", "200ms"],
        &["expand", "--callers", "find_func_by_addr"],
        &["reset", "--label", "deep"],
        &["enable", "insert_.*"],
    ] {
        let output = calls(&[&words[..1], &["-p", &pid], &words[1..]].concat());
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    }
    stop(first);
    drop(target);

    let documents = |path: &str| -> Vec<Value> {
        let output = calls(&["report", path, "--json"]);
        text(&output.stdout).lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    };
    let steps = |documents: &[Value]| -> Vec<(u64, Value)> {
        let all = documents.iter().flat_map(|d| d["steps"].as_array().cloned().unwrap_or_default());
        all.map(|mut step| (number(&step.as_object_mut().unwrap().remove("after_ns").unwrap()), step)).collect()
    };
    let first = documents(&before);
    let taken = steps(&first);
    let until = format!("{}ms", taken.last().unwrap().0 / 1_000_000 + 1000);

    let fixed = directory.path().join("lookup-fixed");
    std::fs::copy(workload("calls-lookup"), &fixed).unwrap();
    let fixed = fixed.display().to_string();
    let output = calls(&["--replay", &before, "-o", &after, "-d", &until, "--", &fixed, "tree", "60000"]);
    let said = text(&output.stderr);
    assert!(output.status.success() && !said.contains("not reached"), "{said}");
    let second = documents(&after);
    // Which functions were probed, and how each stood at the end of each epoch.
    let probes = |documents: &[Value]| -> Vec<(String, Vec<(String, String)>)> {
        let stands = |f: &Value| (f["names"][0].as_str().unwrap().to_owned(), f["state"].as_str().unwrap().to_owned());
        let sorted = |d: &Value| {
            let mut all: Vec<_> = d["functions"].as_array().unwrap().iter().map(stands).collect();
            all.sort();
            all
        };
        documents.iter().map(|d| (d["epoch"].as_str().unwrap().to_owned(), sorted(d))).collect()
    };
    assert_eq!(probes(&first).iter().map(|(epoch, _)| epoch.as_str()).collect::<Vec<_>>(), ["wide", "deep", "3"]);
    assert!(probes(&first)[1].1.len() > 4, "{:?}", probes(&first));
    assert_eq!(probes(&first), probes(&second), "{said}");
    let again = steps(&second);
    assert_eq!(taken.iter().map(|s| &s.1).collect::<Vec<_>>(), again.iter().map(|s| &s.1).collect::<Vec<_>>());
    // A step waits for the one before, which stops all threads; on a busy machine for a moment longer.
    let late: Vec<u64> = taken.iter().zip(&again).map(|(a, b)| b.0.saturating_sub(a.0) / 1_000_000).collect();
    assert!(taken.iter().zip(&again).all(|(a, b)| b.0 >= a.0) && late.iter().all(|ms| *ms < 500), "{late:?} ms late");
    println!("{late:?} ms late");

    // Another program has none of it: every step is told, none ends the session.
    let mut other = Running::ready(&["calls-toggle", "60"]);
    let other_pid = other.pid().to_string();
    let output = calls(&["-p", &other_pid, "--replay", &before, "-f", "steady", "-d", &until]);
    let said = text(&output.stderr);
    assert!(output.status.success() && text(&output.stdout).contains("steady"), "{said}");
    assert!(said.contains("expand insert_instrumentation: the program has no insert_instrumentation"), "{said}");
    assert_eq!(said.matches("whither: step ").count(), taken.len(), "{said}");
    assert!(other.alive());
}

/// Who is called through pointers is found by a look at stacks: where it runs, waits, or was jumped to.
#[test]
fn callees_behind_pointers_are_found() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (directory.path().join("pointers.c"), directory.path().join("pointers"));
    std::fs::write(&source, POINTERS).unwrap();
    let built = Command::new("gcc").args(["-O2", "-pthread", "-o"]).args([&program, &source]).output();
    if !built.is_ok_and(|b| b.status.success()) {
        println!("SKIP: no C compiler");
        return;
    }
    let start = || Guarded(Command::new(&program).stdout(Stdio::null()).spawn().unwrap());
    let verb = |pid: u32, words: &[&str]| {
        let output = calls(&[&[words[0], "-p", &pid.to_string()], &words[1..]].concat());
        (text(&output.stdout) + &text(&output.stderr), output.status.success())
    };
    // Both that it calls are found, and the drill arrives at the slow one.
    let target = start();
    let pid = target.0.id();
    let running = session(pid, &["-f", "request|forward|napping|lonely"]);
    let (said, _) = verb(pid, &["expand", "request"]);
    assert!(said.contains("slow_op") && said.contains("fast_op") && said.contains("direct"), "{said}");
    assert!(said.contains("1 indirect call in request: seen called through it"), "{said}");
    let (said, _) = verb(pid, &["expand", "forward"]);
    assert!(said.contains("1 indirect tail jump in forward: seen where it leads, in 1 s or before: behind"), "{said}");
    let (said, _) = verb(pid, &["expand", "napping"]);
    assert!(said.contains("1 indirect call in napping: seen called through it, in 1 s or before: nap"), "{said}");
    let (said, _) = verb(pid, &["expand", "lonely"]);
    assert!(said.contains("1 indirect call in lonely: nobody was seen called through it in 1 s"), "{said}");
    stop(running);
    let running = session(pid, &["-f", "request"]);
    let (said, ended) = verb(pid, &["drill", "request", "-i", "300ms"]);
    assert!(ended && said.lines().any(|l| l.starts_with("request") && l.contains("> slow_op")), "{said}");
    stop(running);
    drop(target);
}

const POINTERS: &str = r#"
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>
#define NI __attribute__((noinline, noclone))
static __thread volatile uint64_t sink;
static inline void work(int n) { for (int i = 0; i < n; i++) sink = sink * 31 + i; }
NI void slow_op(int n) { work(n); sink++; }
NI void fast_op(int n) { work(n / 20); sink++; }
NI void direct(int n) { work(n / 10); sink++; }
NI void behind(int n) { work(n); sink++; }
NI void nap(int n) { usleep(20000); sink += n; }
static void (*volatile op[2])(int) = {slow_op, fast_op};
void (*jump)(int);
static void (*volatile sleeper)(int) = nap;
NI void request(int k) { direct(40000); op[k & 1](40000); sink++; }
NI void forward(int k) { sink += k; jump(40000); }
NI void napping(int k) { sleeper(k); sink++; }
NI void lonely(int k) { if (k < 0) sleeper(k); sink++; }
static void *sleeps(void *arg) { for (int k = 0;; k++) { napping(k); lonely(k); } return arg; }
int main(void) {
    pthread_t thread;
    alarm(120);
    jump = behind;
    pthread_create(&thread, 0, sleeps, 0);
    for (int k = 0;; k++) { request(k); forward(k); }
}
"#;

#[test]
fn exceptions_pass_through_probed_functions_of_a_static_program() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (directory.path().join("throws.cpp"), directory.path().join("throws"));
    let text_of = "extern \"C\" __attribute__((noinline)) void thrower(int n) { if (n & 1) throw n; }\n\
                   extern \"C\" __attribute__((noinline)) int middle(int n) { thrower(n); return n; }\n\
                   int main() { int sum = 0; for (int i = 0; i < 100; i++) try { sum += middle(i); } catch (int n) { sum += n; }\n\
                   return sum == 4950 ? 42 : 1; }\n";
    std::fs::write(&source, text_of).unwrap();
    let built = Command::new("g++").args(["-O2", "-static", "-o"]).args([&program, &source]).output();
    if !built.is_ok_and(|b| b.status.success()) {
        println!("SKIP: no C++ compiler for static programs");
        return;
    }
    let run = Command::new(WHITHER)
        .args(["calls", "-f", "middle", "-f", "thrower", "--json", "--"])
        .arg(&program)
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(42), "{}", text(&run.stderr));
    let answer: Value = serde_json::from_slice(&run.stdout).unwrap();
    let calls: Vec<u64> =
        answer["functions"].as_array().unwrap().iter().map(|f| f["totals"]["calls"].as_u64().unwrap()).collect();
    assert_eq!(calls, [100, 100], "{answer}");
    // Its unwinder finds the agent's rules, so exits can be seen.
    for function in answer["functions"].as_array().unwrap() {
        assert_eq!(function["totals"]["done"], 50, "{function}");
    }
}

/// A library that comes and goes is one to the user: one row for a function, whatever addresses it had.
#[test]
fn a_library_loaded_again_is_the_same_library() {
    need_root!();
    let _alone = alone();
    let run = crate::calls_live::run(&["-f", "plugin_work", "-m", "count,wall"], &["nasty-reload"]);
    let rows: Vec<(String, u64, &str)> = run
        .functions("plugin_work")
        .iter()
        .map(|f| {
            let module = f["module"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
            (module, number(&f["totals"]["calls"]), f["state"].as_str().unwrap())
        })
        .collect();
    let mut files: Vec<&str> = rows.iter().map(|r| r.0.as_str()).collect();
    files.sort_unstable();
    assert_eq!(files, ["nasty-plugin-a.so", "nasty-plugin-b.so"], "{rows:?}");
    assert!(rows.iter().all(|r| r.1 == 1000), "{rows:?}\n{}", run.stderr);
    run.assert_sums();
}
