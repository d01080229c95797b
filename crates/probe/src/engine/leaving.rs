//! The way out of a target, and into one whose controller is gone. Order of leaving: no entry records
//! any more; text restored, so that nobody comes in; a moment when nobody is inside; true return
//! addresses back on all stacks; everything unmapped. Constraint: what cannot be proved safe stays mapped
//! and is said.

use super::clock::{self, Clock};
use super::ours;
use super::points::{self, Point};
use super::seat::Seat;
use super::{Engine, Hold};
use crate::agent::{SHADOW, SHADOW_BLOCK, Symbol};
use crate::api::{Candidate, CostClass, Detached, PointId, Refusal};
use crate::apply::{self, Haste, Patch, Write};
use crate::error::ProbeError;
use crate::resolve;
use crate::segment::{Segment, field};
use crate::stub::{jump, stub};
use crate::target::{self, Caller, Memory, Placed, Shadows, Stopped, find_agent, maps};
use std::ops::Range;
use std::time::Duration;
use whither_abi::agent as abi;
use whither_kernel::proc;
use whither_store::calls::{PatchKind, PointState};

/// How long threads may take to come out of the agent.
const PATIENCE: Duration = Duration::from_secs(2);

impl Engine {
    pub(super) fn leave(&mut self) -> Result<Detached, ProbeError> {
        self.gather();
        self.tree.look();
        let Some(mut seat) = self.seat.take() else {
            self.resume()?;
            return Ok(Detached::default());
        };
        seat.segment.set_header32(field::ENABLED, 0);
        let _haste = Haste::begin();
        let mut detached = Detached::default();
        let restored = self.book.list().iter().filter(|p| p.state != PointState::Removed && p.patch.is_some());
        detached.restored = restored.count();
        for pid in self.tree.alive() {
            match self.leave_one(pid, &seat, &mut detached) {
                Ok(()) => {}
                Err(ProbeError::Ended { .. } | ProbeError::Executed { .. }) => {}
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
        let patches: Vec<&Patch> = self
            .book
            .list()
            .iter()
            .filter(|p| p.state != PointState::Removed)
            .filter_map(|p| p.patch.as_ref())
            .chain(&self.notices)
            .collect();
        let outcome = apply::uninstall(pid, held.as_ref(), &patches)?;
        detached.pause = detached.pause.max(outcome.pause);
        let changed = outcome.failed.len();
        if changed > 0 {
            detached.left.push(format!("process {pid}: {changed} functions whose bytes somebody else has changed"));
        }
        let blocks = match &held {
            Some(caller) => Some(ours::shadow_blocks(caller.memory(), seat)),
            None => self.clear_stacks(pid, seat, &patches, detached)?,
        };
        let Some(blocks) = blocks else { return Ok(()) };
        if changed > 0 {
            return Ok(());
        }
        let mut caller = match held {
            Some(caller) => caller,
            None => Caller::pick(pid)?,
        };
        let all = maps::read(pid);
        let mut others = ours::shadows_of(&blocks, &all);
        others.extend(self.arenas.ranges());
        match ours::private_memory(caller.memory(), pid, seat, &all) {
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

    /// Puts true return addresses back at a moment when nobody is inside of our code; the stack
    /// blocks whose shadow is not needed any more, `None` when something must stay.
    fn clear_stacks(
        &self,
        pid: u32,
        seat: &Seat,
        patches: &[&Patch],
        detached: &mut Detached,
    ) -> Result<Option<Vec<u64>>, ProbeError> {
        let mut code = self.arenas.ranges();
        code.push(seat.symbol(Symbol::CodeBegin)..seat.symbol(Symbol::CodeEnd));
        let (mut stopped, caught) = target::stop_outside(pid, &code, PATIENCE)?;
        let stuck = !caught.is_empty() && !bring_back(&mut stopped, patches, &code);
        let blocks = ours::shadow_blocks(stopped.memory(), seat);
        let shadows = Shadows {
            exit: seat.symbol(Symbol::ExitAddress),
            distance: SHADOW,
            blocks: &blocks,
            block_bytes: SHADOW_BLOCK,
        };
        let restored = target::restore_returns(&stopped, &shadows)?;
        detached.returns += restored.returns;
        detached.pause = detached.pause.max(stopped.release());
        if stuck {
            detached.left.push(format!("process {pid}: the agent, threads {caught:?} are inside of it"));
            return Ok(None);
        }
        if !restored.unknown.is_empty() {
            let count = restored.unknown.len();
            detached
                .left
                .push(format!("process {pid}: the agent, the true return addresses of {count} calls are lost"));
            return Ok(None);
        }
        Ok(Some(blocks))
    }

    pub(super) fn take_seat(&mut self) -> Result<(), ProbeError> {
        let placed = find_agent(self.pid)?.ok_or(ProbeError::NoAgent { pid: self.pid })?;
        let segment = Segment::map(&placed.file)?;
        let controller = segment.header32(field::CONTROLLER);
        if controller != 0 && controller != std::process::id() && is_looked_after(&segment, controller) {
            return Err(ProbeError::Controlled { pid: self.pid, controller });
        }
        drop(segment);
        let seat = Seat::found(placed, &self.options)?;
        self.adopt_points(&seat);
        self.modules.adopt(&seat.segment);
        self.seat = Some(seat);
        self.gather();
        Ok(())
    }

    /// Points that another controller has set.
    fn adopt_points(&mut self, seat: &Seat) {
        let all = maps::read(self.pid);
        let Ok(memory) = Memory::open(self.pid) else { return };
        for index in 1..seat.segment.n_points() {
            let words = seat.segment.point(index);
            if let Some(range) = ours::arena_around(words.stub, &all) {
                self.arenas.adopt(range);
            }
            let hidden = seat.placed.image.contains(&words.address);
            if words.state == abi::POINT_FREE || hidden {
                continue;
            }
            let patch = rebuild(index, &words, seat, &memory);
            if words.flags & (abi::DO_LOADER | abi::DO_LOCK) != 0 {
                self.notices.extend(patch);
                continue;
            }
            let state = match words.state {
                abi::POINT_ON => PointState::On,
                abi::POINT_OFF => PointState::Off,
                _ => PointState::Removed,
            };
            let candidate = self.candidate_of(&words);
            let (id, values) = (PointId(0), Vec::new());
            self.book.push(Point { id, index, candidate, flags: words.flags, values, state, patch });
        }
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
            }
        };
        Candidate { patch: Ok(patch), ..found.unwrap_or_else(unknown) }
    }
}

/// The patch of a point from the words in the segment, checked against the text.
fn rebuild(index: u32, words: &abi::Point, seat: &Seat, memory: &Memory) -> Option<Patch> {
    let from = words.address.checked_add(u64::from(words.skip))?;
    let window = words.original.get(..usize::from(words.window))?;
    let made = stub(index, seat.common(words.flags), from, window, words.stub).ok()?;
    let short = points::patch_kind(words.patch) == Some(PatchKind::ShortJump);
    let writes = if short {
        let mut now = [0; 2];
        memory.read(from, &mut now).ok()?;
        let filler = from.wrapping_add(2).wrapping_add_signed(i64::from(now[1].cast_signed()));
        let new = jump(filler, words.stub)?.to_vec();
        vec![
            Write { at: filler, old: words.original[11..].to_vec(), new },
            Write { at: from, old: words.original[..2].to_vec(), new: now.to_vec() },
        ]
    } else {
        vec![Write { at: from, old: words.original[..5].to_vec(), new: jump(from, words.stub)?.to_vec() }]
    };
    Some(Patch { writes, window: from..from + u64::from(words.window), stub: made, stub_at: words.stub })
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
