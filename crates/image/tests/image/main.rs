//! Images against other tools' opinion of them and against foreign bytes. One binary, for linking takes longer than most of
//! its tests; a module for each part of an image.

mod common;

mod against_tools;
mod entries;
mod robustness;
mod unwind_rows;
mod unwinding;
