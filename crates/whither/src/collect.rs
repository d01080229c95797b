//! The collecting verbs: `record`, `daemon`, `import`. Turns flags into the plain options of
//! `whither_session` and its outcome into lines on stderr; every call into `session` is here.

use crate::cli::{
    BackendChoice, Common, DaemonAction, DaemonArgs, DaemonRun, EdgeChoice, ImportArgs, RecordArgs, SamplingArgs,
    StackChoice,
};
use crate::failure::{Ending, Usage};
use crate::progress::Reporter;
use crate::units::{show_bytes, show_count};
use crate::{answer, places, signals};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use whither_session::{Backend, Control, DaemonOptions, Edges, OnExisting, Pace, RecordOptions, Scope, Stacks};
use whither_store::model::{EpochMeta, Losses, Profile};
use whither_store::{Selection, SymbolOptions};

/// So many times its budget a recording may cost before it is told.
const EXCEEDED: f64 = 1.2;
/// Share of CPU time a recording may take when the user names no rate.
const RECORD_BUDGET: f64 = 0.03;
/// The daemon's: it runs for weeks.
const DAEMON_BUDGET: f64 = 0.01;

/// Length of a slice when nothing asks for a shorter one.
const LONGEST_SLICE: Duration = Duration::from_secs(10);

/// `whither record`.
pub(crate) fn record(args: RecordArgs, common: Common) -> anyhow::Result<Ending> {
    let options = record_options(args)?;
    let stop = signals::stop_flag()?;
    let mut reporter = Reporter::new(common, options.duration);
    let outcome = whither_session::record(&options, &stop, &mut |event| reporter.on(event))?;
    let told = itself(&outcome.path);
    let stacks = outcome.samples / u64::from(options.stack_every.max(1));
    let advice = told.as_ref().and_then(|p| deeper(options.stacks, &p.losses(), stacks));
    reporter.finished(&outcome, &account(told.as_ref()), advice.as_deref());
    Ok(match outcome.target_status {
        // Of the command something was kept, so the status is its own.
        Some(status) if outcome.unwritten == 0 || outcome.samples > 0 => Ending::Target(status),
        _ if outcome.unwritten > 0 => Ending::Incomplete,
        _ => Ending::Done,
    })
}

/// `whither import`.
pub(crate) fn import(args: &ImportArgs, common: Common) -> anyhow::Result<Ending> {
    let existing = if args.overwrite || args.output.is_none() { OnExisting::Replace } else { OnExisting::Refuse };
    let output = args.output.clone().unwrap_or_else(places::default_recording);
    let outcome = whither_session::import(&args.input, &output, existing)?;
    Reporter::new(common, None).finished(&outcome, &account(itself(&outcome.path).as_ref()), None);
    Ok(Ending::Done)
}

/// Recordings shorter than this are mostly start and end, seconds.
const SHORT_S: f64 = 2.0;

/// What most of the cost went into, where the budget did not suffice.
fn why_exceeded(profile: &Profile, epoch: &EpochMeta) -> &'static str {
    let seconds = epoch.end_ns.saturating_sub(epoch.start_ns) as f64 / 1e9;
    let all = epoch.cost.share * seconds * f64::from(epoch.cpus.max(1));
    let own = epoch.cost.user_ns as f64 / 1e9;
    let taken: u64 = profile.samples.iter().map(|s| u64::from(s.count)).sum();
    let samples = epoch.cost.interrupt_ns * taken as f64 / 1e9;
    let walks = all - own - samples;
    if seconds < SHORT_S {
        "short runs are mostly start and end"
    } else if own > samples.max(walks) {
        "most of it is whither's own work: the files and the code of programs are learnt once, when they first run"
    } else if walks > samples {
        "most of it is walks, which are dear where code is new: --edges mem does without"
    } else {
        "most of it is samples: events without a rate are sampled as they come at first, --period thins them"
    }
}

/// Losses and own cost, from what the recording says of itself.
fn account(told: Option<&Profile>) -> String {
    let Some(profile) = told else { return String::new() };
    let losses = profile.losses();
    let lost = losses.dropped + losses.unwritten;
    let mut text = format!(", lost {}", show_count(lost));
    if losses.skipped > 0 {
        let _ = write!(text, ", skipped by the kernel about {}", show_count(losses.skipped));
    }
    if let Some(cost) = profile.epochs.first().map(|e| &e.cost).filter(|cost| cost.share > 0.0) {
        let _ = write!(text, ", own cost {:.2} %", 100.0 * cost.share);
        if let Some(slower) = cost.slower {
            let _ = write!(text, " (programs ran {:.1} to {:.1} % slower)", 100.0 * slower.least, 100.0 * slower.most);
        }
        if let Some(budget) = cost.budget.filter(|budget| cost.share > EXCEEDED * budget) {
            let why = profile.epochs.first().map_or("", |epoch| why_exceeded(profile, epoch));
            let _ = write!(text, " (more than the budget of {} %: {why})", (1e5 * budget).round() / 1e3);
        }
    }
    text
}

/// What a recording says of itself; no rows are read.
fn itself(path: &Path) -> Option<Profile> {
    let nothing = Selection { events: Some(Vec::new()), ..Selection::default() };
    Some(whither_store::load(&[path.to_owned()], &nothing).ok()?.profile)
}

/// Advice where many stacks are cut short: they lie deeper than what was copied of them, or in code without unwind rules.
fn deeper(how: Stacks, losses: &Losses, stacks: u64) -> Option<String> {
    const MOST: u32 = 63 << 10;
    const MANY: f64 = 0.2;
    let Stacks::Dwarf(bytes) = how else { return None };
    let is_many = |cut: u64| cut as f64 > MANY * stacks.max(1) as f64;
    if bytes < MOST && is_many(losses.stacks_beyond) {
        let taken = show_bytes(bytes.into());
        return Some(format!("many stacks are deeper than the {taken} taken of each: '-g=dwarf:63KiB' takes more"));
    }
    is_many(losses.stacks_truncated.saturating_sub(losses.stacks_beyond)).then(|| {
        "many stacks are cut short in code without unwind rules, or where a signal handler has a stack of its own; \
         where code keeps frame pointers, '-g' goes on"
            .into()
    })
}

/// `whither daemon ...`.
pub(crate) fn daemon(args: DaemonArgs, common: Common) -> anyhow::Result<Ending> {
    match args.action {
        DaemonAction::Run(run) => run_daemon(*run, common),
        DaemonAction::Status(status) => control(status.db.db, &Control::Status { json: status.json }),
        DaemonAction::Flush(db) => control(db.db, &Control::Flush),
        DaemonAction::Stop(db) => control(db.db, &Control::Stop),
    }
}

/// Sends a command to the running daemon and prints its reply.
pub(crate) fn control(db: Option<PathBuf>, command: &Control) -> anyhow::Result<Ending> {
    let reply = whither_session::control(&places::database(db), command)?;
    answer::print(&reply)?;
    Ok(Ending::Done)
}

fn run_daemon(run: DaemonRun, common: Common) -> anyhow::Result<Ending> {
    let options = daemon_options(run)?;
    let stop = signals::stop_flag()?;
    let mut reporter = Reporter::new(common, options.duration);
    whither_session::daemon(&options, &stop, &mut |event| reporter.on(event))?;
    Ok(Ending::Done)
}

fn record_options(args: RecordArgs) -> anyhow::Result<RecordOptions> {
    let (scope, during) = whom(args.all, args.pid, args.command);
    let overwrite = args.overwrite || args.output.is_none();
    let output = args.output.unwrap_or_else(places::default_recording);
    let bounded = !during.is_empty() || matches!(scope, Scope::Command(_));
    let slice = args.sampling.slice.unwrap_or_else(|| default_slice(args.duration, bounded));
    let mut options = sampling(scope, args.sampling, args.budget.unwrap_or(RECORD_BUDGET))?;
    options.during = during;
    options.duration = args.duration;
    options.slice = slice;
    options.output = output;
    options.overwrite = overwrite;
    options.threads = args.threads;
    options.store_code = !args.no_code;
    options.user_only = args.user;
    options.edges = edges(args.edges);
    options.exact = exact(args.exact, &options.scope)?;
    Ok(options)
}

/// Breakpoints belong to threads, and those of every process cannot be had.
fn exact(patterns: Vec<String>, scope: &Scope) -> anyhow::Result<Vec<String>> {
    if *scope == Scope::System && !patterns.is_empty() {
        let why = "--exact counts in the threads of one target: name it with -p PID, or give a command behind --";
        return Err(Usage(why.into()).into());
    }
    Ok(patterns)
}

/// Short slices show more and cost more rows: a few are enough to see change and to tell chance.
fn default_slice(duration: Option<Duration>, while_a_command_runs: bool) -> Duration {
    match duration {
        Some(d) => (d / 6).clamp(Duration::from_secs(1), LONGEST_SLICE),
        None if while_a_command_runs => Duration::from_secs(1),
        None => LONGEST_SLICE,
    }
}

/// Whom to sample, and the command that only tells for how long.
fn whom(all: bool, pids: Vec<u32>, command: Vec<String>) -> (Scope, Vec<String>) {
    if !pids.is_empty() {
        (Scope::Pids(pids), command)
    } else if all || command.is_empty() {
        (Scope::System, command)
    } else {
        (Scope::Command(command), Vec::new())
    }
}

fn daemon_options(run: DaemonRun) -> anyhow::Result<DaemonOptions> {
    // One slice per segment unless asked otherwise: time ranges then have the grain of segments.
    let slice = run.sampling.slice.unwrap_or(run.seal);
    let mut record = sampling(Scope::System, run.sampling, run.budget.unwrap_or(DAEMON_BUDGET))?;
    record.slice = slice;
    record.edges = edges(run.edges);
    Ok(DaemonOptions {
        record,
        db: places::database(run.db.db),
        drain: run.drain,
        seal: run.seal,
        epoch: run.epoch,
        keep: run.keep,
        max_disk: run.max_disk,
        per_process: run.per_process,
        duration: run.duration,
    })
}

/// Options of a live view: nothing is kept.
pub(crate) fn live_options(
    pids: Vec<u32>,
    sampling_args: SamplingArgs,
    budget: Option<f64>,
) -> anyhow::Result<RecordOptions> {
    sampling(whom(false, pids, Vec::new()).0, sampling_args, budget.unwrap_or(RECORD_BUDGET))
}

fn sampling(scope: Scope, args: SamplingArgs, budget: f64) -> anyhow::Result<RecordOptions> {
    args.event.iter().chain(&args.mux).try_for_each(|name| known_event(name))?;
    Ok(RecordOptions {
        scope,
        during: Vec::new(),
        events: args.event,
        multiplexed: args.mux,
        pace: pace(args.rate, args.period, budget),
        stacks: stacks(args.stacks),
        stack_every: args.stack_every,
        edges: Edges::Off,
        exact: Vec::new(),
        duration: None,
        output: places::default_recording(),
        overwrite: false,
        backend: backend(args.backend),
        slice: args.slice.unwrap_or(LONGEST_SLICE),
        threads: false,
        store_code: true,
        user_only: false,
        command_line: std::env::args().collect(),
        cache_dir: SymbolOptions::default_cache_dir(),
    })
}

/// An unknown name is the user's slip, found before anything starts.
fn known_event(name: &str) -> anyhow::Result<()> {
    match whither_kernel::events::parse(name) {
        Ok(_) => Ok(()),
        Err(error) => Err(Usage(error.to_string()).into()),
    }
}

fn pace(rate: Option<u32>, period: Option<u64>, budget: f64) -> Pace {
    match (rate, period) {
        (Some(hertz), _) => Pace::Hertz(hertz),
        (_, Some(period)) => Pace::Period(period),
        _ => Pace::Budget(budget),
    }
}

fn stacks(choice: StackChoice) -> Stacks {
    match choice {
        StackChoice::Off => Stacks::Off,
        StackChoice::FramePointers => Stacks::FramePointers,
        StackChoice::Dwarf(bytes) => Stacks::Dwarf(bytes),
    }
}

fn edges(choice: EdgeChoice) -> Edges {
    match choice {
        EdgeChoice::Auto => Edges::Auto,
        EdgeChoice::Walk => Edges::Walks,
        EdgeChoice::Mem => Edges::Memory,
        EdgeChoice::Regs => Edges::Registers,
        EdgeChoice::Records => Edges::Records,
        EdgeChoice::Off => Edges::Off,
    }
}

fn backend(choice: BackendChoice) -> Backend {
    match choice {
        BackendChoice::Auto => Backend::Auto,
        BackendChoice::Bpf => Backend::Bpf,
        BackendChoice::Ring => Backend::Ring,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_on_stacks_is_by_what_cut_them_short() {
        let advice = |stacks_truncated, stacks_beyond| {
            let losses = Losses { stacks_truncated, stacks_beyond, ..Losses::default() };
            deeper(Stacks::Dwarf(16 << 10), &losses, 1000)
        };
        assert!(advice(500, 450).is_some_and(|a| a.contains("63KiB")));
        assert!(advice(500, 20).is_some_and(|a| a.contains("without unwind rules")));
        assert_eq!(advice(100, 50), None);
        assert_eq!(deeper(Stacks::FramePointers, &Losses { stacks_truncated: 900, ..Losses::default() }, 1000), None);
    }
}
