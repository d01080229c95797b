//! Dynamic instrumentation of running programs: which functions match, how each can be patched, the
//! agent put into the target, trampolines written and taken back, and the shared tables read while the
//! program runs. Knows nothing of call-path analysis, sampling or printing; one engine serves every
//! lens that needs probes.
//!
//! The rule over all: **the target is sacred**. Text is changed only while every thread stands still, a
//! window is patched only when no branch or return can land inside it, and every byte is given back.
//!
//! - [`api`]: the values that go in and out.
//! - `select`, `resolve`: from the user's pattern to addresses, kinds of patch and refusals.
//! - `stub`, `gate`: bytes of trampolines. `segment`: the shared tables. `snapshot`: from tables to values.
//! - `target`: stop, remote calls, injection, launch, following, detaching.
//! - [`coz`]: counters for marks of Coz in programs that are launched.
//! - [`uprobe`]: the kernel's breakpoints, for what must not be patched.
//! - `engine`: puts them together.

// Raw memory shared with another process, and ptrace: every block carries its SAFETY comment.
#![allow(unsafe_code)]

pub mod agent;
pub mod api;
mod apply;
pub mod coz;
pub mod engine;
mod error;
mod gate;
mod modules;
mod pace;
pub mod resolve;
mod segment;
pub mod select;
mod snapshot;
pub mod stub;
pub mod target;
pub mod uprobe;

pub use api::{
    Added, Caller, Candidate, CostClass, Counter, Detached, Options, Order, Pause, PointAction, PointId, PointSpec,
    Refusal, Removed, Select, Source, ValueSpec,
};
pub use engine::{CodePiece, Engine, Happening, Module, PointedCalls, Sighting};
pub use error::ProbeError;
pub use pace::{Pace, PaceWord};
