//! The daemon, live: it seals, obeys, survives being killed, and what it says of commands is true.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::support::{Listing, alone, answer, need_root, send, text, whither, workload};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // A failing test must not leave a sampler behind; a daemon that has ended is no error.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(db: &Path, more: &[&str]) -> Daemon {
    let child = whither()
        .args(["daemon", "run", "--rate", "1999", "--drain", "500ms", "--seal", "2s", "-q", "--db"])
        .arg(db)
        .args(more)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("whither runs");
    let daemon = Daemon(child);
    let begun = Instant::now();
    while !tell(db, &["daemon", "status"]).0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the daemon does not answer");
        std::thread::sleep(Duration::from_millis(50));
    }
    daemon
}

fn tell(db: &Path, words: &[&str]) -> (bool, String) {
    let out = whither().args(words).arg("--db").arg(db).output().expect("whither runs");
    (out.status.success(), text(&out.stdout))
}

fn work() {
    assert!(Command::new(workload("shares")).arg("1").output().expect("runs").status.success());
}

fn commands(db: &Path) -> Listing {
    Listing(answer(whither().args(["prof", "--by", "process", "--all", "--json", "--db"]).arg(db)))
}

#[test]
fn a_flush_makes_samples_readable_and_folds_processes_by_command() {
    need_root!();
    let _alone = alone();
    let db = tempfile::tempdir().unwrap();
    let daemon = start(db.path(), &[]);
    work();
    work();
    assert!(tell(db.path(), &["daemon", "flush"]).0);
    let rows = commands(db.path()).rows();
    let shares: Vec<_> = rows.iter().filter(|(l, _)| l[0].starts_with("shares")).collect();
    assert_eq!(shares.len(), 1, "two runs of one command are one row: {rows:?}");
    assert!(shares[0].1 > 2_000, "two CPU seconds at 1,999 Hz: {shares:?}");
    let procs = Listing(answer(whither().args(["prof", "--all", "--json", "--db"]).arg(db.path())));
    assert!(procs.samples("alpha") > 1_000, "names of an open epoch: {:?}", procs.rows());
    drop(daemon);
}

#[test]
fn killed_it_loses_only_what_was_not_sealed_and_goes_on_in_the_same_epoch() {
    need_root!();
    let _alone = alone();
    let db = tempfile::tempdir().unwrap();
    let mut first = start(db.path(), &[]);
    work();
    assert!(tell(db.path(), &["daemon", "flush"]).0);
    let before = commands(db.path()).total();
    send("KILL", first.0.id());
    first.0.wait().unwrap();
    assert!(commands(db.path()).total() >= before, "what was flushed is there");
    let _second = start(db.path(), &[]);
    work();
    assert!(tell(db.path(), &["daemon", "flush"]).0);
    assert!(commands(db.path()).total() > before + 1_000);
    let (listed, epochs) = tell(db.path(), &["epochs", "list"]);
    assert!(listed && epochs.lines().count() == 2, "a heading and one epoch: {epochs}");
    let check = whither().args(["db", "check"]).arg(db.path()).output().unwrap();
    assert!(check.status.success(), "{}{}", text(&check.stdout), text(&check.stderr));
}

#[test]
fn a_second_daemon_on_one_database_is_refused() {
    need_root!();
    let _alone = alone();
    let db = tempfile::tempdir().unwrap();
    let _first = start(db.path(), &[]);
    let second = whither().args(["daemon", "run", "-d", "1s", "--db"]).arg(db.path()).output().unwrap();
    assert_eq!(second.status.code(), Some(3), "{}", text(&second.stderr));
    assert!(text(&second.stderr).contains("already"), "{}", text(&second.stderr));
}

#[test]
fn epochs_begin_by_command_and_end_by_command() {
    need_root!();
    let _alone = alone();
    let db = tempfile::tempdir().unwrap();
    let mut daemon = start(db.path(), &[]);
    work();
    assert!(tell(db.path(), &["epochs", "label", "last", "before"]).0, "the daemon names what it writes");
    assert!(tell(db.path(), &["epochs", "list"]).1.contains("before"));
    let status: serde_json::Value = serde_json::from_str(&tell(db.path(), &["daemon", "status", "--json"]).1).unwrap();
    assert_eq!((&status["schema"], &status["lost"]), (&"whither.daemon/1".into(), &0.into()), "{status}");
    let (done, said) = tell(db.path(), &["epochs", "new", "after"]);
    assert!(done, "{said}");
    work();
    assert!(tell(db.path(), &["daemon", "stop"]).0);
    assert!(daemon.0.wait().unwrap().success());
    let after = answer(whither().args(["prof", "--epoch", "after", "--all", "--json", "--db"]).arg(db.path()));
    let all = answer(whither().args(["prof", "--all", "--json", "--db"]).arg(db.path()));
    let (after, all) = (Listing(after), Listing(all));
    assert!(after.samples("alpha") > 700 && all.samples("alpha") > after.samples("alpha") + 700, "{:?}", after.rows());
    let nobody = whither().args(["daemon", "status", "--db"]).arg(db.path()).output().unwrap();
    assert_eq!(nobody.status.code(), Some(3));
}

#[test]
fn old_epochs_go_when_the_database_is_too_large() {
    need_root!();
    let _alone = alone();
    let db = tempfile::tempdir().unwrap();
    let _daemon = start(db.path(), &["--max-disk", "1KiB"]);
    work();
    let epochs = || {
        let listed = tell(db.path(), &["epochs", "list"]);
        assert!(listed.0, "{}", listed.1);
        listed.1.lines().count() - 1
    };
    assert_eq!(epochs(), 1, "the one that is being written stays");
    assert!(tell(db.path(), &["epochs", "new", "after"]).0);
    let begun = Instant::now();
    while epochs() != 1 || !tell(db.path(), &["epochs", "list"]).1.contains("after") {
        assert!(begun.elapsed() < Duration::from_secs(30), "{}", tell(db.path(), &["epochs", "list"]).1);
        std::thread::sleep(Duration::from_millis(200));
    }
}
