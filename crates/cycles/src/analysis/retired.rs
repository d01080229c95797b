//! What samples of executed instructions say of one procedure. Where the processor counts retired instructions and tells the
//! address of each n-th exactly (PEBS: Intel SDM volume 3, "Processor Event Based Sampling"; IBS that counts dispatched
//! operations: AMD64 manual volume 2, section 13.3), an instruction has as many samples as executions allow, whatever it waits for. So
//! they tell executions, their scale too, and nothing of time: that still comes from samples of time.

use super::subject::Places;
use super::tables::Tables;
use crate::find::Procedure;
use crate::flow::Ran;
use whither_store::model::{Event, EventUnit, Precision};

/// Fewer samples are no evidence to speak of.
const FEWEST: f64 = 30.0;
/// Standard deviation of the logarithm of a block's samples beyond chance: which of the instructions that retire together is
/// told is not all chance.
const DOUBT: f64 = 0.05;

/// Whether the samples of an event stand at instructions as often as these were executed.
pub(crate) fn counts_instructions(event: &Event) -> bool {
    let name = event.name.as_str();
    let of_all = name.starts_with("instructions")
        || name.contains("/instructions")
        || (name.contains("inst_retired") && !name.contains("br_inst"));
    // IBS picks operations by time unless it is told to count them.
    let of_operations = name.starts_with("ibs_op") && name.contains("cnt_ctl=1");
    event.unit == EventUnit::Count && event.precision == Precision::Exact && (of_all || of_operations)
}

/// Samples of executed instructions, per block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retired {
    /// Samples, and instructions of the block.
    blocks: Vec<(f64, f64)>,
    /// Samples.
    pub(crate) samples: f64,
    /// Instructions that they stand for.
    instructions: f64,
}

impl Retired {
    /// `None` where there are too few.
    pub(super) fn new(p: &Procedure, places: &Places<'_>, tables: &Tables<'_>) -> Option<Self> {
        let blocks = &places.cfg.blocks;
        let mut out = Self { blocks: blocks.iter().map(|b| (0.0, b.insns.len() as f64)).collect(), ..Self::default() };
        for part in places.parts() {
            for place in tables.retired_in(p.image, &part) {
                let Some(insn) = places.insn(place.at) else { continue };
                let at = blocks.partition_point(|b| b.insns.start <= insn).checked_sub(1);
                let Some(block) = at.filter(|b| blocks[*b].insns.contains(&insn)) else { continue };
                out.blocks[block].0 += place.samples;
                out.samples += place.samples;
                out.instructions += place.weight;
            }
        }
        Some(out).filter(|o| o.samples >= FEWEST)
    }

    /// As evidence of frequencies.
    pub(super) fn ran(&self) -> Vec<Ran> {
        self.blocks.iter().map(|&(seen, chance)| Ran { seen, chance, doubt: DOUBT, ..Ran::default() }).collect()
    }

    /// What to multiply flows of blocks with to get executions.
    pub(super) fn scale(&self, flow: &[f64]) -> Option<f64> {
        let executed: f64 = self.blocks.iter().zip(flow).map(|((_, insns), flow)| insns * flow).sum();
        Some(self.instructions / executed).filter(|s| s.is_finite() && *s > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_samples_of_instructions_count_them() {
        let of = |name: &str, precision| {
            counts_instructions(&Event { name: name.into(), unit: EventUnit::Count, precision })
        };
        for name in [
            "instructions:pp",
            "instructions",
            "cpu_core/instructions/pp",
            "cpu/inst_retired.prec_dist/",
            "ibs_op/cnt_ctl=1/",
        ] {
            assert!(of(name, Precision::Exact), "{name}");
        }
        assert!(!of("instructions", Precision::Unknown), "they stand somewhere behind");
        assert!(!of("ibs_op//", Precision::Exact), "by time");
        assert!(!of("br_inst_retired.near_taken", Precision::Unknown) && !of("cache-misses:pp", Precision::Exact));
    }
}
