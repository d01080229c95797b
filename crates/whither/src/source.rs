//! From flags to data: which recordings, which epochs, which samples. The one place that opens a
//! store for reading; what could not be read is told on stderr and the rest is used.

use crate::cli::{Common, FilterArgs, Moment, NameArgs, SourceArgs};
use crate::failure::{Ending, Usage};
use crate::places;
use crate::tell::tell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;
use whither_cycles::{Filter, Pattern, ProcessIs, Side, ThreadIs};
use whither_store::model::Profile;
use whither_store::symbols::Symbols as _;
use whither_store::{Database, EpochInfo, Loaded, Selection, StoredSymbols, SymbolOptions, SymbolService};

/// Samples and the names for them.
pub(crate) struct Reading {
    pub(crate) profile: Profile,
    pub(crate) symbols: SymbolService,
    common: Common,
    /// Whether it matters that something is missing, and something is.
    missing: bool,
}

impl Reading {
    /// Reads what the flags name.
    ///
    /// # Errors
    /// Nothing is there, or it cannot be read at all.
    pub(crate) fn open(source: &SourceArgs, names: &NameArgs, common: Common) -> anyhow::Result<Self> {
        Self::open_with(source, &[], names, common).map(|(reading, _)| reading)
    }

    /// The same, with recordings to compare it with, each a run of its own; names are those of all.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn open_with(
        source: &SourceArgs,
        others: &[PathBuf],
        names: &NameArgs,
        common: Common,
    ) -> anyhow::Result<(Self, Vec<Profile>)> {
        let selection =
            Selection { epochs: source.db.epoch.clone(), hosts: source.db.host.clone(), ..Selection::default() };
        let places = paths(source)?;
        let mut loaded = load(&places, &selection, common)?;
        why_nothing(&loaded, &places)?;
        let others = runs(others, &mut loaded.stored, common)?;
        let symbols = SymbolService::new(symbol_options(names), loaded.stored);
        let missing = source.strict && others.iter().chain([&loaded.profile]).any(is_incomplete);
        Ok((Self { profile: loaded.profile, symbols, common, missing }, others))
    }

    /// How a verb ends that would end with `ending`.
    pub(crate) fn end(&self, ending: Ending) -> Ending {
        strictly(self.missing, ending)
    }

    /// The lens's filter for these flags.
    ///
    /// # Errors
    /// A pattern is malformed.
    pub(crate) fn filter(&self, args: &FilterArgs) -> anyhow::Result<Filter> {
        filter(args, std::slice::from_ref(&self.profile))
    }

    /// Tells what went wrong with symbols, once the answer has been made.
    pub(crate) fn tell_problems(&self) {
        tell_problems(&self.symbols, self.common);
    }

    /// Tells what an answer in another tool's format has no place for.
    pub(crate) fn tell(&self, notes: &[String]) {
        notes.iter().for_each(|n| warn(self.common, n));
    }
}

/// Two sets of runs to compare, with names from both.
pub(crate) struct Sides {
    /// The runs before, then those after.
    profiles: Vec<Profile>,
    split: usize,
    symbols: SymbolService,
    common: Common,
}

impl Sides {
    /// Reads both sides, each recording as a run of its own.
    ///
    /// # Errors
    /// As [`Reading::open`].
    pub(crate) fn open(a: &[PathBuf], b: &[PathBuf], names: &NameArgs, common: Common) -> anyhow::Result<Self> {
        if let Some(better) = compared_by_calls(a, b, whither_store::calls_recording::is_recording) {
            return Err(Usage(better).into());
        }
        let mut stored = StoredSymbols::default();
        let mut profiles = runs(&distinct(a, common), &mut stored, common)?;
        let split = profiles.len();
        profiles.extend(runs(&distinct(b, common), &mut stored, common)?);
        Ok(Self { profiles, split, symbols: SymbolService::new(symbol_options(names), stored), common })
    }

    /// As [`Reading::end`].
    pub(crate) fn end(&self, ending: Ending, strict: bool) -> Ending {
        strictly(strict && self.profiles.iter().any(is_incomplete), ending)
    }

    /// Runs before.
    pub(crate) fn before(&self) -> Vec<&Profile> {
        self.profiles[..self.split].iter().collect()
    }

    /// Runs after.
    pub(crate) fn after(&self) -> Vec<&Profile> {
        self.profiles[self.split..].iter().collect()
    }

    /// Names of both.
    pub(crate) fn symbols(&self) -> &SymbolService {
        &self.symbols
    }

    /// As [`Reading::filter`]; relative moments count from the first run's start.
    ///
    /// # Errors
    /// A pattern is malformed.
    pub(crate) fn filter(&self, args: &FilterArgs) -> anyhow::Result<Filter> {
        filter(args, &self.profiles)
    }

    /// As [`Reading::tell_problems`].
    pub(crate) fn tell_problems(&self) {
        tell_problems(&self.symbols, self.common);
    }
}

/// Recordings and epochs as runs of the same thing, each on its own.
pub(crate) struct Runs {
    profiles: Vec<Profile>,
    names: Vec<String>,
    /// Those without samples, which are no runs of anything: where they stood, and their names.
    empty: Vec<(usize, String)>,
    symbols: SymbolService,
    common: Common,
    strict: bool,
}

impl Runs {
    /// Each recording named is a run; of a database each epoch selected.
    ///
    /// # Errors
    /// As [`Reading::open`].
    pub(crate) fn open(source: &SourceArgs, names: &NameArgs, common: Common) -> anyhow::Result<Self> {
        let mut labels = Vec::new();
        let mut places = Vec::new();
        for path in paths(source)? {
            for (label, place) in run_places(&path, source)? {
                labels.push(label);
                places.push(place);
            }
        }
        let mut stored = StoredSymbols::default();
        let profiles = runs(&places, &mut stored, common)?;
        let (mut kept, mut labels_kept, mut empty) = (Vec::new(), Vec::new(), Vec::new());
        for (i, (profile, label)) in profiles.into_iter().zip(labels).enumerate() {
            if profile.samples.is_empty() {
                empty.push((i, label));
            } else {
                kept.push(profile);
                labels_kept.push(label);
            }
        }
        if kept.is_empty() {
            return Err(whither_cycles::Error::Empty.into());
        }
        let symbols = SymbolService::new(symbol_options(names), stored);
        Ok(Self { profiles: kept, names: labels_kept, empty, symbols, common, strict: source.strict })
    }

    /// As [`Reading::end`].
    pub(crate) fn end(&self, ending: Ending) -> Ending {
        strictly(self.strict && self.profiles.iter().any(is_incomplete), ending)
    }

    /// Places and names of runs without samples.
    pub(crate) fn empty(&self) -> &[(usize, String)] {
        &self.empty
    }

    /// What the user must know of runs without samples. A daemon's newest epoch often is one.
    pub(crate) fn left_out(&self) -> Option<String> {
        let names: Vec<&str> = self.empty.iter().map(|(_, name)| name.as_str()).collect();
        (!names.is_empty()).then(|| format!("left out, as nothing was sampled: {}", names.join(", ")))
    }

    /// The runs in order.
    pub(crate) fn all(&self) -> Vec<&Profile> {
        self.profiles.iter().collect()
    }

    /// What they are called.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Names of all.
    pub(crate) fn symbols(&self) -> &SymbolService {
        &self.symbols
    }

    /// As [`Reading::filter`].
    ///
    /// # Errors
    /// A pattern is malformed.
    pub(crate) fn filter(&self, args: &FilterArgs) -> anyhow::Result<Filter> {
        filter(args, &self.profiles)
    }

    /// As [`Reading::tell_problems`].
    pub(crate) fn tell_problems(&self) {
        tell_problems(&self.symbols, self.common);
    }
}

/// A recording is one run, a database as many as it has epochs.
fn run_places(path: &Path, source: &SourceArgs) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let Ok(database) = Database::open(path) else {
        return Ok(vec![(path.display().to_string(), path.to_owned())]);
    };
    let epochs = match &source.db.epoch {
        Some(selector) => database.select(selector)?,
        None => database.epochs()?.0,
    };
    let wanted = epochs.into_iter().filter(|e| source.db.host.is_empty() || source.db.host.contains(&e.host));
    let label = |e: &EpochInfo| match e.label.as_str() {
        "" => e.path.file_name().unwrap_or_default().to_string_lossy().trim_start_matches("epoch=").to_owned(),
        label => label.to_owned(),
    };
    Ok(wanted.map(|e| (label(&e), e.path)).collect())
}

/// Each path once: copies of one run would look like several that hardly vary.
fn distinct(paths: &[PathBuf], common: Common) -> Vec<PathBuf> {
    let (mut seen, mut kept) = (Vec::new(), Vec::new());
    for path in paths {
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        if seen.contains(&real) {
            warn(common, &format!("{} is named twice and taken once: it is one run", path.display()));
            continue;
        }
        seen.push(real);
        kept.push(path.clone());
    }
    kept
}

/// Each recording on its own; their names go into `stored`.
fn runs(paths: &[PathBuf], stored: &mut StoredSymbols, common: Common) -> anyhow::Result<Vec<Profile>> {
    let mut profiles = Vec::new();
    for path in paths {
        let loaded = load(&[existing(path.clone())?], &Selection::default(), common)?;
        stored.merge(loaded.stored);
        profiles.push(loaded.profile);
    }
    Ok(profiles)
}

/// What compares two recordings of call paths, if both sides are such: of those, one is compared with one.
fn compared_by_calls(a: &[PathBuf], b: &[PathBuf], is_calls: impl Fn(&Path) -> bool) -> Option<String> {
    let ([before], [after]) = (a, b) else { return None };
    let both = is_calls(before) && is_calls(after);
    let (before, after) = (before.display(), after.display());
    both.then(|| {
        format!(
            "{before} and {after} hold call paths, not samples; `whither calls report {before} {after}` compares them"
        )
    })
}

fn load(paths: &[PathBuf], selection: &Selection, common: Common) -> anyhow::Result<Loaded> {
    if let Some(path) = paths.iter().find(|p| whither_store::calls_recording::is_recording(p)) {
        let path = path.display();
        return Err(
            Usage(format!("{path} holds call paths, not samples; `whither calls report {path}` reads them")).into()
        );
    }
    if let Some(path) = paths.iter().find(|p| p.is_file()) {
        let path = path.display();
        return Err(Usage(format!(
            "{path} is no recording, which is a directory that `whither record -o` makes; `whither import {path}` reads a perf.data"
        ))
        .into());
    }
    let mut loaded = whither_store::load(paths, selection)?;
    for problem in &loaded.problems {
        warn(common, &problem.to_string());
    }
    label_missing(&mut loaded);
    Ok(loaded)
}

/// Where there are no samples because of damage, or none yet.
fn why_nothing(loaded: &Loaded, paths: &[PathBuf]) -> anyhow::Result<()> {
    if loaded.profile.samples.is_empty()
        && let Some(first) = loaded.problems.first()
    {
        let more = match loaded.problems.len() {
            1 => String::new(),
            n => format!(" ({} more problems)", n - 1),
        };
        anyhow::bail!("no sample could be read: {first}{more}; `whither db check` tells what is damaged");
    }
    let unwritten = loaded.profile.losses().unwritten;
    if loaded.profile.samples.is_empty() && unwritten > 0 {
        anyhow::bail!("there are no samples: {unwritten} could not be stored, the disk was full or failed");
    }
    if loaded.profile.samples.is_empty()
        && let Some(path) = paths.iter().find(|p| whither_store::is_unfinished(p))
    {
        anyhow::bail!(
            "{} holds no samples: it is still being made, or was interrupted before its first part was stored (3 s after the \
             start, then after 15 s and a minute, then every three minutes)",
            path.display()
        );
    }
    Ok(())
}

/// Begins the note on parts that could not be read.
const INCOMPLETE: &str = "incomplete:";

/// Every answer, in whatever form, says that it is not of all that was recorded.
fn label_missing(loaded: &mut Loaded) {
    let Some(epoch) = loaded.profile.epochs.first_mut().filter(|_| !loaded.problems.is_empty()) else { return };
    let named: Vec<String> = loaded.problems.iter().take(3).map(ToString::to_string).collect();
    let more = if loaded.problems.len() > 3 { ", ..." } else { "" };
    epoch.notes.push(format!("{INCOMPLETE} parts of what was recorded could not be read ({}{more})", named.join("; ")));
}

/// Whether samples were lost, or [`label_missing`] had something to say. What the kernel is estimated to have skipped,
/// when the machine was busy with something else, is not lost.
fn is_incomplete(profile: &Profile) -> bool {
    let losses = profile.losses();
    let lost = losses.dropped + losses.unwritten + losses.sideband_lost + losses.stacks_dropped;
    lost > 0 || profile.epochs.iter().flat_map(|e| &e.notes).any(|note| note.starts_with(INCOMPLETE))
}

fn strictly(missing: bool, ending: Ending) -> Ending {
    if missing && ending == Ending::Done { Ending::Incomplete } else { ending }
}

fn tell_problems(symbols: &SymbolService, common: Common) {
    let most = if common.verbose > 0 { usize::MAX } else { ALIKE };
    for problem in in_short(&symbols.problems(), most) {
        warn(common, &problem);
    }
}

/// So many problems that differ by their files only are told one by one.
const ALIKE: usize = 3;

/// `FILE: what is wrong`, and the first of many of one kind with how many more there are.
fn in_short(problems: &[String], most: usize) -> Vec<String> {
    let kind = |problem: &str| problem.split_once(": ").map_or(problem, |(_, kind)| kind).to_owned();
    let mut told: Vec<(String, Vec<&String>)> = Vec::new();
    for problem in problems {
        let kind = kind(problem);
        match told.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, alike)) => alike.push(problem),
            None => told.push((kind, vec![problem])),
        }
    }
    let line = |(kind, alike): (String, Vec<&String>)| match alike.len() {
        n if n > most => {
            let first = alike[0].split_once(": ").map_or("", |(file, _)| file);
            vec![format!("{first} and {} more files: {kind} (-v names them)", n - 1)]
        }
        _ => alike.into_iter().cloned().collect(),
    };
    told.into_iter().flat_map(line).collect()
}

fn filter(args: &FilterArgs, profiles: &[Profile]) -> anyhow::Result<Filter> {
    let patterns = |texts: &[String]| texts.iter().map(|t| Pattern::parse(t)).collect::<Result<Vec<_>, _>>();
    Ok(Filter {
        images: patterns(&args.image)?.into_iter().map(as_file).collect(),
        procs: patterns(&args.procedure)?,
        processes: args.process.iter().map(|t| ProcessIs::parse(t)).collect::<Result<_, _>>()?,
        threads: args.thread.iter().map(|t| ThreadIs::parse(t)).collect::<Result<_, _>>()?,
        cgroups: patterns(&args.cgroup)?,
        side: side(args),
        seconds: seconds(args.since, args.until, profiles)?,
    })
}

/// With `./server` the file of that name is meant that lies here: recordings know it by its whole path.
fn as_file(pattern: Pattern) -> Pattern {
    let file = here(pattern.text());
    pattern.or_path(file)
}

/// The whole path of a file that lies here, links followed as the kernel does.
pub(crate) fn here(path: &str) -> Option<String> {
    let whole = Path::new(path).canonicalize().ok().filter(|p| p.is_file())?;
    whole.into_os_string().into_string().ok()
}

fn seconds(since: Option<Moment>, until: Option<Moment>, profiles: &[Profile]) -> anyhow::Result<Option<Range<u32>>> {
    const SECOND: u64 = 1_000_000_000;
    let start = profiles.iter().flat_map(|p| &p.epochs).map(|e| e.start_ns).min().unwrap_or(0);
    let at = |moment: Moment| match moment {
        Moment::AfterStart(after) => start.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)),
        Moment::Unix(seconds) => seconds.saturating_mul(SECOND),
    };
    let clamp = |seconds: u64| u32::try_from(seconds).unwrap_or(u32::MAX);
    // Every second that is touched: a recording begins in the middle of one.
    let from = |m: Moment| if m == Moment::AfterStart(Duration::ZERO) { 0 } else { clamp(at(m) / SECOND) };
    let range = since.map_or(0, from)..until.map_or(u32::MAX, |m| clamp(at(m).div_ceil(SECOND)));
    if since.is_none() && until.is_none() {
        return Ok(None);
    }
    let backwards = since.zip(until).is_some_and(|(since, until)| at(since) >= at(until));
    if backwards || range.is_empty() {
        return Err(Usage("--since must be earlier than --until".into()).into());
    }
    Ok(Some(range))
}

/// Where names come from, by flags.
pub(crate) fn symbol_options(names: &NameArgs) -> SymbolOptions {
    let mut options = SymbolOptions {
        cache_dir: SymbolOptions::default_cache_dir(),
        debuginfod: names.debuginfod,
        source_prefix_map: names.source_map.clone(),
        ..SymbolOptions::default()
    };
    options.debug_dirs.splice(0..0, names.debug_dir.iter().cloned());
    options
}

fn side(args: &FilterArgs) -> Side {
    match (args.kernel, args.user) {
        (true, _) => Side::Kernel,
        (_, true) => Side::User,
        _ => Side::Both,
    }
}

fn warn(common: Common, text: &str) {
    if !common.quiet {
        tell!("whither: {text}");
    }
}

/// Named recordings, else the named database, else what lies at the default places.
fn paths(source: &SourceArgs) -> anyhow::Result<Vec<PathBuf>> {
    let named: Vec<PathBuf> = source.recordings.iter().chain(&source.db.db).cloned().collect();
    if !named.is_empty() {
        return named.into_iter().map(existing).collect();
    }
    default_source().map(|path| vec![path])
}

fn existing(path: PathBuf) -> anyhow::Result<PathBuf> {
    if path.exists() {
        return Ok(path);
    }
    Err(Usage(format!("there is no recording {}; `whither record -o {}` makes one", path.display(), path.display()))
        .into())
}

/// The recording here, else the default database.
///
/// # Errors
/// Neither is there.
pub(crate) fn default_source() -> anyhow::Result<PathBuf> {
    let (here, database) = (places::default_recording(), places::database(None));
    [&here, &database].into_iter().find(|p| p.exists()).cloned().ok_or_else(|| nothing_to_read(&here, &database))
}

fn nothing_to_read(here: &Path, database: &Path) -> anyhow::Error {
    Usage(format!(
        "nothing to read: there is neither {} here nor a database in {}; start with `whither record -d 10s`, or name a recording",
        here.display(),
        database.display()
    ))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_here_is_known_by_its_whole_path() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("sub")).unwrap();
        std::fs::write(root.join("server"), "").unwrap();
        std::os::unix::fs::symlink("../server", root.join("sub/link")).unwrap();
        let passes = |text: &str, path: &str| {
            let pattern = as_file(Pattern::parse(root.join(text).to_str().unwrap()).unwrap());
            pattern.matches_path(root.join(path).to_str().unwrap())
        };
        assert!(passes("sub/../server", "server") && passes("sub/link", "server"));
        assert!(!passes("sub/../server", "sub/server") && !passes("sub/../other", "other"));
        assert_eq!(here("sub"), None, "no file");
    }

    #[test]
    fn recordings_of_calls_are_compared_elsewhere() {
        let is_calls = |path: &Path| path.starts_with("/calls");
        let better = |a: &[&str], b: &[&str]| {
            let paths = |of: &[&str]| of.iter().map(PathBuf::from).collect::<Vec<_>>();
            compared_by_calls(&paths(a), &paths(b), is_calls)
        };
        let told = better(&["/calls/a"], &["/calls/b"]).unwrap();
        assert!(told.contains("`whither calls report /calls/a /calls/b` compares them"), "{told}");
        assert_eq!(better(&["/calls/a"], &["/samples/b"]), None);
        assert_eq!(better(&["/calls/a", "/calls/b"], &["/calls/c"]), None);
    }

    #[test]
    fn many_problems_of_one_kind_are_one_line() {
        let problems: Vec<String> =
            ["/a: gone: x", "/b: gone: x", "/c: gone: x", "/d: broken", "odd"].map(String::from).into();
        assert_eq!(in_short(&problems, 3), problems);
        assert_eq!(in_short(&problems, 2), ["/a and 2 more files: gone: x (-v names them)", "/d: broken", "odd"]);
    }
}
