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

/// What bounds the index of the last instruction of some code.
fn bound_of(code: &[u8], index: Register) -> Bound {
    let insns = decode(code, Svma(0x1000));
    bound(&insns, insns.len() - 1, index)
}

#[test]
fn guards_of_the_index_of_a_copy_and_of_its_place_in_memory() {
    use Register::{RAX, RBX};
    let last = [0x90];
    // cmp eax,9; ja +0; nop
    assert_eq!(bound_of(&[0x83, 0xf8, 9, 0x77, 0, 0x90], RAX), Bound::Guarded(10));
    // mov rax,rbx; cmp eax,9; ja +0: the copy is compared, the original is the index
    assert_eq!(bound_of(&[0x48, 0x89, 0xd8, 0x83, 0xf8, 9, 0x77, 0, 0x90], RBX), Bound::Guarded(10));
    // the same, but the copy is changed in between
    assert_eq!(bound_of(&[0x48, 0x89, 0xd8, 0xff, 0xc0, 0x83, 0xf8, 9, 0x77, 0, 0x90], RBX), Bound::Unknown);
    // cmp dword [rcx],11; ja +0; mov eax,[rcx]
    let memory = [0x83, 0x39, 11, 0x77, 0, 0x8b, 0x01];
    assert_eq!(bound_of(&[&memory[..], &last].concat(), RAX), Bound::Guarded(12));
    // a store in between may have changed it: mov [rdx],esi
    let stored = [0x83, 0x39, 11, 0x77, 0, 0x89, 0x32, 0x8b, 0x01, 0x90];
    assert_eq!(bound_of(&stored, RAX), Bound::Unknown);
    // movzx eax,byte [rcx]: no more than 256; movzx eax,bl too
    assert_eq!(bound_of(&[0x0f, 0xb6, 0x01, 0x90], RAX), Bound::AtMost(256));
    assert_eq!(bound_of(&[0x0f, 0xb6, 0xc3, 0x90], RAX), Bound::AtMost(256));
    // cmp eax,9; test esi,esi; ja: other flags
    assert_eq!(bound_of(&[0x83, 0xf8, 9, 0x85, 0xf6, 0x77, 0, 0x90], RAX), Bound::Unknown);
}
