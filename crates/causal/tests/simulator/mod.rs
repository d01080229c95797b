//! A simulator of a machine, the delay rules, the known-answer programs, and a session that drives them.

pub mod machine;
pub mod programs;
pub mod rules;
pub mod session;
