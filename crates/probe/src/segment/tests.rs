//! Tests of the segment: what a reader sees while a writer is at work.

use super::*;

fn words(segment: &Segment, from: u64, to: u64, value: u64) {
    for at in (from..to).step_by(8) {
        segment.set_word(at, value);
    }
}

#[test]
fn what_is_written_is_read() {
    let segment = Segment::private();
    let point = Point { address: 0x1234, state: abi::POINT_ON, flags: 7, window: 5, stub: 9, ..Point::default() };
    segment.set_point(3, &point);
    assert_eq!(segment.point(3), point);
    segment.set_point_state(3, abi::POINT_GONE);
    assert_eq!(segment.point(3), Point { state: abi::POINT_GONE, ..point });
    let module = Module { start: 1, end: 2, state: 1, ..Module::default() };
    segment.set_module(0, &module);
    assert_eq!(segment.module(0), module);
    assert!(segment.set_rows(5, &[Row { offset: 8, rule: 9 }]));
    assert_eq!(segment.load::<Row>(abi::AT_ROWS + 5 * 8), Row { offset: 8, rule: 9 });
    assert!(!segment.set_rows(abi::MAX_ROWS, &[Row::default()]));
    let root = segment.allocate_root(3).expect("room");
    assert_eq!(segment.path(root), Path { frame: abi::ROOT_FULL, point: 3, ..Path::default() });
    let path = Path { frame: segment.put_run(abi::ROOT_END, &[0x10, 0x20]), next: 5, point: 3, same: 9 };
    segment.put_path(7, &path);
    assert_eq!(segment.path(7), path);
    let inner = segment.frame(path.frame).expect("a frame");
    assert_eq!(segment.site(inner.site).ra, 0x20);
    let outer = segment.frame(inner.outside).expect("a frame");
    assert_eq!((segment.site(outer.site).ra, outer.outside), (0x10, abi::ROOT_END));
    segment.forget_rule(1);
    assert_eq!((segment.site(1).ra, segment.site(1).rule), (0x10, abi::RULE_LATER));
}

#[test]
fn frames_whose_sites_take_two_units_are_read_too() {
    let segment = Segment::private();
    segment.set_header32(field::NEXT_SITE, abi::FRAME_SITE - 1);
    let addresses: Vec<u64> = (0x10..0x20).collect();
    let root = abi::ROOT_JOIN | 0x1_2345;
    let mut at = segment.put_run(root, &addresses);
    for ra in addresses.iter().rev() {
        let frame = segment.frame(at).expect("a frame");
        assert_eq!(segment.site(frame.site).ra, *ra);
        at = frame.outside;
    }
    assert_eq!(at, root);
    // Neighbours, which the agent and the controller write.
    for path in 4..8 {
        segment.put_path(path, &Path { frame: at, next: abi::LINK_NEXT, point: 0xfff0 + path as u16, same: 4096 });
    }
    assert_eq!(segment.path(5), Path { frame: root, next: abi::LINK_NEXT, point: 0xfff5, same: 4096 });
}

#[test]
fn indexes_outside_of_tables_are_zeros() {
    let segment = Segment::private();
    // What lies behind each table must not be reached through it.
    words(&segment, abi::AT_POINTS, abi::AT_POINTS + 4096, u64::MAX);
    words(&segment, abi::AT_RULES, abi::AT_RULES + 4096, u64::MAX);
    words(&segment, abi::AT_PATH_FRAMES, abi::AT_PATH_FRAMES + 4096, u64::MAX);
    words(&segment, abi::AT_ROWS, abi::AT_ROWS + 4096, u64::MAX);
    words(&segment, abi::AT_SITE_HEADS, abi::AT_SITE_HEADS + 4096, u64::MAX);
    for index in [abi::MAX_FRAMES, u32::MAX] {
        assert_eq!(segment.frame(index), None);
        assert_eq!(segment.site(index), Site::default());
        assert_eq!(segment.path(index), Path::default());
        assert_eq!(segment.point(index), Point::default());
        assert_eq!(segment.module(index), Module::default());
        assert!(segment.more(u32::MAX).is_none());
        segment.poison(index, 1);
        segment.set_point_state(index, 1);
        segment.bury(index, 5);
    }
}

#[test]
fn counts_that_a_target_made_up_are_bounded() {
    let segment = Segment::private();
    words(&segment, 0, 4096, u64::MAX);
    assert!(segment.n_paths() <= abi::MAX_PATHS && segment.n_sites() <= abi::MAX_SITES);
    assert!(segment.n_threads() <= abi::MAX_THREADS && segment.n_points() <= abi::MAX_POINTS);
    assert_eq!(segment.allocate_root(1), None);
    let head = Segment::thread_at(0);
    words(&segment, head, head + 200, u64::MAX);
    words(&segment, head + offset_of!(Thread, directory) as u64, head + 70_000, u64::MAX);
    assert_eq!(segment.pages(0, u32::MAX).count(), 0);
    assert!(segment.active(0).is_empty(), "its sequence is odd for ever");
    assert_eq!(segment.thread(0).state, u32::MAX);
}

#[test]
fn blocks_are_whole_or_said_to_be_torn() {
    let segment = Segment::private();
    let at = abi::AT_PAGES + 4096;
    assert_eq!(segment.block(1, 0), None);
    segment.store(at, &Block { calls: 3, ..Block::default() });
    assert!(matches!(segment.block(1, 0), Some(Copied::Whole(b)) if b.calls == 3), "entries alone leave seq 0");
    segment.store(at, &Block { seq: 5, calls: 3, ..Block::default() });
    assert!(matches!(segment.block(1, 0), Some(Copied::Torn(b)) if b.calls == 3));
}

#[test]
fn a_writer_never_shows_half_an_update() {
    let segment = Segment::private();
    let at = abi::AT_PAGES + 4096;
    let halves = (at + offset_of!(Block, wall) as u64, at + offset_of!(Block, cpu) as u64);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                n = n.wrapping_add(1);
                segment.set_half(at, n.wrapping_mul(2).wrapping_sub(1));
                segment.set_word(halves.0, u64::from(n));
                segment.set_word(halves.1, u64::from(n) * 3);
                segment.set_half(at, n.wrapping_mul(2));
            }
        });
        let mut whole = 0;
        // As many looks as it takes: how often both threads run together is the scheduler's choice.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while whole <= 1000 && std::time::Instant::now() < end {
            if let Some(Copied::Whole(block)) = segment.block(1, 0) {
                assert_eq!(block.cpu, block.wall * 3);
                whole += 1;
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(whole > 1000, "{whole}");
    });
}
