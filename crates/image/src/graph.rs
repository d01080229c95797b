//! Algorithms on small directed graphs given as edge lists: reachability, dominators, natural loops and
//! cycle equivalence. Nothing of machine code here; `cfg` builds the graphs.
//!
//! Cycle equivalence: two edges are equivalent when every cycle through one goes through the other, so
//! both are executed equally often (DCPI section 6.1.1; Johnson, Pearson and Pingali, PLDI 1994, give
//! the theorem that the undirected graph decides it). Instead of bracket lists each edge outside of a
//! spanning tree gets a pseudo-random 128-bit word and each tree edge the exclusive-or of those whose
//! cycles use it: equal words = equivalent, in linear time. Words of two classes collide with
//! probability 2^-128 per pair.

use std::collections::HashMap;

/// A node's number, dense from 0.
pub type Node = usize;

/// A directed graph. Edges are referred to by their position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// Number of nodes.
    pub nodes: usize,
    /// Edges as (from, to), parallel ones and self-loops allowed.
    pub edges: Vec<(Node, Node)>,
}

impl Graph {
    /// Edges that leave each node, as positions.
    #[must_use]
    pub fn outgoing(&self) -> Vec<Vec<usize>> {
        let mut out = vec![Vec::new(); self.nodes];
        self.edges.iter().enumerate().for_each(|(i, e)| out[e.0].push(i));
        out
    }

    /// Edges that enter each node, as positions.
    #[must_use]
    pub fn incoming(&self) -> Vec<Vec<usize>> {
        let mut into = vec![Vec::new(); self.nodes];
        self.edges.iter().enumerate().for_each(|(i, e)| into[e.1].push(i));
        into
    }

    /// Nodes that can be reached from `from`, along the edges or against them.
    #[must_use]
    pub fn reachable(&self, from: Node, against: bool) -> Vec<bool> {
        let next = if against { self.incoming() } else { self.outgoing() };
        let mut seen = vec![false; self.nodes];
        let mut todo = vec![from];
        while let Some(node) = todo.pop() {
            if std::mem::replace(&mut seen[node], true) {
                continue;
            }
            todo.extend(next[node].iter().map(|&e| if against { self.edges[e].0 } else { self.edges[e].1 }));
        }
        seen
    }

    /// Immediate dominator of each node; `None` for `start` and for what cannot be reached from it.
    /// Iterative (Cooper, Harvey and Kennedy 2001): quick on graphs of the shape compilers make.
    #[must_use]
    pub fn dominators(&self, start: Node) -> Vec<Option<Node>> {
        let order = self.reverse_postorder(start);
        let mut rank = vec![usize::MAX; self.nodes];
        order.iter().enumerate().for_each(|(i, &n)| rank[n] = i);
        let into = self.incoming();
        let mut idom: Vec<Option<Node>> = vec![None; self.nodes];
        idom[start] = Some(start);
        loop {
            let mut changed = false;
            for &node in order.iter().skip(1) {
                let mut best: Option<Node> = None;
                for from in into[node].iter().map(|&e| self.edges[e].0).filter(|&p| idom[p].is_some()) {
                    best = Some(best.map_or(from, |b| meet(b, from, &idom, &rank)));
                }
                if best.is_some() && idom[node] != best {
                    idom[node] = best;
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        idom[start] = None;
        idom
    }

    fn reverse_postorder(&self, start: Node) -> Vec<Node> {
        let out = self.outgoing();
        let mut seen = vec![false; self.nodes];
        let mut order = Vec::new();
        let mut stack = vec![(start, 0)];
        seen[start] = true;
        while let Some((node, next)) = stack.last_mut() {
            if let Some(&edge) = out[*node].get(*next) {
                *next += 1;
                let to = self.edges[edge].1;
                if !std::mem::replace(&mut seen[to], true) {
                    stack.push((to, 0));
                }
            } else {
                order.push(*node);
                stack.pop();
            }
        }
        order.reverse();
        order
    }

    /// Natural loops: for each header the nodes of its loop, outer loops before inner ones. Cycles that
    /// are entered at several places have no header and are left out.
    #[must_use]
    pub fn loops(&self, start: Node) -> Vec<Loop> {
        let idom = self.dominators(start);
        let dominates = |a: Node, mut b: Node| loop {
            if a == b {
                return true;
            }
            match idom[b] {
                Some(up) => b = up,
                None => return false,
            }
        };
        let mut bodies: Vec<(Node, Vec<Node>)> = Vec::new();
        for &(from, header) in
            self.edges.iter().filter(|e| (idom[e.0].is_some() || e.0 == start) && dominates(e.1, e.0))
        {
            match bodies.iter_mut().find(|b| b.0 == header) {
                Some(body) => body.1.push(from),
                None => bodies.push((header, vec![from])),
            }
        }
        let into = self.incoming();
        let mut loops: Vec<Loop> = bodies.into_iter().map(|(header, ends)| self.body(header, ends, &into)).collect();
        loops.sort_by(|a, b| b.nodes.len().cmp(&a.nodes.len()).then(a.header.cmp(&b.header)));
        loops
    }

    /// Nodes that reach an end of the loop without passing its header.
    fn body(&self, header: Node, ends: Vec<Node>, into: &[Vec<usize>]) -> Loop {
        let mut inside = vec![false; self.nodes];
        inside[header] = true;
        let mut todo = ends;
        while let Some(node) = todo.pop() {
            if !std::mem::replace(&mut inside[node], true) {
                todo.extend(into[node].iter().map(|&e| self.edges[e].0));
            }
        }
        Loop { header, nodes: (0..self.nodes).filter(|&n| inside[n]).collect() }
    }

    /// Class of each edge by cycle equivalence, dense from 0. The graph must be strongly connected for
    /// the classes to mean "executed equally often" (add an edge from the end to the start). Self-loops
    /// and bridges are alone in their class.
    #[must_use]
    pub fn cycle_classes(&self) -> Vec<usize> {
        let words = self.cycle_words();
        let mut class_of: HashMap<u128, usize> = HashMap::new();
        let mut count = 0;
        let mut fresh = || {
            count += 1;
            count - 1
        };
        words
            .into_iter()
            .enumerate()
            .map(|(i, word)| {
                let alone = word == 0 || self.edges[i].0 == self.edges[i].1;
                if alone { fresh() } else { *class_of.entry(word).or_insert_with(&mut fresh) }
            })
            .collect()
    }

    fn cycle_words(&self) -> Vec<u128> {
        let mut touching = vec![Vec::new(); self.nodes];
        for (i, &(a, b)) in self.edges.iter().enumerate() {
            touching[a].push(i);
            touching[b].push(i);
        }
        let mut words = vec![0_u128; self.edges.len()];
        let mut at_node = vec![0_u128; self.nodes];
        let mut parent_edge = vec![usize::MAX; self.nodes];
        let mut seen = vec![false; self.nodes];
        let mut order = Vec::with_capacity(self.nodes);
        for root in 0..self.nodes {
            let mut todo = vec![(root, usize::MAX)];
            while let Some((node, by)) = todo.pop() {
                if std::mem::replace(&mut seen[node], true) {
                    continue;
                }
                parent_edge[node] = by;
                order.push(node);
                todo.extend(touching[node].iter().map(|&e| (self.edges[e].0 + self.edges[e].1 - node, e)));
            }
        }
        let mut state = 0x1234_5678_9abc_def0_u64;
        for (i, &(a, b)) in self.edges.iter().enumerate() {
            if parent_edge[a] != i && parent_edge[b] != i {
                words[i] = u128::from(draw(&mut state)) << 64 | u128::from(draw(&mut state));
                at_node[a] ^= words[i];
                at_node[b] ^= words[i];
            }
        }
        // Children come after their parents in `order`: from the leaves up, each tree edge collects
        // the words of the cycles that pass it.
        for &node in order.iter().rev() {
            let edge = parent_edge[node];
            if edge != usize::MAX {
                words[edge] = at_node[node];
                at_node[self.edges[edge].0 + self.edges[edge].1 - node] ^= at_node[node];
            }
        }
        words
    }
}

/// A natural loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The node all its iterations begin at.
    pub header: Node,
    /// Its nodes in ascending order, the header included.
    pub nodes: Vec<Node>,
}

fn meet(mut a: Node, mut b: Node, idom: &[Option<Node>], rank: &[usize]) -> Node {
    while a != b {
        // Both chains end at the start, which has the lowest rank and itself as dominator meanwhile.
        if rank[a] > rank[b] {
            a = idom[a].unwrap_or(b);
        } else {
            b = idom[b].unwrap_or(a);
        }
    }
    a
}

/// `SplitMix64` (Steele, Lea and Flood 2014).
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn graph(nodes: usize, edges: &[(Node, Node)]) -> Graph {
        Graph { nodes, edges: edges.to_vec() }
    }

    /// Undirected components without some edges.
    fn components(g: &Graph, without: &[usize]) -> usize {
        let mut root: Vec<usize> = (0..g.nodes).collect();
        fn find(root: &mut [usize], a: usize) -> usize {
            let mut a = a;
            while root[a] != a {
                a = root[a];
            }
            a
        }
        for (i, &(a, b)) in g.edges.iter().enumerate() {
            if !without.contains(&i) {
                let (a, b) = (find(&mut root, a), find(&mut root, b));
                root[a] = b;
            }
        }
        (0..g.nodes).filter(|&n| root[n] == n).count()
    }

    #[test]
    fn a_diamond_in_a_loop() {
        // 0 start, 1 test, 2 then, 3 else, 4 join -> 1, 4 -> 5 end -> 0
        let g = graph(6, &[(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 1), (4, 5), (5, 0)]);
        let c = g.cycle_classes();
        assert!(c[0] == c[6] && c[6] == c[7], "start, leave and end once per call: {c:?}");
        assert!(c[1] == c[3] && c[2] == c[4] && c[1] != c[2], "{c:?}");
        assert!(c[5] != c[1] && c[5] != c[0], "{c:?}");
        assert_eq!(g.dominators(0), [None, Some(0), Some(1), Some(1), Some(1), Some(4)]);
        let loops = g.loops(0);
        assert_eq!(
            loops,
            [Loop { header: 0, nodes: vec![0, 1, 2, 3, 4, 5] }, Loop { header: 1, nodes: vec![1, 2, 3, 4] },]
        );
    }

    proptest! {
        /// Two edges are equivalent exactly when taking both away, but not one alone, cuts the graph.
        #[test]
        fn classes_are_the_two_edge_cuts(n in 2_usize..9, raw in prop::collection::vec((0_usize..9, 0_usize..9), 1..16)) {
            let mut edges: Vec<(Node, Node)> = raw.iter().map(|&(a, b)| (a % n, b % n)).collect();
            // A ring makes it strongly connected.
            edges.extend((0..n).map(|i| (i, (i + 1) % n)));
            let g = graph(n, &edges);
            let classes = g.cycle_classes();
            for i in 0..edges.len() {
                for j in 0..i {
                    let loops = edges[i].0 == edges[i].1 || edges[j].0 == edges[j].1;
                    let cut = !loops && components(&g, &[i, j]) > 1;
                    prop_assert_eq!(classes[i] == classes[j], cut, "{:?} and {:?}", edges[i], edges[j]);
                }
            }
        }

        /// A dominator is on every path: without it the node cannot be reached.
        #[test]
        fn dominators_cut(n in 1_usize..9, raw in prop::collection::vec((0_usize..9, 0_usize..9), 0..20)) {
            let edges: Vec<(Node, Node)> = raw.iter().map(|&(a, b)| (a % n, b % n)).collect();
            let g = graph(n, &edges);
            let reach = g.reachable(0, false);
            for (node, idom) in g.dominators(0).into_iter().enumerate() {
                prop_assert_eq!(idom.is_some(), reach[node] && node != 0);
                if let Some(by) = idom {
                    let kept = edges.iter().filter(|e| e.0 != by && e.1 != by).copied().collect();
                    let cut = Graph { nodes: n, edges: kept };
                    prop_assert!(by == 0 || !cut.reachable(0, false)[node]);
                }
            }
        }
    }
}
