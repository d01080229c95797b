//! Bad input and missing rights: one clear sentence with the remedy, and the promised exit code.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use crate::support::{Listing, alone, answer, need_root, text, whither, workload};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn run(args: &[&str]) -> (Option<i32>, String) {
    let output = whither().args(args).output().unwrap();
    (output.status.code(), text(&output.stderr))
}

#[test]
fn a_pid_that_does_not_exist() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.wh");
    // Above the largest pid the kernel hands out.
    let (code, said) = run(&["record", "-p", "4194305", "-d", "1s", "-o", path.to_str().unwrap()]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("4194305"), "{said}");
    assert!(!path.exists(), "an empty recording was left behind");
}

#[test]
fn an_event_with_a_slip_gets_a_suggestion() {
    let (code, said) = run(&["record", "-e", "cylces", "-d", "1s", "-o", "/nonexistent/x.wh"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("cylces") && said.contains("cycles"), "{said}");
}

#[test]
fn a_recording_that_is_not_there() {
    for verb in [&["prof"][..], &["annotate", "main"], &["export", "folded"]] {
        let (code, said) = run(&[verb, &["/nonexistent/run.wh"]].concat());
        assert!(matches!(code, Some(2 | 3)), "{verb:?}: {code:?} {said}");
        assert!(said.contains("/nonexistent/run.wh"), "{verb:?}: {said}");
    }
}

#[test]
fn a_place_that_cannot_be_written_is_named_before_sampling() {
    need_root!();
    let (code, said) = run(&["record", "-a", "-d", "30s", "-o", "/proc/x.wh"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("/proc/x.wh"), "{said}");
    let (code, said) = run(&["record", "-a", "-d", "30s", "-o", "/nonexistent/directory/x.wh"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("/nonexistent/directory: No such file") && !std::path::Path::new("/nonexistent").exists(),
        "{said}"
    );
}

#[test]
fn an_existing_recording_is_not_overwritten_unasked() {
    need_root!();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.wh");
    let path = path.to_str().unwrap();
    assert_eq!(run(&["record", "-o", path, "--", "true"]).0, Some(0));
    let (code, said) = run(&["record", "-o", path, "--", "true"]);
    assert!(matches!(code, Some(2 | 3 | 125)), "{code:?} {said}");
    assert!(said.contains(path) && said.contains("exists already"), "{said}");
    assert_eq!(run(&["record", "-o", path, "--overwrite", "--", "true"]).0, Some(0));
}

#[test]
fn doctor_tells_what_is_possible() {
    let report = answer(whither().args(["doctor", "--json"]));
    assert!(report.as_object().is_some_and(|o| !o.is_empty()), "{report}");
}

#[test]
fn doctor_lists_the_events_that_the_kernel_opens() {
    let report = answer(whither().args(["doctor", "--events", "--json"]));
    let opens = |name: &str| {
        let event = report["events"].as_array().unwrap().iter().find(|e| e["name"] == name);
        event.and_then(|e| e["opens"].as_bool())
    };
    assert_eq!((opens("cpu-clock"), opens("no-such-event")), (Some(true), None), "{report}");
    let said = text(&whither().args(["doctor", "--events"]).output().unwrap().stdout);
    assert!(said.starts_with("hardware:") || said.starts_with("software:"), "{said}");
}

/// whither as user `nobody`, in a directory of theirs.
fn as_nobody(directory: &std::path::Path, args: &[&str]) -> Output {
    Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"])
        .arg(directory.join("whither"))
        .args(args)
        .current_dir(directory)
        .env("HOME", directory)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .expect("setpriv runs")
}

fn directory_of_nobody() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_whither"), directory.path().join("whither")).unwrap();
    std::fs::copy(workload("shares"), directory.path().join("shares")).unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    directory
}

fn paranoia() -> i32 {
    std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap().trim().parse().unwrap()
}

#[test]
fn without_rights_ones_own_program_is_sampled_by_the_ring() {
    need_root!();
    let _alone = alone();
    let directory = directory_of_nobody();
    let done = as_nobody(directory.path(), &["record", "--rate", "4999", "-o", "mine.wh", "--", "./shares", "2"]);
    let said = text(&done.stderr);
    if paranoia() > 2 {
        assert_eq!(done.status.code(), Some(3), "{said}");
        assert!(said.contains("perf_event_paranoid"), "{said}");
        return;
    }
    assert!(done.status.success(), "{}: {said}", done.status);
    let listing =
        Listing(answer(whither().arg("prof").arg(directory.path().join("mine.wh")).args(["--all", "--json"])));
    let shares = listing.shares_among(&["alpha", "beta", "gamma_", "delta"]);
    assert!((shares[0] - 50.0).abs() <= 2.5 && (shares[1] - 30.0).abs() <= 2.5, "{shares:?}");
    let notes = listing.0["provenance"]["notes"].to_string();
    assert!(notes.contains("perf rings") && notes.contains("doctor"), "says what is missing: {notes}");
}

#[test]
fn without_rights_the_whole_system_is_refused_with_the_remedy() {
    need_root!();
    if paranoia() <= 0 {
        println!("SKIP: perf_event_paranoid is {}, everybody may sample the system", paranoia());
        return;
    }
    let directory = directory_of_nobody();
    let done = as_nobody(directory.path(), &["record", "-a", "-d", "1s", "-o", "all.wh"]);
    let said = text(&done.stderr);
    assert_eq!(done.status.code(), Some(3), "{said}");
    assert!(said.contains("CAP_PERFMON") || said.contains("perf_event_paranoid") || said.contains("root"), "{said}");
    assert!(!directory.path().join("all.wh").exists(), "an empty recording was left behind");
    let done = as_nobody(directory.path(), &["record", "-p", "1", "-d", "1s", "-o", "init.wh"]);
    assert_eq!(done.status.code(), Some(3), "{}", text(&done.stderr));
}

#[test]
fn a_process_is_named_by_its_number() {
    for words in [&["calls", "-p", "abc", "-f", "main"][..], &["calls", "show", "-p", "-"], &["record", "-p", "1,x"]] {
        let (code, said) = run(words);
        assert_eq!(code, Some(2), "{words:?}: {said}");
        assert!(said.contains("named by its number"), "{words:?}: {said}");
    }
}

/// Compiles C; false where there is no compiler for it.
fn compile(to: &Path, source: &str, flags: &[&str]) -> bool {
    let from = to.with_extension("c");
    std::fs::write(&from, source).unwrap();
    let done = Command::new("gcc").args(["-O2", "-w", "-o"]).arg(to).arg(&from).args(flags).output();
    let made = done.is_ok_and(|d| d.status.success());
    if !made {
        println!("SKIP: gcc {flags:?}");
    }
    made
}

/// A process that is ended with the test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_32_bit_program_is_refused_plainly() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    if !compile(&program, "int main(void) { return sleep(30); }", &["-m32"]) {
        return;
    }
    let path = program.to_str().unwrap();
    let running = Ended(Command::new(&program).spawn().unwrap());
    let pid = running.0.id().to_string();
    for words in [&["calls", "-f", "main", "--", path][..], &["calls", "-p", &pid, "-f", "main", "-d", "1s"]] {
        let (code, said) = run(words);
        assert_eq!(code, Some(3), "{words:?}: {said}");
        assert!(said.contains("32-bit programs are not supported") && said.contains("whither record"), "{said}");
    }
}

#[test]
fn without_rights_a_program_of_root_is_refused_with_the_remedy() {
    need_root!();
    let _alone = alone();
    let directory = directory_of_nobody();
    let path = directory.path();
    std::fs::copy("/bin/sleep", path.join("elevated")).unwrap();
    std::fs::set_permissions(path.join("elevated"), std::fs::Permissions::from_mode(0o4755)).unwrap();
    let elevated = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args([path.join("elevated").as_os_str(), "30".as_ref()])
        .spawn();
    let elevated = Ended(elevated.unwrap());
    // Launched by a tracer without rights it would run as somebody else than it does otherwise.
    let program = path.join("elevated").to_str().unwrap().to_owned();
    let done = as_nobody(path, &["calls", "-f", "main", "--", &program, "0"]);
    let said = text(&done.stderr);
    assert!(!done.status.success() && said.contains("set-user-id") && said.contains("run whither as root"), "{said}");
    let roots = Ended(Command::new("sleep").arg("30").spawn().unwrap());
    // Until both run what they were started for.
    let name = |child: &Ended| std::fs::read_to_string(format!("/proc/{}/comm", child.0.id())).unwrap();
    while name(&elevated) != "elevated\n" || name(&roots) != "sleep\n" {
        std::thread::yield_now();
    }
    for (child, reason) in [(&elevated, "set-user-id"), (&roots, "belongs to user 0")] {
        let pid = child.0.id().to_string();
        for words in
            [&["calls", "-p", &pid, "-f", "main", "-d", "1s"][..], &["calls", "--dry-run", "-p", &pid, "-f", "x"]]
        {
            let done = as_nobody(path, words);
            let said = text(&done.stderr);
            assert_eq!(done.status.code(), Some(3), "{said}");
            assert!(said.contains(reason) && said.contains("root"), "{words:?}: {said}");
        }
    }
}

#[test]
fn a_process_that_ends_while_it_is_attached_to_is_told_as_ended() {
    need_root!();
    let _alone = alone();
    for safe in [&[][..], &["--safe"]] {
        let mut ended_meanwhile = 0;
        // Attaching takes some ten milliseconds; where in it the process ends is not for us to say.
        for delay in (0..20).map(|step| Duration::from_millis(6 * step)) {
            let mut target = Ended(Command::new("sleep").arg("30").spawn().unwrap());
            while std::fs::read_to_string(format!("/proc/{}/comm", target.0.id())).unwrap() != "sleep\n" {
                std::thread::yield_now();
            }
            let pid = target.0.id().to_string();
            let words = [&["calls", "-p", &pid, "-f", "clock_nanosleep", "-d", "30s"][..], safe].concat();
            let measuring = whither().args(words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            std::thread::sleep(delay);
            target.0.kill().unwrap();
            target.0.wait().unwrap();
            let done = measuring.wait_with_output().unwrap();
            let said = text(&done.stderr);
            if done.status.success() || said.contains("there is no process") || said.contains("has ended already") {
                continue;
            }
            assert_eq!(done.status.code(), Some(3), "{said}");
            let end = [" was ended by signal 9 while whither attached", " ended while whither attached"];
            assert!(end.iter().any(|end| said.contains(&format!("process {pid}{end}"))), "{safe:?} {delay:?}: {said}");
            ended_meanwhile += 1;
        }
        assert!(ended_meanwhile > 0, "{safe:?}: no process ended while it was attached to");
    }
}

/// It changes functions of its own, which nobody may then patch or set a breakpoint in.
const CHANGED: &str = r#"
#include <sys/mman.h>
volatile long sink;
__attribute__((noinline, noclone, aligned(64))) long changed(long x) { sink += x; sink *= 3; return sink; }
__attribute__((noinline, noclone, aligned(64))) long kept(long x) { sink -= x; sink *= 5; return sink; }
__attribute__((noinline, noclone, aligned(64), used)) long trapped(long x) { sink ^= x; sink *= 7; return sink; }
int main(void) {
    unsigned long at = (unsigned long)changed;
    mprotect((void *)(at & ~4095UL), 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
    *(unsigned char *)trapped = 0xcc;
    for (int i = 0; i < 5; i++) ((unsigned char *)at)[i] = 0x90;
    for (;;) { kept(1); usleep(1000); }
}
"#;

#[test]
fn what_is_refused_when_a_probe_is_set_is_in_the_document() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    if !compile(&program, CHANGED, &[]) {
        return;
    }
    let running = Ended(Command::new(&program).spawn().unwrap());
    let pid = running.0.id().to_string();
    // Until it has changed itself: its code has become writable.
    let maps = || std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    while !maps().contains("rwxp") {
        std::thread::yield_now();
    }
    for backend in ["patch", "uprobe"] {
        let words = ["calls", "-p", &pid, "-f", "changed|kept|trapped", "--backend", backend, "-d", "300ms", "--json"];
        let done = whither().args(words).output().unwrap();
        let document: serde_json::Value = serde_json::from_slice(&done.stdout)
            .unwrap_or_else(|e| panic!("{backend}: {e}: {} {}", text(&done.stdout), text(&done.stderr)));
        let refused = document["refused"].as_array().unwrap();
        assert_eq!(refused.len(), 2, "{backend}: {refused:?} {}", text(&done.stderr));
        for (name, reason) in [("changed", "differ from the file"), ("trapped", "a breakpoint of somebody else")] {
            let of_it = refused.iter().find(|r| r["name"] == name).unwrap();
            assert!(of_it["reason"].as_str().unwrap().contains(reason), "{refused:?}");
        }
        let functions = document["functions"].as_array().unwrap();
        assert!(functions.iter().any(|f| f["names"][0] == "kept"), "{functions:?}");
    }
}
