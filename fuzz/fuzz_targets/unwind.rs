//! Unwind rules of hostile files, and stacks nobody wrote: the first 256 bytes are the stack.

#![no_main]

use libfuzzer_sys::fuzz_target;
use whither_image::{Bytes, ElfSummary, ElfUnwindInfo, UnwindCache, Unwinder, UserRegs, load_bias, rules_only};

fuzz_target!(|data: &[u8]| {
    let Some((stack, file)) = data.split_at_checked(256) else { return };
    let read = |at: u64, n: u64| file.get(at as usize..at.checked_add(n)? as usize).map(<[u8]>::to_vec);
    if let Some(sparse) = rules_only(file.len() as u64, read) {
        assert_eq!(sparse.len(), file.len());
        let _ = ElfUnwindInfo::from_elf(&Bytes::from(sparse));
    }
    let Ok(info) = ElfUnwindInfo::from_elf(&Bytes::from(file.to_vec())) else { return };
    let Ok(summary) = ElfSummary::parse(file) else { return };
    let mut unwinder = Unwinder::new();
    for segment in &summary.segments {
        let start = segment.address;
        let Some(end) = start.checked_add(segment.size) else { continue };
        let _ = load_bias(&summary.segments, start, segment.offset);
        unwinder.add_module(start..end, 0, &info);
    }
    let mut cache = UnwindCache::default();
    for step in 0..16 {
        let ip = summary.entry.0.wrapping_add(step * 7);
        let walked = unwinder.unwind(&mut cache, UserRegs { ip, sp: 0x7ff0_0000, bp: 0x7ff0_0040 }, stack, 64);
        assert!(walked.addresses.len() <= 64 && walked.addresses[0] == ip);
    }
});
