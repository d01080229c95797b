//! Which turn of a branch's loop a sample decides it in. A sample decides the next execution of a branch only. One that
//! stands before the branch, in the same turn of its loop, is a fair draw. One outside of the loop decides the first
//! execution after the loop was entered, and one behind the branch any but the first; in loops of few turns these differ
//! (no first turn leaves a loop that is left at its end). Such draws are parts of all executions, and count
//! by how large their part is.

use super::{Flow, Network};
use rustc_hash::FxHashMap;
use whither_image::graph::{Graph, Loop};

/// Which executions of a branch the samples at a place decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Draw {
    /// Any.
    Fair,
    /// The first after its loop was entered.
    First,
    /// All others.
    Later,
}

impl Draw {
    /// How large a part of all executions it is drawn from, when the first ones are so large a part.
    pub(super) fn part_of(self, first: f64) -> f64 {
        match self {
            Self::Fair => 1.0,
            Self::First => first,
            Self::Later => 1.0 - first,
        }
    }
}

/// What part of observations may stand for some executions only: the first turn overlaps what is before the loop, so
/// samples may miss half of it. That moves the odds of leaving by half the first turn's part; independent errors add
/// as squares.
pub(super) fn doubtful(first: f64) -> f64 {
    (2.0 * first * first).min(1.0)
}

/// Loops, and what samples in them decide.
pub(super) struct Turns {
    /// Index of the innermost loop of each node.
    inner: Vec<Option<usize>>,
    /// Edges that enter each loop.
    entries: Vec<Vec<usize>>,
    /// What samples in a block (first) say of the branch of another.
    draws: FxHashMap<(usize, usize), Draw>,
}

impl Turns {
    /// `pairs`: blocks of samples, and of the branches they decide.
    pub(super) fn new(network: &Network, pairs: impl Iterator<Item = (usize, usize)>) -> Self {
        let graph = Graph { nodes: network.blocks + 2, edges: network.edges.clone() };
        let loops = graph.loops(network.blocks);
        let mut inner = vec![None; graph.nodes];
        let mut headed = vec![None; graph.nodes];
        // Outer loops come first.
        for (i, l) in loops.iter().enumerate() {
            l.nodes.iter().for_each(|&n| inner[n] = Some(i));
            headed[l.header] = Some(i);
        }
        let mut entries = vec![Vec::new(); loops.len()];
        for (e, &(from, to)) in graph.edges.iter().enumerate() {
            if let Some(i) = headed[to]
                && !holds(&loops[i], from)
            {
                entries[i].push(e);
            }
        }
        let mut pairs: Vec<(usize, usize)> = pairs.map(|(pc, branch)| (branch, pc)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let into = graph.incoming();
        let mut draws = FxHashMap::default();
        for of_branch in pairs.chunk_by(|a, b| a.0 == b.0) {
            let branch = of_branch[0].0;
            let Some(own) = inner[branch].map(|l| &loops[l]) else { continue };
            let before = before_in_turn(&graph, &into, branch, own.header);
            draws.extend(of_branch.iter().map(|&(_, pc)| {
                let draw = match () {
                    () if !holds(own, pc) => Draw::First,
                    () if before[pc] => Draw::Fair,
                    () => Draw::Later,
                };
                ((pc, branch), draw)
            }));
        }
        Self { inner, entries, draws }
    }

    /// What samples in block `pc` say of the branch at the end of block `branch`.
    pub(super) fn draw(&self, pc: usize, branch: usize) -> Draw {
        self.draws.get(&(pc, branch)).copied().unwrap_or(Draw::Fair)
    }

    /// Which part of a branch's executions are the first after its loop was entered.
    pub(super) fn first_part(&self, flow: &Flow, branch: usize) -> f64 {
        let Some(own) = self.inner[branch] else { return 0.0 };
        let entered: f64 = self.entries[own].iter().map(|&e| flow.edges[e]).sum();
        (entered / flow.blocks[branch].max(f64::MIN_POSITIVE)).min(1.0)
    }
}

fn holds(l: &Loop, node: usize) -> bool {
    l.nodes.binary_search(&node).is_ok()
}

/// Nodes from which a branch is reached without beginning its loop anew: the search ends at the header.
fn before_in_turn(graph: &Graph, into: &[Vec<usize>], branch: usize, header: usize) -> Vec<bool> {
    let mut before = vec![false; graph.nodes];
    let mut todo = vec![branch];
    while let Some(node) = todo.pop() {
        if !std::mem::replace(&mut before[node], true) && node != header {
            todo.extend(into[node].iter().map(|&e| graph.edges[e].0));
        }
    }
    before
}

/// Observations of one branch by draw.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drawn {
    pub(super) fair: f64,
    pub(super) first: f64,
    pub(super) later: f64,
}

impl Drawn {
    pub(super) fn add(&mut self, draw: Draw, count: f64) {
        *match draw {
            Draw::Fair => &mut self.fair,
            Draw::First => &mut self.first,
            Draw::Later => &mut self.later,
        } += count;
    }

    /// What one observation counts, when the first executions are so large a part of all (`None`: not known yet). Both
    /// parts together count as many fair draws as would be as certain; a part that was not seen is one observation of
    /// unknown outcome.
    pub(super) fn weight(&self, draw: Draw, first: Option<f64>) -> f64 {
        let Some(first) = first else {
            let alone = match draw {
                Draw::Fair => true,
                Draw::Later => self.fair == 0.0,
                Draw::First => self.fair + self.later == 0.0,
            };
            return if alone { 1.0 } else { 0.0 };
        };
        let seen = match draw {
            Draw::Fair => return 1.0,
            Draw::First => self.first,
            Draw::Later => self.later,
        };
        let variance = first * first / self.first.max(1.0) + (1.0 - first).powi(2) / self.later.max(1.0);
        if seen > 0.0 { draw.part_of(first) / seen / variance } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0 enters the loop of 1, 2 and 3 (1 may skip 2; 3 goes back or on to 4).
    fn network() -> Network {
        Network { blocks: 5, edges: vec![(5, 0), (0, 1), (1, 2), (1, 3), (2, 3), (3, 1), (3, 4), (4, 6)] }
    }

    fn turns() -> Turns {
        Turns::new(&network(), (0..25).map(|i| (i / 5, i % 5)))
    }

    #[test]
    fn a_sample_decides_the_next_execution_only() {
        use Draw::{Fair, First, Later};
        let turns = turns();
        let of = |branch: usize| -> Vec<Draw> { (0..5).map(|pc| turns.draw(pc, branch)).collect() };
        assert_eq!(of(3), [First, Fair, Fair, Fair, First], "left at the end: the whole body is before it");
        assert_eq!(of(1), [First, Fair, Later, Later, First], "tested at the head");
        assert_eq!(of(0), [Fair; 5]);
    }

    #[test]
    fn parts_count_as_large_as_they_are() {
        let turns = turns();
        let flow = Flow {
            blocks: vec![10.0, 40.0, 20.0, 40.0, 10.0],
            edges: vec![10.0, 10.0, 20.0, 20.0, 20.0, 30.0, 10.0, 10.0],
            ..Flow::default()
        };
        assert_eq!((turns.first_part(&flow, 3), turns.first_part(&flow, 0)), (0.25, 0.0));
        let drawn = Drawn { fair: 7.0, first: 1000.0, later: 30.0 };
        let (first, later) =
            (drawn.weight(Draw::First, Some(0.25)) * 1000.0, drawn.weight(Draw::Later, Some(0.25)) * 30.0);
        assert!((first / later - 1.0 / 3.0).abs() < 1e-9, "{first} and {later}");
        assert!((first + later - 1.0 / (0.0625 / 1000.0 + 0.5625 / 30.0)).abs() < 1e-9, "{first} and {later}");
        assert_eq!(drawn.weight(Draw::Fair, Some(0.25)), 1.0);
        // What never saw the rest of the executions says next to nothing of them.
        let blind = Drawn { first: 1000.0, ..Drawn::default() };
        assert!(blind.weight(Draw::First, Some(0.1)) * 1000.0 < 0.2);
        // Before flows are known.
        assert_eq!((drawn.weight(Draw::First, None), blind.weight(Draw::First, None)), (0.0, 1.0));
    }
}
