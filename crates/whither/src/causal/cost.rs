//! What causal profiling costs a command, apart: the paper's four runs (plain; attached and idle; experiments
//! without delays; everything), by turns, so that a drifting machine hits all four alike.

use super::bridge::{Adapter, Idle};
use super::{change, show};
use crate::cli::{CausalOverheadArgs, Common};
use crate::failure::{Ending, Usage};
use crate::{answer, signals};
use std::time::{Duration, Instant};
use whither_causal::{Policy, PolicyOptions};
use whither_kernel::launch;
use whither_session::causal::{CausalOptions, CausalPolicy, pair, point, run};
use whither_session::{SessionError, StopFlag};
use whither_stats::describe::median;

/// `whither causal overhead`.
pub(super) fn overhead(args: &CausalOverheadArgs, common: Common) -> anyhow::Result<Ending> {
    if args.points.end_to_end {
        return Err(Usage("overhead is measured in whole runs anyway; leave --end-to-end out".into()).into());
    }
    let stop = signals::stop_flag()?;
    let mut options = change::plain(&args.command, None);
    options.points = args.points.progress.iter().map(|p| point(p)).collect::<Result<_, _>>()?;
    options.pairs = args.points.latency.iter().map(|p| pair(p)).collect::<Result<_, _>>()?;
    (options.end_to_end, options.marks) = (false, true);
    let mut times: [Vec<f64>; 4] = Default::default();
    for round in 1..=args.runs {
        show::tell(common, &format!("round {round} of {}", args.runs));
        times[0].push(plain(&args.command)?);
        times[1].push(measured(&options, &mut Idle::Rest, &stop)?);
        times[2].push(measured(&options, &mut Idle::Zero, &stop)?);
        let policy = PolicyOptions { seed: u64::from(round), warm_ns: 100_000_000, ..PolicyOptions::default() };
        times[3].push(measured(&options, &mut Adapter(Policy::new(policy)), &stop)?);
    }
    let medians = times.each_ref().map(|t| median(t));
    tell(&medians, args)
}

fn plain(command: &[String]) -> anyhow::Result<f64> {
    let held = launch::hold(command).map_err(SessionError::from)?;
    let began = Instant::now();
    let status = held.release().map_err(SessionError::from)?.wait();
    took(began.elapsed(), Some(status), command)
}

fn measured(options: &CausalOptions, policy: &mut dyn CausalPolicy, stop: &StopFlag) -> anyhow::Result<f64> {
    let began = Instant::now();
    let outcome = run(options, policy, stop, &mut |_| {})?;
    if stop.is_set() {
        return Err(SessionError::Interrupted.into());
    }
    took(began.elapsed(), outcome.target_status, &[])
}

fn took(time: Duration, status: Option<i32>, command: &[String]) -> anyhow::Result<f64> {
    match status {
        Some(0) => Ok(time.as_secs_f64()),
        Some(status) => anyhow::bail!("the command {} failed with status {status}", command.join(" ")),
        None => Err(SessionError::Interrupted.into()),
    }
}

fn tell(medians: &[f64; 4], args: &CausalOverheadArgs) -> anyhow::Result<Ending> {
    let base = medians[0].max(1e-9);
    let steps = [1, 2, 3].map(|i| (medians[i] - medians[i - 1]) / base);
    let total = (medians[3] - medians[0]) / base;
    if args.json {
        let document = serde_json::json!({
            "schema": whither_causal::SCHEMA, "overhead": {
                "rounds": args.runs, "plain_s": medians[0], "idle_s": medians[1], "sampling_s": medians[2],
                "experiments_s": medians[3], "startup": steps[0], "sampling": steps[1], "delay": steps[2], "total": total,
            }
        });
        answer::print(&document.to_string())?;
    } else {
        let mut text = format!("plain run {:.2} s (medians of {} rounds)\n", medians[0], args.runs);
        for (name, part) in [("start-up", steps[0]), ("sampling", steps[1]), ("delays", steps[2]), ("total", total)] {
            text.push_str(&format!("  {name:<9} {:+6.1} %\n", part * 100.0));
        }
        answer::print(&text)?;
    }
    Ok(Ending::Done)
}
