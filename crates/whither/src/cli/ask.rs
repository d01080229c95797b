//! Flags of the verbs that answer from a recording or database: `prof`, `topcounts`, `diff`, `top`,
//! `report`, `export`. Filters and sources are the same words for all of them.

use super::collect::SamplingArgs;
use crate::units;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::path::PathBuf;
use std::time::Duration;
use whither_cycles::{By, Normalise};
use whither_report::exports::Format;
use whither_report::exports::flows::FlowFormat;

/// Where the samples come from.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SourceArgs {
    /// Recordings or databases, merged [default: whither.wh here, else the database]
    #[arg(value_name = "RECORDING")]
    pub(crate) recordings: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) db: DbSource,
    /// Exit with status 4 when samples were lost or parts could not be read
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Where names, lines and source text come from.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Names and source")]
pub(crate) struct NameArgs {
    /// Look for debug files below this directory too (like /usr/lib/debug)
    #[arg(long, value_name = "DIR")]
    pub(crate) debug_dir: Vec<PathBuf>,
    /// Source paths that begin with FROM begin with TO here
    #[arg(long, value_name = "FROM=TO", value_parser = prefix_pair)]
    pub(crate) source_map: Vec<(String, String)>,
    /// Ask the servers in DEBUGINFOD_URLS for what is not on this machine
    #[arg(long)]
    pub(crate) debuginfod: bool,
}

fn prefix_pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(from, _)| !from.is_empty());
    pair.map(|(from, to)| (from.to_owned(), to.to_owned()))
        .ok_or_else(|| "write FROM=TO, for example /build/src=/home/me/src".into())
}

/// A database as source.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DbSource {
    /// Read this profile database
    #[arg(long, value_name = "DIR")]
    pub(crate) db: Option<PathBuf>,
    /// Only these epochs: `last`, `last-N`, a label, a date, a name from `epochs list`, `A..B`, or several with commas
    #[arg(long, value_name = "EPOCHS")]
    pub(crate) epoch: Option<String>,
    /// Only these hosts of a shared database
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub(crate) host: Vec<String>,
}

/// In which form the answer is given.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FormArgs {
    /// Answer as JSON
    #[arg(long, conflicts_with = "html")]
    pub(crate) json: bool,
    /// Write the answer as a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// Which samples count.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct FilterArgs {
    /// Only images whose path or file name matches: text, a glob, or /REGEX/
    #[arg(long, value_name = "PATTERN")]
    pub(crate) image: Vec<String>,
    /// Only procedures whose name matches
    #[arg(long = "proc", value_name = "PATTERN")]
    pub(crate) procedure: Vec<String>,
    /// Only processes: a pid, or a pattern on command name or executable
    #[arg(long, value_name = "PID|PATTERN")]
    pub(crate) process: Vec<String>,
    /// Only threads: a thread id, or a pattern on their names (recorded with --threads)
    #[arg(long, value_name = "TID|PATTERN")]
    pub(crate) thread: Vec<String>,
    /// Only cgroups whose path matches
    #[arg(long, value_name = "PATTERN")]
    pub(crate) cgroup: Vec<String>,
    /// Only the kernel
    #[arg(long, conflicts_with = "user")]
    pub(crate) kernel: bool,
    /// Only user space
    #[arg(long)]
    pub(crate) user: bool,
    /// Only from this moment: after the start (`90s`), a time (`2026-11-23 08:10:00Z`), or a Unix time (`@1760000000`)
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<Moment>,
    /// Only before this moment
    #[arg(long, value_name = "WHEN")]
    pub(crate) until: Option<Moment>,
}

/// A moment of a recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Moment {
    /// After the first epoch's start.
    AfterStart(Duration),
    /// Seconds since the Unix epoch.
    Unix(u64),
}

impl std::str::FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix('@') {
            Some(unix) => {
                unix.parse().map(Self::Unix).map_err(|_| format!("`{text}`: after @ comes a whole number of seconds"))
            }
            None if text == "0" || text == "0s" => Ok(Self::AfterStart(Duration::ZERO)),
            None if text.contains('-') => units::utc(text).map(Self::Unix),
            None => units::duration(text).map(Self::AfterStart),
        }
    }
}

/// Groupings by the names the lens gives them, so that a new one needs no change here.
fn by_parser() -> impl TypedValueParser<Value = By> {
    PossibleValuesParser::new(By::NAMES).try_map(|name| name.parse::<By>())
}

/// Flags of `whither prof`.
#[derive(Debug, Args)]
pub(crate) struct ProfArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// What a row is about; several for combinations (`process,proc`)
    #[arg(long, value_parser = by_parser(), value_delimiter = ',', default_value = "proc")]
    pub(crate) by: Vec<By>,
    /// Columns: event names, or `all`
    #[arg(short, long, value_name = "EVENT", value_delimiter = ',', default_value = "all")]
    pub(crate) event: Vec<String>,
    /// Call tree of the recorded stacks; image and procedure filters keep stacks with a match anywhere
    #[arg(long, conflicts_with = "by")]
    pub(crate) tree: bool,
    /// Branches of the tree below this share are summed up
    #[arg(long, value_name = "SHARE", value_parser = units::share_or_none, default_value = "0.5%", requires = "tree")]
    pub(crate) least: f64,
    /// Rows shown [default: 30; of a tree those that hold enough]
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// All rows
    #[arg(long, conflicts_with = "limit")]
    pub(crate) all: bool,
    /// Count inlined functions as procedures of their own
    #[arg(long)]
    pub(crate) inlined: bool,
    #[command(flatten)]
    pub(crate) form: FormArgs,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// Flags of `whither topcounts`.
#[derive(Debug, Args)]
pub(crate) struct TopcountsArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Instructions shown
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    /// Intel syntax
    #[arg(long)]
    pub(crate) intel: bool,
    /// Events to show, or `all`
    #[arg(short, long, value_name = "EVENT", value_delimiter = ',', default_value = "all")]
    pub(crate) event: Vec<String>,
    /// Samples as delivered, not moved to the instruction waited for
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) form: FormArgs,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// One side of a comparison.
#[derive(Clone, Debug)]
pub(crate) struct Runs(pub(crate) Vec<PathBuf>);

impl std::str::FromStr for Runs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let paths: Vec<PathBuf> = text.split(',').filter(|p| !p.is_empty()).map(PathBuf::from).collect();
        if paths.is_empty() { Err("name at least one recording".into()) } else { Ok(Self(paths)) }
    }
}

impl std::fmt::Display for Runs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let paths: Vec<_> = self.0.iter().map(|p| p.display().to_string()).collect();
        f.write_str(&paths.join(", "))
    }
}

/// What both sides of a comparison are set against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Per(pub(crate) Normalise);

impl std::str::FromStr for Per {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => return Ok(Self(Normalise::Auto)),
            "run" => return Ok(Self(Normalise::Run)),
            "total" => return Ok(Self(Normalise::Total)),
            "wall" => return Ok(Self(Normalise::Wall)),
            _ => {}
        }
        let number = |t: &str| t.trim().parse::<f64>().ok().filter(|n| *n > 0.0 && n.is_finite());
        let units = text.split_once(',').and_then(|(a, b)| Some((number(a)?, number(b)?)));
        units.map(|(a, b)| Self(Normalise::Per(a, b))).ok_or_else(|| {
            format!("`{text}` is no unit; write run, total, wall, or the work done in A and in B as 1200,1350")
        })
    }
}

/// Flags of `whither diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Before: a recording, or several runs with commas between
    #[arg(value_name = "A")]
    pub(crate) before: Runs,
    /// After: a recording, or several runs with commas between
    #[arg(value_name = "B")]
    pub(crate) after: Runs,
    /// What a row is about; several for combinations. Processes and threads go by command name unless they are in both
    #[arg(long, value_parser = by_parser(), value_delimiter = ',', default_value = "proc")]
    pub(crate) by: Vec<By>,
    /// Count inlined functions as procedures of their own
    #[arg(long)]
    pub(crate) inlined: bool,
    /// Event compared [default: the first of the recordings]
    #[arg(short, long, value_name = "EVENT")]
    pub(crate) event: Option<String>,
    /// Set figures against `run` (CPU time of a recording), `total` (shares), `wall` (CPU time per time), or work done in A and B
    /// (`1200,1350` requests); `auto`: `run` for commands that were launched and ended, else `total`
    #[arg(long, value_name = "UNIT", default_value = "auto")]
    pub(crate) per: Per,
    /// Changes within chance too
    #[arg(long)]
    pub(crate) all: bool,
    /// The largest changes only
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Exit 1 when something got slower beyond chance
    #[arg(long)]
    pub(crate) gate: bool,
    /// Exit with status 4 when samples were lost or parts could not be read
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) form: FormArgs,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// Flags of `whither top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Sample these running processes only
    #[arg(short, long, value_name = "PID", value_delimiter = ',')]
    pub(crate) pid: Vec<u32>,
    /// Keep the sampling's share of CPU time below this; the rate follows [default: 3%]
    #[arg(long, value_name = "SHARE", value_parser = units::share, conflicts_with_all = ["rate", "period"])]
    pub(crate) budget: Option<f64>,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// Refresh this often
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "2s")]
    pub(crate) interval: Duration,
    /// Stop after this long
    #[arg(short, long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) duration: Option<Duration>,
}

/// Flags of `whither report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Page to write
    #[arg(short, long, alias = "html", value_name = "FILE", default_value = "whither.html")]
    pub(crate) output: PathBuf,
    /// Say what changed since this recording, or several runs with commas between
    #[arg(long, value_name = "RECORDING")]
    pub(crate) against: Option<Runs>,
    /// Procedures annotated on the page
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// What is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExportFormat {
    /// Samples as they are.
    Samples(Format),
    /// Estimated executions.
    Flows(FlowFormat),
}

impl ExportFormat {
    fn parse(name: &str) -> Option<Self> {
        Format::parse(name).map(Self::Samples).or_else(|| FlowFormat::parse(name).map(Self::Flows))
    }
}

/// Formats by the names `report` gives them.
fn format_parser() -> impl TypedValueParser<Value = ExportFormat> {
    let names = Format::ALL.iter().map(|f| f.0).chain(FlowFormat::ALL.iter().map(|f| f.0));
    PossibleValuesParser::new(names)
        .try_map(|name| ExportFormat::parse(&name).ok_or("the parser above lets only known names pass"))
}

/// Flags of `whither export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Format. Samples: pprof (gzip), folded stacks, Firefox Profiler, speedscope, flame graph as SVG, CSV. Estimated executions:
    /// AutoFDO text, BOLT edges, basic blocks as CSV
    #[arg(value_parser = format_parser())]
    pub(crate) format: ExportFormat,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// File to write [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Event, for formats that hold one [default: the first]
    #[arg(short, long, value_name = "EVENT")]
    pub(crate) event: Option<String>,
    /// Inlined functions, source files and lines too (reads debug information)
    #[arg(long)]
    pub(crate) lines: bool,
    /// Samples instead of time or counts, for formats that hold one figure
    #[arg(long)]
    pub(crate) samples: bool,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_a_comparison() {
        assert_eq!("wall".parse(), Ok(Per(Normalise::Wall)));
        assert_eq!("1200,1350".parse(), Ok(Per(Normalise::Per(1200.0, 1350.0))));
        for text in ["", "1200", "0,5", "a,b", "1,inf"] {
            text.parse::<Per>().expect_err(text);
        }
    }

    #[test]
    fn moments_are_relative_or_absolute() {
        assert_eq!("90s".parse(), Ok(Moment::AfterStart(Duration::from_secs(90))));
        assert_eq!("0".parse(), Ok(Moment::AfterStart(Duration::ZERO)));
        assert_eq!("@1760000000".parse(), Ok(Moment::Unix(1_760_000_000)));
        "@noon".parse::<Moment>().expect_err("not a number");
    }
}
