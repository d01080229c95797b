//! Recordings of several events, and runs of different ones: figures of different events never add up.

use crate::world::World;
use whither_cycles::find::procedures;
use whither_cycles::selection::{Filter, Selection};
use whither_cycles::{DiffQuery, Error, RunsPer, RunsQuery, diff, run_statistics};
use whither_store::model::{EventIx, EventUnit, ImageIx, ImageKind, Precision, ProcessIx};

fn run(event: &str) -> World {
    let mut w = World::new(event);
    let app = w.image(ImageKind::Elf, "/usr/bin/app");
    let server = w.process(5, "server", "/web");
    w.function(app, 0, 0x100, "serve");
    w.function(app, 0x100, 0x100, "touch");
    w.sample(app, server, 0x10, 1000);
    w.sample(app, server, 0x110, 50);
    w
}

/// `touch` has most samples of both events together, `serve` most of the first.
fn two_events() -> World {
    let mut w = run("cpu-clock");
    let faults = w.event("page-faults", EventUnit::Count, Precision::Exact);
    w.sample(ImageIx(0), ProcessIx(0), 0x110, 5000).event = faults;
    w
}

#[test]
fn procedures_rank_by_the_first_selected_event() {
    let w = two_events();
    let ranked = |events: &[&str]| -> Vec<(String, u64)> {
        let events: Vec<String> = events.iter().map(|e| (*e).to_owned()).collect();
        let selection = Selection::new(&w.profile, &Filter::default(), &events).unwrap();
        procedures(&selection, &w.symbols).into_iter().map(|p| (p.name.to_string(), p.samples)).collect()
    };
    assert_eq!(ranked(&[]), [("serve".to_owned(), 1000), ("touch".to_owned(), 50)]);
    assert_eq!(ranked(&["page-faults"]), [("touch".to_owned(), 5000)]);
    assert_eq!(ranked(&["page-faults", "cpu-clock"])[0], ("touch".to_owned(), 5000));
}

#[test]
fn a_run_without_the_event_of_the_first_is_named_not_added() {
    let (time, both, faults) = (run("cpu-clock"), two_events(), run("page-faults"));
    let names: Vec<String> = ["cpu.wh", "both.wh", "pf.wh"].map(Into::into).into();
    let ask = |event: Option<&str>, runs: &[&World], names: &[String]| {
        let profiles: Vec<_> = runs.iter().map(|w| &w.profile).collect();
        let query = RunsQuery { event: event.map(Into::into), ..RunsQuery::default() };
        run_statistics(&profiles, names, &time.symbols, &query)
    };
    let refused = ask(None, &[&time, &both, &faults], &names).unwrap_err().to_string();
    for part in ["the run pf.wh has no event `cpu-clock`", "it has page-faults", "--event"] {
        assert!(refused.contains(part), "{refused}");
    }
    let counted = ask(Some("page-faults"), &[&both, &faults], &names[1..]).unwrap();
    assert_eq!((counted.event.as_str(), counted.unit.as_str()), ("page-faults", "events"));
    let timed = ask(None, &[&time, &both], &names).unwrap();
    assert_eq!((timed.event.as_str(), timed.unit.as_str()), ("cpu-clock", "ms"));
    let unknown = ask(Some("cpu-clok"), &[&time, &both], &names).unwrap_err();
    assert!(matches!(unknown, Error::Event { .. }), "{unknown}");
}

#[test]
fn both_sides_of_a_difference_are_of_one_event() {
    let (time, faults) = (run("cpu-clock"), run("page-faults"));
    let refused = diff(&[&time.profile], &[&faults.profile], &time.symbols, &DiffQuery::default()).unwrap_err();
    assert!(refused.to_string().contains("the run after has no event `cpu-clock`, it has page-faults"), "{refused}");
    let second = EventIx(1);
    let both = two_events();
    let query = DiffQuery { event: Some("page-faults".into()), ..DiffQuery::default() };
    let d = diff(&[&faults.profile], &[&both.profile], &time.symbols, &query).unwrap();
    assert_eq!(both.profile.event(second).name, d.b.events[0].name);
}

#[test]
fn runs_of_unequal_length_are_told_unless_set_against_something() {
    let (short, mut long) = (run("cpu-clock"), run("cpu-clock"));
    long.profile.epochs[0].end_ns += 10_000_000_000;
    let notes = |per: RunsPer, b: &World| {
        let names = ["a.wh".to_owned(), "b.wh".to_owned()];
        let query = RunsQuery { per, ..RunsQuery::default() };
        run_statistics(&[&short.profile, &b.profile], &names, &short.symbols, &query).unwrap().notes.join(" ")
    };
    assert!(notes(RunsPer::Nothing, &long).contains("not of one length, 10.0 to 20.0 s"));
    assert!(!notes(RunsPer::Wall, &long).contains("length") && !notes(RunsPer::Nothing, &short).contains("length"));
}
