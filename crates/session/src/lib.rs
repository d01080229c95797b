//! Runs a recording: pre-flight checks, launching or attaching, wiring collectors to the store,
//! obeying signals and the control socket, and tidying up. It decides *when*; `sample` knows *how*
//! to collect and `store` how to keep.

#![forbid(unsafe_code)]

pub mod options;

pub use options::{Backend, DaemonOptions, Outcome, Pace, Progress, RecordOptions, Scope, Stacks};
