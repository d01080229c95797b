//! `whither causal`: one session of the causal profiler, from launch or attach to the last window. Which
//! experiment comes next is asked of a [`CausalPolicy`]; what the windows mean is worked out by whoever reads
//! the [`CausalOutcome`].
//!
//! - `words`: what the user writes for points and targets. `scope`: what is the program's own code.
//! - `program`, `code`: what is mapped where, and which source an address belongs to.
//! - `points`, `targets`: from words and samples to places in the code.
//! - `elsewhere`: what was sampled outside of it. `goroutines`: whether they change threads.
//! - `spinning`, `spin_loop`: how much threads wait for one another without the kernel, and in which code.
//! - `coz`: counters for marks of Coz.
//! - `later`: whether code may come that is not there yet.
//! - `choice`: whether delays are spun or slept. `nap`: the handler that sleeps.
//! - `pace`: how far apart ticks are.
//! - `executor`: what is needed of the kernel side. `alone`: the one that needs no BPF.
//! - `group`: keeps all of it up to date. `window`: one experiment. `run`: the session's life.

mod alive;
mod alone;
mod atomics;
mod choice;
mod code;
mod coz;
mod disturb;
mod elsewhere;
mod executor;
mod goroutines;
mod group;
mod input;
mod later;
mod nap;
mod options;
mod pace;
mod points;
mod policy;
mod program;
mod run;
mod scope;
mod spin_loop;
mod spinning;
mod suggest;
mod takes_over;
mod targets;
mod window;
mod words;

pub use options::{
    CausalBackEnd, CausalEnd, CausalEvent, CausalOptions, CausalOutcome, CausalWhom, ExecutorChoice, Runs, UnitChoice,
};
pub use policy::{CausalPolicy, Order, Step};
pub use run::run;
pub use scope::Scope as CausalScope;
pub use suggest::{Proposal, suggest};
pub use words::{PointSpec, TargetSpec, pair, point, target};

#[cfg(test)]
mod tests;
