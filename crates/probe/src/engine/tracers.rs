//! Programs that use ptrace themselves. Constraint: the kernel allows a process one tracer, and while programs that a target executes are
//! followed that is this one, so theirs fail with "Operation not permitted": they are told of before they complain.

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
}
