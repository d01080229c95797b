//! Probes of our own, that nobody has asked for. On the function that the loader calls for debuggers when
//! its list of libraries changes: the agent waits a moment, so that new ones are patched before their code
//! runs. A program in which nothing matches has them too if it may load libraries, unless it is a shell. On `prctl` and `syscall`: once a program forbids itself system calls (seccomp) it would be killed
//! for those of the agent, which makes none from that moment on.

use super::{Engine, Module};
use crate::api::{Candidate, Order, Select};
use crate::apply::{Patch, Write};
use crate::error::ProbeError;
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

    /// Code beside which our own probes will want room, unless they are in place.
    pub(super) fn notice_places(&self) -> Vec<Range<u64>> {
        let module = |w: &Watched| self.modules.list().get(w.candidate.module).map(|m| m.start..m.end);
        self.watched().iter().filter_map(module).collect()
    }

    /// The probes of our own that are not in place, their points entered; those that can be had.
    pub(super) fn notice_patches(&mut self) -> Vec<Patch> {
        self.watched().iter().filter_map(|watched| self.notice_patch(watched)).collect()
    }

    fn watched(&self) -> Vec<Watched> {
        if !self.notices.is_empty() {
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
        let order = Order::Include(Select::Name { function: function.into(), module: None });
        let found = resolve::candidates(self.modules.list(), &[order], &|_| None).map(|f| f.candidates);
        found.unwrap_or_default().into_iter().filter(|c| c.patch.is_ok()).collect()
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
        let at = self.arenas.take(&around)?;
        let window = bytes.get(..usize::from(plan.window))?;
        let made = stub(index, seat.common(watched.flags), from, window, at).ok()?;
        self.arenas.shrink(at, made.bytes.len() as u64);
        let writes = vec![Write { at: from, old: bytes[..5].to_vec(), new: jump(from, at)?.to_vec() }];
        let patch = Patch { writes, window: from..from + u64::from(plan.window), stub: made, stub_at: at };
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

fn opens_libraries(module: &Module) -> bool {
    !module.gone && module.image().is_some_and(|image| OPENERS.iter().any(|name| image.imports(name)))
}

fn is_shell(exe: &str) -> bool {
    std::fs::read_to_string(SHELLS).unwrap_or_default().lines().any(|shell| shell == exe)
}

fn is_loader(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.starts_with("ld-linux") || name.starts_with("ld-musl") || name.starts_with("ld-2.") || name == "ld.so"
}
