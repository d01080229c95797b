//! A running collection, whichever back end it has: open, switch on, pump the side-band, drain
//! samples into the book, draw new periods, keep accounts.

use crate::book::{Book, SampleIn, StackIn, Who};
use crate::bpf::BpfCollector;
use crate::edges::{Edges, RegsIn};
use crate::hotplug::{self, CpuChange};
use crate::perf_ring::RingCollector;
use crate::plan::{Chosen, Coverage, EdgeMode, StackMode};
use crate::sideband::Sideband;
use crate::unwind::Unwinders;
use crate::{SampleError, accounts::Accounts};
use rustc_hash::FxHashMap;
use whither_abi::pairs::Pair;
use whither_abi::path::Path;
use whither_abi::regs::Regs;
use whither_abi::{StackRecord, Task, WHY_EXECED, event_of, pc_of};
use whither_kernel::bpf_stats::BpfStats;
use whither_kernel::clock;
use whither_kernel::perf::{Attr, PerfEvent, SampleFields, Watch};
use whither_kernel::ring::Ring;
use whither_store::model::{Losses, StackEnd};

/// Which back end runs.
#[derive(Debug)]
enum Kind {
    Bpf(Box<BpfCollector>, Sideband),
    Ring(RingCollector),
}

/// What was taken since sampling was switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Samples of all events, of idle CPUs and of what is not recorded too.
    pub samples: u64,
    /// Of them those of what is recorded.
    pub of_target: u64,
    /// Walks that ended.
    pub walks: u64,
    /// The time they took, ns.
    pub walks_ns: u64,
    /// Interrupts of the event for second moments.
    pub seconds: u64,
}

/// A running collection.
#[derive(Debug)]
pub struct Collector {
    kind: Kind,
    chosen: Vec<Chosen>,
    /// When the rate last changed, and the events before that.
    former: (u64, Vec<Chosen>),
    stacks: StackMode,
    /// `None` when no registers are taken.
    edges: Option<Edges>,
    accounts: Accounts,
    /// CPUs that are sampled.
    cpus: Vec<u32>,
    unwinders: Unwinders,
    stacks_dropped: u64,
    tasks_dropped: u64,
    /// Register records dropped, as last seen, and whether since the last question.
    registers_dropped: (u32, bool),
    /// Task records, stacks and registers younger than the side-band read so far.
    tasks: Vec<Task>,
    waiting: Vec<StackRecord>,
    waiting_regs: Vec<Regs>,
    waiting_paths: Vec<Path>,
    waiting_pairs: Vec<Pair>,
    /// Occurrences of synchronous events when they were last looked at.
    occurred: FxHashMap<(u32, u16), u64>,
}

impl Collector {
    /// Opens aggregation in the kernel and fills the book with what runs already. Switched off.
    ///
    /// # Errors
    /// When BPF or system-wide events are refused.
    pub fn bpf(
        chosen: &[Chosen],
        coverage: &Coverage,
        stacks: StackMode,
        edges: EdgeMode,
        threads: bool,
        book: &mut Book,
    ) -> Result<Self, SampleError> {
        // Order matters: the side-band first, so that what changes during the scan is seen.
        let sideband = Sideband::open()?;
        let mut bpf = BpfCollector::open(chosen, coverage, stacks, edges, threads)?;
        if bpf.is_phased() {
            book.will_be_phased();
        }
        book.scan(None);
        for task in bpf.scan_tasks()? {
            book.task(&task);
        }
        Ok(Self::new(Kind::Bpf(Box::new(bpf), sideband), chosen, stacks, edges))
    }

    /// Opens perf rings and fills the book with what runs already. Switched off. `hertz`: how often, at most, events are
    /// sampled that no period keeps to a rate.
    ///
    /// # Errors
    /// When the events are refused.
    pub fn ring(
        chosen: &[Chosen],
        coverage: &Coverage,
        stacks: StackMode,
        edges: EdgeMode,
        hertz: Option<u64>,
        book: &mut Book,
    ) -> Result<Self, SampleError> {
        let ring = RingCollector::open(chosen, coverage, stacks, edges, hertz)?;
        match coverage {
            Coverage::System => book.scan(None),
            Coverage::Processes(pids) => book.scan(Some(pids)),
        }
        Ok(Self::new(Kind::Ring(ring), chosen, stacks, edges))
    }

    fn new(kind: Kind, chosen: &[Chosen], stacks: StackMode, edges: EdgeMode) -> Self {
        // What a recipe asks for, only the kernel-side program loads.
        let memory = matches!((&kind, edges), (Kind::Bpf(..), EdgeMode::Memory(_) | EdgeMode::Walks));
        let edges = edges.spend().map(|spend| Edges::new(memory, spend));
        let accounts = Accounts::new(chosen);
        let chosen = chosen.to_vec();
        let cpus = cpus_of(&kind);
        let unwinders = Unwinders::default();
        Self {
            kind,
            chosen,
            former: (0, Vec::new()),
            stacks,
            edges,
            accounts,
            cpus,
            unwinders,
            stacks_dropped: 0,
            tasks_dropped: 0,
            registers_dropped: (0, false),
            tasks: Vec::new(),
            waiting: Vec::new(),
            waiting_regs: Vec::new(),
            waiting_paths: Vec::new(),
            waiting_pairs: Vec::new(),
            occurred: FxHashMap::default(),
        }
    }

    /// Whether samples bring bytes of their stacks.
    #[must_use]
    pub fn copies_stacks(&self) -> bool {
        matches!(self.stacks, StackMode::Dwarf { .. })
    }

    /// Name of the back end, as recordings tell it.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        match self.kind {
            Kind::Bpf(..) => "bpf",
            Kind::Ring(_) => "perf-ring",
        }
    }

    /// Switches sampling on, each event with a period drawn around its nominal one.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn enable(&mut self) -> Result<(), SampleError> {
        let counters = match &self.kind {
            Kind::Bpf(b, _) => b.cpu_counters(),
            Kind::Ring(_) => Vec::new(),
        };
        self.accounts.start(clock::monotonic_ns(), counters);
        // The period first: what is sampled from here on is booked with it.
        self.redraw();
        match &mut self.kind {
            Kind::Bpf(b, _) => b.enable(),
            Kind::Ring(r) => r.enable(),
        }
    }

    /// Throws away what was sampled so far and begins anew: after measuring what a sample costs, the
    /// measurement itself must not show. What is known of processes stays.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn restart(&mut self, book: &mut Book) -> Result<(), SampleError> {
        match &mut self.kind {
            Kind::Bpf(b, _) => {
                b.disable();
                b.drain();
                b.forget_stacks();
                self.waiting.clear();
                self.waiting_regs.clear();
                self.waiting_paths.clear();
                self.waiting_pairs.clear();
                self.pump(book);
            }
            Kind::Ring(r) => {
                r.disable();
                r.skip_samples(book);
            }
        }
        self.enable()
    }

    /// Switches sampling off; what was sampled can still be drained.
    pub fn disable(&mut self) {
        match &self.kind {
            Kind::Bpf(b, _) => b.disable(),
            Kind::Ring(r) => r.disable(),
        }
        self.accounts.stop(clock::monotonic_ns());
    }

    /// Moves side-band and stacks into the book: twice a second, ten times where stacks are copied, and when
    /// [`Self::wait`] says so.
    pub fn pump(&mut self, book: &mut Book) {
        book.begin_batch();
        match &mut self.kind {
            Kind::Bpf(b, sideband) => {
                let reports = b.reports();
                let (records, until) = sideband.drain();
                for r in &records {
                    book.record(r);
                }
                // Every task record finds the fork or exec it belongs to: younger ones wait.
                self.tasks.extend(reports.tasks);
                let tasks: Vec<Task> = self.tasks.extract_if(.., |t| t.time <= until).collect();
                for task in &tasks {
                    book.task(task);
                }
                self.waiting.extend(reports.stacks);
                for s in self.waiting.extract_if(.., |s| s.head.time <= until) {
                    let chosen = if s.head.time < self.former.0 { &self.former.1 } else { &self.chosen };
                    let stack = stack_in(&s, book, &mut self.unwinders, chosen, self.stacks);
                    book.stack(&stack);
                }
                if let Some(edges) = &mut self.edges {
                    self.waiting_regs.extend(reports.regs);
                    let ready = self.waiting_regs.extract_if(.., |r| r.time <= until);
                    if let Some(every) = edges.take_all(book, ready.map(|r| RegsIn::of(&r))) {
                        b.thin_registers(every);
                    }
                    b.obey(&edges.orders());
                    edges.begun(book, tasks.iter().filter(|t| t.why == WHY_EXECED));
                    self.waiting_paths.extend(reports.paths);
                    let ready = self.waiting_paths.extract_if(.., |p| p.time <= until);
                    if !b.obey_walks(&edges.take_walks(book, ready)) {
                        edges.begin_walks_anew();
                    }
                    self.waiting_pairs.extend(reports.pairs);
                    edges.take_pairs(book, self.waiting_pairs.extract_if(.., |p| p.time <= until));
                }
            }
            Kind::Ring(r) => r.drain(book, &mut self.unwinders, self.edges.as_mut()),
        }
    }

    /// Moves every sample so far into the book.
    pub fn drain(&mut self, book: &mut Book) {
        let now = clock::monotonic_ns();
        if let Kind::Bpf(b, _) = &mut self.kind {
            let mut entries = b.drain();
            Sideband::settle();
            self.pump(book);
            // As one number: comparing it takes no branch.
            entries.sort_unstable_by_key(|e| u128::from(e.who) << 64 | u128::from(e.place));
            for e in &entries {
                let who = Who::Tagged { id: e.id(), tag: e.tag() };
                let period = self.chosen.get(usize::from(e.event())).map_or(0, Chosen::weight);
                book.sample(&SampleIn { who, pc: e.pc(), event: e.event(), period, count: e.count });
            }
        } else {
            Sideband::settle();
            self.pump(book);
        }
        self.lost(book);
        book.forget(now);
        self.unwinders.forget(book);
        if let Some(edges) = &mut self.edges {
            edges.forget(book);
        }
    }

    /// Opens events on CPUs that came on line and closes those of CPUs that went, while sampling is on;
    /// returns what the user should know. Without this a CPU that comes back stays unseen: its events
    /// died with it.
    pub fn follow_cpus(&mut self, online: &[u32], book: &mut Book) -> Vec<String> {
        let changes = hotplug::changes(&self.cpus, online);
        let mut told = Vec::new();
        for &change in &changes {
            match change {
                CpuChange::Went(cpu) => self.leave(cpu),
                CpuChange::Came(cpu) => {
                    if let Err(e) = self.join(cpu) {
                        told.push(hotplug::refused(cpu, &e));
                        continue;
                    }
                }
            }
            told.push(hotplug::followed(change));
        }
        if changes.iter().any(|c| matches!(c, CpuChange::Came(_))) {
            // Programs may have been started there unseen.
            self.pump(book);
            book.scan(None);
        }
        told
    }

    fn leave(&mut self, cpu: u32) {
        match &mut self.kind {
            Kind::Bpf(b, sideband) => {
                b.leave(cpu);
                sideband.leave(cpu);
            }
            Kind::Ring(r) => r.leave(cpu),
        }
        self.accounts.left(cpu, clock::monotonic_ns());
        self.cpus.retain(|c| *c != cpu);
    }

    fn join(&mut self, cpu: u32) -> Result<(), SampleError> {
        match &mut self.kind {
            Kind::Bpf(b, sideband) => {
                sideband.join(cpu)?;
                if let Err(e) = b.join(cpu, &self.chosen, self.stacks) {
                    sideband.leave(cpu);
                    return Err(e);
                }
            }
            Kind::Ring(r) => r.join(cpu, &self.chosen)?,
        }
        self.cpus.push(cpu);
        self.accounts.joined(cpu, clock::monotonic_ns());
        self.redraw();
        for (_, _, event) in events_of(&self.kind).iter().filter(|(c, ..)| *c == cpu) {
            event.enable()?;
        }
        Ok(())
    }

    fn lost(&mut self, book: &mut Book) {
        book.lost(&Losses { stacks_beyond: self.unwinders.take_beyond(), ..Losses::default() });
        let Kind::Bpf(b, _) = &self.kind else { return };
        let stacks: u64 = b.cpu_counters().iter().map(|c| c.stack_drop).sum();
        let tasks = b.tasks_dropped();
        let registers = b.cpu_counters().iter().fold(0, |sum: u32, c| sum.wrapping_add(c.regs_drop));
        self.registers_dropped = (registers, self.registers_dropped.1 || registers != self.registers_dropped.0);
        book.lost(&Losses {
            stacks_dropped: stacks - self.stacks_dropped,
            sideband_lost: tasks - self.tasks_dropped,
            ..Losses::default()
        });
        (self.stacks_dropped, self.tasks_dropped) = (stacks, tasks);
    }

    /// Whether registers found the ring full since the last call.
    pub fn lost_registers(&mut self) -> bool {
        std::mem::take(&mut self.registers_dropped.1)
    }

    /// How long nothing is to be drawn anew.
    #[must_use]
    pub fn until_redraw(&self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.accounts.until_draw(clock::monotonic_ns()))
    }

    /// Sleeps until a ring of the side-band, or of samples, fills and must be read, the time is over, or a signal comes; returns whether
    /// one must be read.
    pub fn wait(&self, at_most: std::time::Duration) -> bool {
        match &self.kind {
            Kind::Bpf(b, sideband) => {
                let woken = sideband.wait(b.arrivals(), at_most);
                if woken {
                    b.saw_arrivals();
                    // What was mapped a moment ago is not handed out yet.
                    Sideband::settle();
                }
                woken
            }
            Kind::Ring(rings) => rings.wait(at_most),
        }
    }

    /// Whether what is read soon makes more of what comes next.
    #[must_use]
    pub fn is_learning(&self) -> bool {
        self.walks() && self.edges.as_ref().is_some_and(Edges::is_learning)
    }

    /// Whether code is executed in thought from samples on.
    #[must_use]
    pub fn walks(&self) -> bool {
        matches!((&self.kind, &self.edges), (Kind::Bpf(b, _), Some(_)) if b.walks())
    }

    /// What was taken so far, where the kernel side counts it.
    #[must_use]
    pub fn taken(&self) -> Taken {
        let Kind::Bpf(b, _) = &self.kind else { return Taken::default() };
        let counters = b.cpu_counters();
        let of_target = counters.iter().map(|c| c.hit + c.miss).sum::<u64>();
        let samples = of_target + counters.iter().map(|c| c.idle + c.other).sum::<u64>();
        let (walks, walks_ns) = self.edges.as_ref().map_or((0, 0), Edges::walks);
        Taken { samples, of_target, walks, walks_ns, seconds: b.second_interrupts() }
    }

    /// No more walks than so many a second, of all CPUs.
    pub fn limit_walks(&mut self, walks: f64) {
        if let Some(edges) = &mut self.edges {
            edges.limit_walks(walks);
        }
    }

    /// Draws a new period for every event whose time has come.
    pub fn redraw(&mut self) {
        self.accounts.redraw(clock::monotonic_ns(), events_of(&self.kind));
    }

    /// Of the events that share counters, lets just one run.
    pub fn run_only(&self, shared: &[u16], one: u16) {
        for (_, number, event) in events_of(&self.kind).iter().filter(|(_, n, _)| shared.contains(n)) {
            // An event that is gone (CPU off line, thread ended) needs no switching.
            let _ = if *number == one { event.enable() } else { event.disable() };
        }
    }

    /// New nominal distance of samples, ns, for events that a rate drives, while sampling is on. Draining takes a while, and
    /// what is sampled meanwhile must not be booked with a period that it was not taken with: so the events change first,
    /// and the tables change halves right behind that.
    pub fn change_time_period(&mut self, ns: u64, book: &mut Book) {
        self.account(book);
        let old = self.chosen.clone();
        self.set_time_period(ns);
        let new = std::mem::replace(&mut self.chosen, old);
        self.redraw();
        let changed = clock::monotonic_ns();
        self.drain(book);
        self.former = (changed, std::mem::replace(&mut self.chosen, new));
    }

    /// New nominal distance of samples, ns, for events that a rate drives. Nothing may have been sampled that is wanted.
    pub fn set_time_period(&mut self, ns: u64) {
        if let Kind::Bpf(b, _) = &mut self.kind {
            b.seconds().keep_to(ns);
        }
        for (number, c) in self.chosen.iter_mut().enumerate().filter(|(_, c)| c.is_rated()) {
            c.set_distance(ns);
            self.accounts.set_nominal(number as u16, c.period);
            if let Kind::Ring(r) = &mut self.kind {
                r.set_nominal(number as u16, c.weight());
            }
        }
    }

    /// Samples of synchronous events since the last call, from how often those occurred.
    pub fn take_synchronous(&mut self) -> u64 {
        let mut samples = 0;
        for (cpu, number, event) in events_of(&self.kind) {
            let chosen = &self.chosen[usize::from(*number)];
            if !chosen.is_synchronous() {
                continue;
            }
            // An event whose CPU or thread is gone tells nothing more.
            let now = event.count().unwrap_or(0);
            let before = self.occurred.insert((*cpu, *number), now).unwrap_or(0);
            samples += now.saturating_sub(before) / chosen.period.max(1);
        }
        samples
    }

    /// Samples synchronous events less often, by a factor; not those that take turns, which are few already. They come by
    /// the million a second perhaps, so they go on meanwhile: as with [`Self::change_time_period`], the events change
    /// first, and the tables change halves right behind that.
    pub fn thin_synchronous(&mut self, factor: u64, book: &mut Book) {
        let thinned = |c: &Chosen| c.is_synchronous() && c.turns == 1;
        let mut new = self.chosen.clone();
        for (number, c) in new.iter_mut().enumerate().filter(|(_, c)| thinned(c)) {
            c.period = c.period.saturating_mul(factor);
            self.accounts.set_nominal(number as u16, c.period);
        }
        // Small periods are not drawn anew, which would set them.
        for (_, number, event) in events_of(&self.kind) {
            let c = &new[usize::from(*number)];
            if thinned(c) {
                // An event that is gone (CPU off line) needs nothing.
                let _ = event.set_period(c.period);
            }
        }
        let changed = clock::monotonic_ns();
        self.drain(book);
        self.former = (changed, std::mem::replace(&mut self.chosen, new));
    }

    /// Closes the accounts of the interval since the last call.
    pub fn account(&mut self, book: &mut Book) {
        let rates = match &mut self.kind {
            Kind::Bpf(b, _) => self.accounts.close_bpf(&b.cpu_counters()),
            Kind::Ring(r) => {
                let delivered = r.take_delivered();
                self.accounts.close_ring(&delivered)
            }
        };
        book.account(rates);
    }

    /// Mean time of the handler in ns, measured while `during` runs; `None` where it cannot be told.
    pub fn handler_ns(&self, during: impl FnOnce()) -> Option<f64> {
        let Kind::Bpf(b, _) = &self.kind else {
            during();
            return None;
        };
        let statistics = BpfStats::on();
        let before = b.handler_runs();
        during();
        statistics.ok()?;
        let ((runs, time), (runs_before, time_before)) = (b.handler_runs()?, before?);
        let runs = runs.checked_sub(runs_before).filter(|&n| n > 0)?;
        Some((time - time_before) as f64 / runs as f64)
    }

    /// The events with their periods as they are now.
    #[must_use]
    pub fn chosen(&self) -> &[Chosen] {
        &self.chosen
    }
}

/// Samples the calling thread into a ring of its own for as long as the value lives: what that costs is what a ring costs a
/// target.
#[must_use]
pub fn probe_own_thread(chosen: &[Chosen]) -> Option<(Ring, PerfEvent)> {
    let time = chosen.iter().find(|c| c.is_rated())?;
    let attr = Attr { fields: Some(SampleFields::default()), ..time.attr() };
    let event = PerfEvent::open(&attr, Watch::Thread(0)).ok()?;
    Some((Ring::map(&event, 16).ok()?, event))
}

/// The opened events: CPU, number of the event, event.
fn events_of(kind: &Kind) -> &[(u32, u16, PerfEvent)] {
    match kind {
        Kind::Bpf(b, _) => b.events(),
        Kind::Ring(r) => r.events(),
    }
}

fn cpus_of(kind: &Kind) -> Vec<u32> {
    let mut cpus: Vec<u32> = events_of(kind).iter().map(|(cpu, ..)| *cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

fn stack_in(s: &StackRecord, book: &Book, unwinders: &mut Unwinders, chosen: &[Chosen], mode: StackMode) -> StackIn {
    let who = Who::At { pid: s.head.tgid, tid: s.head.tid, time: s.head.time };
    let event = event_of(s.head.place);
    let period = chosen.get(usize::from(event)).map_or(0, Chosen::weight) * u64::from(mode.every());
    let mut user = s.user.clone();
    let full = |n: usize| n >= whither_abi::MAX_FRAMES;
    // A walk by frame pointers that ends in its first user frame met code without them.
    let lone = user.len() == 1;
    let mut end =
        if full(user.len()) || full(s.kernel.len()) || lone { StackEnd::Truncated } else { StackEnd::Complete };
    if !s.bytes.is_empty() {
        (user, end) = unwinders.unwind(book, who, [s.head.ip, s.head.sp, s.head.bp], &s.bytes);
    }
    let mut kernel = s.kernel.clone();
    if kernel.is_empty() && user.is_empty() {
        // A sample whose stack could not be walked at all is still a sample of its place.
        kernel.push(pc_of(s.head.place));
        end = StackEnd::Truncated;
    }
    StackIn { who, event, period, kernel, user, end }
}
