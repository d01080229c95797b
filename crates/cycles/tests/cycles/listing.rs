//! `prof` on a machine whose every share is known.

use crate::world::World;
use whither_cycles::results::Listing;
use whither_cycles::{By, Error, Filter, Inlines, Pattern, ProcessIs, Query, Side, listing};
use whither_store::model::{EventUnit, ImageIx, ImageKind, Precision, ProcessIx, Rate};

/// 60 samples in `work` of two processes, 20 in `helper` of libfoo, 15 in the kernel (10 on a
/// pile-up), 3 in anonymous code, 2 unknown; a second event in `work` only.
fn world() -> World {
    let mut w = World::new("cpu-clock");
    let misses = w.event("cache-misses", EventUnit::Count, Precision::Unknown);
    let app = w.image(ImageKind::Elf, "/usr/bin/app");
    let lib = w.image(ImageKind::Elf, "/usr/lib/libfoo.so");
    let kernel = w.image(ImageKind::Kernel, "[kernel]");
    let anon = w.image(ImageKind::Anon, "[anon]");
    let unknown = w.image(ImageKind::Unknown, "[unknown: process gone]");
    let (p1, p2) = (w.process(10, "app", "/a.slice"), w.process(11, "app", "/b.slice"));
    w.function(app, 0x100, 0x40, "work");
    w.function(app, 0x140, 0x40, "helper");
    w.function(app, 0x180, 0x40, "helper");
    w.function(lib, 0x100, 0x40, "helper");
    w.function(kernel, 0x10, 0x10, "finish_task_switch.isra.0");
    w.function(kernel, 0x20, 0x10, "memcpy");
    w.sample(app, p1, 0x104, 40).tid = 10;
    w.sample(app, p2, 0x104, 15).tid = 11;
    w.sample(app, p2, 0x13f, 5).tid = 12;
    w.sample(lib, p1, 0x110, 20).slice = 1005;
    w.sample(kernel, p1, 0x1f, 10);
    w.sample(kernel, p2, 0x20, 5);
    w.sample(anon, p1, 0x7f00_0000_1000, 3);
    w.sample(unknown, p2, 0, 2);
    let s = w.sample(app, p1, 0x104, 7);
    (s.event, s.period) = (misses, 1000);
    w
}

fn ask(w: &World, query: &Query) -> Listing {
    listing(&w.profile, &w.symbols, query).unwrap()
}

fn by(groupings: &[By]) -> Query {
    Query { by: groupings.to_vec(), ..Query::default() }
}

fn filtered(filter: Filter) -> Query {
    Query { filter, ..Query::default() }
}

/// `labels: samples of the main event`, row by row.
fn rows(l: &Listing) -> Vec<String> {
    l.rows.iter().map(|r| format!("{}: {}", r.labels.join(" | "), r.cells[0].samples)).collect()
}

#[test]
fn procedures_come_with_their_image_and_unknown_ones_with_the_reason() {
    let l = ask(&world(), &Query::default());
    assert_eq!(l.by, ["proc", "image"]);
    assert_eq!(
        rows(&l),
        [
            "work | /usr/bin/app: 60",
            "helper | /usr/lib/libfoo.so: 20",
            "finish_task_switch.isra.0 | [kernel]: 10",
            "memcpy | [kernel]: 5",
            "[code without a file] | [anon]: 3",
            "[unknown: process gone] | [unknown: process gone]: 2",
        ]
    );
}

#[test]
fn shares_cumulate_to_one_and_events_stand_side_by_side() {
    let l = ask(&world(), &Query::default());
    let first = &l.rows[0];
    assert!((first.cells[0].share - 0.6).abs() < 1e-12);
    assert_eq!((first.cells[1].samples, first.cells[1].weight, first.cells[1].share), (7, 7000, 1.0));
    assert!((l.rows[1].cumulative - 0.8).abs() < 1e-12);
    assert!((l.rows[5].cumulative - 1.0).abs() < 1e-12);
    assert_eq!(l.provenance.events[0].samples, 100);
    assert_eq!(l.provenance.unknown, [("process gone".to_owned(), 2)]);
    assert!((l.provenance.unknown_share - 0.02).abs() < 1e-12);
}

#[test]
fn the_error_is_the_binomial_one() {
    let l = ask(&world(), &Query::default());
    // Wilson, n = 100, p = 0.6: 0.0942 (computed apart).
    assert!((l.rows[0].error - 0.0942).abs() < 0.0005, "{}", l.rows[0].error);
}

#[test]
fn unequal_periods_are_worth_fewer_samples() {
    let mut w = world();
    w.sample(ImageIx(0), ProcessIx(0), 0x120, 1).period = 100_000_000;
    let l = ask(&w, &Query::default());
    // One sample holds half of all time: its share is nearly unknown.
    assert!(l.rows[0].error > 0.3, "{}", l.rows[0].error);
}

#[test]
fn the_rest_holds_what_the_limit_leaves_out() {
    let l = ask(&world(), &Query { limit: Some(2), ..Query::default() });
    let (n, cells) = l.rest.unwrap();
    assert_eq!((l.rows.len(), n, cells[0].samples, cells[1].samples), (2, 4, 20, 0));
}

#[test]
fn same_named_functions_of_one_image_are_told_apart_by_address() {
    let mut w = world();
    w.sample(ImageIx(0), ProcessIx(0), 0x141, 2);
    w.sample(ImageIx(0), ProcessIx(0), 0x181, 1);
    let l = ask(&w, &Query::default());
    let text = rows(&l).join("\n");
    assert!(text.contains("helper@0x140 | /usr/bin/app: 2"), "{text}");
    assert!(text.contains("helper@0x180 | /usr/bin/app: 1"), "{text}");
    assert!(text.contains("helper | /usr/lib/libfoo.so: 20"), "{text}");
}

#[test]
fn groupings_combine() {
    let l = ask(&world(), &by(&[By::Process, By::Image]));
    assert_eq!(
        rows(&l)[..3],
        ["app (10) | /usr/bin/app: 40", "app (11) | /usr/bin/app: 20", "app (10) | /usr/lib/libfoo.so: 20"]
    );
    let l = ask(&world(), &by(&[By::Cgroup]));
    assert_eq!(rows(&l), ["/a.slice: 73", "/b.slice: 27"]);
    let l = ask(&world(), &by(&[By::Command]));
    assert_eq!(rows(&l), ["app: 100"]);
    let l = ask(&world(), &by(&[By::Slice]));
    assert_eq!(rows(&l), ["1970-01-01 00:16:40Z: 80", "1970-01-01 00:16:45Z: 20"]);
    let l = ask(&world(), &by(&[By::Thread]));
    assert!(rows(&l).contains(&"app (11) thread 12: 5".to_owned()), "{:?}", rows(&l));
}

#[test]
fn instructions_show_address_and_offset_in_the_function() {
    let l = ask(&world(), &by(&[By::Insn]));
    assert_eq!(rows(&l)[0], "0x104 work+0x4 | /usr/bin/app: 55");
}

#[test]
fn lines_and_files_are_those_of_the_innermost_function() {
    let mut w = world();
    w.frames(ImageIx(0), 0x104, &[("min", "min.h", 3), ("work", "app.c", 12)]);
    let l = ask(&w, &by(&[By::Line]));
    assert_eq!(rows(&l)[..2], ["min.h:3 | /usr/bin/app: 55", "[no line information] | /usr/lib/libfoo.so: 20"]);
    assert_eq!(rows(&ask(&w, &by(&[By::File])))[0], "min.h: 55");
}

#[test]
fn inlined_functions_are_seen_when_asked_for() {
    let mut w = world();
    w.frames(ImageIx(0), 0x104, &[("min", "min.h", 3), ("work", "app.c", 12)]);
    let l = ask(&w, &Query { inlines: Inlines::Expand, ..Query::default() });
    assert_eq!(rows(&l)[0], "min (inlined) | /usr/bin/app: 55");
    assert!(rows(&l).contains(&"work | /usr/bin/app: 5".to_owned()));
    assert_eq!(rows(&ask(&w, &Query::default()))[0], "work | /usr/bin/app: 60");
}

#[test]
fn pile_ups_and_nameless_code_are_remarked() {
    let l = ask(&world(), &Query::default());
    let remarks: Vec<_> = l.rows.iter().map(|r| r.remark.as_deref().unwrap_or("")).collect();
    assert!(remarks[2].starts_with("interrupts were off"), "{remarks:?}");
    assert!(remarks[4].contains("perf-PID.map"), "{remarks:?}");
    assert_eq!([remarks[0], remarks[1], remarks[3]], ["", "", ""]);
}

#[test]
fn filters_select_and_the_answer_says_so() {
    let w = world();
    let image = Filter { images: vec![Pattern::parse("libfoo").unwrap()], ..Filter::default() };
    let l = ask(&w, &filtered(image));
    assert_eq!(rows(&l), ["helper | /usr/lib/libfoo.so: 20"]);
    assert_eq!(l.filters, ["image libfoo"]);
    assert!(l.provenance.notes.iter().any(|n| n.contains("20.00 % of all samples")));
    let proc = Filter { procs: vec![Pattern::parse("/^work$/").unwrap()], ..Filter::default() };
    assert_eq!(rows(&ask(&w, &filtered(proc))), ["work | /usr/bin/app: 60"]);
    let pid = Filter { processes: vec![ProcessIs::parse("11").unwrap()], ..Filter::default() };
    assert_eq!(ask(&w, &filtered(pid)).provenance.events[0].samples, 27);
    let kernel = Filter { side: Side::Kernel, ..Filter::default() };
    assert_eq!(ask(&w, &filtered(kernel)).provenance.events[0].samples, 15);
    let user = Filter { side: Side::User, ..Filter::default() };
    assert_eq!(ask(&w, &filtered(user)).provenance.events[0].samples, 85);
    let late = Filter { seconds: Some(1001..1006), ..Filter::default() };
    assert_eq!(rows(&ask(&w, &filtered(late))), ["helper | /usr/lib/libfoo.so: 20"]);
}

#[test]
fn columns_follow_the_events_asked_for() {
    let query = Query { events: vec!["cache-misses".into()], ..Query::default() };
    let l = ask(&world(), &query);
    assert_eq!(rows(&l), ["work | /usr/bin/app: 7"]);
    assert_eq!(l.provenance.events.len(), 1);
    let wrong = Query { events: vec!["cache-mises".into()], ..Query::default() };
    let w = world();
    let message = listing(&w.profile, &w.symbols, &wrong).unwrap_err().to_string();
    assert!(message.contains("did you mean cache-misses?"), "{message}");
}

#[test]
fn nothing_matching_is_an_error_with_the_filters() {
    let w = world();
    let none = Filter { images: vec![Pattern::parse("nosuch").unwrap()], ..Filter::default() };
    let error = listing(&w.profile, &w.symbols, &filtered(none)).unwrap_err();
    assert!(matches!(&error, Error::NothingMatched { samples: 107, .. }), "{error}");
    let none = Filter { images: vec![Pattern::parse("./libfo.so").unwrap()], ..Filter::default() };
    let error = listing(&w.profile, &w.symbols, &filtered(none)).unwrap_err();
    assert!(error.to_string().contains("(did you mean /usr/lib/libfoo.so?)"), "{error}");
    let empty = World::new("cpu-clock");
    let error = listing(&empty.profile, &empty.symbols, &Query::default()).unwrap_err();
    assert!(matches!(error, Error::Empty));
}

#[test]
fn few_samples_are_called_few() {
    let mut w = World::new("cpu-clock");
    let app = w.image(ImageKind::Elf, "/usr/bin/app");
    let p = w.process(1, "app", "");
    w.sample(app, p, 0x10, 42);
    let notes = ask(&w, &Query::default()).provenance.notes;
    assert!(notes[0].starts_with("only 42 samples"), "{notes:?}");
}

#[test]
fn two_builds_of_one_path_are_two_rows() {
    let mut w = world();
    let again = w.image(ImageKind::Elf, "/usr/bin/app");
    w.sample(again, ProcessIx(0), 0x104, 30);
    let l = ask(&w, &by(&[By::Image]));
    assert_eq!(rows(&l)[..2], ["/usr/bin/app (build 00000001): 60", "/usr/bin/app (build 00000006): 30"]);
}

#[test]
fn grouping_names_parse_both_ways() {
    for name in By::NAMES {
        assert_eq!(name.parse::<By>().unwrap().name(), name);
    }
    assert!("colour".parse::<By>().unwrap_err().to_string().contains("choose from image, proc"));
}

#[test]
fn all_images_sampled_are_announced_at_once() {
    let mut w = World::new("cpu-clock");
    let images = ["/bin/a", "/bin/b", "/bin/never"].map(|path| w.image(ImageKind::Elf, path));
    let p = w.process(1, "a", "");
    w.sample(images[0], p, 0, 1);
    w.sample(images[1], p, 0, 1);
    listing(&w.profile, &w.symbols, &Query::default()).unwrap();
    assert_eq!(*w.symbols.prepared.lock().unwrap(), [["/bin/a", "/bin/b"]]);
}

/// 100 samples a second for ten seconds on one of two CPUs, in slices of five seconds.
fn slow_slices() -> World {
    let mut w = World::new("cpu-clock");
    let app = w.image(ImageKind::Elf, "/usr/bin/app");
    let p = w.process(10, "app", "");
    w.profile.epochs[0].slice_s = 5;
    for slice in [1000, 1005] {
        let s = w.sample(app, p, 0x104, 500);
        (s.slice, s.period) = (slice, 10_000_000);
    }
    for cpu in 0..2 {
        w.profile.rates.push(Rate {
            start_ns: 1_000_000_000_000,
            length_ns: 10_000_000_000,
            cpu,
            event: "cpu-clock".into(),
            period: 10_000_000,
            delivered: if cpu == 0 { 1000 } else { 0 },
            ..Rate::default()
        });
    }
    w
}

#[test]
fn the_rate_of_a_timer_is_its_own_however_idle_the_machine_was() {
    let mut w = slow_slices();
    let l = ask(&w, &Query::default());
    assert_eq!((l.provenance.rate_hz, l.provenance.seconds), (100.0, 10.0));
    // Of several events there is one account, under the names of all.
    w.event("page-faults", EventUnit::Count, Precision::Unknown);
    w.profile.rates.iter_mut().for_each(|r| r.event = "cpu-clock+page-faults".into());
    w.profile.rates.iter_mut().for_each(|r| r.idle = 7);
    let l = ask(&w, &Query::default());
    assert_eq!((l.provenance.rate_hz, l.provenance.seconds), (100.0, 10.0));
    assert_eq!(l.provenance.events.iter().map(|e| e.idle).collect::<Vec<_>>(), [14, 0]);
}

#[test]
fn a_range_inside_a_slice_tells_what_was_counted() {
    let w = slow_slices();
    let l = ask(&w, &filtered(Filter { seconds: Some(1001..1002), ..Filter::default() }));
    assert_eq!((l.provenance.events[0].samples, l.provenance.seconds, l.provenance.rate_hz), (500, 5.0, 100.0));
    let slices = "1970-01-01 00:16:40Z to 1970-01-01 00:16:45Z";
    assert!(l.provenance.notes.iter().any(|n| n.ends_with(&format!("those of {slices}"))), "{:?}", l.provenance.notes);
    let whole = ask(&w, &filtered(Filter { seconds: Some(1000..u32::MAX), ..Filter::default() }));
    assert!(!whole.provenance.notes.iter().any(|n| n.contains("slices")), "{:?}", whole.provenance.notes);
    assert_eq!(whole.filters, ["time since 1970-01-01 00:16:40Z"]);
}

#[test]
fn code_made_at_run_time_is_one_row_whatever_the_number_of_processes() {
    let mut w = world();
    let other = w.image(ImageKind::Anon, "[anon]");
    let jit = [w.image(ImageKind::Jit, "[jit: node]"), w.image(ImageKind::Jit, "[jit: node]")];
    w.sample(other, ProcessIx(1), 0x7f00_0000_2000, 4);
    for image in jit {
        w.sample(image, ProcessIx(1), 0x10, 6);
    }
    let images = rows(&ask(&w, &by(&[By::Image])));
    assert!(images.contains(&"[anon]: 7".into()) && images.contains(&"[jit: node]: 12".into()), "{images:?}");
    let procs = rows(&ask(&w, &Query::default()));
    assert!(procs.contains(&"[code without a file] | [anon]: 7".into()), "{procs:?}");
}

#[test]
fn programs_of_one_name_in_one_process_are_one_row() {
    let mut w = world();
    let app = ImageIx(0);
    // The same pid and start after an exec, and another process of that pid and name later.
    for (key, start) in [(70, 5), (71, 5), (72, 9)] {
        let p = w.process(7, "bash", "");
        let process = &mut w.profile.processes[p.0 as usize];
        (process.key, process.start_ns) = (key, start);
        w.sample(app, p, 0x104, 1000);
    }
    let rows = rows(&ask(&w, &by(&[By::Process])));
    assert_eq!(rows[..2], ["bash (7): 2000", "bash (7): 1000"], "{rows:?}");
}
