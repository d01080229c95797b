//! Recordings and the profile database: what is kept on disk, how it is appended, sealed, merged,
//! queried and retained, and how files and symbols are found again when reading. What the rows
//! *mean* is decided by collectors and analyses; this crate only promises that a sealed row is
//! neither lost nor counted twice.

pub mod model;
pub mod symbols;
