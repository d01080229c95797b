//! Flags of `whither calls` and its verbs. A session is started with flags and no verb; verbs with `-p`
//! speak to the one that runs. What the flags mean is decided in `whither_session::calls`.

use super::ask::{FormArgs, NameArgs};
use crate::units;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use whither_calls::{Group, Sort};

/// Flags of `whither calls`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:\n  \
    whither calls -f 'MPI_Wait' -- ./app                  one function by full call path\n  \
    whither calls -p 4711 -f 'MPI_(Wait|Allreduce)'       a running process; Ctrl-C detaches and prints the table\n  \
    whither calls -p 4711 -f 'libpg.so!.*Lookup.*' -m count,cpu,hist -d 30s -i 5s -o run.wh\n  \
    whither calls -f write -m count,bytes=arg3,got=ret -- ./app\n  \
    whither calls --dry-run -p 4711 -f '.*parse.*'        what would be probed, and how\n  \
    whither calls add -p 4711 'find_.*'                   more functions for the session that measures 4711\n  \
    whither calls --replay run.wh -o fixed.wh -- ./fixed  the steps of a recorded session, after a fix\n\n\
    A pattern is a regular expression over the whole name, demangled without parameters or mangled. Before it may \
    stand a regular expression over the file and an exclamation mark (libc.so.6!read). `file+0x1a2b` is an address, \
    `main.c:120` the function around a line, `malloc@libfoo.so` its calls from one file alone.")]
pub(crate) struct CallsArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<CallsVerb>,
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
}

/// Verbs of `whither calls`.
#[derive(Debug, Subcommand)]
pub(crate) enum CallsVerb {
    /// Probe more functions in a running session
    Add(AddArgs),
    /// Take probes back: the text bytes are the original ones again, the numbers stay
    Remove(PointsArgs),
    /// Let probes count again that were switched off
    Enable(PointsArgs),
    /// Let probes pass without counting, without stopping the target
    Disable(PointsArgs),
    /// Probe the functions that a probed one calls, or those that call it
    Expand(ExpandArgs),
    /// Follow a function's hottest callees until none stands out
    Drill(DrillArgs),
    /// Tell the probes of a running session: state, calls so far, what they cost
    List(ListArgs),
    /// Tell everything counted so far, calls in progress included; the target is not paused
    Show(ShowArgs),
    /// Begin a new epoch: numbers count from here, the old ones stay in the recording
    Reset(ResetArgs),
    /// End a running session from outside: it leaves the target and prints its table
    Stop(SessionArgs),
    /// Watch live and narrow down: keys expand functions into callees and callers
    Top(Box<MeasureArgs>),
    /// Print a recording's tables again, or compare two
    Report(CallsReportArgs),
}

/// A session to be.
#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    #[command(flatten)]
    pub(crate) whom: WhomArgs,
    /// Exit with status 4 when data are incomplete: calls lost, paths cut, functions refused
    #[arg(long)]
    pub(crate) strict: bool,
    /// List every match with address, size, kind of patch and cost, or the reason of refusal; change nothing (a
    /// command is started, held before its main, and ended)
    #[arg(long, conflicts_with_all = ["live", "output", "interval"])]
    pub(crate) dry_run: bool,
    /// Begin as the session recorded in FILE did (its -f, -x and -m, unless given anew), and take the steps that were taken
    /// in it (add, remove, enable, disable, expand, drill, reset, and the keys of the live screen) at the same times since
    /// the begin; what the program does not have any more is told
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    pub(crate) replay: Option<PathBuf>,
    /// Watch on a screen while it runs, as `calls top` does; a command's output is shown after the screen
    #[arg(long, conflicts_with_all = ["interval", "json", "html"])]
    pub(crate) live: bool,
    /// Command to launch and measure
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    #[command(flatten)]
    pub(crate) what: WhatArgs,
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    #[command(flatten)]
    pub(crate) form: FormArgs,
    #[command(flatten)]
    pub(crate) names: NameArgs,
}

/// Whom to measure, for how long, into what.
#[derive(Debug, Args)]
pub(crate) struct WhomArgs {
    /// Measure this running process, all of its threads
    #[arg(short, long, value_name = "PID", value_parser = units::pid, conflicts_with = "command")]
    pub(crate) pid: Option<u32>,
    /// Stop after this long [default: when the target ends, or Ctrl-C]
    #[arg(short, long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) duration: Option<Duration>,
    /// Summary on stderr this often, with --json a document per line [default: 5s on a terminal, else none]
    #[arg(short, long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) interval: Option<Duration>,
    /// Recording to create (for `calls report`)
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing recording named with -o
    #[arg(long, requires = "output")]
    pub(crate) overwrite: bool,
    /// Which descendants to measure too
    #[arg(long, value_enum, default_value_t = Follow::All, value_name = "WHICH")]
    pub(crate) follow: Follow,
    /// Of a process tree, measure only executables whose path matches
    #[arg(long, value_name = "REGEX")]
    pub(crate) exe: Option<String>,
}

/// Descendants of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Follow {
    /// Forked children and the programs they execute
    All,
    /// Only the target itself
    None,
}

/// What to measure.
#[derive(Debug, Args)]
#[command(next_help_heading = "Functions and metrics")]
pub(crate) struct WhatArgs {
    /// Functions to probe; may be repeated
    #[arg(short, long, value_name = "PATTERN")]
    pub(crate) function: Vec<String>,
    /// File with a pattern per line; empty lines and lines that begin with # do not count
    #[arg(short = 'F', long, value_name = "FILE")]
    pub(crate) functions_from: Vec<PathBuf>,
    /// Functions to leave out of those
    #[arg(short = 'x', long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
    /// What to measure: count, wall, cpu, off (wall - cpu), hist (percentiles), ctxsw, faults, usage (both); counters of
    /// the processor: cycles, instructions, llc-miss, ...; integers: NAME=argN or NAME=ret, with :1 :2 :4 (bytes) and
    /// :signed [default: count,wall,cpu]
    #[arg(short, long, value_name = "METRICS", value_delimiter = ',')]
    pub(crate) metrics: Vec<String>,
    /// Most frames of a call path
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) depth: u32,
    /// Levels of recursion kept apart: `fold`, a number, or `all`; deeper calls go into one row
    #[arg(long, value_name = "LEVELS", default_value = "64", value_parser = recursion)]
    pub(crate) recursion: u32,
    /// Count entries only: no times; half the cost of a call, more where most functions are probed
    #[arg(long)]
    pub(crate) entry_only: bool,
    /// How functions are reached: `patch` (jumps in the process, nanoseconds), `uprobe` (kernel breakpoints,
    /// microseconds), or patches and uprobes where those are refused
    #[arg(long, value_enum, default_value_t = CallsBackendChoice::Auto, value_name = "HOW")]
    pub(crate) backend: CallsBackendChoice,
    /// Never write into the target: the same as --backend uprobe
    #[arg(long, conflicts_with = "backend")]
    pub(crate) safe: bool,
}

/// Ways to reach a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CallsBackendChoice {
    Auto,
    Patch,
    Uprobe,
}

fn recursion(text: &str) -> Result<u32, String> {
    match text {
        "fold" => Ok(0),
        "all" => Ok(u32::MAX),
        _ => text.parse().map_err(|_| format!("`{text}` is not a number of levels; write a number, fold or all")),
    }
}

/// How the table looks.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Table")]
pub(crate) struct ShapeArgs {
    /// What a row is
    #[arg(long, value_name = "BY", default_value = "path", value_parser = group_parser())]
    pub(crate) group: Group,
    /// What rows are ordered by, largest first, and what trees and flame views are weighed by: wall, cpu, off, self, self-cpu,
    /// count, avg, max, min, switches, faults, or the name of a value that was measured (bytes, cycles)
    #[arg(long, value_name = "FIGURE", default_value = "wall", value_parser = sort)]
    pub(crate) sort: Sort,
    /// Most rows; the others are added up in one line
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub(crate) top: usize,
    /// Rows below this part of the whole execution are added up in one line [default: 0.01%, but 8 rows are shown]
    #[arg(long, value_name = "SHARE", value_parser = units::share_or_none)]
    pub(crate) min_share: Option<f64>,
    /// Show functions that were inlined at a call site
    #[arg(long)]
    pub(crate) inlines: bool,
    /// Draw the call paths as a tree
    #[arg(long)]
    pub(crate) tree: bool,
    /// Print the call paths as folded stacks, the input of flame graph tools, weighed by the figure of --sort (times in ns)
    #[arg(long, conflicts_with = "tree")]
    pub(crate) folded: bool,
}

fn group_parser() -> impl TypedValueParser<Value = Group> {
    PossibleValuesParser::new(Group::ALL.map(|(name, _)| name)).try_map(|name| name.parse::<Group>())
}

fn sort(word: &str) -> Result<Sort, std::convert::Infallible> {
    word.parse()
}

/// A running session.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SessionArgs {
    /// Process that the session measures
    #[arg(short, long, value_name = "PID", value_parser = units::pid)]
    pub(crate) pid: u32,
}

/// Flags of `calls add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Functions to probe
    #[arg(value_name = "PATTERN", required = true)]
    pub(crate) patterns: Vec<String>,
    /// Functions to leave out of those
    #[arg(short = 'x', long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
}

/// Flags of the verbs about probes in place.
#[derive(Debug, Args)]
pub(crate) struct PointsArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Probes by number ('#12') or name
    #[arg(value_name = "PROBE", required = true)]
    pub(crate) probes: Vec<String>,
}

/// Flags of `calls expand`.
#[derive(Debug, Args)]
pub(crate) struct ExpandArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Probe by its number ('#12') or its function; several of one name are all expanded
    #[arg(value_name = "PROBE")]
    pub(crate) probe: String,
    /// The functions that call it, not those that it calls
    #[arg(long)]
    pub(crate) callers: bool,
}

/// Flags of `calls drill`.
#[derive(Debug, Args)]
pub(crate) struct DrillArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Probe to begin at, by its number ('#12') or its function
    #[arg(value_name = "PROBE")]
    pub(crate) probe: String,
    /// How long each step is measured
    #[arg(short, long, value_name = "TIME", value_parser = units::duration, default_value = "1s")]
    pub(crate) interval: Duration,
}

/// Flags of `calls list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `calls show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    #[command(flatten)]
    pub(crate) form: FormArgs,
    #[command(flatten)]
    pub(crate) names: NameArgs,
}

/// Flags of `calls reset`.
#[derive(Debug, Args)]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Name of the epoch that ends [default: its number]
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) label: String,
}

/// Flags of `calls report`.
#[derive(Debug, Args)]
pub(crate) struct CallsReportArgs {
    /// Recording made by `whither calls -o`; two are compared, before and after
    #[arg(value_name = "RECORDING", required = true, num_args = 1..=2)]
    pub(crate) recordings: Vec<PathBuf>,
    /// Only this epoch, by name [default: all, one after the other; the last one for a comparison]
    #[arg(long, value_name = "EPOCH")]
    pub(crate) epoch: Option<String>,
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    #[command(flatten)]
    pub(crate) form: FormArgs,
    #[command(flatten)]
    pub(crate) names: NameArgs,
}
