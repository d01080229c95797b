//! The store as its users see it: what is written comes back, whatever crashed, aged or lied in between. One binary, for linking
//! takes longer than most of its tests; a module for each promise.

mod support;

mod calls;
mod causal;
mod crash;
mod duckdb;
mod hostile;
mod maintenance;
mod roundtrip;
