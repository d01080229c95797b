//! Call trees, heat maps and the hottest instructions.

use crate::world::World;
use whither_cycles::results::FlameNode;
use whither_cycles::{
    AnnotateQuery, Error, Filter, FlameQuery, Inlines, Pattern, Query, Roots, Side, call_tree, flame, heat_map,
    listing, topcounts,
};
use whither_store::model::*;

fn stack(w: &mut World, process: ProcessIx, frames: &[(ImageIx, u64)], end: StackEnd, count: u32) {
    let frames = frames.iter().map(|&(image, at)| Frame { image, offset: ImageOffset(at) }).collect();
    w.profile.stacks.push(Stack { frames, end });
    w.profile.stack_samples.push(StackSample {
        stack: StackIx(u32::try_from(w.profile.stacks.len() - 1).unwrap()),
        event: EventIx(0),
        process,
        tid: 0,
        slice: 1000,
        period: 10,
        count,
    });
}

fn world() -> World {
    let mut w = World::new("cpu-clock");
    let app = w.image(ImageKind::Elf, "/usr/bin/app");
    let kernel = w.image(ImageKind::Kernel, "[kernel]");
    let (p, q) = (w.process(1, "app", ""), w.process(2, "other", ""));
    for (i, name) in ["main", "work", "leaf"].into_iter().enumerate() {
        w.function(app, i as u64 * 0x100, 0x100, name);
    }
    w.function(kernel, 0x10, 0x10, "do_syscall_64");
    w.frames(app, 0x210, &[("min", "m.h", 1), ("leaf", "l.c", 2)]);
    let done = StackEnd::Complete;
    stack(&mut w, p, &[(app, 0x210), (app, 0x110), (app, 0x10)], done, 60);
    stack(&mut w, p, &[(app, 0x110), (app, 0x10)], done, 25);
    stack(&mut w, p, &[(kernel, 0x14), (app, 0x120), (app, 0x10)], done, 10);
    stack(&mut w, q, &[(app, 0x900)], StackEnd::Truncated, 5);
    w
}

fn ask(w: &World, query: &FlameQuery) -> FlameNode {
    flame(&w.profile, &w.symbols, query).unwrap()
}

/// `name own/total`, depth first, one space per level.
fn shape(node: &FlameNode, depth: usize, out: &mut Vec<String>) {
    out.push(format!("{}{} {}/{}", " ".repeat(depth), node.name, node.own, node.total));
    node.children.iter().for_each(|c| shape(c, depth + 1, out));
}

fn lines(node: &FlameNode) -> Vec<String> {
    let mut out = Vec::new();
    shape(node, 0, &mut out);
    out
}

#[test]
fn stacks_become_a_tree_whose_totals_add_up() {
    assert_eq!(
        lines(&ask(&world(), &FlameQuery::default())),
        [
            "all 0/1000",
            " app 0/950",
            "  main 0/950",
            "   work 250/950",
            "    leaf 600/600",
            "    do_syscall_64 100/100",
            " other 0/50",
            "  [stack cut short] 0/50",
            "   [app] 50/50",
        ]
    );
}

#[test]
fn inlined_and_kernel_frames_are_marked() {
    let query = FlameQuery { inlines: Inlines::Expand, roots: Roots::Function, ..FlameQuery::default() };
    let tree = ask(&world(), &query);
    let work = &tree.children[0].children[0];
    let min = &work.children[0].children[0];
    assert_eq!((min.name.as_str(), min.inlined, min.kernel, min.image.as_str()), ("min", true, false, "app"));
    assert_eq!((work.children[1].name.as_str(), work.children[1].kernel), ("do_syscall_64", true));
    assert_eq!(tree.total, 1000);
}

#[test]
fn filters_keep_whole_stacks() {
    let total = |filter: Filter| ask(&world(), &FlameQuery { filter, ..FlameQuery::default() }).total;
    assert_eq!(total(Filter { procs: vec![Pattern::parse("leaf").unwrap()], ..Filter::default() }), 600);
    assert_eq!(total(Filter { images: vec![Pattern::parse("kernel").unwrap()], ..Filter::default() }), 100);
    assert_eq!(total(Filter { side: Side::Kernel, ..Filter::default() }), 100);
    assert_eq!(total(Filter { side: Side::User, ..Filter::default() }), 900);
}

#[test]
fn a_call_tree_tells_its_data_and_keeps_its_total() {
    let mut w = world();
    w.sample(ImageIx(0), ProcessIx(0), 4, 9);
    let filter = Filter { procs: vec![Pattern::parse("leaf").unwrap()], ..Filter::default() };
    let answer =
        call_tree(&w.profile, &w.symbols, &FlameQuery { filter, event: None, ..FlameQuery::default() }).unwrap();
    assert_eq!((answer.event.as_str(), answer.tree.total), ("cpu-clock", 600));
    assert_eq!(answer.filters, ["procedure leaf"]);
    assert_eq!(answer.provenance.events[0].samples, 9, "the samples of all procedures");
}

/// Of 95 parts in 100 that the stacks tell, the samples know better: 90 and 10.
#[test]
fn thinned_stacks_add_up_to_what_the_samples_say() {
    let mut w = world();
    w.sample(ImageIx(0), ProcessIx(0), 4, 90_007);
    w.sample(ImageIx(0), ProcessIx(1), 4, 10_001);
    let weight = |process: u32| -> u64 {
        w.profile
            .samples
            .iter()
            .filter(|s| s.process == ProcessIx(process))
            .map(whither_store::model::Sample::weight)
            .sum()
    };
    let tree = ask(&w, &FlameQuery::default());
    assert_eq!(tree.total, weight(0) + weight(1));
    let of: Vec<_> = tree.children.iter().map(|c| (c.name.as_str(), c.total)).collect();
    assert_eq!(of, [("app", weight(0)), ("other", weight(1))]);
    // Of a process without stacks that is said.
    w.profile.stack_samples.retain(|s| s.process != ProcessIx(1));
    let tree = ask(&w, &FlameQuery::default());
    assert_eq!(
        lines(&tree)[6..],
        [format!(" other 0/{0}", weight(1)), format!("  [no stack taken] {0}/{0}", weight(1))]
    );
}

#[test]
fn no_stacks_is_an_error_that_says_how_to_get_them() {
    let w = World::new("cpu-clock");
    let error = flame(&w.profile, &w.symbols, &FlameQuery::default()).unwrap_err();
    assert!(error.to_string().contains("record with -g"), "{error}");
    let w = world();
    let filter = Filter { procs: vec![Pattern::parse("nosuch").unwrap()], ..Filter::default() };
    let error = flame(&w.profile, &w.symbols, &FlameQuery { filter, ..FlameQuery::default() }).unwrap_err();
    assert!(matches!(error, Error::NoStacks { recorded: 4 }), "{error}");
}

#[test]
fn very_deep_stacks_are_cut_not_crashed_on() {
    let mut w = world();
    let frames: Vec<(ImageIx, u64)> = (0..100_000).map(|i| (ImageIx(0), i % 0x300)).collect();
    stack(&mut w, ProcessIx(0), &frames, StackEnd::Complete, 1);
    assert_eq!(ask(&w, &FlameQuery::default()).total, 1010);
}

#[test]
fn a_heat_map_has_every_sample_once() {
    let mut w = world();
    for i in 0..100u32 {
        w.sample(ImageIx(0), ProcessIx(0), u64::from(i % 3) * 0x100, i + 1).slice = 5000 + i;
    }
    let all: u64 = w.profile.samples.iter().map(Sample::weight).sum();
    for columns in [1, 7, 100, 1000] {
        let map = heat_map(&w.profile, &w.symbols, &Query::default(), 2, columns).unwrap();
        assert!(map.slices.len() <= columns, "{} of {columns}", map.slices.len());
        assert_eq!(map.rows.iter().flat_map(|r| &r.1).sum::<u64>(), all);
        assert!(map.rows.iter().all(|r| r.1.len() == map.slices.len()));
        let names: Vec<&str> = map.rows.iter().map(|r| r.0.as_str()).collect();
        assert_eq!(names, ["main  /usr/bin/app", "leaf  /usr/bin/app", "(all others)"]);
    }
}

#[test]
fn topcounts_are_the_hottest_instructions_after_correction() {
    let mut w = world();
    // mov (%rax),%rax; inc %ecx; nop... : samples on the increment belong to the load.
    let mut code = vec![0x90; 0x300];
    code[..5].copy_from_slice(&[0x48, 0x8b, 0x00, 0xff, 0xc1]);
    w.code(ImageIx(0), 0, &code);
    w.frames(ImageIx(0), 0, &[("main", "m.c", 3)]);
    w.sample(ImageIx(0), ProcessIx(0), 3, 500);
    w.sample(ImageIx(0), ProcessIx(0), 0x150, 300);
    w.sample(ImageIx(0), ProcessIx(0), 0x151, 100);
    w.sample(ImageIx(1), ProcessIx(0), 0x12, 100);
    let top = topcounts(&w.profile, &w.symbols, &AnnotateQuery::default(), 3).unwrap();
    let rows: Vec<String> =
        top.rows.iter().map(|r| format!("{} {}", r.labels.join(" | "), r.cells[0].samples)).collect();
    assert_eq!(
        rows,
        [
            "0x0 main+0x0 | mov (%rax),%rax | m.c:3 | /usr/bin/app 500",
            "0x14f work+0x4f | nop |  | /usr/bin/app 300",
            "0x150 work+0x50 | nop |  | /usr/bin/app 100",
        ]
    );
    assert!((top.rows[2].cumulative - 0.9).abs() < 1e-9);
}

#[test]
fn time_behind_interrupts_is_told_with_its_callers() {
    let mut w = World::new("cpu-clock");
    let kernel = w.image(ImageKind::Kernel, "[kernel]");
    let app = w.image(ImageKind::Elf, "/usr/bin/app");
    let p = w.process(1, "app", "");
    let names = ["_raw_spin_unlock_irqrestore", "try_to_wake_up", "ep_poll", "vfs_read", "do_syscall_64"];
    for (i, name) in names.into_iter().enumerate() {
        w.function(kernel, i as u64 * 0x100, 0x100, name);
    }
    w.sample(kernel, p, 0x10, 100);
    w.sample(kernel, p, 0x410, 40);
    w.sample(kernel, p, 0x310, 30);
    let query = Query { limit: Some(10), ..Query::default() };
    let remark = |w: &World, row: usize| listing(&w.profile, &w.symbols, &query).unwrap().rows[row].remark.clone();
    assert!(remark(&w, 0).unwrap().ends_with("(recorded with -g, its callers are named)"));
    let done = StackEnd::Complete;
    stack(&mut w, p, &[(kernel, 0x10), (kernel, 0x120), (kernel, 0x420)], done, 30);
    stack(&mut w, p, &[(kernel, 0x10), (kernel, 0x220), (kernel, 0x420)], done, 10);
    stack(&mut w, p, &[(kernel, 0x410), (app, 0x10)], done, 20);
    stack(&mut w, p, &[(kernel, 0x310), (kernel, 0x420)], done, 20);
    let told = remark(&w, 0).unwrap();
    assert!(told.ends_with("called from try_to_wake_up 75 %, ep_poll 25 %"), "{told}");
    assert!(remark(&w, 1).unwrap().ends_with("called from user code 100 %"), "{:?}", remark(&w, 1));
    assert_eq!(remark(&w, 2), None, "nothing piles up in vfs_read");
}
