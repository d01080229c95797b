//! What the live tests of `whither calls` share: running a program plain and probed, the truth it tells,
//! and questions to the JSON document. Assertions of single programs live in the tests.
//!
//! A probed program must do exactly what it does unprobed, so [`probed`] compares output and status
//! itself. Everything runs under `timeout`: a hung target fails its test and takes nothing else along.

use crate::support::{send, text, workload};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Seconds after which a run is a hang.
const LIMIT: &str = "240";

/// What a program says of a function it called.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Told {
    pub(crate) calls: u64,
    pub(crate) expectation: String,
}

/// The `FUNCTION CALLS EXPECTATION` lines of all processes of a run, added up.
pub(crate) fn told(path: &Path) -> BTreeMap<String, Told> {
    let mut all: BTreeMap<String, Told> = BTreeMap::new();
    for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, calls, expectation] = words[..] else { panic!("{}: `{line}`", path.display()) };
        let entry = all.entry(name.to_owned()).or_default();
        entry.calls += calls.parse::<u64>().unwrap_or_else(|e| panic!("`{line}`: {e}"));
        entry.expectation = expectation.to_owned();
    }
    all
}

/// A finished run without whither.
pub(crate) struct Plain {
    pub(crate) output: Output,
    pub(crate) told: BTreeMap<String, Told>,
}

/// The status a shell would see.
pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0))
}

/// A command with the path of a workload in front.
pub(crate) fn program(words: &[&str]) -> Vec<String> {
    let first = if words[0].contains('/') { words[0].to_owned() } else { workload(words[0]).display().to_string() };
    std::iter::once(first).chain(words[1..].iter().map(|w| (*w).to_owned())).collect()
}

/// `timeout` kills the whole process group.
pub(crate) fn limited(command: &[String]) -> Command {
    let mut limited = Command::new("timeout");
    limited.args(["-s", "KILL", LIMIT]).args(command).stdin(Stdio::null());
    limited.env("LC_ALL", "C").env("NO_COLOR", "1").env_remove("WHITHER_DB");
    limited
}

/// Runs a workload as it is.
pub(crate) fn plain(words: &[&str]) -> Plain {
    let truth = tempfile::NamedTempFile::new().expect("a temporary file");
    let output = limited(&program(words)).env("WHITHER_TRUTH", truth.path()).output().expect("timeout runs");
    Plain { output, told: told(truth.path()) }
}

/// A finished run under `whither calls --json`.
pub(crate) struct Probed {
    /// What the program told of itself in this run.
    pub(crate) told: BTreeMap<String, Told>,
    /// The program's own output, the document cut off.
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: i32,
    pub(crate) document: Value,
}

pub(crate) const WHITHER: &str = env!("CARGO_BIN_EXE_whither");

/// Runs a workload under `whither calls ARGS --json`. The document is the last thing on stdout; where
/// there is none, it is null.
pub(crate) fn run(args: &[&str], words: &[&str]) -> Probed {
    let truth = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut command: Vec<String> = [WHITHER, "calls", "--json"].map(str::to_owned).to_vec();
    command.extend(args.iter().map(|a| (*a).to_owned()));
    command.push("--".to_owned());
    command.extend(program(words));
    let output = limited(&command).env("WHITHER_TRUTH", truth.path()).output().expect("timeout runs");
    let (stdout, document) = split(&text(&output.stdout));
    Probed { told: told(truth.path()), stdout, stderr: text(&output.stderr), code: code(&output), document }
}

/// Output of a program followed by a JSON document.
fn split(stdout: &str) -> (String, Value) {
    let starts =
        stdout.match_indices('{').map(|(at, _)| at).filter(|at| *at == 0 || stdout.as_bytes()[at - 1] == b'\n');
    for at in starts {
        if let Ok(document) = serde_json::from_str::<Value>(&stdout[at..]) {
            return (stdout[..at].to_owned(), document);
        }
    }
    (stdout.to_owned(), Value::Null)
}

/// `-f NAME` for each, as a pattern that means just this name.
pub(crate) fn patterns<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    names.filter(|n| !n.starts_with('#')).flat_map(|n| ["-f".to_owned(), n.replace('.', "\\.")]).collect()
}

/// Runs a workload plain, then with probes on every function it tells of; output and status must agree.
pub(crate) fn probed(args: &[&str], words: &[&str]) -> Probed {
    let plain = plain(words);
    assert!(!plain.told.is_empty(), "{words:?} tells nothing: {:?}", plain.output);
    let patterns = patterns(plain.told.keys());
    let all: Vec<&str> = args.iter().copied().chain(patterns.iter().map(String::as_str)).collect();
    let run = run(&all, words);
    run.assert_unharmed(&plain, words);
    run
}

impl Probed {
    /// Same output, same end as unprobed.
    pub(crate) fn assert_unharmed(&self, plain: &Plain, words: &[&str]) {
        let why = format!("{words:?}, probed:\n{}", self.stderr);
        assert_eq!(self.stdout, text(&plain.output.stdout), "stdout of {why}");
        assert_eq!(self.code, code(&plain.output), "status of {why}");
        assert!(self.document.is_object(), "no document on stdout of {why}");
    }

    fn rows(&self, list: &str) -> &[Value] {
        self.document[list].as_array().map_or(&[], Vec::as_slice)
    }

    /// Rows of the functions of this name (one per module and process image).
    pub(crate) fn functions(&self, name: &str) -> Vec<&Value> {
        let named = |row: &&Value| row["names"].as_array().is_some_and(|n| n.iter().any(|n| n == name));
        self.rows("functions").iter().filter(named).collect()
    }

    /// The one row of a function.
    pub(crate) fn function(&self, name: &str) -> &Value {
        let found = self.functions(name);
        assert_eq!(found.len(), 1, "rows of {name}: {found:?}\n{}", self.stderr);
        found[0]
    }

    /// Calls counted of a function.
    pub(crate) fn calls(&self, name: &str) -> u64 {
        self.functions(name).iter().map(|row| number(&row["totals"]["calls"])).sum()
    }

    /// Why it is not measured, if so.
    pub(crate) fn refusal(&self, name: &str) -> Option<String> {
        let found = self.rows("refused").iter().find(|row| row["name"] == name)?;
        Some(found["reason"].as_str().unwrap_or_default().to_owned())
    }

    /// Paths of a function.
    pub(crate) fn paths(&self, name: &str) -> Vec<&Value> {
        let ids: Vec<&Value> = self.functions(name).iter().map(|row| &row["id"]).collect();
        self.rows("paths").iter().filter(|row| ids.contains(&&row["func"])).collect()
    }

    /// Names of the frames of a path, outermost first, with the module's file name.
    pub(crate) fn frames(&self, path: &Value) -> Vec<(String, String)> {
        let frames = path["frames"].as_array().expect("a path has frames");
        let one = |index: &Value| {
            let row = &self.document["frames"][index.as_u64().expect("an index") as usize];
            let module = row["module"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned();
            (module, row["name"].as_str().unwrap_or_default().to_owned())
        };
        frames.iter().map(one).collect()
    }

    /// A lost counter.
    pub(crate) fn lost(&self, cause: &str) -> u64 {
        number(&self.document["lost"][cause])
    }

    /// Everything the program told comes true.
    pub(crate) fn assert_told(&self) {
        let said = format!("lost {}, told {:?}\n{}", self.document["lost"], self.told, self.stderr);
        for (name, Told { calls, expectation }) in self.told.iter().filter(|(name, _)| !name.starts_with('#')) {
            let (counted, refused) = (self.calls(name), self.refusal(name));
            let why = format!("{name}: counted {counted}, truth {calls} ({expectation}), refused {refused:?}; {said}");
            match expectation.as_str() {
                "any" => continue,
                "either" if self.functions(name).is_empty() => {
                    let told = self.stderr.contains(&format!("{name} is not measured: "));
                    assert!(told || refused.is_some_and(|r| !r.is_empty()), "no reason for {why}");
                    continue;
                }
                "least" if refused.is_some() => continue,
                "exact" | "either" | "moved" => assert_eq!(counted, *calls, "{why}"),
                "entry" => {
                    assert_eq!(counted, *calls, "{why}");
                    assert!(self.functions(name).iter().all(|f| f["entry_only"].is_string()), "exit seen of {why}");
                }
                "least" => assert!(counted >= *calls, "{why}"),
                "lost" => {
                    let lost: u64 = ["busy", "depth", "table"].iter().map(|cause| self.lost(cause)).sum();
                    assert!(counted <= *calls + self.lost("jumped") && counted + lost >= *calls, "{why}");
                }
                other => panic!("`{other}` is no expectation"),
            }
        }
        if self.told.values().all(|t| t.expectation == "exact") {
            for cause in ["busy", "depth", "table", "exit"] {
                assert_eq!(self.lost(cause), 0, "lost {cause}: {said}");
            }
        }
        self.assert_sums();
    }

    /// Rows add up: calls of paths to those of functions, own times to the times of the outermost.
    pub(crate) fn assert_sums(&self) {
        for function in self.rows("functions") {
            let paths = self.rows("paths").iter().filter(|p| p["func"] == function["id"]);
            let sum: u64 = paths.map(|p| number(&p["calls"])).sum();
            assert_eq!(sum, number(&function["totals"]["calls"]), "paths of {}", function["names"]);
        }
        let own: u64 = self.rows("paths").iter().map(|p| number(&p["self_wall_ns"])).sum();
        let outer: u64 =
            self.rows("paths").iter().filter(|p| p["parent"].is_null()).map(|p| number(&p["wall_ns"])).sum();
        // A call that never ended carries no time, its finished callees do.
        if self.rows("paths").iter().all(|p| p["calls"] == p["done"]) {
            let apart = own.abs_diff(outer) as f64;
            // Own cost is taken off as calibrated; where the CPU hid some of it, a caller's own time ends at 0.
            let cost = number(&self.document["own_cost"]["ns"]) as f64;
            let limit = 0.01 * outer as f64 + 0.5 * cost + 1000.0;
            assert!(apart <= limit, "own times {own} ns, outermost {outer} ns, measuring cost {cost} ns");
        }
    }
}

pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a count: {value}"))
}

/// Holds until true, or fails.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} did not come within 20 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process of ours that does not outlive its test.
pub(crate) struct Guarded(pub(crate) Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ends a session as Ctrl-C does, and waits for it.
pub(crate) fn stop(mut session: Guarded) {
    send("INT", session.0.id());
    wait_until("the session's end", || session.0.try_wait().expect("our child").is_some());
}

/// What must be the same before attaching and after detaching.
#[derive(Debug, PartialEq)]
pub(crate) struct Looks {
    maps: Vec<String>,
    descriptors: Vec<String>,
    threads: usize,
    text: Vec<(String, u64)>,
    tracer: String,
}

impl Looks {
    /// Fails with what is different now, and only that.
    pub(crate) fn assert_same(&self, pid: u32, when: &str) {
        let now = looks(pid);
        let only = |a: &[String], b: &[String]| a.iter().filter(|l| !b.contains(l)).cloned().collect::<Vec<_>>();
        let maps = (only(&self.maps, &now.maps), only(&now.maps, &self.maps));
        let descriptors = (only(&self.descriptors, &now.descriptors), only(&now.descriptors, &self.descriptors));
        let none: (Vec<String>, Vec<String>) = Default::default();
        assert_eq!(maps, none, "maps gone and come, {when}");
        assert_eq!(descriptors, none, "descriptors gone and come, {when}");
        assert_eq!(now.text, self.text, "sums of text, {when}");
        assert_eq!((now.threads, &now.tracer), (self.threads, &self.tracer), "threads and tracer, {when}");
    }
}

/// Looks at a process: maps without heap and stack, descriptors, threads, a sum of every executable byte.
pub(crate) fn looks(pid: u32) -> Looks {
    let read = |what: &str| std::fs::read_to_string(format!("/proc/{pid}/{what}")).unwrap_or_default();
    let (mut maps, mut text) = (Vec::new(), Vec::new());
    for line in read("maps").lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = words.get(5).copied().unwrap_or_default();
        if words[1].contains('x') && name != "[vsyscall]" {
            text.push((format!("{} {name}", words[0]), text_sum(pid, words[0])));
        }
        // A heap or an arena may grow meanwhile, and the kernel merges neighbours as it likes.
        if !name.is_empty() && !name.starts_with("[heap") && !name.starts_with("[stack") && !name.starts_with("[anon") {
            maps.push(format!("{} {} {name}", words[0], words[1]));
        }
    }
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut descriptors: Vec<String> = links
        .map(|l| format!("{} {:?}", l.file_name().display(), std::fs::read_link(l.path()).unwrap_or_default()))
        .collect();
    descriptors.sort();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().count();
    let tracer = read("status").lines().find(|l| l.starts_with("TracerPid")).unwrap_or_default().to_owned();
    Looks { maps, descriptors, threads, text, tracer }
}

fn text_sum(pid: u32, range: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::os::unix::fs::FileExt;
    let (start, end) = range.split_once('-').expect("a range");
    let [start, end] = [start, end].map(|hex| u64::from_str_radix(hex, 16).expect("an address"));
    let mut bytes = vec![0; (end - start) as usize];
    let read = std::fs::File::open(format!("/proc/{pid}/mem")).and_then(|f| f.read_exact_at(&mut bytes, start));
    let mut hasher = DefaultHasher::new();
    read.is_ok().then_some(bytes).hash(&mut hasher);
    hasher.finish()
}
