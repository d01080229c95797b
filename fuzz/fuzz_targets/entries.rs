//! Windows, branches into them, callees and unwind rows of an ELF file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whither_image::{Bytes, CodeMap, Linkage, Svma, UnwindRows, callees, code_names};

fuzz_target!(|data: &[u8]| {
    let file = Bytes::from(data.to_vec());
    if let Ok(rows) = UnwindRows::from_elf(&file) {
        assert!(rows.rows.windows(2).all(|w| w[0].offset < w[1].offset));
        assert!(rows.rows.iter().all(|r| r.rule & 7 != 3 || ((r.rule >> 3) as usize) < rows.big.len()));
    }
    let names = code_names(&file, None);
    let (Ok(map), Ok(linkage)) = (CodeMap::from_elf(&file, &names), Linkage::from_elf(&file)) else { return };
    let starts: Vec<Svma> = map.unwind_starts().take(20).chain(names.iter().take(20).map(|n| n.address)).collect();
    for at in starts {
        if let Ok(plan) = map.entry(at).plan {
            assert!((2..=16).contains(&plan.window));
        }
        let _ = callees(&map, &linkage, at);
    }
});
