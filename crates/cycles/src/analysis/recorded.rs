//! What branch records of the CPU say of one procedure. Each row of them is a run: control went straight from where a
//! branch had led to where the next one was taken. So every block whose end lies on the run ran once, every conditional branch
//! before its end fell through, and the one at its end was taken.
//!
//! Records are not always right, and code may have been patched since: a run counts only when the code allows it.

use super::subject::Places;
use super::tables::Tables;
use crate::find::Procedure;
use crate::names::address;
use std::collections::BTreeMap;
use whither_image::cfg::EdgeKind;
use whither_image::{Cfg, Flow, ImageOffset, Svma};
use whither_store::model::{EdgeSample, EdgeSource, Way};

/// What an execution shown by a walk counts: those of one walk are near each other, so many tell what few would.
pub(crate) const WORTH_OF_WALKED: f64 = 0.15;

/// Executions that branch records show. What even records show is shown by chance alone, and nearly so what walks show; of others, the
/// ways that leave a block can be compared, but not blocks far apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    /// Per edge of the graph.
    pub(crate) edges: Vec<f64>,
    /// Indirect jumps: block, block it led to, how often.
    pub(crate) jumps: Vec<(usize, usize, f64)>,
    /// Per block, how often its end was reached, by even records and walks.
    pub(crate) blocks: Vec<f64>,
    /// Runs that count.
    pub(crate) runs: u64,
    /// Of these, by even records.
    pub(crate) even: u64,
    /// Of the runs, those of walks.
    pub(crate) walked: u64,
    /// Runs that the code does not allow.
    pub(crate) misfits: u64,
}

impl Recorded {
    pub(super) fn new(p: &Procedure, places: &Places<'_>, tables: &Tables<'_>) -> Self {
        let by_records = |e: &&EdgeSample| e.source != EdgeSource::Registers;
        let parts: Vec<&[EdgeSample]> = places.parts().map(|part| tables.edges_in(p.image, &part)).collect();
        let mut rows = parts.iter().flat_map(|rows| rows.iter()).filter(by_records).peekable();
        if rows.peek().is_none() {
            return Self { edges: vec![0.0; places.cfg.edges.len()], ..Self::default() };
        }
        let mut tally = Tally::new(places);
        rows.for_each(|row| tally.add(row));
        tally.finish()
    }

    /// How often control was seen to go from the one block to the other.
    pub(super) fn ways(&self, cfg: &Cfg) -> BTreeMap<(usize, usize), f64> {
        let mut ways = BTreeMap::new();
        let edges = cfg.edges.iter().zip(&self.edges).map(|(e, n)| (e.from, e.to, *n));
        for (from, to, n) in edges.chain(self.jumps.iter().copied()).filter(|w| w.2 > 0.0) {
            *ways.entry((from, to)).or_default() += n;
        }
        ways
    }

    /// Runs, as far as they are independent of each other.
    pub(crate) fn observations(&self) -> u64 {
        if self.walked > 0 { (self.runs as f64 * WORTH_OF_WALKED) as u64 } else { self.runs }
    }

    /// Whether anything but chance may have made it.
    pub(crate) fn is_even(&self) -> bool {
        self.even == self.runs
    }
}

/// Sums while rows are read. A run may pass many blocks, so only where it enters and ends is noted.
struct Tally<'p> {
    places: &'p Places<'p>,
    /// Block of each instruction.
    block: Vec<Option<usize>>,
    /// The last instruction that control can reach from each one without a taken branch.
    limit: Vec<usize>,
    /// Edges of each block to the next one and away from it.
    fall: Vec<Option<usize>>,
    away: Vec<Option<usize>>,
    /// Runs that fell out of each block, as differences to the block before; all, and those that tell of places.
    fell: Vec<[f64; 2]>,
    jumps: BTreeMap<(usize, usize), f64>,
    out: Recorded,
}

impl<'p> Tally<'p> {
    fn new(places: &'p Places<'p>) -> Self {
        let cfg = places.cfg;
        let mut block = vec![None; cfg.insns.len()];
        for (b, of) in cfg.blocks.iter().enumerate() {
            block[of.insns.clone()].fill(Some(b));
        }
        let (mut fall, mut away) = (vec![None; cfg.blocks.len()], vec![None; cfg.blocks.len()]);
        for (e, edge) in cfg.edges.iter().enumerate().filter(|(_, e)| e.from < cfg.blocks.len()) {
            match edge.kind {
                EdgeKind::Fall => fall[edge.from] = Some(e),
                EdgeKind::Taken => away[edge.from] = Some(e),
                EdgeKind::Leave => away[edge.from] = away[edge.from].or(Some(e)),
                EdgeKind::Table | EdgeKind::Enter => {}
            }
        }
        let none = vec![0.0; cfg.blocks.len()];
        Self {
            limit: limits(cfg, &block),
            block,
            fall,
            away,
            fell: vec![[0.0; 2]; cfg.blocks.len() + 1],
            jumps: BTreeMap::new(),
            out: Recorded { edges: vec![0.0; cfg.edges.len()], blocks: none, ..Recorded::default() },
            places,
        }
    }

    fn add(&mut self, row: &EdgeSample) {
        let Some((first, last, at_end)) = self.fits(row) else {
            self.out.misfits += u64::from(row.count);
            return;
        };
        let even = row.source == EdgeSource::EvenRecords;
        let count = f64::from(row.count);
        let tells_of_places = even || row.source == EdgeSource::Walks;
        let counts = [count, if tells_of_places { count } else { 0.0 }];
        self.out.runs += u64::from(row.count);
        self.out.walked += if row.source == EdgeSource::Walks { u64::from(row.count) } else { 0 };
        self.out.even += if even { u64::from(row.count) } else { 0 };
        self.fell[first].iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        self.fell[last].iter_mut().zip(counts).for_each(|(sum, count)| *sum -= count);
        match at_end {
            End::Before => return,
            End::Edge(edge) => self.out.edges[edge] += count,
            End::Jump(to) => *self.jumps.entry((last, to)).or_default() += count,
            End::Reached => {}
        }
        self.out.blocks[last] += counts[1];
    }

    /// The blocks that a run begins and ends in, and what it says of the end of the latter; `None` when the code does not
    /// allow it.
    fn fits(&self, row: &EdgeSample) -> Option<(usize, usize, End)> {
        let (start, end) = (self.exactly(row.pc)?, self.exactly(row.branch)?);
        if end < start || end > self.limit[start] {
            return None;
        }
        let (first, last) = (self.block[start]?, self.block[end]?);
        let at_end = self.end(end, last, row.way)?;
        let is_last = self.places.cfg.blocks[last].insns.end == end + 1;
        Some((first, last, if is_last { at_end } else { End::Before }))
    }

    fn exactly(&self, at: ImageOffset) -> Option<usize> {
        let insn = self.places.insn(at)?;
        (self.places.cfg.insns[insn].address.0 == address(self.places.image, at)).then_some(insn)
    }

    /// What a run that ended at an instruction in this way says of it; `None` when it cannot go that way.
    fn end(&self, insn: usize, block: usize, way: Way) -> Option<End> {
        let to = match way {
            Way::To(at) => Some(Svma(address(self.places.image, at))),
            Way::Taken => None,
            Way::Fall | Way::Undecided => return None,
        };
        let known = |edge: Option<usize>| edge.map_or(End::Reached, End::Edge);
        Some(match (self.places.cfg.insns[insn].flow, to) {
            // To another image: an interrupt or a fault came before it was executed.
            (Flow::Next | Flow::Branch(_) | Flow::Jump(_) | Flow::Trap, None) => End::Before,
            (Flow::Branch(target) | Flow::Jump(target), Some(to)) if to == target => known(self.away[block]),
            (Flow::Call(target), Some(to)) if to != target => return None,
            (Flow::Call(_) | Flow::IndirectCall, _) => known(self.fall[block]),
            (Flow::IndirectJump, Some(to)) => match self.places.cfg.block_at(to) {
                Some(to) => End::Jump(to),
                None => known(self.away[block]),
            },
            (Flow::IndirectJump | Flow::Return, _) => known(self.away[block]),
            _ => return None,
        })
    }

    fn finish(mut self) -> Recorded {
        let mut sum = [0.0; 2];
        for (b, fall) in self.fall.iter().enumerate() {
            for (sum, more) in sum.iter_mut().zip(self.fell[b]) {
                *sum += more;
            }
            if let Some(edge) = fall {
                self.out.edges[*edge] += sum[0];
            }
            self.out.blocks[b] += sum[1];
        }
        self.out.jumps = self.jumps.into_iter().map(|((from, to), n)| (from, to, n)).collect();
        self.out
    }
}

/// What the end of a run says of the end of its last block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It was not reached.
    Before,
    Reached,
    /// It was left by this edge.
    Edge(usize),
    /// By an indirect jump to this block.
    Jump(usize),
}

fn limits(cfg: &Cfg, block: &[Option<usize>]) -> Vec<usize> {
    let mut limit: Vec<usize> = (0..cfg.insns.len()).collect();
    for i in (1..cfg.insns.len()).rev() {
        let (here, next) = (&cfg.insns[i - 1], &cfg.insns[i]);
        let goes_on = matches!(here.flow, Flow::Next | Flow::Branch(_));
        if goes_on && here.end() == next.address && block[i].is_some() {
            limit[i - 1] = limit[i];
        }
    }
    limit
}
