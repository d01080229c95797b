//! How long a listing of a long recording takes. Not part of every test run, as a time says nothing
//! while others use the machine: `cargo test --release -p whither-cycles -- --ignored --nocapture`.

use crate::world::{FakeSymbols, World};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use whither_cycles::{By, Query, listing};
use whither_image::{FunctionTable, ImageOffset, SourceFrame};
use whither_store::model::{Image, ImageKind};
use whither_store::symbols::Symbols;

/// Tables made once, as the real service keeps them.
struct Made(Vec<(String, Arc<FunctionTable>)>);

impl Symbols for Made {
    fn functions(&self, image: &Image) -> Arc<FunctionTable> {
        self.0.iter().find(|(path, _)| *path == image.path).map(|(_, t)| Arc::clone(t)).unwrap_or_default()
    }
    fn frames(&self, _: &Image, _: ImageOffset) -> Vec<SourceFrame> {
        Vec::new()
    }
    fn code(&self, _: &Image, _: Range<ImageOffset>) -> Option<Vec<u8>> {
        None
    }
    fn source(&self, _: &str) -> Option<Arc<Vec<String>>> {
        None
    }
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}

/// 150,000 rows in 200 images of 3,000 functions each, as in the mix of the design note.
fn mix() -> (World, Made) {
    let mut w = World::new("cpu-clock");
    let p = w.process(1, "app", "");
    let images: Vec<_> = (0..200).map(|i| w.image(ImageKind::Elf, &format!("/usr/lib/lib{i}.so"))).collect();
    for &image in &images {
        for f in 0..3000u64 {
            w.function(image, f * 64, 64, &format!("_ZN3foo3bar4f{f:04}Ei"));
        }
    }
    let mut x = 1u64;
    for i in 0..150_000 {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        w.sample(images[i % 200], p, (x >> 33) % (3000 * 64), 10);
    }
    w.profile.samples.sort();
    let symbols: &FakeSymbols = &w.symbols;
    let made = w.profile.images.iter().map(|i| (i.path.clone(), symbols.functions(i))).collect();
    (w, Made(made))
}

#[test]
#[ignore = "measures time; run alone, with --release"]
fn a_listing_of_150_000_rows_takes_less_than_a_tenth_of_a_second() {
    let (w, symbols) = mix();
    let mut worst = std::time::Duration::ZERO;
    for by in [vec![], vec![By::Image], vec![By::Insn], vec![By::Process, By::Proc], vec![By::Line]] {
        let query = Query { by: by.clone(), limit: Some(30), ..Query::default() };
        let best = (0..5)
            .map(|_| {
                let start = Instant::now();
                assert_eq!(listing(&w.profile, &symbols, &query).unwrap().provenance.events[0].samples, 1_500_000);
                start.elapsed()
            })
            .min()
            .unwrap();
        eprintln!("{by:?}: {best:?}");
        worst = worst.max(best);
    }
    assert!(worst.as_millis() < 100, "{worst:?}");
}

/// The machine code of this very test, as one procedure after the other of 500 instructions.
#[test]
#[ignore = "measures time; run alone, with --release"]
fn a_million_instructions_are_scheduled_in_half_a_second() {
    use whither_cycles::model::{Core, schedule};
    use whither_image::{Svma, decode, effects};
    let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let begin = file.len() / 4;
    let insns = decode(&file[begin..begin + (4 << 20).min(file.len() / 2)], Svma(0x1000));
    let start = Instant::now();
    let effects = effects(&insns);
    let described = start.elapsed();
    let core = Core::default();
    for part in effects.chunks(500) {
        let blocks: Vec<Range<usize>> = (0..part.len()).step_by(5).map(|b| b..(b + 5).min(part.len())).collect();
        // Falling through, and a jump back now and then.
        let preds =
            |b: usize| vec![(b.wrapping_sub(1), 3.0), (if b.is_multiple_of(4) { b + 3 } else { usize::MAX }, 1.0)];
        assert_eq!(schedule(&core, part, &blocks, &preds).insns.len(), part.len());
    }
    let all = start.elapsed();
    eprintln!("{} instructions: described in {described:?}, with schedules {all:?}", insns.len());
    assert!(all.as_secs_f64() < 0.5 * insns.len() as f64 / 1e6 + 0.1, "{all:?}");
}
