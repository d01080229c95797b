//! One procedure as the analysis sees it: its graph with cold parts, what its instructions do, samples moved to the
//! instruction that was waited for, and which ways branches were seen to go.

use super::exact::{Counted, counted};
use super::laps::executions;
use super::recorded::Recorded;
use super::retired::Retired;
use super::tables::Tables;
use super::targets::Targets;
use super::trips::{Trip, trips};
use crate::around::Around;
use crate::find::Procedure;
use crate::flow::Count;
use crate::names::{address, positions};
use crate::skid::Moves;
use std::collections::BTreeSet;
use std::ops::Range;
use whither_image::cfg::Missing;
use whither_image::effects::{Effects, effects};
use whither_image::graph::Loop;
use whither_image::{Blocks, Cfg, ImageOffset, Svma};
use whither_store::model::{EdgeSample, EdgeSource, Image, ImageIx, ImageKind, LapCount, Precision, Way};

/// Larger procedures are generated tables of code nobody can look at.
const LARGEST: u64 = 1 << 20;
/// More blocks are bytes that are no code; several steps here take the square of them at worst.
const MOST_BLOCKS: usize = 20_000;
/// How far what pairs of moments tell may be off, as a logarithm, where breakpoints stopped the program between them as well: a loop that
/// waits for memory was told 12 and 23 % too low.
const BESIDE_BREAKPOINTS: f64 = 0.16;

/// One procedure.
pub(crate) struct Subject {
    pub(crate) cfg: Cfg,
    /// Its loops, outer ones before inner ones.
    pub(crate) loops: Vec<Loop>,
    pub(crate) effects: Vec<Effects>,
    /// Class of cycle equivalence of each block, then of each edge.
    pub(crate) classes: (Vec<usize>, Vec<usize>),
    /// Samples moved to the instruction waited for, each weighed by its period against their mean: the rate may have changed
    /// meanwhile, and time is what they stand for.
    pub(crate) samples: Vec<f64>,
    /// How they were moved.
    pub(crate) moves: Option<Moves>,
    /// Weight (nanoseconds or occurrences) of one sample.
    pub(crate) per_sample: f64,
    pub(crate) seen: Vec<Seen>,
    /// Samples with registers that decided at least one branch, and all with registers.
    pub(crate) decided: (u64, u64),
    /// What branch records show.
    pub(crate) recorded: Recorded,
    /// Where indirect branches were seen to go.
    pub(crate) targets: Targets,
    /// Samples of executed instructions.
    pub(crate) retired: Option<Retired>,
    /// What breakpoints counted.
    pub(crate) counted: Option<Counted>,
    /// What pairs of moments tell, in executions per nanosecond of run time.
    pub(crate) lapped: Vec<Count>,
    /// How often branches leave that leave by count.
    pub(crate) trips: Vec<Trip>,
}

/// Where a branch was seen to go, by interpretation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seen {
    /// Instruction sampled.
    pub(crate) pc: usize,
    /// The branch.
    pub(crate) branch: usize,
    pub(crate) to: To,
    pub(crate) count: f64,
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    Fall,
    Taken,
    /// The block that an indirect jump led to.
    Block(usize),
}

/// Why a procedure cannot be analysed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    NoCode,
    NoKernelCode,
    NoRuntimeCode,
    TooLarge,
    Undecodable,
    TablesGone,
    NotTime,
}

impl Refused {
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Self::NoCode => "its machine code is not there: the file is gone, has changed since, or was never readable",
            Self::NoKernelCode => {
                "the kernel's code was not recorded: it is read from /proc/kcore, which only root may read and some kernels lack"
            }
            Self::NoRuntimeCode => {
                "its machine code is not there: code made at run time is gone with its process, so of its instructions neither executions \
                 nor causes can be told, only samples"
            }
            Self::TooLarge => "it is larger than 1 MiB, or has more than 20,000 basic blocks",
            Self::NotTime => "samples of this event are not time; name `cycles` or `cpu-clock` first with --event",
            Self::Undecodable => "its bytes are no instructions",
            Self::TablesGone => {
                "its file has changed since it was sampled, or is gone, and the tables that its jumps go by were not kept with its code: half of \
                 its control flow tells nothing; record anew"
            }
        }
    }
}

impl Refused {
    /// Without machine code.
    fn without_code(image: &Image) -> Self {
        match image.kind {
            ImageKind::Kernel | ImageKind::Module | ImageKind::Bpf => Self::NoKernelCode,
            ImageKind::Jit | ImageKind::Anon => Self::NoRuntimeCode,
            _ => Self::NoCode,
        }
    }
}

impl Subject {
    pub(crate) fn new(
        p: &Procedure,
        image: &Image,
        around: &Around<'_>,
        tables: &Tables<'_>,
        precision: Precision,
    ) -> Result<Self, Refused> {
        if !around.has_code() {
            return Err(Refused::without_code(image));
        }
        if p.size > LARGEST {
            return Err(Refused::TooLarge);
        }
        let start = address(image, p.start);
        let cfg = Cfg::new(start..start.saturating_add(p.size), around);
        if cfg.blocks.is_empty() {
            let undecodable = !cfg.insns.is_empty();
            return Err(if undecodable { Refused::Undecodable } else { Refused::without_code(image) });
        }
        if cfg.blocks.len() > MOST_BLOCKS {
            return Err(Refused::TooLarge);
        }
        // Of the kernel code alone is ever kept; the graph then says what is missing.
        if image.kind == ImageKind::Elf && cfg.missing.iter().any(|m| matches!(m, Missing::TableGone(_))) {
            return Err(Refused::TablesGone);
        }
        let places = Places { image, cfg: &cfg };
        let (raw, per_sample) = samples(p, &places, tables);
        let recorded = Recorded::new(p, &places, tables);
        let moves = (precision == Precision::Skid(1)).then(|| {
            let (blocks, ways) = (Blocks::from_cfg(&cfg), recorded.ways(&cfg));
            let gone = |from, to| ways.get(&(from, to)).copied().unwrap_or(0.0);
            Moves::by_ways(&cfg.insns, &blocks, &raw, &gone)
        });
        let samples = moves.as_ref().map_or_else(|| raw.clone(), |m| m.apply(&raw));
        let (seen, decided) = seen(p, &places, tables);
        let retired = Retired::new(p, &places, tables);
        let counted = counted(tables.exact(), |(image, at)| {
            let insn = Some(at).filter(|_| image == p.image).and_then(|at| places.insn(at))?;
            let block = cfg.blocks.partition_point(|b| b.insns.start < insn);
            (cfg.blocks.get(block)?.insns.start == insn).then_some(block)
        });
        let (effects, classes) = (effects(&cfg.insns), cfg.classes());
        let lapped = Vec::new();
        Ok(Self {
            effects,
            classes,
            samples,
            moves,
            per_sample,
            seen,
            decided,
            targets: Targets::new(p, &places, tables),
            recorded,
            retired,
            counted,
            lapped,
            trips: Vec::new(),
            loops: cfg.loops(),
            cfg,
        })
    }

    /// With what pairs of moments tell, and single ones of loops that end by count. `ns`: of one sample; `run_ns`: of all that ran.
    pub(super) fn add_laps(&mut self, (ix, image): (ImageIx, &Image), tables: &Tables<'_>, ns: f64, run_ns: f64) {
        let parts = positions(image, &self.cfg.parts);
        let rows: Vec<LapCount> = parts.flat_map(|part| tables.laps_in(ix, &part)).copied().collect();
        self.trips = trips(self, image, &rows);
        let told = executions(self, image, &rows, ns);
        let disturbed = if self.counted.is_some() { BESIDE_BREAKPOINTS } else { 0.0 };
        let off = |c: Count| Count { log: c.log - run_ns.ln(), error: c.error.hypot(disturbed), ..c };
        self.lapped = told.into_iter().map(off).collect();
    }

    /// Standard deviation of the logarithm of the scale that pairs of moments tell, 0 where they tell none or breakpoints do, whose
    /// errors are those of executions already. Loops share what is wrong about a sample's time, so more of them tell it no better.
    pub(super) fn lapped_error(&self) -> f64 {
        let told = self.lapped.iter().filter(|_| self.counted.as_ref().is_none_or(|c| c.rates.is_empty()));
        told.map(|c| c.error).reduce(f64::min).unwrap_or(0.0)
    }

    /// Blocks that were counted in some way.
    pub(super) fn counted_blocks(&self) -> BTreeSet<usize> {
        let exact = self.counted.iter().flat_map(Counted::all_blocks);
        exact.chain(self.lapped.iter().map(|c| c.block)).collect()
    }

    /// Block of each instruction; padding between blocks has none.
    pub(crate) fn block_of(&self, insn: usize) -> Option<usize> {
        let i = self.cfg.blocks.partition_point(|b| b.insns.start <= insn).checked_sub(1)?;
        self.cfg.blocks[i].insns.contains(&insn).then_some(i)
    }

    /// Samples of a block.
    pub(crate) fn block_samples(&self, block: usize) -> f64 {
        self.samples[self.cfg.blocks[block].insns.clone()].iter().sum()
    }

    /// Why the graph is incomplete, as sentences.
    pub(crate) fn missing(&self) -> Vec<String> {
        let looked = self.decided.1 > 0 || self.recorded.runs > 0;
        missing_sentences(&self.cfg.missing, if looked { ONLY_SEEN } else { LOOK })
    }
}

/// Places that a sentence names.
const NAMED: usize = 3;

/// What to do about jumps: of a recording that did not look where they lead, and of one that did.
const LOOK: &str = "; record with --edges mem, which sees where sampled ones go";
const ONLY_SEEN: &str = "; only the places are there that sampled ones went to";

/// A sentence for each kind of thing that is missing; `of_jumps` ends the one about jumps.
fn missing_sentences(missing: &[Missing], of_jumps: &str) -> Vec<String> {
    let places =
        |which: fn(&Missing) -> Option<Svma>| -> Vec<u64> { missing.iter().filter_map(which).map(|at| at.0).collect() };
    let jumps = places(|m| match m {
        Missing::IndirectJump(at) | Missing::TableGone(at) => Some(*at),
        _ => None,
    });
    let tables = places(|m| if let Missing::Unbounded(at) = m { Some(*at) } else { None });
    let bytes = places(|m| if let Missing::Undecodable(at) = m { Some(*at) } else { None });
    let inside = places(|m| if let Missing::Inside(at) = m { Some(*at) } else { None });
    let sentence = |at: &[u64], one: &str, many: &str, help: &str| match at {
        [] => None,
        [at] => Some(format!("{one} {at:#x}{help}")),
        _ => {
            let named: Vec<String> = at.iter().take(NAMED).map(|a| format!("{a:#x}")).collect();
            let rest = if at.len() > NAMED { ", ..." } else { "" };
            Some(format!("{} {many} ({}{rest}){help}", at.len(), named.join(", ")))
        }
    };
    let all = [
        sentence(
            &jumps,
            "it is not known where the jump leads at",
            "jumps lead to places that are not known",
            of_jumps,
        ),
        sentence(
            &tables,
            "the length is a guess of the jump table at",
            "jump tables are of a length that is a guess",
            "",
        ),
        sentence(&bytes, "there is no instruction at", "places hold no instruction", ""),
        sentence(
            &inside,
            "a branch leads into the middle of an instruction, to",
            "branches lead into the middle of instructions",
            "",
        ),
    ];
    all.into_iter().flatten().collect()
}

/// From positions in the image to instructions of a graph.
pub(super) struct Places<'c> {
    pub(super) image: &'c Image,
    pub(super) cfg: &'c Cfg,
}

impl Places<'_> {
    /// Parts of the procedure, as positions.
    pub(super) fn parts(&self) -> impl Iterator<Item = Range<ImageOffset>> {
        positions(self.image, &self.cfg.parts)
    }

    /// The instruction that holds a position.
    pub(super) fn insn(&self, at: ImageOffset) -> Option<usize> {
        let at = address(self.image, at);
        let i = self.cfg.insns.partition_point(|i| i.address.0 <= at).checked_sub(1)?;
        (at < self.cfg.insns[i].end().0).then_some(i)
    }
}

fn samples(p: &Procedure, places: &Places<'_>, tables: &Tables<'_>) -> (Vec<f64>, f64) {
    let mut raw = vec![0.0; places.cfg.insns.len()];
    let (mut count, mut weight) = (0.0, 0.0);
    for part in places.parts() {
        for place in tables.samples_in(p.image, &part) {
            if let Some(i) = places.insn(place.at) {
                raw[i] += place.weight;
                count += place.samples;
                weight += place.weight;
            }
        }
    }
    let per_sample = if count > 0.0 { weight / count } else { 0.0 };
    raw.iter_mut().for_each(|w| *w = if per_sample > 0.0 { *w / per_sample } else { 0.0 });
    (raw, per_sample)
}

fn seen(p: &Procedure, places: &Places<'_>, tables: &Tables<'_>) -> (Vec<Seen>, (u64, u64)) {
    let mut out = Vec::new();
    let (mut decided, mut undecided) = (0, 0);
    for part in places.parts() {
        let rows = tables.edges_in(p.image, &part).iter().filter(|e| e.source == EdgeSource::Registers);
        let rows: Vec<EdgeSample> = rows.copied().collect();
        for at_pc in rows.chunk_by(|a, b| a.pc == b.pc) {
            let Some(pc) = places.insn(at_pc[0].pc) else { continue };
            undecided += ways(at_pc, |w| w == Way::Undecided);
            // A sample may decide several branches on its way; the first one it always does.
            let branches = at_pc.chunk_by(|a, b| a.branch == b.branch);
            decided += branches.map(|rows| ways(rows, |w| w != Way::Undecided)).max().unwrap_or(0);
            for e in at_pc {
                let to = match e.way {
                    Way::Fall => Some(To::Fall),
                    Way::Taken => Some(To::Taken),
                    Way::To(at) => places.cfg.block_at(Svma(address(places.image, at))).map(To::Block),
                    Way::Undecided => None,
                };
                if let (Some(to), Some(branch)) = (to, places.insn(e.branch)) {
                    out.push(Seen { pc, branch, to, count: f64::from(e.count) });
                }
            }
        }
    }
    (out, (decided, decided + undecided))
}

fn ways(rows: &[EdgeSample], which: fn(Way) -> bool) -> u64 {
    rows.iter().filter(|e| which(e.way)).map(|e| u64::from(e.count)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_in_a_sentence_for_each_kind() {
        let mut missing: Vec<Missing> = (1..=400).map(|i| Missing::IndirectJump(Svma(i * 16))).collect();
        missing.push(Missing::Unbounded(Svma(0x77)));
        let told = missing_sentences(&missing, LOOK);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("400 jumps") && told[0].contains("(0x10, 0x20, 0x30, ...)"), "{told:?}");
        assert!(told[0].contains("--edges mem"), "{told:?}");
        assert_eq!(told[1], "the length is a guess of the jump table at 0x77");
        assert!(missing_sentences(&[], LOOK).is_empty());
    }
}
