//! The back end without BPF: threads of the program take their own samples, by a signal that a perf event of each sends
//! to it, move their virtual clocks and sleep their delays, all in the agent's handler (`agent/pace.c`). Lives here: the
//! process it is put into, points, and what the trait asks. One experiment: [`window`]. The threads' events: [`ticks`].
//!
//! It sees one process: children and programs that it executes are left alone. What it cannot see (waits that are no
//! futexes, points in the kernel) is refused, or told with its share.

mod queue;
mod ticks;
mod window;

use super::executor::CausalExecutor;
use crate::SessionError;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use ticks::Ticks;
use whither_abi::causal::POINTS;
use whither_kernel::proc;
use whither_probe::target::masks_of;
use whither_probe::{Engine, Pace, PaceWord, ProbeError};
use whither_sample::causal::outside::{self, Outside};
use whither_sample::causal::{
    Armed, CausalConfig, CausalModule, CausalSample, Change, CodeRange, Facts, Hook, Loads, SampleWhat,
};

/// The signal of ticks: what nobody handles is ignored, so a stray one does no harm.
const SIGNAL: u32 = libc_sigurg();
/// A tick comes after so many times its own cost at the earliest.
const DEAREST: u64 = 16;
/// A program is let come so far before anything is put into it: its loader is done then.
const UNDISTURBED: Duration = Duration::from_millis(30);
/// How long a place to get in is looked for.
const PATIENCE: Duration = Duration::from_secs(3);
/// Libraries and threads are looked for this often.
const LOOK: Duration = Duration::from_millis(25);

const fn libc_sigurg() -> u32 {
    23
}

/// How visits of a point are seen.
#[derive(Debug)]
enum Kind {
    Stamped,
    Sampled(Vec<CodeRange>),
}

/// What a process is given.
struct Seat {
    engine: Engine,
    ticks: Ticks,
    /// Modules whose system calls are seen.
    modules: Vec<usize>,
    /// System calls seen, and those that cannot be.
    calls: (usize, usize),
    exe: String,
}

/// See the module.
pub(super) struct Alone {
    config: CausalConfig,
    pid: u32,
    since: Instant,
    launched: bool,
    seat: Option<Seat>,
    /// Of the process seen last; its words can be read when it has ended.
    pace: Option<Pace>,
    scopes: Vec<(u64, u64, u64)>,
    hooks: Vec<(u32, Hook)>,
    points: Vec<Kind>,
    armed: Armed,
    open: Option<window::Opened>,
    looked: Instant,
    carry_ns: u64,
    tick_cost: u64,
    /// Of processes that have ended.
    past: window::Sums,
    outside_at_open: Outside,
    draw: u64,
}

impl Alone {
    /// Nobody is measured yet.
    pub(super) fn new(config: &CausalConfig) -> Self {
        Self {
            config: *config,
            pid: 0,
            since: Instant::now(),
            launched: false,
            seat: None,
            pace: None,
            scopes: Vec::new(),
            hooks: Vec::new(),
            points: Vec::new(),
            armed: Armed::Nothing,
            open: None,
            looked: Instant::now(),
            carry_ns: 0,
            tick_cost: 0,
            past: window::Sums::default(),
            outside_at_open: Outside::read(&[]),
            draw: whither_kernel::clock::monotonic_ns() | 1,
        }
    }

    /// The process with everything in place.
    fn seated(&mut self) -> Result<(), SessionError> {
        if let Some(seat) = &self.seat {
            return if proc::exe(self.pid) == seat.exe { Ok(()) } else { Err(self.executed()) };
        }
        if self.tick_cost == 0 {
            self.tick_cost = ticks::cost(self.config.tick_ns);
            let cheap = self.tick_cost.saturating_mul(DEAREST).min(self.config.period_ns);
            self.config.tick_ns = self.config.tick_ns.max(cheap);
        }
        self.wait_for_program()?;
        if free_of_signal(self.pid).is_err() {
            // The handler may be ours, of a session that was killed.
            Engine::clear(self.pid)?;
            free_of_signal(self.pid)?;
        }
        let (engine, pace) = self.enter()?;
        let mut seat = Seat {
            engine,
            ticks: Ticks::new(self.pid, SIGNAL, self.config.tick_ns),
            modules: Vec::new(),
            calls: (0, 0),
            exe: proc::exe(self.pid),
        };
        seat.calls = seat.engine.pace_calls(&mut seat.modules)?;
        tracing::debug!(seen = seat.calls.0, unseen = seat.calls.1, "system calls");
        pace.set(PaceWord::Period, self.config.tick_ns);
        pace.scope(&self.scopes);
        (self.seat, self.pace) = (Some(seat), Some(pace));
        for (point, hook) in self.hooks.clone() {
            self.place(point, &hook)?;
        }
        self.look_at_threads()
    }

    /// A command that was just started executes its program first, and loads its libraries.
    fn wait_for_program(&self) -> Result<(), SessionError> {
        let ours = proc::exe(std::process::id());
        while self.launched && proc::exists(self.pid) {
            let is_there = proc::exe(self.pid) != ours;
            if is_there && self.since.elapsed() > UNDISTURBED {
                break;
            }
            if self.since.elapsed() > PATIENCE {
                return Err(self.refused("it did not execute its program".into()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn enter(&self) -> Result<(Engine, Pace), SessionError> {
        let began = Instant::now();
        loop {
            match Engine::attach_paced(self.pid, SIGNAL) {
                Ok(both) => return Ok(both),
                Err(ProbeError::NoSafeThread { .. } | ProbeError::Unstoppable { .. }) if began.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn executed(&self) -> SessionError {
        self.refused("it has executed another program, which the back end without BPF does not follow".into())
    }

    fn refused(&self, why: String) -> SessionError {
        SessionError::Unmeasurable { pid: self.pid, why }
    }

    /// New threads are ticked, those that block the signal are not any more.
    fn look_at_threads(&mut self) -> Result<(), SessionError> {
        self.looked = Instant::now();
        match &mut self.seat {
            Some(seat) => {
                let slots = self.pace.as_ref().map(Pace::slots).unwrap_or_default();
                let never: Vec<u32> = slots.iter().filter(|s| s.takes_signals != 0).map(|s| s.tid).collect();
                seat.ticks.look(&never).map_err(SessionError::from)
            }
            None => Ok(()),
        }
    }

    /// Libraries that came.
    fn look_at_modules(&mut self) {
        let Some(seat) = &mut self.seat else { return };
        // The next look finds out what this one could not, or that the process has ended.
        let done = seat.engine.poll(Duration::ZERO).and_then(|_| seat.engine.pace_calls(&mut seat.modules));
        match done {
            Ok((seen, unseen)) => seat.calls = (seat.calls.0 + seen, seat.calls.1 + unseen),
            Err(error) => tracing::debug!(%error, "looking at modules"),
        }
    }

    fn place(&mut self, point: u32, hook: &Hook) -> Result<(), SessionError> {
        let (file, offset) = match hook {
            Hook::Uprobe { file, offset, .. } | Hook::UprobeEnd { file, offset, .. } => (file, *offset),
            Hook::Sampled { .. } => return Ok(()),
            Hook::Syscall(_) | Hook::Tracepoint { .. } => return Err(in_kernel()),
        };
        let Some(seat) = &mut self.seat else { return Ok(()) };
        let Some(address) = address_of(self.pid, file, offset) else { return Ok(()) };
        let number = u8::try_from(point).unwrap_or(u8::MAX);
        seat.engine.pace_point(address, number)?.map_err(|refusal| SessionError::Missing {
            what: format!("the progress point at {} offset {offset:#x}", file.display()),
            why: format!("its instructions cannot be replaced by a probe: {refusal}"),
            remedy: "Name another line or function that is reached as often (of a mark: put it into a function of its own that is not \
                     inlined), or use --backend bpf."
                .into(),
        })
    }

    /// Ends what goes on in the process; what was counted can still be read.
    fn leave(&mut self) {
        let Some(mut seat) = self.seat.take() else { return };
        if let Some(pace) = &self.pace {
            pace.set(PaceWord::State, whither_abi::causal::STATE_OFF);
        }
        seat.ticks.end();
        if !proc::exists(self.pid) {
            return;
        }
        match seat.engine.detach() {
            Ok(done) if done.left.is_empty() => {}
            Ok(done) => tracing::warn!(left = ?done.left, "not all could be taken away"),
            Err(error) => tracing::debug!(%error, "leaving"),
        }
    }

    /// A tick's period, up to 10 % beside the nominal one: a fixed one locks onto periodic programs.
    fn drawn(&mut self) -> u64 {
        self.draw ^= self.draw << 13;
        self.draw ^= self.draw >> 7;
        self.draw ^= self.draw << 17;
        let tick = self.config.tick_ns;
        tick - tick / 10 + self.draw % (tick / 5 + 1)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Threads that handle, ignore or wait for the signal stand against it.
fn free_of_signal(pid: u32) -> Result<(), SessionError> {
    let used = masks_of(pid, &["SigCgt:", "SigIgn:"]).unwrap_or(0);
    if used & 1 << (SIGNAL - 1) == 0 {
        return Ok(());
    }
    let why = "it handles or ignores SIGURG itself (programs in Go do), by which the back end without BPF takes its samples; \
               use --backend bpf";
    Err(SessionError::Unmeasurable { pid, why: why.into() })
}

fn in_kernel() -> SessionError {
    SessionError::Missing {
        what: "a progress point in the kernel".into(),
        why: "without BPF only the program's own code can be seen".into(),
        remedy: "Name a line or a function, or run with the rights for BPF.".into(),
    }
}

/// Where a process has an instruction of a file.
fn address_of(pid: u32, file: &Path, offset: u64) -> Option<u64> {
    let inode = std::fs::metadata(file).ok()?.ino();
    let holds =
        |m: &&proc::Mapping| m.inode == inode && (m.offset..m.offset.saturating_add(m.end - m.start)).contains(&offset);
    proc::executable_mappings(pid).iter().find(holds).map(|m| m.start + (offset - m.offset))
}

impl CausalExecutor for Alone {
    fn watch(&mut self, pid: u32) -> Result<(), SessionError> {
        if let Some(pace) = &self.pace {
            self.past = self.past.with(&window::Sums::of(pace));
        }
        self.leave();
        self.pace = None;
        // A command of ours is held before it begins: it has our program still.
        self.launched = proc::exe(pid) == proc::exe(std::process::id());
        (self.pid, self.since) = (pid, Instant::now());
        self.scopes.clear();
        Ok(())
    }

    /// Its one process is told of targets by `arm`; a program that it executes is a new seat.
    fn rearm(&mut self, _pid: u32, _target: &Armed) -> Result<(), SessionError> {
        Ok(())
    }

    fn processes(&mut self) -> Vec<u32> {
        if outside::lives(self.pid) { vec![self.pid] } else { Vec::new() }
    }

    fn changes(&mut self) -> Vec<Change> {
        if self.seat.is_some() && self.looked.elapsed() >= LOOK && outside::lives(self.pid) {
            self.look_at_modules();
            if let Err(error) = self.look_at_threads() {
                tracing::debug!(%error, "looking at threads");
            }
        }
        Vec::new()
    }

    fn map(&mut self, _pid: u32, modules: &[CausalModule]) -> Result<(), SessionError> {
        self.scopes = modules.iter().filter(|m| m.in_scope).map(|m| (m.start, m.end, 1)).collect();
        if let Some(pace) = &self.pace {
            pace.scope(&self.scopes);
        }
        Ok(())
    }

    fn arm(&mut self, target: &Armed) -> Result<(), SessionError> {
        if matches!(target, Armed::OffCpu { .. }) {
            return Err(SessionError::Missing {
                what: "speeding up waits (--off-cpu)".into(),
                why: "without BPF nobody tells what a thread waits for".into(),
                remedy: "Leave --off-cpu out, or run with the rights for BPF.".into(),
            });
        }
        self.armed = target.clone();
        Ok(())
    }

    fn begin(&mut self, percent: u8) -> Result<(), SessionError> {
        self.seated()?;
        self.open_window(percent)
    }

    fn settled(&mut self, paid: bool) -> Result<(), SessionError> {
        self.count_from_now(paid);
        Ok(())
    }

    fn beat(&mut self) {
        if let Some(pace) = &self.pace {
            pace.beat();
        }
    }

    fn end(&mut self) -> Result<Facts, SessionError> {
        Ok(self.close_window())
    }

    fn peek(&mut self, point: u32) -> u64 {
        match self.points.get(point as usize) {
            Some(Kind::Sampled(_)) => self.in_ticks(self.visits_of(point).visits),
            _ => self.visits_of(point).visits,
        }
    }

    fn samples(&mut self, take: &mut dyn FnMut(&CausalSample)) {
        let (pid, unit, carry) = (self.pid, self.config.tick_ns, &mut self.carry_ns);
        let Some(pace) = &mut self.pace else { return };
        let (clock, now) = (whither_kernel::clock::monotonic_ns(), pace.now());
        let lost = pace.samples(&mut |record| {
            *carry = carry.saturating_add(record.ns);
            let weight = u32::try_from(*carry / unit).unwrap_or(u32::MAX);
            *carry %= unit;
            if weight == 0 {
                return;
            }
            take(&CausalSample {
                t_ns: clock.saturating_sub(now.saturating_sub(record.t)),
                pid,
                tid: record.tid,
                what: SampleWhat::Run,
                site: record.site,
                frames: record.frames.iter().take(record.n as usize).copied().collect(),
                kernel: false,
                weight,
            });
        });
        if let Some(open) = &mut self.open {
            open.lost = open.lost.saturating_add(lost);
        }
    }

    fn point(&mut self, hook: &Hook) -> Result<u32, SessionError> {
        if matches!(hook, Hook::Syscall(_) | Hook::Tracepoint { .. }) {
            return Err(in_kernel());
        }
        let point = self.points.len() as u32;
        if self.points.len() >= POINTS {
            return Err(self.refused(format!("{POINTS} progress points are the most")));
        }
        self.place(point, hook)?;
        self.hooks.push((point, hook.clone()));
        self.points.push(match hook {
            Hook::Sampled { ranges } => Kind::Sampled(ranges.clone()),
            _ => Kind::Stamped,
        });
        Ok(point)
    }

    fn also(&mut self, point: u32, hook: &Hook) -> Result<(), SessionError> {
        if let (Some(Kind::Sampled(known)), Hook::Sampled { ranges }) = (self.points.get_mut(point as usize), hook) {
            known.extend_from_slice(ranges);
            return Ok(());
        }
        self.place(point, hook)?;
        self.hooks.push((point, hook.clone()));
        Ok(())
    }

    fn loads(&mut self) -> Loads {
        let sums = self.sums();
        let outside = Outside::read(&self.processes());
        Loads {
            own_wait_ns: 0,
            foreign_wait_ns: 0,
            steal_ns: outside.steal_ns.saturating_sub(self.outside_at_open.steal_ns),
            major_faults: outside.major_faults,
            handlers_ns: sums.handler_ns + sums.samples * self.tick_cost,
            inserted_ns: sums.inserted_ns,
            slept_ns: sums.inserted_ns,
            run_ns: sums.sample_ns,
            tick_ns: self.config.tick_ns,
            spacing_ns: self.config.tick_ns,
            tick_cost_ns: self.tick_cost + sums.handler_ns / sums.samples.max(1),
            // Some ten nanoseconds each.
            points_ns: 0,
        }
    }

    fn detach(&mut self) {
        self.leave();
    }

    fn naps_by(&mut self, _signal: u32) -> Result<(), SessionError> {
        Ok(())
    }

    fn napper(&mut self, _pid: u32, _handler: u64) -> Result<(), SessionError> {
        Ok(())
    }

    fn napper_of(&self, _pid: u32) -> u64 {
        0
    }
}
