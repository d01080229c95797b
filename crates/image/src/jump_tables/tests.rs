//! Jump tables of compiled switches, hand-made shapes, and how many of real programs are resolved.

use super::*;
use crate::bytes::Bytes;
use crate::disasm::decode;
use crate::stated::StatedBytes;
use crate::symbols::function_table;
use std::process::Command;

const SWITCH: &str = r#"
int g(int);
int f(int x, int y) {
    switch (x) {
    case 3: return g(y) + 1; case 4: return g(y * 3); case 5: return y ^ 7; case 6: return g(2) - y;
    case 7: return y * y;    case 8: return g(-y);    case 9: return 44;    case 10: return g(y) * g(y + 1);
    default: return 0;
    }
}
int g(int x) { __asm__ volatile("" : "+r"(x)); return x; }
int main(int c, char **v) { (void)v; return f(c, c + 1); }
"#;

/// All tables of a function of a program compiled with `flags`.
fn tables(flags: &[&str]) -> Vec<JumpTable> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (source, program) = (dir.path().join("s.c"), dir.path().join("s"));
    std::fs::write(&source, SWITCH).expect("writable");
    let built = Command::new("cc").args(flags).arg("-o").arg(&program).arg(&source).status().expect("cc");
    assert!(built.success(), "{flags:?}");
    of_function(&Bytes::from(std::fs::read(&program).expect("just built")), "f")
}

fn of_function(file: &Bytes, name: &str) -> Vec<JumpTable> {
    let data = StatedBytes::from_elf(file).expect("ELF");
    let (table, _) = function_table(file, None);
    let segments = crate::elf::ElfSummary::parse(file).expect("ELF").segments;
    let f = table.functions().iter().find(|f| &*f.name == name).expect("the function");
    let start = crate::ids::to_svma(&segments, f.start).expect("mapped").0;
    let range = start..start + f.size;
    let insns = decode(data.get(range.clone()).expect("code"), Svma(start));
    let jumps = insns.iter().enumerate().filter(|(_, i)| i.flow == Flow::IndirectJump);
    jumps.filter_map(|(i, _)| resolve(&insns, i, std::slice::from_ref(&range), &data)).collect()
}

#[test]
fn compiled_switches_are_resolved() {
    for flags in [
        &["-O2", "-fPIE", "-pie"][..],
        &["-O2", "-no-pie", "-fno-pie"],
        &["-Os", "-fPIE", "-pie"],
        &["-O1", "-fPIC", "-pie"],
        &["-O2", "-fPIE", "-pie", "-fcf-protection=full"],
    ] {
        let found = tables(flags);
        assert_eq!(found.len(), 1, "{flags:?}");
        let table = &found[0];
        assert!(table.bounded, "{flags:?}: {table:x?}");
        assert_eq!(table.targets.len() % 8, table.targets.len() - 8, "8 to 15 entries: {flags:?} {table:x?}");
        let mut distinct = table.targets.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() >= 8, "{flags:?}: {table:x?}");
    }
}

struct Nothing;
impl Data for Nothing {
    fn bytes(&self, _: Svma, _: usize) -> Option<&[u8]> {
        None
    }
}

#[test]
fn tail_calls_and_broken_tables_are_not_resolved() {
    // jmp *%rax; jmp *0x8(%rdi); jmp *table(,%rax,8) with the table not in the file
    for code in [&[0xff, 0xe0][..], &[0xff, 0x67, 8], &[0xff, 0x24, 0xc5, 0, 0x10, 0, 0]] {
        let insns = decode(code, Svma(0x1000));
        assert_eq!(resolve(&insns, 0, std::slice::from_ref(&(0x1000..0x2000)), &Nothing), None);
    }
    assert_eq!(resolve(&[], 0, &[], &Nothing), None);
}
