//! A signal frame as the kernel itself would have pushed it, so that a thread borrowed for a call finds
//! its way back alone should its controller die in the middle: the call returns into `rt_sigreturn`.
//! Layouts are those of x86-64 Linux (`struct rt_sigframe`), which are fixed for ever.

use whither_kernel::ptrace::Regs;

/// Bytes from the frame's start to the end of its `siginfo`.
pub(super) const FRAME_BYTES: u64 = 440;
/// `UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS`.
const UC_FLAGS: u64 = 7;
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;
/// Software-reserved bytes of the legacy area.
const SOFTWARE: usize = 464;

/// Bytes of the frame, to stand at an address that is 8 above a multiple of 16; `extended` will stand at
/// `fpstate`, a multiple of 64.
pub(super) fn frame(regs: &Regs, mask: u64, fpstate: u64) -> Vec<u8> {
    let regs = restarted(regs);
    let mut words: Vec<u64> = vec![0, UC_FLAGS, 0, 0, 0, 0];
    words.extend([regs.r8, regs.r9, regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15]);
    words.extend([regs.rdi, regs.rsi, regs.rbp, regs.rbx, regs.rdx, regs.rax, regs.rcx, regs.rsp, regs.rip]);
    words.push(regs.eflags);
    // cs, gs, fs, ss: 16 bits each.
    words.push((regs.cs & 0xffff) | ((regs.ss & 0xffff) << 48));
    // err, trapno, oldmask, cr2.
    words.extend([0; 4]);
    words.push(fpstate);
    words.extend([0; 8]);
    words.push(mask);
    words.extend([0; 16]);
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// The extended state as a signal frame holds it: marked with its size, closed by a magic word. `None`
/// when it is too short to be one.
pub(super) fn fpstate(extended: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = extended.to_vec();
    let size = u32::try_from(bytes.len()).ok()?;
    // The kernel gives the enabled features in the first reserved words.
    let features: [u8; 8] = bytes.get(SOFTWARE..SOFTWARE + 8)?.try_into().ok()?;
    let mut software = [0_u8; 48];
    software[..4].copy_from_slice(&MAGIC1.to_le_bytes());
    software[4..8].copy_from_slice(&(size.checked_add(4)?).to_le_bytes());
    software[8..16].copy_from_slice(&features);
    software[16..20].copy_from_slice(&size.to_le_bytes());
    bytes.get_mut(SOFTWARE..SOFTWARE + 48)?.copy_from_slice(&software);
    bytes.extend(MAGIC2.to_le_bytes());
    Some(bytes)
}

/// Registers with an interrupted system call made again, as only the kernel can do it better.
pub(super) fn restarted(regs: &Regs) -> Regs {
    /// `ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND`, `ERESTART_RESTARTBLOCK`.
    const RESTARTS: [i64; 4] = [-512, -513, -514, -516];
    let mut regs = *regs;
    if regs.orig_rax as i64 >= 0 && RESTARTS.contains(&(regs.rax as i64)) {
        regs.rax = regs.orig_rax;
        regs.rip = regs.rip.wrapping_sub(2);
    }
    regs
}
