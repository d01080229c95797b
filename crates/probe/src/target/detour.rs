//! System calls made in the target's name where no memory of ours is mapped: for mapping it, and for
//! taking it away. A few instructions at the unused end of the text: the system call, then all that it
//! changed put back, then the way back to where the thread was. The controller never lets the thread run
//! further than the system call; the rest is what happens should the controller die. It needs no stack
//! (the thread's own may be a few hundred bytes of a coroutine's).

use super::home;
use super::maps::{self, Map};
use whither_kernel::memory::Memory;
use whither_kernel::ptrace::Regs;

/// Bytes of zeros wanted in front of the detour: what stands there may end in zeros of its own.
const MARGIN: u64 = 64;
/// Bytes of a detour.
const BYTES: u64 = 144;
const PAGE: u64 = 4096;

/// A detour in the target's text.
#[derive(Debug)]
pub(super) struct Detour {
    at: u64,
}

impl Detour {
    /// Writes one that leads back to `saved` and its signal mask; `None` when no text has room for it.
    pub(super) fn make(memory: &Memory, pid: u32, saved: &Regs, mask: u64) -> Option<Self> {
        let code = code(&home::restarted(saved), mask);
        let mut all: Vec<Map> = maps::read(pid).into_iter().filter(may_hold).collect();
        // A library could be unloaded by another thread; these never are.
        let exe = whither_kernel::proc::exe(pid);
        all.retain(|m| m.path == exe || m.path == "[vdso]" || is_kept(m.file_name()));
        all.sort_by_key(|m| m.path == "[vdso]");
        all.iter().find_map(|map| {
            let at = room(memory, map)?;
            let mut there = vec![0; code.len()];
            memory.write(at, &code).ok()?;
            memory.read(at, &mut there).ok()?;
            (there == code).then_some(Self { at })
        })
    }

    /// Its system call.
    pub(super) fn start(&self) -> u64 {
        self.at
    }

    /// Takes it away; the thread is elsewhere.
    pub(super) fn clear(self, memory: &Memory) {
        // The process is gone otherwise.
        let _ = memory.write(self.at, &[0; BYTES as usize]);
    }
}

/// Text of a file, private to the process.
fn may_hold(map: &Map) -> bool {
    map.execute && map.read && !map.write && !map.shared && (map.path == "[vdso]" || map.path.starts_with('/'))
}

fn is_kept(name: &str) -> bool {
    ["libc.so", "libc-2.", "ld-linux", "ld-2.", "ld-musl", "libc.musl"].iter().any(|s| name.starts_with(s))
}

/// A place at the end of a mapping's last page that nothing uses, or that a detour of a controller that
/// died was left in.
fn room(memory: &Memory, map: &Map) -> Option<u64> {
    let from = map.end.checked_sub(PAGE).filter(|&from| from >= map.start)?;
    let mut page = vec![0; PAGE as usize];
    memory.read(from, &mut page).ok()?;
    let end = page.get((PAGE - BYTES) as usize..)?;
    let margin = page.get((PAGE - BYTES - MARGIN) as usize..(PAGE - BYTES) as usize)?;
    let zero = |bytes: &[u8]| bytes.iter().all(|&b| b == 0);
    (zero(margin) && (zero(end) || is_detour(end))).then_some(map.end - BYTES)
}

/// What all detours begin with: `syscall`, then `rt_sigprocmask(SIG_SETMASK, ..)`.
const BEGIN: [u8; 12] = [0x0f, 0x05, 0xb8, 14, 0, 0, 0, 0xbf, 2, 0, 0, 0];

fn is_detour(bytes: &[u8]) -> bool {
    bytes.starts_with(&BEGIN)
}

fn code(back: &Regs, mask: u64) -> Vec<u8> {
    let mut code = vec![0x0f, 0x05];
    let mask_at = home::give_mask(&mut code);
    home::give_registers(&mut code, back, mask, mask_at);
    code
}

/// Whether an address lies in a detour.
pub(super) fn holds(memory: &Memory, ip: u64) -> bool {
    let from = (ip & !(PAGE - 1)) + (PAGE - BYTES);
    let mut start = [0; BEGIN.len()];
    ip >= from && memory.read(from, &mut start).is_ok() && is_detour(&start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detour_fits_and_is_known_again() {
        // SAFETY: a plain struct of words, for which zero is a value.
        let mut regs: Regs = unsafe { std::mem::zeroed() };
        regs.rip = 0x1122_3344_5566_7788;
        let code = code(&regs, 0xaabb);
        assert!(code.len() as u64 <= BYTES, "{}", code.len());
        assert!(is_detour(&code));
        let lea_end = 19;
        let distance = u32::from_le_bytes(code[lea_end - 4..lea_end].try_into().expect("four")) as usize;
        assert_eq!(code[lea_end + distance..][..8], 0xaabb_u64.to_le_bytes());
    }
}
