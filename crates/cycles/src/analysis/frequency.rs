//! From what is known of one procedure to how often its blocks and edges ran: makes the numbers that `flow` wants, and
//! says how far its answer can be trusted.
//!
//! What was seen of a branch counts as far as it stands for all its executions. Seen from the branch's own block, or from
//! one that runs as often, it counts in full; from further up, by the share of the executions that came that way. Moments spent
//! waiting for the branch's own inputs count little: a comparison that misses the cache often goes the other way.

mod records;
mod turns;

use self::turns::{Draw, Drawn, Turns};
use super::exact::Counted;
use super::retired::Retired;
use super::subject::{Subject, To};
use super::trust::{Witnessed, witnessed};
use crate::flow::{Against, Count, Errors, Flow, Known, Network, Problem, Time, misfit};
use crate::results::analysis::{Confidence, Estimate, Evidence};
use rustc_hash::FxHashSet;
use whither_image::cfg::EdgeKind;
use whither_image::{Cfg, Flow as After};

/// What an observation from further up counts before flows tell which part of the branch's executions it stands for.
const FROM_AFAR: f64 = 0.25;
/// What an observation counts whose moment depends on the branch's own inputs.
const BIASED: f64 = 0.1;
/// Standard deviation of the logarithm of a branch's odds that interpretation has at best, and more where all
/// observations are biased.
const DOUBT: f64 = 0.12;
const DOUBT_OF_BIASED: f64 = 0.6;
/// More observations of the rarer way than this tell no more: interpretation has a bias of its own.
const MOST_RARE: f64 = 400.0;
/// What to believe of a branch without any observation, in observations. Most branches nearly always go one way: two
/// observations that agree tell more than a belief in halves would let them.
const BELIEF: f64 = 0.1;
/// The same where the processor's records decide. There were none of real programs to measure with, so it is as it was.
const BELIEF_AMONG_RECORDS: f64 = 1.0;
/// Errors are those of a belief of so much.
const BELIEF_FOR_ERRORS: f64 = 1.0;
/// Belief in a loop's going on; a loop of ten turns.
const STAYS: f64 = 0.9;
/// Belief in ways that lead to nothing but the end of the program, or into a cold part.
const HARDLY: f64 = 0.02;
/// Belief in edges that the graph lacks, and in ways into code that nothing known leads to.
const INVENTED: f64 = 0.01;

/// Fewer samples that decided a branch are no evidence to speak of.
const FEWEST_DECIDED: u64 = 10;
/// With fewer observations of a block none of its estimates is called sure, however well it fits: redrawing little evidence says little of
/// what it misses.
pub(crate) const SURE_OBSERVED: f64 = 30.0;

/// Standard deviations of the logarithm up to which an estimate is called high and medium: within 15 % of the truth for nine of ten, and
/// for eight of ten. Those of a procedure are off together, so a laxer one holds for many programs taken together and fails in some.
const MOST_ERROR_OF_HIGH: f64 = 0.08;
const MOST_ERROR_OF_MEDIUM: f64 = 0.109;

/// How often everything ran.
pub(crate) struct Frequencies {
    pub(crate) network: Network,
    /// Edges of the network behind those of the graph were added: they are not known to exist.
    pub(crate) known_edges: usize,
    pub(crate) flow: Flow,
    /// Observations per edge, unweighed.
    pub(crate) seen: Vec<f64>,
    /// What is known of edges besides, in observations.
    pub(crate) told: Vec<f64>,
    /// Branches of which that is.
    pub(crate) told_branches: usize,
    pub(crate) evidence: Evidence,
    /// What to multiply flows with to get executions per nanosecond of run time, where counts tell.
    pub(crate) counted_rate: Option<f64>,
    /// What to multiply them with to get executions, where samples of instructions tell.
    pub(crate) retired_scale: Option<f64>,
    /// Per block of the graph.
    pub(super) witnessed: Vec<Witnessed>,
}

impl Frequencies {
    /// Known edges that leave each node.
    pub(crate) fn ways(&self) -> Vec<Vec<usize>> {
        let mut out = ways(&self.network);
        out.iter_mut().for_each(|edges| edges.retain(|e| *e < self.known_edges));
        out
    }
}

/// `least`: cycles one execution of each block takes at least; `cycles`: of one sample; `run_ns`: run time that counts are of, where
/// cycles are known well enough to compare.
pub(crate) fn frequencies(
    subject: &Subject,
    least: &[f64],
    cycles: f64,
    run_ns: Option<f64>,
    errors: Errors,
) -> Option<Frequencies> {
    let cfg = &subject.cfg;
    let mut network = network_of(cfg);
    add_observed(subject, &mut network);
    add_missing(subject, &mut network);
    let block = |insn| subject.block_of(insn);
    let turns = Turns::new(&network, subject.seen.iter().filter_map(|s| Some((block(s.pc)?, block(s.branch)?))));
    let observed = seen(subject, &network, &turns, None);
    let mut shown = observed.raw;
    records::add(&subject.recorded, &network, None, &mut shown);
    let counts = counts(subject);
    let islands = records::islands(subject);
    let by_processor = records::decide(&subject.recorded) && subject.recorded.walked == 0;
    let all = if by_processor { BELIEF_AMONG_RECORDS } else { BELIEF };
    let mut known = Known {
        seen: observed.seen,
        doubt: vec![0.0; network.edges.len()],
        doubt_of_target: records::doubts_of_targets(&subject.recorded, &network),
        belief: belief(subject, &network, all),
        missed: BELIEF_FOR_ERRORS / all,
        time: Vec::new(),
        together: Vec::new(),
        lean: records::lean(&subject.recorded),
        ran: subject.retired.as_ref().map_or_else(|| records::ran(&subject.recorded, &islands, &counts), Retired::ran),
        ratios: subject.counted.iter().flat_map(|c| &c.ratios).copied().collect(),
        // Pairs of moments tell of some loops; what is not known of others is not known of the whole, and how often others run than
        // those is not known where no branch between them was seen.
        against: match &subject.counted {
            Some(c) if !c.rates.is_empty() => Against::Counts,
            _ if counts.is_empty() => Against::All,
            _ => Against::Both,
        },
        counts,
        unit: run_ns.map(f64::ln),
    };
    known.time = (0..cfg.blocks.len())
        .map(|b| Time { samples: subject.block_samples(b), least: least[b].max(1e-3) / cycles })
        .chain([Time::default()])
        .take(network.blocks)
        .collect();
    let told = told(subject, &network, &shown);
    cap(&network, &mut known.seen);
    add(&mut known.seen, &told);
    records::add(&subject.recorded, &network, None, &mut known.seen);
    let problem = Problem::new(&network, &shown)?;
    let (first, found) = problem.solve(&known, None, Errors::Skipped)?;
    let wrong = records::wrong_guesses(cfg, &network, &first);
    records::slow_down(&mut known.time, &islands, &first.blocks, &wrong.iter().map(|c| c / cycles).collect::<Vec<_>>());
    let observed = seen(subject, &network, &turns, Some(&first));
    known.doubt = observed.doubt(&network);
    known.seen.clone_from(&observed.seen);
    cap(&network, &mut known.seen);
    add(&mut known.seen, &told);
    let covers = records::covers(&subject.recorded, &islands, &network, &first);
    let waiting = records::waiting(subject, cycles, &first);
    records::doubts(&subject.recorded, &network, (&covers, waiting), &known.seen, &mut known.doubt);
    records::add(&subject.recorded, &network, Some(&covers), &mut known.seen);
    doubt_less(&network, &told, &known.seen, &mut known.doubt);
    known.put_together(&network, &told, &records::together(subject, &islands, &first));
    // Whether what registers tell gives a scale depends on them.
    let errors = if known.against == Against::Both { Errors::Drawn } else { errors };
    let (flow, _) = problem.solve(&known, Some(&found), errors)?;
    let decided = subject.decided.0 >= FEWEST_DECIDED && observed.raw.iter().any(|s| *s > 0.0);
    let evidence = match () {
        () if subject.counted.as_ref().is_some_and(Counted::compares) => Evidence::Counts,
        () if subject.retired.is_some() => Evidence::Instructions,
        () if records::decide(&subject.recorded) && subject.recorded.walked > 0 => Evidence::Walks,
        () if records::decide(&subject.recorded) => Evidence::Records,
        () if decided => Evidence::Branches,
        () => Evidence::Samples,
    };
    let counted_rate = counted_rate(subject, &flow);
    let retired_scale = subject.retired.as_ref().and_then(|r| r.scale(&flow.blocks));
    let seen = shown;
    let all: Vec<f64> = seen.iter().zip(&told).map(|(seen, told)| seen + told).collect();
    let witnessed = witnessed(subject, &network, cfg.edges.len(), &all, &known.counts);
    Some(Frequencies {
        known_edges: cfg.edges.len(),
        // Of the two ways of each.
        told_branches: told.iter().filter(|t| **t > 0.0).count() / 2,
        network,
        flow,
        seen,
        told,
        evidence,
        counted_rate,
        retired_scale,
        witnessed,
    })
}

/// Blocks against time, in executions per nanosecond.
fn counts(subject: &Subject) -> Vec<Count> {
    subject.counted.iter().flat_map(|c| &c.rates).chain(&subject.lapped).copied().collect()
}

/// Executions per nanosecond over flow.
fn counted_rate(subject: &Subject, flow: &Flow) -> Option<f64> {
    let told = !subject.lapped.is_empty() || subject.counted.as_ref().is_some_and(|c| c.has_rate);
    told.then_some(())?;
    let (raise, _) = misfit(&counts(subject), &flow.blocks, None);
    Some(raise.exp()).filter(|r| r.is_finite() && *r > 0.0)
}

/// The graph's edges. Where jumps lead to unknown places there is a node more, behind the blocks: all such jumps may go
/// there, and from there to every block that nothing else leads to.
fn network_of(cfg: &Cfg) -> Network {
    let blocks = cfg.blocks.len() + usize::from(!unknown_jumps(cfg).is_empty());
    let node = |b: usize| if b < cfg.blocks.len() { b } else { b - cfg.blocks.len() + blocks };
    Network { blocks, edges: cfg.edges.iter().map(|e| (node(e.from), node(e.to))).collect() }
}

/// Blocks that end in a jump of which no way is known.
fn unknown_jumps(cfg: &Cfg) -> Vec<usize> {
    let last = |b: usize| cfg.insns[cfg.blocks[b].insns.end - 1].flow;
    let dead = dead(cfg);
    (0..cfg.blocks.len()).filter(|&b| last(b) == After::IndirectJump && dead[b]).collect()
}

/// Per block, whether nothing is known to follow it.
fn dead(cfg: &Cfg) -> Vec<bool> {
    let mut dead = vec![true; cfg.blocks.len() + 2];
    cfg.edges.iter().for_each(|e| dead[e.from] = false);
    dead
}

/// Indirect jumps were seen to go to places that no table tells of.
fn add_observed(subject: &Subject, network: &mut Network) {
    let mut known: FxHashSet<(usize, usize)> = network.edges.iter().copied().collect();
    for &(from, to, _) in &subject.recorded.jumps {
        if known.insert((from, to)) {
            network.edges.push((from, to));
        }
    }
    for s in &subject.seen {
        if let (To::Block(to), Some(from)) = (s.to, subject.block_of(s.branch)) {
            let ends = subject.cfg.blocks[from].insns.end == s.branch + 1;
            let at_head = subject.cfg.insns[s.branch].flow == After::IndirectJump;
            if ends && at_head && known.insert((from, to)) {
                network.edges.push((from, to));
            }
        }
    }
}

/// Jumps to unknown places, and what makes every block reachable and able to leave.
fn add_missing(subject: &Subject, network: &mut Network) {
    let hub = subject.cfg.blocks.len();
    network.edges.extend(unknown_jumps(&subject.cfg).into_iter().map(|b| (b, hub)));
    attach(network, true, Some(hub).filter(|h| *h < network.blocks));
    attach(network, false, None);
}

/// Leads an edge to every block that callers do not reach, or from every block that does not reach the end: from blocks
/// without known neighbours on that side first. `hub`: where unknown jumps come from, once it is reached itself.
fn attach(network: &mut Network, forwards: bool, hub: Option<usize>) {
    let n = network.blocks;
    let mut next = vec![Vec::new(); n + 2];
    let mut bare = vec![true; n + 2];
    for &(from, to) in &network.edges {
        let (near, far) = if forwards { (from, to) } else { (to, from) };
        next[near].push(far);
        bare[far] = false;
    }
    let mut seen = vec![false; n + 2];
    let visit = |from: usize, seen: &mut [bool]| {
        let mut todo = vec![from];
        while let Some(node) = todo.pop() {
            if !std::mem::replace(&mut seen[node], true) {
                todo.extend(&next[node]);
            }
        }
    };
    visit(if forwards { n } else { n + 1 }, &mut seen);
    let first = (0..n).filter(|&b| bare[b]);
    for b in first.chain((0..n).filter(|&b| !bare[b])) {
        if seen[b] {
            continue;
        }
        network.edges.push(match hub.filter(|&h| seen[h]) {
            _ if !forwards => (b, n + 1),
            Some(hub) => (hub, b),
            None => (n, b),
        });
        visit(b, &mut seen);
    }
}

/// Observations per edge, each weighed by how well it stands for all executions of its branch. `flow`: executions of the
/// blocks as far as known already.
fn seen(subject: &Subject, network: &Network, turns: &Turns, flow: Option<&Flow>) -> Observed {
    let mut out = Observed::new(network);
    let (mut views, mut drawn) = (Vec::new(), vec![Drawn::default(); network.blocks]);
    let ways = ways(network);
    for rows in subject.seen.chunk_by(|a, b| a.pc == b.pc) {
        let Some(pc) = subject.block_of(rows[0].pc) else { continue };
        let of_branch = |branch: usize| rows.iter().filter(|s| s.branch == branch).map(|s| s.count).sum::<f64>();
        // The first branch behind it is decided most often.
        let all = rows.iter().map(|s| of_branch(s.branch)).fold(0.0, f64::max);
        for s in rows {
            let Some(from) = subject.block_of(s.branch) else { continue };
            let Some(e) = edge_of(subject, network, &ways[from], from, s.branch, s.to) else { continue };
            let draw = turns.draw(pc, from);
            let same = from == pc || subject.classes.0[from] == subject.classes.0[pc];
            let covers = match flow {
                _ if same && draw == Draw::Fair => 1.0,
                Some(flow) => {
                    let part = draw.part_of(turns.first_part(flow, from)) * flow.blocks[from];
                    (flow.blocks[pc] * of_branch(s.branch) / all / part.max(f64::MIN_POSITIVE)).min(1.0)
                }
                None => FROM_AFAR,
            };
            let biased = from == pc && waits_for_inputs(subject, s.pc, s.branch);
            let counts = s.count * covers * if biased { BIASED } else { 1.0 };
            out.raw[e] += s.count;
            drawn[from].add(draw, counts);
            views.push((e, from, draw, counts, if biased { 1.0 } else { 1.0 - covers }));
        }
    }
    for (e, from, draw, counts, doubtful) in views {
        let first = flow.map(|f| turns.first_part(f, from));
        let counts = counts * drawn[from].weight(draw, first);
        out.seen[e] += counts;
        out.doubtful[from] += counts * doubtful.max(first.map_or(0.0, turns::doubtful));
    }
    out
}

/// Observations per edge.
struct Observed {
    raw: Vec<f64>,
    /// Weighed.
    seen: Vec<f64>,
    /// Of those at each node, how many may stand for a part of its executions only.
    doubtful: Vec<f64>,
}

impl Observed {
    fn new(network: &Network) -> Self {
        let none = vec![0.0; network.edges.len()];
        Self { raw: none.clone(), seen: none, doubtful: vec![0.0; network.blocks + 1] }
    }

    /// How far the logarithm of each edge's odds may be off however often it was seen.
    fn doubt(&self, network: &Network) -> Vec<f64> {
        let mut sum = vec![0.0; network.blocks + 1];
        network.edges.iter().zip(&self.seen).for_each(|(e, s)| sum[e.0] += s);
        let of =
            |from: usize| DOUBT + if sum[from] > 0.0 { DOUBT_OF_BIASED * self.doubtful[from] / sum[from] } else { 0.0 };
        network.edges.iter().map(|e| of(e.0)).collect()
    }
}

/// Whether what was waited for at a sampled instruction is something that its block's branch depends on: how long that
/// takes may go with which way the branch goes, as a missing load and an unequal comparison do.
fn waits_for_inputs(subject: &Subject, pc: usize, branch: usize) -> bool {
    let first = subject.block_of(branch).map_or(branch, |b| subject.cfg.blocks[b].insns.start);
    let Some(waited) = pc.checked_sub(1).filter(|w| *w >= first) else { return false };
    let mut wanted = subject.effects[branch].reads;
    for i in (waited..branch).rev() {
        let e = &subject.effects[i];
        if e.writes.meets(wanted) {
            if i == waited {
                return true;
            }
            // A write of a part keeps the rest wanted; being too wide here only counts less.
            wanted = wanted.without(e.writes).with(e.reads);
        }
    }
    false
}

/// Edges out of each node.
fn ways(network: &Network) -> Vec<Vec<usize>> {
    let mut ways = vec![Vec::new(); network.blocks + 1];
    network.edges.iter().enumerate().for_each(|(e, &(from, _))| ways[from].push(e));
    ways
}

/// The edge that a branch at the end of a block took, of the block's `ways`.
fn edge_of(subject: &Subject, network: &Network, ways: &[usize], from: usize, branch: usize, to: To) -> Option<usize> {
    let cfg = &subject.cfg;
    if cfg.blocks[from].insns.end != branch + 1 {
        return None;
    }
    let mut ways = ways.iter().copied();
    let of = |kind: EdgeKind| ways.clone().find(|&e| cfg.edges.get(e).is_some_and(|e| e.kind == kind));
    match to {
        To::Block(to) if cfg.insns[branch].flow == After::IndirectJump => ways.find(|&e| network.edges[e].1 == to),
        To::Block(_) => None,
        To::Fall => of(EdgeKind::Fall),
        To::Taken => of(EdgeKind::Taken).or_else(|| of(EdgeKind::Leave)),
    }
}

/// What to believe where nothing was seen: `all` observations at each branch.
fn belief(subject: &Subject, network: &Network, all: f64) -> Vec<f64> {
    let cfg = &subject.cfg;
    let n = cfg.blocks.len();
    let dead = dead(cfg);
    let hot = &cfg.parts[0];
    let cold = |b: usize| {
        let at = cfg.insns[cfg.blocks[b].insns.start].address.0;
        dead[b] || !hot.contains(&at)
    };
    let stays = loop_membership(subject);
    let mut out: Vec<f64> = (network.edges.iter().enumerate())
        .map(|(i, &(from, to))| match () {
            () if i >= cfg.edges.len() => INVENTED,
            () if to < n && cold(to) && !(from < n && cold(from)) => HARDLY,
            () if from < n && stays(from, to) == Some(true) => STAYS,
            () if from < n && stays(from, to) == Some(false) => 1.0 - STAYS,
            () => 0.5,
        })
        .collect();
    let mut sum = vec![0.0; network.blocks + 1];
    network.edges.iter().zip(&out).for_each(|(e, b)| sum[e.0] += b);
    network.edges.iter().zip(&mut out).for_each(|(e, b)| *b *= all / sum[e.0]);
    out
}

/// For an edge out of a loop or back to its header: whether it stays; `None` for others.
fn loop_membership(subject: &Subject) -> impl Fn(usize, usize) -> Option<bool> {
    let loops = &subject.loops;
    // Outer loops come first.
    let mut around: Vec<Vec<usize>> = vec![Vec::new(); subject.cfg.end() + 1];
    loops.iter().enumerate().for_each(|(i, l)| l.nodes.iter().for_each(|&n| around[n].push(i)));
    move |from, to| {
        let mut answer = None;
        for l in around[from].iter().map(|&i| &loops[i]) {
            if l.header == to {
                answer = Some(true);
            } else if l.nodes.binary_search(&to).is_err() {
                answer = Some(false);
            }
        }
        answer
    }
}

/// Shrinks evidence whose rarer way was seen more often than its bias allows to believe.
fn cap(network: &Network, seen: &mut [f64]) {
    let n = network.blocks;
    let (mut sum, mut most) = (vec![0.0_f64; n + 1], vec![0.0_f64; n + 1]);
    for (e, s) in network.edges.iter().zip(seen.iter()) {
        sum[e.0] += s;
        most[e.0] = most[e.0].max(*s);
    }
    for (e, s) in network.edges.iter().zip(seen) {
        let rare = sum[e.0] - most[e.0];
        if rare > MOST_RARE {
            *s *= MOST_RARE / rare;
        }
    }
}

/// What is known of branches that leave by count, as if they had been seen to, by edge; nothing where they were `shown` to leave more
/// often.
fn told(subject: &Subject, network: &Network, shown: &[f64]) -> Vec<f64> {
    let mut told = vec![0.0; network.edges.len()];
    let ways = ways(network);
    for trip in &subject.trips {
        let ways = &ways[trip.block];
        let Some(leaves) = edge_of(subject, network, ways, trip.block, trip.branch, trip.leaves) else { continue };
        let Some(&stays) = ways.iter().find(|&&e| e != leaves).filter(|_| ways.len() == 2) else { continue };
        if !trip.fits(shown[leaves], shown[leaves] + shown[stays]) {
            continue;
        }
        told[leaves] = trip.observations() * trip.chance;
        told[stays] = trip.observations() * (1.0 - trip.chance);
    }
    told
}

/// What is `told` of a branch is no sample of it, with none of the doubts of samples; its error is in how many it stands for.
fn doubt_less(network: &Network, told: &[f64], all: &[f64], doubt: &mut [f64]) {
    let mut sum = vec![(0.0, 0.0); network.blocks + 1];
    for ((e, told), all) in network.edges.iter().zip(told).zip(all) {
        sum[e.0].0 += told;
        sum[e.0].1 += all;
    }
    for (e, doubt) in network.edges.iter().zip(doubt) {
        let (told, all) = sum[e.0];
        if told > 0.0 {
            *doubt *= 1.0 - told / all;
        }
    }
}

fn add(to: &mut [f64], more: &[f64]) {
    to.iter_mut().zip(more).for_each(|(to, more)| *to += more);
}

/// An estimate with the 95 % interval of its error, and the trust that the suite of `docs/accuracy.md` allows.
pub(crate) fn estimate(value: f64, error: f64, evidence: Evidence, complete: bool) -> Estimate {
    let factor = (1.96 * error).exp();
    let sound = complete && evidence >= Evidence::Branches;
    let confidence = match error {
        e if e <= MOST_ERROR_OF_HIGH && sound => Confidence::High,
        e if e <= MOST_ERROR_OF_MEDIUM && evidence >= Evidence::Branches => Confidence::Medium,
        _ => Confidence::Low,
    };
    Estimate { value, low: value / factor, high: value * factor, confidence }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attached(blocks: usize, edges: &[(usize, usize)], hub: Option<usize>) -> Vec<(usize, usize)> {
        let mut network = Network { blocks, edges: edges.to_vec() };
        attach(&mut network, true, hub);
        attach(&mut network, false, None);
        network.edges.split_off(edges.len())
    }

    /// Share of a normal distribution within so many deviations of its middle.
    fn within(deviations: f64) -> f64 {
        let steps = 10_000;
        let density = |i: u32| (-(deviations * (f64::from(i) + 0.5) / f64::from(steps)).powi(2) / 2.0).exp();
        let sum: f64 = (0..steps).map(density).sum();
        sum * deviations / f64::from(steps) * (2.0 / std::f64::consts::PI).sqrt()
    }

    #[test]
    fn what_is_called_medium_is_right_for_eight_of_ten_by_its_own_error() {
        let right = |called: Confidence| {
            let errors = (1..1000).map(|e| f64::from(e) / 1000.0);
            let of = |e: &f64| estimate(1.0, *e, Evidence::Walks, true).confidence == called;
            errors.filter(of).map(|e| within(1.15_f64.ln() / e)).fold(1.0, f64::min)
        };
        assert!((0.79..0.82).contains(&right(Confidence::Medium)), "{}", right(Confidence::Medium));
        assert!((0.90..0.93).contains(&right(Confidence::High)), "{}", right(Confidence::High));
    }

    #[test]
    fn every_block_is_reached_and_leaves() {
        // Callers are node 4, the outside is node 5: a chain 0, 1 is known; 3 leads to 2, and a loop of 2.
        assert_eq!(attached(4, &[(4, 0), (0, 1), (3, 2), (2, 2)], None), [(4, 3), (1, 5), (2, 5)]);
        // Two that lead to each other: the first is entered.
        assert_eq!(attached(3, &[(3, 0), (0, 4), (1, 2), (2, 1)], None), [(3, 1), (1, 4)]);
        // Unknown jumps come from node 2, which is reached.
        assert_eq!(attached(3, &[(3, 0), (0, 2), (1, 4)], Some(2)), [(2, 1)]);
        // Nothing reaches it before it is attached itself.
        assert_eq!(attached(3, &[(3, 0), (0, 4), (1, 2)], Some(2)), [(3, 1), (2, 4)]);
    }

    #[test]
    fn what_is_told_has_none_of_the_doubts_of_samples() {
        let network = Network { blocks: 2, edges: vec![(0, 1), (0, 3), (1, 0)] };
        let mut doubt = vec![0.8; 3];
        doubt_less(&network, &[20.0, 40.0, 0.0], &[30.0, 50.0, 9.0], &mut doubt);
        assert!((doubt[0] - 0.2).abs() < 1e-9 && (doubt[1] - 0.2).abs() < 1e-9, "three quarters are told: {doubt:?}");
        assert_eq!(doubt[2], 0.8, "nothing is");
    }

    #[test]
    fn many_blocks_that_nothing_leads_to_take_no_time() {
        let n = 200_000;
        let started = std::time::Instant::now();
        assert_eq!(attached(n, &[(n, 0)], None).len(), n - 1 + n);
        assert!(started.elapsed().as_secs() < 10, "took {:?}", started.elapsed());
    }
}
