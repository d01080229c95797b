//! Which rows of a profile a question is about: filters and event columns. Rows stay where they
//! are; a selection is a list of indices, so that a profile of a week is never copied.

use crate::error::Error;
use crate::near::near_matches;
use crate::pattern::Pattern;
use crate::provenance::describe_seconds;
use std::ops::Range;
use whither_store::model::{EventIx, Image, ImageKind, Process, ProcessIx, Profile, Sample, StackSample};

/// What to look at. The default is everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Image path matches one of these.
    pub images: Vec<Pattern>,
    /// Demangled procedure name matches one of these.
    pub procs: Vec<Pattern>,
    /// Process is one of these.
    pub processes: Vec<ProcessIs>,
    /// Thread is one of these.
    pub threads: Vec<ThreadIs>,
    /// Cgroup path matches one of these.
    pub cgroups: Vec<Pattern>,
    /// Kernel, user or both.
    pub side: Side,
    /// Time slices that touch this range of seconds since the Unix epoch.
    pub seconds: Option<Range<u32>>,
}

/// One way to name a process.
#[derive(Clone, Debug)]
pub enum ProcessIs {
    /// By process id (host view).
    Pid(u32),
    /// By command name or path of the executable.
    Name(Pattern),
}

impl ProcessIs {
    /// A number is a process id, anything else a [`Pattern`].
    ///
    /// # Errors
    /// [`Error::Pattern`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        match text.parse() {
            Ok(pid) => Ok(Self::Pid(pid)),
            Err(_) => Pattern::parse(text).map(Self::Name),
        }
    }

    fn matches(&self, process: &Process) -> bool {
        match self {
            Self::Pid(pid) => process.pid == *pid,
            Self::Name(p) => p.matches(&process.comm) || p.matches(&process.exe),
        }
    }
}

/// One way to name a thread.
#[derive(Clone, Debug)]
pub enum ThreadIs {
    /// By thread id.
    Tid(u32),
    /// By what it calls itself: the command's name unless it has one of its own.
    Name(Pattern),
}

impl ThreadIs {
    /// A number is a thread id, anything else a [`Pattern`].
    ///
    /// # Errors
    /// [`Error::Pattern`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        match text.parse() {
            Ok(tid) => Ok(Self::Tid(tid)),
            Err(_) => Pattern::parse(text).map(Self::Name),
        }
    }

    fn matches(&self, profile: &Profile, process: ProcessIx, tid: u32) -> bool {
        match self {
            Self::Tid(wanted) => tid == *wanted,
            // Where threads are not kept apart, none has a name.
            Self::Name(_) if tid == 0 => false,
            Self::Name(p) => p.matches(profile.thread_name(process, tid).unwrap_or(&profile.process(process).comm)),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Tid(tid) => tid.to_string(),
            Self::Name(p) => p.text().to_owned(),
        }
    }
}

/// Privilege level of the sampled address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// Kernel and user.
    #[default]
    Both,
    /// The kernel, its modules and BPF programs.
    Kernel,
    /// Everything else.
    User,
}

/// Whether samples of an image ran in the kernel.
#[must_use]
pub fn is_kernel(image: &Image) -> bool {
    match image.kind {
        ImageKind::Kernel | ImageKind::Module | ImageKind::Bpf => true,
        ImageKind::Unknown => image.path.contains("kernel"),
        _ => false,
    }
}

impl Filter {
    /// Filters in force, as sentences' parts for the user; empty when everything passes.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let mut out = Vec::new();
        let mut push = |what: &str, values: Vec<String>| {
            if !values.is_empty() {
                out.push(format!("{what} {}", values.join(" or ")));
            }
        };
        let texts = |p: &[Pattern]| p.iter().map(|p| p.text().to_owned()).collect::<Vec<_>>();
        push("image", texts(&self.images));
        push("procedure", texts(&self.procs));
        push("process", self.processes.iter().map(describe_process).collect());
        push("thread", self.threads.iter().map(ThreadIs::text).collect());
        push("cgroup", texts(&self.cgroups));
        push("time", self.seconds.iter().map(|r| describe_seconds(r, false)).collect());
        match self.side {
            Side::Both => {}
            Side::Kernel => out.push("the kernel".into()),
            Side::User => out.push("user space".into()),
        }
        out
    }
}

fn describe_process(p: &ProcessIs) -> String {
    match p {
        ProcessIs::Pid(pid) => pid.to_string(),
        ProcessIs::Name(p) => p.text().to_owned(),
    }
}

/// Rows that pass a filter, and which event is which column.
#[derive(Clone, Debug)]
pub struct Selection<'a> {
    /// The profile the rows are of.
    pub profile: &'a Profile,
    /// Indices into `profile.samples`, ascending.
    pub rows: Vec<u32>,
    /// Events shown, in column order.
    pub columns: Vec<EventIx>,
    column_of: Vec<Option<usize>>,
}

impl<'a> Selection<'a> {
    /// Applies every part of the filter except procedure names, which need symbols
    /// ([`crate::places`]). `events` empty: all, in the recording's order.
    ///
    /// # Errors
    /// [`Error::Event`] for a name the profile does not have; [`Error::Empty`] without any sample.
    pub fn new(profile: &'a Profile, filter: &Filter, events: &[String]) -> Result<Self, Error> {
        if profile.samples.is_empty() {
            return Err(Error::Empty);
        }
        let columns = columns(profile, events)?;
        let mut column_of = vec![None; profile.events.len()];
        for (i, e) in columns.iter().enumerate() {
            column_of[e.0 as usize] = Some(i);
        }
        let rows = rows_of(profile, filter, |e| column_of[e.0 as usize].is_some());
        Ok(Self { profile, rows, columns, column_of })
    }

    /// The sample of a row index.
    #[must_use]
    pub fn sample(&self, row: u32) -> &'a Sample {
        &self.profile.samples[row as usize]
    }

    /// The column an event is shown in.
    #[must_use]
    pub fn column(&self, event: EventIx) -> Option<usize> {
        self.column_of.get(event.0 as usize).copied().flatten()
    }

    /// The rows of one column; columns stay as they are.
    #[must_use]
    pub fn only_column(&self, column: usize) -> Self {
        let mut out = self.clone();
        out.rows.retain(|&row| self.column(self.sample(row).event) == Some(column));
        out
    }

    /// The parts of a filter that concern a whole stack: process, thread, cgroup, time. With
    /// [`Side`], the innermost frame decides.
    pub(crate) fn stack_filter(profile: &'a Profile, filter: &'a Filter) -> impl Fn(&StackSample) -> bool + 'a {
        let when_and_who = when_and_who(profile, filter);
        move |s| {
            let innermost = profile.stacks[s.stack.0 as usize].frames.first();
            let side = innermost.is_none_or(|f| side_passes(profile.image(f.image), filter.side));
            side && when_and_who(s.process, s.tid, s.slice)
        }
    }
}

/// Rows of some events that pass a filter, ascending.
pub(crate) fn rows_of(profile: &Profile, filter: &Filter, event: impl Fn(EventIx) -> bool) -> Vec<u32> {
    let images: Vec<bool> = profile.images.iter().map(|i| image_passes(i, filter)).collect();
    let when_and_who = when_and_who(profile, filter);
    let passes = |s: &Sample| event(s.event) && images[s.image.0 as usize] && when_and_who(s.process, s.tid, s.slice);
    (0u32..).zip(&profile.samples).filter(|(_, s)| passes(s)).map(|(i, _)| i).collect()
}

fn when_and_who<'a>(profile: &'a Profile, filter: &'a Filter) -> impl Fn(ProcessIx, u32, u32) -> bool + use<'a> {
    let processes: Vec<bool> = profile.processes.iter().map(|p| process_passes(p, filter)).collect();
    let slice_s = slice_length(profile);
    move |process, tid, slice| {
        processes[process.0 as usize]
            && (filter.threads.is_empty() || filter.threads.iter().any(|t| t.matches(profile, process, tid)))
            && filter.seconds.as_ref().is_none_or(|r| touches(r, slice, slice_s))
    }
}

/// Seconds that a sample's slice lasts.
pub(crate) fn slice_length(profile: &Profile) -> u32 {
    profile.epochs.iter().map(|e| e.slice_s).max().unwrap_or(0).max(1)
}

pub(crate) fn columns(profile: &Profile, names: &[String]) -> Result<Vec<EventIx>, Error> {
    let all = (0u16..).zip(&profile.events);
    if names.is_empty() {
        return Ok(all.map(|(i, _)| EventIx(i)).collect());
    }
    let find = |name: &String| {
        let found = all.clone().find(|(_, e)| e.name == *name).map(|(i, _)| EventIx(i));
        found.ok_or_else(|| unknown_event(profile, name))
    };
    let mut out: Vec<EventIx> = Vec::new();
    for name in names {
        let event = find(name)?;
        if !out.contains(&event) {
            out.push(event);
        }
    }
    Ok(out)
}

fn unknown_event(profile: &Profile, name: &str) -> Error {
    let names: Vec<&str> = profile.events.iter().map(|e| e.name.as_str()).collect();
    Error::Event { name: name.to_owned(), have: names.join(", "), near: near_matches(name, names.iter().copied(), 3) }
}

fn image_passes(image: &Image, filter: &Filter) -> bool {
    let named = filter.images.is_empty() || filter.images.iter().any(|p| p.matches_path(&image.path));
    side_passes(image, filter.side) && named
}

fn side_passes(image: &Image, side: Side) -> bool {
    match side {
        Side::Both => true,
        Side::Kernel => is_kernel(image),
        Side::User => !is_kernel(image),
    }
}

fn process_passes(process: &Process, filter: &Filter) -> bool {
    any(&filter.cgroups, &process.cgroup)
        && (filter.processes.is_empty() || filter.processes.iter().any(|p| p.matches(process)))
}

/// No pattern passes everything.
pub(crate) fn any(patterns: &[Pattern], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|p| p.matches(name))
}

fn touches(range: &Range<u32>, slice: u32, length: u32) -> bool {
    slice < range.end && slice.saturating_add(length) > range.start
}
