//! The loader's own notice of a changed list of libraries: a probe on the function that it calls for
//! debuggers. The agent counts and waits a moment, so that new libraries are patched before their code
//! runs.

use super::Engine;
use crate::api::{Order, Select};
use crate::apply::Patch;
use crate::apply::Write;
use crate::resolve;
use crate::stub::{jump, stub};
use crate::target::Memory;
use std::ops::Range;
use whither_abi::agent as abi;

/// Called by the loaders of glibc and musl before and after they change their list.
const NOTICE: &str = "_dl_debug_state";

impl Engine {
    /// Code of the loader, when its notice is still to be probed.
    pub(super) fn loader_code(&self) -> Option<Range<u64>> {
        if self.loader.is_some() {
            return None;
        }
        let loader = self.modules.list().iter().find(|m| !m.gone && is_loader(&m.path))?;
        Some(loader.start..loader.end)
    }

    /// The probe on the loader's notice, its point entered; `None` where there is none to be had.
    pub(super) fn loader_patch(&mut self) -> Option<Patch> {
        let around = self.loader_code()?;
        let order = Order::Include(Select::Name { function: NOTICE.into(), module: None });
        let found = resolve::candidates(self.modules.list(), &[order], &|_| None).ok()?;
        let candidate = found.candidates.into_iter().find(|c| around.contains(&c.address))?;
        let plan = resolve::plan(self.modules.list().get(candidate.module)?, &candidate)?;
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
        let made = stub(index, seat.common(abi::DO_LOADER), from, window, at).ok()?;
        self.arenas.shrink(at, made.bytes.len() as u64);
        let writes = vec![Write { at: from, old: bytes[..5].to_vec(), new: jump(from, at)?.to_vec() }];
        let patch = Patch { writes, window: from..from + u64::from(plan.window), stub: made, stub_at: at };
        let mut original = [0; 16];
        original[..5].copy_from_slice(&bytes[..5]);
        let words = abi::Point {
            address: candidate.address,
            relocated: patch.stub.relocated,
            state: abi::POINT_ON,
            flags: abi::DO_LOADER,
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

fn is_loader(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.starts_with("ld-linux") || name.starts_with("ld-musl") || name.starts_with("ld-2.") || name == "ld.so"
}
