//! Causal answers printed: text, JSON, a page, a profile for Coz's viewer.

use crate::answer;
use crate::cli::{CausalAnswerArgs, CausalCombine, CausalSort, Common, FormArgs};
use crate::failure::{self, Ending};
use crate::tell::tell;
use anyhow::Context;
use whither_causal::{AnalyseOptions, CausalAnswer, Combine, Sort, Verdict, analyse, coz};
use whither_report::html::{CausalPage, causal_page};
use whither_report::json;
use whither_report::text::{self, CausalView};
use whither_store::causal::CausalRun;

/// Lines of source around a target on a page.
const AROUND: u32 = 4;

/// What the user wants to know of windows.
pub(super) fn analyse_options(args: &CausalAnswerArgs, combine: CausalCombine, only: &[String]) -> AnalyseOptions {
    AnalyseOptions {
        assume: args.assume,
        sort: match args.sort {
            CausalSort::Gain => Sort::Gain,
            CausalSort::Slope => Sort::Slope,
            CausalSort::Share => Sort::Share,
        },
        combine: match combine {
            CausalCombine::Ours => Combine::Ours,
            CausalCombine::Sum => Combine::Sum,
        },
        only: only.to_vec(),
        ..AnalyseOptions::default()
    }
}

/// Prints the answer of a run in all the forms asked for; the answer, for the exit code.
///
/// # Errors
/// A file or stdout cannot be written.
pub(super) fn show(
    run: &CausalRun,
    options: &AnalyseOptions,
    args: &CausalAnswerArgs,
    form: &FormArgs,
    common: Common,
) -> anyhow::Result<CausalAnswer> {
    let found = analyse(run, options);
    for file in &args.export {
        let format = if file.json_lines { coz::Format::JsonLines } else { coz::Format::Tabs };
        let exported = coz::export(run, format);
        let path = file.path.display();
        std::fs::write(&file.path, exported.text).with_context(|| format!("cannot write {path}"))?;
        let left = exported.left_out;
        let left = if left == 0 {
            String::new()
        } else {
            format!(" ({left} windows left out: Coz has no word for their targets)")
        };
        let shared = exported.shared;
        let merged = if shared == 0 {
            String::new()
        } else {
            format!("; {shared} targets share a place with another one, which readers take for one")
        };
        tell(common, &format!("{path}: for Coz's viewer{left}{merged}"));
    }
    if form.json {
        failure::or_seen_enough(answer::write(json::causal(&found).as_bytes()).map_err(Into::into))?;
    } else if let Some(file) = &form.html {
        let page = causal_page(&CausalPage { title: title(run), answer: &found, sources: sources(&found) });
        std::fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))?;
        tell(common, &format!("{}: written", file.display()));
    } else {
        let view = CausalView { all: common.verbose > 0, curves: args.curves };
        failure::or_seen_enough(answer::print(&text::causal(&found, view, &answer::layout())).map_err(Into::into))?;
    }
    for warning in text::causal_warnings(&found) {
        if !run.notes.contains(&warning) {
            tell(common, &warning);
        }
    }
    Ok(found)
}

fn title(run: &CausalRun) -> String {
    let name = run.meta.command.split_whitespace().next().unwrap_or("a program");
    format!("whither causal: {}", name.rsplit('/').next().unwrap_or(name))
}

/// Source around each target, where it can be read here.
fn sources(answer: &CausalAnswer) -> Vec<(u32, Vec<(u32, String)>)> {
    let of = |file: &str, line: u32| -> Option<Vec<(u32, String)>> {
        let path = std::path::Path::new(file);
        // What a recording names need not be a file of text here.
        let meta = path.metadata().ok().filter(|m| path.is_absolute() && m.is_file() && m.len() < 8 << 20)?;
        (meta.len() > 0).then_some(())?;
        let text = String::from_utf8_lossy(&std::fs::read(path).ok()?).into_owned();
        let (first, last) = (line.saturating_sub(AROUND), line.saturating_add(AROUND));
        let numbered = (1..).zip(text.lines().map(str::to_owned));
        Some(numbered.filter(|(n, _)| (first..=last).contains(n)).collect())
    };
    let wanted = answer.targets.iter().filter(|t| t.line > 0).take(40);
    wanted.filter_map(|t| Some((t.id, of(&t.file, t.line)?))).collect()
}

/// One line on stderr.
pub(super) fn tell(common: Common, text: &str) {
    if !common.quiet {
        tell!("whither: {text}");
    }
}

/// What an answer comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Worth,
    NotWorth,
    /// Nothing can be said of any target.
    Nothing,
}

impl Found {
    pub(super) fn of(answer: &CausalAnswer) -> Self {
        let worth = |v: &Verdict| {
            matches!(
                v,
                Verdict::FixThis
                    | Verdict::HelpsUntil { .. }
                    | Verdict::HelpsOther { .. }
                    | Verdict::Contention { .. }
                    | Verdict::DependsOnLoad { .. }
            )
        };
        if answer.targets.iter().any(|t| worth(&t.verdict))
            || answer.latency.iter().any(|l| l.told().is_some_and(|g| g.low > 0.0))
        {
            Self::Worth
        } else if answer.targets.iter().any(|t| t.verdict.is_an_answer())
            || answer.latency.iter().any(|l| l.told().is_some())
        {
            Self::NotWorth
        } else {
            Self::Nothing
        }
    }

    /// Without a command whose status comes first.
    pub(super) fn ending(self) -> Ending {
        if self == Self::Worth { Ending::Done } else { Ending::No }
    }
}
