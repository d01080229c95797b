//! Perf maps of JIT engines.

#![no_main]

use libfuzzer_sys::fuzz_target;
use whither_image::parse_perf_map;

fuzz_target!(|data: &[u8]| {
    let (table, _) = parse_perf_map(data);
    for pair in table.functions().windows(2) {
        assert!(pair[0].start.0 + pair[0].size <= pair[1].start.0, "{pair:?}");
    }
});
