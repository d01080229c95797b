//! Sessions on an engine without a process: what is done to the target in which order, and what each verb
//! answers.

use super::desk::Desk;
use super::fake::{Done, Fake};
use super::instrument::Fate;
use super::options::{CallsBackend, CallsEvent, CallsOptions, CallsOutcome, CallsTarget};
use super::run::{asks, with_engine};
use super::wire::{AddedPoint, Ask, Place, Reply, Verb};
use super::{excluding, including};
use crate::{SessionError, StopFlag};
use std::sync::mpsc::channel;
use std::time::Duration;
use whither_probe::{Happening, Options, PointAction};
use whither_store::call_steps::{CallChange, CallFunction, CallStep};
use whither_store::calls::PointState;

fn options(target: CallsTarget, patterns: &[&str], runtime: &std::path::Path) -> CallsOptions {
    CallsOptions {
        target,
        orders: patterns.iter().map(|p| including(p).unwrap()).collect(),
        patterns: patterns.iter().map(|p| (*p).to_owned()).collect(),
        actions: vec![PointAction::Path, PointAction::Wall],
        backend: CallsBackend::Auto,
        engine: Options::default(),
        duration: None,
        interval: None,
        steps: Vec::new(),
        runtime: runtime.join("whither"),
    }
}

fn ended() -> Happening {
    Happening::Ended { pid: 42, status: Some(7) }
}

type Ran = (Result<CallsOutcome, SessionError>, Vec<String>, Vec<CallsEvent>);

/// A whole session over a script.
fn ran(target: CallsTarget, patterns: &[&str], script: Vec<Vec<Happening>>, stop: &StopFlag) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    let (fake, done) = Fake::new(script);
    let mut told = Vec::new();
    let options = options(target, patterns, dir.path());
    let outcome = with_engine(&options, || Ok(fake), asks(), stop, &mut |event| told.push(event));
    let done = done.borrow().clone();
    (outcome, done, told)
}

fn command() -> CallsTarget {
    CallsTarget::Command(vec!["app".into()])
}

#[test]
fn a_command_is_probed_before_it_runs_and_its_status_comes_out() {
    let (outcome, done, told) = ran(command(), &["solve"], vec![vec![], vec![ended()]], &StopFlag::default());
    let outcome = outcome.unwrap();
    assert_eq!(done, ["add solve [Path, Wall]", "keep 1", "resume"]);
    assert_eq!((outcome.target_status, outcome.epochs.len()), (Some(7), 1));
    assert!(outcome.detached.is_none() && outcome.unmatched.is_none());
    assert_eq!(outcome.epochs[0].snapshot.paths[0].totals.calls, 20);
    assert!(matches!(told[0], CallsEvent::Started { pid: 42, points: 1, .. }));
}

#[test]
fn a_stop_leaves_a_process_as_it_was_and_keeps_the_data() {
    let stop = StopFlag::default();
    let dir = tempfile::tempdir().unwrap();
    let (fake, done) = Fake::new(vec![vec![], vec![]]);
    let options = options(CallsTarget::Process(42), &["solve", "tiny"], dir.path());
    let mut refused = Vec::new();
    let ends = asks();
    let asker = ends.0.clone();
    let (answer, reply) = channel();
    asker.send(Ask { verb: Verb::Stop, answer }).unwrap();
    let outcome = with_engine(&options, || Ok(fake), ends, &stop, &mut |event| {
        if let CallsEvent::Refused { names, reason } = event {
            refused.push(format!("{}: {reason}", names.join(" ")));
        }
    });
    let outcome = outcome.unwrap();
    assert_eq!(*done.borrow(), ["add solve [Path, Wall]", "keep 2", "resume", "detach"]);
    assert_eq!(outcome.detached.unwrap().restored, 1);
    assert_eq!(outcome.target_status, None);
    assert!(matches!(reply.recv().unwrap(), Reply::Done { .. }));
    assert_eq!(refused, ["tiny: only 3 bytes long, with no padding behind it"]);
}

#[test]
fn a_process_that_cannot_be_left_keeps_its_data() {
    let stop = StopFlag::default();
    let dir = tempfile::tempdir().unwrap();
    let (mut fake, _) = Fake::new(vec![vec![]]);
    let ends = asks();
    let (answer, _reply) = channel();
    ends.0.send(Ask { verb: Verb::Stop, answer }).unwrap();
    fake.stuck = true;
    let options = options(CallsTarget::Process(42), &["solve"], dir.path());
    let outcome = with_engine(&options, || Ok(fake), ends, &stop, &mut |_| {}).unwrap();
    assert!(outcome.detached.is_none() && !outcome.epochs.is_empty());
    assert!(outcome.stayed.is_some_and(|why| why.contains("42")));
}

#[test]
fn nothing_matched_in_a_process_is_told_with_near_names_and_leaves_it() {
    let (outcome, done, _) = ran(CallsTarget::Process(42), &["solver"], vec![], &StopFlag::default());
    let error = outcome.unwrap_err();
    assert_eq!(error.exit_code(), 1);
    assert_eq!(error.to_string(), "no function of process 42 matches solver; there are solve");
    assert_eq!(done, ["detach"]);
}

#[test]
fn a_process_is_left_when_every_function_is_refused() {
    let (outcome, done, _) = ran(CallsTarget::Process(42), &["tiny"], vec![], &StopFlag::default());
    let error = outcome.unwrap_err();
    assert_eq!(error.exit_code(), 3);
    let text = error.to_string();
    assert!(text.contains("1 refused; tiny: only 3 bytes long") && text.contains("process 42"), "{text}");
    assert_eq!(done, ["detach"]);
}

#[test]
fn a_command_may_match_later_or_never() {
    let (outcome, done, told) = ran(command(), &["solver"], vec![vec![ended()]], &StopFlag::default());
    assert_eq!(done, ["keep 1", "resume"]);
    assert_eq!(outcome.unwrap().unmatched, Some(vec!["solve".to_owned()]));
    let said = told.iter().any(|e| matches!(e, CallsEvent::Note(text) if text.contains("solver yet (it has solve)")));
    assert!(said, "{told:?}");
}

/// No library loaded later has the address of a program that is there: the command is not run for nothing.
#[test]
fn an_address_that_is_no_function_of_the_program_ends_it_at_once() {
    let (outcome, done, told) = ran(command(), &["app+0x10"], vec![vec![ended()]], &StopFlag::default());
    let error = outcome.unwrap_err();
    assert_eq!(error.to_string(), "no function of process 42 matches app+0x10; 0x10 is in no function of app");
    assert_eq!((done, told.len()), (vec!["abandon".to_owned()], 0));
}

#[test]
fn one_of_several_patterns_that_matches_nothing_is_told() {
    let told = |target, rounds| {
        let (_, _, told) = ran(target, &["solve", "wrk"], rounds, &StopFlag::default());
        let notes = told.into_iter().filter_map(|e| if let CallsEvent::Note(text) = e { Some(text) } else { None });
        notes.filter(|text| text.starts_with("wrk: no function")).count()
    };
    assert_eq!(told(command(), vec![vec![ended()]]), 1, "at the end, as libraries may have come");
    assert_eq!(told(CallsTarget::Process(42), vec![vec![ended()]]), 1, "at once");
}

#[test]
fn an_interrupted_command_is_never_run() {
    let stop = StopFlag::default();
    stop.request();
    let (outcome, done, _) = ran(command(), &["solve"], vec![], &stop);
    assert!(matches!(outcome, Err(SessionError::Interrupted)));
    assert_eq!(done.last().unwrap(), "abandon");
    assert!(!done.contains(&"resume".to_owned()));
}

#[test]
fn a_second_ctrl_c_does_not_wait_for_the_command() {
    let stop = StopFlag::default();
    let dir = tempfile::tempdir().unwrap();
    let (mut fake, done) = Fake::new(vec![]);
    fake.fate = Fate::Running;
    let options = options(command(), &["solve"], dir.path());
    let (asked, mut told) = (stop.clone(), String::new());
    let outcome = with_engine(&options, || Ok(fake), asks(), &stop, &mut |event| match event {
        CallsEvent::Started { .. } => drop(asked.request()),
        CallsEvent::Waiting { way_out } => {
            told = way_out;
            asked.request();
        }
        _ => {}
    });
    assert_eq!(outcome.unwrap().target_status, None);
    assert_eq!(done.borrow().last().unwrap(), "detach");
    let once = format!("`kill -INT {}` once more leaves it running", std::process::id());
    assert!(told.contains(&once) && told.contains("Ctrl-C is sent to the command, too"), "{told}");
    assert!(StopFlag::default().way_out().contains("` twice leaves"), "nobody has asked yet");
}

fn desk() -> (Desk, Done) {
    let (fake, done) = Fake::new(vec![]);
    let mut desk = Desk::new(fake, vec![PointAction::Path], CallsBackend::Auto);
    desk.add(&[including("solve").unwrap(), excluding("x").unwrap()]).unwrap();
    (desk, done)
}

fn point(id: u32, name: &str) -> AddedPoint {
    AddedPoint { id, name: name.into() }
}

#[test]
fn what_matches_nothing_is_told_beside_what_is_added() {
    let (mut desk, _) = desk();
    let add = Verb::Add { patterns: vec!["main".into(), "wrk".into()], exclude: vec![] };
    let Reply::Added { added, refused, .. } = desk.obey(&add) else { panic!("not added") };
    assert_eq!((added.len(), refused.len()), (1, 1), "{refused:?}");
    assert!(refused[0].0 == "wrk" && refused[0].1.starts_with("no function"), "{refused:?}");
}

#[test]
fn verbs_change_the_probes() {
    let (mut desk, done) = desk();
    let add = Verb::Add { patterns: vec!["main|solve|tiny".into()], exclude: vec![] };
    let Reply::Added { added, already, refused, pause_ns, held_ns, .. } = desk.obey(&add) else { panic!("not added") };
    assert_eq!((added, already, pause_ns, held_ns), (vec![point(2, "main")], vec![1], 300_000, 600_000));
    assert_eq!(refused.len(), 1);
    let shown = desk.snapshot();
    let tiny: Vec<_> = shown.points.iter().filter(|p| p.state == PointState::Refused).collect();
    assert_eq!((tiny.len(), tiny[0].names[0].as_str(), tiny[0].module), (1, "tiny", 0));
    let off = Verb::Switch { patterns: vec!["so.*".into()], on: false };
    assert_eq!(desk.obey(&off), Reply::Switched { points: vec![point(1, "solve")] });
    let Reply::Points { points } = desk.obey(&Verb::List) else { panic!("no list") };
    let states = [PointState::Off, PointState::On, PointState::Refused];
    assert_eq!(points.iter().map(|p| p.state).collect::<Vec<_>>(), states);
    let remove = Verb::Remove { patterns: vec!["#1".into(), "app+0x100".into()] };
    let Reply::Removed { removed, .. } = desk.obey(&remove) else { panic!("not removed") };
    assert_eq!(removed, [point(1, "solve"), point(2, "main")]);
    assert_eq!(done.borrow().last().unwrap(), "remove [PointId(1), PointId(2)]");
    assert_eq!(desk.obey(&remove), Reply::Nothing { near: vec![] }, "they are gone");
}

#[test]
fn slips_of_an_asker_are_sentences() {
    let (mut desk, _) = desk();
    let add = |p: &str| Verb::Add { patterns: vec![p.into()], exclude: vec![] };
    assert!(matches!(desk.obey(&add("a(")), Reply::No { why } if why.contains("regular expression")));
    assert_eq!(desk.obey(&add("maim")), Reply::Nothing { near: vec!["main".into()] });
    let remove = Verb::Remove { patterns: vec!["nothing".into()] };
    assert_eq!(desk.obey(&remove), Reply::Nothing { near: vec!["solve".into()] });
    assert!(matches!(desk.obey(&Verb::Remove { patterns: vec!["a.c:3".into()] }), Reply::No { .. }));
}

#[test]
fn callees_are_told_then_some_are_chosen() {
    let (mut desk, _) = desk();
    let Reply::Found { callees, .. } = desk.obey(&Verb::LookCallees { point: 2 }) else { panic!("none") };
    let shown: Vec<_> = callees.iter().map(|c| (c.name.as_str(), c.refused.is_some())).collect();
    assert_eq!(shown, [("exchange", false), ("tiny", true)]);
    let chosen = vec![Place { module: "/bin/app".into(), offset: 0x300 }];
    let Reply::Added { added, refused, .. } = desk.obey(&Verb::AddCallees { point: 2, chosen }) else { panic!("no") };
    assert_eq!((added, refused.len()), (vec![point(2, "exchange")], 0));
    let Reply::Added { added, .. } = desk.obey(&Verb::Callers { point: 1 }) else { panic!("no") };
    assert_eq!(added, [point(3, "main")]);
}

#[test]
fn patches_only_means_no_uprobes() {
    let (fake, _) = Fake::new(vec![]);
    let mut desk = Desk::new(fake, vec![PointAction::Path], CallsBackend::Patch);
    let batch = desk.add(&[including("exchange|solve").unwrap()]).unwrap();
    assert_eq!(batch.added, [point(1, "solve")]);
    assert!(batch.refused[0].1.contains("--backend patch"), "{:?}", batch.refused);
}

/// Numbers of what is added later are of the time since.
#[test]
fn when_a_probe_came_is_kept_until_the_next_epoch() {
    let (mut desk, _) = desk();
    assert!(desk.snapshot().late.is_empty(), "there from the begin");
    desk.engine.poll(Duration::ZERO).unwrap();
    let began = desk.snapshot().whole.wall_ns;
    desk.obey(&Verb::Add { patterns: vec!["main".into()], exclude: vec![] });
    desk.engine.poll(Duration::ZERO).unwrap();
    desk.obey(&Verb::Callees { point: 1 });
    let late: Vec<(u32, u64)> = desk.snapshot().late.iter().map(|late| (late.id, late.after_ns)).collect();
    assert!(began > 0 && late[0] == (2, began), "{late:?}");
    assert!(late[1..].iter().all(|(id, after)| *id > 2 && *after > began) && late.len() > 1, "{late:?}");
    assert!(desk.snapshot().late.iter().all(|late| late.spent.is_some()), "what shares are parts of since");
    let gaps = |desk: &mut Desk| -> Vec<(u32, bool)> {
        desk.snapshot().gaps.iter().map(|gap| (gap.id, gap.until.is_some())).collect()
    };
    assert_eq!(gaps(&mut desk), []);
    desk.obey(&Verb::Switch { patterns: vec!["#2".into()], on: false });
    desk.obey(&Verb::Switch { patterns: vec!["#2".into()], on: false });
    assert_eq!(gaps(&mut desk), [(2, false)]);
    desk.obey(&Verb::Switch { patterns: vec!["#2".into()], on: true });
    desk.obey(&Verb::Remove { patterns: vec!["#1".into()] });
    assert_eq!(gaps(&mut desk), [(2, true), (1, false)], "switched off for a time, and taken back");
    desk.obey(&Verb::Reset { label: String::new() });
    assert!(desk.snapshot().late.is_empty(), "all are there from its begin");
    assert_eq!(gaps(&mut desk), [(1, false)], "what is away stays away");
}

#[test]
fn a_reset_keeps_the_old_epoch() {
    let (mut desk, _) = desk();
    desk.obey(&Verb::Reset { label: "before".into() });
    let last = desk.engine.snapshot();
    let (_, epochs) = desk.finish(last);
    assert_eq!(epochs.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["before", "2"]);
}

/// A session takes the steps of another at their times, goes on where one finds nothing, and keeps them anew.
#[test]
fn a_session_replays_steps_and_tells_those_not_reached() {
    let step = |after_ns, change| CallStep { after_ns, change };
    let function = |name: &str| CallFunction { name: name.into(), file: None };
    let hours = 7_200_000_000_000;
    let dir = tempfile::tempdir().unwrap();
    let (fake, done) = Fake::new(vec![vec![], vec![], vec![ended()]]);
    let steps = vec![
        step(1, CallChange::Remove { functions: vec![function("gone")] }),
        step(2, CallChange::Callers { function: function("solve") }),
        step(3, CallChange::Reset { label: "warm".into() }),
        step(hours, CallChange::Reset { label: "late".into() }),
    ];
    let options = CallsOptions { steps: steps.clone(), ..options(command(), &["solve"], dir.path()) };
    let (mut told, mut taken) = (Vec::new(), Vec::new());
    let outcome = with_engine(&options, || Ok(fake), asks(), &StopFlag::default(), &mut |event| match event {
        CallsEvent::Note(text) => told.push(text),
        CallsEvent::Replayed { step, reply, .. } => taken.push((step, reply)),
        _ => {}
    });
    let outcome = outcome.unwrap();
    assert_eq!(told[0], "step +0.00 s  remove gone: the program has no gone");
    let late = &told[1];
    assert!(late.starts_with("1 step was not reached, as the program ended after"), "{told:?}");
    assert!(late.ends_with("+7200.00 s  reset --label 'late'"), "{told:?}");
    assert!(matches!(&taken[..], [(_, Reply::Added { .. }), (_, Reply::Done { .. })]), "{taken:?}");
    assert_eq!(*done.borrow(), ["add solve [Path, Wall]", "keep 1", "resume", "add main [Path, Wall]"]);
    let changes: Vec<&CallChange> = outcome.steps.iter().map(|s| &s.change).collect();
    assert_eq!(changes, [&steps[1].change, &steps[2].change]);
    assert_eq!(outcome.epochs.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["warm", "2"]);
}
