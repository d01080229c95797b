//! Collectors: how samples and the side-band get from the kernel to rows of the store. Two back ends
//! (aggregation in the kernel by BPF; perf rings where BPF is refused) feed the same books, which
//! know what ran where. When to drain, and at which rate, is decided in `session`.

pub mod accounts;
pub mod aggregate;
pub mod book;
pub mod bpf;
mod bpf_skel;
mod branches;
pub mod burst;
pub mod causal;
pub mod collector;
mod edges;
pub mod error;
pub mod hotplug;
pub mod images;
pub mod import;
pub mod jit;
pub mod kernel_map;
pub mod lives;
pub mod perf_ring;
pub mod plan;
mod rows;
mod seconds;
pub mod sideband;
pub mod unwind;
mod walk_maps;

pub use book::{Book, BookOptions, Folding, SampleIn, StackIn, Who};
pub use branches::branch_event;
pub use collector::{Collector, Taken, probe_own_thread};
pub use edges::ENOUGH_WALKS;
pub use error::SampleError;
pub use plan::{Chosen, Coverage, EdgeMode, Spend, StackMode};
