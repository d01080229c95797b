//! `--replay`: a session that begins as a recorded one did and takes its steps again. What the recording kept fills
//! flags that were not given; the session takes the steps at their times.

use super::keep;
use super::told::Teller;
use super::verbs::said;
use crate::cli::{Common, MeasureArgs};
use crate::failure::Usage;
use whither_session::calls::{Reply, Verb, of_one_build};
use whither_store::call_steps::CallStep;
use whither_store::calls::CallRecording;

/// Fills flags from the recording to be replayed, and tells its steps: none without `--replay`.
///
/// # Errors
/// It is no recording, or is from before steps were kept.
pub(super) fn begin_like(args: &mut MeasureArgs, common: Common) -> anyhow::Result<Vec<CallStep>> {
    let Some(path) = &args.replay else { return Ok(Vec::new()) };
    let shown = path.display().to_string();
    let CallRecording { script, metrics, tool, .. } = keep::open(path)?;
    let Some(script) = script else {
        let old = format!("{shown} was made by whither {tool}, which kept no steps: record it anew with -o");
        return Err(Usage(old).into());
    };
    let teller = Teller::new(common, false);
    if args.what.function.is_empty() && args.what.functions_from.is_empty() {
        of_one_build(script.functions.iter().map(String::as_str)).iter().for_each(|note| teller.line(note));
        args.what.function = script.functions;
    }
    if args.what.exclude.is_empty() {
        args.what.exclude = script.exclude;
    }
    if args.what.metrics.is_empty() && !args.what.entry_only {
        args.what.metrics = metrics;
    }
    match script.steps.as_slice() {
        [] => teller.line(&format!("{shown} has no steps: nothing was changed while it was measured")),
        [.., last] => teller.line(&format!(
            "{} of {shown} will be taken again, the last one after {:.2} s",
            if script.steps.len() == 1 { "1 step".into() } else { format!("{} steps", script.steps.len()) },
            last.after_ns as f64 / 1e9
        )),
    }
    Ok(script.steps)
}

/// What came of a step, as one sentence.
pub(super) fn taken(step: &str, verb: &Verb, reply: &Reply) -> String {
    let text = said(verb, reply).map_or_else(|e| format!("not done: {e}"), |(text, _)| text);
    format!("step {step}: {}", text.replace('\n', "; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Color;
    use clap::Parser;
    use whither_store::call_steps::{CallChange, CallScript};
    use whither_store::{OnExisting, calls_recording};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        measure: MeasureArgs,
    }

    /// Functions, exclusions and metrics that a session begins with.
    fn begun(recording: &std::path::Path, words: &[&str]) -> [Vec<String>; 3] {
        let words = ["calls", "--replay"]
            .map(Into::into)
            .into_iter()
            .chain([recording.as_os_str().to_owned()])
            .chain(words.iter().map(Into::into));
        let mut args = Line::parse_from(words).measure;
        let common = Common { color: Color::Never, quiet: true, verbose: 0 };
        assert_eq!(begin_like(&mut args, common).unwrap().len(), 1, "its steps come in any case");
        [args.what.function, args.what.exclude, args.what.metrics]
    }

    #[test]
    fn what_is_not_given_anew_is_as_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run.wh");
        let words = |all: &[&str]| all.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let steps = vec![CallStep { after_ns: 1, change: CallChange::Reset { label: "1".into() } }];
        let script = CallScript { functions: words(&["solve"]), exclude: words(&["x"]), steps };
        let recording =
            CallRecording { metrics: words(&["wall", "n=arg1"]), script: Some(script), ..CallRecording::default() };
        calls_recording::save(&run, &recording, OnExisting::Refuse).unwrap();
        let (all, none) = ([words(&["solve"]), words(&["x"]), words(&["wall", "n=arg1"])], Vec::<String>::new());
        assert_eq!(begun(&run, &[]), all);
        assert_eq!(
            begun(&run, &["-f", "a", "-x", "b", "-m", "count"]),
            [words(&["a"]), words(&["b"]), words(&["count"])]
        );
        assert_eq!(begun(&run, &["-F", "file"]), [none.clone(), words(&["x"]), words(&["wall", "n=arg1"])]);
        assert_eq!(begun(&run, &["--entry-only"])[2], none, "times are not known at entries");
    }

    #[test]
    fn what_came_of_a_step_is_one_line() {
        let add = Verb::Add { patterns: vec!["solve".into()], exclude: vec![] };
        let nothing = taken("+1.20 s  add 'solve'", &add, &Reply::Nothing { near: vec!["solver".into()] });
        assert_eq!(
            nothing,
            "step +1.20 s  add 'solve': nothing matches (a pattern means the whole name); there are solver"
        );
        let no = taken("+1.20 s  add 'solve'", &add, &Reply::No { why: "the process has ended".into() });
        assert_eq!(no, "step +1.20 s  add 'solve': not done: the process has ended");
    }
}
