//! Programs that whither is in the way of, told by what they link to before they complain. Those that use ptrace: the kernel allows a process one tracer,
//! and while programs that a target executes are followed that is this one, so theirs fail with "Operation not permitted". Those that lock their memory:
//! what whither keeps in them is locked as well.

use super::Engine;
use crate::resolve::ModuleView;
use whither_kernel::proc;

impl Engine {
    /// A sentence if this is such a program, by what it links to.
    pub(super) fn tracer(&self) -> Option<String> {
        if !self.options.follow || self.options.safe {
            return None;
        }
        let program = self.modules.list().iter().find(|m| m.is_main())?;
        let exe = program.path();
        program.image()?.imports("ptrace").then(|| {
            format!(
                "{exe} uses ptrace, which it is refused for processes that are followed here (`Operation not permitted`): --follow none leaves it alone"
            )
        })
    }

    /// A sentence if it may lock all of its memory, or has done so.
    pub(super) fn locker(&self) -> Option<String> {
        let exe = self.modules.list().iter().find(|m| m.is_main())?.path();
        let what = if has_locked(self.pid) {
            "has locked its memory"
        } else if self.modules.import("mlockall") {
            "uses mlockall"
        } else {
            return None;
        };
        Some(format!(
            "{exe} {what}: with it is locked, and provided by the kernel at once, what is kept for the probes in it, {} MB (--safe keeps nothing there)",
            whither_abi::agent::SEGMENT_BYTES >> 20
        ))
    }
}

/// Whether most of a process's memory is locked, as by mlockall.
fn has_locked(pid: u32) -> bool {
    let status = proc::read_text(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    value("VmLck:").zip(value("VmRSS:")).is_some_and(|(locked, resident)| locked > resident / 2)
}
