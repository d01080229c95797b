//! The life of a session: launch behind the gate or attach, points in place, then experiments until the target
//! ends, the time is over or the user has seen enough; short commands again and again. It always ends with
//! what was measured, or with the reason why nothing was.

mod changeover;
mod ending;
mod places;
mod ticks;

use super::alive::Alive;
use super::alone::Alone;
use super::disturb::Disturbers;
use super::executor::CausalExecutor;
use super::group::Group;
use super::input::Input;
use super::nap;
use super::options::{
    CausalBackEnd, CausalEnd, CausalEvent, CausalOptions, CausalOutcome, CausalWhom, ExecutorChoice, Runs,
};
use super::pace::Pace;
use super::policy::{CausalPolicy, Step};
use super::window::{self, Limits, Observed};
use super::words::PointPlace;
use crate::{SessionError, StopFlag};
use changeover::Changeover;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::{Duration, Instant};
use whither_kernel::{clock, proc};
use whither_sample::SampleError;
use whither_sample::causal::{CausalBpf, CausalConfig, Loads};
use whither_store::causal::{Executor, FromOutside, PointKind, PointVisits, Turns, Window};

/// A command that ends sooner is run again unless the user says how often.
const SHORT: Duration = Duration::from_secs(2);
/// Runs of a short command.
const RUNS: u32 = 30;
/// Everything so far is told this often to those who watch, and what points cost is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Without a sample in the program's code, or in the target, it is told after so long.
const UNSEEN: Duration = Duration::from_secs(5);
const UNSEEN_TARGET: Duration = Duration::from_secs(2);
/// Who else uses the machine is looked at this often: it takes a look at every process.
const BLAME: Duration = Duration::from_secs(5);
/// Warming up is cut into pieces, so that enough samples end it.
const WARM: u64 = 50_000_000;
/// Samples from which on what was never seen is not there.
const MANY: u64 = 50;

/// Runs a session on this thread.
///
/// # Errors
/// Why it could not be; a process attached to runs on as before.
pub fn run(
    options: &CausalOptions,
    policy: &mut dyn CausalPolicy,
    stop: &StopFlag,
    on: &mut dyn FnMut(CausalEvent),
) -> Result<CausalOutcome, SessionError> {
    // What can never be measured is refused before anything is loaded.
    if proc::is_realtime_kernel() {
        return Err(SessionError::RealtimeKernel);
    }
    if let CausalWhom::Process(pid) = &options.whom {
        Alive::pausable(*pid)?;
    }
    let config = CausalConfig {
        period_ns: nanos(options.period),
        cap_ns: nanos(options.cap),
        tick_ns: CausalConfig::default().tick_ns.min(nanos(options.cap)),
        kernel_time: options.kernel_time,
        follow_forks: options.follow,
    };
    let _only = only_one()?;
    let ordered = Instant::now();
    let chosen = back_end(options, &config)?;
    let mut session = Session::new(options, chosen.exec, config);
    session.ordered = ordered;
    if chosen.executor == Executor::Agent {
        session.by_agent();
    }
    if let Some(note) = chosen.note {
        session.tell(note, on);
    }
    session.run(policy, stop, on)
}

/// A back end, and what is to be said of it.
struct Chosen {
    exec: Box<dyn CausalExecutor>,
    executor: Executor,
    note: Option<String>,
}

/// The back end asked for, or the best one that the rights allow.
fn back_end(options: &CausalOptions, config: &CausalConfig) -> Result<Chosen, SessionError> {
    if options.back_end == CausalBackEnd::Agent {
        return alone(options, config, None);
    }
    match CausalBpf::open(config) {
        Ok(exec) => Ok(Chosen { exec: Box::new(exec), executor: first_executor(options.executor), note: None }),
        Err(error) if may_do_without(options, &error) => {
            let note = format!(
                "BPF is not allowed here ({error}): threads sample themselves, by an agent in the program (--backend agent), \
                 and of waits that they end for one another those at futexes are seen"
            );
            alone(options, config, Some(note))
        }
        Err(error) => Err(refused(error)),
    }
}

/// How delays are made at the beginning.
fn first_executor(asked: ExecutorChoice) -> Executor {
    match asked {
        ExecutorChoice::Sleep => Executor::Sleep,
        ExecutorChoice::Auto | ExecutorChoice::Spin => Executor::Spin,
    }
}

fn may_do_without(options: &CausalOptions, error: &SampleError) -> bool {
    options.back_end == CausalBackEnd::Auto && options.executor == ExecutorChoice::Auto && error.is_refusal()
}

fn alone(options: &CausalOptions, config: &CausalConfig, note: Option<String>) -> Result<Chosen, SessionError> {
    let (what, instead) = match options {
        _ if options.end_to_end => ("comparing whole runs (--end-to-end)", "Name a progress point"),
        _ if !options.waits.is_empty() => ("speeding up waits (--off-cpu)", "Leave waits out"),
        _ => return Ok(Chosen { exec: Box::new(Alone::new(config)), executor: Executor::Agent, note }),
    };
    Err(SessionError::Missing {
        what: what.into(),
        why: "the back end without BPF measures windows of running code only".into(),
        remedy: format!("{instead}, or run with the rights for BPF."),
    })
}

/// Delays of two sessions would add up on the CPUs they share. The lock goes with the process, however it ends.
fn only_one() -> Result<UnixListener, SessionError> {
    let name = SocketAddr::from_abstract_name("whither-causal").and_then(|name| UnixListener::bind_addr(&name));
    name.map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => SessionError::Busy,
        _ => SessionError::Sample(SampleError::Bpf {
            what: "making sure that this is the only session",
            why: e.to_string(),
        }),
    })
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Missing rights get their remedy.
pub(super) fn refused(error: SampleError) -> SessionError {
    SessionError::Rights {
        what: "causal profiling".into(),
        why: error.to_string(),
        remedy:
            "It needs BPF: run as root, or give the binary CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE; 'whither doctor' \
                 tells what these rights allow. Programs of your own can be measured without: --backend agent."
                .into(),
    }
}

/// See the module.
pub(super) struct Session<'a> {
    options: &'a CausalOptions,
    config: CausalConfig,
    group: Group,
    windows: Vec<Window>,
    turns: Vec<Turns>,
    asked: Vec<FromOutside>,
    /// Windows in which a clock paced the first point.
    paced: usize,
    rates: Vec<f64>,
    stratum: u32,
    runs: u32,
    threads: u32,
    /// How delays are inserted.
    executor: Executor,
    executor_reason: String,
    changeover: Changeover,
    pace: Pace,
    /// What had been delayed in another way before.
    spun: Loads,
    /// When the user gave the order: loading the kernel side takes time, too.
    ordered: Instant,
    began: Instant,
    began_ns: u64,
    /// When measuring ended, where the command went on.
    ended: Option<Instant>,
    first_window: Option<Instant>,
    last_window: Option<Instant>,
    others: Disturbers,
    looked: Instant,
    /// When it was last seen what points cost.
    priced: Option<Instant>,
    blamed: Instant,
    end: CausalEnd,
    pid: u32,
    visits: Vec<u64>,
    observed_ns: u64,
    /// The command line of a process attached to is read while it lives.
    command: String,
}

impl<'a> Session<'a> {
    pub(super) fn new(options: &'a CausalOptions, exec: Box<dyn CausalExecutor>, config: CausalConfig) -> Self {
        let (changeover, executor_reason) = Changeover::new(options.executor);
        Self {
            options,
            config,
            group: Group::new(options, exec),
            windows: Vec::new(),
            turns: Vec::new(),
            asked: Vec::new(),
            paced: 0,
            rates: Vec::new(),
            stratum: 0,
            runs: 0,
            threads: 0,
            executor: first_executor(options.executor),
            executor_reason,
            changeover,
            pace: Pace::default(),
            spun: Loads::default(),
            ordered: Instant::now(),
            began: Instant::now(),
            began_ns: clock::wall_ns(),
            ended: None,
            first_window: None,
            last_window: None,
            others: Disturbers::default(),
            looked: Instant::now(),
            priced: None,
            blamed: Instant::now(),
            end: CausalEnd::Target,
            pid: 0,
            visits: Vec::new(),
            observed_ns: 0,
            command: String::new(),
        }
    }

    /// Threads delay themselves: there is nothing to choose.
    fn by_agent(&mut self) {
        (self.executor, self.changeover) = (Executor::Agent, Changeover::Made);
        self.executor_reason = "the back end without BPF".into();
    }

    pub(super) fn run(
        mut self,
        policy: &mut dyn CausalPolicy,
        stop: &StopFlag,
        on: &mut dyn FnMut(CausalEvent),
    ) -> Result<CausalOutcome, SessionError> {
        self.group.place_kernel_points()?;
        let limits = Limits { stop, deadline: self.options.duration.map(|d| self.began + d) };
        let mut status = None;
        let input = Input::of(std::io::stdin());
        loop {
            let mut alive = match self.start(stop) {
                Ok(alive) => alive,
                Err(error) if self.runs == 0 => return Err(error),
                // What earlier runs have told stays true.
                Err(SessionError::Interrupted) => {
                    self.end = CausalEnd::Stopped;
                    break;
                }
                Err(error) => {
                    self.tell(format!("measuring ended early: {error}"), on);
                    break;
                }
            };
            self.pid = alive.pid;
            let began = Instant::now();
            let lived = self.one_run(&mut alive, policy, &limits, on);
            if let Err(error) = lived {
                // Refused before anything was measured: the command was started for nothing.
                if self.windows.is_empty() {
                    self.stop_again(&mut alive, on);
                    return Err(error);
                }
                self.tell(format!("measuring ended early: {error}"), on);
            }
            self.runs += 1;
            let over = alive.is_over();
            if !over && alive.is_ours() {
                // A command that goes on does so undisturbed.
                self.group.exec.detach();
                self.group.let_go();
                self.ended = Some(Instant::now());
                status = self.leave(alive, stop, on);
                break;
            }
            status = alive.status().or(status);
            if !over
                || limits.are_reached()
                || self.end != CausalEnd::Target
                || !self.again(began.elapsed(), status.is_some_and(|s| s != 0), on)
            {
                if limits.stop.is_set() {
                    self.end = CausalEnd::Stopped;
                }
                break;
            }
            if !input.again(std::io::stdin()) {
                let once =
                    "the command reads from a pipe, which later runs would find empty: it is run once; give it a file";
                self.tell(once.to_owned(), on);
                break;
            }
            on(CausalEvent::Run { number: self.runs + 1 });
        }
        self.group.let_go();
        Ok(self.finish(status, on))
    }

    /// Whether the command is run once more.
    fn again(&mut self, took: Duration, failed: bool, on: &mut dyn FnMut(CausalEvent)) -> bool {
        if !matches!(self.options.whom, CausalWhom::Command(_)) {
            return false;
        }
        match self.options.runs {
            Runs::Times(n) => self.runs < n,
            // One that fails does not get better by being repeated.
            Runs::Auto if failed => {
                if took < SHORT {
                    let text = "the command failed, so it is not repeated by itself; if its status means no failure, say how \
                                often with -n";
                    self.tell(text.to_owned(), on);
                }
                false
            }
            // Nor one that never ran what was asked for.
            Runs::Auto if self.misses_target() || self.misses_point() => false,
            Runs::Auto if took >= SHORT && self.runs == 1 && !self.is_whole() => false,
            Runs::Auto => {
                if self.runs == 1 {
                    let took = took.as_secs_f64();
                    self.tell(format!("the command took {took:.2} s: it is run up to {RUNS} times (-n)"), on);
                }
                self.runs < RUNS
            }
        }
    }

    /// Whether a target was named and no sample of a good many lies in it.
    fn misses_target(&self) -> bool {
        !self.options.targets.is_empty() && self.group.in_scope == 0 && self.group.sampled >= MANY
    }

    /// Whether the program ran for a good many samples and reached none of its points: it will not the next time.
    fn misses_point(&self) -> bool {
        let named = self.group.points.iter().any(|p| p.kind != PointKind::End);
        named && self.group.sampled >= MANY && !self.has_visits()
    }

    /// Whether any point was reached so far.
    fn has_visits(&self) -> bool {
        self.windows.iter().any(|w| w.visits.iter().any(|v| v.visits > 0)) || self.rates.iter().any(|r| *r > 0.0)
    }

    fn tell(&mut self, text: String, on: &mut dyn FnMut(CausalEvent)) {
        if self.group.note(text.clone()) {
            on(CausalEvent::Note(text));
        }
    }

    /// A target that is watched from its first instruction, or from now.
    fn start(&mut self, stop: &StopFlag) -> Result<Alive, SessionError> {
        let words = match &self.options.whom {
            CausalWhom::Process(pid) => {
                let alive = Alive::attached(*pid)?;
                self.watch_running(*pid)?;
                // Without BPF one process is measured.
                if self.options.follow && self.executor != Executor::Agent {
                    self.watch_children(*pid)?;
                }
                self.command = command_of(*pid);
                if self.wants_marks() {
                    self.group.coz.attached(*pid);
                }
                return Ok(alive);
            }
            CausalWhom::Command(words) => words,
        };
        self.command = words.join(" ");
        let executable = self.options.executable.as_deref().filter(|_| self.wants_marks());
        let held = self.group.coz.hold(words, executable)?;
        if self.group.coz.are_counted() {
            self.group.note(
                "the program's marks of Coz count in a library of whither's that was preloaded into it".to_owned(),
            );
        }
        self.group.exec.watch(held.pid())?;
        if let Some(path) = &self.options.executable {
            self.group.place_before(path)?;
        }
        if stop.is_set() {
            // The held child ends with its gate.
            return Err(SessionError::Interrupted);
        }
        Ok(Alive::launched(held.release()?))
    }

    /// Whether marks in the source may be points.
    fn wants_marks(&self) -> bool {
        self.options.marks || self.group.points.iter().any(|p| matches!(p.spec.place, PointPlace::Mark(_)))
    }

    fn watch_running(&mut self, pid: u32) -> Result<(), SessionError> {
        if let Some(told) = nap::take_back(pid) {
            self.group.note(told);
        }
        self.group.exec.watch(pid)
    }

    /// Those that a process has already, which do the work of servers that fork ahead; of those it makes from now on the kernel tells.
    fn watch_children(&mut self, pid: u32) -> Result<(), SessionError> {
        for child in proc::children(pid).into_iter().filter(|child| *child != std::process::id()) {
            match Alive::pausable(child) {
                Ok(()) => self.watch_running(child)?,
                // It has ended meanwhile.
                Err(_) if !proc::runs(child) => continue,
                Err(why) => {
                    self.group.note(format!("a child is left out: {why}"));
                }
            }
            self.watch_children(child)?;
        }
        Ok(())
    }

    /// From a running target to its end, or that of the measuring.
    fn one_run(
        &mut self,
        alive: &mut Alive,
        policy: &mut dyn CausalPolicy,
        limits: &Limits<'_>,
        on: &mut dyn FnMut(CausalEvent),
    ) -> Result<(), SessionError> {
        self.group.look_now(&[])?;
        self.find_points(alive, policy, limits, on)?;
        self.pairs_have_times()?;
        if self.group.points.is_empty() {
            self.end = CausalEnd::Stopped;
            return Ok(());
        }
        if self.executor == Executor::Agent && self.is_whole() {
            return Err(SessionError::Missing {
                what: "comparing whole runs".into(),
                why: "the back end without BPF needs a progress point, and none was named or found".into(),
                remedy: "Name one with --progress, or run with the rights for BPF.".into(),
            });
        }
        if self.runs == 0 {
            self.find_target(alive, policy, limits)?;
            self.others.look(&self.group.processes);
            if let Some(cpus) = proc::cpu_quota(alive.pid) {
                self.group.note(format!(
                    "the program may use {cpus:.1} CPUs at the most (cpu.max of its cgroup): delays count as its time, and when \
                     that is used up it stands still; raise the quota while measuring"
                ));
            }
            let points = self.group.points.iter().map(|p| p.spec.text.clone()).collect();
            on(CausalEvent::Started { pid: alive.pid, points, after: self.ordered.elapsed() });
        }
        while !alive.is_over() {
            if limits.are_reached() {
                self.end = if limits.stop.is_set() { CausalEnd::Stopped } else { CausalEnd::Time };
                break;
            }
            self.group.learn()?;
            self.group.look()?;
            if !self.step(alive, policy, limits, on)? {
                break;
            }
            self.points_are_cheap()?;
            self.told(on);
        }
        Ok(())
    }

    /// Does what the policy says; whether it goes on.
    fn step(
        &mut self,
        alive: &mut Alive,
        policy: &mut dyn CausalPolicy,
        limits: &Limits<'_>,
        on: &mut dyn FnMut(CausalEvent),
    ) -> Result<bool, SessionError> {
        if self.change_over(alive, policy, limits, on)? || self.set_ticks(alive, policy, limits, on)? {
            return Ok(true);
        }
        match policy.next(clock::monotonic_ns(), &self.rates) {
            Step::Warm { ns } => {
                // A whole run that is only watched tells what there is to speed up.
                let ns = if self.is_whole() { u64::MAX / 4 } else { ns.clamp(1_000_000, WARM) };
                self.observe(ns, alive, policy, limits)?;
            }
            Step::Rest { ns } => {
                let until = Instant::now() + Duration::from_nanos(ns);
                while Instant::now() < until && !alive.is_over() && !limits.are_reached() {
                    let left = until.saturating_duration_since(Instant::now());
                    alive.sleep(left.min(Duration::from_millis(10)));
                    // Not part of the plain time: that is the time of windows.
                    self.group.drain(policy, self.stratum, false);
                }
            }
            Step::Window(order) => {
                self.first_window.get_or_insert_with(Instant::now);
                self.stratum = order.stratum;
                let made = window::make(&mut self.group, &order, self.runs, policy, alive, limits)?;
                self.last_window = Some(Instant::now());
                if let Some(window::Made { window: made, paced, turns, asked, seen, met }) = made {
                    self.paced += usize::from(paced);
                    if made.percent > 0 && made.dropped.is_none() {
                        self.took_turns(turns);
                    }
                    // Delays make turns slower.
                    if made.percent == 0 {
                        self.pace.saw(met);
                    }
                    if made.dropped.is_none() {
                        asked.add_to(&mut self.asked);
                        self.saw(seen, (made.percent > 0).then_some(made.target));
                    }
                    policy.finished(&made);
                    self.take_rates(&made.visits, made.wall_ns);
                    self.threads = self.threads.max(made.threads);
                    self.windows.push(made.clone());
                    on(CausalEvent::Window(Box::new(made)));
                }
            }
            Step::Over => {
                self.end = CausalEnd::Time;
                return Ok(false);
            }
            Step::Narrow => {
                self.end = CausalEnd::Narrow;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Watches without speeding anything up.
    fn observe(
        &mut self,
        ns: u64,
        alive: &mut Alive,
        policy: &mut dyn CausalPolicy,
        limits: &Limits<'_>,
    ) -> Result<(), SessionError> {
        let Observed { visits, seen, met } = window::observe(&mut self.group, ns, self.stratum, policy, alive, limits)?;
        self.take_rates(&visits, seen.wall_ns);
        self.saw(seen, None);
        self.pace.saw(met);
        Ok(())
    }

    fn took_turns(&mut self, new: Turns) {
        match self.turns.iter_mut().find(|t| t.target == new.target) {
            Some(all) => all.add(&new),
            None => self.turns.push(new),
        }
    }

    fn is_whole(&self) -> bool {
        self.group.points.iter().any(|p| p.kind == PointKind::End)
    }

    /// Rates that follow slowly: a window is a short time.
    fn take_rates(&mut self, visits: &[PointVisits], wall_ns: u64) {
        self.observed_ns = self.observed_ns.saturating_add(wall_ns);
        self.visits.resize(visits.len(), 0);
        self.rates.resize(visits.len(), 0.0);
        for (i, v) in visits.iter().enumerate() {
            self.visits[i] = self.visits[i].saturating_add(v.visits);
            let now = v.visits as f64 * 1e9 / wall_ns.max(1) as f64;
            self.rates[i] += (now - self.rates[i]) * if self.rates[i] == 0.0 { 1.0 } else { 0.3 };
        }
    }

    fn told(&mut self, on: &mut dyn FnMut(CausalEvent)) {
        if self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        if self.blamed.elapsed() >= BLAME {
            self.blamed = Instant::now();
            self.others.look(&self.group.processes);
        }
        if let Some(path) = self.group.without_lines() {
            self.tell(
                format!(
                    "{path} has no debug information: its functions are targets, its lines are not (compile with -g)"
                ),
                on,
            );
        }
        if let Some(text) = self.nothing_to_speed_up() {
            self.tell(text, on);
        }
        let run = self.described();
        on(CausalEvent::Look(Box::new(run)));
    }

    /// Why there is nothing to try yet.
    fn nothing_to_speed_up(&self) -> Option<String> {
        let age = self.began.elapsed();
        if self.group.sampled > 0 && !self.options.targets.is_empty() {
            let unseen = self.options.targets.iter().find(|t| !self.group.targets.has(t));
            return unseen.filter(|_| age >= UNSEEN_TARGET).map(|target| {
                let like = self.group.like_target(target).map(|like| format!("; {like}")).unwrap_or_default();
                let text = target.text();
                format!("no sample lies in the target {text} yet: is its name right, and does it run?{like}")
            });
        }
        if self.group.in_scope > 0 {
            return None;
        }
        let text = if self.group.sampled == 0 {
            "the program has not run in the last seconds, so there is nothing to speed up yet; --off-cpu all makes its \
             waits targets"
        } else {
            "no sample lies in the program's own code yet; --binary names libraries that count as such"
        };
        (age >= UNSEEN).then(|| text.to_owned())
    }

    /// Ends a command with all that it has begun.
    fn stop_again(&mut self, alive: &mut Alive, on: &mut dyn FnMut(CausalEvent)) {
        if alive.is_ours() && (!alive.is_over() || !self.group.exec.processes().is_empty()) {
            self.tell("the command was stopped again, as nothing could be measured".to_owned(), on);
        }
        let exec = &mut self.group.exec;
        alive.terminate(&mut || exec.processes());
    }

    /// Lets a command run on that was measured long enough.
    fn leave(&mut self, mut alive: Alive, stop: &StopFlag, on: &mut dyn FnMut(CausalEvent)) -> Option<i32> {
        let mut told = false;
        let asked = stop.is_set();
        loop {
            if let Some(status) = alive.status() {
                return Some(status);
            }
            // A Ctrl-C reaches the command too; one that goes on has its reasons.
            if stop.is_urgent() || (asked && told) {
                return None;
            }
            if !told && !asked {
                on(CausalEvent::Waiting { way_out: stop.way_out() });
            }
            told = true;
            alive.sleep(Duration::from_millis(if asked { 300 } else { 50 }));
        }
    }
}

fn command_of(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = bytes.split(|b| *b == 0).filter(|w| !w.is_empty()).map(String::from_utf8_lossy).collect();
    if words.is_empty() { proc::comm(pid) } else { words.join(" ") }
}
