//! Who is called through pointers. No code tells it, so whoever asks for the callees of a function that has such calls waits
//! while the target's stacks are looked at for a second; all else goes on meanwhile. Who has asked, and what the stacks
//! say, is here; the looking is `burst`'s.

use super::burst::Burst;
use super::desk::{Desk, name_of};
use super::wire::{Ask, Verb};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use whither_probe::{Candidate, PointId, PointedCalls, Sighting};
use whither_sample::burst::Stacks;

/// How long stacks are looked at.
const TIME: Duration = Duration::from_secs(1);
/// What was seen serves for so long: who expands several functions waits once.
const FRESH: Duration = Duration::from_secs(1);
/// Callees named in a sentence.
const NAMED: usize = 8;

/// Questions that wait for stacks.
#[derive(Default)]
pub(super) struct Pointed {
    waiting: Vec<(Ask, u32, PointedCalls)>,
    burst: Option<Burst>,
    last: Option<(Instant, Stacks)>,
}

impl Pointed {
    /// Answers a question now, or notes it for later.
    pub(super) fn take(&mut self, desk: &mut Desk, ask: Ask) {
        match by_pointers(desk, &ask.verb) {
            Some((point, calls)) => self.waiting.push((ask, point, calls)),
            None => {
                let reply = desk.obey(&ask.verb);
                // Whoever asked may be gone.
                let _ = ask.answer.send(reply);
            }
        }
    }

    /// Looks, where somebody waits for it, and answers once it is over.
    pub(super) fn go_on(&mut self, desk: &mut Desk) {
        if let Some(stacks) = self.burst.as_ref().and_then(Burst::done) {
            (self.burst, self.last) = (None, Some((Instant::now(), stacks)));
        }
        if self.burst.is_some() {
            return;
        }
        self.last = self.last.take().filter(|(at, _)| at.elapsed() < FRESH);
        match &self.last {
            None if self.waiting.is_empty() => {}
            None => self.burst = Some(desk.engine.look_at_stacks(TIME)),
            Some((_, stacks)) => {
                for (ask, point, calls) in self.waiting.drain(..) {
                    let found = attribute(&calls, stacks, &mut |at| desk.engine.functions_at(at));
                    desk.saw(point, found.callees.iter().map(|c| c.address));
                    let reply = desk.obey(&ask.verb).noting(found.told(&calls, stacks));
                    let _ = ask.answer.send(reply);
                }
            }
        }
    }
}

/// The point whose callees are asked for, if it has calls through pointers.
fn by_pointers(desk: &mut Desk, verb: &Verb) -> Option<(u32, PointedCalls)> {
    let (Verb::Callees { point } | Verb::LookCallees { point }) = verb else { return None };
    // What is wrong with the point is told when it is obeyed.
    let calls = desk.engine.pointed_calls(PointId(*point)).ok()?;
    (calls.jumps > 0 || !calls.returns.is_empty()).then_some((*point, calls))
}

/// Callees seen of one function.
#[derive(Debug, Default)]
struct Seen {
    /// Each once, those seen most often first.
    callees: Vec<Candidate>,
    /// Names of those behind calls.
    called: Vec<String>,
    /// Names of those behind tail jumps.
    jumped: Vec<String>,
    /// How many of the calls had a callee.
    sites: usize,
}

/// Whom stacks and call paths show called through pointers; `functions` tells what is at addresses.
fn attribute(
    calls: &PointedCalls,
    stacks: &Stacks,
    functions: &mut dyn FnMut(&[u64]) -> Vec<Option<Candidate>>,
) -> Seen {
    let mut often: FxHashMap<Sighting, usize> = FxHashMap::default();
    stacks.walks.iter().flat_map(|walk| on_stack(calls, walk)).for_each(|s| *often.entry(s).or_default() += 1);
    let mut sampled: Vec<(Sighting, usize)> = often.into_iter().collect();
    sampled.sort_unstable_by_key(|&(sighting, times)| (std::cmp::Reverse(times), sighting));
    let sampled = sampled.into_iter().map(|(sighting, _)| (sighting, true));
    let all: Vec<(Sighting, bool)> = sampled.chain(calls.known.iter().map(|s| (*s, false))).collect();
    let addresses: Vec<u64> = all.iter().map(|(s, _)| s.callee).collect();
    let (mut seen, mut sites) = (Seen::default(), BTreeSet::new());
    for ((sighting, sampled), function) in all.into_iter().zip(functions(&addresses)) {
        let Some(function) = function else { continue };
        // Who is probed, or jumped to directly, returns to our code as well.
        if sighting.site.is_none() && sampled && calls.others.contains(&function.address) {
            continue;
        }
        let names = if sighting.site.is_some() { &mut seen.called } else { &mut seen.jumped };
        let name = name_of(&function);
        if !names.contains(&name) {
            names.push(name);
        }
        sites.extend(sighting.site);
        if function.address != calls.address && seen.callees.iter().all(|c| c.address != function.address) {
            seen.callees.push(function);
        }
    }
    seen.sites = sites.len();
    seen
}

/// What one stack shows: who stands inside of a return address of the function, or inside of the end of a call whose
/// place was taken.
fn on_stack(calls: &PointedCalls, walk: &[u64]) -> Vec<Sighting> {
    let is_exit = |at: u64| calls.exits.as_ref().is_some_and(|exits| exits.contains(&at));
    let mut found = Vec::new();
    for (i, pair) in walk.windows(2).enumerate() {
        let (inner, outer) = (pair[0], pair[1]);
        // Return addresses stand behind their calls, which may be the last instruction of a function.
        let callee = if i == 0 { inner } else { inner.wrapping_sub(1) };
        if calls.returns.binary_search(&outer).is_ok() {
            found.push(Sighting { site: Some(outer), callee });
        } else if is_exit(outer) {
            found.push(Sighting { site: None, callee });
        }
    }
    found
}

impl Seen {
    /// Sentences: who was found, and what is not known.
    fn told(&self, calls: &PointedCalls, stacks: &Stacks) -> Vec<String> {
        let mut told = Vec::new();
        if !calls.returns.is_empty() {
            told.push(self.of_calls(calls));
        }
        if calls.jumps > 0 {
            told.push(self.of_jumps(calls));
        }
        if let Some(why) = &stacks.refused {
            told.push(format!("threads that run could not be looked at, only those that wait: {why}"));
        }
        if stacks.cut > 0 {
            let (cut, all) = (stacks.cut, stacks.walks.len());
            told.push(format!("{cut} of {all} stacks looked at could not be followed to their end"));
        }
        told
    }

    fn of_calls(&self, calls: &PointedCalls) -> String {
        let (name, count) = (&calls.name, calls.returns.len());
        let noun = if count == 1 { "1 indirect call".into() } else { format!("{count} indirect calls") };
        let them = if count == 1 { "it" } else { "them" };
        if self.called.is_empty() {
            return format!("{noun} in {name}: nobody was seen called through {them} in 1 s");
        }
        let through = if count == self.sites { them.into() } else { format!("{} of them", self.sites) };
        format!("{noun} in {name}: seen called through {through}, in 1 s or before: {}", some(&self.called))
    }

    fn of_jumps(&self, calls: &PointedCalls) -> String {
        let (name, count) = (&calls.name, calls.jumps);
        let (noun, lead) = match count {
            1 => ("1 indirect tail jump".into(), "it leads"),
            _ => (format!("{count} indirect tail jumps"), "they lead"),
        };
        match (self.jumped.is_empty(), &calls.exits) {
            (false, _) => format!("{noun} in {name}: seen where {lead}, in 1 s or before: {}", some(&self.jumped)),
            (true, Some(_)) => format!("{noun} in {name}: nobody was seen where {lead} in 1 s"),
            (true, None) => format!("{noun} in {name}: nothing on a stack tells where {lead}"),
        }
    }
}

fn some(names: &[String]) -> String {
    let shown = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > NAMED { format!("{shown} and {} more", names.len() - NAMED) } else { shown }
}

#[cfg(test)]
mod tests;
