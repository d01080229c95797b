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
    let who: Vec<String> = told(run, wait).iter().map(|(n, share)| format!("{n} ({:.0} %)", 100.0 * share)).collect();
    let site = label(run, &wait.site);
    let reason = match who.as_slice() {
        [] => format!("a wait in {site} for another thread"),
        who => format!("a wait in {site}, ended by {}: make those faster", who.join(", ")),
    };
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

/// Those that end a wait most often, under the names that they are told by, with their shares; not those who hardly ever do.
fn told(run: &CausalRun, wait: &Wait) -> Vec<(String, f64)> {
    let all: f64 = wait.woken_by.iter().map(|(_, n)| *n as f64).sum();
    let mut named: Vec<(String, f64)> = Vec::new();
    for (place, n) in &wait.woken_by {
        let (name, share) = (label(run, place), *n as f64 / all.max(1.0));
        match named.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += share,
            None => named.push((name, share)),
        }
    }
    named.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    named.retain(|(_, share)| *share >= LEAST_SHARE);
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
mod tests {
    use super::*;

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
                "a wait in main q.cpp:31, ended by a library or a thread's end (100 %): make those faster",
            ]
        );
        assert_eq!(label(&run, &place("late", 40)), "late");
    }
}
