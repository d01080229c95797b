//! The perf-ring collector, for where BPF is refused: samples and side-band come through mapped rings
//! in time order and are aggregated here. Costs more per sample than BPF; needs no rights for one's
//! own processes.

use crate::accounts::Delivered;
use crate::book::{Book, SampleIn, StackIn, Who};
use crate::branches;
use crate::edges::{Edges, RegsIn};
use crate::kernel_map::{IdleCode, idle_code};
use crate::plan::{Chosen, Coverage, EdgeMode, StackMode};
use crate::sideband::SETTLE_NS;
use crate::{SampleError, unwind::Unwinders};
use rustc_hash::FxHashMap;
use std::os::fd::AsFd;
use std::time::Duration;
use whither_abi::regs::STEPS;
use whither_image::interp::Registers;
use whither_kernel::perf::{Attr, PerfEvent, SampleFields, Watch};
use whither_kernel::records::{Body, Record, RingSample, event_of_sample, parse};
use whither_kernel::ring::{Ring, wait};
use whither_kernel::{clock, proc};
use whither_store::model::{EdgeSource, Losses, StackEnd};

/// Data pages per ring, as many as may be locked: without rights `perf_event_mlock_kb` per CPU (516 by default: 128 pages
/// and the control page), of which other tools may have taken a part, and what `RLIMIT_MEMLOCK` allows on top.
const PAGES: [usize; 4] = [512, 128, 64, 32];
const PAGE_BYTES: usize = 4096;
/// Who waits is woken when a ring is full to this part: copies of stacks fill 30 MB a second.
const WAKE_PART: usize = 4;
/// Most threads times CPUs that are watched one by one.
const EVENT_LIMIT: usize = 8192;
/// `PERF_CONTEXT_MAX`: larger values in a call chain are markers.
const CONTEXT_MAX: u64 = -4095_i64 as u64;
const CONTEXT_KERNEL: u64 = -128_i64 as u64;
const CONTEXT_USER: u64 = -512_i64 as u64;

/// What a sample of one event stands for.
#[derive(Clone, Copy, Debug)]
struct Weighing {
    /// Of an instance of ours: its period is drawn around this one, and samples do not tell the last draw.
    nominal: u64,
    /// How many events take turns.
    turns: u64,
    /// The kernel looks for a period that gives so many samples a second; 0: ours counts.
    hertz: u64,
}

impl Weighing {
    fn of(c: &Chosen, hertz: Option<u64>) -> Self {
        let hertz = hertz.filter(|_| c.is_synchronous()).unwrap_or(0);
        Self { nominal: c.weight(), turns: c.turns, hertz }
    }

    /// The kernel swaps the events of a process with those of its child, so that sooner or later both run on inherited
    /// ones, whose period is that of their birth.
    fn of_sample(self, s: &RingSample) -> u64 {
        if s.inherited || self.hertz > 0 { s.period.saturating_mul(self.turns) } else { self.nominal }
    }
}

/// A running perf-ring collector.
#[derive(Debug)]
pub struct RingCollector {
    rings: Vec<(u32, Ring)>,
    perf: Vec<(u32, u16, PerfEvent)>,
    coverage: Coverage,
    numbers: FxHashMap<u64, u16>,
    fields: SampleFields,
    weighing: Vec<Weighing>,
    thinning: (u32, u32),
    /// The event whose samples bring registers.
    rated: Option<u16>,
    /// The event whose samples bring branch records, and what these are.
    recorded: Option<(u16, EdgeSource)>,
    delivered: FxHashMap<u32, Delivered>,
    /// The kernel's idle code, where idle CPUs are sampled too.
    idle: Option<IdleCode>,
    /// Read, but not yet booked.
    pending: Vec<Record>,
    scratch: Vec<u8>,
}

impl RingCollector {
    /// Opens rings for all CPUs, still switched off. `hertz`: how often, at most, events are sampled that no period
    /// keeps to a rate.
    ///
    /// # Errors
    /// The kernel's reason; [`SampleError::is_refusal`] tells whether rights are missing.
    pub fn open(
        chosen: &[Chosen],
        coverage: &Coverage,
        stacks: StackMode,
        edges: EdgeMode,
        hertz: Option<u64>,
    ) -> Result<Self, SampleError> {
        let user_stack = if let StackMode::Dwarf { bytes, .. } = stacks { bytes.next_multiple_of(8) } else { 0 };
        let registers = edges.spend().is_some() && chosen.iter().any(Chosen::brings_registers);
        let instance = *coverage != Coverage::System;
        let fields = SampleFields {
            callchain: stacks != StackMode::Off,
            user_stack,
            registers,
            instance,
            ..SampleFields::default()
        };
        let mut this = Self {
            rings: Vec::new(),
            perf: Vec::new(),
            coverage: coverage.clone(),
            numbers: FxHashMap::default(),
            fields,
            weighing: chosen.iter().map(|c| Weighing::of(c, hertz)).collect(),
            thinning: (stacks.every(), 0),
            rated: chosen.iter().position(Chosen::brings_registers).map(|n| n as u16),
            recorded: recorded(chosen, edges),
            delivered: FxHashMap::default(),
            idle: if *coverage == Coverage::System { idle_code() } else { None },
            pending: Vec::new(),
            scratch: Vec::new(),
        };
        let mut gone = None;
        for watch in watches(coverage, &proc::online_cpus())? {
            match this.open_group(chosen, watch) {
                // Threads end while others are opened.
                Err(e) if e.is_gone() => gone = Some(e),
                other => other?,
            }
        }
        match gone {
            Some(e) if this.perf.is_empty() => Err(e),
            _ => Ok(this),
        }
    }

    /// Opens the events of a CPU that came on line, switched off.
    ///
    /// # Errors
    /// The kernel's reason; the CPU then has no event.
    pub fn join(&mut self, cpu: u32, chosen: &[Chosen]) -> Result<(), SampleError> {
        let watches = watches(&self.coverage, &[cpu])?;
        let opened = watches.into_iter().try_for_each(|watch| self.open_group(chosen, watch));
        if opened.is_err() {
            self.leave(cpu);
        }
        opened
    }

    /// Closes the events of a CPU that went off line; what their ring held is booked next.
    pub fn leave(&mut self, cpu: u32) {
        self.read();
        self.rings.retain(|(c, _)| *c != cpu);
        self.perf.retain(|(c, ..)| *c != cpu);
    }

    /// Opens the events of one watch; all events of a CPU write into one ring.
    fn open_group(&mut self, chosen: &[Chosen], watch: Watch) -> Result<(), SampleError> {
        let inherit = self.coverage != Coverage::System;
        let cpu = match watch {
            Watch::Cpu(cpu) | Watch::ThreadOnCpu(_, cpu) => cpu,
            Watch::Thread(_) => 0,
        };
        for (number, event) in chosen.iter().enumerate() {
            let fields = Some(self.fields_of(number as u16));
            // The side-band of a thread comes once, with its first event.
            let sideband = number == 0;
            let hertz = self.weighing[number].hertz;
            let attr = Attr { disabled: true, inherit, fields, sideband, hertz, ..event.attr() };
            // The first event of a CPU owns the ring of all.
            let perf = if let Some((_, _, owner)) = self.perf.iter().find(|(c, ..)| *c == cpu) {
                let perf = PerfEvent::open(&attr, watch)?;
                perf.redirect_to(owner)?;
                perf
            } else {
                let (perf, ring) = with_ring(&attr, watch)?;
                self.rings.push((cpu, ring));
                perf
            };
            self.numbers.insert(perf.id()?, number as u16);
            self.perf.push((cpu, number as u16, perf));
        }
        Ok(())
    }

    /// Sleeps until a ring fills, the time is over, or a signal comes; returns whether one must be read.
    pub fn wait(&self, at_most: Duration) -> bool {
        let owners = self.rings.iter().filter_map(|(cpu, _)| self.perf.iter().find(|(c, ..)| c == cpu));
        wait(owners.map(|(_, _, event)| event.as_fd()), at_most)
    }

    /// Switches all events on.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn enable(&self) -> Result<(), SampleError> {
        self.perf.iter().try_for_each(|(_, _, e)| e.enable()).map_err(Into::into)
    }

    /// Switches all events off.
    pub fn disable(&self) {
        for (_, _, event) in &self.perf {
            // A thread that ended took its event along.
            let _ = event.disable();
        }
    }

    /// The opened events: CPU, number of the event, event.
    #[must_use]
    pub fn events(&self) -> &[(u32, u16, PerfEvent)] {
        &self.perf
    }

    /// New nominal period of an event, for the rows to come.
    pub fn set_nominal(&mut self, number: u16, period: u64) {
        if let Some(w) = self.weighing.get_mut(usize::from(number)) {
            w.nominal = period;
        }
    }

    /// Samples delivered per CPU since the last call.
    pub fn take_delivered(&mut self) -> FxHashMap<u32, Delivered> {
        std::mem::take(&mut self.delivered)
    }

    /// Moves everything from the rings into the book, in time order.
    pub(crate) fn drain(&mut self, book: &mut Book, unwinders: &mut Unwinders, mut edges: Option<&mut Edges>) {
        // Rings are read one after another: what is younger than the start of the reading may still
        // have older records in a ring read before, and waits for the next time.
        let until = clock::monotonic_ns().saturating_sub(SETTLE_NS);
        self.read();
        let mut records = std::mem::take(&mut self.pending);
        records.sort_by_key(|r| r.time);
        self.pending = records.split_off(records.partition_point(|r| r.time <= until));
        for r in &records {
            match &r.body {
                Body::Sample(s) => {
                    self.sample(r, s, book, unwinders);
                    if let Some((_, source)) = self.recorded {
                        let who = Who::At { pid: r.pid, tid: r.tid, time: r.time };
                        branches::take(book, who, &s.branches, source);
                    }
                    if let Some(edges) = &mut edges
                        && let Some(regs) = self.registers(r, s)
                    {
                        edges.take(book, &regs);
                    }
                }
                // Nearly all that goes through these rings are samples.
                Body::Lost(n) => book.lost(&Losses { dropped: *n, ..Losses::default() }),
                _ => book.record(r),
            }
        }
    }

    /// Takes the side-band in and throws the samples away.
    pub fn skip_samples(&mut self, book: &mut Book) {
        self.read();
        let mut records = std::mem::take(&mut self.pending);
        records.sort_by_key(|r| r.time);
        records.iter().filter(|r| !matches!(r.body, Body::Sample(_))).for_each(|r| book.record(r));
    }

    /// Hands out samples with their processes, and throws all else away: for stacks that nobody keeps.
    pub(crate) fn samples(&mut self, mut each: impl FnMut(u32, &RingSample)) {
        self.read();
        for record in self.pending.drain(..) {
            if let Body::Sample(sample) = &record.body {
                each(record.pid, sample);
            }
        }
    }

    fn read(&mut self) {
        for (_, ring) in &mut self.rings {
            ring.drain(&mut self.scratch, |bytes| {
                let number = event_of_sample(bytes).and_then(|id| self.numbers.get(&id));
                let fields = number.map_or(self.fields, |n| fields_of(self.fields, self.recorded, *n));
                self.pending.extend(parse(bytes, fields));
            });
        }
    }

    fn fields_of(&self, number: u16) -> SampleFields {
        fields_of(self.fields, self.recorded, number)
    }

    /// Registers of user code at a sample of time. (Those of a thread in the kernel are from its last entry.)
    fn registers(&self, r: &Record, s: &RingSample) -> Option<RegsIn> {
        let rated = self.rated.is_some() && self.rated == self.numbers.get(&r.id).copied();
        let regs = s.registers.as_ref().filter(|_| s.user && rated)?;
        Some(RegsIn {
            who: Who::At { pid: r.pid, tid: r.tid, time: r.time },
            pc: s.ip,
            registers: Registers { gpr: regs.gpr, flags: regs.flags },
            recipe: 0,
            steps: [None; STEPS],
        })
    }

    fn sample(&mut self, r: &Record, s: &RingSample, book: &mut Book, unwinders: &mut Unwinders) {
        let idle = r.tid == 0 && self.coverage == Coverage::System && self.idle.is_none_or(|code| code.holds(s.ip));
        let delivered = self.delivered.entry(r.cpu).or_default();
        delivered.all += 1;
        delivered.idle += u64::from(idle);
        if idle {
            return;
        }
        let event = self.numbers.get(&r.id).copied().unwrap_or(0);
        let period = self.weighing[usize::from(event)].of_sample(s);
        let who = Who::At { pid: r.pid, tid: r.tid, time: r.time };
        book.sample(&SampleIn { who, pc: s.ip, event, period, count: 1 });
        let (every, seen) = self.thinning;
        if every == 0 {
            return;
        }
        self.thinning.1 = (seen + 1) % every;
        if seen == 0 {
            let stack = StackIn { event, period: period * u64::from(every), ..stack_of(who, s, book, unwinders) };
            book.stack(&stack);
        }
    }
}

/// An event and its ring, as large as can be had.
fn with_ring(attr: &Attr, watch: Watch) -> Result<(PerfEvent, Ring), SampleError> {
    let mut refused = None;
    for pages in PAGES {
        let wakeup_bytes = (pages * PAGE_BYTES / WAKE_PART) as u32;
        let perf = PerfEvent::open(&Attr { wakeup_bytes, ..*attr }, watch)?;
        match Ring::map(&perf, pages) {
            Ok(ring) => return Ok((perf, ring)),
            Err(e) => refused = Some(e),
        }
    }
    Err(refused.expect("there are sizes to try").into())
}

/// What the samples of an event carry: branch records come with one event only.
fn fields_of(common: SampleFields, recorded: Option<(u16, EdgeSource)>, number: u16) -> SampleFields {
    SampleFields { branches: recorded.is_some_and(|(n, _)| n == number), ..common }
}

fn recorded(chosen: &[Chosen], edges: EdgeMode) -> Option<(u16, EdgeSource)> {
    let EdgeMode::Records(number) = edges else { return None };
    let event = chosen.get(usize::from(number))?;
    Some((number, branches::source_of(event, &proc::machine().cpu)))
}

/// Splits a call chain at its markers, and unwinds the user part when bytes were sampled.
fn stack_of(who: Who, s: &RingSample, book: &Book, unwinders: &mut Unwinders) -> StackIn {
    let (mut kernel, mut user) = (Vec::new(), Vec::new());
    let mut in_user = s.user;
    for &address in &s.chain {
        match address {
            CONTEXT_KERNEL => in_user = false,
            CONTEXT_USER => in_user = true,
            a if a >= CONTEXT_MAX => {}
            a if in_user => user.push(a),
            a => kernel.push(a),
        }
    }
    // A walk by frame pointers that ends in its first user frame met code without them.
    let cut = user.len() >= whither_abi::MAX_FRAMES || user.len() == 1;
    let mut end = if cut { StackEnd::Truncated } else { StackEnd::Complete };
    if let (Some([bp, sp, ip]), false) = (s.regs, s.stack.is_empty()) {
        (user, end) = unwinders.unwind(book, who, [ip, sp, bp], &s.stack);
    }
    if kernel.is_empty() && user.is_empty() {
        user.push(s.ip);
    }
    StackIn { who, event: 0, period: 0, kernel, user, end }
}

fn watches(coverage: &Coverage, cpus: &[u32]) -> Result<Vec<Watch>, SampleError> {
    let Coverage::Processes(pids) = coverage else {
        return Ok(cpus.iter().copied().map(Watch::Cpu).collect());
    };
    let threads: Vec<u32> = pids.iter().flat_map(|&pid| proc::threads(pid)).collect();
    let pairs = threads.iter().flat_map(|&t| cpus.iter().map(move |&cpu| Watch::ThreadOnCpu(t, cpu)));
    let watches: Vec<Watch> = pairs.collect();
    if watches.len() > EVENT_LIMIT {
        // Leaving threads out would make shares that look whole and are not.
        return Err(SampleError::TooManyThreads { threads: threads.len(), cpus: cpus.len(), limit: EVENT_LIMIT });
    }
    Ok(watches)
}
