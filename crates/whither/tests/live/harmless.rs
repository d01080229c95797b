//! The target is sacred: same output, same status, untouched by the worst end of whither; and a
//! recording interrupted keeps its data.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::support::{
    Listing, alone, answer, interrupt, need_root, send, start, text, tolerance, try_record, whither, workload,
};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn the_status_of_the_command_is_passed_through() {
    need_root!();
    for (script, status) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -SEGV $$", 139)] {
        let run = try_record(&[], &["sh", "-c", script]);
        assert_eq!(run.output.status.code(), Some(status), "`{script}`: {}", text(&run.output.stderr));
    }
}

#[test]
fn a_command_that_cannot_start_says_so() {
    need_root!();
    let run = try_record(&[], &["/nonexistent/program"]);
    assert_eq!(run.output.status.code(), Some(127), "{}", text(&run.output.stderr));
    assert!(text(&run.output.stderr).contains("/nonexistent/program"), "{}", text(&run.output.stderr));
    let run = try_record(&[], &["/etc/passwd"]);
    assert_eq!(run.output.status.code(), Some(126), "{}", text(&run.output.stderr));
}

#[test]
fn output_and_input_of_the_command_are_its_own() {
    need_root!();
    let script = "printf 'out\\0\\377\\n'; printf 'err\\n' >&2; exec cat /proc/self/comm";
    let plain = Command::new("sh").args(["-c", script]).output().unwrap();
    let run = try_record(&["-q"], &["sh", "-c", script]);
    assert_eq!(run.output.stdout, plain.stdout, "stdout");
    assert!(text(&run.output.stderr).contains("err\n"), "stderr: {}", text(&run.output.stderr));
}

#[test]
fn descriptors_of_whither_do_not_reach_the_command() {
    need_root!();
    let run = try_record(&[], &["ls", "-l", "/proc/self/fd"]);
    let listed = text(&run.output.stdout);
    for name in ["perf_event", "bpf", ".wh"] {
        assert!(!listed.contains(name), "the command holds a descriptor of {name}:\n{listed}");
    }
    assert!(listed.contains("-> "), "{listed}");
}

#[test]
fn exceptions_still_find_their_handlers() {
    need_root!();
    let _alone = alone();
    for how in ["-g=fp", "-g=dwarf", "-g=off"] {
        let run = try_record(&[how], &[workload("throws"), "1".into()]);
        assert!(run.output.status.success(), "{how}: {}", text(&run.output.stderr));
        assert_eq!(text(&run.output.stdout), "lost 0\nthrows_positive 1\n", "{how}");
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what} did not come within 10 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Programs, maps and links of the kernel as bpftool lists them; `None` without bpftool.
fn bpf_objects() -> Option<usize> {
    let count = |kind: &str| {
        let out = Command::new("bpftool").args(["-j", kind, "show"]).output().ok()?;
        serde_json::from_slice::<serde_json::Value>(&out.stdout).ok()?.as_array().map(Vec::len)
    };
    Some(count("prog")? + count("map")? + count("link")?)
}

#[test]
fn killed_hard_it_leaves_the_command_running_and_nothing_in_the_kernel() {
    need_root!();
    let _alone = alone();
    let before = bpf_objects();
    let directory = tempfile::tempdir().unwrap();
    let (begun, done) = (directory.path().join("begun"), directory.path().join("done"));
    let script = format!("echo > {}; sleep 2; echo finished > {}", begun.display(), done.display());
    let (mut child, _recording) = start(&["--rate", "999", "--", "sh", "-c", &script]);
    wait_until("the command's start", || begun.exists());
    send("KILL", child.id());
    child.wait().unwrap();
    wait_until("the command's own end", || done.exists());
    match before {
        Some(before) => wait_until("the release of BPF objects", || bpf_objects().is_some_and(|now| now <= before)),
        None => println!("bpftool is not installed: BPF objects not counted"),
    }
    let pinned = std::fs::read_dir("/sys/fs/bpf").into_iter().flatten().flatten();
    let pinned: Vec<_> = pinned.filter(|e| e.file_name().to_string_lossy().contains("whither")).collect();
    assert!(pinned.is_empty(), "pinned: {pinned:?}");
}

#[test]
fn an_interrupt_keeps_the_data() {
    need_root!();
    let _alone = alone();
    let (mut child, directory) = start(&["-a", "--rate", "999"]);
    let load = Command::new(workload("shares")).arg("1").output().unwrap();
    assert!(load.status.success());
    interrupt(child.id());
    assert!(child.wait().unwrap().success(), "an interrupted recording is a good one");
    let path = directory.path().join("run.wh");
    let listing = Listing(answer(whither().arg("prof").arg(path).args(["--all", "--json"])));
    assert!(listing.samples("alpha") > 200, "{:?}", listing.rows());
}

#[test]
fn a_request_to_end_reaches_the_command() {
    need_root!();
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    let begun = place.path().join("begun");
    // The shell says when its trap is there: a signal before that ends it, by whoever it is sent. It waits for
    // a child, so that the trap runs as soon as the signal comes.
    let script = format!("trap 'exit 7' TERM; echo > {}; sleep 60 & wait", begun.display());
    let (mut child, directory) = start(&["--", "sh", "-c", &script]);
    wait_until("the shell's trap", || begun.exists());
    send("TERM", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(7), "the command's own answer to SIGTERM");
    assert!(directory.path().join("run.wh").join("epoch.json").exists(), "and the recording is kept");
}

#[test]
fn a_killed_recording_opens_with_what_was_sealed_or_says_why_not() {
    need_root!();
    let _alone = alone();
    let (mut child, directory) = start(&["-a", "--rate", "999", "-d", "60s"]);
    send("KILL", child.id());
    child.wait().unwrap();
    let path = directory.path().join("run.wh");
    let output = whither().arg("prof").arg(&path).output().unwrap();
    let said = text(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1 | 3)), "{}: {said}", output.status);
    assert!(output.status.success() || said.starts_with("whither: "), "{said}");
}

#[test]
fn attaching_leaves_the_process_as_it_was() {
    need_root!();
    let _alone = alone();
    let target = Command::new(workload("shares")).arg("3").stdout(Stdio::piped()).spawn().unwrap();
    let pid = target.id().to_string();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.wh");
    let recorded =
        whither().args(["record", "--rate", "4999", "-d", "1s", "-p", &pid, "-o"]).arg(&path).output().unwrap();
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    let output = target.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("share_alpha 5") || text(&output.stdout).contains("share_alpha 4"));
    let listing = Listing(answer(whither().arg("prof").arg(path).args(["--all", "--json"])));
    let shares = listing.shares_among(&["alpha", "beta", "gamma_", "delta"]);
    assert!((shares[0] - 50.0).abs() < tolerance(4.0, 50.0, listing.total()), "{shares:?}");
}

/// What we ask the kernel for must not change what other listeners are told.
#[test]
fn another_profiler_beside_us_works_as_ever() {
    need_root!();
    if Command::new("perf").arg("--version").output().is_err() {
        println!("SKIP: perf is not installed");
        return;
    }
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("perf.data");
    let command = ["perf", "record", "-q", "-e", "cpu-clock", "-o", data.to_str().unwrap(), "--", "true"];
    for _ in 0..3 {
        let run = try_record(&["-a"], &command);
        assert_eq!(run.output.status.code(), Some(0), "{}", text(&run.output.stderr));
    }
}

/// `script` is the terminal: killed, it leaves nobody at the other end, whose end of file was read for ever.
#[test]
fn a_live_screen_ends_with_its_terminal() {
    need_root!();
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let drawn = directory.path().join("drawn");
    // A terminal without size shows nothing.
    let top = format!("stty rows 24 cols 100; exec {} top", env!("CARGO_BIN_EXE_whither"));
    let began =
        Command::new("script").args(["-qfec", &top]).arg(&drawn).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let Ok(mut terminal) = began else { return println!("SKIP: no script") };
    let within = |seconds: u64, done: &dyn Fn() -> bool| {
        let until = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < until && !done() {
            std::thread::sleep(Duration::from_millis(20));
        }
        done()
    };
    let script = terminal.id();
    let screen = || {
        let all = std::fs::read_to_string(format!("/proc/{script}/task/{script}/children")).unwrap_or_default();
        all.split_whitespace().filter_map(|w| w.parse::<u32>().ok()).find(|pid| is_whither(*pid))
    };
    // Once a picture is drawn it waits for keys.
    let begins = within(20, &|| drawn.metadata().is_ok_and(|m| m.len() > 500) && screen().is_some());
    let pid = screen();
    let _ = (terminal.kill(), terminal.wait());
    assert!(begins, "no picture");
    let pid = pid.unwrap();
    let gone = within(20, &|| !is_whither(pid));
    if !gone {
        send("KILL", pid);
    }
    assert!(gone, "it goes on without its terminal");
}

fn is_whither(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c.trim() == "whither")
}
