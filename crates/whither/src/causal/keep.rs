//! Recordings of causal profiles: written at the end of a session, answered from again, and made of profiles
//! of Coz.

use super::show;
use crate::cli::{CausalCombine, CausalImport, CausalReport, Common};
use crate::failure::{Ending, Usage};
use crate::room;
use anyhow::Context;
use std::path::Path;
use std::time::{Duration, Instant};
use whither_causal::{AnalyseOptions, coz};
use whither_session::causal::CausalEvent;
use whither_store::causal::CausalRun;
use whither_store::{OnExisting, StoreError, causal_recording};

/// Refuses before anything is measured what could not be stored afterwards.
///
/// # Errors
/// [`StoreError::Exists`], or the system's.
pub(super) fn may_write(path: Option<&Path>, overwrite: bool) -> anyhow::Result<()> {
    match path {
        Some(path) if path.exists() && !overwrite => Err(StoreError::Exists { path: path.to_owned() }.into()),
        path => room::for_recording(path),
    }
}

/// Writes a recording, if one is wanted.
///
/// # Errors
/// It cannot be written.
pub(super) fn save(path: Option<&Path>, overwrite: bool, run: &CausalRun, common: Common) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let existing = if overwrite { OnExisting::Replace } else { OnExisting::Refuse };
    causal_recording::save(path, run, existing)?;
    let shown = path.display();
    show::tell(common, &format!("{shown}: {} windows; next: whither causal report {shown}", run.windows.len()));
    Ok(())
}

/// A first part of the recording is stored after so long, so that a session that is killed leaves something.
const FIRST: Duration = Duration::from_secs(5);
/// Then everything so far, this often: storing takes CPU time from the program.
const AGAIN: Duration = Duration::from_secs(60);

/// Stores what has been measured while a session runs.
pub(super) struct Keeper<'a> {
    path: Option<&'a Path>,
    next: Instant,
    begun: bool,
}

impl<'a> Keeper<'a> {
    pub(super) fn new(path: Option<&'a Path>) -> Self {
        Self { path, next: Instant::now() + FIRST, begun: false }
    }

    /// Whether the recording that is there is this session's.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// What cannot be stored now is told at the end, when it is stored again.
    pub(super) fn on(&mut self, event: &CausalEvent) {
        let (CausalEvent::Look(run), Some(path)) = (event, self.path) else { return };
        if run.windows.is_empty() || Instant::now() < self.next {
            return;
        }
        self.begun |= causal_recording::save(path, run, OnExisting::Replace).is_ok();
        self.next = Instant::now() + AGAIN;
    }
}

/// Reads a recording.
///
/// # Errors
/// It is none, or broken.
pub(super) fn load(path: &Path) -> anyhow::Result<CausalRun> {
    if path.is_dir() && !causal_recording::is_recording(path) {
        let shown = path.display();
        let other = [("epoch.json", "prof"), ("db.toml", "prof"), ("calls.json", "calls report")];
        let hint = other.iter().find(|(file, _)| path.join(file).exists());
        let text = hint.map_or_else(
            || format!("{shown} is no recording of `whither causal -o`"),
            |(_, verb)| format!("{shown} is a recording of another kind; `whither {verb} {shown}` reads it"),
        );
        return Err(Usage(text).into());
    }
    causal_recording::load(path).with_context(|| format!("cannot open {}", path.display()))
}

/// `whither causal report`.
pub(super) fn report(args: &CausalReport, common: Common) -> anyhow::Result<Ending> {
    let run = load(&args.recording)?;
    let options = AnalyseOptions {
        keep_disturbed: args.keep_disturbed,
        ..show::analyse_options(&args.answer, args.combine, &args.target)
    };
    run.notes.iter().for_each(|note| show::tell(common, note));
    let answer = show::show(&run, &options, &args.answer, &args.form, common)?;
    if !args.target.is_empty() && answer.targets.is_empty() {
        let names: Vec<&str> = run.targets.iter().take(8).map(|t| t.name.as_str()).collect();
        let text = format!("no target is called {}; there are {}", args.target.join(" or "), names.join(", "));
        return Err(Usage(text).into());
    }
    Ok(show::Found::of(&answer).ending())
}

/// `whither causal import`.
pub(super) fn import(args: &CausalImport, common: Common) -> anyhow::Result<Ending> {
    may_write(args.output.as_deref(), args.overwrite)?;
    let shown = args.file.display();
    let bytes = std::fs::read(&args.file).with_context(|| format!("cannot read {shown}"))?;
    let run = coz::import(&String::from_utf8_lossy(&bytes)).map_err(|e| Usage(format!("{shown}: {e}")))?;
    save(args.output.as_deref(), args.overwrite, &run, common)?;
    let options = show::analyse_options(&args.answer, CausalCombine::Ours, &[]);
    let answer = show::show(&run, &options, &args.answer, &args.form, common)?;
    Ok(show::Found::of(&answer).ending())
}
