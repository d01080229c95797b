//! Flags of the verbs of instruction-level analysis: `annotate`, `summary`, `cfg`, `stats`, `accuracy`. Sources, names and
//! filters are the words of the other answering verbs.

use super::ask::{FilterArgs, FormArgs, NameArgs, SourceArgs};
use crate::units;
use clap::Args;
use std::path::PathBuf;
use whither_cycles::RunsPer;

/// What `annotate` lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// Source lines
    Source,
    /// Assembly
    Asm,
    /// Assembly with source lines between
    Both,
}

/// Flags of `whither annotate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    whither annotate sqlite3VdbeExec             a procedure by name\n  \
    whither annotate 'libc.so.6!mem.*'           by image and pattern\n  \
    whither annotate sqlite3.c:1200 run.wh       by source line, in another recording\n  \
    whither annotate --plain                     samples only, without frequencies and causes")]
pub(crate) struct AnnotateArgs {
    /// PROC, FILE:LINE or IMAGE!PATTERN [default: the hottest procedure]
    #[arg(value_name = "PROCEDURE")]
    pub(crate) target: Option<String>,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Source lines only
    #[arg(long = "source", conflicts_with_all = ["assembly", "both"])]
    pub(crate) lines: bool,
    /// Assembly only
    #[arg(long = "asm", conflicts_with = "both")]
    pub(crate) assembly: bool,
    /// Assembly with source lines between (the default where lines are known)
    #[arg(long)]
    pub(crate) both: bool,
    /// Samples only: no frequencies, cycles and causes
    #[arg(long)]
    pub(crate) plain: bool,
    /// Samples as delivered, not moved to the instruction waited for; implies --plain
    #[arg(long)]
    pub(crate) raw: bool,
    /// Only this basic block, by its number in the listing
    #[arg(long, value_name = "N", conflicts_with_all = ["all", "plain", "raw", "lines"], value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) block: Option<u32>,
    /// Cold blocks too
    #[arg(long)]
    pub(crate) all: bool,
    /// Best cases of each block by llvm-mca too, where it is installed
    #[arg(long, conflicts_with_all = ["plain", "raw", "lines"])]
    pub(crate) mca: bool,
    /// AT&T syntax, as objdump and gcc print it (the default)
    #[arg(long, conflicts_with = "intel")]
    pub(crate) att: bool,
    /// Intel syntax
    #[arg(long)]
    pub(crate) intel: bool,
    /// Events to show, or `all`; the first is analysed
    #[arg(short, long, value_name = "EVENT", value_delimiter = ',', default_value = "all")]
    pub(crate) event: Vec<String>,
    #[command(flatten)]
    pub(crate) scale: ScaleArgs,
    #[command(flatten)]
    pub(crate) core: CoreArgs,
    #[command(flatten)]
    pub(crate) form: FormArgs,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

impl AnnotateArgs {
    /// Which listing was asked for.
    pub(crate) fn view(&self) -> View {
        match (self.lines, self.assembly) {
            (true, _) => View::Source,
            (_, true) => View::Asm,
            _ => View::Both,
        }
    }

    /// Whether only counts are wanted.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain || self.raw || self.lines
    }
}

/// How often the procedure was called.
#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    /// How often the procedure was called while recorded, where that is known (`whither calls` counts it): executions and
    /// cycles are then told as such, not bounded
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) calls: Option<f64>,
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|n| *n > 0.0 && n.is_finite());
    number.ok_or_else(|| format!("`{text}` is no number above 0"))
}

/// The processor model.
#[derive(Debug, Args)]
pub(crate) struct CoreArgs {
    /// Processor model: latencies and widths in TOML [default: what the recording measured of its core]
    #[arg(long = "core", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// Flags of `whither summary`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    whither summary                   everything sampled\n  \
    whither summary libc.so.6         an image\n  \
    whither summary smooth_ run.wh    a procedure")]
pub(crate) struct SummaryArgs {
    /// A procedure as for `annotate`, an image by path or file name, or `all` [default: all]
    #[arg(value_name = "PROCEDURE|IMAGE")]
    pub(crate) target: Option<String>,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) core: CoreArgs,
    /// Event [default: the first]
    #[arg(short, long, value_name = "EVENT")]
    pub(crate) event: Option<String>,
    #[command(flatten)]
    pub(crate) form: FormArgs,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// Flags of `whither cfg`.
#[derive(Debug, Args)]
#[command(
    after_help = "The file's ending chooses the form: .svg a picture, .html a page with the listing beside it, .dot for \
    Graphviz."
)]
pub(crate) struct CfgArgs {
    /// PROC, FILE:LINE or IMAGE!PATTERN [default: the hottest procedure]
    #[arg(value_name = "PROCEDURE")]
    pub(crate) target: Option<String>,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// File to write: .svg, .html or .dot
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Event [default: the first]
    #[arg(short, long, value_name = "EVENT")]
    pub(crate) event: Option<String>,
    #[command(flatten)]
    pub(crate) scale: ScaleArgs,
    #[command(flatten)]
    pub(crate) core: CoreArgs,
    /// Intel syntax
    #[arg(long)]
    pub(crate) intel: bool,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// What the figures of each run are set against.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EachPer(pub(crate) RunsPer);

impl std::str::FromStr for EachPer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => return Ok(Self(RunsPer::Nothing)),
            "total" => return Ok(Self(RunsPer::Total)),
            "wall" => return Ok(Self(RunsPer::Wall)),
            _ => {}
        }
        let number = |t: &str| t.trim().parse::<f64>().ok().filter(|n| *n > 0.0 && n.is_finite());
        let units: Option<Vec<f64>> = text.split(',').map(number).collect();
        units.map(|u| Self(RunsPer::Units(u))).ok_or_else(|| {
            format!("`{text}` is no unit; write none, total, wall, or the work done in each run as 1200,1350,1198")
        })
    }
}

/// Flags of `whither stats`.
#[derive(Debug, Args)]
#[command(after_help = "Each recording is a run, and each epoch of a database:\n  \
    whither stats run1.wh run2.wh run3.wh run4.wh\n  \
    whither stats --db DIR --epoch last-7..last --explain smooth_")]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Set each run against nothing (`none`), its `total`, its time (`wall`), or the work done in each (`1200,1350`)
    #[arg(long, value_name = "UNIT", default_value = "none")]
    pub(crate) per: EachPer,
    /// Leave out procedures below this share of everything
    #[arg(long, value_name = "SHARE", value_parser = units::share_or_none, default_value = "0.5%")]
    pub(crate) least: f64,
    /// Put the slowest and the fastest run of this procedure side by side: which causes differ
    #[arg(long, value_name = "PROCEDURE")]
    pub(crate) explain: Option<String>,
    /// Rows shown
    #[arg(short = 'n', long, value_name = "N", default_value_t = 30)]
    pub(crate) limit: usize,
    /// All rows
    #[arg(long, conflicts_with = "limit")]
    pub(crate) all: bool,
    /// Event compared [default: the first of the recordings]
    #[arg(short, long, value_name = "EVENT")]
    pub(crate) event: Option<String>,
    #[command(flatten)]
    pub(crate) form: FormArgs,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// Flags of `whither accuracy`.
#[derive(Debug, Args)]
#[command(after_help = "Count the same program with the same input exactly, then compare:\n  \
    valgrind --tool=callgrind --dump-instr=yes --collect-jumps=yes --callgrind-out-file=exact.out PROGRAM\n  \
    whither accuracy --exact exact.out run.wh")]
pub(crate) struct AccuracyArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Exact counts: the output of callgrind with --dump-instr=yes --collect-jumps=yes
    #[arg(long, value_name = "FILE")]
    pub(crate) exact: PathBuf,
    /// Event [default: the first]
    #[arg(short, long, value_name = "EVENT")]
    pub(crate) event: Option<String>,
    /// Procedures listed
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) form: FormArgs,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_runs() {
        assert_eq!("total".parse(), Ok(EachPer(RunsPer::Total)));
        assert_eq!("1200, 1350,9".parse(), Ok(EachPer(RunsPer::Units(vec![1200.0, 1350.0, 9.0]))));
        for text in ["", "a,b", "1,0", "1,inf", "1,,2"] {
            text.parse::<EachPer>().expect_err(text);
        }
    }
}
