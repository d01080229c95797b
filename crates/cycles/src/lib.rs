//! The cycles lens: from a [`whither_store::model::Profile`] and symbols to listings, annotated
//! procedures, differences and call trees. It never sees a kernel, a process or a terminal.

#![forbid(unsafe_code)]

pub mod accuracy;
pub mod analysis;
pub mod annotate;
mod around;
mod axis;
mod body;
pub mod culprits;
pub mod diff;
pub mod error;
pub mod find;
pub mod flame;
mod flow;
mod groups;
pub mod heat;
pub mod listing;
mod matched;
pub mod model;
pub mod names;
mod narrow;
pub mod near;
pub mod pattern;
mod pileups;
pub mod places;
pub mod provenance;
pub mod remark;
mod renamed;
pub mod results;
pub mod runs;
pub mod selection;
pub mod skid;
mod thinned;
pub mod topcounts;
mod variance;

pub use analysis::{
    AnalyseQuery, Errors, SummaryScope, analyse, analyse_procedure, analyse_procedures, executions, summarise,
};
pub use annotate::{AnnotateQuery, Attribution, annotate};
pub use diff::{DiffQuery, Normalise, Show, diff, significant_regressions};
pub use error::Error;
pub use flame::{FlameQuery, Roots, call_tree, flame};
pub use heat::heat_map;
pub use listing::{By, Query, listing, near_images};
pub use narrow::narrow;
pub use pattern::Pattern;
pub use places::Inlines;
pub use runs::{RunsPer, RunsQuery, explained, run_statistics};
pub use selection::{Filter, ProcessIs, Side, ThreadIs};
pub use topcounts::topcounts;
pub use variance::BETWEEN_RUNS;
