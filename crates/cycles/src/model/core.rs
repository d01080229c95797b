//! Cores as text: a table of widths, latencies and penalties with the figures of a large x86-64 core of the last years
//! as defaults. What was measured on the host of a recording replaces them; a user's table replaces both.

use super::latencies::{Latencies, Vendor, whole};
use super::{CoreModel, Order, Work};
use serde::{Deserialize, Serialize};
use whither_image::{Effects, OpClass};
use whither_store::CoreFacts;

/// A table that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// It does not parse.
    #[error("the table of the processor model does not parse: {0}; docs/reference/core.toml lists its fields")]
    Parse(#[from] toml::de::Error),
    /// A figure makes no sense.
    #[error("the processor model '{name}' has {field} = {value}; it must lie between {low} and {high}")]
    Range {
        /// Name of the model.
        name: String,
        /// Which figure.
        field: String,
        /// What it is.
        value: f64,
        /// Least.
        low: f64,
        /// Most.
        high: f64,
    },
}

/// An out-of-order x86-64 core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Core {
    /// What to call it.
    pub name: String,
    /// Slots per cycle into the pipeline.
    pub dispatch: u16,
    /// Slots per cycle out of it.
    pub retire: u16,
    /// Integer units.
    pub alus: u16,
    /// Of these, those that count bits.
    pub bit_units: u16,
    /// Loads per cycle.
    pub loads: u16,
    /// Stores per cycle.
    pub stores: u16,
    /// Slots that its reorder buffer holds at most, for bounds.
    pub window: u16,
    /// Slots that retire per cycle at most, for bounds.
    pub most_retired: u16,
    /// Slots per cycle that measured code reached, for bounds; 0 when not measured.
    pub measured_width: f64,
    /// Taken branches per cycle that measured code reached, for bounds; 0 when not measured.
    pub measured_taken: f64,
    /// Cycles from operands to result.
    pub latency: Latencies,
    /// Cycles that things cost which go wrong.
    pub penalty: Penalties,
}

/// Cycles lost when something goes wrong: the worst an ordinary case costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Penalties {
    /// A mispredicted branch, until the right instructions come.
    pub mispredict: f64,
    /// A load that cannot take its bytes from a store that has not reached the cache.
    pub forward_fail: f64,
    /// First cache missed, second hit.
    pub l2: f64,
    /// Second missed, last hit.
    pub l3: f64,
    /// All missed.
    pub dram: f64,
    /// A walk of page tables that the caches hold.
    pub dtlb_walk: f64,
    /// A microcode assist.
    pub assist: f64,
}

impl Default for Penalties {
    fn default() -> Self {
        Self { mispredict: 20.0, forward_fail: 20.0, l2: 16.0, l3: 75.0, dram: 450.0, dtlb_walk: 35.0, assist: 200.0 }
    }
}

impl Default for Core {
    fn default() -> Self {
        Self {
            name: "generic x86-64".into(),
            dispatch: 6,
            retire: 8,
            alus: 5,
            bit_units: 4,
            loads: 3,
            stores: 2,
            window: LARGEST_WINDOW as u16,
            most_retired: WIDEST_RETIREMENT as u16,
            measured_width: 0.0,
            measured_taken: 0.0,
            latency: Latencies::default(),
            penalty: Penalties::default(),
        }
    }
}

impl Core {
    /// From a table as text; what it leaves out keeps its default.
    ///
    /// # Errors
    /// When it does not parse, or has a figure that makes no sense.
    pub fn from_toml(text: &str) -> Result<Self, ModelError> {
        let core: Self = toml::from_str(text)?;
        let widths = [
            ("dispatch", core.dispatch, 1.0, 32.0),
            ("retire", core.retire, 1.0, 64.0),
            ("alus", core.alus, 1.0, f64::from(ALUS)),
            ("bit_units", core.bit_units, 1.0, f64::from(ALUS)),
            ("loads", core.loads, 1.0, f64::from(LOADS)),
            ("stores", core.stores, 1.0, f64::from(STORES)),
            ("window", core.window, 1.0, MOST_CYCLES),
            ("most_retired", core.most_retired, 1.0, 64.0),
        ];
        let mut checks: Vec<(String, f64, f64, f64)> =
            widths.into_iter().map(|(field, value, low, high)| (field.to_owned(), value.into(), low, high)).collect();
        checks.push(("measured_width".to_owned(), core.measured_width, 0.0, 32.0));
        checks.push(("measured_taken".to_owned(), core.measured_taken, 0.0, 32.0));
        // Latencies and penalties by the names they were read by.
        let table: toml::Table = toml::from_str(text)?;
        for part in ["latency", "penalty"] {
            let figures = table.get(part).and_then(toml::Value::as_table).into_iter().flatten();
            let number = |v: &toml::Value| v.as_float().or_else(|| v.as_integer().map(|i| i as f64));
            checks.extend(figures.filter_map(|(k, v)| Some((format!("{part}.{k}"), number(v)?, 0.0, MOST_CYCLES))));
        }
        match checks.into_iter().find(|(_, value, low, high)| !(low..=high).contains(&value)) {
            Some((field, value, low, high)) => Err(ModelError::Range { name: core.name, field, value, low, high }),
            None => Ok(core),
        }
    }

    /// The default core with what was measured in its place.
    #[must_use]
    pub fn from_facts(facts: &CoreFacts) -> Self {
        let mut core = Self {
            name: format!("measured on {}", facts.cpu),
            latency: Latencies::of(Vendor::of(&facts.cpu)),
            ..Self::default()
        };
        core.latencies(facts);
        core.widths(facts);
        core.depths(&facts.cpu);
        let p = &mut core.penalty;
        let real = |measured: Option<f64>, place: &mut f64| {
            if let Some(m) = measured.filter(|m| m.is_finite() && *m > 0.0) {
                *place = m;
            }
        };
        real(facts.mispredict, &mut p.mispredict);
        real(facts.forward_fail, &mut p.forward_fail);
        real(facts.l2, &mut p.l2);
        real(facts.l3, &mut p.l3);
        real(facts.dram, &mut p.dram);
        real(facts.dtlb_walk, &mut p.dtlb_walk);
        core
    }

    fn latencies(&mut self, facts: &CoreFacts) {
        let l = &mut self.latency;
        let put = |measured: Option<f64>, place: &mut u16| *place = whole(measured).unwrap_or(*place);
        put(facts.add_immediate, &mut l.add_immediate);
        put(facts.imul, &mut l.imul);
        // Earlier ways of measuring divided with long quotients, which no best case has.
        let least = facts.method >= LEAST_DIVISIONS;
        put(facts.div32.map(|d| if least { d } else { d.min(f64::from(l.div32)) }), &mut l.div32);
        put(facts.div64.map(|d| if least { d } else { d.min(f64::from(l.div64)) }), &mut l.div64);
        put(facts.div_every, &mut l.div_every);
        put(facts.load, &mut l.load);
        l.vec_load = l.load + 1;
        put(facts.fp_add, &mut l.fp_add);
        put(facts.fp_mul, &mut l.fp_mul);
        l.fma = l.fma.max(l.fp_mul);
        put(facts.fma, &mut l.fma);
        put(facts.fp_div, &mut l.fp_div);
        put(facts.fp_div_every, &mut l.fp_div_every);
        put(facts.sqrt, &mut l.sqrt);
        put(facts.sqrt_every, &mut l.sqrt_every);
        put(facts.forward.map(|f| (f - 1.0).max(0.0)), &mut l.forward);
        put(facts.lock, &mut l.lock);
        l.measured(&facts.latencies);
        l.mul_high = l.mul_high.max(l.imul);
    }

    fn widths(&mut self, facts: &CoreFacts) {
        if let Some(width) = facts.width.filter(|w| (1.0..=16.0).contains(w)) {
            self.measured_width = width;
            self.dispatch = width.round() as u16;
            self.retire = self.retire.max(self.dispatch);
        }
        if let Some(taken) = facts.taken.filter(|t| (0.4..=8.0).contains(t)) {
            self.measured_taken = taken;
        }
        if let Some(alus) = facts.alus.filter(|a| (1.0..=8.0).contains(a)) {
            self.alus = (alus.round() as u16).clamp(1, ALUS as u16);
        }
        if let Some(units) =
            facts.latencies.get("bits_every").map(|every| 1.0 / every).filter(|u| (0.5..=8.0).contains(u))
        {
            self.bit_units = (units.round() as u16).clamp(1, self.alus);
        }
    }

    /// What is known of this family: with room, as some cores put what does nothing into the slot beside it.
    fn depths(&mut self, cpu: &str) {
        let mut words = cpu.split_whitespace().skip_while(|w| *w != "family").skip(1);
        let family = words.next().and_then(|f| f.parse::<u32>().ok()).filter(|_| cpu.starts_with("AMD"));
        // Zen 1 and 2, Zen 3 and 4, Zen 5.
        let window = match family {
            Some(23) => 280,
            Some(25) => 400,
            Some(26) => 560,
            _ => return,
        };
        (self.window, self.most_retired) = (window, 8);
    }

    fn loaded(&self, insn: &Effects) -> u16 {
        let vector = insn.writes.0 >> VECTOR_BITS != 0;
        if vector { self.latency.vec_load } else { self.latency.load }
    }
}

/// Of all cores sold so far, in slots (Intel Lion Cove).
pub(super) const LARGEST_WINDOW: f64 = 576.0;
/// Of all cores sold so far, in slots per cycle (the same).
pub(super) const WIDEST_RETIREMENT: f64 = 12.0;
/// Way of measuring from which on divisions are those of the shortest quotients.
const LEAST_DIVISIONS: u32 = 5;
/// Nothing that a core does takes longer.
const MOST_CYCLES: f64 = 10_000.0;
/// Registers from this number on are vectors and masks.
const VECTOR_BITS: u32 = 19;
const ALUS: u32 = 8;
const LOADS: u32 = 4;
const STORES: u32 = 4;
const FP: u32 = 4;
const LOAD_AT: u32 = ALUS;
const STORE_AT: u32 = LOAD_AT + LOADS;
const FP_AT: u32 = STORE_AT + STORES;
const DIVIDER: u32 = 1 << (FP_AT + FP);
const FP_DIVIDER: u32 = DIVIDER << 1;
/// Locked operations go one after the other, whatever else goes on beside them.
const LOCKER: u32 = FP_DIVIDER << 1;
const MICROCODE: u32 = LOCKER << 1;

fn range(from: u32, count: u32) -> u32 {
    ((1 << count) - 1) << from
}

impl Core {
    /// Units that can do a kind of work, and for how long it keeps one.
    fn units(&self, class: OpClass, latency: u16) -> (u32, u16) {
        let l = &self.latency;
        let alus = range(0, u32::from(self.alus));
        // One integer unit in two shifts or takes branches; one multiplies. Half of the vector units add.
        let some = |n: u16| range(0, u32::from(n.max(1)));
        let (fp, half) = (range(FP_AT, FP), range(FP_AT, FP / 2));
        let other_half = range(FP_AT + FP / 2, FP / 2);
        match class {
            OpClass::Nop | OpClass::Move | OpClass::ZeroIdiom | OpClass::Load | OpClass::Store => (0, 0),
            OpClass::AluImmediate if l.add_immediate == 0 => (0, 0),
            OpClass::Shift | OpClass::RotateCarry | OpClass::LeaSlow | OpClass::LeaScaled => (some(self.alus / 2), 1),
            OpClass::Imul | OpClass::Deposit | OpClass::Crc | OpClass::ShiftDouble => (0b10, 1),
            OpClass::Bits if self.bit_units == 1 => (0b10, 1),
            OpClass::Bits => (some(self.bit_units), 1),
            OpClass::Div => (DIVIDER, l.div_every),
            OpClass::FpDiv => (FP_DIVIDER, l.fp_div_every),
            OpClass::Sqrt => (FP_DIVIDER, l.sqrt_every),
            OpClass::FpDivSingle => (FP_DIVIDER, l.fp_div_every.min(3)),
            OpClass::SqrtSingle => (FP_DIVIDER, l.sqrt_every.min(3)),
            OpClass::FpMul
            | OpClass::Fma
            | OpClass::Transfer
            | OpClass::Lane
            | OpClass::X87
            | OpClass::VecMul
            | OpClass::VecMulWide
            | OpClass::Aes
            | OpClass::AesKey
            | OpClass::CarryLess
            | OpClass::ShaRounds
            | OpClass::Crypto => (half, 1),
            OpClass::FpAdd
            | OpClass::FpCompare
            | OpClass::Horizontal
            | OpClass::VecShuffle
            | OpClass::Pack
            | OpClass::Cross
            | OpClass::Halves => (other_half, 1),
            OpClass::Gather => (fp, 2),
            OpClass::Branch | OpClass::Loop | OpClass::IndirectBranch | OpClass::Call | OpClass::Return => (some(2), 1),
            OpClass::Lock => (LOCKER, l.lock),
            // Microcode, one after the other.
            OpClass::ReadClock | OpClass::PopFlags | OpClass::Rep => (MICROCODE, latency),
            OpClass::Pause | OpClass::SystemCall | OpClass::Serialising | OpClass::Cpuid => (0, 0),
            class if class.is_fence() => (0, 0),
            class if class.is_of_general_registers() => (alus, 1),
            _ => (fp, 1),
        }
    }
}

impl CoreModel for Core {
    fn name(&self) -> &str {
        &self.name
    }

    fn order(&self) -> Order {
        Order::OutOfOrder
    }

    fn dispatch_width(&self) -> u32 {
        u32::from(self.dispatch)
    }

    fn retire_width(&self) -> u32 {
        u32::from(self.retire)
    }

    fn fuses(&self, first: &Effects, second: &Effects) -> bool {
        first.fuses_with(second)
    }

    fn work(&self, insn: &Effects) -> Work {
        let latency = self.latency.of_work(insn);
        let (ports, busy) = self.units(insn.class, latency);
        // Of those that serialise some do not (`pushf`, `cli`), and the others take so long that it makes no difference.
        // Locked operations order memory, not arithmetic: what does not need their result goes on meanwhile.
        let alone =
            insn.class.is_fence() || matches!(insn.class, OpClass::Pause | OpClass::SystemCall | OpClass::Cpuid);
        // Measured as a whole.
        let load_latency = if insn.class == OpClass::Lock { 0 } else { self.loaded(insn) };
        let late =
            if insn.late.is_empty() { 0 } else { self.latency.mul_high - self.latency.imul.min(self.latency.mul_high) };
        Work { latency, late, merge_late: self.latency.transfer.min(latency), ports, busy, load_latency, alone }
    }

    fn load_ports(&self) -> u32 {
        range(LOAD_AT, u32::from(self.loads))
    }

    fn store_ports(&self) -> u32 {
        range(STORE_AT, u32::from(self.stores))
    }

    fn forward_latency(&self) -> u16 {
        self.latency.forward
    }

    fn most_slots(&self) -> f64 {
        // No core sold so far retires more than twelve; a measured width leaves room for what was not tried.
        if self.measured_width > 0.0 { (self.measured_width * 1.1).max(4.0) } else { 12.0 }
    }

    fn window(&self) -> f64 {
        f64::from(self.window)
    }

    fn most_retired(&self) -> f64 {
        f64::from(self.most_retired)
    }

    fn least_busy(&self, insn: &Effects) -> f64 {
        let every = match insn.class {
            OpClass::Div => self.latency.div_every,
            OpClass::FpDiv => self.latency.fp_div_every.min(4),
            OpClass::Sqrt => self.latency.sqrt_every.min(4),
            OpClass::FpDivSingle => self.latency.fp_div_every.min(3),
            OpClass::SqrtSingle => self.latency.sqrt_every.min(3),
            OpClass::ReadClock => self.latency.read_clock,
            OpClass::PopFlags => self.latency.pop_flags,
            OpClass::Rep => self.latency.rep,
            _ => 0,
        };
        // Rounded, and of quotients that were not tried.
        f64::from(every) * 0.9
    }

    fn least_alone(&self, insn: &Effects) -> f64 {
        let cycles = match insn.class {
            OpClass::Cpuid => self.latency.cpuid,
            OpClass::Pause => self.latency.pause,
            _ => 0,
        };
        // A hypervisor may be quicker at other times, and some leaves are quicker than others.
        f64::from(cycles) * 0.7
    }

    fn most_taken(&self) -> f64 {
        // No core sold so far takes more than two; measured ones are given the same room.
        if self.measured_taken > 0.0 { (self.measured_taken * 1.1).max(1.0) } else { 2.0 }
    }

    fn least_latency(&self, insn: &Effects) -> u16 {
        let l = &self.latency;
        match insn.class {
            OpClass::Alu
            | OpClass::TwoFlags
            | OpClass::Shift
            | OpClass::ShiftDouble
            | OpClass::RotateCarry
            | OpClass::Lowest
            | OpClass::BitField
            | OpClass::Bits
            | OpClass::VecAlu
            | OpClass::VecShuffle => 1,
            OpClass::Imul | OpClass::FpMul => l.imul.min(l.fp_mul).min(3),
            OpClass::Deposit => l.deposit.min(3),
            OpClass::Crc => l.crc.min(3),
            OpClass::FpAdd => l.fp_add.min(2),
            OpClass::Fma => l.fma.min(3),
            class if class == OpClass::Div || class.is_fp_division() => 4,
            _ => 0,
        }
    }
}
