//! What stands above and below every answer: events, rate, unknown share, losses, cost, notes.

use super::Layout;
use super::number::{duration, percent, thousands};
use super::table::Tone;
use whither_cycles::results::{EventTotals, Provenance};

/// Lines above a table.
pub(super) fn header(p: &Provenance, layout: &Layout) -> String {
    let mut items: Vec<String> = Vec::new();
    for (i, e) in p.events.iter().enumerate() {
        items.push(event(e, (i == 0).then_some(p)));
    }
    items.push(unknown(p));
    items.push(lost(p));
    items.push(match p.own_cost {
        Some(share) => format!("own cost {} %", percent(share)),
        None => "own cost not measured".into(),
    });
    if p.stacks.0 > 0 {
        items.push(stacks(p.stacks));
    }
    wrapped(&items, layout)
}

/// Lines below a table: one paragraph per note.
pub(super) fn notes(notes: &[String], layout: &Layout) -> String {
    notes.iter().map(|n| layout.style.paint(Tone::Faint, filled("note: ", n, layout).trim_end()) + "\n").collect()
}

/// Text broken between words, further lines indented as far as the first one's label reaches.
pub(super) fn filled(label: &str, text: &str, layout: &Layout) -> String {
    let indent = label.chars().count();
    let mut out = String::from(label);
    let mut column = indent;
    for (i, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if i > 0 && column + 1 + length > layout.width {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if i > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
    out
}

fn event(e: &EventTotals, main: Option<&Provenance>) -> String {
    let samples = format!("{} {} samples", e.name, thousands(e.samples));
    match main {
        None => samples,
        Some(p) => format!("{samples} ({})", sampling(e, p)),
    }
}

/// `5,200 Hz per CPU, 2 CPUs, 586 s, 12,000 more idle`.
fn sampling(e: &EventTotals, p: &Provenance) -> String {
    let mut parts = Vec::new();
    if p.rate_hz > 0.0 {
        parts.push(format!("{} Hz per CPU", thousands(p.rate_hz.round() as u64)));
    }
    if p.cpus > 0 {
        parts.push(format!("{} CPU{}", p.cpus, if p.cpus == 1 { "" } else { "s" }));
    }
    parts.push(duration(p.seconds));
    if e.idle > 0 {
        parts.push(format!("{} more idle", thousands(e.idle)));
    }
    parts.join(", ")
}

fn unknown(p: &Provenance) -> String {
    let mut text = format!("unknown {} %", percent(p.unknown_share));
    if !p.unknown.is_empty() {
        let reasons: Vec<String> = p.unknown.iter().map(|(why, n)| format!("{why}: {}", thousands(*n))).collect();
        text.push_str(&format!(" ({})", reasons.join(", ")));
    }
    text
}

fn lost(p: &Provenance) -> String {
    let mut text = format!("lost {}", thousands(p.dropped));
    let main = p.events.first().map_or(0, |e| e.samples);
    if p.dropped > 0 && main > 0 {
        let share = p.dropped as f64 / (main + p.dropped) as f64;
        text.push_str(&format!(" ({} %)", percent(share)));
    }
    let others =
        [("skipped by the kernel", p.skipped), ("side-band records lost", p.sideband_lost), ("ambiguous", p.ambiguous)];
    for (what, n) in others.into_iter().filter(|(_, n)| *n > 0) {
        text.push_str(&format!(", {} {what}", thousands(n)));
    }
    text
}

fn stacks((seen, truncated, dropped): (u64, u64, u64)) -> String {
    let share = truncated as f64 / seen as f64;
    let mut text = format!("stacks {}, {} % cut short", thousands(seen), percent(share));
    if dropped > 0 {
        text.push_str(&format!(", {} dropped", thousands(dropped)));
    }
    text
}

/// Items three spaces apart, broken between items; one that is longer than a line is broken between words.
pub(super) fn wrapped(items: &[String], layout: &Layout) -> String {
    let mut lines: Vec<String> = Vec::new();
    for item in items {
        if item.chars().count() > layout.width {
            lines.extend(filled("", item, layout).lines().map(str::to_owned));
            continue;
        }
        match lines.last_mut() {
            Some(line) if line.chars().count() + 3 + item.chars().count() <= layout.width => {
                line.push_str("   ");
                line.push_str(item);
            }
            _ => lines.push(item.clone()),
        }
    }
    lines.iter().map(|l| layout.style.paint(Tone::Head, l) + "\n").collect()
}
