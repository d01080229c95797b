//! The engine on running programs of this machine. One binary, for linking takes longer than most of its tests; a module
//! for each promise. Single steps of the interpreter are apart, in `live_interp`: they last.

mod common;
mod engine;
mod follow;
mod kill;
mod leave;
mod start;
mod target;
mod uprobe;
