//! Branch records of executions that are known to the last one: what the analysis makes of records is compared with what
//! was walked. (Records that come with samples of time are weighed when they are collected: their test is in `whither`.)

use crate::walked::{Ask, BASE, Dice, Exit, PATH, Program, Shares, Walk, Walked, exact, walk};
use crate::world::World;
use std::collections::BTreeMap;
use whither_cycles::accuracy::accuracy;
use whither_cycles::results::analysis::{Analysis, Evidence, Scale};
use whither_cycles::{AnalyseQuery, analyse};
use whither_image::ImageOffset;
use whither_store::model::{EdgeSample, EdgeSource, EventUnit, ImageIx, ImageKind, Precision, ProcessIx, Way};

type Run = (u64, u64, u64);

/// Runs between neighbouring records, with how often.
fn runs(walk: &Walk) -> BTreeMap<Run, u32> {
    let mut out = BTreeMap::new();
    for (_, stack) in &walk.stacks {
        for (later, earlier) in stack.iter().zip(&stack[1..]) {
            *out.entry((earlier.1, later.0, later.1)).or_default() += 1;
        }
    }
    out
}

/// A recording of the walk, with `samples` samples of time.
fn recording(program: &Program, walk: &Walk, samples: f64) -> World {
    let mut w = World::new("cpu-clock");
    w.profile.events[0].unit = EventUnit::Nanoseconds;
    w.profile.events[0].precision = Precision::Exact;
    let image = w.image(ImageKind::Elf, PATH);
    let process = w.process(5, "app", "/");
    let all: f64 = walk.time.iter().sum();
    for (b, time) in program.blocks.iter().zip(&walk.time) {
        let count = (samples * time / all).round() as u32;
        w.sample(image, process, b.start, count.max(1));
    }
    w.profile.samples.sort_unstable();
    w.profile.edges = runs(walk).iter().map(|(run, count)| row(*run, *count)).collect();
    w.profile.edges.sort_unstable();
    w
}

fn row((pc, branch, to): Run, count: u32) -> EdgeSample {
    let way = Way::To(ImageOffset(to));
    let (pc, branch) = (ImageOffset(pc), ImageOffset(branch));
    EdgeSample { image: ImageIx(0), pc, branch, way, source: EdgeSource::EvenRecords, count }
}

/// Two dozen programs, a stack for every one and a half thousand taken branches.
#[allow(clippy::print_stderr, reason = "figures that the documentation names")]
fn shares(depth: usize, spoil: impl Fn(&mut World, &mut Dice)) -> Shares {
    let mut sum = Shares::default();
    for seed in 1..=24_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let program = Program::new(&mut dice);
        let walk = walk(&program, 3_000_000, depth, Ask::Branches(1500), seed);
        let mut w = recording(&program, &walk, 20_000.0);
        spoil(&mut w, &mut dice);
        sum.add(&accuracy(&w.profile, &Walked(&program), &exact(&program, &walk), &AnalyseQuery::default()).unwrap());
    }
    let mean = sum.mean();
    eprintln!("{depth} deep: {mean:?}");
    mean
}

#[test]
fn even_records_tell_executions_nearly_exactly() {
    for depth in [16, 32] {
        let s = shares(depth, |_, _| {});
        assert!(s.meets_the_bars(), "{s:?}");
        assert!(s.instructions[2] > 0.95 && s.edges[1] > 0.95, "as good as chance allows: {s:?}");
        assert!(s.sure.0 > 0.8 && s.sure.1 > 0.95, "called sure: {s:?}");
    }
}

#[test]
fn without_records_the_bars_are_out_of_reach() {
    let s = shares(32, |w, _| w.profile.edges.clear());
    assert!(!s.meets_the_bars(), "the programs are too easy to test anything: {s:?}");
}

#[test]
fn bogus_records_are_left_out() {
    let s = shares(32, |w, dice| {
        let real: u32 = w.profile.edges.iter().map(|e| e.count).sum();
        let mut at = || BASE + dice.roll(200);
        for _ in 0..200 {
            let (a, b, to) = (at(), at(), at());
            w.profile.edges.push(row((a.min(b), a.max(b), to), real / 1000));
        }
        w.profile.edges.sort_unstable();
    });
    assert!(s.meets_the_bars(), "a sixth of all runs is nonsense: {s:?}");
}

/// The same programs without records: one sample for so many executed instructions, each drawn on its own.
#[allow(clippy::print_stderr, reason = "figures that the documentation names")]
fn shares_by_instructions(samples: u64) -> Shares {
    let mut sum = Shares::default();
    for seed in 1..=24_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let program = Program::new(&mut dice);
        let walk = walk(&program, 3_000_000, 1, Ask::Branches(1500), seed);
        let mut w = recording(&program, &walk, 20_000.0);
        w.profile.edges.clear();
        by_instructions(&mut w, &program, &walk, samples, &mut dice);
        sum.add(&accuracy(&w.profile, &Walked(&program), &exact(&program, &walk), &AnalyseQuery::default()).unwrap());
    }
    let mean = sum.mean();
    eprintln!("{samples} samples of instructions: {mean:?}");
    mean
}

/// Adds samples of executed instructions to a recording; returns how many instructions were executed.
fn by_instructions(w: &mut World, program: &Program, walk: &Walk, samples: u64, dice: &mut Dice) -> u64 {
    let event = w.event("instructions:pp", EventUnit::Count, Precision::Exact);
    let executed: Vec<(u64, u64)> = (exact(program, walk).objects[0].counts.iter()).map(|(at, n)| (*at, *n)).collect();
    let all: u64 = executed.iter().map(|e| e.1).sum();
    for _ in 0..samples {
        let mut left = dice.roll(all);
        let hit = executed.iter().find(|(_, n)| {
            let here = left < *n;
            left = left.wrapping_sub(*n);
            here
        });
        let at = hit.expect("drawn from their sum").0;
        let s = w.sample(ImageIx(0), ProcessIx(0), at, 1);
        (s.event, s.period) = (event, all / samples);
    }
    w.profile.samples.sort_unstable();
    all
}

#[test]
fn samples_of_instructions_tell_executions_and_their_scale() {
    let s = shares_by_instructions(20_000);
    assert!(s.meets_the_bars(), "{s:?}");
    assert!(s.sure.0 > 0.5 && s.sure.1 > 0.9, "called sure: {s:?}");

    let mut dice = Dice(7);
    let program = Program::new(&mut dice);
    let walk = walk(&program, 3_000_000, 1, Ask::Branches(1500), 7);
    let mut w = recording(&program, &walk, 20_000.0);
    w.profile.edges.clear();
    let all = by_instructions(&mut w, &program, &walk, 20_000, &mut dice);
    let a = analysed(&w, &program);
    assert_eq!((a.evidence, &a.scale, a.retired), (Evidence::Instructions, &Scale::Sampled, 20_000));
    let told: f64 = a.blocks.iter().map(|b| b.frequency.value * b.len as f64).sum();
    assert!((told / all as f64 - 1.0).abs() < 0.01, "{told} of {all} instructions");

    // Samples whose place is not exact tell nothing.
    w.profile.events[1].precision = Precision::Unknown;
    let a = analysed(&w, &program);
    assert_eq!((a.evidence, a.retired), (Evidence::Samples, 0));
}

fn analysed(w: &World, program: &Program) -> Analysis {
    analyse(&w.profile, &Walked(program), "walked", &AnalyseQuery::default()).unwrap()
}

#[test]
fn every_run_is_checked_against_the_code() {
    // One with a jump that always goes away from the straight line.
    let mut programs = (1..).map(|seed| Program::new(&mut Dice(seed)));
    let program = programs.find(|p| p.blocks.iter().any(|b| matches!(b.exit, Exit::Jump(_)))).unwrap();
    let walk = walk(&program, 300_000, 32, Ask::Branches(500), 7);
    let all = runs(&walk);
    let end = BASE + program.code.len() as u64;
    let inside = |at: u64| (BASE..end).contains(&at);
    let runs: u64 = all.iter().filter(|(run, _)| inside(run.0)).map(|(_, n)| u64::from(*n)).sum();
    let with = |wrong: Option<Run>| {
        let mut w = recording(&program, &walk, 20_000.0);
        w.profile.edges.extend(wrong.map(|run| row(run, 3)));
        w.profile.edges.sort_unstable();
        analysed(&w, &program)
    };
    let clean = with(None);
    assert_eq!((clean.evidence, clean.recorded), (Evidence::Records, runs));
    assert!(clean.notes.iter().all(|n| !n.contains("left out")), "{:?}", clean.notes);
    // Off by one byte at its beginning, its end, or its target: none of it can be true.
    let &(pc, branch, to) = all.keys().find(|run| inside(run.0) && inside(run.2)).unwrap();
    let through = (BASE, end - 1, 0x9000);
    for wrong in [(pc + 1, branch, to), (pc, branch + 1, to), (pc, branch, to + 1), through] {
        let a = with(Some(wrong));
        assert_eq!(a.recorded, runs, "{wrong:x?}");
        assert!(a.notes.iter().any(|n| n.starts_with("3 of ") && n.contains("left out")), "{wrong:x?}: {:?}", a.notes);
    }
}
