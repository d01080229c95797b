//! ELF headers, identity and function tables of hostile files. The input is cut in two: the image
//! and its debug file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use whither_image::{ElfSummary, build_id_from_notes, build_id_from_prefix, function_table};

fuzz_target!(|data: &[u8]| {
    let _ = (build_id_from_prefix(data), build_id_from_notes(data), ElfSummary::parse(data));
    let (main, debug) = data.split_at(data.len() / 2);
    for (table, _) in [function_table(data, None), function_table(data, Some(data)), function_table(main, Some(debug))]
    {
        for pair in table.functions().windows(2) {
            assert!(pair[0].start.0 + pair[0].size <= pair[1].start.0, "{pair:?}");
        }
        assert!(table.functions().iter().all(|f| f.size > 0));
    }
});
