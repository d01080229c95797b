//! Lines, inlined functions and signatures of hostile debug information, with and without a supplementary file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use whither_image::{Bytes, ElfSummary, LineService, Svma};

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::from(data.to_vec());
    let Ok(summary) = ElfSummary::parse(data) else { return };
    for supplementary in [None, Some(&bytes)] {
        let Ok(lines) = LineService::new(&bytes, supplementary) else { return };
        let start = summary.segments.first().map_or(0, |s| s.address);
        let runs = lines.frames_in(Svma(start)..Svma(start.saturating_add(200)));
        assert!(runs.windows(2).all(|w| w[0].range.end == w[1].range.start));
        let _ = lines.frames(summary.entry);
        let told = lines.signatures(&[summary.entry, Svma(start)]);
        assert_eq!(told.len(), 2);
    }
});
