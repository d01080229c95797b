//! perf.data files: whatever the bytes, an answer or a refusal; rows refer to what is there, and
//! every sample is accounted for on its CPU; runs between branch records are straight and short.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use whither_sample::import::{Lookup, read};

fuzz_target!(|data: &[u8]| {
    let Ok(imported) = read(Cursor::new(data), 0, Lookup::Nothing) else { return };
    let profile = imported.profile;
    let mut samples = 0;
    for s in &profile.samples {
        let _ = (profile.image(s.image), profile.event(s.event), profile.process(s.process));
        samples += u64::from(s.count);
    }
    assert_eq!(profile.rates.iter().map(|r| r.delivered).sum::<u64>(), samples);
    for e in &profile.edges {
        let _ = profile.image(e.image);
        assert!(e.count > 0 && e.branch.0.checked_sub(e.pc.0).is_some_and(|length| length < 1 << 16), "{e:?}");
    }
    for row in &profile.stack_samples {
        assert!(!profile.stacks[row.stack.0 as usize].frames.is_empty());
    }
});
