//! Broken files: every parser is given real files that are cut or damaged and must come back, and
//! what it says of an undamaged part must hold together.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests: a panic is the verdict, a skip is told")]

use proptest::prelude::*;
use std::sync::OnceLock;
use whither_image::{
    Bytes, ElfSummary, ElfUnwindInfo, FunctionTable, LineService, Machine, PrefixId, Svma, build_id_from_prefix,
    decode, function_table,
};

fn small() -> &'static [u8] {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    FILE.get_or_init(|| std::fs::read("/bin/true").unwrap())
}

/// This test's own binary: ELF with symbols and DWARF on every machine that runs the test.
fn own() -> &'static [u8] {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    FILE.get_or_init(|| std::fs::read(std::env::current_exe().unwrap()).unwrap())
}

fn sound(table: &FunctionTable) {
    for f in table.functions() {
        assert!(f.size > 0 && f.start.0.checked_add(f.size).is_some(), "{f:?}");
    }
    for pair in table.functions().windows(2) {
        assert!(pair[0].start.0 + pair[0].size <= pair[1].start.0, "{pair:?}");
    }
}

/// Everything that reads ELF files.
fn read_all(bytes: &[u8]) {
    let _ = build_id_from_prefix(bytes);
    let (table, _) = function_table(bytes, None);
    sound(&table);
    let Ok(summary) = ElfSummary::parse(bytes) else { return };
    let bytes = Bytes::from(bytes.to_vec());
    let _ = ElfUnwindInfo::from_elf(&bytes);
    if let Ok(lines) = LineService::new(&bytes, None) {
        let _ = lines.frames(summary.entry);
        let _ = lines.signatures(&[summary.entry]);
    }
}

#[test]
fn whole_files_are_read() {
    let summary = ElfSummary::parse(small()).unwrap();
    assert_eq!(summary.problems, []);
    assert!(summary.debuglink.is_some() && !summary.has_symtab && !summary.segments.is_empty());
    assert_eq!(build_id_from_prefix(&small()[..4096]).unwrap(), PrefixId::Found(summary.id));
    let own = ElfSummary::parse(own()).unwrap();
    assert!(own.has_symtab && own.has_dwarf);
    assert_ne!(own.machine, Machine::Other(0));
}

#[test]
fn files_cut_at_any_place() {
    let file = small();
    for cut in (0..file.len()).step_by(97).chain(0..200) {
        read_all(&file[..cut]);
    }
    let file = own();
    for cut in (0..40).map(|i| file.len() / 40 * i) {
        read_all(&file[..cut]);
    }
}

#[test]
fn a_prefix_says_how_much_more_it_needs() {
    let file = small();
    let id = ElfSummary::parse(file).unwrap().id;
    let mut have = 4;
    for _ in 0..4 {
        match build_id_from_prefix(&file[..have]).unwrap() {
            PrefixId::Found(found) => return assert_eq!(found, id),
            PrefixId::NeedBytes(bytes) => {
                assert!(bytes > have as u64);
                have = bytes as usize;
            }
            PrefixId::Absent => panic!("absent after {have} bytes"),
        }
    }
    panic!("still asks for more after {have} bytes");
}

#[test]
fn not_elf() {
    for bytes in [&b""[..], b"\x7f", b"\x7fELF", b"#!/bin/sh\n", b"\x7fELF\x03\x01\x01"] {
        assert!(ElfSummary::parse(bytes).is_err());
        let (table, problems) = function_table(bytes, None);
        assert!(table.functions().is_empty() && problems.len() == 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_small_files(flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..30)) {
        let mut file = small().to_vec();
        for (at, byte) in flips {
            let at = at.index(file.len());
            file[at] = byte;
        }
        read_all(&file);
    }

    /// Headers decide where everything else is: damage there goes further.
    #[test]
    fn damaged_headers(flips in proptest::collection::vec((0usize..800, any::<u8>()), 1..6), behind in proptest::collection::vec((0usize..2000, any::<u8>()), 0..6)) {
        let mut file = small().to_vec();
        let size = file.len();
        for (at, byte) in flips {
            file[at] = byte;
        }
        for (at, byte) in behind {
            file[size - 1 - at] = byte;
        }
        read_all(&file);
    }

    #[test]
    fn any_bytes_decode_without_holes(code in proptest::collection::vec(any::<u8>(), 0..300), at: u64) {
        let insns = decode(&code, Svma(at));
        let mut next = Svma(at);
        for insn in &insns {
            prop_assert_eq!(insn.address, next);
            next = insn.end();
        }
        prop_assert_eq!(next.0, at.wrapping_add(code.len() as u64));
        let blocks = whither_image::Blocks::new(&insns);
        prop_assert_eq!(blocks.blocks.iter().map(|b| b.insns.len()).sum::<usize>(), insns.len());
        for i in 0..insns.len() {
            let _ = blocks.before(i);
        }
    }
}
