//! ptrace as values: seize a thread, stop it, read and write its registers, let it go, and what a wait
//! tells. Only requests and their meaning live here; whom to stop and what for is decided above.
//!
//! The kernel ties a tracee to the *thread* that seized it, so a [`Tracee`] is not `Send`. Dropping one
//! does nothing: a thread that runs cannot be detached. When the tracing thread ends the kernel lets all
//! of its tracees go.

mod refusal;
mod status;

pub use refusal::{Untraceable, deprived, examine, examine_program};
pub use status::{Event, decode};

use crate::KernelError;
use std::io::Error;
use std::marker::PhantomData;
use std::os::raw::c_void;

/// General registers of a thread.
pub type Regs = libc::user_regs_struct;

/// `NT_PRSTATUS`: general registers.
const NT_PRSTATUS: usize = 1;
/// `NT_X86_XSTATE`: everything `xsave` saves.
const NT_X86_XSTATE: usize = 0x202;
const PTRACE_GETSIGMASK: u32 = 0x420a;
const PTRACE_SETSIGMASK: u32 = 0x420b;
const PTRACE_GET_RSEQ_CONFIGURATION: u32 = 0x420f;
/// Bytes of the largest state that any x86-64 CPU has today (with AMX, 11 KiB), with room.
const XSTATE_BYTES: usize = 32 << 10;

/// What the kernel shall report of a seized thread, and do for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watching(i32);

impl Watching {
    /// Only stops that were asked for, and signals.
    pub const NOTHING: Self = Self(libc::PTRACE_O_TRACESYSGOOD);
    /// Programs executed, children made (which are then traced too).
    pub const CHILDREN: Self = Self(
        libc::PTRACE_O_TRACESYSGOOD
            | libc::PTRACE_O_TRACEEXEC
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEVFORK
            | libc::PTRACE_O_TRACECLONE,
    );
    /// Programs executed.
    pub const EXECS: Self = Self(libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACEEXEC);

    /// The same, while the thread's seccomp filters do not judge its system calls (ours, that is).
    #[must_use]
    pub fn without_seccomp(self) -> Self {
        Self(self.0 | libc::PTRACE_O_SUSPEND_SECCOMP)
    }
}

/// Restartable-sequence area of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RseqArea {
    /// Address of `struct rseq`, 0 when the thread has none.
    pub address: u64,
    /// Its size.
    pub bytes: u32,
}

/// A seized thread.
#[derive(Debug)]
pub struct Tracee {
    pid: u32,
    tid: u32,
    bound: PhantomData<*const ()>,
}

impl Tracee {
    /// Seizes a thread; it runs on.
    ///
    /// # Errors
    /// [`KernelError::Untraceable`] with the reason; [`KernelError::Trace`] with `ESRCH` when the thread
    /// ended meanwhile.
    pub fn seize(pid: u32, tid: u32, watching: Watching) -> Result<Self, KernelError> {
        let tracee = Self::adopt(pid, tid);
        match tracee.request(libc::PTRACE_SEIZE, 0, watching.0 as usize, "seizing a thread") {
            Ok(_) => Ok(tracee),
            Err(KernelError::Trace { source, .. }) if source.raw_os_error() == Some(libc::EPERM) => {
                Err(refusal::denied(pid, tid))
            }
            Err(e) => Err(e),
        }
    }

    /// A thread the kernel seized for us: a child of a traced process.
    #[must_use]
    pub fn adopt(pid: u32, tid: u32) -> Self {
        Self { pid, tid, bound: PhantomData }
    }

    /// Process it belongs to.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Thread id.
    #[must_use]
    pub fn tid(&self) -> u32 {
        self.tid
    }

    /// Asks it to stop; [`Event::Stopped`] follows.
    ///
    /// # Errors
    /// [`KernelError::Trace`].
    pub fn interrupt(&self) -> Result<(), KernelError> {
        self.request(libc::PTRACE_INTERRUPT, 0, 0, "interrupting a thread").map(drop)
    }

    /// What has happened to it, if anything has.
    ///
    /// # Errors
    /// [`KernelError::Trace`].
    pub fn poll(&self) -> Result<Option<Event>, KernelError> {
        self.wait_flags(libc::WNOHANG)
    }

    /// Waits until something happens to it. Blocks as long as it runs, or sleeps where no signal
    /// reaches: for threads that stop by their own next step only.
    ///
    /// # Errors
    /// [`KernelError::Trace`].
    pub fn wait(&self) -> Result<Event, KernelError> {
        loop {
            if let Some(event) = self.wait_flags(0)? {
                return Ok(event);
            }
        }
    }

    fn wait_flags(&self, flags: i32) -> Result<Option<Event>, KernelError> {
        let mut status = 0;
        loop {
            // SAFETY: writes one status word of ours.
            let got = unsafe { libc::waitpid(self.tid as i32, &raw mut status, flags | libc::__WALL) };
            if got == self.tid as i32 {
                let message = || self.message().unwrap_or(0);
                return Ok(Some(decode(status, message)));
            }
            if got == 0 {
                return Ok(None);
            }
            let source = Error::last_os_error();
            if source.raw_os_error() != Some(libc::EINTR) {
                return Err(KernelError::Trace { what: "waiting for a thread", tid: self.tid, source });
            }
        }
    }

    fn message(&self) -> Result<u64, KernelError> {
        let mut word = 0_u64;
        self.request(libc::PTRACE_GETEVENTMSG, 0, (&raw mut word) as usize, "asking for an event's message")?;
        Ok(word)
    }

    /// General registers.
    ///
    /// # Errors
    /// [`KernelError::Trace`]; `ESRCH` when it does not stand still.
    pub fn registers(&self) -> Result<Regs, KernelError> {
        // SAFETY: a plain struct of words, for which zero is a value.
        let mut regs: Regs = unsafe { std::mem::zeroed() };
        let mut view = libc::iovec { iov_base: (&raw mut regs).cast::<c_void>(), iov_len: size_of::<Regs>() };
        self.request(libc::PTRACE_GETREGSET, NT_PRSTATUS, (&raw mut view) as usize, "reading registers")?;
        Ok(regs)
    }

    /// Sets all general registers.
    ///
    /// # Errors
    /// [`KernelError::Trace`].
    pub fn set_registers(&self, regs: &Regs) -> Result<(), KernelError> {
        let mut copy = *regs;
        let view = libc::iovec { iov_base: (&raw mut copy).cast::<c_void>(), iov_len: size_of::<Regs>() };
        self.request(libc::PTRACE_SETREGSET, NT_PRSTATUS, (&raw const view) as usize, "setting registers").map(drop)
    }

    /// Floating point and vector state, as `xsave` lays it out.
    ///
    /// # Errors
    /// [`KernelError::Trace`].
    pub fn extended(&self) -> Result<Vec<u8>, KernelError> {
        let mut bytes = vec![0_u8; XSTATE_BYTES];
        let mut view = libc::iovec { iov_base: bytes.as_mut_ptr().cast::<c_void>(), iov_len: bytes.len() };
        self.request(libc::PTRACE_GETREGSET, NT_X86_XSTATE, (&raw mut view) as usize, "reading vector registers")?;
        bytes.truncate(view.iov_len);
        Ok(bytes)
    }

    /// Sets what [`Self::extended`] gave.
    ///
    /// # Errors
    /// [`KernelError::Trace`].
    pub fn set_extended(&self, bytes: &[u8]) -> Result<(), KernelError> {
        let view = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(), iov_len: bytes.len() };
        let what = "setting vector registers";
        self.request(libc::PTRACE_SETREGSET, NT_X86_XSTATE, (&raw const view) as usize, what).map(drop)
    }

    /// Signals it holds back, bit n-1 for signal n.
    ///
    /// # Errors
    /// [`KernelError::Trace`].
    pub fn mask(&self) -> Result<u64, KernelError> {
        let mut mask = 0_u64;
        self.request(PTRACE_GETSIGMASK, size_of::<u64>(), (&raw mut mask) as usize, "reading a signal mask")?;
        Ok(mask)
    }

    /// Sets the signals it holds back; those that come meanwhile wait in the kernel.
    ///
    /// # Errors
    /// [`KernelError::Trace`].
    pub fn set_mask(&self, mask: u64) -> Result<(), KernelError> {
        let what = "setting a signal mask";
        self.request(PTRACE_SETSIGMASK, size_of::<u64>(), (&raw const mask) as usize, what).map(drop)
    }

    /// Whether the signal it stands before was sent by somebody, not raised by an instruction of its own.
    ///
    /// # Errors
    /// [`KernelError::Trace`].
    pub fn signal_was_sent(&self) -> Result<bool, KernelError> {
        // SAFETY: a plain struct of numbers, for which zero is a value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        self.request(libc::PTRACE_GETSIGINFO, 0, (&raw mut info) as usize, "asking for a signal's origin")?;
        Ok(info.si_code <= 0)
    }

    /// Where its restartable-sequence area is; `None` on kernels that do not tell.
    #[must_use]
    pub fn rseq(&self) -> Option<RseqArea> {
        /// `struct ptrace_rseq_configuration`.
        #[repr(C)]
        #[derive(Default)]
        struct Configuration {
            address: u64,
            bytes: u32,
            signature: u32,
            flags: u32,
            pad: u32,
        }
        let mut it = Configuration::default();
        let size = size_of::<Configuration>();
        self.request(PTRACE_GET_RSEQ_CONFIGURATION, size, (&raw mut it) as usize, "asking for rseq").ok()?;
        Some(RseqArea { address: it.address, bytes: it.bytes })
    }

    /// Changes what is reported of it.
    ///
    /// # Errors
    /// [`KernelError::Trace`]; `EPERM` when seccomp may not be suspended.
    pub fn watch(&self, watching: Watching) -> Result<(), KernelError> {
        self.request(libc::PTRACE_SETOPTIONS, 0, watching.0 as usize, "setting trace options").map(drop)
    }

    /// Lets it run, with a signal (0 = none).
    ///
    /// # Errors
    /// [`KernelError::Trace`].
    pub fn go(&self, signal: i32) -> Result<(), KernelError> {
        self.request(libc::PTRACE_CONT, 0, signal as usize, "resuming a thread").map(drop)
    }

    /// Lets it run up to the next begin or end of a system call.
    ///
    /// # Errors
    /// [`KernelError::Trace`].
    pub fn go_to_syscall(&self, signal: i32) -> Result<(), KernelError> {
        self.request(libc::PTRACE_SYSCALL, 0, signal as usize, "resuming a thread").map(drop)
    }

    /// Leaves it in the group stop it is in, until SIGCONT.
    ///
    /// # Errors
    /// [`KernelError::Trace`].
    pub fn listen(&self) -> Result<(), KernelError> {
        self.request(libc::PTRACE_LISTEN, 0, 0, "leaving a thread stopped").map(drop)
    }

    /// Lets it go for good. It must stand still; a blocked system call goes on.
    ///
    /// # Errors
    /// [`KernelError::Trace`].
    pub fn detach(&self, signal: i32) -> Result<(), KernelError> {
        self.request(libc::PTRACE_DETACH, 0, signal as usize, "detaching from a thread").map(drop)
    }

    fn request(&self, request: u32, address: usize, data: usize, what: &'static str) -> Result<i64, KernelError> {
        // SAFETY: the callers above pass, for each request, a pointer to memory of the size it wants, or
        // plain numbers.
        let got =
            unsafe { libc::ptrace(request, self.tid as libc::pid_t, address as *mut c_void, data as *mut c_void) };
        if got == -1 {
            return Err(KernelError::Trace { what, tid: self.tid, source: Error::last_os_error() });
        }
        Ok(got)
    }
}
