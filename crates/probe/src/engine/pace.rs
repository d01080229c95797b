//! Threads of a target paced by a signal, for the causal profiler without BPF: its handler put in and taken back, places
//! in the code that move virtual clocks. Lives here: which places, and their patches. What the words say is `crate::pace`'s,
//! what happens at a place the agent's (`agent/pace.c`).

use super::seat::Seat;
use super::{Engine, Hold};
use crate::agent::Symbol;
use crate::api::{Added, Options, Refusal};
use crate::apply::{Haste, Patch, Write};
use crate::error::ProbeError;
use crate::pace::{Pace, PaceWord};
use crate::resolve::ModuleView;
use crate::stub::{jump, site_stub};
use crate::target::{Caller, Memory};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;
use whither_abi::agent as abi;
use whither_abi::pace;
use whither_image::{EntryRefusal, Svma};

/// futex, clock_nanosleep, clone, clone3, rt_sigtimedwait; nanosleep, poll, ppoll, select, pselect6, epoll_wait, epoll_pwait, epoll_pwait2.
const CALLS: [u32; 13] = [202, 230, 56, 435, 128, 35, 7, 271, 23, 270, 232, 281, 441];

/// A place to be seen.
struct Seen {
    module: usize,
    /// Addresses in the target of the displaced instructions.
    window: Range<u64>,
    /// 0: a system call stands behind them. Else the number of a progress point, plus one.
    what: u8,
}

impl Engine {
    /// Puts the agent into a running process whose threads are to be paced by a signal that it does not use.
    ///
    /// # Errors
    /// The reason; the process is then as before.
    pub fn attach_paced(pid: u32, signal: u32) -> Result<(Self, Pace), ProbeError> {
        let options = Options { uprobes: false, follow: false, ..Options::default() };
        let mut engine = Self::attach(pid, options)?;
        engine.place_agent()?;
        let seat = engine.seat.as_ref().ok_or(ProbeError::NoAgent { pid })?;
        let pace = Pace::new(Arc::clone(&seat.segment));
        pace.prepare(signal);
        let answer = engine.in_target("the agent's start of ticks", Symbol::PaceStart, u64::from(signal))?;
        if answer != pace::DONE {
            pace.set(PaceWord::Signal, 0);
            let why = match answer {
                pace::TAKEN => format!("it has a handler for signal {signal} itself"),
                _ => format!("the kernel refuses a handler for signal {signal}"),
            };
            return Err(ProbeError::Injection { pid, why });
        }
        engine.add_only_notices()?;
        Ok((engine, pace))
    }

    /// Takes away what a controller that died has left in a process.
    ///
    /// # Errors
    /// The reason why it stays, a living controller for one.
    pub fn clear(pid: u32) -> Result<(), ProbeError> {
        match Self::take_over(pid, Options { follow: false, ..Options::default() }) {
            Ok(old) => old.detach().map(drop),
            Err(ProbeError::NoAgent { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Has the system calls seen that move virtual clocks, in modules that were not looked at yet; how many are, and how
    /// many cannot be.
    ///
    /// # Errors
    /// When the target could not be stopped.
    pub fn pace_calls(&mut self, done: &mut Vec<usize>) -> Result<(usize, usize), ProbeError> {
        let (mut wanted, mut refused) = (Vec::new(), 0);
        for (index, module) in self.modules.list().iter().enumerate() {
            if module.gone || done.contains(&index) {
                continue;
            }
            done.push(index);
            let Some(code) = module.image().and_then(|image| image.code()) else { continue };
            for site in code.system_calls(&CALLS) {
                let Ok(window) = site.window else {
                    refused += 1;
                    continue;
                };
                let at = |stated: u64| stated.wrapping_add(module.bias);
                wanted.push(Seen { module: index, window: at(window.start)..at(window.end), what: 0 });
            }
        }
        let all = self.patch_sites(&wanted)?;
        Ok((all.iter().filter(|r| r.is_ok()).count(), refused + all.iter().filter(|r| r.is_err()).count()))
    }

    /// Has visits of an address counted as those of a progress point.
    ///
    /// # Errors
    /// [`ProbeError`] when the target could not be stopped; the inner error tells why this place cannot be seen.
    pub fn pace_point(&mut self, address: u64, number: u8) -> Result<Result<(), Refusal>, ProbeError> {
        let holds = |m: &super::Module| !m.gone && (m.start..m.end).contains(&address);
        let Some(index) = self.modules.list().iter().position(holds) else { return Ok(Err(Refusal::NotMapped)) };
        let module = &self.modules.list()[index];
        let Some(code) = module.image().and_then(|image| image.code()) else { return Ok(Err(Refusal::NotMapped)) };
        let windows = match code.places(Svma(address.wrapping_sub(module.bias))) {
            Ok(windows) => windows,
            Err(refusal) => return Ok(Err(reason(refusal))),
        };
        let bias = module.bias;
        let at = |stated: u64| stated.wrapping_add(bias);
        let mut first = None;
        for window in windows {
            let window = at(window.start)..at(window.end);
            let wanted = [Seen { module: index, window, what: number.saturating_add(1) }];
            match self.patch_sites(&wanted)?.pop().unwrap_or(Err(Refusal::NotMapped)) {
                Ok(()) => return Ok(Ok(())),
                // Another point has this place, or a thread stands in it.
                Err(refusal) => first.get_or_insert(refusal),
            };
        }
        Ok(Err(first.unwrap_or(Refusal::NotMapped)))
    }

    /// Patches places, all in one stop.
    fn patch_sites(&mut self, wanted: &[Seen]) -> Result<Vec<Result<(), Refusal>>, ProbeError> {
        let _haste = Haste::begin();
        let mut counts: FxHashMap<(u64, u64), usize> = FxHashMap::default();
        for seen in wanted {
            if let Some(module) = self.modules.list().get(seen.module) {
                *counts.entry((module.start, module.end)).or_default() += 1;
            }
        }
        let counts: Vec<(Range<u64>, usize)> = counts.into_iter().map(|((start, end), n)| (start..end, n)).collect();
        self.reserve(&counts)?;
        let mut results = Vec::new();
        let mut patches = Vec::new();
        for seen in wanted {
            let made = self.site_patch(seen);
            results.push(made.as_ref().map(|_| ()).map_err(Clone::clone));
            patches.extend(made);
        }
        self.write(Vec::new(), patches, &mut Added::default())?;
        let stands = |at: u64| self.notices.iter().any(|patch| patch.window.start == at);
        for (seen, result) in wanted.iter().zip(&mut results) {
            if result.is_ok() && !stands(seen.window.start) {
                let what = "a thread stood in them all the while".into();
                *result = Err(Refusal::Immovable { what });
            }
        }
        Ok(results)
    }

    fn site_patch(&mut self, seen: &Seen) -> Result<Patch, Refusal> {
        let module = self.modules.list().get(seen.module).ok_or(Refusal::NotMapped)?;
        let around = module.start..module.end;
        let from = seen.window.start;
        let mut bytes = vec![0; (seen.window.end - from) as usize];
        Memory::open(self.pid).and_then(|m| m.read(from, &mut bytes)).map_err(|_| Refusal::NotMapped)?;
        if !self.is_of_file(seen.module, from, &bytes) {
            return Err(Refusal::Foreign);
        }
        if !self.is_unclaimed(from) {
            return Err(Refusal::BranchInto { from });
        }
        let seat = self.seat.as_ref().ok_or(Refusal::NotMapped)?;
        let (index, root) = seat.allocate_point().ok_or(Refusal::TooMany)?;
        let at = self.arenas.take(&around, 1).ok_or(Refusal::NoRoom)?;
        let common = seat.common(abi::DO_SITE);
        let (stub, first) = site_stub(index, common, from, &bytes, at, seen.what == 0)?;
        self.arenas.shrink(at, stub.bytes.len() as u64);
        let new = jump(from, first).ok_or(Refusal::NoRoom)?.to_vec();
        let writes = vec![Write { at: from, old: bytes[..5].to_vec(), new }];
        let mut original = [0; 16];
        original[..5].copy_from_slice(&bytes[..5]);
        let words = abi::Point {
            address: from,
            relocated: stub.relocated,
            state: abi::POINT_ON,
            flags: abi::DO_SITE,
            lock: seen.what,
            root,
            module: u16::try_from(seen.module).unwrap_or(u16::MAX),
            patch: 1,
            window: bytes.len() as u8,
            original,
            stub: first,
            ..abi::Point::default()
        };
        seat.segment.set_point(index, &words);
        self.claimed.insert(from);
        Ok(Patch { writes, window: seen.window.clone(), stub, stub_at: at, gate: None })
    }

    fn is_of_file(&self, module: usize, at: u64, bytes: &[u8]) -> bool {
        let Some(module) = self.modules.list().get(module) else { return false };
        let stated = at.wrapping_sub(module.bias);
        let code = module.image().and_then(|image| image.code());
        code.and_then(|code| code.bytes().get(stated..stated.saturating_add(bytes.len() as u64))) == Some(bytes)
    }

    fn in_target(&mut self, what: &'static str, symbol: Symbol, word: u64) -> Result<u64, ProbeError> {
        let seat = self.seat.as_ref().ok_or(ProbeError::NoAgent { pid: self.pid })?;
        let function = seat.symbol(symbol);
        if let Hold::Borrowed(caller) = &mut self.hold {
            return caller.call(what, function, &[word]);
        }
        let mut caller = Caller::pick_avoiding(self.pid, &self.our_code())?;
        let answer = caller.call(what, function, &[word]);
        let _ = caller.release();
        answer
    }

    /// Gives a process its signal back before the handler's code goes.
    pub(super) fn end_pace(&self, pid: u32, seat: &Seat) -> Result<(), ProbeError> {
        let signal = Pace::new(Arc::clone(&seat.segment)).get(PaceWord::Signal);
        if signal == 0 {
            return Ok(());
        }
        let mut caller = Caller::pick_avoiding(pid, &self.our_code_with(seat))?;
        let answer = caller.call("the agent's end of ticks", seat.symbol(Symbol::PaceStop), &[signal]);
        let _ = caller.release();
        answer.map(drop)
    }

    fn our_code_with(&self, seat: &Seat) -> Vec<Range<u64>> {
        let mut ranges = self.arenas.ranges();
        ranges.push(seat.placed.image.clone());
        ranges
    }
}

fn reason(refusal: EntryRefusal) -> Refusal {
    match refusal {
        EntryRefusal::TooShort { bytes } => Refusal::TooShort { bytes },
        EntryRefusal::BranchInto { from } => Refusal::BranchInto { from },
        EntryRefusal::CallInside => Refusal::CallInside,
        EntryRefusal::ReturnInside => Refusal::ReturnInside,
        EntryRefusal::Immovable { what } => Refusal::Immovable { what },
        EntryRefusal::NotCode => Refusal::NotMapped,
        _ => Refusal::Undecodable,
    }
}
