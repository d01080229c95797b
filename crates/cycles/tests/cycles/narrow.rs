//! `narrow`: a profile cut down by a filter holds what a listing with that filter counts.

use crate::world::World;
use whither_cycles::{Error, Filter, Pattern, ProcessIs, Query, Side, listing, narrow};
use whither_store::model::*;

/// Two processes, two images and the kernel, with a stack for every sample.
fn world() -> World {
    let mut w = World::new("cpu-clock");
    let app = w.image(ImageKind::Elf, "/usr/bin/app");
    let lib = w.image(ImageKind::Elf, "/lib/libz.so.1");
    let kernel = w.image(ImageKind::Kernel, "[kernel]");
    let (one, two) = (w.process(1, "one", "/a"), w.process(2, "two", "/b"));
    w.function(app, 0, 0x100, "main");
    w.function(lib, 0, 0x100, "inflate");
    w.function(kernel, 0, 0x100, "do_read");
    let rows = [(app, one, 10, 1000), (app, two, 20, 1001), (lib, one, 40, 1002), (kernel, two, 80, 1003)];
    for (i, (image, process, count, slice)) in (0u64..).zip(rows) {
        w.sample(image, process, i, count).slice = slice;
        let frames = [(image, i), (app, 0x50)];
        let frames = frames.map(|(image, offset)| Frame { image, offset: ImageOffset(offset) }).to_vec();
        w.profile.stacks.push(Stack { frames, end: StackEnd::Complete });
        w.profile.stack_samples.push(StackSample {
            stack: StackIx(u32::try_from(i).unwrap()),
            event: EventIx(0),
            process,
            tid: 0,
            slice,
            period: 1_000_000,
            count,
        });
    }
    w
}

#[test]
fn what_passes_is_what_a_listing_counts() {
    let pattern = |text| vec![Pattern::parse(text).unwrap()];
    let none = Filter::default;
    let filters = [
        (Filter { images: pattern("libz"), ..none() }, 40),
        (Filter { procs: pattern("main"), ..none() }, 30),
        (Filter { processes: vec![ProcessIs::parse("2").unwrap()], ..none() }, 100),
        (Filter { cgroups: pattern("/a"), ..none() }, 50),
        (Filter { side: Side::Kernel, ..none() }, 80),
        (Filter { seconds: Some(1001..1003), ..none() }, 60),
        (Filter { images: pattern("app"), processes: vec![ProcessIs::parse("one").unwrap()], ..none() }, 10),
        (none(), 150),
    ];
    for (filter, expected) in filters {
        let w = world();
        let query = Query { filter: filter.clone(), ..Query::default() };
        let counted = listing(&w.profile, &w.symbols, &query).unwrap().provenance.events[0].samples;
        let cut = narrow(w.profile, &w.symbols, &filter).unwrap();
        let samples: u64 = cut.samples.iter().map(|s| u64::from(s.count)).sum();
        let stacks: u64 = cut.stack_samples.iter().map(|s| u64::from(s.count)).sum();
        assert_eq!((counted, samples, stacks), (expected, expected, expected), "{filter:?}");
        let told = cut.epochs[0].notes.iter().any(|n| n.starts_with("only "));
        assert_eq!(told, !filter.describe().is_empty());
    }
}

#[test]
fn nothing_left_is_an_error() {
    let w = world();
    let filter = Filter { procs: vec![Pattern::parse("nosuch").unwrap()], ..Filter::default() };
    let error = narrow(w.profile, &w.symbols, &filter).unwrap_err();
    assert!(matches!(error, Error::NothingMatched { .. }), "{error}");
}
