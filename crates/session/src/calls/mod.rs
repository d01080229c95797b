//! `whither calls`: one session of the incremental call-path profiler from launch or attach to detach.
//! What to measure comes in as plain values, snapshots go out; paths, shares and tables are worked out by
//! whoever reads those. The engine behind it must be used from one OS thread, so everything that others
//! ask of a session travels to that thread as a [`Verb`] and back as a [`Reply`].
//!
//! - `pattern`, `metrics`: the user's words.
//! - `wire`, `counter`: the verbs as JSON lines, and the socket they come through.
//! - `desk`: obeys verbs on an engine. `steps`: keeps what they changed, and takes it again. `run`: the session's life.
//! - `pointed`, `burst`: who is called through pointers, by a look at stacks.

mod burst;
mod counter;
mod desk;
mod instrument;
mod metrics;
mod options;
mod pattern;
mod pointed;
mod remarks;
mod run;
mod steps;
mod wire;

pub use counter::{ask, sessions};
pub use metrics::{Metrics, metrics};
pub use options::{CallsBackend, CallsEvent, CallsOptions, CallsOutcome, CallsTarget, Prospect};
pub use pattern::{excluding, including};
pub use run::{Asks, asks, dry_run, run};
pub use steps::of_one_build;
pub use wire::{AddedPoint, Ask, Found, Place, PointLine, Reply, Verb};

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
