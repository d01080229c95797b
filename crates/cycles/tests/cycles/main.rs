//! Known-answer and property tests over profiles built by hand and a symbol service that is told
//! its answers; no file is read.

mod listing;
mod sums;
mod world;
