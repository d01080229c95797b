//! The way back of a thread borrowed for a call, in the target itself: code that gives it back its vector
//! registers, its stack, its signal mask and its general registers, and goes to where it was. The call
//! returns into it; the controller stops the thread at its one system call, and makes the thread go it only
//! by dying.
//!
//! Not a signal frame and `rt_sigreturn`, which would do the same in one step: that makes the kernel forget
//! how to go on with an interrupted `poll` or `nanosleep`, which would then end early.

use super::detour;
use super::safe::words;
use whither_kernel::memory::Memory;
use whither_kernel::ptrace::Regs;

/// Bytes of the stack on which calls run.
pub(super) const STACK: u64 = 512 << 10;
/// Bytes of the page behind it, which holds the code.
pub(super) const PAD_PAGE: u64 = PAGE;
/// The system call of the pad that calls made by the controller use.
pub(super) const SYSCALL: u64 = 16;
/// Given as result of the way's system call when that is skipped: it is made again then.
pub(super) const SKIPPED: u64 = 0x5a5a_5a5a;
/// Marks the upper end of a stack of ours, followed by the stack's two ends.
const OURS: [u64; 2] = [0x6b63_6174_7320_6877, 0xf15a_93c4_0b7e_d286];
/// `call *%rbx`; result to rbx; on to the way. Then `syscall`; on to the way.
const PAD: [u8; 32] = [
    0xff, 0xd3, 0x48, 0x89, 0xc3, 0xeb, 0x19, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, // 0
    0x0f, 0x05, 0xeb, 0x0c, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, // 16
];
/// Where the way begins.
pub(super) const WAY: u64 = PAD.len() as u64;
const PAGE: u64 = 4096;

/// What is where on a stack of ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Stack pointer of calls.
    pub(super) top: u64,
    /// The flags to be restored.
    flags: u64,
    extended: u64,
}

impl Layout {
    /// Of the stack that begins at `stack`. The extended state is a small part of one.
    pub(super) fn of(stack: u64, extended: &[u8]) -> Self {
        let extended = (stack + STACK).saturating_sub(extended.len() as u64) & !63;
        let flags = extended.saturating_sub(16);
        Self { top: flags.saturating_sub(32) & !15, flags, extended }
    }

    /// What is to be written from `top` on.
    pub(super) fn bytes(&self, stack: u64, saved: &Regs, extended: &[u8]) -> Vec<u8> {
        /// A trap after each instruction is not for us.
        const TRAP: u64 = 0x100;
        let [first, second] = OURS;
        let mut bytes: Vec<u8> =
            [first, second, stack, stack + STACK].iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize((self.flags - self.top) as usize, 0);
        bytes.extend((saved.eflags & !TRAP).to_le_bytes());
        bytes.resize((self.extended - self.top) as usize, 0);
        bytes.extend(extended);
        bytes
    }
}

/// The code, and how far from its start the instruction behind the way's system call is.
pub(super) fn pad(saved: &Regs, mask: u64, layout: &Layout) -> (Vec<u8>, u64) {
    let back = restarted(saved);
    let mut code = PAD.to_vec();
    // mov $.., %rdi; mov $-1, %eax; mov $-1, %edx; xrstor64 (%rdi): all that there is.
    code.extend([0x48, 0xbf]);
    code.extend(layout.extended.to_le_bytes());
    code.extend([0xb8, 0xff, 0xff, 0xff, 0xff, 0xba, 0xff, 0xff, 0xff, 0xff, 0x48, 0x0f, 0xae, 0x2f]);
    // mov $.., %rsp; popfq; mov $.., %rsp. Nothing from here on changes flags.
    code.extend([0x48, 0xbc]);
    code.extend(layout.flags.to_le_bytes());
    code.extend([0x9d, 0x48, 0xbc]);
    code.extend(back.rsp.to_le_bytes());
    let again = code.len();
    let mask_at = give_mask(&mut code);
    let behind = code.len() as u64;
    // lea -SKIPPED(%rax), %ecx; jrcxz again.
    code.extend([0x8d, 0x88]);
    code.extend((SKIPPED as u32).wrapping_neg().to_le_bytes());
    let distance = again as i64 - (code.len() as i64 + 2);
    code.extend([0xe3, distance as u8]);
    for (mov, word) in [
        ([0x48, 0xbb], back.rbx),
        ([0x48, 0xbd], back.rbp),
        ([0x49, 0xbc], back.r12),
        ([0x49, 0xbd], back.r13),
        ([0x49, 0xbe], back.r14),
        ([0x49, 0xbf], back.r15),
    ] {
        code.extend(mov);
        code.extend(u64::to_le_bytes(word));
    }
    give_registers(&mut code, &back, mask, mask_at);
    (code, behind)
}

/// `rt_sigprocmask(SIG_SETMASK, ..)`; where the address of the mask is to be filled in.
pub(super) fn give_mask(code: &mut Vec<u8>) -> usize {
    // mov $14, %eax; mov $2, %edi; lea mask(%rip), %rsi.
    code.extend([0xb8, 14, 0, 0, 0, 0xbf, 2, 0, 0, 0, 0x48, 0x8d, 0x35, 0, 0, 0, 0]);
    let mask_at = code.len();
    // mov $0, %edx; mov $8, %r10d; syscall.
    code.extend([0xba, 0, 0, 0, 0, 0x41, 0xba, 8, 0, 0, 0, 0x0f, 0x05]);
    mask_at
}

/// The registers that system calls change or take, and the jump back.
pub(super) fn give_registers(code: &mut Vec<u8>, back: &Regs, mask: u64, mask_at: usize) {
    let all: [([u8; 2], u64); 9] = [
        ([0x48, 0xb8], back.rax),
        ([0x48, 0xb9], back.rcx),
        ([0x48, 0xba], back.rdx),
        ([0x48, 0xbe], back.rsi),
        ([0x48, 0xbf], back.rdi),
        ([0x49, 0xb8], back.r8),
        ([0x49, 0xb9], back.r9),
        ([0x49, 0xba], back.r10),
        ([0x49, 0xbb], back.r11),
    ];
    for (mov, word) in all {
        code.extend(mov);
        code.extend(word.to_le_bytes());
    }
    // jmp *0(%rip)
    code.extend([0xff, 0x25, 0, 0, 0, 0]);
    code.extend(back.rip.to_le_bytes());
    let distance = (code.len() - mask_at) as u32;
    code[mask_at - 4..mask_at].copy_from_slice(&distance.to_le_bytes());
    code.extend(mask.to_le_bytes());
}

/// Registers with an interrupted system call made again, or gone on with, as the kernel itself would do it.
pub(super) fn restarted(regs: &Regs) -> Regs {
    /// `ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND`: made again.
    const AGAIN: [i64; 3] = [-512, -513, -514];
    /// `ERESTART_RESTARTBLOCK`: the kernel remembers how much of it is left.
    const GO_ON: i64 = -516;
    let mut back = *regs;
    let result = regs.rax as i64;
    if regs.orig_rax as i64 >= 0 && (AGAIN.contains(&result) || result == GO_ON) {
        back.rax = if result == GO_ON { libc::SYS_restart_syscall as u64 } else { regs.orig_rax };
        back.rip = regs.rip.wrapping_sub(2);
    }
    back.orig_rax = u64::MAX;
    back
}

/// Whether a thread is in a call, or on the way back from one, that a controller which has died made.
pub(super) fn is_on_its_way(memory: &Memory, ip: u64, sp: u64) -> bool {
    let page = ip & !(PAGE - 1);
    let mut start = [0; PAD.len()];
    let in_pad = memory.read(page, &mut start).is_ok() && start == PAD;
    in_pad || detour::holds(memory, ip) || is_on_our_stack(memory, sp)
}

fn is_on_our_stack(memory: &Memory, sp: u64) -> bool {
    /// Calls need far less of it.
    const DEEPEST: usize = 128 << 10;
    let mut bytes = vec![0; DEEPEST];
    let got = memory.read_some(sp & !7, &mut bytes);
    let all: Vec<u64> = words(&bytes[..got]).collect();
    // A thread's own stack may lie just below a stack of ours that was left behind.
    all.windows(4).any(|w| w[..2] == OURS && (w[2]..w[3]).contains(&sp))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regs() -> Regs {
        // SAFETY: a plain struct of words, for which zero is a value.
        unsafe { std::mem::zeroed() }
    }

    #[test]
    fn the_way_fits_behind_the_pad() {
        let saved = Regs { rip: 0x1122_3344_5566_7788, ..regs() };
        let layout = Layout::of(0x10_0000, &[7; 2696]);
        let (code, behind) = pad(&saved, 0xaabb, &layout);
        assert!(code.len() < PAGE as usize, "{}", code.len());
        assert_eq!(code[behind as usize - 2..][..2], [0x0f, 0x05]);
        assert_eq!(code[code.len() - 8..], 0xaabb_u64.to_le_bytes());
        assert_eq!(code[code.len() - 16..][..8], saved.rip.to_le_bytes());
        // Both jumps of the pad lead to the way.
        assert_eq!((7 + i64::from(PAD[6]), 20 + i64::from(PAD[19])), (WAY as i64, WAY as i64));
        let bytes = layout.bytes(0x10_0000, &saved, &[7; 2696]);
        assert!(layout.top.is_multiple_of(16) && layout.extended.is_multiple_of(64));
        assert!(layout.top + bytes.len() as u64 <= 0x10_0000 + STACK);
    }

    #[test]
    fn system_calls_go_on() {
        let at = |rax: i64, orig_rax: u64| restarted(&Regs { rax: rax as u64, orig_rax, rip: 100, ..regs() });
        let read = at(-512, 0);
        assert_eq!((read.rax, read.rip, read.orig_rax), (0, 98, u64::MAX));
        // A poll, and one that was interrupted before.
        assert_eq!((at(-516, 7).rax, at(-516, 219).rax, at(-516, 7).rip), (219, 219, 98));
        assert_eq!((at(-516, u64::MAX).rip, at(-4, 7).rip), (100, 100));
    }
}
