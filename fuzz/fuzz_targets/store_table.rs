//! Parquet tables of a store with hostile pages. The first byte picks the table; the rest is the file.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: {
        // The store contains panics of the Parquet reader; only those that escape it are findings.
        std::panic::set_hook(Box::new(|_| {}));
    },
    |data: &[u8]| {
        if let [kind, file @ ..] = data {
            let _ = whither_store::fuzz::table(*kind, file);
        }
    }
);
