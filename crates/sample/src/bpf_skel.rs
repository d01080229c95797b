//! The generated skeleton of `bpf/sample.bpf.c`: typed access to its programs, maps and constants.
//! Nothing is written by hand here.

#![allow(
    unsafe_code,
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    unreachable_pub,
    dead_code
)]

include!(concat!(env!("OUT_DIR"), "/sample.skel.rs"));
