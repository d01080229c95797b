//! The cycles lens: from a [`whither_store::model::Profile`] and symbols to listings, annotated
//! procedures, differences and call trees. It never sees a kernel, a process or a terminal.

#![forbid(unsafe_code)]

pub mod results;
