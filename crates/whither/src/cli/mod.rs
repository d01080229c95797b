//! The command line as one clap definition: flags, help, man pages and completions all come from
//! here. Nothing is computed in this folder; values arrive parsed in the verbs' modules.

mod analyse;
mod ask;
mod calls;
mod causal;
mod collect;
mod keep;

pub(crate) use analyse::{AccuracyArgs, AnnotateArgs, CfgArgs, CoreArgs, StatsArgs, SummaryArgs, View};
pub(crate) use ask::{
    DiffArgs, ExportArgs, ExportFormat, FilterArgs, FormArgs, Moment, NameArgs, ProfArgs, ReportArgs, SourceArgs,
    TopArgs, TopcountsArgs,
};
pub(crate) use calls::{
    CallsArgs, CallsBackendChoice, CallsReportArgs, CallsVerb, DrillArgs, ExpandArgs, Follow, ListArgs, MeasureArgs,
    ShapeArgs, ShowArgs, WhatArgs,
};
pub(crate) use causal::{
    CausalAnswerArgs, CausalArgs, CausalBackEndChoice, CausalCombine, CausalExecutorChoice, CausalExperiments,
    CausalExtend, CausalFollow, CausalImport, CausalLoad, CausalMarks, CausalMeasure, CausalOverheadArgs, CausalPoints,
    CausalPolicyChoice, CausalReport, CausalSort, CausalSuggest, CausalTargets, CausalUnit, CausalVerb, CausalVerify,
    CausalWait, CausalWhomArgs, YesNo,
};
pub(crate) use collect::{
    BackendChoice, DaemonAction, DaemonArgs, DaemonRun, EdgeChoice, ImportArgs, RecordArgs, SamplingArgs, StackChoice,
};
pub(crate) use keep::{CompletionsArgs, DbAction, DbArgs, DoctorArgs, EpochsAction, EpochsArgs, ManArgs, StorePlace};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

/// Where the time goes on a running Linux system, down to the instruction.
///
/// Record first (`whither record`), then ask (`whither prof`, `whither annotate`). Every answer
/// states its event, its rate, what was lost and what it cost.
#[derive(Debug, Parser)]
#[command(name = "whither", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit status: 0 done; 1 the answer is \"no\" (nothing matched, a regression with --gate); 2 usage; \
    3 the system cannot or may not (`whither doctor` tells why); 4 data incomplete under --strict. A launched command's own status is passed through, \
    128+n for a signal; 125-127 are failures to launch it."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Words every verb understands.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Common {
    /// Colours in the answer; `auto` on a terminal without NO_COLOR
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub(crate) color: Color,
    /// Say nothing on stderr but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say more on stderr; twice for the trace of every step
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Sample the whole system, running processes or a command into a recording
    Record(RecordArgs),
    /// Sample continuously into the profile database
    Daemon(DaemonArgs),
    /// List where the time went: procedures, images, lines, processes, ...
    Prof(ProfArgs),
    /// Show a procedure's source and assembly: samples, how often each instruction ran, what may have held it up
    Annotate(AnnotateArgs),
    /// Tell where the cycles go, cause by cause: of a procedure, an image, or everything
    Summary(SummaryArgs),
    /// Draw a procedure's control-flow graph with times and frequencies
    Cfg(CfgArgs),
    /// List the hottest single instructions of the whole system
    Topcounts(TopcountsArgs),
    /// Compare two recordings: what grew, what shrank, how sure
    Diff(DiffArgs),
    /// Compare many runs: which procedures vary, and more than chance makes them
    Stats(StatsArgs),
    /// Compare estimated executions with exact counts of the same program
    Accuracy(AccuracyArgs),
    /// Watch live where the time goes
    Top(TopArgs),
    /// Count and time chosen functions by full call path, in a command or a running process
    Calls(Box<CallsArgs>),
    /// Predict what the program would gain if a line, function or wait were faster, by experiments while it runs
    Causal(Box<CausalArgs>),
    /// Write one self-contained HTML page
    Report(ReportArgs),
    /// Write the samples in another tool's format
    Export(ExportArgs),
    /// Turn a perf.data file into a recording
    Import(ImportArgs),
    /// List, start, name, merge or remove the intervals of a profile database
    Epochs(EpochsArgs),
    /// Check, compact or trim a profile database
    Db(DbArgs),
    /// Tell what this kernel and these rights allow, what is lost, and the narrowest fix
    Doctor(DoctorArgs),
    /// Print a shell completion script
    Completions(CompletionsArgs),
    /// Write the man pages
    Man(ManArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_help() {
        fn walk(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{} has no description", command.get_name());
            for arg in command.get_arguments().filter(|a| !a.is_hide_set()) {
                assert!(arg.get_help().is_some(), "{} of {} has no help", arg.get_id(), command.get_name());
            }
            command.get_subcommands().for_each(walk);
        }
        walk(&Cli::command());
    }
}
