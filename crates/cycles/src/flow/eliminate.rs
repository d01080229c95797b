//! The linear equations of a flow with given probabilities, solved by taking out one node after the other
//! (state reduction: Grassmann, Taksar and Heyman, Operations Research 33, 1985). Nothing is ever subtracted: the chance
//! to leave a node for good is the sum of the ways out, so a loop left once in a million turns is as precise as any.
//!
//! The order of elimination depends on the graph alone; it is planned once, and each solution is a pass over the plan.

use super::Network;

/// A graph whose nodes get this much entangled is refused: hundreds of jumps from everywhere to everywhere.
const MOST_STEPS: usize = 3_000_000;

/// The order of elimination, and which words it combines.
#[derive(Debug)]
pub(crate) struct Plan {
    nodes: usize,
    /// In order of elimination.
    steps: Vec<Step>,
    /// Word of each edge of the network, `None` for edges from the callers.
    word_of_edge: Vec<Option<usize>>,
    words: usize,
}

#[derive(Debug)]
struct Step {
    node: usize,
    /// Words of edges into it, with the node each comes from.
    into: Vec<(usize, usize)>,
    /// Words of edges out of it, with the node each goes to; the end is `nodes`.
    out: Vec<(usize, usize)>,
    /// (word to add to, word in, word out).
    fill: Vec<(usize, usize, usize)>,
}

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
        let mut steps = Vec::with_capacity(n);
        let mut work = 0;
        while let Some(node) = open.cheapest() {
            let step = open.take_out(node);
            work += step.fill.len();
            if work > MOST_STEPS {
                return None;
            }
            steps.push(step);
        }
        Some(Self { nodes: n, steps, word_of_edge, words: open.words })
    }

    /// How much one preparation costs, in combined words.
    pub(crate) fn work(&self) -> usize {
        self.steps.iter().map(|s| s.fill.len()).sum()
    }

    /// Prepares for solutions with these probabilities of each edge. At least one way out of every node must lead to
    /// the end in the end, however unlikely.
    pub(crate) fn with(&self, probability: &[f64]) -> Solved<'_> {
        let mut words = vec![0.0; self.words];
        for (p, word) in probability.iter().zip(&self.word_of_edge) {
            if let Some(word) = word {
                words[*word] += p;
            }
        }
        let mut leaves = Vec::with_capacity(self.nodes);
        for step in &self.steps {
            let away: f64 = step.out.iter().map(|&(word, _)| words[word]).sum();
            let away = away.max(f64::MIN_POSITIVE);
            for &(to, a, b) in &step.fill {
                words[to] += words[a] * words[b] / away;
            }
            leaves.push(away);
        }
        Solved { plan: self, words, leaves }
    }
}

/// A plan with numbers.
#[derive(Debug)]
pub(crate) struct Solved<'p> {
    plan: &'p Plan,
    words: Vec<f64>,
    leaves: Vec<f64>,
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
        for (step, away) in self.plan.steps.iter().zip(&self.leaves).rev() {
            let out = step.out.iter().filter(|o| o.1 < self.plan.nodes);
            let sum: f64 = out.map(|&(word, to)| self.words[word] * worth[to]).sum();
            worth[step.node] = (gain[step.node] + sum) / away;
        }
        worth
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
    words: usize,
}

impl Open {
    fn new(n: usize) -> Self {
        let queue = (0..n).map(|node| std::cmp::Reverse((0, node))).collect();
        Self { out: vec![Vec::new(); n], into: vec![Vec::new(); n + 1], queue, gone: vec![false; n], words: 0 }
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
        for &(a, from) in &into {
            for &(b, to) in out.iter().filter(|o| o.1 != from) {
                fill.push((self.word(from, to), a, b));
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
