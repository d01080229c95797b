//! `annotate` and `find` on machine code written out by hand.

use crate::world::World;
use std::sync::Arc;
use whither_cycles::results::Annotation;
use whither_cycles::{AnnotateQuery, Attribution, Error, Filter, annotate, topcounts};
use whither_image::Syntax;
use whither_store::model::{EventIx, EventUnit, ImageIx, ImageKind, Precision, ProcessIx, Segment};

/// `chase`: xor %ecx,%ecx; L: mov (%rax),%rax; inc %ecx; cmp %ecx,%edx; jne L; ret
const CHASE: [u8; 14] = [
    0x31, 0xc9, // 0
    0x48, 0x8b, 0x00, // 2
    0xff, 0xc1, // 5
    0x39, 0xca, // 7
    0x75, 0xf7, // 9
    0xc3, 0x90, 0x90, // 11
];

fn world() -> World {
    let mut w = World::new("cpu-clock");
    let app = w.image(ImageKind::Elf, "/usr/bin/app");
    let lib = w.image(ImageKind::Elf, "/usr/lib/libx.so.1");
    let p = w.process(1, "app", "");
    w.profile.images[0].segments = vec![Segment { offset: 0x1000, address: 0x401000, size: 0x1000 }];
    w.function(app, 0x1000, 12, "chase");
    w.function(app, 0x1100, 0x10, "_ZN2ns6Parser5parseEi");
    w.function(app, 0x1200, 0x10, "twin");
    w.function(app, 0x1300, 0x10, "twin");
    w.function(lib, 0x500, 0x10, "shared_name");
    w.function(app, 0x1400, 0x10, "shared_name");
    w.code(app, 0x1000, &CHASE);
    w.sample(app, p, 0x1005, 900);
    w.sample(app, p, 0x1002, 60);
    w.sample(app, p, 0x1007, 40);
    for (image, at) in [(app, 0x1100), (app, 0x1200), (app, 0x1300), (lib, 0x500), (app, 0x1400)] {
        w.sample(image, p, at, 50);
    }
    let source = ["void chase() {", "  while (n--)", "    // follow", "    p = *p;", "}"];
    w.symbols.source.insert("chase.c".into(), Arc::new(source.map(Into::into).into()));
    w.frames(app, 0x1002, &[("next", "list.h", 7), ("chase", "chase.c", 4)]);
    w.frames(app, 0x1005, &[("chase", "chase.c", 2)]);
    w.frames(app, 0x1007, &[("chase", "chase.c", 4)]);
    w
}

fn ask(w: &World, what: &str) -> Annotation {
    annotate(&w.profile, &w.symbols, what, &AnnotateQuery::default()).unwrap()
}

fn refuse(w: &World, what: &str) -> Error {
    annotate(&w.profile, &w.symbols, what, &AnnotateQuery::default()).unwrap_err()
}

#[test]
fn the_load_gets_the_samples_that_were_taken_behind_it() {
    let a = ask(&world(), "chase");
    let samples: Vec<f64> = a.insns.iter().map(|i| i.samples[0]).collect();
    assert_eq!(
        a.insns.iter().map(|i| i.address).collect::<Vec<_>>(),
        [0x401000, 0x401002, 0x401005, 0x401007, 0x401009, 0x40100b]
    );
    // The loop waits for its load; those at the load itself were taken while its page was looked up.
    assert_eq!(samples, [0.0, 960.0, 40.0, 0.0, 0.0, 0.0]);
    assert_eq!(a.insns[1].text, "mov (%rax),%rax");
    assert!((a.insns[1].share - 0.96).abs() < 1e-12);
    assert_eq!((a.cells[0].samples, a.corrected, a.range), (1000, true, (0x401000, 12)));
    assert_eq!((a.insns[4].target, a.insns[4].fused, a.insns[3].fused), (Some(0x401002), true, false));
    assert_eq!(a.insns.iter().map(|i| i.block).collect::<Vec<_>>(), [0, 1, 1, 1, 1, 2]);
}

#[test]
fn raw_leaves_samples_where_they_were_taken() {
    let w = world();
    let query = AnnotateQuery { attribution: Attribution::Raw, syntax: Syntax::Intel, ..AnnotateQuery::default() };
    let a = annotate(&w.profile, &w.symbols, "chase", &query).unwrap();
    let raw: Vec<u64> = a.insns.iter().map(|i| i.raw[0]).collect();
    assert_eq!(raw, [0, 60, 900, 40, 0, 0]);
    assert_eq!(a.insns.iter().map(|i| i.samples[0] as u64).collect::<Vec<_>>(), raw);
    assert_eq!((a.corrected, a.insns[1].text.as_str()), (false, "mov rax,[rax]"));
}

#[test]
fn exact_events_stay_and_displaced_ones_are_called_so() {
    let mut w = world();
    let exact = w.event("ibs", EventUnit::Count, Precision::Exact);
    let vague = w.event("cache-misses", EventUnit::Count, Precision::Unknown);
    for event in [exact, vague] {
        w.sample(ImageIx(0), ProcessIx(0), 0x1005, 10).event = event;
    }
    let a = ask(&w, "chase");
    assert_eq!(a.insns[2].samples[1..], [10.0, 10.0]);
    assert!(a.notes.iter().any(|n| n.starts_with("cache-misses samples lie off")), "{:?}", a.notes);
}

#[test]
fn source_lines_sum_their_instructions_and_fill_in_between() {
    let a = ask(&world(), "chase");
    let shown: Vec<(&str, u32, f64)> =
        a.lines.iter().map(|l| (a.files[l.file as usize].as_str(), l.line, l.samples[0])).collect();
    assert_eq!(shown, [("list.h", 7, 960.0), ("chase.c", 2, 40.0), ("chase.c", 3, 0.0), ("chase.c", 4, 0.0)]);
    assert_eq!(a.lines[2].text.as_deref(), Some("    // follow"));
    assert_eq!(a.insns[1].inlined.as_deref(), Some("next"));
    assert_eq!(a.insns[2].inlined, None);
}

#[test]
fn without_code_there_are_rows_by_position_and_a_note() {
    let a = ask(&world(), "Parser::parse");
    assert_eq!(a.procedure, "ns::Parser::parse(int)");
    assert_eq!((a.insns.len(), a.insns[0].address, a.insns[0].samples[0]), (1, 0x401100, 50.0));
    assert!(!a.corrected && a.insns[0].text.is_empty());
    assert!(a.notes[0].contains("no machine code (the file is gone"), "{:?}", a.notes);
}

#[test]
fn samples_inside_of_an_instruction_are_kept_and_told() {
    let mut w = world();
    w.sample(ImageIx(0), ProcessIx(0), 0x1003, 4);
    let a = ask(&w, "chase");
    let sum: f64 = a.insns.iter().map(|i| i.samples[0]).sum();
    assert_eq!(sum, 1004.0);
    assert!(a.notes.iter().any(|n| n.starts_with("4 samples lie inside")), "{:?}", a.notes);
}

#[test]
fn a_procedure_is_found_by_many_names() {
    let w = world();
    for name in [
        "chase",
        "/^cha/",
        "app!chase",
        "/usr/bin/app!chase",
        "0x401007",
        "chase.c:4",
        "list.h:7",
        "chas?",
        "app!0x401000",
    ] {
        assert_eq!(ask(&w, name).procedure, "chase", "{name}");
    }
    for name in ["_ZN2ns6Parser5parseEi", "ns::Parser::parse(int)", "ns::Parser::parse", "parse", "Pars"] {
        assert_eq!(ask(&w, name).procedure, "ns::Parser::parse(int)", "{name}");
    }
    assert_eq!(ask(&w, "twin@0x401300").range.0, 0x401300);
    assert_eq!(ask(&w, "libx!shared_name").image, "/usr/lib/libx.so.1");
}

#[test]
fn several_meanings_are_listed_by_samples_as_they_can_be_typed() {
    let mut w = world();
    w.sample(ImageIx(1), ProcessIx(0), 0x501, 25);
    let Error::Ambiguous { candidates, .. } = refuse(&w, "shared_name") else { panic!("not ambiguous") };
    assert_eq!(
        candidates,
        [("/usr/lib/libx.so.1!shared_name".to_owned(), 75), ("/usr/bin/app!shared_name".to_owned(), 50)]
    );
    let Error::Ambiguous { candidates, .. } = refuse(&w, "twin") else { panic!("not ambiguous") };
    for (name, _) in candidates {
        assert_eq!(ask(&w, &name).procedure, "twin");
    }
}

#[test]
fn unknown_names_get_near_ones() {
    let message = refuse(&world(), "chsae").to_string();
    assert!(message.contains("did you mean chase?"), "{message}");
    let message = refuse(&world(), "app!shared_nam_").to_string();
    assert!(message.contains("shared_name"), "{message}");
}

#[test]
fn filters_hold_for_annotations_too() {
    let mut w = world();
    let other = w.process(2, "other", "");
    w.sample(ImageIx(0), other, 0x1005, 7);
    let filter = Filter { processes: vec![whither_cycles::ProcessIs::Pid(2)], ..Filter::default() };
    let query = AnnotateQuery { filter, ..AnnotateQuery::default() };
    let a = annotate(&w.profile, &w.symbols, "chase", &query).unwrap();
    assert_eq!(a.cells[0].samples, 7);
    assert!(a.notes.iter().any(|n| n.contains("only 7 samples in this procedure")));
    assert_eq!(EventIx(0), w.profile.samples[0].event);
}

/// `work.cold`: inc %eax; jmp 0x1014; at 0x1010 `work`: test %edi,%edi; je 0x1000; ret
const SPLIT: [u8; 21] = [
    0xff, 0xc0, 0xe9, 0x0d, 0x00, 0x00, 0x00, // 0
    0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, // 7
    0x85, 0xff, 0x74, 0xec, 0xc3, // 10
];

#[test]
fn cold_parts_are_listed_with_their_code_and_samples_and_only_once_among_the_hottest() {
    let mut w = World::new("cpu-clock");
    let app = w.image(ImageKind::Elf, "/usr/bin/split");
    let p = w.process(1, "split", "");
    w.function(app, 0x1000, 7, "work.cold");
    w.function(app, 0x1010, 5, "work");
    w.readable_code(app, 0x1000, &SPLIT);
    w.sample(app, p, 0x1000, 30);
    w.sample(app, p, 0x1010, 70);
    let a = ask(&w, "work");
    assert_eq!((a.range, a.parts.as_slice()), ((0x1010, 5), &[(0x1000, 7)][..]));
    let addresses: Vec<u64> = a.insns.iter().map(|i| i.address).collect();
    assert_eq!(addresses, [0x1000, 0x1002, 0x1010, 0x1012, 0x1014]);
    assert!(a.insns.iter().all(|i| !i.text.is_empty()), "{:?}", a.insns);
    assert_eq!(a.cells[0].samples, 100);
    assert_eq!(a.insns[3].target, Some(0x1000), "a jump into the cold part can be followed");
    let hottest = topcounts(&w.profile, &w.symbols, &AnnotateQuery::default(), 50).unwrap();
    let samples: u64 = hottest.rows.iter().map(|r| r.cells[0].samples).sum();
    assert_eq!(samples, 100, "{:?}", hottest.rows);
}

#[test]
fn rows_that_are_no_procedures_are_told_for_what_they_are() {
    let mut w = world();
    let anon = w.image(ImageKind::Anon, "[anon]");
    w.sample(anon, ProcessIx(0), 0x10, 5);
    for what in ["[code without a file]", "[anon]", "[anon]![code without a file]"] {
        let told = refuse(&w, what).to_string();
        assert!(told.contains("made at run time") && told.contains("perf-PID.map"), "{told}");
    }
    // Code between the functions of a file: the file itself is more than that.
    w.sample(ImageIx(0), ProcessIx(0), 0x1f00, 5);
    assert!(refuse(&w, "[no symbol]").to_string().contains("no unwind row"));
    assert!(matches!(refuse(&w, "/usr/bin/app"), Error::NoProcedure { .. }));
}
