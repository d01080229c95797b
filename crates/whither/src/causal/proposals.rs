//! `whither causal suggest`: where progress points could be.

use super::change;
use super::measure::executable_of;
use crate::answer;
use crate::cli::{CausalSuggest, Common};
use crate::failure::{Ending, Usage};
use crate::signals;
use crate::source::symbol_options;
use std::fmt::Write as _;
use whither_session::causal::{CausalOptions, CausalWhom, Proposal, suggest as look};

/// `whither causal suggest`.
pub(super) fn suggest(args: &CausalSuggest, common: Common) -> anyhow::Result<Ending> {
    let whom = match (args.pid, args.command.is_empty()) {
        (Some(pid), _) => CausalWhom::Process(pid),
        (None, false) => CausalWhom::Command(args.command.clone()),
        (None, true) => {
            return Err(Usage("whom to look at? name a process with -p PID, or a command after --".into()).into());
        }
    };
    let options = CausalOptions {
        whom,
        executable: args.command.first().and_then(|c| executable_of(c)),
        duration: Some(args.duration),
        symbols: symbol_options(&args.names),
        end_to_end: false,
        ..change::plain(&args.command, None)
    };
    let stop = signals::stop_flag()?;
    let mut found = look(&options, &stop)?;
    found.truncate(args.top);
    if args.json {
        let rows: Vec<_> = found.iter().map(row).collect();
        let document = serde_json::json!({"schema": whither_causal::SCHEMA, "proposals": rows});
        answer::print(&document.to_string())?;
    } else if !found.is_empty() {
        answer::print(&table(&found))?;
    }
    if found.is_empty() {
        super::show::tell(
            common,
            "no place of the program was passed while it was looked at; look longer with -d, or while it has work to do",
        );
        return Ok(Ending::No);
    }
    Ok(Ending::Done)
}

fn row(p: &Proposal) -> serde_json::Value {
    serde_json::json!({"point": p.point, "per_second": p.rate, "spread": p.spread, "share": p.share, "reason": p.reason})
}

fn table(found: &[Proposal]) -> String {
    let mut text = String::from("  visits/s  spread  progress point\n");
    for p in found {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:>10.1}  {:>5.0} %  {}  ({})", p.rate, p.spread * 100.0, p.point, p.reason);
    }
    text.push_str("a point should stand for a unit of work; take one with --progress POINT\n");
    text
}
