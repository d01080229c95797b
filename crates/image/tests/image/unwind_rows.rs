//! Packed unwind rows against another reader of the same bytes: at return addresses all over real libraries,
//! one step by the row and one step by framehop lead to the same frame. And damaged files lead to no panic.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests: a panic is the verdict, a skip is told")]

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};
use object::{Object, ObjectSection};
use proptest::prelude::*;
use whither_abi::agent::{RULE_BIG, RULE_END, RULE_NONE, RULE_RBP, RULE_RSP};
use whither_image::{Bytes, CodeMap, Linkage, Svma, UnwindRows, callees, code_names};

const SP: u64 = 0x7ff0_0000_1000;
const BP: u64 = 0x7ff0_0001_0000;

/// The word at an address of a made-up stack: tells its address, so that a result tells what was read.
fn word(at: u64) -> u64 {
    at ^ 0x5a5a_0000_0000
}

/// (frame address, caller's rbp) by a packed rule.
fn step(rows: &UnwindRows, rule: u32) -> Option<(u64, u64)> {
    let base = |kind: u32| if kind == RULE_RSP { SP } else { BP };
    match rule & 7 {
        kind @ (RULE_RSP | RULE_RBP) => {
            let cfa = base(kind).wrapping_add(u64::from(rule >> 3 & 0x3fff) * 8);
            let saved = rule >> 17 & 1 != 0;
            let offset = i64::from(rule.cast_signed() >> 18) * 8;
            Some((cfa, if saved { word(cfa.wrapping_add_signed(offset)) } else { BP }))
        }
        RULE_BIG => {
            let big = rows.big[(rule >> 3) as usize];
            let at = base(big.reg.into()).wrapping_add_signed(big.cfa_offset.into());
            let cfa = if big.deref != 0 { word(at).wrapping_add_signed(big.more.into()) } else { at };
            let bp = match big.rbp {
                0 => BP,
                1 => word(cfa.wrapping_add_signed(big.rbp_offset.into())),
                _ => word(BP.wrapping_add_signed(big.rbp_offset.into())),
            };
            Some((cfa, bp))
        }
        _ => None,
    }
}

fn framehop_of(file: &[u8]) -> UnwinderX86_64<Vec<u8>> {
    let elf = object::File::parse(file).unwrap();
    let range = |name: &str| elf.section_by_name(name).map(|s| s.address()..s.address() + s.size());
    let bytes = |name: &str| elf.section_by_name(name).map(|s| s.uncompressed_data().unwrap().into_owned());
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: range(".text"),
        got_svma: range(".got"),
        eh_frame_svma: range(".eh_frame"),
        eh_frame: bytes(".eh_frame"),
        eh_frame_hdr_svma: range(".eh_frame_hdr"),
        eh_frame_hdr: bytes(".eh_frame_hdr"),
        ..Default::default()
    };
    let mut unwinder = UnwinderX86_64::new();
    unwinder.add_module(Module::new(String::new(), 0..1 << 31, 0, sections));
    unwinder
}

/// Addresses behind calls, sampled.
fn return_addresses(file: &Bytes, each: usize) -> Vec<u64> {
    let map = CodeMap::from_elf(file, &code_names(file, None)).unwrap();
    let bodies = map.unwind_starts().step_by(each).filter_map(|at| map.body(at));
    let calls =
        bodies.flatten().filter(|i| matches!(i.flow, whither_image::Flow::Call(_) | whither_image::Flow::IndirectCall));
    calls.map(|i| i.end().0).collect()
}

#[test]
fn rows_agree_with_another_unwinder_at_return_addresses() {
    let files = [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/bin/bash",
        "/usr/bin/git",
        "/usr/bin/python3.11",
    ];
    for path in files {
        let Ok(file) = std::fs::read(path).map(Bytes::from) else {
            println!("SKIP: no {path}");
            continue;
        };
        let rows = UnwindRows::from_elf(&file).unwrap();
        assert!(rows.problems.is_empty(), "{path}: {:?}", rows.problems);
        let unwinder = framehop_of(&file);
        let (mut compared, mut without, mut theirs_failed) = (0, 0, 0);
        for ra in return_addresses(&file, 5) {
            let rule = rows.find(Svma(ra - 1));
            let mut cache = CacheX86_64::new();
            let mut regs = UnwindRegsX86_64::new(ra, SP, BP);
            let mut read = |at: u64| Ok(word(at));
            let address = FrameAddress::from_return_address(ra).unwrap();
            let theirs = unwinder.unwind_frame(address, &mut regs, &mut cache, &mut read);
            match (step(&rows, rule), theirs) {
                (Some((cfa, bp)), Ok(Some(back))) => {
                    assert_eq!((regs.sp(), regs.bp(), back), (cfa, bp, word(cfa - 8)), "{path} {ra:#x} rule {rule:#x}");
                    compared += 1;
                }
                (None, Ok(None)) => assert_eq!(rule, RULE_END),
                (None, _) => {
                    assert_eq!(rule, RULE_NONE, "{path} {ra:#x}");
                    without += 1;
                }
                (Some(_), _) => theirs_failed += 1,
            }
        }
        println!("{path}: {compared} compared, {without} without rule, {theirs_failed} only here");
        assert!(compared > 1000 && without * 1000 <= compared && theirs_failed * 1000 <= compared, "{path}");
    }
}

/// A small real file with some bytes changed.
fn damaged(changes: &[(usize, u8)]) -> Bytes {
    let mut bytes = std::fs::read("/bin/true").unwrap_or_default();
    let length = bytes.len().max(1);
    for (at, value) in changes {
        if let Some(byte) = bytes.get_mut(at % length) {
            *byte = *value;
        }
    }
    Bytes::from(bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn damaged_files_cost_an_answer_at_most(changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..40)) {
        let file = damaged(&changes);
        if let Ok(rows) = UnwindRows::from_elf(&file) {
            prop_assert!(rows.rows.windows(2).all(|w| w[0].offset < w[1].offset && w[0].rule != w[1].rule));
            prop_assert!(rows.rows.iter().all(|r| r.rule & 7 != RULE_BIG || ((r.rule >> 3) as usize) < rows.big.len()));
        }
        let names = code_names(&file, None);
        if let (Ok(map), Ok(linkage)) = (CodeMap::from_elf(&file, &names), Linkage::from_elf(&file)) {
            let starts: Vec<Svma> = map.unwind_starts().take(20).chain(names.iter().take(20).map(|n| n.address)).collect();
            for at in starts {
                let entry = map.entry(at);
                if let Ok(plan) = entry.plan {
                    prop_assert!(plan.window >= 2 && plan.window <= 16);
                }
                let _ = callees(&map, &linkage, at);
            }
        }
    }
}
