//! Flows with a known answer: planted ones recovered from noisy evidence, and what must hold of any.

use super::super::{Count, Ran};
use super::*;
use proptest::prelude::*;

fn known(network: &Network) -> Known {
    Known {
        seen: vec![0.0; network.edges.len()],
        doubt: vec![0.0; network.edges.len()],
        doubt_of_target: Vec::new(),
        belief: vec![0.5; network.edges.len()],
        missed: 1.0,
        time: vec![Time { samples: 0.0, least: 1.0 }; network.blocks],
        ran: Vec::new(),
        together: Vec::new(),
        lean: 0.0,
        ratios: Vec::new(),
        counts: Vec::new(),
        unit: None,
        against: Against::All,
    }
}

fn solve(network: &Network, known: &Known, errors: Errors) -> Option<Flow> {
    Problem::new(network, &known.seen)?.solve(known, None, errors).map(|(flow, _)| flow)
}

fn shares(flow: &[f64]) -> Vec<f64> {
    flow.iter().map(|f| f / flow[0]).collect()
}

#[test]
fn branches_seen_often_decide() {
    // 0 -> 1 (90 %) or 2, both to 3, 3 -> 0 (99 %) or out.
    let network = Network { blocks: 4, edges: vec![(4, 0), (0, 1), (0, 2), (1, 3), (2, 3), (3, 0), (3, 5)] };
    let mut k = known(&network);
    k.seen[1..3].copy_from_slice(&[9_000.0, 1_000.0]);
    k.seen[5..7].copy_from_slice(&[9_900.0, 100.0]);
    for t in &mut k.time {
        t.samples = 5_000.0;
    }
    let flow = solve(&network, &k, Errors::Drawn).expect("solvable");
    let s = shares(&flow.blocks);
    assert!((s[1] - 0.9).abs() < 0.01 && (s[2] - 0.1).abs() < 0.01 && (s[3] - 1.0).abs() < 1e-9, "{s:?}");
    let turns = flow.blocks[0] / flow.edges[0];
    assert!((80.0..125.0).contains(&turns), "{turns} turns");
    assert!(flow.block_error[1] < 0.1, "{:?}", flow.block_error);
    assert!(flow.edge_error[0] > 0.05, "a hundred exits are worth a tenth: {:?}", flow.edge_error);
}

#[test]
fn what_all_ways_to_a_block_have_in_common_is_doubted_at_once() {
    // 0 to 7 lead to each other alike; what is doubted of each way alone averages out, what is of their target does not.
    let edges: Vec<(usize, usize)> = (0..8).flat_map(|from| (0..8).map(move |to| (from, to))).collect();
    let network = Network { blocks: 8, edges: edges.into_iter().chain([(8, 0), (7, 9)]).collect() };
    let mut k = known(&network);
    (0..64).for_each(|e| k.seen[e] = 1000.0);
    k.seen[65] = 1.0;
    k.time.iter_mut().for_each(|t| t.samples = 1000.0);
    let error = |k: &Known| solve(&network, k, Errors::Drawn).expect("solvable").block_error[3];
    let alone = Known { doubt: vec![0.35; 66], ..k.clone() };
    let together = Known { doubt_of_target: vec![0.35; 66], ..k.clone() };
    assert!(error(&alone) < 0.2 && error(&together) > 1.3 * error(&alone), "{} {}", error(&alone), error(&together));
}

/// Five comparisons, each of which leaves one time in ten, as was seen a thousand times each.
fn chain() -> (Network, Known) {
    let edges = (0..5).flat_map(|b| [(b, b + 1), (b, 6)]).chain([(6, 0), (5, 6), (6, 0)]);
    let edges: Vec<(usize, usize)> = edges.map(|(from, to)| if from == 6 { (7, to) } else { (from, to) }).collect();
    let network = Network { blocks: 7, edges: edges.into_iter().chain([(6, 8)]).collect() };
    let mut k = known(&network);
    (0..5).for_each(|b| (k.seen[2 * b], k.seen[2 * b + 1]) = (900.0, 100.0));
    k.time.iter_mut().for_each(|t| t.samples = 1000.0);
    (network, k)
}

#[test]
fn what_may_be_off_alike_at_all_branches_adds_up() {
    let (network, mut k) = chain();
    let error = |k: &Known| solve(&network, k, Errors::Drawn).expect("solvable").block_error[5];
    let by_chance = error(&k);
    k.lean = 0.3;
    // A tenth of 0.3, five times, but for what is common to all.
    assert!(by_chance < 0.04 && (0.07..0.2).contains(&error(&k)), "{by_chance} {}", error(&k));
}

#[test]
fn what_was_seen_at_one_moment_tells_as_much_as_one() {
    let (network, mut k) = chain();
    let error = |k: &Known| solve(&network, k, Errors::Drawn).expect("solvable").block_error[5];
    let alone = error(&k);
    k.together = vec![16.0; network.edges.len()];
    let times = error(&k) / alone;
    assert!((2.5..5.5).contains(&times), "{times}");
    let told = vec![0.0, 50.0, 0.0, 0.0];
    let mut k = Known { seen: vec![20.0, 100.0, 0.0, 9.0], ran: vec![Ran::default(); 2], ..Known::default() };
    k.put_together(&Network { blocks: 2, edges: vec![(0, 1), (0, 0), (1, 3), (2, 0)] }, &told, &[5.0, 2.0]);
    assert_eq!((k.together, k.ran[0].together, k.ran[1].together), (vec![5.0, 3.0, 2.0, 1.0], 5.0, 2.0));
}

#[test]
fn a_way_never_seen_is_rare_and_not_surely_so() {
    // Seen to go to 1 five times: little to believe of 2, and less to be sure of.
    let network = Network { blocks: 4, edges: vec![(4, 0), (0, 1), (0, 2), (1, 3), (2, 3), (3, 5)] };
    let mut k = known(&network);
    (k.belief, k.missed) = (vec![0.05; network.edges.len()], 10.0);
    k.seen[1] = 5.0;
    k.time.iter_mut().for_each(|t| t.samples = 100.0);
    k.time[2].samples = 0.0;
    let flow = solve(&network, &k, Errors::Drawn).expect("solvable");
    let s = shares(&flow.blocks);
    assert!(s[1] > 0.95 && s[2] < 0.05, "{s:?}");
    assert!(flow.block_error[2] > 0.8 && flow.block_error[1] > 0.008, "{:?}", flow.block_error);
}

#[test]
fn time_decides_where_no_branch_was_seen() {
    let network = Network { blocks: 4, edges: vec![(4, 0), (0, 1), (0, 2), (1, 3), (2, 3), (3, 5)] };
    let mut k = known(&network);
    for (b, s) in [4_000.0, 4_000.0, 0.0, 4_000.0].into_iter().enumerate() {
        k.time[b].samples = s;
    }
    let s = shares(&solve(&network, &k, Errors::Drawn).expect("solvable").blocks);
    assert!(s[1] > 0.9 && s[2] < 0.1, "{s:?}");
}

#[test]
fn executions_seen_decide_where_no_branch_was_seen() {
    // A jump to unknown places: nothing tells how often it goes to 1, 2 or 3 but how often these were seen to run.
    let network = Network { blocks: 4, edges: vec![(4, 0), (0, 1), (0, 2), (0, 3), (1, 5), (2, 5), (3, 5)] };
    let mut k = known(&network);
    k.ran = [1_000.0, 700.0, 300.0, 0.0].map(|seen| Ran { seen, chance: 1.0, ..Ran::default() }).to_vec();
    k.time.iter_mut().for_each(|t| t.samples = 1_000.0);
    let flow = solve(&network, &k, Errors::Drawn).expect("solvable");
    let s = shares(&flow.blocks);
    assert!((s[1] - 0.7).abs() < 0.03 && (s[2] - 0.3).abs() < 0.03 && s[3] < 0.02, "{s:?}");
    assert!(flow.block_error[1] < 0.1, "{:?}", flow.block_error);
}

#[test]
fn samples_of_instructions_count_by_how_many_a_block_has() {
    // Both ways are as frequent; one has nine times the instructions.
    let network = Network { blocks: 4, edges: vec![(4, 0), (0, 1), (0, 2), (1, 3), (2, 3), (3, 5)] };
    let mut k = known(&network);
    let of = |(seen, chance)| Ran { seen, chance, doubt: 0.05, ..Ran::default() };
    k.ran = [(2_000.0, 2.0), (4_500.0, 9.0), (500.0, 1.0), (3_000.0, 3.0)].map(of).to_vec();
    let flow = solve(&network, &k, Errors::Drawn).expect("solvable");
    let s = shares(&flow.blocks);
    assert!((s[1] - 0.5).abs() < 0.02 && (s[2] - 0.5).abs() < 0.02, "{s:?}");
    assert!(flow.block_error[1..3].iter().all(|e| (0.01..0.2).contains(e)), "{:?}", flow.block_error);
}

/// Misled observations of branches yield to counts: a loop of twenty turns, entered and left as often as counted.
#[test]
fn counted_blocks_decide_and_give_the_scale() {
    // 0 enters the loop 1; 2 or 3 on the way, back from 4, out to 5.
    let edges = vec![(6, 0), (0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 1), (4, 5), (5, 7)];
    let network = Network { blocks: 6, edges };
    let mut k = known(&network);
    k.time.iter_mut().for_each(|t| t.samples = 1_000.0);
    k.seen[2..4].copy_from_slice(&[30.0, 30.0]);
    k.seen[6..8].copy_from_slice(&[90.0, 10.0]);
    let ratio = |from, to, over: f64| Ratio { from, to, log: over.ln(), error: 0.04 };
    k.ratios = vec![ratio(0, 1, 20.0), ratio(1, 2, 0.8), ratio(1, 3, 0.2)];
    let shares_of = |k: &Known| shares(&solve(&network, k, Errors::Skipped).expect("solvable").blocks);
    let s = shares_of(&k);
    assert!((s[1] / 20.0 - 1.0).abs() < 0.1 && (s[2] / s[1] - 0.8).abs() < 0.05, "{s:?}");
    // One that is far off is doubted, others of the same are not.
    k.ratios.extend([ratio(0, 1, 20.0), ratio(0, 4, 300.0)]);
    let s = shares_of(&k);
    assert!((s[1] / 20.0 - 1.0).abs() < 0.25, "{s:?}");
    // A thousand entries a second: errors are those of executions in that unit.
    k.ratios.truncate(3);
    (k.counts, k.against) = (vec![Count { block: 0, log: 1000.0_f64.ln(), error: 0.05 }], Against::Counts);
    let flow = solve(&network, &k, Errors::Drawn).expect("solvable");
    let raise = misfit(&k.counts, &flow.blocks, None).0;
    assert!((flow.blocks[0] * raise.exp() / 1000.0 - 1.0).abs() < 1e-6, "{:?}", flow.blocks);
    assert!((0.02..0.09).contains(&flow.block_error[0]), "as counted: {:?}", flow.block_error);
    assert!(flow.block_error[1] > 0.03 && flow.block_error[1] < 0.12, "{:?}", flow.block_error);
}

/// Three loops one behind the other, each behind a test whether to enter it: 700 calls of 20,000 rounds of 177 cycles (8 at least),
/// 100,000 of 4 and 30,000 of 14. Walks show how long each takes; pairs tell the executions of the first.
#[test]
fn loops_that_walks_show_by_their_time_are_not_compared_by_it() {
    let tests_and_loops =
        [(0, 1), (0, 2), (1, 1), (1, 2), (2, 3), (2, 4), (3, 3), (3, 4), (4, 5), (4, 6), (5, 5), (5, 6)];
    let edges = [(7, 0)].into_iter().chain(tests_and_loops).chain([(6, 8)]).collect();
    let network = Network { blocks: 7, edges };
    let mut k = known(&network);
    (k.belief, k.missed) = (vec![0.05; network.edges.len()], 10.0);
    let cycles_of_sample = 3e6;
    let loops = [(1, 20_000.0, 177.0, 8.0, 300.0), (3, 100_000.0, 4.0, 4.0, 20.0), (5, 30_000.0, 14.0, 14.0, 15.0)];
    for (b, rounds, cycles, least, ends) in loops {
        let e = network.edges.iter().position(|e| *e == (b, b)).expect("it goes round");
        (k.seen[e], k.seen[e + 1]) = (ends * rounds, ends);
        k.time[b] = Time { samples: 700.0 * rounds * cycles / cycles_of_sample, least: least / cycles_of_sample };
    }
    let run_ns = 9e8_f64;
    k.counts = vec![Count { block: 1, log: (1.4e7 / run_ns).ln(), error: 0.05 }];
    (k.unit, k.against) = (Some(run_ns.ln()), Against::Both);
    let ran = |islands: [usize; 7]| -> Vec<Ran> {
        let seen = [0.0, 14.0, 0.0, 2.0, 0.0, 2.0, 0.0];
        seen.iter()
            .zip(islands)
            .map(|(&seen, island)| Ran { seen, chance: 1.0, doubt: 0.3, island, ..Ran::default() })
            .collect()
    };
    let told = |k: &Known| {
        let flow = solve(&network, k, Errors::Drawn).expect("solvable");
        let (errors, _) = flow.by_counts.clone().expect("against counts, too");
        let off = [(1, 1.4e7), (3, 7e7), (5, 2.1e7)]
            .map(|(b, truth): (usize, f64)| ((flow.blocks[b] / truth).ln(), errors[b]));
        (off, flow.block_error[1])
    };
    k.ran = ran([0, 1, 0, 3, 0, 5, 0]);
    let (off, of_share) = told(&k);
    assert!(off.iter().all(|(off, error)| off.abs() < 1.0 && off.abs() < 1.96 * error.max(0.05)), "{off:?}");
    assert!(off[0].1 < 0.1 && off[1].1 > 0.3, "one is counted, the others are known by their ends and time: {off:?}");
    assert!(of_share > 0.2, "what its share is of all executions depends on the others: {of_share}");
    k.ran = ran([0; 7]);
    let (as_one, _) = told(&k);
    assert!(as_one[1].0 < off[1].0 - 0.7, "as if time were executions: {as_one:?}");
}

#[test]
fn no_block_is_much_faster_than_possible() {
    // Seen: half and half; but block 2 took no time at all, so the few observations were a chance.
    let network = Network { blocks: 4, edges: vec![(4, 0), (0, 1), (0, 2), (1, 3), (2, 3), (3, 5)] };
    let mut k = known(&network);
    k.seen[1..3].copy_from_slice(&[2.0, 2.0]);
    for (b, s) in [40_000.0, 40_000.0, 1.0, 40_000.0].into_iter().enumerate() {
        k.time[b].samples = s;
    }
    let s = shares(&solve(&network, &k, Errors::Drawn).expect("solvable").blocks);
    assert!(s[2] < 0.2, "{s:?}");
}

/// A random graph in which every block can leave.
fn graphs() -> impl Strategy<Value = (Network, Vec<f64>)> {
    (2_usize..10, prop::collection::vec((0_usize..10, 0_usize..11, 0.05_f64..1.0), 1..20)).prop_map(|(n, raw)| {
        let mut edges = vec![(n, 0)];
        let mut weight = vec![1.0];
        for b in 0..n {
            edges.push((b, if b + 1 < n { b + 1 } else { n + 1 }));
            weight.push(0.5);
        }
        for (a, b, w) in raw {
            let edge = (a % n, if b % (n + 1) == n { n + 1 } else { b % (n + 1) });
            if !edges.contains(&edge) {
                edges.push(edge);
                weight.push(w);
            }
        }
        let mut sum = vec![0.0; n + 1];
        edges.iter().zip(&weight).for_each(|(e, w)| sum[e.0] += w);
        let p = edges.iter().zip(&weight).map(|(e, w)| w / sum[e.0]).collect();
        (Network { blocks: n, edges }, p)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Flow conserves itself and is never negative, whatever the evidence.
    #[test]
    fn every_solution_is_a_flow((network, _) in graphs(), seen in prop::collection::vec(0.0_f64..1e4, 40),
                                samples in prop::collection::vec(0.0_f64..1e5, 10)) {
        let mut k = known(&network);
        k.seen.iter_mut().zip(&seen).for_each(|(k, s)| *k = *s);
        k.time.iter_mut().zip(&samples).for_each(|(k, s)| k.samples = *s);
        let flow = solve(&network, &k, Errors::Drawn).expect("solvable");
        for b in 0..network.blocks {
            let sum = |side: fn(&(usize, usize)) -> usize| -> f64 {
                network.edges.iter().zip(&flow.edges).filter(|(e, _)| side(e) == b).map(|(_, f)| f).sum()
            };
            let close = |x: f64| (x - flow.blocks[b]).abs() <= 1e-6 * flow.blocks[b] + 1e-9;
            prop_assert!(flow.blocks[b] >= 0.0 && close(sum(|e| e.0)) && close(sum(|e| e.1)), "{b} {flow:?}");
        }
    }

    /// A planted flow comes back from evidence of its own size, within its own errors.
    #[test]
    fn planted_flows_are_recovered((network, p) in graphs()) {
        let n = network.blocks;
        let plan = Plan::new(&network).expect("small");
        let mut source = vec![0.0; n];
        source[0] = 1.0;
        let truth = plan.with(&p).flow(&source);
        let mut k = known(&network);
        for (e, &(from, _)) in network.edges.iter().enumerate().filter(|(_, e)| e.0 < n) {
            k.seen[e] = 2_000.0 * p[e];
            k.time[from].samples = 1_000.0 * truth[from];
        }
        let flow = solve(&network, &k, Errors::Drawn).expect("solvable");
        let (all, true_all): (f64, f64) = (flow.blocks.iter().sum(), truth.iter().sum());
        for (b, t) in truth.iter().enumerate() {
            let off = (flow.blocks[b] / all / (t / true_all)).ln();
            prop_assert!(off.abs() < 0.1_f64.max(4.0 * flow.block_error[b]), "{b}: {off} {:?}", flow.block_error[b]);
        }
    }
}

#[test]
fn a_thousand_blocks_take_little_time() {
    // Diamonds in a chain inside of loops of ten: 1,000 blocks.
    let n = 1_000;
    let mut edges = vec![(n, 0)];
    for d in 0..n / 4 {
        let b = 4 * d;
        edges.extend([(b, b + 1), (b, b + 2), (b + 1, b + 3), (b + 2, b + 3)]);
        edges.push((b + 3, if b + 4 < n { b + 4 } else { n + 1 }));
        if d % 5 == 4 {
            edges.push((b + 3, b - 16));
        }
    }
    let network = Network { blocks: n, edges };
    let mut k = known(&network);
    k.seen.iter_mut().enumerate().for_each(|(i, s)| *s = (i % 7) as f64 * 30.0);
    k.time.iter_mut().enumerate().for_each(|(i, t)| t.samples = (i % 11) as f64 * 50.0);
    let before = std::time::Instant::now();
    let flow = solve(&network, &k, Errors::Drawn).expect("solvable");
    let took = before.elapsed();
    assert!(flow.blocks.iter().all(|f| f.is_finite()));
    // The bar is 50 ms in release builds; tests are built for speed of building.
    assert!(took.as_millis() < 5_000, "{took:?}");
    println!("{took:?}");
}
