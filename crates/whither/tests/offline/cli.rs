//! The words of the command line as golden texts: help, slips of usage, and sources that are missing
//! or broken. Each case is a file in `tests/cli/`; refresh them with `TRYCMD=overwrite` and read the
//! difference.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::process::{Command, Output, Stdio};

#[test]
fn golden_texts() {
    // No recording, no database and no home: what a run says must not depend on where it runs.
    trycmd::TestCases::new()
        .env("COLUMNS", "100")
        .env("NO_COLOR", "1")
        .env("HOME", "/nonexistent/home")
        .env("WHITHER_DB", "/nonexistent/db")
        .case("tests/cli/*.trycmd")
        .run();
}

fn whither(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_whither")).args(args).env("NO_COLOR", "1").output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_recording_whose_description_is_no_json_is_damaged_not_fatal() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run.wh");
    fs::create_dir(&run).unwrap();
    fs::write(run.join("epoch.json"), "{ \"version\": ").unwrap();
    let output = whither(&["prof", run.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("epoch.json"), "{}", said(&output));
    assert!(output.stdout.is_empty(), "nothing but answers goes to stdout");
}

#[test]
fn a_command_that_cannot_be_launched_leaves_the_last_recording_alone() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("whither.wh");
    fs::create_dir(&run).unwrap();
    fs::write(run.join("epoch.json"), "the last one").unwrap();
    let record = |program: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_whither"));
        command.args(["record", "-q", "--", program]).current_dir(&dir).output().unwrap()
    };
    for (program, why) in
        [("/nonexist", "No such file"), ("no-such-program", "No such file"), ("/etc/passwd", "denied"), ("/", "denied")]
    {
        let output = record(program);
        assert!(!output.status.success() && said(&output).contains(why), "{program}: {}", said(&output));
        assert_eq!(fs::read_to_string(run.join("epoch.json")).unwrap(), "the last one", "{program}");
    }
}

#[test]
fn a_recording_of_another_format_version_names_both() {
    let dir = tempfile::tempdir().unwrap();
    let database = dir.path().join("db");
    fs::create_dir(&database).unwrap();
    fs::write(database.join("db.toml"), "version = 999\n").unwrap();
    let output = whither(&["epochs", "list", "--db", database.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("version 999"), "{}", said(&output));
}

#[test]
fn a_perf_data_that_is_none_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    fs::write(&file, "PERFILE2 but then nothing").unwrap();
    let out = dir.path().join("out.wh");
    let output = whither(&["import", file.to_str().unwrap(), "-o", out.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("perf.data"), "{}", said(&output));
    assert!(!out.exists(), "an empty recording was left behind");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_whither"))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), said(&output)), (Some(0), String::new()));
}

#[test]
fn every_verb_has_a_man_page_and_every_shell_a_completion() {
    let dir = tempfile::tempdir().unwrap();
    assert!(whither(&["man", dir.path().to_str().unwrap()]).status.success());
    for page in ["whither.1", "whither-record.1", "whither-prof.1", "whither-daemon-run.1", "whither-epochs-merge.1"] {
        let text = fs::read_to_string(dir.path().join(page)).unwrap_or_else(|e| panic!("{page}: {e}"));
        assert!(text.contains(".SH SYNOPSIS"), "{page}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = whither(&["completions", shell]);
        assert!(output.status.success() && !output.stdout.is_empty(), "{shell}");
    }
}
