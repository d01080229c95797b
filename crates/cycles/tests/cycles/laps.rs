//! Loops of more rounds than walks show, told by pairs of moments: as far as it is known that the loop is hardly left between the two.

use crate::world::World;
use whither_cycles::analysis::{AnalyseQuery, analyse};
use whither_cycles::results::analysis::Analysis;
use whither_image::ImageOffset;
use whither_store::model::{Course, EdgeSample, EdgeSource, ExactCount, ImageKind, LapCount, Way};

/// Rounds of an entry, and what one takes.
const ROUNDS: u64 = 1_000_000;
const ROUND_NS: u64 = 4;
/// Between the moments of a pair.
const PAIR_NS: u64 = 600_000;

/// `imul %rax,%rax; dec %rdi; jne` back; `ret`.
const COUNTED: &[u8] = &[0x48, 0x0f, 0xaf, 0xc0, 0x48, 0xff, 0xcf, 0x75, 0xf7, 0xc3];
/// The same with another way out: `imul %rax,%rax; dec %rdi; js` out; `test %rax,%rax; jne` back; `ret`; out: `ret`.
const UNCOUNTED: &[u8] =
    &[0x48, 0x0f, 0xaf, 0xc0, 0x48, 0xff, 0xcf, 0x78, 0x06, 0x48, 0x85, 0xc0, 0x75, 0xf2, 0xc3, 0xc3];
/// Where that leads to.
const OUT: u64 = 0x100f;

/// The procedure `f` at 0x1000, whose loop walks saw to be gone round some times by a branch, and pairs often. `to_go`: whether moments told
/// how many rounds were left; `exact`: what was counted at places, hits in a second.
fn analysed(code: &[u8], branch: u64, to_go: bool, exact: &[(u64, u64)]) -> Analysis {
    let mut w = World::new("cpu-clock");
    let image = w.image(ImageKind::Elf, "/usr/bin/a");
    let p = w.process(7, "a", "");
    w.function(image, 0x1000, code.len() as u64, "f");
    w.readable_code(image, 0x1000, code);
    w.sample(image, p, 0x1004, 1000);
    let (pc, branch) = (ImageOffset(0x1000), ImageOffset(branch));
    let source = EdgeSource::Walks;
    w.profile.edges.push(EdgeSample { image, pc, branch, way: Way::To(pc), source, count: 1800 });
    let row = |offset, course, laps, ns| LapCount {
        image,
        offset: ImageOffset(offset),
        span: 19,
        course,
        pairs: 1,
        laps,
        ns,
        ..LapCount::default()
    };
    let laps = (PAIR_NS - 8000) / ROUND_NS;
    for _ in 0..20 {
        w.profile.laps.push(row(0x1004, Course::steps(laps, PAIR_NS).unwrap(), laps, PAIR_NS));
    }
    for rounds in (1..=40).map(|i| ROUNDS * i / 40).filter(|_| to_go) {
        w.profile.laps.push(row(0x1007, Course::remaining(rounds).unwrap(), rounds, 0));
    }
    for (at, hits) in exact {
        w.profile.exact.push(ExactCount {
            image,
            offset: ImageOffset(*at),
            set: *at,
            leads: true,
            hits: *hits,
            whole: *hits,
            squares: *hits,
            windows: 1000,
            enabled_ns: 1_000_000_000,
            ..ExactCount::default()
        });
    }
    analyse(&w.profile, &w.symbols, "f", &AnalyseQuery::default()).unwrap()
}

#[test]
fn a_loop_whose_every_way_out_is_counted_is_left_as_often_as_counts_say() {
    // Walks showed 1,800 rounds and no end, and a pair makes 148,000: only what was to go tells that it is one stay.
    assert_eq!(analysed(COUNTED, 0x1007, false, &[]).lapped, 0, "nobody knows how often it is left");
    let a = analysed(COUNTED, 0x1007, true, &[]);
    assert_eq!((a.lapped, a.remaining), (1, 1), "{:?}", a.notes);
}

#[test]
fn a_way_out_is_gone_no_more_often_than_what_it_leads_to_was_counted() {
    assert_eq!(analysed(UNCOUNTED, 0x100c, false, &[]).lapped, 0, "nobody knows how often it is left");
    assert_eq!(analysed(UNCOUNTED, 0x100c, false, &[(OUT, 100), (0x100e, 3)]).lapped, 1, "a hundred times a second");
    assert_eq!(analysed(UNCOUNTED, 0x100c, false, &[(OUT, 20_000), (0x100e, 3)]).lapped, 0, "in each pair some times");
}
