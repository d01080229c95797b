//! The life book: maps against a byte-wise reference, and the corner cases of lives by name.

use super::*;
use proptest::prelude::*;

fn map(start: u64, end: u64, image: u32) -> Mapped {
    Mapped { start, end, offset: start, image: ImageNo(image) }
}

fn task(pid: u32, tag: u32, time: u64) -> whither_abi::Task {
    whither_abi::Task { tgid: pid, tid: pid, tag, time, start: 5, ..Default::default() }
}

/// A life whose present phase goes on.
fn still(life: LifeNo) -> Moment {
    Moment { life, until: STILL }
}

fn life_of(l: &Lives, pid: u32, tag: u16) -> Option<LifeNo> {
    l.by_tag(pid, tag).map(|at| at.life)
}

#[test]
fn an_exec_in_place_is_another_life() {
    let mut l = Lives::default();
    l.found(10, "sh".into(), "/bin/sh".into(), 0, 1);
    l.mapped(10, map(0x1000, 0x2000, 1), "/bin/sh", 1);
    l.tagged(&task(10, 3, 2));
    l.execed(10, "cc1".into(), 100);
    l.mapped(10, map(0x1000, 0x2000, 2), "/usr/lib/cc1", 101);
    l.tagged(&task(10, 4, 110));
    let (old, new) = (life_of(&l, 10, 3).expect("old"), life_of(&l, 10, 4).expect("new"));
    assert_eq!(l.get(old).expect("kept").maps.find(0x1800), Found::One(map(0x1000, 0x2000, 1)));
    assert_eq!(l.get(new).expect("kept").maps.find(0x1800), Found::One(map(0x1000, 0x2000, 2)));
    assert_eq!((l.get(new).expect("kept").exe.as_str(), l.get(new).expect("kept").start), ("/usr/lib/cc1", 5));
    l.forget(200, |_| true);
    assert_eq!((life_of(&l, 10, 3), life_of(&l, 10, 4)), (None, Some(new)));
}

#[test]
fn a_child_starts_on_its_parents_mappings() {
    let mut l = Lives::default();
    l.found(10, "make".into(), "/bin/make".into(), 0, 1);
    l.mapped(10, map(0x1000, 0x2000, 1), "/bin/make", 1);
    let child = l.forked(11, 10, 50);
    l.mapped(10, map(0x1000, 0x2000, 9), "/x", 60);
    assert_eq!(l.get(child).expect("kept").maps.find(0x1000), Found::One(map(0x1000, 0x2000, 1)));
    assert_eq!(l.get(child).expect("kept").comm, "make");
}

#[test]
fn pid_reuse_is_told_apart_by_tag() {
    let mut l = Lives::default();
    l.forked(7, 1, 10);
    l.tagged(&task(7, 1, 11));
    l.ended(7, 20);
    l.forked(7, 1, 30);
    l.tagged(&task(7, 2, 31));
    assert_ne!(l.by_tag(7, 1), l.by_tag(7, 2));
    l.forget(25, |_| true);
    assert_eq!(l.by_tag(7, 1), None);
}

#[test]
fn lives_that_share_a_tag_are_told_apart_by_their_mappings() {
    let mut l = Lives::default();
    let mut lives = Vec::new();
    for (i, (at, image)) in [(0x1000, 1), (0x5000, 2), (0x5000, 3)].into_iter().enumerate() {
        let time = 10 * (1 + i as u64);
        lives.push(l.forked(7, 1, time));
        l.mapped(7, map(at, at + 0x1000, image), "/x", time + 1);
        l.tagged(&task(7, 9, time + 2));
        l.ended(7, time + 3);
    }
    assert_eq!(l.by_tag(7, 9), Some(still(lives[2])), "without an address it is the newest");
    assert_eq!(l.by_tag_at(7, 9, 0x1800), Some(Which::One(still(lives[0]))));
    assert_eq!(l.by_tag_at(7, 9, 0x5800), Some(Which::Several(still(lives[2]))));
    assert_eq!(l.by_tag_at(7, 9, 0x9000), Some(Which::One(still(lives[2]))), "nobody had code there");
    assert_eq!(l.by_tag_at(7, 8, 0x1800), None);
}

#[test]
fn what_was_reported_before_the_scan_does_not_undo_it() {
    let mut l = Lives::default();
    l.found(10, "make".into(), "/bin/make".into(), 0, 100);
    l.mapped(10, map(0x1000, 0x2000, 1), "/bin/make", 100);
    l.tagged(&task(10, 5, 110));
    // Forked before it was looked at: its record comes after the scan.
    assert!(l.is_old(10, 90) && !l.is_old(10, 100) && !l.is_old(11, 90));
    l.tagged(&task(10, 4, 90));
    let no = life_of(&l, 10, 5).expect("the tag of the scan stays");
    assert_eq!((l.by_tag(10, 4), l.get(no).expect("kept").comm.as_str()), (None, "make"));
    // Another process with that pid later on.
    l.ended(10, 200);
    l.forked(10, 1, 210);
    assert!(!l.is_old(10, 90), "its life began with its fork");
}

#[test]
fn a_pid_used_again_and_again_asks_for_a_drain() {
    let mut l = Lives::default();
    let use_it = |l: &mut Lives, times: std::ops::Range<u64>| {
        for time in times {
            l.forked(7, 1, 10 * time);
            l.ended(7, 10 * time + 5);
        }
    };
    use_it(&mut l, 0..8);
    assert!(!l.is_crowded());
    use_it(&mut l, 8..9);
    assert!(l.is_crowded());
    l.forget(1000, |_| false);
    assert!(!l.is_crowded() && l.by_tag(7, 0).is_none());
    use_it(&mut l, 200..202);
    assert!(!l.is_crowded());
}

#[test]
fn a_process_whose_leader_ended_stays_while_threads_run() {
    let mut l = Lives::default();
    let no = l.forked(7, 1, 10);
    l.ended(7, 20);
    l.forget(100, |_| true);
    assert!(l.get(no).is_some());
    l.forget(100, |_| false);
    assert!(l.get(no).is_none());
}

#[test]
fn a_replaced_mapping_is_ambiguous_until_forgotten() {
    let mut m = Maps::default();
    m.insert(map(0x1000, 0x4000, 1), 1);
    m.insert(map(0x2000, 0x3000, 2), 50);
    assert_eq!(m.find(0x2800), Found::Several(map(0x2000, 0x3000, 2)));
    assert_eq!(m.find(0x1800), Found::One(Mapped { end: 0x2000, ..map(0x1000, 0x4000, 1) }));
    m.forget(60);
    assert_eq!(m.find(0x2800), Found::One(map(0x2000, 0x3000, 2)));
    let Found::One(tail) = m.find(0x3800) else { panic!("the tail is still mapped") };
    assert_eq!(tail.offset_of(0x3800), 0x3800);
    assert_eq!(m.find(0x4000), Found::None);
}

fn unmapped(pid: u32, phase: u32, time: u64) -> whither_abi::Task {
    whither_abi::Task { tgid: pid, tag: phase, time, why: whither_abi::WHY_UNMAPPED, ..Default::default() }
}

#[test]
fn what_was_sampled_before_code_was_unmapped_is_looked_up_as_of_then() {
    let mut l = Lives::default();
    l.will_be_phased();
    let no = l.found(10, "host".into(), "/bin/host".into(), 0, 1);
    l.tagged(&task(10, 5, 2));
    l.mapped(10, map(0x1000, 0x2000, 1), "/lib/a.so", 3);
    l.unmapped(&unmapped(10, 1, 50));
    l.mapped(10, map(0x1000, 0x2000, 2), "/lib/b.so", 51);
    l.unmapped(&unmapped(10, 2, 90));
    l.mapped(10, map(0x1000, 0x2000, 3), "/lib/c.so", 91);
    let image = |l: &Lives, tag: u16| {
        let Some(Which::Only(at)) = l.by_tag_at(10, tag, 0x1800) else { panic!("one life, each phase known") };
        assert_eq!(at.life, no);
        l.get(no).and_then(|life| life.maps.find_until(0x1800, at.until)).map(|m| m.image.0)
    };
    assert_eq!([5, 5 ^ 1, 5 ^ 2].map(|tag| image(&l, tag)), [Some(1), Some(2), Some(3)]);
    assert_eq!(l.by_tag_at(10, 5 ^ 7, 0x1800), Some(Which::Several(still(no))), "the word of that phase was lost");
    l.forget(60, |_| true);
    assert_eq!((l.by_tag(10, 5), image(&l, 5 ^ 1)), (None, Some(2)), "its samples are in");
    l.forget(100, |_| true);
    assert_eq!(image(&l, 5 ^ 2), Some(3), "the last one goes on");
}

/// A tag has fewer numbers than a program that loads and unloads libraries all the time can have phases between two drains.
#[test]
fn more_phases_than_a_tag_has_numbers_are_ambiguous() {
    let numbers = 1_u32 << whither_abi::TAG_BITS;
    let mut l = Lives::default();
    l.will_be_phased();
    let no = l.found(10, "host".into(), "/bin/host".into(), 0, 1);
    l.tagged(&task(10, 5, 2));
    let begins = |phase: u32| 100 + u64::from(phase) * 2;
    l.mapped(10, map(0x1000, 0x2000, 0), "/lib/0.so", 3);
    for phase in 1..numbers + 10 {
        l.unmapped(&unmapped(10, phase, begins(phase)));
        // Libraries in turn, one more than divides the numbers: the same place of the next round is another's.
        l.mapped(10, map(0x1000, 0x2000, phase % 3), "/lib/x.so", begins(phase) + 1);
    }
    let seen = |l: &Lives, phase: u32| l.by_tag_at(10, 5 ^ (phase % numbers) as u16, 0x1800);
    let until = |phase: u32| Moment { life: no, until: begins(phase + 1) };
    assert_eq!(seen(&l, 4), Some(Which::Several(until(numbers + 4))), "phase 4 or 8196");
    assert_eq!(seen(&l, 4_000), Some(Which::Only(until(4_000))));
    assert_eq!(seen(&l, 9), Some(Which::Several(still(no))));
    l.forget(begins(numbers), |_| true);
    assert_eq!(seen(&l, 4), Some(Which::Only(until(numbers + 4))), "samples of the first round are in");
}

#[test]
fn a_phase_of_another_process_with_that_number_changes_nothing() {
    let mut l = Lives::default();
    let no = l.found(10, "calm".into(), "/bin/calm".into(), 0, 1);
    l.tagged(&task(10, 5, 2));
    l.unmapped(&unmapped(10 + whither_abi::PHASES, 1, 50));
    assert_eq!(l.by_tag(10, 5), Some(Moment { life: no, until: 50 }));
    assert_eq!(l.by_tag(10, 5 ^ 1), Some(still(no)));
}

proptest! {
    /// Against a byte-wise reference: after any sequence of mappings every address belongs to the
    /// mapping inserted last over it.
    #[test]
    fn maps_agree_with_a_reference(ops in prop::collection::vec((0_u64..60, 1_u64..20, 0_u32..5), 1..40)) {
        let mut maps = Maps::default();
        let mut reference = vec![None; 100];
        for (i, (start, length, image)) in ops.into_iter().enumerate() {
            let end = start + length;
            maps.insert(map(start, end, image), i as u64);
            for slot in &mut reference[start as usize..end as usize] {
                *slot = Some(image);
            }
        }
        maps.forget(u64::MAX);
        for (address, want) in reference.iter().enumerate() {
            let got = match maps.find(address as u64) {
                Found::One(m) => { prop_assert_eq!(m.offset_of(address as u64), address as u64); Some(m.image.0) }
                Found::Several(_) => { prop_assert!(false, "nothing is left of the past"); None }
                Found::None => None,
            };
            prop_assert_eq!(got, *want);
        }
    }
}
