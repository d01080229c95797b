//! What the agent's shared object may be made of: it runs inside arbitrary functions of arbitrary
//! programs, so no vector register, no foreign symbol, no page both writable and executable.

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags};
use whither_probe::agent::{EXIT_BYTES, EXITS, IMAGE, SHADOW, SHADOW_SET, Symbol};

fn file() -> object::File<'static> {
    object::File::parse(IMAGE).expect("the agent is an ELF file")
}

#[test]
fn all_symbols_are_there_and_within_the_code() {
    for symbol in Symbol::ALL {
        assert_ne!(symbol.offset(), 0, "{}", symbol.name());
    }
    let code = Symbol::CodeBegin.offset()..Symbol::CodeEnd.offset();
    for symbol in [Symbol::EntryExit, Symbol::EntryOnly, Symbol::Exits, Symbol::Start, Symbol::SyscallInsn] {
        assert!(code.contains(&symbol.offset()), "{}", symbol.name());
    }
    assert!(!code.contains(&Symbol::ShadowSet.offset()));
    let set = file();
    let bss = set.section_by_name(".bss").expect("bss");
    assert!(Symbol::ShadowSet.offset() + SHADOW_SET as u64 * 8 <= bss.address() + bss.size());
}

#[test]
fn exits_and_what_they_return_to_are_as_long_as_the_controller_takes_them_for() {
    let file = file();
    let size = |name: &str| file.dynamic_symbols().find(|s| s.name() == Ok(name)).map(|s| s.size());
    assert_eq!(size(Symbol::Exits.name()), Some(EXITS as u64 * EXIT_BYTES));
    assert_eq!(size(Symbol::Returns.name()), Some(EXITS as u64 * 8));
}

#[test]
fn a_system_call_instruction_stands_where_it_is_said() {
    let file = file();
    let text = file.section_by_name(".text").expect("text");
    let data = text.data().expect("bytes");
    let at = (Symbol::SyscallInsn.offset() - text.address()) as usize;
    assert_eq!(data[at..at + 3], [0x0f, 0x05, 0xcc]);
}

#[test]
fn code_touches_general_registers_only() {
    let file = file();
    let text = file.section_by_name(".text").expect("text");
    let mut decoder = Decoder::with_ip(64, text.data().expect("bytes"), text.address(), DecoderOptions::NONE);
    let mut factory = InstructionInfoFactory::new();
    let mut seen = 0;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        assert!(!instruction.is_invalid(), "at {:#x}", instruction.ip());
        for used in factory.info(&instruction).used_registers() {
            let register = used.register();
            assert!(
                !register.is_vector_register() && !register.is_mm() && !register.is_st() && !register.is_k(),
                "{register:?} at {:#x}",
                instruction.ip()
            );
        }
        seen += 1;
    }
    assert!(seen > 500, "only {seen} instructions");
}

/// entry.S saves neither for the quick functions, which the program's arguments and static chain would be lost by.
#[test]
fn quick_functions_leave_registers_alone_that_nobody_has_saved() {
    use iced_x86::{FlowControl, Register};
    let file = file();
    let text = file.section_by_name(".text").expect("text");
    let symbols: Vec<_> = file.symbols().filter(|s| s.size() > 0).collect();
    const QUICK: [&str; 7] = [
        "wh_fast_entry",
        "wh_fast_exit",
        "wh_varied_count",
        "wh_varied_entry",
        "wh_other_count",
        "wh_other_entry",
        "wh_without_call",
    ];
    let is_quick = |name: &str| QUICK.contains(&name);
    let begins: Vec<u64> = symbols.iter().filter(|s| s.name().is_ok_and(is_quick)).map(|s| s.address()).collect();
    assert_eq!(begins.len(), QUICK.len(), "{begins:x?}");
    let (mut all, mut done) = (begins, 0);
    let mut factory = InstructionInfoFactory::new();
    while let Some(&begin) = all.get(done) {
        let size = symbols.iter().find(|s| s.address() == begin).expect("a function").size();
        let bytes = text.data_range(begin, size).expect("in the text").expect("bytes");
        for instruction in &mut Decoder::with_ip(64, bytes, begin, DecoderOptions::NONE) {
            for used in factory.info(&instruction).used_registers() {
                let full = used.register().full_register();
                let spared = [Register::R8, Register::R9, Register::R10, Register::R11].contains(&full);
                assert!(!spared, "{full:?} at {:#x}", instruction.ip());
            }
            let called = instruction.near_branch_target();
            if instruction.flow_control() == FlowControl::Call && !all.contains(&called) {
                all.push(called); // what it calls is held to the same
            }
        }
        done += 1;
    }
}

#[test]
fn nothing_is_left_to_the_loader_but_its_own_address_and_one_thread_word() {
    const RELATIVE: u32 = 8;
    const TPOFF64: u32 = 18;
    let file = file();
    let undefined: Vec<_> = file.dynamic_symbols().filter(|s| s.is_undefined()).filter_map(|s| s.name().ok()).collect();
    assert!(undefined.iter().all(|name| name.is_empty()), "{undefined:?}");
    let mut thread_words = 0;
    for (offset, relocation) in file.dynamic_relocations().into_iter().flatten() {
        let object::RelocationFlags::Elf { r_type, .. } = relocation.flags() else { panic!("not ELF") };
        let r_type = r_type.0;
        assert!(r_type == RELATIVE || r_type == TPOFF64, "type {r_type} at {offset:#x}");
        thread_words += usize::from(r_type == TPOFF64);
    }
    assert_eq!(thread_words, 1);
}

#[test]
fn no_page_is_writable_and_executable_and_the_file_is_small() {
    assert!(IMAGE.len() as u64 <= (96 << 10) + EXITS as u64 * EXIT_BYTES, "{} bytes", IMAGE.len());
    let mut executable = 0;
    for segment in file().segments() {
        let SegmentFlags::Elf { p_flags, .. } = segment.flags() else { panic!("not ELF") };
        let p_flags = p_flags.0;
        assert_ne!(p_flags & 3, 3, "at {:#x}", segment.address());
        executable += p_flags & 1;
    }
    assert_eq!(executable, 1);
}

#[test]
fn the_unwind_description_knows_the_shadow() {
    // DW_CFA_offset of column 16 (return address): (SHADOW - 16) / -8 as an unsigned LEB128.
    let mut wanted = vec![0x80 | 16];
    let mut value = (SHADOW - 16) / -8;
    while value > 0x7f {
        wanted.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    wanted.push(value as u8);
    let file = file();
    let frames = file.section_by_name(".eh_frame").expect("unwind description");
    let data = frames.data().expect("bytes");
    assert!(data.windows(wanted.len()).any(|window| window == wanted), "{wanted:x?}");
}
