//! Jitdump files: code ranges lie inside of the dump.

#![no_main]

use libfuzzer_sys::fuzz_target;
use whither_image::JitDump;

fuzz_target!(|data: &[u8]| {
    let Ok(dump) = JitDump::parse(data) else { return };
    for function in &dump.functions {
        assert!(data.get(function.code.clone()).is_some(), "{function:?}");
    }
    let _ = dump.table();
});
