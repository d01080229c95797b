//! Any bytes as a function with jump tables in its own bytes: a graph whose edges join blocks, and whose classes
//! cover all of them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::ops::Range;
use whither_image::Svma;
use whither_image::cfg::{Cfg, Surroundings};
use whither_image::counters::{Code as Counters, Exits};
use whither_image::jump_tables::Data;

/// Two functions, one behind the other.
struct Code<'a> {
    start: u64,
    bytes: &'a [u8],
    half: u64,
}

impl Data for Code<'_> {
    fn bytes(&self, at: Svma, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(at.0.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..from.checked_add(len)?)
    }
}

impl Surroundings for Code<'_> {
    fn extent(&self, at: Svma) -> Option<Range<u64>> {
        let (middle, end) = (self.start + self.half, self.start + self.bytes.len() as u64);
        [self.start..middle, middle..end].into_iter().find(|r| r.contains(&at.0))
    }

    fn is_part_of(&self, part: Svma, _: Svma) -> Option<bool> {
        (part.0 & 1 == 0).then_some(part.0 & 2 == 0)
    }

    fn returns(&self, callee: Svma) -> bool {
        callee.0 & 8 == 0
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((head, bytes)) = data.split_first_chunk::<8>() else { return };
    let start = u64::from_le_bytes(*head).min(u64::MAX - (1 << 20));
    if bytes.is_empty() || bytes.len() > 1 << 16 {
        return;
    }
    let code = Code { start, bytes, half: (bytes.len() as u64).div_ceil(2) };
    let cfg = Cfg::new(start..start + code.half, &code);
    for e in &cfg.edges {
        assert!(e.from <= cfg.start() && (e.to < cfg.blocks.len() || e.to == cfg.end()));
    }
    let (blocks, edges) = cfg.classes();
    assert_eq!((blocks.len(), edges.len()), (cfg.blocks.len(), cfg.edges.len()));
    for counters in [Counters::of(&cfg), Counters::from(&code, Svma(start), 500)] {
        for c in counters.counters() {
            assert!(c.step != 0 && c.stretch.binary_search(&c.at).is_ok());
            let _ = c.executions(start, !start);
        }
        let mut exits = Exits::of(&counters);
        for branch in 0..counters.insns.len() {
            let Some(exit) = exits.at(branch) else { continue };
            assert!(exit.step != 0 && exit.stretch.binary_search(&exit.branch).is_ok());
            assert!(exit.settled.iter().all(|i| exit.stretch.binary_search(i).is_ok()));
            let _ = (exits.is_simple(&exit), exit.to_go(start & 1 == 0, &[start; 16]));
        }
    }
});
