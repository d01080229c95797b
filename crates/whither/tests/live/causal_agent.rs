//! `whither causal --backend agent`: threads that sample and delay themselves give the curves that BPF gives, and the program
//! does not notice: no interrupted call, no stray signal, nothing left behind.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::causal_live::{AMOUNTS, NOTHING, Ran, SHORT, attach, causal, knee, line, start};
use crate::support::{alone, need_root, workload};
use std::time::Duration;

fn by_agent(target: &str, seconds: u32, words: &[&str]) -> Ran {
    let args = ["--backend", "agent", "--progress", "progress", "--unit", "function", "--target", target];
    let run = causal(&[&args[..], &["--speedups", AMOUNTS]].concat(), seconds, words);
    assert!(run.answer.is_null() || run.answer["executor"] == "agent", "{}", run.told());
    run
}

#[test]
fn k1_one_thread() {
    let _alone = alone();
    let run = by_agent("f", 8, &["serial"]);
    if !run.spoilt() {
        run.assert_curve("f", line(0.6), SHORT);
    }
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k2_a_barrier() {
    let _alone = alone();
    let run = by_agent("a", 10, &["twothread", "--set", "pin=1"]);
    if !run.spoilt() {
        run.assert_curve("a", knee(1.0, 0.25), SHORT);
    }
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k3_a_queue() {
    let _alone = alone();
    let run = by_agent("produce", 10, &["prodcons-mutex", "--set", "pin=1"]);
    if !run.spoilt() {
        run.assert_curve("produce", knee(1.0, 0.4), SHORT);
    }
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k3_futexes_of_another_library() {
    let _alone = alone();
    let run = by_agent("produce", 10, &["prodcons-atomicwait", "--set", "pin=1"]);
    if !run.spoilt() {
        run.assert_curve("produce", knee(1.0, 0.4), SHORT);
    }
}

/// Most hand-overs of this lock wake nobody.
#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k4_a_lock() {
    let _alone = alone();
    let run = by_agent("apart", 10, &["lockc-mutex", "--set", "pin=1"]);
    if !run.spoilt() {
        run.assert_curve("apart", knee(2.0 / 3.0, 1.0 / 3.0), SHORT);
    }
}

#[test]
#[ignore = "its own time: scripts/acceptance runs it"]
fn k13_absolute_time() {
    let _alone = alone();
    let run = by_agent("work", 6, &["ticker"]);
    if !run.spoilt() {
        run.assert_curve("work", NOTHING, SHORT);
    }
}

/// Waits for what remains of a round were taken for waits of their own length here: "fix this: +7" for nothing.
#[test]
fn k28_waits_for_the_rest_of_a_round_gain_nothing() {
    let _alone = alone();
    for mode in ["nanosleep", "epoll", "cond"] {
        let run = by_agent("draw", 6, &["paced", "--mode", mode]);
        if !run.spoilt() {
            run.assert_verdict("draw", &["rate-fixed", "do-not-bother", "not-enough-data"]);
        }
    }
    let run = by_agent("draw", 8, &["paced", "--mode", "pollsame"]);
    if !run.spoilt() {
        run.assert_curve("draw", line(1.0 / 3.0), SHORT);
    }
}

#[test]
fn nobody_is_interrupted_and_no_signal_goes_astray() {
    let _alone = alone();
    let run = by_agent("a", 6, &["eintr"]);
    let told = |key: &str| run.stdout.lines().find_map(|l| l.strip_prefix(key)?.trim().parse::<u64>().ok());
    assert_eq!((told("interrupted "), told("strange ")), (Some(0), Some(0)), "{}\n{}", run.stdout, run.told());
    assert!(told("alarms ") >= Some(50), "{}\n{}", run.stdout, run.told());
}

/// An ordinary user gets this back end by itself, and is told so.
#[test]
fn without_rights() {
    need_root!();
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), everybody).unwrap();
    let [whither, program] = ["whither", "causal-serial"].map(|name| dir.path().join(name));
    std::fs::copy(env!("CARGO_BIN_EXE_whither"), &whither).unwrap();
    std::fs::copy(workload("causal-serial"), &program).unwrap();
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&whither);
    command.args(["causal", "--progress", "progress", "-t", "f", "--unit", "function", "-d", "4s", "--"]);
    let run = command.arg(&program).args(["--seconds", "5"]).current_dir(dir.path()).output().unwrap();
    let [out, err] = [&run.stdout, &run.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(err.contains("BPF is not allowed here"), "{err}");
    assert!(out.contains("executor agent") || err.contains("spoilt"), "{out}\n{err}");
    assert!(out.contains("period_ns"), "the program ended by itself: {out}\n{err}");
}

/// What is mapped where, and the signals that are handled.
fn traces(pid: u32) -> (Vec<String>, String) {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let maps = maps.lines().filter(|l| !l.contains("[heap]")).map(str::to_owned).collect();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    (maps, status.lines().find(|l| l.starts_with("SigCgt:")).unwrap_or_default().to_owned())
}

/// Also when a session before was killed in the middle of a window.
#[test]
fn nothing_is_left_behind() {
    let _alone = alone();
    let mut child = start(&["prodcons-mutex", "--seconds", "12"]);
    std::thread::sleep(Duration::from_millis(500));
    // `setsid` and `timeout` stand before the program.
    let Some(pid) = program_of(child.id()) else { panic!("the program did not start") };
    let before = traces(pid);
    let words = ["causal", "--backend", "agent", "--progress", "progress", "-d", "30s", "-p", &pid.to_string()];
    let mut killed = std::process::Command::new(env!("CARGO_BIN_EXE_whither"))
        .args(words)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    killed.kill().unwrap();
    killed.wait().unwrap();
    attach(&["--backend", "agent", "--progress", "progress"], 2, pid);
    assert_eq!(traces(pid), before);
    assert!(child.wait().unwrap().success());
}

pub(crate) fn program_of(pid: u32) -> Option<u32> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    if name.starts_with("causal-") {
        return Some(pid);
    }
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().find_map(|child| program_of(child.parse().ok()?))
}
