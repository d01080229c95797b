//! The processor model: how long code takes when all goes well. Out of order, a sample marks the instruction that the
//! head of the reorder buffer waits for, so the least an instruction can cost is the gap between its retirement and
//! the one before (M_i); in order it is the gap between issues, as in the paper. The model gives best cases, static
//! stalls and bounds of loops; it does not give frequencies: real code is elsewhere too often.

mod bound;
mod core;
mod latencies;
mod pipeline;
mod recurrence;
mod schedule;

pub use self::core::{Core, ModelError, Penalties};
pub use latencies::Latencies;
pub use recurrence::{Rounds, chain_of_rounds};
pub use schedule::{BlockSchedule, InsnSchedule, Schedule, StaticStall, schedule};

use whither_image::Effects;

/// Most ports a model may have.
pub const MOST_PORTS: usize = 32;

/// Whether instructions start in the order of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Yes; the head of the issue queue is what samples show.
    InOrder,
    /// No; they retire in order, and samples show who has not completed.
    OutOfOrder,
}

/// What an instruction asks of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Cycles from its start to its result, behind its load if it has one.
    pub latency: u16,
    /// Cycles that some of its results come later than the others.
    pub late: u16,
    /// Cycles that what it only keeps is needed later than its operands.
    pub merge_late: u16,
    /// Ports that can do it, a bit each; none when it needs no unit.
    pub ports: u32,
    /// Cycles it keeps its port busy.
    pub busy: u16,
    /// Cycles from address to value of its load.
    pub load_latency: u16,
    /// Starts alone when everything before has ended, and holds everything behind it back.
    pub alone: bool,
}

/// A kind of core.
pub trait CoreModel {
    /// What to call it in answers.
    fn name(&self) -> &str;
    /// In or out of order.
    fn order(&self) -> Order;
    /// Instructions that enter the pipeline per cycle, fused pairs as one.
    fn dispatch_width(&self) -> u32;
    /// Instructions that retire per cycle.
    fn retire_width(&self) -> u32;
    /// Whether these two, one behind the other, are one for the pipeline.
    fn fuses(&self, first: &Effects, second: &Effects) -> bool;
    /// What an instruction asks of it.
    fn work(&self, insn: &Effects) -> Work;
    /// Ports of loads, a bit each.
    fn load_ports(&self) -> u32;
    /// Ports of stores.
    fn store_ports(&self) -> u32;
    /// Cycles from a store's value to a load of the same bytes.
    fn forward_latency(&self) -> u16;
    /// Slots per cycle that no stretch of code exceeds: for bounds that must never be above the truth.
    fn most_slots(&self) -> f64;
    /// Slots that may have been executed ahead of the one that is waited for, at most: what its reorder buffer holds.
    fn window(&self) -> f64 {
        self::core::LARGEST_WINDOW
    }
    /// Slots that leave it per cycle at most, behind what was waited for.
    fn most_retired(&self) -> f64 {
        self::core::WIDEST_RETIREMENT
    }
    /// Cycles that an instruction keeps a unit busy of which there is one, at least; 0 where it needs none.
    fn least_busy(&self, _insn: &Effects) -> f64 {
        0.0
    }
    /// Cycles at least in which an instruction goes on alone, so that nothing else hides them.
    fn least_alone(&self, _insn: &Effects) -> f64 {
        0.0
    }
    /// Taken branches per cycle that no stretch of code exceeds: for the same bounds, and for how fast fetching goes by them at best.
    fn most_taken(&self) -> f64;
    /// Latency that no case of an instruction goes below, its load included: for the same bounds.
    fn least_latency(&self, insn: &Effects) -> u16;
}

#[cfg(test)]
mod tests;
