//! Recordings and the profile database: what is kept on disk, how it is appended, sealed, merged,
//! queried and retained, and how files and symbols are found again when reading. What the rows
//! *mean* is decided by collectors and analyses; this crate only promises that a sealed row is
//! neither lost nor counted twice.
//!
//! A collector makes an [`EpochWriter`] (a recording by [`EpochWriter::create`], an epoch of a
//! [`Database`] by [`Database::new_epoch`]) and appends [`model::Profile`] values as segments. A reader
//! calls [`load()`]. On-disk schemas: docs/reference/schema.md.

pub mod around;
pub mod call_steps;
pub mod calls;
pub mod calls_recording;
pub mod causal;
pub mod causal_recording;
mod laps;
pub mod model;
pub mod symbols;

mod cache;
mod check;
mod compact;
mod core_facts;
mod database;
mod debug_files;
mod debuginfod;
mod description;
mod durable;
mod epoch;
mod error;
mod finder;
#[doc(hidden)]
pub mod fuzz;
mod gather;
mod layout;
mod load;
pub mod merge;
mod mmap;
mod rebuild;
mod recording_dir;
mod retain;
mod run;
mod running_kernel;
mod segment;
mod service;
mod stored;
mod tables;

pub use check::{Finding, Severity, check, repair};
pub use compact::{CompactPolicy, Compacted, compact};
pub use core_facts::CoreFacts;
pub use database::{DaemonFiles, Database, EpochInfo, EpochSelector};
pub use debug_files::DebugFiles;
pub use epoch::{EpochWriter, OnExisting, is_unfinished, put_symbols};
pub use error::{Problem, StoreError};
pub use gather::GatherLimits;
pub use layout::FORMAT_VERSION;
pub use load::{ImagePredicate, Loaded, Selection, load};
pub use mmap::open as open_bytes;
pub use rebuild::rebuild;
pub use retain::{Dropped, GcReport, Limit, RetentionPolicy, gc_recording};
pub use segment::SegmentInfo;
pub use service::{SymbolOptions, SymbolService};
pub use stored::{StoredCode, StoredFunction, StoredLine, StoredSymbols};
