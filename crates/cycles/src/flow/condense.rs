//! A smaller graph with the same answer, for what interpreters are made of: hundreds of jumps that share one table, every
//! handler's to every handler. Of ten thousands of such edges a few thousand were ever seen; each of the others would be an
//! unknown of its own, with a belief that all handlers follow each other alike.
//!
//! Here what was never seen goes by way of one node that all these jumps share, and from there to each handler as often as the jumps
//! together were seen to lead to it: what follows one handler is guessed from what follows any (backing off, as in models of
//! language). Edges that were seen stay what they are. Limit: only jumps with exactly the same targets share a node.

use super::{Flow, Known, Network, Time};
use rustc_hash::FxHashMap;

/// Jumps with fewer targets are left as they are: they are statements of one kind each, with nothing in common.
const MANY: usize = 16;
/// What to add to how often a target was seen, so that none is impossible.
const PERHAPS: f64 = 0.5;

/// How an edge of the whole graph is found again.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    /// The edge itself.
    own: Option<usize>,
    /// Edges into the shared node and out of it.
    shared: Option<(usize, usize)>,
}

/// See the module. Blocks keep their numbers; shared nodes follow them.
#[derive(Debug)]
pub(super) struct Condensed {
    pub(super) network: Network,
    ways: Vec<Way>,
    /// Blocks of the whole graph.
    blocks: usize,
    /// Edges out of shared nodes, and how often each target was seen.
    fans: Vec<Vec<(usize, f64)>>,
}

/// Jumps that share their targets.
struct Table {
    /// Sources, with their edges.
    jumps: Vec<(usize, Vec<usize>)>,
}

impl Condensed {
    /// `shown`: per edge, whether it was seen at all: above 0.
    pub(super) fn new(network: &Network, shown: &[f64]) -> Self {
        let tables = tables(network);
        let (blocks, nodes) = (network.blocks, network.blocks + tables.len());
        let node = |n: usize| if n < blocks { n } else { n + tables.len() };
        let mut out = Self {
            network: Network { blocks: nodes, edges: Vec::new() },
            ways: vec![Way::default(); network.edges.len()],
            blocks,
            fans: Vec::with_capacity(tables.len()),
        };
        let mut shares = vec![false; network.edges.len()];
        tables.iter().flat_map(|t| &t.jumps).flat_map(|j| &j.1).for_each(|&e| shares[e] = true);
        for (e, &(from, to)) in network.edges.iter().enumerate() {
            if !shares[e] || shown[e] > 0.0 {
                out.ways[e].own = Some(out.add(node(from), node(to)));
            }
        }
        for (i, table) in tables.iter().enumerate() {
            out.share(table, blocks + i, node, network, shown);
        }
        out
    }

    fn add(&mut self, from: usize, to: usize) -> usize {
        self.network.edges.push((from, to));
        self.network.edges.len() - 1
    }

    fn share(&mut self, table: &Table, hub: usize, node: impl Fn(usize) -> usize, whole: &Network, shown: &[f64]) {
        let mut fan: FxHashMap<usize, usize> = FxHashMap::default();
        let mut seen: Vec<(usize, f64)> = Vec::new();
        for (from, edges) in &table.jumps {
            let into = self.add(*from, hub);
            for &e in edges {
                let to = whole.edges[e].1;
                let at = *fan.entry(to).or_insert_with(|| {
                    seen.push((self.add(hub, node(to)), 0.0));
                    seen.len() - 1
                });
                seen[at].1 += shown[e];
                self.ways[e].shared = Some((into, seen[at].0));
            }
        }
        self.fans.push(seen);
    }

    /// What is known, of this graph's edges.
    pub(super) fn known(&self, known: &Known) -> Known {
        let none = || vec![0.0; self.network.edges.len()];
        let (mut seen, mut doubt, mut belief) = (none(), none(), none());
        let mut together = vec![1.0; self.network.edges.len()];
        let mut doubt_of_target = if known.doubt_of_target.is_empty() { Vec::new() } else { none() };
        let together_of = |e: usize| known.together.get(e).copied().unwrap_or(1.0);
        // What may be believed of the ways into a shared node at the least.
        let mut least = vec![f64::INFINITY; self.network.edges.len()];
        for (e, way) in self.ways.iter().enumerate() {
            match (way.own, way.shared) {
                (Some(own), _) => {
                    seen[own] = known.seen[e];
                    doubt[own] = known.doubt[e];
                    if let Some(doubt) = known.doubt_of_target.get(e) {
                        doubt_of_target[own] = *doubt;
                    }
                    together[own] = together_of(e);
                    belief[own] = known.belief[e];
                }
                (None, Some((into, _))) => {
                    doubt[into] = doubt[into].max(known.doubt[e]);
                    belief[into] += known.belief[e];
                }
                (None, None) => {}
            }
            if let Some((into, _)) = way.shared {
                least[into] = least[into].min(known.belief[e]);
            }
        }
        belief.iter_mut().zip(&least).filter(|(_, least)| least.is_finite()).for_each(|(b, least)| *b = b.max(*least));
        for (hub, fan) in (self.blocks..).zip(&self.fans) {
            let into = self.network.edges.iter().zip(&belief).filter(|(e, _)| e.1 == hub);
            let passed: f64 = into.map(|(_, b)| b).sum();
            let all: f64 = fan.iter().map(|f| f.1 + PERHAPS).sum();
            fan.iter().for_each(|(e, n)| belief[*e] = passed * (n + PERHAPS) / all);
        }
        let mut time = known.time.clone();
        time.resize(self.network.blocks, Time::default());
        Known {
            seen,
            doubt,
            doubt_of_target,
            belief,
            missed: known.missed,
            against: known.against,
            time,
            ran: known.ran.clone(),
            together,
            lean: known.lean,
            ratios: known.ratios.clone(),
            counts: known.counts.clone(),
            unit: known.unit,
        }
    }

    /// The whole graph's flow.
    pub(super) fn whole(&self, mut flow: Flow) -> Flow {
        let part = |out: usize| {
            let through = flow.blocks[self.network.edges[out].0];
            if through > 0.0 { flow.edges[out] / through } else { 0.0 }
        };
        let edge = |way: &Way| {
            let own = way.own.map_or(0.0, |e| flow.edges[e]);
            own + way.shared.map_or(0.0, |(into, out)| flow.edges[into] * part(out))
        };
        let error = |errors: &[f64], way: &Way| match (way.own, way.shared) {
            (Some(own), _) => errors[own],
            (None, Some((into, out))) => errors[into].max(errors[out]),
            (None, None) => f64::INFINITY,
        };
        let errors = |of: &[f64]| self.ways.iter().map(|way| error(of, way)).collect();
        let (edges, edge_error) = (self.ways.iter().map(edge).collect(), errors(&flow.edge_error));
        let by_counts = flow.by_counts.map(|(mut blocks, edges)| {
            blocks.truncate(self.blocks);
            (blocks, errors(&edges))
        });
        flow.blocks.truncate(self.blocks);
        flow.block_error.truncate(self.blocks);
        Flow { edges, edge_error, by_counts, ..flow }
    }
}

/// Tables that several jumps share.
fn tables(network: &Network) -> Vec<Table> {
    let mut out = vec![Vec::new(); network.blocks];
    for (e, &(from, _)) in network.edges.iter().enumerate() {
        if let Some(out) = out.get_mut(from) {
            out.push(e);
        }
    }
    let mut found: FxHashMap<Vec<usize>, usize> = FxHashMap::default();
    let mut tables: Vec<Table> = Vec::new();
    for (from, edges) in out.into_iter().enumerate().filter(|(_, edges)| edges.len() >= MANY) {
        let mut targets: Vec<usize> = edges.iter().map(|&e| network.edges[e].1).collect();
        targets.sort_unstable();
        if targets.windows(2).any(|w| w[0] == w[1]) {
            continue;
        }
        let at = *found.entry(targets).or_insert_with(|| {
            tables.push(Table { jumps: Vec::new() });
            tables.len() - 1
        });
        tables[at].jumps.push((from, edges));
    }
    tables.retain(|t| t.jumps.len() > 1);
    tables
}

#[cfg(test)]
mod tests {
    use super::super::{Errors, Problem};
    use super::*;

    /// As many handlers, each of which jumps to any, and out.
    fn interpreter(handlers: usize) -> Network {
        let mut edges = vec![(handlers, 0)];
        for from in 0..handlers {
            edges.extend((0..handlers).map(|to| (from, to)));
            edges.push((from, handlers + 1));
        }
        Network { blocks: handlers, edges }
    }

    fn known(network: &Network, seen: impl Fn(usize, usize) -> f64) -> Known {
        let ways = network.edges.len() as f64 / network.blocks as f64;
        Known {
            seen: network.edges.iter().map(|e| seen(e.0, e.1)).collect(),
            doubt: vec![0.1; network.edges.len()],
            belief: vec![1.0 / ways; network.edges.len()],
            missed: 1.0,
            time: vec![Time { samples: 100.0, least: 1.0 }; network.blocks],
            ..Known::default()
        }
    }

    #[test]
    fn handlers_never_seen_together_share_a_node() {
        let network = interpreter(30);
        // Each is seen to lead to the next one only, and the last ones nowhere.
        let k = known(&network, |from, to| if to == from + 1 && from < 20 { 50.0 } else { 0.0 });
        let condensed = Condensed::new(&network, &k.seen);
        assert_eq!(condensed.network.blocks, 31);
        // The entry, those seen, into the shared node, and out of it: to each handler and outside.
        assert_eq!(condensed.network.edges.len(), 1 + 20 + 30 + 31);
        let small = condensed.known(&k);
        assert!((small.belief.iter().sum::<f64>() - k.belief.iter().sum::<f64>() - 30.0).abs() < 1.5, "{small:?}");
        assert!(small.belief.iter().all(|b| *b > 0.0));
    }

    #[test]
    fn the_whole_flow_conserves_itself() {
        let network = interpreter(24);
        let k = known(&network, |from, to| if (from * 5 + to * 3) % 7 == 0 { 40.0 } else { 0.0 });
        let (flow, _) = Problem::new(&network, &k.seen).unwrap().solve(&k, None, Errors::Drawn).unwrap();
        assert_eq!((flow.blocks.len(), flow.edges.len()), (24, network.edges.len()));
        for b in 0..24 {
            let sum = |of: fn(&(usize, usize)) -> usize| -> f64 {
                network.edges.iter().zip(&flow.edges).filter(|(e, _)| of(e) == b).map(|(_, f)| f).sum()
            };
            let (into, out) = (sum(|e| e.1), sum(|e| e.0));
            assert!((into / flow.blocks[b] - 1.0).abs() < 1e-6 && (out / flow.blocks[b] - 1.0).abs() < 1e-6, "{b}");
        }
    }

    #[test]
    fn what_follows_is_guessed_from_what_follows_others() {
        let network = interpreter(20);
        // All others are followed by 3, mostly; of 7 nothing was seen.
        let k = known(&network, |from, to| match (from, to) {
            (7 | 20.., _) => 0.0,
            (_, 3) => 80.0,
            (_, 7) => 20.0,
            (_, 21) => 0.1,
            _ => 0.0,
        });
        let (flow, _) = Problem::new(&network, &k.seen).unwrap().solve(&k, None, Errors::Skipped).unwrap();
        let edge = |from, to| flow.edges[network.edges.iter().position(|e| *e == (from, to)).unwrap()];
        // An even guess is one in 21; the same time in all blocks speaks for that.
        assert!(edge(7, 3) > 0.2 * flow.blocks[7], "{} of {}", edge(7, 3), flow.blocks[7]);
    }

    #[test]
    fn other_jumps_stay_as_they_are() {
        // Two tables with one target each of their own, one with a target twice, and few ways.
        let mut edges: Vec<(usize, usize)> = vec![(40, 0), (0, 1), (0, 2)];
        edges.extend((3..23).flat_map(|to| [(1, to), (2, to + 1)]));
        edges.extend((3..23).chain([3]).map(|to| (3, to)));
        let network = Network { blocks: 40, edges };
        let condensed = Condensed::new(&network, &vec![0.0; network.edges.len()]);
        assert_eq!(condensed.network.edges, network.edges);
    }
}
