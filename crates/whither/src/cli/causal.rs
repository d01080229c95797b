//! Flags of `whither causal` and its verbs. What they mean is decided in `whither_session::causal` (what is
//! measured) and `whither_causal` (which experiments, which answer).

use super::ask::{FormArgs, NameArgs};
use crate::units;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Flags of `whither causal`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:\n  \
    whither causal --progress 'server.c:412' -- ./server -c x.conf   launch; its end or Ctrl-C prints the ranking\n  \
    whither causal -p 4711 --progress handle_request -d 60s          a running process; it is never stopped\n  \
    whither causal -p 4711 --latency 'req_begin,req_end' --off-cpu all\n  \
    whither causal -n 30 --end-to-end -- ./short input               whole runs are compared\n  \
    whither causal report run.wh --html out.html                     the answer of a recording again\n\n\
    Progress points: FILE:LINE, FUNCTION, FUNCTION:ret, MODULE!REGEX, mark:NAME (`whither causal marks` \
    prints what programs leave them with; those of Coz in a program that is launched; taken by themselves when no point is named), usdt:PROVIDER:NAME, syscall:NAME, tp:GROUP:NAME, counter:VARIABLE (64 bits, \
    polled), sampled:FILE:LINE (samples instead of visits). The first one ranks.\n\n\
    While a piece of code runs, all other threads are delayed by what it would save; whatever the program gains in \
    virtual time it would gain if that code were really faster.\n\n\
    Exit status: the command's own; where that is 0, 1 when nothing could be said. Of a running process and of a \
    recording, 1 also when nothing is worth fixing.")]
pub(crate) struct CausalArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<CausalVerb>,
    #[command(flatten)]
    pub(crate) measure: CausalMeasure,
}

/// Verbs of `whither causal`.
#[derive(Debug, Subcommand)]
pub(crate) enum CausalVerb {
    /// Print the answer of a recording again: other amounts, other order, other formats
    Report(CausalReport),
    /// Propose progress points by what the program does, best first
    Suggest(CausalSuggest),
    /// Add more experiments to a recording of the same program
    Extend(Box<CausalExtend>),
    /// Answer from a profile of Coz, with intervals and verdicts
    Import(CausalImport),
    /// Measure a real change and set it beside the prediction
    Verify(CausalVerify),
    /// Tell what start-up, sampling and delays cost a command, apart
    Overhead(CausalOverheadArgs),
    /// Print the file that programs leave marks with, for `mark:NAME`
    Marks(CausalMarks),
    /// Watch live how curves and intervals sharpen
    Top(Box<CausalMeasure>),
}

/// A session to be.
#[derive(Clone, Debug, Args)]
pub(crate) struct CausalMeasure {
    #[command(flatten)]
    pub(crate) whom: CausalWhomArgs,
    #[command(flatten)]
    pub(crate) points: CausalPoints,
    #[command(flatten)]
    pub(crate) targets: CausalTargets,
    #[command(flatten)]
    pub(crate) experiments: CausalExperiments,
    /// Recording to create (for `causal report`)
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing recording named with -o
    #[arg(long, requires = "output")]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) answer: CausalAnswerArgs,
    #[command(flatten)]
    pub(crate) form: FormArgs,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    /// Command to launch and measure
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// Whom to measure, for how long.
#[derive(Clone, Debug, Args)]
pub(crate) struct CausalWhomArgs {
    /// Measure this running process
    #[arg(short, long, value_name = "PID", conflicts_with = "command")]
    pub(crate) pid: Option<u32>,
    /// Stop after this long [default: when the target ends, or Ctrl-C]
    #[arg(short, long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) duration: Option<Duration>,
    /// Run the command so often [default: once, a command that ends within 2 s up to 30 times]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), requires = "command")]
    pub(crate) runs: Option<u32>,
    /// Which descendants to measure too
    #[arg(long, value_enum, default_value_t = CausalFollow::Fork, value_name = "WHICH")]
    pub(crate) follow: CausalFollow,
}

/// Descendants of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CausalFollow {
    /// Children, and what they execute
    Fork,
    /// Only the target itself
    None,
}

/// Where progress is made.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Progress")]
pub(crate) struct CausalPoints {
    /// Where the program makes progress; may be repeated, the first one ranks
    #[arg(long, value_name = "POINT")]
    pub(crate) progress: Vec<String>,
    /// Measure the time between two points too; `mark:NAME` stands for the marks NAME_begin and NAME_end
    #[arg(long, value_name = "BEGIN,END")]
    pub(crate) latency: Vec<String>,
    /// The run time of the whole command is the measure
    #[arg(long)]
    pub(crate) end_to_end: bool,
    /// What decides how often points are visited: the program itself (closed) or arrivals from outside (open)
    #[arg(long, value_enum, default_value_t = CausalLoad::Auto, value_name = "WHAT")]
    pub(crate) load: CausalLoad,
}

/// Kinds of load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum CausalLoad {
    #[default]
    Auto,
    Closed,
    Open,
}

/// What could be made faster.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Targets")]
pub(crate) struct CausalTargets {
    /// What a target is: a line, a function without its callees, one with them (inclusive), a function by its caller
    /// (path), or functions and their lines (auto)
    #[arg(long, value_enum, default_value_t = CausalUnit::Auto, value_name = "UNIT")]
    pub(crate) unit: CausalUnit,
    /// Only this target: FUNCTION, FILE:LINE, or 'FUNCTION < CALLER'; may be repeated
    #[arg(short, long, value_name = "TARGET")]
    pub(crate) target: Vec<String>,
    /// Source files that are the program's own; code of others counts for the line that calls it [default: all but
    /// those of the system]
    #[arg(long, value_name = "GLOB")]
    pub(crate) source: Vec<String>,
    /// Modules that are the program's own [default: its executable]
    #[arg(long, value_name = "REGEX")]
    pub(crate) binary: Option<String>,
    /// Functions that are not the program's own
    #[arg(short = 'x', long, value_name = "REGEX")]
    pub(crate) exclude: Vec<String>,
    /// Make waits targets too
    #[arg(long, value_enum, value_delimiter = ',', value_name = "CLASSES")]
    pub(crate) off_cpu: Vec<CausalWait>,
    /// Whether time in the kernel counts for the line that called it
    #[arg(long, value_enum, default_value_t = YesNo::Yes, value_name = "YES|NO")]
    pub(crate) kernel_time: YesNo,
}

/// Kinds of target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CausalUnit {
    Line,
    Function,
    Inclusive,
    Path,
    Auto,
}

/// Classes of waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CausalWait {
    /// For time to pass
    Sleep,
    /// For a disk
    Io,
    /// For a peer
    Net,
    /// All of these
    All,
}

/// Yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum YesNo {
    Yes,
    No,
}

/// How experiments are made.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Experiments")]
pub(crate) struct CausalExperiments {
    /// Stop when the gains of the targets that matter are known to so many percentage points, either way
    #[arg(long, value_name = "POINTS", value_parser = points)]
    pub(crate) until: Option<f64>,
    /// Amounts in percent [default: 0,5,..,100]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = percent)]
    pub(crate) speedups: Vec<u8>,
    /// Only this amount, and 0 to compare with
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with = "speedups")]
    pub(crate) fixed_speedup: Option<u8>,
    /// A window with fewer visits makes later ones longer
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) min_visits: u64,
    /// Shortest window
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "100ms")]
    pub(crate) window: Duration,
    /// Least pause between windows
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "1ms")]
    pub(crate) cool_off: Duration,
    /// Part of the time with experiments; less costs less
    #[arg(long, value_name = "SHARE", value_parser = units::share, default_value = "100%")]
    pub(crate) duty: f64,
    /// How targets are chosen: those that may matter more often, or all by lot as in the paper
    #[arg(long, value_enum, default_value_t = CausalPolicyChoice::Adaptive, value_name = "POLICY")]
    pub(crate) policy: CausalPolicyChoice,
    /// Seed of all random choices [default: the clock]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Longest delay at once; interrupts of the CPU are off meanwhile (50us to 1ms). Ticks insert them, every 250us
    /// where the machine's timers are cheap
    #[arg(long, value_name = "TIME", value_parser = cap, default_value = "500us")]
    pub(crate) max_irq_off: Duration,
    /// How a thread is delayed: kept busy in its place, or put to sleep by a handler of a real-time signal that the
    /// program does not use (leaves the core to others; needs ptrace and Linux 6.13). By itself it changes over to sleeping
    /// when delays are seen to make threads wait for cores
    #[arg(long, value_enum, default_value_t = CausalExecutorChoice::Auto, value_name = "HOW")]
    pub(crate) executor: CausalExecutorChoice,
    /// Who does it: programs in the kernel, or (without rights for BPF, by itself) an agent in the program, whose threads
    /// then sample and delay themselves; of waits that threads end for one another it sees those at futexes
    #[arg(long, value_enum, default_value_t = CausalBackEndChoice::Auto, value_name = "WHO")]
    pub(crate) backend: CausalBackEndChoice,
}

/// Who takes samples, credits and pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CausalBackEndChoice {
    Auto,
    Bpf,
    Agent,
}

/// How delays are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CausalExecutorChoice {
    Auto,
    Spin,
    Sleep,
}

/// Who decides about targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CausalPolicyChoice {
    Adaptive,
    Paper,
}

/// What the answer is about.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Answer")]
pub(crate) struct CausalAnswerArgs {
    /// Speed-up at which gains are compared
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "30")]
    pub(crate) assume: u8,
    /// Order of the targets
    #[arg(long, value_enum, default_value_t = CausalSort::Gain, value_name = "BY")]
    pub(crate) sort: CausalSort,
    /// Print the figures of each curve
    #[arg(long)]
    pub(crate) curves: bool,
    /// Write a profile that Coz's viewer reads: coz=FILE, or coz-jsonl=FILE for its newer form
    #[arg(long, value_name = "FORM=FILE", value_parser = export)]
    pub(crate) export: Vec<CozFile>,
}

/// Orders of targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CausalSort {
    Gain,
    Slope,
    Share,
}

/// A file for Coz's viewer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CozFile {
    pub(crate) json_lines: bool,
    pub(crate) path: PathBuf,
}

fn export(text: &str) -> Result<CozFile, String> {
    match text.split_once('=') {
        Some(("coz", path)) if !path.is_empty() => Ok(CozFile { json_lines: false, path: path.into() }),
        Some(("coz-jsonl", path)) if !path.is_empty() => Ok(CozFile { json_lines: true, path: path.into() }),
        _ => Err("write coz=FILE or coz-jsonl=FILE".into()),
    }
}

fn percent(text: &str) -> Result<u8, String> {
    let digits = text.trim().trim_end_matches('%');
    digits.parse().ok().filter(|p| *p <= 100).ok_or_else(|| format!("`{text}` is no amount from 0 to 100 percent"))
}

fn points(text: &str) -> Result<f64, String> {
    let digits = text.trim().trim_start_matches(['±', '+', '-']).trim_end_matches("pp").trim_end_matches('%').trim();
    let found = digits.parse().ok().filter(|p: &f64| p.is_finite() && *p > 0.0);
    found.ok_or_else(|| format!("`{text}` is no number of percentage points above 0, for example 2pp"))
}

fn cap(text: &str) -> Result<Duration, String> {
    let time = units::duration(text)?;
    if time < Duration::from_micros(50) || time > Duration::from_millis(1) {
        return Err("delays are inserted in pieces of 50us to 1ms".into());
    }
    Ok(time)
}

/// Flags of `causal report`.
#[derive(Debug, Args)]
pub(crate) struct CausalReport {
    /// Recording made by `whither causal -o`
    #[arg(value_name = "RECORDING")]
    pub(crate) recording: PathBuf,
    /// Only targets that match: a function's name or FILE:LINE
    #[arg(short, long, value_name = "TARGET")]
    pub(crate) target: Vec<String>,
    /// How windows of one amount become one figure: trimmed means within pieces of the run, or sums as in the paper
    #[arg(long, value_enum, default_value_t = CausalCombine::Ours, value_name = "HOW")]
    pub(crate) combine: CausalCombine,
    /// Count windows too that were dropped for what others did to the machine
    #[arg(long)]
    pub(crate) keep_disturbed: bool,
    #[command(flatten)]
    pub(crate) answer: CausalAnswerArgs,
    #[command(flatten)]
    pub(crate) form: FormArgs,
}

/// How windows are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CausalCombine {
    Ours,
    Sum,
}

/// Flags of `causal suggest`.
#[derive(Debug, Args)]
pub(crate) struct CausalSuggest {
    /// Look at this running process
    #[arg(short, long, value_name = "PID", conflicts_with = "command")]
    pub(crate) pid: Option<u32>,
    /// Look for so long
    #[arg(short, long, value_name = "TIME", value_parser = units::duration, default_value = "5s")]
    pub(crate) duration: Duration,
    /// Most proposals
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    /// Command to launch, look at, and end when that is done
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// Flags of `causal extend`.
#[derive(Debug, Args)]
pub(crate) struct CausalExtend {
    /// Recording to add to; its points are measured again
    #[arg(value_name = "RECORDING")]
    pub(crate) recording: PathBuf,
    #[command(flatten)]
    pub(crate) whom: CausalWhomArgs,
    #[command(flatten)]
    pub(crate) targets: CausalTargets,
    #[command(flatten)]
    pub(crate) experiments: CausalExperiments,
    #[command(flatten)]
    pub(crate) answer: CausalAnswerArgs,
    #[command(flatten)]
    pub(crate) form: FormArgs,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    /// Command to launch and measure
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// Flags of `causal import`.
#[derive(Debug, Args)]
pub(crate) struct CausalImport {
    /// Profile written by Coz, with tabs or as JSON lines
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Recording to create
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing recording named with -o
    #[arg(long, requires = "output")]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) answer: CausalAnswerArgs,
    #[command(flatten)]
    pub(crate) form: FormArgs,
}

/// Flags of `causal verify`.
#[derive(Debug, Args)]
pub(crate) struct CausalVerify {
    /// Recording with the prediction
    #[arg(value_name = "RECORDING")]
    pub(crate) recording: PathBuf,
    /// Target that was made faster
    #[arg(short, long, value_name = "TARGET")]
    pub(crate) target: String,
    /// By how much it was made faster
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) at: u8,
    /// Runs of each program, by turns
    #[arg(short = 'n', long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(crate) runs: u32,
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The old command, `::`, the new command
    #[arg(last = true, value_name = "OLD... :: NEW", required = true)]
    pub(crate) commands: Vec<String>,
}

/// Flags of `causal overhead`.
#[derive(Debug, Args)]
pub(crate) struct CausalOverheadArgs {
    #[command(flatten)]
    pub(crate) points: CausalPoints,
    /// Rounds of the four runs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: u32,
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Command to launch, one with a fixed amount of work
    #[arg(last = true, value_name = "COMMAND", required = true)]
    pub(crate) command: Vec<String>,
}

/// Flags of `causal marks`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    whither causal marks --c > whither.h          then WHITHER_PROGRESS(\"orders\"), or WHITHER_BEGIN and WHITHER_END\n  \
    whither causal marks --python > whither.py    then whither.progress(\"orders\"), or with whither.request(\"order\")\n  \
    whither causal marks --rust > lib.rs          src/lib.rs of a crate whither-progress: whither_progress::progress!(\"orders\")\n\n\
    They are measured by --progress mark:orders and --latency mark:order.")]
#[group(required = true, multiple = false)]
pub(crate) struct CausalMarks {
    /// The header for C and C++
    #[arg(long)]
    pub(crate) c: bool,
    /// The Python module
    #[arg(long)]
    pub(crate) python: bool,
    /// The Rust crate's only file
    #[arg(long)]
    pub(crate) rust: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_and_points() {
        assert_eq!((percent("30"), percent("30%"), percent("101").is_err()), (Ok(30), Ok(30), true));
        assert_eq!((points("±2pp"), points("1.5"), points("0").is_err()), (Ok(2.0), Ok(1.5), true));
        assert!(cap("250us").is_ok() && cap("0").is_err() && cap("5ms").is_err());
        assert_eq!(export("coz=a"), Ok(CozFile { json_lines: false, path: "a".into() }));
        assert!(export("a").is_err() && export("coz=").is_err());
    }
}
