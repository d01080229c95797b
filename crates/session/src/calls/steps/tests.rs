//! Steps on engines without a process: what is kept of verbs, and what it comes to in another program.

use super::super::fake::{Done, Fake};
use super::super::options::CallsBackend;
use super::*;
use whither_probe::PointAction;

fn desk_of(fake: Box<Fake>, pattern: &str) -> Desk {
    let mut desk = Desk::new(fake, vec![PointAction::Path], CallsBackend::Auto);
    desk.add(&[pattern::including(pattern).unwrap()]).unwrap();
    desk
}

/// A program with `main`, `solve`, `exchange`, of which `solve` is probed.
fn desk() -> Desk {
    desk_of(Fake::new(vec![]).0, "solve")
}

/// The same after a fix: under another name, with other functions.
fn fixed(names: &[&'static str], pattern: &str) -> (Desk, Done) {
    let (mut fake, done) = Fake::new(vec![]);
    (fake.exe, fake.names) = ("/bin/app-fixed", names.to_vec());
    (desk_of(fake, pattern), done)
}

fn add(pattern: &str) -> Verb {
    Verb::Add { patterns: vec![pattern.into()], exclude: vec!["x".into()] }
}

fn of(patterns: &[&str]) -> Vec<String> {
    patterns.iter().map(|p| (*p).to_owned()).collect()
}

fn kept(desk: &Desk) -> Vec<String> {
    desk.steps.iter().map(|step| step.change.to_string()).collect()
}

/// Names of probes and whether they count.
fn in_place_now(desk: &mut Desk) -> Vec<String> {
    let points = desk.engine.snapshot().points;
    points.iter().filter(|p| in_place(p)).map(|p| format!("{} {:?}", p.names[0], p.state)).collect()
}

/// Everything that a user does to a session, by the numbers of its probes.
fn narrow(desk: &mut Desk) {
    desk.obey(&Verb::Callers { point: 1 });
    desk.obey(&Verb::Reset { label: String::new() });
    // Chosen as a drill chooses: by place.
    let exchange = desk.engine.resolve(&[pattern::including("exchange").unwrap()]).unwrap();
    let chosen = vec![desk.place(&exchange[0])];
    desk.obey(&Verb::AddCallees { point: 1, chosen });
    desk.obey(&Verb::Switch { patterns: of(&["#3"]), on: false });
    desk.obey(&Verb::Remove { patterns: of(&["#2", "nothing"]) });
    desk.obey(&Verb::Reset { label: "found".into() });
    desk.obey(&add("#2"));
}

const NARROWED: [&str; 7] = [
    "expand --callers solve",
    "reset --label '1'",
    "expand solve into exchange",
    "disable exchange",
    "remove main",
    "reset --label 'found'",
    "add 'main' -x 'x'",
];

#[test]
fn what_changes_something_is_kept_in_words_without_numbers() {
    let mut desk = desk();
    narrow(&mut desk);
    assert_eq!(kept(&desk), NARROWED);
    assert!(desk.steps.is_sorted_by_key(|step| step.after_ns) && desk.steps[0].after_ns > 0);
}

#[test]
fn what_changes_nothing_is_no_step() {
    let mut desk = desk();
    let nothing = [
        add("maim"),
        add("a("),
        add("solve"),
        Verb::Remove { patterns: of(&["#7"]) },
        Verb::Which { patterns: of(&["solve"]) },
        Verb::LookCallees { point: 1 },
        Verb::List,
        Verb::Show,
        Verb::Stop,
    ];
    nothing.iter().for_each(|verb| drop(desk.obey(verb)));
    assert_eq!(kept(&desk), [""; 0]);
    desk.obey(&Verb::Callees { point: 1 });
    assert_eq!(kept(&desk), ["expand solve"], "all that it calls, whatever that is in another program");
}

#[test]
fn steps_come_to_the_same_probes_in_a_program_of_another_name_and_are_kept_anew() {
    let mut first = desk();
    narrow(&mut first);
    // One more function in front: all addresses and numbers are others.
    let (mut second, _) = fixed(&["fast", "main", "solve", "exchange", "tiny"], "solve");
    for step in &first.steps.clone() {
        let played = second.replay(&step.change);
        assert!(played.notes.is_empty() && !played.answers.is_empty(), "{step}: {played:?}");
    }
    assert_eq!(in_place_now(&mut first), ["solve On", "exchange Off", "main On"]);
    assert_eq!(in_place_now(&mut second), ["solve On", "exchange Off", "main On"]);
    assert_eq!(kept(&second), NARROWED);
}

#[test]
fn what_is_not_there_any_more_is_one_sentence_with_near_names() {
    let (mut desk, done) = fixed(&["main", "solver", "exchange"], "solver");
    let solve = || CallFunction { name: "solve".into(), file: None };
    let before = done.borrow().len();
    for change in [
        CallChange::Expand { function: solve(), only: None },
        CallChange::Expand { function: solve(), only: Some(vec![solve()]) },
        CallChange::Callers { function: solve() },
        CallChange::Remove { functions: vec![solve()] },
        CallChange::Switch { functions: vec![solve()], on: false },
    ] {
        let played = desk.replay(&change);
        assert!(played.answers.is_empty(), "{change}: {played:?}");
        assert_eq!(played.notes, ["the program has no solve (it has solver)"], "{change}");
    }
    let unprobed = CallFunction { name: "main".into(), file: None };
    let played = desk.replay(&CallChange::Remove { functions: vec![solve(), unprobed] });
    assert_eq!(played.notes, ["the program has no solve (it has solver); no probe is on main (probed are solver)"]);
    let played = desk.replay(&CallChange::Add { patterns: of(&["solve"]), exclude: vec![] });
    assert!(matches!(&played.answers[..], [(_, Reply::Nothing { near })] if near == &["solver"]), "{played:?}");
    assert!(!desk.replay(&CallChange::Unknown).notes.is_empty());
    assert_eq!((done.borrow().len(), kept(&desk)), (before, vec![]), "the program is left alone");
}

#[test]
fn what_is_left_of_a_step_is_done() {
    let (mut desk, done) = fixed(&["main", "solve", "exchange"], "main|solve");
    let function = |name: &str| CallFunction { name: name.into(), file: None };
    let played = desk.replay(&CallChange::Remove { functions: vec![function("main"), function("gone")] });
    assert!(matches!(&played.answers[..], [(_, Reply::Removed { removed, .. })] if removed[0].name == "main"));
    assert_eq!(played.notes, ["the program has no gone"]);
    let only = vec![function("exchange"), function("gone")];
    let played = desk.replay(&CallChange::Expand { function: function("solve"), only: Some(only) });
    assert_eq!((played.answers.len(), &played.notes[..]), (1, &["solve does not call gone here".to_owned()][..]));
    assert!(done.borrow().last().unwrap().starts_with("add exchange"));
}

/// A library's function is not the program's of the same name.
#[test]
fn files_are_told_apart() {
    let (mut desk, _) = fixed(&["main", "solve"], "solve");
    let of_library = CallFunction { name: "solve".into(), file: Some("libsolve.so.1".into()) };
    let played = desk.replay(&CallChange::Remove { functions: vec![of_library] });
    assert!(played.answers.is_empty() && played.notes[0].contains("libsolve.so.1!solve"), "{played:?}");
}

#[test]
fn places_hold_in_one_build_and_that_is_said() {
    assert_eq!(of_one_build(["solve", "a.*!b"]), None);
    let said = of_one_build(["solve", "app+0x10", "a.c:12"]).unwrap();
    assert_eq!(
        said,
        "`app+0x10`, `a.c:12` are places in one build of the file: in another they mean whatever stands there"
    );
    let (mut desk, _) = fixed(&["main"], "main");
    let played = desk.replay(&CallChange::Add { patterns: of(&["app+0x10"]), exclude: vec![] });
    assert!(played.notes[0].starts_with("`app+0x10` is a place"), "{played:?}");
}

#[test]
fn a_number_becomes_a_pattern_that_means_one_name() {
    let function = |name: &str, file: Option<&str>| CallFunction { name: name.into(), file: file.map(Into::into) };
    let named = |name: &str, file| {
        let Ok(Select::Name { function, module, .. }) = parse(&pattern_of(&function_in(name, file))) else { panic!() };
        let matches = |pattern: &str, text: &str| whither_probe::select::Pattern::new(pattern).unwrap().matches(text);
        matches(&function, name) && module.is_none_or(|m| matches(&m, file.unwrap()))
    };
    fn function_in(name: &str, file: Option<&str>) -> CallFunction {
        CallFunction { name: name.into(), file: file.map(Into::into) }
    }
    for name in ["solve", "v<int>::operator!=", "operator+", "a::{lambda()#1}::operator()", "f.part.0"] {
        assert!(named(name, None) && named(name, Some("libc++.so.1")), "{name}");
    }
    assert_eq!(pattern_of(&function("app+0x10", Some("app"))), "app+0x10");
    assert_eq!(pattern_of(&function("malloc@lib(a|b).so", Some("libc.so.6"))), r"libc\.so\.6!malloc@lib(a|b).so");
}

#[test]
fn steps_come_at_their_times_and_those_left_are_told() {
    let step = |ms: u64| CallStep { after_ns: ms * 1_000_000, change: CallChange::Reset { label: ms.to_string() } };
    let mut replay = Replay::new(&[step(300), step(100), step(9000)]);
    let at = Duration::from_millis;
    assert_eq!((replay.due(at(99)), replay.wait(at(99))), (None, Some(at(1))));
    assert_eq!(
        (replay.due(at(400)), replay.due(at(400)), replay.due(at(400))),
        (Some(step(100)), Some(step(300)), None)
    );
    assert_eq!(
        replay.left("the program ended after 0.50 s").unwrap(),
        "1 step was not reached, as the program ended after 0.50 s: +9.00 s  reset --label '9000'"
    );
    assert!(replay.due(at(9000)).is_some() && replay.left("").is_none() && replay.wait(at(0)).is_none());
}
