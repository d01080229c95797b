//! Instructions moved to another address: the copy decodes, and is no longer than promised.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whither_image::relocate::LONGEST_COPY;
use whither_image::{Flow, Svma, decode, relocate};

fuzz_target!(|data: &[u8]| {
    let window = &data[..data.len().min(16)];
    let (from, to) = (Svma(0x40_1000), Svma(0x1000_0000));
    let Ok(moved) = relocate(window, from, to) else { return };
    assert!(moved.bytes.len() <= LONGEST_COPY);
    for (old, new) in moved.map {
        let original = decode(&window[usize::from(old)..], Svma(from.0 + u64::from(old)))[0];
        let copied = decode(&moved.bytes[usize::from(new)..], Svma(to.0 + u64::from(new)))[0];
        assert!(original.flow != Flow::Invalid && copied.flow != Flow::Invalid);
    }
});
