//! Recordings of call paths: written at the end of a session, printed or compared by `calls report`.

use super::measure;
use super::names::{Both, FileNames};
use super::show::{self, Counted, Shape};
use super::told::Teller;
use crate::answer;
use crate::cli::{CallsReportArgs, Common, MeasureArgs, ShapeArgs};
use crate::failure::{Ending, Usage};
use crate::room;
use crate::units::show_count;
use anyhow::Context;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use whither_calls::{CallProfile, Names, StoredNames, compare, names_of};
use whither_report::{json, text};
use whither_session::calls::CallsOutcome;
use whither_store::call_steps::{CallChange, CallScript, CallStep};
use whither_store::calls::{CallEpoch, CallRecording, CallSnapshot};
use whither_store::{OnExisting, StoreError, calls_recording};

/// Refuses before anything is measured what could not be stored afterwards.
///
/// # Errors
/// [`StoreError::Exists`], or the system's.
pub(super) fn may_write(args: &MeasureArgs) -> anyhow::Result<()> {
    room::for_page(args.form.html.as_deref())?;
    match &args.whom.output {
        Some(path) if path.exists() && !args.whom.overwrite => Err(StoreError::Exists { path: path.clone() }.into()),
        path => room::for_recording(path.as_deref()),
    }
}

/// Writes the recording, if one is wanted.
///
/// # Errors
/// It cannot be written.
pub(super) fn save(
    args: &MeasureArgs,
    functions: &[String],
    outcome: &CallsOutcome,
    names: &dyn Names,
    teller: &Teller,
) -> anyhow::Result<()> {
    let Some(path) = &args.whom.output else { return Ok(()) };
    let script =
        CallScript { functions: functions.to_vec(), exclude: args.what.exclude.clone(), steps: outcome.steps.clone() };
    let recording =
        CallRecording { script: Some(script), ..recording(args, outcome.start_ns, outcome.epochs.clone(), names) };
    let existing = if args.whom.overwrite { OnExisting::Replace } else { OnExisting::Refuse };
    calls_recording::save(path, &recording, existing)?;
    let paths: usize = recording.epochs.iter().map(|e| e.snapshot.paths.len()).sum();
    let shown = path.display();
    teller.line(&format!("{shown}: {} call paths; next: whither calls report {shown}", show_count(paths as u64)));
    Ok(())
}

/// Writes what a session that goes on has counted so far.
///
/// # Errors
/// It cannot be written.
pub(super) fn write_now(path: &Path, args: &MeasureArgs, now: CallSnapshot, names: &dyn Names) -> anyhow::Result<()> {
    let wall = Duration::from_nanos(now.whole.wall_ns);
    let start = SystemTime::now().checked_sub(wall).and_then(|begun| begun.duration_since(UNIX_EPOCH).ok());
    let start_ns = start.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
    let epoch = CallEpoch { name: "1".into(), snapshot: now };
    calls_recording::save(path, &recording(args, start_ns, vec![epoch], names), OnExisting::Refuse)?;
    Ok(())
}

/// Of some epochs, without the steps that led there.
fn recording(args: &MeasureArgs, start_ns: u64, epochs: Vec<CallEpoch>, names: &dyn Names) -> CallRecording {
    CallRecording {
        command: std::env::args().collect::<Vec<_>>().join(" "),
        host: host(),
        tool: env!("CARGO_PKG_VERSION").into(),
        start_ns,
        metrics: if args.what.entry_only { measure::words(&args.what) } else { args.what.metrics.clone() },
        script: None,
        names: names_of(epochs.iter().map(|e| &e.snapshot), names),
        epochs,
    }
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map(|h| h.trim().to_owned()).unwrap_or_default()
}

/// `whither calls report`.
pub(super) fn report(args: &CallsReportArgs, common: Common) -> anyhow::Result<Ending> {
    match args.recordings.as_slice() {
        [one] => tables(args, one, common),
        [before, after] => comparison(args, before, after),
        _ => Err(Usage("name one recording, or two to compare".into()).into()),
    }
}

/// Reads a recording.
///
/// # Errors
/// It is none, it is damaged or of another version, or the system's.
pub(super) fn open(path: &Path) -> anyhow::Result<CallRecording> {
    if path.exists() && !calls_recording::is_recording(path) {
        let path = path.display();
        let samples = format!("{path} holds samples, not call paths; `whither prof {path}` reads them");
        let neither = format!("{path} is no recording of `whither calls -o`");
        let is_other = ["epoch.json", "db.toml"].iter().any(|file| Path::new(&format!("{path}/{file}")).exists());
        return Err(Usage(if is_other { samples } else { neither }).into());
    }
    calls_recording::load(path).with_context(|| format!("cannot open {}", path.display()))
}

/// A recording with names for it.
struct Opened {
    recording: CallRecording,
    stored: StoredNames,
    files: FileNames,
}

impl Opened {
    fn open(args: &CallsReportArgs, path: &Path) -> anyhow::Result<Self> {
        let recording = open(path)?;
        let stored = StoredNames::of(&recording);
        Ok(Self { recording, stored, files: FileNames::new(&args.names, None) })
    }

    fn counted<'a>(&self, epoch: &'a CallEpoch, title: &str, shape: &ShapeArgs) -> Counted<'a> {
        let files = self.files.names();
        Counted::new(&epoch.snapshot, title, &Both(&self.stored, &files), shape)
    }

    /// Each with the steps that were taken in it: the last of them ended it.
    fn epochs(&self, wanted: Option<&str>) -> anyhow::Result<Vec<(&CallEpoch, &[CallStep])>> {
        let all = &self.recording.epochs;
        let steps = self.recording.script.as_ref().map_or(&[][..], |script| &script.steps);
        let mut taken = steps.split_inclusive(|step| matches!(step.change, CallChange::Reset { .. }));
        let each = all.iter().map(|epoch| (epoch, taken.next().unwrap_or_default()));
        let found: Vec<_> = each.filter(|(epoch, _)| wanted.is_none_or(|name| epoch.name == name)).collect();
        if let (Some(wanted), true) = (wanted, found.is_empty()) {
            let names: Vec<&str> = all.iter().map(|e| e.name.as_str()).collect();
            return Err(Usage(format!("there is no epoch `{wanted}`; there are {}", names.join(", "))).into());
        }
        Ok(found)
    }
}

fn tables(args: &CallsReportArgs, path: &Path, common: Common) -> anyhow::Result<Ending> {
    let opened = Opened::open(args, path)?;
    let epochs = opened.epochs(args.epoch.as_deref())?;
    let shape = Shape::new(&args.shape, &opened.recording.metrics);
    let teller = Teller::new(common, false);
    let mut texts = Vec::new();
    for (epoch, steps) in &epochs {
        let title = if epochs.len() > 1 || args.epoch.is_some() { epoch.name.as_str() } else { "" };
        let mut counted = opened.counted(epoch, title, &args.shape);
        counted.profile.steps = steps.to_vec();
        if args.form.json {
            counted.json(&args.shape)?;
        } else if let Some(file) = &args.form.html {
            counted.page(file, &shape, None)?;
        } else if args.shape.folded {
            counted.folded(&shape)?;
        } else {
            texts.push(counted.text(&shape, &answer::layout())?);
        }
        teller.everything_missing(&counted.profile);
    }
    if !texts.is_empty() {
        let steps: Vec<&CallStep> = epochs.iter().flat_map(|(_, steps)| *steps).collect();
        texts.extend(text::call_steps(&steps, &path.display().to_string()));
        show::print(&texts)?;
    }
    Ok(Ending::Done)
}

fn comparison(args: &CallsReportArgs, before: &Path, after: &Path) -> anyhow::Result<Ending> {
    let (before, after) = (Opened::open(args, before)?, Opened::open(args, after)?);
    let last = |opened: &Opened| -> anyhow::Result<CallProfile> {
        let epochs = opened.epochs(args.epoch.as_deref())?;
        let (epoch, _) = epochs.last().ok_or_else(|| Usage("the recording holds no epoch".into()))?;
        Ok(opened.counted(epoch, &epoch.name, &args.shape).whole())
    };
    let difference = compare(&last(&before)?, &last(&after)?);
    if args.form.json {
        answer::write(json::calls(&difference).as_bytes())?;
    } else if let Some(file) = &args.form.html {
        let epochs = after.epochs(args.epoch.as_deref())?;
        let (epoch, _) = epochs.last().ok_or_else(|| Usage("the recording holds no epoch".into()))?;
        let shape = Shape::new(&args.shape, &after.recording.metrics);
        after.counted(epoch, &epoch.name, &args.shape).page(file, &shape, Some(difference))?;
    } else {
        answer::print(&text::calls_difference(&difference, args.shape.top, &answer::layout()))?;
    }
    Ok(Ending::Done)
}
