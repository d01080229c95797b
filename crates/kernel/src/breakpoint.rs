//! Hardware execution breakpoints as counters: a group of up to four places of one thread, switched on and off
//! together, whose hits come in the order they happened. What to count, and when, is decided above.
//!
//! Slots are shared with debuggers: only free ones are taken, and closing the descriptors, which our death does too,
//! gives them back. Every place has a limit of hits per window, which the kernel enforces: a window that nobody ends
//! (whither stopped or starved) cannot slow the thread for long.

use crate::KernelError;
use crate::perf::{Attr, PerfEvent, SampleFields, Watch, check, open_in_group};
use crate::records::{Body, parse};
use crate::ring::Ring;
use perf_event_open_sys as sys;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};
use sys::bindings as b;

/// Places one group can hold: what processors have debug registers for.
pub const SLOTS: usize = 4;
/// Hits of one place that a group may have in its life. So few that the kernel's own limit of samples per tick
/// (`perf_event_max_sample_rate`) is not reached, behind which hits cost as much and are not counted.
pub const MOST_HITS: u32 = 64;
/// Pages of a group's ring: room for more than the hits of a window.
const PAGES: usize = 8;
/// `HW_BREAKPOINT_X`.
const EXECUTED: u32 = 4;

/// Breakpoints of one thread.
#[derive(Debug)]
pub struct Breakpoints {
    /// The first one leads the group.
    events: Vec<PerfEvent>,
    addresses: Vec<u64>,
    ring: Ring,
    /// Counts and times when the last window ended.
    before: Reading,
    /// Hits each place may still have before the kernel switches it off.
    left: Vec<u32>,
}

/// What a window showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Hits of each place, as long as all were on.
    pub hits: Vec<u64>,
    /// All hits there were, which cost time.
    pub taken: u64,
    /// Places in the order they were hit. Empty when some hits left no record.
    pub order: Vec<u8>,
    /// A place had all the hits it may have, with which the window ended. The group shows no more: since Linux 6.16 a
    /// place that was switched off by its limit is hit without being counted when it is switched on again.
    pub is_spent: bool,
    /// Time that the thread ran with the breakpoints on, in nanoseconds; what hits took included.
    pub enabled_ns: u64,
}

impl Window {
    /// Without what was hit when one of those that had all their hits no longer was.
    fn while_all_were_on(mut self, spent: &[usize]) -> Self {
        let last = |place: &usize| self.order.iter().rposition(|p| usize::from(*p) == *place);
        if let Some(last) = spent.iter().filter_map(last).min() {
            self.order.truncate(last + 1);
            self.hits.fill(0);
            self.order.iter().for_each(|p| self.hits[usize::from(*p)] += 1);
        }
        self
    }
}

#[derive(Clone, Debug, Default)]
struct Reading {
    counts: Vec<u64>,
    running_ns: u64,
}

impl Breakpoints {
    /// Takes slots of a thread for up to [`SLOTS`] addresses, switched off.
    ///
    /// # Errors
    /// [`KernelError::PerfOpen`]: `ENOSPC` when too few slots are free, `ESRCH` when the thread is gone.
    pub fn open(tid: u32, addresses: &[u64]) -> Result<Self, KernelError> {
        let mut events: Vec<PerfEvent> = Vec::with_capacity(addresses.len());
        for &address in addresses.iter().take(SLOTS) {
            let event = open_in_group(raw(address, events.is_empty()), Watch::Thread(tid), events.first())?;
            events.push(event);
        }
        let Some(leader) = events.first() else {
            return Err(KernelError::Call {
                what: "opening breakpoints",
                source: std::io::ErrorKind::InvalidInput.into(),
            });
        };
        let ring = Ring::map(leader, PAGES)?;
        events[1..].iter().try_for_each(|e| e.redirect_to(leader))?;
        let addresses = addresses[..events.len()].to_vec();
        let left = vec![0; events.len()];
        Ok(Self { events, addresses, ring, before: Reading::default(), left })
    }

    /// Switches all on.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn enable(&mut self) -> Result<(), KernelError> {
        // The leader last: only with it do the others begin.
        for (event, left) in self.events.iter().zip(&mut self.left).rev() {
            // What the last window used up.
            refresh(event, MOST_HITS - *left)?;
            *left = MOST_HITS;
        }
        Ok(())
    }

    /// Switches all off and tells what the window showed.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn disable(&mut self) -> Result<Window, KernelError> {
        self.events[0].disable()?;
        let now = read(&self.events[0], self.events.len())?;
        let hits: Vec<u64> = (0..self.events.len())
            .map(|i| now.counts[i].saturating_sub(self.before.counts.get(i).copied().unwrap_or(0)))
            .collect();
        for (left, hits) in self.left.iter_mut().zip(&hits) {
            *left = left.saturating_sub(u32::try_from(*hits).unwrap_or(u32::MAX));
        }
        let enabled_ns = now.running_ns.saturating_sub(self.before.running_ns);
        self.before = now;
        let spent: Vec<usize> = (0..self.left.len()).filter(|i| self.left[*i] == 0).collect();
        let taken = hits.iter().sum();
        let order = self.order(taken);
        Ok(Window { hits, taken, order, enabled_ns, is_spent: !spent.is_empty() }.while_all_were_on(&spent))
    }

    fn order(&mut self, hits: u64) -> Vec<u8> {
        let (mut order, mut scratch) = (Vec::new(), Vec::new());
        let addresses = &self.addresses;
        self.ring.drain(&mut scratch, |bytes| {
            if let Some(Body::Sample(s)) = parse(bytes, SampleFields::default()).map(|r| r.body) {
                order.extend(addresses.iter().position(|a| *a == s.ip).and_then(|i| u8::try_from(i).ok()));
            }
        });
        if order.len() as u64 == hits { order } else { Vec::new() }
    }
}

fn raw(address: u64, leads: bool) -> b::perf_event_attr {
    let attr = Attr {
        kind: b::PERF_TYPE_BREAKPOINT,
        config1: address,
        period: 1,
        exclude_kernel: true,
        disabled: leads,
        fields: Some(SampleFields::default()),
        ..Attr::default()
    };
    let mut a = crate::perf::raw(&attr, Watch::Thread(0));
    a.bp_type = EXECUTED;
    a.__bindgen_anon_4.bp_len = size_of::<libc::c_long>() as u64;
    a.read_format =
        u64::from(b::PERF_FORMAT_GROUP | b::PERF_FORMAT_TOTAL_TIME_ENABLED | b::PERF_FORMAT_TOTAL_TIME_RUNNING);
    a
}

/// Lets an event have so many more hits and switches it on.
fn refresh(event: &PerfEvent, hits: u32) -> Result<(), KernelError> {
    // SAFETY: the descriptor is an open perf event; the argument of REFRESH is a number.
    let r = unsafe { sys::ioctls::REFRESH(event.as_fd().as_raw_fd(), hits as i32) };
    check("switching on a breakpoint", r)
}

/// Counts of a group and the time it ran.
fn read(leader: &PerfEvent, members: usize) -> Result<Reading, KernelError> {
    let mut bytes = [0_u8; 8 * (3 + SLOTS)];
    let n = rustix::io::read(leader.as_fd(), &mut bytes)
        .map_err(|e| KernelError::Call { what: "reading breakpoints", source: e.into() })?;
    let words: Vec<u64> =
        bytes[..n].chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes"))).collect();
    // Number of members, time enabled, time running, counts.
    match words.as_slice() {
        [_, _, running_ns, counts @ ..] if counts.len() == members => {
            Ok(Reading { counts: counts.to_vec(), running_ns: *running_ns })
        }
        // The thread has ended and its events with it.
        _ => Err(KernelError::Call { what: "reading breakpoints", source: std::io::ErrorKind::UnexpectedEof.into() }),
    }
}

/// What a hit costs here, measured on this thread: about a microsecond on metal, ten under hypervisors that intercept
/// debug exceptions.
///
/// # Errors
/// Why breakpoints cannot be had: [`KernelError::PerfOpen`].
pub fn cost() -> Result<Duration, KernelError> {
    const BATCHES: u32 = 8;
    const BATCH: u32 = MOST_HITS / BATCHES - 1;
    let place = counted_place as fn(u64) -> u64 as usize as u64;
    let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    let mut points = Breakpoints::open(tid, &[place])?;
    points.enable()?;
    // The quickest batch: others may have had to share the CPU.
    let mut taken = Duration::MAX;
    for batch in 0..BATCHES {
        let begun = Instant::now();
        for i in 0..BATCH {
            std::hint::black_box(counted_place(std::hint::black_box(u64::from(batch * BATCH + i))));
        }
        taken = taken.min(begun.elapsed());
    }
    let window = points.disable()?;
    if window.hits[0] < u64::from(BATCHES * BATCH) {
        return Err(KernelError::Call {
            what: "counting by breakpoint (it opens, and is not hit)",
            source: std::io::ErrorKind::Unsupported.into(),
        });
    }
    Ok(taken / BATCH)
}

#[inline(never)]
fn counted_place(x: u64) -> u64 {
    std::hint::black_box(x).wrapping_mul(0x9e37_79b9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn other_place(x: u64) -> u64 {
        std::hint::black_box(x) ^ 0x5555
    }

    #[test]
    fn hits_are_counted_in_their_order() {
        let places = [counted_place as fn(u64) -> u64 as usize as u64, other_place as fn(u64) -> u64 as usize as u64];
        let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let mut points = match Breakpoints::open(tid, &places) {
            Ok(points) => points,
            Err(e) => return println!("SKIP: {e}"),
        };
        for round in 0..3 {
            other_place(0);
            points.enable().unwrap();
            for i in 0..5 {
                std::hint::black_box(counted_place(i));
                if i % 2 == 0 {
                    std::hint::black_box(other_place(i));
                }
            }
            let window = points.disable().unwrap();
            assert_eq!(window.hits, [5, 3], "round {round}");
            assert_eq!(window.order, [0, 1, 0, 0, 1, 0, 0, 1], "round {round}");
            assert!(window.enabled_ns > 0, "{window:?}");
        }
    }

    #[test]
    fn a_window_that_nobody_ends_costs_a_limited_number_of_hits() {
        let place = other_place as fn(u64) -> u64 as usize as u64;
        let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let mut points = match Breakpoints::open(tid, &[place]) {
            Ok(points) => points,
            Err(e) => return println!("SKIP: {e}"),
        };
        points.enable().unwrap();
        let begun = Instant::now();
        for i in 0..200_000 {
            std::hint::black_box(other_place(i));
        }
        let window = points.disable().unwrap();
        assert!(window.is_spent && begun.elapsed().as_millis() < 200, "{window:?} after {:?}", begun.elapsed());
        assert!((u64::from(MOST_HITS)..=u64::from(MOST_HITS) + 2).contains(&window.hits[0]), "{window:?}");
    }

    #[test]
    fn a_spent_window_ends_with_the_last_counted_hit() {
        let window = Window { hits: vec![3, 2], taken: 5, order: vec![1, 0, 1, 0, 0], enabled_ns: 1, is_spent: true };
        let cut = window.clone().while_all_were_on(&[1]);
        assert_eq!(window.clone().while_all_were_on(&[0, 1]), cut, "the first that falls silent");
        assert_eq!(window.clone().while_all_were_on(&[]), window);
        assert_eq!((cut.hits, cut.taken, cut.order), (vec![1, 2], 5, vec![1, 0, 1]));
        let silent = Window { hits: vec![3, 2], ..Window::default() };
        assert_eq!(silent.clone().while_all_were_on(&[1]), silent, "without records nothing can be told apart");
    }

    #[test]
    fn slots_are_given_back() {
        let places: Vec<u64> = (0..4).map(|i| other_place as fn(u64) -> u64 as usize as u64 + i).collect();
        let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let first = match Breakpoints::open(tid, &places) {
            Ok(points) => points,
            Err(e) => return println!("SKIP: {e}"),
        };
        let full = Breakpoints::open(tid, &places[..1]).unwrap_err();
        assert_eq!(full.errno(), Some(libc::ENOSPC), "{full}");
        drop(first);
        Breakpoints::open(tid, &places).unwrap();
    }
}
