//! Runs a recording: pre-flight checks, launching or attaching, wiring collectors to the store,
//! obeying signals and the control socket, and tidying up. It decides *when*; `sample` knows *how*
//! to collect and `store` how to keep.

#![forbid(unsafe_code)]

pub mod calls;
pub mod causal;
mod choose;
mod control;
mod core_facts;
mod daemon;
mod engine;
pub mod error;
mod exact;
mod governor;
mod import;
mod live;
pub mod options;
mod record;
mod stop;
mod symbols;
mod turns;

pub use control::{Control, control};
pub use core_facts::core_facts;
pub use daemon::daemon;
pub use error::SessionError;
pub use import::import;
pub use live::Live;
pub use options::{Backend, DaemonOptions, Edges, Outcome, Pace, Progress, RecordOptions, Scope, Stacks};
pub use record::record;
pub use stop::StopFlag;
pub use symbols::gather;
pub use whither_store::OnExisting;
