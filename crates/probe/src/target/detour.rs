//! System calls made in the target's name where no memory of ours is mapped: for mapping it, and for
//! taking it away. A few instructions at the unused end of the text: the system call, then all that it
//! changed put back, then the way back to where the thread was. The controller never lets the thread run
//! further than the system call; the rest is what happens should the controller die. It needs no stack
//! (the thread's own may be a few hundred bytes of a coroutine's).

use super::home;
use super::maps::{self, Map};
use std::ops::Range;
use whither_kernel::memory::Memory;
use whither_kernel::ptrace::Regs;

/// Bytes of zeros wanted in front of the detour: what stands there may end in zeros of its own.
const MARGIN: u64 = 64;
/// Bytes of a detour, with its last word.
const BYTES: u64 = 160;
/// Its last word: where memory for calls is about to be mapped, so that a later controller finds it.
const GROUND: u64 = BYTES - 8;
const PAGE: u64 = 4096;

/// A detour in the target's text.
#[derive(Debug)]
pub(super) struct Detour {
    at: u64,
}

impl Detour {
    /// Writes one that leads back to `saved` and its signal mask; `None` when no text has room for it.
    pub(super) fn make(memory: &Memory, pid: u32, saved: &Regs, mask: u64) -> Option<Self> {
        let mut code = code(&home::restarted(saved), mask);
        code.resize(BYTES as usize, 0);
        let mut all: Vec<Map> = maps::read(pid).into_iter().filter(may_hold).collect();
        // A library could be unloaded by another thread; these never are.
        let exe = whither_kernel::proc::exe(pid);
        all.retain(|m| m.path == exe || m.path == "[vdso]" || is_kept(m.file_name()));
        all.sort_by_key(|m| m.path == "[vdso]");
        // What another controller left may say what else it left: that is written over only where there is no choice.
        let unused = all.iter().filter_map(|map| room(memory, map, false));
        let mut left: Vec<u64> = all.iter().filter_map(|map| room(memory, map, true)).collect();
        left.sort_by_key(|at| memory.word(at + GROUND).is_ok_and(|ground| ground != 0));
        unused.chain(left).find_map(|at| {
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

    /// Says where memory is about to be mapped.
    pub(super) fn announce(&self, memory: &Memory, ground: u64) -> bool {
        memory.set_word(self.at + GROUND, ground).is_ok()
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

/// A detour that a controller left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    at: u64,
    /// Where it was about to map memory, 0 for nowhere.
    pub(super) ground: u64,
}

impl Left {
    /// Its code.
    pub(super) fn range(self) -> Range<u64> {
        self.at..self.at + BYTES
    }

    /// Takes it away; no thread is in it, and what it tells of is gone.
    pub(super) fn clear(self, memory: &Memory) {
        Detour { at: self.at }.clear(memory);
    }
}

/// Detours that controllers left who were killed while they had a thread borrowed.
pub(super) fn left(memory: &Memory, maps: &[Map]) -> Vec<Left> {
    let ends = maps.iter().filter(|m| may_hold(m) && m.end - m.start >= PAGE).map(|m| m.end - BYTES);
    let mut found = Vec::new();
    let mut bytes = [0; BYTES as usize];
    for at in ends {
        if memory.read(at, &mut bytes).is_ok() && is_detour(&bytes) {
            let ground = memory.word(at + GROUND).unwrap_or(0);
            found.push(Left { at, ground });
        }
    }
    found
}

/// A place at the end of a mapping's last page that nothing uses, or that a detour of a controller that
/// died was left in.
fn room(memory: &Memory, map: &Map, left: bool) -> Option<u64> {
    let from = map.end.checked_sub(PAGE).filter(|&from| from >= map.start)?;
    let mut page = vec![0; PAGE as usize];
    memory.read(from, &mut page).ok()?;
    let end = page.get((PAGE - BYTES) as usize..)?;
    let margin = page.get((PAGE - BYTES - MARGIN) as usize..(PAGE - BYTES) as usize)?;
    let zero = |bytes: &[u8]| bytes.iter().all(|&b| b == 0);
    (zero(margin) && if left { is_detour(end) } else { zero(end) }).then_some(map.end - BYTES)
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
        assert!(code.len() as u64 <= GROUND, "{}", code.len());
        assert!(is_detour(&code));
        let lea_end = 19;
        let distance = u32::from_le_bytes(code[lea_end - 4..lea_end].try_into().expect("four")) as usize;
        assert_eq!(code[lea_end + distance..][..8], 0xaabb_u64.to_le_bytes());
    }
}
