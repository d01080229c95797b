//! The life of a window: all clocks at 0, the target armed, counting from when the program has settled, the debts
//! paid at its end, and what was seen meanwhile.

use super::super::visits::since;
use super::super::words::{Sums, cpu, ctl};
use super::super::{Asked, Facts, now, outside};
use super::{CausalBpf, Kind};
use crate::SampleError;
use libbpf_rs::MapCore;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use whither_abi::causal as abi;
use whither_kernel::affinity::Reach;
use whither_kernel::clock;

/// Debts that are not paid after so long are forgiven.
const DRAIN: Duration = Duration::from_millis(50);

/// So many turns that no tick meets, or that begin with a debt, are no chance; a thread that has to do with no other one counts for
/// eight.
const HASTY: u64 = 100;

/// State of the machine and of all counters when the window was opened.
pub(super) struct Opened {
    begin: u64,
    /// Whether the kernel side had not heard of us for so long that it fell silent.
    silent: bool,
    sums: Sums,
    counted: Counted,
}

/// The same when it began to count.
struct Counted {
    at: u64,
    delay_ns: u64,
    /// Visits of each point before.
    ever: Vec<u64>,
    sums: Sums,
    outside: outside::Outside,
    /// Our own CPU time.
    own_ns: u64,
    /// CPUs that the program may use: who runs on others is not in its way.
    reach: Reach,
}

impl CausalBpf {
    /// Opens a window: all clocks begin at 0, hits are worth so many percent of the time they stand for.
    ///
    /// # Errors
    /// When a window is open, or the kernel refuses.
    pub fn begin(&mut self, percent: u8) -> Result<(), SampleError> {
        self.must_be_closed("opening a window")?;
        self.sees_to_the_hasty()?;
        self.write_target(percent)?;
        for words in self.words.each_cpu() {
            words[cpu!(max_debt)].store(0, Relaxed);
            words[cpu!(owing)].store(0, Relaxed);
            words[cpu!(credit)].store(0, Relaxed);
            words[cpu!(waits)].store(0, Relaxed);
        }
        for tick in 0..self.ticks.len() {
            let ns = self.drawn();
            self.set_period(tick, ns)?;
        }
        let pids = self.processes();
        self.words.set(ctl!(g), 0);
        let counted = self.counts_from_now(&pids);
        let opened = Opened { begin: counted.at, silent: false, sums: counted.sums, counted };
        let w = &self.words;
        w.set(ctl!(begin), opened.begin);
        w.set(ctl!(stopped), 0);
        w.set(ctl!(absolute_points), 0);
        w.set(ctl!(record_every), self.recorded_every());
        // Clocks of the last window read as 0 from here on.
        w.set(ctl!(epoch), (w.get(ctl!(epoch)) + 1) & u64::from(u32::MAX));
        w.set(ctl!(beat), now());
        w.set(ctl!(state), abi::STATE_ON);
        self.open = Some(opened);
        Ok(())
    }

    /// Threads whose turns are over before a tick meets them, or that owe when the world wakes them, pay on their way out of the
    /// system call in which that was: a lock that they take first would be held for as much longer, and all others
    /// with it, so that a writer on a timer and its readers would stay in step as if nothing had been made faster. That takes a look at all system calls of the machine, some 50 ns each: where nobody else
    /// is there to be paid, or turns are longer, it is spared.
    fn sees_to_the_hasty(&mut self) -> Result<(), SampleError> {
        if self.words.hasty() < HASTY || self.has_one_thread() {
            return Ok(());
        }
        self.watch_calls()
    }

    fn has_one_thread(&self) -> bool {
        self.skel.maps.threads.keys().nth(1).is_none()
    }

    /// Leaves out what was seen of the open window so far: the program's way from the pace of the window before
    /// to that of this one. `paid`: all debts are paid first; for points whose visits have no times.
    ///
    /// # Errors
    /// When none is open.
    pub fn settled(&mut self, paid: bool) -> Result<(), SampleError> {
        self.beat();
        let why = || SampleError::Bpf { what: "counting in a window", why: "none is open; begin() comes first".into() };
        let mut opened = self.open.take().ok_or_else(why)?;
        let owed = self.words.get(ctl!(g)) > 0;
        if paid && owed {
            self.words.set(ctl!(state), abi::STATE_DRAIN);
            self.settle();
            let delay_ns = self.delay();
            self.drain(delay_ns);
        }
        let pids = self.processes();
        opened.counted = self.counts_from_now(&pids);
        self.words.set(ctl!(state), abi::STATE_ON);
        self.open = Some(opened);
        Ok(())
    }

    fn counts_from_now(&self, pids: &[u32]) -> Counted {
        let reach = Reach::of(pids);
        let (sums, outside) = (self.words.sums(&reach), outside::Outside::read(pids));
        let ever = (0..self.points.len() as u32).map(|point| self.words.ever(point)).collect();
        let (at, delay_ns) = (now(), self.delay());
        self.words.count_from_now();
        Counted { at, delay_ns, ever, sums, outside, own_ns: clock::own_cpu_ns(), reach }
    }

    /// Delay that every thread owes or has paid.
    fn delay(&self) -> u64 {
        self.words.get(ctl!(g)).cast_signed().max(0).cast_unsigned()
    }

    /// Shows the kernel side that somebody is there; at least every 20 ms while a window is open.
    pub fn beat(&mut self) {
        let (last, now) = (self.words.get(ctl!(beat)), now());
        if let Some(open) = &mut self.open {
            open.silent |= now.saturating_sub(last.max(open.begin)) >= abi::SILENCE_NS;
        }
        self.words.set(ctl!(beat), now);
    }

    /// Closes the window: stops crediting, lets debts be paid, reads.
    ///
    /// # Errors
    /// When none is open, or the kernel refuses.
    pub fn end(&mut self) -> Result<Facts, SampleError> {
        let why = || SampleError::Bpf { what: "closing a window", why: "none is open; begin() comes first".into() };
        self.beat();
        let opened = self.open.take().ok_or_else(why)?;
        self.words.set(ctl!(state), abi::STATE_DRAIN);
        let stopped_at = now();
        self.settle();
        let delay_ns = self.delay();
        let sums = self.words.sums(&opened.counted.reach);
        let (in_window, in_count) = (sums.since(&opened.sums), sums.since(&opened.counted.sums));
        let drained = self.drain(delay_ns);
        self.words.set(ctl!(state), abi::STATE_OFF);
        self.settle();
        let drain_ns = now() - stopped_at;
        self.words.set(ctl!(record_every), 1);
        for tick in 0..self.ticks.len() {
            self.set_period(tick, self.config.period_ns)?;
        }
        let mut facts = self.facts(&opened, stopped_at, delay_ns);
        facts.lost = in_window.lost;
        if opened.silent || self.unmarked {
            // Visits and credits are missing, nobody knows how many.
            facts.lost = facts.lost.saturating_add(in_window.sample_ns / facts.unit_ns).max(1_000);
        }
        facts.own_wait_ns = in_count.own_wait;
        let own_ns = clock::own_cpu_ns().saturating_sub(opened.counted.own_ns);
        facts.others_ns = in_count.others_ns.saturating_sub(own_ns);
        facts.foreign_wait_ns = behind_others(in_count.foreign_wait, facts.others_ns, own_ns);
        facts.alone = in_window.woken_in == 0 && self.has_one_thread();
        facts.unknown = (in_count.unknown_ns + facts.unit_ns / 2) / facts.unit_ns;
        facts.threads = u32::try_from(in_window.threads).unwrap_or(u32::MAX);
        facts.hits = (in_count.hit_ns + facts.unit_ns / 2) / facts.unit_ns;
        facts.hit_waits = in_count.hit_waits;
        facts.asked = Asked {
            times: in_count.asked,
            by_world: in_count.asked_by_world,
            unknown: in_count.asked_unknown,
            unknown_debt_ns: in_count.unknown_debt,
        };
        facts.samples = (in_count.sample_ns + facts.unit_ns / 2) / facts.unit_ns;
        (facts.drain_ns, facts.drained) = (drain_ns, drained);
        Ok(facts)
    }

    /// Waits until handlers that had seen the state before are over: none lasts longer than a tick. (A barrier
    /// of the kernel's takes ten times as long.)
    fn settle(&self) {
        std::thread::sleep(Duration::from_nanos(self.config.tick_ns));
    }

    /// Waits until no running thread owes anything, two ticks in a row.
    fn drain(&mut self, delay_ns: u64) -> bool {
        if delay_ns == 0 {
            return true;
        }
        let from = Instant::now();
        let mut quiet = 0;
        while quiet < 2 {
            if from.elapsed() > DRAIN {
                return false;
            }
            std::thread::sleep(Duration::from_nanos(self.spacing * 5 / 4));
            self.beat();
            quiet = if self.words.largest(cpu!(owing)) == 0 { quiet + 1 } else { 0 };
        }
        true
    }

    fn facts(&mut self, opened: &Opened, stopped_at: u64, delay_ns: u64) -> Facts {
        let pids = self.processes();
        let counted = &opened.counted;
        let passed = outside::Outside::read(&pids).since(&counted.outside);
        let wall_ns = stopped_at.saturating_sub(counted.at);
        let delay_ns = delay_ns.saturating_sub(counted.delay_ns);
        let before = counted.at.saturating_sub(opened.begin);
        let visits = (0..)
            .zip(&self.points)
            .map(|(i, kind)| {
                let mut visits = since(self.words.visits(i), before, counted.delay_ns);
                visits.under_way = counted.ever.get(i as usize).copied().unwrap_or(0).cast_signed();
                if let Kind::Sampled(_) = kind {
                    visits.visits = self.in_ticks(visits.visits);
                    visits.last_virtual_ns = (wall_ns.saturating_sub(delay_ns)).cast_signed();
                }
                visits
            })
            .collect();
        Facts {
            wall_ns,
            delay_ns,
            visits,
            steal_ns: passed.steal_ns,
            major_faults: passed.major_faults,
            max_debt_ns: self.words.largest(cpu!(max_debt)),
            stopped: self.words.get(ctl!(stopped)) != 0,
            inserted_ns: self.words.sums(&counted.reach).since(&counted.sums).inserted,
            unit_ns: self.config.tick_ns,
            absolute_wakes: self.words.sums(&counted.reach).since(&counted.sums).absolute,
            absolute_points: self.words.get(ctl!(absolute_points)),
            ..Facts::default()
        }
    }
}

/// The part of the waits for a core that others are to blame for, by CPU time: what we use ourselves slows every window down alike, and
/// a program of many processes with big files (compilers) has us read them.
fn behind_others(waited_ns: u64, others_ns: u64, own_ns: u64) -> u64 {
    match others_ns.saturating_add(own_ns) {
        0 => waited_ns,
        all => u64::try_from(u128::from(waited_ns) * u128::from(others_ns) / u128::from(all)).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::behind_others;

    /// `make -j2` on two cores: 650 ms were waited behind 325 of ours and 60 of others, and the window was dropped as disturbed.
    #[test]
    fn waits_behind_ourselves_are_nobody_elses() {
        assert_eq!(behind_others(650, 60, 325), 101);
        assert_eq!(behind_others(650, 60, 0), 650);
        assert_eq!(behind_others(650, 0, 0), 650, "the kernel's threads");
        assert_eq!(behind_others(u64::MAX, u64::MAX, 1), u64::MAX);
    }
}
