//! The `whither` command: reads the command line, calls the verb, prints the answer, picks the exit
//! code. Thin by intent: collecting lives in `whither_session`, answers in `whither_cycles`, their
//! printing in `whither_report`. This file is the one place that prints errors.

#![forbid(unsafe_code)]

mod analyse;
mod answer;
mod ask;
mod calls;
mod causal;
mod cli;
mod collect;
mod db;
mod doctor;
mod epochs;
mod failure;
mod keys;
mod left_out;
mod mca;
mod pages;
mod places;
mod progress;
mod room;
mod signals;
mod source;
mod tell;
mod top;
mod units;

use clap::Parser;
use clap::error::ErrorKind;
use cli::{Cli, Common, Verb};
use failure::Ending;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    set_up(cli.common);
    match run(cli) {
        Ok(ending) => ExitCode::from(ending.code()),
        Err(error) => failure::report(&error),
    }
}

fn run(cli: Cli) -> anyhow::Result<Ending> {
    let common = cli.common;
    match cli.verb {
        Verb::Record(args) => collect::record(args, common),
        Verb::Daemon(args) => collect::daemon(args, common),
        Verb::Import(args) => collect::import(&args, common),
        Verb::Completions(args) => pages::completions(&args),
        Verb::Man(args) => pages::man(&args),
        Verb::Prof(args) => ask::prof(&args, common),
        Verb::Annotate(args) => analyse::annotate(&args, common),
        Verb::Summary(args) => analyse::summary(&args, common),
        Verb::Cfg(args) => analyse::cfg(&args, common),
        Verb::Stats(args) => analyse::stats(&args, common),
        Verb::Accuracy(args) => analyse::accuracy(&args, common),
        Verb::Report(args) => ask::report(&args, common),
        Verb::Topcounts(args) => ask::topcounts(&args, common),
        Verb::Diff(args) => ask::diff(&args, common),
        Verb::Db(args) => db::db(args),
        Verb::Export(args) => ask::export(&args, common),
        Verb::Epochs(args) => epochs::epochs(args),
        Verb::Doctor(args) => doctor::doctor(&args),
        Verb::Top(args) => top::top(args),
        Verb::Calls(args) => calls::calls(*args, common),
        Verb::Causal(args) => causal::causal(*args, common),
    }
}

/// Help and version are answers; everything else clap says is a usage error.
fn refuse(error: &clap::Error) -> ExitCode {
    // A closed pipe is the reader's choice.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::from(failure::USAGE),
    }
}

fn set_up(common: Common) {
    answer::set_color(common.color);
    let level = match common.verbose {
        0 | 1 => "warn",
        2 => "whither=debug,info",
        _ => "trace",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("WHITHER_LOG").unwrap_or_else(|_| level.into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
}
