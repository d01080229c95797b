//! The head of the page: what was sampled and how well, as tiles; then the remarks and losses that
//! a reader must know before believing any figure below.

use super::escape::{Text, put};
use super::number::{duration, fine_percent, grouped, weight};
use whither_cycles::results::{EventTotals, Provenance};

/// How a tile is coloured: whether its figure should make the reader careful.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Warn,
    Bad,
}

impl Tone {
    /// By two limits on a share: below `warn` is good, at `bad` or above is bad.
    pub(super) fn by(share: f64, warn: f64, bad: f64) -> Self {
        if share >= bad {
            Self::Bad
        } else if share >= warn {
            Self::Warn
        } else {
            Self::Good
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Plain => "tile",
            Self::Good => "tile good",
            Self::Warn => "tile warn",
            Self::Bad => "tile bad",
        }
    }
}

/// A tile with a longer detail than this takes two columns.
const WIDE: usize = 90;

pub(super) struct Tile {
    pub(super) label: &'static str,
    pub(super) figure: String,
    pub(super) detail: String,
    pub(super) tone: Tone,
}

pub(super) fn section(out: &mut String, p: &Provenance) {
    out.push_str("<section id=\"summary\" aria-label=\"Summary\">");
    scope_line(out, p);
    put_tiles(out, &tiles(p));
    remarks(out, p);
    if p.events.len() > 1 {
        events_table(out, &p.events);
    }
    sources(out, p);
    out.push_str("</section>");
}

pub(super) fn put_tiles(out: &mut String, tiles: &[Tile]) {
    out.push_str("<dl class=\"tiles\">");
    for t in tiles {
        put!(
            out,
            "<div class=\"{}{}\"><dt>{}</dt><dd>{}<small>{}</small></dd></div>",
            t.tone.class(),
            if t.detail.len() > WIDE { " wide" } else { "" },
            t.label,
            Text(&t.figure),
            Text(&t.detail)
        );
    }
    out.push_str("</dl>");
}

fn scope_line(out: &mut String, p: &Provenance) {
    let mut parts = Vec::new();
    for part in [p.scope.clone(), p.hosts.join(", "), p.machine.clone()] {
        if !part.is_empty() {
            parts.push(part);
        }
    }
    if !parts.is_empty() {
        put!(out, "<p class=\"scope\">{}</p>", Text(&parts.join(" \u{b7} ")));
    }
}

fn tiles(p: &Provenance) -> Vec<Tile> {
    let mut tiles = Vec::new();
    if let Some(e) = p.events.first() {
        tiles.push(samples_tile(e));
        tiles.push(event_tile(e, p));
    }
    tiles.push(time_tile(p));
    tiles.push(unknown_tile(p));
    tiles.push(lost_tile(p));
    tiles.push(cost_tile(p));
    if p.stacks.0 > 0 {
        tiles.push(stacks_tile(p));
    }
    tiles
}

fn samples_tile(e: &EventTotals) -> Tile {
    let idle = if e.idle > 0 { format!(", and {} idle", grouped(e.idle)) } else { String::new() };
    let tone = if e.samples < 1000 { Tone::Warn } else { Tone::Plain };
    let few = if e.samples < 1000 { "; few, so mind the \u{b1}" } else { "" };
    Tile {
        label: "Samples",
        figure: grouped(e.samples),
        detail: format!("{}{idle}{few}", weight(e.weight, &e.unit)),
        tone,
    }
}

/// With the sentence on the choice of the event when the notes have one.
fn event_tile(e: &EventTotals, p: &Provenance) -> Tile {
    let unit = if e.unit == "ns" { "CPU time, by timer" } else { "occurrences counted" };
    let detail = reason(p).map_or_else(|| unit.to_owned(), Clone::clone);
    Tile { label: "Event", figure: e.name.clone(), detail, tone: Tone::Plain }
}

/// The note that tells why this event was taken.
fn reason(p: &Provenance) -> Option<&String> {
    let name = &p.events.first().filter(|e| !e.name.is_empty())?.name;
    p.notes.iter().find(|n| n.contains(name.as_str()))
}

fn time_tile(p: &Provenance) -> Tile {
    let rate =
        if p.rate_hz > 0.0 { format!("{:.0} Hz per CPU on average", p.rate_hz) } else { "rate not known".into() };
    Tile {
        label: "Covered",
        figure: duration(p.seconds),
        detail: format!("{} CPU{}, {rate}", p.cpus, if p.cpus == 1 { "" } else { "s" }),
        tone: Tone::Plain,
    }
}

fn unknown_tile(p: &Provenance) -> Tile {
    let total: u64 = p.unknown.iter().map(|(_, n)| n).sum();
    let mut detail = format!("{} sample{}", grouped(total), if total == 1 { "" } else { "s" });
    if let Some((reason, _)) = p.unknown.iter().max_by_key(|(_, n)| n).filter(|(_, n)| *n > 0) {
        detail += &format!(", mostly: {reason}");
    }
    Tile {
        label: "Unknown image",
        figure: format!("{}\u{2009}%", fine_percent(p.unknown_share)),
        detail,
        tone: Tone::by(p.unknown_share, 0.0005, 0.01),
    }
}

fn lost_tile(p: &Provenance) -> Tile {
    let lost = p.dropped.saturating_add(p.skipped);
    let kept: u64 = p.events.iter().map(|e| e.samples.saturating_add(e.idle)).sum();
    #[allow(clippy::cast_precision_loss)] // a share for colour and four digits
    let share = if lost == 0 { 0.0 } else { lost as f64 / (lost.saturating_add(kept)) as f64 };
    Tile {
        label: "Lost",
        figure: grouped(lost),
        detail: format!(
            "{}\u{2009}%: {} dropped by whither, {} skipped by the kernel (estimate)",
            fine_percent(share),
            grouped(p.dropped),
            grouped(p.skipped)
        ),
        tone: Tone::by(share, 0.001, 0.02),
    }
}

fn cost_tile(p: &Provenance) -> Tile {
    let (figure, detail, tone) = match p.own_cost {
        Some(c) => (
            format!("{}\u{2009}%", fine_percent(c)),
            "of CPU time, interrupts included, measured".to_owned(),
            Tone::by(c, 0.02, 0.1),
        ),
        None => ("not measured".into(), "imported, or too short to measure".into(), Tone::Plain),
    };
    Tile { label: "Own cost", figure, detail, tone }
}

fn stacks_tile(p: &Provenance) -> Tile {
    let (seen, cut, dropped) = p.stacks;
    #[allow(clippy::cast_precision_loss)] // a share for colour
    let bad = (cut.saturating_add(dropped)) as f64 / (seen.saturating_add(dropped)) as f64;
    Tile {
        label: "Stacks",
        figure: grouped(seen),
        detail: format!("{} cut short, {} dropped", grouped(cut), grouped(dropped)),
        tone: Tone::by(bad, 0.05, 0.3),
    }
}

fn remarks(out: &mut String, p: &Provenance) {
    let mut list: Vec<(&str, String)> = Vec::new();
    for (reason, n) in p.unknown.iter().filter(|(_, n)| *n > 0) {
        list.push(("warn", format!("Unknown: {} samples, {reason}", grouped(*n))));
    }
    let losses = [
        (p.dropped, "samples dropped by whither, whose tables were full: a lower --rate drops fewer"),
        (p.skipped, "samples the kernel skipped (late timers, throttling), an estimate"),
        (p.sideband_lost, "records of mappings lost: some samples may carry a wrong or unknown image"),
        (p.ambiguous, "samples with several possible images at their address"),
    ];
    for (n, what) in losses.into_iter().filter(|(n, _)| *n > 0) {
        list.push(("warn", format!("{} {what}", grouped(n))));
    }
    let told = reason(p);
    list.extend(p.notes.iter().filter(|n| Some(*n) != told).map(|n| ("note", n.clone())));
    put_remarks(out, &list);
}

/// A list of sentences, each with its class (`warn`, `note`).
pub(super) fn put_remarks(out: &mut String, list: &[(&str, String)]) {
    if list.is_empty() {
        return;
    }
    out.push_str("<ul class=\"remarks\" aria-label=\"Remarks and losses\">");
    for (class, text) in list {
        put!(out, "<li class=\"{class}\">{}</li>", Text(text));
    }
    out.push_str("</ul>");
}

fn events_table(out: &mut String, events: &[EventTotals]) {
    out.push_str(
        "<div class=\"scroll\"><table class=\"grid narrow\"><caption class=\"sr\">Events</caption><thead><tr>\
         <th scope=\"col\">Event</th><th scope=\"col\" class=\"n\">Samples</th>\
         <th scope=\"col\" class=\"n\">Amount</th><th scope=\"col\" class=\"n\">Idle samples</th></tr></thead><tbody>",
    );
    for e in events {
        put!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            Text(&e.name),
            grouped(e.samples),
            weight(e.weight, &e.unit),
            grouped(e.idle)
        );
    }
    out.push_str("</tbody></table></div>");
}

fn sources(out: &mut String, p: &Provenance) {
    if p.sources.is_empty() {
        return;
    }
    let many = p.sources.len();
    put!(out, "<details class=\"sources\"><summary>{many} source{}</summary><ul>", if many == 1 { "" } else { "s" });
    for s in &p.sources {
        put!(out, "<li><code>{}</code></li>", Text(s));
    }
    out.push_str("</ul></details>");
}
