//! The life of a window without BPF: as `whither_sample`'s, with what the threads have counted themselves.

use super::queue::Queues;
use super::{Alone, Kind};
use crate::SessionError;
use std::time::{Duration, Instant};
use whither_abi::causal as cz;
use whither_abi::pace::Slot;
use whither_kernel::proc;
use whither_probe::{Pace, PaceWord};
use whither_sample::causal::marks;
use whither_sample::causal::outside::Outside;
use whither_sample::causal::visits::since;
use whither_sample::causal::{Armed, CodeRange, Facts};
use whither_store::causal::PointVisits;

/// Debts that are not paid after so long are forgiven.
const DRAIN: Duration = Duration::from_millis(50);
/// Debts below this are let stand, as the agent does.
const LEAST_NS: i64 = 50_000;
/// A thread that was ticked so many periods ago runs.
const LATELY: u64 = 4;
/// Handlers that saw the state before have credited after so long.
const SETTLE: Duration = Duration::from_micros(100);

/// Sums over all threads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) samples: u64,
    pub(super) sample_ns: u64,
    pub(super) hit_ns: u64,
    pub(super) hit_waits: u64,
    pub(super) inserted_ns: u64,
    pub(super) handler_ns: u64,
    pub(super) absolutes: u64,
    pub(super) lost: u64,
}

impl Sums {
    pub(super) fn of(pace: &Pace) -> Self {
        let mut all = Self { lost: pace.get(PaceWord::Lost), ..Self::default() };
        for slot in pace.slots() {
            all = all.with(&Self {
                samples: slot.samples,
                sample_ns: slot.sample_ns,
                hit_ns: slot.hit_ns,
                hit_waits: slot.hit_waits,
                inserted_ns: slot.inserted,
                handler_ns: slot.handler,
                absolutes: slot.absolutes,
                lost: 0,
            });
        }
        all
    }

    /// Word by word.
    fn each(&self, other: &Self, op: fn(u64, u64) -> u64) -> Self {
        Self {
            samples: op(self.samples, other.samples),
            sample_ns: op(self.sample_ns, other.sample_ns),
            hit_ns: op(self.hit_ns, other.hit_ns),
            hit_waits: op(self.hit_waits, other.hit_waits),
            inserted_ns: op(self.inserted_ns, other.inserted_ns),
            handler_ns: op(self.handler_ns, other.handler_ns),
            absolutes: op(self.absolutes, other.absolutes),
            lost: op(self.lost, other.lost),
        }
    }

    pub(super) fn with(&self, other: &Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    fn since(&self, before: &Self) -> Self {
        self.each(before, u64::saturating_sub)
    }
}

/// State of the machine and of all counters when the window was opened.
pub(super) struct Opened {
    begin: u64,
    sums: Sums,
    counted: Counted,
    /// Samples that were overwritten before we saw them.
    pub(super) lost: u64,
}

/// The same when it began to count.
struct Counted {
    at: u64,
    delay_ns: u64,
    /// Visits of each point before.
    ever: Vec<u64>,
    sums: Sums,
    outside: Outside,
    queues: Queues,
}

impl Alone {
    pub(super) fn open_window(&mut self, percent: u8) -> Result<(), SessionError> {
        self.write_target(percent);
        self.look_at_threads()?;
        let period = self.drawn();
        if let Some(seat) = &mut self.seat {
            seat.ticks.set_period(period);
        }
        if let Some(pace) = &self.pace {
            pace.forget_debts();
            pace.set(PaceWord::Delay, 0);
        }
        let Some(counted) = self.counts_from_now() else { return Ok(()) };
        let Some(pace) = &self.pace else { return Ok(()) };
        pace.set(PaceWord::Begin, counted.at);
        pace.set(PaceWord::AbsolutePoints, 0);
        // Clocks of the last window read as 0 from here on.
        pace.set(PaceWord::Epoch, (pace.get(PaceWord::Epoch) + 1) & u64::from(u32::MAX));
        pace.beat();
        pace.set(PaceWord::State, cz::STATE_ON);
        self.open = Some(Opened { begin: counted.at, sums: counted.sums, counted, lost: 0 });
        Ok(())
    }

    fn write_target(&mut self, percent: u8) {
        let sampled: Vec<(u32, Vec<CodeRange>)> = (0..)
            .zip(&self.points)
            .filter_map(|(i, kind)| match kind {
                Kind::Sampled(ranges) => Some((i, ranges.clone())),
                Kind::Stamped => None,
            })
            .collect();
        let ranges = marks::wanted(&self.armed, &sampled);
        let ours: Vec<(u64, u64, u64)> = ranges
            .iter()
            .filter(|((pid, ..), _)| *pid == self.pid)
            .map(|((_, start, end), bits)| (*start, *end, *bits))
            .collect();
        let rows: Vec<(u64, u64, u64)> = marks::pieces(&ours).iter().map(|m| (m.start, m.end, m.bits)).collect();
        let callers = if let Armed::Code { callers, .. } = &self.armed { callers.len() as u64 } else { 0 };
        let Some(pace) = &self.pace else { return };
        pace.mark(&rows);
        pace.set(PaceWord::Unit, marks::unit_of(&self.armed));
        pace.set(PaceWord::Callers, callers);
        pace.set(PaceWord::Sampled, sampled.iter().fold(0, |all, (i, _)| all | 1 << i));
        pace.set(PaceWord::Percent, u64::from(percent.min(100)));
    }

    /// Leaves out what was seen of the open window so far.
    pub(super) fn count_from_now(&mut self, paid: bool) {
        self.beat_now();
        let Some(mut opened) = self.open.take() else { return };
        if paid && self.delay() > 0 {
            self.set_state(cz::STATE_DRAIN);
            self.drain();
        }
        if let Some(counted) = self.counts_from_now() {
            opened.counted = counted;
        }
        self.set_state(cz::STATE_ON);
        self.open = Some(opened);
    }

    fn counts_from_now(&self) -> Option<Counted> {
        let pace = self.pace.as_ref()?;
        let slots = pace.slots();
        let ever = (0..self.points.len()).map(|p| ever(&slots, p)).collect();
        let (outside, queues) = (Outside::read(&[self.pid]), Queues::read(self.pid));
        let (sums, delay_ns) = (Sums::of(pace), self.delay());
        let at = pace.now();
        pace.set(PaceWord::Counted, pace.get(PaceWord::Counted) + 1);
        Some(Counted { at, delay_ns, ever, sums, outside, queues })
    }

    fn beat_now(&self) {
        if let Some(pace) = &self.pace {
            pace.beat();
        }
    }

    fn set_state(&self, state: u64) {
        if let Some(pace) = &self.pace {
            pace.set(PaceWord::State, state);
        }
    }

    /// Delay that every thread owes or has paid.
    fn delay(&self) -> u64 {
        self.pace.as_ref().map_or(0, |p| p.get(PaceWord::Delay).cast_signed().max(0).cast_unsigned())
    }

    /// Sums of all processes so far.
    pub(super) fn sums(&self) -> Sums {
        self.pace.as_ref().map_or(self.past, |pace| self.past.with(&Sums::of(pace)))
    }

    pub(super) fn close_window(&mut self) -> Facts {
        self.beat_now();
        let Some(opened) = self.open.take() else { return Facts::default() };
        self.set_state(cz::STATE_DRAIN);
        let Some(stopped_at) = self.pace.as_ref().map(Pace::now) else { return Facts::default() };
        std::thread::sleep(SETTLE);
        let delay_ns = self.delay();
        let mut facts = self.facts(&opened, stopped_at, delay_ns);
        facts.drained = delay_ns == 0 || self.drain();
        self.set_state(cz::STATE_OFF);
        let now = self.pace.as_ref().map_or(stopped_at, Pace::now);
        facts.drain_ns = now.saturating_sub(stopped_at);
        facts
    }

    /// Waits until no running thread owes anything, twice in a row.
    fn drain(&mut self) -> bool {
        let from = Instant::now();
        let mut quiet = 0;
        while quiet < 2 {
            if from.elapsed() > DRAIN {
                return false;
            }
            std::thread::sleep(Duration::from_nanos(self.config.tick_ns * 5 / 4));
            self.beat_now();
            quiet = if self.somebody_owes() { 0 } else { quiet + 1 };
        }
        true
    }

    fn somebody_owes(&self) -> bool {
        let Some(pace) = &self.pace else { return false };
        let (epoch, all) = (pace.get(PaceWord::Epoch), self.delay().cast_signed());
        let lately = pace.now().saturating_sub(LATELY * self.config.tick_ns);
        let runs = |s: &Slot| s.busy_sp != 0 || s.looked > lately;
        pace.slots().iter().any(|s| u64::from(s.clock_epoch) == epoch && runs(s) && all - s.d > LEAST_NS)
    }

    fn facts(&mut self, opened: &Opened, stopped_at: u64, delay_ns: u64) -> Facts {
        let Some(pace) = &self.pace else { return Facts::default() };
        let slots = pace.slots();
        let counted = &opened.counted;
        let passed = Outside::read(&[self.pid]).since(&counted.outside);
        let wall_ns = stopped_at.saturating_sub(counted.at);
        let sums = Sums::of(pace);
        let (in_count, in_window) = (sums.since(&counted.sums), sums.since(&opened.sums));
        let epoch = pace.get(PaceWord::Epoch) as u32;
        let threads = slots.iter().filter(|s| s.sampled == epoch).count();
        let waited = Queues::read(self.pid).since(&counted.queues, threads > proc::online_cpus().len());
        let delay_ns = delay_ns.saturating_sub(counted.delay_ns);
        Facts {
            wall_ns,
            delay_ns,
            hits: self.in_ticks(in_count.hit_ns),
            hit_waits: in_count.hit_waits,
            samples: self.in_ticks(in_count.sample_ns),
            visits: self.visits(opened, wall_ns, delay_ns),
            own_wait_ns: waited.own_ns,
            foreign_wait_ns: waited.foreign_ns,
            steal_ns: passed.steal_ns,
            major_faults: passed.major_faults,
            threads: threads as u32,
            max_debt_ns: slots.iter().map(|s| s.max_debt).max().unwrap_or(0),
            lost: in_window.lost.saturating_add(opened.lost),
            stopped: is_stopped(self.pid),
            inserted_ns: in_count.inserted_ns,
            unit_ns: self.config.tick_ns,
            absolute_wakes: in_count.absolutes,
            absolute_points: pace.get(PaceWord::AbsolutePoints),
            ..Facts::default()
        }
    }

    fn visits(&self, opened: &Opened, wall_ns: u64, delay_ns: u64) -> Vec<PointVisits> {
        let counted = &opened.counted;
        let before = counted.at.saturating_sub(opened.begin);
        let of = |(i, kind): (u32, &Kind)| {
            let mut visits = since(self.visits_of(i), before, counted.delay_ns);
            visits.under_way = counted.ever.get(i as usize).copied().unwrap_or(0).cast_signed();
            if let Kind::Sampled(_) = kind {
                visits.visits = self.in_ticks(visits.visits);
                visits.last_virtual_ns = wall_ns.saturating_sub(delay_ns).cast_signed();
            }
            visits
        };
        (0..).zip(&self.points).map(of).collect()
    }

    /// Visits of a point by all threads: the first one of the earliest, the last one of the latest.
    pub(super) fn visits_of(&self, point: u32) -> PointVisits {
        let mut all = PointVisits { point, ..PointVisits::default() };
        let Some(pace) = &self.pace else { return all };
        let counted = pace.get(PaceWord::Counted);
        for v in pace.slots().iter().filter_map(|s| s.visits.get(point as usize).copied()) {
            if v.counted != counted || v.count == 0 {
                continue;
            }
            if all.visits == 0 || v.first_t < all.first_ns {
                (all.first_ns, all.first_virtual_ns) = (v.first_t, v.first_v);
            }
            if all.visits == 0 || v.last_t > all.last_ns {
                (all.last_ns, all.last_virtual_ns) = (v.last_t, v.last_v);
            }
            all.visits = all.visits.saturating_add(v.count);
            all.sum_virtual_ns = all.sum_virtual_ns.wrapping_add(v.sum_v);
        }
        all
    }

    /// Run time as the number of ticks that it stands for.
    pub(super) fn in_ticks(&self, ns: u64) -> u64 {
        ns.saturating_add(self.config.tick_ns / 2) / self.config.tick_ns
    }
}

fn ever(slots: &[Slot], point: usize) -> u64 {
    slots.iter().filter_map(|s| s.visits.get(point)).fold(0, |all, v| all.saturating_add(v.ever))
}

fn is_stopped(pid: u32) -> bool {
    proc::tracer(pid) != 0 || proc::status_word(pid, "State:").is_some_and(|s| s.starts_with(['T', 't']))
}
