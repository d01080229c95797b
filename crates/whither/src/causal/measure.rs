//! A session from flags to its answer.

use super::bridge::Adapter;
use super::{keep, like, show};
use crate::cli::{
    CausalBackEndChoice, CausalCombine, CausalExecutorChoice, CausalExperiments, CausalFollow, CausalLoad,
    CausalMeasure, CausalPoints, CausalPolicyChoice, CausalTargets, CausalUnit, CausalWait, CausalWhomArgs, Common,
    NameArgs, YesNo,
};
use crate::failure::{Ending, Usage};
use crate::source::symbol_options;
use crate::{answer, room, signals};
use std::io::IsTerminal;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use whither_causal::{AnalyseOptions, Policy, PolicyKind, PolicyOptions, analyse};
use whither_report::text::{self, CausalView};
use whither_sample::causal::WaitClass;
use whither_session::causal::{
    CausalBackEnd, CausalEvent, CausalOptions, CausalOutcome, CausalScope, CausalWhom, ExecutorChoice, Runs,
    UnitChoice, pair, point, run, target,
};
use whither_store::causal::{Executor, LoadKind};

/// Between two summaries on a terminal.
const SUMMARY: Duration = Duration::from_secs(5);

/// `whither causal` without a verb, and `causal top`.
pub(super) fn measure(args: &CausalMeasure, live: bool, common: Common) -> anyhow::Result<Ending> {
    let experiments = policy_options(&args.experiments, args.answer.assume, !args.targets.target.is_empty());
    let options = options(
        (&args.whom, &args.command),
        &args.points,
        &args.targets,
        &args.names,
        How::of(&args.experiments, experiments.seed),
    )?;
    keep::may_write(args.output.as_deref(), args.overwrite)?;
    room::for_page(args.form.html.as_deref())?;
    let stop = signals::stop_flag()?;
    let ranking = show::analyse_options(&args.answer, CausalCombine::Ours, &[]);
    let mut teller = Teller::new(live, ranking.clone(), common, args.form.json);
    let mut policy = Adapter(Policy::new(experiments));
    let mut keeper = keep::Keeper::new(args.output.as_deref());
    let mut outcome = run(&options, &mut policy, &stop, &mut |event| {
        keeper.on(&event);
        teller.on(event);
    })?;
    outcome.run.meta.asked = Some(like::asked(&args.targets));
    let overwrite = args.overwrite || keeper.has_begun();
    // What was measured is shown even if it cannot be kept.
    let kept = keep::save(args.output.as_deref(), overwrite, &outcome.run, common);
    let ending = finish(&outcome, || {
        let found = show::show(&outcome.run, &ranking, &args.answer, &args.form, common)?;
        Ok(show::Found::of(&found))
    });
    kept.and(ending)
}

/// The answer and the exit code of a session; `shown` prints and tells what was found.
///
/// # Errors
/// There is nothing to print it with, or it cannot be printed.
pub(super) fn finish(
    outcome: &CausalOutcome,
    shown: impl FnOnce() -> anyhow::Result<show::Found>,
) -> anyhow::Result<Ending> {
    let found = match &outcome.nothing {
        Some(why) => {
            crate::tell::tell!("whither: no answer: {why}");
            show::Found::Nothing
        }
        None => shown()?,
    };
    Ok(match (outcome.target_status, found) {
        (Some(status), _) if status != 0 => Ending::Target(status),
        (_, show::Found::Nothing) => Ending::No,
        (Some(status), _) => Ending::Target(status),
        (None, show::Found::Worth) => Ending::Done,
        (None, show::Found::NotWorth) => Ending::No,
    })
}

/// How delays are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    seed: u64,
    cap: Duration,
    back_end: CausalBackEnd,
    executor: ExecutorChoice,
}

impl How {
    pub(super) fn of(args: &CausalExperiments, seed: u64) -> Self {
        let executor = match args.executor {
            CausalExecutorChoice::Auto => ExecutorChoice::Auto,
            CausalExecutorChoice::Spin => ExecutorChoice::Spin,
            CausalExecutorChoice::Sleep => ExecutorChoice::Sleep,
        };
        let back_end = match args.backend {
            CausalBackEndChoice::Auto => CausalBackEnd::Auto,
            CausalBackEndChoice::Bpf => CausalBackEnd::Bpf,
            CausalBackEndChoice::Agent => CausalBackEnd::Agent,
        };
        Self { seed, cap: args.max_irq_off, back_end, executor }
    }

    /// As a recording was made that is to be extended: by the same back end, and what was slept is not spun by itself.
    ///
    /// # Errors
    /// [`Usage`] when the user wants delays that do not go together with those of the recording.
    pub(super) fn like(self, recorded: Executor) -> Result<Self, Usage> {
        let back_end = match recorded {
            Executor::Agent => CausalBackEnd::Agent,
            Executor::Spin | Executor::Sleep => CausalBackEnd::Bpf,
        };
        if self.back_end != CausalBackEnd::Auto && self.back_end != back_end {
            let text = "the recording was made by another back end, and windows of both do not go together (--backend)";
            return Err(Usage(text.into()));
        }
        self.slept_or_spun(recorded).map(|how| Self { back_end, ..how })
    }

    fn slept_or_spun(self, recorded: Executor) -> Result<Self, Usage> {
        match (recorded, self.executor) {
            (Executor::Sleep, ExecutorChoice::Auto) => Ok(Self { executor: ExecutorChoice::Sleep, ..self }),
            (Executor::Sleep, ExecutorChoice::Spin) => {
                Err(Usage("the delays of the recording were slept: spun ones do not go together with them".into()))
            }
            _ => Ok(self),
        }
    }
}

/// Flags as options of the session.
///
/// # Errors
/// Slips of usage: nobody to measure, points and patterns that mean nothing.
pub(super) fn options(
    (whom, command): (&CausalWhomArgs, &[String]),
    points: &CausalPoints,
    targets: &CausalTargets,
    names: &NameArgs,
    how: How,
) -> anyhow::Result<CausalOptions> {
    let told = match (whom.pid, command.is_empty()) {
        (Some(pid), _) => CausalWhom::Process(pid),
        (None, false) => CausalWhom::Command(command.to_vec()),
        (None, true) => {
            return Err(Usage("whom to measure? name a process with -p PID, or a command after --".into()).into());
        }
    };
    if points.end_to_end && whom.pid.is_some() {
        return Err(
            Usage("--end-to-end compares whole runs of a command; a running process has only one".into()).into()
        );
    }
    let unnamed = points.progress.is_empty() && points.latency.is_empty() && !points.end_to_end;
    Ok(CausalOptions {
        executable: command.first().and_then(|c| executable_of(c)),
        whom: told,
        points: points.progress.iter().map(|p| point(p)).collect::<Result<_, _>>()?,
        pairs: points.latency.iter().map(|p| pair(p)).collect::<Result<_, _>>()?,
        marks: unnamed,
        unit: unit(targets.unit),
        targets: targets.target.iter().map(|t| target(t)).collect::<Result<_, _>>()?,
        scope: CausalScope::new(&targets.source, targets.binary.as_deref(), &targets.exclude)?,
        waits: waits(&targets.off_cpu),
        kernel_time: targets.kernel_time == YesNo::Yes,
        follow: whom.follow == CausalFollow::Fork,
        duration: whom.duration,
        runs: whom.runs.map_or(Runs::Auto, Runs::Times),
        end_to_end: points.end_to_end,
        period: Duration::from_millis(1),
        cap: how.cap,
        seed: how.seed,
        back_end: how.back_end,
        executor: how.executor,
        load: match points.load {
            CausalLoad::Auto => None,
            CausalLoad::Closed => Some(LoadKind::Closed),
            CausalLoad::Open => Some(LoadKind::Open),
        },
        symbols: symbol_options(names),
    })
}

fn unit(choice: CausalUnit) -> UnitChoice {
    match choice {
        CausalUnit::Line => UnitChoice::Line,
        CausalUnit::Function => UnitChoice::Function,
        CausalUnit::Inclusive => UnitChoice::Inclusive,
        CausalUnit::Path => UnitChoice::Path,
        CausalUnit::Auto => UnitChoice::Auto,
    }
}

fn waits(asked: &[CausalWait]) -> Vec<WaitClass> {
    if asked.contains(&CausalWait::All) {
        return vec![WaitClass::Sleep, WaitClass::Io, WaitClass::Net];
    }
    let one = |w: &CausalWait| match w {
        CausalWait::Sleep => WaitClass::Sleep,
        CausalWait::Io => WaitClass::Io,
        CausalWait::Net | CausalWait::All => WaitClass::Net,
    };
    asked.iter().map(one).collect()
}

/// The file that a command's first word stands for, found as a shell would.
pub(super) fn executable_of(command: &str) -> Option<String> {
    if command.contains('/') {
        return Some(command.to_owned());
    }
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').map(|dir| format!("{dir}/{command}")).find(|p| std::path::Path::new(p).is_file())
}

/// Flags as options of the policy.
pub(super) fn policy_options(args: &CausalExperiments, assume: u8, named: bool) -> PolicyOptions {
    let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
    let defaults = PolicyOptions::default();
    let window = nanos(args.window);
    PolicyOptions {
        seed: args.seed.unwrap_or_else(clock),
        policy: match args.policy {
            CausalPolicyChoice::Adaptive => PolicyKind::Adaptive,
            CausalPolicyChoice::Paper => PolicyKind::Paper,
        },
        speedups: args.speedups.clone(),
        fixed_percent: args.fixed_speedup,
        min_visits: args.min_visits,
        min_window_ns: window,
        max_window_ns: defaults.max_window_ns.max(window),
        cool_off_ns: nanos(args.cool_off),
        duty_percent: (args.duty * 100.0).round().clamp(1.0, 100.0) as u8,
        until_points: args.until,
        // Nothing has to be found out about what else there is.
        warm_ns: if named { defaults.warm_ns / 2 } else { defaults.warm_ns },
        assume,
        ..defaults
    }
}

/// Speaks while a session runs.
pub(super) struct Teller {
    live: bool,
    ranking: AnalyseOptions,
    common: Common,
    summaries: bool,
    launched: Instant,
    told: Instant,
}

impl Teller {
    pub(super) fn new(live: bool, ranking: AnalyseOptions, common: Common, json: bool) -> Self {
        let summaries = !common.quiet && !json && std::io::stderr().is_terminal();
        Self { live, ranking, common, summaries, launched: Instant::now(), told: Instant::now() }
    }

    pub(super) fn on(&mut self, event: CausalEvent) {
        match event {
            CausalEvent::Started { pid, points, after } => {
                let at = if points.is_empty() { String::new() } else { format!(", progress at {}", points.join(", ")) };
                let ms = after.as_secs_f64() * 1e3;
                show::tell(
                    self.common,
                    &format!(
                        "experimenting with process {pid}{at} (ready after {ms:.0} ms); Ctrl-C ends it and prints the ranking"
                    ),
                );
            }
            CausalEvent::Note(text) => show::tell(self.common, &text),
            CausalEvent::Run { number } if self.common.verbose > 0 => {
                show::tell(self.common, &format!("run {number}"));
            }
            CausalEvent::Waiting { way_out } => show::tell(
                self.common,
                &format!("measuring has ended, the command still runs: the answer comes at its end ({way_out})"),
            ),
            CausalEvent::Look(run) if self.live => {
                let found = analyse(&run, &self.ranking);
                let page = text::causal(&found, CausalView::default(), &answer::layout());
                // From the top left corner, what was there is cleared. A screen that is gone ends nothing.
                let _ = answer::print(&format!("\x1b[H\x1b[2J{page}"));
            }
            CausalEvent::Look(run) if self.summaries && self.told.elapsed() >= SUMMARY => {
                self.told = Instant::now();
                let kept = run.windows.iter().filter(|w| w.dropped.is_none()).count();
                let seconds = self.launched.elapsed().as_secs();
                let dropped = run.windows.len() - kept;
                show::tell(
                    self.common,
                    &format!("{seconds} s: {kept} windows, {dropped} dropped, {} targets", run.targets.len()),
                );
            }
            CausalEvent::Look(_) | CausalEvent::Window(_) | CausalEvent::Run { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_go_together_with_a_recording_is_refused_before_the_run() {
        let how = |back_end, executor| How { seed: 1, cap: Duration::from_micros(500), back_end, executor };
        let auto = how(CausalBackEnd::Auto, ExecutorChoice::Auto);
        let like = |recorded| auto.like(recorded).expect("goes together");
        assert_eq!(like(Executor::Agent).back_end, CausalBackEnd::Agent);
        assert_eq!(like(Executor::Spin).back_end, CausalBackEnd::Bpf);
        assert_eq!(like(Executor::Sleep).executor, ExecutorChoice::Sleep);
        assert!(how(CausalBackEnd::Bpf, ExecutorChoice::Auto).like(Executor::Agent).is_err());
        assert!(how(CausalBackEnd::Agent, ExecutorChoice::Auto).like(Executor::Spin).is_err());
        assert!(how(CausalBackEnd::Auto, ExecutorChoice::Spin).like(Executor::Sleep).is_err());
    }
}
