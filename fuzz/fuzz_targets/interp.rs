//! Any bytes as code behind a sampled address: the recipe refers to earlier steps only, more loads never take a
//! decision back, and constants of the image agree with the image.

#![no_main]

use libfuzzer_sys::fuzz_target;
use whither_image::Svma;
use whither_image::interp::{MOST_LOADS, MOST_STEPS, Registers, Slice, Source};
use whither_image::jump_tables::Data;

struct Code<'a>(u64, &'a [u8]);

impl Data for Code<'_> {
    fn bytes(&self, at: Svma, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(at.0.checked_sub(self.0)?).ok()?;
        self.1.get(from..from.checked_add(len)?)
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((head, code)) = data.split_first_chunk::<64>() else { return };
    let word = |n: usize| u64::from_le_bytes(std::array::from_fn(|i| head[n % 8 * 8 + i]));
    let code = Code(word(0), code);
    let slice = Slice::new(&code, Svma(word(0)));
    let loading = slice.recipe().iter().filter(|s| s.load.is_some()).count();
    assert!(loading <= MOST_LOADS && slice.recipe().len() <= MOST_STEPS);
    for (n, step) in slice.recipe().iter().enumerate() {
        assert!(step.field.bits > 0 && step.field.from + step.field.bits <= 64);
        for term in step.terms.iter().flatten() {
            assert!(match term.source {
                Source::Gpr(r) => r < 16,
                Source::Step(s) => usize::from(s) < n,
            });
        }
    }
    let regs = Registers { gpr: std::array::from_fn(word), flags: word(1) };
    let loads: Vec<Option<u64>> = (0..loading).map(|n| Some(word(n + 2))).collect();
    let (none, all) = (slice.decide(&regs, &[], word(3)), slice.decide(&regs, &loads, word(3)));
    // Fewer only where a loaded divisor shows that the division faults.
    assert!(all.starts_with(&none) || none.starts_with(&all));
    assert!(slice.decide_with(&code, &regs, &[], word(3)).starts_with(&none));
});
