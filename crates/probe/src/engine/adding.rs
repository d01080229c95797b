//! Points added and taken back. Everything slow happens before the stop: reading code, making stubs,
//! mapping memory for them; then one stop per process, a few bytes each.

use super::points::{self, Point};
use super::polling::{has_memory, shares};
use super::{Engine, Hold, kernel_points, loader};
use crate::api::{Added, Candidate, Pause, PointId, PointSpec, Refusal, Removed};
use crate::apply::arena::{self, Arenas};
use crate::apply::{self, Haste, Outcome, Patch, Write, write_stubs};
use crate::error::ProbeError;
use crate::gate::Gate;
use crate::resolve::{self, ModuleImage, ModuleView};
use crate::stub::{gated_stub, jump, short_jump};
use crate::target::{self, Caller, Crowd, Memory, maps};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;
use std::time::Duration;
use whither_abi::agent as abi;
use whither_image::{Plan, PlanKind};
use whither_kernel::proc;
use whither_store::calls::{PatchKind, PointState};

/// How long a thread that slept out of reach during a stop is waited for, before something that lasts: a child of `vfork` becomes
/// another program in less, and who sleeps on is looked at later.
const A_MOMENT: Duration = Duration::from_millis(20);

/// A point about to be written.
pub(super) struct Ready {
    pub(super) candidate: Candidate,
    pub(super) kind: PatchKind,
    pub(super) flags: u32,
    pub(super) values: Vec<String>,
    pub(super) index: u32,
    pub(super) patch: Patch,
}

/// What has to be known of the code of a point.
struct Place {
    plan: Plan,
    /// Only calls from some modules pass.
    gate: Option<Gate>,
    /// Code of its module: stubs must be within reach of all of it.
    around: Range<u64>,
}

impl Engine {
    pub(super) fn add_points(&mut self, specs: &[PointSpec]) -> Result<Added, ProbeError> {
        if !self.may_change {
            return Err(ProbeError::OnlyLooking { pid: self.pid });
        }
        let mut added = Added::default();
        let specs = self.as_declared(specs);
        let specs = self.widen(&specs, &mut added)?;
        let specs = self.add_by_kernel(&specs, &mut added);
        let (wanted, places) = self.choose(&specs, &mut added);
        if wanted.is_empty() {
            return Ok(added);
        }
        self.place_agent()?;
        target::tend_for(A_MOMENT);
        self.gather();
        let _haste = Haste::begin();
        let mapping = self.map_arenas(&places)?;
        let mut ready = Vec::new();
        let mut by_kernel = Vec::new();
        let exits_pass = self.teach_unwinder()?;
        let memory = Memory::open(self.pid)?;
        for (spec, place) in wanted.into_iter().zip(&places) {
            let mut by_address = spec.clone();
            if !exits_pass {
                by_address.candidate.entry_only.get_or_insert_with(|| loader::NO_WAY_FOR_EXCEPTIONS.into());
            }
            match self.make_ready(&by_address, place, &memory) {
                Ok(one) => ready.push(one),
                Err(refusal) if self.options.uprobes && kernel_points::may_serve(&refusal) => {
                    by_kernel.push(self.by_kernel(spec));
                }
                Err(refusal) => added.refused.push((name(&spec.candidate), refusal)),
            }
        }
        let notices = self.notice_patches();
        self.write(ready, notices, &mut added)?;
        target::tend_for(A_MOMENT);
        self.add_by_kernel(&by_kernel, &mut added);
        added.pause = added.pause.max(mapping);
        added.pause.held = added.pause.held.max(target::longest_borrowed());
        Ok(added)
    }

    /// The agent, and the probes of our own, without any point that was asked for.
    pub(super) fn add_only_notices(&mut self) -> Result<(), ProbeError> {
        self.place_agent()?;
        self.gather();
        let _haste = Haste::begin();
        self.map_arenas(&[])?;
        let notices = self.notice_patches();
        self.write(Vec::new(), notices, &mut Added::default())
    }

    /// Those that can be patched, with what is known of their code.
    fn choose<'a>(&self, specs: &'a [PointSpec], added: &mut Added) -> (Vec<&'a PointSpec>, Vec<Place>) {
        let mut seen = FxHashSet::default();
        let (mut wanted, mut places) = (Vec::new(), Vec::new());
        for spec in specs {
            let candidate = &spec.candidate;
            if !seen.insert(candidate.address) {
                continue;
            }
            match self.place(candidate) {
                Ok(place) => {
                    wanted.push(spec);
                    places.push(place);
                }
                Err(refusal) => added.refused.push((name(candidate), refusal)),
            }
        }
        (wanted, places)
    }

    fn place(&self, candidate: &Candidate) -> Result<Place, Refusal> {
        if let Some(id) = self.book.at(candidate.address) {
            return Err(Refusal::Already(id));
        }
        if let Err(refusal) = &candidate.patch {
            return Err(refusal.clone());
        }
        let module = self.modules.list().get(candidate.module).filter(|m| !m.gone).ok_or(Refusal::NotMapped)?;
        let plan = resolve::plan(module, candidate).ok_or(Refusal::Undecodable)?;
        let gate = (!candidate.callers.is_empty()).then(|| Gate::of(&candidate.callers)).transpose()?;
        Ok(Place { plan, gate, around: module.start..module.end })
    }

    /// Memory for all stubs, in every process. A module without room loses its points later, one by one.
    fn map_arenas(&mut self, places: &[Place]) -> Result<Pause, ProbeError> {
        let mut counts: FxHashMap<(u64, u64), usize> = FxHashMap::default();
        for place in places {
            let stubs = if place.gate.is_some() { arena::GATED } else { 1 };
            *counts.entry((place.around.start, place.around.end)).or_default() += stubs;
        }
        for code in self.notice_places() {
            *counts.entry((code.start, code.end)).or_default() += 1;
        }
        let wanted: Vec<(Range<u64>, usize)> = counts.into_iter().map(|((start, end), n)| (start..end, n)).collect();
        self.reserve(&wanted)
    }

    /// The same for so many stubs of code in each range; says how long the target was held up for it.
    pub(super) fn reserve(&mut self, wanted: &[(Range<u64>, usize)]) -> Result<Pause, ProbeError> {
        let pids = self.tree.alive();
        let mut all: Vec<maps::Map> = pids.iter().flat_map(|&pid| maps::read(pid)).collect();
        all.sort_by_key(|m| m.start);
        let avoid = self.our_code();
        let mut arenas: Arenas = std::mem::take(&mut self.arenas);
        // Let go after the borrowed ones, also when something fails.
        let mut crowd = Crowd::default();
        let mut callers: Vec<Caller> = Vec::new();
        let mut trouble = None;
        for (around, count) in wanted {
            let mut map = |at: u64, bytes: u64| {
                if let Some(seat) = &self.seat {
                    seat.note_arena(at, bytes)?;
                }
                if let Hold::Borrowed(caller) = &mut self.hold {
                    return arena::map_in(caller, at, bytes);
                }
                if callers.is_empty() {
                    let crowded: Vec<u32> = pids.iter().copied().filter(|&pid| target::is_crowded(pid)).collect();
                    callers = borrow_all(&pids, self.pid, &avoid)?;
                    crowd.stop(&callers, &crowded);
                }
                map_in_all(&mut callers, at, bytes)
            };
            if let Err(refusal) = arenas.reserve(around, *count, &mut all, &mut map) {
                trouble = Some(refusal);
            }
        }
        drop(callers);
        self.arenas = arenas;
        if let Some(refusal) = trouble {
            self.note(format!("memory for some stubs could not be mapped: {refusal}"));
        }
        Ok(crowd.release())
    }

    fn make_ready(&mut self, spec: &PointSpec, place: &Place, memory: &Memory) -> Result<Ready, Refusal> {
        let candidate = &spec.candidate;
        let flags = points::flags(&spec.actions, candidate.entry_only.is_some())
            | points::of_callers(candidate)
            | if self.modules.is_of_go(candidate.module) { abi::DO_ANY_SLOT } else { 0 };
        let seat = self.seat.as_mut().ok_or(Refusal::NotMapped)?;
        let (extras, values) = points::extras(&spec.actions, &|counter| seat.counter(counter));
        let (index, root) = seat.allocate_point().ok_or(Refusal::TooMany)?;
        let first = seat.put_extras(&extras);
        let patch = self.patch(index, flags, candidate, place, memory)?;
        let kind = match place.plan.kind {
            PlanKind::Jump => PatchKind::Jump,
            PlanKind::Padded => PatchKind::PaddedJump,
            PlanKind::Short => PatchKind::ShortJump,
        };
        let words = abi::Point {
            address: candidate.address,
            relocated: patch.stub.relocated,
            state: abi::POINT_ON,
            flags,
            root,
            extras: first,
            n_extras: if first == 0 { 0 } else { extras.len() as u16 },
            module: u16::try_from(candidate.module).unwrap_or(u16::MAX),
            patch: points::patch_number(kind),
            window: place.plan.window,
            skip: place.plan.skip,
            lock: 0,
            original: original(&patch),
            stub: patch.stub_at,
        };
        if let Some(seat) = &self.seat {
            seat.segment.set_point(index, &words);
        }
        Ok(Ready { candidate: candidate.clone(), kind, flags, values, index, patch })
    }

    /// Stub and bytes for one function; the bytes in memory must be those of the file.
    fn patch(
        &mut self,
        index: u32,
        flags: u32,
        candidate: &Candidate,
        place: &Place,
        memory: &Memory,
    ) -> Result<Patch, Refusal> {
        let seat = self.seat.as_ref().ok_or(Refusal::NotMapped)?;
        let common = seat.common(flags);
        let plan = &place.plan;
        let from = candidate.address + u64::from(plan.skip);
        let read = |at: u64, length: usize| self.unchanged(memory, candidate, at, length);
        let jump_bytes = if plan.kind == PlanKind::Short { 2 } else { 5 };
        let bytes = read(from, usize::from(plan.window).max(jump_bytes))?;
        let window = bytes.get(..usize::from(plan.window)).ok_or(Refusal::Undecodable)?;
        let filler = match plan.kind {
            PlanKind::Short => {
                let at =
                    self.free_filler(candidate, &plan.fillers).ok_or(Refusal::TooShort { bytes: candidate.size })?;
                Some((at, read(at, 5)?))
            }
            _ => None,
        };
        let stubs = if place.gate.is_some() { arena::GATED } else { 1 };
        let at = self.arenas.take(&place.around, stubs).ok_or(Refusal::NoRoom)?;
        let made = gated_stub(index, common, from, window, at, place.gate.as_ref())?;
        self.arenas.shrink(at, made.bytes.len() as u64);
        let write = |at: u64, old: &[u8], new: &[u8]| Write { at, old: old[..new.len()].to_vec(), new: new.to_vec() };
        let writes = match &filler {
            Some((filler, old)) => vec![
                write(*filler, old, &jump(*filler, at).ok_or(Refusal::NoRoom)?),
                write(from, &bytes, &short_jump(from, *filler).ok_or(Refusal::NoRoom)?),
            ],
            None => vec![write(from, &bytes, &jump(from, at).ok_or(Refusal::NoRoom)?)],
        };
        // A neighbour's padding or filler may reach into these bytes.
        if let Some(write) = writes.iter().find(|w| !self.is_unclaimed(w.at)) {
            return Err(Refusal::BranchInto { from: write.at });
        }
        self.claimed.extend(writes.iter().map(|w| w.at));
        let window = from..from + u64::from(plan.window);
        Ok(Patch { writes, window, stub: made, stub_at: at, gate: place.gate.clone() })
    }

    /// Bytes in memory, if they are those of the file. A library may be unloaded and loaded again meanwhile.
    fn unchanged(&self, memory: &Memory, candidate: &Candidate, at: u64, length: usize) -> Result<Vec<u8>, Refusal> {
        const TRIES: u32 = 3;
        let mut bytes = Err(Refusal::NotMapped);
        for _ in 0..TRIES {
            bytes = self.compared(memory, candidate, at, length);
            if bytes != Err(Refusal::Foreign) {
                break;
            }
            if self.modules.lost(self.pid, &[at]) == [true] {
                return Err(Refusal::NotMapped);
            }
        }
        bytes
    }

    fn compared(&self, memory: &Memory, candidate: &Candidate, at: u64, length: usize) -> Result<Vec<u8>, Refusal> {
        let module = self.modules.list().get(candidate.module).ok_or(Refusal::NotMapped)?;
        let stated = module.image().and_then(ModuleImage::stated).ok_or(Refusal::NotMapped)?;
        let from = at.wrapping_sub(module.bias);
        let wanted = stated.get(from..from.saturating_add(length as u64)).ok_or(Refusal::NotMapped)?;
        let mut there = vec![0; length];
        memory.read(at, &mut there).map_err(|_| Refusal::NotMapped)?;
        if there == wanted { Ok(there) } else { Err(Refusal::of_difference(&there, wanted)) }
    }

    /// A piece of filler that no other point uses.
    fn free_filler(&self, candidate: &Candidate, fillers: &[whither_image::Svma]) -> Option<u64> {
        let module = self.modules.list().get(candidate.module)?;
        fillers.iter().map(|f| f.0.wrapping_add(module.bias)).find(|&at| self.is_unclaimed(at))
    }

    /// Whether five bytes from here on are no other point's.
    pub(super) fn is_unclaimed(&self, at: u64) -> bool {
        (at.saturating_sub(4)..at.saturating_add(5)).all(|a| !self.claimed.contains(&a))
    }

    /// The stop: stubs first, then the jumps, in every process.
    pub(super) fn write(
        &mut self,
        ready: Vec<Ready>,
        notices: Vec<Patch>,
        added: &mut Added,
    ) -> Result<(), ProbeError> {
        let mut patches: Vec<&Patch> = ready.iter().map(|r| &r.patch).collect();
        patches.extend(&notices);
        if patches.is_empty() {
            return Ok(());
        }
        let outcome = match self.install_everywhere(&patches) {
            Ok(outcome) => outcome,
            Err(error) => {
                for one in &ready {
                    self.drop_point(one.index);
                    self.unclaim(&one.patch);
                }
                return Err(error);
            }
        };
        added.pause = outcome.pause;
        let failed: FxHashMap<usize, Refusal> = outcome.failed.into_iter().collect();
        let first = ready.len();
        let kept = notices.into_iter().enumerate().filter(|(i, _)| !failed.contains_key(&(first + i)));
        self.notices.extend(kept.map(|(_, patch)| patch));
        for (place, one) in ready.into_iter().enumerate() {
            match failed.get(&place) {
                Some(refusal) => {
                    self.drop_point(one.index);
                    self.unclaim(&one.patch);
                    added.refused.push((name(&one.candidate), refusal.clone()));
                }
                None => added.ids.push(self.enter(one)),
            }
        }
        Ok(())
    }

    fn enter(&mut self, ready: Ready) -> PointId {
        let candidate = Candidate { patch: Ok(ready.kind), ..ready.candidate };
        self.book.push(Point {
            id: PointId(0),
            index: ready.index,
            candidate,
            flags: ready.flags,
            values: ready.values,
            state: PointState::On,
            patch: Some(ready.patch),
        })
    }

    fn drop_point(&self, index: u32) {
        if let Some(seat) = &self.seat {
            seat.segment.set_point_state(index, abi::POINT_GONE);
        }
    }

    fn unclaim(&mut self, patch: &Patch) {
        for write in &patch.writes {
            self.claimed.remove(&write.at);
        }
    }

    fn install_everywhere(&mut self, patches: &[&Patch]) -> Result<Outcome, ProbeError> {
        if let Hold::Borrowed(caller) = &self.hold {
            write_stubs(caller.memory(), patches)?;
            return apply::install(self.pid, Some(caller), patches, &|pid, at| self.modules.lost(pid, at));
        }
        let mut all = Outcome::default();
        let mut done = Vec::new();
        for pid in self.tree.alive() {
            let one = Memory::open(pid)
                .map_err(ProbeError::from)
                .and_then(|memory| write_stubs(&memory, patches))
                .and_then(|()| apply::install(pid, None, patches, &|pid, at| self.modules.lost(pid, at)));
            match one {
                Ok(one) => {
                    all.pause = all.pause.max(one.pause);
                    all.failed.extend(one.failed);
                    done.push(pid);
                }
                // It ended meanwhile, or is about to.
                Err(ProbeError::Ended { .. } | ProbeError::Executed { .. }) => {}
                Err(_) if !has_memory(pid) => {}
                Err(error) => {
                    self.tree.look();
                    if !self.tree.alive().contains(&pid) {
                        continue;
                    }
                    for pid in done {
                        let _ = apply::uninstall(pid, None, patches, &|pid, at| self.modules.lost(pid, at));
                    }
                    return Err(error);
                }
            }
        }
        self.undo_partial(&all, patches, &done);
        Ok(all)
    }

    /// What failed in one process must not stay in another.
    fn undo_partial(&self, all: &Outcome, patches: &[&Patch], done: &[u32]) {
        if all.failed.is_empty() || done.len() < 2 {
            return;
        }
        let failed: Vec<&Patch> = all.failed.iter().filter_map(|(i, _)| patches.get(*i).copied()).collect();
        for &pid in done {
            let _ = apply::uninstall(pid, None, &failed, &|pid, at| self.modules.lost(pid, at));
        }
    }

    pub(super) fn remove_points(&mut self, ids: &[PointId]) -> Result<Removed, ProbeError> {
        self.gather();
        let _haste = Haste::begin();
        let living = |id: &PointId| self.book.get(*id).is_some_and(|p| p.state != PointState::Removed);
        let ids: Vec<PointId> = ids.iter().copied().filter(living).collect();
        let mut removed = Removed::default();
        self.remove_by_kernel(&ids);
        let points: Vec<&Point> = ids.iter().filter_map(|id| self.book.get(*id)).collect();
        let with_patch: Vec<(PointId, &Patch)> =
            points.iter().filter_map(|p| Some((p.id, p.patch.as_ref()?))).collect();
        let patches: Vec<&Patch> = with_patch.iter().map(|(_, p)| *p).collect();
        let mut stuck = FxHashSet::default();
        let pids = if patches.is_empty() { Vec::new() } else { self.tree.alive() };
        for pid in pids {
            let held = match &self.hold {
                Hold::Borrowed(caller) => Some(&**caller),
                _ => None,
            };
            match apply::uninstall(pid, held, &patches, &|pid, at| self.modules.lost(pid, at)) {
                Ok(outcome) => {
                    removed.pause = removed.pause.max(outcome.pause);
                    stuck.extend(outcome.failed.iter().filter_map(|(i, _)| Some(with_patch.get(*i)?.0)));
                }
                Err(ProbeError::Ended { .. } | ProbeError::Executed { .. }) => {}
                Err(_) if !has_memory(pid) => {}
                Err(error) => return Err(error),
            }
        }
        self.close(&ids, &stuck, &mut removed);
        Ok(removed)
    }

    fn close(&mut self, ids: &[PointId], stuck: &FxHashSet<PointId>, removed: &mut Removed) {
        for &id in ids {
            let Some(point) = self.book.get_mut(id) else { continue };
            let index = point.index;
            let is_ours = point.patch.is_some();
            if stuck.contains(&id) {
                let names = point.candidate.names.join(", ");
                self.note(format!("#{} {names}: its bytes were changed by somebody else and are left so", id.0));
                continue;
            }
            point.state = PointState::Removed;
            let patch = point.patch.take();
            if is_ours {
                self.drop_point(index);
            }
            if let Some(patch) = patch {
                self.unclaim(&patch);
            }
            removed.ids.push(id);
        }
    }

    /// Finds all processes that share the segment: forked children, whoever their parent is now.
    pub(super) fn gather(&mut self) {
        let Some(seat) = &self.seat else { return };
        let range = (seat.placed.segment, seat.placed.segment_bytes);
        let mut found: Vec<u32> = self.tree.children();
        found.extend((0..seat.segment.n_threads()).map(|i| seat.segment.thread(i).pid).filter(|&pid| pid != 0));
        if !self.options.follow {
            // Children leave no trace in the tables, and their parents may have ended.
            found.extend(proc::pids());
        }
        let mut next = 0;
        while next < found.len() {
            let pid = found[next];
            next += 1;
            if self.tree.alive().contains(&pid) || !shares(pid, range) {
                continue;
            }
            if self.tree.add(pid, true) {
                found.extend(self.tree.children());
            }
        }
    }
}

/// What is kept in the segment for another controller: the bytes replaced; of a short jump its own too, and at the
/// end those replaced in the filler that it leads to.
fn original(patch: &Patch) -> [u8; 16] {
    let mut bytes = [0; 16];
    let put = |bytes: &mut [u8], from: &[u8]| {
        let length = from.len().min(bytes.len());
        bytes[..length].copy_from_slice(&from[..length]);
    };
    match patch.writes.as_slice() {
        [only] => put(&mut bytes, &only.old),
        [filler, entry] => {
            put(&mut bytes[..2], &entry.old);
            put(&mut bytes[2..4], &entry.new);
            put(&mut bytes[11..], &filler.old);
        }
        _ => {}
    }
    bytes
}

pub(super) fn name(candidate: &Candidate) -> String {
    candidate.names.first().cloned().unwrap_or_else(|| format!("{:#x}", candidate.address))
}

fn borrow_all(pids: &[u32], main: u32, avoid: &[Range<u64>]) -> Result<Vec<Caller>, ProbeError> {
    let mut callers = Vec::new();
    for &pid in pids {
        match Caller::pick_avoiding(pid, avoid) {
            Ok(caller) => callers.push(caller),
            Err(error) if pid == main => return Err(error),
            // A child that is ending or executing another program needs no stubs.
            Err(_) => {}
        }
    }
    Ok(callers)
}

fn map_in_all(callers: &mut [Caller], at: u64, bytes: u64) -> Result<(), ProbeError> {
    for done in 0..callers.len() {
        if let Err(error) = arena::map_in(&mut callers[done], at, bytes) {
            for caller in &mut callers[..done] {
                let _ = caller.unmap(at, bytes);
            }
            return Err(error);
        }
    }
    Ok(())
}
