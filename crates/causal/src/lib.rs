//! Causal profiling without any process: the policy that decides which experiment comes next, the
//! estimator that turns windows into curves, intervals and verdicts, and the files of Coz. Pure: values of
//! `store::causal` come in, values go out; a simulator of threads, cores and locks tests all of it.
//!
//! [`Policy`] is asked for the next step and told what came of it; [`analyse()`] answers from a finished run.

#![forbid(unsafe_code)]

mod analyse;
mod asked;
mod begun;
mod carry;
mod clocked;
pub mod coz;
mod crowd;
mod elsewhere;
mod estimate;
mod fixed_time;
mod harm;
mod latency;
mod options;
mod outside;
mod pauses;
mod phase;
mod points;
mod policy;
mod quality;
mod results;
mod series;
mod shape;
mod sleepers;
mod turns;
mod verdict;
mod waits;

pub use analyse::analyse;
pub use carry::strata_behind;
pub use options::{AnalyseOptions, Combine, DoneReason, Order, PolicyKind, PolicyOptions, Sort, Step};
pub use policy::Policy;
pub use results::*;
