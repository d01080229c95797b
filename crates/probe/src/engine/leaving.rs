//! The way out of a target, and into one whose controller is gone. Order of leaving: no entry records
//! any more; text restored, so that nobody comes in; a moment when nobody is inside; true return
//! addresses back on all stacks; everything unmapped. Constraint: what cannot be proved safe stays mapped
//! and is said.

use super::clock::{self, Clock};
use super::ours;
use super::points::{self, Point};
use super::polling::has_memory;
use super::seat::Seat;
use super::{Engine, Hold};
use crate::agent::{EXIT_BYTES, SHADOW, SHADOW_BLOCK, Symbol};
use crate::api::{Candidate, CostClass, Detached, PointId, Refusal};
use crate::apply::{self, Haste, Patch, Write};
use crate::error::ProbeError;
use crate::resolve;
use crate::segment::{Segment, field};
use crate::stub::{COPY, Stub, jump, stub};
use crate::target::{self, Caller, Memory, Owned, Placed, Shadows, Stopped, find_agent, maps};
use std::ops::Range;
use std::time::Duration;
use whither_abi::agent as abi;
use whither_kernel::proc;
use whither_store::calls::{PatchKind, PointState};

/// How long threads may take to come out of the agent.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long threads that sleep out of reach are looked at before nobody does any more.
const LAST: Duration = Duration::from_millis(200);

impl Engine {
    pub(super) fn leave(&mut self) -> Result<Detached, ProbeError> {
        let left = self.leave_all();
        target::tend_for(LAST);
        left
    }

    fn leave_all(&mut self) -> Result<Detached, ProbeError> {
        self.gather();
        self.tree.look();
        let Some(mut seat) = self.seat.take() else {
            self.resume()?;
            return Ok(Detached::default());
        };
        seat.segment.set_header32(field::ENABLED, 0);
        // Nobody answers any more who loads a library.
        seat.segment.wake(field::LOADS_SEEN);
        let _haste = Haste::begin();
        let mut detached = Detached::default();
        let restored = self.book.list().iter().filter(|p| p.state != PointState::Removed && p.patch.is_some());
        detached.restored = restored.count();
        let mut pids = self.tree.alive();
        // By it another controller would find the others, should we be killed now.
        pids.sort_by_key(|&pid| pid == self.pid);
        for pid in pids {
            match self.leave_one(pid, &seat, &mut detached) {
                Ok(()) => {}
                Err(ProbeError::Ended { .. } | ProbeError::Executed { .. }) => {}
                // It has ended meanwhile, or is about to: nothing is left in it.
                Err(_) if !has_memory(pid) => {}
                Err(error) if pid == self.pid => {
                    seat.segment.set_header32(field::ENABLED, 1);
                    self.seat = Some(seat);
                    return Err(error);
                }
                Err(error) => detached.left.push(format!("process {pid}: {error}")),
            }
        }
        seat.stop_heart();
        self.resume()?;
        Ok(detached)
    }

    fn leave_one(&mut self, pid: u32, seat: &Seat, detached: &mut Detached) -> Result<(), ProbeError> {
        let held = match std::mem::replace(&mut self.hold, Hold::Runs) {
            Hold::Borrowed(caller) if proc::threads(pid).len() == 1 => Some(*caller),
            // Threads that libraries have started may be anywhere.
            Hold::Borrowed(caller) => {
                let _ = caller.release();
                None
            }
            other => {
                self.hold = other;
                None
            }
        };
        self.end_pace(pid, seat)?;
        // Exceptions pass through our exits as long as any is on a stack.
        let (last, first): (Vec<&Patch>, Vec<&Patch>) = self
            .book
            .list()
            .iter()
            .filter(|p| p.state != PointState::Removed)
            .filter_map(|p| p.patch.as_ref())
            .chain(&self.notices)
            .partition(|patch| self.teaches(patch));
        let mut nothing_stays = self.take_back(pid, seat, held.as_ref(), &first, detached)?;
        if nothing_stays && !last.is_empty() {
            nothing_stays = self.take_back(pid, seat, held.as_ref(), &last, detached)?;
        }
        if !nothing_stays {
            return Ok(());
        }
        let mut caller = match held {
            Some(caller) => caller,
            None => Caller::pick(pid)?,
        };
        let all = maps::read(pid);
        let image = seat.placed.image.start;
        let mut others = ours::shadows(caller.memory(), image, &all);
        others.extend(self.arenas.ranges().into_iter().map(|range| Owned { range, entry: None }));
        match ours::private_memory(caller.memory(), pid, image, &all) {
            Ok(ranges) => others.extend(ranges),
            Err(why) => detached.left.push(format!("process {pid}: private memory of the agent: {why}")),
        }
        let Ok(file) = seat.placed.file.try_clone() else { return Ok(()) };
        let placed = Placed {
            pid,
            way: seat.placed.way,
            image: seat.placed.image.clone(),
            segment: seat.placed.segment,
            segment_bytes: seat.placed.segment_bytes,
            file,
        };
        detached.left.extend(target::remove(&mut caller, &placed, &others));
        let _ = caller.release();
        Ok(())
    }

    /// Restores what these patches have changed, until nothing of them is in use; false when something must stay.
    fn take_back(
        &self,
        pid: u32,
        seat: &Seat,
        held: Option<&Caller>,
        patches: &[&Patch],
        detached: &mut Detached,
    ) -> Result<bool, ProbeError> {
        let outcome = apply::uninstall(pid, held, patches, &|pid, at| self.modules.lost(pid, at))?;
        detached.pause = detached.pause.max(outcome.pause);
        let changed = outcome.failed.len();
        if changed > 0 {
            detached.left.push(format!(
                "process {pid}: {changed} functions whose bytes somebody else has changed, and the agent with them"
            ));
        }
        let cleared = held.is_some() || self.clear_stacks(pid, seat, patches, detached)?;
        Ok(cleared && changed == 0)
    }

    /// Puts true return addresses back at a moment when nobody is inside of our code; false when something
    /// must stay.
    fn clear_stacks(
        &self,
        pid: u32,
        seat: &Seat,
        patches: &[&Patch],
        detached: &mut Detached,
    ) -> Result<bool, ProbeError> {
        let mut code = self.arenas.ranges();
        code.push(seat.symbol(Symbol::CodeBegin)..seat.symbol(Symbol::CodeEnd));
        let (mut stopped, caught) = target::stop_outside(pid, &code, PATIENCE)?;
        let stuck = !caught.is_empty() && !bring_back(&mut stopped, patches, &code);
        let blocks = ours::shadow_blocks(stopped.memory(), seat.placed.image.start);
        let returns = ours::returns(stopped.memory(), seat.placed.image.start);
        let shadows = Shadows {
            exits: seat.exits(),
            exit_bytes: EXIT_BYTES,
            returns: &returns,
            distance: SHADOW,
            blocks: &blocks,
            block_bytes: SHADOW_BLOCK,
        };
        let elsewhere = copied_returns(pid, seat, stopped.memory());
        let restored = target::restore_returns(&stopped, &shadows)?;
        detached.returns += restored.returns;
        detached.pause = detached.pause.max(stopped.release());
        if stuck {
            detached.left.push(format!("process {pid}: the agent, threads {caught:?} are inside of it"));
            return Ok(false);
        }
        if elsewhere > 0 {
            detached.left.push(format!(
                "process {pid}: the agent, for {elsewhere} calls will return through it from copies of stacks that the program keeps"
            ));
            return Ok(false);
        }
        if !restored.unknown.is_empty() {
            let count = restored.unknown.len();
            detached
                .left
                .push(format!("process {pid}: the agent, the true return addresses of {count} calls are lost"));
            return Ok(false);
        }
        Ok(true)
    }

    pub(super) fn take_seat(&mut self) -> Result<(), ProbeError> {
        if let Some(placed) = find_agent(self.pid)? {
            let segment = Segment::map(&placed.file)?;
            let controller = segment.header32(field::CONTROLLER);
            if controller != 0 && controller != std::process::id() && is_looked_after(&segment, controller) {
                return Err(ProbeError::Controlled { pid: self.pid, controller });
            }
        }
        target::heal(self.pid)?;
        let placed = find_agent(self.pid)?.ok_or(ProbeError::NoAgent { pid: self.pid })?;
        let seat = Seat::found(placed, &self.options)?;
        self.adopt_points(&seat)?;
        self.modules.adopt(&seat.segment);
        self.seat = Some(seat);
        self.gather();
        Ok(())
    }

    /// Points that another controller has set, or was about to: whether their text was written shows in the text.
    fn adopt_points(&mut self, seat: &Seat) -> Result<(), ProbeError> {
        let all = maps::read(self.pid);
        let memory = Memory::open(self.pid)?;
        for range in ours::arenas(&seat.segment, &memory, &all) {
            self.arenas.adopt(range);
        }
        for index in 1..seat.segment.n_points() {
            let words = seat.segment.point(index);
            let hidden = seat.placed.image.contains(&words.address);
            if words.state == abi::POINT_FREE || hidden || ours::is_arena_note(&words) {
                continue;
            }
            // What was not written yet, or is back already, or was in a library that is gone, needs nothing.
            let patch = rebuild(index, &words, seat, &memory).filter(|patch| apply::stands(&memory, patch));
            let state = match (words.state, &patch) {
                (abi::POINT_ON, Some(_)) => PointState::On,
                (abi::POINT_OFF, Some(_)) => PointState::Off,
                _ => PointState::Removed,
            };
            let is_notice = words.flags & abi::NOT_ASKED_FOR != 0;
            if is_notice || state == PointState::Removed {
                self.notices.extend(patch);
                seat.segment.set_point_state(index, if is_notice { words.state } else { abi::POINT_GONE });
            } else {
                let patch = patch.inspect(|p| self.claimed.extend(p.writes.iter().map(|w| w.at)));
                let candidate = self.candidate_of(&words);
                let (id, values) = (PointId(0), Vec::new());
                self.book.push(Point { id, index, candidate, flags: words.flags, values, state, patch });
            }
        }
        Ok(())
    }

    fn candidate_of(&self, words: &abi::Point) -> Candidate {
        let patch = points::patch_kind(words.patch).unwrap_or(PatchKind::Jump);
        let found = resolve::candidate_at(self.modules.list(), words.address);
        let found = found.filter(|c| c.address == words.address);
        let unknown = || {
            let (module, offset) = self.modules.place(words.address.wrapping_add(1));
            Candidate {
                address: words.address,
                module: module as usize,
                offset: offset.wrapping_sub(1),
                size: 0,
                names: vec![format!("{:#x}", words.address)],
                patch: Err(Refusal::NotMapped),
                cost: CostClass::Nanoseconds,
                entry_only: None,
                callers: Vec::new(),
            }
        };
        let mut found = Candidate { patch: Ok(patch), ..found.unwrap_or_else(unknown) };
        if words.relocated.wrapping_sub(words.stub) > COPY && words.flags & abi::DO_SITE == 0 {
            // Which callers they are stands in the gate's code alone.
            found.names.iter_mut().take(1).for_each(|name| name.push_str("@..."));
        }
        found
    }
}

/// Takes away what agents have mapped whose controllers were killed on their way out.
pub(super) fn finish(caller: &mut Caller) {
    for old in target::retired(caller.pid()) {
        let (memory, image) = (caller.memory(), old.image.start);
        if ours::is_same_agent(memory, image).is_err() {
            continue;
        }
        let all = maps::read(caller.pid());
        let mut owned = ours::shadows(memory, image, &all);
        owned.extend(ours::private_memory(memory, caller.pid(), image, &all).unwrap_or_default());
        for segment in old.segments.iter().filter_map(|file| Segment::map(file).ok()) {
            if segment.header(field::MAGIC) == abi::AGENT_MAGIC && segment.header32(field::ABI) == abi::AGENT_ABI {
                let arenas = ours::arenas(&segment, memory, &all).into_iter();
                owned.extend(arenas.map(|range| Owned { range, entry: None }));
            }
        }
        // What stays cannot be told from the program's own.
        let _ = target::unmap(caller, &owned);
    }
}

/// Calls in progress that are not where they were entered, of a program that copies stacks: what it puts back later holds
/// our exit address. Calls that were jumped out of look the same.
fn copied_returns(pid: u32, seat: &Seat, memory: &Memory) -> usize {
    let segment = &seat.segment;
    if segment.header32(field::STACKS_COPIED) == 0 {
        return 0;
    }
    let exits = seat.exits();
    let alive = |thread: u32| {
        let block = segment.thread(thread);
        block.state == abi::THREAD_LIVE && block.pid == pid && proc::threads(pid).contains(&block.tid)
    };
    let calls = (0..segment.n_threads()).filter(|&thread| alive(thread)).flat_map(|thread| segment.active(thread));
    calls.filter(|call| !memory.word(call.slot).is_ok_and(|word| exits.contains(&word))).count()
}

/// The patch of a point from the words in the segment and from the text, of which its writes change only the first
/// bytes.
fn rebuild(index: u32, words: &abi::Point, seat: &Seat, memory: &Memory) -> Option<Patch> {
    let from = words.address.checked_add(u64::from(words.skip))?;
    let short = points::patch_kind(words.patch) == Some(PatchKind::ShortJump);
    let changed = if short { 2 } else { 5 };
    let mut window = vec![0; usize::from(words.window).max(changed)];
    memory.read(from, &mut window).ok()?;
    let writes = if short {
        let filler = from.wrapping_add(2).wrapping_add_signed(i64::from(words.original[3].cast_signed()));
        let new = jump(filler, words.stub)?.to_vec();
        vec![
            Write { at: filler, old: words.original[11..].to_vec(), new },
            Write { at: from, old: words.original[..2].to_vec(), new: words.original[2..4].to_vec() },
        ]
    } else {
        vec![Write { at: from, old: words.original[..5].to_vec(), new: jump(from, words.stub)?.to_vec() }]
    };
    window[..changed].copy_from_slice(&words.original[..changed]);
    window.truncate(usize::from(words.window));
    // Without its map threads in it must be waited for.
    let unknown = |_| Stub { bytes: Vec::new(), relocated: words.relocated, map: Vec::new() };
    let made = match words.flags & abi::DO_SITE {
        // Whatever gate there is, it stands before this.
        0 => stub(index, seat.common(words.flags), from, &window, words.relocated.wrapping_sub(COPY))
            .unwrap_or_else(unknown),
        _ => unknown(Refusal::Undecodable),
    };
    Some(Patch { writes, window: from..from + u64::from(words.window), stub: made, stub_at: words.stub, gate: None })
}

/// Leads threads from copies of displaced instructions back to the text; false when one is elsewhere.
fn bring_back(stopped: &mut Stopped, patches: &[&Patch], code: &[Range<u64>]) -> bool {
    let back = |ip: u64| patches.iter().find_map(|p| p.stub.back(ip));
    stopped.move_ips(&back).is_ok() && target::inside(stopped, code).is_empty()
}

/// Whether the controller named in a segment still looks after it: it exists, and it gave a sign of late.
fn is_looked_after(segment: &Segment, controller: u32) -> bool {
    const OF_LATE: Duration = Duration::from_secs(2);
    let silence = clock::now().wrapping_sub(segment.header(field::HEARTBEAT));
    let alive = proc::status_word(controller, "State:").is_some_and(|s| !s.starts_with(['Z', 'X']));
    alive && silence < Clock::get().ticks(OF_LATE)
}
