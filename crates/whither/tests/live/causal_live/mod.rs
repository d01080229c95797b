//! What the live tests of `whither causal` share: a run of the real binary on a program with a known answer
//! (workloads/causal/EXPECTED.md), and judgement of its curves. Programs and amounts live in the tests.
//!
//! A gain is a ratio of times within one run, so the speed of the machine drops out; but two threads that
//! wait for each other need two cores. Runs go before everything else on the machine where that is allowed, and
//! windows that others disturbed are the tool's to drop: a test that is left with too few of them fails.

use crate::support::{text, workload};
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Seconds after which a run is a hang.
const LIMIT: &str = "90";
/// Amounts of an ordinary test: enough different ones for a curve, few enough for several windows of each.
pub(crate) const AMOUNTS: &str = "0,15,30,45,60,80";

/// `min(slope * s, top)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Curve {
    pub(crate) slope: f64,
    pub(crate) top: f64,
}

/// The part gains nothing.
pub(crate) const NOTHING: Curve = Curve { slope: 0.0, top: 0.0 };

/// Proportional to the amount.
pub(crate) const fn line(slope: f64) -> Curve {
    Curve { slope, top: 1.0 }
}

/// Proportional up to a limit.
pub(crate) const fn knee(slope: f64, top: f64) -> Curve {
    Curve { slope, top }
}

impl Curve {
    /// Truth at an amount in percent, in percentage points.
    pub(crate) fn at(self, percent: f64) -> f64 {
        100.0 * (self.slope * percent / 100.0).min(self.top)
    }
}

/// How far a curve may be from the truth, in percentage points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar {
    /// On average over the amounts.
    pub(crate) mean: f64,
    /// The fitted curve, at any amount.
    pub(crate) most: f64,
}

/// Bar of a short run, four times shorter than the runs of which accuracy is told.
pub(crate) const SHORT: Bar = Bar { mean: 5.0, most: 8.0 };

/// A run of `whither causal`.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The answer; null where there was none.
    pub(crate) answer: Value,
}

/// Runs a program under `whither causal ARGS --json`, seconds long.
pub(crate) fn causal(args: &[&str], seconds: u32, words: &[&str]) -> Ran {
    let seconds = seconds.to_string();
    let words = [words, &["--seconds", &seconds]].concat();
    run(args, &words)
}

/// Runs a program under `whither causal ARGS --json`.
pub(crate) fn run(args: &[&str], words: &[&str]) -> Ran {
    let program = workload(&format!("causal-{}", words[0]));
    let mut command = before_others();
    command.args([env!("CARGO_BIN_EXE_whither"), "causal", "--json"]).args(args).arg("--").arg(program);
    ran(&command.args(&words[1..]).output().expect("sh runs"))
}

/// Runs a Python program of this folder under `whither causal ARGS --json`, with the Python module at hand; `None`, said,
/// without Python.
#[allow(clippy::print_stdout, reason = "a skip must be seen")]
pub(crate) fn python(args: &[&str], script: &str, words: &[&str]) -> Option<Ran> {
    let interpreter = "/usr/bin/python3";
    if !Path::new(interpreter).exists() {
        println!("SKIP: no {interpreter}");
        return None;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = before_others();
    command.args([env!("CARGO_BIN_EXE_whither"), "causal", "--json"]).args(args).args(["--", interpreter]);
    command.arg(root.join("tests/live/causal_live").join(script)).args(words).arg(root.join("../../python"));
    Some(ran(&command.output().expect("sh runs")))
}

/// Measures a running process for so many seconds.
pub(crate) fn attach(args: &[&str], seconds: u32, pid: u32) -> Ran {
    let mut command = before_others();
    command.args([env!("CARGO_BIN_EXE_whither"), "causal", "--json", "-p", &pid.to_string()]);
    ran(&command.args(["-d", &format!("{seconds}s")]).args(args).output().expect("sh runs"))
}

/// Starts a program by itself.
pub(crate) fn start(words: &[&str]) -> Child {
    let mut command = before_others();
    command.arg(workload(&format!("causal-{}", words[0]))).args(&words[1..]).stdout(Stdio::piped());
    command.spawn().expect("sh runs")
}

/// Words follow that are run before all else on the machine, and not for ever. The kernel shares CPUs out by
/// sessions first (autogroup), then by niceness.
fn before_others() -> Command {
    let mut command = Command::new("setsid");
    let script = "echo -19 2>/dev/null >/proc/self/autogroup; exec nice -n -19 timeout -s KILL \"$0\" \"$@\"";
    command.args(["-w", "sh", "-c", script, LIMIT]).stdin(Stdio::null());
    command.env("LC_ALL", "C").env("NO_COLOR", "1").env_remove("WHITHER_DB");
    command
}

fn ran(output: &Output) -> Ran {
    let stdout = text(&output.stdout);
    let code = output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0));
    assert!(code != 137, "no end within {LIMIT} s:\n{}", text(&output.stderr));
    Ran { code, answer: document(&stdout), stdout, stderr: text(&output.stderr) }
}

/// The JSON document between what the program prints.
fn document(stdout: &str) -> Value {
    let starts =
        stdout.match_indices('{').map(|(at, _)| at).filter(|at| *at == 0 || stdout.as_bytes()[at - 1] == b'\n');
    let read = |at| serde_json::Deserializer::from_str(&stdout[at..]).into_iter::<Value>().next()?.ok();
    starts.filter_map(read).find(Value::is_object).unwrap_or(Value::Null)
}

/// Whether a program was built; says so if not.
#[allow(clippy::print_stdout, reason = "a skip must be seen")]
pub(crate) fn built(name: &str) -> bool {
    let there = Path::exists(&workload(&format!("causal-{name}")));
    if !there {
        println!("SKIP: causal-{name} is not built: its compiler or linker is not installed");
    }
    there
}

impl Ran {
    /// The row of a target, by function name; with a `.` or `:` in it, by `file:line`.
    pub(crate) fn target(&self, name: &str) -> &Value {
        let rows = self.answer["targets"].as_array().map_or(&[][..], Vec::as_slice);
        let place = |row: &Value| format!("{}:{}", row["file"].as_str().unwrap_or_default(), row["line"]);
        let is = |row: &&Value| row["name"] == name || (name.contains(':') && place(row).ends_with(name));
        let told: Vec<_> = rows.iter().map(|r| (&r["name"], &r["line"], &r["verdict"])).collect();
        rows.iter().find(is).unwrap_or_else(|| panic!("no target {name} in {told:?}; {}", self.told()))
    }

    /// Kind of a target's verdict.
    pub(crate) fn verdict(&self, name: &str) -> &str {
        self.target(name)["verdict"]["kind"].as_str().expect("a verdict has a kind")
    }

    /// The fitted effect on the time per visit at an amount, in percentage points.
    pub(crate) fn fitted(&self, name: &str, percent: f64) -> f64 {
        let fit = &self.target(name)["fit"];
        let number = |key: &str| fit[key].as_f64();
        let knee = number("knee").unwrap_or(100.0);
        let before = number("slope").expect("a fit has a slope") * percent.min(knee);
        before + number("slope_after").unwrap_or(0.0) * (percent - knee).max(0.0)
    }

    /// `(percent, effect in points, truth in points)` by measured amount.
    pub(crate) fn points(&self, name: &str, truth: Curve) -> Vec<(f64, f64, f64)> {
        let curve = self.target(name)["curve"].as_array().expect("a target has a curve");
        let point = |p: &Value| (p["percent"].as_f64().unwrap_or(0.0), 100.0 * p["y"].as_f64().unwrap_or(f64::NAN));
        let measured = curve.iter().map(point).filter(|(percent, _)| *percent > 0.0);
        measured.map(|(percent, y)| (percent, y, truth.at(percent))).collect()
    }

    /// Half of the intervals' width in points, on average, and how many of them lie further from the truth than they are
    /// wide.
    fn scatter(&self, name: &str, truth: Curve) -> (f64, usize) {
        let curve = self.target(name)["curve"].as_array().expect("a target has a curve");
        let number = |p: &Value, key: &str| 100.0 * p[key].as_f64().unwrap_or(f64::NAN);
        let measured: Vec<&Value> = curve.iter().filter(|p| p["percent"].as_f64() > Some(0.0)).collect();
        let half = |p: &Value| (number(p, "high") - number(p, "low")) / 2.0;
        let is_far = |p: &&&Value| {
            let t = truth.at(p["percent"].as_f64().unwrap_or(0.0));
            t < number(p, "low") - half(p) || t > number(p, "high") + half(p)
        };
        let all: f64 = measured.iter().map(|p| half(p)).sum();
        (all / measured.len().max(1) as f64, measured.iter().filter(is_far).count())
    }

    /// The curve is the true one, and was measured at all. Where the tool itself says that it knows no better than the bar, its
    /// intervals alone are looked at, and that counts as skipped.
    #[allow(clippy::print_stdout, reason = "a skip must be seen")]
    pub(crate) fn assert_curve(&self, name: &str, truth: Curve, bar: Bar) {
        let points = self.points(name, truth);
        let row = self.target(name);
        let shown: Vec<String> = points.iter().map(|(s, y, t)| format!("{s}:{y:.1}({t:.1})")).collect();
        let why = format!("{name}: {} fit {}; {}", shown.join(" "), row["fit"], self.told());
        assert!(points.len() >= 4, "too few amounts: {why}");
        assert!(row["zero_windows"].as_u64() >= Some(4), "too few windows without speed-up: {why}");
        let (half, far) = self.scatter(name, truth);
        if half > bar.mean {
            assert!(far <= 1, "{far} intervals are far from the truth: {why}");
            println!(
                "SKIP: {name}: windows of this program scatter by {half:.1} points here, more than the bar of {}",
                bar.mean
            );
            return;
        }
        let mean = points.iter().map(|(_, y, t)| (y - t).abs()).sum::<f64>() / points.len() as f64;
        assert!(mean <= bar.mean, "mean error {mean:.1} points over {}: {why}", bar.mean);
        for percent in [20.0, 40.0, 60.0, 80.0] {
            let (fitted, true_y) = (self.fitted(name, percent), truth.at(percent));
            let apart = (fitted - true_y).abs();
            assert!(apart <= bar.most, "fit at {percent} %: {fitted:.1}, truth {true_y:.1}: {why}");
        }
    }

    /// What others on the machine did to this run, if it was too much: the tool has to say so itself, and refuses
    /// to judge; curves stand all the same while enough windows are left.
    pub(crate) fn disturbed(&self) -> Option<&str> {
        let warnings = self.answer["warnings"].as_array().map_or(&[][..], Vec::as_slice);
        warnings.iter().filter_map(Value::as_str).find(|w| w.contains("other work on the machine"))
    }

    /// Whether others left too few windows for a curve; says so. Nothing else may make windows few.
    #[allow(clippy::print_stdout, reason = "a skip must be seen")]
    pub(crate) fn spoilt(&self) -> bool {
        let spoilt = if self.answer.is_object() {
            let kept = self.answer["windows"]["kept"].as_u64().unwrap_or(0);
            let dropped = self.answer["dropped"].as_array().map_or(&[][..], Vec::as_slice);
            let foreign = dropped.iter().filter(|d| d["reason"] == "foreign-load" || d["reason"] == "steal");
            kept < 25 && foreign.filter_map(|d| d["n"].as_u64()).sum::<u64>() > kept
        } else {
            let taken = ["others used the CPUs", "the hypervisor used the CPUs"];
            self.stderr.contains("none of the") && taken.iter().any(|why| self.stderr.contains(why))
        };
        if spoilt {
            println!("SKIP: others on this machine used the CPUs, and left too few windows for a curve");
        }
        spoilt
    }

    /// The verdict is one of these, or none for a stated reason: that others disturbed the machine.
    pub(crate) fn assert_verdict(&self, name: &str, allowed: &[&str]) {
        let verdict = self.verdict(name);
        if verdict == "cannot-say" && self.disturbed().is_some() {
            return;
        }
        let row = self.target(name);
        assert!(allowed.contains(&verdict), "{name}: {verdict} ({}), not {allowed:?}; {}", row["reason"], self.told());
    }

    /// For messages of failed tests.
    pub(crate) fn told(&self) -> String {
        let a = &self.answer;
        format!(
            "windows {}, dropped {}, warnings {}, notes {}, exit {}\n{}",
            a["windows"], a["dropped"], a["warnings"], a["notes"], self.code, self.stderr
        )
    }
}
