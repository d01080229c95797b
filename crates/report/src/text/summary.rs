//! Where the cycles went, as text: the lines of the paper's figure 4, a bar beside each: full for what a cause must be
//! guilty of, light for what it may be. Other than there the gain stands outside of the dynamic stalls, so that the lines
//! of a group add up to its subtotal, and the totals to everything.

use super::header::{header, notes, wrapped};
use super::number::{percent, thousands};
use super::table::{Tone, middle_cut};
use super::{Layout, tone_of};
use whither_cycles::results::analysis::{CauseRange, Summary};

/// Characters of a bar that stands for everything, where there is room; with less than the least there are none.
const BAR: usize = 40;
const LEAST_BAR: usize = 10;
/// Columns of names and of figures.
const NAME: usize = 36;
const FIGURE: usize = 16;
/// Procedures left out that are named.
const NAMED: usize = 8;

/// A summary with its head and notes.
#[must_use]
pub fn summary(s: &Summary, layout: &Layout) -> String {
    let mut out = header(&s.provenance, layout);
    let (procedures, share) = s.analysed;
    let plural = if procedures == 1 { "" } else { "s" };
    let told = format!("{procedures} procedure{plural} analysed, {} % of the samples selected", percent(share));
    out.push_str(&wrapped(&[middle_cut(&s.about, layout.width), told], layout));
    out.push_str(&causes(s, layout));
    let mut remarks: Vec<String> =
        s.left_out.iter().take(NAMED).map(|(p, why)| format!("left out {p}: {why}")).collect();
    if s.left_out.len() > NAMED {
        remarks.push(format!("{} more procedures were left out", s.left_out.len() - NAMED));
    }
    remarks.extend(s.notes.iter().cloned());
    out.push_str(&notes(&remarks, layout));
    out.push_str(&notes(&s.provenance.notes, layout));
    out
}

/// The figures alone.
pub(super) fn causes(s: &Summary, layout: &Layout) -> String {
    if s.causes.is_empty() {
        return String::new();
    }
    let mut out = summary_cpi(s).map_or("where the time goes".to_owned(), |cpi| format!("where the time goes: {cpi}"));
    out = layout.style.paint(Tone::Head, out.trim_end()) + "\n";
    for line in summary_lines(s) {
        out.push_str(&line.render(layout));
    }
    out + &notes(summary_caveat(s).as_slice(), layout)
}

/// `best-case 0.32 CPI, actual >~ 6.90 CPI`.
pub(crate) fn summary_cpi(s: &Summary) -> Option<String> {
    let (best, actual) = s.best_cpi.zip(s.cpi)?;
    let sign = if s.bounded { ">~ " } else { "" };
    Some(format!("best-case {best:.2} CPI, actual {sign}{actual:.2} CPI"))
}

/// One line of the figure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SummaryLine {
    pub(crate) letter: char,
    pub(crate) name: String,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) kind: SummaryLineKind,
    pub(crate) remark: String,
}

/// What a line stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SummaryLineKind {
    /// One cause.
    Cause,
    /// A sum.
    Total,
}

/// Instructions whose causes are not named, and causes that never are, are told from this share of the time on.
const TOLD: f64 = 0.005;

/// The lines: groups with their subtotals, then what adds up to everything.
pub(crate) fn summary_lines(s: &Summary) -> Vec<SummaryLine> {
    const KIND: SummaryLineKind = SummaryLineKind::Cause;
    let range = |c: &CauseRange| if s.bounded && c.cause.is_static() { (0.0, c.max) } else { (c.min, c.max) };
    let cause = |c: &CauseRange| SummaryLine { letter: c.cause.letter(), ..line(c.cause.name(), range(c), KIND) };
    let mut out: Vec<SummaryLine> = s.causes.iter().filter(|c| !c.cause.is_static()).map(cause).collect();
    out.push(line("unexplained stall", (s.unexplained_stall, s.unexplained_stall), KIND));
    if s.unjudged >= TOLD {
        out.push(line("few samples each, not named", (0.0, s.unjudged), KIND));
    }
    if s.unlikely >= TOLD {
        out.push(line("unlikely causes, not named", (0.0, s.unlikely), KIND));
    }
    out.push(line("subtotal dynamic", s.dynamic_range, SummaryLineKind::Total));
    out.extend(s.causes.iter().filter(|c| c.cause.is_static()).map(cause));
    out.push(line("subtotal static", s.static_range, SummaryLineKind::Total));
    out.extend(if s.bounded { bounded_totals(s) } else { totals(s) });
    if let Some(last) = out.last_mut() {
        last.remark = tallied_of(s);
    }
    out
}

fn line(name: &str, (min, max): (f64, f64), kind: SummaryLineKind) -> SummaryLine {
    SummaryLine { letter: ' ', name: name.into(), min, max, kind, remark: String::new() }
}

fn totals(s: &Summary) -> Vec<SummaryLine> {
    let gain = s.unexplained_gain.abs();
    let stall = s.dynamic + s.static_stall;
    let parts = [
        ("total stall", stall),
        ("execution", s.execution),
        ("unexplained gain", -gain),
        ("net sampling error", s.sampling_error),
        ("total tallied", stall + s.execution + s.sampling_error - gain),
    ];
    parts.map(|(name, share)| line(name, (share, share), SummaryLineKind::Total)).into()
}

/// Of bounded executions: what is left of the time are stalls. There is no gain and no error, which would be about the
/// bound and not the program.
fn bounded_totals(s: &Summary) -> Vec<SummaryLine> {
    let (least, most) = s.execution_range;
    let share = |x: f64| x.clamp(0.0, 1.0);
    let parts = [
        ("total stall", (share(1.0 - most), share(1.0 - least))),
        ("execution", (share(least), share(most))),
        ("total tallied", (1.0, 1.0)),
    ];
    parts.map(|(name, range)| line(name, range, SummaryLineKind::Total)).into()
}

fn tallied_of(s: &Summary) -> String {
    let samples = format!("{} samples", thousands(whole(s.samples)));
    if s.analysed.0 > 0 { format!("{samples}, {} % of those selected", percent(s.analysed.1)) } else { samples }
}

/// Said when instructions are faster than the model allows so often that its causes mean little.
pub(crate) fn summary_caveat(s: &Summary) -> Option<String> {
    const TOLERABLE: f64 = 0.1;
    let gain = s.unexplained_gain.abs();
    (gain > TOLERABLE).then(|| {
        format!(
            "the figures do not fit one another: instructions are faster than at best by {} % of the time in all (too few \
             samples, executions estimated too high, or a model of another processor); read the causes with care",
            percent(gain)
        )
    })
}

fn whole(samples: f64) -> u64 {
    samples.round().max(0.0) as u64
}

impl SummaryLine {
    /// `27.9 .. 44.8 %`, or one figure.
    pub(crate) fn range(&self) -> String {
        let figure = |share: f64| if share.is_finite() { format!("{:.1}", share * 100.0 + 0.0) } else { "?".into() };
        let (low, high) = (figure(self.min), figure(self.max));
        if low == high { format!("{high} %") } else { format!("{low} .. {high} %") }
    }

    fn render(&self, layout: &Layout) -> String {
        let indent = if self.kind == SummaryLineKind::Cause { "    " } else { "  " };
        let name = NAME.min(layout.width.saturating_sub(FIGURE));
        let label = middle_cut(&format!("{indent}{} {}", self.letter, self.name), name);
        let room = layout.width.saturating_sub(name + FIGURE + 2);
        let mut line = format!("{label:<name$}{:>FIGURE$}", self.range());
        if !self.remark.is_empty() {
            let fits = self.remark.chars().count() <= room;
            line.push_str(if fits { "  " } else { "\n    " });
            line.push_str(&self.remark);
        } else if room >= LEAST_BAR {
            line.push_str("  ");
            line.push_str(&bar(self.min, self.max, room.min(BAR)));
        }
        let tone = match self.kind {
            SummaryLineKind::Total => Tone::Plain,
            SummaryLineKind::Cause => tone_of(self.max),
        };
        layout.style.paint(tone, line.trim_end()) + "\n"
    }
}

/// Full up to the least, light up to the most.
fn bar(min: f64, max: f64, whole: usize) -> String {
    let length =
        |share: f64| if share.is_finite() { (share.clamp(0.0, 1.0) * whole as f64).round() as usize } else { 0 };
    let (full, all) = (length(min), length(max).max(length(min)));
    "█".repeat(full) + &"░".repeat(all - full)
}
