//! Any bytes as machine code: instructions without holes, blocks that hold each of them once.

#![no_main]

use libfuzzer_sys::fuzz_target;
use whither_image::{Before, Blocks, Svma, Syntax, decode, disassemble};

fuzz_target!(|data: &[u8]| {
    let Some((at, code)) = data.split_first_chunk::<8>() else { return };
    let at = Svma(u64::from_le_bytes(*at));
    let insns = decode(code, at);
    let mut next = at;
    for insn in &insns {
        assert_eq!(insn.address, next);
        next = insn.end();
    }
    assert_eq!(next.0, at.0.wrapping_add(code.len() as u64));
    let blocks = Blocks::new(&insns);
    for i in 0..insns.len() {
        assert!(blocks.block_of(i).is_some());
        for before in blocks.before(i) {
            if let Before::Insn(before) | Before::ReturnFrom(before) = before {
                assert!(before < insns.len());
            }
        }
    }
    for syntax in [Syntax::Att, Syntax::Intel] {
        assert_eq!(disassemble(code, at, syntax, &|at| Some(at.0.to_string())).len(), insns.len());
    }
});
