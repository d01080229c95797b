//! More experiments for a recording: the same points are measured again, and what was measured then and now
//! becomes one run whose pieces stay apart.

use super::bridge::Adapter;
use super::measure::{How, Teller, executable_of, finish, options, policy_options};
use super::{keep, like, show};
use crate::cli::{CausalCombine, CausalExtend, CausalLoad, CausalPoints, Common};
use crate::failure::{Ending, Usage};
use crate::signals;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use whither_causal::Policy;
use whither_session::causal::run;
use whither_store::causal::{
    CausalRun, DropReason, Elsewhere, Executor, FromOutside, LoadKind, PointKind, TakesOver, Target, Turns,
};

/// `whither causal extend`.
pub(super) fn extend(args: &CausalExtend, common: Common) -> anyhow::Result<Ending> {
    let before = keep::load(&args.recording)?;
    let points = points_of(&before);
    let experiments = policy_options(&args.experiments, args.answer.assume, !args.targets.target.is_empty());
    let how = How::of(&args.experiments, experiments.seed).like(before.meta.executor)?;
    let told = (&args.whom, args.command.as_slice());
    let targets = like::as_recorded(&args.targets, &before, executable(args).as_deref())?;
    let options = options(told, &points, &targets, &args.names, how)?;
    let stop = signals::stop_flag()?;
    let ranking = show::analyse_options(&args.answer, CausalCombine::Ours, &[]);
    let mut teller = Teller::new(false, ranking.clone(), common, args.form.json);
    let outcome = run(&options, &mut Adapter(Policy::new(experiments)), &stop, &mut |event| teller.on(event))?;
    let mut all = before;
    append(&mut all, &outcome.run)?;
    keep::save(Some(&args.recording), true, &all, common)?;
    finish(&outcome, || {
        let found = show::show(&all, &ranking, &args.answer, &args.form, common)?;
        Ok(show::Found::of(&found))
    })
}

/// The file that will be, or is, executed.
fn executable(args: &CausalExtend) -> Option<String> {
    let of_process = |pid| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let path = match args.whom.pid {
        Some(pid) => of_process(pid),
        None => args.command.first().and_then(|c| executable_of(c)).map(Into::into),
    };
    path.map(|p| std::fs::canonicalize(&p).unwrap_or(p).to_string_lossy().into_owned())
}

/// The points of a recording as they were written.
fn points_of(run: &CausalRun) -> CausalPoints {
    let mut points = CausalPoints {
        load: match run.meta.load {
            LoadKind::Open => CausalLoad::Open,
            LoadKind::Closed => CausalLoad::Closed,
            LoadKind::Unknown => CausalLoad::Auto,
        },
        ..CausalPoints::default()
    };
    let ends: Vec<u32> = run.points.iter().filter_map(|p| p.end).collect();
    for (i, point) in (0..).zip(&run.points) {
        match point.end.and_then(|end| run.points.get(end as usize)) {
            Some(end) => points.latency.push(format!("{},{}", point.name, end.name)),
            None if ends.contains(&i) => {}
            None if point.kind == PointKind::End => points.end_to_end = true,
            None => points.progress.push(point.name.clone()),
        }
    }
    points
}

/// Puts a run behind another one of the same program.
///
/// # Errors
/// [`Usage`] when it is another program, or other points.
fn append(all: &mut CausalRun, new: &CausalRun) -> anyhow::Result<()> {
    if all.points != new.points {
        return Err(Usage("the points of the recording cannot be measured in this program".into()).into());
    }
    let modules = |run: &CausalRun| -> BTreeSet<String> { run.targets.iter().map(|t| t.module.clone()).collect() };
    let (known, met) = (modules(all), modules(new));
    if !known.is_empty() && !met.is_empty() && known.is_disjoint(&met) {
        let (known, met) = (list(&known), list(&met));
        return Err(Usage(format!("the recording is of {known}, and this was {met}: another program")).into());
    }
    if (all.meta.executor == Executor::Agent) != (new.meta.executor == Executor::Agent) {
        let text = "the recording was made by another back end, and windows of both do not go together (--backend)";
        return Err(Usage(text.into()).into());
    }
    match (all.meta.executor, new.meta.executor) {
        // The better ones are those that were slept.
        (Executor::Spin, Executor::Sleep) => {
            all.windows.iter_mut().for_each(|w| w.dropped = Some(DropReason::Spun));
            all.turns.clear();
            all.asked.clear();
            (all.meta.executor, all.meta.executor_reason) = (Executor::Sleep, new.meta.executor_reason.clone());
        }
        (Executor::Sleep, Executor::Spin) => {
            let text = "the delays of the recording were slept, these could only be spun, and windows of both do not go together";
            return Err(Usage(text.into()).into());
        }
        _ => {}
    }
    let changed = new.targets.iter().find(|t| {
        let same = all.targets.iter().find(|o| o.module == t.module && o.image.is_some());
        same.is_some_and(|o| t.image.is_some() && o.image != t.image)
    });
    if let Some(changed) = changed {
        let text =
            format!("{} is another build than the one in the recording; make a new recording of it", changed.module);
        return Err(Usage(text).into());
    }
    let strata = all.windows.iter().map(|w| w.stratum).chain(all.samples.iter().map(|s| s.stratum));
    let stratum = whither_causal::strata_behind(strata);
    let run = all.windows.iter().map(|w| w.run).max().map_or(0, |r| r.saturating_add(1));
    let numbers = merge(&mut all.targets, &new.targets);
    let number = |id: u32| numbers.get(id as usize).copied().unwrap_or(id);
    for window in &new.windows {
        let mut window = window.clone();
        window.run = window.run.saturating_add(run);
        window.stratum = window.stratum.saturating_add(stratum);
        window.target = number(window.target);
        all.windows.push(window);
    }
    for sample in &new.samples {
        let mut sample = *sample;
        sample.stratum = sample.stratum.saturating_add(stratum);
        sample.target = sample.target.map(number);
        all.samples.push(sample);
    }
    for asked in &new.asked {
        FromOutside { target: number(asked.target), ..*asked }.add_to(&mut all.asked);
    }
    for turns in &new.turns {
        let target = number(turns.target);
        match all.turns.iter_mut().find(|t| t.target == target) {
            Some(same) => same.add(turns),
            None => all.turns.push(Turns { target, ..*turns }),
        }
    }
    // Of a later run more is known: it has the windows of those before to choose its own by.
    for new in &new.takes_over {
        let (target, by) = (number(new.target), number(new.by));
        all.takes_over.retain(|old| old.target != target);
        all.takes_over.push(TakesOver { target, by });
    }
    for wait in &new.waits {
        match all.waits.iter_mut().find(|w| w.site == wait.site) {
            Some(same) => same.blocked_ns = same.blocked_ns.saturating_add(wait.blocked_ns),
            None => all.waits.push(wait.clone()),
        }
    }
    add_elsewhere(&mut all.elsewhere, &new.elsewhere);
    let (old, more) = (&mut all.meta, &new.meta);
    old.goroutines_move |= more.goroutines_move;
    old.duration_ns = old.duration_ns.saturating_add(more.duration_ns);
    old.runs = old.runs.saturating_add(more.runs);
    old.threads = old.threads.max(more.threads);
    old.processes = old.processes.max(more.processes);
    (old.pid, old.status) = (more.pid, more.status);
    let (old, more) = (&mut all.overhead, &new.overhead);
    old.points_ns = old.points_ns.saturating_add(more.points_ns);
    old.handlers_ns = old.handlers_ns.saturating_add(more.handlers_ns);
    old.user_ns = old.user_ns.saturating_add(more.user_ns);
    old.inserted_ns = old.inserted_ns.saturating_add(more.inserted_ns);
    let (was, is) = (old.target_cpu_ns as f64, more.target_cpu_ns as f64);
    old.spun = (old.spun * was + more.spun * is) / (was + is).max(1.0);
    old.spun_of = old.spun_of.saturating_add(more.spun_of);
    old.target_cpu_ns = old.target_cpu_ns.saturating_add(more.target_cpu_ns);
    all.notes.extend(new.notes.iter().filter(|n| !all.notes.contains(n)).cloned().collect::<Vec<_>>());
    Ok(())
}

/// Where samples lay that no target has; a recording that knew nothing of it knows only of what came later.
fn add_elsewhere(all: &mut Elsewhere, new: &Elsewhere) {
    all.all = all.all.saturating_add(new.all);
    for module in &new.modules {
        match all.modules.iter_mut().find(|m| m.module == module.module) {
            Some(same) => {
                same.outside = same.outside.saturating_add(module.outside);
                same.charged = same.charged.saturating_add(module.charged);
            }
            None => all.modules.push(module.clone()),
        }
    }
    all.modules.sort_by_key(|m| std::cmp::Reverse(m.outside.saturating_add(m.charged)));
}

fn list(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Adds targets; where each of the new ones is now.
fn merge(all: &mut Vec<Target>, new: &[Target]) -> Vec<u32> {
    type Key = (whither_store::causal::Unit, String, String, u32, Vec<String>, Vec<String>, String);
    let key = |t: &Target| -> Key {
        let (name, file, path) = (t.name.clone(), t.file.clone(), t.path.clone());
        // Of a wait it is the function; of a function other names say nothing new, and recordings of old lack them.
        let waiting = if t.unit == whither_store::causal::Unit::OffCpu { t.aliases.clone() } else { Vec::new() };
        (t.unit, name, file, t.line, path, waiting, t.module.clone())
    };
    let mut known: FxHashMap<Key, u32> = (0..).zip(all.iter()).map(|(i, t)| (key(t), i)).collect();
    let mut numbers = Vec::new();
    for target in new {
        let number = *known.entry(key(target)).or_insert_with(|| {
            all.push(target.clone());
            all.len() as u32 - 1
        });
        numbers.push(number);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_store::causal::{ModuleSamples, ProgressPoint, TargetSamples, Unit, Window};

    fn target(name: &str) -> Target {
        Target {
            unit: Unit::Function,
            name: name.into(),
            file: String::new(),
            line: 0,
            path: Vec::new(),
            aliases: Vec::new(),
            module: "/bin/a".into(),
            image: None,
            ranges: Vec::new(),
        }
    }

    fn run(names: &[&str]) -> CausalRun {
        CausalRun {
            targets: names.iter().map(|n| target(n)).collect(),
            windows: (0..names.len() as u32).map(|target| Window { target, ..Window::default() }).collect(),
            samples: vec![TargetSamples { target: Some(0), ..TargetSamples::default() }],
            points: vec![ProgressPoint { name: "p".into(), kind: PointKind::Probe, end: None }],
            ..CausalRun::default()
        }
    }

    #[test]
    fn spun_windows_and_slept_ones_are_never_both_in_an_answer() {
        let made_by = |executor| {
            let mut run = run(&["a"]);
            run.meta.executor = executor;
            run
        };
        let (spun, slept) = (made_by(Executor::Spin), made_by(Executor::Sleep));
        let mut all = spun.clone();
        append(&mut all, &slept).expect("the slept ones are those that count");
        let dropped: Vec<_> = all.windows.iter().map(|w| w.dropped).collect();
        assert_eq!(
            (dropped.as_slice(), all.meta.executor),
            ([Some(DropReason::Spun), None].as_slice(), Executor::Sleep)
        );
        let before = all.clone();
        assert!(append(&mut all, &spun).is_err());
        assert_eq!(all, before);
    }

    #[test]
    fn samples_outside_of_the_scope_add_up() {
        let of = |all, module: &str, outside| Elsewhere {
            all,
            modules: vec![ModuleSamples { module: module.into(), outside, charged: 1 }],
        };
        let mut all = of(10, "a.so", 2);
        add_elsewhere(&mut all, &of(20, "b.so", 9));
        add_elsewhere(&mut all, &of(5, "a.so", 3));
        let rows: Vec<_> = all.modules.iter().map(|m| (m.module.as_str(), m.outside, m.charged)).collect();
        assert_eq!((all.all, rows), (35, vec![("b.so", 9, 1), ("a.so", 5, 2)]));
    }

    #[test]
    fn runs_are_put_together_by_what_targets_are() {
        let mut all = run(&["a", "b"]);
        append(&mut all, &run(&["b", "c"])).expect("the same program");
        assert_eq!(all.targets.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        let windows: Vec<_> = all.windows.iter().map(|w| (w.run, w.stratum, w.target)).collect();
        assert_eq!(windows, [(0, 0, 0), (0, 0, 1), (1, 1, 1), (1, 1, 2)]);
        assert_eq!(all.samples.last().map(|s| (s.target, s.stratum)), Some((Some(1), 1)));
        let mut other = run(&["a"]);
        other.points.clear();
        assert!(append(&mut all, &other).is_err());
        let mut another = run(&["a"]);
        another.targets[0].module = "/bin/b".into();
        let before = all.clone();
        assert!(append(&mut all, &another).is_err_and(|e| e.to_string().contains("another program")));
        assert_eq!(all, before);
        assert_eq!(points_of(&all).progress, ["p"]);
    }
}
