//! Kernel symbol lists: the input is cut at the first zero byte into kallsyms and modules.

#![no_main]

use libfuzzer_sys::fuzz_target;
use whither_image::KernelSymbols;

fuzz_target!(|data: &[u8]| {
    let cut = data.iter().position(|b| *b == 0).unwrap_or(data.len());
    let (kallsyms, modules) = data.split_at(cut);
    if let Ok(kernel) = KernelSymbols::parse(kallsyms, modules) {
        assert!(kernel.etext > kernel.stext || kernel.functions.functions().is_empty());
        for module in kernel.modules.iter().chain(&kernel.bpf) {
            assert!(module.end() >= module.base);
        }
    }
});
