//! Layers of a directed graph: which edges go back, the rank of each node, helper nodes where an edge crosses a
//! layer, and an order within the layers that crosses few edges (barycentres). Everything is linear or n log n per
//! sweep, and the helpers are bounded, so that a procedure of thousands of blocks is drawn in well under a second.

/// Most helper nodes; beyond that the longest edges are drawn straight through.
const MOST_HELPERS: usize = 20_000;
const SWEEPS: usize = 12;

/// Nodes in layers. Nodes from `real` on are helpers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Layered {
    /// Per layer the nodes from left to right.
    pub(super) layers: Vec<Vec<usize>>,
    /// Layer of each node.
    pub(super) rank: Vec<usize>,
    /// Per edge: the nodes it passes, from the one above to the one below.
    pub(super) paths: Vec<Vec<usize>>,
    /// Per edge: whether it goes against the layers, so that its path begins at its target.
    pub(super) back: Vec<bool>,
}

impl Layered {
    /// Lays the edges of `n` nodes into layers; an edge to itself gets no path.
    pub(super) fn new(n: usize, edges: &[(usize, usize)]) -> Self {
        let back = back_edges(n, edges);
        let down: Vec<(usize, usize)> =
            edges.iter().zip(&back).map(|(&(a, b), &back)| if back { (b, a) } else { (a, b) }).collect();
        let mut out = Self { rank: ranks(n, &down), back, ..Self::default() };
        out.add_helpers(&down);
        out.order();
        out
    }

    /// Splits edges over several layers, the short ones first.
    fn add_helpers(&mut self, down: &[(usize, usize)]) {
        self.paths = down.iter().map(|&(a, b)| if a == b { Vec::new() } else { vec![a, b] }).collect();
        let real = self.rank.len();
        let mut long: Vec<usize> = (0..down.len()).filter(|&e| down[e].0 != down[e].1).collect();
        long.sort_by_key(|&e| self.rank[down[e].1] - self.rank[down[e].0]);
        for e in long {
            let (above, below) = down[e];
            let span = self.rank[above] + 1..self.rank[below];
            if self.rank.len() - real + span.len() > MOST_HELPERS {
                break;
            }
            let helpers: Vec<usize> = (self.rank.len()..self.rank.len() + span.len()).collect();
            self.rank.extend(span);
            self.paths[e].splice(1..1, helpers);
        }
    }

    fn order(&mut self) {
        let layers = self.rank.iter().max().map_or(0, |r| r + 1);
        self.layers = vec![Vec::new(); layers];
        for (node, &rank) in self.rank.iter().enumerate() {
            self.layers[rank].push(node);
        }
        let (above, below) = self.neighbours();
        let mut best = (self.crossings(&below), self.layers.clone());
        for sweep in 0..SWEEPS {
            let mut position = positions(&self.layers, self.rank.len());
            let downward = sweep % 2 == 0;
            let neighbours = if downward { &above } else { &below };
            for step in 0..layers {
                let layer = if downward { step } else { layers - 1 - step };
                sort_by_barycentre(&mut self.layers[layer], neighbours, &mut position);
            }
            let crossings = self.crossings(&below);
            if crossings < best.0 {
                best = (crossings, self.layers.clone());
            }
        }
        self.layers = best.1;
    }

    /// Neighbours in the layer above and below, for pieces of edges between adjacent layers.
    pub(super) fn neighbours(&self) -> (Vec<Vec<usize>>, Vec<Vec<usize>>) {
        let n = self.rank.len();
        let (mut above, mut below) = (vec![Vec::new(); n], vec![Vec::new(); n]);
        for pair in self.paths.iter().flat_map(|p| p.windows(2)) {
            if self.rank[pair[1]] == self.rank[pair[0]] + 1 {
                below[pair[0]].push(pair[1]);
                above[pair[1]].push(pair[0]);
            }
        }
        (above, below)
    }

    /// Crossings between adjacent layers, counted with a tree of sums.
    pub(super) fn crossings(&self, below: &[Vec<usize>]) -> u64 {
        let position = positions(&self.layers, self.rank.len());
        let mut count = 0;
        for pair in self.layers.windows(2) {
            let mut sums = vec![0u64; pair[1].len() + 1];
            let mut seen = 0u64;
            for &node in &pair[0] {
                let mut ends: Vec<usize> = below[node].iter().map(|&b| position[b]).collect();
                ends.sort_unstable();
                count += ends.iter().map(|&end| seen - up_to(&sums, end)).sum::<u64>();
                seen += ends.len() as u64;
                ends.iter().for_each(|&end| add(&mut sums, end));
            }
        }
        count
    }
}

/// Entries at or left of `end`.
fn up_to(sums: &[u64], end: usize) -> u64 {
    let (mut i, mut sum) = (end + 1, 0);
    while i > 0 {
        sum += sums[i];
        i &= i - 1;
    }
    sum
}

fn add(sums: &mut [u64], end: usize) {
    let mut i = end + 1;
    while i < sums.len() {
        sums[i] += 1;
        i += i & i.wrapping_neg();
    }
}

fn positions(layers: &[Vec<usize>], n: usize) -> Vec<usize> {
    let mut out = vec![0; n];
    layers.iter().for_each(|l| l.iter().enumerate().for_each(|(at, &node)| out[node] = at));
    out
}

/// Nodes without neighbours there stay where they are.
fn sort_by_barycentre(layer: &mut [usize], neighbours: &[Vec<usize>], position: &mut [usize]) {
    let centre = |node: usize| {
        let all = &neighbours[node];
        let sum: usize = all.iter().map(|&n| position[n]).sum();
        if all.is_empty() { position[node] as f64 } else { sum as f64 / all.len() as f64 }
    };
    let mut keyed: Vec<(f64, usize)> = layer.iter().map(|&node| (centre(node), node)).collect();
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (at, (_, node)) in keyed.into_iter().enumerate() {
        layer[at] = node;
        position[node] = at;
    }
}

/// Edges to a node that a depth-first walk has begun and not finished; roots in the nodes' order.
fn back_edges(n: usize, edges: &[(usize, usize)]) -> Vec<bool> {
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); n];
    edges.iter().enumerate().for_each(|(e, &(from, _))| out[from].push(e));
    let mut back = vec![false; edges.len()];
    let (mut open, mut done) = (vec![false; n], vec![false; n]);
    for root in 0..n {
        if done[root] {
            continue;
        }
        let mut stack = vec![(root, 0)];
        open[root] = true;
        while let Some((node, next)) = stack.last_mut() {
            let Some(&e) = out[*node].get(*next) else {
                (open[*node], done[*node]) = (false, true);
                stack.pop();
                continue;
            };
            *next += 1;
            let to = edges[e].1;
            if open[to] {
                back[e] = true;
            } else if !done[to] {
                open[to] = true;
                stack.push((to, 0));
            }
        }
    }
    back
}

/// Longest path from a source; the edges have no cycle but those of a node to itself.
fn ranks(n: usize, down: &[(usize, usize)]) -> Vec<usize> {
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); n];
    let mut waiting = vec![0usize; n];
    for &(a, b) in down.iter().filter(|(a, b)| a != b) {
        out[a].push(b);
        waiting[b] += 1;
    }
    let mut rank = vec![0; n];
    let mut ready: Vec<usize> = (0..n).filter(|&v| waiting[v] == 0).collect();
    while let Some(node) = ready.pop() {
        for &to in &out[node] {
            rank[to] = rank[to].max(rank[node] + 1);
            waiting[to] -= 1;
            if waiting[to] == 0 {
                ready.push(to);
            }
        }
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_loop_goes_back_and_a_diamond_does_not_cross() {
        let l = Layered::new(5, &[(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 1)]);
        assert_eq!(l.rank[..5], [0, 1, 2, 2, 3]);
        assert_eq!(l.back, [false, false, false, false, false, true]);
        assert_eq!(l.paths[5].len(), 3, "one helper in the layer between: {:?}", l.paths[5]);
        let (_, below) = l.neighbours();
        assert_eq!(l.crossings(&below), 0);
    }

    #[test]
    fn barycentres_undo_crossings() {
        let l = Layered::new(6, &[(0, 5), (1, 4), (2, 3)]);
        let (_, below) = l.neighbours();
        assert_eq!(l.crossings(&below), 0);
    }

    #[test]
    fn thousands_of_blocks_stay_bounded() {
        let edges: Vec<(usize, usize)> =
            (0..1999).map(|i| (i, i + 1)).chain((0..2000).map(|i| (i, (i * 7919 + 13) % 2000))).collect();
        let began = std::time::Instant::now();
        let l = Layered::new(2000, &edges);
        assert!(l.rank.len() <= 2000 + MOST_HELPERS);
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    }

    proptest! {
        #[test]
        fn every_edge_leads_down_after_turning_and_layers_hold_each_node_once(
            edges in prop::collection::vec((0..12usize, 0..12usize), 0..40)
        ) {
            let l = Layered::new(12, &edges);
            for (e, &(from, to)) in edges.iter().enumerate() {
                if from == to {
                    prop_assert!(l.paths[e].is_empty());
                    continue;
                }
                let ends = if l.back[e] { (to, from) } else { (from, to) };
                let path = &l.paths[e];
                prop_assert_eq!((path[0], path[path.len() - 1]), ends);
                prop_assert!(path.windows(2).all(|p| l.rank[p[1]] == l.rank[p[0]] + 1));
            }
            let mut all: Vec<usize> = l.layers.concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..l.rank.len()).collect::<Vec<_>>());
        }
    }
}
