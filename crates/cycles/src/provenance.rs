//! What every answer says of its data: sources, rates, losses, unknown share, the collector's cost,
//! and warnings where the data are too thin to mean much.

use crate::results::{EventTotals, Provenance};
use crate::selection::{Filter, Selection, slice_length};
use std::ops::Range;
use whither_store::model::{EpochMeta, EventIx, EventUnit, ImageKind, Losses, Profile, Rate, StackEnd};

/// Fewer samples than this are called too few: a share of 10 % is then uncertain by 6 points.
const FEW_SAMPLES: u64 = 100;

/// Describes a selection.
#[must_use]
pub fn provenance(selection: &Selection<'_>, filter: &Filter) -> Provenance {
    let profile = selection.profile;
    let losses = profile.losses();
    let range = filter.seconds.as_ref().map(|r| whole_slices(profile, r));
    let seconds = seconds_covered(profile, selection.columns[0], range.as_ref());
    let events: Vec<EventTotals> = totals(selection, range.as_ref());
    let lost = lost(profile, &losses, range.as_ref());
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
        dropped: lost.0,
        skipped: lost.1,
        sideband_lost: losses.sideband_lost,
        ambiguous: losses.ambiguous,
        stacks: stacks(selection, losses.stacks_dropped),
        own_cost: own_cost(&profile.epochs),
        rate_hz: 0.0,
        notes: Vec::new(),
        events,
    };
    out.rate_hz = rate_hz(profile, selection.columns[0], range.as_ref(), &out);
    out.notes = notes(selection, &out);
    out.notes.extend(coarse_time(filter.seconds.as_ref(), range.as_ref()));
    out
}

/// Samples dropped and skipped: of the range by the accounts where there are any, else of the whole.
fn lost(profile: &Profile, losses: &Losses, range: Option<&Range<u32>>) -> (u64, u64) {
    if range.is_none() || profile.rates.is_empty() {
        return (losses.dropped + losses.unwritten, losses.skipped);
    }
    let inside = profile.rates.iter().filter(|r| is_inside(r, range));
    let (dropped, skipped) = inside.fold((0, 0), |(dropped, skipped), r| (dropped + r.dropped, skipped + r.skipped));
    // Accounts are of whole CPUs; the loss of the whole is of the processes recorded.
    let all: u64 = profile.rates.iter().map(|r| r.skipped).sum();
    let part = if all == 0 { 0.0 } else { skipped as f64 / all as f64 };
    (losses.unwritten + dropped, (losses.skipped as f64 * part).round() as u64)
}

/// Whether an account begins in a range of seconds.
fn is_inside(rate: &Rate, range: Option<&Range<u32>>) -> bool {
    let second = rate.start_ns / NS;
    range.is_none_or(|w| second >= w.start.into() && second < w.end.into())
}

fn totals(selection: &Selection<'_>, range: Option<&Range<u32>>) -> Vec<EventTotals> {
    let profile = selection.profile;
    let mut out: Vec<EventTotals> = selection.columns.iter().map(|&e| empty_total(profile, e, range)).collect();
    for &row in &selection.rows {
        let s = selection.sample(row);
        let total = &mut out[selection.column(s.event).expect("selected rows have a column")];
        total.samples += u64::from(s.count);
        total.weight = total.weight.saturating_add(s.weight());
    }
    out
}

fn empty_total(profile: &Profile, event: EventIx, range: Option<&Range<u32>>) -> EventTotals {
    let event = profile.event(event);
    let alone = profile.events.len() == 1 && event.unit == EventUnit::Nanoseconds;
    let whole_cpus = alone && profile.epochs.iter().all(|e| e.backend == "bpf");
    let idle = rates_of(profile, &event.name)
        .filter(|r| is_inside(r, range))
        .map(|r| r.idle + if whole_cpus { slept_through(r) } else { 0 })
        .sum();
    let unit = match event.unit {
        EventUnit::Nanoseconds => "ns",
        EventUnit::Count => "count",
    };
    EventTotals { name: event.name.clone(), unit: unit.into(), samples: 0, weight: 0, idle }
}

/// Samples that an idle CPU slept through: what neither came nor is missed. Told by timers that tick for whoever runs.
fn slept_through(r: &Rate) -> u64 {
    let Some(expected) = r.length_ns.saturating_sub(r.steal_ns).checked_div(r.period) else { return 0 };
    expected.saturating_sub(r.delivered + r.skipped)
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

/// Of the main event: those of all events would be more than there are samples.
fn stacks(selection: &Selection<'_>, dropped: u64) -> (u64, u64, u64) {
    let profile = selection.profile;
    let (mut seen, mut truncated) = (0, 0);
    for s in profile.stack_samples.iter().filter(|s| selection.column(s.event) == Some(0)) {
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

/// Most of the time that sampling is taken to have taken.
const MOST_STOLEN: f64 = 0.5;

/// Share of the time of what was sampled in which it stood still for interrupts and walks: whither's own process ran beside it.
pub(crate) fn stolen_by_sampling(epochs: &[EpochMeta]) -> f64 {
    let length = |e: &EpochMeta| e.end_ns.saturating_sub(e.start_ns) as f64 * f64::from(e.cpus.max(1));
    let own_process = |e: &EpochMeta| e.cost.user_ns as f64 / length(e).max(1.0);
    let measured = epochs.iter().filter(|e| e.cost.share > 0.0);
    let (stolen, whole) = measured.fold((0.0, 0.0), |(stolen, whole), e| {
        (stolen + (e.cost.share - own_process(e)).max(0.0) * length(e), whole + length(e))
    });
    if whole > 0.0 { (stolen / whole).min(MOST_STOLEN) } else { 0.0 }
}

const NS: u64 = 1_000_000_000;

/// Wall seconds that were sampled, inside the range asked for: by the accounting where there is any,
/// as an epoch also holds the time to set up and to finish.
fn seconds_covered(profile: &Profile, main: EventIx, range: Option<&Range<u32>>) -> f64 {
    let (from, to) = range.map_or((0, u64::MAX), |r| (u64::from(r.start) * NS, u64::from(r.end) * NS));
    let rates = rates_of(profile, &profile.event(main).name);
    let mut spans: Vec<(u64, u64)> = rates.map(|r| (r.start_ns, r.start_ns.saturating_add(r.length_ns))).collect();
    if spans.is_empty() {
        spans = profile.epochs.iter().map(|e| (e.start_ns, e.end_ns)).collect();
    }
    spans.iter_mut().for_each(|s| *s = (s.0.max(from), s.1.min(to)));
    union(spans) as f64 / NS as f64
}

/// The slices that a range of time touches: samples are not told apart within them.
fn whole_slices(profile: &Profile, range: &Range<u32>) -> Range<u32> {
    let length = slice_length(profile);
    let end = range.end.checked_next_multiple_of(length).unwrap_or(u32::MAX);
    range.start - range.start % length..end
}

/// Says what was taken where that is more than what was asked for.
fn coarse_time(asked: Option<&Range<u32>>, taken: Option<&Range<u32>>) -> Option<String> {
    let (asked, taken) = (asked?, taken?);
    let open = |r: &Range<u32>| (r.start == 0, r.end == u32::MAX);
    let differ = asked.start != taken.start || (asked.end != taken.end && !open(asked).1);
    differ.then(|| {
        format!(
            "time is kept in slices (`record --slice`): counted is what fell into those of {}",
            describe_seconds(taken, open(asked).1)
        )
    })
}

/// `2026-11-20 21:40:05Z to 21:41:00Z`, with an open end where there is none.
pub(crate) fn describe_seconds(r: &Range<u32>, endless: bool) -> String {
    match (r.start, endless || r.end == u32::MAX) {
        (0, true) => "always".to_owned(),
        (0, false) => format!("until {}", utc(r.end.into())),
        (start, true) => format!("since {}", utc(start.into())),
        (start, false) => format!("{} to {}", utc(start.into()), utc(r.end.into())),
    }
}

/// Length of what at least one span covers.
fn union(mut spans: Vec<(u64, u64)>) -> u64 {
    spans.sort_unstable();
    let (mut covered, mut reached) = (0u64, 0u64);
    for (start, end) in spans {
        covered += end.saturating_sub(start.max(reached));
        reached = reached.max(end);
    }
    covered
}

/// CPU time that was sampled, seconds.
pub(crate) fn cpu_seconds(selection: &Selection<'_>, p: &Provenance) -> f64 {
    let name = &selection.profile.event(selection.columns[0]).name;
    let ns: u64 = rates_of(selection.profile, name).map(|r| r.length_ns).sum();
    if ns > 0 { ns as f64 / NS as f64 } else { p.seconds * f64::from(p.cpus.max(1)) }
}

/// Accounts of an event; of several events there is one, kept under the names of all, with what the first one met.
fn rates_of<'a>(profile: &'a Profile, name: &'a str) -> impl Iterator<Item = &'a Rate> {
    profile.rates.iter().filter(move |r| r.event.split('+').next() == Some(name))
}

/// Samples per second on a busy CPU. A timer's is told by its period, however long CPUs idled or ran what was not
/// sampled; that of a counter by the accounts, idle included, else by the totals.
fn rate_hz(profile: &Profile, main: EventIx, range: Option<&Range<u32>>, p: &Provenance) -> f64 {
    let event = profile.event(main);
    if event.unit == EventUnit::Nanoseconds {
        let samples = profile.samples.iter().filter(|s| s.event == main);
        let (n, ns) = samples.fold((0.0, 0.0), |(n, ns), s| (n + f64::from(s.count), ns + s.weight() as f64));
        return if ns > 0.0 { n * NS as f64 / ns } else { 0.0 };
    }
    let inside = |r: &&Rate| r.event == event.name && is_inside(r, range);
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
    notes.extend(few_note(main));
    let all: u64 = profile.samples.iter().filter(|s| s.event == selection.columns[0]).map(|s| u64::from(s.count)).sum();
    if main < all {
        let share = main as f64 / all as f64 * 100.0;
        notes.push(format!("the selection holds {share:.2} % of all samples; shares are of the selection"));
    }
    notes.extend(uneven_periods(selection));
    notes.extend(impossible_runs(profile));
    notes.extend(epoch_notes([profile]));
    notes
}

pub(crate) fn few_note(samples: u64) -> Option<String> {
    (samples < FEW_SAMPLES)
        .then(|| format!("only {samples} samples: shares are rough guesses; record for longer or with a higher rate"))
}

/// What the collector had to say, each sentence once.
pub(crate) fn epoch_notes<'a>(profiles: impl IntoIterator<Item = &'a Profile>) -> Vec<String> {
    let epochs = profiles.into_iter().flat_map(|p| &p.epochs);
    distinct(epochs.flat_map(|e| e.notes.iter().cloned()))
}

/// The CPU's branch records are wrong now and then.
fn impossible_runs(profile: &Profile) -> Option<String> {
    let impossible = profile.losses().impossible_runs;
    (impossible > 0).then(|| format!("{impossible} runs between branch records cannot have happened and were left out"))
}

/// Rows are sorted by weight; when periods differ that is another order than by samples.
fn uneven_periods(selection: &Selection<'_>) -> Option<String> {
    let samples = selection.rows.iter().map(|&r| selection.sample(r));
    let periods = samples.filter(|s| selection.column(s.event) == Some(0)).map(|s| s.period);
    let (least, most) = periods.fold((u64::MAX, 0), |(least, most), p| (least.min(p), most.max(p)));
    (most > least.saturating_add(least / 8)).then(|| {
        "the sampling rate changed meanwhile: shares weigh each sample by its period, so they do not follow the \
         numbers of samples"
            .to_owned()
    })
}

/// What a reader can tell epochs apart by: their label, else host, start and program.
fn source_label(e: &EpochMeta) -> String {
    if !e.label.is_empty() {
        return e.label.clone();
    }
    let when = utc(e.start_ns / NS);
    match e.target.first() {
        Some(program) => format!("{program} on {} at {when}", e.host),
        None => format!("{} at {when}", e.host),
    }
}

/// `2026-11-20 21:40:05Z` of seconds since the Unix epoch (proleptic Gregorian calendar, by eras of
/// 400 years that begin in March).
pub(crate) fn utc(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}Z", time / 3600, time / 60 % 60, time % 60)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sampling_took_of_the_target_is_its_cost_without_its_own_process() {
        let epoch = |share, user_ns| EpochMeta {
            end_ns: 1_000,
            cpus: 2,
            cost: whither_store::model::OwnCost { share, user_ns, ..Default::default() },
            ..EpochMeta::default()
        };
        let near = |epochs: &[EpochMeta], stolen: f64| {
            let told = stolen_by_sampling(epochs);
            assert!((told - stolen).abs() < 1e-9, "{told} {stolen}");
        };
        near(&[epoch(0.06, 20)], 0.05);
        near(&[epoch(0.06, 20), epoch(0.02, 0)], 0.035);
        near(&[epoch(0.9, 0)], MOST_STOLEN);
        near(&[epoch(0.0, 20)], 0.0);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00Z");
        assert_eq!(utc(1_795_210_752), "2026-11-20 21:39:12Z");
    }

    #[test]
    fn overlapping_spans_count_once() {
        assert_eq!(union(vec![(10, 20), (15, 30), (40, 50), (0, 5), (60, 55)]), 5 + 20 + 10);
        assert_eq!(union(vec![]), 0);
    }
}
