//! A simulator of a machine, the delay rules, the known-answer programs, and a session that drives them.

pub(crate) mod machine;
pub(crate) mod programs;
pub(crate) mod rules;
pub(crate) mod session;
