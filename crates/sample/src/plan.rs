//! What a collector is asked to do, decided before anything is opened: events with their periods,
//! whom to watch, stacks.

use whither_kernel::events::{EventSpec, Unit};
use whither_kernel::perf::Attr;
use whither_store::model::{Event, EventUnit, Precision};

/// An event chosen for sampling.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// What the kernel is asked for.
    pub spec: EventSpec,
    /// Nominal period in the event's unit; drawn anew around it all the time.
    pub period: u64,
    /// What a sampled address means.
    pub precision: Precision,
    /// How many events take turns on this one's counter (1: it runs all the time).
    pub turns: u64,
    /// Units that pass per nanosecond: 1 for time, the clock rate for cycles, 0 for events that come
    /// when they come, so that no rate can drive them.
    pub units_per_ns: f64,
}

impl Chosen {
    /// What one sample stands for, in the event's unit.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.period.saturating_mul(self.turns)
    }

    /// The event as the kernel wants it.
    #[must_use]
    pub fn attr(&self) -> Attr {
        Attr {
            kind: self.spec.kind,
            config: self.spec.config,
            config1: self.spec.config1,
            period: self.period,
            exclude_kernel: self.spec.exclude_kernel,
            exclude_user: self.spec.exclude_user,
            precise: self.spec.precise,
            ..Attr::default()
        }
    }

    /// The event as the store names it.
    #[must_use]
    pub fn event(&self) -> Event {
        let unit = match self.spec.unit {
            Unit::Nanoseconds => EventUnit::Nanoseconds,
            Unit::Count => EventUnit::Count,
        };
        Event { name: self.spec.name.clone(), unit, precision: self.precision }
    }

    /// Sets the nominal distance of samples, ns, of an event that a rate drives.
    pub fn set_distance(&mut self, ns: u64) {
        self.period = ((ns as f64 * self.units_per_ns) as u64).max(1);
    }

    /// Whether a rate sets the period.
    #[must_use]
    pub fn is_rated(&self) -> bool {
        self.units_per_ns > 0.0
    }

    /// Whether registers sampled with it tell which way branches went. Not those of events that come when they come:
    /// they would tell of chosen moments. Nor of precise ones: their address is that of an instruction before the
    /// interrupt, at which the registers are taken.
    #[must_use]
    pub fn brings_registers(&self) -> bool {
        self.is_rated() && self.spec.precise == 0 && self.precision != Precision::Exact
    }

    /// Whether a sample takes no interrupt of its own: software events other than clocks, and tracepoints, happen where
    /// the kernel runs already.
    #[must_use]
    pub fn is_synchronous(&self) -> bool {
        !self.is_time() && self.spec.is_software()
    }

    /// Samples per second and CPU while it is on; 0 when no rate drives it.
    #[must_use]
    pub fn hertz(&self) -> f64 {
        self.units_per_ns * 1e9 / self.period.max(1) as f64
    }

    /// Whether the period is a time.
    #[must_use]
    pub fn is_time(&self) -> bool {
        self.spec.unit == Unit::Nanoseconds
    }
}

/// Whom to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Everything.
    System,
    /// These processes and what they fork.
    Processes(Vec<u32>),
}

/// Stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackMode {
    /// None.
    Off,
    /// Frame pointers, one stack every so many samples.
    FramePointers {
        /// Thinning.
        every: u32,
    },
    /// Registers and stack bytes, unwound here.
    Dwarf {
        /// Bytes of stack.
        bytes: u32,
        /// Thinning.
        every: u32,
    },
}

/// Branch directions, and how they are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeMode {
    /// None.
    Off,
    /// Registers of some samples.
    Registers(Spend),
    /// The same, and values that branches load from memory where that is known beforehand.
    Memory(Spend),
    /// The same, and walks: from some samples on, code is executed in thought for some hundred instructions.
    Walks,
    /// The CPU's own records of the branches taken before each sample of this event; perf rings bring them.
    Records(u16),
}

/// How much CPU time interpreting may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spend {
    /// At most so many millionths of one CPU: fewer samples bring registers when it would be more.
    Share(u32),
    /// What it takes.
    Freely,
}

impl EdgeMode {
    /// How much interpreting may take; `None` without any.
    #[must_use]
    pub fn spend(self) -> Option<Spend> {
        match self {
            Self::Off | Self::Records(_) => None,
            Self::Registers(spend) | Self::Memory(spend) => Some(spend),
            Self::Walks => Some(Spend::Freely),
        }
    }
}

impl StackMode {
    /// One stack every so many samples; 0 when off.
    #[must_use]
    pub fn every(self) -> u32 {
        match self {
            Self::Off => 0,
            Self::FramePointers { every } | Self::Dwarf { every, .. } => every.max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_kernel::events;

    #[test]
    fn registers_come_with_samples_of_time_whose_address_is_the_interrupt_s() {
        let of = |name: &str, precision, units_per_ns| {
            let spec = events::parse(name).expect("an event");
            Chosen { spec, period: 1_000_000, precision, turns: 1, units_per_ns }.brings_registers()
        };
        assert!(of("cpu-clock", Precision::Skid(1), 1.0) && of("cycles", Precision::Skid(1), 4.0));
        assert!(!of("cycles:pp", Precision::Exact, 4.0), "the registers are from later");
        assert!(!of("cycles:p", Precision::Skid(1), 4.0));
        assert!(!of("page-faults", Precision::Unknown, 0.0), "chosen moments");
    }
}
