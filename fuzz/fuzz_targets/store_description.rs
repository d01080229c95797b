//! `epoch.json` and `segment.json` of a store.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = whither_store::fuzz::describes(data);
});
