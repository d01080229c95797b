//! Results as plain text for a terminal or a file. Width and colour are told by the caller; nothing
//! here looks at a terminal.

mod accuracy;
mod analysis;
mod annotation;
mod bubbles;
mod calls;
mod calls_difference;
mod calls_losses;
mod calls_tree;
mod causal;
mod difference;
mod header;
mod listing;
mod number;
mod paths;
mod runs;
mod signs;
mod summary;
mod table;
mod tree;

pub use accuracy::accuracy;
pub(crate) use accuracy::{bin_labels, within};
pub use analysis::{Blocks, analysis};
pub(crate) use analysis::{basis, block_cpi, confidence, confidence_of, frequency, quotient};
pub use annotation::{AnnotationView, annotation};
pub(crate) use bubbles::{Length, bubble};
pub use calls::{CallColumn, FEW_NAMES, call_steps, calls, calls_header, calls_warnings, probed_part, since, some_are};
pub(crate) use calls::{beside, cost_share, cpu_total, is_timed, per_call, silent, total, uncounted, whole_time};
pub use calls_difference::calls_difference;
pub use calls_tree::{Least, call_tree};
pub(crate) use calls_tree::{own_part, part_of_all, weight, weightless};
pub use causal::{CausalView, causal, causal_header, causal_target, causal_warnings};
pub(crate) use causal::{
    SHARES, a_good_part_elsewhere, causal_place, drop_reason, effect, executor, hangs_on_load, has_shares_of_two_kinds,
    no_gain, signed,
};
pub use difference::difference;
pub use listing::listing;
pub(crate) use number::{cycles, executions};
pub use number::{duration, nanoseconds, percent, thousands};
pub use runs::run_statistics;
pub(crate) use runs::{amount, moved_cells, together_line};
pub(crate) use signs::is_absolute;
pub(crate) use signs::{at_least_of, at_most, count, count_of, probability, seen};
pub use summary::summary;
pub(crate) use summary::{SummaryLine, SummaryLineKind, summary_caveat, summary_cpi, summary_lines};
pub use tree::tree;

use table::Tone;

/// Whether to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Characters only.
    #[default]
    Plain,
    /// ANSI escape sequences.
    Ansi,
}

/// How answers are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Colours.
    pub style: Style,
    /// Characters per line; names are cut to fit.
    pub width: usize,
}

impl Default for Layout {
    /// No colours, 120 characters.
    fn default() -> Self {
        Self { style: Style::Plain, width: 120 }
    }
}

impl Style {
    fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Head => "1",
            Tone::Warm => "33",
            Tone::Hot => "31",
            Tone::Faint => "2",
        };
        match self {
            Self::Plain => text.to_owned(),
            Self::Ansi => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

/// Emphasis of a share of the whole.
fn tone_of(share: f64) -> Tone {
    if share >= 0.1 {
        Tone::Hot
    } else if share >= 0.02 {
        Tone::Warm
    } else {
        Tone::Plain
    }
}

/// What rows of a grouping are, by its name.
fn grouping(by: &str) -> &str {
    match by {
        "proc" => "procedure",
        "insn" => "instruction",
        other => other,
    }
}

#[cfg(test)]
mod tests;
