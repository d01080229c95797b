//! Ticks: opened on each CPU, as far apart as what they cost allows, and as the session wants them.

use super::super::words::{cpu, ctl};
use super::super::{Ticks, outside};
use super::CausalBpf;
use crate::SampleError;
use libbpf_rs::PerfEventOpts;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use std::sync::atomic::Ordering::Relaxed;
use whither_kernel::KernelError;
use whither_kernel::perf::{Attr, PerfEvent, Watch};

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
/// A delay ends before the next tick by this, and by what a tick costs.
const MARGIN_NS: u64 = 6_000;
/// A tick comes after so many times its own cost at the earliest.
const DEAREST: u64 = 16;
/// Recorded samples may be so many times as far apart as they should: windows hold fifty of them all the same.
const RAREST: u64 = 2;

impl CausalBpf {
    /// Opens the tick of a CPU. A software clock: a delay inside a non-maskable interrupt would not do.
    pub(super) fn tick_on(&mut self, number: u32) -> Result<(), SampleError> {
        let attr = Attr {
            kind: PERF_TYPE_SOFTWARE,
            config: PERF_COUNT_SW_CPU_CLOCK,
            period: self.config.period_ns,
            ..Attr::default()
        };
        let perf = PerfEvent::open(&attr, Watch::Cpu(number))?;
        // libbpf closes the descriptor it is given together with the link, so it gets one of its own.
        let given = perf
            .as_fd()
            .try_clone_to_owned()
            .map_err(|source| KernelError::Call { what: "duplicating a perf event", source })?;
        let link = self
            .skel
            .progs
            .cz_tick
            .attach_perf_event_with_opts(given.as_raw_fd(), PerfEventOpts::default())
            .map_err(|e| SampleError::bpf("attaching the tick to a perf event", e))?;
        let _ = given.into_raw_fd();
        self.ticks.push((number, link, perf));
        self.set_period(self.ticks.len() - 1, self.config.period_ns)
    }

    /// Finds out what a tick costs here, and makes ticks rarer where that is more than a sixteenth of the
    /// time: under some hypervisors each timer takes 25 us.
    pub(super) fn pace(&mut self) -> Result<(), SampleError> {
        let ticks = self.ticks.len();
        (0..ticks).try_for_each(|tick| self.set_period(tick, self.config.tick_ns))?;
        self.tick_cost = outside::tick_cost(self.config.tick_ns);
        let shortest = self.config.tick_ns.max(DEAREST * self.tick_cost);
        let every = (self.config.period_ns / shortest).max(1);
        self.config.tick_ns = self.config.period_ns / every;
        self.spacing = self.config.tick_ns;
        self.got.borrow_mut().tick_ns = self.config.tick_ns;
        self.words.set(ctl!(margin), self.tick_cost * 3 / 2 + MARGIN_NS);
        (0..ticks).try_for_each(|tick| self.set_period(tick, self.config.period_ns))
    }

    /// What a tick takes from the thread it meets, ns.
    #[must_use]
    pub fn tick_cost(&self) -> u64 {
        self.tick_cost
    }

    /// How often ticks may come.
    #[must_use]
    pub fn ticks(&self) -> Ticks {
        let least_ns = self.config.tick_ns;
        Ticks { cost_ns: self.tick_cost, least_ns, most_ns: RAREST * self.config.period_ns }
    }

    /// Ticks are so far apart in the next windows. Not while one is open: its delays would lag behind by two times.
    ///
    /// # Errors
    /// When a window is open.
    pub fn tick_every(&mut self, ns: u64) -> Result<(), SampleError> {
        self.must_be_closed("changing how often ticks come")?;
        let ticks = self.ticks();
        self.spacing = ns.clamp(ticks.least_ns, ticks.most_ns);
        Ok(())
    }

    pub(super) fn set_period(&self, tick: usize, ns: u64) -> Result<(), SampleError> {
        let Some((number, _, event)) = self.ticks.get(tick) else { return Ok(()) };
        if let Some(words) = self.words.each_cpu().nth(*number as usize) {
            words[cpu!(tick)].store(ns, Relaxed);
            // What a tick costs the thread it meets is a part of all time that is not spent paying.
            let cost = self.tick_cost.min(ns / 2);
            words[cpu!(worth)].store(1024 * ns / (ns - cost), Relaxed);
        }
        event.set_period(ns).map_err(Into::into)
    }

    /// One of so many ticks of a window is recorded.
    pub(super) fn recorded_every(&self) -> u64 {
        (self.config.period_ns / self.spacing).max(1)
    }

    /// A tick's period, up to 10 % beside the nominal one: a fixed one locks onto periodic programs.
    pub(super) fn drawn(&mut self) -> u64 {
        self.draw ^= self.draw << 13;
        self.draw ^= self.draw >> 7;
        self.draw ^= self.draw << 17;
        let tick = self.spacing;
        tick - tick / 10 + self.draw % (tick / 5 + 1)
    }
}
