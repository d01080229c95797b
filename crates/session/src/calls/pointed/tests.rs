//! Stacks made up, and what follows from them.

use super::super::fake::Fake;
use super::super::options::CallsBackend;
use super::super::pattern::including;
use super::super::wire::Reply;
use super::*;
use std::sync::mpsc::channel;
use whither_probe::{CostClass, PointAction};
use whither_store::calls::PatchKind;

/// Functions of 0x100 bytes from 0x100 on: f1, f2, ...
fn functions(addresses: &[u64]) -> Vec<Option<Candidate>> {
    let function = |&at: &u64| {
        let start = at & !0xff;
        (start > 0).then(|| Candidate {
            address: start,
            module: 0,
            offset: start,
            size: 0x100,
            names: vec![format!("f{}", start >> 8)],
            patch: Ok(PatchKind::Jump),
            cost: CostClass::Nanoseconds,
            entry_only: None,
            callers: Vec::new(),
        })
    };
    addresses.iter().map(function).collect()
}

fn of(calls: &PointedCalls, walks: &[&[u64]]) -> (Vec<String>, Vec<String>) {
    let stacks = Stacks { walks: walks.iter().map(|w| w.to_vec()).collect(), ..Stacks::default() };
    let seen = attribute(calls, &stacks, &mut functions);
    (seen.callees.iter().map(name_of).collect(), seen.told(calls, &stacks))
}

fn calls(returns: &[u64], jumps: usize) -> PointedCalls {
    PointedCalls { name: "f1".into(), address: 0x100, returns: returns.to_vec(), jumps, ..PointedCalls::default() }
}

#[test]
fn who_stands_inside_of_a_return_address_was_called_there() {
    let request = calls(&[0x110, 0x120], 0);
    let walks: [&[u64]; 5] = [
        // f2 itself three times, f3 by what it calls; f5 was called at another place of f1.
        &[0x230, 0x110, 0x900],
        &[0x234, 0x110, 0x900],
        &[0x700, 0x238, 0x110, 0x900],
        &[0x710, 0x340, 0x120, 0x900],
        &[0x520, 0x130, 0x900],
    ];
    let (callees, told) = of(&request, &walks);
    assert_eq!(callees, ["f2", "f3"]);
    assert_eq!(told, ["2 indirect calls in f1: seen called through them, in 1 s or before: f2, f3"]);
    // A return address may stand behind the last byte of its function.
    assert_eq!(of(&request, &[&[0x710, 0x400, 0x110]]).0, ["f3"]);
    // It was in the function itself, or calls itself.
    assert_eq!(of(&request, &[&[0x118, 0x900]]).0, [""; 0]);
    assert_eq!(of(&request, &[&[0x118, 0x110, 0x900]]).0, [""; 0]);
}

#[test]
fn who_is_not_seen_is_said_to_be_missing() {
    assert_eq!(
        of(&calls(&[0x110, 0x120], 0), &[&[0x520, 0x130]]).1,
        ["2 indirect calls in f1: nobody was seen called through them in 1 s"]
    );
    assert_eq!(
        of(&calls(&[0x110, 0x120, 0x130], 0), &[&[0x520, 0x130]]).1,
        ["3 indirect calls in f1: seen called through 1 of them, in 1 s or before: f5"]
    );
    assert_eq!(of(&calls(&[0x110], 0), &[]).1, ["1 indirect call in f1: nobody was seen called through it in 1 s"]);
    let stacks = Stacks { refused: Some("not permitted".into()), cut: 1, walks: vec![vec![1]], ..Stacks::default() };
    let told = attribute(&calls(&[0x110], 0), &stacks, &mut functions).told(&calls(&[0x110], 0), &stacks);
    assert!(
        told[1].ends_with("only those that wait: not permitted") && told[2].starts_with("1 of 1 stacks looked at"),
        "{told:?}"
    );
}

#[test]
fn paths_counted_before_tell_too() {
    let known = vec![Sighting { site: Some(0x120), callee: 0x300 }];
    let request = PointedCalls { known, ..calls(&[0x110, 0x120], 0) };
    let (callees, told) = of(&request, &[&[0x230, 0x110, 0x900]]);
    assert_eq!((callees, told.len()), (vec!["f2".into(), "f3".into()], 1));
}

#[test]
fn who_returns_to_our_code_and_is_not_probed_was_jumped_to() {
    let exits = Some(0xe00..0xf00);
    let others = [0x300, 0x400].into_iter().collect();
    let tail = PointedCalls { exits, others, ..calls(&[], 1) };
    let walks: [&[u64]; 3] = [&[0x230, 0xe40], &[0x340, 0xe40], &[0x700, 0x440, 0xe40]];
    let (callees, told) = of(&tail, &walks);
    assert_eq!(callees, ["f2"], "f3 and f4 return there for another reason");
    assert_eq!(told, ["1 indirect tail jump in f1: seen where it leads, in 1 s or before: f2"]);
    assert_eq!(of(&tail, &[]).1, ["1 indirect tail jump in f1: nobody was seen where it leads in 1 s"]);
    let one_of_several = PointedCalls { exits: None, ..tail };
    let (callees, told) = of(&one_of_several, &walks);
    assert_eq!(callees, [""; 0]);
    assert_eq!(told, ["1 indirect tail jump in f1: nothing on a stack tells where it leads"]);
}

#[test]
fn callees_are_answered_when_stacks_were_looked_at_and_all_else_at_once() {
    let (mut fake, done) = Fake::new(vec![]);
    fake.pointed = true;
    let mut desk = Desk::new(fake, vec![PointAction::Path], CallsBackend::Auto);
    desk.add(&[including("exchange").unwrap()]).unwrap();
    let mut pointed = Pointed::default();
    let (answer, reply) = channel();
    let ask = |verb| Ask { verb, answer: answer.clone() };
    pointed.take(&mut desk, ask(Verb::LookCallees { point: 1 }));
    pointed.go_on(&mut desk);
    pointed.take(&mut desk, ask(Verb::List));
    assert!(matches!(reply.recv().unwrap(), Reply::Points { .. }), "before the stacks are there");
    let wait = |pointed: &mut Pointed, desk: &mut Desk| loop {
        pointed.go_on(desk);
        if let Ok(reply) = reply.recv_timeout(Duration::from_millis(10)) {
            break reply;
        }
    };
    let Reply::Found { callees, notes } = wait(&mut pointed, &mut desk) else { panic!("none") };
    let names: Vec<&str> = callees.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["tiny", "main"], "what the code tells, and what was seen");
    assert_eq!(notes, ["1 indirect call in exchange: seen called through it, in 1 s or before: main"]);
    // One of them is chosen, as a drill does, and no second look is taken for the next question.
    let chosen = callees.into_iter().filter(|c| c.name == "main").map(|c| c.place).collect();
    let Reply::Added { added, .. } = desk.obey(&Verb::AddCallees { point: 1, chosen }) else { panic!("not added") };
    assert_eq!(added[0].name, "main");
    pointed.take(&mut desk, ask(Verb::Callees { point: 1 }));
    assert!(matches!(wait(&mut pointed, &mut desk), Reply::Added { notes, .. } if notes.len() == 1));
    assert_eq!(done.borrow().iter().filter(|what| *what == "look").count(), 1);
}

/// What was seen of a function stays seen: steps taken again name it, and nobody looks at stacks.
#[test]
fn steps_taken_again_probe_what_was_seen_then() {
    let desk_of = || {
        let (mut fake, done) = Fake::new(vec![]);
        fake.pointed = true;
        let mut desk = Desk::new(fake, vec![PointAction::Path], CallsBackend::Auto);
        desk.add(&[including("exchange").unwrap()]).unwrap();
        (desk, done)
    };
    let (mut first, _) = desk_of();
    first.saw(1, [0x55_0100]);
    first.obey(&Verb::Callees { point: 1 });
    let step = first.steps.pop().unwrap();
    let (mut again, done) = desk_of();
    let played = again.replay(&step.change);
    let added = |reply: &Reply| matches!(reply, Reply::Added { added, .. } if added.iter().any(|p| p.name == "main"));
    assert!(played.answers.iter().any(|(_, reply)| added(reply)), "{:?}", played.answers);
    assert!(!done.borrow().iter().any(|what| what == "look"));
}
