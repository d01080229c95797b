//! The way of a process from an exec to its program's entry point, where it is met. Lives here: how it
//! comes to stand there. Not here: what happens to it there, and who waits for it.
//!
//! Constraint: whoever follows may be killed at any instant, and the program must then run on as if nobody
//! had been there. So no breakpoint: its trap would end the program. Instead the loader is told, by the
//! auxiliary vector on the stack, that the program begins at a few instructions of ours, in the unused end
//! of a page of the loader's code. They make a system call that has no effect, but shows to a tracer, and
//! go on to the true entry point. A program without loader stands at its entry point right after the exec.

use crate::ProbeError;
use crate::target::filtered;
use crate::target::safe::words;
use whither_kernel::KernelError;
use whither_kernel::memory::Memory;
use whither_kernel::proc;
use whither_kernel::ptrace::{Event, Regs, Tracee, Untraceable};

const AT_PHDR: u64 = 3;
const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;
/// The signal a program sends itself: the kernel shows it to a tracer, and drops it without one.
const SIGNAL: i32 = libc::SIGURG;

/// `endbr64; mov %rdx,%r8; getpid(); tgkill(rax, rax, SIGURG); mov %r8,%rdx; jmp *0(%rip)`, then the entry
/// point. What the loader hands over in `rdx` stays; the others have no meaning at an entry point.
const SIGNALLING: [u8; 39] = [
    0xf3, 0x0f, 0x1e, 0xfa, 0x49, 0x89, 0xd0, 0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0x89, 0xc7, 0x89, 0xc6, //
    0xba, 23, 0, 0, 0, 0xb8, 234, 0, 0, 0, 0x0f, 0x05, 0x4c, 0x89, 0xc2, 0xff, 0x25, 0, 0, 0, 0,
];
/// Behind its second system call.
const SIGNALLED: u64 = 30;
/// `endbr64; brk(0); jmp *0(%rip)`: a call that the loader itself has made, so no filter forbids it.
const CALLING: [u8; 19] = [0xf3, 0x0f, 0x1e, 0xfa, 0x31, 0xff, 0xb8, 12, 0, 0, 0, 0x0f, 0x05, 0xff, 0x25, 0, 0, 0, 0];
const CALLED: u64 = 13;

/// How the arrival shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// By a signal: nothing else stops the program on its way.
    Signal,
    /// By a system call: all calls on the way stop it for a moment. Works under filters too, and where
    /// signals are held back.
    Call,
}

/// A process on its way.
#[derive(Debug)]
pub(crate) struct Approach {
    memory: Memory,
    entry: u64,
    /// `None`: it has arrived.
    detour: Option<Detour>,
}

/// What was changed.
#[derive(Debug)]
struct Detour {
    sign: Sign,
    /// Our instructions, and what stood there.
    at: u64,
    old: Vec<u8>,
    /// Where the entry point is told.
    told: u64,
}

impl Approach {
    /// For a process that stands still after an exec, before its first instruction.
    ///
    /// # Errors
    /// When it cannot be led there; nothing is changed then.
    pub(crate) fn begin(tracee: &Tracee, wish: Sign) -> Result<Self, ProbeError> {
        let pid = tracee.pid();
        let regs = tracee.registers()?;
        if regs.cs & 0xffff != 0x33 {
            return Err(KernelError::Untraceable { pid, why: Untraceable::ThirtyTwoBit }.into());
        }
        let memory = Memory::open(pid)?;
        let lost = |why: &str| ProbeError::Injection { pid, why: why.to_string() };
        let known = auxiliary(pid);
        let of = |key: u64| known.iter().find(|(k, _)| *k == key).map(|(_, value)| *value).filter(|&value| value != 0);
        let entry = of(AT_ENTRY).ok_or_else(|| lost("its entry point is not known (/proc/PID/auxv)"))?;
        if regs.rip == entry {
            return Ok(Self { memory, entry, detour: None });
        }
        let told = told_at(&memory, regs.rsp, entry)
            .ok_or_else(|| lost("its entry point is not told on its stack as the kernel does"))?;
        let sign = if filtered(pid) || tracee.mask()? & (1 << (SIGNAL - 1)) != 0 { Sign::Call } else { wish };
        let code = code(sign, entry);
        let loader = of(AT_BASE).and_then(|base| unused(&memory, base, base, code.len() as u64));
        let program = || unused(&memory, of(AT_PHDR)? & !0xfff, u64::MAX, code.len() as u64);
        let at = loader.or_else(program).ok_or_else(|| {
            lost("the last pages of code of its loader and of its own are full: the arrival at its entry point cannot be seen")
        })?;
        let mut old = vec![0; code.len()];
        memory.read(at, &mut old)?;
        // Killed between the two: nothing leads there.
        memory.write(at, &code)?;
        memory.set_word(told, at)?;
        Ok(Self { memory, entry, detour: Some(Detour { sign, at, old, told }) })
    }

    /// Lets the process go on its way, with a signal (0 = none).
    pub(crate) fn go(&self, tracee: &Tracee, signal: i32) -> Result<(), ProbeError> {
        match &self.detour {
            Some(Detour { sign: Sign::Call, .. }) => tracee.go_to_syscall(signal)?,
            _ => tracee.go(signal)?,
        }
        Ok(())
    }

    /// Whether this event is the arrival.
    pub(crate) fn reached(&self, tracee: &Tracee, event: Event) -> bool {
        let Some(detour) = &self.detour else { return false };
        let behind = match (detour.sign, event) {
            (Sign::Signal, Event::Signal(SIGNAL)) => SIGNALLED,
            (Sign::Call, Event::Syscall) => CALLED,
            _ => return false,
        };
        tracee.registers().is_ok_and(|r| r.rip == detour.at + behind)
    }

    /// Moves a process that has arrived to the entry point, and takes away what led it here.
    pub(crate) fn finish(&mut self, tracee: &Tracee) -> Result<(), ProbeError> {
        let Some(detour) = &self.detour else { return Ok(()) };
        let regs = tracee.registers()?;
        let rdx = if detour.sign == Sign::Signal { regs.r8 } else { regs.rdx };
        // Not made, when it stands at the begin of the call.
        let moved = Regs { rip: self.entry, rdx, orig_rax: u64::MAX, ..regs };
        tracee.set_registers(&moved)?;
        // Nobody is there any more, and nobody comes again.
        self.memory.set_word(detour.told, self.entry)?;
        self.memory.write(detour.at, &detour.old)?;
        self.detour = None;
        Ok(())
    }

    /// Whether it stands at the entry point, or will when it is stopped next.
    pub(crate) fn arrived(&self) -> bool {
        self.detour.is_none()
    }

    /// Gives a process up that is still on its way. The loader may have read where to go: our instructions
    /// stay, and it passes through them.
    pub(crate) fn cancel(self) {
        if let Some(detour) = self.detour {
            // It fails for a process that is gone only.
            let _ = self.memory.set_word(detour.told, self.entry);
        }
    }
}

fn code(sign: Sign, entry: u64) -> Vec<u8> {
    let code: &[u8] = if sign == Sign::Signal { &SIGNALLING } else { &CALLING };
    [code, &entry.to_le_bytes()].concat()
}

/// Keys and values of the auxiliary vector, as the kernel keeps them.
fn auxiliary(pid: u32) -> Vec<(u64, u64)> {
    let bytes = proc::read_bytes(format!("/proc/{pid}/auxv")).unwrap_or_default();
    let words: Vec<u64> = words(&bytes).collect();
    words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

/// Where a new program's stack tells the entry point: behind arguments and environment.
fn told_at(memory: &Memory, sp: u64, entry: u64) -> Option<u64> {
    /// Words; Linux limits arguments and environment to 6 MiB.
    const MOST: u64 = 1 << 21;
    let mut words = Words { memory, at: sp, piece: Vec::new(), next: 0 };
    let arguments = words.next()?;
    (0..arguments.min(MOST)).try_for_each(|_| words.next().map(drop))?;
    // The end of the arguments, then the environment up to its own.
    (words.next()? == 0).then_some(())?;
    (0..MOST).find_map(|_| words.next().map_or(Some(None), |w| (w == 0).then_some(Some(()))))??;
    (0..64).find_map(|_| {
        let (key, at) = (words.next()?, words.position());
        (words.next()? == entry && key == AT_ENTRY).then_some(at)
    })
}

/// Words of memory, one after the other.
struct Words<'a> {
    memory: &'a Memory,
    /// Of the piece behind the one at hand.
    at: u64,
    piece: Vec<u64>,
    next: usize,
}

impl Words<'_> {
    fn next(&mut self) -> Option<u64> {
        if self.next == self.piece.len() {
            let mut bytes = [0_u8; 4096];
            let got = self.memory.read_some(self.at, &mut bytes);
            self.piece = words(&bytes[..got]).collect();
            self.at += 8 * self.piece.len() as u64;
            self.next = 0;
        }
        let word = self.piece.get(self.next).copied();
        self.next += 1;
        word
    }

    /// Of the next word.
    fn position(&self) -> u64 {
        self.at - 8 * (self.piece.len() - self.next) as u64
    }
}

/// Bytes at the end of the last page of an image's code that belong to nothing in it. Its header stands at
/// `header`; its addresses count from `base`, or from where its first segment says when that is not known.
fn unused(memory: &Memory, header: u64, base: u64, bytes: u64) -> Option<u64> {
    const LOAD: u32 = 1;
    const EXECUTE: u32 = 1;
    let mut elf = [0_u8; 64];
    memory.read(header, &mut elf).ok()?;
    let word = |from: &[u8], at: usize| from.get(at..at + 8).map(|w| words(w).sum::<u64>());
    let short = |at: usize| u64::from(elf[at]) | u64::from(elf[at + 1]) << 8;
    if elf[..5] != *b"\x7fELF\x02" || short(54) != 56 {
        return None;
    }
    let mut table = vec![0; 56 * short(56) as usize];
    memory.read(header.checked_add(word(&elf, 32)?)?, &mut table).ok()?;
    let loads: Vec<&[u8]> = table.chunks_exact(56).filter(|p| p[..4] == LOAD.to_le_bytes()).collect();
    let first = word(loads.first()?, 16)? & !0xfff;
    let base = if base == u64::MAX { header.wrapping_sub(first) } else { base };
    loads.iter().find_map(|load| {
        let executable = load[4] & EXECUTE as u8 != 0;
        let from = word(load, 16)?;
        let end = from.checked_add(word(load, 40)?.max(word(load, 32)?))?;
        let rest = end.wrapping_neg() & 0xfff;
        // Another segment may begin in the same page.
        let shared = loads.iter().any(|l| word(l, 16).is_some_and(|at| at >= end && at - end < rest));
        let at = base.wrapping_add(end).wrapping_add(rest.checked_sub(bytes)?);
        (executable && !shared && is_code(memory.pid(), at)).then_some(at)
    })
}

/// Whether an address is mapped, executable and private.
fn is_code(pid: u32, at: u64) -> bool {
    crate::target::maps::read(pid).iter().any(|m| m.holds(at) && m.execute && m.read && !m.shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_instructions_are_what_they_are_said_to_be() {
        for (sign, behind) in [(Sign::Signal, SIGNALLED), (Sign::Call, CALLED)] {
            let code = code(sign, 0x1122_3344_5566_7788);
            assert!(code.len() <= 64);
            assert_eq!(code[behind as usize - 2..behind as usize], [0x0f, 0x05], "behind a system call");
            let jump = code.len() - 14;
            assert_eq!(code[jump..jump + 6], [0xff, 0x25, 0, 0, 0, 0]);
            assert_eq!(code[jump + 6..], 0x1122_3344_5566_7788_u64.to_le_bytes());
        }
    }

    #[test]
    fn the_entry_point_is_found_on_a_stack() {
        let ours = Memory::open(std::process::id()).expect("our own memory");
        let mut stack = vec![2_u64, 11, 12, 0];
        // More than a piece.
        stack.extend((1..2000).chain([0]));
        stack.extend([3, 0x40, 9, 0x77, 0, 0]);
        let sp = stack.as_ptr() as u64;
        let at = told_at(&ours, sp, 0x77).expect("is there");
        assert_eq!(at, sp + 8 * (stack.len() as u64 - 3));
        assert_eq!(told_at(&ours, sp, 0x78), None);
        stack[3] = 1;
        assert_eq!(told_at(&ours, stack.as_ptr() as u64, 0x77), None, "no end of the arguments");
        assert_eq!(told_at(&ours, 8, 0x77), None);
    }

    #[test]
    fn unused_bytes_are_those_of_no_segment() {
        let ours = Memory::open(std::process::id()).expect("our own memory");
        let base = auxiliary(std::process::id()).iter().find(|(k, _)| *k == AT_BASE).map_or(0, |(_, v)| *v);
        if base == 0 {
            return;
        }
        let at = unused(&ours, base, base, 16).expect("the loader has room");
        assert_eq!(at & 0xfff, 0x1000 - 16);
        assert!(is_code(std::process::id(), at));
        assert_eq!(unused(&ours, base, base, 5000), None);
        assert_eq!(unused(&ours, base + 8, base, 16), None, "no header");
    }
}
