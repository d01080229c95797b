//! What a session must notice while the target runs: libraries that come and go, children, other
//! programs, threads and processes that end. Constraint: a thread of the target may be waiting for us in
//! the loader, so new libraries come first and nothing here waits while one does.

use super::clock::{self, Clock};
use super::seat::Seat;
use super::{Engine, Happening, wait};
use crate::api::Refusal;
use crate::apply::Haste;
use crate::error::ProbeError;
use crate::modules::{Changes, Rows};
use crate::resolve::copies_stacks;
use crate::segment::field;
use crate::target::{self, Caller, maps};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use whither_abi::agent as abi;
use whither_kernel::clock::monotonic_ns;
use whither_kernel::proc;
use whither_store::calls::PointState;

/// Longest sleep between two looks at processes.
const SLICE: Duration = Duration::from_millis(50);
/// Shortest time between two, which cost some 10 us for each process: a tree that executes programs all the time has something to tell
/// far more often, and waits meanwhile.
const LOOKS: Duration = Duration::from_millis(5);

impl Engine {
    pub(super) fn look_after(&mut self, wait: Duration) -> Result<Vec<Happening>, ProbeError> {
        let until = Instant::now() + wait;
        let mut happened = Vec::new();
        loop {
            // Threads that slept out of reach when the others were stopped stand still once they wake.
            let again = target::tend_again();
            self.follow_on(&mut happened);
            self.look_once(&mut happened)?;
            let left = until.saturating_duration_since(Instant::now());
            if !happened.is_empty() || left.is_zero() {
                return Ok(happened);
            }
            let slice = left.min(SLICE).min(again.unwrap_or(SLICE));
            if self.follow.is_busy() {
                self.rest(slice, &mut happened);
            } else {
                self.sleep(slice);
                self.looked = None;
            }
        }
    }

    /// Looks at the loader and the processes that share the agent.
    pub(super) fn look_once(&mut self, happened: &mut Vec<Happening>) -> Result<(), ProbeError> {
        if let Err(error) = self.libraries(happened) {
            self.tree.look();
            // What a process that has ended did not let us do is no trouble.
            if self.tree.alive().contains(&self.pid) {
                return Err(error);
            }
        }
        if self.is_due() {
            self.processes(happened);
            self.looked = Some(Instant::now());
        }
        self.calibrate_late();
        self.look_after_kernel(happened);
        Ok(())
    }

    /// Whether it is time to look at processes: an end that was seen is told at once.
    fn is_due(&self) -> bool {
        let ended = || self.seat.as_ref().is_some_and(|seat| seat.end().is_some());
        self.looked.is_none_or(|at| at.elapsed() >= LOOKS) || ended()
    }

    /// Measures what a probed call costs when it could not be at the entry point.
    fn calibrate_late(&mut self) {
        let alive = self.tree.alive();
        let avoid = self.our_code();
        // Once a thread has a block, calls are recorded. A second process has no room for the stub.
        if alive != [self.pid] {
            return;
        }
        let Some(seat) = self.seat.as_mut() else { return };
        if !seat.is_to_be_tried() {
            return;
        }
        let _haste = Haste::begin();
        let Ok(mut caller) = Caller::pick_avoiding(self.pid, &avoid) else { return };
        // It stays unmeasured, and is said to be, or is tried again some time later.
        let _ = seat.calibrate_apart(&mut caller, &mut self.arenas, &mut self.reader);
        let _ = caller.release();
    }

    /// Looks at all processes and what their threads tell.
    pub(super) fn look_around(&mut self) {
        if let Some(at) = self.seat.as_ref().and_then(Seat::end) {
            self.tree.saw_end(self.pid, at);
        }
        let (now, ticks) = (monotonic_ns(), clock::now());
        self.tree.look();
        if let Some(seat) = &self.seat {
            for index in 0..seat.segment.n_threads() {
                let thread = seat.segment.thread(index);
                let since = now.saturating_sub(Clock::get().ns(ticks.saturating_sub(thread.started)));
                if matches!(thread.state, abi::THREAD_LIVE | abi::THREAD_DEAD) {
                    self.tree.meet(thread.pid, thread.tid, since);
                }
            }
        }
    }

    /// Sleeps until the loader has something to tell or the target ends, at most so long.
    fn sleep(&self, limit: Duration) {
        match &self.seat {
            Some(seat) if seat.end().is_none() => {
                seat.segment.wait(field::LOADS, seat.segment.header32(field::LOADS_SEEN), limit);
            }
            Some(_) => std::thread::sleep(limit),
            None => match wait::process(self.pid) {
                Some(target) if self.tree.alive().contains(&self.pid) => {
                    wait::readable(&[None, Some(target.as_raw_fd())], limit);
                }
                _ => std::thread::sleep(limit),
            },
        }
    }

    fn libraries(&mut self, happened: &mut Vec<Happening>) -> Result<(), ProbeError> {
        let Some(seat) = &self.seat else { return Ok(()) };
        let loads = seat.segment.header32(field::LOADS);
        if seat.segment.header32(field::LOADS_SEEN) != loads {
            self.look_at_children(happened);
        }
        let answered = self.answer_loader(happened);
        if let Some(seat) = &self.seat
            && seat.segment.header32(field::LOADS_SEEN) != loads
        {
            seat.segment.set_header32(field::LOADS_SEEN, loads);
            seat.segment.wake(field::LOADS_SEEN);
        }
        answered
    }

    fn answer_loader(&mut self, happened: &mut Vec<Happening>) -> Result<(), ProbeError> {
        let Some(seat) = &self.seat else { return Ok(()) };
        let range = (seat.placed.segment, seat.placed.segment_bytes);
        if self.follow.left || !shares(self.pid, range) {
            return Ok(());
        }
        // Frames of code that is gone must be known before it is forgotten.
        let modules = &self.modules;
        self.reader.absorb(&seat.segment, &|ra| modules.place(ra));
        self.absorb_by_kernel();
        let changes = self.modules.refresh();
        if self.modules.runs_others() {
            let program = proc::exe(self.pid);
            self.note(format!(
                "{program} runs another program's code in its own way: functions of that are left alone (measure the program itself, \
                 without it)"
            ));
        }
        if !shares(self.pid, range) {
            // It has ended, or these are another program's modules.
            return Ok(());
        }
        self.forget(&changes);
        if changes.loaded.is_empty() {
            return Ok(());
        }
        let Some(seat) = &self.seat else { return Ok(()) };
        let fresh: Vec<&super::Module> = changes.loaded.iter().filter_map(|&i| self.modules.list().get(i)).collect();
        happened.extend(fresh.iter().map(|m| Happening::Loaded { module: m.path.clone() }));
        let copying = fresh.iter().find(|m| copies_stacks(&m.path)).map(|m| m.path.clone());
        let rows = Rows::of_all(&fresh);
        let notes = self.modules.publish(&seat.segment, &changes.loaded, rows);
        notes.into_iter().for_each(|n| self.note(n));
        if let Some(library) = copying {
            happened.extend(self.see_no_more_exits(&library));
        }
        self.obey_standing(&changes.loaded, happened)
    }

    /// A child may load by itself what copies stacks (workers of a server); its other libraries are not probed.
    fn look_at_children(&mut self, happened: &mut Vec<Happening>) {
        let Some(seat) = self.seat.as_ref().filter(|_| self.options.follow) else { return };
        let known = seat.segment.header32(field::STACKS_COPIED) != 0;
        if known || self.modules.list().iter().any(|m| !m.gone && copies_stacks(&m.path)) {
            return;
        }
        self.gather();
        let children = self.tree.alive().into_iter().filter(|&pid| pid != self.pid);
        let found = children.flat_map(maps::read).find(|map| map.execute && copies_stacks(&map.path));
        happened.extend(found.and_then(|map| self.see_no_more_exits(&map.path)));
    }

    /// Before a library's code runs that copies stacks: entries count from now on, and no more exits are waited for.
    fn see_no_more_exits(&self, library: &str) -> Option<Happening> {
        let segment = &self.seat.as_ref()?.segment;
        segment.set_header32(field::STACKS_COPIED, 1);
        // What threads know of calls seen before no longer holds.
        segment.set_header32(field::GENERATION, segment.header32(field::GENERATION).wrapping_add(1));
        Some(Happening::Note(format!(
            "{library} was loaded, which keeps copies of stacks with return addresses in them: calls are counted from now on, but not timed"
        )))
    }

    /// Libraries that were unmapped: their points are over.
    fn forget(&mut self, changes: &Changes) {
        let Some(seat) = &self.seat else { return };
        self.modules.withdraw(&seat.segment, &changes.unmapped);
        let gone = |module: usize| changes.unmapped.contains(&module);
        let ids: Vec<_> =
            self.book.list().iter().filter(|p| gone(p.candidate.module) && p.state != PointState::Removed).collect();
        let ids: Vec<_> = ids.into_iter().map(|p| (p.id, p.index)).collect();
        for (id, index) in ids {
            seat.segment.set_point_state(index, abi::POINT_GONE);
            let Some(point) = self.book.get_mut(id) else { continue };
            point.state = PointState::Removed;
            for write in point.patch.take().into_iter().flat_map(|p| p.writes) {
                self.claimed.remove(&write.at);
            }
        }
    }

    /// Applies the standing orders to new modules.
    pub(super) fn obey_standing(&mut self, modules: &[usize], happened: &mut Vec<Happening>) -> Result<(), ProbeError> {
        let mut specs = self.ordered()?;
        let is_new = |module: &usize| modules.contains(module);
        // Calls from another module may have been chosen, of which the point knows already.
        specs.retain(|s| !matches!(s.candidate.patch, Err(Refusal::Already(_))));
        specs.retain(|s| is_new(&s.candidate.module) || s.candidate.callers.iter().any(|c| is_new(&c.module)));
        if !specs.is_empty() {
            let added = self.add_points(&specs)?;
            happened.push(Happening::Added(added));
        }
        Ok(())
    }

    fn processes(&mut self, happened: &mut Vec<Happening>) {
        let before = self.tree.alive();
        self.look_around();
        for pid in self.tree.take_ended() {
            let status = if pid == self.pid { self.child.as_mut().and_then(|c| c.status()) } else { None };
            if let Some(process) = self.tree.list.iter_mut().rfind(|p| p.pid == pid) {
                process.status = status;
            }
            happened.push(Happening::Ended { pid, status });
        }
        self.bury();
        if self.options.follow {
            self.gather();
            let fresh = self.tree.alive().into_iter().filter(|pid| !before.contains(pid));
            happened.extend(fresh.map(|pid| Happening::Forked { pid }));
            self.watch_all();
        }
        self.notice_exec(happened);
    }

    /// Marks blocks of processes that have ended; in a living one the agent finds its dead threads.
    fn bury(&self) {
        let Some(seat) = &self.seat else { return };
        let alive = self.tree.alive();
        for index in 0..seat.segment.n_threads() {
            let thread = seat.segment.thread(index);
            if thread.state == abi::THREAD_LIVE && !alive.contains(&thread.pid) && !proc::exists(thread.pid) {
                seat.segment.bury(index, thread.tid);
            }
        }
    }

    /// A process that has executed another program has lost the agent with its memory.
    fn notice_exec(&mut self, happened: &mut Vec<Happening>) {
        let Some(seat) = &self.seat else { return };
        let range = (seat.placed.segment, seat.placed.segment_bytes);
        let mut gone = Vec::new();
        for process in self.tree.list.iter_mut().filter(|p| p.alive) {
            if !shares(process.pid, range) && has_memory(process.pid) {
                process.alive = false;
                gone.push(process.pid);
            }
        }
        for pid in gone {
            self.follow.left |= pid == self.pid;
            if self.is_followed() {
                continue;
            }
            let exe = proc::exe(pid);
            happened.push(Happening::Note(format!("process {pid} now executes {exe}, which is not instrumented")));
        }
    }
}

/// Whether a process has the segment mapped at this address.
pub(super) fn shares(pid: u32, (start, bytes): (u64, u64)) -> bool {
    let pid = proc::with_memory(pid);
    let path = format!("/proc/{pid}/map_files/{start:x}-{:x}", start.saturating_add(bytes));
    let ours = |name: &str| name.contains("whither-segment");
    match std::fs::read_link(path) {
        Ok(target) => ours(&target.to_string_lossy()),
        // Only the privileged may read these links.
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            maps::read(pid).iter().any(|m| m.start == start && ours(&m.path))
        }
        Err(_) => false,
    }
}

/// Whether it still has any memory: a process that is ending has none.
pub(super) fn has_memory(pid: u32) -> bool {
    proc::read_bytes(format!("/proc/{}/maps", proc::with_memory(pid))).is_ok_and(|maps| !maps.is_empty())
}
