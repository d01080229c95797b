//! The session's own logic with a kernel side that is made up: real processes, invented facts.

use super::executor::CausalExecutor;
use super::options::{CausalEnd, CausalEvent, CausalOptions, CausalWhom, ExecutorChoice, Runs, UnitChoice};
use super::policy::{CausalPolicy, Order, Step};
use super::run::Session;
use super::scope::Scope;
use super::words::point;
use crate::{SessionError, StopFlag};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use whither_sample::SampleError;
use whither_sample::causal::{
    Armed, CausalConfig, CausalModule, CausalSample, Change, Facts, Hook, Loads, SampleWhat, WaitClass,
};
use whither_store::SymbolOptions;
use whither_store::causal::{DropReason, Executor, PointVisits, Selection, Unit, Window};

/// What the session did with the fake.
#[derive(Debug, Default)]
struct Log {
    watched: Vec<u32>,
    maps: usize,
    armed: Vec<Armed>,
    begun: Vec<u8>,
    settled: Vec<bool>,
    beats: usize,
    hooks: Vec<Hook>,
    detached: bool,
    signal: Option<u32>,
    waits_when_delayed: bool,
    nappers: Vec<(u32, u64)>,
}

/// A kernel side that tells the same facts again and again.
struct Fake {
    log: Rc<RefCell<Log>>,
    facts: Facts,
    samples: Vec<CausalSample>,
    began: Instant,
    /// What it says when it is to send signals.
    refusal: Option<&'static str>,
}

impl CausalExecutor for Fake {
    fn watch(&mut self, pid: u32) -> Result<(), SessionError> {
        self.log.borrow_mut().watched.push(pid);
        Ok(())
    }
    fn processes(&mut self) -> Vec<u32> {
        self.log.borrow().watched.last().copied().into_iter().collect()
    }
    fn changes(&mut self) -> Vec<Change> {
        Vec::new()
    }
    fn map(&mut self, _pid: u32, modules: &[CausalModule]) -> Result<(), SessionError> {
        assert!(modules.windows(2).all(|m| m[0].end <= m[1].start), "modules overlap: {modules:?}");
        self.log.borrow_mut().maps += 1;
        Ok(())
    }
    fn arm(&mut self, target: &Armed) -> Result<(), SessionError> {
        self.log.borrow_mut().armed.push(target.clone());
        Ok(())
    }
    fn rearm(&mut self, _pid: u32, _target: &Armed) -> Result<(), SessionError> {
        Ok(())
    }
    fn begin(&mut self, percent: u8) -> Result<(), SessionError> {
        self.log.borrow_mut().begun.push(percent);
        self.began = Instant::now();
        Ok(())
    }
    fn settled(&mut self, paid: bool) -> Result<(), SessionError> {
        self.log.borrow_mut().settled.push(paid);
        self.began = Instant::now();
        Ok(())
    }
    fn beat(&mut self) {
        self.log.borrow_mut().beats += 1;
    }
    fn end(&mut self) -> Result<Facts, SessionError> {
        let wall_ns = self.began.elapsed().as_nanos() as u64;
        let log = self.log.borrow();
        let waits = log.waits_when_delayed && log.begun.last().is_some_and(|percent| *percent > 0);
        let own_wait_ns = if waits { wall_ns } else { self.facts.own_wait_ns };
        Ok(Facts { wall_ns, own_wait_ns, ..self.facts.clone() })
    }
    fn peek(&mut self, _point: u32) -> u64 {
        self.facts.visits.first().map_or(0, |v| v.visits)
    }
    fn samples(&mut self, take: &mut dyn FnMut(&CausalSample)) {
        self.samples.drain(..).for_each(|s| take(&s));
    }
    fn point(&mut self, hook: &Hook) -> Result<u32, SessionError> {
        let mut log = self.log.borrow_mut();
        log.hooks.push(hook.clone());
        Ok(log.hooks.len() as u32 - 1)
    }
    fn also(&mut self, _point: u32, hook: &Hook) -> Result<(), SessionError> {
        self.log.borrow_mut().hooks.push(hook.clone());
        Ok(())
    }
    fn loads(&mut self) -> Loads {
        Loads::default()
    }
    fn detach(&mut self) {
        self.log.borrow_mut().detached = true;
    }
    fn naps_by(&mut self, signal: u32) -> Result<(), SessionError> {
        if let Some(why) = self.refusal {
            return Err(SampleError::Bpf { what: "sending signals for sleeping delays", why: why.into() }.into());
        }
        self.log.borrow_mut().signal = Some(signal);
        Ok(())
    }
    fn napper(&mut self, pid: u32, handler: u64) -> Result<(), SessionError> {
        self.log.borrow_mut().nappers.push((pid, handler));
        Ok(())
    }
    fn napper_of(&self, pid: u32) -> u64 {
        self.log.borrow().nappers.iter().rfind(|n| n.0 == pid).map_or(0, |n| n.1)
    }
}

/// Orders windows on the first target, of 30 % and none by turns once `by_turns` is set.
#[derive(Default)]
struct Always {
    declared: Vec<(u32, Unit, Option<u32>)>,
    sampled: Vec<Option<u32>>,
    finished: Vec<Window>,
    most: usize,
    begun_anew: u32,
    by_turns: bool,
}

impl CausalPolicy for Always {
    fn declare(&mut self, target: u32, unit: Unit, parent: Option<u32>) {
        self.declared.push((target, unit, parent));
    }
    fn sampled(&mut self, _at_ns: u64, target: Option<u32>, _weight: u32) {
        self.sampled.push(target);
    }
    fn next(&mut self, _at_ns: u64, _rates: &[f64]) -> Step {
        if self.finished.len() >= self.most {
            return Step::Narrow;
        }
        Step::Window(Order {
            target: 0,
            percent: if self.by_turns && self.finished.len().is_multiple_of(2) { 0 } else { 30 },
            settle_ns: 10_000_000,
            min_ns: 20_000_000,
            min_visits: 5,
            max_ns: 60_000_000,
            selection: Selection::Fixed,
            probability: 1.0,
            stratum: 3,
        })
    }
    fn finished(&mut self, window: &Window) {
        self.finished.push(window.clone());
    }
    fn anew(&mut self) {
        self.begun_anew += 1;
    }
}

fn options(words: &[&str]) -> CausalOptions {
    CausalOptions {
        whom: CausalWhom::Command(words.iter().map(|w| (*w).to_owned()).collect()),
        executable: None,
        points: vec![point("syscall:write").expect("a point")],
        pairs: Vec::new(),
        marks: false,
        unit: UnitChoice::Auto,
        targets: Vec::new(),
        scope: Scope::default(),
        waits: vec![WaitClass::Sleep],
        kernel_time: true,
        follow: true,
        duration: None,
        runs: Runs::Times(1),
        end_to_end: false,
        period: Duration::from_millis(1),
        cap: Duration::from_micros(250),
        seed: 1,
        load: None,
        back_end: super::options::CausalBackEnd::Auto,
        executor: ExecutorChoice::Spin,
        symbols: SymbolOptions::default(),
    }
}

fn good() -> Facts {
    let visits = PointVisits { visits: 8, last_ns: 9, last_virtual_ns: 9, ..PointVisits::default() };
    Facts { samples: 100, threads: 1, drained: true, visits: vec![visits], ..Facts::default() }
}

struct Ran {
    outcome: super::CausalOutcome,
    log: Rc<RefCell<Log>>,
    policy: Always,
    events: Vec<CausalEvent>,
}

fn ran(options: &CausalOptions, facts: Facts, samples: Vec<CausalSample>, most: usize) -> Ran {
    let log = Rc::new(RefCell::new(Log::default()));
    let fake = Fake { log: Rc::clone(&log), facts, samples, began: Instant::now(), refusal: None };
    with(options, fake, most)
}

fn with(options: &CausalOptions, fake: Fake, most: usize) -> Ran {
    let log = Rc::clone(&fake.log);
    let by_turns = fake.log.borrow().waits_when_delayed;
    let mut policy = Always { most, by_turns, ..Always::default() };
    let mut events = Vec::new();
    let session = Session::new(options, Box::new(fake), CausalConfig::default());
    let outcome = session.run(&mut policy, &StopFlag::default(), &mut |e| events.push(e)).expect("a session");
    Ran { outcome, log, policy, events }
}

#[test]
fn windows_are_made_until_the_target_ends_and_the_last_one_is_dropped() {
    let ran = ran(&options(&["sleep", "1.5"]), good(), Vec::new(), usize::MAX);
    let windows = &ran.outcome.run.windows;
    assert!(windows.len() >= 3, "{} windows", windows.len());
    let (last, kept) = windows.split_last().expect("some windows");
    assert_eq!(last.dropped, Some(DropReason::Ended));
    assert!(kept.iter().all(|w| w.dropped.is_none() && w.stratum == 3 && w.percent == 30));
    assert_eq!((ran.outcome.target_status, ran.outcome.end), (Some(0), CausalEnd::Target));
    assert_eq!(ran.outcome.nothing, None);
    assert!(ran.log.borrow().maps >= 1 && ran.log.borrow().beats >= windows.len());
    assert!(matches!(ran.log.borrow().hooks.as_slice(), [Hook::Syscall(1)]));
    assert_eq!(ran.policy.finished.len(), windows.len());
    assert!(matches!(ran.events.first(), Some(CausalEvent::Started { .. })));
    assert!(ran.outcome.visits[0] >= 8 && ran.outcome.observed_ns > 0);
}

#[test]
fn the_status_of_the_command_is_kept_and_an_empty_answer_has_a_reason() {
    let ran = ran(&options(&["sh", "-c", "exit 7"]), Facts { drained: true, ..Facts::default() }, Vec::new(), 5);
    assert_eq!(ran.outcome.target_status, Some(7));
    let why = ran.outcome.nothing.expect("a reason");
    assert!(why.contains("-n 30"), "{why}");
}

#[test]
fn a_command_that_reaches_no_point_is_not_repeated_by_itself() {
    let options = CausalOptions { runs: Runs::Auto, ..options(&["sleep", "0.2"]) };
    let sample = CausalSample {
        t_ns: 1,
        pid: std::process::id(),
        tid: 1,
        what: SampleWhat::Run,
        site: 8,
        frames: vec![8],
        kernel: false,
        weight: 4,
    };
    let facts = Facts { samples: 100, threads: 1, drained: true, ..Facts::default() };
    let ran = ran(&options, facts, vec![sample; 60], 5);
    assert_eq!(ran.outcome.run.meta.runs, 1);
    let why = ran.outcome.nothing.expect("a reason");
    assert!(why.contains("syscall:write was never reached"), "{why}");
}

#[test]
fn windows_spoilt_by_others_are_dropped_and_said() {
    let spoilt = Facts { foreign_wait_ns: 1_000_000_000, ..good() };
    let ran = ran(&options(&["sleep", "1"]), spoilt, Vec::new(), usize::MAX);
    let kept = ran.outcome.run.windows.iter().filter(|w| w.dropped.is_none()).count();
    assert_eq!(kept, 0);
    assert!(ran.outcome.run.windows.iter().any(|w| w.dropped == Some(DropReason::ForeignLoad)));
    assert!(ran.outcome.run.notes.iter().any(|n| n.contains("others used the CPUs")), "{:?}", ran.outcome.run.notes);
    assert!(ran.outcome.nothing.is_some_and(|n| n.contains("others used the CPUs")));
}

#[test]
fn every_reason_to_drop_is_told_apart() {
    let cases = [
        (Facts { stopped: true, ..good() }, DropReason::Stopped),
        (Facts { lost: 50, ..good() }, DropReason::Lost),
        (Facts { drained: false, ..good() }, DropReason::NotDrained),
        (Facts { steal_ns: u64::MAX / 4, ..good() }, DropReason::Steal),
        (Facts { visits: Vec::new(), ..good() }, DropReason::NoVisits),
        (Facts { unknown: 1_000, ..good() }, DropReason::Started),
        // Others have the other core, and the program's threads wait behind one another for this one.
        (Facts { own_wait_ns: u64::MAX / 4, others_ns: u64::MAX / 4, ..good() }, DropReason::ForeignLoad),
    ];
    for (facts, reason) in cases {
        let ran = ran(&options(&["sleep", "1"]), facts, Vec::new(), 1);
        assert_eq!(ran.policy.finished[0].dropped, Some(reason));
    }
}

#[test]
fn the_time_ends_it_and_the_command_goes_on_to_its_own_end() {
    let limited = CausalOptions { duration: Some(Duration::from_millis(150)), ..options(&["sleep", "1"]) };
    let ran = ran(&limited, good(), Vec::new(), usize::MAX);
    assert_eq!((ran.outcome.end, ran.outcome.target_status), (CausalEnd::Time, Some(0)));
    assert!(ran.events.iter().any(|e| matches!(e, CausalEvent::Waiting { .. })));
    assert!(ran.log.borrow().detached, "the kernel side stays on a command that goes on");
}

#[test]
fn a_short_command_is_run_as_often_as_was_asked() {
    let several = CausalOptions { runs: Runs::Times(3), ..options(&["sleep", "1"]) };
    let ran = ran(&several, good(), Vec::new(), usize::MAX);
    assert_eq!(ran.outcome.run.meta.runs, 3);
    let runs: std::collections::BTreeSet<u32> = ran.outcome.run.windows.iter().map(|w| w.run).collect();
    assert_eq!(runs.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
}

/// A stop between two runs was told as "nothing was run", and what earlier ones had measured was lost.
#[test]
fn a_stop_between_runs_keeps_the_earlier_ones() {
    let several = CausalOptions { runs: Runs::Times(3), ..options(&["sleep", "0.5"]) };
    let log = Rc::new(RefCell::new(Log::default()));
    let fake = Fake { log, facts: good(), samples: Vec::new(), began: Instant::now(), refusal: None };
    let session = Session::new(&several, Box::new(fake), CausalConfig::default());
    let (mut policy, stop) = (Always { most: usize::MAX, ..Always::default() }, StopFlag::default());
    let mut on = |event| {
        if let CausalEvent::Run { .. } = event {
            stop.request();
        }
    };
    let outcome = session.run(&mut policy, &stop, &mut on).expect("one run");
    assert_eq!((outcome.run.meta.runs, outcome.end), (1, CausalEnd::Stopped));
    assert!(!outcome.run.windows.is_empty());
}

#[test]
fn whole_runs_are_one_visit_each() {
    let whole =
        CausalOptions { points: Vec::new(), end_to_end: true, runs: Runs::Times(2), ..options(&["sleep", "1"]) };
    let ran = ran(&whole, Facts { visits: Vec::new(), ..good() }, Vec::new(), usize::MAX);
    let windows = &ran.outcome.run.windows;
    assert_eq!(windows.len(), 2);
    assert!(windows.iter().all(|w| w.dropped.is_none() && w.visits[0].visits == 1 && w.wall_ns > 300_000_000));
}

#[test]
fn samples_become_targets_with_code() {
    let me = std::process::id();
    let code = samples_become_targets_with_code as fn() as usize as u64;
    let sample = |what, site| CausalSample {
        t_ns: 1,
        pid: me,
        tid: me,
        what,
        site,
        frames: vec![site],
        kernel: false,
        weight: 4,
    };
    let waits = SampleWhat::Blocked { class: WaitClass::Sleep, ns: 1000, waker: None };
    let lock = SampleWhat::Blocked { class: WaitClass::Lock, ns: 500, waker: Some((me, code)) };
    let samples =
        || vec![sample(SampleWhat::Run, code), sample(waits, code), sample(lock, code), sample(SampleWhat::Run, 8)];
    // Our own process cannot be measured, but the books may look at it.
    let group_of = |samples: Vec<CausalSample>| {
        let log = Rc::new(RefCell::new(Log { watched: vec![me], ..Log::default() }));
        Box::new(Fake { log, facts: good(), samples, began: Instant::now(), refusal: None })
    };
    let mut group = super::group::Group::new(&options(&["true"]), group_of(samples()));
    let mut policy = Always::default();
    group.look_now(&[]).expect("our own code");
    group.drain(&mut policy, 2, true);
    assert!(policy.declared.iter().all(|d| d.1 != Unit::OffCpu), "a wait whose line is not known yet");
    let deadline = Instant::now() + Duration::from_secs(120);
    while group.code.waiting() > 0 && Instant::now() < deadline {
        group.code.poll();
        std::thread::sleep(Duration::from_millis(5));
    }
    group.exec = group_of(samples());
    group.drain(&mut policy, 2, true);
    let units: Vec<Unit> = policy.declared.iter().map(|d| d.1).collect();
    assert!(units.contains(&Unit::Function) && units.contains(&Unit::OffCpu), "{units:?}");
    assert_eq!(policy.sampled.last(), Some(&None));
    let of = policy.declared.iter().find(|d| d.1 == Unit::Function).expect("a function").0;
    let Armed::Code { ranges, .. } = group.targets.armed(of, None, &group.code, &group.program) else {
        panic!("no code")
    };
    assert!(ranges.iter().any(|r| r.0 == me && (r.1..r.2).contains(&code)), "{ranges:?}");
    let rows = group.targets.samples();
    assert!(rows.iter().any(|r| r.target.is_none() && r.plain == 8 && r.stratum == 2));
    let waits = group.targets.waits(&group.code);
    let blocked: u64 = waits.iter().map(|w| w.blocked_ns).sum();
    assert_eq!((waits.len(), blocked, waits[0].woken_by[0].1), (1, 500, 1));
}

#[inline(always)]
fn what_is_inlined(x: u64) -> u64 {
    (0..std::hint::black_box(x)).fold(x, |sum, i| sum.rotate_left(7) ^ std::hint::black_box(i))
}

#[inline(never)]
fn has_it_inlined(x: u64) -> u64 {
    std::hint::black_box(what_is_inlined(x)) + 1
}

/// Targets that a sample in code inlined into `has_it_inlined` hits where these functions are named.
fn hit_in_inlined_code(names: &[&str]) -> Vec<String> {
    let me = std::process::id();
    assert_eq!(has_it_inlined(0), 1);
    let entry = has_it_inlined as fn(u64) -> u64 as usize as u64;
    let targets = names.iter().map(|n| super::words::target(n).expect(n)).collect();
    let asked = CausalOptions { targets, unit: UnitChoice::Function, ..options(&["true"]) };
    let log = Rc::new(RefCell::new(Log { watched: vec![me], ..Log::default() }));
    let fake = Fake { log, facts: good(), samples: Vec::new(), began: Instant::now(), refusal: None };
    let mut group = super::group::Group::new(&asked, Box::new(fake));
    group.look_now(&[]).expect("our own code");
    let (file, at) = group.program.place(me, entry).expect("our own file");
    let of = group.program.files[file].clone();
    group.code.meet(file, &of, at);
    let deadline = Instant::now() + Duration::from_secs(120);
    while group.code.waiting() > 0 && Instant::now() < deadline {
        group.code.poll();
        std::thread::sleep(Duration::from_millis(5));
    }
    let known = group.code.function(file, at).expect("the function");
    let is_inlined = |r: &&super::code::Run| {
        r.places.len() > 1 && group.code.text(r.places[0].function).ends_with("what_is_inlined")
    };
    let run = known.runs.iter().find(is_inlined).expect("inlined code").range.start;
    let site = entry + (run - at.0);
    let sample = CausalSample {
        t_ns: 1,
        pid: me,
        tid: me,
        what: SampleWhat::Run,
        site,
        frames: vec![site],
        kernel: false,
        weight: 1,
    };
    let wanted = super::targets::Wanted::new(asked.unit, asked.targets.clone(), 0);
    let hit = group.targets.hit(&sample, &group.program, &mut group.code, &wanted);
    for id in &hit {
        let Armed::Code { ranges, .. } = group.targets.armed(*id, None, &group.code, &group.program) else {
            panic!("no code")
        };
        assert!(ranges.iter().any(|r| (r.1..r.2).contains(&site)), "{ranges:?}");
    }
    let short = |id: &u32| group.targets.list[*id as usize].name.rsplit("::").next().unwrap_or_default().to_owned();
    hit.iter().map(short).collect()
}

#[test]
fn inlined_code_counts_for_the_function_that_is_named() {
    assert_eq!(hit_in_inlined_code(&[]), ["what_is_inlined"]);
    assert_eq!(hit_in_inlined_code(&[".*has_it_inlined"]), ["has_it_inlined"]);
    assert_eq!(hit_in_inlined_code(&[".*has_it_inlined", ".*what_is_inlined"]), ["what_is_inlined"]);
}

/// Computes for a while, and ends by itself.
const BUSY: [&str; 3] = ["sh", "-c", "i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done"];

/// A program whose threads wait for cores, measured by a kernel side that sends signals or says why it does not.
fn scarce(refusal: Option<&'static str>, executor: ExecutorChoice) -> Ran {
    let facts = Facts { unit_ns: 500_000, ..good() };
    let limited = CausalOptions { duration: Some(Duration::from_millis(1500)), executor, ..options(&BUSY) };
    let log = Rc::new(RefCell::new(Log { waits_when_delayed: true, ..Log::default() }));
    with(&limited, Fake { log, facts, samples: Vec::new(), began: Instant::now(), refusal }, usize::MAX)
}

#[test]
fn delays_are_slept_once_threads_are_seen_to_wait_for_cores() {
    let ran = scarce(None, ExecutorChoice::Auto);
    let meta = &ran.outcome.run.meta;
    assert_eq!(meta.executor, Executor::Sleep, "{:?}", ran.outcome.run.notes);
    assert!(meta.executor_reason.starts_with("chosen: "), "{}", meta.executor_reason);
    assert_eq!(ran.policy.begun_anew, 1);
    let log = ran.log.borrow();
    assert!(
        matches!(log.nappers.as_slice(), [(pid, handler)] if log.watched.contains(pid) && *handler != 0),
        "{log:?}"
    );
    let told = |n: &String| n.contains("from here on they are slept");
    assert!(ran.outcome.run.notes.iter().any(told), "{:?}", ran.outcome.run.notes);
    // What was spun does not count beside what is slept.
    let windows = &ran.outcome.run.windows;
    let spun = windows.iter().take_while(|w| w.dropped == Some(DropReason::Spun)).count();
    assert!(spun >= 12, "{spun} windows before the change");
    assert!(windows[spun..].iter().all(|w| w.dropped != Some(DropReason::Spun)) && windows.len() > spun + 3);
}

#[test]
fn what_cannot_be_slept_is_spun_on_and_said() {
    let ran = scarce(Some("an old kernel"), ExecutorChoice::Auto);
    let run = &ran.outcome.run;
    assert_eq!(run.meta.executor, Executor::Spin);
    assert!(run.meta.executor_reason.contains("an old kernel"), "{}", run.meta.executor_reason);
    assert!(run.notes.iter().any(|n| n.contains("had better be slept") && n.contains("an old kernel")));
    assert_eq!(ran.policy.begun_anew, 0);
    assert!(run.windows.iter().filter(|w| w.dropped.is_none()).count() >= 3);
}

#[test]
fn the_users_word_is_obeyed() {
    let ran = scarce(None, ExecutorChoice::Spin);
    assert_eq!((ran.outcome.run.meta.executor, ran.policy.begun_anew), (Executor::Spin, 0));
    assert_eq!((ran.log.borrow().signal, ran.outcome.run.meta.executor_reason.as_str()), (None, "as asked"));
    let ran = scarce(None, ExecutorChoice::Sleep);
    assert_eq!((ran.outcome.run.meta.executor, ran.policy.begun_anew), (Executor::Sleep, 0));
}
