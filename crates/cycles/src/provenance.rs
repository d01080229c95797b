//! What every answer says of its data: sources, rates, losses, unknown share, the collector's cost,
//! and warnings where the data are too thin to mean much.

use crate::results::{EventTotals, Provenance};
use crate::selection::{Filter, Selection};
use std::ops::Range;
use whither_store::model::{EpochMeta, EventIx, EventUnit, ImageKind, Profile, Rate, StackEnd};

/// Fewer samples than this are called too few: a share of 10 % is then uncertain by 6 points.
const FEW_SAMPLES: u64 = 100;

/// Describes a selection.
#[must_use]
pub fn provenance(selection: &Selection<'_>, filter: &Filter) -> Provenance {
    let profile = selection.profile;
    let losses = profile.losses();
    let seconds = seconds_covered(profile, filter.seconds.as_ref());
    let events: Vec<EventTotals> = totals(selection);
    let unknown = unknown_by_reason(selection);
    let unknown_samples: u64 = unknown.iter().map(|u| u.1).sum();
    let main = events.first().map_or(0, |e| e.samples);
    let mut out = Provenance {
        sources: distinct(profile.epochs.iter().map(source_label)),
        hosts: distinct(profile.epochs.iter().map(|e| e.host.clone())),
        machine: profile.epochs.first().map(machine).unwrap_or_default(),
        seconds,
        cpus: profile.epochs.iter().map(|e| e.cpus).max().unwrap_or(0),
        scope: distinct(profile.epochs.iter().map(|e| e.scope.clone())).join(", "),
        unknown,
        unknown_share: if main == 0 { 0.0 } else { unknown_samples as f64 / main as f64 },
        dropped: losses.dropped + losses.unwritten,
        skipped: losses.skipped,
        sideband_lost: losses.sideband_lost,
        ambiguous: losses.ambiguous,
        stacks: stacks(profile, losses.stacks_dropped),
        own_cost: own_cost(&profile.epochs),
        rate_hz: 0.0,
        notes: Vec::new(),
        events,
    };
    out.rate_hz = rate_hz(profile, selection.columns[0], filter.seconds.as_ref(), &out);
    out.notes = notes(selection, &out);
    out
}

fn totals(selection: &Selection<'_>) -> Vec<EventTotals> {
    let profile = selection.profile;
    let mut out: Vec<EventTotals> = selection.columns.iter().map(|&e| empty_total(profile, e)).collect();
    for &row in &selection.rows {
        let s = selection.sample(row);
        let total = &mut out[selection.column(s.event).expect("selected rows have a column")];
        total.samples += u64::from(s.count);
        total.weight = total.weight.saturating_add(s.weight());
    }
    out
}

fn empty_total(profile: &Profile, event: EventIx) -> EventTotals {
    let event = profile.event(event);
    let idle = profile.rates.iter().filter(|r| r.event == event.name).map(|r| r.idle).sum();
    let unit = match event.unit {
        EventUnit::Nanoseconds => "ns",
        EventUnit::Count => "count",
    };
    EventTotals { name: event.name.clone(), unit: unit.into(), samples: 0, weight: 0, idle }
}

/// Samples of the main event without an image, by reason, most first.
fn unknown_by_reason(selection: &Selection<'_>) -> Vec<(String, u64)> {
    let mut out: Vec<(String, u64)> = Vec::new();
    for &row in &selection.rows {
        let s = selection.sample(row);
        let image = selection.profile.image(s.image);
        if image.kind != ImageKind::Unknown || selection.column(s.event) != Some(0) {
            continue;
        }
        let reason = reason(&image.path);
        match out.iter_mut().find(|(r, _)| r == reason) {
            Some((_, n)) => *n += u64::from(s.count),
            None => out.push((reason.to_owned(), s.count.into())),
        }
    }
    out.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    out
}

/// `REASON` of `[unknown: REASON]`.
fn reason(path: &str) -> &str {
    let inner = path.strip_prefix("[unknown:").and_then(|p| p.strip_suffix(']'));
    inner.map_or(path, str::trim)
}

fn stacks(profile: &Profile, dropped: u64) -> (u64, u64, u64) {
    let (mut seen, mut truncated) = (0, 0);
    for s in &profile.stack_samples {
        seen += u64::from(s.count);
        if profile.stacks[s.stack.0 as usize].end == StackEnd::Truncated {
            truncated += u64::from(s.count);
        }
    }
    (seen, truncated, dropped)
}

/// Mean over the epochs that measured it, by length. An import never measured any.
fn own_cost(epochs: &[EpochMeta]) -> Option<f64> {
    let measured = epochs.iter().filter(|e| e.cost.share > 0.0);
    let (cost, weight) = measured.fold((0.0, 0.0), |(cost, weight), e| {
        let w = (e.end_ns.saturating_sub(e.start_ns) as f64).max(1.0);
        (cost + e.cost.share * w, weight + w)
    });
    (weight > 0.0).then(|| cost / weight)
}

/// Wall seconds that at least one epoch covers, inside the range asked for.
fn seconds_covered(profile: &Profile, range: Option<&Range<u32>>) -> f64 {
    const NS: u64 = 1_000_000_000;
    let (from, to) = range.map_or((0, u64::MAX), |r| (u64::from(r.start) * NS, u64::from(r.end) * NS));
    let mut spans: Vec<(u64, u64)> =
        profile.epochs.iter().map(|e| (e.start_ns.max(from), end_ns(e, &profile.rates).min(to))).collect();
    spans.sort_unstable();
    let (mut covered, mut reached) = (0u64, 0u64);
    for (start, end) in spans {
        let start = start.max(reached);
        covered += end.saturating_sub(start);
        reached = reached.max(end);
    }
    covered as f64 / NS as f64
}

/// An epoch still open reaches as far as its accounting.
fn end_ns(epoch: &EpochMeta, rates: &[Rate]) -> u64 {
    if epoch.end_ns != 0 {
        return epoch.end_ns;
    }
    let ends = rates.iter().map(|r| r.start_ns.saturating_add(r.length_ns));
    ends.max().unwrap_or(0).max(epoch.start_ns)
}

/// Samples per second and CPU, idle included, from the accounting rows; else from the totals.
fn rate_hz(profile: &Profile, main: EventIx, range: Option<&Range<u32>>, p: &Provenance) -> f64 {
    let name = &profile.event(main).name;
    let inside = |r: &&Rate| {
        let second = r.start_ns / 1_000_000_000;
        r.event == *name && range.is_none_or(|w| second >= w.start.into() && second < w.end.into())
    };
    let (delivered, ns) =
        profile.rates.iter().filter(inside).fold((0u64, 0u64), |(d, ns), r| (d + r.delivered, ns + r.length_ns));
    if ns > 0 {
        return delivered as f64 * 1e9 / ns as f64;
    }
    let cpu_seconds = p.seconds * f64::from(p.cpus);
    let all: u64 = profile.samples.iter().filter(|s| s.event == main).map(|s| u64::from(s.count)).sum();
    if cpu_seconds > 0.0 { all as f64 / cpu_seconds } else { 0.0 }
}

fn notes(selection: &Selection<'_>, p: &Provenance) -> Vec<String> {
    let profile = selection.profile;
    let mut notes = Vec::new();
    let main = p.events.first().map_or(0, |e| e.samples);
    if main < FEW_SAMPLES {
        notes.push(format!("only {main} samples: shares are rough guesses; record for longer or with a higher rate"));
    }
    let all: u64 = profile.samples.iter().filter(|s| s.event == selection.columns[0]).map(|s| u64::from(s.count)).sum();
    if main < all {
        let share = main as f64 / all as f64 * 100.0;
        notes.push(format!("the selection holds {share:.2} % of all samples; shares are of the selection"));
    }
    notes.extend(distinct(profile.epochs.iter().flat_map(|e| e.notes.iter().cloned())));
    notes
}

fn source_label(e: &EpochMeta) -> String {
    if !e.label.is_empty() {
        return e.label.clone();
    }
    match e.target.first() {
        Some(program) => program.clone(),
        None => format!("{} at {}", e.host, e.start_ns / 1_000_000_000),
    }
}

fn machine(e: &EpochMeta) -> String {
    match (e.cpu.is_empty(), e.kernel.is_empty()) {
        (false, false) => format!("{}, Linux {}", e.cpu, e.kernel),
        (false, true) => e.cpu.clone(),
        (true, false) => format!("Linux {}", e.kernel),
        (true, true) => String::new(),
    }
}

fn distinct(values: impl Iterator<Item = String>) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for v in values {
        if !v.is_empty() && !out.contains(&v) {
            out.push(v);
        }
    }
    out
}
