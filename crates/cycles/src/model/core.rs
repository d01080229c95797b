//! Cores as text: a table of widths, latencies and penalties with the figures of a large x86-64 core of the last years
//! as defaults. What was measured on the host of a recording replaces them; a user's table replaces both.

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

/// Cycles from operands to result, and how long units stay busy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Latencies {
    pub alu: u16,
    pub add_immediate: u16,
    pub shift: u16,
    pub lea_slow: u16,
    pub imul: u16,
    pub bits: u16,
    pub div32: u16,
    pub div64: u16,
    pub div_every: u16,
    pub fp_add: u16,
    pub fp_mul: u16,
    pub fma: u16,
    pub fp_div: u16,
    pub fp_div_every: u16,
    pub sqrt: u16,
    pub sqrt_every: u16,
    pub vec_alu: u16,
    pub vec_shuffle: u16,
    pub transfer: u16,
    pub load: u16,
    pub vec_load: u16,
    pub forward: u16,
    pub x87: u16,
    pub gather: u16,
    pub crypto: u16,
    pub lock: u16,
    pub fence: u16,
    pub pause: u16,
    pub rep: u16,
    pub serialising: u16,
    pub system_call: u16,
    pub other: u16,
}

/// What recordings measure has the figures of a usual core; what nobody measures has the least that any x86-64 core of the last
/// ten years takes, as executions are bounded by it.
impl Default for Latencies {
    fn default() -> Self {
        Self {
            alu: 1,
            add_immediate: 1,
            shift: 1,
            lea_slow: 1,
            imul: 3,
            bits: 1,
            div32: 9,
            div64: 9,
            div_every: 4,
            fp_add: 2,
            fp_mul: 3,
            fma: 4,
            fp_div: 13,
            fp_div_every: 4,
            sqrt: 18,
            sqrt_every: 6,
            vec_alu: 1,
            vec_shuffle: 1,
            transfer: 1,
            load: 4,
            vec_load: 6,
            forward: 4,
            x87: 1,
            gather: 8,
            crypto: 1,
            lock: 18,
            fence: 4,
            pause: 3,
            rep: 3,
            serialising: 4,
            system_call: 4,
            other: 0,
        }
    }
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
        let mut core = Self { name: format!("measured on {}", facts.cpu), ..Self::default() };
        let whole = |measured: Option<f64>, place: &mut u16| {
            if let Some(m) = measured.filter(|m| m.is_finite() && (0.0..60_000.0).contains(m)) {
                *place = m.round() as u16;
            }
        };
        let l = &mut core.latency;
        whole(facts.add_immediate, &mut l.add_immediate);
        whole(facts.imul, &mut l.imul);
        // Earlier ways of measuring divided with long quotients, which no best case has.
        let least = facts.method >= LEAST_DIVISIONS;
        whole(facts.div32.map(|d| if least { d } else { d.min(f64::from(l.div32)) }), &mut l.div32);
        whole(facts.div64.map(|d| if least { d } else { d.min(f64::from(l.div64)) }), &mut l.div64);
        whole(facts.div_every, &mut l.div_every);
        whole(facts.load, &mut l.load);
        l.vec_load = l.load + 2;
        whole(facts.fp_add, &mut l.fp_add);
        whole(facts.fp_mul, &mut l.fp_mul);
        l.fma = l.fma.max(l.fp_mul);
        whole(facts.fma, &mut l.fma);
        whole(facts.fp_div, &mut l.fp_div);
        whole(facts.fp_div_every, &mut l.fp_div_every);
        whole(facts.sqrt, &mut l.sqrt);
        whole(facts.sqrt_every, &mut l.sqrt_every);
        whole(facts.forward.map(|f| (f - 1.0).max(0.0)), &mut l.forward);
        whole(facts.lock, &mut l.lock);
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

fn range(from: u32, count: u32) -> u32 {
    ((1 << count) - 1) << from
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
        let l = &self.latency;
        let alus = range(0, u32::from(self.alus));
        // One integer unit in two shifts or takes branches; one multiplies. Half of the vector units add.
        let some = |n: u16| range(0, u32::from(n.max(1)));
        let (fp, half) = (range(FP_AT, FP), range(FP_AT, FP / 2));
        let other_half = range(FP_AT + FP / 2, FP / 2);
        let (latency, ports, busy) = match insn.class {
            OpClass::Nop | OpClass::Move | OpClass::ZeroIdiom | OpClass::Load | OpClass::Store => (0, 0, 0),
            OpClass::Alu | OpClass::Lea => (l.alu, alus, 1),
            OpClass::AluImmediate => (l.add_immediate, if l.add_immediate == 0 { 0 } else { alus }, 1),
            OpClass::Shift => (l.shift, some(self.alus / 2), 1),
            OpClass::LeaSlow => (l.lea_slow, some(self.alus / 2), 1),
            OpClass::Imul => (l.imul, 0b10, 1),
            OpClass::Bits => (l.bits, 0b10, 1),
            OpClass::Div => (if insn.bits >= 64 { l.div64 } else { l.div32 }, DIVIDER, l.div_every),
            OpClass::FpAdd => (l.fp_add, other_half, 1),
            OpClass::FpMul => (l.fp_mul, half, 1),
            OpClass::Fma => (l.fma, half, 1),
            OpClass::FpDiv => (l.fp_div, FP_DIVIDER, l.fp_div_every),
            OpClass::Sqrt => (l.sqrt, FP_DIVIDER, l.sqrt_every),
            OpClass::VecAlu => (l.vec_alu, fp, 1),
            OpClass::VecShuffle => (l.vec_shuffle, other_half, 1),
            OpClass::Transfer => (l.transfer, half, 1),
            OpClass::Branch | OpClass::Loop | OpClass::IndirectBranch | OpClass::Call | OpClass::Return => {
                (1, some(2), 1)
            }
            OpClass::Lock => (l.lock, LOCKER, l.lock),
            OpClass::Fence => (l.fence, 0, 0),
            OpClass::Pause => (l.pause, 0, 0),
            OpClass::SystemCall => (l.system_call, 0, 0),
            OpClass::Serialising => (l.serialising, 0, 0),
            OpClass::Rep => (l.rep, alus, 1),
            OpClass::X87 => (l.x87, half, 1),
            OpClass::Gather => (l.gather, fp, 2),
            OpClass::Crypto => (l.crypto, half, 1),
            OpClass::Other => (l.other, alus, 1),
        };
        // Of those that serialise some do not (`pushf`, `cli`), and the others take so long that it makes no difference.
        // Locked operations order memory, not arithmetic: what does not need their result goes on meanwhile.
        let alone = matches!(insn.class, OpClass::Fence | OpClass::Pause | OpClass::SystemCall);
        // Measured as a whole.
        let load_latency = if insn.class == OpClass::Lock { 0 } else { self.loaded(insn) };
        Work { latency, ports, busy, load_latency, alone }
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
            _ => 0,
        };
        // Rounded, and of quotients that were not tried.
        f64::from(every) * 0.9
    }

    fn most_taken(&self) -> f64 {
        // No core sold so far takes more than two; measured ones are given the same room.
        if self.measured_taken > 0.0 { (self.measured_taken * 1.1).max(1.0) } else { 2.0 }
    }

    fn least_latency(&self, insn: &Effects) -> u16 {
        match insn.class {
            OpClass::Alu | OpClass::Shift | OpClass::VecAlu | OpClass::VecShuffle => 1,
            OpClass::Bits => self.latency.bits.min(1),
            OpClass::Imul | OpClass::FpMul => self.latency.imul.min(self.latency.fp_mul).min(3),
            OpClass::FpAdd => self.latency.fp_add.min(2),
            OpClass::Fma => self.latency.fma.min(3),
            OpClass::Div | OpClass::FpDiv | OpClass::Sqrt => 4,
            _ => 0,
        }
    }
}
