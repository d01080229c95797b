//! Steps of a session, as they are kept and taken again: what an obeyed verb changed becomes words that hold in
//! another run ([`change`]), and these words become verbs about the probes of this run ([`Desk::replay`]). Both go through
//! [`Desk::obey`], so that a session that replays steps keeps them anew.

use super::desk::{Desk, in_place, module_of, name_of, near};
use super::pattern;
use super::wire::{AddedPoint, Reply, Verb};
use crate::SessionError;
use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;
use whither_probe::select::{callee, parse};
use whither_probe::{Candidate, Order, PointId, Select};
use whither_store::call_steps::{CallChange, CallFunction, CallStep};
use whither_store::calls::{CallPoint, CallProcess, CallSnapshot};

/// Steps still to be taken.
pub(super) struct Replay(VecDeque<CallStep>);

impl Replay {
    pub(super) fn new(steps: &[CallStep]) -> Self {
        let mut steps = steps.to_vec();
        steps.sort_by_key(|step| step.after_ns);
        Self(steps.into())
    }

    /// The next one, once its time since the session's begin has come.
    pub(super) fn due(&mut self, now: Duration) -> Option<CallStep> {
        if self.wait(now)?.is_zero() { self.0.pop_front() } else { None }
    }

    /// How long until the next one is due.
    pub(super) fn wait(&self, now: Duration) -> Option<Duration> {
        self.0.front().map(|step| Duration::from_nanos(step.after_ns).saturating_sub(now))
    }

    /// A sentence about those that never came.
    pub(super) fn left(&self, why: &str) -> Option<String> {
        let steps: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        let some = match steps.len() {
            0 => return None,
            1 => "1 step was".to_owned(),
            n => format!("{n} steps were"),
        };
        Some(format!("{some} not reached, as {why}: {}", steps.join("; ")))
    }
}

/// What came of a step.
#[derive(Debug, Default)]
pub(super) struct Played {
    /// What was asked for it, and the answers.
    pub(super) answers: Vec<(Verb, Reply)>,
    /// Sentences about what could not be asked for.
    pub(super) notes: Vec<String>,
}

/// Whether an obeyed verb changed probes or epochs.
pub(super) fn is_change(verb: &Verb, reply: &Reply) -> bool {
    match reply {
        Reply::Added { added, .. } => !added.is_empty(),
        Reply::Removed { removed, .. } => !removed.is_empty(),
        Reply::Switched { points } => !points.is_empty(),
        Reply::Done { .. } => matches!(verb, Verb::Reset { .. }),
        _ => false,
    }
}

/// What it changed. `snapshot`: of the moment after, as removed probes stay in it. `epoch`: the last one that ended.
pub(super) fn change(verb: &Verb, reply: &Reply, snapshot: &CallSnapshot, epoch: &str) -> Option<CallChange> {
    let one = |id: u32| snapshot.points.iter().find(|p| p.id == id).map(|p| function_of(snapshot, p));
    let all = |points: &[AddedPoint]| points.iter().filter_map(|p| one(p.id)).collect::<Vec<_>>();
    Some(match (verb, reply) {
        (Verb::Add { patterns, exclude }, _) => CallChange::Add {
            patterns: patterns.iter().map(|p| without_number(p, one)).collect(),
            exclude: exclude.clone(),
        },
        (_, Reply::Removed { removed, .. }) => CallChange::Remove { functions: all(removed) },
        (Verb::Switch { on, .. }, Reply::Switched { points }) => CallChange::Switch { functions: all(points), on: *on },
        (Verb::Callees { point }, _) => CallChange::Expand { function: one(*point)?, only: None },
        (Verb::AddCallees { point, .. }, Reply::Added { added, already, .. }) => {
            let there = already.iter().filter_map(|id| one(*id));
            CallChange::Expand { function: one(*point)?, only: Some(all(added).into_iter().chain(there).collect()) }
        }
        (Verb::Callers { point }, _) => CallChange::Callers { function: one(*point)? },
        (Verb::Reset { .. }, _) => CallChange::Reset { label: epoch.to_owned() },
        _ => return None,
    })
}

/// The pattern as written; of a probe's number a pattern that means its function.
fn without_number(text: &str, function: impl Fn(u32) -> Option<CallFunction>) -> String {
    match parse(text) {
        Ok(Select::Point(id)) => function(id.0).map_or_else(|| text.to_owned(), |f| pattern_of(&f)),
        _ => text.to_owned(),
    }
}

/// A pattern over a function's whole name, and its file's; of one that is measured for some callers only, for those.
fn pattern_of(function: &CallFunction) -> String {
    // `!` stands between file and name, `@` before callers.
    let exact = |name: &str| regex::escape(name).replace('!', r"\x21").replace('@', r"\x40");
    let (name, callers) = match function.name.strip_prefix(callee(&function.name)) {
        Some(callers) => (callee(&function.name), callers),
        None => (function.name.as_str(), ""),
    };
    match (parse(name), &function.file) {
        (Ok(Select::Address { .. }), _) => function.name.clone(),
        (_, Some(file)) => format!("{}!{}{callers}", exact(file), exact(name)),
        (_, None) => format!("{}{callers}", exact(name)),
    }
}

fn function_of(snapshot: &CallSnapshot, point: &CallPoint) -> CallFunction {
    let path = module_of(snapshot, point);
    CallFunction { name: point.names.first().cloned().unwrap_or_default(), file: file_of(&snapshot.processes, path) }
}

/// Name of a file that is no executable of the processes.
fn file_of(processes: &[CallProcess], path: &str) -> Option<String> {
    let library = !path.is_empty() && !processes.iter().any(|p| p.exe == path);
    library.then(|| Path::new(path).file_name().map_or_else(|| path.to_owned(), |n| n.to_string_lossy().into_owned()))
}

/// Of patterns that mean an address or a line: a sentence that those hold in one build only.
#[must_use]
pub fn of_one_build<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let is_place = |text: &&str| matches!(parse(text), Ok(Select::Address { .. } | Select::Line { .. }));
    let places: Vec<String> = patterns.into_iter().filter(is_place).map(|p| format!("`{p}`")).collect();
    let (some, are, they) =
        if places.len() > 1 { ("places", "are", "they mean") } else { ("a place", "is", "it means") };
    (!places.is_empty()).then(|| {
        format!("{} {are} {some} in one build of the file: in another {they} whatever stands there", places.join(", "))
    })
}

impl Desk {
    /// Takes a step of another session.
    pub(super) fn replay(&mut self, change: &CallChange) -> Played {
        let mut played = Played::default();
        self.try_replay(change, &mut played).unwrap_or_else(|e| played.notes.push(format!("not done: {e}")));
        played
    }

    fn try_replay(&mut self, change: &CallChange, played: &mut Played) -> Result<(), SessionError> {
        let verbs = match change {
            CallChange::Add { patterns, exclude } => {
                played.notes.extend(of_one_build(patterns.iter().map(String::as_str)));
                vec![Verb::Add { patterns: patterns.clone(), exclude: exclude.clone() }]
            }
            CallChange::Reset { label } => vec![Verb::Reset { label: label.clone() }],
            CallChange::Remove { functions } => {
                let patterns = numbers(&self.probes_on(functions, played)?);
                vec![Verb::Remove { patterns }]
            }
            CallChange::Switch { functions, on } => {
                let patterns = numbers(&self.probes_on(functions, played)?);
                vec![Verb::Switch { patterns, on: *on }]
            }
            CallChange::Expand { function, only } => self.expansion(function, only.as_deref(), played)?,
            CallChange::Callers { function } => {
                let points = self.probes_on(std::slice::from_ref(function), played)?;
                points.into_iter().map(|point| Verb::Callers { point }).collect()
            }
            CallChange::Unknown => {
                played.notes.push("left out".into());
                Vec::new()
            }
        };
        for verb in verbs.into_iter().filter(|verb| !means_nothing(verb)) {
            let reply = self.obey(&verb);
            played.answers.push((verb, reply));
        }
        Ok(())
    }

    fn expansion(
        &mut self,
        function: &CallFunction,
        only: Option<&[CallFunction]>,
        played: &mut Played,
    ) -> Result<Vec<Verb>, SessionError> {
        let points = self.probes_on(std::slice::from_ref(function), played)?;
        let Some(only) = only else { return Ok(points.into_iter().map(|point| Verb::Callees { point }).collect()) };
        let processes = self.engine.snapshot().processes;
        let (mut verbs, mut seen) = (Vec::new(), vec![false; only.len()]);
        for point in points.iter().copied() {
            let mut chosen = Vec::new();
            self.see_again(point, only)?;
            for callee in self.callees(point)? {
                let file = file_of(&processes, &self.engine.module(callee.module));
                if let Some(at) = only.iter().position(|f| f.file == file && is_named(&callee, &f.name)) {
                    seen[at] = true;
                    chosen.push(self.place(&callee));
                }
            }
            verbs.push(Verb::AddCallees { point, chosen });
        }
        let missing: Vec<String> =
            only.iter().zip(seen).filter(|(_, seen)| !seen).map(|(f, _)| f.to_string()).collect();
        if !missing.is_empty() && !points.is_empty() {
            played.notes.push(format!("{function} does not call {} here", missing.join(", ")));
        }
        Ok(verbs)
    }

    /// A function with calls through pointers may call what was found to be called then: nobody looks at stacks again.
    fn see_again(&mut self, point: u32, only: &[CallFunction]) -> Result<(), SessionError> {
        let calls = self.engine.pointed_calls(PointId(point))?;
        if calls.jumps == 0 && calls.returns.is_empty() {
            return Ok(());
        }
        let orders: Vec<Order> = only.iter().map(|f| pattern::including(&pattern_of(f))).collect::<Result<_, _>>()?;
        let found = self.engine.resolve(&orders)?;
        self.saw(point, found.into_iter().map(|c| c.address));
        Ok(())
    }

    /// Numbers of the probes in place on functions. What has none is told.
    fn probes_on(&mut self, functions: &[CallFunction], played: &mut Played) -> Result<Vec<u32>, SessionError> {
        let snapshot = self.engine.snapshot();
        let (mut ids, mut missing) = (Vec::new(), Vec::new());
        for function in functions {
            let here = snapshot.points.iter().filter(|p| in_place(p));
            let same = |p: &&CallPoint| p.names.contains(&function.name);
            let filed = |p: &&CallPoint| file_of(&snapshot.processes, module_of(&snapshot, p)) == function.file;
            let found: Vec<u32> = here.filter(same).filter(filed).map(|p| p.id).collect();
            if found.is_empty() {
                missing.push(function);
            }
            ids.extend(found);
        }
        let found = functions.iter().filter(|f| !missing.contains(f)).map(|f| f.name.as_str());
        played.notes.extend(of_one_build(found));
        if let Some(note) = self.tell_missing(&missing)? {
            played.notes.push(note);
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    fn tell_missing(&mut self, missing: &[&CallFunction]) -> Result<Option<String>, SessionError> {
        let (mut unprobed, mut gone) = (Vec::new(), Vec::new());
        for function in missing {
            let orders: [Order; 1] = [pattern::including(&pattern_of(function))?];
            if self.engine.resolve(&orders)?.is_empty() { gone.push(*function) } else { unprobed.push(*function) }
        }
        let listed = |all: &[&CallFunction]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let mut parts = Vec::new();
        if !gone.is_empty() {
            let names: Vec<String> = gone.iter().map(|f| f.name.clone()).collect();
            let near = near(self.engine.as_mut(), &names);
            let near = if near.is_empty() { String::new() } else { format!(" (it has {})", near.join(", ")) };
            parts.push(format!("the program has no {}{near}", listed(&gone)));
        }
        if !unprobed.is_empty() {
            let probed = self.probed_names();
            let probed =
                if probed.is_empty() { "nothing is".into() } else { format!("probed are {}", probed.join(", ")) };
            parts.push(format!("no probe is on {} ({probed})", listed(&unprobed)));
        }
        Ok((!parts.is_empty()).then(|| parts.join("; ")))
    }
}

fn is_named(candidate: &Candidate, name: &str) -> bool {
    candidate.names.iter().any(|n| n == name) || name_of(candidate) == name
}

fn numbers(ids: &[u32]) -> Vec<String> {
    ids.iter().map(|id| format!("#{id}")).collect()
}

/// Nothing is left of it here, which was told.
fn means_nothing(verb: &Verb) -> bool {
    match verb {
        Verb::Remove { patterns } | Verb::Switch { patterns, .. } => patterns.is_empty(),
        Verb::AddCallees { chosen, .. } => chosen.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
