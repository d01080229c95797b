//! Run-time systems that look at return addresses, or move them: what `whither calls` probes in them goes on as
//! unprobed, and is counted. A system that is not installed is a test that cannot run, and says so.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use crate::calls_live::{Guarded, code, limited, number, plain, run};
use crate::support::{alone, interrupt, need_root, text};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

const PYTHON: &str = "/usr/bin/python3";

/// A script of `workloads/nasty`, if its system is here and runs it at all.
fn script(system: &str, name: &str) -> Option<String> {
    let script = format!("{}/../../workloads/nasty/{name}", env!("CARGO_MANIFEST_DIR"));
    let runs = limited(&[system.to_owned(), script.clone()]).output().is_ok_and(|output| output.status.success());
    if !runs {
        println!("SKIP: {system} does not run {name} here: it, or what it needs, is not installed");
    }
    runs.then_some(script)
}

/// Counted calls of functions that match, in a program that does what it does unprobed.
fn unharmed(patterns: &[&str], words: &[&str]) -> (u64, String) {
    let args: Vec<&str> = patterns.iter().flat_map(|p| ["-f", p]).collect();
    let run = run(&args, words);
    run.assert_unharmed(&plain(words), words);
    let functions = run.document["functions"].as_array().cloned().unwrap_or_default();
    (functions.iter().map(|row| number(&row["totals"]["calls"])).sum(), run.stderr)
}

#[test]
fn n53_errors_in_javascript() {
    need_root!();
    let _alone = alone();
    let node = "/usr/bin/node";
    let Some(script) = script(node, "errors.js") else { return };
    let (calls, told) = unharmed(&["v8::internal::Builtin_.*", "v8::internal::Runtime_.*"], &[node, &script]);
    assert!(calls > 1_000, "{calls}: {told}");
    assert!(
        told.contains("they came from code without unwind tables") && told.contains("generated at run time"),
        "{told}"
    );
}

#[test]
fn n54_exceptions_in_java() {
    need_root!();
    let _alone = alone();
    let java = "/usr/bin/java";
    let Some(script) = script(java, "Errors.java") else { return };
    let patterns = ["libjvm.so!ThreadSafepointState::.*", "SharedRuntime::.*", "OptoRuntime::.*"];
    let (calls, told) = unharmed(&patterns, &[java, &script]);
    assert!(calls > 0, "{told}");
}

#[test]
fn n55_stacks_copied_to_the_heap() {
    need_root!();
    let _alone = alone();
    let Some(script) = script(PYTHON, "greenlets.py") else { return };
    // These two share a return slot: the first ends by a jump to the second.
    let (calls, told) = unharmed(&["_PyFunction_Vectorcall", "_PyEval_EvalFrameDefault"], &[PYTHON, &script]);
    assert!(calls > 100, "{told}");
    assert!(told.contains("keeps copies of stacks"), "{told}");
}

/// Workers load it, and the server that has forked them has not.
#[test]
fn n55_stacks_copied_by_a_child() {
    need_root!();
    let _alone = alone();
    let Some(script) = script(PYTHON, "greenlets.py") else { return };
    let words = [PYTHON, &script, "child"];
    let (calls, told) = unharmed(&["_PyFunction_Vectorcall", "_PyEval_EvalFrameDefault"], &words);
    assert!(calls > 100, "{told}");
    assert!(told.contains("keeps copies of stacks"), "{told}");
}

/// Suspended while probed, and resumed when no probe is there any more.
#[test]
fn n55_stacks_put_back_after_leaving() {
    need_root!();
    let _alone = alone();
    let Some(script) = script(PYTHON, "greenlets.py") else { return };
    let mut target = Command::new(PYTHON);
    let mut target = target.args([&script, "wait"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(target.stdout.take().unwrap()).lines();
    let mut input = target.stdin.take().unwrap();
    let pid = target.id();
    let _target = Guarded(target);
    assert_eq!(told.next().unwrap().unwrap(), "ready");
    let mut session = Command::new(crate::calls_live::WHITHER);
    let session = session.args(["calls", "-p", &pid.to_string(), "--json", "-f", "PyObject_Vectorcall"]);
    let mut session = session.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(session.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("measuring")), "it ended before it had begun");
    input.write_all(b"\n").unwrap();
    assert_eq!(told.next().unwrap().unwrap(), "suspended");
    interrupt(session.id());
    said.for_each(drop);
    let output = session.wait_with_output().unwrap();
    assert_eq!(code(&output), 0);
    assert!(text(&output.stdout).contains("PyObject_Vectorcall"), "{}", text(&output.stdout));
    input.write_all(b"\n").unwrap();
    assert_eq!(told.next().unwrap().unwrap(), "total 160", "resumed where no probe is any more");
}
