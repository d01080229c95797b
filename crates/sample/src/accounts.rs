//! Periods and accounts: draws a new period for every event again and again (a fixed one locks onto
//! programs with a rhythm of their own, design note 3.3), and keeps count of how many samples should
//! have come, so that those the kernel skipped are known.

use crate::plan::Chosen;
use rustc_hash::FxHashMap;
use whither_abi::Cpu;
use whither_kernel::events::possible_period;
use whither_kernel::perf::PerfEvent;
use whither_kernel::proc::CpuTimes;
use whither_kernel::{clock, proc};
use whither_store::model::Rate;

/// Width of the draw: +-6 % around the nominal rate, as DCPI's 60K to 64K.
const SPREAD: f64 = 0.06;
/// A period holds for so many samples: each draw restarts the interval under way, which costs half a
/// sample, and interrupts the CPU it is for. Fewer draws do not let a program in step show more: drift
/// within a longer hold takes the samples through more of its rhythm.
const HOLD_SAMPLES: u64 = 10_000;
/// Bounds of the hold. The draw must not become rare where sampling is slow, and not at the start either:
/// a short recording has to see several periods too.
const SHORTEST_NS: u64 = 40_000_000;
const LONGEST_NS: u64 = 2_000_000_000;
/// A hold is no longer than this part of the time so far: what ran during one hold is told with its period's error,
/// up to [`SPREAD`], and a short recording has to average that over many. Each draw goes with its mirror image, so that two
/// holds together have next to none.
const HOLD_OF_RUN: u64 = 16;
/// Events sampled this densely (page faults) are not drawn anew: there is no room for a draw.
const SMALLEST_PERIOD: u64 = 100;

/// One event on one CPU.
#[derive(Clone, Copy, Debug)]
struct Timer {
    period: u64,
    since: u64,
    expected: u64,
    /// Where in the spread the next draw lies, when the last one has no counterpart yet.
    mirror: Option<f64>,
}

/// An event as the accounts see it.
#[derive(Clone, Debug)]
struct Watched {
    name: String,
    period: u64,
    /// 0 for an event that no rate drives.
    units_per_ns: f64,
    /// Comes all the time while it is on, so that missing samples can be told.
    steady: bool,
}

/// Accounts of all events and CPUs.
#[derive(Debug)]
pub struct Accounts {
    events: Vec<Watched>,
    timers: FxHashMap<(u32, u16), Timer>,
    /// CPUs that came, or went, since the accounts were closed last, and when.
    joined: FxHashMap<u32, u64>,
    left: FxHashMap<u32, u64>,
    random: u64,
    next_draw: u64,
    running: bool,
    opened: (u64, u64),
    before: Vec<Cpu>,
    times: FxHashMap<u32, CpuTimes>,
}

impl Accounts {
    /// Accounts for these events; nothing runs yet.
    #[must_use]
    pub fn new(chosen: &[Chosen]) -> Self {
        Self {
            events: chosen
                .iter()
                .map(|c| {
                    // A timer with a mode left out fires without a sample: nothing can be expected of it.
                    let steady = c.is_time() && !c.spec.exclude_kernel && !c.spec.exclude_user;
                    Watched { name: c.spec.name.clone(), period: c.period, units_per_ns: c.units_per_ns, steady }
                })
                .collect(),
            timers: FxHashMap::default(),
            joined: FxHashMap::default(),
            left: FxHashMap::default(),
            random: clock::monotonic_ns() | 1,
            next_draw: 0,
            running: false,
            opened: (0, 0),
            before: Vec::new(),
            times: proc::cpu_times().into_iter().collect(),
        }
    }

    /// Sampling starts, with the kernel side's counters as they are.
    pub fn start(&mut self, now: u64, counters: Vec<Cpu>) {
        self.times = proc::cpu_times().into_iter().collect();
        self.before = counters;
        self.timers.clear();
        self.running = true;
        self.next_draw = now;
        self.opened = (now, clock::wall_ns());
    }

    /// Sampling ends: what each timer should have delivered is settled.
    pub fn stop(&mut self, now: u64) {
        self.running = false;
        for t in self.timers.values_mut() {
            settle(t, now);
        }
    }

    /// A CPU came on line: its account begins now.
    pub fn joined(&mut self, cpu: u32, now: u64) {
        self.times.extend(proc::cpu_times().into_iter().filter(|(c, _)| *c == cpu));
        self.joined.insert(cpu, now);
        self.next_draw = 0;
    }

    /// A CPU went off line: what its timers should have delivered is settled.
    pub fn left(&mut self, cpu: u32, now: u64) {
        for (_, t) in self.timers.iter_mut().filter(|((c, _), _)| *c == cpu) {
            settle(t, now);
            // Nothing is expected until a draw starts it again.
            t.since = u64::MAX;
        }
        self.left.insert(cpu, now);
    }

    /// A new nominal period, used from the next draw on.
    pub fn set_nominal(&mut self, number: u16, period: u64) {
        if let Some(e) = self.events.get_mut(usize::from(number)) {
            e.period = period;
        }
        self.next_draw = 0;
    }

    /// Nanoseconds until the next draw is due.
    #[must_use]
    pub fn until_draw(&self, now: u64) -> u64 {
        self.next_draw.saturating_sub(now)
    }

    /// Draws a new period for each event when it is time.
    pub fn redraw(&mut self, now: u64, events: &[(u32, u16, PerfEvent)]) {
        if !self.running || now < self.next_draw {
            return;
        }
        let nanoseconds = |e: &Watched| (e.period as f64 / e.units_per_ns) as u64;
        let longest = self.events.iter().filter(|e| e.units_per_ns > 0.0).map(nanoseconds).max().unwrap_or(0);
        let by_age = (now.saturating_sub(self.opened.0) / HOLD_OF_RUN).clamp(SHORTEST_NS, LONGEST_NS);
        self.next_draw = now + longest.saturating_mul(HOLD_SAMPLES).clamp(SHORTEST_NS, by_age);
        for (cpu, number, event) in events {
            let nominal = self.events[usize::from(*number)].period;
            if nominal < SMALLEST_PERIOD {
                continue;
            }
            let known = self.timers.get_mut(&(*cpu, *number)).and_then(|t| t.mirror.take());
            let (at_unit, mirror) = known.map_or_else(|| self.fresh(), |mirrored| (mirrored, None));
            let period = possible_period(&self.events[usize::from(*number)].name, within_spread(nominal, at_unit));
            // An event whose CPU or thread is gone refuses; its account just stops growing.
            if event.set_period(period).is_ok() {
                let at = clock::monotonic_ns();
                let t = self.timers.entry((*cpu, *number)).or_insert(Timer { period, since: at, expected: 0, mirror });
                settle(t, at);
                (t.period, t.since, t.mirror) = (period, at, mirror);
            }
        }
    }

    /// A place in the spread by chance, and its counterpart.
    fn fresh(&mut self) -> (f64, Option<f64>) {
        let unit = self.unit();
        (unit, Some(1.0 - unit))
    }

    fn unit(&mut self) -> f64 {
        // splitmix64
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Closes the interval with the counters of the kernel side.
    pub fn close_bpf(&mut self, counters: &[Cpu]) -> Vec<Accounted> {
        let before = std::mem::replace(&mut self.before, counters.to_vec());
        let zero = Cpu::default();
        let seen = |cpu: u32| {
            let (now, then) = (counters.get(cpu as usize).unwrap_or(&zero), before.get(cpu as usize).unwrap_or(&zero));
            let idle = now.idle - then.idle;
            let other = now.other - then.other;
            let all = now.hit + now.miss - then.hit - then.miss + idle + other;
            Delivered { all, idle, other, dropped: now.drop - then.drop }
        };
        let expects = self.events.len() == 1 && self.events[0].steady;
        self.close(seen, expects)
    }

    /// Closes the interval with what the rings delivered. Rings follow threads, which do not run all
    /// the time, so nothing can be said of samples that should have come.
    pub fn close_ring(&mut self, delivered: &FxHashMap<u32, Delivered>) -> Vec<Accounted> {
        let seen = |cpu: u32| delivered.get(&cpu).copied().unwrap_or_default();
        self.close(seen, false)
    }

    fn close(&mut self, seen: impl Fn(u32) -> Delivered, expects: bool) -> Vec<Accounted> {
        let now = clock::monotonic_ns();
        let (start, wall) = std::mem::replace(&mut self.opened, (now, clock::wall_ns()));
        let times: FxHashMap<u32, CpuTimes> = proc::cpu_times().into_iter().collect();
        let name = self.events.iter().map(|e| e.name.as_str()).collect::<Vec<_>>().join("+");
        let mut rates = Vec::new();
        let mut cpus = proc::online_cpus();
        cpus.extend(self.left.keys().copied());
        cpus.sort_unstable();
        cpus.dedup();
        for cpu in cpus {
            let from = self.joined.get(&cpu).copied().unwrap_or(start);
            let until = self.left.get(&cpu).copied().filter(|&left| left > from).unwrap_or(now);
            let d = seen(cpu);
            let (now_at, then) = (at(&times, cpu), at(&self.times, cpu));
            let stolen = now_at.steal_ns.saturating_sub(then.steal_ns);
            let idle_ns = now_at.idle_ns.saturating_sub(then.idle_ns);
            // What an absent CPU has idled is not told any more, so nothing can be said to be missing.
            let expected = Some(self.take_expected(cpu, now)).filter(|_| expects && times.contains_key(&cpu));
            let rate = Rate {
                start_ns: wall,
                length_ns: until.saturating_sub(from),
                cpu,
                event: name.clone(),
                period: self.events.first().map_or(0, |e| e.period),
                delivered: d.all,
                idle: d.idle,
                dropped: d.dropped,
                skipped: skipped(
                    expected.unwrap_or(0),
                    &d,
                    CpuTimes { idle_ns, steal_ns: stolen },
                    until.saturating_sub(from),
                ),
                steal_ns: stolen,
            };
            rates.push(Accounted { skipped_of_ours: of_ours(rate.skipped, &d), rate });
        }
        self.times = times;
        self.joined.clear();
        self.left.clear();
        rates
    }

    fn take_expected(&mut self, cpu: u32, now: u64) -> u64 {
        let Some(t) = self.timers.get_mut(&(cpu, 0)) else { return 0 };
        if self.running {
            settle(t, now);
        }
        std::mem::take(&mut t.expected)
    }
}

fn at(times: &FxHashMap<u32, CpuTimes>, cpu: u32) -> CpuTimes {
    times.get(&cpu).copied().unwrap_or_default()
}

/// Samples of busy time that should have come and did not. An idle CPU may sleep through its timer,
/// which loses nothing: what idle time could have had at most is not missed, nor what the host took.
/// Idle time is known in steps of 10 ms, at both ends, and the kernel does not count the timer's own
/// interrupts as such. The rate may have changed within the interval: only shares of it are reckoned with.
fn skipped(expected: u64, d: &Delivered, times: CpuTimes, length_ns: u64) -> u64 {
    const STEPS_NS: u64 = 20_000_000;
    const INTERRUPT_NS: u64 = 15_000;
    let in_part = |ns: u64| (expected as f64 * ns as f64 / length_ns.max(1) as f64) as u64;
    let slept = match times.idle_ns {
        0 => 0,
        ns => in_part(ns + STEPS_NS + d.idle * INTERRUPT_NS).saturating_sub(d.idle),
    };
    expected.saturating_sub(d.all + slept + in_part(times.steal_ns))
}

/// The account of one CPU and interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Accounted {
    /// Of the whole CPU.
    pub rate: Rate,
    /// Samples skipped, of the processes recorded.
    pub skipped_of_ours: u64,
}

/// Of the samples that the kernel skipped on a CPU, those of the processes recorded: timers tick for whoever runs there.
fn of_ours(skipped: u64, d: &Delivered) -> u64 {
    let busy = d.all.saturating_sub(d.idle);
    let share = busy.saturating_sub(d.other) as f64 / busy.max(1) as f64;
    if busy == 0 { skipped } else { (skipped as f64 * share).round() as u64 }
}

/// Samples that came from one CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivered {
    pub(crate) all: u64,
    pub(crate) idle: u64,
    /// Of processes that are not recorded.
    pub(crate) other: u64,
    pub(crate) dropped: u64,
}

/// The period at a place in the spread, 0 to 1. Rates are spread evenly, not periods: samples come by rate, and as many are
/// to come in the mean as the nominal period says.
fn within_spread(nominal: u64, unit: f64) -> u64 {
    (nominal as f64 / (1.0 - SPREAD + 2.0 * SPREAD * unit)) as u64
}

/// Books the whole periods since the timer (re)started, and keeps the rest for the next time.
fn settle(t: &mut Timer, now: u64) {
    let periods = now.saturating_sub(t.since) / t.period.max(1);
    t.expected += periods;
    t.since += periods * t.period;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_within_the_spread_and_cover_it() {
        let mut a = Accounts::new(&[]);
        let draws: Vec<u64> = (0..2000).map(|_| within_spread(1_000_000, a.unit())).collect();
        let (low, high) = (*draws.iter().min().expect("some"), *draws.iter().max().expect("some"));
        assert!((943_396..946_000).contains(&low) && (1_060_000..=1_063_829).contains(&high), "{low} {high}");
        let rate = draws.iter().map(|d| 1e6 / *d as f64).sum::<f64>() / 2000.0;
        assert!((0.995..1.005).contains(&rate), "{rate}");
    }

    #[test]
    fn a_draw_and_its_mirror_give_the_nominal_rate() {
        let mut a = Accounts::new(&[]);
        let (unit, mirror) = a.fresh();
        let mirror = mirror.expect("the first of a pair");
        let rate = [unit, mirror].map(|u| 1e9 / within_spread(1_000_000_000, u) as f64).iter().sum::<f64>() / 2.0;
        assert!((rate - 1.0).abs() < 1e-6, "{rate}");
    }

    #[test]
    fn an_idle_cpu_that_slept_through_its_timer_missed_nothing() {
        let delivered = |all, idle| Delivered { all, idle, ..Delivered::default() };
        let times =
            |idle_ms: u64, steal_ms: u64| CpuTimes { idle_ns: idle_ms * 1_000_000, steal_ns: steal_ms * 1_000_000 };
        // 2 s at 2 kHz: all idle and asleep; all busy with 40 late timers, which came while the host ran others.
        assert_eq!(skipped(4000, &delivered(10, 0), times(2000, 0), 2_000_000_000), 0);
        assert_eq!(skipped(4000, &delivered(3960, 0), times(0, 0), 2_000_000_000), 40);
        assert_eq!(skipped(4000, &delivered(3960, 0), times(0, 15), 2_000_000_000), 10);
        // Half idle and awake: its interrupts take 30 ms that are not told as idle.
        assert_eq!(skipped(4000, &delivered(3880, 2000), times(970, 0), 2_000_000_000), 80);
        assert_eq!(skipped(4000, &delivered(3880, 2045), times(970, 0), 2_000_000_000), 120);
    }

    #[test]
    fn what_others_lost_is_no_loss_of_ours() {
        let of = |all, idle, other| of_ours(33, &Delivered { all, idle, other, dropped: 0 });
        assert_eq!(of(266, 100, 160), 1, "one program among others");
        assert_eq!(of(266, 100, 0), 33, "the whole system");
        assert_eq!(of(266, 100, 166), 0, "a CPU that it did not run on");
        assert_eq!(of(100, 100, 0), 33, "nothing came but of idle time");
    }

    #[test]
    fn a_cpu_that_went_off_line_is_expected_to_deliver_no_more() {
        let mut a = Accounts::new(&[]);
        a.running = true;
        a.timers.insert((5, 0), Timer { period: 100, since: 1000, expected: 0, mirror: None });
        a.left(5, 1500);
        assert_eq!(a.take_expected(5, 9000), 5);
        assert_eq!(a.take_expected(5, 19_000), 0);
    }

    #[test]
    fn the_first_draws_hold_short_and_later_ones_long() {
        let mut a = Accounts::new(&[]);
        a.start(1_000_000_000, Vec::new());
        let mut hold = |now: u64| {
            a.next_draw = 0;
            a.redraw(now, &[]);
            (a.until_draw(now), a.until_draw(now + 1_000_000_000))
        };
        // Nothing is sampled: as long as samples at no rate at all, which is the shortest.
        assert_eq!(hold(1_000_000_000), (SHORTEST_NS, 0));
        let slow = Watched { name: String::new(), period: 1_000_000, units_per_ns: 1.0, steady: true };
        a.events.push(slow);
        let mut hold = |now: u64| {
            a.next_draw = 0;
            a.redraw(now, &[]);
            a.until_draw(now)
        };
        assert_eq!(hold(1_100_000_000), SHORTEST_NS);
        assert_eq!(hold(2_600_000_000), 100_000_000);
        assert_eq!(hold(100_000_000_000), LONGEST_NS);
    }

    #[test]
    fn whole_periods_are_expected_and_the_rest_is_kept() {
        let mut t = Timer { period: 100, since: 1000, expected: 0, mirror: None };
        settle(&mut t, 1250);
        assert_eq!((t.expected, t.since), (2, 1200));
        settle(&mut t, 1299);
        assert_eq!((t.expected, t.since), (2, 1200));
        settle(&mut t, 1300);
        assert_eq!((t.expected, t.since), (3, 1300));
    }
}
