//! Programs that whither is in the way of, told by what they link to before they complain. Those that use ptrace: the kernel allows a process one tracer,
//! and while programs that a target executes are followed that is this one, so theirs fail with "Operation not permitted". Those that lock their memory:
//! what whither keeps in them is locked as well.

use super::Engine;
use crate::resolve::ModuleView;

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
    /// A sentence if it may lock all of its memory.
    pub(super) fn locker(&self) -> Option<String> {
        let exe = self.modules.list().iter().find(|m| m.is_main())?.path();
        self.modules.import("mlockall").then(|| {
            format!(
                "{exe} uses mlockall: with its memory it locks, and makes the kernel provide at once, what is kept for the probes in it, {} MB (--safe keeps nothing \
                 there)",
                whither_abi::agent::SEGMENT_BYTES >> 20
            )
        })
    }
}
