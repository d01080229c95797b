//! Functions that end in a jump to another one leave no frame: paths tell them all the same, and the tree has what they jumped to
//! below them.

use crate::fixture::{self, Call, Named, Take, call, leaf};
use crate::*;
use whither_store::calls::*;

/// Names, and a call of `f3` before every return address that lies in `main`.
struct Calling(CallSite);

impl Names for Calling {
    fn place(&self, module: &CallModule, address: u64) -> CallPlace {
        let site = if address < fixture::SIZE { self.0.clone() } else { CallSite::Unknown };
        CallPlace { site, ..Named.place(module, address) }
    }
}

fn labels(analysis: &Analysis<'_>) -> Vec<String> {
    (0..analysis.snapshot.paths.len()).map(|path| analysis.label_of(path)).collect()
}

/// `main` calls `f3`, which ends in a jump to `f1`: it is on no stack.
#[test]
fn who_ended_in_a_jump_is_told() {
    let main = call(0, 0, 50, 1, vec![leaf(1, 16, 300, 1)]);
    let snapshot = Take::of([1]).snapshot(&main);
    let labels = |site: CallSite, snapshot: &CallSnapshot| {
        let names = Calling(site);
        let analysis = Analysis::new(snapshot, &names, Options::default());
        let tree = analysis.tree(&TreeQuery::default());
        (analysis.label_of(0), tree.children[0].children[0].name.clone())
    };
    let direct = |f: u32| CallSite::Direct { target: u64::from(f) * fixture::SIZE, function: fixture::name(f) };
    let (label, node) = labels(direct(3), &snapshot);
    assert_eq!((label.as_str(), node.as_str()), ("main > f3 [tail] > f1", "f3 [tail]"));
    assert!(!labels(direct(1), &snapshot).0.contains("tail"), "it calls what runs");
    for site in [CallSite::Unknown, CallSite::Signal] {
        assert!(!labels(site, &snapshot).0.contains("tail"));
    }
    let mut by_pointers = snapshot.clone();
    by_pointers.frames.iter_mut().for_each(|f| f.by_frame_pointer = true);
    assert!(!labels(direct(3), &by_pointers).0.contains("tail"), "frame pointers pass over functions without frames");
    let mut cold = snapshot;
    cold.points[0].names = vec!["f3.cold".into()];
    assert!(!labels(direct(3), &cold).0.contains("tail"), "a part of the function itself");
}

/// `main` calls `f3`, which ends in a jump to `f1`, which calls `f2`; `f4` is called by `f3` before.
fn tail_program() -> CallSnapshot {
    let inner = call(1, 16, 300, 10, vec![leaf(2, 32, 200, 1)]);
    let outer = call(3, 16, 100, 10, vec![leaf(4, 48, 50, 1), Call { times: 1, ..inner }]);
    let mut snapshot = Take::of([1, 2, 3, 4]).snapshot(&call(0, 0, 50, 1, vec![outer]));
    // The jump: no return address in f3.
    let jumped = snapshot.paths.iter().position(|p| p.point == 0).unwrap();
    snapshot.paths[jumped].frame = u32::MAX;
    snapshot
}

/// The time of what a probed function ends in a jump to lies within its own.
#[test]
fn what_a_probed_function_jumped_to_stands_below_it() {
    let snapshot = tail_program();
    let analysis = Analysis::new(&snapshot, &Named, Options::default());
    let mut labels = labels(&analysis);
    labels.sort();
    let told = ["main > f3 [tail] > f1", "main > f3 [tail] > f1+0x20 (1.c:31) > f2", "main > f3+0x30 (3.c:47) > f4"];
    assert_eq!(labels[..3], told.map(String::from), "{labels:?}");
    let tree = analysis.tree(&TreeQuery::default());
    let main = &tree.children[0];
    let f3 = &main.children[0];
    assert_eq!((main.children.len(), f3.name.as_str(), f3.calls, f3.own), (1, "f3", 10, 1000));
    let below: Vec<(&str, u64, u64)> = f3.children.iter().map(|c| (c.name.as_str(), c.calls, c.total)).collect();
    assert_eq!(below, [("f1", 10, 5000), ("f4", 10, 500)]);
    let total = |name: &str| analysis.profile().functions.iter().find(|f| f.names[0] == name).unwrap().totals.wall_ns;
    assert_eq!((f3.total, f3.children[0].total), (total("f3"), total("f1")));
}

/// `f3` is probed and jumps to `f5`, which is not and calls `f1`; nothing tells what stands before the return address.
#[test]
fn what_runs_in_the_place_of_a_probed_function_stands_below_it() {
    let main = call(0, 0, 50, 1, vec![call(3, 16, 100, 10, vec![leaf(1, 16, 300, 1)])]);
    let mut snapshot = Take::of([1, 3]).snapshot(&main);
    let inner = snapshot.paths.iter().position(|p| p.parent.is_some()).unwrap();
    let frame = snapshot.paths[inner].frame as usize;
    snapshot.frames[frame].offset = 5 * fixture::SIZE + 16;
    let tree = |snapshot: &CallSnapshot| {
        let f3 = Analysis::new(snapshot, &Named, Options::default()).tree(&TreeQuery::default()).children[0].children
            [0]
        .clone();
        (f3.name, f3.calls, f3.children.iter().map(|c| c.name.clone()).collect::<Vec<_>>())
    };
    assert_eq!(tree(&snapshot), ("f3".into(), 10, vec!["f5".into()]));
    snapshot.frames[frame].by_frame_pointer = true;
    let told = labels(&Analysis::new(&snapshot, &Named, Options::default())).iter().any(|l| l.contains("tail"));
    assert!(!told, "frame pointers pass over functions without frames");
    snapshot.frames[frame].by_frame_pointer = false;
    snapshot.points[1].names = vec!["f5".into()];
    assert!(!labels(&Analysis::new(&snapshot, &Named, Options::default())).iter().any(|l| l.contains("tail")));
}

/// Before `f3` is probed its calls go by `f3 [tail]`, later by itself: one node.
#[test]
fn one_that_left_no_frame_is_the_node_of_the_probed_one() {
    let main = call(0, 0, 50, 1, vec![leaf(1, 16, 300, 1), leaf(3, 16, 20, 1)]);
    let snapshot = Take::of([1, 3]).snapshot(&main);
    let direct = CallSite::Direct { target: 3 * fixture::SIZE, function: "f3".into() };
    let names = Calling(direct);
    let main = Analysis::new(&snapshot, &names, Options::default()).tree(&TreeQuery::default()).children[0].clone();
    let nodes: Vec<(&str, u64, u64)> = main.children.iter().map(|c| (c.name.as_str(), c.calls, c.total)).collect();
    assert_eq!(nodes, [("f3", 1, 320)]);
}

/// `f1` and `f2` jump to one another, many times: no deeper tree for that.
#[test]
fn functions_that_jump_in_a_circle_stand_in_a_chain_once() {
    let mut inner = leaf(3, 16, 5, 1);
    for i in 0..9_u32 {
        inner = call(1 + i % 2, 16, 10, 1, vec![inner]);
    }
    let mut snapshot = Take::of([1, 2, 3]).snapshot(&call(0, 0, 50, 1, vec![inner]));
    snapshot.paths.iter_mut().filter(|p| p.parent.is_some()).for_each(|p| p.frame = u32::MAX);
    let analysis = Analysis::new(&snapshot, &Named, Options::default());
    let listing = analysis.listing(&ListQuery::default()).unwrap();
    let mut rows: Vec<(&str, u64)> = listing.rows.iter().map(|r| (r.label.as_str(), r.figures.calls)).collect();
    rows.sort_unstable();
    let third = "main > f1 [tail] > f3";
    assert_eq!(rows, [("main > f1 [tail] > f2", 4), (third, 1), ("main+0x10 (0.c:15) > f1", 5)]);
    let f1 = analysis.tree(&TreeQuery::default()).children[0].children[0].clone();
    assert_eq!((f1.name.as_str(), f1.calls, f1.own, f1.total), ("f1", 5, 50, 95));
}
