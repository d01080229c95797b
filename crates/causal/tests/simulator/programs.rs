//! Programs whose curves are known: exactly, or by really shortening a part.

use super::machine::{MS, Machine, Op, Program, US};
use super::rules::Rules;
use Op::{Arrive, Barrier, Lock, Pop, Push, Sleep, Tick, Unlock, Visit, Work};

fn base(scripts: Vec<Vec<Op>>, parts: &[&'static str]) -> Program {
    Program {
        scripts,
        cores: 2,
        points: 1,
        parts: parts.to_vec(),
        jitter: 0.02,
        ticks: 4,
        lump: MS,
        ..Program::default()
    }
}

/// K1: one thread, f 6 ms, g 4 ms. f: 0.6 s, g: 0.4 s.
pub(crate) fn serial() -> Program {
    base(vec![vec![Work(0, 6 * MS), Work(1, 4 * MS), Visit(0)]], &["f", "g"])
}

/// K2: a 10 ms, b 7.5 ms, barrier. a: min(s, 0.25), b: 0.
pub(crate) fn two_threads() -> Program {
    let scripts = vec![vec![Work(0, 10 * MS), Barrier(0), Visit(0)], vec![Work(1, 7_500 * US), Barrier(0)]];
    Program { barriers: vec![2], ..base(scripts, &["a", "b"]) }
}

/// K2 after seconds of start-up, in which it has a visit a second, or none.
pub(crate) fn two_threads_after(seconds: usize, visits: bool) -> Program {
    let second = [Work(2, 1_000 * MS), Visit(0)];
    let second = if visits { &second[..] } else { &second[..1] };
    Program { start: second.repeat(seconds), parts: vec!["a", "b", "start"], ..two_threads() }
}

/// K2 with a rare part in the thread that matters: rare 0.1 s.
pub(crate) fn rare() -> Program {
    let first = vec![Work(0, 9 * MS), Work(2, MS), Barrier(0), Visit(0)];
    let scripts = vec![first, vec![Work(1, 7_500 * US), Barrier(0)]];
    Program { barriers: vec![2], ..base(scripts, &["a", "b", "rare"]) }
}

/// K3: produce 1 ms, consume 0.6 ms, queue of 16. produce: min(s, 0.4), consume: 0.
pub(crate) fn producer_consumer() -> Program {
    let scripts = vec![vec![Work(0, MS), Push(0)], vec![Pop(0), Work(1, 600 * US), Visit(0)]];
    Program { queues: vec![16], ticks: 1, ..base(scripts, &["produce", "consume"]) }
}

/// K4: threads with a critical and a private section.
pub(crate) fn locked(threads: usize, critical: i64, private: i64) -> Program {
    let script = vec![Lock(0), Work(0, critical), Unlock(0), Work(1, private), Visit(0)];
    Program { locks: 1, ticks: 1, ..base(vec![script; threads], &["critical", "private"]) }
}

/// K5: cpu 5 ms, sleep 5 ms: half each.
pub(crate) fn sleepy() -> Program {
    base(vec![vec![Work(0, 5 * MS), Sleep(1, 5 * MS), Visit(0)]], &["cpu", "wait"])
}

/// K8: arrivals by the clock, one server of 4 ms.
pub(crate) fn served(random: bool) -> Program {
    let arrival = if random { Arrive(10 * MS) } else { Tick(10 * MS) };
    let scripts = vec![vec![arrival, Visit(0), Push(0)], vec![Pop(0), Work(0, 4 * MS), Visit(1)]];
    Program { queues: vec![1 << 20], points: 2, jitter: 0.0, ..base(scripts, &["serve"]) }
}

/// K10: six independent threads on two cores. f: 0.6 s, g: 0.4 s.
pub(crate) fn oversubscribed() -> Program {
    base(vec![vec![Work(0, 6 * MS), Work(1, 4 * MS), Visit(0)]; 6], &["f", "g"])
}

/// K12: sleep 10 ms against compute 7.5 ms, barrier. wait: min(s, 0.25), compute: 0.
pub(crate) fn sleep_barrier() -> Program {
    let scripts = vec![vec![Sleep(0, 10 * MS), Barrier(0), Visit(0)], vec![Work(1, 7_500 * US), Barrier(0)]];
    Program { barriers: vec![2], ..base(scripts, &["wait", "compute"]) }
}

/// K13: 5 ms of work every 10 ms by an absolute timer: 0.
pub(crate) fn ticker() -> Program {
    base(vec![vec![Tick(10 * MS), Work(0, 5 * MS), Visit(0)]], &["work"])
}

/// Effect of really shortening a part.
pub(crate) fn truth(program: &Program, part: u32, s: f64) -> f64 {
    let rate = |program: &Program| {
        let mut machine = Machine::new(program, Rules::ALL, 3);
        machine.run(20_000 * MS);
        machine.total_visits[0] as f64
    };
    1.0 - rate(program) / rate(&program.scaled(part, s))
}

/// Effect of the virtual speed-up: eight windows of 450 ms with it, as many without.
pub(crate) fn predicted(program: &Program, part: u32, s: f64, rules: Rules) -> f64 {
    let mut machine = Machine::new(program, rules, 11);
    machine.run(200 * MS);
    let mut sums = [(0.0, 0.0); 2];
    for window in 0..16 {
        let side = window % 2;
        machine.begin(part, if side == 1 { s } else { 0.0 });
        machine.run(450 * MS);
        let visits = machine.visits[0];
        if visits.n > 1 {
            sums[side].0 += (visits.last.1 - visits.first.1) as f64;
            sums[side].1 += (visits.n - 1) as f64;
        }
        machine.drain();
        machine.run(7 * MS);
    }
    1.0 - (sums[1].0 / sums[1].1) / (sums[0].0 / sums[0].1)
}
