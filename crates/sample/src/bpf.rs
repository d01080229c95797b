//! The BPF collector: loads the kernel-side program, opens one event per CPU, drains tables and
//! rings. Aggregation happens in the kernel; here entries are only handed on. Works system-wide, or
//! for chosen processes and what they fork.

use crate::SampleError;
use crate::bpf_skel::{OpenSampleSkel, SampleSkel, SampleSkelBuilder};
use crate::edges::{EVERY, FIRST_EVERY, LATE, OP_ROOM, Order, RECIPE_ROOM, SETTLES, SPACE_ROOM, TELLS, WalkOrders};
use crate::plan::{Chosen, Coverage, EdgeMode, StackMode};
use crate::seconds::Seconds;
use crate::walk_maps::{SLOT_ROOM, Tables, WalkMaps};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject, PerfEventOpts, ProgramMut, RingBuffer, RingBufferBuilder};
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use whither_abi::pairs::Pair;
use whither_abi::path::Path;
use whither_abi::regs::Regs;
use whither_abi::{Cpu, Entry, StackRecord, Task, WAYS};
use whither_kernel::perf::{Attr, PerfEvent, SampleFields, Watch};
use whither_kernel::shared::{SharedWords, barrier_on_all_cpus};
use whither_kernel::{KernelError, proc};

/// Most memory for all tables; machines with very many CPUs get smaller ones per CPU.
const TABLE_LIMIT: usize = 64 << 20;
const ENTRY_WORDS: usize = Entry::SIZE / 8;
const BUCKET_WORDS: usize = WAYS * ENTRY_WORDS;
const CPU_WORDS: usize = size_of::<Cpu>() / 8;

/// What the kernel side reports besides samples.
#[derive(Debug, Default)]
pub struct Reports {
    /// Tasks seen, forked, exec'ed, in order of arrival.
    pub tasks: Vec<Task>,
    /// Stacks.
    pub stacks: Vec<StackRecord>,
    /// Registers.
    pub regs: Vec<Regs>,
    /// Walks.
    pub paths: Vec<Path>,
    /// Pairs of moments.
    pub pairs: Vec<Pair>,
}

/// A running BPF collector. Dropping it detaches everything: the kernel frees programs and maps when
/// their last descriptor closes, also when whither is killed.
pub struct BpfCollector {
    // Declaration order is drop order: links and rings go before the object they point into.
    links: Vec<Link>,
    /// Sampler on the events of each CPU.
    attached: Vec<(u32, Link)>,
    overflow: RingBuffer<'static>,
    events_ring: RingBuffer<'static>,
    arrivals: RingBuffer<'static>,
    perf: Vec<(u32, u16, PerfEvent)>,
    seconds: Seconds,
    table: SharedWords,
    cpus: SharedWords,
    skel: SampleSkel<'static>,
    buckets: usize,
    active: u32,
    /// Whether samples tell when a process has unmapped code.
    phased: bool,
    spilled: Rc<RefCell<Vec<Entry>>>,
    reports: Rc<RefCell<Reports>>,
    /// Walks begin from one in so many samples.
    walks_every: u32,
    /// With walks.
    walk_maps: Option<WalkMaps>,
}

impl std::fmt::Debug for BpfCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BpfCollector").field("buckets", &self.buckets).finish_non_exhaustive()
    }
}

impl BpfCollector {
    /// Loads the program and opens the events, still switched off. The side-band must be open before.
    ///
    /// # Errors
    /// [`SampleError::Bpf`] when BPF is refused, [`SampleError::Kernel`] when an event is.
    pub fn open(
        chosen: &[Chosen],
        coverage: &Coverage,
        stacks: StackMode,
        edges: EdgeMode,
        threads: bool,
    ) -> Result<Self, SampleError> {
        if !proc::in_first_pid_namespace() {
            let why = "this is a pid namespace of its own, where the kernel's process ids are not ours".into();
            return Err(SampleError::Bpf { what: "using BPF", why });
        }
        let cpus = proc::possible_cpus() as usize;
        let buckets = bucket_count(cpus);
        // The object is a few kilobytes that live as long as the process; one recording makes one.
        let object: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        // libbpf would print its warnings to the target's terminal; the error we return says enough.
        libbpf_rs::set_print(None);
        let builder = SampleSkelBuilder::default();
        let mut open = builder.open(object).map_err(|e| SampleError::bpf("opening the BPF object", e))?;
        configure(&mut open, coverage, stacks, threads, buckets, cpus)?;
        configure_edges(&mut open, edges, chosen, cpus)?;
        let skel = open.load().map_err(|e| SampleError::bpf("loading the BPF programs", e))?;
        Self::start(skel, chosen, coverage, stacks, buckets, cpus)
    }

    fn start(
        skel: SampleSkel<'static>,
        chosen: &[Chosen],
        coverage: &Coverage,
        stacks: StackMode,
        buckets: usize,
        cpus: usize,
    ) -> Result<Self, SampleError> {
        let table = SharedWords::map(skel.maps.table.as_fd(), cpus * 2 * buckets * BUCKET_WORDS)?;
        let cpu_state = SharedWords::map(skel.maps.cpus.as_fd(), cpus * CPU_WORDS)?;
        for cpu in 0..cpus {
            // Word 1 holds `draw` (low half): xorshift must not start at 0.
            cpu_state.words()[cpu * CPU_WORDS + 1].store(0x9E37_79B9 ^ (cpu as u64 + 1), Relaxed);
        }
        let walks = skel.maps.rodata_data.is_some_and(|constants| constants.wh_path_tells > 0);
        let map_walks = || WalkMaps::map(skel.maps.path_ops.as_fd(), skel.maps.path_slots.as_fd());
        let walk_maps = walks.then(map_walks).transpose()?;
        let spilled = Rc::new(RefCell::new(Vec::new()));
        let reports = Rc::new(RefCell::new(Reports::default()));
        let overflow = ring(&skel.maps.overflow, {
            let spilled = Rc::clone(&spilled);
            move |bytes| spilled.borrow_mut().extend(Entry::read(bytes))
        })?;
        let events_ring = ring(&skel.maps.events, {
            let reports = Rc::clone(&reports);
            move |bytes| report(&mut reports.borrow_mut(), bytes)
        })?;
        let arrivals = ring(&skel.maps.arrivals, |_| ())?;
        let mut this = Self {
            links: Vec::new(),
            attached: Vec::new(),
            overflow,
            events_ring,
            arrivals,
            perf: Vec::new(),
            seconds: Seconds::default(),
            table,
            cpus: cpu_state,
            skel,
            buckets,
            active: 0,
            phased: false,
            spilled,
            reports,
            walks_every: EVERY,
            walk_maps,
        };
        this.thin_registers(FIRST_EVERY);
        this.walk_every(this.walks_every);
        this.watch(coverage)?;
        this.attach(chosen, stacks)?;
        Ok(this)
    }

    fn watch(&mut self, coverage: &Coverage) -> Result<(), SampleError> {
        let Coverage::Processes(pids) = coverage else { return Ok(()) };
        for pid in pids {
            self.skel
                .maps
                .targets
                .update(&pid.to_le_bytes(), &0_u32.to_le_bytes(), MapFlags::ANY)
                .map_err(|e| SampleError::bpf("choosing a process", e))?;
        }
        Ok(())
    }

    fn attach(&mut self, chosen: &[Chosen], stacks: StackMode) -> Result<(), SampleError> {
        let fork = self.skel.progs.on_fork.attach().map_err(|e| SampleError::bpf("attaching to forks", e))?;
        let exec = self.skel.progs.on_exec.attach().map_err(|e| SampleError::bpf("attaching to execs", e))?;
        let free = self.skel.progs.on_free.attach().map_err(|e| SampleError::bpf("attaching to freed tasks", e))?;
        self.links.extend([fork, exec, free]);
        // Which of the two fits depends on the kernel; none does before 5.11.
        let changes = self.skel.progs.on_locking_in_group.attach().or_else(|_| self.skel.progs.on_locking.attach());
        self.phased = changes.is_ok();
        self.links.extend(changes);
        proc::online_cpus().into_iter().try_for_each(|cpu| self.join(cpu, chosen, stacks))
    }

    /// Opens the events of a CPU, switched off.
    ///
    /// # Errors
    /// The kernel's reason; the CPU then has no event.
    pub fn join(&mut self, cpu: u32, chosen: &[Chosen], stacks: StackMode) -> Result<(), SampleError> {
        let mut numbered = (0_u16..).zip(chosen);
        let opened = numbered
            .try_for_each(|(number, event)| self.attach_event(cpu, number, event, stacks))
            .and_then(|()| self.attach_second(cpu));
        if opened.is_err() {
            self.leave(cpu);
        }
        opened
    }

    /// Closes the events of a CPU that went off line; what it counted stays in its table.
    pub fn leave(&mut self, cpu: u32) {
        self.attached.retain(|(c, _)| *c != cpu);
        self.perf.retain(|(c, ..)| *c != cpu);
        self.seconds.leave(cpu);
    }

    fn attach_event(&mut self, cpu: u32, number: u16, event: &Chosen, stacks: StackMode) -> Result<(), SampleError> {
        // The kernel lets a program walk stacks at a precise event only if the event samples call chains.
        let chains = stacks != StackMode::Off && event.spec.precise > 0;
        let fields = chains.then_some(SampleFields { callchain: true, ..SampleFields::default() });
        let attr = Attr { disabled: true, fields, ..event.attr() };
        let perf = PerfEvent::open(&attr, Watch::Cpu(cpu))?;
        let opts = PerfEventOpts { cookie: number.into(), ..Default::default() };
        let link = attach(&self.skel.progs.on_sample, &perf, opts)?;
        // libbpf switches the event on when it attaches; it must not run before the books are filled.
        perf.disable()?;
        self.attached.push((cpu, link));
        self.perf.push((cpu, number, perf));
        Ok(())
    }

    /// Opens the event for second moments, where pairs are wanted.
    fn attach_second(&mut self, cpu: u32) -> Result<(), SampleError> {
        if self.skel.maps.rodata_data.is_none_or(|constants| constants.wh_pairs_on == 0) {
            return Ok(());
        }
        let perf = self.seconds.open(cpu)?;
        let link = attach(&self.skel.progs.on_second, &perf, PerfEventOpts::default())?;
        perf.disable()?;
        self.attached.push((cpu, link));
        self.seconds.add(cpu, perf);
        Ok(())
    }

    /// One record for every task that exists, so that their tags are known.
    ///
    /// # Errors
    /// [`SampleError::Bpf`].
    pub fn scan_tasks(&mut self) -> Result<Vec<Task>, SampleError> {
        use std::io::Read;
        let link = self.skel.progs.scan.attach().map_err(|e| SampleError::bpf("attaching the task scan", e))?;
        let mut bytes = Vec::new();
        let mut iter = libbpf_rs::Iter::new(&link).map_err(|e| SampleError::bpf("starting the task scan", e))?;
        iter.read_to_end(&mut bytes).map_err(|source| KernelError::Call { what: "scanning tasks", source })?;
        Ok(bytes.chunks_exact(Task::SIZE).filter_map(Task::read).collect())
    }

    /// Switches all events on. Samples from before are thrown away.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn enable(&mut self) -> Result<(), SampleError> {
        self.drain();
        self.perf
            .iter()
            .map(|(_, _, e)| e)
            .chain(self.seconds.events())
            .try_for_each(PerfEvent::enable)
            .map_err(Into::into)
    }

    /// Switches all events off; tables and rings keep what they have.
    pub fn disable(&self) {
        for event in self.perf.iter().map(|(_, _, e)| e).chain(self.seconds.events()) {
            // An event that is gone (CPU off line) needs no switching off.
            let _ = event.disable();
        }
    }

    /// Whether samples tell when a process has unmapped code.
    pub(crate) fn is_phased(&self) -> bool {
        self.phased
    }

    /// The opened events: CPU, number of the event, event.
    #[must_use]
    pub fn events(&self) -> &[(u32, u16, PerfEvent)] {
        &self.perf
    }

    /// Takes every sample counted so far out of the tables and the overflow ring. No handler is
    /// stopped: the halves change places, and the quiet half is read when no handler is in it.
    pub fn drain(&mut self) -> Vec<Entry> {
        let quiet = self.active;
        self.active ^= 1;
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.wh_active = self.active;
        }
        barrier_on_all_cpus();
        self.wait_for_handlers();
        let mut entries = self.read_half(quiet as usize);
        // A failing ring yields nothing new; what it dropped is counted by the handler.
        let _ = self.overflow.consume();
        entries.append(&mut self.spilled.borrow_mut());
        entries
    }

    /// Task and stack records since the last call.
    pub fn reports(&mut self) -> Reports {
        let _ = self.events_ring.consume();
        // Entries that were thrown out of the tables are kept until the next drain. A compiler throws out so many
        // that the ring, which is as large as four seconds of the worst case, would not hold those of ten.
        let _ = self.overflow.consume();
        std::mem::take(&mut self.reports.borrow_mut())
    }

    /// Becomes readable when a program runs that was not seen before.
    #[must_use]
    pub fn arrivals(&self) -> BorrowedFd<'_> {
        self.skel.maps.arrivals.as_fd()
    }

    /// Takes note of them.
    pub fn saw_arrivals(&self) {
        let _ = self.arrivals.consume();
    }

    /// Drops the stacks and registers read or waiting; task records stay.
    pub fn forget_stacks(&mut self) {
        let _ = self.events_ring.consume();
        let mut reports = self.reports.borrow_mut();
        reports.stacks.clear();
        reports.regs.clear();
        reports.paths.clear();
        reports.pairs.clear();
    }

    /// Has registers taken of one sample in so many.
    pub(crate) fn thin_registers(&mut self, every: u32) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.wh_regs_every = every;
        }
    }

    /// Puts recipes into the kernel, or takes them out. One that finds no room, or is gone, changes only how much
    /// later samples can tell.
    pub(crate) fn obey(&self, orders: &[Order]) {
        let recipes = &self.skel.maps.recipes;
        for order in orders {
            let _ = match order {
                Order::Put(place, recipe) => recipes.update(&place.bytes(), &recipe.bytes(), MapFlags::ANY),
                Order::Remove(place) => recipes.delete(&place.bytes()),
            };
        }
    }

    /// Changes what walks know; whether there was room. What finds none changes only how far they get.
    pub(crate) fn obey_walks(&mut self, orders: &WalkOrders) -> bool {
        if let Some(code) = &orders.anew {
            // Nobody may hold a number while they are given anew.
            self.walk_every(0);
            self.wait_for_handlers();
            let tables = Tables { chunks: &self.skel.maps.path_chunks, spaces: &self.skel.maps.path_spaces };
            self.walk_maps.iter_mut().for_each(|maps| maps.clear(&tables));
            if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
                bss.wh_paths_code = *code;
            }
        }
        let tables = Tables { chunks: &self.skel.maps.path_chunks, spaces: &self.skel.maps.path_spaces };
        let had_room = self.walk_maps.as_mut().is_none_or(|maps| maps.put(&tables, orders));
        if let Some(every) = orders.every {
            self.walks_every = every;
        }
        if orders.anew.is_some() || orders.every.is_some() {
            self.walk_every(self.walks_every);
        }
        had_room
    }

    /// Whether walks were asked for.
    pub(crate) fn walks(&self) -> bool {
        self.walk_maps.is_some()
    }

    fn walk_every(&mut self, every: u32) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.wh_paths_every = every;
        }
    }

    fn wait_for_handlers(&self) {
        // A handler takes under 30 us unless the hypervisor holds its CPU; give up after 100 ms and
        // read anyway: at worst one count is one too low or high.
        let until = std::time::Instant::now() + std::time::Duration::from_millis(100);
        let busy = || self.cpus.words().chunks_exact(CPU_WORDS).any(|c| c[0].load(Relaxed) as u32 != 0);
        while busy() && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
    }

    fn read_half(&self, half: usize) -> Vec<Entry> {
        let mut entries = Vec::new();
        let half_words = self.buckets * BUCKET_WORDS;
        for cpu in self.table.words().chunks_exact(2 * half_words) {
            for entry in cpu[half * half_words..(half + 1) * half_words].chunks_exact(ENTRY_WORDS) {
                let who_count = entry[1].load(Relaxed);
                if who_count >> 32 != 0 {
                    entries.push(Entry {
                        place: entry[0].load(Relaxed),
                        who: who_count as u32,
                        count: (who_count >> 32) as u32,
                    });
                    entry[0].store(0, Relaxed);
                    entry[1].store(0, Relaxed);
                }
            }
        }
        entries
    }

    /// Counters of each possible CPU.
    #[must_use]
    pub fn cpu_counters(&self) -> Vec<Cpu> {
        let word = |c: &[std::sync::atomic::AtomicU64], i: usize| c[i].load(Relaxed);
        self.cpus
            .words()
            .chunks_exact(CPU_WORDS)
            .map(|c| Cpu {
                regs_drop: (word(c, 1) >> 32) as u32,
                hit: word(c, 2),
                miss: word(c, 3),
                drop: word(c, 4),
                idle: word(c, 5),
                stack_drop: word(c, 6),
                other: word(c, 7),
                ..Cpu::default()
            })
            .collect()
    }

    /// The timer that finds second moments.
    pub(crate) fn seconds(&mut self) -> &mut Seconds {
        &mut self.seconds
    }

    /// How often it has interrupted.
    pub(crate) fn second_interrupts(&self) -> u64 {
        self.seconds.interrupts()
    }

    /// Runs of the handler and the time they took, while statistics are on.
    #[must_use]
    pub fn handler_runs(&self) -> Option<(u64, u64)> {
        whither_kernel::bpf_stats::runs(self.skel.progs.on_sample.as_fd())
    }

    /// Task records that found the ring full.
    #[must_use]
    pub fn tasks_dropped(&self) -> u64 {
        self.skel.maps.bss_data.as_ref().map_or(0, |b| b.wh_task_drop)
    }
}

/// Has a program run at an event. libbpf closes the descriptor it is given together with the link, so it gets one of its own.
fn attach(program: &ProgramMut<'_>, perf: &PerfEvent, opts: PerfEventOpts) -> Result<Link, SampleError> {
    let given = perf
        .as_fd()
        .try_clone_to_owned()
        .map_err(|source| KernelError::Call { what: "duplicating a perf event", source })?;
    let link = program
        .attach_perf_event_with_opts(given.as_raw_fd(), opts)
        .map_err(|e| SampleError::bpf("attaching the sampler to a perf event", e))?;
    let _ = given.into_raw_fd();
    Ok(link)
}

fn report(reports: &mut Reports, bytes: &[u8]) {
    if let Some(task) = Task::read(bytes) {
        reports.tasks.push(task);
    } else if let Some(stack) = StackRecord::read(bytes) {
        reports.stacks.push(stack);
    } else if let Some(regs) = Regs::read(bytes) {
        reports.regs.push(regs);
    } else if let Some(path) = Path::read(bytes) {
        reports.paths.push(path);
    } else if let Some(pair) = Pair::read(bytes) {
        reports.pairs.push(pair);
    }
}

fn ring(map: &impl MapCore, mut each: impl FnMut(&[u8]) + 'static) -> Result<RingBuffer<'static>, SampleError> {
    // The builder borrows the map only for its descriptor, which the object keeps open; the closure
    // owns its target. libbpf duplicates nothing else.
    let mut builder = RingBufferBuilder::new();
    builder
        .add(map, move |bytes| {
            each(bytes);
            0
        })
        .map_err(|e| SampleError::bpf("reading a BPF ring", e))?;
    builder.build().map_err(|e| SampleError::bpf("reading a BPF ring", e))
}

fn bucket_count(cpus: usize) -> usize {
    let mut buckets = 4096;
    while buckets > 64 && cpus * 2 * buckets * BUCKET_WORDS * 8 > TABLE_LIMIT {
        buckets /= 2;
    }
    buckets
}

fn configure(
    open: &mut OpenSampleSkel<'static>,
    coverage: &Coverage,
    stacks: StackMode,
    threads: bool,
    buckets: usize,
    cpus: usize,
) -> Result<(), SampleError> {
    let set = |map: &mut libbpf_rs::OpenMapMut<'_>, n: usize| {
        map.set_max_entries(n as u32).map_err(|e| SampleError::bpf("sizing a BPF map", e))
    };
    set(&mut open.maps.table, cpus * 2 * buckets)?;
    set(&mut open.maps.cpus, cpus)?;
    set(&mut open.maps.overflow, ring_bytes(cpus, 512 << 10))?;
    set(&mut open.maps.scratch, if stacks == StackMode::Off { 1 } else { cpus })?;
    // Copied stacks: a quarter of a second at 2 kHz, as a busy machine does not let us read every 100 ms.
    let per_cpu = match stacks {
        StackMode::Off => 256 << 10,
        StackMode::FramePointers { .. } => 4 << 20,
        StackMode::Dwarf { .. } => 8 << 20,
    };
    set(&mut open.maps.events, ring_bytes(cpus, per_cpu))?;
    let Some(constants) = open.maps.rodata_data.as_deref_mut() else {
        return Err(SampleError::Bpf { what: "setting constants", why: "the object has no .rodata".into() });
    };
    constants.wh_buckets = buckets as u32;
    constants.wh_by_thread = threads.into();
    constants.wh_filtered = matches!(coverage, Coverage::Processes(_)).into();
    constants.wh_stack_every = 1;
    match stacks {
        StackMode::Off => constants.wh_stack_mode = 0,
        StackMode::FramePointers { every } => {
            constants.wh_stack_mode = 1;
            constants.wh_stack_every = every.max(1);
        }
        StackMode::Dwarf { bytes, every } => {
            constants.wh_stack_mode = 2;
            constants.wh_stack_bytes = bytes.clamp(256, whither_abi::MAX_STACK as u32);
            constants.wh_stack_every = every.max(1);
        }
    }
    if let Some(idle) = crate::kernel_map::idle_code() {
        (constants.wh_idle_from, constants.wh_idle_to) = idle.section;
        (constants.wh_halt_from, constants.wh_halt_to) = idle.halt;
    }
    Ok(())
}

/// Registers are taken at samples of one event only, of those that bring any.
fn configure_edges(
    open: &mut OpenSampleSkel<'static>,
    edges: EdgeMode,
    chosen: &[Chosen],
    cpus: usize,
) -> Result<(), SampleError> {
    let Some(event) = chosen.iter().position(Chosen::brings_registers) else { return Ok(()) };
    let Some(constants) = open.maps.rodata_data.as_deref_mut() else { return Ok(()) };
    constants.wh_regs_on = edges.spend().is_some().into();
    constants.wh_regs_event = event as u32;
    if edges == EdgeMode::Walks {
        constants.wh_path_tells = TELLS;
        constants.wh_path_settles = SETTLES;
        constants.wh_path_late = LATE;
    }
    if matches!(edges, EdgeMode::Memory(_) | EdgeMode::Walks) {
        (constants.wh_recipes_on, constants.wh_pairs_on) = (1, 1);
        let sized = open.maps.recipes.set_max_entries(RECIPE_ROOM);
        sized
            .and_then(|()| open.maps.moments.set_max_entries(cpus as u32))
            .map_err(|e| SampleError::bpf("sizing a BPF map", e))?;
    }
    if edges == EdgeMode::Walks {
        let sized = open.maps.path_ops.set_max_entries(OP_ROOM);
        sized
            .and_then(|()| open.maps.path_walks.set_max_entries(cpus as u32))
            .and_then(|()| open.maps.path_slots.set_max_entries(SLOT_ROOM))
            .and_then(|()| open.maps.path_chunks.set_max_entries(SLOT_ROOM))
            .and_then(|()| open.maps.path_spaces.set_max_entries(SPACE_ROOM))
            .map_err(|e| SampleError::bpf("sizing a BPF map", e))?;
    }
    Ok(())
}

fn ring_bytes(cpus: usize, per_cpu: usize) -> usize {
    (cpus * per_cpu).next_power_of_two().clamp(1 << 20, 64 << 20)
}
