//! A program of `rounds.c` under the causal back end: builds and starts it, opens windows, compares the
//! curve with what it must be. The program goes before everything else on the machine, so that other load takes little
//! from it (but not as a real-time program: those are never delayed); windows that lost more than a share all the
//! same are taken again.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use whither_image::UnwindRows;
use whither_image::bytes::Bytes;
use whither_kernel::proc;
use whither_sample::causal::{Armed, CausalBpf, CausalConfig, CausalModule, Facts, Hook, Unit};

const WINDOW: Duration = Duration::from_millis(450);
const AMOUNTS: [u8; 3] = [25, 50, 100];

/// What the reduction of the time between visits must be, as a function of the amount.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Curve {
    /// Slope.
    Line(f64),
    /// Slope, and the largest value.
    Until {
        /// Of the line through 0.
        slope: f64,
        /// Where another resource limits.
        most: f64,
    },
    /// As much as the time is reduced, until what the other thread has to compute in a round is left. That is
    /// measured in windows of 0 %: it depends on what the cores share.
    UntilTheOther,
}

impl Curve {
    fn at(self, amount: f64, zero: &Sum) -> f64 {
        match self {
            Self::Line(slope) => slope * amount,
            Self::Until { slope, most } => (slope * amount).min(most),
            Self::UntilTheOther => amount.min(1.0 - zero.other_ns / zero.wall_ns),
        }
    }
}

/// Virtual time and intervals between visits, added up.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    virtual_ns: f64,
    intervals: f64,
    wall_ns: f64,
    /// Run time outside the target.
    other_ns: f64,
}

impl Sum {
    fn add(&mut self, facts: &Facts, target: &Armed) {
        let mine = if matches!(target, Armed::Code { .. }) { facts.hits } else { 0 };
        self.other_ns += (facts.samples.saturating_sub(mine) * facts.unit_ns) as f64;
        self.wall_ns += facts.wall_ns as f64;
        let v = facts.visits[0];
        self.virtual_ns += (v.last_virtual_ns - v.first_virtual_ns) as f64;
        self.intervals += v.visits as f64 - 1.0;
    }

    fn period(&self) -> f64 {
        self.virtual_ns / self.intervals
    }
}

impl std::iter::Sum for Sum {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |a, b| Self {
            virtual_ns: a.virtual_ns + b.virtual_ns,
            intervals: a.intervals + b.intervals,
            wall_ns: a.wall_ns + b.wall_ns,
            other_ns: a.other_ns + b.other_ns,
        })
    }
}

/// Words follow that are run before all else on the machine. The kernel shares CPUs out by sessions first
/// (autogroup), then by niceness.
fn before_others() -> Command {
    let mut command = Command::new("setsid");
    let script = "echo -19 2>/dev/null >/proc/self/autogroup; exec chrt -o 0 nice -n -19 \"$0\" \"$@\"";
    command.args(["sh", "-c", script]);
    command
}

/// This process itself, which opens and closes the windows in time.
fn in_time() {
    let given = Command::new("chrt").args(["-f", "-a", "-p", "2", &std::process::id().to_string()]).status();
    assert!(given.unwrap().success());
}

pub(crate) struct Bench {
    pub(crate) bpf: CausalBpf,
    pub(crate) pid: u32,
    /// Share of a window that others may have kept its threads waiting for. Each wake-up is such a wait.
    pub(crate) disturbed: f64,
    /// How far a curve may be from the truth, as a share of the time between visits.
    pub(crate) bar: f64,
    program: PathBuf,
    child: Child,
    _dir: tempfile::TempDir,
}

impl Drop for Bench {
    fn drop(&mut self) {
        // It runs until it is killed; a failure means that it is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Bench {
    /// The running program under an open back end; `None` (and a word) where that cannot be.
    pub(crate) fn start(what: &str, threads: u32, us1: u64, us2: u64) -> Option<Self> {
        // Delays as long as a tick: how far clocks can be kept together is not what is tested here.
        let config = CausalConfig { cap_ns: 1_000_000, ..CausalConfig::default() };
        if proc::online_cpus().len() < 2 && threads > 1 {
            println!("SKIP: two threads need two CPUs");
            return None;
        }
        let mut bpf = match CausalBpf::open(&config) {
            Ok(bpf) => bpf,
            Err(e) if e.is_refusal() => {
                println!("SKIP: BPF is not allowed here: {e}");
                return None;
            }
            Err(e) => panic!("{e}"),
        };
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("rounds");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/causal/rounds.c");
        let built = Command::new("cc")
            .args(["-O1", "-g", "-no-pie", "-fno-omit-frame-pointer", "-fno-ipa-icf", "-pthread", "-o"])
            .args([program.as_os_str(), source.as_ref()])
            .status()
            .unwrap();
        assert!(built.success());
        in_time();
        let mut child = before_others()
            .arg(&program)
            .args([what.to_owned(), threads.to_string(), us1.to_string(), us2.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let pid = child.id();
        bpf.watch(pid).unwrap();
        let mut this = Self { bpf, pid, disturbed: 0.05, bar: 0.06, program, child, _dir: dir };
        this.map();
        let at = this.symbol("progress").0;
        let offset = this.file_offset(at);
        let hook = Hook::Uprobe { file: this.program.clone(), offset, pid: None };
        assert_eq!(this.bpf.point(&hook).unwrap(), 0);
        Some(this)
    }

    fn map(&mut self) {
        let mut modules = Vec::new();
        for (key, m) in (0..).zip(proc::executable_mappings(self.pid)) {
            let Ok(bytes) = std::fs::read(&m.path) else { continue };
            let rows = Arc::new(UnwindRows::from_elf(&Bytes::from(bytes)).unwrap());
            let in_scope = m.path == self.program.to_string_lossy();
            let base = m.start - m.offset;
            modules.push(CausalModule { start: m.start, end: m.end, base, in_scope, rows, key });
        }
        assert!(modules.iter().any(|m| m.in_scope) && modules.len() > 1, "{}", modules.len());
        self.bpf.map(self.pid, &modules).unwrap();
    }

    fn file_offset(&self, address: u64) -> u64 {
        let all = proc::executable_mappings(self.pid);
        let m = all.iter().find(|m| m.start <= address && address < m.end).unwrap();
        address - m.start + m.offset
    }

    /// Address range of a function: the program does not move.
    pub(crate) fn symbol(&self, name: &str) -> (u64, u64) {
        let out = Command::new("nm").arg("-S").arg(&self.program).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let line = text.lines().find(|l| l.ends_with(&format!(" {name}"))).unwrap();
        let mut words = line.split(' ').map(|w| u64::from_str_radix(w, 16).unwrap_or(0));
        let (start, size) = (words.next().unwrap(), words.next().unwrap());
        (start, start + size)
    }

    pub(crate) fn code(&self, name: &str, unit: Unit) -> Armed {
        let (start, end) = self.symbol(name);
        Armed::Code { unit, ranges: vec![(self.pid, start, end)], callers: Vec::new() }
    }

    /// One window.
    pub(crate) fn window(&mut self, target: &Armed, percent: u8) -> Facts {
        self.bpf.arm(target).unwrap();
        self.bpf.begin(percent).unwrap();
        let until = Instant::now() + WINDOW;
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
            self.bpf.beat();
        }
        let facts = self.bpf.end().unwrap();
        self.bpf.samples(&mut |_| {});
        if std::env::var_os("WHITHER_CAUSAL_VERBOSE").is_some() {
            println!("{percent:3} {facts:?}");
        }
        facts
    }

    fn quiet_window(&mut self, target: &Armed, percent: u8) -> Option<Facts> {
        for _ in 0..15 {
            let facts = self.window(target, percent);
            if facts.foreign_wait_ns as f64 <= self.disturbed * facts.wall_ns as f64 && facts.visits[0].visits > 2 {
                return Some(facts);
            }
            assert!(facts.visits[0].visits > 0, "the program makes no progress");
        }
        None
    }

    /// Means over windows of each amount, zeros between them, so that drift hits all alike.
    fn curve(&mut self, target: &Armed, truth: Curve, repeats: usize) -> Option<Vec<Point>> {
        let mut windows: BTreeMap<u8, Vec<Sum>> = BTreeMap::new();
        for _ in 0..repeats {
            for amount in AMOUNTS.into_iter().chain([0]) {
                let facts = self.quiet_window(target, amount)?;
                let mut sum = Sum::default();
                sum.add(&facts, target);
                windows.entry(amount).or_default().push(sum);
            }
        }
        let zero = &windows[&0];
        Some(windows.iter().filter(|w| *w.0 > 0).map(|(amount, w)| Point::of(*amount, w, zero, truth)).collect())
    }

    /// Within the bar of the truth at every amount. A second look of three times the length decides when
    /// the first one is off: other load on the machine comes in bursts. Off means by more than what windows of the
    /// same amount differ by: on a machine whose speed changes from one moment to the next that may be more than the bar,
    /// and then nothing was tested.
    pub(crate) fn check(&mut self, target: &Armed, truth: Curve) {
        let mut off = Vec::new();
        for repeats in [3, 9] {
            let Some(curve) = self.curve(target, truth, repeats) else {
                println!("SKIP: others take too much of this machine");
                return;
            };
            println!("{truth:?}: {curve:.3?}");
            off = curve.into_iter().filter(|p| p.apart() >= self.bar).collect();
            if off.is_empty() {
                return;
            }
        }
        if off.iter().all(|p| p.apart() - 2.0 * p.error < self.bar) {
            println!("SKIP: the speed of this machine changes too much from one moment to the next");
            return;
        }
        panic!("off from {truth:?} for {target:?}: {off:.3?}");
    }
}

/// One amount of a curve.
#[derive(Debug)]
struct Point {
    /// Percent.
    _amount: u8,
    measured: f64,
    truth: f64,
    /// Standard error of `measured - truth`, by leaving out each round of windows in turn.
    error: f64,
}

impl Point {
    fn of(amount: u8, windows: &[Sum], zero: &[Sum], truth: Curve) -> Self {
        let n = windows.len();
        let without = |left_out: usize| {
            let all = |w: &[Sum]| w.iter().enumerate().filter(|(i, _)| *i != left_out).map(|(_, s)| *s).sum::<Sum>();
            let (sum, zero) = (all(windows), all(zero));
            (1.0 - sum.period() / zero.period(), truth.at(f64::from(amount) / 100.0, &zero))
        };
        let (measured, true_value) = without(n);
        let square = |i| (without(i).0 - without(i).1 - measured + true_value).powi(2);
        let error = ((0..n).map(square).sum::<f64>() * (n as f64 - 1.0) / n as f64).sqrt();
        Self { _amount: amount, measured, truth: true_value, error }
    }

    fn apart(&self) -> f64 {
        (self.measured - self.truth).abs()
    }
}
