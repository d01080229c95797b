//! The results of this lens as plain values: what `report` prints as text, JSON and HTML. Field
//! names are the JSON schema (`whither.cycles/1`), so renaming one is a breaking change.

pub mod accuracy;
pub mod analysis;
pub mod runs;

use serde::Serialize;

/// What every answer says of its data: source, rate, losses, unknown share, cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Provenance {
    /// Recordings or epochs read, as paths or labels.
    pub sources: Vec<String>,
    /// Hosts.
    pub hosts: Vec<String>,
    /// CPU model and kernel of the first host.
    pub machine: String,
    /// Wall seconds covered.
    pub seconds: f64,
    /// CPUs.
    pub cpus: u32,
    /// What was sampled: whole system, a pid, a command.
    pub scope: String,
    /// One entry per event.
    pub events: Vec<EventTotals>,
    /// Samples of unknown image, by reason, in the main event.
    pub unknown: Vec<(String, u64)>,
    /// Share of unknown samples in the main event, 0 to 1.
    pub unknown_share: f64,
    /// Samples lost inside whither.
    pub dropped: u64,
    /// Samples the kernel skipped, estimated.
    pub skipped: u64,
    /// Side-band records lost.
    pub sideband_lost: u64,
    /// Samples with several possible images.
    pub ambiguous: u64,
    /// Stacks seen, of these truncated, and dropped.
    pub stacks: (u64, u64, u64),
    /// Measured share of CPU time the collector took, 0 to 1; `None` when not measured (imports).
    pub own_cost: Option<f64>,
    /// Mean samples per second and CPU.
    pub rate_hz: f64,
    /// Plain sentences: chosen event, missing rights, what would improve the answer.
    pub notes: Vec<String>,
}

/// Totals of one event.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EventTotals {
    /// Name.
    pub name: String,
    /// `ns` or `count`.
    pub unit: String,
    /// Samples in the selection (idle excluded).
    pub samples: u64,
    /// Sum of count x period.
    pub weight: u64,
    /// Samples taken in the idle task.
    pub idle: u64,
}

/// What one row of a listing is about; several parts for `--by a,b`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ListingRow {
    /// One label per grouping, in the order asked.
    pub labels: Vec<String>,
    /// Per event, in the order of `provenance.events`.
    pub cells: Vec<Cell>,
    /// Cumulative share of the first event, 0 to 1.
    pub cumulative: f64,
    /// Half width of the 95 % interval of the first event's share, 0 to 1 (sampling error).
    pub error: f64,
    /// Remark printed as a mark with a footnote (`irqs-off` pile-ups, `anon` code).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
}

/// Samples, weight and share of one event in one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// Samples.
    pub samples: u64,
    /// Sum of count x period.
    pub weight: u64,
    /// Share of the event's total weight, 0 to 1.
    pub share: f64,
}

/// Answer of `prof`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Listing {
    /// Where the figures come from.
    pub provenance: Provenance,
    /// Names of the groupings (`proc`, `image`, ...).
    pub by: Vec<String>,
    /// Rows, largest first.
    pub rows: Vec<ListingRow>,
    /// Rows left out by the limit, and their cells.
    pub rest: Option<(usize, Vec<Cell>)>,
    /// Filters in force, as the user wrote them.
    pub filters: Vec<String>,
}

/// One instruction of an annotated procedure.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct InsnRow {
    /// Address as the ELF file states it (objdump's).
    pub address: u64,
    /// Bytes of the instruction.
    pub length: u8,
    /// Disassembly, AT&T or Intel as asked; empty when code is missing.
    pub text: String,
    /// Skid-corrected samples per event (fractional: a sample may be split over predecessors).
    pub samples: Vec<f64>,
    /// Raw samples per event.
    pub raw: Vec<u64>,
    /// Share of the procedure's time in the first event, 0 to 1.
    pub share: f64,
    /// Source file index into [`Annotation::files`] and line, 0 when not known.
    pub line: Option<(u32, u32)>,
    /// Inlined function the instruction belongs to, when inlined.
    pub inlined: Option<String>,
    /// Index of the basic block.
    pub block: u32,
    /// Branch target inside the procedure, if any.
    pub target: Option<u64>,
    /// Retires together with the instruction above, which shows the samples of both.
    pub fused: bool,
}

/// One source line of an annotated procedure.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LineRow {
    /// Index into [`Annotation::files`].
    pub file: u32,
    /// Line.
    pub line: u32,
    /// Text, when the file was found.
    pub text: Option<String>,
    /// Samples per event, corrected.
    pub samples: Vec<f64>,
    /// Share of the procedure's time in the first event, 0 to 1.
    pub share: f64,
}

/// Answer of `annotate` for one procedure.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Annotation {
    /// Where the figures come from.
    pub provenance: Provenance,
    /// Demangled name.
    pub procedure: String,
    /// Image path.
    pub image: String,
    /// Image id in hex.
    pub image_id: String,
    /// First address and size in bytes.
    pub range: (u64, u64),
    /// First address and size in bytes of its cold parts elsewhere, which belong to everything below.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<(u64, u64)>,
    /// Samples per event in the procedure.
    pub cells: Vec<Cell>,
    /// Whether `samples` were moved to the instruction waited for, or are raw.
    pub corrected: bool,
    /// Source files mentioned.
    pub files: Vec<String>,
    /// Instructions, by address.
    pub insns: Vec<InsnRow>,
    /// Source lines with samples or between them, by file and line.
    pub lines: Vec<LineRow>,
    /// Plain sentences: no debug info, code missing, image changed since sampling...
    pub notes: Vec<String>,
}

/// Verdict on one row between two sets of recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Grew beyond chance.
    Slower,
    /// Shrank beyond chance.
    Faster,
    /// Within chance.
    Same,
    /// Only in the second.
    New,
    /// Only in the first.
    Gone,
}

/// One row of a difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiffRow {
    /// Procedure, or what else rows are about; several parts with two spaces between.
    pub label: String,
    /// Image, empty for groupings that span images.
    pub image: String,
    /// Share in A and B, 0 to 1 of the normalised total.
    pub share: (f64, f64),
    /// Weight in A and B after normalisation.
    pub weight: (f64, f64),
    /// Change of the share, 0 to 1 of A's total, with the half width of its 95 % interval.
    pub change: (f64, f64),
    /// Probability of such a change by chance, after correction for many comparisons.
    pub q: f64,
    /// Verdict.
    pub verdict: Verdict,
}

/// Answer of `diff`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Names of the groupings (`proc`, `image`, ...).
    pub by: Vec<String>,
    /// Of A.
    pub a: Provenance,
    /// Of B.
    pub b: Provenance,
    /// What the figures were normalised by (`run`, `total`, `wall`, or a unit).
    pub normalised: String,
    /// Rows, largest absolute change first.
    pub rows: Vec<DiffRow>,
    /// How the variance was obtained (`runs`, `slices`, `an assumption` of single runs, `poisson`), for the reader.
    pub variance: String,
    /// Variance over Poisson variance, 1 when counts are independent.
    pub dispersion: f64,
    /// Rows not shown because within chance.
    pub hidden: usize,
    /// Rows not shown because there are more than were asked for.
    pub cut: usize,
}

impl Difference {
    /// Keeps the largest changes.
    pub fn keep(&mut self, rows: usize) {
        self.cut += self.rows.len().saturating_sub(rows);
        self.rows.truncate(rows);
    }
}

/// Node of a call tree made from stacks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlameNode {
    /// Demangled function name.
    pub name: String,
    /// Image short name.
    pub image: String,
    /// Whether the frame is in the kernel.
    pub kernel: bool,
    /// Whether the frame was inlined.
    pub inlined: bool,
    /// Weight of stacks that end here.
    pub own: u64,
    /// Weight of stacks through here.
    pub total: u64,
    /// Callees, largest first.
    pub children: Vec<FlameNode>,
}

/// Answer of `prof --tree`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CallTree {
    /// Where the figures come from.
    pub provenance: Provenance,
    /// Event the weights are of.
    pub event: String,
    /// Filters in force, as the user wrote them.
    pub filters: Vec<String>,
    /// The root, whose total is the weight of all stacks that pass.
    pub tree: FlameNode,
}

/// A heat map over time: share of the main event by procedure and slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HeatMap {
    /// Slice starts, seconds since the Unix epoch.
    pub slices: Vec<u32>,
    /// Rows: label and weight per slice.
    pub rows: Vec<(String, Vec<u64>)>,
}
