//! What holds for any observations: every amount and target keeps its chance, blocks are balanced, equal
//! observations give equal steps.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use whither_store::causal::PointVisits;

/// A program whose targets have these shares, and that gains by target 0 only.
struct Fake {
    policy: Policy,
    random: Random,
    shares: Vec<f64>,
    now: u64,
}

impl Fake {
    fn new(options: PolicyOptions, shares: &[f64], seed: u64) -> Self {
        Self { policy: Policy::new(options), random: Random::new(seed), shares: shares.to_vec(), now: 5_000 }
    }

    fn run(&mut self, ns: u64) {
        for _ in 0..ns / 1_000_000 {
            let mut dice = self.random.unit();
            let hit = self.shares.iter().position(|s| {
                dice -= s;
                dice < 0.0
            });
            self.policy.sampled(self.now, hit.map(|h| h as u32), 1);
        }
        self.now += ns;
    }

    fn orders(&mut self, n: usize) -> Vec<Order> {
        let mut orders = Vec::new();
        while orders.len() < n {
            match self.policy.next(self.now, &[200.0]) {
                Step::Warm { ns } | Step::Rest { ns } => self.run(ns.max(1)),
                Step::Done(_) => break,
                Step::Window(order) => {
                    let window = self.window(&order);
                    self.policy.finished(&window);
                    orders.push(order);
                }
            }
        }
        orders
    }

    fn window(&mut self, order: &Order) -> Window {
        let begin_ns = self.now;
        self.run(order.min_ns);
        let y = if order.target == 0 { 0.5 * f64::from(order.percent) / 100.0 } else { 0.0 };
        let period = 5e6 * (1.0 - y) * (1.0 + 0.02 * self.random.normal());
        let visits = order.min_ns / 5_000_000;
        let last = (period * (visits.max(1) - 1) as f64) as i64;
        Window {
            target: order.target,
            percent: order.percent,
            selection: order.selection,
            stratum: order.stratum,
            begin_ns,
            wall_ns: order.min_ns,
            visits: vec![PointVisits {
                visits,
                last_ns: order.min_ns,
                last_virtual_ns: last,
                ..PointVisits::default()
            }],
            ..Window::default()
        }
    }
}

const SHARES: [f64; 4] = [0.6, 0.3, 0.05, 0.004];

#[test]
fn about_half_of_the_windows_are_zeros_and_every_target_and_amount_comes() {
    for policy in [PolicyKind::Adaptive, PolicyKind::Paper] {
        let orders = Fake::new(PolicyOptions { policy, ..PolicyOptions::default() }, &SHARES, 1).orders(3000);
        let zeros = orders.iter().filter(|o| o.percent == 0).count() as f64 / 3000.0;
        // Half of the lottery, two of five in blocks.
        let wanted = if policy == PolicyKind::Paper { 0.5 } else { 0.43 };
        assert!((zeros - wanted).abs() < 0.05, "{zeros}");
        for target in 0..4 {
            assert!(orders.iter().any(|o| o.target == target), "{target}");
        }
        for percent in (5..=100).step_by(5) {
            assert!(orders.iter().any(|o| o.percent == percent), "{percent}");
        }
        assert!(orders.iter().all(|o| o.probability > 0.0 && o.probability <= 1.0));
        let lottery = orders.iter().filter(|o| o.selection == Selection::Lottery).count() as f64 / 3000.0;
        let expected = if policy == PolicyKind::Paper { 1.0 } else { 0.3 };
        assert!(lottery >= expected - 0.03, "{lottery}");
    }
}

#[test]
fn the_probability_is_that_of_the_choice() {
    let orders = Fake::new(PolicyOptions::default(), &SHARES, 4).orders(2000);
    // The sum of 1/p over the windows of a target estimates the number of all windows.
    for target in 0..2 {
        let sum: f64 = orders.iter().filter(|o| o.target == target).map(|o| 1.0 / o.probability).sum();
        assert!((sum / 2000.0 - 1.0).abs() < 0.15, "{target}: {sum}");
    }
}

#[test]
fn uncertain_and_promising_targets_get_more() {
    let count = |policy| {
        let orders = Fake::new(PolicyOptions { policy, ..PolicyOptions::default() }, &[0.1, 0.9], 3).orders(1000);
        orders.iter().filter(|o| o.target == 0).count()
    };
    assert!(count(PolicyKind::Adaptive) > 2 * count(PolicyKind::Paper));
}

#[test]
fn lines_get_blocks_once_their_function_matters() {
    let mut fake = Fake::new(PolicyOptions::default(), &[0.5, 0.3], 3);
    // Line 2 is in function 0, which gains; line 3 in function 1, which does not.
    fake.policy.declare(2, Unit::Line, Some(0));
    fake.policy.declare(3, Unit::Line, Some(1));
    fake.shares = vec![0.4, 0.2, 0.2, 0.2];
    let orders = fake.orders(1000);
    let blocks = |t: u32| orders.iter().filter(|o| o.target == t && o.selection == Selection::Block).count();
    assert!(blocks(2) > 30, "{}", blocks(2));
    assert_eq!(orders.iter().filter(|o| o.target == 2 && o.stratum == 0 && o.selection == Selection::Block).count(), 0);
    assert!(blocks(3) < blocks(2) / 3, "{} {}", blocks(3), blocks(2));
    assert!(orders.iter().any(|o| o.target == 3), "the lottery keeps it");
}

#[test]
fn few_visits_lengthen_the_windows() {
    let options = PolicyOptions { max_window_ns: 1_600_000_000, ..PolicyOptions::default() };
    let mut policy = Policy::new(options);
    policy.sampled(0, Some(0), 300);
    let mut lengths = Vec::new();
    let mut now = 0;
    while lengths.len() < 8 {
        match policy.next(now, &[]) {
            Step::Window(order) => {
                lengths.push(order.min_ns / 1_000_000);
                let visits = vec![PointVisits { visits: 1, ..PointVisits::default() }];
                policy.finished(&Window { wall_ns: order.min_ns, visits, ..Window::default() });
            }
            Step::Rest { ns } | Step::Warm { ns } => now += ns,
            Step::Done(_) => break,
        }
    }
    assert_eq!(lengths, [100, 200, 400, 800, 1600, 1600, 1600, 1600]);
}

/// A visit every 5 s asks for windows of 8 s, but after one second nobody knows whether that goes on.
#[test]
fn rare_visits_are_not_believed_at_once() {
    let mut fake = Fake::new(PolicyOptions::default(), &SHARES, 1);
    fake.policy.next(fake.now, &[]);
    fake.run(1_000_000_000);
    let length = |policy: &mut Policy, now: u64| match policy.next(now, &[0.2]) {
        Step::Window(order) => order.min_ns,
        other => panic!("{other:?}"),
    };
    assert_eq!(length(&mut fake.policy, fake.now), 500_000_000);
    fake.run(20_000_000_000);
    assert_eq!(length(&mut fake.policy, fake.now), 8_000_000_000);
}

#[test]
fn duty_cool_off_time_and_fixed_choices() {
    let options =
        PolicyOptions { duty_percent: 25, fixed_target: Some(7), fixed_percent: Some(40), ..PolicyOptions::default() };
    let mut fake = Fake::new(PolicyOptions { max_ns: Some(30_000_000_000), ..options }, &SHARES, 1);
    let orders = fake.orders(1_000_000);
    assert!((60..=75).contains(&orders.len()), "{}", orders.len());
    assert!(orders.iter().all(|o| o.target == 7 && (o.percent == 0 || o.percent == 40)));
    assert!(orders.iter().all(|o| o.selection == Selection::Fixed));
    assert_eq!(fake.policy.next(fake.now, &[]), Step::Done(DoneReason::Time));
    let mut paper = Policy::new(PolicyOptions { policy: PolicyKind::Paper, ..PolicyOptions::default() });
    paper.finished(&Window::default());
    assert_eq!(paper.next(0, &[]), Step::Rest { ns: 10_000_000 });
}

#[test]
fn it_stops_when_the_intervals_are_narrow() {
    let options = PolicyOptions { until_points: Some(2.0), max_ns: Some(600_000_000_000), ..PolicyOptions::default() };
    let mut fake = Fake::new(options, &SHARES, 2);
    let orders = fake.orders(1_000_000);
    assert_eq!(fake.policy.next(fake.now, &[]), Step::Done(DoneReason::Narrow));
    assert!(orders.len() < 600, "{}", orders.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn equal_observations_give_equal_steps(seed in any::<u64>(), a in 0.01..0.6_f64, b in 0.001..0.4_f64) {
        let options = PolicyOptions { seed, ..PolicyOptions::default() };
        let orders = |world| Fake::new(options.clone(), &[a, b], world).orders(200);
        prop_assert_eq!(orders(3), orders(3));
        prop_assert_ne!(orders(3), orders(4));
    }

    #[test]
    fn blocks_are_balanced(seed in any::<u64>(), shares in prop::collection::vec(0.001..0.3_f64, 1..8), windows in 1.0..500.0_f64) {
        let candidates: Vec<Candidate> = shares.iter().enumerate()
            .map(|(i, &share)| Candidate { target: i as u32, share, estimate: None }).collect();
        let amounts = Amounts { all: (1..=20).map(|i| 5 * i).collect(), assume: 30 };
        let plan = allocation::plan(&candidates, windows, &amounts, &mut Random::new(seed));
        let mut sums: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        for p in &plan {
            let of = sums.entry(p.target).or_default();
            if p.percent == 0 { of.0 += 1 } else { of.1 += 1 }
        }
        prop_assert!(sums.values().all(|(zeros, others)| 3 * zeros == 2 * others && *zeros >= 2));
        for (target, (_, others)) in sums {
            let near = plan.iter().filter(|p| p.target == target && (15..=45).contains(&p.percent)).count();
            prop_assert!(3 * near >= 2 * others, "two of three in a block are close to 30 %: {near} of {others}");
        }
        prop_assert!(plan.len() as f64 <= windows + 5.0 * (shares.len() + 1) as f64);
    }

    #[test]
    fn every_target_keeps_a_chance(share in 0.001..1.0_f64, low in -1.0..0.0_f64, high in 0.0..1.0_f64) {
        let small = Candidate { target: 0, share, estimate: Some(allocation::Range { low: low / 1e3, high: high / 1e3, windows: 9 }) };
        let large = Candidate { target: 1, share: 1.0, estimate: None };
        let planned = |seed| {
            let plan = allocation::plan(&[small, large], 70.0, &Amounts { all: vec![10, 50, 90], assume: 30 }, &mut Random::new(seed));
            plan.iter().any(|p| p.target == 0)
        };
        prop_assert!((0..2000).any(planned));
    }
}

#[test]
fn a_policy_that_begins_anew_forgets_windows_and_keeps_its_strata_apart() {
    let mut fake = Fake::new(PolicyOptions::default(), &SHARES, 5);
    let last = fake.orders(40).last().map(|o| o.stratum).unwrap();
    fake.policy.anew();
    assert!(fake.policy.windows.is_empty() && fake.policy.before.is_empty());
    let next = fake.orders(1);
    assert_eq!(next[0].stratum, last + 1, "a stratum of windows of both kinds");
    assert!(next[0].stratum < carry::SETTLED, "no more time to settle was asked for");
}

/// 400 visits of 2 ms, then 150 ms without one.
#[test]
fn pauses_of_the_program_lengthen_the_windows() {
    let lengths = |pause_ns: u64| {
        let mut fake = Fake::new(PolicyOptions::default(), &[0.8, 0.2], 3);
        let cycle = 800_000_000 + pause_ns;
        let mut lengths = Vec::new();
        while lengths.len() < 120 {
            match fake.policy.next(fake.now, &[450.0]) {
                Step::Warm { ns } | Step::Rest { ns } => fake.run(ns.max(1)),
                Step::Done(_) => break,
                Step::Window(order) => {
                    fake.now += order.settle_ns;
                    let begin = fake.now;
                    let end = begin + order.min_ns;
                    // Visits end at even milliseconds of the part of the cycle that is not the pause.
                    let of = (begin..end).step_by(1_000_000).map(|at| at / 1_000_000 * 1_000_000);
                    let at: Vec<u64> = of
                        .filter(|at| at / 1_000_000 % 2 == 0 && at % cycle < 800_000_000 && *at > begin)
                        .map(|at| at - begin)
                        .collect();
                    let mut window = fake.window(&order);
                    let (first, last) = (at.first().copied().unwrap_or(0), at.last().copied().unwrap_or(0));
                    window.visits[0] = PointVisits {
                        visits: at.len() as u64,
                        first_ns: first,
                        last_ns: last,
                        first_virtual_ns: first as i64,
                        last_virtual_ns: last as i64,
                        ..PointVisits::default()
                    };
                    fake.policy.finished(&window);
                    lengths.push(order.min_ns / 1_000_000);
                }
            }
        }
        lengths
    };
    let long = lengths(150_000_000);
    assert!(long[0] == 100 && (400..=1600).contains(long.last().unwrap()), "{long:?}");
    assert!(lengths(0).iter().all(|l| *l == 100), "{:?}", lengths(0));
}
