//! Threads on cores with slices, locks, barriers, queues and timers, in exact time from event to event; and the
//! delays of a virtual speed-up as the kernel side inserts them: a tick every 250 us per core, each fourth a
//! sample, payment by spinning in the thread's place. The truth is the same program with a part really shortened.

use super::rules::{Clock, Clocks, Rules};
use whither_stats::random::Random;

pub(crate) const US: i64 = 1_000;
pub(crate) const MS: i64 = 1_000_000;
const TICK: i64 = 250 * US;
const CAP: i64 = 250 * US;
const SLICE: i64 = 3 * MS;
/// Shorter waits for a core do not count as waiting for it.
const QUEUED: i64 = 20 * US;

/// What a thread does; scripts repeat for ever.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    /// Computes in a part of the program.
    Work(u32, i64),
    Lock(usize),
    Unlock(usize),
    Barrier(usize),
    Push(usize),
    Pop(usize),
    /// A wait for the outside world that is a part of its own.
    Sleep(u32, i64),
    /// Until the next multiple of a period on the clock of the world.
    Tick(i64),
    /// Until the next of arrivals that are so far apart on average, exponentially distributed.
    Arrive(i64),
    /// Reaches a progress point.
    Visit(usize),
}

/// A program: scripts, and the objects they use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) scripts: Vec<Vec<Op>>,
    /// What the first thread does before its script.
    pub(crate) start: Vec<Op>,
    pub(crate) cores: usize,
    pub(crate) barriers: Vec<usize>,
    pub(crate) queues: Vec<usize>,
    pub(crate) locks: usize,
    pub(crate) points: usize,
    /// Names of the parts.
    pub(crate) parts: Vec<&'static str>,
    /// Deviation of each piece of work, relative.
    pub(crate) jitter: f64,
    /// Ticks from one sample to the next: four, or one where threads wake each other all the time.
    pub(crate) ticks: u32,
    /// Time asleep is credited each so often, and at the wake-up.
    pub(crate) lump: i64,
}

impl Program {
    /// With a part really made faster.
    pub(crate) fn scaled(&self, part: u32, s: f64) -> Self {
        let mut program = self.clone();
        for op in program.scripts.iter_mut().flatten() {
            if let Op::Work(p, ns) | Op::Sleep(p, ns) = op
                && *p == part
            {
                *ns = (*ns as f64 * (1.0 - s)) as i64;
            }
        }
        program
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Running(usize),
    Queued,
    /// On an object; another thread ends it.
    Blocked,
    /// Until a time.
    Asleep {
        until: i64,
        absolute: bool,
        part: Option<u32>,
        credited: i64,
    },
}

struct Thread {
    script: Vec<Op>,
    at: usize,
    /// Where the script begins again.
    again: usize,
    /// Of the current work.
    left: i64,
    /// Spinning before work goes on.
    stall: i64,
    state: State,
    queued_at: i64,
    /// In the work of its current operation.
    working: bool,
}

struct Core {
    current: Option<usize>,
    slice_end: i64,
    tick_at: i64,
    ticks: u32,
}

/// Visits of a point in a window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Visits {
    pub(crate) n: u64,
    pub(crate) first: (i64, i64),
    pub(crate) last: (i64, i64),
    pub(crate) sum: i64,
    /// Before the window.
    pub(crate) before: i64,
}

pub(crate) struct Machine {
    program: Program,
    threads: Vec<Thread>,
    cores: Vec<Core>,
    run_queue: Vec<usize>,
    locks: Vec<(Option<usize>, Vec<usize>)>,
    barriers: Vec<Vec<usize>>,
    /// Entries with the clock of who pushed them, who waits to pop, who waits to push.
    queues: Vec<(Vec<i64>, Vec<usize>, Vec<usize>)>,
    pub(crate) now: i64,
    random: Random,
    pub(crate) clocks: Clocks,
    target: u32,
    pub(crate) crediting: bool,
    window_began: i64,
    pub(crate) visits: Vec<Visits>,
    pub(crate) total_visits: Vec<i64>,
    pub(crate) hits: u64,
    pub(crate) samples: u64,
    pub(crate) max_debt: i64,
    /// Part of each sample since this was last emptied.
    pub(crate) seen: Vec<Option<u32>>,
}

impl Machine {
    pub(crate) fn new(program: &Program, rules: Rules, seed: u64) -> Self {
        let starts = std::iter::once(program.start.as_slice()).chain(std::iter::repeat(&[][..]));
        let threads = program.scripts.iter().zip(starts).map(|(script, start)| Thread {
            script: [start, script].concat(),
            at: 0,
            again: start.len(),
            left: 0,
            stall: 0,
            state: State::Queued,
            queued_at: 0,
            working: false,
        });
        let threads: Vec<Thread> = threads.collect();
        let n = threads.len();
        let mut random = Random::new(seed);
        let core = |_| Core { current: None, slice_end: 0, tick_at: random.below(TICK as usize) as i64, ticks: 0 };
        Self {
            cores: (0..program.cores).map(core).collect(),
            run_queue: (0..n).collect(),
            locks: vec![(None, Vec::new()); program.locks],
            barriers: vec![Vec::new(); program.barriers.len()],
            queues: vec![(Vec::new(), Vec::new(), Vec::new()); program.queues.len()],
            now: 0,
            clocks: Clocks { rules, group: 0, clocks: vec![Clock::default(); n], quantum: 0 },
            target: u32::MAX,
            crediting: false,
            window_began: 0,
            visits: vec![Visits::default(); program.points],
            total_visits: vec![0; program.points],
            hits: 0,
            samples: 0,
            max_debt: 0,
            seen: Vec::new(),
            program: program.clone(),
            threads,
            random,
        }
    }

    /// Begins an experiment (R8).
    pub(crate) fn begin(&mut self, target: u32, s: f64) {
        self.clocks.reset(self.now, (s * 1e6) as i64);
        (self.target, self.crediting, self.window_began) = (target, true, self.now);
        (self.hits, self.samples, self.max_debt) = (0, 0, 0);
        let now = self.now;
        for thread in &mut self.threads {
            if let State::Asleep { credited, .. } = &mut thread.state {
                *credited = now;
            }
            thread.queued_at = thread.queued_at.max(now);
        }
        self.count();
    }

    /// Leaves out what was seen of the experiment so far.
    pub(crate) fn count(&mut self) {
        (self.hits, self.samples) = (0, 0);
        for (visits, total) in self.visits.iter_mut().zip(&self.total_visits) {
            *visits = Visits { before: *total, ..Visits::default() };
        }
    }

    /// Stops crediting and lets debts be paid (R9); how long that took.
    pub(crate) fn drain(&mut self) -> i64 {
        self.crediting = false;
        let began = self.now;
        while self.now < began + 50 * MS && (0..self.threads.len()).any(|i| self.owes(i)) {
            self.run(MS);
        }
        self.clocks.reset(self.now, 0);
        self.now - began
    }

    fn owes(&self, i: usize) -> bool {
        matches!(self.threads[i].state, State::Running(_) | State::Queued) && self.clocks.debt(i) > 0
    }

    pub(crate) fn run(&mut self, ns: i64) {
        let end = self.now + ns;
        self.dispatch();
        while self.now < end {
            let next = self.next_event().min(end);
            self.advance(next - self.now);
            self.sleepers();
            self.work_done();
            self.ticks();
            self.slices();
            self.dispatch();
        }
    }

    fn next_event(&self) -> i64 {
        let mut next = i64::MAX;
        for core in &self.cores {
            next = next.min(core.tick_at);
            if let Some(i) = core.current {
                next = next.min(self.now + self.threads[i].stall + self.threads[i].left);
                if !self.run_queue.is_empty() {
                    next = next.min(core.slice_end.max(self.now));
                }
            }
        }
        for thread in &self.threads {
            if let State::Asleep { until, part, credited, .. } = thread.state {
                next = next.min(until);
                if part == Some(self.target) && self.crediting {
                    next = next.min(credited.saturating_add(self.program.lump));
                }
            }
        }
        next
    }

    fn advance(&mut self, dt: i64) {
        self.now += dt;
        for core in &self.cores {
            let Some(i) = core.current else { continue };
            let thread = &mut self.threads[i];
            let spun = dt.min(thread.stall);
            thread.stall -= spun;
            thread.left -= dt - spun;
        }
    }

    fn sleepers(&mut self) {
        for i in 0..self.threads.len() {
            let State::Asleep { until, absolute, part, credited } = self.threads[i].state else { continue };
            if part == Some(self.target)
                && self.crediting
                && (self.now >= credited.saturating_add(self.program.lump) || self.now >= until)
            {
                // Off the CPU the quantum is a share of the time itself.
                self.clocks.credit(i, (self.now - credited) as f64 / 1e6);
                self.hits += 1;
                if let State::Asleep { credited, .. } = &mut self.threads[i].state {
                    *credited = self.now;
                }
            }
            if self.now >= until {
                if absolute {
                    let alone = !self.threads.iter().any(|t| matches!(t.state, State::Running(_) | State::Queued));
                    self.clocks.woken_by_the_world(i, alone);
                }
                self.enqueue(i);
                self.threads[i].at += 1;
            }
        }
    }

    fn enqueue(&mut self, i: usize) {
        self.threads[i].state = State::Queued;
        self.threads[i].queued_at = self.now;
        self.clocks.mark(i, self.now);
        self.run_queue.push(i);
    }

    /// R3: `by` ends the wait of `i`, which tries its operation again.
    fn wake(&mut self, i: usize, by: usize) {
        self.clocks.woken(i, by, self.now);
        self.enqueue(i);
    }

    fn dispatch(&mut self) {
        loop {
            let Some(core) = self.cores.iter().position(|c| c.current.is_none()) else { return };
            if self.run_queue.is_empty() {
                return;
            }
            let i = self.run_queue.remove(0);
            self.give(core, i, None);
        }
    }

    /// Gives a core to a thread, right after another one.
    fn give(&mut self, core: usize, i: usize, after: Option<i64>) {
        if let Some(v) = after.filter(|_| self.now - self.threads[i].queued_at > QUEUED) {
            self.clocks.handed_over(i, v, self.now);
        }
        self.threads[i].state = State::Running(core);
        self.cores[core].current = Some(i);
        self.cores[core].slice_end = self.now + SLICE;
        self.execute(i);
    }

    /// A thread leaves its core, which goes to the next one.
    fn leave(&mut self, i: usize) {
        let State::Running(core) = self.threads[i].state else { return };
        self.cores[core].current = None;
        self.clocks.mark(i, self.now);
        let v = self.clocks.virtual_time(i, self.now);
        self.threads[i].state = State::Blocked;
        if !self.run_queue.is_empty() {
            let next = self.run_queue.remove(0);
            self.give(core, next, Some(v));
        }
    }

    fn work_done(&mut self) {
        for core in 0..self.cores.len() {
            if let Some(i) = self.cores[core].current
                && self.threads[i].stall == 0
                && self.threads[i].left <= 0
            {
                self.execute(i);
            }
        }
    }

    fn slices(&mut self) {
        for core in 0..self.cores.len() {
            if let Some(i) = self.cores[core].current
                && self.now >= self.cores[core].slice_end
                && !self.run_queue.is_empty()
            {
                self.leave(i);
                self.enqueue(i);
            }
        }
    }

    fn ticks(&mut self) {
        for core in 0..self.cores.len() {
            if self.now < self.cores[core].tick_at {
                continue;
            }
            // Lock-step programs alias with a regular tick.
            self.cores[core].tick_at = self.now + (TICK as f64 * (0.9 + 0.2 * self.random.unit())) as i64;
            self.cores[core].ticks += 1;
            let Some(i) = self.cores[core].current else { continue };
            let part = match self.threads[i].script[self.threads[i].at] {
                Op::Work(part, _) => part,
                _ => continue,
            };
            if self.cores[core].ticks.is_multiple_of(self.program.ticks) {
                self.seen.push(Some(part));
                self.samples += 1;
                if self.crediting && part == self.target {
                    self.clocks.credit(i, f64::from(self.program.ticks) / 4.0);
                    self.hits += 1;
                    continue;
                }
            }
            let debt = self.clocks.debt(i);
            self.max_debt = self.max_debt.max(debt);
            if debt > 0 {
                let paid = self.clocks.pay(i, debt.min(CAP));
                self.threads[i].stall += paid;
                // The spin is in the tick: no other comes before it ends.
                self.cores[core].tick_at += paid;
            }
        }
    }

    /// Goes through what takes no time, to the next work or wait.
    fn execute(&mut self, i: usize) {
        let thread = &mut self.threads[i];
        if thread.working {
            if thread.left > 0 || thread.stall > 0 {
                // It was preempted and goes on.
                return;
            }
            thread.working = false;
            thread.at += 1;
        }
        while self.step(i) {}
    }

    /// One operation; false when the thread works or waits now.
    fn step(&mut self, i: usize) -> bool {
        let thread = &mut self.threads[i];
        if thread.at >= thread.script.len() {
            thread.at = thread.again;
        }
        let at = thread.at;
        let done = match self.threads[i].script[at] {
            Op::Work(_, ns) => {
                let factor = (1.0 + self.program.jitter * self.random.normal()).max(0.1);
                self.threads[i].left = ((ns as f64 * factor) as i64).max(1);
                self.threads[i].working = true;
                return false;
            }
            Op::Sleep(part, ns) => {
                let factor = (1.0 + self.program.jitter * self.random.normal()).max(0.1);
                let until = self.now + ((ns as f64 * factor) as i64).max(1);
                return self.sleep(i, until, false, Some(part));
            }
            Op::Tick(period) => return self.sleep(i, (self.now / period + 1) * period, true, None),
            Op::Arrive(mean) => {
                let gap = -(1.0 - self.random.unit()).ln() * mean as f64;
                return self.sleep(i, self.now + (gap as i64).max(1), true, None);
            }
            Op::Visit(point) => self.visit(i, point),
            Op::Lock(lock) => self.lock(i, lock),
            Op::Unlock(lock) => self.unlock(i, lock),
            Op::Barrier(barrier) => return self.barrier(i, barrier),
            Op::Push(queue) => self.push(i, queue),
            Op::Pop(queue) => self.pop(i, queue),
        };
        if done {
            self.threads[i].at += 1;
        } else {
            self.leave(i);
        }
        done
    }

    fn sleep(&mut self, i: usize, until: i64, absolute: bool, part: Option<u32>) -> bool {
        self.leave(i);
        self.threads[i].state = State::Asleep { until, absolute, part, credited: self.now };
        false
    }

    fn visit(&mut self, i: usize, point: usize) -> bool {
        let v = self.clocks.virtual_time(i, self.now) - self.window_began;
        let t = self.now - self.window_began;
        self.total_visits[point] += 1;
        let visits = &mut self.visits[point];
        if visits.n == 0 {
            visits.first = (t, v);
        }
        (visits.last, visits.n, visits.sum) = ((t, v), visits.n + 1, visits.sum + v);
        true
    }

    fn lock(&mut self, i: usize, lock: usize) -> bool {
        let (owner, waiters) = &mut self.locks[lock];
        if owner.is_some() {
            waiters.push(i);
            return false;
        }
        *owner = Some(i);
        true
    }

    fn unlock(&mut self, i: usize, lock: usize) -> bool {
        let (owner, waiters) = &mut self.locks[lock];
        *owner = None;
        if !waiters.is_empty() {
            let next = waiters.remove(0);
            self.wake(next, i);
        }
        true
    }

    fn barrier(&mut self, i: usize, barrier: usize) -> bool {
        self.threads[i].at += 1;
        if self.barriers[barrier].len() + 1 < self.program.barriers[barrier] {
            self.barriers[barrier].push(i);
            self.leave(i);
            return false;
        }
        for other in std::mem::take(&mut self.barriers[barrier]) {
            self.wake(other, i);
        }
        true
    }

    fn push(&mut self, i: usize, queue: usize) -> bool {
        let v = self.clocks.virtual_time(i, self.now);
        let (entries, poppers, pushers) = &mut self.queues[queue];
        if entries.len() >= self.program.queues[queue] {
            pushers.push(i);
            return false;
        }
        entries.push(v);
        if !poppers.is_empty() {
            let next = poppers.remove(0);
            self.wake(next, i);
        }
        true
    }

    fn pop(&mut self, i: usize, queue: usize) -> bool {
        let (entries, poppers, pushers) = &mut self.queues[queue];
        if entries.is_empty() {
            poppers.push(i);
            return false;
        }
        let pushed = entries.remove(0);
        let pusher = (!pushers.is_empty()).then(|| pushers.remove(0));
        self.clocks.took(i, pushed, self.now);
        if let Some(next) = pusher {
            self.wake(next, i);
        }
        true
    }
}
