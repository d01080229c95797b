//! A whole session in the simulator: the policy orders windows, the machine makes them, a run comes out.

use super::machine::{MS, Machine, Program};
use super::rules::Rules;
use whither_causal::{Order, Policy, PolicyOptions, Step};
use whither_store::causal::*;

/// Runs a program under the policy until it is done.
pub(crate) fn session(program: &Program, options: PolicyOptions, rules: Rules) -> CausalRun {
    let mut session = Session {
        machine: Machine::new(program, rules, options.seed ^ 0x5eed),
        run: described(program),
        plain: vec![0; program.parts.len()],
        plain_ns: 0,
        rates: vec![0.0; program.points],
        looked: (0, vec![0; program.points]),
    };
    (session.run.meta.seed, session.run.meta.period_ns) = (options.seed, MS as u64);
    let mut policy = Policy::new(options);
    loop {
        match policy.next(session.machine.now as u64, &session.rates) {
            Step::Rest { ns } => session.pause(&mut policy, ns as i64),
            Step::Warm { ns } => {
                session.pause(&mut policy, ns as i64);
                session.take_rates();
            }
            Step::Window(order) => {
                let window = session.window(&mut policy, &order);
                policy.finished(&window);
                session.run.windows.push(window);
            }
            Step::Done(_) => return session.end(),
        }
    }
}

struct Session {
    machine: Machine,
    run: CausalRun,
    plain: Vec<u64>,
    plain_ns: u64,
    /// Visits per second, as the session has them, and when it looked last with the visits until then.
    rates: Vec<f64>,
    looked: (i64, Vec<i64>),
}

impl Session {
    fn pause(&mut self, policy: &mut Policy, ns: i64) {
        self.machine.run(ns.max(1));
        self.plain_ns += ns as u64;
        self.samples(policy, true);
    }

    /// Rates follow slowly: a window is a short time.
    fn take_rates(&mut self) {
        let now = self.machine.now;
        let seconds = (now - self.looked.0).max(1) as f64 / 1e9;
        for ((rate, total), before) in self.rates.iter_mut().zip(&self.machine.total_visits).zip(&self.looked.1) {
            let new = (total - before) as f64 / seconds;
            *rate += (new - *rate) * if *rate == 0.0 { 1.0 } else { 0.3 };
        }
        self.looked = (now, self.machine.total_visits.clone());
    }

    fn samples(&mut self, policy: &mut Policy, plain: bool) {
        for part in std::mem::take(&mut self.machine.seen) {
            policy.sampled(self.machine.now as u64, part, 1);
            if let Some(part) = part.filter(|_| plain) {
                self.plain[part as usize] += 1;
            }
        }
    }

    fn window(&mut self, policy: &mut Policy, order: &Order) -> Window {
        let machine = &mut self.machine;
        let ordered = machine.now;
        machine.begin(order.target, f64::from(order.percent) / 100.0);
        if order.settle_ns > 0 {
            machine.run(order.settle_ns as i64);
            machine.count();
        }
        let (began, before) = (machine.now, machine.clocks.group.max(0));
        while machine.now < began + order.max_ns as i64
            && (machine.now < began + order.min_ns as i64 || machine.visits[0].n < order.min_visits)
        {
            machine.run(5 * MS);
        }
        let (wall_ns, delay_ns) = ((machine.now - began) as u64, (machine.clocks.group.max(0) - before).max(0) as u64);
        let shift = began - ordered;
        let arrivals = machine.visits.first().map_or(0, |v| v.before);
        let departures = machine.visits.get(1).map_or(arrivals, |v| v.before);
        let visits = machine.visits.iter().enumerate().map(|(i, v)| PointVisits {
            point: i as u32,
            visits: v.n,
            first_ns: (v.first.0 - shift).max(0) as u64,
            last_ns: (v.last.0 - shift).max(0) as u64,
            first_virtual_ns: v.first.1 - (shift - before),
            last_virtual_ns: v.last.1 - (shift - before),
            sum_virtual_ns: v.sum - v.n as i64 * (shift - before),
            under_way: if i == 0 { arrivals - departures } else { 0 },
        });
        let mut window = Window {
            target: order.target,
            percent: order.percent,
            selection: order.selection,
            probability: order.probability,
            stratum: order.stratum,
            begin_ns: began as u64,
            wall_ns,
            delay_ns,
            hits: machine.hits,
            samples: machine.samples,
            visits: visits.collect(),
            threads: 2,
            max_debt_ns: machine.max_debt as u64,
            ..Window::default()
        };
        if order.percent == 0 {
            self.plain_ns += wall_ns + shift as u64;
        }
        window.drain_ns = machine.drain() as u64;
        self.samples(policy, order.percent == 0);
        self.take_rates();
        window
    }

    fn end(mut self) -> CausalRun {
        self.run.meta.duration_ns = self.machine.now as u64;
        for (i, plain) in self.plain.iter().enumerate() {
            let (target, plain_ns) = (Some(i as u32), self.plain_ns);
            self.run.samples.push(TargetSamples { target, stratum: 0, plain: *plain, plain_ns, all: *plain });
        }
        self.run
    }
}

fn described(program: &Program) -> CausalRun {
    let point = |i: usize| ProgressPoint {
        name: format!("point {i}"),
        kind: PointKind::Probe,
        end: (program.points == 2 && i == 0).then_some(1),
    };
    let target = |name: &&str| Target {
        unit: Unit::Function,
        name: (*name).to_owned(),
        file: "program.c".to_owned(),
        line: 1,
        path: Vec::new(),
        aliases: Vec::new(),
        module: "program".to_owned(),
        image: None,
        ranges: Vec::new(),
    };
    CausalRun {
        points: (0..program.points).map(point).collect(),
        targets: program.parts.iter().map(target).collect(),
        ..CausalRun::default()
    }
}
