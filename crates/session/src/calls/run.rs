//! The life of a session: attach or launch, probes in place, then rounds of what happened and what was
//! asked until the target ends, the time is over or a stop is wanted; at last the target is left as it was.

use super::counter::{self, Counter};
use super::desk::{self, Batch, Desk};
use super::instrument::{self, Fate, Instrument};
use super::options::{CallsEvent, CallsOptions, CallsOutcome, CallsTarget, Prospect, refusals};
use super::pattern;
use super::pointed::Pointed;
use super::remarks::{self, Remarks};
use super::steps::{Played, Replay};
use super::wire::Ask;
use crate::{SessionError, StopFlag};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use whither_kernel::end::Mortal;
use whither_kernel::proc;
use whither_probe::resolve::Nothing;
use whither_probe::select::{Pattern, callee};
use whither_probe::{Happening, Order, Pause, Select};
use whither_store::calls::{CallSnapshot, PointState};

/// The longest a question, a key or a Ctrl-C waits.
const ROUND: Duration = Duration::from_millis(50);

/// Runs a session on this thread. `asks` brings questions from within the program (a live screen) beside
/// those from the socket.
///
/// # Errors
/// Why the session could not be; a process attached to then runs as before, a command has not been run.
pub fn run(
    options: &CallsOptions,
    asks: Asks,
    stop: &StopFlag,
    on: &mut dyn FnMut(CallsEvent),
) -> Result<CallsOutcome, SessionError> {
    let start_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let mut outcome = with_engine(options, || begin(options), asks, stop, on)?;
    outcome.start_ns = start_ns;
    Ok(outcome)
}

/// Both ends of the way by which a session is asked.
pub type Asks = (Sender<Ask>, Receiver<Ask>);

/// For [`run`]; keep a clone of the sender to ask from within the program.
#[must_use]
pub fn asks() -> Asks {
    channel()
}

/// The same with any engine.
pub(super) fn with_engine(
    options: &CallsOptions,
    engine: impl FnOnce() -> Result<Box<dyn Instrument>, SessionError>,
    asks: Asks,
    stop: &StopFlag,
    on: &mut dyn FnMut(CallsEvent),
) -> Result<CallsOutcome, SessionError> {
    unless_it_ends(options, || Session::start(options, engine()?, asks, stop, on))?.measure(stop, on)
}

/// What goes wrong with a process that ends meanwhile is told as that: the rest follows from it.
fn unless_it_ends<T>(
    options: &CallsOptions,
    what: impl FnOnce() -> Result<T, SessionError>,
) -> Result<T, SessionError> {
    /// A process that has begun to end is soon done.
    const ENDING: Duration = Duration::from_millis(100);
    let CallsTarget::Process(pid) = options.target else { return what() };
    // Of one that has ended before, it is known better what to say.
    let living = |mortal: &Mortal| mortal.end(Duration::ZERO).is_none();
    let Some(mortal) = Mortal::open(pid).filter(living) else { return what() };
    what().map_err(|error| match error {
        SessionError::Interrupted => error,
        error => mortal.end(ENDING).map_or(error, |end| SessionError::EndedMeanwhile { pid, end }),
    })
}

fn begin(options: &CallsOptions) -> Result<Box<dyn Instrument>, SessionError> {
    match &options.target {
        CallsTarget::Process(pid) => {
            may_measure(options, *pid)?;
            instrument::attach(*pid, options.engine_options())
        }
        CallsTarget::Command(words) => instrument::launch(words, options.engine_options()),
    }
}

/// What can be known before the target is touched.
fn may_measure(options: &CallsOptions, pid: u32) -> Result<(), SessionError> {
    if !proc::exists(pid) {
        return Err(SessionError::NoSuchProcess(pid));
    }
    if counter::sessions(&options.runtime).contains(&pid) {
        return Err(SessionError::CallSessionRuns { pid });
    }
    Ok(())
}

/// Every function that matches, with how it would be probed. Nothing is changed; a command is started,
/// stopped before its `main`, and ended.
///
/// # Errors
/// Why nothing can be said.
pub fn dry_run(options: &CallsOptions) -> Result<Vec<Prospect>, SessionError> {
    unless_it_ends(options, || look(options))
}

fn look(options: &CallsOptions) -> Result<Vec<Prospect>, SessionError> {
    let mut engine = match &options.target {
        CallsTarget::Process(pid) => {
            if !proc::exists(*pid) {
                return Err(SessionError::NoSuchProcess(*pid));
            }
            instrument::look(*pid, options.engine_options())?
        }
        CallsTarget::Command(words) => instrument::launch(words, options.engine_options())?,
    };
    let found = prospects(engine.as_mut(), options);
    engine.abandon();
    found
}

fn prospects(engine: &mut dyn Instrument, options: &CallsOptions) -> Result<Vec<Prospect>, SessionError> {
    let found = engine.resolve(&options.orders)?;
    if found.is_empty() {
        return Err(nothing_matched(engine, options));
    }
    let prospect = |c: whither_probe::Candidate| Prospect {
        module: engine.module(c.module),
        names: if c.names.is_empty() { vec![desk::name_of(&c)] } else { c.names },
        offset: c.offset,
        address: c.address,
        size: c.size,
        patch: c.patch.map_err(|why| why.to_string()),
        cost: c.cost,
        entry_only: c.entry_only,
    };
    Ok(found.into_iter().map(prospect).collect())
}

fn nothing_matched(engine: &mut dyn Instrument, options: &CallsOptions) -> SessionError {
    let near = desk::near(engine, &options.patterns);
    let why = engine.why_nothing(&options.orders).why;
    SessionError::NothingMatched { pid: engine.pid(), patterns: options.patterns.clone(), why, near }
}

fn none_measured(batch: &Batch, pid: u32) -> Option<SessionError> {
    let (name, reason) = batch.refused.first().filter(|_| batch.added.is_empty() && batch.already.is_empty())?.clone();
    Some(SessionError::NoneMeasured { pid, matched: batch.matched, name, reason })
}

struct Session<'a> {
    options: &'a CallsOptions,
    desk: Desk,
    /// Who waits to be told what is called through pointers.
    pointed: Pointed,
    asks: Receiver<Ask>,
    /// Keeps the channel open when no socket could be had.
    _sender: Sender<Ask>,
    _counter: Option<Counter>,
    pid: u32,
    replay: Replay,
    /// When the next summary is due.
    next: Option<Instant>,
    /// Whether any function ever matched.
    matched: bool,
    /// Patterns that matched nothing at the start, with words for that.
    waiting: Vec<(String, String)>,
    /// What was told last of stopped processes.
    stopped: Vec<String>,
    over: bool,
}

impl<'a> Session<'a> {
    /// Probes in place, the target running.
    fn start(
        options: &'a CallsOptions,
        engine: Box<dyn Instrument>,
        (sender, asks): Asks,
        stop: &StopFlag,
        on: &mut dyn FnMut(CallsEvent),
    ) -> Result<Self, SessionError> {
        let pid = engine.pid();
        let mut desk = Desk::new(engine, options.actions.clone(), options.backend).remarking(Remarks::of(options));
        let batch = match desk.add(&options.orders) {
            Ok(batch) => batch,
            Err(e) => return Err(give_up(desk, options, e)),
        };
        let nothing = if batch.matched == 0 { desk.engine.why_nothing(&options.orders) } else { Nothing::default() };
        if batch.matched == 0 && (!may_match_later(options) || nothing.for_good) {
            let error = nothing_matched(desk.engine.as_mut(), options);
            return Err(give_up(desk, options, error));
        }
        if let Some(error) = none_measured(&batch, pid).filter(|_| !may_match_later(options)) {
            return Err(give_up(desk, options, error));
        }
        if stop.is_set() {
            return Err(give_up(desk, options, SessionError::Interrupted));
        }
        let waiting = desk.unmatched(&options.patterns).unwrap_or_default();
        desk.engine.keep(options.orders.clone(), options.actions.clone());
        let counter = Counter::open(&options.runtime, pid, sender.clone());
        let counter = counter.map_err(|e| on(CallsEvent::Note(format!("no control socket: {e}")))).ok();
        tell(&batch, pid, options, on);
        if batch.matched == 0 {
            let near = desk::near(desk.engine.as_mut(), &options.patterns);
            on(CallsEvent::Note(not_yet(&options.patterns, &nothing.why, &near)));
        }
        desk.engine.resume()?;
        desk.began = Instant::now();
        let next = options.interval.map(|i| desk.began + i);
        let matched = batch.matched > 0;
        if batch.matched > 0 && !may_match_later(options) {
            waiting.iter().for_each(|(pattern, why)| on(CallsEvent::Note(format!("{pattern}: {why}"))));
        }
        let _sender = sender;
        Ok(Self {
            options,
            desk,
            pointed: Pointed::default(),
            asks,
            _sender,
            _counter: counter,
            pid,
            replay: Replay::new(&options.steps),
            next,
            matched,
            waiting,
            stopped: Vec::new(),
            over: false,
        })
    }

    fn measure(mut self, stop: &StopFlag, on: &mut dyn FnMut(CallsEvent)) -> Result<CallsOutcome, SessionError> {
        let deadline = self.options.duration.map(|d| self.desk.began + d);
        let mut failed = None;
        while !self.over && !stop.is_set() && !self.desk.is_stopped() && deadline.is_none_or(|d| Instant::now() < d) {
            let left = deadline.map_or(ROUND, |d| d.saturating_duration_since(Instant::now()));
            let left = left.min(self.replay.wait(self.desk.began.elapsed()).unwrap_or(ROUND));
            // A failing engine ends the session, but what was counted is told and the target is left.
            if let Err(e) = self.round(ROUND.min(left), on) {
                on(CallsEvent::Note(format!("the session ends early: {e}")));
                failed = Some(e);
                break;
            }
        }
        let outcome = self.finish(stop, on);
        match (outcome, failed) {
            (Err(_), Some(first)) => Err(first),
            (outcome, _) => outcome,
        }
    }

    fn round(&mut self, wait: Duration, on: &mut dyn FnMut(CallsEvent)) -> Result<(), SessionError> {
        for happening in self.desk.engine.poll(wait)? {
            self.take_in(happening, on);
        }
        self.take_steps(on);
        while let Ok(ask) = self.asks.try_recv() {
            self.pointed.take(&mut self.desk, ask);
        }
        self.pointed.go_on(&mut self.desk);
        if let (Some(due), Some(interval)) = (self.next, self.options.interval)
            && Instant::now() >= due
            && !self.over
        {
            self.next = Some(due + interval);
            let snapshot = self.desk.snapshot();
            self.tell_stopped(&snapshot, on);
            on(CallsEvent::Interval(Box::new(snapshot)));
        }
        Ok(())
    }

    /// Steps of another session whose time has come, unless there is nobody left to take them on.
    fn take_steps(&mut self, on: &mut dyn FnMut(CallsEvent)) {
        while !self.over
            && let Some(step) = self.replay.due(self.desk.began.elapsed())
        {
            let Played { answers, notes } = self.desk.replay(&step.change);
            notes.into_iter().for_each(|note| on(CallsEvent::Note(format!("step {step}: {note}"))));
            for (verb, reply) in answers {
                on(CallsEvent::Replayed { step: step.to_string(), verb, reply });
            }
        }
    }

    /// Says once of a stop why summaries have no calls.
    fn tell_stopped(&mut self, snapshot: &CallSnapshot, on: &mut dyn FnMut(CallsEvent)) {
        let stopped = remarks::stopped(snapshot, proc::is_stopped);
        let news = stopped.iter().filter(|note| !self.stopped.contains(note)).cloned();
        news.for_each(|note| on(CallsEvent::Note(note)));
        self.stopped = stopped;
    }

    fn take_in(&mut self, happening: Happening, on: &mut dyn FnMut(CallsEvent)) {
        match happening {
            Happening::Ended { pid, .. } if pid == self.pid => self.over = true,
            Happening::Note(text) => on(CallsEvent::Note(text)),
            Happening::Added(added) => {
                self.matched |= !added.ids.is_empty() || !added.refused.is_empty();
                let refused: Vec<_> = added.refused.into_iter().map(|(name, why)| (name, why.to_string())).collect();
                refused.iter().for_each(|(name, why)| self.desk.refuse_later(name, why));
                refusals(refused).into_iter().for_each(on);
            }
            // Libraries, children and programs show in the snapshot.
            _ => {}
        }
    }

    fn finish(mut self, stop: &StopFlag, on: &mut dyn FnMut(CallsEvent)) -> Result<CallsOutcome, SessionError> {
        let last = self.desk.snapshot();
        let any = self.matched || last.points.iter().any(|p| p.state != PointState::Refused);
        let unmatched = (!any).then(|| desk::near(self.desk.engine.as_mut(), &self.options.patterns));
        if any && may_match_later(self.options) {
            let never = self.waiting.iter().filter(|(pattern, _)| !matches_any(pattern, &last));
            never.for_each(|(pattern, why)| on(CallsEvent::Note(format!("{pattern}: {why}"))));
        }
        if self.over {
            remarks::left_running(&last, |pid| pid != self.pid && proc::runs(pid))
                .into_iter()
                .for_each(|note| on(CallsEvent::Note(note)));
        }
        let ran = self.desk.began.elapsed().as_secs_f64();
        let why = if self.over { "the program ended" } else { "measuring ended" };
        let left = self.replay.left(&format!("{why} after {ran:.2} s"));
        left.into_iter().for_each(|note| on(CallsEvent::Note(note)));
        let steps = std::mem::take(&mut self.desk.steps);
        let (mut engine, epochs) = self.desk.finish(last);
        let launched = matches!(self.options.target, CallsTarget::Command(_));
        // What was measured is the user's, whether the target can be left or not.
        let (detached, stayed) = match (!self.over).then(|| engine.detach()) {
            None => (None, None),
            Some(Ok(detached)) => (Some(detached), None),
            Some(Err(why)) => (None, Some(why.to_string())),
        };
        let target_status = if launched { wait(engine.as_mut(), stop, on) } else { None };
        Ok(CallsOutcome { epochs, steps, start_ns: 0, target_status, detached, stayed, unmatched })
    }
}

/// Leaves the target after an error: a process goes on untouched, a command that has not begun is ended.
fn give_up(desk: Desk, options: &CallsOptions, error: SessionError) -> SessionError {
    let (mut engine, _) = desk.finish(CallSnapshot::default());
    let left = match options.target {
        CallsTarget::Process(_) => engine.detach().map(drop),
        CallsTarget::Command(_) => {
            engine.abandon();
            Ok(())
        }
    };
    // The first error is the one to tell; that leaving failed too belongs into the log.
    if let Err(e) = left {
        tracing::warn!("cannot leave the target: {e}");
    }
    error
}

/// A launched program may load libraries and execute other programs in which the functions are.
fn may_match_later(options: &CallsOptions) -> bool {
    matches!(options.target, CallsTarget::Command(_))
}

/// Whether a point bears a name that the pattern matches. Of what matches by an address nothing is said.
fn matches_any(pattern: &str, snapshot: &CallSnapshot) -> bool {
    let select = match pattern::including(pattern) {
        Ok(Order::Include(Select::CalledFrom { callee, .. })) => *callee,
        Ok(Order::Include(select)) => select,
        _ => return true,
    };
    let Select::Name { function, .. } = select else { return true };
    let Ok(function) = Pattern::new(&function) else { return true };
    snapshot.points.iter().flat_map(|p| &p.names).any(|name| function.matches(callee(name)))
}

fn not_yet(patterns: &[String], why: &[String], near: &[String]) -> String {
    let near = match (why.is_empty(), near.is_empty()) {
        (false, _) => format!(" ({})", why.join("; ")),
        (true, false) => format!(" (it has {})", near.join(", ")),
        (true, true) => String::new(),
    };
    format!(
        "no function of the program matches {} yet{near}; waiting for libraries it loads and programs it executes",
        patterns.join(" or ")
    )
}

fn tell(batch: &Batch, pid: u32, options: &CallsOptions, on: &mut dyn FnMut(CallsEvent)) {
    refusals(batch.refused.iter().cloned()).into_iter().for_each(&mut *on);
    let running = matches!(options.target, CallsTarget::Process(_));
    let pause = if running { batch.pause } else { Pause::default() };
    on(CallsEvent::Started { pid, points: batch.added.len(), pause });
    remarks::by_kernel(&batch.by_kernel).into_iter().for_each(|note| on(CallsEvent::Note(note)));
}

/// The command's status; measuring may have ended before the command has.
fn wait(engine: &mut dyn Instrument, stop: &StopFlag, on: &mut dyn FnMut(CallsEvent)) -> Option<i32> {
    let mut told = false;
    loop {
        match engine.fate() {
            Fate::Ended(status) => return Some(status),
            Fate::Unknown => return None,
            Fate::Running => {}
        }
        if stop.is_urgent() {
            return None;
        }
        if !told {
            told = true;
            on(CallsEvent::Waiting { way_out: stop.way_out() });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
