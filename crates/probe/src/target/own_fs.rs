//! Whether a program sets its thread pointer itself, past the C library: another threading library, an emulator. The
//! agent then may not look for its own words there, and finds threads by the pointer's value, which costs more. Told by
//! code of the program alone: what libraries do, or generated code, is not foreseen.

use super::maps::{self, Map};
use memchr::memmem;
use std::os::unix::fs::MetadataExt;
use whither_kernel::memory::Memory;

/// Code read at once.
const PIECE: usize = 1 << 20;
/// Of larger programs nothing is read: a thread is held meanwhile.
const MOST: u64 = 8 << 20;
/// `ARCH_SET_FS` and the number of `arch_prctl`, as operands of a `mov`.
const SET_FS: [u8; 4] = [0x02, 0x10, 0, 0];
const ARCH_PRCTL: [u8; 4] = [0x9e, 0, 0, 0];
/// One is loaded near the other.
const NEAR: usize = 48;
/// `wrfsbase` of a register from rax on, or from r8 on.
const WRITES: [&[u8]; 2] = [&[0xf3, 0x48, 0x0f, 0xae], &[0xf3, 0x49, 0x0f, 0xae]];

/// Whether code of the program's own file does so; that of its libraries is not looked at.
pub(super) fn is_set(pid: u32, memory: &Memory) -> bool {
    let Ok(program) = std::fs::metadata(format!("/proc/{pid}/exe")).map(|m| m.ino()) else { return false };
    let is_code = |m: &&Map| m.execute && m.inode == program && m.end - m.start <= MOST;
    maps::read(pid).iter().filter(is_code).any(|m| in_mapping(m, memory))
}

fn in_mapping(map: &Map, memory: &Memory) -> bool {
    let mut bytes = vec![0_u8; PIECE];
    let mut at = map.start;
    while at < map.end {
        let wanted = (map.end - at).min(PIECE as u64) as usize;
        let got = memory.read_some(at, &mut bytes[..wanted]);
        if sets(&bytes[..got]) {
            return true;
        }
        if got <= NEAR {
            return false;
        }
        // So that nothing is cut.
        at += if at + got as u64 == map.end { got } else { got - NEAR } as u64;
    }
    false
}

fn sets(code: &[u8]) -> bool {
    let asks = memmem::find_iter(code, &SET_FS).any(|at| {
        let around = &code[at.saturating_sub(NEAR)..(at + NEAR).min(code.len())];
        is_operand(code, at) && memmem::find_iter(around, &ARCH_PRCTL).any(|n| is_operand(around, n))
    });
    // The register form alone: in memory the same bytes are `ldmxcsr`.
    let is_register = |at: usize| code.get(at + 4).is_some_and(|form| (0xd0..=0xd7).contains(form));
    asks || WRITES.iter().any(|write| memmem::find_iter(code, write).any(is_register))
}

/// Whether it is the operand of `mov $..., %e..`, or of the longer `mov $..., %r..`.
fn is_operand(code: &[u8], at: usize) -> bool {
    let before = |n: usize| at.checked_sub(n).and_then(|at| code.get(at)).copied().unwrap_or(0);
    (0xb8..=0xbf).contains(&before(1)) || ((0xc0..=0xc7).contains(&before(1)) && before(2) == 0xc7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_sets_the_thread_pointer_is_seen() {
        // mov $0x1002,%edi; mov $0x9e,%eax; syscall
        assert!(sets(&[0x90, 0xbf, 2, 0x10, 0, 0, 0xb8, 0x9e, 0, 0, 0, 0x0f, 0x05]));
        // mov $0x9e,%edi; mov %rbx,%rdx; mov $0x1002,%rsi; call syscall
        assert!(sets(&[0xbf, 0x9e, 0, 0, 0, 0x48, 0x89, 0xda, 0x48, 0xc7, 0xc6, 2, 0x10, 0, 0, 0xe8, 0, 0, 0, 0]));
        // wrfsbase %rdi, wrfsbase %r9
        assert!(sets(&[0xf3, 0x48, 0x0f, 0xae, 0xd7]) && sets(&[0x90, 0xf3, 0x49, 0x0f, 0xae, 0xd1]));
    }

    #[test]
    fn what_only_looks_like_it_is_none() {
        // Another constant; the number far away; ldmxcsr; rdfsbase.
        assert!(!sets(&[0xbf, 2, 0x10, 0, 0, 0xb8, 0x9f, 0, 0, 0, 0x0f, 0x05]));
        let far: Vec<u8> = [0xbf, 2, 0x10, 0, 0].into_iter().chain([0x90; 60]).chain([0xb8, 0x9e, 0, 0, 0]).collect();
        assert!(!sets(&far));
        assert!(!sets(&[0xf3, 0x48, 0x0f, 0xae, 0x17]) && !sets(&[0xf3, 0x48, 0x0f, 0xae, 0xc7]));
    }

    #[test]
    fn ordinary_programs_do_not() {
        let own = Memory::open(std::process::id()).expect("our own memory");
        assert!(!is_set(std::process::id(), &own));
    }
}
