//! A handler in the target that sleeps: for delays that leave the core to others. It is one page of code without data,
//! and the action of one real-time signal that the program does not use. The signal carries how many nanoseconds
//! to sleep; nothing else of the program is touched, no system call is interrupted as long as the signal is sent to threads
//! in user mode only. Not here: who sends it.
//!
//! The page stays when its signal is given back: a thread may still be on its way out of the handler, and nobody can be
//! sure where its return address lies. The next handler is put into that page. By its code a page is known again, too, when its session was
//! killed and could not give the signal back.

use super::{Caller, filtered};
use crate::ProbeError;
use whither_kernel::memory::Memory;
use whither_kernel::proc;

/// Signals that glibc keeps for itself end below the first; programs count from there upwards.
const SIGNALS: std::ops::RangeInclusive<u32> = 36..=63;
/// The kernel's struct: handler, flags, restorer, mask.
const ACTION: usize = 32;
const PAGE: u64 = 4096;
/// Where the code behind the handler is that ends it.
const RESTORER: u64 = 64;

/// `void handler(int signal, siginfo_t *info, void *context)`: sleeps `info->si_value` ns of `CLOCK_MONOTONIC`, once.
const CODE: &[u8] = &[
    0xf3, 0x0f, 0x1e, 0xfa, // endbr64
    0x48, 0x83, 0xec, 0x18, // sub rsp, 24
    0x48, 0x8b, 0x46, 0x18, // mov rax, [rsi+24]
    0x31, 0xc9, // xor ecx, ecx
    0x48, 0x89, 0x0c, 0x24, // mov [rsp], rcx
    0x48, 0x89, 0x44, 0x24, 0x08, // mov [rsp+8], rax
    0xb8, 0xe6, 0x00, 0x00, 0x00, // mov eax, 230: clock_nanosleep
    0xbf, 0x01, 0x00, 0x00, 0x00, // mov edi, 1: CLOCK_MONOTONIC
    0x31, 0xf6, // xor esi, esi: relative
    0x48, 0x89, 0xe2, // mov rdx, rsp
    0x45, 0x31, 0xd2, // xor r10d, r10d: the rest is not asked for
    0x0f, 0x05, // syscall
    0x48, 0x83, 0xc4, 0x18, // add rsp, 24
    0xc3, // ret
];
/// `rt_sigreturn()`.
const END: &[u8] = &[
    0xf3, 0x0f, 0x1e, 0xfa, // endbr64
    0xb8, 0x0f, 0x00, 0x00, 0x00, // mov eax, 15
    0x0f, 0x05, // syscall
];

/// A handler in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Napper {
    /// Process.
    pub pid: u32,
    /// Its signal.
    pub signal: u32,
    /// Its address.
    pub handler: u64,
}

/// Highest real-time signal that no thread of the process catches, ignores, blocks or has pending. A thread that is just
/// being made blocks all of them for a moment.
#[must_use]
pub fn free_signal(pid: u32) -> Option<u32> {
    let used = masks_of(pid, &["SigCgt:", "SigIgn:", "SigBlk:", "SigPnd:", "ShdPnd:"])?;
    SIGNALS.rev().find(|signal| used & 1 << (signal - 1) == 0)
}

/// Those that the process does something with. Whoever blocks a signal is never sent it.
fn uses(pid: u32, signal: u32) -> bool {
    masks_of(pid, &["SigCgt:", "SigIgn:", "SigPnd:", "ShdPnd:"]).is_none_or(|used| used & 1 << (signal - 1) != 0)
}

/// Whether a thread blocks a signal.
#[must_use]
pub fn blocks_signal(tid: u32, signal: u32) -> bool {
    let mask = proc::status_word(tid, "SigBlk:").and_then(|word| u64::from_str_radix(&word, 16).ok());
    mask.is_some_and(|mask| mask & 1 << (signal - 1) != 0)
}

/// Signals that are in one of these masks (`SigCgt:`) of one of the threads; `None` when there is no thread.
#[must_use]
pub fn masks_of(pid: u32, keys: &[&str]) -> Option<u64> {
    let threads = proc::threads(pid);
    // A thread that has ended meanwhile has none.
    let of = |tid: u32, key: &str| proc::status_word(tid, key).and_then(|word| u64::from_str_radix(&word, 16).ok());
    let all = threads.iter().flat_map(|tid| keys.iter().filter_map(|key| of(*tid, key)));
    (!threads.is_empty()).then(|| all.fold(0, |all, mask| all | mask))
}

impl Napper {
    /// Puts the handler into a process, whose threads run on but for one that is borrowed for three system calls.
    ///
    /// # Errors
    /// The reason why it must not be there or could not be put there; nothing has changed then.
    pub fn plant(pid: u32, signal: u32) -> Result<Self, ProbeError> {
        let refused = |why: String| Err(ProbeError::Injection { pid, why });
        if proc::threads(pid).iter().any(|tid| filtered(*tid)) {
            return refused("a seccomp filter judges its system calls, and might end it for one of ours".into());
        }
        if !SIGNALS.contains(&signal) || uses(pid, signal) {
            return refused(format!("it uses signal {signal} itself"));
        }
        let mut caller = Caller::pick(pid)?;
        let planted = Self::through(&mut caller, signal);
        let _held = caller.release();
        planted
    }

    /// Gives back the signals of handlers that a session left in a process when it was killed; how many those were. Not while a session is on.
    /// A process without such a handler is not stopped.
    ///
    /// # Errors
    /// When the process cannot be called into: they stay, and do nothing.
    pub fn take_back(pid: u32) -> Result<usize, ProbeError> {
        let pages = pages(pid);
        let caught = masks_of(pid, &["SigCgt:"]).unwrap_or(0);
        let signals: Vec<u32> = SIGNALS.filter(|signal| caught & 1 << (signal - 1) != 0).collect();
        if pages.is_empty() || signals.is_empty() {
            return Ok(0);
        }
        let mut caller = Caller::pick(pid)?;
        let given = signals.iter().try_fold(0, |given, signal| {
            let ours = pages.contains(&handler_of(&mut caller, *signal)?);
            if ours {
                set(&mut caller, *signal, 0)?;
            }
            Ok(given + usize::from(ours))
        });
        let _held = caller.release();
        given
    }

    fn through(caller: &mut Caller, signal: u32) -> Result<Self, ProbeError> {
        if let Some(page) = pages(caller.pid()).first() {
            exchange(caller, signal, 0, *page)?;
            return Ok(Self { pid: caller.pid(), signal, handler: *page });
        }
        let page = caller.map_anonymous(None, PAGE, libc::PROT_READ | libc::PROT_WRITE)?;
        let placed = (|| {
            caller.memory().write(page, CODE)?;
            caller.memory().write(page + RESTORER, END)?;
            caller.protect(page, PAGE, libc::PROT_READ | libc::PROT_EXEC)?;
            exchange(caller, signal, 0, page)
        })();
        match placed {
            Ok(()) => Ok(Self { pid: caller.pid(), signal, handler: page }),
            Err(e) => {
                // Nobody can have been in it.
                caller.unmap(page, PAGE)?;
                Err(e)
            }
        }
    }

    /// Gives the signal back, if it is still ours. Nobody may send it any more.
    ///
    /// # Errors
    /// When the process cannot be called into: the handler then stays, and is never used again.
    pub fn uproot(self) -> Result<(), ProbeError> {
        let mut caller = Caller::pick(self.pid)?;
        let given = exchange(&mut caller, self.signal, self.handler, 0);
        let _held = caller.release();
        given
    }
}

/// Pages of a process that hold the handler, whether a signal leads there or not.
fn pages(pid: u32) -> Vec<u64> {
    /// Pages that lie beside one another are one mapping; larger ones are code that the program makes.
    const MOST: u64 = 64 * PAGE;
    let Ok(memory) = Memory::open(pid) else { return Vec::new() };
    let is_ours = |page: &u64| {
        let mut found = [0; RESTORER as usize + END.len()];
        memory.read(*page, &mut found).is_ok() && found.starts_with(CODE) && found.ends_with(END)
    };
    let all = proc::executable_mappings(pid).into_iter();
    let nameless = all.filter(|m| m.inode == 0 && m.path.is_empty() && m.end - m.start <= MOST);
    nameless.flat_map(|m| (m.start..m.end).step_by(PAGE as usize)).filter(is_ours).collect()
}

/// Sets the handler of a signal where it is the expected one (0: the default action).
fn exchange(caller: &mut Caller, signal: u32, expected: u64, handler: u64) -> Result<(), ProbeError> {
    if handler_of(caller, signal)? != expected {
        let why = format!("another handler of signal {signal} was put there meanwhile");
        return Err(ProbeError::Injection { pid: caller.pid(), why });
    }
    set(caller, signal, handler)
}

fn handler_of(caller: &mut Caller, signal: u32) -> Result<u64, ProbeError> {
    let at = caller.scratch(&[0; ACTION])?;
    caller.syscall("rt_sigaction", libc::SYS_rt_sigaction, [signal.into(), 0, at, 8, 0, 0])?;
    Ok(caller.memory().word(at)?)
}

fn set(caller: &mut Caller, signal: u32, handler: u64) -> Result<(), ProbeError> {
    let at = caller.scratch(&if handler == 0 { [0; ACTION] } else { action(handler) })?;
    caller.syscall("rt_sigaction", libc::SYS_rt_sigaction, [signal.into(), at, 0, 8, 0, 0]).map(drop)
}

/// Its own stack where there is one (Go), system calls go on, no signal waits for its end.
fn action(handler: u64) -> [u8; ACTION] {
    const SA_RESTORER: u64 = 0x0400_0000;
    let flags = (libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART | libc::SA_NODEFER) as u64 | SA_RESTORER;
    let mut bytes = [0; ACTION];
    for (at, word) in [handler, flags, handler + RESTORER, 0].into_iter().enumerate() {
        bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn sleeper() -> Child {
        Command::new("sleep").arg("30").stdin(Stdio::null()).spawn().expect("sleep runs")
    }

    fn caught(pid: u32, signal: u32) -> bool {
        let mask = proc::status_word(pid, "SigCgt:").and_then(|w| u64::from_str_radix(&w, 16).ok()).expect("a mask");
        mask & 1 << (signal - 1) != 0
    }

    #[test]
    fn code_fits_before_its_end() {
        assert!(CODE.len() as u64 <= RESTORER && RESTORER + END.len() as u64 <= PAGE);
    }

    /// The handler comes and goes, and the program it was put into goes on sleeping.
    #[test]
    fn a_handler_is_planted_and_taken_back() {
        let mut child = sleeper();
        let signal = free_signal(child.id()).expect("a free signal");
        let planted = match Napper::plant(child.id(), signal) {
            Ok(planted) => planted,
            Err(e) => {
                let _ = (child.kill(), child.wait());
                assert!(!rustix::process::geteuid().is_root(), "{e}");
                return;
            }
        };
        assert!(caught(child.id(), signal));
        assert_ne!(free_signal(child.id()), Some(signal), "it is taken now");
        assert!(Napper::plant(child.id(), signal).is_err(), "never over somebody's handler");
        planted.uproot().expect("gives the signal back");
        assert!(!caught(child.id(), signal));
        assert_eq!(Napper::take_back(child.id()).expect("nothing to do"), 0);
        // The next session is killed.
        let again = Napper::plant(child.id(), signal).expect("there is one already");
        assert_eq!(again.handler, planted.handler, "one page is enough");
        assert_eq!(Napper::take_back(child.id()).expect("gives the signal back"), 1);
        assert!(!caught(child.id(), signal));
        assert!(child.try_wait().expect("its state").is_none(), "it has ended");
        let _ = (child.kill(), child.wait());
    }
}
