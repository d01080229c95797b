//! How long the threads of one process lived. The kernel's side tells exactly, as each ends; where it may not be
//! used, looks at /proc must do: what ends between two of them was never seen, so the number of threads at each look
//! stands for the time around it, and how far that may be off is told. Not here: who looks, and when.

use crate::target::{Lived, Queue};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
struct Life {
    first: u64,
    last: u64,
    /// How it got CPUs: before it was met, and up to the last look that asked.
    queues: (Queue, Queue),
}

impl Life {
    fn of(first: u64, last: u64) -> Self {
        Self { first, last, queues: Default::default() }
    }
}

/// Threads of a process.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    since: u64,
    /// Those seen; where the kernel's side counts, those alive at the last look.
    seen: BTreeMap<u32, Life>,
    looked: u64,
    present: u64,
    /// Threads present at looks, times the time between.
    area: u64,
    unsure: u64,
    vanished: u32,
    /// From the kernel's side: all that have ended.
    counted: Option<Lived>,
    over: bool,
    /// Of programs that the process was before.
    before: (u64, u32, u64, Queue),
}

impl Lives {
    /// Those of a process of which counts what happens from then on.
    pub(crate) fn since(since: u64) -> Self {
        Self { since, ..Self::default() }
    }

    pub(crate) fn begin(&self) -> u64 {
        self.since
    }

    /// Threads that were there at some moment.
    pub(crate) fn look(&mut self, now: u64, tids: &[u32]) {
        let passed = now.saturating_sub(self.looked);
        let first_look = self.looked == 0;
        let (mut stayed, mut came) = (0, 0);
        for &tid in tids {
            let life = self.seen.get_mut(&tid).filter(|l| l.last == self.looked && !first_look);
            match life {
                Some(life) => (life.last, stayed) = (now, stayed + 1),
                None => {
                    came += 1;
                    self.seen.entry(tid).or_insert(Life::of(now, now)).last = now;
                }
            }
        }
        let went = self.present.saturating_sub(stayed);
        if !first_look {
            self.area = self.area.saturating_add((self.present + tids.len() as u64) * passed / 2);
            self.unsure = self.unsure.saturating_add((came + went) * passed);
            self.vanished = self.vanished.saturating_add(went as u32);
        }
        (self.looked, self.present) = (now, tids.len() as u64);
        if self.counted.is_some() {
            self.seen.retain(|_, life| life.last == now);
        }
    }

    /// A thread that was seen at work, from when on; `ended`: its process has.
    pub(crate) fn meet(&mut self, tid: u32, first: u64, ended: Option<u64>) {
        if self.counted.is_some() {
            return;
        }
        let last = ended.unwrap_or(first).max(first);
        let life = self.seen.entry(tid).or_insert(Life::of(first, last));
        // Only of the first thread with this number anything is known.
        if life.last >= first {
            life.first = life.first.min(first);
        }
    }

    /// Threads that were there at the last look lived on to the end, as far as anybody knows.
    pub(crate) fn end(&mut self, at: u64) {
        let looked = self.looked;
        for life in self.seen.values_mut().filter(|l| l.last == looked) {
            life.last = life.last.max(at);
        }
        self.area = self.area.saturating_add(self.present * at.saturating_sub(looked));
        self.vanished = self.vanished.saturating_add(self.present as u32);
        (self.looked, self.present, self.over) = (self.looked.max(at), 0, true);
    }

    /// Takes over what the kernel's side has counted, together with who lives: no thread may be in both or in none.
    pub(crate) fn count(&mut self, lived: &dyn Fn() -> Option<Lived>, threads: &dyn Fn() -> Vec<u32>) {
        const TRIES: usize = 8;
        let mut counted = lived();
        for _ in 0..TRIES {
            let Some(_) = counted else { return };
            let tids = threads();
            if self.over {
                // A leader that has ended may have threads that are still about to.
                if tids.len() > 1 {
                    return;
                }
                self.seen.clear();
                break;
            }
            let again = lived();
            if again == counted {
                let looked = self.looked;
                self.look(looked.max(whither_kernel::clock::monotonic_ns()), &tids);
                break;
            }
            counted = again;
        }
        self.counted = counted;
    }

    /// The process goes on as something else.
    pub(crate) fn close(&mut self, now: u64) {
        let before = (self.ns(), self.ended().saturating_add(self.alive()), self.unsure(), self.queue());
        *self = Self { since: now, before, ..Self::default() };
    }

    /// Asks how threads that were there at the last look got CPUs. Of very many the first ones stand for all.
    pub(crate) fn ask_queues(&mut self, of: &dyn Fn(u32) -> Queue) {
        const MOST: usize = 64;
        let looked = self.looked;
        for (tid, life) in self.seen.iter_mut().filter(|(_, life)| life.last == looked).take(MOST) {
            let now = of(*tid);
            if life.queues == Default::default() && life.first == looked {
                life.queues.0 = now;
            }
            if now != Queue::default() {
                life.queues.1 = now;
            }
        }
    }

    /// How all got CPUs, as far as that was seen.
    pub(crate) fn queue(&self) -> Queue {
        let ended = self.counted.map_or(Queue::default(), |c| c.queue);
        let seen = self.seen.values().map(|life| life.queues.1.less(life.queues.0));
        seen.fold(self.before.3.with(ended), Queue::with)
    }

    /// Sum of all lifetimes.
    pub(crate) fn ns(&self) -> u64 {
        let of = |l: &Life| l.last.saturating_sub(l.first);
        let now = match self.counted {
            Some(counted) => counted.ns + self.seen.values().filter(|l| l.last == self.looked).map(of).sum::<u64>(),
            None => self.area.max(self.seen.values().map(of).sum()),
        };
        self.before.0.saturating_add(now)
    }

    /// How far that may be off.
    pub(crate) fn unsure(&self) -> u64 {
        self.before.2 + if self.counted.is_some() { 0 } else { self.unsure }
    }

    pub(crate) fn alive(&self) -> u32 {
        u32::try_from(self.present).unwrap_or(u32::MAX)
    }

    /// Threads that have ended, as far as they were seen.
    pub(crate) fn ended(&self) -> u32 {
        let now = self.counted.map_or(self.vanished, |c| u32::try_from(c.threads).unwrap_or(u32::MAX));
        self.before.1.saturating_add(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn threads_that_live_between_looks_are_all_counted_by_the_kernel() {
        let mut lives = Lives::since(0);
        lives.look(1000 * MS, &[1]);
        for round in 0..20_u32 {
            let from = 10 + round * 4;
            lives.look((1050 + u64::from(round) * 50) * MS, &[1, from, from + 1, from + 2, from + 3]);
        }
        let looked = lives.looked;
        lives.counted = Some(Lived { ns: 3245 * MS, threads: 799, ..Lived::default() });
        assert_eq!(looked, 2000 * MS);
        lives.end(2100 * MS);
        assert!(lives.ns() >= 4345 * MS, "who was there lived on to the end");
        lives.count(&|| Some(Lived { ns: 4345 * MS, threads: 800, ..Lived::default() }), &Vec::new);
        assert_eq!((lives.ns(), lives.ended(), lives.unsure()), (4345 * MS, 800, 0));
    }

    #[test]
    fn where_only_looks_tell_they_stand_for_the_time_between_and_are_unsure() {
        let mut lives = Lives::since(0);
        lives.look(1000 * MS, &[1, 2, 3]);
        for look in 1..=20_u32 {
            lives.look((1000 + u64::from(look) * 50) * MS, &[1, 2 * look + 2, 2 * look + 3]);
        }
        lives.end(2000 * MS);
        assert_eq!(lives.ns(), 3000 * MS, "three at any time");
        assert!(lives.unsure() > 1000 * MS);
    }

    #[test]
    fn threads_that_stay_are_known_for_sure() {
        let mut lives = Lives::since(0);
        lives.look(1000 * MS, &[1, 2]);
        lives.look(1500 * MS, &[1, 2]);
        lives.end(1600 * MS);
        assert_eq!((lives.ns(), lives.unsure(), lives.alive(), lives.ended()), (1200 * MS, 0, 0, 2));
    }

    #[test]
    fn a_process_that_goes_on_as_another_program_keeps_what_it_had() {
        let mut lives = Lives::since(0);
        lives.look(10 * MS, &[1]);
        lives.count(&|| Some(Lived { ns: 7 * MS, threads: 2, ..Lived::default() }), &|| vec![1]);
        let had = lives.ns();
        assert!(had >= 7 * MS);
        lives.close(20 * MS);
        assert_eq!((lives.ns(), lives.begin()), (had, 20 * MS));
    }
}
