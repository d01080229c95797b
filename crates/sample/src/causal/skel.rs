//! The generated skeleton of `bpf/causal.bpf.c`: typed access to its programs, maps and constants.
//! Nothing is written by hand here.

#![allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    dead_code,
    clippy::all,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "generated"
)]

include!(concat!(env!("OUT_DIR"), "/causal.skel.rs"));
