//! Moved instructions are executed: random first instructions of a function, once where they stand and once
//! through their stub, must leave the same registers and flags, and take the same ways out.

#![allow(clippy::unwrap_used, unsafe_code, reason = "tests: a panic is the verdict")]

use proptest::prelude::*;
use std::arch::asm;
use whither_probe::stub::{LONGEST, stub};

/// Where things stand in the page of code.
const FUNCTION: usize = 0x100;
const WAY_OUT: usize = 0x180;
const LEAF: usize = 0x1c0;
const POINTER: usize = 0x200;
const DATA: usize = 0x208;
const COMMON: usize = 0x240;
const STUB: usize = 0x800;
const SIZE: usize = 0x1000;

/// Memory that can be written and executed.
struct Page(*mut u8);

impl Page {
    fn new() -> Self {
        // SAFETY: a fresh anonymous mapping, owned by this value.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                SIZE,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at.cast())
    }

    fn at(&self, offset: usize) -> u64 {
        self.0 as u64 + offset as u64
    }

    fn put(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= SIZE);
        // SAFETY: inside of the page, as just checked; nothing else refers to it.
        let place = unsafe { self.0.add(offset) };
        // SAFETY: as above, and the bytes are somewhere else.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, not used any more.
        unsafe { libc::munmap(self.0.cast(), SIZE) };
    }
}

/// rax rcx rdx rsi rdi r8 r9 r10 r11, and the arithmetic flags.
type State = [u64; 10];

fn run(entry: u64, state: State) -> State {
    let mut s = state;
    // SAFETY: the code at `entry` changes these registers and flags, keeps the stack balanced and returns.
    unsafe {
        asm!(
            "sub rsp, 128", "push r13", "popfq", "call r12", "pushfq", "pop r13", "add rsp, 128",
            in("r12") entry, inout("r13") s[9],
            inout("rax") s[0], inout("rcx") s[1], inout("rdx") s[2], inout("rsi") s[3], inout("rdi") s[4],
            inout("r8") s[5], inout("r9") s[6], inout("r10") s[7], inout("r11") s[8],
        );
    }
    s[9] &= 0x8d5;
    s
}

/// Relative to the function: how far from behind an instruction that ends at `end`.
fn distance(target: usize, end: usize) -> [u8; 4] {
    (target as i32 - (FUNCTION + end) as i32).to_le_bytes()
}

/// One instruction, for its place in the function.
fn instruction(kind: u8, value: u8, at: usize) -> Vec<u8> {
    let short = |opcode: u8| vec![opcode, (WAY_OUT - (FUNCTION + at + 2)) as u8];
    let with = |head: &[u8], target: usize, tail: &[u8]| {
        let end = at + head.len() + 4 + tail.len();
        [head, &distance(target, end), tail].concat()
    };
    match kind % 16 {
        0 => vec![0x48, 0x83, 0xc0 | (value % 3), value], // add $v to rax, rcx or rdx
        1 => vec![0x31, 0xc0 | (value & 0o11)],           // xor among eax, ecx
        2 => vec![0x4d, 0x01, 0xc8],                      // add %r9,%r8
        3 => with(&[0x48, 0x8d, 0x05], DATA, &[]),        // lea data(%rip),%rax
        4 => with(&[0x48, 0x8b, 0x15], DATA, &[]),        // mov data(%rip),%rdx
        5 => with(&[0x80, 0x3d], DATA, &[value]),         // cmpb $v,data(%rip)
        6 => short(0x70 | value & 15),                    // jcc short
        7 => with(&[0x0f, 0x80 | value & 15], WAY_OUT, &[]), // jcc near
        8 => short(0xe3),                                 // jrcxz
        9 => short(0xe2),                                 // loop
        10 => short(0xeb),                                // jmp short
        11 => with(&[0xe8], LEAF, &[]),                   // call
        12 => with(&[0xff, 0x15], POINTER, &[]),          // call *pointer(%rip)
        13 => vec![0x0f, 0xaf, 0xc1],                     // imul %ecx,%eax
        14 => vec![0x49, 0xff, 0xc2],                     // inc %r10
        _ => vec![0x90],
    }
}

/// Whole instructions that cover five bytes, and what else the function does.
fn function(kinds: &[(u8, u8)]) -> (Vec<u8>, usize) {
    let mut code = Vec::new();
    for (kind, value) in kinds {
        if code.len() >= 5 {
            break;
        }
        code.extend(instruction(*kind, *value, code.len()));
    }
    code.resize(code.len().max(5), 0x90);
    let window = code.len();
    code.extend([0x48, 0xff, 0xc7, 0xc3]); // inc %rdi; ret
    (code, window)
}

fn both_ways(kinds: &[(u8, u8)], state: State) -> Result<(), TestCaseError> {
    let page = Page::new();
    let (code, window) = function(kinds);
    page.put(FUNCTION, &code);
    page.put(WAY_OUT, &[0x49, 0xc7, 0xc2, 0x77, 0, 0, 0, 0xc3]); // mov $0x77,%r10; ret
    page.put(LEAF, &[0x4c, 0x8b, 0x1c, 0x24, 0xc3]); // mov (%rsp),%r11: the return address; ret
    page.put(POINTER, &page.at(LEAF).to_le_bytes());
    page.put(DATA, &0x1122_3344_5566_7788_u64.to_le_bytes());
    // Instead of the agent: drop the index and go on at the displaced instructions, flags kept.
    let mut common = vec![0x48, 0x8d, 0x64, 0x24, 8, 0xe9]; // lea 8(%rsp),%rsp; jmp
    common.extend(((STUB + 32) as i32 - (COMMON + 10) as i32).to_le_bytes());
    page.put(COMMON, &common);
    let bytes = code.get(..window).unwrap();
    match stub(7, page.at(COMMON), page.at(FUNCTION), bytes, page.at(STUB)) {
        Ok(stub) => {
            prop_assert!(stub.bytes.len() <= LONGEST);
            page.put(STUB, &stub.bytes);
            let there = run(page.at(FUNCTION), state);
            prop_assert_eq!(run(page.at(STUB), state), there, "{:02x?}", bytes);
        }
        Err(refusal) => {
            // Only a call that does not close the window is refused among these.
            prop_assert!(kinds.iter().any(|(k, _)| matches!(k % 16, 11 | 12)), "{refusal} {bytes:02x?}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]
    #[test]
    fn the_copy_does_what_the_original_does(
        kinds in proptest::collection::vec((any::<u8>(), any::<u8>()), 1..5),
        registers in any::<[u64; 9]>(),
        small in 0_u64..3,
        flags in 0_u64..0x1000,
    ) {
        let mut state = [0; 10];
        state[..9].copy_from_slice(&registers);
        // A counter near zero takes `jrcxz` and `loop` both ways.
        state[1] = small;
        state[9] = (flags & 0x8d5) | 0x202;
        both_ways(&kinds, state)?;
    }
}

#[test]
fn each_instruction_alone() {
    for kind in 0..16 {
        for counter in 0..3 {
            for value in [0, 4, 5, 0x85] {
                let state = [9, counter, 3, 4, 5, 6, 7, 8, 1, 0x247];
                both_ways(&[(15, 0), (15, 0), (15, 0), (kind, value)], state).unwrap();
                both_ways(&[(kind, value)], state).unwrap();
            }
        }
    }
}
