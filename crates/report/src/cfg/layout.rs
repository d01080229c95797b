//! Coordinates for a layered graph: each layer's nodes as near to their neighbours as their widths allow (least
//! squares with an order, by pooling), edges as lines from port to port through the helpers.

use super::layers::Layered;

/// Pixels between boxes of a layer, between helpers, and between layers.
const GAP: f64 = 28.0;
const HELPER: f64 = 14.0;
const BETWEEN: f64 = 44.0;
const PASSES: usize = 10;
/// How far an edge of a node to itself reaches out.
const SELF: f64 = 18.0;
/// Room for its label.
const LABEL: f64 = 34.0;

/// A point in pixels.
pub(super) type Point = (f64, f64);

/// A finished drawing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Drawing {
    /// Upper left corners.
    pub(super) boxes: Vec<Point>,
    /// Per edge the points of its line, from its source to its target.
    pub(super) lines: Vec<Vec<Point>>,
    /// Width and height.
    pub(super) size: Point,
}

/// Draws boxes of the given sizes and the edges between them.
pub(super) fn draw(sizes: &[Point], edges: &[(usize, usize)]) -> Drawing {
    let layered = Layered::new(sizes.len(), edges);
    let mut wide: Vec<f64> = sizes.iter().map(|s| s.0).collect();
    edges.iter().filter(|(a, b)| a == b).for_each(|&(a, _)| wide[a] = sizes[a].0 + 2.0 * (SELF + LABEL));
    let width = |node: usize| wide.get(node).copied().unwrap_or(0.0);
    let x = across(&layered, &width);
    let tall: Vec<f64> = layered
        .layers
        .iter()
        .map(|l| l.iter().map(|&n| sizes.get(n).map_or(0.0, |s| s.1)).fold(0.0, f64::max))
        .collect();
    let mut top = vec![0.0; tall.len() + 1];
    for (i, h) in tall.iter().enumerate() {
        top[i + 1] = top[i] + h + BETWEEN;
    }
    let boxes: Vec<Point> = (0..sizes.len()).map(|n| (x[n] - sizes[n].0 / 2.0, top[layered.rank[n]])).collect();
    let place = Place { layered: &layered, sizes, x: &x, top: &top, tall: &tall };
    let lines = place.lines(edges);
    normalised(Drawing { boxes, lines, size: (0.0, 0.0) }, sizes)
}

/// Moves everything to positive coordinates and measures it.
fn normalised(mut d: Drawing, sizes: &[Point]) -> Drawing {
    let left = d.boxes.iter().chain(d.lines.iter().flatten()).map(|p| p.0).fold(0.0, f64::min);
    let shift = |p: &mut Point| p.0 -= left;
    d.boxes.iter_mut().for_each(shift);
    d.lines.iter_mut().flatten().for_each(shift);
    // A self-edge has its label beyond its line.
    let corners = d.boxes.iter().zip(sizes).map(|(p, s)| (p.0 + s.0 + LABEL, p.1 + s.1));
    let all = corners.chain(d.lines.iter().flatten().copied());
    d.size = all.fold((0.0, 0.0), |m, p| (f64::max(m.0, p.0), f64::max(m.1, p.1)));
    d
}

/// Centres of all nodes.
fn across(l: &Layered, width: &dyn Fn(usize) -> f64) -> Vec<f64> {
    let (above, below) = l.neighbours();
    let mut x = vec![0.0; l.rank.len()];
    for layer in &l.layers {
        let offsets = offsets(layer, width);
        let middle = offsets.last().copied().unwrap_or(0.0) / 2.0;
        layer.iter().zip(offsets).for_each(|(&n, o)| x[n] = o - middle);
    }
    for pass in 0..PASSES {
        let downward = pass % 2 == 0;
        for step in 0..l.layers.len() {
            let layer = &l.layers[if downward { step } else { l.layers.len() - 1 - step }];
            let near = if downward { &above } else { &below };
            settle(layer, near, width, &mut x);
        }
    }
    x
}

/// Distance of each node's centre from the first one's when packed.
fn offsets(layer: &[usize], width: &dyn Fn(usize) -> f64) -> Vec<f64> {
    let mut at = 0.0;
    let mut out = Vec::with_capacity(layer.len());
    for (i, &node) in layer.iter().enumerate() {
        if i > 0 {
            let before = layer[i - 1];
            let gap = if width(node) > 0.0 && width(before) > 0.0 { GAP } else { HELPER };
            at += width(before).midpoint(width(node)) + gap;
        }
        out.push(at);
    }
    out
}

/// The positions nearest to what neighbours want that keep order and distances: without the distances it is the
/// monotone fit, found by pooling whatever stands in the wrong order.
fn settle(layer: &[usize], near: &[Vec<usize>], width: &dyn Fn(usize) -> f64, x: &mut [f64]) {
    let wanted = |node: usize| {
        let all = &near[node];
        let sum: f64 = all.iter().map(|&n| x[n]).sum();
        if all.is_empty() { x[node] } else { sum / all.len() as f64 }
    };
    let offsets = offsets(layer, width);
    // Mean and number of nodes of each pool.
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for (&node, offset) in layer.iter().zip(&offsets) {
        let mut pool = (wanted(node) - offset, 1);
        while let Some(before) = pools.last().copied().filter(|p| p.0 > pool.0) {
            let n = before.1 + pool.1;
            pool = ((before.0 * before.1 as f64 + pool.0 * pool.1 as f64) / n as f64, n);
            pools.pop();
        }
        pools.push(pool);
    }
    let fitted = pools.iter().flat_map(|&(mean, n)| std::iter::repeat_n(mean, n));
    layer.iter().zip(fitted.zip(&offsets)).for_each(|(&node, (mean, offset))| x[node] = mean + offset);
}

struct Place<'a> {
    layered: &'a Layered,
    sizes: &'a [Point],
    x: &'a [f64],
    top: &'a [f64],
    tall: &'a [f64],
}

impl Place<'_> {
    fn lines(&self, edges: &[(usize, usize)]) -> Vec<Vec<Point>> {
        let ports = self.ports();
        (0..edges.len())
            .map(|e| {
                let path = &self.layered.paths[e];
                if path.is_empty() {
                    return self.to_itself(edges[e].0);
                }
                let mut line = self.line(path, ports[e]);
                if self.layered.back[e] {
                    line.reverse();
                }
                line
            })
            .collect()
    }

    /// Where each path leaves the box above and enters the one below: spread over two thirds of the side, in the
    /// order of where they go.
    fn ports(&self) -> Vec<(f64, f64)> {
        let n = self.sizes.len();
        let (mut leave, mut enter) = (vec![Vec::new(); n], vec![Vec::new(); n]);
        for (e, path) in self.layered.paths.iter().enumerate().filter(|(_, p)| !p.is_empty()) {
            leave[path[0]].push((self.x[path[1]], e));
            enter[path[path.len() - 1]].push((self.x[path[path.len() - 2]], e));
        }
        let mut ports = vec![(0.0, 0.0); self.layered.paths.len()];
        let spread = |sides: &mut [Vec<(f64, usize)>], set: &mut dyn FnMut(usize, f64)| {
            for (node, side) in sides.iter_mut().enumerate() {
                side.sort_by(|a, b| a.0.total_cmp(&b.0));
                let step = self.sizes[node].0 * 2.0 / 3.0 / (side.len() + 1) as f64;
                let from = self.x[node] - self.sizes[node].0 / 3.0;
                side.iter().enumerate().for_each(|(i, (_, e))| set(*e, from + step * (i + 1) as f64));
            }
        };
        spread(&mut leave, &mut |e, x| ports[e].0 = x);
        spread(&mut enter, &mut |e, x| ports[e].1 = x);
        ports
    }

    fn line(&self, path: &[usize], (leave, enter): (f64, f64)) -> Vec<Point> {
        let (first, last) = (path[0], path[path.len() - 1]);
        let mut line = vec![(leave, self.top[self.layered.rank[first]] + self.sizes[first].1)];
        // Below the tallest box of the layer, so that no slanted line touches a neighbour.
        line.push((leave, self.top[self.layered.rank[first]] + self.tall[self.layered.rank[first]] + 8.0));
        for &helper in &path[1..path.len() - 1] {
            let rank = self.layered.rank[helper];
            line.push((self.x[helper], self.top[rank]));
            line.push((self.x[helper], self.top[rank] + self.tall[rank]));
        }
        line.push((enter, self.top[self.layered.rank[last]] - 12.0));
        line.push((enter, self.top[self.layered.rank[last]]));
        line
    }

    fn to_itself(&self, node: usize) -> Vec<Point> {
        let (w, h) = self.sizes[node];
        let (right, top) = (self.x[node] + w / 2.0, self.top[self.layered.rank[node]]);
        vec![
            (right, top + h * 0.75),
            (right + SELF, top + h * 0.75),
            (right + SELF, top + h * 0.25),
            (right, top + h * 0.25),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_straight_line_is_drawn_straight() {
        let d = draw(&[(100.0, 50.0); 3], &[(0, 1), (1, 2)]);
        assert!(d.boxes.iter().all(|b| (b.0 - d.boxes[0].0).abs() < 1e-9), "{d:?}");
        assert!(d.boxes[0].1 < d.boxes[1].1 && d.boxes[1].1 < d.boxes[2].1);
        assert!(d.lines.iter().all(|l| l.iter().all(|p| (p.0 - l[0].0).abs() < 1e-9)));
    }

    #[test]
    fn a_line_back_ends_at_its_target() {
        let d = draw(&[(100.0, 50.0); 2], &[(0, 1), (1, 0)]);
        assert!(d.lines[1][0].1 > d.lines[1].last().unwrap().1, "it begins below: {:?}", d.lines[1]);
        assert!(draw(&[], &[]).boxes.is_empty());
    }

    proptest! {
        #[test]
        fn boxes_never_overlap_and_everything_is_inside(
            edges in prop::collection::vec((0..14usize, 0..14usize), 0..40)
        ) {
            let sizes: Vec<Point> = (0..14).map(|i| (60.0 + f64::from(i) * 5.0, 40.0 + f64::from(i % 3) * 10.0)).collect();
            let d = draw(&sizes, &edges);
            for i in 0..14 {
                for j in 0..i {
                    let apart = |a: f64, wa: f64, b: f64, wb: f64| a + wa <= b + 1e-6 || b + wb <= a + 1e-6;
                    let (p, q) = (d.boxes[i], d.boxes[j]);
                    prop_assert!(apart(p.0, sizes[i].0, q.0, sizes[j].0) || apart(p.1, sizes[i].1, q.1, sizes[j].1));
                }
            }
            for p in d.lines.iter().flatten().chain(&d.boxes) {
                prop_assert!(p.0 >= -1e-6 && p.0 <= d.size.0 + 1e-6 && p.0.is_finite() && p.1.is_finite());
            }
        }
    }
}
