//! `perf_event_open` as safe types: an attribute in plain words, an opened event that owns its file
//! descriptor. Which events exist is in `events`; reading the ring is in `ring`.

use crate::KernelError;
use perf_event_open_sys as sys;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use sys::bindings as b;

/// Whom an event watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Everything on one CPU.
    Cpu(u32),
    /// One thread, on one CPU (events of several CPUs can then share a ring each).
    ThreadOnCpu(u32, u32),
    /// One thread, wherever it runs.
    Thread(u32),
}

/// What an event writes with each sample into its ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleFields {
    /// Call chain by frame pointers.
    pub callchain: bool,
    /// User registers and so many bytes of user stack (a multiple of 8; 0: none).
    pub user_stack: u32,
    /// All general user registers and flags.
    pub registers: bool,
    /// The branches that user code took last, as far as the CPU records them. Only events that a CPU counts have them.
    pub branches: bool,
    /// Which of an event's instances it was: an inherited one keeps the period that it was born with.
    pub instance: bool,
}

/// An event to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// `perf_event_attr.config1`.
    pub config1: u64,
    /// One sample every so many units; 0 counts only.
    pub period: u64,
    /// Samples per second instead: the kernel looks for the period. 0: none are asked for.
    pub hertz: u64,
    /// Leave kernel mode out.
    pub exclude_kernel: bool,
    /// Leave user mode out.
    pub exclude_user: bool,
    /// Start switched off.
    pub disabled: bool,
    /// Switch on when the thread execs.
    pub enable_on_exec: bool,
    /// Watch threads and children created later.
    pub inherit: bool,
    /// `precise_ip`: 0 to 3.
    pub precise: u8,
    /// Fields for the ring; `None`: no record is written (a BPF program takes the sample).
    pub fields: Option<SampleFields>,
    /// Report mmap, comm, fork, exit (and kernel symbols when `Watch::Cpu`).
    pub sideband: bool,
    /// Wake a poller when so many bytes are in the ring; 0: never.
    pub wakeup_bytes: u32,
}

/// User registers sampled with a stack: bp, sp, ip (`PERF_REG_X86_*` 6, 7, 8), in this order.
pub const USER_REGS: u64 = 1 << 6 | 1 << 7 | 1 << 8;
/// ax bx cx dx si di bp sp ip flags, r8 to r15 (`PERF_REG_X86_*` 0 to 9, 16 to 23), in this order.
pub const ALL_REGS: u64 = 0x00ff_03ff;

/// `PERF_SAMPLE_IDENTIFIER | TID | TIME | CPU`: what every record carries.
const ALWAYS: u64 = (b::PERF_SAMPLE_IDENTIFIER | b::PERF_SAMPLE_TID | b::PERF_SAMPLE_TIME | b::PERF_SAMPLE_CPU) as u64;

pub(crate) fn raw(attr: &Attr, watch: Watch) -> b::perf_event_attr {
    let mut a = b::perf_event_attr::default();
    a.type_ = attr.kind;
    a.size = size_of::<b::perf_event_attr>() as u32;
    a.config = attr.config;
    a.config1 = attr.config1;
    a.sample_period = attr.period;
    if attr.hertz > 0 {
        a.set_freq(1);
        a.sample_freq = attr.hertz;
    }
    a.set_disabled(attr.disabled.into());
    a.set_enable_on_exec(attr.enable_on_exec.into());
    a.set_inherit(attr.inherit.into());
    a.set_exclude_kernel(attr.exclude_kernel.into());
    a.set_exclude_user(attr.exclude_user.into());
    a.set_exclude_hv(1);
    a.set_exclude_guest(1);
    a.set_precise_ip(attr.precise.into());
    a.set_use_clockid(1);
    a.clockid = libc::CLOCK_MONOTONIC;
    a.sample_type = ALWAYS;
    a.set_sample_id_all(1);
    if let Some(fields) = attr.fields {
        set_fields(&mut a, fields);
    }
    if attr.sideband {
        set_sideband(&mut a, attr, matches!(watch, Watch::Cpu(_)));
    }
    if attr.wakeup_bytes > 0 {
        a.set_watermark(1);
        a.wakeup_watermark = attr.wakeup_bytes;
    }
    a
}

fn set_fields(a: &mut b::perf_event_attr, fields: SampleFields) {
    a.sample_type |= u64::from(b::PERF_SAMPLE_IP | b::PERF_SAMPLE_PERIOD);
    if fields.instance {
        a.sample_type |= u64::from(b::PERF_SAMPLE_STREAM_ID);
    }
    if fields.callchain {
        a.sample_type |= u64::from(b::PERF_SAMPLE_CALLCHAIN);
    }
    if fields.branches {
        a.sample_type |= u64::from(b::PERF_SAMPLE_BRANCH_STACK);
        a.branch_sample_type = u64::from(b::PERF_SAMPLE_BRANCH_USER | b::PERF_SAMPLE_BRANCH_ANY);
    }
    if fields.user_stack > 0 || fields.registers {
        a.sample_type |= u64::from(b::PERF_SAMPLE_REGS_USER);
        a.sample_regs_user = if fields.registers { ALL_REGS } else { USER_REGS };
    }
    if fields.user_stack > 0 {
        a.sample_type |= u64::from(b::PERF_SAMPLE_STACK_USER);
        a.sample_stack_user = fields.user_stack;
        a.set_exclude_callchain_user(1);
    }
}

/// Never `build_id`: the kernel (`perf_event_mmap_output` in kernel/events/core.c, seen in 6.18) leaves the flag that it sets
/// for us in the records of all who are told after us, who have not asked for it; `perf record` of Debian 12 aborts then.
fn set_sideband(a: &mut b::perf_event_attr, attr: &Attr, system: bool) {
    a.set_mmap(1);
    a.set_mmap2(1);
    a.set_comm(1);
    a.set_comm_exec(1);
    a.set_task(1);
    if system && !attr.exclude_kernel {
        a.set_ksymbol(1);
    }
}

/// An opened event. Dropping it closes the descriptor, which ends the event.
#[derive(Debug)]
pub struct PerfEvent {
    fd: OwnedFd,
}

impl PerfEvent {
    /// Opens the event.
    ///
    /// # Errors
    /// [`KernelError::PerfOpen`] with the kernel's reason.
    pub fn open(attr: &Attr, watch: Watch) -> Result<Self, KernelError> {
        match open_raw(raw(attr, watch), watch, None) {
            // Kernels before 5.8 know no records of kernel symbols.
            Err(e) if attr.sideband && e.raw_os_error() == Some(libc::EINVAL) => {
                let mut a = raw(attr, watch);
                a.set_ksymbol(0);
                open_raw(a, watch, None)
            }
            other => other,
        }
        .map(|fd| Self { fd })
        .map_err(|source| KernelError::PerfOpen { kind: attr.kind, config: attr.config, watch, source })
    }

    /// Switches the event on.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn enable(&self) -> Result<(), KernelError> {
        // SAFETY: the descriptor is an open perf event; the argument of ENABLE is a flag word.
        let r = unsafe { sys::ioctls::ENABLE(self.fd.as_raw_fd(), 0) };
        check("enabling a perf event", r)
    }

    /// Switches the event off.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn disable(&self) -> Result<(), KernelError> {
        // SAFETY: the descriptor is an open perf event; the argument of DISABLE is a flag word.
        let r = unsafe { sys::ioctls::DISABLE(self.fd.as_raw_fd(), 0) };
        check("disabling a perf event", r)
    }

    /// Has a thread, of whatever process, sent a signal at each overflow from now on.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn signal_to(&self, tid: u32, signal: u32) -> Result<(), KernelError> {
        #[repr(C)]
        struct Owner {
            kind: libc::c_int,
            id: libc::c_int,
        }
        const F_SETOWN_EX: libc::c_int = 15;
        const F_SETSIG: libc::c_int = 10;
        const F_OWNER_TID: libc::c_int = 0;
        let fd = self.fd.as_raw_fd();
        let owner = Owner { kind: F_OWNER_TID, id: tid.cast_signed() };
        let what = "sending a perf event's overflows as signals";
        // SAFETY: F_SETOWN_EX reads the struct, which outlives the call.
        check(what, unsafe { libc::fcntl(fd, F_SETOWN_EX, &raw const owner) })?;
        // SAFETY: plain numbers.
        check(what, unsafe { libc::fcntl(fd, F_SETSIG, signal.cast_signed()) })?;
        // SAFETY: plain numbers.
        check(what, unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK) })
    }

    /// Sets a new period; the interval under way starts again.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn set_period(&self, period: u64) -> Result<(), KernelError> {
        // The binding declares the argument as a number, but the kernel reads a u64 through it.
        let pointer = (&raw const period) as u64;
        // SAFETY: PERIOD reads one u64 through the pointer, which outlives the call.
        let r = unsafe { sys::ioctls::PERIOD(self.fd.as_raw_fd(), pointer) };
        check("setting the period of a perf event", r)
    }

    /// Id that samples of this event carry.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn id(&self) -> Result<u64, KernelError> {
        let mut id = 0_u64;
        // SAFETY: ID writes one u64 through the pointer, which outlives the call.
        let r = unsafe { sys::ioctls::ID(self.fd.as_raw_fd(), &raw mut id) };
        check("asking for the id of a perf event", r).map(|()| id)
    }

    /// Sends this event's records into the ring of another on the same CPU.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn redirect_to(&self, ring_owner: &Self) -> Result<(), KernelError> {
        // SAFETY: both descriptors are open perf events.
        let r = unsafe { sys::ioctls::SET_OUTPUT(self.fd.as_raw_fd(), ring_owner.fd.as_raw_fd()) };
        check("sharing a perf ring", r)
    }

    /// The count so far, in the event's unit.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn count(&self) -> Result<u64, KernelError> {
        let mut word = [0_u8; 8];
        let n = rustix::io::read(&self.fd, &mut word)
            .map_err(|e| KernelError::Call { what: "reading a perf event", source: e.into() })?;
        // An event on a CPU that went off line reads as end-of-file.
        Ok(if n == 8 { u64::from_le_bytes(word) } else { 0 })
    }
}

impl AsFd for PerfEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens an event beside another one of the same thread, switched on and off with it.
pub(crate) fn open_in_group(
    a: b::perf_event_attr,
    watch: Watch,
    leader: Option<&PerfEvent>,
) -> Result<PerfEvent, KernelError> {
    open_raw(a, watch, leader).map(|fd| PerfEvent { fd }).map_err(|source| KernelError::PerfOpen {
        kind: a.type_,
        config: a.config,
        watch,
        source,
    })
}

fn open_raw(mut a: b::perf_event_attr, watch: Watch, leader: Option<&PerfEvent>) -> Result<OwnedFd, std::io::Error> {
    let group = leader.map_or(-1, |l| l.fd.as_raw_fd());
    let (pid, cpu) = match watch {
        Watch::Cpu(cpu) => (-1, cpu as i32),
        Watch::ThreadOnCpu(tid, cpu) => (tid as i32, cpu as i32),
        Watch::Thread(tid) => (tid as i32, -1),
    };
    // SAFETY: `a` is a fully initialised attribute with its size set, and outlives the call.
    let fd = unsafe { sys::perf_event_open(&raw mut a, pid, cpu, group, b::PERF_FLAG_FD_CLOEXEC.into()) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(crate) fn check(what: &'static str, result: i32) -> Result<(), KernelError> {
    if result < 0 { Err(KernelError::Call { what, source: std::io::Error::last_os_error() }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branch_records_are_those_of_user_code_and_only_when_asked_for() {
        let of = |fields| raw(&Attr { fields: Some(fields), ..Attr::default() }, Watch::Cpu(0));
        let plain = of(SampleFields { callchain: true, ..SampleFields::default() });
        let stack = u64::from(b::PERF_SAMPLE_BRANCH_STACK);
        assert_eq!((plain.sample_type & stack, plain.branch_sample_type), (0, 0));
        let asked = of(SampleFields { branches: true, ..SampleFields::default() });
        assert_eq!(asked.sample_type & stack, stack);
        // PERF_SAMPLE_BRANCH_USER | PERF_SAMPLE_BRANCH_ANY; with fewer kinds a run between two of them would not be straight.
        assert_eq!(asked.branch_sample_type, 1 | 1 << 3);
    }
}
