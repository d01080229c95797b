//! What to count: which instructions of a procedure decide how often all of them ran, and which of them share a set.
//! Pure: graphs and rates come in, sets go out.
//!
//! A set has the few places that one thread's debug registers hold. One leads: what others did is counted from its first hit
//! of a window, which is no better than any other of its hits, while a window itself begins where the program stands long. So
//! it is a member of which a full window still has many hits. Members of very different rates tell little of each
//! other, since a window full of one has hardly any of the other; so sets are cut out of the list sorted by rate, each
//! sharing a place with the next, which chains all of them.

use std::hash::{Hash, Hasher};
use whither_image::{Cfg, Flow, ImageOffset};
use whither_sample::lives::ImageNo;

/// Blocks counted of one procedure, at most.
const MOST_BLOCKS: usize = 25;
/// A member may lead that is hit as often as the most frequent one, over this. A rarer one has rounds that windows cut off,
/// the longest ones most.
const LEADS_WITHIN: f64 = 2.0;

/// An instruction to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) image: ImageNo,
    pub(super) offset: ImageOffset,
}

/// Places counted together; the first one leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Set(pub(super) Vec<Place>);

impl Set {
    /// Equal for equal members in every recording. `identity`: of an image, wherever it was recorded.
    pub(super) fn key(&self, identity: impl Fn(ImageNo) -> [u8; 20]) -> u64 {
        let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
        // Which one leads matters, the order of the others does not.
        let mut members: Vec<(bool, [u8; 20], u64)> =
            self.0.iter().enumerate().map(|(i, p)| (i == 0, identity(p.image), p.offset.0)).collect();
        members.sort_unstable();
        members.hash(&mut hash);
        hash.finish()
    }
}

/// FNV-1a, the same in every version of the tool.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.0 = (self.0 ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// What a block is for its procedure, the most decisive first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Entry,
    HeadsLoop,
    /// Where a loop is entered or left.
    BordersLoop,
    Other,
}

/// What the graph of a procedure says of which blocks are worth counting. Made once: a graph takes longer than a window.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    blocks: Vec<Option<ShapeOfBlock>>,
}

/// Of a block that may run.
#[derive(Clone, Copy, Debug)]
struct ShapeOfBlock {
    role: Role,
    /// Loops around it.
    depth: u64,
    /// Equal for those that run equally often.
    class: usize,
}

impl Shape {
    pub(super) fn of(cfg: &Cfg) -> Self {
        let n = cfg.blocks.len();
        let graph =
            whither_image::graph::Graph { nodes: n + 2, edges: cfg.edges.iter().map(|e| (e.from, e.to)).collect() };
        let (mut roles, mut depth) = (vec![Role::Other; n], vec![0_u64; n]);
        let mut at_most = |b: usize, role: Role| {
            if let Some(known) = roles.get_mut(b) {
                *known = role.min(*known);
            }
        };
        for l in &graph.loops(cfg.start()) {
            let inside = |b: usize| l.nodes.binary_search(&b).is_ok();
            l.nodes.iter().filter(|b| **b < n).for_each(|b| depth[*b] += 1);
            at_most(l.header, Role::HeadsLoop);
            cfg.edges.iter().filter(|e| inside(e.from) && !inside(e.to)).for_each(|e| at_most(e.to, Role::BordersLoop));
            let entering = cfg.edges.iter().filter(|e| e.to == l.header && !inside(e.from));
            entering.for_each(|e| at_most(e.from, Role::BordersLoop));
        }
        cfg.edges.iter().filter(|e| e.from == cfg.start()).for_each(|e| at_most(e.to, Role::Entry));
        let (classes, _) = cfg.classes();
        let of =
            |b: usize| may_run(cfg, b).then(|| ShapeOfBlock { role: roles[b], depth: depth[b], class: classes[b] });
        Self { blocks: (0..n).map(of).collect() }
    }

    /// Blocks worth counting, the most decisive first, one of each class that runs equally often: where the procedure is
    /// entered, heads of loops, where loops are entered and left, then what lies deepest. `samples`: of each block, which breaks ties.
    pub(super) fn decisive(&self, samples: &[u64]) -> Vec<usize> {
        let all: u64 = samples.iter().sum();
        let rank = |b: usize, shape: &ShapeOfBlock| {
            // What no time goes into hardly matters, whatever its shape.
            let cold = all > 0 && shape.depth == 0 && samples[b] * 1000 < all && shape.role > Role::Entry;
            (cold, shape.role, std::cmp::Reverse(samples[b]), std::cmp::Reverse(shape.depth), b)
        };
        let may_run = self.blocks.iter().enumerate().filter_map(|(b, shape)| Some((b, (*shape)?)));
        let mut order: Vec<(usize, ShapeOfBlock)> = may_run.collect();
        order.sort_by_key(|(b, shape)| rank(*b, shape));
        let mut seen = std::collections::HashSet::new();
        order.retain(|(_, shape)| seen.insert(shape.class));
        order.truncate(MOST_BLOCKS);
        order.into_iter().map(|(b, _)| b).collect()
    }
}

/// Padding and traps are not worth a slot.
fn may_run(cfg: &Cfg, b: usize) -> bool {
    let insns = &cfg.insns[cfg.blocks[b].insns.clone()];
    !insns.iter().any(|i| matches!(i.flow, Flow::Invalid | Flow::Trap))
}

/// Sets of unknown rates: places as they come.
pub(super) fn survey(places: &[Place], slots: usize) -> Vec<Set> {
    places.chunks(slots.max(1)).map(|c| Set(c.to_vec())).collect()
}

/// Sets that chain places by their rates (any unit): each shares its last place with the first of the next.
pub(super) fn chain(rates: &[(Place, f64)], slots: usize) -> Vec<Set> {
    let mut sorted: Vec<(Place, f64)> = rates.iter().copied().filter(|r| r.1 > 0.0).collect();
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if slots < 2 || sorted.len() < 2 {
        return sorted.iter().map(|r| Set(vec![r.0])).collect();
    }
    let starts = (0..sorted.len() - 1).step_by(slots - 1);
    starts.map(|at| led(&sorted[at..sorted.len().min(at + slots)])).collect()
}

/// The set that tells executions by time: of places whose hits leave most of a window to the program, those that run most often. `most`: what
/// all of its members may run together, in the rates' unit.
pub(super) fn timed(rates: &[(Place, f64)], slots: usize, most: f64) -> Option<Set> {
    let mut sorted: Vec<(Place, f64)> = rates.iter().copied().filter(|r| r.1 > 0.0).collect();
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut left = most;
    let fits = |r: &(Place, f64)| {
        let fits = r.1 <= left;
        left -= if fits { r.1 } else { 0.0 };
        fits
    };
    sorted.retain(fits);
    sorted.truncate(slots.max(1));
    (!sorted.is_empty()).then(|| led(&sorted))
}

/// A set of members sorted by rate, the one that leads first.
fn led(members: &[(Place, f64)]) -> Set {
    let often = |m: &(Place, f64)| m.1 * LEADS_WITHIN >= members[0].1;
    let leads = members.iter().rposition(often).unwrap_or(0);
    let mut places: Vec<Place> = members.iter().map(|m| m.0).collect();
    places.swap(0, leads);
    Set(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_image::cfg::{CfgBlock, Edge, EdgeKind};
    use whither_image::{Svma, decode};

    fn place(offset: u64) -> Place {
        Place { image: ImageNo(0), offset: ImageOffset(offset) }
    }

    /// A graph of one-byte blocks (`nop`) with these edges; `n` are the callers, `n + 1` the end.
    fn graph(n: usize, edges: &[(usize, usize)]) -> Cfg {
        let edge = |&(from, to): &(usize, usize)| Edge {
            from,
            to,
            kind: if from == n { EdgeKind::Enter } else { EdgeKind::Taken },
        };
        Cfg {
            insns: decode(&vec![0x90; n], Svma(0)),
            blocks: (0..n).map(|i| CfgBlock { insns: i..i + 1 }).collect(),
            edges: edges.iter().map(edge).collect(),
            parts: std::iter::once(0..n as u64).collect(),
            tables: vec![],
            tail_jumps: vec![],
            missing: vec![],
        }
    }

    #[test]
    fn what_decides_comes_first_and_once_per_class() {
        // 0 enters; 1 heads a loop of 1, 2 or 3, 4; 5 leaves. 1 and 4 run equally often, so do 0 and 5.
        let edges = [(6, 0), (0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 1), (4, 5), (5, 7)];
        let cfg = graph(6, &edges);
        assert_eq!(Shape::of(&cfg).decisive(&[0, 9, 3, 5, 1, 0]), [0, 1, 3, 2]);
        // What is far from all time comes last.
        let cold = [(6, 0), (0, 1), (0, 2), (1, 3), (2, 3), (3, 3), (3, 4), (3, 5), (4, 7), (5, 7)];
        let order = Shape::of(&graph(6, &cold)).decisive(&[0, 0, 10, 100_000, 0, 10]);
        assert_eq!(order[..2], [0, 3], "{order:?}");
    }

    #[test]
    fn sets_chain_places_of_similar_rates() {
        let rates: Vec<(Place, f64)> = [5.0, 1e6, 0.0, 2e5, 40.0, 3e4, 1e3, 9e5]
            .into_iter()
            .enumerate()
            .map(|(i, r)| (place(i as u64), r))
            .collect();
        let sets = chain(&rates, 4);
        let offsets: Vec<Vec<u64>> = sets.iter().map(|s| s.0.iter().map(|p| p.offset.0).collect()).collect();
        // Of the first 7 leads, hit nearly as often as 1; of the second nothing comes near 5.
        assert_eq!(offsets, [vec![7, 1, 3, 5], vec![5, 6, 4, 0]]);
        for (of, slots) in [(2, 4), (3, 2), (9, 3), (1, 4), (7, 1)] {
            let rates: Vec<(Place, f64)> = (0..of).map(|i| (place(i), 1.0 + i as f64)).collect();
            let sets = chain(&rates, slots);
            assert!(sets.iter().all(|s| s.0.len() <= slots && !s.0.is_empty()), "{sets:?}");
            let linked = sets.windows(2).all(|w| w[0].0.iter().any(|p| w[1].0.contains(p)));
            assert!(slots == 1 || linked, "{sets:?}");
            let all: std::collections::BTreeSet<Place> = sets.iter().flat_map(|s| s.0.clone()).collect();
            assert_eq!(all.len() as u64, of, "every place is in a set");
        }
        assert_eq!(chain(&[], 4), []);
    }

    #[test]
    fn what_compares_with_time_leaves_windows_to_the_program() {
        let rates = |of: &[f64]| of.iter().zip(0..).map(|(r, i)| (place(i), *r)).collect::<Vec<_>>();
        let offsets = |set: Option<Set>| set.map(|s| s.0.iter().map(|p| p.offset.0).collect::<Vec<_>>());
        // 0 alone is too dense; 1 and 2 together are; what is left has room for 3.
        assert_eq!(offsets(timed(&rates(&[50.0, 9.0, 4.0, 0.5]), 4, 10.0)), Some(vec![1, 3]));
        assert_eq!(offsets(timed(&rates(&[50.0, 20.0]), 4, 10.0)), None);
        assert_eq!(offsets(timed(&rates(&[0.0]), 4, 10.0)), None);
        assert_eq!(offsets(timed(&rates(&[3.0, 2.0, 1.0]), 2, 10.0)), Some(vec![1, 0]));
    }

    #[test]
    fn a_set_is_known_by_its_members_and_who_leads() {
        let key = |offsets: &[u64]| Set(offsets.iter().map(|o| place(*o)).collect()).key(|i| [i.0 as u8; 20]);
        assert_eq!(key(&[1, 2, 3]), key(&[1, 3, 2]));
        assert_ne!(key(&[1, 2, 3]), key(&[2, 1, 3]));
        assert_ne!(key(&[1, 2]), key(&[1, 2, 3]));
    }
}
