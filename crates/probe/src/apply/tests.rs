//! Detours made and taken back in memory of our own.

use super::*;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd;

const PAGE: usize = 4096;

/// A page that may be written, and behind it one of a file opened for reading only: the kernel lets nobody write there.
fn half_open(file: &File) -> u64 {
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let own = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: fresh memory that nothing refers to.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 2 * PAGE, both, own, -1, 0) };
    let (behind, fd) = (at.wrapping_byte_add(PAGE), file.as_raw_fd());
    // SAFETY: over the second page of it.
    let placed = unsafe { libc::mmap(behind, PAGE, libc::PROT_READ, libc::MAP_SHARED | libc::MAP_FIXED, fd, 0) };
    assert_eq!(placed, behind);
    at as u64
}

fn patch(at: u64, old: &[u8], new: u8) -> Patch {
    let stub = Stub { bytes: vec![0x90; 16], relocated: 0, map: Vec::new() };
    let write = Write { at, old: old.to_vec(), new: vec![new; old.len()] };
    Patch { writes: vec![write], window: at..at + old.len() as u64, stub, stub_at: 0, gate: None }
}

fn bytes(memory: &Memory, at: u64) -> [u8; 5] {
    let mut there = [0; 5];
    memory.read(at, &mut there).unwrap();
    there
}

#[test]
fn a_window_half_written_is_the_old_one_again() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[7; PAGE]).unwrap();
    let readable = File::open(file.path()).unwrap();
    let page = half_open(&readable);
    let memory = Memory::open(std::process::id()).unwrap();
    let edge = page + PAGE as u64;
    // Bytes of the second page alone cannot be written, so the window over the edge can only be written in half.
    assert!(memory.write(edge, &[1]).is_err() && memory.write(edge - 1, &[1]).is_ok());
    memory.write(edge - 1, &[0]).unwrap();
    let over = patch(edge - 3, &[0, 0, 0, 7, 7], 0xe9);
    let (before, beside) = (patch(edge - 40, &[0; 5], 0xe9), patch(edge - 20, &[0; 5], 0xe9));
    let patches = [&before, &over, &beside];
    let failed = make(&mut Still::Held(&memory, None), &patches, false);
    assert_eq!(failed.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [1], "{failed:?}");
    assert!(failed[0].1.to_string().contains("does not let them be written"), "{failed:?}");
    assert_eq!(bytes(&memory, edge - 3), [0, 0, 0, 7, 7]);
    assert_eq!([bytes(&memory, edge - 40), bytes(&memory, edge - 20)], [[0xe9; 5]; 2], "neighbours are made");
    assert_eq!(restore(&memory, &[&before, &beside]), []);
    assert_eq!(bytes(&memory, edge - 40), [0; 5]);
}

#[test]
fn stubs_are_written_where_they_lie_and_nowhere_between() {
    let memory = Memory::open(std::process::id()).unwrap();
    // Two mappings of stubs with a page of the target's own between them.
    let mut area = vec![0x11_u8; 3 * PAGE];
    let start = (area.as_mut_ptr() as u64).next_multiple_of(PAGE as u64);
    let stub = |at: u64, length: usize| Patch {
        stub: Stub { bytes: vec![0x90; length], relocated: 0, map: Vec::new() },
        stub_at: at,
        ..patch(0, &[], 0)
    };
    // The second one begins where the first, aligned, ends.
    let patches = [stub(start + 64, 10), stub(start + 80, 16), stub(start + 512, 16), stub(start + 256, 16)];
    write_stubs(&memory, &patches.iter().collect::<Vec<_>>()).unwrap();
    let mut there = vec![0; 1024];
    memory.read(start, &mut there).unwrap();
    let is_stub = |i: usize| (64..74).contains(&i) || [80, 256, 512].iter().any(|s| (*s..s + 16).contains(&i));
    for (i, &byte) in there.iter().enumerate() {
        let padding = (74..80).contains(&i);
        assert_eq!(
            byte,
            if is_stub(i) {
                0x90
            } else if padding {
                0xcc
            } else {
                0x11
            },
            "byte {i}"
        );
    }
}
