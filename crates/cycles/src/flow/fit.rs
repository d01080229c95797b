//! Which probabilities at branches make the likeliest flow. The likelihood of what was seen at each branch is that of
//! counts; of time, that a block takes no less than its least, mostly a few times that, sometimes very much
//! more. The best probabilities are searched by gradient (L-BFGS: Nocedal and Wright, Numerical Optimization, chapter 7), which costs two passes of `eliminate` a step; errors come from repeating the end of the search
//! on evidence redrawn as chance would have redrawn it.

use super::condense::Condensed;
use super::eliminate::{Plan, Solved};
use super::{Against, Errors, Flow, Known, Network, Ran, Ratio, Time, misfit};
use rayon::prelude::*;

/// Logarithm of time over least time, most often. Measured over predicted time of blocks spreads over more than an
/// order of magnitude upwards, and hardly downwards.
const USUAL: f64 = std::f64::consts::LN_2;
/// Spread below and above it.
const BELOW: f64 = 0.4;
const ABOVE: f64 = 1.2;

/// Steps of the search, and of each repetition.
const STEPS: usize = 80;
const STEPS_AGAIN: usize = 12;
/// Deviations, in squares, from which on a counted ratio is doubted.
const PHASES: f64 = 4.0;
/// Counts of blocks bind far branches to each other: so many times as many steps.
const FOR_COUNTS: usize = 5;
/// Repetitions for errors, and how few when the graph is so entangled that each costs milliseconds. Of so many a deviation is known to a
/// seventh, and to a quarter.
const DRAWS: usize = 24;
const FEWEST_DRAWS: usize = 8;
/// Steps of elimination that all repetitions together are planned with.
const DRAWS_WORK: usize = 400_000;
/// Steps remembered by the search.
const MEMORY: usize = 8;
/// The search ends when so many steps in a row gain less than this, in natural logarithms of likelihood: evidence leaves a
/// likelihood in doubt by one half.
const ENOUGH: f64 = 0.01;
const IN_A_ROW: usize = 3;
/// A probability's logarithm does not change by more in one step.
const LONGEST_STEP: f64 = 2.0;

fn steps(usual: usize, known: &Known) -> usize {
    if known.counts.is_empty() && known.ratios.is_empty() { usual } else { usual * FOR_COUNTS }
}

/// A graph whose flow is asked for.
#[derive(Debug)]
pub(crate) struct Problem {
    condensed: Condensed,
    plan: Plan,
    /// Edges that leave each node, the callers last.
    out: Vec<Vec<usize>>,
}

/// Logits of all edges; the last one is the logarithm of the number of entries.
pub(crate) type Point = Vec<f64>;

struct State<'p> {
    probability: Vec<f64>,
    /// Per node, what its edges' logits are above the logarithms of their probabilities.
    above: Vec<f64>,
    entries: f64,
    solved: Solved<'p>,
    flow: Vec<f64>,
}

impl Problem {
    /// The flow that fits best and where it was found, or `None` where nothing was sampled. `before`: where one was found
    /// that knew nearly the same.
    pub(crate) fn solve(&self, known: &Known, before: Option<&Point>, errors: Errors) -> Option<(Flow, Point)> {
        let known = &self.condensed.known(known);
        let mut point = self.start(known)?;
        let cost = |point: &Point| self.cost(point, &self.state(point), known);
        if let Some(before) = before.filter(|b| cost(b) < cost(&point)) {
            point.clone_from(before);
        }
        self.search(&mut point, known, steps(STEPS, known));
        let state = self.state(&point);
        let mut told = match errors {
            Errors::Drawn => self.errors(&point, &state, known),
            Errors::Skipped => {
                vec![(vec![f64::INFINITY; self.network().blocks], vec![f64::INFINITY; self.network().edges.len()])]
            }
        };
        let by_counts = if told.len() > 1 { told.pop() } else { None };
        let (mut block_error, mut edge_error) = told.remove(0);
        if let Some((blocks, edges)) = &by_counts {
            let greater = |to: &mut [f64], of: &[f64]| to.iter_mut().zip(of).for_each(|(e, other)| *e = e.max(*other));
            greater(&mut block_error, blocks);
            greater(&mut edge_error, edges);
        }
        let flow = Flow { edges: self.edge_flows(&state), blocks: state.flow, block_error, edge_error, by_counts };
        Some((self.condensed.whole(flow), point))
    }

    /// The graph that is solved.
    fn network(&self) -> &Network {
        &self.condensed.network
    }

    /// `None` where the graph is too entangled, or has no way in. `shown`: per edge, above 0 where it may be known to have been
    /// seen.
    pub(crate) fn new(network: &Network, shown: &[f64]) -> Option<Self> {
        let condensed = Condensed::new(network, shown);
        let network = &condensed.network;
        let mut out = vec![Vec::new(); network.blocks + 1];
        for (e, &(from, to)) in network.edges.iter().enumerate() {
            (from <= network.blocks && to <= network.blocks + 1 && to != network.blocks).then(|| out[from].push(e))?;
        }
        (!out[network.blocks].is_empty()).then_some(())?;
        let plan = Plan::new(network)?;
        Some(Self { condensed, plan, out })
    }

    fn start(&self, known: &Known) -> Option<Point> {
        let mut point: Point = known.seen.iter().zip(&known.belief).map(|(s, b)| (s + b).ln()).collect();
        point.push(0.0);
        let state = self.state(&point);
        let fits = |(t, f): (&Time, &f64)| {
            (t.samples > 0.0 && *f > 0.0).then(|| (t.samples, (t.samples / (f * t.least)).ln() - USUAL))
        };
        let found: Vec<(f64, f64)> = known.time.iter().zip(&state.flow).filter_map(fits).collect();
        let weight: f64 = found.iter().map(|f| f.0).sum();
        if weight > 0.0 {
            *point.last_mut()? = found.iter().map(|f| f.0 * f.1).sum::<f64>() / weight;
        }
        Some(point)
    }

    fn state(&self, point: &Point) -> State<'_> {
        let mut probability = vec![0.0; self.network().edges.len()];
        let mut above = Vec::with_capacity(self.out.len());
        for edges in &self.out {
            let most = edges.iter().map(|&e| point[e]).fold(f64::NEG_INFINITY, f64::max);
            let mut sum = 0.0;
            for &e in edges {
                probability[e] = (point[e] - most).exp();
                sum += probability[e];
            }
            edges.iter().for_each(|&e| probability[e] /= sum);
            above.push(most + sum.ln());
        }
        let entries = point.last().map_or(1.0, |e| e.clamp(-60.0, 60.0).exp());
        let mut source = vec![0.0; self.network().blocks];
        for &e in &self.out[self.network().blocks] {
            if let Some(s) = source.get_mut(self.network().edges[e].1) {
                *s += entries * probability[e];
            }
        }
        let solved = self.plan.with(&probability);
        let flow = solved.flow(&source);
        State { probability, above, entries, solved, flow }
    }

    /// Minus the logarithm of the likelihood.
    fn cost(&self, point: &Point, state: &State<'_>, known: &Known) -> f64 {
        let branches: f64 = (self.out.iter().zip(&state.above).filter(|(out, _)| out.len() > 1))
            .map(|(out, above)| {
                out.iter().map(|&e| (known.seen[e] + known.belief[e]) * (point[e] - above)).sum::<f64>()
            })
            .sum();
        let blocks: f64 = (0..self.network().blocks).map(|b| block_cost(state.flow[b], known.time[b]).0).sum();
        let (_, above) = misfit(&known.counts, &state.flow, known.unit);
        let counts: f64 = above.iter().zip(&known.counts).map(|(a, c)| (a * c.error).powi(2) / 2.0).sum();
        let ratios: f64 = known.ratios.iter().map(|r| ratio_cost(&state.flow, r).0).sum();
        blocks - branches + ran_cost(&known.ran, &state.flow) + counts + ratios
    }

    fn gradient(&self, state: &State<'_>, known: &Known) -> Point {
        let ran = ran_slopes(&known.ran, &state.flow);
        let slope = |b: usize| block_cost(state.flow[b], known.time[b]).1 + ran.get(b).copied().unwrap_or(0.0);
        let mut slopes: Vec<f64> = (0..self.network().blocks).map(slope).collect();
        let (_, above) = misfit(&known.counts, &state.flow, known.unit);
        known.counts.iter().zip(above).for_each(|(c, above)| slopes[c.block] += above);
        for r in &known.ratios {
            let slope = ratio_cost(&state.flow, r).1;
            slopes[r.to] += slope;
            slopes[r.from] -= slope;
        }
        let gain: Vec<f64> = slopes.iter().zip(&state.flow).map(|(s, f)| s / f.max(f64::MIN_POSITIVE)).collect();
        let worth = state.solved.worth(&gain);
        let mut gradient = vec![0.0; self.network().edges.len() + 1];
        for (node, edges) in self.out.iter().enumerate() {
            let passes = state.flow.get(node).copied().unwrap_or(state.entries);
            let worth_of = |e: usize| worth.get(self.network().edges[e].1).copied().unwrap_or(0.0);
            let mean: f64 = edges.iter().map(|&e| state.probability[e] * worth_of(e)).sum();
            let seen: f64 = edges.iter().map(|&e| known.seen[e] + known.belief[e]).sum();
            if node == self.network().blocks {
                gradient[self.network().edges.len()] = state.entries * mean;
            }
            if edges.len() > 1 {
                for &e in edges {
                    let p = state.probability[e];
                    gradient[e] = passes * p * (worth_of(e) - mean) + seen * p - known.seen[e] - known.belief[e];
                }
            }
        }
        gradient
    }

    /// Curvature to begin with: that of the branches' own evidence.
    fn scale(&self, state: &State<'_>, known: &Known) -> Point {
        let mut scale = vec![1.0; self.network().edges.len() + 1];
        for edges in &self.out {
            let seen: f64 = edges.iter().map(|&e| known.seen[e] + known.belief[e]).sum();
            for &e in edges {
                let p = state.probability[e];
                scale[e] = 1.0 / (seen * p * (1.0 - p) + 0.3);
            }
        }
        let timed = known.time.iter().filter(|t| t.samples > 0.0).count() as f64;
        scale[self.network().edges.len()] = 1.0 / (1.0 + timed);
        scale
    }

    fn search(&self, point: &mut Point, known: &Known, steps: usize) {
        let mut memory: Vec<Step> = Vec::new();
        let mut state = self.state(point);
        let mut cost = self.cost(point, &state, known);
        let mut gradient = self.gradient(&state, known);
        let mut little = 0;
        for _ in 0..steps {
            let scale = self.scale(&state, known);
            let mut direction = direction(&gradient, &memory, &scale);
            if dot(&direction, &gradient) >= 0.0 {
                memory.clear();
                direction = gradient.iter().zip(&scale).map(|(g, s)| -g * s).collect();
            }
            let longest = direction.iter().fold(0.0_f64, |m, d| m.max(d.abs()));
            let slope = dot(&direction, &gradient);
            let mut length = (LONGEST_STEP / longest.max(1e-300)).min(1.0);
            let better = loop {
                let next: Point = point.iter().zip(&direction).map(|(x, d)| x + length * d).collect();
                let next_state = self.state(&next);
                let next_cost = self.cost(&next, &next_state, known);
                if next_cost <= cost + 1e-4 * length * slope {
                    break Some((next, next_state, next_cost));
                }
                length /= 3.0;
                if length < 1e-6 {
                    break None;
                }
            };
            let Some((next, next_state, next_cost)) = better else { return };
            let next_gradient = self.gradient(&next_state, known);
            remember(&mut memory, point, &next, &gradient, &next_gradient);
            let gained = cost - next_cost;
            (*point, state, cost, gradient) = (next, next_state, next_cost, next_gradient);
            little = if gained < ENOUGH { little + 1 } else { 0 };
            if little == IN_A_ROW {
                return;
            }
        }
    }

    fn edge_flows(&self, state: &State<'_>) -> Vec<f64> {
        let passes = |from: usize| state.flow.get(from).copied().unwrap_or(state.entries);
        self.network().edges.iter().zip(&state.probability).map(|(e, p)| passes(e.0) * p).collect()
    }

    /// How much the logarithm of each share moves when the evidence is drawn anew: of blocks and edges, against each of what they are
    /// told against.
    fn errors(&self, point: &Point, state: &State<'_>, known: &Known) -> Vec<(Vec<f64>, Vec<f64>)> {
        let mut chance = Chance(0x9e37_79b9);
        // Blocks, then edges; against each of what they are told against.
        let logs = |flow: &[f64], edges: &[f64], drawn: &Known| -> Vec<Vec<f64>> {
            let all = || flow.iter().sum();
            let counts = |of: &Known| (-misfit(&of.counts, flow, None).0).exp();
            let totals: Vec<f64> = match known.against {
                Against::All => vec![all()],
                Against::Counts => vec![counts(drawn)],
                // What the counts themselves may be off is not a part of it.
                Against::Both => vec![all(), counts(known)],
            };
            let log = |f: &f64, total: f64| (f / total.max(f64::MIN_POSITIVE)).max(1e-300).ln();
            totals.iter().map(|&t| flow.iter().chain(edges).map(|f| log(f, t)).collect()).collect()
        };
        let best = logs(&state.flow, &self.edge_flows(state), known);
        let mut squares: Vec<Vec<f64>> = best.iter().map(|b| vec![0.0; b.len()]).collect();
        let draws = (DRAWS_WORK / self.plan.work().max(1)).clamp(FEWEST_DRAWS, DRAWS);
        let redrawn: Vec<Known> = (0..draws).map(|_| redrawn(known, self.network(), &self.out, &mut chance)).collect();
        let again = |known: &Known| {
            let mut again = point.clone();
            self.search(&mut again, known, steps(STEPS_AGAIN, known));
            let state = self.state(&again);
            logs(&state.flow, &self.edge_flows(&state), known)
        };
        let drawn: Vec<_> = redrawn.par_iter().map(again).collect();
        for drawn in drawn {
            for ((sum, best), drawn) in squares.iter_mut().zip(&best).zip(&drawn) {
                sum.iter_mut().zip(best).zip(drawn).for_each(|((s, a), b)| *s += (a - b).powi(2));
            }
        }
        let deviations = |squares: Vec<f64>| {
            let mut blocks: Vec<f64> = squares.into_iter().map(|s| (s / draws as f64).sqrt()).collect();
            let edges = blocks.split_off(state.flow.len());
            (blocks, edges)
        };
        squares.into_iter().map(deviations).collect()
    }
}

/// Cost of the time that one block took, and its derivative by the logarithm of its executions.
fn block_cost(flow: f64, Time { samples, least }: Time) -> (f64, f64) {
    if least <= 0.0 {
        return (0.0, 0.0);
    }
    let off = ((samples + 0.5) / (flow.max(1e-300) * least)).ln() - USUAL;
    // Nothing sampled: it may run as rarely as it likes.
    if off >= 0.0 && samples <= 0.0 {
        return (0.0, 0.0);
    }
    let side = if off < 0.0 { BELOW } else { ABOVE };
    let variance = side * side + 1.0 / (samples + 0.5);
    (off * off / (2.0 * variance), -off / variance)
}

/// Cost of where executions were seen: each was seen by chance, so blocks of an island share observations as they share executions.
fn ran_cost(ran: &[Ran], flow: &[f64]) -> f64 {
    let all = to_be_seen(ran, flow);
    let of = |(r, flow): (&Ran, &f64)| match r.seen > 0.0 {
        true => -r.seen * (r.chance * flow / all[r.island].1).max(f64::MIN_POSITIVE).ln(),
        false => 0.0,
    };
    ran.iter().zip(flow).map(of).sum()
}

/// Its derivatives by the logarithm of each block's executions.
fn ran_slopes(ran: &[Ran], flow: &[f64]) -> Vec<f64> {
    let all = to_be_seen(ran, flow);
    let of = |r: &Ran, flow: &f64| all[r.island].0 * r.chance * flow / all[r.island].1 - r.seen;
    ran.iter().zip(flow).map(|(r, flow)| of(r, flow)).collect()
}

/// Of each island: what was seen, and what of its flow may be.
fn to_be_seen(ran: &[Ran], flow: &[f64]) -> Vec<(f64, f64)> {
    let mut all = vec![(0.0, f64::MIN_POSITIVE); ran.iter().map(|r| r.island + 1).max().unwrap_or(0)];
    for (r, flow) in ran.iter().zip(flow) {
        let island = &mut all[r.island];
        *island = (island.0 + r.seen, island.1 + r.chance * flow);
    }
    all
}

/// Cost of two blocks' executions against their counted ratio, and its derivative by the logarithm of the one counted
/// `to`. A ratio far off costs less than its chance says: programs have phases, and windows see few of them.
fn ratio_cost(flow: &[f64], r: &Ratio) -> (f64, f64) {
    let log = |b: usize| flow[b].max(1e-300).ln();
    let off = (log(r.to) - log(r.from) - r.log) / r.error;
    let far = 1.0 + off * off / (2.0 * PHASES);
    (PHASES * far.ln(), off / r.error / far)
}

/// Two loops over what the last steps told of curvature.
fn direction(gradient: &Point, memory: &[Step], scale: &Point) -> Point {
    let mut q = gradient.clone();
    let mut alphas = Vec::with_capacity(memory.len());
    for Step { s, y, curvature } in memory.iter().rev() {
        let alpha = dot(s, &q) / curvature;
        q.iter_mut().zip(y).for_each(|(q, y)| *q -= alpha * y);
        alphas.push(alpha);
    }
    q.iter_mut().zip(scale).for_each(|(q, s)| *q *= s);
    for (Step { s, y, curvature }, alpha) in memory.iter().zip(alphas.into_iter().rev()) {
        let beta = dot(y, &q) / curvature;
        q.iter_mut().zip(s).for_each(|(q, s)| *q += (alpha - beta) * s);
    }
    q.iter_mut().for_each(|q| *q = -*q);
    q
}

/// A step of the search.
struct Step {
    /// How far it went, and how much the gradient changed.
    s: Point,
    y: Point,
    /// Their product.
    curvature: f64,
}

fn remember(memory: &mut Vec<Step>, from: &Point, to: &Point, before: &Point, after: &Point) {
    let difference = |a: &Point, b: &Point| -> Point { b.iter().zip(a).map(|(b, a)| b - a).collect() };
    let (s, y) = (difference(from, to), difference(before, after));
    let curvature = dot(&s, &y);
    if curvature > 1e-10 * dot(&y, &y).sqrt() * dot(&s, &s).sqrt() {
        if memory.len() == MEMORY {
            memory.remove(0);
        }
        memory.push(Step { s, y, curvature });
    }
}

/// In eight sums side by side: one alone waits for each addition.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a8, rest_a) = a.as_chunks::<8>();
    let (b8, rest_b) = b.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (a, b) in a8.iter().zip(b8) {
        (0..8).for_each(|i| sums[i] += a[i] * b[i]);
    }
    let rest: f64 = rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}

/// The evidence as chance might have given it. `out_of`: edges that leave each node.
fn redrawn(known: &Known, network: &Network, out_of: &[Vec<usize>], chance: &mut Chance) -> Known {
    let count = |n: f64, chance: &mut Chance| {
        // Near a gamma variate of this mean and variance (Wilson and Hilferty), never negative.
        let k = 1.0 / (9.0 * n.max(0.05));
        n * (1.0 - k + chance.normal() * k.sqrt()).max(0.0).powi(3)
    };
    let mut out = known.clone();
    lean(&mut out.seen, out_of, known.lean * chance.normal());
    if !known.doubt_of_target.is_empty() {
        let of_target: Vec<f64> = (0..network.blocks + 2).map(|_| chance.normal()).collect();
        let of = network.edges.iter().zip(&known.doubt_of_target);
        out.seen.iter_mut().zip(of).for_each(|(seen, (e, doubt))| *seen *= (doubt * of_target[e.1]).exp());
    }
    let evidence = out.seen.iter_mut().zip(&out.belief).zip(&known.doubt).zip(&known.together);
    for (((seen, belief), doubt), together) in evidence {
        let missed = belief * known.missed;
        let all = (*seen + missed) * (doubt * chance.normal()).exp();
        *seen = (together * count(all / together, chance) - missed).max(0.0);
    }
    for ran in &mut out.ran {
        let together = ran.together.max(1.0);
        ran.seen = together * count(ran.seen / together, chance) * (ran.doubt * chance.normal()).exp();
    }
    out.counts.iter_mut().for_each(|c| c.log += c.error * chance.normal());
    out.ratios.iter_mut().for_each(|r| r.log += r.error * chance.normal());
    let islands = out.ran.iter().map(|r| r.island + 1).max().unwrap_or(0);
    // What rounds of a loop take beyond their least is much the same cause in all of its blocks.
    let common: Vec<f64> = (1..islands).map(|_| usual_times(chance)).collect();
    for (b, time) in out.time.iter_mut().enumerate().filter(|(_, t)| t.samples > 0.0) {
        let island = out.ran.get(b).and_then(|r| r.island.checked_sub(1));
        time.least *= usual_times(chance) * island.map_or(1.0, |i| common[i]);
        time.samples = count(time.samples, chance);
    }
    out
}

/// Observations as they would be, had the rarer ways of all branches been seen so much more often: `by`, as a logarithm. `out_of`: edges
/// that leave each node.
fn lean(seen: &mut [f64], out_of: &[Vec<usize>], by: f64) {
    for edges in out_of.iter().filter(|edges| edges.len() > 1) {
        let usual = edges.iter().copied().max_by(|&a, &b| seen[a].total_cmp(&seen[b]));
        edges.iter().filter(|e| Some(**e) != usual).for_each(|&e| seen[e] *= by.exp());
    }
}

/// How many times what is usual something may take over its least.
fn usual_times(chance: &mut Chance) -> f64 {
    let spread = chance.normal();
    (if spread < 0.0 { BELOW * spread } else { ABOVE * spread }).exp()
}

/// Pseudo-random numbers, the same in every run (`SplitMix64`).
struct Chance(u64);

impl Chance {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Sum of twelve uniform ones: near enough to normal.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

#[cfg(test)]
mod tests;
