//! Tests of the binary and of the tree that measure nothing: help and errors as printed (`tests/cli`), answers from
//! recordings made by hand, the layers of crates, the heads and lengths of files.

#[path = "../support/mod.rs"]
#[allow(unused_macros, unused_imports, reason = "nothing here needs rights")]
mod support;

mod analyse;
mod answers;
mod cli;
mod layers;
mod records;
mod tidy;
