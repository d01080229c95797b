//! `whither record`: one recording from launch or attach to sealed directory.

use crate::SessionError;
use crate::engine::{Engine, Setup, note};
use crate::exact::{Beside, Exact};
use crate::options::{Outcome, Pace, Progress, RecordOptions, Scope};
use crate::stop::StopFlag;
use crate::symbols;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};
use whither_kernel::launch::{self, Held, Running};
use whither_kernel::proc;
use whither_sample::Folding;
use whither_store::{EpochWriter, OnExisting, StoreError};

/// A segment is sealed this often, so that a crash loses at most three minutes (one a minute cost a third of the collector's
/// own time); the first ones sooner, each later by this factor, so that a short recording is not lost whole.
const SEAL: Duration = Duration::from_secs(180);
const FIRST_SEAL: Duration = Duration::from_secs(3);
const SEAL_GROWTH: u32 = 4;
/// The tables are drained this often; slices are cut at drains.
const DRAIN: Duration = Duration::from_secs(5);
/// More rows than these are sealed early, to keep memory bounded.
const ROWS: usize = 400_000;
/// Share of the target's time that exact counts may take when the pace is no share.
const EXACT_BUDGET: f64 = 0.03;
/// Part of what exact counts may take that breakpoints do, where the rest buys walks: of what runs often these tell more.
const BREAKPOINTS_PART: f64 = 1.0 / 3.0;

/// Records as asked, until the target ends, the time is over, or a stop is asked for.
///
/// # Errors
/// Why the recording could not be started or stored. A target that was launched has then ended or
/// was never started.
pub fn record(options: &RecordOptions, stop: &StopFlag, on: &mut dyn FnMut(Progress)) -> Result<Outcome, SessionError> {
    let pids = target_pids(&options.scope)?;
    let exact = patterns(&options.exact)?;
    let (held, pids) = match &options.scope {
        Scope::Command(words) => {
            let held = launch::hold(words)?;
            let pid = held.pid();
            (Some(held), vec![pid])
        }
        _ if options.during.is_empty() => (None, pids),
        _ => (Some(launch::hold(&options.during)?), pids),
    };
    let drain = DRAIN.min(options.slice.max(Duration::from_millis(500)));
    let setup = Setup { pids: pids.clone(), folding: Folding::PerProcess, per_process: None, drain };
    let mut engine = Engine::start(options, setup)?;
    engine.notes.extend(gains_rights(&options.scope, engine.backend()));
    // Only now, so that a refusal leaves an older recording alone; but before the target runs, so that
    // it does not run in vain. A held target ends when we fail here.
    let existing = if options.overwrite { OnExisting::Replace } else { OnExisting::Refuse };
    let writer = EpochWriter::create(&options.output, engine.meta(options), existing)?;
    let mut run = Run { writer, engine, exact: None, options, samples: 0, lost: 0, rows: 0, began: Instant::now() };
    on(Progress::Started {
        events: run.engine.event_names(),
        hertz: run.engine.hertz(),
        backend: run.engine.backend().into(),
        notes: run.engine.notes.clone(),
    });
    if stop.is_set() {
        // The held child ends with its gate: a command must not run after a Ctrl-C.
        drop(held);
        discard(run.writer, &options.output);
        return Err(SessionError::Interrupted);
    }
    let mut target = match held.map(Held::release).transpose() {
        Ok(target) => target,
        Err(e) => {
            discard(run.writer, &options.output);
            return Err(e.into());
        }
    };
    if !exact.is_empty() {
        let beside = if run.engine.walks() { Beside::Walks } else { Beside::Nothing };
        let budget = match options.pace {
            Pace::Budget(share) if beside == Beside::Walks => {
                run.engine.allow_walks(share * (1.0 - BREAKPOINTS_PART));
                share * BREAKPOINTS_PART
            }
            Pace::Budget(share) => share,
            _ => EXACT_BUDGET,
        };
        run.exact = Some(Exact::start(pids.clone(), exact, budget, beside));
    }
    run.until_over(&pids, target.as_mut(), stop, on);
    run.finish(target, stop, on)
}

/// A recording of a command that never ran would be empty: remove it again.
fn discard(writer: EpochWriter, dir: &std::path::Path) {
    drop(writer);
    // What cannot be removed is an empty recording, which readers refuse with a clear word.
    let _ = std::fs::remove_dir_all(dir);
}

fn target_pids(scope: &Scope) -> Result<Vec<u32>, SessionError> {
    let Scope::Pids(pids) = scope else { return Ok(Vec::new()) };
    for &pid in pids {
        if !proc::exists(pid) {
            return Err(SessionError::NoSuchProcess(pid));
        }
        if let Some(process) = proc::process_of(pid).filter(|process| *process != pid) {
            return Err(SessionError::IsThread { tid: pid, process });
        }
    }
    Ok(pids.clone())
}

/// A program that gains rights when it is executed is not for those without to look into: the kernel ends their events.
fn gains_rights(scope: &Scope, backend: &str) -> Option<String> {
    let Scope::Command(words) = scope else { return None };
    if backend == "bpf" || rustix::process::geteuid().is_root() {
        return None;
    }
    let program = launch::find_program(words.first()?).ok()?;
    let mode = program.metadata().ok()?.permissions().mode();
    (mode & 0o6000 != 0).then(|| {
        format!(
            "{} runs with the rights of another user (setuid): the kernel lets only root sample it",
            program.display()
        )
    })
}

fn patterns(of: &[String]) -> Result<Vec<regex::Regex>, SessionError> {
    // As written first, for the error; then over the whole name, as `calls -f` takes it.
    let whole = |p: &String| regex::Regex::new(p).and_then(|_| regex::Regex::new(&format!("^(?:{p})$")));
    let compiled = of.iter().map(whole).collect::<Result<_, _>>();
    compiled.map_err(|e| SessionError::Io {
        what: "--exact is not a regular expression".into(),
        source: std::io::Error::other(e),
    })
}

struct Run<'a> {
    writer: EpochWriter,
    engine: Engine,
    exact: Option<Exact>,
    options: &'a RecordOptions,
    samples: u64,
    lost: u64,
    rows: u64,
    began: Instant,
}

impl Run<'_> {
    fn until_over(
        &mut self,
        pids: &[u32],
        mut target: Option<&mut Running>,
        stop: &StopFlag,
        on: &mut dyn FnMut(Progress),
    ) {
        let deadline = self.options.duration.map(|d| self.began + d);
        // The end of what is watched is noticed between two ticks.
        let endless = matches!(self.options.scope, Scope::System) && target.is_none();
        let longest = if endless { Duration::MAX } else { Duration::from_millis(50) };
        let (mut sealed, mut due) = (Instant::now(), FIRST_SEAL);
        let mut ticked = Instant::now();
        while !stop.is_set() && deadline.is_none_or(|d| Instant::now() < d) {
            let left = deadline.map_or(Duration::MAX, |d| d.saturating_duration_since(Instant::now()));
            self.engine.sleep(longest.min(left));
            if let Some(hertz) = self.engine.tick() {
                on(Progress::Rate { hertz });
            }
            if self.over(pids, &mut target) {
                break;
            }
            if sealed.elapsed() >= due || self.engine.exceeds(ROWS) {
                self.seal(on);
                (sealed, due) = (Instant::now(), SEAL.min(due * SEAL_GROWTH));
            }
            self.warm();
            if ticked.elapsed() >= Duration::from_millis(500) {
                ticked = Instant::now();
                let samples = self.samples + self.engine.waiting().1;
                on(Progress::Tick { samples, elapsed: self.began.elapsed() });
            }
        }
    }

    /// Tells those who count where time goes.
    fn warm(&mut self) {
        if let Some(exact) = self.exact.as_mut().filter(|e| e.wants_heat()) {
            self.engine.drain();
            exact.warm(&self.engine.book.snapshot().0);
        }
    }

    /// Whether what was to be watched has ended.
    fn over(&self, pids: &[u32], target: &mut Option<&mut Running>) -> bool {
        let ended = target.as_mut().is_some_and(|t| t.poll().is_some());
        ended || matches!(self.options.scope, Scope::Pids(_)) && !pids.iter().any(|&p| proc::runs(p))
    }

    /// Writes what was collected since the last time as a segment.
    fn seal(&mut self, on: &mut dyn FnMut(Progress)) {
        self.engine.drain();
        let mut part = self.engine.cut();
        if let Some(exact) = &self.exact {
            let mut found = exact.take();
            // Whoever asked for counts wants to know now why there are none.
            found.notes.iter().for_each(|note| on(Progress::Warning(note.clone())));
            part.happened.append(&mut found.notes);
            found.into_profile(&mut part.profile);
        }
        let samples: u64 = part.profile.samples.iter().map(|s| u64::from(s.count)).sum();
        let cost = self.engine.cost(self.exact.as_ref().map_or((0, 0), Exact::lost_ns));
        let losses = part.losses;
        let done = self.writer.append_owned(part.profile, part.window).map_err(|(e, _)| e).and_then(|info| {
            self.writer.update_meta(|m| {
                m.losses.add(&losses);
                note(m, &part.happened);
                m.cost = cost.clone();
                m.end_ns = part.window.1;
            })?;
            Ok(info)
        });
        match done {
            Ok(info) => {
                self.samples += samples;
                self.rows += info.rows;
                on(Progress::Sealed { rows: info.rows, bytes: info.bytes });
            }
            Err(e) => self.unwritten(samples, &e, on),
        }
    }

    fn unwritten(&mut self, samples: u64, e: &StoreError, on: &mut dyn FnMut(Progress)) {
        on(Progress::Warning(format!("{samples} samples could not be stored and are lost: {e}")));
        // Best effort: the account of the loss needs a few bytes of the same disk.
        self.lost += samples;
        let _ = self.writer.update_meta(|m| m.losses.unwritten += samples);
    }

    fn finish(
        mut self,
        target: Option<Running>,
        stop: &StopFlag,
        on: &mut dyn FnMut(Progress),
    ) -> Result<Outcome, SessionError> {
        // Who is asked to end ends what it started, as `timeout` around us expects.
        if let Some((target, signal)) = target.as_ref().zip(stop.signal()) {
            target.pass_on(signal);
        }
        if let Some(exact) = &mut self.exact {
            exact.stop();
        }
        self.engine.stop();
        self.seal(on);
        on(Progress::Finishing);
        if !stop.is_urgent()
            && let Err(e) = symbols::keep(&mut self.writer, &self.engine.book, self.options.store_code)
        {
            on(Progress::Warning(format!("names of sampled functions could not be stored: {e}")));
        }
        let target_status = target.and_then(|t| wait(t, stop, on));
        self.writer.update_meta(|m| m.target_status = target_status)?;
        let path = self.writer.path().to_path_buf();
        let end = self.writer.meta().end_ns;
        self.writer.seal(end)?;
        let bytes = symbols::bytes_below(&path);
        Ok(Outcome { path, samples: self.samples, unwritten: self.lost, rows: self.rows, bytes, target_status })
    }
}

/// The target's status; sampling may have ended before the target has.
fn wait(mut target: Running, stop: &StopFlag, on: &mut dyn FnMut(Progress)) -> Option<i32> {
    let mut told = false;
    loop {
        if let Some(status) = target.poll() {
            return Some(status);
        }
        if stop.is_urgent() {
            return None;
        }
        if !told {
            told = true;
            on(Progress::Warning(format!(
                "sampling has ended, the command still runs: waiting for it ({})",
                stop.way_out()
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
