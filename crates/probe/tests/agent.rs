//! The agent inside real programs: C programs in `agent/test/` stand in for the controller, patch
//! themselves and check counts, paths and survival against known answers.

use std::path::{Path, PathBuf};
use std::process::Command;

use whither_probe::agent::IMAGE;

/// A built test program beside the agent.
struct Program {
    _dir: tempfile::TempDir,
    program: PathBuf,
    agent: PathBuf,
}

fn compile(compiler: &str, flags: &[&str], inputs: &[&Path], output: &Path) {
    let status = Command::new(compiler).args(flags).args(inputs).arg("-o").arg(output).status();
    assert!(status.expect("a compiler").success(), "{compiler} {flags:?} {inputs:?}");
}

fn build(source: &str, compiler: &str, extra: &[&str]) -> Program {
    let dir = tempfile::tempdir().expect("a directory");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../agent/test");
    let agent = dir.path().join("agent.so");
    std::fs::write(&agent, IMAGE).expect("the agent as a file");
    let harness = dir.path().join("harness.o");
    compile("cc", &["-O2", "-g", "-w", "-c"], &[&sources.join("harness.c")], &harness);
    // No tail calls but those written on purpose; no landing pads in front of the nops that are patched.
    let mut flags = vec!["-O2", "-g", "-w", "-fcf-protection=none", "-fno-optimize-sibling-calls"];
    flags.extend(extra);
    let object = dir.path().join("program.o");
    flags.push("-c");
    compile(compiler, &flags, &[&sources.join(source)], &object);
    let program = dir.path().join("program");
    compile(compiler, &["-rdynamic", "-Wl,--no-warnings", "-lm"], &[&object, &harness], &program);
    Program { _dir: dir, program, agent }
}

fn run(program: &Program, way: &str, arguments: &[&str]) {
    let output = Command::new("timeout")
        .arg("300")
        .arg(&program.program)
        .arg(&program.agent)
        .args(arguments)
        .env("WAY", way)
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !text.contains("FAILED"), "way {way}: {}\n{text}", output.status);
    assert!(text.contains("ok "), "nothing was checked: {text}");
}

#[test]
fn hard_cases_without_frame_pointers() {
    run(&build("nasty.c", "cc", &["-fomit-frame-pointer"]), "1", &[]);
}

#[test]
fn hard_cases_with_frame_pointers() {
    run(&build("nasty.c", "cc", &["-fno-omit-frame-pointer"]), "1", &[]);
}

#[test]
fn hard_cases_found_by_thread_pointer() {
    run(&build("nasty.c", "cc", &[]), "2", &[]);
}

#[test]
fn quick_entries_without_frame_pointers() {
    run(&build("quick.c", "cc", &["-fomit-frame-pointer"]), "1", &[]);
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn quick_entries_with_frame_pointers() {
    run(&build("quick.c", "cc", &["-fno-omit-frame-pointer"]), "1", &[]);
}

#[test]
fn quick_entries_found_by_thread_pointer() {
    run(&build("quick.c", "cc", &[]), "2", &[]);
}

#[test]
fn a_signal_between_any_two_instructions() {
    let program = build("steps.c", "cc", &["-fomit-frame-pointer"]);
    for case in ["quick", "handlers", "jumps", "unwinding"] {
        run(&program, "1", &[case]);
    }
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn a_signal_between_any_two_instructions_found_by_thread_pointer() {
    let program = build("steps.c", "cc", &["-fno-omit-frame-pointer"]);
    for case in ["handlers", "jumps"] {
        run(&program, "2", &[case]);
    }
}

#[test]
fn calls_after_a_jump_out_of_the_agent_are_counted() {
    let program = build("left.c", "cc", &["-fomit-frame-pointer", "-pthread"]);
    run(&program, "1", &[]);
    run(&program, "2", &[]);
}

#[test]
fn coroutines_are_told_apart_at_a_cost_that_does_not_grow() {
    let program = build("stacks.c", "cc", &["-fomit-frame-pointer"]);
    run(&program, "1", &[]);
    run(&program, "2", &[]);
}

#[test]
fn return_addresses_of_unknown_callers_stay() {
    for frames in ["-fomit-frame-pointer", "-fno-omit-frame-pointer"] {
        let program = build("foreign.c", "cc", &[frames]);
        run(&program, "1", &[]);
        run(&program, "2", &[]);
    }
}

#[test]
fn exceptions_pass_through_probed_frames() {
    let program = build("throw.cc", "g++", &[]);
    run(&program, "1", &[]);
    run(&program, "2", &[]);
}

/// Builds and runs a test that stands alone: it includes the part of the agent it is of.
fn alone(source: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../agent/test").join(source);
    let program = dir.path().join("program");
    compile("cc", &["-std=gnu11", "-O2", "-g", "-w"], &[&source], &program);
    run(&Program { agent: program.clone(), _dir: dir, program }, "1", &[]);
}

#[test]
fn counters_of_the_processor() {
    alone("counters.c");
}

#[test]
fn sums_stop_at_their_limits() {
    alone("sums.c");
}
