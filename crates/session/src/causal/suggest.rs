//! Proposals for progress points: places of the program that are passed at a useful and steady rate. First
//! samples tell which functions there are, then visits of their entries and of system calls are counted for a
//! while. A proposal is a guess about meaning by rate alone; the user knows what a unit of work is.

use super::alive::Alive;
use super::group::{Group, Point};
use super::options::{CausalOptions, CausalWhom, UnitChoice};
use super::policy::{CausalPolicy, Step};
use super::run::refused;
use super::window::{self, Limits, Observed};
use super::words::point;
use crate::{SessionError, StopFlag};
use std::time::{Duration, Instant};
use whither_sample::causal::{CausalBpf, CausalConfig};
use whither_store::causal::{PointKind, Unit, Window};

/// System calls that pace programs.
const CALLS: [&str; 14] = [
    "accept",
    "accept4",
    "recvfrom",
    "recvmsg",
    "sendto",
    "sendmsg",
    "read",
    "write",
    "pread64",
    "pwrite64",
    "fsync",
    "epoll_wait",
    "poll",
    "clock_nanosleep",
];
/// Functions whose entries are counted.
const FUNCTIONS: usize = 12;
/// Time slices in which visits are counted.
const SLICE: u64 = 200_000_000;
/// Rates between which a point can be measured well and cheaply, per second.
const USEFUL: (f64, f64) = (3.0, 10_000.0);

/// A place that may be a progress point.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// As `--progress` takes it.
    pub point: String,
    /// Visits per second.
    pub rate: f64,
    /// Standard deviation of the visits by their mean, in slices of 200 ms.
    pub spread: f64,
    /// Part of the samples that have it on their call path, 0 for places without samples.
    pub share: f64,
    /// Why it is proposed, or what speaks against it.
    pub reason: String,
}

/// Nothing is experimented with here.
struct NoPolicy;

impl CausalPolicy for NoPolicy {
    fn declare(&mut self, _target: u32, _unit: Unit, _parent: Option<u32>) {}
    fn sampled(&mut self, _at_ns: u64, _target: Option<u32>, _weight: u32) {}
    fn next(&mut self, _at_ns: u64, _rates: &[f64]) -> Step {
        Step::Over
    }
    fn finished(&mut self, _window: &Window) {}
    fn anew(&mut self) {}
}

/// Looks at a program for the options' duration; best proposals first. A command launched for this is asked to
/// end afterwards.
///
/// # Errors
/// Why it could not be looked at.
pub fn suggest(options: &CausalOptions, stop: &StopFlag) -> Result<Vec<Proposal>, SessionError> {
    if let CausalWhom::Process(pid) = &options.whom {
        Alive::attached(*pid)?;
    }
    let config = CausalConfig { follow_forks: options.follow, ..CausalConfig::default() };
    let exec = CausalBpf::open(&config).map_err(refused)?;
    let options = CausalOptions { unit: UnitChoice::Inclusive, points: Vec::new(), ..options.clone() };
    let mut group = Group::new(&options, Box::new(exec));
    for name in CALLS {
        group.points.push(Point::new(point(&format!("syscall:{name}"))?, false, None));
    }
    group.place_kernel_points()?;
    let mut alive = start(&options, &mut group)?;
    let time = options.duration.unwrap_or(Duration::from_secs(5));
    let limits = Limits { stop, deadline: Some(Instant::now() + time) };
    let found = look(&mut group, &mut alive, &limits, time);
    alive.terminate(&mut || group.exec.processes());
    if alive.is_ours() {
        // A program that does not end on request is given some time, then left alone.
        alive.sleep(Duration::from_secs(2));
        alive.status();
    }
    found
}

fn start(options: &CausalOptions, group: &mut Group) -> Result<Alive, SessionError> {
    match &options.whom {
        CausalWhom::Process(pid) => {
            let alive = Alive::attached(*pid)?;
            group.exec.watch(*pid)?;
            Ok(alive)
        }
        CausalWhom::Command(words) => {
            let held = group.coz.hold(words, options.executable.as_deref())?;
            group.exec.watch(held.pid())?;
            Ok(Alive::launched(held.release()?))
        }
    }
}

fn look(
    group: &mut Group,
    alive: &mut Alive,
    limits: &Limits<'_>,
    time: Duration,
) -> Result<Vec<Proposal>, SessionError> {
    group.look_now(&[])?;
    let half = Instant::now() + time / 2;
    while Instant::now() < half && !alive.is_over() && !limits.are_reached() {
        window::observe(group, SLICE / 2, 0, &mut NoPolicy, alive, limits)?;
        group.learn()?;
    }
    for name in group.own_marks() {
        group.points.push(Point::new(point(&format!("mark:{name}"))?, false, None));
    }
    for name in functions(group) {
        // A name that cannot be written as a point is none.
        if let Ok(spec) = point(&name) {
            group.points.push(Point::new(spec, false, None));
        }
    }
    group.forget_places();
    let mut slices: Vec<Vec<u64>> = vec![Vec::new(); group.points.len()];
    let mut counted = 0;
    while !alive.is_over() && !limits.are_reached() {
        let Observed { visits, seen, .. } = window::observe(group, SLICE, 0, &mut NoPolicy, alive, limits)?;
        // A slice cut short would look unsteady.
        if seen.wall_ns >= SLICE / 2 || slices.iter().all(Vec::is_empty) {
            counted += seen.wall_ns;
            visits.iter().zip(&mut slices).for_each(|(v, s)| s.push(v.visits));
        }
    }
    Ok(ranked(group, &slices, counted))
}

/// Functions on the call paths of the most samples.
fn functions(group: &Group) -> Vec<String> {
    let mut counts: Vec<(u64, &str)> = Vec::new();
    for sample in group.targets.samples() {
        let Some(target) = sample.target.and_then(|t| group.targets.list.get(t as usize)) else { continue };
        if target.unit == Unit::Inclusive && !target.name.is_empty() {
            counts.push((sample.all, &target.name));
        }
    }
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts.into_iter().take(FUNCTIONS).map(|(_, name)| name.to_owned()).collect()
}

fn ranked(group: &Group, slices: &[Vec<u64>], counted: u64) -> Vec<Proposal> {
    let all = group.sampled.max(1) as f64;
    let shares: Vec<(String, u64)> = group
        .targets
        .samples()
        .iter()
        .filter_map(|s| Some((group.targets.list.get(s.target? as usize)?.name.clone(), s.all)))
        .collect();
    let mut found: Vec<(f64, Proposal)> = Vec::new();
    for (point, slices) in group.points.iter().zip(slices).filter(|(p, _)| p.is_placed()) {
        let total: u64 = slices.iter().sum();
        if total == 0 {
            continue;
        }
        let share = shares.iter().find(|(name, _)| *name == point.spec.text).map_or(0.0, |(_, n)| *n as f64 / all);
        let proposal = Proposal {
            point: point.spec.text.clone(),
            rate: total as f64 * 1e9 / counted.max(1) as f64,
            spread: spread(slices),
            share: share.min(1.0),
            reason: String::new(),
        };
        found.push(judged(proposal, point.kind));
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.point.cmp(&b.1.point)));
    found.into_iter().map(|(_, p)| p).collect()
}

/// Standard deviation by mean.
fn spread(counts: &[u64]) -> f64 {
    let n = counts.len().max(1) as f64;
    let mean = counts.iter().sum::<u64>() as f64 / n;
    let variance = counts.iter().map(|c| (*c as f64 - mean).powi(2)).sum::<f64>() / n;
    if mean > 0.0 { variance.sqrt() / mean } else { 0.0 }
}

/// The better, the higher: marks first, then steady places at a useful rate that much of the work goes through.
fn judged(mut p: Proposal, kind: PointKind) -> (f64, Proposal) {
    let mark = p.point.starts_with("mark:");
    let useful = p.rate >= USEFUL.0 && p.rate <= USEFUL.1;
    let steady = 1.0 / (1.0 + 4.0 * p.spread);
    let mut score = steady + p.share * 0.5;
    if mark {
        score += 4.0;
    }
    if !useful {
        score -= 2.0;
    }
    if kind == PointKind::Kernel && p.point.contains("accept") {
        score += 0.3;
    }
    p.reason = if p.rate < USEFUL.0 {
        "rare: needs long windows".into()
    } else if p.rate > USEFUL.1 {
        "very frequent: counting it slows the program".into()
    } else if mark {
        "a mark in the source".into()
    } else if p.spread > 0.5 {
        "unsteady".into()
    } else if kind == PointKind::Kernel {
        format!("system call {}, steady", p.point.strip_prefix("syscall:").unwrap_or(&p.point))
    } else {
        format!("steady; {:.0} % of the samples are below it", p.share * 100.0)
    };
    (score, p)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposal(point: &str, rate: f64, spread: f64, share: f64) -> Proposal {
        Proposal { point: point.into(), rate, spread, share, reason: String::new() }
    }

    #[test]
    fn marks_then_steady_places() {
        let score = |p: Proposal, kind| judged(p, kind).0;
        let mark = score(proposal("mark:x", 100.0, 0.1, 0.0), PointKind::Probe);
        let steady = score(proposal("round", 100.0, 0.05, 0.9), PointKind::Probe);
        let unsteady = score(proposal("burst", 100.0, 2.0, 0.9), PointKind::Probe);
        let rare = score(proposal("main", 0.2, 0.0, 1.0), PointKind::Probe);
        let often = score(proposal("tiny", 1e6, 0.0, 0.1), PointKind::Probe);
        assert!(mark > steady && steady > unsteady && unsteady > rare && steady > often);
        assert!(spread(&[4, 4, 4]) == 0.0 && spread(&[0, 8]) == 1.0 && spread(&[]) == 0.0);
    }
}
