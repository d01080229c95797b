//! Exact execution counts on request: while sampling goes on, breakpoints stand on a few instructions of chosen
//! procedures for short windows at random times (Anderson et al. leave such counts to instrumented copies of a program;
//! here it is the running one). `plan` chooses instructions, `targets` finds them, `tally` adds up; this file decides when.
//!
//! A hit costs a microsecond on metal and ten where the hypervisor sees it first, so windows of busy code are mostly hits; and code
//! close to a breakpoint runs slower while it stands. So a window is taken to cost all its time. That is paid for by waiting: the next one
//! begins when the share of the target's time stays within the budget.

mod credit;
mod plan;
mod tally;
mod targets;

use credit::Credit;
use plan::{Place, Set, chain, survey, timed};
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tally::Tally;
use targets::{Heat, MOST_PROCEDURES, Targets};
use whither_kernel::breakpoint::{self, Breakpoints, SLOTS};
use whither_kernel::clock;
use whither_sample::lives::ImageNo;
use whither_store::model::{ExactCount, Image, ImageIx, Profile};

/// A window lasts at least and at most so long; a hundred hits fit into it where each is dear.
const SHORTEST: Duration = Duration::from_micros(500);
const LONGEST: Duration = Duration::from_millis(2);
/// Sets that are hit rarely have windows this many times as long.
const WHEN_RARE: u32 = 8;
/// So rarely: part of the time that hits take.
const RARE: f64 = 0.05;
/// Slots of a thread are held for one set at most this long.
const VISIT: Duration = Duration::from_millis(150);
/// Processes and mappings are looked for this often.
const LOOK: Duration = Duration::from_millis(250);
/// Without samples after this long, procedures are ranked without.
const WITHOUT_HEAT: Duration = Duration::from_millis(1500);
/// Sets are cut anew this often at first, and when so many times as long has passed.
const PLAN: Duration = Duration::from_millis(300);
const PLAN_GROWS: u32 = 8;
/// Places whose hits would take so many times what their executions take are left to walks, where there are any: hits fill a window of them, of
/// which a microsecond is left to the program, and a walk tells of as many executions, of all places, for a tenth of the time.
const TOO_DENSE: f64 = 0.6;
/// Hits of a set that tells executions by time may take so many times what is left of its windows: from a third of a window on they
/// leave too little to know how long it was (`tally`, `CROWDED`), and rates differ from one window to the next.
const SPARSE: f64 = 0.3;
/// Threads that one window covers.
const MOST_THREADS: usize = 4;
/// Switching a group on and off interrupts its thread.
const SWITCHING: Duration = Duration::from_micros(30);
/// What a hit costs a program besides: its caches and its branch history have to be learnt anew. It depends on the program, so it is
/// assumed, and for the program's sake to be as much as was found: 11 us were measured by the hit alone and 35 lost on a Zen 4 VM, 4 to
/// 6 measured and 15 to 40 lost on a Zen 3 one (`perf stat -e mem:ADDR:x`, functions of `branchy`).
const DISTURBANCE: Duration = Duration::from_micros(26);
/// What a listing has to say of times and cycles.
const SLOWER: &str = "code close to a breakpoint runs slower while it stands, by how much nothing tells: the own cost holds all the time that \
                      breakpoints stood, of which the program may have lost a part only; take times and cycles from a recording \
                      without --exact";
/// A place that was not hit in so many windows is hardly looked for any more.
const PATIENCE: u64 = 3;
/// One visit in so many goes to places that were never hit.
const SURVEY_EVERY: u64 = 8;
/// Part of the visits that even a procedure without samples gets, against all.
const LEAST_PART: f64 = 0.03;

/// What counting has found since it was last asked.
#[derive(Debug, Default)]
pub(crate) struct Found {
    rows: Vec<(Image, ExactCount)>,
    /// Sentences for the user.
    pub(crate) notes: Vec<String>,
}

impl Found {
    /// Puts the rows into a profile that is about to be stored.
    pub(crate) fn into_profile(self, profile: &mut Profile) {
        for (image, row) in self.rows {
            let known = profile.images.iter().position(|i| i.id == image.id).unwrap_or_else(|| {
                profile.images.push(image);
                profile.images.len() - 1
            });
            let image = ImageIx(u32::try_from(known).unwrap_or(u32::MAX));
            profile.exact.push(ExactCount { image, ..row });
        }
    }
}

/// What tells of executions besides counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Walks: code is executed in thought from samples on.
    Walks,
    /// Nothing that tells as much of what runs often.
    Nothing,
}

/// Counting in a thread of its own. Dropping it stops the thread and takes every breakpoint away.
#[derive(Debug)]
pub(crate) struct Exact {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Samples were handed over so many times, and when next.
    warmed: (u32, Instant),
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    heat: Mutex<Option<Heat>>,
    /// Time that breakpoints took from the target so far: by hits and switching alone, and if windows had let nothing through.
    hits_ns: AtomicU64,
    lost_ns: AtomicU64,
    found: Mutex<Found>,
}

/// Locks what no holder leaves half done.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Exact {
    /// Begins to count procedures of processes and what they fork. `budget`: share of the target's time. `beside`: what else tells of
    /// executions. What cannot be had becomes a sentence in [`Found::notes`].
    pub(crate) fn start(pids: Vec<u32>, patterns: Vec<Regex>, budget: f64, beside: Beside) -> Self {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let run = move || match breakpoint::cost() {
            Ok(cost) => Counter::new(theirs, Targets::new(pids, patterns), cost, (budget, beside)).run(),
            Err(e) => locked(&theirs.found).notes.push(format!(
                "no exact counts: hardware breakpoints cannot be had ({e}); 'whither doctor' tells more"
            )),
        };
        let thread = std::thread::Builder::new().name("exact counts".into()).spawn(run);
        if let Err(e) = &thread {
            locked(&shared.found).notes.push(format!("no exact counts: no thread for them could be started ({e})"));
        }
        Self { shared, thread: thread.ok(), warmed: (0, Instant::now() + Duration::from_millis(700)) }
    }

    /// Whether it is time to tell where samples fall.
    pub(crate) fn wants_heat(&self) -> bool {
        Instant::now() >= self.warmed.1
    }

    /// Tells where samples fell so far.
    pub(crate) fn warm(&mut self, profile: &Profile) {
        let heat = Heat::of(profile);
        let mut known = locked(&self.shared.heat);
        *known = Some(heat.or_older(known.take()));
        drop(known);
        // Soon again while there are few samples, later hardly.
        self.warmed = (self.warmed.0 + 1, Instant::now() + Duration::from_secs(1 << self.warmed.0.min(5)));
    }

    /// What was found since the last time.
    pub(crate) fn take(&self) -> Found {
        std::mem::take(&mut *locked(&self.shared.found))
    }

    /// Nanoseconds that breakpoints took from the target so far, at least and at most.
    pub(crate) fn lost_ns(&self) -> (u64, u64) {
        (self.shared.hits_ns.load(Ordering::Relaxed), self.shared.lost_ns.load(Ordering::Relaxed))
    }

    /// Ends counting: no breakpoint is left when this returns.
    pub(crate) fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has ended counting; what was found stays good.
            let _ = thread.join();
        }
    }
}

impl Drop for Exact {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The thread's state.
struct Counter {
    shared: Arc<Shared>,
    targets: Targets,
    cost_ns: u64,
    /// Of that, the part that was measured.
    certain: f64,
    budget: f64,
    beside: Beside,
    /// All that was to be counted was too dense when sets were last cut.
    all_dense: bool,
    tally: Tally,
    dice: Dice,
    slots: usize,
    /// With the part of the visits that each may have.
    chains: Vec<(f64, Set)>,
    surveys: Vec<(f64, Set)>,
    /// No window may begin before.
    paid: Instant,
    credit: Credit,
    begun: Instant,
    looked: Option<Instant>,
    planned: Option<Instant>,
    told: BTreeSet<&'static str>,
}

impl Counter {
    fn new(shared: Arc<Shared>, targets: Targets, cost: Duration, (budget, beside): (f64, Beside)) -> Self {
        let now = Instant::now();
        Self {
            shared,
            targets,
            cost_ns: u64::try_from((cost + DISTURBANCE).as_nanos()).unwrap_or(u64::MAX),
            certain: cost.as_secs_f64() / (cost + DISTURBANCE).as_secs_f64(),
            budget: budget.clamp(1e-4, 0.5),
            beside,
            all_dense: false,
            tally: Tally::default(),
            dice: Dice(clock::monotonic_ns() | 1),
            slots: SLOTS,
            chains: Vec::new(),
            surveys: Vec::new(),
            paid: now,
            credit: Credit::default(),
            begun: now,
            looked: None,
            planned: None,
            told: BTreeSet::new(),
        }
    }

    fn run(mut self) {
        // Windows that end late cost the target more than they tell; without the right it goes without.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), -10);
        while !self.stopped() {
            if self.looked.is_none_or(|t| t.elapsed() >= LOOK) {
                self.targets.look();
                self.looked = Some(Instant::now());
            }
            if self.planned.is_none_or(|t| t.elapsed() >= PLAN.max(self.begun.elapsed() / PLAN_GROWS)) {
                self.plan();
            }
            let visited = self.next_set().is_some_and(|set| self.visit(&set));
            if !visited {
                std::thread::sleep(Duration::from_millis(5));
            }
            self.hand_over();
        }
        self.tell_in_the_end();
        self.hand_over();
    }

    fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// Cuts sets: chains of what was hit, and what was never hit as it comes.
    fn plan(&mut self) {
        let heat = locked(&self.shared.heat).clone();
        if self.targets.matches() == 0 || heat.is_none() && self.begun.elapsed() < WITHOUT_HEAT {
            return;
        }
        self.planned = Some(Instant::now());
        let procedures = self.targets.places(&heat.unwrap_or_default());
        let rates = self.tally.rates();
        let dense = |p: &(Place, f64)| self.is_too_dense(rates.get(&p.0).copied().unwrap_or(p.1));
        let countable =
            |places: &[(Place, f64)]| -> Vec<Place> { places.iter().filter(|p| !dense(p)).map(|p| p.0).collect() };
        let rated = |places: &[Place]| -> Vec<(Place, f64)> {
            places.iter().filter_map(|p| Some((*p, *rates.get(p)?))).collect()
        };
        let unseen =
            |places: &[Place]| -> Vec<Place> { places.iter().filter(|p| !rates.contains_key(p)).copied().collect() };
        let all = procedures.iter().map(|p| p.0).sum::<u64>().max(1) as f64;
        let (mut chains, mut surveys) = (Vec::new(), Vec::new());
        for (samples, places) in &procedures {
            let (part, places) = ((*samples as f64 / all).max(LEAST_PART), countable(places));
            let mut sets = chain(&rated(&places), self.slots);
            let by_time = timed(&rated(&places), self.slots, SPARSE / self.cost_ns as f64);
            sets.extend(by_time.filter(|set| !sets.contains(set)));
            chains.extend(shared(part, sets));
            surveys.extend(shared(part, survey(&unseen(&places), self.slots)));
        }
        let entries: Vec<(Place, f64)> = procedures.iter().filter_map(|p| p.1.first().copied()).collect();
        if entries.len() > 1 {
            chains.extend(shared(LEAST_PART, chain(&rated(&countable(&entries)), self.slots)));
        }
        self.all_dense = chains.is_empty() && surveys.is_empty();
        (self.chains, self.surveys) = (chains, surveys);
    }

    /// `rate`: executions per nanosecond.
    fn is_too_dense(&self, rate: f64) -> bool {
        self.beside == Beside::Walks && rate * self.cost_ns as f64 >= TOO_DENSE
    }

    fn next_set(&mut self) -> Option<Set> {
        let fresh = |s: &&(f64, Set)| {
            self.tally.of(&s.1).is_none_or(|rows| rows.iter().map(|r| r.windows).max().unwrap_or(0) < PATIENCE)
        };
        let fresh: Vec<&(f64, Set)> = self.surveys.iter().filter(fresh).collect();
        let toss = self.dice.below(SURVEY_EVERY);
        let among: Vec<&(f64, Set)> = match () {
            () if !fresh.is_empty() && (toss.is_multiple_of(2) || self.chains.is_empty()) => fresh,
            () if !self.surveys.is_empty() && (toss == 0 || self.chains.is_empty()) => self.surveys.iter().collect(),
            () => self.chains.iter().collect(),
        };
        let mut left = self.dice.part() * among.iter().map(|s| s.0).sum::<f64>();
        let pick = among.iter().position(|s| {
            left -= s.0;
            left <= 0.0
        });
        pick.map(|at| among[at].1.clone())
    }

    /// Takes slots for a set and has some windows with it. Whether any was had.
    fn visit(&mut self, set: &Set) -> bool {
        let mut threads = self.targets.threads(&set.0);
        while threads.len() > MOST_THREADS {
            let drop = self.dice.below(threads.len() as u64);
            threads.swap_remove(usize::try_from(drop).unwrap_or(0));
        }
        let mut groups = self.open(&threads);
        let ends = Instant::now() + VISIT;
        let mut any = false;
        while !groups.is_empty() && !self.stopped() {
            // At a random time, and not before the last one is paid.
            let gap = Duration::from_micros(500 + self.dice.below(2500));
            let at = self.paid.max(Instant::now()) + gap;
            if at > ends {
                break;
            }
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            self.window(set, &mut groups);
            any = true;
        }
        drop(groups);
        if !any {
            // The slots are free while the debt is paid.
            let wait = self.paid.saturating_duration_since(Instant::now());
            std::thread::sleep(wait.min(Duration::from_millis(50)));
        }
        any
    }

    fn open(&mut self, threads: &[(u32, Vec<u64>)]) -> Vec<Breakpoints> {
        let mut groups = Vec::new();
        for (tid, addresses) in threads {
            match Breakpoints::open(*tid, addresses) {
                Ok(group) => groups.push(group),
                Err(e) if e.errno() == Some(NO_SLOT) => self.no_slot(),
                // It has ended meanwhile.
                Err(e) if e.errno() == Some(NO_THREAD) => {}
                Err(e) => self.tell(format!("some exact counts are missing: {e}"), "refused"),
            }
        }
        groups
    }

    /// Somebody else holds slots: smaller sets need fewer.
    fn no_slot(&mut self) {
        if self.slots > 2 {
            self.slots -= 1;
            self.planned = None;
            self.tell(
                "another tool, a debugger perhaps, holds hardware breakpoints of the target: exact counts make do with the \
                 free ones"
                    .into(),
                "slots",
            );
        } else {
            self.tell(
                "some exact counts are missing: other tools hold all hardware breakpoints of the target".into(),
                "no slot",
            );
        }
    }

    fn window(&mut self, set: &Set, groups: &mut Vec<Breakpoints>) {
        let spread = u64::try_from((LONGEST - SHORTEST).as_micros()).unwrap_or(0);
        let short = SHORTEST + Duration::from_micros(self.dice.below(spread));
        let length = if self.is_rare(set) { short * WHEN_RARE } else { short };
        groups.retain_mut(|g| g.enable().is_ok());
        std::thread::sleep(length);
        let mut lost = Lost::default();
        let (tally, cost, certain) = (&mut self.tally, self.cost_ns, self.certain);
        // Threads that have ended leave no counts.
        groups.retain_mut(|g| match g.disable() {
            Ok(window) => {
                let hits = Duration::from_nanos(tally.add(set, &window, cost)).mul_f64(certain);
                lost.add(hits, Duration::from_nanos(window.enabled_ns));
                !window.is_spent
            }
            Err(_) => {
                lost.add(length, length);
                false
            }
        });
        self.shared.hits_ns.fetch_add(nanoseconds(lost.least), Ordering::Relaxed);
        self.shared.lost_ns.fetch_add(nanoseconds(lost.most), Ordering::Relaxed);
        let usual = self.usual(set);
        let part = 0.5 + self.dice.part();
        let wait = self.credit.wait(lost.most.as_secs_f64(), usual.as_secs_f64()) * part / self.budget;
        self.paid = Instant::now() + Duration::from_secs_f64(wait);
    }

    /// What windows of a set took so far, on average; of a new one, what the longest takes.
    fn usual(&self, set: &Set) -> Duration {
        let row = self.tally.of(set).and_then(|rows| rows.first());
        let stood = row.map_or(LONGEST, |r| Duration::from_nanos(r.enabled_ns / r.windows.max(1)));
        SWITCHING + stood + DISTURBANCE
    }

    fn is_rare(&self, set: &Set) -> bool {
        self.tally
            .of(set)
            .and_then(|rows| rows.first())
            .is_some_and(|r| r.windows >= 2 && (r.hits_ns as f64) < RARE * r.enabled_ns as f64)
    }

    /// Puts what is new where the recording finds it.
    fn hand_over(&mut self) {
        let taken = self.tally.take();
        let mut found = locked(&self.shared.found);
        for (set, rows) in taken {
            let key = set.key(|image: ImageNo| self.targets.image(image).id.0);
            for (place, row) in set.0.iter().zip(rows) {
                let row = ExactCount { offset: place.offset, set: key, ..row };
                found.rows.push((self.targets.image(place.image).clone(), row));
            }
        }
    }

    fn tell(&mut self, sentence: String, once: &'static str) {
        if self.told.insert(once) {
            locked(&self.shared.found).notes.push(sentence);
        }
    }

    fn tell_in_the_end(&mut self) {
        match self.targets.matches() {
            0 => self.tell("no exact counts: no procedure of the target matches --exact".into(), "none"),
            n if n > MOST_PROCEDURES => self.tell(
                format!(
                    "--exact matches {n} procedures: only the {MOST_PROCEDURES} with most samples were counted; narrow the \
                     expression for others"
                ),
                "many",
            ),
            _ if self.tally.rates().is_empty() && self.all_dense => self.tell(
                "no exact counts: all that was to be counted runs so often that breakpoints would stop it; executions are known by code executed \
                 in thought, of which there was more for it"
                    .into(),
                "dense",
            ),
            _ if self.tally.rates().is_empty() => self.tell(
                "no exact counts: no counted instruction ran while breakpoints stood; record for longer".into(),
                "idle",
            ),
            _ => {}
        }
        if !self.tally.rates().is_empty() {
            self.tell(SLOWER.into(), "slower");
        }
        if self.targets.threaded {
            self.tell(
                "exact counts are of threads that ran when a window began: what threads do in the first milliseconds of \
                 their life may be missed"
                    .into(),
                "threads",
            );
        }
    }
}

/// What a window has taken from its threads. Not by hits alone: code in the 64 bytes of a breakpoint runs slower while it stands, hit or
/// not (Zen 4 VM: loops of branches and of calls took 3.2 times as long with one in their line that was never hit, 0 to 0.4 % longer with
/// one in the next line but one). By how much nothing tells, but no thread loses more than the window, and what it has to learn anew
/// after the last hit.
#[derive(Default)]
struct Lost {
    /// By hits, as measured, and switching.
    least: Duration,
    /// If windows had let nothing through.
    most: Duration,
}

impl Lost {
    /// Adds a window of one thread: what its hits took, and how long it stood while the thread ran.
    fn add(&mut self, hits: Duration, stood: Duration) {
        self.least += SWITCHING + hits;
        self.most += SWITCHING + stood.max(hits) + DISTURBANCE;
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Sets that share a part of the visits.
fn shared(part: f64, sets: Vec<Set>) -> Vec<(f64, Set)> {
    let each = part / sets.len().max(1) as f64;
    sets.into_iter().map(|s| (each, s)).collect()
}

/// `ENOSPC` and `ESRCH`.
const NO_SLOT: i32 = rustix::io::Errno::NOSPC.raw_os_error();
const NO_THREAD: i32 = rustix::io::Errno::SRCH.raw_os_error();

/// Pseudo-random numbers: windows must not fall into step with the target.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        if limit == 0 { 0 } else { self.0 % limit }
    }

    /// From 0 to 1.
    fn part(&mut self) -> f64 {
        self.below(1 << 20) as f64 / f64::from(1 << 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_image::ImageOffset;
    use whither_store::model::{IdKind, ImageId, ImageKind};

    fn image(id: u8) -> Image {
        let path = format!("/bin/{id}");
        let (id_kind, kind) = (IdKind::BuildId, ImageKind::Elf);
        Image { id: ImageId([id; 20]), id_kind, kind, path, segments: vec![], size: 0 }
    }

    #[test]
    fn a_window_costs_its_time_whether_anything_was_hit_or_not() {
        let ms = Duration::from_millis;
        let mut lost = Lost::default();
        lost.add(ms(0), ms(8));
        assert!(lost.most >= ms(8) && lost.least < ms(1));
        lost.add(ms(2), ms(2));
        assert!(lost.most >= ms(10) && (ms(2)..ms(3)).contains(&lost.least));
    }

    #[test]
    fn counts_find_their_images_in_a_profile() {
        let row = |offset| ExactCount { offset: ImageOffset(offset), hits: 1, ..ExactCount::default() };
        let rows = vec![(image(1), row(1)), (image(2), row(2)), (image(1), row(3))];
        let mut profile = Profile { images: vec![image(9), image(2)], ..Profile::default() };
        Found { rows, notes: vec![] }.into_profile(&mut profile);
        let of = |e: &ExactCount| (profile.image(e.image).id.0[0], e.offset.0);
        assert_eq!(profile.exact.iter().map(of).collect::<Vec<_>>(), [(1, 1), (2, 2), (1, 3)]);
        assert_eq!(profile.images.len(), 3);
    }
}
