//! Waits for other threads: they cannot be made faster by themselves, so the answer is who ends them.

use crate::results::{WaitRow, WakerRow};
use whither_store::causal::{CausalRun, Target, Unit, Wait};

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
    let who: Vec<String> = woken_by.iter().take(3).map(|w| format!("{} ({:.0} %)", w.name, 100.0 * w.share)).collect();
    let reason = match who.as_slice() {
        [] => format!("a wait in {} for another thread", wait.site.name),
        who => format!("a wait in {}, ended by {}: make those faster", wait.site.name, who.join(", ")),
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

/// The target of the same code: the line if it is one, else the function.
fn same(run: &CausalRun, place: &Target) -> Option<u32> {
    let named = |t: &Target| t.name == place.name && t.file == place.file && t.unit != Unit::OffCpu;
    let line = run.targets.iter().position(|t| named(t) && t.unit == Unit::Line && t.line == place.line);
    let found = line.or_else(|| run.targets.iter().position(|t| named(t) && t.unit == Unit::Function));
    found.map(|i| i as u32)
}
