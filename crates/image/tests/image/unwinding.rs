//! Stacks of a real program, unwound off-line from what it prints of itself, compared with what the
//! C library's own unwinder found in the live process.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests: a panic is the verdict, a skip is told")]

use crate::common::compile;
use std::collections::BTreeMap;
use std::process::Command;
use whither_image::{Bytes, ElfSummary, ElfUnwindInfo, StackEnd, UnwindCache, Unwinder, UserRegs, load_bias};

/// What `stack.c` prints.
struct Dump {
    regs: UserRegs,
    frames: Vec<u64>,
    stack: Vec<u8>,
    maps: Vec<String>,
    /// Holds the program's file for as long as the maps name it.
    _dir: tempfile::TempDir,
}

fn dump(flags: &[&str]) -> Option<Dump> {
    let dir = tempfile::tempdir().unwrap();
    let program = compile("gcc", "stack.c", flags, dir.path())?;
    let output = Command::new(&program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let hex = |digits: &str| u64::from_str_radix(digits, 16).unwrap();
    let with = |prefix: &'static str| text.lines().filter_map(move |l| l.strip_prefix(prefix));
    let regs: Vec<u64> = with("regs ").next().unwrap().split(' ').map(hex).collect();
    let stack = with("stack").next().unwrap();
    Some(Dump {
        regs: UserRegs { ip: regs[0], sp: regs[1], bp: regs[2] },
        frames: with("frame ").map(hex).collect(),
        stack: (0..stack.len()).step_by(2).map(|i| hex(&stack[i..i + 2]) as u8).collect(),
        maps: with("map ").map(str::to_owned).collect(),
        _dir: dir,
    })
}

fn unwinder(maps: &[String]) -> Unwinder {
    let mut images: BTreeMap<String, (ElfUnwindInfo, ElfSummary)> = BTreeMap::new();
    let mut unwinder = Unwinder::new();
    for line in maps {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if !fields[1].contains('x') || !fields[5].starts_with('/') {
            continue;
        }
        let (start, end) = fields[0].split_once('-').unwrap();
        let hex = |digits: &str| u64::from_str_radix(digits, 16).unwrap();
        let (info, summary) = images.entry(fields[5].to_owned()).or_insert_with(|| {
            let bytes = std::fs::read(fields[5]).unwrap();
            let summary = ElfSummary::parse(&bytes).unwrap();
            (ElfUnwindInfo::from_elf(&Bytes::from(bytes)).unwrap(), summary)
        });
        let bias = load_bias(&summary.segments, hex(start), hex(fields[2])).unwrap();
        unwinder.add_module(hex(start)..hex(end), bias, info);
    }
    unwinder
}

fn compare(flags: &[&str]) {
    let Some(dump) = dump(flags) else { return };
    let unwinder = unwinder(&dump.maps);
    let mut cache = UnwindCache::default();
    let stack = unwinder.unwind(&mut cache, dump.regs, &dump.stack, 64);
    // The first address is within `dump` in both, but not the same instruction.
    assert!(dump.frames.len() > 16, "{:x?}", dump.frames);
    assert_eq!(stack.addresses[1..], dump.frames[1..], "{flags:?}: {stack:x?}");
    assert_eq!(stack.end, StackEnd::Root, "{flags:?}");
    assert_eq!(stack.addresses[0], dump.regs.ip);

    let short = unwinder.unwind(&mut cache, dump.regs, &dump.stack, 5);
    assert_eq!((short.addresses.len(), short.end), (5, StackEnd::DepthLimit));
    let cut = unwinder.unwind(&mut cache, dump.regs, &dump.stack[..300], 64);
    assert_eq!(cut.end, StackEnd::BeyondCopy);
    assert_eq!(cut.addresses, stack.addresses[..cut.addresses.len()]);
    let lost = Unwinder::new().unwind(&mut cache, dump.regs, &dump.stack, 64);
    assert!(matches!(lost.end, StackEnd::UnknownCode | StackEnd::Broken | StackEnd::BeyondCopy), "{lost:x?}");
    assert_eq!(lost.addresses, [dump.regs.ip]);
}

#[test]
fn without_frame_pointers() {
    compare(&["-O2", "-fomit-frame-pointer"]);
}

#[test]
fn with_frame_pointers_and_fixed_address() {
    compare(&["-O1", "-fno-omit-frame-pointer", "-no-pie"]);
}

#[test]
fn new_mappings_replace_old_ones() {
    let mut unwinder = Unwinder::new();
    let info = ElfUnwindInfo::frame_pointers();
    unwinder.add_module(0x1000..0x3000, 0, &info);
    unwinder.add_module(0x2000..0x4000, 0, &info);
    unwinder.remove_module(0x9000);
    let regs = |ip| UserRegs { ip, sp: 0x100, bp: 0x100 };
    // A frame pointer chain: saved frame pointer 0, then a return address.
    let stack = |return_to: u64| [0u64.to_le_bytes(), return_to.to_le_bytes()].concat();
    let walk = |ip, to| unwinder.unwind(&mut UnwindCache::default(), regs(ip), &stack(to), 8);
    assert_eq!(walk(0x2800, 0x2010).addresses, [0x2800, 0x2010]);
    assert_eq!(walk(0x2800, 0x1010).end, StackEnd::UnknownCode);
}
