//! The back end at work: loads `bpf/causal.bpf.c`, attaches points. Ticks: [`ticks`]. A window's life: [`window`].

mod ticks;
mod window;

use super::code::{self, Code, layouts_in_use};
use super::skel::{CausalSkel, CausalSkelBuilder, OpenCausalSkel};
use super::words::{Words, ctl};
use super::{Armed, CausalConfig, CausalModule, CausalSample, Change, CodeRange, Hook, Loads, MOST_CALLERS};
use super::{marks, now, outside, records, trap};
use crate::SampleError;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject, RingBuffer, RingBufferBuilder};
use libbpf_rs::{TracepointOpts, UprobeMultiOpts, UprobeOpts};
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::rc::Rc;
use whither_abi::causal as abi;
use whither_kernel::affinity::Reach;
use whither_kernel::perf::PerfEvent;
use whither_kernel::proc;

/// A tick more often than this would leave nothing to the program.
const SHORTEST_TICK_NS: u64 = 50_000;

/// A running back end. Dropping it detaches everything; when its owner stops calling
/// [`CausalBpf::beat`] the kernel side neither credits nor pays any more.
pub struct CausalBpf {
    // Declaration order is drop order: links and the ring go before the object they point into.
    links: Vec<Link>,
    ticks: Vec<(u32, Link, PerfEvent)>,
    ring: RingBuffer<'static>,
    got: Rc<RefCell<records::Got>>,
    words: Words,
    code: Code,
    skel: CausalSkel<'static>,
    config: CausalConfig,
    armed: Armed,
    points: Vec<Kind>,
    watches_calls: bool,
    kernel: Kernel,
    /// What a tick takes from the thread it meets, the way through hypervisor and kernel included.
    tick_cost: u64,
    /// Ticks are so far apart while a window is open: `config.tick_ns`, which samples are told in, or more.
    spacing: u64,
    /// Nanoseconds of a visit, by point, at each of its breakpoints.
    visit_costs: Vec<Vec<u64>>,
    /// What breakpoints cost here, once the first was set.
    trap: Option<trap::Costs>,
    draw: u64,
    open: Option<window::Opened>,
    /// Code that came while it was open had no room among the marks.
    unmarked: bool,
    outside_at_open: outside::Outside,
}

/// How visits of a point are counted.
#[derive(Clone, Debug)]
enum Kind {
    Stamped,
    Sampled(Vec<CodeRange>),
}

impl std::fmt::Debug for CausalBpf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CausalBpf").field("config", &self.config).field("points", &self.points).finish_non_exhaustive()
    }
}

impl CausalBpf {
    /// Loads and attaches; nobody is watched yet.
    ///
    /// # Errors
    /// [`SampleError::Bpf`] when BPF is refused, [`SampleError::Kernel`] when an event is.
    pub fn open(config: &CausalConfig) -> Result<Self, SampleError> {
        if !proc::in_first_pid_namespace() {
            let why = "this is a pid namespace of its own, where the kernel's process ids are not ours".into();
            return Err(SampleError::Bpf { what: "using BPF", why });
        }
        let config = sane(config);
        let cpus = proc::possible_cpus() as usize;
        // libbpf would print its warnings to the target's terminal; the error we return says enough.
        libbpf_rs::set_print(None);
        let (skel, kernel) = load_what_is_known(cpus)?;
        let got = Rc::new(RefCell::new(records::Got::default()));
        let mut this = Self {
            links: Vec::new(),
            ticks: Vec::new(),
            ring: ring(&skel, &got)?,
            got,
            words: Words::map(&skel, cpus)?,
            code: Code::new(&skel)?,
            skel,
            config,
            armed: Armed::Nothing,
            points: Vec::new(),
            watches_calls: false,
            kernel,
            tick_cost: 0,
            spacing: config.tick_ns,
            visit_costs: Vec::new(),
            trap: None,
            draw: now() | 1,
            open: None,
            unmarked: false,
            outside_at_open: outside::Outside::default(),
        };
        this.start()?;
        this.pace()?;
        this.outside_at_open = outside::Outside::read(&[]);
        Ok(this)
    }

    fn start(&mut self) -> Result<(), SampleError> {
        let say = [
            (ctl!(cap), self.config.cap_ns),
            (ctl!(record_every), 1),
            (ctl!(credit_every), 1),
            (ctl!(kernel_time), self.config.kernel_time.into()),
            (ctl!(follow), self.config.follow_forks.into()),
            (ctl!(sees_sockets), self.kernel.sockets.into()),
        ];
        say.iter().for_each(|(word, value)| self.words.set(*word, *value));
        let programs = &mut self.skel.progs;
        // Those that make clocks come before those that move them.
        let all = [
            &mut programs.cz_timer_entry,
            &mut programs.cz_timer_exit,
            &mut programs.cz_device_entry,
            &mut programs.cz_device_exit,
            &mut programs.cz_softirq_entry,
            &mut programs.cz_softirq_exit,
            &mut programs.cz_fork,
            &mut programs.cz_wakeup_new,
            &mut programs.cz_exec,
            &mut programs.cz_free,
            &mut programs.cz_switch,
            &mut programs.cz_waking,
        ];
        for program in all {
            self.links.push(program.attach().map_err(|e| SampleError::bpf("attaching to the scheduler", e))?);
        }
        if self.kernel.sockets {
            for program in [&mut programs.cz_connects, &mut programs.cz_data_ready, &mut programs.cz_sent] {
                self.links.push(program.attach().map_err(|e| SampleError::bpf("attaching to sockets", e))?);
            }
        }
        proc::online_cpus().into_iter().try_for_each(|cpu| self.tick_on(cpu))
    }

    /// Watches a process with all its threads; children join by themselves.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn watch(&mut self, pid: u32) -> Result<(), SampleError> {
        let failed = |e| SampleError::bpf("watching a process", e);
        let maps = &self.skel.maps;
        maps.processes.update(&pid.to_le_bytes(), &abi::Process::default().bytes(), MapFlags::ANY).map_err(failed)?;
        // Threads begun from now on join by themselves; a second look finds those begun meanwhile.
        for _ in 0..2 {
            for tid in proc::threads(pid) {
                // One that has joined already keeps its clock.
                let _ = maps.threads.update(&tid.to_le_bytes(), &abi::Thread::fresh(pid, now()), MapFlags::NO_EXIST);
            }
        }
        Ok(())
    }

    /// Threads of processes that have a handler for this signal ([`CausalBpf::napper`]) sleep their delays; all
    /// others spin.
    ///
    /// # Errors
    /// When the kernel cannot send signals that carry a number (before Linux 6.13).
    pub fn naps_by(&mut self, signal: u32) -> Result<(), SampleError> {
        let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        if !symbols.lines().any(|l| l.split_whitespace().nth(2) == Some("bpf_send_signal_task")) {
            let why = "this kernel has no bpf_send_signal_task (Linux 6.13): delays can only be spun (--executor spin)"
                .into();
            return Err(SampleError::Bpf { what: "sending signals for sleeping delays", why });
        }
        self.words.set(ctl!(nap_signal), u64::from(signal));
        Ok(())
    }

    /// Where a watched process has the handler that sleeps; its children inherit it, an exec ends it.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn napper(&mut self, pid: u32, handler: u64) -> Result<(), SampleError> {
        // One that has ended meanwhile needs none.
        let Some(known) = code::process(&self.skel, pid) else { return Ok(()) };
        let value = abi::Process { napper: handler, ..known }.bytes();
        match self.skel.maps.processes.update(&pid.to_le_bytes(), &value, MapFlags::EXIST) {
            Err(e) if e.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(SampleError::bpf("telling where a process sleeps its delays", e))
            }
            _ => Ok(()),
        }
    }

    /// The handler of a process, 0 without one.
    #[must_use]
    pub fn napper_of(&self, pid: u32) -> u64 {
        code::process(&self.skel, pid).map_or(0, |p| p.napper)
    }

    /// Living processes of the group.
    pub fn processes(&mut self) -> Vec<u32> {
        layouts_in_use(&self.skel).into_iter().map(|(pid, _)| pid).filter(|pid| outside::lives(*pid)).collect()
    }

    /// Forks and execs since the last call.
    pub fn changes(&mut self) -> Vec<Change> {
        // A ring that cannot be read yields nothing new; what it dropped is counted as lost.
        let _ = self.ring.consume();
        std::mem::take(&mut self.got.borrow_mut().changes)
    }

    /// Whoever polls this is woken when a process of the group has begun a program; at once where something lies in the ring already.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.skel.maps.records.as_fd()
    }

    /// Tells all the code a process has mapped now.
    ///
    /// # Errors
    /// When the process is not watched, a table is full, or the kernel refuses.
    pub fn map(&mut self, pid: u32, modules: &[CausalModule]) -> Result<(), SampleError> {
        self.code.map(&self.skel, pid, modules)
    }

    /// Modules whose unwind rows found no room: frame pointers are followed in them.
    #[must_use]
    pub fn without_rows(&self) -> u32 {
        self.code.without_rows
    }

    /// Chooses what the next window speeds up. Not while one is open.
    ///
    /// # Errors
    /// When a window is open, a table is full or the kernel refuses.
    pub fn arm(&mut self, target: &Armed) -> Result<(), SampleError> {
        self.must_be_closed("arming a target")?;
        if let Armed::Code { callers, .. } = target
            && callers.len() > MOST_CALLERS
        {
            let why = format!("{} callers are more than {MOST_CALLERS}", callers.len());
            return Err(SampleError::Bpf { what: "arming a target", why });
        }
        self.armed = target.clone();
        Ok(())
    }

    /// The same in a process whose code came while the window is open: ranges of others are left as they were.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn rearm(&mut self, pid: u32, target: &Armed) -> Result<(), SampleError> {
        if self.open.is_none() {
            return Ok(());
        }
        let wanted = marks::wanted(target, &self.sampled());
        // A window in which something is not made faster that should be is none.
        self.unmarked |= self.code.rearm(&self.skel, pid, wanted).is_err();
        Ok(())
    }

    /// Code whose ticks are visits.
    fn sampled(&self) -> Vec<(u32, Vec<CodeRange>)> {
        (0..)
            .zip(&self.points)
            .filter_map(|(i, kind)| match kind {
                Kind::Sampled(ranges) => Some((i, ranges.clone())),
                Kind::Stamped => None,
            })
            .collect()
    }

    fn must_be_closed(&self, what: &'static str) -> Result<(), SampleError> {
        match self.open {
            Some(_) => Err(SampleError::Bpf { what, why: "a window is open; end() it first".into() }),
            None => Ok(()),
        }
    }

    fn write_target(&mut self, percent: u8) -> Result<(), SampleError> {
        let sampled = self.sampled();
        self.unmarked = false;
        self.code.arm(&self.skel, marks::wanted(&self.armed, &sampled))?;
        let unit = marks::unit_of(&self.armed);
        let callers = if let Armed::Code { callers, .. } = &self.armed { callers.len() as u64 } else { 0 };
        let (classes, any_site) = match &self.armed {
            Armed::OffCpu { classes, sites } => (u64::from(*classes), sites.is_empty()),
            _ => (0, false),
        };
        // Walks through whole stacks are dear: one for each recorded sample, with the time of the others.
        let deep = unit == abi::UNIT_INCLUSIVE || callers > 0;
        let every = if deep { self.recorded_every() } else { 1 };
        let say = [
            (ctl!(percent), u64::from(percent.min(100))),
            (ctl!(unit), unit),
            (ctl!(callers), callers),
            (ctl!(classes), classes),
            (ctl!(any_site), any_site.into()),
            (ctl!(sampled), sampled.iter().fold(0, |all, (i, _)| all | 1 << i)),
            (ctl!(credit_every), every),
        ];
        say.iter().for_each(|(word, value)| self.words.set(*word, *value));
        Ok(())
    }

    /// Run time as the number of ticks that it stands for.
    fn in_ticks(&self, ns: u64) -> u64 {
        (ns + self.config.tick_ns / 2) / self.config.tick_ns
    }

    /// Visits of a point in the open window so far.
    pub fn peek(&mut self, point: u32) -> u64 {
        match self.points.get(point as usize) {
            Some(Kind::Sampled(_)) => self.in_ticks(self.words.count(point)),
            _ => self.words.count(point),
        }
    }

    /// Hands over the samples since the last call.
    pub fn samples(&mut self, take: &mut dyn FnMut(&CausalSample)) {
        // As in `changes`.
        let _ = self.ring.consume();
        let samples = std::mem::take(&mut self.got.borrow_mut().samples);
        samples.iter().for_each(take);
    }

    /// Attaches a progress point; its index.
    ///
    /// # Errors
    /// When there are too many points, or the kernel's reason.
    pub fn point(&mut self, hook: &Hook) -> Result<u32, SampleError> {
        if self.points.len() >= abi::POINTS {
            let why = format!("{} points are the most", abi::POINTS);
            return Err(SampleError::Bpf { what: "attaching a progress point", why });
        }
        let index = self.points.len() as u32;
        self.attach(index, hook)?;
        self.points.push(match hook {
            Hook::Sampled { ranges } => Kind::Sampled(ranges.clone()),
            _ => Kind::Stamped,
        });
        Ok(index)
    }

    /// Attaches a further place (an inlined copy of the same line) to a point.
    ///
    /// # Errors
    /// When there is no such point, or the kernel's reason.
    pub fn also(&mut self, point: u32, hook: &Hook) -> Result<(), SampleError> {
        match (self.points.get_mut(point as usize), hook) {
            (Some(Kind::Sampled(known)), Hook::Sampled { ranges }) => {
                known.extend_from_slice(ranges);
                Ok(())
            }
            (Some(Kind::Stamped), hook) if !matches!(hook, Hook::Sampled { .. }) => self.attach(point, hook),
            _ => {
                let why = "it must be the place of an existing point of the same kind".into();
                Err(SampleError::Bpf { what: "attaching a progress point", why })
            }
        }
    }

    fn attach(&mut self, point: u32, hook: &Hook) -> Result<(), SampleError> {
        match hook {
            Hook::Uprobe { file, offset, pid } | Hook::UprobeEnd { file, offset, pid } => {
                self.uprobe(point, file, *offset, *pid)?;
                self.price(point, trap::Way::at(file, *offset));
                Ok(())
            }
            Hook::Syscall(number) => self.syscall(point, *number),
            Hook::Tracepoint { group, name } => self.tracepoint(point, group, name),
            Hook::Sampled { .. } => Ok(()),
        }
    }

    fn price(&mut self, point: u32, way: trap::Way) {
        let me = Some(std::process::id());
        let costs = self.trap.unwrap_or_else(|| {
            // Nobody watches us: these are no visits.
            trap::Costs::measure(&mut |file, offset| self.uprobe(point, file, offset, me).is_ok())
        });
        self.trap = Some(costs);
        let index = point as usize;
        self.visit_costs.resize(self.visit_costs.len().max(index + 1), Vec::new());
        self.visit_costs[index].push(costs.of(way));
    }

    fn uprobe(&mut self, point: u32, file: &Path, offset: u64, pid: Option<u32>) -> Result<(), SampleError> {
        let pid = pid.and_then(|p| i32::try_from(p).ok()).unwrap_or(-1);
        let (offset_here, cookie, programs) = (offset as usize, u64::from(point), &self.skel.progs);
        let link = if self.kernel.multi {
            let opts = UprobeMultiOpts { offsets: vec![offset_here], cookies: vec![cookie], ..Default::default() };
            programs.cz_uprobe_multi.attach_uprobe_multi_with_opts(pid, file, "", opts)
        } else {
            let opts = UprobeOpts { cookie, ..UprobeOpts::default() };
            programs.cz_uprobe.attach_uprobe_with_opts(pid, file, offset_here, opts)
        };
        let link = link.map_err(|e| {
            // ENOTSUPP, which has no name in user space.
            let hint = if format!("{e:#}").contains("524") {
                "; the kernel sets none on this instruction (one with a lock prefix): take the next one"
            } else {
                ""
            };
            let why = format!("{} at offset {offset:#x}: {e:#}{hint}", file.display());
            SampleError::Bpf { what: "setting a uprobe", why }
        })?;
        self.links.push(link);
        Ok(())
    }

    fn syscall(&mut self, point: u32, number: u32) -> Result<(), SampleError> {
        if number >= abi::SYSCALLS {
            let why = format!("there is no system call {number}");
            return Err(SampleError::Bpf { what: "attaching a progress point", why });
        }
        self.skel
            .maps
            .calls
            .update(&number.to_le_bytes(), &(point + 1).to_le_bytes(), MapFlags::ANY)
            .map_err(|e| SampleError::bpf("watching a system call", e))?;
        self.watch_calls()
    }

    /// Looks at the ends of all system calls of the machine: not before it is needed.
    pub(super) fn watch_calls(&mut self) -> Result<(), SampleError> {
        if !self.watches_calls {
            let link = self.skel.progs.cz_sys_exit.attach();
            self.links.push(link.map_err(|e| SampleError::bpf("watching system calls", e))?);
            self.watches_calls = true;
        }
        Ok(())
    }

    fn tracepoint(&mut self, point: u32, group: &str, name: &str) -> Result<(), SampleError> {
        let opts = TracepointOpts { cookie: point.into(), ..TracepointOpts::default() };
        let category = libbpf_rs::TracepointCategory::Custom(group.to_owned());
        let link = self.skel.progs.cz_tracepoint.attach_tracepoint_with_opts(category, name, opts).map_err(|e| {
            let missing = e.kind() == libbpf_rs::ErrorKind::NotFound;
            let why = match missing {
                true => format!(
                    "this kernel has no tracepoint {group}:{name}; /sys/kernel/tracing/events lists those it has"
                ),
                false => format!("{group}:{name}: {e:#}"),
            };
            SampleError::Bpf { what: "attaching to a tracepoint", why }
        })?;
        self.links.push(link);
        Ok(())
    }

    /// Lets go of the processes and of the kernel: no tick, no probe, nothing at the scheduler. What was counted can
    /// still be read.
    pub fn detach(&mut self) {
        self.ticks.clear();
        let_go(self.links.drain(..));
    }

    /// What has been going on since [`CausalBpf::open`].
    pub fn loads(&mut self) -> Loads {
        let sums = self.words.sums(&Reach::default());
        let pids = self.processes();
        let outside = outside::Outside::read(&pids);
        Loads {
            own_wait_ns: sums.own_wait,
            foreign_wait_ns: sums.foreign_wait,
            steal_ns: outside.steal_ns.saturating_sub(self.outside_at_open.steal_ns),
            major_faults: outside.major_faults,
            handlers_ns: self.program_time(sums.inserted).unwrap_or(0).max(sums.samples * self.tick_cost),
            inserted_ns: sums.inserted,
            slept_ns: sums.slept,
            run_ns: sums.sample_ns,
            tick_ns: self.config.tick_ns,
            spacing_ns: self.spacing,
            tick_cost_ns: self.tick_cost,
            points_ns: self.points_ns(),
        }
    }

    /// What breakpoints of points took: those of several places are taken for equally often visited.
    fn points_ns(&self) -> u64 {
        let of = |(point, costs): (usize, &Vec<u64>)| {
            let mean = costs.iter().sum::<u64>() / costs.len().max(1) as u64;
            self.words.ever(point as u32).saturating_mul(mean)
        };
        self.visit_costs.iter().enumerate().map(of).sum()
    }

    /// Time in all programs, when the kernel keeps statistics.
    fn program_time(&self, inserted: u64) -> Option<u64> {
        let total: u64 = self.program_runs().iter().map(|(_, _, ns)| ns).sum();
        (total > 0).then(|| total.saturating_sub(inserted))
    }

    /// Name, runs and time (delays included) of each program, counted while the kernel's statistics of BPF
    /// programs are on.
    #[must_use]
    pub fn program_runs(&self) -> Vec<(&'static str, u64, u64)> {
        let p = &self.skel.progs;
        let all = [
            ("tick", p.cz_tick.as_fd()),
            ("switch", p.cz_switch.as_fd()),
            ("waking", p.cz_waking.as_fd()),
            ("timer entry", p.cz_timer_entry.as_fd()),
            ("timer exit", p.cz_timer_exit.as_fd()),
            ("device entry", p.cz_device_entry.as_fd()),
            ("device exit", p.cz_device_exit.as_fd()),
            ("softirq entry", p.cz_softirq_entry.as_fd()),
            ("softirq exit", p.cz_softirq_exit.as_fd()),
            ("uprobe", if self.kernel.multi { p.cz_uprobe_multi.as_fd() } else { p.cz_uprobe.as_fd() }),
            ("tracepoint", p.cz_tracepoint.as_fd()),
            ("sys_exit", p.cz_sys_exit.as_fd()),
        ];
        let runs = all.map(|(name, fd)| (name, whither_kernel::bpf_stats::runs(fd).unwrap_or_default()));
        runs.into_iter().map(|(name, (count, ns))| (name, count, ns)).collect()
    }
}

/// Values the kernel side can work with.
fn sane(config: &CausalConfig) -> CausalConfig {
    let tick_ns = config.tick_ns.clamp(SHORTEST_TICK_NS, 100_000_000);
    CausalConfig { tick_ns, period_ns: (config.period_ns / tick_ns).max(1) * tick_ns, ..*config }
}

/// What not every kernel has.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    /// Uprobes of many places, from Linux 6.6 on.
    multi: bool,
    /// Tracepoints of data that comes and goes on sockets, from Linux 6.3 on.
    sockets: bool,
}

/// All programs, or those that the kernel can do.
fn load_what_is_known(cpus: usize) -> Result<(CausalSkel<'static>, Kernel), SampleError> {
    let lesser = [(true, true), (false, true)].map(|(multi, sockets)| Kernel { multi, sockets });
    for kernel in lesser {
        match load(cpus, kernel) {
            Ok(skel) => return Ok((skel, kernel)),
            Err(e) if e.is_refusal() => return Err(e),
            Err(_) => {}
        }
    }
    let least = Kernel { multi: false, sockets: false };
    Ok((load(cpus, least)?, least))
}

fn load(cpus: usize, kernel: Kernel) -> Result<CausalSkel<'static>, SampleError> {
    // One object per session; its few kilobytes of book-keeping stay until the process ends.
    let object: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let builder = CausalSkelBuilder::default();
    let mut open = builder.open(object).map_err(|e| SampleError::bpf("opening the BPF object", e))?;
    open.progs.cz_uprobe_multi.set_autoload(kernel.multi);
    open.progs.cz_data_ready.set_autoload(kernel.sockets);
    open.progs.cz_sent.set_autoload(kernel.sockets);
    open.progs.cz_connects.set_autoload(kernel.sockets);
    size(&mut open, cpus)?;
    open.load().map_err(|e| SampleError::bpf("loading the BPF programs", e))
}

fn size(open: &mut OpenCausalSkel<'static>, cpus: usize) -> Result<(), SampleError> {
    let set = |map: &mut libbpf_rs::OpenMapMut<'_>, n: usize| {
        map.set_max_entries(n as u32).map_err(|e| SampleError::bpf("sizing a BPF map", e))
    };
    set(&mut open.maps.cpus, cpus)?;
    set(&mut open.maps.visits, cpus * abi::POINTS)?;
    set(&mut open.maps.rows, code::ROWS)?;
    set(&mut open.maps.records, (cpus << 19).next_power_of_two().clamp(1 << 20, 32 << 20))?;
    let Some(constants) = open.maps.rodata_data.as_deref_mut() else {
        return Err(SampleError::Bpf { what: "setting constants", why: "the object has no .rodata".into() });
    };
    constants.wh_rows_mask = code::ROWS as u32 - 1;
    Ok(())
}

/// Drops things that the kernel takes its time for, all at once: with each uprobe it waits until no CPU can be in it any more (40 to 90 ms),
/// and such waits end together.
fn let_go<T: Send>(things: impl Iterator<Item = T>) {
    std::thread::scope(|scope| {
        things.for_each(|thing| {
            scope.spawn(move || drop(thing));
        });
    });
}

impl Drop for CausalBpf {
    fn drop(&mut self) {
        self.detach();
    }
}

fn ring(skel: &CausalSkel<'static>, got: &Rc<RefCell<records::Got>>) -> Result<RingBuffer<'static>, SampleError> {
    let failed = |e| SampleError::bpf("reading a BPF ring", e);
    let got = Rc::clone(got);
    let mut builder = RingBufferBuilder::new();
    builder
        .add(&skel.maps.records, move |bytes| {
            got.borrow_mut().take(bytes);
            0
        })
        .map_err(failed)?;
    builder.build().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::let_go;
    use std::time::{Duration, Instant};

    struct Slow;

    impl Drop for Slow {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    #[test]
    fn what_the_kernel_takes_its_time_for_is_let_go_of_at_once() {
        let began = Instant::now();
        let_go([Slow, Slow, Slow, Slow].into_iter());
        assert!(began.elapsed() < Duration::from_millis(600), "{:?}", began.elapsed());
    }
}
