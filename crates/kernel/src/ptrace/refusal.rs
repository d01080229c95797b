//! Why a process cannot be traced, told before it is touched, with what can be done about it.

use crate::capability::{Capability, Rights};
use crate::launch::find_program;
use crate::{KernelError, proc};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Why a process cannot be traced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Untraceable {
    /// No process has the id.
    #[error("there is no such process, or it has ended already")]
    Missing,
    /// The id is a thread's.
    #[error("it is a thread of process {process}: give that id instead")]
    Thread {
        /// Its process.
        process: u32,
    },
    /// Pid 1.
    #[error("it is the init process, on which the whole system depends; it is never changed")]
    Init,
    /// A thread of the kernel.
    #[error("it is a kernel thread: it has no program that could be changed")]
    KernelThread,
    /// It has ended.
    #[error("it has ended already and waits for its parent (zombie)")]
    Zombie,
    /// Our own process.
    #[error("it is this very process")]
    Ourselves,
    /// Another tracer has it.
    #[error("process {tracer} ({name}) traces it already, and Linux allows one tracer: end or detach that one first")]
    Traced {
        /// The other tracer.
        tracer: u32,
        /// Its command name.
        name: String,
    },
    /// Not a 64-bit program.
    #[error(
        "it runs a 32-bit program, and 32-bit programs are not supported: build it for 64 bits, or sample it with \
         'whither record'"
    )]
    ThirtyTwoBit,
    /// `SECCOMP_MODE_STRICT`.
    #[error(
        "it has put itself under strict seccomp: any system call made for us would kill it; uprobes need none \
         ('whither calls --safe')"
    )]
    StrictSeccomp,
    /// Another user's.
    #[error("it belongs to user {owner} and tracing it needs CAP_SYS_PTRACE: run as that user or as root")]
    OtherUser {
        /// User id of the process.
        owner: u32,
    },
    /// Yama.
    #[error(
        "kernel.yama.ptrace_scope is {scope}: {}",
        if *scope >= 3 { "tracing is off until the next boot" }
        else { "only children may be traced; launch the program through whither, run as root, or set it to 0" }
    )]
    Scope {
        /// Value of the sysctl.
        scope: i64,
    },
    /// Set-user-id program, file capabilities, or `prctl(PR_SET_DUMPABLE, 0)`.
    #[error("it is set-user-id, has file capabilities or has made itself non-dumpable: only root may trace it")]
    NotDumpable,
    /// A program with the rights of another user that has come without them.
    #[error(
        "it is set-user-id, set-group-id or has file capabilities, and runs WITHOUT these rights, because an ordinary user traces what executed it; run whither as root"
    )]
    Deprived,
    /// Another reason.
    #[error(
        "the kernel does not permit it (a container's seccomp profile or a security module): run with CAP_SYS_PTRACE"
    )]
    Denied,
}

/// `PF_KTHREAD` of the kernel's task flags.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Looks at a process before it is touched.
///
/// # Errors
/// [`KernelError::Untraceable`] with the reason.
pub fn examine(pid: u32) -> Result<(), KernelError> {
    let why = obstacle(pid).or_else(|| is_closed(pid).then(|| rights(pid)));
    why.map_or(Ok(()), |why| Err(KernelError::Untraceable { pid, why }))
}

/// Looks at a program before it is launched to be traced: one that takes another identity would be run without it, and so
/// do something else (`ptrace(2)`; `cap_bprm_creds_from_file` in the kernel).
///
/// # Errors
/// [`KernelError::Launch`] when it is such a program and we may not trace what it becomes.
pub fn examine_program(command: &str) -> Result<(), KernelError> {
    let status = proc::read_text("/proc/self/status").unwrap_or_default();
    if Rights::from_status(&status).has(Capability::SysPtrace) {
        return Ok(());
    }
    let Some(program) = find_program(command).ok().filter(|p| takes_identity(p)) else { return Ok(()) };
    let why = format!(
        "{} is set-user-id, set-group-id or has file capabilities: traced by an ordinary user it would run without them; run whither as root",
        program.display()
    );
    Err(KernelError::Launch { command: command.to_owned(), source: std::io::Error::other(why) })
}

/// Whether a program that a process we trace has executed runs without the rights that it should have.
#[must_use]
pub fn deprived(program: &Path) -> bool {
    let status = proc::read_text("/proc/self/status").unwrap_or_default();
    !Rights::from_status(&status).has(Capability::SysPtrace) && takes_identity(program)
}

fn takes_identity(program: &Path) -> bool {
    let Ok(file) = std::fs::metadata(program) else { return false };
    let allowed = rustix::fs::statvfs(program).is_ok_and(|s| !s.f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID));
    let mode = file.mode();
    let user = mode & 0o4000 != 0 && file.uid() != rustix::process::geteuid().as_raw();
    let group = mode & 0o2010 == 0o2010 && file.gid() != rustix::process::getegid().as_raw();
    let capabilities = rustix::fs::getxattr(program, "security.capability", &mut [0_u8; 64]).is_ok();
    allowed && (user || group || capabilities)
}

/// The reason behind `EPERM`.
pub(super) fn denied(pid: u32, tid: u32) -> KernelError {
    let why = obstacle(pid).or_else(|| traced(tid)).unwrap_or_else(|| rights(pid));
    KernelError::Untraceable { pid, why }
}

fn obstacle(pid: u32) -> Option<Untraceable> {
    if pid == std::process::id() {
        return Some(Untraceable::Ourselves);
    }
    let Some(process) = proc::tgid(pid) else {
        return Some(Untraceable::Missing);
    };
    if process != pid {
        return Some(Untraceable::Thread { process });
    }
    if pid == 1 {
        return Some(Untraceable::Init);
    }
    let (state, flags) = state_and_flags(pid);
    if flags & KERNEL_THREAD != 0 {
        return Some(Untraceable::KernelThread);
    }
    if matches!(state, 'Z' | 'X') && proc::threads(pid).len() <= 1 {
        return Some(Untraceable::Zombie);
    }
    traced(pid).or_else(|| seccomp_strict(pid).then_some(Untraceable::StrictSeccomp)).or_else(|| class(pid))
}

fn traced(tid: u32) -> Option<Untraceable> {
    // The kernel names the thread that traces.
    let thread = proc::tracer(tid);
    let tracer = proc::tgid(thread).unwrap_or(thread);
    (tracer != 0).then(|| Untraceable::Traced { tracer, name: proc::comm(tracer) })
}

fn class(pid: u32) -> Option<Untraceable> {
    let mut start = [0_u8; 5];
    let mut file = std::fs::File::open(format!("/proc/{pid}/exe")).ok()?;
    file.read_exact(&mut start).ok()?;
    (start[..4] == *b"\x7fELF" && start[4] != 2).then_some(Untraceable::ThirtyTwoBit)
}

/// Whether its memory is closed to us, as it is when it may not be traced.
fn is_closed(pid: u32) -> bool {
    let opened = std::fs::File::open(format!("/proc/{pid}/mem"));
    opened.is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied)
}

fn rights(pid: u32) -> Untraceable {
    let owner = proc::status_word(pid, "Uid:").and_then(|w| w.split_whitespace().next()?.parse().ok());
    let ours = rustix::process::geteuid().as_raw();
    if let Some(owner) = owner.filter(|&owner| owner != ours) {
        return Untraceable::OtherUser { owner };
    }
    if std::fs::read_link(format!("/proc/{pid}/exe")).is_err() {
        return Untraceable::NotDumpable;
    }
    match proc::sysctl("kernel.yama.ptrace_scope") {
        Some(scope) if scope > 0 => Untraceable::Scope { scope },
        _ => Untraceable::Denied,
    }
}

/// State letter and task flags of /proc/PID/stat.
fn state_and_flags(pid: u32) -> (char, u64) {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let mut words = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let state = words.next().and_then(|w| w.chars().next()).unwrap_or('?');
    (state, words.nth(5).and_then(|w| w.parse().ok()).unwrap_or(0))
}

fn seccomp_strict(pid: u32) -> bool {
    proc::status_word(pid, "Seccomp:").is_some_and(|mode| mode == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told() {
        let why = |pid| match examine(pid) {
            Err(KernelError::Untraceable { why, .. }) => Some(why),
            _ => None,
        };
        assert_eq!(why(std::process::id()), Some(Untraceable::Ourselves));
        assert_eq!(why(0x3fff_fff0), Some(Untraceable::Missing));
        if std::process::id() != 1 && proc::exists(1) {
            assert_eq!(why(1), Some(Untraceable::Init));
        }
        if proc::comm(2) == "kthreadd" {
            assert_eq!(why(2), Some(Untraceable::KernelThread));
        }
    }

    #[test]
    fn a_zombie_is_one() {
        let mut child = std::process::Command::new("true").spawn().expect("runs");
        let pid = child.id();
        while state_and_flags(pid).0 != 'Z' {
            std::thread::yield_now();
        }
        let e = examine(pid).expect_err("must refuse");
        assert!(e.to_string().contains("zombie"), "{e}");
        child.wait().expect("ends");
    }
}
