//! One thread of the target borrowed for calls made in the target's name, while all others run on. The
//! thread's own stack is not touched: calls run on a stack mapped for them, its general and extended
//! registers and its signal mask are saved and given back, and the system call it may have been blocked
//! in goes on. Signals wait in the kernel meanwhile.
//!
//! Every call returns into a way back to where the thread was (see `home`), which the controller
//! intercepts. The few system calls that have to do without run by a detour that does the same (see
//! `detour`).

mod ground;

use super::detour::Detour;
use super::home::{self, STACK};
use super::locals::Locals;
use super::opens::Opens;
use super::safe::{self, Places};
use super::stop::{Stopped, ended, into_limbo, let_go, note_end, repair, take_limbo, thread_state};
use crate::ProbeError;
use ground::Ground;
use std::cell::Cell;
use std::io::Error;
use std::ops::Range;
use std::time::{Duration, Instant};
use whither_kernel::freezer::frozen_by;
use whither_kernel::memory::Memory;
use whither_kernel::proc;
use whither_kernel::ptrace::{Event, Regs, Tracee, Watching, examine};

/// How long a thread in a good place is looked for.
const SEARCH: Duration = Duration::from_millis(500);
/// The same where a thread that runs does not get its turn, to stop or to leave a bad place: the machine is
/// busy.
const BUSY_SEARCH: Duration = Duration::from_secs(10);
/// How long one thread may take to stop.
const STOPPING: Duration = Duration::from_millis(50);
/// How long a called function may take.
const CALL: Duration = Duration::from_secs(20);
/// How long it may wait for a lock, in one go: who holds it may wait for the very thread that we hold.
const LOCKED: Duration = Duration::from_secs(1);
/// The same with vain tries in between: where others take it again at once, a thread that has to wake up first never gets it.
const LOCKED_OUT: Duration = Duration::from_secs(3);
/// Polls, each of them 100 us at least, between two looks at what it waits for.
const LOOK: u32 = 200;
/// Bytes of scratch at its low end, for arguments.
const SCRATCH: u64 = 16 << 10;
/// All signals but those that a fault of the called function raises.
const HELD_BACK: u64 =
    !(bit(libc::SIGSEGV) | bit(libc::SIGBUS) | bit(libc::SIGILL) | bit(libc::SIGFPE) | bit(libc::SIGTRAP));

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// A thread borrowed for calls.
#[derive(Debug)]
pub struct Caller {
    tracee: Option<Tracee>,
    pid: u32,
    memory: Memory,
    saved: Regs,
    extended: Vec<u8>,
    mask: u64,
    instruction: u64,
    detour: Option<Detour>,
    ground: Option<Ground>,
    moved: bool,
    began: Instant,
    /// The lock that a call has waited for since, again and again, and done nothing else.
    tried: Option<(u64, Instant)>,
    /// A file that a called function opens.
    pub(super) opens: Option<Opens>,
}

impl Caller {
    /// Borrows a thread that stands where functions may be called.
    ///
    /// # Errors
    /// [`ProbeError`] with the reason; nothing has changed then.
    pub fn pick(pid: u32) -> Result<Self, ProbeError> {
        Self::pick_avoiding(pid, &[])
    }

    /// The same; the thread must not stand in one of these ranges either.
    ///
    /// # Errors
    /// As [`Self::pick`].
    pub fn pick_avoiding(pid: u32, avoid: &[Range<u64>]) -> Result<Self, ProbeError> {
        let limbo = take_limbo(pid);
        if limbo.is_empty() {
            examine(pid)?;
        }
        limbo.into_iter().for_each(into_limbo);
        let memory = Memory::open(pid)?;
        let places = Places::of(pid, avoid)?;
        let began = Instant::now();
        let mut round = 0_u32;
        loop {
            let tids = candidates(pid, round);
            if tids.is_empty() && proc::threads(pid).iter().all(|&tid| ended(pid, tid)) {
                return Err(ProbeError::Ended { pid, what: "a thread was being chosen" });
            }
            let (mut busy, mut last) = (false, None);
            for &tid in &tids {
                let Some((tracee, regs)) = hold(pid, tid)? else {
                    busy |= thread_state(pid, tid) == 'R';
                    continue;
                };
                let search = safe::Search { rounds: round, time: began.elapsed() };
                if safe::is_safe(&tracee, &regs, &memory, &places, search) {
                    return Self::on(tracee, regs, memory);
                }
                // One that does not sleep will be elsewhere at its next turn.
                busy |= (regs.orig_rax as i64) < 0;
                last = safe::runtime(pid, tid).map(|time| (tid, time));
                let_go(tracee, Event::Stopped);
            }
            if began.elapsed() > if busy { BUSY_SEARCH } else { SEARCH } {
                let threads = proc::threads(pid);
                if threads.iter().all(|&tid| thread_state(pid, tid) == 'T') {
                    return Err(ProbeError::Halted { pid });
                }
                if let Some((file, word)) = frozen_by(pid) {
                    return Err(ProbeError::Frozen { pid, file: file.display().to_string(), word });
                }
                return Err(ProbeError::NoSafeThread { pid, threads: threads.len(), waited: began.elapsed() });
            }
            safe::wait_for_turn(pid, last);
            round += 1;
        }
    }

    /// Takes a thread that stands still in a place known to be good.
    pub(super) fn on(tracee: Tracee, saved: Regs, memory: Memory) -> Result<Self, ProbeError> {
        let pid = tracee.pid();
        let began = Instant::now();
        let prepared = (|| {
            if saved.cs & 0xffff != 0x33 {
                let why = whither_kernel::ptrace::Untraceable::ThirtyTwoBit;
                return Err(whither_kernel::KernelError::Untraceable { pid, why }.into());
            }
            unfilter(&tracee)?;
            let instruction = safe::syscall_instruction(pid, &memory)
                .ok_or(ProbeError::Injection { pid, why: "no syscall instruction is mapped in it".to_string() })?;
            Ok((instruction, tracee.mask()?, tracee.extended()?))
        })();
        match prepared {
            Ok((instruction, mask, extended)) => {
                let tracee = Some(tracee);
                let (detour, ground, moved) = (None, None, false);
                Ok(Self {
                    tracee,
                    pid,
                    memory,
                    saved,
                    extended,
                    mask,
                    instruction,
                    detour,
                    ground,
                    moved,
                    began,
                    tried: None,
                    opens: None,
                })
            }
            Err(e) => {
                let_go(tracee, Event::Stopped);
                Err(e)
            }
        }
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The thread.
    #[must_use]
    pub fn tid(&self) -> u32 {
        self.tracee.as_ref().map_or(0, Tracee::tid)
    }

    /// The process's memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Makes a system call; `what` names it in messages.
    ///
    /// # Errors
    /// [`ProbeError::RemoteCall`] with its error number.
    pub fn syscall(&mut self, what: &'static str, number: i64, args: [u64; 6]) -> Result<u64, ProbeError> {
        let ground = self.ground()?;
        let regs = self.syscall_regs(number, args, ground.pad + home::SYSCALL, ground.top);
        self.run_syscall(what, &regs)
    }

    fn syscall_regs(&self, number: i64, args: [u64; 6], rip: u64, rsp: u64) -> Regs {
        let [rdi, rsi, rdx, r10, r8, r9] = args;
        Regs { rip, rsp, rax: number as u64, orig_rax: u64::MAX, rdi, rsi, rdx, r10, r8, r9, ..self.saved }
    }

    fn run_syscall(&mut self, what: &'static str, regs: &Regs) -> Result<u64, ProbeError> {
        self.set(regs)?;
        let deadline = Instant::now() + CALL;
        // Its begin, its end.
        let done = self.next_syscall_stop(what, deadline)? && self.next_syscall_stop(what, deadline)?;
        if !done {
            return Err(self.fault(what, format!("it waited for {LOCKED:?}")));
        }
        let result = self.thread()?.registers()?.rax;
        let error = (result as i64).wrapping_neg();
        if (1..4096).contains(&error) {
            let source = Error::from_raw_os_error(error as i32);
            return Err(ProbeError::RemoteCall { what, pid: self.pid, source });
        }
        Ok(result)
    }

    /// Begins a system call and does not wait for its end: what a controller that dies leaves behind.
    ///
    /// # Errors
    /// When the thread cannot be resumed.
    #[doc(hidden)]
    pub fn begin_syscall(&mut self, number: i64, args: [u64; 6]) -> Result<(), ProbeError> {
        let ground = self.ground()?;
        let regs = self.syscall_regs(number, args, ground.pad + home::SYSCALL, ground.top);
        self.set(&regs)?;
        Ok(self.thread()?.go(0)?)
    }

    /// Calls a function with up to six integer arguments; `what` names it in messages.
    ///
    /// # Errors
    /// [`ProbeError::RemoteFault`] when it faults or does not return; the thread is then put back to
    /// where it was.
    pub fn call(&mut self, what: &'static str, function: u64, args: &[u64]) -> Result<u64, ProbeError> {
        self.call_unless_locked(what, function, args)?
            .ok_or_else(|| self.fault(what, format!("it waited for {LOCKED:?} for a lock that another thread holds")))
    }

    /// The same; `None` when it had to wait too long for a lock. It is undone then: no lock is held by it,
    /// and nothing that outlives it refers to its stack.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub(super) fn call_unless_locked(
        &mut self,
        what: &'static str,
        function: u64,
        args: &[u64],
    ) -> Result<Option<u64>, ProbeError> {
        let ground = self.ground()?;
        let arg = |n: usize| args.get(n).copied().unwrap_or(0);
        /// Direction flag: functions expect it clear. Trap flag: not for us.
        const UNWANTED: u64 = 0x400 | 0x100;
        let regs = Regs {
            rip: ground.pad,
            rsp: ground.top,
            rbx: function,
            rax: 0,
            orig_rax: u64::MAX,
            eflags: self.saved.eflags & !UNWANTED,
            rdi: arg(0),
            rsi: arg(1),
            rdx: arg(2),
            rcx: arg(3),
            r8: arg(4),
            r9: arg(5),
            rbp: 0,
            ..self.saved
        };
        let locals = Locals::keep(&self.memory, self.saved.fs_base);
        self.set(&regs)?;
        let result = self.finish_call(what, ground.behind);
        if matches!(result, Ok(None) | Err(ProbeError::RemoteFault { .. })) {
            // It will not go on, whatever becomes of us.
            let home = Regs { rip: ground.pad + home::WAY, rsp: ground.top, orig_rax: u64::MAX, ..self.saved };
            self.set(&home)?;
            locals.forget(&self.memory, ground.stack..ground.stack + STACK);
        }
        result
    }

    /// Runs up to the way back of a call.
    fn finish_call(&mut self, what: &'static str, behind: u64) -> Result<Option<u64>, ProbeError> {
        let deadline = Instant::now() + CALL;
        self.tried = None;
        loop {
            if !self.next_syscall_stop(what, deadline)? {
                return Ok(None);
            }
            let mut now = self.thread()?.registers()?;
            if now.orig_rax != libc::SYS_futex as u64 {
                self.tried = None;
            }
            if let Some(instead) = self.opens.as_ref().and_then(|opens| opens.instead(&self.memory, &now)) {
                self.set(&instead)?;
                self.next_syscall_stop(what, deadline)?;
                let end = self.thread()?.registers()?;
                // System calls leave these as they were.
                self.set(&Regs { rdi: now.rdi, rsi: now.rsi, rdx: now.rdx, ..end })?;
                continue;
            }
            if now.rip == behind && now.orig_rax == libc::SYS_rt_sigprocmask as u64 {
                // Not this time: the call is skipped, its end is waited for.
                now.orig_rax = u64::MAX;
                now.rax = home::SKIPPED;
                self.set(&now)?;
                self.next_syscall_stop(what, deadline)?;
                return Ok(Some(now.rbx));
            }
        }
    }

    /// Up to 16 KiB of memory of the target for arguments, filled with `bytes`; each use overwrites the
    /// last.
    ///
    /// # Errors
    /// When they are too many, or memory cannot be mapped.
    pub fn scratch(&mut self, bytes: &[u8]) -> Result<u64, ProbeError> {
        let ground = self.ground()?;
        if bytes.len() as u64 > SCRATCH {
            return Err(ProbeError::Injection { pid: self.pid, why: "arguments of a call are too long".to_string() });
        }
        self.memory.write(ground.stack, bytes)?;
        Ok(ground.stack)
    }

    /// Maps private anonymous memory, at exactly `at` when given (never over something else).
    ///
    /// # Errors
    /// [`ProbeError::RemoteCall`].
    pub fn map_anonymous(&mut self, at: Option<u64>, bytes: u64, rights: i32) -> Result<u64, ProbeError> {
        let fixed = if at.is_some() { libc::MAP_FIXED_NOREPLACE } else { 0 };
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed) as u64;
        let got = self.syscall("mmap", libc::SYS_mmap, [at.unwrap_or(0), bytes, rights as u64, flags, u64::MAX, 0])?;
        match at {
            // Kernels before 4.17 take the address for a wish.
            Some(at) if at != got => {
                self.unmap(got, bytes)?;
                let source = Error::from_raw_os_error(libc::EEXIST);
                Err(ProbeError::RemoteCall { what: "mmap", pid: self.pid, source })
            }
            _ => Ok(got),
        }
    }

    /// Unmaps memory.
    ///
    /// # Errors
    /// [`ProbeError::RemoteCall`].
    pub fn unmap(&mut self, at: u64, bytes: u64) -> Result<(), ProbeError> {
        self.syscall("munmap", libc::SYS_munmap, [at, bytes, 0, 0, 0, 0]).map(drop)
    }

    /// Changes rights of memory.
    ///
    /// # Errors
    /// [`ProbeError::RemoteCall`].
    pub fn protect(&mut self, at: u64, bytes: u64, rights: i32) -> Result<(), ProbeError> {
        self.syscall("mprotect", libc::SYS_mprotect, [at, bytes, rights as u64, 0, 0, 0]).map(drop)
    }

    fn thread(&self) -> Result<&Tracee, ProbeError> {
        self.tracee.as_ref().ok_or(ProbeError::Ended { pid: self.pid, what: "a call was made in it" })
    }

    fn set(&mut self, regs: &Regs) -> Result<(), ProbeError> {
        let first = !std::mem::replace(&mut self.moved, true);
        self.thread()?.set_registers(regs)?;
        if first {
            // From here on the way back restores the mask.
            self.thread()?.set_mask(self.mask | HELD_BACK)?;
        }
        Ok(())
    }

    /// Runs the thread up to the next begin or end of a system call; false when it waits for a lock.
    fn next_syscall_stop(&mut self, what: &'static str, deadline: Instant) -> Result<bool, ProbeError> {
        let mut signal = 0;
        loop {
            self.thread()?.go_to_syscall(signal)?;
            signal = match self.wait(deadline)? {
                Next::Event(Event::Syscall) => return Ok(true),
                // SIGSTOP cannot be held back; job control shall see it.
                Next::Event(Event::Signal(libc::SIGSTOP)) => libc::SIGSTOP,
                Next::Event(Event::Signal(sent)) if self.hold_back(sent)? => sent,
                Next::Event(Event::Signal(raised)) => {
                    let at = self.thread()?.registers().map_or(0, |r| r.rip);
                    return Err(self.fault(what, format!("signal {raised} was raised at {at:#x}")));
                }
                Next::Event(_) => 0,
                Next::Locked => return Ok(false),
                Next::Late => return Err(self.fault(what, format!("it did not return within {CALL:?}"))),
            };
        }
    }

    /// Of the signals that faults raise, those that somebody has sent must wait too: given again while it is
    /// held back, such a one goes back to the kernel's list.
    fn hold_back(&self, signal: i32) -> Result<bool, ProbeError> {
        let thread = self.thread()?;
        if HELD_BACK & bit(signal) != 0 || !thread.signal_was_sent()? {
            return Ok(false);
        }
        let mask = thread.mask()?;
        thread.set_mask(mask | bit(signal))?;
        Ok(true)
    }

    fn fault(&self, what: &'static str, why: String) -> ProbeError {
        ProbeError::RemoteFault { what, pid: self.pid, why }
    }

    /// What happens to the thread next.
    fn wait(&mut self, deadline: Instant) -> Result<Next, ProbeError> {
        let ended = ProbeError::Ended { pid: self.pid, what: "a call was made in it" };
        let mut polls = 0_u32;
        let mut lock: Option<(u64, Instant)> = None;
        loop {
            match self.thread()?.poll() {
                Ok(Some(event)) if event.stands() => return Ok(Next::Event(event)),
                Ok(Some(event)) => {
                    if let Some(tracee) = self.tracee.take() {
                        note_end(&tracee, event);
                    }
                    return Err(ended);
                }
                Err(_) => {
                    self.tracee = None;
                    return Err(ended);
                }
                Ok(None) => {}
            }
            polls = polls.saturating_add(1);
            pause(polls);
            if polls.is_multiple_of(LOOK) && polls > SPINS {
                let address = waited_for(self.pid, self.tid());
                let since =
                    lock.filter(|(last, _)| Some(*last) == address).map_or_else(Instant::now, |(_, since)| since);
                lock = address.map(|address| (address, since));
                if lock.is_some() && (since.elapsed() > LOCKED || self.tries(address) > LOCKED_OUT) {
                    return self.halt(Next::Locked);
                }
            }
            if Instant::now() > deadline {
                return self.halt(Next::Late);
            }
        }
    }

    /// How long it has tried to get the lock it waits for now.
    fn tries(&mut self, lock: Option<u64>) -> Duration {
        let known = self.tried.filter(|(last, _)| Some(*last) == lock);
        self.tried = known.or_else(|| Some((lock?, Instant::now())));
        self.tried.map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }

    /// Stops the thread wherever it is.
    fn halt(&mut self, why: Next) -> Result<Next, ProbeError> {
        let (pid, tid) = (self.pid, self.tid());
        let began = Instant::now();
        self.thread()?.interrupt()?;
        while began.elapsed() < STOPPING * 10 {
            match self.thread()?.poll()? {
                // It has gone on in this very moment, unless that is the end of an interrupted wait.
                Some(event @ (Event::Syscall | Event::Signal(_))) => {
                    let waits =
                        event == Event::Syscall && (-516..=-512).contains(&(self.thread()?.registers()?.rax as i64));
                    return Ok(if waits { why } else { Next::Event(event) });
                }
                Some(event) if event.stands() => return Ok(why),
                Some(event) => {
                    if let Some(tracee) = self.tracee.take() {
                        note_end(&tracee, event);
                    }
                    return Err(ProbeError::Ended { pid, what: "a call was made in it" });
                }
                None => pause(u32::MAX),
            }
        }
        Err(ProbeError::Unstoppable { pid, tid, state: thread_state(pid, tid), waited: began.elapsed() })
    }

    /// Unmaps what was mapped for calls, puts the thread back to where it was and lets it go. Says how
    /// long it was held.
    #[must_use]
    pub fn release(mut self) -> Duration {
        self.leave();
        self.began.elapsed()
    }

    /// Puts the thread back to where it was, and stops all others too.
    ///
    /// # Errors
    /// As [`Stopped::stop`]; everything runs then.
    pub fn into_stopped(mut self) -> Result<Stopped, ProbeError> {
        self.restore();
        let tracee = self.tracee.take();
        let tracee = tracee.ok_or(ProbeError::Ended { pid: self.pid, what: "a call was made in it" })?;
        Stopped::around(tracee, self.saved)
    }

    fn leave(&mut self) {
        self.restore();
        if let Some(tracee) = self.tracee.take() {
            let_go(tracee, Event::Stopped);
            LONGEST.set(LONGEST.get().max(self.began.elapsed()));
        }
    }

    /// At every step of this the thread would find its way back without us.
    fn restore(&mut self) {
        if let (true, Some(tracee)) = (self.moved, &self.tracee) {
            // System calls leave this state alone: it can come first, while a frame still holds it.
            let _ = tracee.set_extended(&self.extended);
        }
        self.give_ground_back();
        if self.moved {
            self.settle();
        }
        let Some(tracee) = &self.tracee else { return };
        if self.moved {
            let _ = tracee.set_mask(self.mask);
            let _ = tracee.set_registers(&self.saved);
        }
        let _ = tracee.watch(Watching::EXECS);
        self.moved = false;
        if let Some(detour) = self.detour.take() {
            detour.clear(&self.memory);
        }
    }

    /// Brings the thread to a stop from which the kernel restarts an interrupted system call: one on the
    /// way out of the kernel where signals are looked at.
    fn settle(&mut self) {
        let deadline = Instant::now() + STOPPING * 10;
        let asked = self.thread().and_then(|t| Ok(t.interrupt()?)).and_then(|()| Ok(self.thread()?.go(0)?));
        if asked.is_err() {
            return;
        }
        loop {
            match self.wait(deadline) {
                Ok(Next::Event(Event::Stopped | Event::GroupStop(_)) | Next::Late | Next::Locked) | Err(_) => return,
                Ok(Next::Event(Event::Signal(signal))) => {
                    let sent = signal == libc::SIGSTOP || self.hold_back(signal).unwrap_or(false);
                    let pass = if sent { signal } else { 0 };
                    let _ = self.thread().and_then(|t| Ok(t.go(pass)?));
                }
                Ok(Next::Event(_)) => {
                    let _ = self.thread().and_then(|t| Ok(t.go(0)?));
                }
            }
        }
    }
}

thread_local! {
    /// Longest time that one was borrowed.
    static LONGEST: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The longest time that this thread has borrowed one of a target and let it go again, since this was asked last: only that one
/// stood still meanwhile.
pub(crate) fn longest_borrowed() -> Duration {
    LONGEST.take()
}

impl Drop for Caller {
    fn drop(&mut self) {
        if self.tracee.is_some() {
            self.leave();
        }
    }
}

/// What becomes of a thread that runs; it stands still afterwards.
#[derive(Clone, Copy, Debug)]
enum Next {
    Event(Event),
    /// It was stopped at the deadline.
    Late,
    /// It was stopped because it waited for a lock.
    Locked,
}

/// The lock that a thread sleeps for, by address.
fn waited_for(pid: u32, tid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    let mut words = text.split_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let address = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    (number == libc::SYS_futex).then_some(address)
}

/// Polls without sleeping.
const SPINS: u32 = 2000;

/// Waits a little, the less the newer the wait is.
fn pause(polls: u32) {
    if polls < SPINS {
        std::thread::yield_now();
    } else {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Threads to be tried: for a while only the first one, since another one's first allocation would make
/// the C library map an arena for it; then sleeping ones first, which notice nothing.
fn candidates(pid: u32, round: u32) -> Vec<u32> {
    /// Rounds of a millisecond.
    const FIRST_ONLY: u32 = 20;
    let mut all: Vec<(bool, u32)> = proc::threads(pid)
        .into_iter()
        .filter_map(|tid| match thread_state(pid, tid) {
            'Z' | 'X' | '?' | 'D' => None,
            state => Some((state != 'S', tid)),
        })
        .collect();
    if round < FIRST_ONLY && all.iter().any(|(_, tid)| *tid == pid) {
        return vec![pid];
    }
    all.sort_unstable();
    all.into_iter().map(|(_, tid)| tid).collect()
}

/// Stops one thread; `None` when it ends or does not stop soon.
fn hold(pid: u32, tid: u32) -> Result<Option<(Tracee, Regs)>, ProbeError> {
    let tracee = match take_limbo(pid).into_iter().fold(None, |found, t| {
        if t.tid() == tid {
            Some(t)
        } else {
            into_limbo(t);
            found
        }
    }) {
        Some(tracee) => tracee,
        None => match Tracee::seize(pid, tid, Watching::EXECS) {
            Ok(tracee) => tracee,
            Err(_) if ended(pid, tid) => return Ok(None),
            Err(e) => return Err(e.into()),
        },
    };
    let _ = tracee.interrupt();
    let deadline = Instant::now() + STOPPING;
    let mut polls = 0;
    loop {
        match tracee.poll() {
            Ok(Some(Event::Stopped | Event::GroupStop(_))) => {
                let Ok(regs) = tracee.registers() else { return Ok(None) };
                let regs = repair(&tracee, regs);
                return Ok(Some((tracee, regs)));
            }
            Ok(Some(Event::Signal(signal))) => drop(tracee.go(signal)),
            Ok(Some(event @ (Event::Exited(_) | Event::Killed(_)))) => {
                note_end(&tracee, event);
                return Ok(None);
            }
            Ok(Some(Event::Exec(_))) => {
                let_go(tracee, Event::Stopped);
                return Err(ProbeError::Executed { pid, what: "a thread was being chosen" });
            }
            Ok(Some(_)) => drop(tracee.go(0)),
            Ok(None) if Instant::now() > deadline => {
                into_limbo(tracee);
                return Ok(None);
            }
            Ok(None) => {
                polls += 1;
                pause(polls);
            }
            Err(_) => return Ok(None),
        }
    }
}

/// Whether seccomp filters judge the system calls of a thread (of the first one, given a process). Calls
/// made through [`Caller`] are exempt; those that injected code makes later, by itself, are not.
#[must_use]
pub fn filtered(tid: u32) -> bool {
    proc::status_word(tid, "Seccomp:").is_some_and(|mode| mode != "0")
}

/// Suspends the seccomp filters of a thread, if it has any.
fn unfilter(tracee: &Tracee) -> Result<(), ProbeError> {
    if filtered(tracee.tid()) && tracee.watch(Watching::EXECS.without_seccomp()).is_err() {
        return Err(ProbeError::Seccomp { pid: tracee.pid() });
    }
    Ok(())
}
