//! Branch records, and walks, as evidence of frequencies. Which executions a CPU's records show does not depend on where a branch
//! stands, what it waits for or which turn of its loop it is in, so nothing is weighed down here as interpreted evidence is.
//! Records that come with samples of time show more of slow stretches: enough to doubt proportions, and to say
//! nothing of blocks against each other but by way of the branches between them. Walks pass over what is near their sample and are long, so
//! they do; they are doubted more, and least trusted behind places where they end.

use super::{DOUBT, Flow, Network};
use crate::analysis::recorded::{Recorded, WORTH_OF_WALKED};
use crate::analysis::subject::Subject;
use crate::flow::{Count, Ran, Time};
use rustc_hash::FxHashMap;
use whither_image::graph::Loop;
use whither_image::{Cfg, Flow as After};

/// Standard deviation of the logarithm of a branch's odds that even records have however many there are.
const DOUBT_OF_EVEN: f64 = 0.02;
/// That walks have: they begin where time is spent, so phases that take long show more than they run.
const DOUBT_OF_WALKED: f64 = 0.2;
/// And what they have where all time is spent waiting for memory: then they begin in the executions that waited, and a search
/// whose last pages miss the caches shows these and not the first ones. On an SQLite join, 84 % were seen of what were 37.
const DOUBT_OF_WAITS: f64 = 1.0;
/// And what jumps have that go many ways, as an interpreter's do. Which handlers run depends on what the program is about, for milliseconds or
/// more, and so does how long each takes: those of SQLite's were told with a standard deviation of 0.25, python's of 0.4 while walks ended at
/// stores under masks; what else a processor has that walks do not know shows in the same way.
const DOUBT_OF_DISPATCH: f64 = 0.35;
/// And what all branches of a procedure have in common: rarer ways were seen 1.1 to 1.3 times too often in sorts and searches of
/// compressors, and too rarely as often in interpreters.
const LEAN_OF_WALKED: f64 = 0.3;
/// What has more ways is no conditional branch.
const WAYS_OF_BRANCHES: u32 = 2;
/// Cycles that a load takes without waiting.
const AT_ONCE: f64 = 1.0;
/// Executions of one stack of records are near each other: so many tell as much of where executions are as one by chance.
const TOGETHER: f64 = 31.0;
/// Standard deviation of the logarithm of how often walks show a block that they have however many there are, as they begin where time is
/// spent. In a program of much code, where each block is seen a few times, it is little beside chance.
const DOUBT_OF_PLACES: f64 = 0.3;
/// Instructions that a walk tells of.
const WALK: f64 = 1000.0;
/// A loop that walks leave less often than this, each, is an island to them.
const LEAVES: f64 = 1.0;
/// Cycles that a branch takes by being guessed wrongly, where it goes each way every other time: a quarter of this. A wrong guess takes 16 or
/// more, but what went before foresees most branches, so that one in ten of even these is guessed wrongly.
const WRONG_GUESSES: f64 = 6.0;
/// Fewer runs are no evidence to speak of.
const FEWEST: u64 = 30;

/// Whether records are what frequencies rest on.
pub(super) fn decide(recorded: &Recorded) -> bool {
    recorded.observations() >= FEWEST
}

/// Adds what records show to observations per edge. `covers`: what part of it counts, by node.
pub(super) fn add(recorded: &Recorded, network: &Network, covers: Option<&[f64]>, seen: &mut [f64]) {
    let worth = if recorded.walked > 0 { WORTH_OF_WALKED } else { 1.0 };
    let part = |e: usize| worth * covers.map_or(1.0, |c| c[network.edges[e].0]);
    for (e, n) in recorded.edges.iter().enumerate() {
        seen[e] += n * part(e);
    }
    let edges: FxHashMap<(usize, usize), usize> = match recorded.jumps.is_empty() {
        true => FxHashMap::default(),
        // The first of several.
        false => network.edges.iter().enumerate().rev().map(|(e, edge)| (*edge, e)).collect(),
    };
    for (from, to, n) in &recorded.jumps {
        if let Some(&e) = edges.get(&(*from, *to)) {
            seen[e] += n * part(e);
        }
    }
}

/// How far what walks show of each node stands for all its executions. A walk ends where it needs something unknown, so what
/// follows such a place is shown by other ways only: it is shown less often than it runs.
/// Islands are shown by walks of their own.
pub(super) fn covers(recorded: &Recorded, islands: &[usize], network: &Network, flow: &Flow) -> Vec<f64> {
    let mut shown = vec![0.0; network.blocks + 1];
    if recorded.walked == 0 {
        return vec![1.0; network.blocks + 1];
    }
    let mut edges = vec![0.0; network.edges.len()];
    add(recorded, network, None, &mut edges);
    network.edges.iter().zip(&edges).for_each(|(e, n)| shown[e.0] += n);
    let island = |b: usize| islands.get(b).copied().unwrap_or(0);
    let rate = |b: usize| shown[b] / flow.blocks[b].max(f64::MIN_POSITIVE);
    let mut rates = vec![Vec::new(); islands.iter().max().map_or(1, |most| most + 1)];
    (0..network.blocks).for_each(|b| rates[island(b)].push((rate(b), shown[b])));
    let usual: Vec<f64> = rates.into_iter().map(usual_rate).collect();
    let of = |b: usize| match b < network.blocks && usual[island(b)] > 0.0 {
        true => (rate(b) / usual[island(b)]).min(1.0),
        false => 1.0,
    };
    (0..=network.blocks).map(of).map(|c| c * c).collect()
}

/// The rate at which most of what is shown is shown. `rates`: with how much is.
fn usual_rate(mut rates: Vec<(f64, f64)>) -> f64 {
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut left = rates.iter().map(|r| r.1).sum::<f64>() / 2.0;
    let usual = rates.iter().find(|(_, n)| {
        left -= n;
        left <= 0.0
    });
    usual.map_or(0.0, |u| u.0)
}

/// What part of the time is spent at loads that wait, as far as flows tell. `cycles`: of one sample.
pub(super) fn waiting(subject: &Subject, cycles: f64, flow: &Flow) -> f64 {
    let at = |i: usize| {
        let block = subject.block_of(i).filter(|_| subject.effects[i].load.is_some())?;
        Some((subject.samples[i] - AT_ONCE * flow.blocks[block] / cycles).max(0.0))
    };
    let all: f64 = subject.samples.iter().sum();
    (0..subject.samples.len()).filter_map(at).sum::<f64>() / all.max(f64::MIN_POSITIVE)
}

/// Doubts where some observations, `weighed`, are interpreted and the rest are records. `waiting`: part of the time.
pub(super) fn doubts(
    recorded: &Recorded,
    network: &Network,
    (covers, waiting): (&[f64], f64),
    weighed: &[f64],
    doubt: &mut [f64],
) {
    let mut by_records = vec![0.0; network.edges.len()];
    add(recorded, network, Some(covers), &mut by_records);
    let sum = |of: &[f64]| {
        let mut sum = vec![0.0; network.blocks + 1];
        network.edges.iter().zip(of).for_each(|(e, n)| sum[e.0] += n);
        sum
    };
    let (interpreted, recorded_at) = (sum(weighed), sum(&by_records));
    let own = match () {
        () if recorded.walked > 0 => DOUBT_OF_WALKED.hypot(DOUBT_OF_WAITS * waiting),
        () if recorded.is_even() => DOUBT_OF_EVEN,
        () => DOUBT,
    };
    for (e, doubt) in network.edges.iter().zip(doubt) {
        let share = recorded_at[e.0] / (recorded_at[e.0] + interpreted[e.0]).max(f64::MIN_POSITIVE);
        *doubt = (1.0 - share) * *doubt + share * own;
    }
}

/// Doubts of where jumps lead that go many ways. Which handlers run is what phases differ in, so all ways to one are seen too often at once.
/// Empty where there are none.
pub(super) fn doubts_of_targets(recorded: &Recorded, network: &Network) -> Vec<f64> {
    let mut ways = vec![0_u32; network.blocks + 1];
    network.edges.iter().for_each(|e| ways[e.0] += 1);
    let dispatches = |from: usize| from < network.blocks && ways[from] > WAYS_OF_BRANCHES;
    if recorded.walked == 0 || !network.edges.iter().any(|e| dispatches(e.0)) {
        return Vec::new();
    }
    network.edges.iter().map(|e| if dispatches(e.0) { DOUBT_OF_DISPATCH } else { 0.0 }).collect()
}

/// Executions of blocks, in independent observations. `counts`: of some blocks, from elsewhere; `islands`: as of [`islands`].
pub(super) fn ran(recorded: &Recorded, islands: &[usize], counts: &[Count]) -> Vec<Ran> {
    let walked = recorded.walked > 0;
    let island = |b: usize| islands.get(b).copied().unwrap_or(0);
    let of_island = |i: usize| {
        let blocks: Vec<f64> =
            recorded.blocks.iter().enumerate().map(|(b, n)| if island(b) == i { *n } else { 0.0 }).collect();
        let doubt = if walked { DOUBT_OF_PLACES.max(apart(&blocks, counts)) } else { 0.0 };
        (doubt, if walked { 1.0 + doubt.powi(2) * usual(&blocks) } else { TOGETHER })
    };
    let all: Vec<(f64, f64)> = (0..=islands.iter().copied().max().unwrap_or(0)).map(of_island).collect();
    let of = |(b, n): (usize, &f64)| {
        let (doubt, together) = all[island(b)];
        Ran { seen: n / together, chance: 1.0, doubt, island: island(b), ..Ran::default() }
    };
    recorded.blocks.iter().enumerate().map(of).collect()
}

/// How many observations of each block tell as much as one by chance: a walk comes to one of a short loop again and again, and all of
/// that is of one moment. Nothing where walks are not what tells. `flow`: executions of the blocks as far as known already.
pub(super) fn together(subject: &Subject, islands: &[usize], flow: &Flow) -> Vec<f64> {
    if subject.recorded.walked == 0 || subject.retired.is_some() {
        return Vec::new();
    }
    let insns: Vec<usize> = subject.cfg.blocks.iter().map(|b| b.insns.len()).collect();
    of_one_walk(&insns, islands, &flow.blocks)
}

/// `insns`: of each block.
fn of_one_walk(insns: &[usize], islands: &[usize], flow: &[f64]) -> Vec<f64> {
    let mut executed = vec![0.0; islands.iter().max().map_or(1, |most| most + 1)];
    insns.iter().zip(islands).zip(flow).for_each(|((insns, island), flow)| executed[*island] += flow * *insns as f64);
    let again = |(island, flow): (&usize, &f64)| WALK * flow / executed[*island].max(f64::MIN_POSITIVE);
    islands.iter().zip(flow).map(|block| (WORTH_OF_WALKED * (1.0 + again(block))).max(1.0)).collect()
}

/// How far the odds of all rarer ways may be off at once. Walks begin where time is spent; where branches are foreseen badly,
/// and so go their rarer ways more often, more time is spent on each of their executions.
pub(super) fn lean(recorded: &Recorded) -> f64 {
    if recorded.walked > 0 { LEAN_OF_WALKED } else { 0.0 }
}

/// Cycles that wrong guesses of each block's branch take, by how often it goes either way.
pub(super) fn wrong_guesses(cfg: &Cfg, network: &Network, flow: &Flow) -> Vec<f64> {
    let mut wrong = vec![0.0; network.blocks];
    for (&(from, _), x) in network.edges.iter().zip(&flow.edges) {
        let last = cfg.blocks.get(from).map(|b| cfg.insns[b.insns.end - 1].flow);
        if matches!(last, Some(After::Branch(_))) {
            let part = x / flow.blocks[from].max(f64::MIN_POSITIVE);
            wrong[from] += WRONG_GUESSES * part * (1.0 - part) / 2.0;
        }
    }
    wrong
}

/// Loops that are compared by time alone: one whose branches are foreseen badly takes longer than at best for that much more. Within
/// one walks tell how often its blocks run. `wrong`: what wrong guesses take for each execution, in units of `time`.
pub(super) fn slow_down(time: &mut [Time], islands: &[usize], flow: &[f64], wrong: &[f64]) {
    let mut of_island = vec![(0.0, 0.0); islands.iter().max().map_or(0, |most| most + 1)];
    for (((island, time), flow), wrong) in islands.iter().zip(time.iter()).zip(flow).zip(wrong) {
        let sum = &mut of_island[*island];
        *sum = (sum.0 + flow * time.least, sum.1 + flow * wrong);
    }
    for (time, island) in time.iter_mut().zip(islands) {
        let (least, wrong) = of_island[*island];
        time.least *= 1.0 + wrong / least.max(f64::MIN_POSITIVE);
    }
}

/// Which blocks walks tell of together. Walks begin where time is spent, and of what they show only what they came to afterwards is
/// as frequent as it runs: a loop that they hardly leave is shown by how long it takes, whatever its rounds cost. So it is an island, in
/// which its blocks compare with each other alone. 0: what is in no such loop.
pub(super) fn islands(subject: &Subject) -> Vec<usize> {
    let (cfg, recorded) = (&subject.cfg, &subject.recorded);
    if recorded.walked == 0 {
        return vec![0; cfg.blocks.len()];
    }
    let insns: Vec<usize> = cfg.blocks.iter().map(|b| b.insns.len()).collect();
    let edges = cfg.edges.iter().zip(&recorded.edges).map(|(e, n)| (e.from, e.to, *n));
    let ways: Vec<(usize, usize, f64)> = edges.chain(recorded.jumps.iter().copied()).collect();
    of_loops(&subject.loops, &insns, &recorded.blocks, &ways)
}

/// `loops`: outer ones first; `insns`, `shown`: instructions of each block, and how often it was shown; `ways`: from, to, how often.
fn of_loops(loops: &[Loop], insns: &[usize], shown: &[f64], ways: &[(usize, usize, f64)]) -> Vec<usize> {
    let mut islands = vec![0; insns.len()];
    for (i, l) in loops.iter().enumerate() {
        let inside = |b: usize| l.nodes.binary_search(&b).is_ok();
        let own = || l.nodes.iter().copied().filter(|b| *b < insns.len());
        let walks = own().map(|b| shown[b] * insns[b] as f64).sum::<f64>() / WALK;
        let left: f64 = ways.iter().filter(|w| inside(w.0) && !inside(w.1)).map(|w| w.2).sum();
        if left < LEAVES * walks {
            own().for_each(|b| islands[b] = i + 1);
        }
    }
    islands
}

/// How far the logarithms of what walks saw are from those of counts beyond what chance makes of both (DerSimonian and Laird): as walks begin where
/// time is spent, far where the rounds of loops cost unlike times.
fn apart(blocks: &[f64], counts: &[Count]) -> f64 {
    let off = |c: &Count| {
        let seen = *blocks.get(c.block).filter(|n| **n > 0.0)?;
        Some((seen.ln() - c.log, 1.0 / (c.error * c.error + 1.0 / seen)))
    };
    let off: Vec<(f64, f64)> = counts.iter().filter_map(off).collect();
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| off.iter().map(of).sum::<f64>();
    let weight = sum(&|o| o.1).max(f64::MIN_POSITIVE);
    let mean = sum(&|o| o.0 * o.1) / weight;
    let above_chance = sum(&|o| o.1 * (o.0 - mean).powi(2)) - (off.len() as f64 - 1.0);
    let spare = weight - sum(&|o| o.1 * o.1) / weight;
    if off.len() < 2 || spare <= 0.0 { 0.0 } else { (above_chance / spare).max(0.0).sqrt() }
}

/// How often most of what was seen was seen.
fn usual(blocks: &[f64]) -> f64 {
    blocks.iter().map(|n| n * n).sum::<f64>() / blocks.iter().sum::<f64>().max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_in_full_and_are_doubted_less() {
        let network = Network { blocks: 2, edges: vec![(2, 0), (0, 0), (0, 1), (1, 3), (1, 0)] };
        let edges = vec![0.0, 90.0, 10.0, 8.0];
        let mut recorded = Recorded { edges, jumps: vec![(1, 0, 2.0)], runs: 100, even: 100, ..Recorded::default() };
        let mut seen = vec![1.0; 5];
        add(&recorded, &network, None, &mut seen);
        assert_eq!(seen, [1.0, 91.0, 11.0, 9.0, 3.0]);
        let doubts_of = |recorded: &Recorded, weighed: &[f64]| {
            let mut doubt = vec![0.5; 5];
            doubts(recorded, &network, (&[1.0; 3], 0.0), weighed, &mut doubt);
            doubt
        };
        assert_eq!(doubts_of(&recorded, &[0.0; 5]), [0.5, 0.02, 0.02, 0.02, 0.02], "callers are not recorded");
        let half = doubts_of(&recorded, &[0.0, 50.0, 50.0, 0.0, 0.0]);
        assert!((half[1] - 0.26).abs() < 1e-9 && half[3] == 0.02, "{half:?}");
        recorded.even = 0;
        assert_eq!(doubts_of(&recorded, &[0.0; 5])[1], DOUBT);
        recorded.walked = 100;
        assert_eq!(doubts_of(&recorded, &[0.0; 5])[1], DOUBT_OF_WALKED);
        let jumps = Network { blocks: 2, edges: vec![(2, 0), (0, 0), (0, 1), (0, 3), (1, 3)] };
        let of_targets = doubts_of_targets(&recorded, &jumps);
        assert_eq!(of_targets[1..4], [DOUBT_OF_DISPATCH; 3], "which of three ways depends on what it is about");
        assert_eq!((of_targets[0], of_targets[4]), (0.0, 0.0));
        assert!(doubts_of_targets(&recorded, &network).is_empty());
    }

    #[test]
    fn walks_that_disagree_with_counts_tell_little_of_blocks() {
        let recorded = Recorded { blocks: vec![900.0, 90.0, 9.0], runs: 9, walked: 9, ..Recorded::default() };
        let doubt = |logs: &[(usize, f64)]| {
            let counts: Vec<Count> = logs.iter().map(|&(block, log)| Count { block, log, error: 0.1 }).collect();
            ran(&recorded, &[0; 3], &counts)[0]
        };
        let agreeing = doubt(&[(0, 0.0), (1, 0.1_f64.ln())]);
        assert_eq!(
            (agreeing, agreeing.doubt),
            (doubt(&[(0, 0.0)]), DOUBT_OF_PLACES),
            "one count says nothing of another"
        );
        let apart = doubt(&[(0, 0.0), (1, 1.0_f64.ln()), (2, 1.0_f64.ln())]);
        assert!(apart.doubt > 1.8 && apart.seen < 0.05 * agreeing.seen, "{apart:?}");
        // What counts hardly know says nothing against walks.
        let unsure = |block, log| Count { block, log, error: 2.0 };
        let counts = [Count { block: 0, log: 0.0, error: 0.1 }, unsure(1, -1.0), unsure(2, -3.0)];
        assert_eq!(ran(&recorded, &[0; 3], &counts)[0], agreeing);
    }

    #[test]
    fn a_loop_that_walks_hardly_leave_is_an_island() {
        // 1 and 3 are loops of ten instructions one behind the other; 100 walks of 100 rounds were in each.
        let loops = [1, 3].map(|header| Loop { header, nodes: vec![header] });
        let of = |left: f64| {
            let ways = [(0, 1, left), (1, 1, 1e4), (1, 2, left), (2, 3, left), (3, 3, 1e4), (3, 4, 300.0)];
            of_loops(&loops, &[1, 10, 1, 10, 1], &[left, 1e4, left, 1e4, 300.0], &ways)
        };
        assert_eq!(of(3.0), [0, 1, 0, 0, 0], "three of a hundred walks left it");
        assert_eq!(of(150.0), [0; 5], "they leave both");
        // Islands share nothing, and each is shown as well as it is.
        let recorded = Recorded { blocks: vec![3.0, 1e4, 3.0, 100.0, 30.0], runs: 9, walked: 9, ..Recorded::default() };
        let ran = ran(&recorded, &of(3.0), &[]);
        assert_eq!(ran.iter().map(|r| r.island).collect::<Vec<_>>(), [0, 1, 0, 0, 0]);
        assert!(ran[3].seen > 5.0, "not as seldom as against the other: {ran:?}");
    }

    #[test]
    fn loops_whose_branches_are_foreseen_badly_are_slower_as_a_whole() {
        let mut time = vec![Time { samples: 9.0, least: 1.0 }; 4];
        slow_down(&mut time, &[0, 1, 1, 0], &[1.0, 100.0, 50.0, 1.0], &[0.0, 3.0, 0.0, 0.5]);
        let least: Vec<f64> = time.iter().map(|t| t.least).collect();
        assert_eq!(least, [1.25, 3.0, 3.0, 1.25]);
    }

    #[test]
    fn a_walk_through_a_short_loop_is_one_observation() {
        // A loop of ten instructions is passed a hundred times in a walk, its neighbour of a thousand once; another island.
        let together = of_one_walk(&[10, 1000, 1000], &[1, 0, 0], &[50.0, 2.0, 2.0]);
        assert!((together[0] - 0.15 * 101.0).abs() < 1e-9 && together[1..] == [1.0, 1.0], "{together:?}");
    }

    #[test]
    fn walks_tell_of_blocks_but_many_not_much_more_than_some() {
        let walked = |blocks: &[f64]| Recorded { blocks: blocks.to_vec(), runs: 9, walked: 9, ..Recorded::default() };
        let seen = |blocks: &[f64]| ran(&walked(blocks), &[0; 3], &[]).iter().map(|r| r.seen).collect::<Vec<f64>>();
        let few = seen(&[2.0, 1.0, 0.0]);
        assert!(few[0] > 1.5 && few[0] / few[1] == 2.0 && few[2] == 0.0, "{few:?}");
        let many = seen(&[20_000.0, 10_000.0, 0.0]);
        assert!((5.0..15.0).contains(&many[0]) && (many[0] / many[1] - 2.0).abs() < 1e-9, "{many:?}");
        let even = Recorded { blocks: vec![31.0], runs: 31, even: 31, ..Recorded::default() };
        assert_eq!(ran(&even, &[0], &[]), [Ran { seen: 1.0, chance: 1.0, ..Ran::default() }]);
    }
}
