//! A prediction beside the truth: the old and the new program run by turns, nothing is delayed, and the time
//! per visit of both is compared with what the recording says a speed-up would do.

use super::bridge::Idle;
use super::keep;
use super::show;
use crate::answer;
use crate::cli::{CausalVerify, Common};
use crate::failure::{Ending, Usage};
use crate::signals;
use std::time::Duration;
use whither_causal::{AnalyseOptions, TargetRow, Verdict, analyse};
use whither_session::StopFlag;
use whither_session::causal::{
    CausalBackEnd, CausalOptions, CausalScope, CausalWhom, ExecutorChoice, PointSpec, Runs, UnitChoice, point, run,
};
use whither_stats::paired;
use whither_store::SymbolOptions;
use whither_store::causal::{CHEAPER_POINT, CausalRun, PointKind};

/// Part of the time that breakpoints of points may take: changes of a few percent are to be seen.
const TOO_DEAR: f64 = 0.05;

/// `whither causal verify`.
pub(super) fn verify(args: &CausalVerify, common: Common) -> anyhow::Result<Ending> {
    let (old, new) = split(&args.commands)?;
    let recording = keep::load(&args.recording)?;
    let options = AnalyseOptions { assume: args.at, only: vec![args.target.clone()], ..AnalyseOptions::default() };
    let answer = analyse(&recording, &options);
    let row = answer.targets.iter().find(|t| t.gain.is_some() || t.local.is_some()).or_else(|| answer.targets.first());
    let Some(row) = row else {
        let names: Vec<&str> = recording.targets.iter().take(8).map(|t| t.name.as_str()).collect();
        let text = format!("no target of the recording is called {}; there are {}", args.target, names.join(", "));
        return Err(Usage(text).into());
    };
    let stop = signals::stop_flag()?;
    let whole = recording.points.first().is_none_or(|p| p.kind == PointKind::End);
    let point = match recording.points.first() {
        Some(first) if !whole => Some(point(&first.name)?),
        _ => None,
    };
    let mut periods = (Vec::new(), Vec::new());
    for round in 1..=args.runs {
        show::tell(common, &format!("round {round} of {}", args.runs));
        periods.0.push(period(&old, point.as_ref(), &stop)?);
        periods.1.push(period(&new, point.as_ref(), &stop)?);
    }
    let found = Found::of(row, &periods.0, &periods.1, args.at);
    tell(&found, row, args, &recording)
}

fn split(words: &[String]) -> Result<(Vec<String>, Vec<String>), Usage> {
    let mut parts = words.split(|w| w == "::");
    match (parts.next(), parts.next(), parts.next()) {
        (Some(old), Some(new), None) if !old.is_empty() && !new.is_empty() => Ok((old.to_vec(), new.to_vec())),
        _ => Err(Usage("write the old command, `::` and the new command: -- ./old input :: ./new input".into())),
    }
}

/// Nanoseconds per visit of the point, or of the whole run, of one run of a command.
fn period(command: &[String], point: Option<&PointSpec>, stop: &StopFlag) -> anyhow::Result<f64> {
    let options = plain(command, point);
    let outcome = run(&options, &mut Idle::Watch, stop, &mut |_| {})?;
    if stop.is_set() {
        return Err(whither_session::SessionError::Interrupted.into());
    }
    if let Some(status) = outcome.target_status.filter(|s| *s != 0) {
        anyhow::bail!("{} failed with status {status}: a comparison would mean nothing", command.join(" "));
    }
    let visits = outcome.visits.first().copied().unwrap_or(0);
    if visits == 0 {
        anyhow::bail!("{} did not reach the progress point", command.join(" "));
    }
    let cost = &outcome.run.overhead;
    let share = cost.points_ns as f64 / cost.target_cpu_ns.max(1) as f64;
    if share > TOO_DEAR {
        let command = command.join(" ");
        let share = 100.0 * share;
        anyhow::bail!(
            "the breakpoint of the progress point takes {share:.0} % of the time of {command}: times per visit are not its own; record anew and {CHEAPER_POINT}"
        );
    }
    Ok(outcome.observed_ns as f64 / visits as f64)
}

/// A run that is only watched.
pub(super) fn plain(command: &[String], point: Option<&PointSpec>) -> CausalOptions {
    CausalOptions {
        whom: CausalWhom::Command(command.to_vec()),
        executable: command.first().and_then(|c| super::measure::executable_of(c)),
        points: point.cloned().into_iter().collect(),
        pairs: Vec::new(),
        marks: false,
        unit: UnitChoice::Function,
        targets: Vec::new(),
        scope: CausalScope::default(),
        waits: Vec::new(),
        kernel_time: true,
        follow: true,
        duration: None,
        runs: Runs::Times(1),
        end_to_end: point.is_none(),
        period: Duration::from_millis(1),
        cap: Duration::from_micros(500),
        seed: 0,
        back_end: CausalBackEnd::Auto,
        executor: ExecutorChoice::Spin,
        load: None,
        symbols: SymbolOptions::default(),
    }
}

/// Prediction and truth, both as reductions of the time per visit.
struct Found {
    predicted: Option<(f64, f64, f64)>,
    measured: (f64, f64, f64),
}

impl Found {
    fn of(row: &TargetRow, old: &[f64], new: &[f64], at: u8) -> Self {
        let gain = row.gain.or(row.local).filter(|g| g.percent == at);
        let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len().max(1) as f64;
        // `paired` tells new minus old; sign and scale are ours.
        let (difference, interval) = paired(old, new);
        let scale = mean(old).max(f64::MIN_POSITIVE);
        Self {
            predicted: match row.verdict {
                Verdict::RateFixed => Some((0.0, 0.0, 0.0)),
                _ => gain.map(|g| (g.y, g.low, g.high)),
            },
            measured: (-difference / scale, -interval.high / scale, -interval.low / scale),
        }
    }

    /// Whether they differ by no more than chance explains: intervals may overlap and yet do.
    fn agree(&self) -> Option<bool> {
        let (y, low, high) = self.predicted?;
        let (found, from, to) = self.measured;
        let half = if found > y { (high - y).hypot(found - from) } else { (y - low).hypot(to - found) };
        Some((found - y).abs() <= half)
    }

    fn conclusion(&self) -> &'static str {
        match (self.agree(), self.predicted) {
            (Some(true), _) => "they agree within their 95 % intervals",
            (_, Some((y, ..))) if self.measured.0 > y => {
                "they differ: the change does more, or something else, than making this code faster"
            }
            (_, Some(_)) => {
                "they differ: the change makes this code faster by less, makes other code slower, or the prediction is wrong \
                 (was the recording's program a closed loop, and the machine quiet?)"
            }
            (_, None) => "there is no prediction; `whither causal extend` adds experiments",
        }
    }
}

fn tell(found: &Found, row: &TargetRow, args: &CausalVerify, recording: &CausalRun) -> anyhow::Result<Ending> {
    let agree = found.agree();
    if args.json {
        let span = |(y, low, high): (f64, f64, f64)| serde_json::json!({"y": y, "low": low, "high": high});
        let document = serde_json::json!({
            "schema": whither_causal::SCHEMA, "verify": {
                "target": row.name, "percent": args.at, "point": recording.points.first().map(|p| &p.name),
                "predicted": found.predicted.map(span), "measured": span(found.measured), "agree": agree, "runs": args.runs,
            }
        });
        answer::print(&document.to_string())?;
    } else {
        let span = |(y, low, high): (f64, f64, f64)| {
            format!("{:+.1} % ({:+.1} to {:+.1})", y * 100.0, low * 100.0, high * 100.0)
        };
        let predicted = found.predicted.map_or_else(|| format!("nothing ({})", row.reason), span);
        let verdict = found.conclusion();
        answer::print(&format!(
            "{} {} % faster, time per visit less by\n  predicted  {predicted}\n  measured   {}\n{verdict}",
            row.name,
            args.at,
            span(found.measured)
        ))?;
    }
    Ok(if agree == Some(true) { Ending::Done } else { Ending::No })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_commands() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert!(split(&words("./a 1 :: ./b 2")).is_ok_and(|(a, b)| a.len() == 2 && b.len() == 2));
        for wrong in ["./a", "./a ::", ":: ./b", "a :: b :: c"] {
            assert!(split(&words(wrong)).is_err(), "{wrong}");
        }
    }

    /// Intervals that overlap at their ends do not agree: z is 2.5 in the second.
    #[test]
    fn prediction_and_truth_agree_as_far_as_chance_goes() {
        let agree = |predicted, measured| Found { predicted: Some(predicted), measured }.agree();
        assert_eq!(agree((10.0, 5.0, 15.0), (14.0, 9.0, 19.0)), Some(true));
        assert_eq!(agree((16.1, 9.0, 23.2), (0.2, -10.1, 8.0)), Some(false));
        assert_eq!(agree((16.0, 9.0, 23.0), (7.9, 0.8, 15.0)), Some(true));
        assert_eq!(Found { predicted: None, measured: (0.0, 0.0, 0.0) }.agree(), None);
    }
}
