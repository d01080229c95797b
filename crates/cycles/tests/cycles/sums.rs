//! Sums over any grouping equal the total, for any profile, any combination and any limit.

use crate::world::World;
use proptest::prelude::*;
use whither_cycles::{By, Inlines, Query, listing};
use whither_store::model::{EventIx, EventUnit, ImageKind, Precision};

const ALL: [By; 10] =
    [By::Image, By::Proc, By::Line, By::Insn, By::File, By::Process, By::Command, By::Thread, By::Cgroup, By::Slice];

#[derive(Clone, Debug)]
struct Row {
    image: usize,
    event: u16,
    process: usize,
    tid: u32,
    slice: u32,
    offset: u64,
    period: u64,
    count: u32,
}

fn row() -> impl Strategy<Value = Row> {
    (0..6usize, 0..2u16, 0..3usize, 0..3u32, 0..4u32, 0..0x200u64, 1..5_000_000u64, 1..1000u32).prop_map(
        |(image, event, process, tid, slice, offset, period, count)| Row {
            image,
            event,
            process,
            tid,
            slice,
            offset,
            period,
            count,
        },
    )
}

fn world(rows: &[Row]) -> World {
    use ImageKind::{Anon, Elf, Jit, Kernel, Unknown};
    let mut w = World::new("cpu-clock");
    w.event("cycles", EventUnit::Count, Precision::Exact);
    let kinds = [Elf, Elf, Kernel, Anon, Jit, Unknown];
    let images: Vec<_> = kinds.iter().enumerate().map(|(i, k)| w.image(*k, &format!("/image{i}"))).collect();
    let processes: Vec<_> = (0..3).map(|p| w.process(p, &format!("c{}", p / 2), "/g")).collect();
    for (i, &image) in images.iter().enumerate() {
        for f in 0..i as u64 * 3 {
            // Gaps between functions, and names that come twice.
            w.function(image, f * 0x20 + 8, 0x10, &format!("f{}", f % 4));
        }
        for at in (0..0x200).step_by(3) {
            w.frames(image, at, &[("inl", "a.h", at as u32 % 7), ("out", "b.c", 1)]);
        }
    }
    for r in rows {
        let s = w.sample(images[r.image], processes[r.process], r.offset, r.count);
        (s.event, s.tid, s.slice, s.period) = (EventIx(r.event), r.tid, r.slice, r.period);
    }
    w
}

proptest! {
    #[test]
    fn sums_equal_the_total(
        rows in prop::collection::vec(row(), 1..60),
        by in prop::sample::subsequence(ALL.to_vec(), 0..=4).prop_shuffle(),
        limit in prop::option::of(0..8usize),
        expand in any::<bool>(),
    ) {
        let w = world(&rows);
        let inlines = if expand { Inlines::Expand } else { Inlines::Outermost };
        let l = listing(&w.profile, &w.symbols, &Query { by, limit, inlines, ..Query::default() }).unwrap();
        for event in 0..2usize {
            let of_event = || rows.iter().filter(|r| usize::from(r.event) == event);
            let samples: u64 = of_event().map(|r| u64::from(r.count)).sum();
            let weight: u64 = of_event().map(|r| u64::from(r.count) * r.period).sum();
            let cells = || {
                let rest = l.rest.iter().map(|(_, cells)| cells[event]);
                l.rows.iter().map(|r| r.cells[event]).chain(rest)
            };
            prop_assert_eq!(cells().map(|c| c.samples).sum::<u64>(), samples);
            prop_assert_eq!(cells().map(|c| c.weight).sum::<u64>(), weight);
            prop_assert_eq!(l.provenance.events[event].weight, weight);
        }
        let shown = l.rows.len() + l.rest.map_or(0, |(n, _)| n);
        let mut labels: Vec<_> = l.rows.iter().map(|r| r.labels.clone()).collect();
        labels.sort();
        labels.dedup();
        prop_assert!(labels.len() == l.rows.len(), "every row has a label of its own");
        prop_assert!(limit.is_none_or(|n| l.rows.len() <= n) && shown >= 1);
    }
}
