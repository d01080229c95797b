//! One collection from start to end: opens a collector for the options, keeps it going (side-band,
//! random periods, drains, the governor), and cuts what was collected into segments. `record`,
//! `daemon` and `live` differ only in when they cut and where it goes.

use crate::SessionError;
use crate::choose::{Choice, choose};
use crate::governor::{Change, Governor};
use crate::options::{Backend, Edges, Pace, RecordOptions, Scope, Stacks};
use crate::turns::Turns;
use std::time::Duration;
use whither_kernel::{clock, proc};
use whither_sample::{
    Book, BookOptions, Chosen, Collector, Coverage, EdgeMode, Folding, SampleError, Spend, StackMode,
};
use whither_store::CoreFacts;
use whither_store::model::{EpochMeta, Image, Losses, OwnCost, Profile};

/// The side-band is read this often, and as soon as a ring fills; registers of samples take their ring a second to fill.
const PUMP_NS: u64 = 500_000_000;
/// And this often while walks want more code than is prepared: what they meet next they are better told soon.
const PUMP_LEARNING_NS: u64 = 50_000_000;
/// The same where samples come through rings, or each with kilobytes of its stack.
const PUMP_RINGS_NS: u64 = 100_000_000;
/// CPUs that came or went are looked for this often.
const LOOK_NS: u64 = 1_000_000_000;

/// What an engine is started with beside the user's options.
#[derive(Debug)]
pub(crate) struct Setup {
    /// Processes to watch; empty for the whole system.
    pub(crate) pids: Vec<u32>,
    pub(crate) folding: Folding,
    pub(crate) per_process: Option<regex::Regex>,
    pub(crate) drain: Duration,
}

/// A running collection.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) book: Book,
    collector: Collector,
    governor: Governor,
    turns: Turns,
    /// What the user should know.
    pub(crate) notes: Vec<String>,
    core: Option<CoreFacts>,
    /// What happened since the last cut that the user should know.
    happened: Vec<String>,
    drain_ns: u64,
    pumped: u64,
    drained: u64,
    looked: u64,
    online: proc::OnlineCpus,
    cut_at: u64,
    delivered: u64,
    /// Of these, samples that took no interrupt.
    synchronous: u64,
    hertz: f64,
}

/// Rows that were cut, with their losses and time window (ns since the Unix epoch).
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) profile: Profile,
    pub(crate) losses: Losses,
    pub(crate) window: (u64, u64),
    /// Sentences for the user.
    pub(crate) happened: Vec<String>,
}

/// Adds sentences to an epoch's notes, each once.
pub(crate) fn note(meta: &mut EpochMeta, happened: &[String]) {
    for sentence in happened {
        if !meta.notes.contains(sentence) {
            meta.notes.push(sentence.clone());
        }
    }
}

impl Engine {
    /// Opens everything and switches sampling on.
    pub(crate) fn start(options: &RecordOptions, setup: Setup) -> Result<Self, SessionError> {
        allow_many_files();
        let Choice { mut events, mut notes } = choose(options)?;
        let turns = Turns::new(options.multiplexed.len(), &mut events);
        // Before anything is sampled, so that measuring is in no recording.
        let core = match crate::core_facts(options.cache_dir.as_deref()) {
            Ok(facts) => Some(facts),
            Err(note) => {
                notes.push(note);
                None
            }
        };
        let mut book = Book::new(BookOptions {
            events: events.iter().map(Chosen::event).collect(),
            folding: setup.folding,
            per_process: setup.per_process,
            threads: options.threads,
            slice_s: u32::try_from(options.slice.as_secs()).unwrap_or(u32::MAX).max(1),
        });
        let coverage = if setup.pids.is_empty() { Coverage::System } else { Coverage::Processes(setup.pids) };
        let mut governor = Governor::new(options.pace, proc::online_cpus().len(), &events);
        let mut collector = open(options, &events, &coverage, &mut book, &mut notes, &mut governor)?;
        if let (Some(problem), false) =
            (book.kernel().problem(), collector.chosen().iter().all(|c| c.spec.exclude_kernel))
        {
            notes.push(problem.to_string());
        }
        let hertz = collector.chosen().iter().find(|e| e.is_rated()).map_or(0.0, Chosen::hertz);
        collector.enable()?;
        let now = clock::monotonic_ns();
        let mut engine = Self {
            book,
            collector,
            governor,
            turns,
            notes,
            core,
            drain_ns: u64::try_from(setup.drain.as_nanos()).unwrap_or(u64::MAX),
            happened: Vec::new(),
            pumped: now,
            drained: now,
            looked: now,
            online: proc::OnlineCpus::open(),
            cut_at: clock::wall_ns(),
            delivered: 0,
            synchronous: 0,
            hertz,
        };
        engine.calibrate()?;
        // Nothing of what is booked was sampled before.
        engine.book.turn_slice();
        Ok(engine)
    }

    /// Measures the cost of a sample and lets the budget set the rate.
    fn calibrate(&mut self) -> Result<(), SessionError> {
        if self.hertz == 0.0 {
            return Ok(());
        }
        // For rings that was done before they were opened.
        if self.backend() == "bpf"
            && let Some(hertz) = self.governor.measure(&self.collector)
        {
            self.collector.set_time_period((1e9 / hertz) as u64);
            self.hertz = hertz;
        }
        self.collector.restart(&mut self.book)?;
        self.collector.take_synchronous();
        self.cut_at = clock::wall_ns();
        Ok(())
    }

    fn set_hertz(&mut self, hertz: f64) {
        self.collector.change_time_period((1e9 / hertz) as u64, &mut self.book);
        self.hertz = hertz;
    }

    /// Whether code is executed in thought from samples on.
    pub(crate) fn walks(&self) -> bool {
        self.collector.walks()
    }

    /// Walks may take a share of the time beside the budget.
    pub(crate) fn allow_walks(&mut self, share: f64) {
        self.governor.allow_walks(share);
    }

    /// Does what is due; returns a new rate when the governor changed it.
    pub(crate) fn tick(&mut self) -> Option<f64> {
        let now = clock::monotonic_ns();
        self.collector.redraw();
        self.turns.take(now, &self.collector);
        if now - self.drained >= self.drain_ns || self.book.slice_is_over() || self.book.is_crowded() {
            self.drain();
        } else if now - self.pumped >= self.pump_ns() {
            self.collector.pump(&mut self.book);
            self.pumped = now;
        }
        if now - self.looked >= LOOK_NS {
            self.looked = now;
            self.happened.extend(self.collector.follow_cpus(&self.online.now(), &mut self.book));
        }
        // Rings of processes: children keep the period they were born with, so the rate stays.
        if self.backend() != "bpf" {
            return None;
        }
        let (collector, synchronous) = (&mut self.collector, &mut self.synchronous);
        let change = self.governor.review(|| {
            *synchronous += collector.take_synchronous();
            (collector.taken(), *synchronous)
        });
        self.adapt(change?)
    }

    fn adapt(&mut self, change: Change) -> Option<f64> {
        if change.thinner > 1 {
            self.collector.thin_synchronous(change.thinner, &mut self.book);
            let all = self.collector.chosen().iter();
            let now: Vec<String> = all.filter(|c| c.is_synchronous() && c.turns == 1).map(every).collect();
            if !now.is_empty() {
                self.happened.push(format!("{}, {} from now on", self.governor.reason(), now.join(", ")));
            }
        }
        if let Some(walks) = change.walks {
            self.collector.limit_walks(walks);
        }
        if let Some(hertz) = change.hertz {
            self.set_hertz(hertz);
        }
        change.hertz
    }

    fn pump_ns(&self) -> u64 {
        let copies = self.backend() != "bpf" || self.collector.copies_stacks();
        match () {
            () if copies => PUMP_RINGS_NS,
            () if self.collector.is_learning() => PUMP_LEARNING_NS,
            () => PUMP_NS,
        }
    }

    /// Sleeps until the next tick is due, but no longer than `at_most`; a signal ends it.
    pub(crate) fn sleep(&mut self, at_most: Duration) {
        if self.collector.wait(self.pause().min(at_most)) {
            // The next tick reads.
            self.pumped = 0;
        }
    }

    /// How long the caller may sleep before the next tick.
    pub(crate) fn pause(&self) -> Duration {
        if !self.turns.is_empty() {
            return Duration::from_millis(10);
        }
        // As long as a drawn period holds, and as often as the side-band is read.
        self.collector.until_redraw().clamp(Duration::from_millis(10), Duration::from_nanos(self.pump_ns()))
    }

    /// Moves all samples so far into the book.
    pub(crate) fn drain(&mut self) {
        self.collector.drain(&mut self.book);
        self.book.turn_slice();
        let now = clock::monotonic_ns();
        (self.drained, self.pumped) = (now, now);
    }

    /// Switches sampling off and drains what is left.
    pub(crate) fn stop(&mut self) {
        self.collector.disable();
        self.drain();
    }

    /// Cuts the rows since the last cut.
    pub(crate) fn cut(&mut self) -> Part {
        self.collector.account(&mut self.book);
        if self.collector.lost_registers() {
            self.happened.push(
                "registers of some samples were lost (ring full): branch directions rest on fewer samples than usual"
                    .into(),
            );
        }
        let (profile, losses) = self.book.cut();
        self.happened.extend(copies(&profile.images));
        self.delivered += profile.rates.iter().map(|r| r.delivered).sum::<u64>();
        self.synchronous += self.collector.take_synchronous();
        let now = clock::wall_ns();
        let window = (std::mem::replace(&mut self.cut_at, now), now);
        Part { profile, losses, window, happened: std::mem::take(&mut self.happened) }
    }

    /// Whether more distinct rows than these wait to be cut.
    pub(crate) fn exceeds(&mut self, rows: usize) -> bool {
        self.book.exceeds(rows)
    }

    /// Rows, at most, and samples that wait to be cut.
    pub(crate) fn waiting(&self) -> (usize, u64) {
        self.book.waiting()
    }

    /// What collecting costs, by measurement. `counting_ns`: what breakpoints took from the target, at least and at most.
    pub(crate) fn cost(&self, counting_ns: (u64, u64)) -> OwnCost {
        self.governor.cost(self.delivered, self.synchronous, self.collector.taken(), counting_ns)
    }

    pub(crate) fn hertz(&self) -> f64 {
        self.hertz
    }

    pub(crate) fn backend(&self) -> &'static str {
        self.collector.backend()
    }

    pub(crate) fn event_names(&self) -> Vec<String> {
        self.collector.chosen().iter().map(|c| c.spec.name.clone()).collect()
    }

    /// The epoch's description as of now.
    pub(crate) fn meta(&self, options: &RecordOptions) -> EpochMeta {
        let machine = proc::machine();
        EpochMeta {
            tool: format!("whither {}", env!("CARGO_PKG_VERSION")),
            host: machine.host,
            boot_id: machine.boot_id,
            kernel: machine.kernel,
            cpu: machine.cpu,
            cpus: machine.cpus.len() as u32,
            start_ns: self.cut_at,
            start_boottime_ns: clock::boottime_ns(),
            command: options.command_line.clone(),
            target: if let Scope::Command(words) = &options.scope { words.clone() } else { Vec::new() },
            scope: scope_text(&options.scope),
            backend: self.backend().to_string(),
            notes: self.notes.clone(),
            slice_s: u32::try_from(options.slice.as_secs()).unwrap_or(u32::MAX).max(1),
            threads: options.threads,
            cost: self.cost((0, 0)),
            core: self.core.clone(),
            ..EpochMeta::default()
        }
    }
}

/// Every event on every CPU is a descriptor, and so is its link: the soft limit of 1,024 is soon too
/// small. A launched target has been forked before and keeps its own.
fn allow_many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Without it, opening events says what is missing.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// How often an event is sampled, in words.
fn every(chosen: &Chosen) -> String {
    format!("{} is sampled once every {} occurrences", chosen.spec.name, chosen.period)
}

fn scope_text(scope: &Scope) -> String {
    match scope {
        Scope::System => "whole system".into(),
        Scope::Pids(pids) => {
            let list: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!("pid {} and what it forks", list.join(", "))
        }
        Scope::Command(_) => "command and what it forks".into(),
    }
}

fn stack_mode(options: &RecordOptions) -> StackMode {
    let every = options.stack_every.max(1);
    match options.stacks {
        Stacks::Off => StackMode::Off,
        Stacks::FramePointers => StackMode::FramePointers { every },
        Stacks::Dwarf(bytes) => StackMode::Dwarf { bytes, every },
    }
}

/// Part of the budget that finding out where branches go may take of a whole system. A daemon at 1 % spends a thousandth.
const FOR_BRANCHES: f64 = 0.1;
/// Share of a CPU for it where a rate was asked for, whatever it costs.
const FOR_BRANCHES_AT_A_RATE: f64 = 0.001;

/// What interpreting registers may take of so many CPUs.
fn spend_on_branches(pace: Pace, cpus: usize) -> Spend {
    let of_each = if let Pace::Budget(budget) = pace { budget * FOR_BRANCHES } else { FOR_BRANCHES_AT_A_RATE };
    Spend::Share((of_each * cpus as f64 * 1e6).clamp(1.0, 1e9) as u32)
}

fn edge_mode(edges: Edges, scope: &Scope, system: Spend, events: &[Chosen], notes: &mut Vec<String>) -> EdgeMode {
    let mode = match edges {
        Edges::Off | Edges::Records => return EdgeMode::Off,
        Edges::Registers => EdgeMode::Registers(Spend::Freely),
        Edges::Memory => EdgeMode::Memory(Spend::Freely),
        Edges::Walks => EdgeMode::Walks,
        // Who names a program wants to know all of it; what runs all the time must cost little.
        Edges::Auto if *scope != Scope::System => EdgeMode::Walks,
        Edges::Auto => EdgeMode::Memory(system),
    };
    if events.iter().any(Chosen::brings_registers) {
        return mode;
    }
    notes.push(if events.iter().any(Chosen::is_rated) {
        "branch directions are missing: registers of precise events are from after the sampled instruction; add \
         'cpu-clock' or 'cycles' without ':p' for them"
            .into()
    } else {
        "branch directions are missing: they are taken from samples of time, and none of the events is".into()
    });
    EdgeMode::Off
}

/// When rings are to bring branch records, which BPF does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Records {
    /// Whatever else there is.
    First,
    /// When samples come through rings anyway.
    WithRings,
    Never,
}

/// `registers`: interpretation is possible with these events.
fn records(edges: Edges, backend: Backend, scope: &Scope, registers: bool) -> Records {
    match (edges, backend) {
        (Edges::Records, _) => Records::First,
        (Edges::Off | Edges::Registers, _) => Records::Never,
        // Of a program that is named as much is to be known as can be; what runs all the time must cost little.
        (Edges::Auto, Backend::Auto) if !registers && *scope != Scope::System => Records::First,
        (Edges::Auto | Edges::Memory | Edges::Walks, _) => Records::WithRings,
    }
}

/// The event that branch records come with, if the kernel offers any. A machine without them is told of by `doctor`.
fn recorded(events: &[Chosen], notes: &mut Vec<String>) -> Option<EdgeMode> {
    let number = whither_sample::branch_event(events, &proc::machine().cpu)?;
    let name = &events.get(usize::from(number))?.spec.name;
    notes.push(format!("branch directions come from the CPU's branch records, taken with every sample of {name}"));
    Some(EdgeMode::Records(number))
}

fn no_records() -> SessionError {
    SessionError::Missing {
        what: "branch records (--edges records)".into(),
        why: "none of the events brings any".into(),
        remedy:
            "They come with hardware events of CPUs that have them (Intel LBR, AMD Zen 4 and later), hardly ever in \
                 virtual machines; 'whither doctor' tells. Leave --edges away: branches are then interpreted."
                .into(),
    }
}

/// Rings write registers with every sample, which costs more than all the rest: only when asked for.
fn edges_of_rings(options: &RecordOptions, mode: EdgeMode, notes: &mut Vec<String>) -> EdgeMode {
    match (mode, options.edges) {
        (EdgeMode::Off, _) => EdgeMode::Off,
        (_, Edges::Auto | Edges::Records) => {
            notes.push(
                "branch directions are missing: without BPF they cost some 1.5 us per sample more; '--edges regs' \
                 takes them all the same"
                    .into(),
            );
            EdgeMode::Off
        }
        (mode, Edges::Memory | Edges::Walks) => {
            notes.push(
                "branch directions are known only where registers decide them: perf rings bring no memory operands"
                    .into(),
            );
            mode
        }
        (mode, _) => mode,
    }
}

fn open(
    options: &RecordOptions,
    events: &[Chosen],
    coverage: &Coverage,
    book: &mut Book,
    notes: &mut Vec<String>,
    governor: &mut Governor,
) -> Result<Collector, SessionError> {
    let stacks = stack_mode(options);
    let registers = events.iter().any(Chosen::brings_registers);
    let records = records(options.edges, options.backend, &options.scope, registers);
    if records == Records::First {
        match recorded(events, notes) {
            Some(edges) => return ring(options, events, coverage, (stacks, edges), book, notes, governor),
            None if options.edges == Edges::Records => return Err(no_records()),
            None => {}
        }
    }
    let mut missing = Vec::new();
    let spend = spend_on_branches(options.pace, proc::online_cpus().len());
    let edges = edge_mode(options.edges, &options.scope, spend, events, &mut missing);
    if options.backend != Backend::Ring {
        match by_bpf(options, events, coverage, (stacks, edges), book, notes) {
            Ok(c) => {
                notes.append(&mut missing);
                return Ok(c);
            }
            Err(e) if options.backend == Backend::Bpf => return Err(refused("aggregating in the kernel by BPF", &e)),
            Err(e) => notes.push(format!(
                "BPF cannot be used ({e}): samples come through perf rings, at a higher cost per sample; 'whither doctor' tells what is missing"
            )),
        }
    }
    let recorded = if records == Records::WithRings { recorded(events, notes) } else { None };
    let edges = match recorded {
        Some(edges) => edges,
        None => {
            notes.append(&mut missing);
            edges_of_rings(options, edges, notes)
        }
    };
    ring(options, events, coverage, (stacks, edges), book, notes, governor)
}

/// Walks need a helper of Linux 5.17; without it the rest still works.
fn by_bpf(
    options: &RecordOptions,
    events: &[Chosen],
    coverage: &Coverage,
    (stacks, edges): (StackMode, EdgeMode),
    book: &mut Book,
    notes: &mut Vec<String>,
) -> Result<Collector, SampleError> {
    let mut open = |edges| Collector::bpf(events, coverage, stacks, edges, options.threads, book);
    match open(edges) {
        Err(_) if edges == EdgeMode::Walks => {
            let without = open(EdgeMode::Memory(Spend::Freely))?;
            if options.edges == Edges::Walks {
                notes.push("this kernel does not load what walks need (bpf_loop, Linux 5.17 at least): branches are decided near samples only".into());
            }
            Ok(without)
        }
        other => other,
    }
}

fn ring(
    options: &RecordOptions,
    events: &[Chosen],
    coverage: &Coverage,
    (stacks, edges): (StackMode, EdgeMode),
    book: &mut Book,
    notes: &mut Vec<String>,
    governor: &mut Governor,
) -> Result<Collector, SessionError> {
    let asked = if let Pace::Hertz(hertz) = options.pace { Some(hertz.into()) } else { None };
    let mut open = |mut events: Vec<Chosen>| {
        if let Some(hertz) = governor.measure_ahead(&events) {
            events.iter_mut().filter(|c| c.is_rated()).for_each(|c| c.set_distance((1e9 / hertz) as u64));
        }
        Collector::ring(&events, coverage, stacks, edges, asked, book)
    };
    match open(events.to_vec()) {
        Ok(c) => Ok(c),
        Err(e) if e.is_refusal() && !options.user_only => {
            notes.push("the kernel may not be sampled with these rights: user mode only".into());
            let mut user = events.to_vec();
            user.iter_mut().for_each(|c| c.spec.exclude_kernel = true);
            open(user).map_err(|e| refused(&scope_text(&options.scope), &e))
        }
        Err(e) => Err(refused(&scope_text(&options.scope), &e)),
    }
}

fn refused(what: &str, e: &SampleError) -> SessionError {
    SessionError::Rights {
        what: format!("sampling ({what})"),
        why: e.to_string(),
        remedy: "Run as root, give the binary CAP_PERFMON and CAP_BPF, or sample a command of your own \
                 ('whither record -- command'); 'whither doctor' tells what these rights allow."
            .into(),
    }
}

/// So many copies of a file are named.
const COPIES: usize = 3;

/// What to say of files that are equal and were sampled under more than one path: a recording holds one path of each.
fn copies(images: &[Image]) -> Vec<String> {
    let told = |same: &[Image]| {
        let paths: Vec<&str> = same.iter().map(|i| i.path.as_str()).collect();
        let kept = paths.iter().min_by_key(|p| (p.len(), **p)).unwrap_or(&"");
        let (named, others) = paths.split_at(paths.len().min(COPIES));
        let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
        let named = named.join(" and ");
        format!("{named}{more} are copies of one file: what was sampled in any of them is told as {kept}")
    };
    let equal = images.chunk_by(|a, b| a.id == b.id).filter(|same| same.len() > 1);
    equal.map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_kernel::events;
    use whither_sample::Chosen;
    use whither_store::model::Precision;

    #[test]
    fn branch_records_are_asked_for_where_they_say_more() {
        let (command, system) = (Scope::Command(vec!["true".into()]), Scope::System);
        let of = |edges, backend, scope: &Scope, registers| records(edges, backend, scope, registers);
        assert_eq!(of(Edges::Records, Backend::Auto, &system, true), Records::First);
        assert_eq!(
            of(Edges::Auto, Backend::Auto, &command, false),
            Records::First,
            "precise events bring no registers"
        );
        assert_eq!(of(Edges::Auto, Backend::Auto, &command, true), Records::WithRings, "BPF costs less");
        assert_eq!(of(Edges::Auto, Backend::Auto, &system, false), Records::WithRings);
        assert_eq!(of(Edges::Auto, Backend::Bpf, &command, false), Records::WithRings, "which BPF never tries");
        assert_eq!(of(Edges::Memory, Backend::Ring, &command, true), Records::WithRings);
        for edges in [Edges::Off, Edges::Registers] {
            assert_eq!(of(edges, Backend::Ring, &command, true), Records::Never);
        }
        // A timer has none, on any machine, and that is said only where they were asked for.
        let spec = events::parse("cpu-clock").expect("an event");
        let timer = Chosen { spec, period: 1_000_000, precision: Precision::Skid(1), turns: 1, units_per_ns: 1.0 };
        let mut notes = Vec::new();
        assert_eq!((recorded(&[timer], &mut notes), notes), (None, Vec::new()));
        assert!(no_records().to_string().contains("--edges records"));
    }

    #[test]
    fn registers_of_precise_events_are_not_taken_and_that_is_said() {
        let event = |name: &str, precision, units_per_ns| Chosen {
            spec: events::parse(name).expect("an event"),
            period: 1_000_000,
            precision,
            turns: 1,
            units_per_ns,
        };
        let (precise, time) = (event("cycles:pp", Precision::Exact, 4.0), event("cpu-clock", Precision::Skid(1), 1.0));
        let mode = |events: &[Chosen]| {
            let mut notes = Vec::new();
            (edge_mode(Edges::Memory, &Scope::System, Spend::Share(1), events, &mut notes), notes.join(" "))
        };
        let (off, note) = mode(std::slice::from_ref(&precise));
        assert_eq!(off, EdgeMode::Off);
        assert!(note.contains("directions are missing") && note.contains("precise"), "{note}");
        assert_eq!(mode(&[precise, time]), (EdgeMode::Memory(Spend::Freely), String::new()));
        let (off, note) = mode(&[event("page-faults", Precision::Unknown, 0.0)]);
        assert!(off == EdgeMode::Off && note.contains("samples of time"), "{note}");
    }

    #[test]
    fn branches_of_a_whole_system_get_a_tenth_of_the_budget() {
        assert_eq!(spend_on_branches(Pace::Budget(0.03), 2), Spend::Share(6_000));
        assert_eq!(spend_on_branches(Pace::Budget(0.01), 64), Spend::Share(64_000));
        assert_eq!(spend_on_branches(Pace::Hertz(5_200), 2), Spend::Share(2_000));
        assert_eq!(spend_on_branches(Pace::Budget(0.0), 1), Spend::Share(1));
    }
}
