//! A session from flags to its table: what to measure, summaries while it runs, the answer at its end.

use super::names::FileNames;
use super::show::{self, Counted, Shape};
use super::told::{self, Teller, span};
use super::{keep, live, replay, runtime};
use crate::cli::{CallsBackendChoice, Common, Follow, MeasureArgs, WhatArgs};
use crate::failure::{self, Ending, Usage};
use crate::units::show_count;
use crate::{answer, signals};
use anyhow::Context;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;
use whither_calls::{Group, Sort, Sortable, difference};
use whither_probe::select::parse;
use whither_probe::{CostClass, Options, PointAction, Select};
use whither_report::json;
use whither_session::StopFlag;
use whither_session::calls::{
    self, CallsBackend, CallsEvent, CallsOptions, CallsOutcome, CallsTarget, Metrics, Prospect, excluding, including,
};
use whither_store::calls::{CallSnapshot, PatchKind};

/// Metrics when the user names none.
const METRICS: [&str; 3] = ["count", "wall", "cpu"];
/// Summaries on a terminal.
const SUMMARY: Duration = Duration::from_secs(5);

/// `whither calls` without a verb.
pub(super) fn measure(mut args: MeasureArgs, common: Common) -> anyhow::Result<Ending> {
    if args.live {
        return live::top(args, common);
    }
    let steps = replay::begin_like(&mut args, common)?;
    let options = CallsOptions { steps, ..options(&args, summaries(&args, common))? };
    if args.dry_run {
        return dry_run(&options, &args);
    }
    keep::may_write(&args)?;
    let stop = signals::stop_flag()?;
    let mut session = Session::new(&args, &options, common);
    let outcome = calls::run(&options, calls::asks(), &stop, &mut |event| session.on(event))?;
    if args.whom.interval.is_some() {
        session.last(&outcome);
    }
    finish(&args, &options, common, &outcome, &stop)
}

/// How often a summary is told, if at all.
fn summaries(args: &MeasureArgs, common: Common) -> Option<Duration> {
    let unasked = !common.quiet && !args.form.json && !args.live && std::io::stderr().is_terminal();
    args.whom.interval.or(unasked.then_some(SUMMARY))
}

/// Flags as the session's options.
///
/// # Errors
/// Slips of usage: nobody to measure, no function, patterns and metrics that mean nothing.
pub(super) fn options(args: &MeasureArgs, interval: Option<Duration>) -> anyhow::Result<CallsOptions> {
    let target = match (args.whom.pid, args.command.is_empty()) {
        (Some(pid), _) => CallsTarget::Process(pid),
        (None, false) => CallsTarget::Command(args.command.clone()),
        (None, true) => {
            return Err(Usage("whom to measure? name a process with -p PID, or a command after --".into()).into());
        }
    };
    let patterns = patterns(&args.what)?;
    let include = patterns.iter().map(|p| including(p));
    let orders = include.chain(args.what.exclude.iter().map(|p| excluding(p))).collect::<Result<_, _>>()?;
    let Metrics { actions, .. } = calls::metrics(&words(&args.what), args.what.entry_only)?;
    may_sort(&args.shape.sort, &actions)?;
    Ok(CallsOptions {
        target,
        orders,
        patterns,
        actions,
        backend: backend(&args.what),
        engine: Options {
            depth: args.what.depth,
            recursion: args.what.recursion,
            follow: args.whom.follow == Follow::All,
            executables: args.whom.exe.clone(),
            threads: matches!(args.shape.group, Group::Thread | Group::Process),
            ..Options::default()
        },
        duration: args.whom.duration,
        interval,
        steps: Vec::new(),
        runtime: runtime(),
    })
}

/// Rows can be ordered by what is measured only; this is found out before it is.
fn may_sort(sort: &Sort, actions: &[PointAction]) -> Result<(), Usage> {
    let value = |action: &PointAction| if let PointAction::Sum(v) = action { Some(v.name.clone()) } else { None };
    let there = Sortable {
        values: actions.iter().filter_map(value).collect(),
        cpu: actions.contains(&PointAction::Cpu),
        usage: actions.contains(&PointAction::Usage),
    };
    sort.check_among(&there).map_err(|e| Usage(format!("--sort: {e}")))
}

pub(super) fn words(what: &WhatArgs) -> Vec<String> {
    match (what.metrics.is_empty(), what.entry_only) {
        (true, true) => vec!["count".into()],
        (true, false) => METRICS.map(Into::into).to_vec(),
        (false, _) => what.metrics.clone(),
    }
}

fn backend(what: &WhatArgs) -> CallsBackend {
    match what.backend {
        _ if what.safe => CallsBackend::Uprobe,
        CallsBackendChoice::Auto => CallsBackend::Auto,
        CallsBackendChoice::Patch => CallsBackend::Patch,
        CallsBackendChoice::Uprobe => CallsBackend::Uprobe,
    }
}

fn patterns(what: &WhatArgs) -> anyhow::Result<Vec<String>> {
    let mut patterns = what.function.clone();
    for file in &what.functions_from {
        patterns.extend(patterns_of(file)?);
    }
    if patterns.is_empty() {
        return Err(Usage(
            "which functions? name them with -f PATTERN, for example -f 'parse_.*' (a regular expression over the whole \
             name); --dry-run lists what matches"
                .into(),
        )
        .into());
    }
    Ok(patterns)
}

fn patterns_of(file: &Path) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    Ok(lines.map(Into::into).collect())
}

/// Tells a session while it runs.
struct Session<'a> {
    args: &'a MeasureArgs,
    teller: Teller,
    shape: Shape,
    names: FileNames,
    before: Option<CallSnapshot>,
}

impl<'a> Session<'a> {
    fn new(args: &'a MeasureArgs, options: &CallsOptions, common: Common) -> Self {
        let launched = matches!(options.target, CallsTarget::Command(_));
        Self {
            args,
            teller: Teller::new(common, launched),
            shape: shape(args).brief(),
            names: FileNames::new(&args.names, args.whom.pid),
            before: None,
        }
    }

    fn on(&mut self, event: CallsEvent) {
        self.teller.on(&event);
        if let CallsEvent::Interval(snapshot) = event {
            self.summary(*snapshot);
        }
    }

    /// What has happened since the last interval that was over: they all add up to what there was.
    fn last(&mut self, outcome: &CallsOutcome) {
        let Some(epoch) = outcome.epochs.last().filter(|_| self.before.is_some()) else { return };
        self.summary(epoch.snapshot.clone());
    }

    /// What happened since the last one.
    fn summary(&mut self, now: CallSnapshot) {
        let interval = self.before.as_ref().map_or_else(|| now.clone(), |before| difference(&now, before));
        self.before = Some(now);
        let names = self.names.names();
        let counted = Counted::new(&interval, "", &names, &self.args.shape);
        if self.args.form.json {
            // Whoever reads the lines may have seen enough; the session goes on.
            let _ = counted.json(&self.args.shape);
            return;
        }
        match counted.text(&self.shape, &answer::layout()) {
            Ok(text) => self.teller.text(&text),
            Err(e) => self.teller.line(&e.to_string()),
        }
    }
}

pub(super) fn shape(args: &MeasureArgs) -> Shape {
    Shape::new(&args.shape, &args.what.metrics)
}

/// The answer of a session: recording, table, sentences, exit code.
pub(super) fn finish(
    args: &MeasureArgs,
    options: &CallsOptions,
    common: Common,
    outcome: &CallsOutcome,
    stop: &StopFlag,
) -> anyhow::Result<Ending> {
    let asked = stop.requests();
    let teller = Teller::new(common, args.whom.pid.is_none());
    let files = FileNames::new(&args.names, args.whom.pid);
    let names = files.names();
    if let Some(near) = &outcome.unmatched {
        Teller::failure(&nothing(&args.what, near));
    }
    if let Some(detached) = &outcome.detached {
        teller.left(detached, args.whom.pid);
    }
    if let Some(why) = &outcome.stayed {
        teller.stayed(why, args.whom.pid);
    }
    tell_of_work(outcome, &teller);
    // What was measured is shown even if it cannot be kept.
    let kept = keep::save(args, &options.patterns, outcome, &names, &teller);
    signals::end_at_once(stop, asked);
    let several = outcome.epochs.len() > 1;
    let title = |name| if several { name } else { "" };
    let counted: Vec<Counted<'_>> =
        outcome.epochs.iter().map(|e| Counted::new(&e.snapshot, title(e.name.as_str()), &names, &args.shape)).collect();
    let printed = show_all(args, &counted, outcome.unmatched.is_none(), &teller);
    files.problems().iter().for_each(|problem| teller.line(problem));
    if let Err(why) = failure::or_seen_enough(printed) {
        // A command's own failure comes first, as ever.
        let Some(status) = outcome.target_status.filter(|status| *status != 0) else { return Err(why) };
        failure::report(&why);
        return Ok(Ending::Target(status));
    }
    let complete = counted.iter().all(|one| told::is_complete(&one.profile));
    kept.map(|()| ending(args, outcome, complete))
}

/// Every epoch in the form asked for; what cannot be written as a page is shown as text first.
fn show_all(args: &MeasureArgs, all: &[Counted<'_>], matched: bool, teller: &Teller) -> anyhow::Result<()> {
    let mut texts = Vec::new();
    let mut pages = Ok(());
    for counted in all {
        if args.form.json {
            counted.json(&args.shape)?;
            teller.missing(&counted.profile);
            continue;
        }
        let written = args.form.html.as_deref().map(|file| counted.page(file, &shape(args), None));
        let shown = matches!(written, Some(Ok(())));
        pages = pages.and(written.unwrap_or(Ok(())));
        if !shown && args.shape.folded {
            counted.folded(&shape(args))?;
        } else if !shown {
            texts.push(counted.text(&shape(args), &answer::layout())?);
        }
        teller.missing(&counted.profile);
    }
    if !texts.is_empty() && matched {
        show::print(&texts)?;
    }
    pages
}

/// So many paths take seconds to be named and put in order.
const MANY_PATHS: usize = 20_000;

fn tell_of_work(outcome: &CallsOutcome, teller: &Teller) {
    let paths: usize = outcome.epochs.iter().map(|epoch| epoch.snapshot.paths.len()).sum();
    if paths >= MANY_PATHS {
        teller
            .line(&format!("measuring has ended; working out the answer from {} call paths", show_count(paths as u64)));
    }
}

/// The target's own failure is told first, then that probes or the agent stay in it, then that nothing matched, then
/// that data are missing.
fn ending(args: &MeasureArgs, outcome: &CallsOutcome, complete: bool) -> Ending {
    match outcome.target_status {
        Some(status) if status != 0 => Ending::Target(status),
        _ if outcome.stayed.is_some() => Ending::Incomplete,
        _ if outcome.detached.as_ref().is_some_and(|d| !d.left.is_empty()) => Ending::Incomplete,
        _ if outcome.unmatched.is_some() => Ending::No,
        _ if args.strict && !complete => Ending::Incomplete,
        status => status.map_or(Ending::Done, Ending::Target),
    }
}

fn nothing(what: &WhatArgs, near: &[String]) -> String {
    let patterns = patterns(what).unwrap_or_default();
    // Of addresses and lines the notes say why.
    let of_names = patterns.iter().any(|p| matches!(parse(p), Ok(Select::Name { .. } | Select::CalledFrom { .. })));
    let patterns = patterns.join(" or ");
    let near = if !of_names {
        String::new()
    } else if near.is_empty() {
        "; functions of stripped programs are called FILE+0xADDRESS: `--dry-run -f '.*'` lists them".to_owned()
    } else {
        format!("; there were {}", near.join(", "))
    };
    format!("no function of any program measured matched {patterns}{near}")
}

fn dry_run(options: &CallsOptions, args: &MeasureArgs) -> anyhow::Result<Ending> {
    let found = calls::dry_run(options)?;
    if args.form.json {
        for prospect in &found {
            answer::write(json::calls(&line(prospect)).as_bytes())?;
        }
        return Ok(Ending::Done);
    }
    let mut text = String::from("address             size  how         cost    function\n");
    for p in &found {
        let how = p.patch.as_ref().map_or("refused", |kind| patch_name(*kind));
        let cost = if p.patch.is_ok() { cost_name(p.cost) } else { "-" };
        text.push_str(&format!("{:#018x}  {:>5}  {how:<10}  {cost:<6}  {}", p.address, p.size, p.names.join(" = ")));
        text.push_str(&format!("  ({}+{:#x})", file_name(&p.module), p.offset));
        if let Err(why) = &p.patch {
            text.push_str(&format!(": {why}"));
        }
        if let Some(why) = &p.entry_only {
            text.push_str(&format!("; only entries: {why}"));
        }
        text.push('\n');
    }
    let refused = found.iter().filter(|p| p.patch.is_err()).count();
    text.push_str(&format!(
        "{} functions match, {refused} of them cannot be probed; nothing was changed\n",
        found.len()
    ));
    if let CallsTarget::Command(words) = &options.target {
        let name = words.first().map_or("", String::as_str);
        text.push_str(&format!("{name} was started for this and ended before its main\n"));
    }
    answer::print(&text)?;
    Ok(Ending::Done)
}

fn line(p: &Prospect) -> serde_json::Value {
    serde_json::json!({
        "schema": whither_calls::SCHEMA,
        "names": p.names,
        "module": p.module,
        "offset": p.offset,
        "address": p.address,
        "size": p.size,
        "patch": p.patch.as_ref().ok(),
        "refused": p.patch.as_ref().err(),
        "cost_class": cost_name(p.cost),
        "entry_only": p.entry_only,
    })
}

fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|n| n.to_str()).unwrap_or(path)
}

pub(super) fn patch_name(kind: PatchKind) -> &'static str {
    match kind {
        PatchKind::Jump => "jmp5",
        PatchKind::PaddedJump => "pad",
        PatchKind::ShortJump => "short jump",
        PatchKind::Trap => "int3",
        PatchKind::Uprobe => "uprobe",
    }
}

fn cost_name(cost: CostClass) -> &'static str {
    match cost {
        CostClass::Nanoseconds => "ns",
        CostClass::Microsecond => "1 us",
        CostClass::TenMicroseconds => "10 us",
    }
}

/// A pause in a reply.
pub(super) fn pause(ns: u64) -> String {
    span(Duration::from_nanos(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What rows are ordered by is told by one word, so that no value may have one that means something else.
    #[test]
    fn no_value_is_called_as_what_rows_are_ordered_by() {
        for (word, _) in Sort::WORDS {
            let error = calls::metrics(&[format!("{word}=arg1")], false).expect_err(word).to_string();
            assert!(error.contains("is the name of a metric or a column"), "{word}: {error}");
        }
        assert!(calls::metrics(&["bytes=arg1".into()], false).is_ok());
    }
}
