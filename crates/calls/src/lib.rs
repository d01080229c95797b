//! Call-path analysis: from snapshots of counters to what the user reads — shares of the whole
//! execution, self times, percentiles, function totals, call sites that stand out, differences of two
//! moments, and the drill policy that narrows a bottleneck. Pure: a snapshot and names come in, values go
//! out; nothing here knows a process, a file or a terminal.
//!
//! [`Analysis::new`] prepares a snapshot (or a [`difference()`] of two); its methods give the answers.

#![forbid(unsafe_code)]

mod analysis;
mod chains;
mod compare;
mod cpu;
mod difference;
mod document;
mod drill;
mod facts;
mod forked;
mod frames;
mod hist;
mod hits;
mod known;
mod labels;
mod listing;
mod marks;
mod metric;
mod names;
mod own_cost;
mod results;
mod sums;
mod tree;
mod unseen;

pub use analysis::{Analysis, Options};
pub use compare::compare;
pub use difference::difference;
pub use document::Document;
pub use drill::{Callee, Drill, DrillStep, Verdict};
pub use facts::{PathCount, PathFact, PathFacts};
pub use known::Known;
pub use listing::{ListQuery, NoThreads};
pub use metric::{Metric, Sort, Sortable, Unit, Unsorted};
pub use names::{Names, NoNames, StoredNames, SymbolNames, names_of};
pub use results::*;
pub use tree::{TreeQuery, Visit};

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_known;
#[cfg(test)]
mod tests_tail;
