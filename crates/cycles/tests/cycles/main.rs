//! Known-answer and property tests over profiles built by hand and a symbol service that is told
//! its answers; no file is read.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod accuracy;
mod annotate;
mod bounds;
mod diff;
mod events;
mod laps;
mod listing;
mod narrow;
mod records;
mod skid;
mod speed;
mod sums;
mod time_and_calls;
mod walked;
mod world;
