//! Tests of the snapshot: blocks of the segment as paths and totals.

use super::*;
use crate::segment::{Copied, Path};
use std::time::Instant;
use whither_abi::agent::Block;
use whither_store::calls::FrameKind;

struct All(u32);

impl Points for All {
    fn row(&self, point: u32) -> Option<u32> {
        (point == 1).then_some(0)
    }

    fn flags(&self, _point: u32) -> u32 {
        self.0
    }
}

const TIMED: u32 = abi::DO_EXIT | abi::DO_PATH | abi::DO_WALL;

fn place(ra: u64) -> (u32, u64) {
    (7, ra - 0x1000)
}

/// Point 1 with a path of its own, and a path for each list of return addresses, innermost first.
fn with_paths(chains: &[&[u64]]) -> Segment {
    let segment = Segment::private();
    segment.allocate_root(1).expect("room");
    let mut path = segment.n_paths();
    for chain in chains {
        let outwards: Vec<u64> = chain.iter().rev().copied().collect();
        let frame = segment.put_run(abi::ROOT_END, &outwards);
        segment.put_path(path, &Path { frame, point: 1, ..Path::default() });
        path += 1;
    }
    segment.set_header32(field::NEXT_PATH, path);
    segment
}

#[test]
fn chains_become_frames_and_tails_are_shared() {
    let segment = with_paths(&[&[0x1010, 0x1030], &[0x1020, 0x1030]]);
    segment.set_header32(field::NEXT_THREAD, 1);
    for path in [2, 3] {
        segment.put_block(0, 1, path, &Block { seq: 2, calls: 1, wall: 10, min: 10, max: 10, ..Block::default() });
    }
    let mut reader = Reader::default();
    let reading = reader.read(&segment, &All(TIMED), &place);
    assert_eq!(reading.paths.len(), 2);
    // The point's own row has one too, which nobody refers to.
    assert_eq!(reading.frames.len(), 4, "{:?}", reading.frames);
    let first = reading.frames[reading.paths[0].frame as usize];
    assert_eq!((first.kind, first.module, first.offset), (FrameKind::Caller, 7, 0x10));
    let second = reading.frames[reading.paths[1].frame as usize];
    assert_eq!((second.offset, second.caller), (0x20, first.caller));
    assert_eq!(reading.frames[first.caller as usize].caller, u32::MAX);
    assert!(reader.read(&segment, &All(TIMED), &place).paths == reading.paths, "again the same");
}

#[test]
fn truncated_and_other_paths_are_labelled() {
    let segment = with_paths(&[&[0x1010]]);
    let frame = segment.put_run(abi::ROOT_TRUNCATED, &[0x1010]);
    segment.put_path(2, &Path { frame, point: 1, ..Path::default() });
    segment.set_header32(field::NEXT_THREAD, 1);
    for path in [1, 2] {
        segment.put_block(0, 1, path, &Block { calls: 1, ..Block::default() });
    }
    let reading = Reader::default().read(&segment, &All(abi::DO_PATH), &place);
    assert_eq!(reading.frames[reading.paths[0].frame as usize].kind, FrameKind::Other);
    let caller = reading.frames[reading.paths[1].frame as usize];
    assert_eq!(reading.frames[caller.caller as usize].kind, FrameKind::Truncated);
    // Without paths the point's own row is all its calls, not a rest.
    let reading = Reader::default().read(&segment, &All(0), &place);
    assert_eq!(reading.paths[0].frame, u32::MAX);
}

#[test]
fn own_cost_done_and_reset() {
    let segment = with_paths(&[&[0x1010]]);
    segment.set_header32(field::NEXT_THREAD, 1);
    segment.set_header(field::COST_INSIDE, 40);
    let block = Block { seq: 6, calls: 4, wall: 3_000_000, min: 900_000, max: 1_100_000, ..Block::default() };
    segment.put_block(0, 1, 2, &block);
    let mut reader = Reader::default();
    let clock = Clock::get();
    let totals = reader.read(&segment, &All(TIMED), &place).paths[0].totals.clone();
    assert_eq!((totals.calls, totals.done), (4, 3));
    assert_eq!(totals.wall_ns, clock.ns(3_000_000 - 120));
    assert_eq!((totals.min_ns, totals.max_ns), (clock.ns(900_000 - 40), clock.ns(1_100_000 - 40)));
    reader.reset(&segment);
    assert!(reader.read(&segment, &All(TIMED), &place).paths.is_empty());
    // The call that was open at the reset returns, another one comes and goes.
    let Some(Copied::Whole(now)) = segment.block(1, 2) else { panic!("the block is gone") };
    assert_eq!((now.min, now.max), (0, 0), "extremes of before the reset");
    let now = Block { seq: 10, calls: 5, wall: 3_500_000, min: 200_000, max: 300_000, ..now };
    segment.put_block(0, 1, 2, &now);
    let totals = reader.read(&segment, &All(TIMED), &place).paths[0].totals.clone();
    assert_eq!((totals.calls, totals.done), (1, 2));
    assert_eq!(totals.wall_ns, clock.ns(500_000 - 80));
    assert_eq!((totals.min_ns, totals.max_ns), (clock.ns(200_000 - 40), clock.ns(300_000 - 40)));
    // Never more than there was.
    segment.set_header(field::COST_INSIDE, u64::MAX);
    let totals = reader.read(&segment, &All(TIMED), &place).paths[0].totals.clone();
    assert_eq!((totals.wall_ns, totals.min_ns, totals.max_ns, totals.cpu_ns), (0, 1, 1, 0), "there was a call");
}

/// Two calls are in progress at a reset; one ends in order, the other is jumped out of.
#[test]
fn what_a_call_lasted_before_a_reset_is_taken_off_when_it_ends() {
    let segment = with_paths(&[&[0x1010], &[0x1020]]);
    segment.set_header32(field::NEXT_THREAD, 1);
    let now = crate::engine::clock::now();
    let call = |path, before| abi::Active { slot: 0x7000, t0: now - before, path, point: 1, ..abi::Active::default() };
    segment.put_active(0, &[call(2, 4_000_000_000), call(3, 7_000_000_000)]);
    let at_reset = |wall| Block { seq: 2, calls: 2, wall, min: 500, max: 500, ..Block::default() };
    segment.put_block(0, 1, 2, &at_reset(500));
    segment.put_block(0, 1, 3, &at_reset(500));
    let mut reader = Reader::splitting(true);
    reader.reset(&segment);
    let read = |reader: &mut Reader| {
        let reading = reader.read(&segment, &All(TIMED), &place);
        let row = |id| reading.paths.iter().find(|p| p.id == id).map(|p| (p.totals.clone(), p.threads.clone()));
        (row(2), row(3))
    };
    assert_eq!(read(&mut reader).0.expect("in progress").0.wall_ns, 0, "nothing is taken off what runs on");
    // Whole calls count as the agent adds them up: what they lasted before included.
    segment.put_active(0, &[]);
    let ended =
        Block { seq: 4, calls: 2, wall: 500 + 5_000_000_000, min: 5_000_000_000, max: 5_000_000_000, ..at_reset(0) };
    segment.put_block(0, 1, 2, &ended);
    let other = Block { seq: 4, calls: 3, wall: 500 + 9_000, min: 9_000, max: 9_000, ..at_reset(0) };
    segment.put_block(0, 1, 3, &other);
    let (ended, jumped) = read(&mut reader);
    let (ended, threads) = ended.expect("it has ended");
    let second = Clock::get().ns(1_000_000_000);
    assert!(ended.wall_ns.abs_diff(second) < second / 5, "{ended:?}, some time since the calls were made up");
    assert_eq!((ended.calls, ended.done), (0, 1));
    assert_eq!(threads[0].1.wall_ns, ended.wall_ns);
    assert_eq!(jumped.expect("one of its own").0.wall_ns, Clock::get().ns(9_000));
}

#[test]
fn runs_inside_of_others_and_joins() {
    let segment = with_paths(&[&[0x1010, 0x1030]]);
    // What has another frame inside of 0x1030, and a call within the call of path 2.
    let outermost = segment.path(2).frame - 1;
    let frame = segment.put_run(outermost, &[0x1040, 0x1050]);
    segment.put_path(3, &Path { frame, point: 1, ..Path::default() });
    let frame = segment.put_run(abi::ROOT_JOIN | 2, &[0x1060]);
    segment.put_path(4, &Path { frame, point: 1, same: 1, ..Path::default() });
    segment.set_header32(field::NEXT_PATH, 5);
    segment.set_header32(field::NEXT_THREAD, 1);
    for path in [2, 3, 4] {
        segment.put_block(0, 1, path, &Block { calls: 1, ..Block::default() });
    }
    let reading = Reader::default().read(&segment, &All(TIMED), &place);
    let offsets = |path: usize| {
        let mut all = Vec::new();
        let mut at = reading.paths[path].frame;
        while let Some(frame) = reading.frames.get(at as usize) {
            all.push(frame.offset);
            at = frame.caller;
        }
        all
    };
    assert_eq!(offsets(0), [0x10, 0x30]);
    assert_eq!(offsets(1), [0x50, 0x40, 0x30]);
    assert_eq!(offsets(2), [0x60]);
    assert_eq!((reading.paths[2].parent, reading.paths[2].same), (Some(2), 1));
}

#[test]
fn rubbish_does_not_hang_or_panic() {
    let segment = with_paths(&[&[0x1010, 0x1020]]);
    // A ring of two frames, each outside of the other.
    let frame = segment.path(2).frame;
    segment.put_unit(frame - 1, abi::FRAME_FIRST | 1);
    segment.put_outside(frame - 1, frame);
    segment.put_path(1, &Path { frame: u32::MAX, next: u32::MAX, point: u16::MAX, same: u16::MAX });
    segment.set_header32(field::NEXT_THREAD, u32::MAX);
    segment.put_block(0, 1, 2, &Block { extra: u32::MAX, calls: u64::MAX, wall: u64::MAX, ..Block::default() });
    let reading = Reader::default().read(&segment, &All(u32::MAX), &place);
    assert_eq!(reading.paths.len(), 1);
    let mut frame = &reading.frames[reading.paths[0].frame as usize];
    while let Some(caller) = reading.frames.get(frame.caller as usize) {
        frame = caller;
    }
    assert_eq!(frame.kind, FrameKind::Truncated, "a chain without an end is no whole path");
}

#[test]
fn ten_thousand_paths_of_64_threads_are_read_at_once() {
    let chains: Vec<Vec<u64>> = (0..10_000).map(|i| vec![0x2000 + i, 0x1020]).collect();
    let segment = with_paths(&chains.iter().map(Vec::as_slice).collect::<Vec<_>>());
    segment.set_header32(field::NEXT_THREAD, 64);
    let pages = 10_002_u32.div_ceil(64);
    for thread in 0..64 {
        for path in 2..10_002 {
            let block = Block { seq: 2, calls: 1, wall: 100, min: 100, max: 100, ..Block::default() };
            segment.put_block(thread, 1 + thread * pages + path / 64, path, &block);
        }
    }
    let mut reader = Reader::default();
    reader.read(&segment, &All(TIMED), &place);
    let mut best = f64::MAX;
    for _ in 0..5 {
        let began = Instant::now();
        let reading = reader.read(&segment, &All(TIMED), &place);
        best = best.min(began.elapsed().as_secs_f64() * 1e3);
        assert_eq!(reading.paths.len(), 10_000);
        assert!(reading.paths.iter().all(|p| p.totals.calls == 64));
    }
    eprintln!("10 000 paths of 64 threads in {best:.2} ms");
    // The bar is 5 ms, optimised; the test runs otherwise, beside others.
    assert!(best < 200.0, "{best} ms");
}

#[test]
fn tables_full_of_rubbish_are_read_in_bounds() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // Small numbers are valid indexes: they make chains, rings and shared pages.
        match state % 4 {
            0 => state % 64,
            1 => (state % 0x2000) | ((state % 61) << 32),
            2 => u64::MAX - state % 3,
            _ => state,
        }
    };
    for round in 0..8 {
        let segment = Segment::private();
        for at in (0..0x1000).chain(abi::AT_POINTS..abi::AT_POINTS + 0x2000).step_by(8) {
            segment.scribble(at, random());
        }
        let regions = [abi::AT_EXTRAS, abi::AT_MODULES, abi::AT_RULES, abi::AT_SITES, abi::AT_FRAMES];
        let paths = [abi::AT_PATH_FRAMES, abi::AT_PATH_LINKS, abi::AT_PATH_POINTS];
        for region in regions.into_iter().chain(paths).chain([
            abi::AT_PAGES,
            abi::AT_PAGES + 4096,
            abi::AT_THREADS,
            abi::AT_RINGS,
        ]) {
            for at in (region..region + 0x1_0000).step_by(8) {
                segment.scribble(at, random());
            }
        }
        segment.set_header32(field::NEXT_THREAD, 2 + round % 3);
        if round % 2 == 0 {
            segment.set_header32(field::NEXT_PATH, 4000);
            segment.set_header32(field::NEXT_FRAME, 2000);
        }
        let began = std::time::Instant::now();
        let mut reader = Reader::splitting(round % 2 == 0);
        for _ in 0..2 {
            let reading = reader.read(&segment, &All(u32::MAX), &|ra| (0, ra));
            assert!(reading.paths.len() <= abi::MAX_PATHS as usize, "{}", reading.paths.len());
            assert!(reading.frames.len() <= abi::MAX_FRAMES as usize, "{}", reading.frames.len());
            reader.reset(&segment);
        }
        assert!(began.elapsed().as_secs() < 20, "round {round} took {:?}", began.elapsed());
    }
}

#[test]
fn what_has_no_time_is_said_with_its_cause() {
    let segment = with_paths(&[&[0x1010]]);
    segment.set_header32(field::NEXT_THREAD, 1);
    let notes = |segment: &Segment| Reader::default().read(segment, &All(TIMED), &place).notes();
    assert!(notes(&segment).is_empty());
    segment.put_lost(abi::LOST_LOW, 3);
    let low = Reader::default().read(&segment, &All(TIMED), &place);
    assert_eq!(low.lost.shadow, 3);
    assert!(low.notes()[0].starts_with("3 calls have no time because their stacks lie in a heap"), "{:?}", low.notes());
    assert_eq!(low.notes().len(), 1, "memory was not refused");
    segment.put_lost(abi::LOST_SHADOW, 2);
    assert!(notes(&segment)[1].starts_with("2 calls have no time because memory"), "{:?}", notes(&segment));
    segment.put_lost(abi::LOST_FOREIGN, 4);
    let all = Reader::default().read(&segment, &All(TIMED), &place);
    assert_eq!(all.lost.shadow, 9);
    assert!(
        all.notes()[1]
            .starts_with("4 calls were counted without times, and callers further out may be missing from their paths"),
        "{:?}",
        all.notes()
    );
    assert!(all.notes()[2].starts_with("2 calls have no time because memory"), "{:?}", all.notes());
    segment.set_header32(field::STACKS_COPIED, 1);
    assert!(notes(&segment)[1].contains("keeps copies of stacks"), "{:?}", notes(&segment));
}

/// A call that was entered before a reset, or that was read late: no more of it counts than there was to count.
#[test]
fn calls_in_progress_last_no_longer_than_numbers_count() {
    let call = |elapsed_ns| InProgress { tid: 1, pid: 1, path: 2, elapsed_ns, ..InProgress::default() };
    let mut snapshot = CallSnapshot { in_progress: vec![call(5_020), call(4_000)], ..CallSnapshot::default() };
    snapshot.whole.wall_ns = 5_000;
    let totals = PathTotals { min_ns: 5_400, max_ns: 5_400, ..PathTotals::default() };
    snapshot.paths = vec![CallPath {
        id: 2,
        point: 0,
        frame: u32::MAX,
        parent: None,
        same: 0,
        folded: false,
        totals,
        threads: Vec::new(),
    }];
    clip(&mut snapshot);
    assert_eq!((snapshot.paths[0].totals.min_ns, snapshot.paths[0].totals.max_ns), (5_000, 5_000));
    assert_eq!(snapshot.in_progress, [call(5_000), call(4_000)]);
}
