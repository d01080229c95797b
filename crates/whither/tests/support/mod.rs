//! What the live tests share: workloads built once, recordings made by the real binary, answers read
//! from its JSON. Assertions live in the tests.
//!
//! Measurements must not disturb each other on a small machine, so each test that samples holds
//! [`alone`]. A right that is missing skips a test with a printed reason ([`need_root`]); a test that
//! measured nothing fails. No test retries.

#![allow(dead_code, reason = "tests/offline uses a part")]

use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// Samples per second and CPU of a recording, unless a test says otherwise.
pub(crate) const RATE: &str = "4999";

/// The command under test, without colours and with English messages.
pub(crate) fn whither() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_whither"));
    command.env("LC_ALL", "C").env("NO_COLOR", "1").env_remove("WHITHER_DB").stdin(Stdio::null());
    command
}

/// Holds off other measurements of this test binary.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static GUARD: Mutex<()> = Mutex::new(());
    // A failed test must not fail the others.
    GUARD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Path of a program with a known answer; `make` runs once per test binary.
pub(crate) fn workload(name: &str) -> PathBuf {
    static BUILT: Once = Once::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists");
    BUILT.call_once(|| {
        let done = Command::new("make").args(["-s", "-C"]).arg(root.join("workloads")).output().expect("make runs");
        assert!(done.status.success(), "workloads do not build:\n{}", text(&done.stderr));
    });
    root.join("target/workloads").join(name)
}

/// Why whole-system sampling is not possible here, if so: it needs CAP_PERFMON and CAP_BPF.
pub(crate) fn missing_rights() -> Option<String> {
    const PERFMON: u64 = 1 << 38;
    const BPF: u64 = 1 << 39;
    const SYS_ADMIN: u64 = 1 << 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let held = status
        .lines()
        .find_map(|l| l.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let enough = held & SYS_ADMIN != 0 || (held & PERFMON != 0 && held & BPF != 0);
    (!enough).then(|| "no CAP_PERFMON and CAP_BPF (run as root)".to_owned())
}

/// Returns from the test, saying so, where sampling the whole system is not allowed.
macro_rules! need_root {
    () => {
        if let Some(reason) = $crate::support::missing_rights() {
            println!("SKIP: {reason}");
            return;
        }
    };
}
pub(crate) use need_root;

/// A recording made by the binary under test, in a directory that goes away with it.
pub(crate) struct Recording {
    directory: tempfile::TempDir,
    /// What whither and the launched program printed, and how they ended.
    pub(crate) output: Output,
}

impl Recording {
    /// Where it is.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("run.wh")
    }

    /// The `key value` lines of the launched program.
    pub(crate) fn truth(&self) -> Truth {
        Truth::parse(&text(&self.output.stdout))
    }

    /// `whither prof RECORDING ARGS --json`.
    pub(crate) fn prof(&self, args: &[&str]) -> Listing {
        Listing(ask("prof", &self.path(), args))
    }

    /// `whither annotate PROCEDURE RECORDING ARGS --json`.
    pub(crate) fn annotate(&self, procedure: &str, args: &[&str]) -> Value {
        let mut all = vec![procedure];
        all.extend(args);
        answer(whither().arg("annotate").args(all.first()).arg(self.path()).args(&all[1..]).arg("--json"))
    }
}

fn ask(verb: &str, path: &Path, args: &[&str]) -> Value {
    answer(whither().arg(verb).arg(path).args(args).arg("--json"))
}

/// Runs a command that must succeed and print JSON.
pub(crate) fn answer(command: &mut Command) -> Value {
    let output = command.output().expect("whither runs");
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{command:?}: {e}:\n{}", text(&output.stdout)))
}

/// Records a command; both must succeed.
pub(crate) fn record<S: AsRef<OsStr>>(args: &[&str], command: &[S]) -> Recording {
    let recording = try_record(args, command);
    let output = &recording.output;
    assert!(output.status.success(), "record {args:?}: {}\n{}", output.status, text(&output.stderr));
    recording
}

/// Records a command, whatever comes of it.
pub(crate) fn try_record<S: AsRef<OsStr>>(args: &[&str], command: &[S]) -> Recording {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut whither = whither();
    whither.args(["record", "-o"]).arg(directory.path().join("run.wh"));
    if !args.iter().any(|a| matches!(*a, "--rate" | "--budget" | "--period")) {
        whither.args(["--rate", RATE]);
    }
    let output = whither.args(args).arg("--").args(command).output().expect("whither runs");
    Recording { directory, output }
}

/// Starts a recording that goes on until told otherwise; returns once it samples.
pub(crate) fn start(args: &[&str]) -> (Child, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut child = whither()
        .args(["record", "-o"])
        .arg(directory.path().join("run.wh"))
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("whither runs");
    let mut lines = BufReader::new(child.stderr.take().expect("piped above")).lines();
    // It says first that sampling has begun; the rest is read to keep the pipe open.
    let first = lines.next().expect("record says what it does").expect("text");
    assert!(first.contains("sampling"), "{first}");
    std::thread::spawn(move || lines.for_each(drop));
    (child, directory)
}

/// Records the whole system while a program runs.
pub(crate) fn record_system<S: AsRef<OsStr>>(args: &[&str], command: &[S]) -> Recording {
    let (mut sampling, directory) = start(&[&["-a", "--rate", RATE], args].concat());
    let load = Command::new(&command[0]).args(&command[1..]).output().expect("the program runs");
    assert!(load.status.success(), "the program ended with {}", load.status);
    interrupt(sampling.id());
    let status = sampling.wait().expect("whither ends");
    assert!(status.success(), "record -a: {status}");
    Recording { directory, output: Output { status, ..load } }
}

/// Sends a signal by name (`INT`, `KILL`).
pub(crate) fn send(signal: &str, pid: u32) {
    let done = Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status().expect("kill runs");
    assert!(done.success(), "no process {pid} to send {signal} to");
}

/// What Ctrl-C does.
pub(crate) fn interrupt(pid: u32) {
    send("INT", pid);
}

/// Bytes as text, whatever they are.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The `key value` lines a workload prints of itself.
pub(crate) struct Truth(BTreeMap<String, String>);

impl Truth {
    fn parse(stdout: &str) -> Self {
        Self(stdout.lines().filter_map(|l| l.split_once(' ')).map(|(k, v)| (k.into(), v.into())).collect())
    }

    /// A value as text.
    pub(crate) fn get(&self, key: &str) -> &str {
        self.0.get(key).unwrap_or_else(|| panic!("the program did not print `{key}` but {:?}", self.0))
    }

    /// A number.
    pub(crate) fn number(&self, key: &str) -> f64 {
        self.get(key).parse().unwrap_or_else(|_| panic!("`{key}` is no number: {}", self.get(key)))
    }

    /// An address, printed as 0x...
    pub(crate) fn address(&self, key: &str) -> u64 {
        let value = self.get(key);
        u64::from_str_radix(value.trim_start_matches("0x"), 16).unwrap_or_else(|_| panic!("`{key}`: {value}"))
    }

    /// All `share_NAME` values, in percent.
    pub(crate) fn shares(&self) -> Vec<(&str, f64)> {
        let shares = self.0.keys().filter_map(|k| k.strip_prefix("share_"));
        shares.map(|name| (name, self.number(&format!("share_{name}")))).collect()
    }
}

/// An answer of `prof --json`.
pub(crate) struct Listing(pub(crate) Value);

impl Listing {
    /// Samples of the first event, all rows and the rest.
    pub(crate) fn total(&self) -> u64 {
        count(&self.0["provenance"]["events"][0]["samples"])
    }

    /// Share of unknown samples, 0 to 1.
    pub(crate) fn unknown(&self) -> f64 {
        self.0["provenance"]["unknown_share"].as_f64().expect("an answer tells its unknown share")
    }

    /// (labels, samples of the first event) per row.
    pub(crate) fn rows(&self) -> Vec<(Vec<String>, u64)> {
        let rows = self.0["rows"].as_array().unwrap_or_else(|| panic!("a listing has rows: {}", self.0));
        rows.iter().map(|row| (labels(row), count(&row["cells"][0]["samples"]))).collect()
    }

    /// Sum over the rows, and what the limit left out.
    pub(crate) fn sum(&self) -> u64 {
        let rest = &self.0["rest"];
        let rest = if rest.is_null() { 0 } else { count(&rest[1][0]["samples"]) };
        self.rows().iter().map(|(_, n)| n).sum::<u64>() + rest
    }

    /// Samples of the rows whose first label is `name`.
    pub(crate) fn samples(&self, name: &str) -> u64 {
        self.samples_where(|labels| labels[0] == name)
    }

    /// Samples of the rows a test picks.
    pub(crate) fn samples_where(&self, pick: impl Fn(&[String]) -> bool) -> u64 {
        self.rows().iter().filter(|(labels, _)| pick(labels)).map(|(_, n)| n).sum()
    }

    /// Share of each name in percent of the names together; fails when they have too few samples to
    /// judge (a test that measured nothing must not pass).
    pub(crate) fn shares_among(&self, names: &[&str]) -> Vec<f64> {
        let counts: Vec<u64> = names.iter().map(|name| self.samples(name)).collect();
        let sum: u64 = counts.iter().sum();
        assert!(sum >= 1000, "only {sum} samples in {names:?}: {:?}", self.rows());
        counts.iter().map(|n| 100.0 * *n as f64 / sum as f64).collect()
    }

    /// Asserts that a command used so much CPU time as the samples say. A timer of a virtual CPU that
    /// the hypervisor held back misses samples; the recording says how many, system-wide.
    pub(crate) fn assert_cpu_time(&self, seconds: f64) {
        let expected = RATE.parse::<f64>().expect("a number") * seconds;
        let (found, skipped) = (self.total() as f64, count(&self.0["provenance"]["skipped"]) as f64);
        let good = found <= 1.15 * expected && found + skipped >= 0.85 * expected;
        assert!(good, "{found} samples ({skipped} skipped) where its CPU time says {expected:.0}");
    }

    /// Asserts the printed shares, among themselves, within so many points.
    pub(crate) fn assert_shares(&self, truth: &Truth, rename: impl Fn(&str) -> String, points: f64) {
        let expected = truth.shares();
        let sum: f64 = expected.iter().map(|(_, share)| share).sum();
        let names: Vec<String> = expected.iter().map(|(name, _)| rename(name)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let samples: u64 = names.iter().map(|name| self.samples(name)).sum();
        for ((name, measured), (_, share)) in names.iter().zip(self.shares_among(&names)).zip(&expected) {
            let share = 100.0 * share / sum;
            let tolerance = tolerance(points, share, samples);
            let good = (measured - share).abs() <= tolerance;
            assert!(good, "{name}: {measured:.2} %, truth {share:.2} +-{tolerance:.2} %: {names:?}, {samples} samples");
        }
    }
}

/// Points that a measured share may be off: those a test grants, or what chance makes of so few
/// samples (4 standard deviations), if that is more: on a busy machine a program gets less CPU time.
pub(crate) fn tolerance(points: f64, share: f64, samples: u64) -> f64 {
    let deviation = (share * (100.0 - share) / samples as f64).sqrt();
    points.max(4.0 * deviation)
}

fn labels(row: &Value) -> Vec<String> {
    let labels = row["labels"].as_array().expect("a row has labels");
    labels.iter().map(|l| l.as_str().expect("labels are text").to_owned()).collect()
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a count: {value}"))
}
