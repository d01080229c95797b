//! Merging against the obvious way: sum by key.

use super::*;
use crate::model::ImageOffset;
use proptest::prelude::*;
use std::collections::BTreeMap;

type Key = ((ImageIx, EventIx, ProcessIx, u32, u32), (u64, u64));

fn sums(runs: &[Vec<Sample>]) -> BTreeMap<Key, u64> {
    let mut sums = BTreeMap::new();
    for s in runs.iter().flatten() {
        *sums.entry((s.group(), s.place())).or_insert(0) += u64::from(s.count);
    }
    sums
}

fn sample() -> impl Strategy<Value = Sample> {
    let small = (0..3_u32, 0..2_u16, 0..3_u32, 0..2_u32, 0..2_u32);
    let counts = prop_oneof![8 => 1..5_u32, 1 => Just(u32::MAX), 1 => Just(u32::MAX / 2)];
    (small, 0..12_u64, 0..2_u64, counts).prop_map(|((image, event, process, tid, slice), offset, period, count)| {
        Sample {
            image: ImageIx(image),
            event: EventIx(event),
            process: ProcessIx(process),
            tid,
            slice,
            offset: ImageOffset(offset),
            period,
            count,
        }
    })
}

fn runs() -> impl Strategy<Value = Vec<Vec<Sample>>> {
    prop::collection::vec(prop::collection::vec(sample(), 0..60).prop_map(into_run), 0..7)
}

/// Rows of one key appear more than once only when their sum does not fit.
fn assert_run(rows: &[Sample]) {
    assert!(rows.is_sorted_by_key(|s| (s.group(), s.place())));
    for w in rows.windows(2) {
        let same = (w[0].group(), w[0].place()) == (w[1].group(), w[1].place());
        assert!(!same || w[0].count.checked_add(w[1].count).is_none(), "{w:?}");
    }
}

proptest! {
    #[test]
    fn sums_stay(runs in runs()) {
        let expect = sums(&runs);
        let merged = merge_runs(runs);
        prop_assert_eq!(sums(&[merged]), expect);
    }

    #[test]
    fn order_and_grouping_do_not_matter(mut runs in runs(), at in 0..7_usize) {
        for run in &mut runs {
            run.iter_mut().for_each(|row| row.count = row.count.min(1000));
            *run = into_run(std::mem::take(run));
        }
        let whole = merge_runs(runs.clone());
        assert_run(&whole);
        let right = runs.split_off(at.min(runs.len()));
        let grouped = merge_runs(vec![merge_runs(right.clone()), merge_runs(runs.clone())]);
        prop_assert_eq!(&grouped, &whole);
        runs.reverse();
        let reversed = merge_runs(right.into_iter().chain(runs).collect());
        prop_assert_eq!(&reversed, &whole);
    }
}

#[test]
fn large_runs_are_cut_at_groups_and_merged_by_threads() {
    let row = |n: u64, image: u32| Sample {
        image: ImageIx(image),
        event: EventIx(0),
        process: ProcessIx(0),
        tid: 0,
        slice: 0,
        offset: ImageOffset(n),
        period: 1,
        count: 1,
    };
    let run = |step: u64| into_run((0..PARALLEL_ROWS as u64).map(|n| row(n * step, (n % 37) as u32)).collect());
    let runs = vec![run(1), run(2), run(3)];
    let expect = sums(&runs);
    let merged = merge_runs(runs);
    assert_run(&merged);
    assert_eq!(sums(&[merged]), expect);
}

#[test]
fn sums_beyond_the_counter_are_two_rows() {
    let row = |count| Sample {
        image: ImageIx(0),
        event: EventIx(0),
        process: ProcessIx(0),
        tid: 0,
        slice: 0,
        offset: ImageOffset(1),
        period: 1,
        count,
    };
    let merged = merge_runs(vec![vec![row(u32::MAX)], vec![row(7)]]);
    assert_eq!(merged.iter().map(|s| s.count).collect::<Vec<_>>(), [7, u32::MAX]);
}
