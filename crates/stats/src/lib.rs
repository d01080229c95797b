//! Estimates, intervals and tests for counts and for repeated runs. Pure functions of numbers: no
//! profile, no name, no I/O is known here. Every function is total: degenerate input (nothing
//! counted, one run) gives the honest answer (an interval over everything, p = 1), never a NaN.

#![forbid(unsafe_code)]

pub mod compare;
pub mod describe;
pub mod dispersion;
pub mod distribution;
pub mod interval;
pub mod multiple;
pub mod random;

pub use compare::{Comparison, Exposed, log_ratio, paired, welch};
pub use describe::Summary;
pub use dispersion::Dispersion;
pub use interval::Interval;
pub use random::Random;
