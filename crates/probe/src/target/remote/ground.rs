//! Memory of the target that calls run on: a stack, and the page with the code that calls and leads back. Lives
//! here: mapping it and giving it back. Constraint: before it is mapped the detour says where, so that a later
//! controller can take it away should we be killed.

use super::Caller;
use crate::ProbeError;
use crate::target::detour::Detour;
use crate::target::home::{self, Layout, PAD_PAGE, STACK};
use crate::target::maps;

/// What was mapped for calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ground {
    pub(super) stack: u64,
    pub(super) pad: u64,
    /// Stack pointer of calls.
    pub(super) top: u64,
    /// Behind the system call of the way back.
    pub(super) behind: u64,
}

impl Caller {
    /// Maps the ground for calls once.
    pub(super) fn ground(&mut self) -> Result<Ground, ProbeError> {
        if let Some(ground) = self.ground {
            return Ok(ground);
        }
        let place = self.announced();
        let stack = self.bare_map(place, STACK, libc::PROT_READ | libc::PROT_WRITE)?;
        let behind = place.filter(|&at| at == stack).map(|at| at + STACK);
        let pad = match self.bare_map(behind, PAD_PAGE, libc::PROT_READ | libc::PROT_EXEC) {
            Ok(pad) => pad,
            Err(e) => {
                let _ = self.bare_unmap(stack, STACK);
                return Err(e);
            }
        };
        let layout = Layout::of(stack, &self.extended);
        let (code, behind) = home::pad(&self.saved, self.mask, &layout);
        let ground = Ground { stack, pad, top: layout.top, behind: pad + behind };
        self.ground = Some(ground);
        self.memory.write(layout.top, &layout.bytes(stack, &self.saved, &self.extended))?;
        self.memory.write(pad, &code)?;
        Ok(ground)
    }

    /// Unmaps it; the code first, as long as nothing has taken its place.
    pub(super) fn give_ground_back(&mut self) {
        if let Some(ground) = self.ground.take() {
            let _ = self.bare_unmap(ground.pad, PAD_PAGE);
            let _ = self.bare_unmap(ground.stack, STACK);
        }
    }

    /// A place for it, known to a later controller; `None` where that cannot be had.
    fn announced(&mut self) -> Option<u64> {
        let at = maps::free_far(&maps::read(self.pid), STACK + PAD_PAGE)?;
        self.has_detour();
        self.detour.as_ref()?.announce(&self.memory, at).then_some(at)
    }

    /// At a place, or where the kernel likes when that has been taken meanwhile.
    fn bare_map(&mut self, at: Option<u64>, bytes: u64, rights: i32) -> Result<u64, ProbeError> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mut map = |at: u64, flags: i32| {
            self.bare("mmap", libc::SYS_mmap, [at, bytes, rights as u64, flags as u64, u64::MAX, 0])
        };
        match at.map(|at| map(at, flags | libc::MAP_FIXED_NOREPLACE)) {
            Some(Ok(got)) => Ok(got),
            Some(Err(e @ ProbeError::Ended { .. })) => Err(e),
            _ => map(0, flags),
        }
    }

    fn bare_unmap(&mut self, at: u64, bytes: u64) -> Result<u64, ProbeError> {
        self.bare("munmap", libc::SYS_munmap, [at, bytes, 0, 0, 0, 0])
    }

    /// Makes the detour, if there is room for one.
    fn has_detour(&mut self) {
        if self.detour.is_none() {
            self.detour = Detour::make(&self.memory, self.pid, &self.saved, self.mask);
        }
    }

    /// A system call on no ground of ours: by an instruction that is there anyway.
    pub(in crate::target) fn bare(
        &mut self,
        what: &'static str,
        number: i64,
        args: [u64; 6],
    ) -> Result<u64, ProbeError> {
        self.has_detour();
        let at = self.detour.as_ref().map_or(self.instruction, Detour::start);
        let regs = self.syscall_regs(number, args, at, self.saved.rsp);
        self.run_syscall(what, &regs)
    }
}
