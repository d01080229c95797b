//! Flags of the verbs that collect: `record`, `daemon`, `import`. What they mean for a recording is
//! decided in `whither_session`; defaults that the user sees are stated here.

use crate::units;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Flags of `whither record`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    whither record -d 10s                    the whole system for ten seconds\n  \
    whither record -- make -j2               a command and everything it starts\n  \
    whither record -a -- make -j2            the whole system while a command runs\n  \
    whither record -p 4211 -g=dwarf          one process with unwound call stacks\n  \
    whither record -e cycles,cache-misses -- ./a.out\n\n\
    SIGTERM and SIGHUP end the recording and are passed on to the command; a second signal leaves it running.")]
pub(crate) struct RecordArgs {
    /// Sample every process, the kernel and interrupts (the default without -p or a command); with a command: while
    /// it runs
    #[arg(short, long, conflicts_with = "pid")]
    pub(crate) all: bool,
    /// Sample these running processes and what they fork; with a command: while it runs
    #[arg(short, long, value_name = "PID", value_parser = units::pid, value_delimiter = ',')]
    pub(crate) pid: Vec<u32>,
    /// Stop after this long [default: when the command ends, or Ctrl-C]
    #[arg(short, long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) duration: Option<Duration>,
    /// Recording to create [default: whither.wh, replacing the last one]
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing recording named with -o
    #[arg(long, requires = "output")]
    pub(crate) overwrite: bool,
    /// Keep the collector's share of CPU time below this; the rate follows [default: 3%]
    #[arg(long, value_name = "SHARE", value_parser = units::share, conflicts_with_all = ["rate", "period"])]
    pub(crate) budget: Option<f64>,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// Keep threads apart
    #[arg(long)]
    pub(crate) threads: bool,
    /// Leave kernel samples out
    #[arg(long)]
    pub(crate) user: bool,
    /// Branch directions: interpreted from sampled registers, with the memory operands of branches
    /// (`mem`) or without (`regs`); those, and code executed in thought from samples on for hundreds
    /// of instructions (`walk`); from the CPU's branch records, through perf rings (`records`);
    /// `off`. `auto` is walk where BPF is allowed (of the whole system mem, within 0.05 % of one
    /// CPU), else records where there are any
    #[arg(long, value_enum, default_value_t = EdgeChoice::Auto)]
    pub(crate) edges: EdgeChoice,
    /// Count executions in procedures whose whole names match, by hardware breakpoints in short windows at random
    /// times (with -p or a command; may be given several times)
    #[arg(long, value_name = "REGEX", conflicts_with = "all")]
    pub(crate) exact: Vec<String>,
    /// Do not store the code of hot functions (annotate then needs the binaries)
    #[arg(long)]
    pub(crate) no_code: bool,
    /// Command to launch and sample, or to run while sampling what -a or -p name
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// Flags of sampling, shared by `record`, `daemon` and `top`.
#[derive(Debug, Args)]
pub(crate) struct SamplingArgs {
    /// Events to sample, in order of importance [default: cycles, or cpu-clock without counters]
    #[arg(short, long, value_name = "EVENT", value_delimiter = ',')]
    pub(crate) event: Vec<String>,
    /// Events that share the remaining counters by turns
    #[arg(long, value_name = "EVENT", value_delimiter = ',')]
    pub(crate) mux: Vec<String>,
    /// Samples per second and CPU, whatever they cost; of events that no rate drives (page faults, tracepoints) every one is
    /// taken, or one in so many that there are no more than these
    #[arg(long, value_name = "HERTZ", value_parser = units::hertz, conflicts_with = "period")]
    pub(crate) rate: Option<u32>,
    /// One sample every so many units of the event (cycles, misses, nanoseconds)
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) period: Option<u64>,
    /// Call stacks: `fp` (frame pointers), `dwarf[:SIZE]` (unwound from SIZE bytes of stack) or `off`
    #[arg(short = 'g', long, value_name = "HOW", num_args = 0..=1, require_equals = true,
          default_value = "off", default_missing_value = "fp")]
    pub(crate) stacks: StackChoice,
    /// Take a stack once every N samples
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) stack_every: u32,
    /// Collector: `bpf` aggregates in the kernel, `ring` here; `auto` takes bpf where allowed
    #[arg(long, value_enum, default_value_t = BackendChoice::Auto)]
    pub(crate) backend: BackendChoice,
    /// Length of a time slice, the resolution of time ranges and heat maps [default: a sixth of
    /// --duration, 1s to 10s; 1s for a command, --seal for the daemon, else 10s]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) slice: Option<Duration>,
}

/// How call stacks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StackChoice {
    /// Not at all.
    Off,
    /// By frame pointers.
    FramePointers,
    /// Unwound off line from this many bytes.
    Dwarf(u32),
}

/// Twice of what perf takes, because many programs keep buffers of some KiB in `main`; of a first thread no more is
/// copied than its stack holds.
const DWARF_BYTES: u32 = 16_384;

impl FromStr for StackChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "off" => Ok(Self::Off),
            None if text == "fp" => Ok(Self::FramePointers),
            None if text == "dwarf" => Ok(Self::Dwarf(DWARF_BYTES)),
            Some(("dwarf", size)) => dwarf_bytes(size).map(Self::Dwarf),
            _ => Err(format!("`{text}` is not a way to take stacks; write fp, dwarf, dwarf:16KiB or off")),
        }
    }
}

/// The kernel takes multiples of 8 below 64 KiB.
fn dwarf_bytes(text: &str) -> Result<u32, String> {
    let bytes = units::size(text)?;
    u32::try_from(bytes)
        .ok()
        .filter(|b| (256..65_536).contains(b))
        .map(|b| b & !7)
        .ok_or_else(|| format!("`{text}` of stack cannot be copied; the kernel takes 256 B to 63 KiB"))
}

/// Branch directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EdgeChoice {
    Auto,
    Walk,
    Mem,
    Regs,
    Records,
    Off,
}

/// Collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendChoice {
    Auto,
    Bpf,
    Ring,
}

/// Flags of `whither daemon`.
#[derive(Debug, Args)]
pub(crate) struct DaemonArgs {
    #[command(subcommand)]
    pub(crate) action: DaemonAction,
}

/// What to do with the daemon.
#[derive(Debug, Subcommand)]
pub(crate) enum DaemonAction {
    /// Run in the foreground (a service manager keeps it there)
    #[command(visible_alias = "start")]
    Run(Box<DaemonRun>),
    /// Tell what the running daemon does
    Status(DaemonStatus),
    /// Write everything collected so far to disk now
    Flush(DbDir),
    /// Stop the running daemon, keeping everything collected
    Stop(DbDir),
}

/// Which database a daemon serves.
#[derive(Debug, Args)]
pub(crate) struct DbDir {
    /// Database directory [default: $WHITHER_DB, else /var/lib/whither for root, ~/.local/share/whither for others]
    #[arg(long, value_name = "DIR")]
    pub(crate) db: Option<PathBuf>,
}

/// Flags of `whither daemon status`.
#[derive(Debug, Args)]
pub(crate) struct DaemonStatus {
    #[command(flatten)]
    pub(crate) db: DbDir,
    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `whither daemon run`.
#[derive(Debug, Args)]
pub(crate) struct DaemonRun {
    #[command(flatten)]
    pub(crate) db: DbDir,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// Branch directions: interpreted from sampled registers, with the memory operands of branches
    /// (`mem`) or without (`regs`); from the CPU's branch records, through perf rings (`records`);
    /// `off`. `auto` is mem where BPF is allowed (of the whole system within 0.05 % of one CPU), else
    /// records where there are any
    #[arg(long, value_enum, default_value_t = EdgeChoice::Auto)]
    pub(crate) edges: EdgeChoice,
    /// Keep the daemon's share of CPU time below this; the rate follows [default: 1%]
    #[arg(long, value_name = "SHARE", value_parser = units::share, conflicts_with_all = ["rate", "period"])]
    pub(crate) budget: Option<f64>,
    /// Begin a new epoch this often
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "1h")]
    pub(crate) epoch: Duration,
    /// Empty the kernel's tables this often
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "10s")]
    pub(crate) drain: Duration,
    /// Write a segment this often: what a crash may lose
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "10m")]
    pub(crate) seal: Duration,
    /// Drop epochs older than this
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) keep: Option<Duration>,
    /// Keep the database below this size, dropping the oldest epochs
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub(crate) max_disk: Option<u64>,
    /// Keep samples per process for images whose path matches
    #[arg(long, value_name = "REGEX")]
    pub(crate) per_process: Option<String>,
    /// Stop after this long
    #[arg(short, long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) duration: Option<Duration>,
}

/// Flags of `whither import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// File written by `perf record`
    #[arg(value_name = "PERF_DATA", default_value = "perf.data")]
    pub(crate) input: PathBuf,
    /// Recording to create [default: whither.wh, replacing the last one]
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing recording named with -o
    #[arg(long, requires = "output")]
    pub(crate) overwrite: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_read_with_and_without_a_size() {
        assert_eq!("off".parse(), Ok(StackChoice::Off));
        assert_eq!("fp".parse(), Ok(StackChoice::FramePointers));
        assert_eq!("dwarf".parse(), Ok(StackChoice::Dwarf(16_384)));
        assert_eq!("dwarf:32KiB".parse(), Ok(StackChoice::Dwarf(32_768)));
        for text in ["lbr", "dwarf:", "dwarf:1MiB", "fp:8", ""] {
            text.parse::<StackChoice>().expect_err(text);
        }
    }
}
