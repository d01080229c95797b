//! Every live test of the binary: recordings and probed programs of this machine, judged against known answers. One binary,
//! for linking one for each file takes longer than many of the tests; a module for each capability. Those that measure
//! hold [`support::alone`]. What needs no kernel lives in `tests/offline`.

#[path = "../support/mod.rs"]
mod support;

mod calls_live;
mod calls_session;
mod causal_live;

mod annotate;
mod calls;
mod calls_bounds;
mod calls_callers;
mod calls_cpu;
mod calls_everything;
mod calls_truth;
mod causal;
mod causal_agent;
mod causal_matrix;
mod causal_places;
mod causal_served;
mod causal_sleep;
mod culprits;
mod daemon;
mod edges;
mod events;
mod exact;
mod harmless;
mod import;
mod latencies;
mod nasty;
mod optimisers;
mod refusals;
mod rings;
mod runtimes;
mod stacks;
mod truth;
