//! The linear equations of a flow with given probabilities, solved by taking out one node after the other
//! (state reduction: Grassmann, Taksar and Heyman, Operations Research 33, 1985). Nothing is ever subtracted: the chance
//! to leave a node for good is the sum of the ways out, so a loop left once in a million turns is as precise as any.
//!
//! The order of elimination depends on the graph alone; it is planned once, and each solution is a pass over the plan. An
//! interpreter's dispatch, where every handler leads to every other, is a full matrix once the rest is gone: that is solved as one,
//! which is five times as fast as word by word.

use super::Network;

/// A graph whose nodes get this much entangled is refused: hundreds of jumps from everywhere to everywhere.
const MOST_STEPS: usize = 3_000_000;

/// The order of elimination, and which words it combines.
#[derive(Debug)]
pub(crate) struct Plan {
    nodes: usize,
    /// In order of elimination.
    steps: Vec<Step>,
    /// The nodes that come after them, all to all.
    rest: Rest,
    /// Word of each edge of the network, `None` for edges from the callers.
    word_of_edge: Vec<Option<usize>>,
    words: usize,
}

/// Stands for the word past the last one while there will be more.
const NO_WORD: u32 = u32::MAX;

#[derive(Debug)]
struct Step {
    node: usize,
    /// Words of edges into it, with the node each comes from.
    into: Vec<(usize, usize)>,
    /// Words of edges out of it, with the node each goes to; the end is `nodes`.
    out: Vec<(usize, usize)>,
    /// Word to add to, for each way in and, within that, each way out. What turns back counts for nothing: its word is
    /// one past the last.
    fill: Vec<u32>,
}

/// Nodes whose every edge is kept, in order of elimination, with the end as the last column.
#[derive(Debug, Default)]
struct Rest {
    nodes: Vec<usize>,
    /// Words to begin with: (row, column, word).
    given: Vec<(u32, u32, u32)>,
}

impl Rest {
    fn width(&self) -> usize {
        self.nodes.len() + 1
    }
}

/// The graph is taken for full when the cheapest node has edges from and to this part of what is left, of this many
/// nodes at least.
const FULL: f64 = 0.5;
const LEAST_FULL: usize = 16;

impl Plan {
    /// `None` when the graph is too entangled.
    pub(crate) fn new(network: &Network) -> Option<Self> {
        let n = network.blocks;
        let mut open = Open::new(n);
        let word_of_edge = network
            .edges
            .iter()
            .map(|&(from, to)| (from < n).then(|| open.word(from, if to < n { to } else { n })))
            .collect();
        let mut steps: Vec<Step> = Vec::with_capacity(n);
        let mut work = 0;
        while let Some(node) = open.cheapest().filter(|&node| !open.is_full(node)) {
            let step = open.take_out(node);
            work += step.fill.len();
            if work > MOST_STEPS {
                return None;
            }
            steps.push(step);
        }
        let rest = open.rest();
        if work + rest.nodes.len().pow(3) / 3 > MOST_STEPS {
            return None;
        }
        let past_the_last = open.words as u32;
        for to in steps.iter_mut().flat_map(|s| &mut s.fill) {
            *to = if *to == NO_WORD { past_the_last } else { *to };
        }
        Some(Self { nodes: n, steps, rest, word_of_edge, words: open.words })
    }

    /// How much one preparation costs, in combined words.
    pub(crate) fn work(&self) -> usize {
        // A word of the full part takes a fifth of the time.
        self.steps.iter().map(|s| s.fill.len()).sum::<usize>() + self.rest.nodes.len().pow(3) / 15
    }

    /// Prepares for solutions with these probabilities of each edge. At least one way out of every node must lead to
    /// the end in the end, however unlikely.
    pub(crate) fn with(&self, probability: &[f64]) -> Solved<'_> {
        let mut words = vec![0.0; self.words + 1];
        for (p, word) in probability.iter().zip(&self.word_of_edge) {
            if let Some(word) = word {
                words[*word] += p;
            }
        }
        let mut leaves = Vec::with_capacity(self.nodes);
        let mut ways_out: Vec<f64> = Vec::new();
        for step in &self.steps {
            ways_out.clear();
            ways_out.extend(step.out.iter().map(|&(word, _)| words[word]));
            let away = ways_out.iter().sum::<f64>().max(f64::MIN_POSITIVE);
            if !ways_out.is_empty() {
                for (&(way_in, _), row) in step.into.iter().zip(step.fill.chunks_exact(ways_out.len())) {
                    let comes = words[way_in] / away;
                    row.iter().zip(&ways_out).for_each(|(&to, way_out)| words[to as usize] += comes * way_out);
                }
            }
            leaves.push(away);
        }
        let full = self.rest.reduced(&words, &mut leaves);
        Solved { plan: self, words, leaves, full }
    }
}

impl Rest {
    /// The full matrix after elimination; appends what leaves each of its nodes.
    fn reduced(&self, words: &[f64], leaves: &mut Vec<f64>) -> Vec<f64> {
        let (n, width) = (self.nodes.len(), self.width());
        let mut full = vec![0.0; n * width];
        for &(row, column, word) in &self.given {
            full[row as usize * width + column as usize] = words[word as usize];
        }
        for p in 0..n {
            let (above, below) = full.split_at_mut((p + 1) * width);
            let ways_out = &above[p * width + p + 1..];
            let away = ways_out.iter().sum::<f64>().max(f64::MIN_POSITIVE);
            for row in below.chunks_exact_mut(width) {
                let comes = row[p] / away;
                // What comes back to its own row stays there, where nobody looks.
                row[p + 1..].iter_mut().zip(ways_out).for_each(|(to, way_out)| *to += comes * way_out);
            }
            leaves.push(away);
        }
        full
    }
}

/// A plan with numbers.
#[derive(Debug)]
pub(crate) struct Solved<'p> {
    plan: &'p Plan,
    words: Vec<f64>,
    /// What leaves each node, in order of elimination.
    leaves: Vec<f64>,
    full: Vec<f64>,
}

impl Solved<'_> {
    /// Flow through each node when this much enters it from outside.
    pub(crate) fn flow(&self, source: &[f64]) -> Vec<f64> {
        let mut enters = source.to_vec();
        for (step, away) in self.plan.steps.iter().zip(&self.leaves) {
            let own = enters[step.node];
            if own != 0.0 {
                for &(word, to) in step.out.iter().filter(|o| o.1 < self.plan.nodes) {
                    enters[to] += own * self.words[word] / away;
                }
            }
        }
        let mut flow = vec![0.0; self.plan.nodes];
        self.flow_of_rest(&mut enters, &mut flow);
        for (step, away) in self.plan.steps.iter().zip(&self.leaves).rev() {
            let sum: f64 = step.into.iter().map(|&(word, from)| flow[from] * self.words[word]).sum();
            flow[step.node] = (enters[step.node] + sum) / away;
        }
        flow
    }

    /// Worth of being at each node, when passing a node is worth this much: the flow's transposed equations.
    pub(crate) fn worth(&self, gain: &[f64]) -> Vec<f64> {
        let mut gain = gain.to_vec();
        for (step, away) in self.plan.steps.iter().zip(&self.leaves) {
            let own = gain[step.node] / away;
            if own != 0.0 {
                for &(word, from) in &step.into {
                    gain[from] += self.words[word] * own;
                }
            }
        }
        let mut worth = vec![0.0; self.plan.nodes];
        self.worth_of_rest(&mut gain, &mut worth);
        for (step, away) in self.plan.steps.iter().zip(&self.leaves).rev() {
            let out = step.out.iter().filter(|o| o.1 < self.plan.nodes);
            let sum: f64 = out.map(|&(word, to)| self.words[word] * worth[to]).sum();
            worth[step.node] = (gain[step.node] + sum) / away;
        }
        worth
    }

    fn flow_of_rest(&self, enters: &mut [f64], flow: &mut [f64]) {
        let (nodes, width) = (&self.plan.rest.nodes, self.plan.rest.width());
        let leaves = &self.leaves[self.plan.steps.len()..];
        let way = |from: usize, to: usize| self.full[from * width + to];
        for (p, &node) in nodes.iter().enumerate() {
            let own = enters[node] / leaves[p];
            (p + 1..nodes.len()).for_each(|to| enters[nodes[to]] += own * way(p, to));
        }
        for (p, &node) in nodes.iter().enumerate().rev() {
            let sum: f64 = (p + 1..nodes.len()).map(|from| flow[nodes[from]] * way(from, p)).sum();
            flow[node] = (enters[node] + sum) / leaves[p];
        }
    }

    fn worth_of_rest(&self, gain: &mut [f64], worth: &mut [f64]) {
        let (nodes, width) = (&self.plan.rest.nodes, self.plan.rest.width());
        let leaves = &self.leaves[self.plan.steps.len()..];
        let way = |from: usize, to: usize| self.full[from * width + to];
        for (p, &node) in nodes.iter().enumerate() {
            let own = gain[node] / leaves[p];
            (p + 1..nodes.len()).for_each(|from| gain[nodes[from]] += own * way(from, p));
        }
        for (p, &node) in nodes.iter().enumerate().rev() {
            let sum: f64 = (p + 1..nodes.len()).map(|to| way(p, to) * worth[nodes[to]]).sum();
            worth[node] = (gain[node] + sum) / leaves[p];
        }
    }
}

/// The graph while it shrinks.
struct Open {
    /// Per node, edges to nodes still there: (to, word), sorted; the end is the number of nodes.
    out: Vec<Vec<(usize, usize)>>,
    into: Vec<Vec<(usize, usize)>>,
    /// Nodes by cost, with stale entries.
    queue: std::collections::BinaryHeap<std::cmp::Reverse<(usize, usize)>>,
    gone: Vec<bool>,
    /// Nodes that are not gone.
    left: usize,
    words: usize,
}

impl Open {
    fn new(n: usize) -> Self {
        let queue = (0..n).map(|node| std::cmp::Reverse((0, node))).collect();
        Self { out: vec![Vec::new(); n], into: vec![Vec::new(); n + 1], queue, gone: vec![false; n], left: n, words: 0 }
    }

    /// The word of an edge; a new one starts at 0. An edge to itself needs none: what does not leave stays.
    fn word(&mut self, from: usize, to: usize) -> usize {
        match self.out[from].binary_search_by_key(&to, |o| o.0) {
            Ok(i) => self.out[from][i].1,
            Err(i) => {
                let word = self.words;
                self.words += 1;
                self.out[from].insert(i, (to, word));
                let j = self.into[to].binary_search_by_key(&from, |o| o.0).unwrap_or_else(|j| j);
                self.into[to].insert(j, (from, word));
                word
            }
        }
    }

    fn cost(&self, node: usize) -> usize {
        self.into[node].len() * self.out[node].len()
    }

    /// Whether a node, the cheapest there is, has edges from and to most of what is left.
    fn is_full(&self, node: usize) -> bool {
        self.left >= LEAST_FULL && self.cost(node) as f64 >= FULL * (self.left * self.left) as f64
    }

    /// What is left, as it is: nodes and their words.
    fn rest(&self) -> Rest {
        let nodes: Vec<usize> = (0..self.gone.len()).filter(|&node| !self.gone[node]).collect();
        let mut column = vec![nodes.len(); self.gone.len() + 1];
        nodes.iter().enumerate().for_each(|(i, &node)| column[node] = i);
        let words = |(row, &node): (usize, &usize)| {
            let given = self.out[node].iter().map(|&(to, word)| (row as u32, column[to] as u32, word as u32));
            given.collect::<Vec<_>>()
        };
        let given = nodes.iter().enumerate().flat_map(words).collect();
        Rest { nodes, given }
    }

    fn cheapest(&mut self) -> Option<usize> {
        loop {
            let std::cmp::Reverse((claimed, node)) = self.queue.pop()?;
            if self.gone[node] {
                continue;
            }
            let cost = self.cost(node);
            if cost <= claimed {
                return Some(node);
            }
            self.queue.push(std::cmp::Reverse((cost, node)));
        }
    }

    fn take_out(&mut self, node: usize) -> Step {
        self.gone[node] = true;
        self.left -= 1;
        let others = |edges: &[(usize, usize)]| edges.iter().filter(|e| e.0 != node).map(|e| (e.1, e.0)).collect();
        let into: Vec<(usize, usize)> = others(&self.into[node]);
        let out: Vec<(usize, usize)> = others(&self.out[node]);
        for &(_, from) in &into {
            self.out[from].retain(|o| o.0 != node);
        }
        for &(_, to) in &out {
            self.into[to].retain(|i| i.0 != node);
        }
        let mut fill = Vec::with_capacity(into.len() * out.len());
        for &(_, from) in &into {
            for &(_, to) in &out {
                fill.push(if to == from { NO_WORD } else { self.word(from, to) as u32 });
            }
        }
        let touched = into.iter().chain(&out).map(|e| e.1).filter(|&t| t < self.gone.len());
        let again: Vec<usize> = touched.collect();
        for other in again {
            let cost = self.cost(other);
            self.queue.push(std::cmp::Reverse((cost, other)));
        }
        Step { node, into, out, fill }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()))
    }

    #[test]
    fn a_loop_left_once_in_a_million_turns() {
        let network = Network { blocks: 2, edges: vec![(2, 0), (0, 0), (0, 1), (1, 3)] };
        let plan = Plan::new(&network).expect("small");
        let flow = plan.with(&[1.0, 1.0 - 1e-6, 1e-6, 1.0]).flow(&[1.0, 0.0]);
        assert!(near(flow[0], 1e6) && near(flow[1], 1.0), "{flow:?}");
    }

    /// Every handler to every other, each through a block of its own, and seldom out: the full part, against steps.
    #[test]
    fn an_interpreters_dispatch() {
        let handlers = 40;
        let n = 2 * handlers;
        let mut edges = vec![(n, 0)];
        let mut p = vec![1.0];
        for a in 0..handlers {
            edges.push((a, handlers + a));
            p.push(1.0);
            let weight = |b: usize| 1.0 + ((a * 7 + b * 3) % 11) as f64;
            let all: f64 = (0..handlers).map(weight).sum();
            for b in 0..handlers {
                edges.push((handlers + a, b));
                p.push(0.999 * weight(b) / all);
            }
            edges.push((handlers + a, n + 1));
            p.push(0.001);
        }
        let plan = Plan::new(&Network { blocks: n, edges: edges.clone() }).expect("not entangled");
        assert_eq!(plan.rest.nodes.len(), handlers);
        let solved = plan.with(&p);
        let mut source = vec![0.0; n];
        source[0] = 1.0;
        let flow = solved.flow(&source);
        for b in 0..n {
            let into: f64 = edges.iter().zip(&p).filter(|(e, _)| e.1 == b && e.0 < n).map(|(e, p)| flow[e.0] * p).sum();
            assert!(near(flow[b], source[b] + into), "{b}: {} and {}", flow[b], source[b] + into);
        }
        assert!(near(flow[handlers..].iter().sum::<f64>(), 1000.0), "left once in a thousand");
        let gains: Vec<f64> = (0..n).map(|b| (b % 5) as f64).collect();
        let total: f64 = flow.iter().zip(&gains).map(|(f, g)| f * g).sum();
        assert!(near(solved.worth(&gains)[0], total));
    }

    proptest! {
        /// Flow conserves itself, and the worth of entering is the flow times the gains.
        #[test]
        fn both_solutions_fit_the_equations(
            n in 1_usize..14,
            raw in prop::collection::vec((0_usize..14, 0_usize..15, 0.01_f64..1.0), 1..40),
            gains in prop::collection::vec(0.0_f64..3.0, 14),
        ) {
            let mut edges: Vec<(usize, usize)> = vec![(n, 0)];
            let mut weight = vec![1.0];
            for (a, b, w) in raw {
                edges.push((a % n, if b % (n + 1) == n { n + 1 } else { b % (n + 1) }));
                weight.push(w);
            }
            for b in 0..n {
                edges.push((b, n + 1));
                weight.push(0.05);
            }
            let mut sum = vec![0.0; n + 1];
            edges.iter().zip(&weight).for_each(|(e, w)| sum[e.0] += w);
            let p: Vec<f64> = edges.iter().zip(&weight).map(|(e, w)| w / sum[e.0]).collect();
            let network = Network { blocks: n, edges: edges.clone() };
            let plan = Plan::new(&network).expect("small");
            let solved = plan.with(&p);
            let mut source = vec![0.0; n];
            source[0] = 1.0;
            let flow = solved.flow(&source);
            for b in 0..n {
                let into: f64 = edges.iter().zip(&p).filter(|(e, _)| e.1 == b && e.0 < n).map(|(e, p)| flow[e.0] * p).sum();
                prop_assert!(near(flow[b], source[b] + into), "{b}: {flow:?}");
            }
            let worth = solved.worth(&gains[..n]);
            let total: f64 = flow.iter().zip(&gains).map(|(f, g)| f * g).sum();
            prop_assert!(near(worth[0], total), "{} {total}", worth[0]);
        }
    }
}
