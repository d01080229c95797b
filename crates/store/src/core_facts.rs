//! What was measured of the processor a recording was made on: latencies, widths, penalties. Values only; they are
//! measured by the collecting side and read by the analysis, which meet here.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Measured figures of one kind of core; `None` where a measurement failed or was not tried. Cycles are core cycles,
/// which are neither the time-stamp counter's nor the nominal clock's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CoreFacts {
    /// CPU model as /proc/cpuinfo names it, with family, model and stepping.
    pub cpu: String,
    /// Version of the way of measuring; figures of another are measured anew.
    pub method: u32,
    /// Core cycles per second while one thread computes.
    pub clock_hz: Option<f64>,
    /// Cycles of a dependent addition of a small constant: below 1 on cores that add while renaming.
    pub add_immediate: Option<f64>,
    /// Cycles of a dependent integer multiplication, 64 bits.
    pub imul: Option<f64>,
    /// Cycles of a dependent division, 32 bits: of the shortest quotient since method 5, of a long one before.
    pub div32: Option<f64>,
    /// The same, 64 bits.
    pub div64: Option<f64>,
    /// Cycles between independent divisions, 32 bits.
    pub div_every: Option<f64>,
    /// Cycles from address to value of a load that hits the first cache.
    pub load: Option<f64>,
    /// Cycles of a dependent addition of doubles.
    pub fp_add: Option<f64>,
    /// Cycles of a dependent multiplication of doubles.
    pub fp_mul: Option<f64>,
    /// Cycles of a dependent fused multiplication and addition of doubles.
    pub fma: Option<f64>,
    /// Cycles of a dependent division of doubles.
    pub fp_div: Option<f64>,
    /// Cycles between independent divisions of doubles.
    pub fp_div_every: Option<f64>,
    /// Cycles of a dependent square root of doubles.
    pub sqrt: Option<f64>,
    /// Cycles between independent square roots of doubles.
    pub sqrt_every: Option<f64>,
    /// Independent integer additions per cycle.
    pub alus: Option<f64>,
    /// Instructions per cycle of a mix that leaves every unit room.
    pub width: Option<f64>,
    /// Taken branches per cycle, in the pattern that the core likes best.
    pub taken: Option<f64>,
    /// Cycles from a store to a load of the same bytes, both included.
    pub forward: Option<f64>,
    /// The same where the load is wider than the store.
    pub forward_fail: Option<f64>,
    /// Cycles lost by a mispredicted branch.
    pub mispredict: Option<f64>,
    /// Cycles of a locked addition to memory in the first cache.
    pub lock: Option<f64>,
    /// Cycles of a load that hits the second cache.
    pub l2: Option<f64>,
    /// Cycles of a load that hits the last cache.
    pub l3: Option<f64>,
    /// Cycles of a load from memory.
    pub dram: Option<f64>,
    /// Cycles that the walk of page tables adds to a load, tables in the caches.
    pub dtlb_walk: Option<f64>,
    /// Cycles from operands to result of other kinds of instructions, by the names of the processor model (`docs/reference/core.toml`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub latencies: BTreeMap<String, f64>,
}
