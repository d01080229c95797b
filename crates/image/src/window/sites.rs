//! Places inside of functions that can be replaced by a jump: an instruction that somebody wants to see executed, and
//! system calls, whose own two bytes stay as they are: what stands in front of them is displaced, so that a thread that
//! waits in the call, or that the kernel lets begin it anew, never meets the jump.

use super::{CodeMap, EntryRefusal, Interest, JUMP, Site, ends};
use crate::disasm::{Flow, Insn};
use crate::ids::Svma;
use iced_x86::{Mnemonic, OpKind, Register};
use std::ops::Range;

/// `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// So many instructions away from an address another place is looked for.
const FARTHEST: usize = 8;

/// A system call in the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSite {
    /// Its instruction.
    pub at: Svma,
    /// Whole instructions in front of it that can be displaced, or why there are none.
    pub window: Result<Range<u64>, EntryRefusal>,
}

impl CodeMap {
    /// The instructions that a jump may displace so that it is passed whenever an address is: those at the address, or where
    /// these cannot be displaced those at others of the same straight piece of code, nearest first. An entry is as good for
    /// counting calls as the place behind a locked addition to a counter, after which a function is over.
    ///
    /// # Errors
    /// [`EntryRefusal`] of the address itself when there are none.
    pub fn places(&self, at: Svma) -> Result<Vec<Range<u64>>, EntryRefusal> {
        let start = self.function_of(at).ok_or(EntryRefusal::NotCode)?;
        let (Some(extent), Some(body)) = (self.extent(start), self.body(start)) else {
            return Err(EntryRefusal::NotCode);
        };
        let here = body.iter().position(|i| i.address == at).filter(|_| self.begins_with_code(start.0));
        let Some(here) = here else { return Err(EntryRefusal::Undecodable) };
        let site = |i: usize| Site { map: self, at: body[i].address.0, extent: &extent, body: &body };
        if let Some(from) = site(here).repeats().filter(|_| at == start) {
            return Err(EntryRefusal::BranchInto { from: from.0 });
        }
        let refusal = match site(here).place() {
            Ok(window) => return Ok(vec![window]),
            Err(refusal) => refusal,
        };
        let mut all = self.straight(here, &extent, &body);
        all.sort_by_key(|i| (i.abs_diff(here), *i));
        let mut windows: Vec<Range<u64>> = all.iter().filter_map(|i| site(*i).place().ok()).collect();
        windows.extend(all.iter().filter_map(|i| site(*i).padded_place()));
        if windows.is_empty() { Err(refusal) } else { Ok(windows) }
    }

    /// Instructions of a body that are executed exactly when one of them is: nothing leads in between, nothing leaves.
    fn straight(&self, here: usize, extent: &Range<u64>, body: &[Insn]) -> Vec<usize> {
        let goes_on = |i: usize| {
            body[i].flow == Flow::Next && body.get(i + 1).is_some_and(|next| next.address.0 == body[i].end().0)
        };
        let (mut first, mut last) = (here, here);
        while first > 0 && here - first < FARTHEST && goes_on(first - 1) {
            first -= 1;
        }
        while last - here < FARTHEST && goes_on(last) {
            last += 1;
        }
        let mut interest = Interest::new(&self.code);
        interest.add(body[first].address.0..body[last].end().0);
        let far = self.find(&interest);
        let entered = |i: &usize| {
            let at = body[*i].address.0;
            far.iter().any(|(target, _)| *target == at)
                || self.starts.binary_search(&at).is_ok()
                || Site { map: self, at, extent, body }.lands_from_near(&(at..at + 1)).is_some()
        };
        // Where something leads in, what stands before is executed less often.
        let first = (first..=here).rev().find(entered).unwrap_or(first);
        let last = (here + 1..=last).find(entered).map_or(last, |i| i - 1);
        (first..=last).collect()
    }

    /// The system calls that may have one of these numbers: whose function names it, or whose number only the running
    /// program knows.
    #[must_use]
    pub fn system_calls(&self, numbers: &[u32]) -> Vec<CallSite> {
        let mut starts: Vec<Svma> = self.syscalls().filter_map(|at| self.function_of(at)).collect();
        starts.sort_unstable();
        starts.dedup();
        let bodies: Vec<(Range<u64>, Vec<Insn>)> =
            starts.into_iter().filter_map(|start| Some((self.extent(start)?, self.body(start)?))).collect();
        let mut found: Vec<(usize, CallSite)> = Vec::new();
        for (i, (extent, body)) in bodies.iter().enumerate() {
            if !self.begins_with_code(extent.start) || body.iter().any(|insn| insn.flow == Flow::Invalid) {
                continue;
            }
            let named = body.iter().any(|insn| constant(insn).is_some_and(|n| numbers.contains(&n)));
            for (place, insn) in body.iter().enumerate().filter(|(_, insn)| insn.raw.mnemonic() == Mnemonic::Syscall) {
                if named || number(&body[..place]).is_none() {
                    found.push((i, CallSite { at: insn.address, window: before(&body[..place]) }));
                }
            }
        }
        self.refuse_entered(&bodies, &mut found);
        found.into_iter().map(|(_, site)| site).collect()
    }

    /// Whether an instruction begins where a function is said to begin. The unwind information of what signal handlers
    /// return to (`__restore_rt`) begins a byte before it, in the filler: decoded from there, it is other code.
    fn begins_with_code(&self, start: u64) -> bool {
        const ALIGNED: u64 = 16;
        start.is_multiple_of(ALIGNED) || self.sized.binary_search_by_key(&start, |r| r.start).is_ok()
    }

    /// Where the bytes of the instruction are.
    fn syscalls(&self) -> impl Iterator<Item = Svma> + '_ {
        self.code.iter().flat_map(|range| {
            let bytes = self.bytes.get(range.clone()).unwrap_or_default();
            bytes.windows(2).zip(range.start..).filter(|(two, _)| **two == SYSCALL).map(|(_, at)| Svma(at))
        })
    }

    /// Takes windows back into which something leads; one search for all of them.
    fn refuse_entered(&self, bodies: &[(Range<u64>, Vec<Insn>)], found: &mut [(usize, CallSite)]) {
        let mut interest = Interest::new(&self.code);
        for (_, site) in found.iter() {
            if let Ok(window) = &site.window {
                interest.add(window.start + 1..window.start + JUMP);
            }
        }
        let leading = self.find(&interest);
        for (body, site) in found {
            let Ok(window) = &site.window else { continue };
            let (extent, insns) = &bodies[*body];
            let inside = window.start + 1..window.start + JUMP;
            let from_far = leading.iter().find(|(target, _)| inside.contains(target)).map(|(_, from)| *from);
            let here = Site { map: self, at: window.start, extent, body: insns };
            let entered = from_far.or_else(|| here.lands_from_near(&inside));
            let refused = here.movable(window.clone()).err();
            if let Some(refusal) = entered.map(|from| EntryRefusal::BranchInto { from }).or(refused) {
                site.window = Err(refusal);
            }
        }
    }
}

impl Site<'_> {
    /// What a jump would displace here, in the middle of a function.
    fn place(&self) -> Result<Range<u64>, EntryRefusal> {
        let length = self.window(JUMP)?;
        let window = self.at..self.at + length;
        // Behind what never goes on something else begins, to which the tables for exceptions may lead.
        let inside = self.body.iter().filter(|i| window.contains(&i.address.0));
        let mut behind = inside.skip_while(|i| !ends(i)).skip(1);
        if behind.any(|i| !matches!(i.raw.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)) {
            return Err(EntryRefusal::TooShort { bytes: self.extent.end - self.at });
        }
        Ok(window)
    }

    /// The same at the end of a function.
    fn padded_place(&self) -> Option<Range<u64>> {
        let short = matches!(self.window(JUMP), Err(EntryRefusal::TooShort { .. }));
        (short && self.padded()).then(|| self.at..self.at + JUMP)
    }
}

/// The instructions before a system call that a jump may stand on: straight on into it, five bytes or a little more.
fn before(body: &[Insn]) -> Result<Range<u64>, EntryRefusal> {
    let end = body.last().map_or(0, |last| last.end().0);
    let mut start = end;
    for insn in body.iter().rev() {
        if insn.flow != Flow::Next || insn.raw.mnemonic() == Mnemonic::Syscall || insn.end().0 != start {
            break;
        }
        start = insn.address.0;
        if end - start >= JUMP {
            return Ok(start..end);
        }
    }
    Err(EntryRefusal::TooShort { bytes: end - start })
}

/// The number of the system call behind these instructions, where the last one that sets it says so.
fn number(body: &[Insn]) -> Option<u32> {
    let sets = |insn: &&Insn| {
        insn.raw.op0_kind() == OpKind::Register && insn.raw.op0_register().full_register() == Register::RAX
    };
    let last = body.iter().rev().find(sets)?;
    constant(last)
}

/// A constant put into a register.
fn constant(insn: &Insn) -> Option<u32> {
    let is = insn.raw.mnemonic() == Mnemonic::Mov && insn.raw.op0_kind() == OpKind::Register;
    match insn.raw.op1_kind() {
        OpKind::Immediate32 | OpKind::Immediate32to64 if is => Some(insn.raw.immediate32()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Bytes;
    use crate::code_names::code_names;

    /// The C library of this machine has its futex calls inlined in dozens of places.
    #[test]
    fn futex_calls_of_the_c_library_can_be_seen() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("own maps");
        let libc = maps.lines().filter_map(|l| l.split_whitespace().nth(5)).find(|p| p.contains("/libc.so"));
        let Some(path) = libc else { return };
        let file = Bytes::from(std::fs::read(path).expect("the library"));
        let names = code_names(&file, None);
        let code = CodeMap::from_elf(&file, &names).expect("x86-64 code");
        let sites = code.system_calls(&[202]);
        let can = sites.iter().filter(|s| s.window.is_ok()).count();
        assert!(can >= 20 && can * 20 >= sites.len() * 19, "{can} of {}", sites.len());
        for site in sites.iter().filter(|s| s.window.is_ok()) {
            let window = site.window.clone().expect("just asked");
            assert!(window.end == site.at.0 && window.end - window.start >= JUMP, "{site:x?}");
            assert_eq!(code.bytes().get(site.at.0..site.at.0 + 2), Some(&SYSCALL[..]));
        }
        // What signal handlers return to: mov $15, %rax; syscall.
        let end = |s: &CallSite| code.bytes().get(s.at.0 - 7..s.at.0) == Some(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0][..]);
        assert!(!sites.iter().any(end), "a window in what is decoded from the wrong byte on");
        assert!(code.system_calls(&[202]).len() < code.syscalls().count(), "others are left alone");
        let inner = sites.iter().find_map(|s| s.window.clone().ok()).expect("one");
        assert!(code.places(Svma(inner.start + 1)).is_err(), "no instruction begins there");
    }
}
