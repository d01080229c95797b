//! All threads of a process stopped, and let go again, so that the program cannot tell: blocked system
//! calls go on, signals that came meanwhile are delivered, a process stopped by job control stays so.
//!
//! A thread asleep where no signal reaches it (a vfork parent, a disk) counts as stopped: it cannot run
//! a single instruction of the program before it stops. Letting it go must wait until it does; until
//! then it stands in this thread's list of [`tend`].

use super::rush::{self, Rush};
use crate::ProbeError;
use crate::api::Pause;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use whither_kernel::KernelError;
use whither_kernel::memory::Memory;
use whither_kernel::proc;
use whither_kernel::ptrace::{Event, Regs, Tracee, Watching, examine};

/// How long threads may take to stop, while those that have stopped wait.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long it is tried again, all running in between: on a busy machine a thread may not get its turn.
const INSISTENCE: Duration = Duration::from_secs(10);
/// Between two tries.
const RESPITE: Duration = Duration::from_millis(50);
/// After so long without progress it is asked why.
const UNEASY: Duration = Duration::from_millis(1);
/// Between two looks at threads that sleep out of reach: in the beginning, and after long.
const AT_ONCE: Duration = Duration::from_micros(100);
const AT_LEAST: Duration = Duration::from_millis(5);

/// A process all of whose threads stand still.
#[derive(Debug)]
pub struct Stopped {
    pid: u32,
    held: Vec<Held>,
    /// A thread that somebody else holds.
    but: Option<u32>,
    memory: Memory,
    /// When the first thread was asked to stop.
    began: Instant,
    /// When the last one was.
    asked: Instant,
    rush: Option<Rush>,
}

#[derive(Debug)]
struct Held {
    tracee: Tracee,
    state: State,
}

/// What is known of a seized thread.
#[derive(Debug)]
enum State {
    /// Asked to stop.
    Asked,
    /// Has stopped a moment ago.
    Standing,
    /// Stands still, with these registers.
    Still(Box<Regs>),
    /// Sleeps in the kernel, out of reach; where it will come out.
    Asleep { ip: u64, sp: u64 },
    /// Has ended.
    Gone,
}

thread_local! {
    /// Threads to be let go as soon as they stop.
    static LIMBO: RefCell<Vec<Tracee>> = const { RefCell::new(Vec::new()) };
    /// When threads were first found waiting there.
    static WAITING: Cell<Option<Instant>> = const { Cell::new(None) };
    /// Statuses of processes whose end was seen here: nobody can wait for them a second time.
    static ENDED: RefCell<HashMap<u32, i32>> = RefCell::new(HashMap::new());
}

impl Stopped {
    /// Stops all threads.
    ///
    /// # Errors
    /// [`ProbeError`] with the reason; the process then runs as before.
    pub fn stop(pid: u32) -> Result<Self, ProbeError> {
        let began = Instant::now();
        loop {
            match Self::stop_once(pid) {
                Err(ProbeError::Unstoppable { .. }) if began.elapsed() < INSISTENCE => std::thread::sleep(RESPITE),
                result => return result,
            }
        }
    }

    /// Stops all threads but one, which stands still in somebody else's hands, and stays there; `None` when
    /// there is no other. It cannot make any meanwhile.
    ///
    /// # Errors
    /// As [`Self::stop`].
    pub(crate) fn beside(pid: u32, tid: u32) -> Result<Option<Self>, ProbeError> {
        let began = Instant::now();
        loop {
            match Self::beside_once(pid, tid) {
                // They ended meanwhile.
                Err(ProbeError::Ended { .. }) => {}
                Err(ProbeError::Unstoppable { .. }) if began.elapsed() < INSISTENCE => std::thread::sleep(RESPITE),
                result => return result,
            }
        }
    }

    /// The same with one try: for whoever can do without.
    ///
    /// # Errors
    /// As [`Self::stop`].
    pub(super) fn beside_once(pid: u32, tid: u32) -> Result<Option<Self>, ProbeError> {
        if proc::threads(pid).iter().all(|&t| t == tid || ended(pid, t)) {
            return Ok(None);
        }
        let mut others = Self::new(pid, Vec::new(), Some(tid), Memory::open(pid)?);
        others.stop_all()?;
        Ok(Some(others))
    }

    fn stop_once(pid: u32) -> Result<Self, ProbeError> {
        let mut asked = take_limbo(pid);
        if asked.is_empty() {
            examine(pid)?;
        }
        let memory = Memory::open(pid)?;
        let held = asked.drain(..).map(|tracee| Held { tracee, state: State::Asked }).collect();
        let mut stopped = Self::new(pid, held, None, memory);
        // On failure the drop lets go of what was stopped.
        stopped.stop_all()?;
        Ok(stopped)
    }

    /// Stops all threads but one, which stands still already, with these registers.
    pub(super) fn around(tracee: Tracee, regs: Regs) -> Result<Self, ProbeError> {
        let pid = tracee.pid();
        let memory = match Memory::open(pid) {
            Ok(memory) => memory,
            Err(e) => {
                let_go(tracee, Event::Stopped);
                return Err(e.into());
            }
        };
        let held = vec![Held { tracee, state: State::Still(Box::new(regs)) }];
        let mut stopped = Self::new(pid, held, None, memory);
        stopped.stop_all()?;
        Ok(stopped)
    }

    fn new(pid: u32, held: Vec<Held>, but: Option<u32>, memory: Memory) -> Self {
        let now = Instant::now();
        Self { pid, held, but, memory, began: now, asked: now, rush: None }
    }

    fn stop_all(&mut self) -> Result<(), ProbeError> {
        loop {
            let fresh = self.seize_new()?;
            if self.rush.is_none() {
                self.rush = Some(Rush::begin());
                self.began = Instant::now();
            }
            for held in &self.held[self.held.len() - fresh..] {
                // A thread that has just ended shows when it is waited for.
                let _ = held.tracee.interrupt();
            }
            self.asked = Instant::now();
            self.collect()?;
            // All known threads stand: only a thread not seen yet can have made another one.
            if fresh == 0 || self.has_all() {
                break;
            }
        }
        if self.held.iter().all(|h| matches!(h.state, State::Gone)) {
            return Err(ProbeError::Ended { pid: self.pid, what: "its threads were being stopped" });
        }
        Ok(())
    }

    /// Seizes the threads not known yet, and says how many.
    fn seize_new(&mut self) -> Result<usize, ProbeError> {
        let mut fresh = 0;
        for tid in proc::threads(self.pid) {
            if self.but == Some(tid) || self.held.iter().any(|h| h.tracee.tid() == tid) {
                continue;
            }
            match Tracee::seize(self.pid, tid, Watching::EXECS) {
                Ok(tracee) => {
                    self.held.push(Held { tracee, state: State::Asked });
                    fresh += 1;
                }
                Err(_) if ended(self.pid, tid) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(fresh)
    }

    /// Whether the process has no more threads than are held, by one question instead of a listing.
    fn has_all(&self) -> bool {
        let held = self.held.iter().filter(|h| !matches!(h.state, State::Gone)).count() as u64;
        threads_of(self.pid) == Some(held + u64::from(self.but.is_some()))
    }

    /// Waits until every thread asked stands still.
    fn collect(&mut self) -> Result<(), ProbeError> {
        let began = Instant::now();
        let mut moved = began;
        let mut fruitless = 0;
        loop {
            let mut fruit = false;
            // Of those that stood at the last look. One that is still on its way off its processor would let us
            // wait for a whole tick of the scheduler.
            let mut outstanding = 0;
            for at in 0..self.held.len() {
                let state = &self.held[at].state;
                if matches!(state, State::Standing) {
                    self.take_registers(at);
                } else if matches!(state, State::Asked) {
                    if self.advance(at)? {
                        moved = Instant::now();
                        fruit = true;
                    } else {
                        outstanding += 1;
                    }
                }
            }
            if outstanding == 0 && !self.held.iter().any(|h| matches!(h.state, State::Standing)) {
                return Ok(());
            }
            if outstanding > 0 && moved.elapsed() > UNEASY {
                self.ask_why(began.elapsed())?;
            }
            fruitless = if fruit { 0 } else { fruitless + 1 };
            rush::wait(outstanding, fruitless);
        }
    }

    fn take_registers(&mut self, at: usize) {
        let held = &mut self.held[at];
        held.state = match held.tracee.registers() {
            Ok(regs) => State::Still(Box::new(repair(&held.tracee, regs))),
            Err(_) => State::Gone,
        };
    }

    /// Takes what has happened to one thread; false when nothing has.
    fn advance(&mut self, at: usize) -> Result<bool, ProbeError> {
        let held = &mut self.held[at];
        let event = match held.tracee.poll() {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(false),
            Err(_) => {
                held.state = State::Gone;
                return Ok(true);
            }
        };
        match event {
            Event::Stopped | Event::GroupStop(_) => held.state = State::Standing,
            // Delivered now; the stop asked for comes before the handler's first instruction.
            Event::Signal(signal) => drop(held.tracee.go(signal)),
            Event::Exited(_) | Event::Killed(_) => {
                note_end(&held.tracee, event);
                held.state = State::Gone;
            }
            Event::Exec(_) => {
                let tracee = Tracee::adopt(self.pid, held.tracee.tid());
                held.state = State::Gone;
                let_go(tracee, Event::Stopped);
                return Err(ProbeError::Executed { pid: self.pid, what: "its threads were being stopped" });
            }
            Event::Syscall | Event::Child(_) => drop(held.tracee.go(0)),
        }
        Ok(true)
    }

    /// Looks at the threads that do not stop.
    fn ask_why(&mut self, waited: Duration) -> Result<(), ProbeError> {
        for held in &mut self.held {
            if !matches!(held.state, State::Asked) {
                continue;
            }
            let (pid, tid) = (self.pid, held.tracee.tid());
            let state = thread_state(pid, tid);
            match state {
                'D' => {
                    if let Some((ip, sp)) = place_asleep(pid, tid) {
                        held.state = State::Asleep { ip, sp };
                    }
                }
                // A leader that ended before its threads, or a thread nobody waited for yet.
                'Z' | 'X' | '?' => {
                    LIMBO.with_borrow_mut(|l| l.push(Tracee::adopt(pid, tid)));
                    held.state = State::Gone;
                }
                _ if waited > PATIENCE => return Err(ProbeError::Unstoppable { pid, tid, state, waited }),
                _ => {}
            }
        }
        Ok(())
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// How long it has stood still.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Its threads, those asleep in the kernel included.
    #[must_use]
    pub fn tids(&self) -> Vec<u32> {
        self.places().iter().map(|p| p.0).collect()
    }

    /// Thread id, instruction pointer and stack pointer of every thread.
    #[must_use]
    pub fn places(&self) -> Vec<(u32, u64, u64)> {
        let place = |held: &Held| match &held.state {
            State::Still(regs) => Some((held.tracee.tid(), regs.rip, regs.rsp)),
            State::Asleep { ip, sp } => Some((held.tracee.tid(), *ip, *sp)),
            State::Asked | State::Standing | State::Gone => None,
        };
        self.held.iter().filter_map(place).collect()
    }

    /// Where each thread of [`Self::places`] keeps its local storage, 0 where that is not known.
    pub(super) fn local_storage(&self) -> Vec<u64> {
        let base = |held: &Held| match &held.state {
            State::Still(regs) => Some(regs.fs_base),
            State::Asleep { .. } => Some(0),
            State::Asked | State::Standing | State::Gone => None,
        };
        self.held.iter().filter_map(base).collect()
    }

    /// Registers of a thread; `None` for one asleep in the kernel.
    #[must_use]
    pub fn registers(&self, tid: u32) -> Option<&Regs> {
        self.held.iter().find_map(|h| match &h.state {
            State::Still(regs) if h.tracee.tid() == tid => Some(&**regs),
            _ => None,
        })
    }

    /// Sets registers of a thread.
    ///
    /// # Errors
    /// When the thread is not stopped.
    pub fn set_registers(&mut self, tid: u32, new: &Regs) -> Result<(), ProbeError> {
        for held in &mut self.held {
            if let (true, State::Still(regs)) = (held.tracee.tid() == tid, &mut held.state) {
                held.tracee.set_registers(new)?;
                **regs = *new;
                return Ok(());
            }
        }
        Err(ProbeError::Unstoppable { pid: self.pid, tid, state: 'D', waited: self.elapsed() })
    }

    /// Moves threads: for each instruction pointer for which `to` names another, that one is set.
    /// Returns how many were moved.
    ///
    /// # Errors
    /// When a thread that must be moved is asleep in the kernel: then nothing may be patched there.
    pub fn move_ips(&mut self, to: &dyn Fn(u64) -> Option<u64>) -> Result<usize, ProbeError> {
        let wanted: Vec<(u32, u64)> =
            self.places().into_iter().filter_map(|(tid, ip, _)| Some((tid, to(ip)?))).collect();
        for &(tid, ip) in &wanted {
            let Some(mut regs) = self.registers(tid).copied() else {
                return Err(ProbeError::Unstoppable { pid: self.pid, tid, state: 'D', waited: self.elapsed() });
            };
            regs.rip = ip;
            self.set_registers(tid, &regs)?;
        }
        Ok(wanted.len())
    }

    /// Gives up the first claim on a processor until all are let go, for a thread of the target that is to run meanwhile.
    pub(super) fn step_back(&mut self) {
        self.rush = None;
    }

    /// Lets everything run again, and says how long it was held up.
    #[must_use]
    pub fn release(mut self) -> Pause {
        let still = self.asked.elapsed();
        self.let_all_go();
        Pause { still, held: self.began.elapsed() }
    }

    /// Its threads, still standing; those asleep in the kernel or ended are let go.
    pub(super) fn into_tracees(mut self) -> Vec<Tracee> {
        let mut tracees = Vec::new();
        for held in self.held.drain(..) {
            match held.state {
                State::Still(_) | State::Standing => tracees.push(held.tracee),
                State::Asked | State::Asleep { .. } => into_limbo(held.tracee),
                State::Gone => {}
            }
        }
        tracees
    }

    fn let_all_go(&mut self) {
        if self.rush.is_none() {
            self.rush = Some(Rush::begin());
        }
        for held in self.held.drain(..) {
            match held.state {
                State::Still(_) | State::Standing => let_go(held.tracee, Event::Stopped),
                State::Asked | State::Asleep { .. } => LIMBO.with_borrow_mut(|l| l.push(held.tracee)),
                State::Gone => {}
            }
        }
        self.rush = None;
        tend();
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if !self.held.is_empty() {
            self.let_all_go();
        }
    }
}

/// Lets go of threads that could not be let go before, once they stop. To be called now and then by the
/// thread that stopped them; true when none is left.
pub fn tend() -> bool {
    let waiting = LIMBO.take();
    let mut kept = Vec::new();
    for tracee in waiting {
        match tracee.poll() {
            Ok(None) => kept.push(tracee),
            Ok(Some(event)) if event.stands() => let_go(tracee, event),
            Ok(Some(event)) => note_end(&tracee, event),
            Err(_) => {}
        }
    }
    let done = kept.is_empty();
    LIMBO.with_borrow_mut(|l| l.append(&mut kept));
    done
}

/// As [`tend`], and says how soon that is to be done again, if at all: a thread that comes out of the kernel stands still until
/// then. At first nearly at once (a child of `vfork` becomes another program), later seldom, so that a sleep of minutes costs next
/// to nothing, and never at more than a twentieth of the time it has lasted.
pub fn tend_again() -> Option<Duration> {
    if tend() {
        WAITING.set(None);
        return None;
    }
    let since = WAITING.get().unwrap_or_else(Instant::now);
    WAITING.set(Some(since));
    Some((since.elapsed() / 20).clamp(AT_ONCE, AT_LEAST))
}

/// Tends for so long at most, before something lasts or nobody does any more. What still sleeps when this process ends is let go
/// by the kernel.
pub(crate) fn tend_for(limit: Duration) {
    let end = Instant::now() + limit;
    while let Some(pause) = tend_again() {
        if Instant::now() > end {
            return;
        }
        std::thread::sleep(pause);
    }
}

/// Detaches from a thread that stands still after `event`.
pub(super) fn let_go(tracee: Tracee, event: Event) {
    let signal = if let Event::Signal(signal) = event { signal } else { 0 };
    if let Err(KernelError::Trace { source, .. }) = tracee.detach(signal) {
        // Killed while it stood: somebody must still wait for it, and that is us.
        if source.raw_os_error() == Some(libc::ESRCH) {
            LIMBO.with_borrow_mut(|l| l.push(tracee));
        }
    }
}

/// Keeps the status of a process that ended under our eyes.
pub(super) fn note_end(tracee: &Tracee, event: Event) {
    if tracee.tid() != tracee.pid() {
        return;
    }
    let status = match event {
        Event::Exited(status) => status,
        Event::Killed(signal) => 128 + signal,
        _ => return,
    };
    ENDED.with_borrow_mut(|ended| ended.insert(tracee.pid(), status));
}

/// Status of a process whose end was seen by this thread, once.
pub(super) fn take_end(pid: u32) -> Option<i32> {
    ENDED.with_borrow_mut(|ended| ended.remove(&pid))
}

/// Threads of a process that still wait to be let go: they are traced by us already.
pub(super) fn take_limbo(pid: u32) -> Vec<Tracee> {
    tend();
    let all = LIMBO.take();
    let (ours, others) = all.into_iter().partition(|t| t.pid() == pid);
    LIMBO.set(others);
    ours
}

/// Puts a thread on the list of those to be let go when they stop.
pub(super) fn into_limbo(tracee: Tracee) {
    LIMBO.with_borrow_mut(|l| l.push(tracee));
}

/// Whether a thread has ended or is ending.
pub(super) fn ended(pid: u32, tid: u32) -> bool {
    matches!(thread_state(pid, tid), 'Z' | 'X' | '?')
}

/// State letter of a thread, `?` when it is gone.
pub(super) fn thread_state(pid: u32, tid: u32) -> char {
    let text = proc::read_text(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
    text.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next()).unwrap_or('?')
}

/// How many threads a process has: the kernel counts them as links of the directory that lists them.
fn threads_of(pid: u32) -> Option<u64> {
    let links = std::fs::metadata(format!("/proc/{pid}/task")).ok()?.nlink();
    links.checked_sub(2)
}

/// Where a thread that sleeps in the kernel will come out: instruction and stack pointer.
fn place_asleep(pid: u32, tid: u32) -> Option<(u64, u64)> {
    let text = proc::read_text(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    let mut words = text.split_whitespace().rev();
    let mut word = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let ip = word()?;
    Some((ip, word()?))
}

/// Some system calls answer `EINTR` to any interruption, where most are restarted by the kernel. If no
/// signal is on its way that could be the reason, our stop was: then the call is made again, with all of its timeout:
/// what is left of it is not known, and a register changed here would stay so for code that keeps it.
pub(super) fn repair(tracee: &Tracee, regs: Regs) -> Regs {
    const EINTR: i64 = -(libc::EINTR as i64);
    let call = regs.orig_rax as i64;
    if regs.rax as i64 != EINTR || !ANSWERS_EINTR.contains(&call) || signal_on_its_way(tracee) {
        return regs;
    }
    let mut again = regs;
    again.rax = regs.orig_rax;
    again.orig_rax = u64::MAX;
    again.rip = regs.rip.wrapping_sub(2);
    if tracee.set_registers(&again).is_ok() { again } else { regs }
}

/// Number of `io_pgetevents`, which crate libc does not name.
const IO_PGETEVENTS: i64 = 333;
/// Calls that answer `EINTR` although nothing was done yet.
const ANSWERS_EINTR: [i64; 18] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    IO_PGETEVENTS,
    libc::SYS_io_uring_enter,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
];

fn signal_on_its_way(tracee: &Tracee) -> bool {
    let path = format!("/proc/{}/task/{}/status", tracee.pid(), tracee.tid());
    let text = proc::read_text(path).unwrap_or_default();
    let set = |key: &str| {
        let word = text.lines().find_map(|l| l.strip_prefix(key)).unwrap_or_default();
        u64::from_str_radix(word.trim(), 16).unwrap_or(0)
    };
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_counted_without_a_listing() {
        // The test runner's threads come and go.
        let agrees = || threads_of(std::process::id()) == Some(proc::threads(std::process::id()).len() as u64);
        assert!((0..100).any(|_| agrees()));
        assert_eq!(threads_of(u32::MAX), None);
    }
}
