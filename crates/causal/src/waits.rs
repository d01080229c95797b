//! Waits for other threads: they cannot be made faster by themselves, so the answer is who ends them.

use crate::results::{WaitRow, WakerRow};
use whither_store::causal::{CausalRun, Target, Unit, Wait};

/// A smaller part of the wake-ups is not told.
const LEAST_SHARE: f64 = 0.005;

/// Most time first.
pub(crate) fn rows(run: &CausalRun) -> Vec<WaitRow> {
    let total: f64 = run.waits.iter().map(|w| w.blocked_ns as f64).sum();
    let mut rows: Vec<WaitRow> = run.waits.iter().map(|wait| row(run, wait, total)).collect();
    rows.sort_by(|a, b| b.blocked_ns.cmp(&a.blocked_ns).then_with(|| a.name.cmp(&b.name)));
    rows
}

fn row(run: &CausalRun, wait: &Wait, total: f64) -> WaitRow {
    let wakes: f64 = wait.woken_by.iter().map(|(_, n)| *n as f64).sum();
    let mut woken_by: Vec<WakerRow> = wait
        .woken_by
        .iter()
        .map(|(place, n)| WakerRow {
            name: place.name.clone(),
            file: place.file.clone(),
            line: place.line,
            share: if wakes > 0.0 { *n as f64 / wakes } else { 0.0 },
            target: same(run, place),
        })
        .collect();
    woken_by.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.name.cmp(&b.name)));
    let reason = sentence(run, wait);
    WaitRow {
        name: wait.site.name.clone(),
        file: wait.site.file.clone(),
        line: wait.site.line,
        blocked_ns: wait.blocked_ns,
        share: if total > 0.0 { wait.blocked_ns as f64 / total } else { 0.0 },
        woken_by,
        reason,
    }
}

/// Below this part of the samples code has no time of its own that could be made less.
const LEAST_TIME: f64 = 0.02;

/// What can be made of a waker.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Waker {
    /// It can be made faster.
    Runs,
    /// It is the same place: threads wait for one another.
    Itself,
    /// None of the program's code was on its stack.
    Unnamed,
    /// It has only this part of the samples.
    Idle(f64),
}

impl Waker {
    fn of(run: &CausalRun, site: &Target, place: &Target) -> Self {
        if place.name.is_empty() {
            return Self::Unnamed;
        }
        if (&place.name, &place.file, place.line) == (&site.name, &site.file, site.line) {
            return Self::Itself;
        }
        match own_time(run, &place.name) {
            Some(share) if share < LEAST_TIME => Self::Idle(share),
            _ => Self::Runs,
        }
    }

    /// What is known of it beside its name; empty: that it can be made faster.
    fn remark(self, name: &str) -> String {
        match self {
            Self::Runs => String::new(),
            Self::Itself => "threads wait for one another there, as at a lock or a barrier".to_owned(),
            Self::Unnamed => "no code of the program was on the stack of who ended it".to_owned(),
            Self::Idle(share) => format!(
                "{name} has {} % of the samples itself, so what counts is what comes before it in that thread",
                if share < 0.001 { "hardly 0.1".to_owned() } else { format!("{:.1}", 100.0 * share) }
            ),
        }
    }
}

/// Part of the samples in a function itself; `None` where that was not counted.
fn own_time(run: &CausalRun, name: &str) -> Option<f64> {
    const UNITS: [Unit; 3] = [Unit::Function, Unit::Line, Unit::Path];
    let (mut own, mut all, mut outside) = ([0_u64; 3], [0_u64; 3], 0_u64);
    for row in &run.samples {
        let Some(target) = row.target.and_then(|t| run.targets.get(t as usize)) else {
            outside = outside.saturating_add(row.all);
            continue;
        };
        let Some(at) = UNITS.iter().position(|u| *u == target.unit) else { continue };
        all[at] = all[at].saturating_add(row.all);
        own[at] = own[at].saturating_add(if target.name == name { row.all } else { 0 });
    }
    let whole = all.iter().copied().max().filter(|n| *n > 0)?.saturating_add(outside);
    Some(own.iter().copied().max().unwrap_or(0) as f64 / whole as f64)
}

/// Who ends a wait, and what can be done about it: only code that takes time can be made faster.
fn sentence(run: &CausalRun, wait: &Wait) -> String {
    let site = label(run, &wait.site);
    let who = told(run, wait);
    if who.is_empty() {
        return format!("a wait in {site} for another thread");
    }
    let listed: Vec<String> = who.iter().map(|(n, share, _)| format!("{n} ({:.0} %)", 100.0 * share)).collect();
    let made: Vec<&str> = who.iter().filter(|w| w.2 == Waker::Runs).map(|w| w.0.as_str()).collect();
    let what = match made.as_slice() {
        [] => who.first().map_or_else(String::new, |(name, _, waker)| waker.remark(name)),
        made if made.len() == who.len() => "make those faster".to_owned(),
        made => format!("make {} faster", made.join(", ")),
    };
    format!("a wait in {site}, ended by {}: {what}", listed.join(", "))
}

/// Those that end a wait most often, under the names that they are told by, with their shares; not those who hardly ever do.
fn told(run: &CausalRun, wait: &Wait) -> Vec<(String, f64, Waker)> {
    let all: f64 = wait.woken_by.iter().map(|(_, n)| *n as f64).sum();
    let mut named: Vec<(String, f64, Waker)> = Vec::new();
    for (place, n) in &wait.woken_by {
        let (name, share) = (label(run, place), *n as f64 / all.max(1.0));
        match named.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, sum, _)) => *sum += share,
            None => named.push((name, share, Waker::of(run, &wait.site, place))),
        }
    }
    named.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    named.retain(|(_, share, _)| *share >= LEAST_SHARE);
    named.truncate(3);
    named
}

/// What a place of a wait is called: with its line where others have the same name, as all lambdas of C++ do. A thread that ends
/// wakes who joins it, and a library's threads wake one another, with none of the program's own code on the stack.
pub(crate) fn label(run: &CausalRun, place: &Target) -> String {
    if place.name.is_empty() {
        return "a library or a thread's end".to_owned();
    }
    let sites = run.waits.iter().flat_map(|w| std::iter::once(&w.site).chain(w.woken_by.iter().map(|(p, _)| p)));
    let mut namesakes = sites.filter(|o| o.name == place.name);
    if place.line == 0 || namesakes.all(|o| o.file == place.file && o.line == place.line) {
        return place.name.clone();
    }
    let file = place.file.rsplit('/').next().unwrap_or_default();
    format!("{} {file}:{}", place.name, place.line)
}

/// The target of the same code: the line if it is one, else the function.
fn same(run: &CausalRun, place: &Target) -> Option<u32> {
    let named = |t: &Target| t.name == place.name && t.file == place.file && t.unit != Unit::OffCpu;
    let line = run.targets.iter().position(|t| named(t) && t.unit == Unit::Line && t.line == place.line);
    let found = line.or_else(|| run.targets.iter().position(|t| named(t) && t.unit == Unit::Function));
    found.map(|i| i as u32)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Functions.
    pub(crate) fn named(names: &[&str]) -> Vec<Target> {
        names.iter().map(|n| Target { unit: Unit::Function, ..place(n, 1) }).collect()
    }

    fn place(name: &str, line: u32) -> Target {
        Target {
            unit: Unit::Line,
            name: name.to_owned(),
            file: "/src/q.cpp".to_owned(),
            line,
            path: Vec::new(),
            aliases: Vec::new(),
            module: String::new(),
            image: None,
            ranges: Vec::new(),
        }
    }

    #[test]
    fn who_ends_a_wait_can_be_told_from_namesakes_and_always_has_a_name() {
        let waits = vec![
            Wait {
                site: place("operator()", 10),
                blocked_ns: 9,
                woken_by: vec![(place("operator()", 20), 600), (place("main", 30), 398), (place("late", 40), 2)],
            },
            Wait { site: place("main", 31), blocked_ns: 5, woken_by: vec![(place("", 0), 7)] },
        ];
        let run = CausalRun { waits, ..CausalRun::default() };
        let told: Vec<String> = rows(&run).into_iter().map(|r| r.reason).collect();
        assert_eq!(
            told,
            [
                "a wait in operator() q.cpp:10, ended by operator() q.cpp:20 (60 %), main q.cpp:30 (40 %): make those faster",
                "a wait in main q.cpp:31, ended by a library or a thread's end (100 %): no code of the program was on the stack of who \
                 ended it",
            ]
        );
        assert_eq!(label(&run, &place("late", 40)), "late");
    }

    #[test]
    fn only_what_takes_time_is_to_be_made_faster() {
        use whither_store::causal::TargetSamples;
        let function = |name: &str| Target { unit: Unit::Function, ..place(name, 1) };
        let samples = |target, all| TargetSamples { target, all, ..TargetSamples::default() };
        let wait = |woken_by| Wait { site: place("serve", 10), blocked_ns: 9, woken_by };
        let mut run = CausalRun {
            targets: vec![function("main"), function("work"), function("serve")],
            samples: vec![samples(Some(0), 5), samples(Some(1), 900), samples(Some(2), 50), samples(None, 45)],
            ..CausalRun::default()
        };
        let mut told = |woken_by| {
            run.waits = vec![wait(woken_by)];
            rows(&run).remove(0).reason
        };
        assert_eq!(
            told(vec![(place("main", 3), 10)]),
            "a wait in serve, ended by main (100 %): main has 0.5 % of the samples itself, so what counts is what comes before it in that \
             thread"
        );
        assert_eq!(
            told(vec![(place("serve", 10), 10)]),
            "a wait in serve, ended by serve (100 %): threads wait for one another there, as at a lock or a barrier"
        );
        let of_two = told(vec![(place("main", 3), 6), (place("work", 4), 4)]);
        assert_eq!(of_two, "a wait in serve, ended by main (60 %), work (40 %): make work faster");
        let one = told(vec![(place("work", 4), 4)]);
        assert_eq!(one, "a wait in serve, ended by work (100 %): make those faster");
    }
}
