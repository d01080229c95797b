//! Probes of our own, that nobody has asked for. On the function that the loader calls for debuggers when
//! its list of libraries changes: the agent waits a moment, so that new ones are patched before their code
//! runs. A program in which nothing matches has them too if it may load libraries, unless it is a shell. On `prctl`
//! and `syscall`: once a program forbids itself system calls (seccomp) it would be killed for those of the agent,
//! which makes none from that moment on. In a static program that throws, on what its unwinder looks for rules by:
//! the agent's are found there, so that exits can be seen; it stays until no exit of ours is on a stack any more.

use super::{Engine, Module};
use crate::api::{Added, Candidate, Order, Select};
use crate::apply::{Patch, Write};
use crate::error::ProbeError;
use crate::modules::is_loader;
use crate::resolve::{self, ModuleView};
use crate::stub::{jump, stub};
use crate::target::Memory;
use std::ops::Range;
use whither_abi::agent as abi;
use whither_kernel::proc;

/// Called by the loaders of glibc and musl before and after they change their list.
const NOTICE: &str = "_dl_debug_state";
/// By what a program forbids itself system calls, with the agent's numbers for them.
const LOCKS: [(&str, u8); 2] = [("prctl", 1), ("syscall", 2)];

/// By what libgcc looks for unwind rules. LLVM's unwinder asks itself alone; glibc before 2.33 loads another one
/// (`libgcc_s.so.1`) to end threads, in static programs too: what has any of these names is left alone.
const UNWINDER: &str = "_Unwind_Find_FDE";
const OTHER_UNWINDERS: [&str; 3] = ["unw_step", "__unw_step", "pthread_cancel_init"];
/// Why exits of a static program's functions are not seen.
pub(super) const NO_WAY_FOR_EXCEPTIONS: &str = "an exception could not pass through it in a static program";

/// Bytes of the landing instruction (endbr64) that patches leave in front of them.
const LANDING: u64 = 4;

/// By what a program loads libraries of its own accord.
const OPENERS: [&str; 2] = ["dlopen", "dlmopen"];
/// Programs that are there to start others, one a line.
const SHELLS: &str = "/etc/shells";

/// A function to be watched.
struct Watched {
    candidate: Candidate,
    flags: u32,
    lock: u8,
}

impl Engine {
    /// Has libraries that are loaded later met before their code runs, where no point has seen to that yet.
    pub(super) fn listen(&mut self) -> Result<(), ProbeError> {
        let no_need = self.standing.is_empty() || !self.notices.is_empty();
        if no_need || !self.may_change || self.options.safe || !self.opens_libraries() {
            return Ok(());
        }
        self.add_only_notices()
    }

    fn opens_libraries(&self) -> bool {
        !is_shell(&proc::exe(self.pid)) && self.modules.list().iter().any(opens_libraries)
    }

    /// Where a program that unwinds alone looks for rules, if that can be probed.
    pub(super) fn unwinder(&self) -> Option<&Candidate> {
        let find = || {
            let other = OTHER_UNWINDERS.iter().any(|name| !self.all_named(name).is_empty());
            if other { None } else { self.named(UNWINDER).into_iter().next() }
        };
        self.unwinder.get_or_init(find).as_ref()
    }

    /// Has the unwinder of a static program find the agent's rules, before any exit is seen. False where exits must not be.
    pub(super) fn teach_unwinder(&mut self) -> Result<bool, ProbeError> {
        if !self.throws_alone() || self.knows_our_rules() {
            return Ok(true);
        }
        let Some(candidate) = self.unwinder().cloned() else { return Ok(false) };
        let patch = self.notice_patch(&Watched { candidate, flags: abi::DO_UNWIND, lock: 0 });
        self.write(Vec::new(), patch.into_iter().collect(), &mut Added::default())?;
        Ok(self.knows_our_rules())
    }

    fn knows_our_rules(&self) -> bool {
        self.notices.iter().any(|patch| self.teaches(patch))
    }

    /// Whether it is by this patch that exceptions pass through exits that are seen.
    pub(super) fn teaches(&self, patch: &Patch) -> bool {
        let unwinder = if self.throws_alone() { self.unwinder() } else { None };
        unwinder.is_some_and(|c| (c.address..=c.address + LANDING).contains(&patch.window.start))
    }

    /// Code beside which our own probes will want room, unless they are in place.
    pub(super) fn notice_places(&self) -> Vec<Range<u64>> {
        let module = |w: &Watched| self.modules.list().get(w.candidate.module).map(|m| m.start..m.end);
        let teaches = self.throws_alone() && !self.knows_our_rules();
        let unwinder = if teaches { self.unwinder() } else { None };
        let teaches = unwinder.map(|c| Watched { candidate: c.clone(), flags: abi::DO_UNWIND, lock: 0 });
        self.watched().iter().chain(&teaches).filter_map(module).collect()
    }

    /// The probes of our own that are not in place, their points entered; those that can be had.
    pub(super) fn notice_patches(&mut self) -> Vec<Patch> {
        self.watched().iter().filter_map(|watched| self.notice_patch(watched)).collect()
    }

    fn watched(&self) -> Vec<Watched> {
        if self.notices.len() > usize::from(self.knows_our_rules()) {
            return Vec::new();
        }
        let loader = self
            .named(NOTICE)
            .into_iter()
            .filter(|c| self.modules.list().get(c.module).is_some_and(|m| !m.gone && is_loader(&m.path)));
        let loader = loader.take(1).map(|candidate| Watched { candidate, flags: abi::DO_LOADER, lock: 0 });
        let locks = LOCKS.iter().flat_map(|&(name, lock)| {
            self.named(name).into_iter().map(move |candidate| Watched { candidate, flags: abi::DO_LOCK, lock })
        });
        loader.chain(locks).collect()
    }

    fn named(&self, function: &str) -> Vec<Candidate> {
        self.all_named(function).into_iter().filter(|c| c.patch.is_ok()).collect()
    }

    fn all_named(&self, function: &str) -> Vec<Candidate> {
        let order = Order::Include(Select::Name { function: function.into(), module: None });
        resolve::candidates(self.modules.list(), &[order], &|_| None).map(|f| f.candidates).unwrap_or_default()
    }

    fn notice_patch(&mut self, watched: &Watched) -> Option<Patch> {
        let candidate = &watched.candidate;
        let module = self.modules.list().get(candidate.module)?;
        let around = module.start..module.end;
        let plan = resolve::plan(module, candidate)?;
        if plan.kind == whither_image::PlanKind::Short {
            return None;
        }
        let seat = self.seat.as_ref()?;
        let (index, root) = seat.allocate_point()?;
        let from = candidate.address + u64::from(plan.skip);
        let mut bytes = vec![0; usize::from(plan.window).max(5)];
        Memory::open(self.pid).ok()?.read(from, &mut bytes).ok()?;
        let at = self.arenas.take(&around, 1)?;
        let window = bytes.get(..usize::from(plan.window))?;
        let made = stub(index, seat.common(watched.flags), from, window, at).ok()?;
        self.arenas.shrink(at, made.bytes.len() as u64);
        let writes = vec![Write { at: from, old: bytes[..5].to_vec(), new: jump(from, at)?.to_vec() }];
        let patch = Patch { writes, window: from..from + u64::from(plan.window), stub: made, stub_at: at, gate: None };
        let mut original = [0; 16];
        original[..5].copy_from_slice(&bytes[..5]);
        let words = abi::Point {
            address: candidate.address,
            relocated: patch.stub.relocated,
            state: abi::POINT_ON,
            flags: watched.flags,
            lock: watched.lock,
            root,
            module: u16::try_from(candidate.module).unwrap_or(u16::MAX),
            patch: 1,
            window: plan.window,
            skip: plan.skip,
            original,
            stub: at,
            ..abi::Point::default()
        };
        seat.segment.set_point(index, &words);
        Some(patch)
    }
}

impl Engine {
    /// Started as a program, the loader maps the one it is given itself, and nobody is told.
    pub(super) fn note_loader(&mut self) {
        let path = self.modules.list().iter().find(|m| m.main && is_loader(&m.path)).map(|m| m.path.clone());
        if let Some(path) = path {
            self.note(format!(
                "{path} is the loader: the program that it starts is not seen here; start that program itself (with LD_LIBRARY_PATH for \
                 --library-path), or attach to it (-p)"
            ));
        }
    }
}

fn opens_libraries(module: &Module) -> bool {
    !module.gone && module.image().is_some_and(|image| OPENERS.iter().any(|name| image.imports(name)))
}

fn is_shell(exe: &str) -> bool {
    std::fs::read_to_string(SHELLS).unwrap_or_default().lines().any(|shell| shell == exe)
}
