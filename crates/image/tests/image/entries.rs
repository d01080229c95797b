//! How functions can be replaced at their entries: each case in made-up code, and figures over real files.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests: a panic is the verdict, a skip is told")]

use crate::common::compile;
use std::collections::BTreeMap;
use std::time::Instant;
use whither_image::{Bytes, Callee, CodeMap, Entry, EntryRefusal, Linkage, NoExit, Plan, PlanKind, Svma, UnwindRows};
use whither_image::{callees, code_names, pointer_calls};

/// The functions of `entries.s` by name.
struct Made {
    map: CodeMap,
    at: BTreeMap<String, u64>,
    rows: UnwindRows,
    linkage: Linkage,
}

impl Made {
    fn new(flags: &[&str]) -> Option<Self> {
        Self::of("entries.s", flags)
    }

    fn of(source: &str, flags: &[&str]) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let program = compile("gcc", source, flags, dir.path())?;
        let file = Bytes::from(std::fs::read(program).unwrap());
        let names = code_names(&file, None);
        let at = names.iter().map(|n| (n.name.to_string(), n.address.0)).collect();
        let map = CodeMap::from_elf(&file, &names).unwrap();
        let (rows, linkage) = (UnwindRows::from_elf(&file).unwrap(), Linkage::from_elf(&file).unwrap());
        Some(Self { map, at, rows, linkage })
    }

    fn entry(&self, name: &str) -> Entry {
        self.map.entry(Svma(self.at[name]))
    }

    fn plan(&self, name: &str) -> Plan {
        self.entry(name).plan.unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    fn branch_into(&self, name: &str) -> u64 {
        match self.entry(name).plan {
            Err(EntryRefusal::BranchInto { from }) => from,
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn each_way_to_replace_an_entry_and_each_refusal() {
    for flags in [["-nostdlib", "-static"], ["-nostdlib", "-pie"]] {
        let Some(made) = Made::new(&flags) else { return };
        let jump = |skip, window| Plan { kind: PlanKind::Jump, skip, window, fillers: Vec::new() };
        assert_eq!(made.plan("plain"), jump(0, 8));
        assert_eq!(made.plan("landing"), jump(4, 6));
        assert_eq!(made.plan("tiny"), Plan { kind: PlanKind::Padded, skip: 0, window: 5, fillers: Vec::new() });
        assert_eq!(made.plan("call_closes"), jump(0, 5));
        assert_eq!(made.plan("decoy"), jump(0, 5));
        let glued = made.plan("glued");
        assert_eq!((glued.kind, glued.window), (PlanKind::Short, 2));
        // The nearest filler stands behind the function that is glued to it.
        let behind = made.map.entry(Svma(made.at["behind_glued"])).extent.end;
        assert_eq!(glued.fillers[0], Svma(behind));
        assert_eq!(made.plan("call_first").kind, PlanKind::Short);
        assert_eq!(made.entry("hopeless").plan, Err(EntryRefusal::TooShort { bytes: 1 }));
        assert_eq!(made.branch_into("back_branch"), made.at["back_branch"] + 3);
        assert_eq!(made.branch_into("jumped_into"), made.at["jumper"] + 6);
        assert_eq!(made.branch_into("two_entries"), made.at["second_entry"]);
        // Only two bytes are replaced, and the pointer leads behind them.
        assert_eq!((made.plan("taken").kind, made.plan("taken").window), (PlanKind::Short, 2));
        assert_eq!(made.map.entry(Svma(0x10)).plan, Err(EntryRefusal::NotCode));
    }
}

/// Places inside of functions, for what is to be seen there: at offsets from the function.
#[test]
fn places_that_are_passed_as_often_as_an_address() {
    let Some(made) = Made::new(&["-nostdlib", "-static"]) else { return };
    let places = |name: &str, offset: u64| {
        let start = made.at[name];
        let found = made.map.places(Svma(start + offset))?;
        Ok(found.into_iter().map(|r| (r.start - start, r.end - start)).collect::<Vec<_>>())
    };
    // Behind a locked addition there is a return only: the entry, or filler behind the end.
    assert_eq!(places("counts", 9), Ok(vec![(0, 9), (9, 14)]));
    assert_eq!(places("counts", 0), Ok(vec![(0, 9)]));
    // Behind the mark the loop begins within five bytes; not so from the instruction before it on. What stands before the loop
    // is not passed as often.
    assert_eq!(places("marked", 5), Ok(vec![(4, 9)]));
    assert_eq!(places("marked", 6), Ok(vec![(4, 9)]));
    let at = made.at["cramped"];
    assert_eq!(places("cramped", 2), Err(EntryRefusal::BranchInto { from: at + 9 }));
    // Another function leads behind its first instruction.
    assert_eq!(places("entered", 2), Ok(vec![(2, 7)]));
    assert!(matches!(places("entered", 0), Err(EntryRefusal::BranchInto { .. })));
    // The same from afar, far behind the entry.
    assert_eq!(places("deep", 12), Ok(vec![(0, 10)]));
}

/// A function whose stack was moved is entered once more: what stands behind the question is passed once.
#[test]
fn entries_of_go_are_replaced_behind_the_question_for_their_stack() {
    let Some(made) = Made::of("go.s", &["-nostdlib", "-static"]) else { return };
    let places = ["asks", "huge", "small", "again", "bound", "more"].map(|name| {
        let plan = made.plan(name);
        (name, plan.skip, plan.window)
    });
    let expected =
        [("asks", 14, 11), ("huge", 18, 11), ("small", 0, 6), ("again", 0, 6), ("bound", 0, 6), ("more", 0, 5)];
    assert_eq!(places, expected);
    assert!(["asks", "small"].iter().all(|name| made.entry(name).no_exit == Some(NoExit::Go)));
}

#[test]
fn exits_that_cannot_be_seen_and_loops_over_the_entry() {
    let Some(made) = Made::new(&["-nostdlib", "-static"]) else { return };
    assert_eq!(made.entry("pops").no_exit, Some(NoExit::PopsArguments));
    assert_eq!(made.entry("never").no_exit, Some(NoExit::NeverReturns));
    assert_eq!(made.entry("plain").no_exit, None);
    assert_eq!(made.entry("repeats").repeats, Some(Svma(made.at["repeats"] + 8)));
    assert_eq!(made.entry("back_branch").repeats, None);
    assert_eq!(made.entry("plain").extent, made.at["plain"]..made.at["plain"] + 10);
}

#[test]
fn rows_of_made_up_code() {
    let Some(made) = Made::new(&["-nostdlib", "-static"]) else { return };
    const ENTRY: u32 = 1 | 1 << 3;
    assert_eq!(made.rows.find(Svma(made.at["plain"])), ENTRY);
    assert_eq!(made.rows.find(Svma(made.at["_start"])), 5);
    assert_eq!(made.rows.find(Svma(made.at["tiny"] + 3)), 0, "filler has no rule");
}

#[test]
fn what_a_function_calls() {
    let Some(made) = Made::new(&["-nostdlib", "-static"]) else { return };
    let of = |name: &str| callees(&made.map, &made.linkage, Svma(made.at[name]));
    assert_eq!(of("call_closes"), [Callee::Here(Svma(made.at["plain"]))]);
    assert_eq!(of("jumper"), [Callee::Here(Svma(made.at["jumped_into"] + 1))]);
    assert_eq!(of("plain"), []);
    let Ok(bash) = std::fs::read("/bin/bash").map(Bytes::from) else { return println!("SKIP: no /bin/bash") };
    let names = code_names(&bash, None);
    let map = CodeMap::from_elf(&bash, &names).unwrap();
    let linkage = Linkage::from_elf(&bash).unwrap();
    let at = names.iter().find(|n| &*n.name == "xmalloc").unwrap().address;
    let called: Vec<String> = callees(&map, &linkage, at)
        .iter()
        .filter_map(|c| match c {
            Callee::Slot(slot) => Some(format!("{:?}", linkage.target(*slot)?)),
            Callee::Here(_) => None,
        })
        .collect();
    assert_eq!(called, [r#"Name("dcgettext")"#, r#"Name("malloc")"#]);
}

#[test]
fn where_functions_call_through_pointers() {
    let dir = tempfile::tempdir().unwrap();
    for flags in [&["-O2", "-pie", "-fPIC"][..], &["-O2", "-no-pie"], &["-O2", "-fno-plt", "-fPIC"], &["-O0"]] {
        let Some(program) = compile("gcc", "pointers.c", flags, dir.path()) else { return };
        let file = Bytes::from(std::fs::read(program).unwrap());
        let names = code_names(&file, None);
        let map = CodeMap::from_elf(&file, &names).unwrap();
        let linkage = Linkage::from_elf(&file).unwrap();
        let of = |name: &str| {
            let at = names.iter().find(|n| &*n.name == name).unwrap().address;
            let found = pointer_calls(&map, &linkage, at);
            (found.returns.len(), found.jumps.len())
        };
        let optimised = flags[0] == "-O2";
        assert_eq!(of("twice"), (2, 0), "{flags:?}: one was inlined");
        assert_eq!(of("global"), (1, 0), "{flags:?}: not the linker's slot");
        assert_eq!(of("tail"), if optimised { (0, 1) } else { (1, 0) }, "{flags:?}");
        assert_eq!(of("seldom"), (2, 0), "{flags:?}: in its cold part");
        for none in ["direct", "plain", "chosen", "computed"] {
            assert_eq!(of(none), (0, 0), "{flags:?}: {none}");
        }
    }
}

/// Files with at least so many functions patched, in percent.
const FILES: [(&str, f64); 10] = [
    ("/bin/bash", 99.5),
    ("/usr/bin/git", 99.5),
    ("/usr/bin/python3.11", 98.0),
    ("/lib/x86_64-linux-gnu/libc.so.6", 98.0),
    ("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", 99.0),
    ("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", 99.0),
    ("/usr/bin/gdb", 99.0),
    ("/usr/lib/gcc/x86_64-linux-gnu/12/cc1", 99.0),
    ("/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1", 99.0),
    ("RUSTC_DRIVER", 99.0),
];

/// Half a minute of work: `cargo test --release -p whither-image --test image entries -- --ignored --nocapture`.
#[test]
#[ignore = "reads 500 MB of libraries"]
fn nearly_every_function_can_be_patched() {
    for (path, at_least) in FILES {
        let path = if path == "RUSTC_DRIVER" { rustc_driver() } else { Some(path.to_owned()) };
        let Some((path, bytes)) = path.and_then(|p| Some((p.clone(), std::fs::read(p).ok()?))) else {
            println!("SKIP: no {at_least}");
            continue;
        };
        let share = coverage(&path, Bytes::from(bytes));
        assert!(share >= at_least, "{path}: {share:.2} % instead of {at_least}");
    }
}

fn rustc_driver() -> Option<String> {
    let root = std::process::Command::new("rustc").arg("--print=sysroot").output().ok()?;
    let lib = format!("{}/lib", String::from_utf8(root.stdout).ok()?.trim());
    let files = std::fs::read_dir(lib).ok()?.filter_map(Result::ok);
    let mut names = files.map(|f| f.path().to_string_lossy().into_owned());
    names.find(|n| n.contains("librustc_driver") && n.ends_with(".so"))
}

fn coverage(path: &str, file: Bytes) -> f64 {
    let started = Instant::now();
    let rows = UnwindRows::from_elf(&file).unwrap();
    let unwound = started.elapsed();
    let names = code_names(&file, None);
    let started = Instant::now();
    let map = CodeMap::from_elf(&file, &names).unwrap();
    let opened = started.elapsed();
    let mut starts: Vec<Svma> = map.unwind_starts().collect();
    let cold = |at: &Svma| names.iter().any(|n| n.address == *at && n.name.contains(".cold"));
    starts.sort_unstable();
    starts.dedup();
    if starts.len() < 30_000 {
        starts.retain(|at| !cold(at));
    }
    let started = Instant::now();
    let _ = map.entry(starts[0]);
    let first = started.elapsed();
    let started = Instant::now();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let mut repeats = 0;
    for &at in &starts {
        let entry = map.entry(at);
        repeats += usize::from(entry.repeats.is_some());
        let kind = match entry.plan {
            Ok(plan) => format!("{:?}", plan.kind),
            Err(EntryRefusal::TooShort { .. }) => "short".into(),
            Err(EntryRefusal::BranchInto { .. }) => "branch".into(),
            Err(EntryRefusal::CallInside) => "call".into(),
            Err(EntryRefusal::Immovable { .. }) => "immovable".into(),
            Err(e) => e.to_string(),
        };
        *kinds.entry(kind).or_default() += 1;
        if let Some(n) = entry.no_exit {
            *kinds.entry(format!("({n:?})")).or_default() += 1;
        }
    }
    let all = started.elapsed();
    let of = |kind: PlanKind| kinds.get(&format!("{kind:?}")).copied().unwrap_or(0);
    let plain = of(PlanKind::Jump) as f64 / starts.len() as f64 * 100.0;
    let good = of(PlanKind::Jump) + of(PlanKind::Padded) + of(PlanKind::Short);
    let share = good as f64 / starts.len() as f64 * 100.0;
    println!(
        "{path}: {} functions, jmp5 {plain:.2} %, all {share:.2} %; {kinds:?} repeats {repeats}; rows {} ({} big, {:?}) in {unwound:?}; \
         opened {opened:?}, first {first:?}, all {all:?}",
        starts.len(),
        rows.rows.len(),
        rows.big.len(),
        rows.problems
    );
    share
}
