//! What limits the program once a target has become fast: the code of the threads that the target's threads wait
//! for. Lives here: which threads ran what, and which waited for which. Not here: when that is told (a knee). Waits
//! while a target is virtually fast are waits for what would take over; before, such threads seldom wait.

use rustc_hash::FxHashMap;
use whither_sample::causal::{CausalSample, SampleWhat};
use whither_store::causal::{TakesOver, Target};

/// Threads and pairs of threads that are kept in mind; a program that makes threads all the time has more.
const MOST: usize = 4096;
/// Less of the waiting is no answer.
const LEAST_SHARE: f64 = 0.5;
/// Who has run for a lesser part of the time that it was waited for was waiting itself: for the world, or a sleep.
const LEAST_WORK: f64 = 0.5;

/// By thread.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// Samples of each target.
    ran: FxHashMap<u32, FxHashMap<u32, u64>>,
    /// Ticks that one has waited for another.
    waited: FxHashMap<(u32, u32), u64>,
}

impl Threads {
    /// Takes in a sample that has hit these targets.
    pub(super) fn saw(&mut self, sample: &CausalSample, hit: &[u32]) {
        match sample.what {
            SampleWhat::Run => {
                if self.ran.len() >= MOST && !self.ran.contains_key(&sample.tid) {
                    return;
                }
                let own = self.ran.entry(sample.tid).or_default();
                for &target in hit {
                    let n = own.entry(target).or_default();
                    *n = n.saturating_add(u64::from(sample.weight));
                }
            }
            SampleWhat::Blocked { waker: Some((waker, _)), .. } => {
                let pair = (sample.tid, waker);
                if waker != sample.tid && (self.waited.len() < MOST || self.waited.contains_key(&pair)) {
                    let all = self.waited.entry(pair).or_default();
                    *all = all.saturating_add(u64::from(sample.weight));
                }
            }
            SampleWhat::Blocked { .. } => {}
        }
    }

    /// For each target what its threads wait for most, where that is clear.
    pub(super) fn takes_over(&self, targets: &[Target]) -> Vec<TakesOver> {
        (0..targets.len() as u32).filter_map(|target| self.of(target, targets)).collect()
    }

    fn of(&self, target: u32, targets: &[Target]) -> Option<TakesOver> {
        let mut waits: FxHashMap<Option<u32>, f64> = FxHashMap::default();
        for (&(waiter, waker), &ticks) in &self.waited {
            let Some(part) = self.part(waiter, target) else { continue };
            let by = self.busiest(waker, target, targets).filter(|(_, n)| *n as f64 >= LEAST_WORK * ticks as f64);
            *waits.entry(by.map(|(by, _)| by)).or_default() += part * ticks as f64;
        }
        let all: f64 = waits.values().sum();
        let known = waits.into_iter().filter_map(|(by, ticks)| Some((by?, ticks)));
        let (by, most) = known.max_by(|a, b| a.1.total_cmp(&b.1))?;
        (most > LEAST_SHARE * all).then_some(TakesOver { target, by })
    }

    /// How much of a thread's own time a target has: waits of threads that hardly run it are others' waits.
    fn part(&self, thread: u32, target: u32) -> Option<f64> {
        let own = self.ran.get(&thread)?;
        let most = own.values().copied().max()?;
        Some(*own.get(&target)? as f64 / most.max(1) as f64)
    }

    /// What a thread runs most, of targets of one kind, and for how many ticks; nothing where that is the target itself.
    fn busiest(&self, thread: u32, target: u32, targets: &[Target]) -> Option<(u32, u64)> {
        let unit = targets.get(target as usize)?.unit;
        let own = self.ran.get(&thread)?;
        let alike = own.iter().filter(|(t, _)| targets.get(**t as usize).is_some_and(|t| t.unit == unit));
        let most = alike.max_by_key(|(t, n)| (**n, **t)).map(|(t, n)| (*t, *n))?;
        (most.0 != target).then_some(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_sample::causal::WaitClass;
    use whither_store::causal::Unit;

    fn sample(tid: u32, what: SampleWhat) -> CausalSample {
        CausalSample { t_ns: 0, pid: 1, tid, what, site: 1, frames: vec![1], kernel: false, weight: 1 }
    }

    fn target(name: &str) -> Target {
        Target {
            unit: Unit::Function,
            name: name.into(),
            file: "app.c".into(),
            line: 1,
            path: Vec::new(),
            aliases: Vec::new(),
            module: "app".into(),
            image: None,
            ranges: Vec::new(),
        }
    }

    fn ran(threads: &mut Threads, tid: u32, target: u32, times: u32) {
        (0..times).for_each(|_| threads.saw(&sample(tid, SampleWhat::Run), &[target]));
    }

    fn waited(threads: &mut Threads, tid: u32, waker: u32, ticks: u32) {
        let ns = u64::from(ticks) * 1_000_000;
        let what = SampleWhat::Blocked { class: WaitClass::Lock, ns, waker: Some((waker, 7)) };
        threads.saw(&CausalSample { weight: ticks, ..sample(tid, what) }, &[]);
    }

    #[test]
    fn it_is_what_the_other_thread_runs_most() {
        let targets = ["slow", "slower", "other", "little"].map(target);
        let mut threads = Threads::default();
        ran(&mut threads, 1, 0, 50);
        ran(&mut threads, 1, 1, 70);
        ran(&mut threads, 2, 2, 40);
        ran(&mut threads, 2, 3, 5);
        // The other thread waits longer: for these, which are what is slow now.
        waited(&mut threads, 2, 1, 60);
        waited(&mut threads, 1, 2, 3);
        let told = threads.takes_over(&targets);
        let by = |t: u32| told.iter().find(|l| l.target == t).map(|l| l.by);
        assert_eq!((by(0), by(1)), (Some(2), Some(2)));
        assert_eq!((by(2), by(3)), (Some(1), Some(1)));
    }

    #[test]
    fn threads_that_wait_for_their_like_have_no_answer() {
        let targets = ["work", "rest"].map(target);
        let mut threads = Threads::default();
        for tid in 1..4 {
            ran(&mut threads, tid, 0, 50);
            waited(&mut threads, tid, tid % 3 + 1, 10);
        }
        assert_eq!(threads.takes_over(&targets), []);
        // A little of something else is no answer either.
        ran(&mut threads, 9, 1, 50);
        waited(&mut threads, 1, 9, 5);
        assert_eq!(threads.takes_over(&targets), []);
    }

    /// It hands out work in bunches and sleeps between them: what it did at the start, say, limits nothing.
    #[test]
    fn a_thread_that_sleeps_does_not_take_over_with_what_it_ran_once() {
        let targets = ["work", "start"].map(target);
        let told = |ticks| {
            let mut threads = Threads::default();
            ran(&mut threads, 1, 0, 500);
            ran(&mut threads, 2, 1, 50);
            waited(&mut threads, 1, 2, ticks);
            threads.takes_over(&targets)
        };
        assert_eq!(told(90), [TakesOver { target: 0, by: 1 }]);
        assert_eq!(told(300), []);
    }
}
