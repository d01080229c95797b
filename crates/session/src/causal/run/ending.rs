//! What a session leaves: the run as measured, who disturbed it, and why there is no answer where there is none.

use super::super::group::Point;
use super::super::options::{CausalEnd, CausalEvent, CausalOutcome, CausalWhom, UnitChoice};
use super::super::words::{PointPlace, TargetSpec};
use super::super::{points, window};
use super::{Session, nanos};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use whither_kernel::{clock, proc};
use whither_sample::causal::Loads;
use whither_store::causal::{CausalMeta, CausalOverhead, CausalRun, DropReason, Executor, LoadKind, PointKind, Window};

/// Part of the windows that may be spoilt by others.
const MOST_DISTURBED: f64 = 0.3;
/// Less CPU time than this is nobody's fault.
const BLAMED: Duration = Duration::from_millis(100);

/// Delays that are less than this in all say nothing of how they are inserted.
const LEAST_DELAY_NS: u64 = 20_000_000;

impl Session<'_> {
    pub(super) fn finish(mut self, status: Option<i32>, on: &mut dyn FnMut(CausalEvent)) -> CausalOutcome {
        self.others.look(&self.group.processes);
        if let Some(text) = self.disturbed() {
            self.tell(text, on);
        }
        if let Some(text) = status.filter(|_| self.end == CausalEnd::Target).and_then(killed) {
            self.tell(text, on);
        }
        let nothing = self.nothing();
        let seen = nothing.is_none().then(|| self.group.points.iter().find_map(|point| self.inlined(point)));
        if let Some(text) = seen.flatten() {
            self.tell(text, on);
        }
        self.group.code.poll();
        let mut run = self.described();
        run.targets = self.group.targets.finished(&self.group.code, &self.group.program);
        run.waits = self.group.targets.waits(&self.group.code);
        run.takes_over = self.group.threads.takes_over(&run.targets);
        run.meta.status = status;
        CausalOutcome {
            run,
            target_status: status,
            end: self.end,
            visits: self.visits,
            observed_ns: self.observed_ns,
            nothing,
        }
    }

    /// The sentence about a machine that was not quiet.
    fn disturbed(&self) -> Option<String> {
        let spoilt = self.windows.iter().filter(|w| window::is_disturbed(w)).count();
        let all = self.windows.len();
        if all == 0 || spoilt as f64 <= MOST_DISTURBED * all as f64 {
            return None;
        }
        let worst: Vec<String> = self
            .others
            .worst()
            .into_iter()
            .filter(|(_, time)| *time >= BLAMED)
            .map(|(name, time)| format!("{name} ({:.1} s)", time.as_secs_f64()))
            .collect();
        let who = if worst.is_empty() {
            "the hypervisor or short-lived processes used them".to_owned()
        } else {
            format!("CPU time went to {}", worst.join(", "))
        };
        let peer = self.others.foremost().map_or_else(String::new, |name| {
            format!(
                "; if {name} is what drives the program (its clients, a load generator), give the two CPUs of their own with \
                 taskset, or measure both together, begun by one command"
            )
        });
        Some(format!(
            "{spoilt} of {all} windows were spoilt because others used the CPUs, so the answer cannot be trusted: {who}; \
             measure on a quiet machine, or keep CPUs free for the program{peer}"
        ))
    }

    /// That a point does not see calls that were inlined. In other files its name may mean something else.
    fn inlined(&self, point: &Point) -> Option<String> {
        let group = &self.group;
        let mut files = point.files.iter().filter_map(|file| group.program.files.get(*file));
        files.find_map(|of| points::inlined(&point.spec.place, of, &group.code))
    }

    /// Why there is no answer.
    fn nothing(&self) -> Option<String> {
        if self.windows.iter().any(|w| w.dropped.is_none()) {
            return None;
        }
        let ended = self.ended.unwrap_or_else(Instant::now);
        let seconds = ended.saturating_duration_since(self.began).as_secs_f64();
        let point = self.group.points.iter().find(|p| p.kind != PointKind::End);
        Some(match point {
            None if self.group.points.is_empty() => {
                "no progress point: name one with --progress, or whole runs with --end-to-end; `whither causal suggest` \
                 proposes some"
                    .into()
            }
            _ if !self.windows.is_empty() && self.windows.iter().all(window::is_disturbed) => self.none_counts(),
            Some(point) if !self.has_visits() && self.group.sampled > 0 => format!(
                "the point {} was never reached in the {seconds:.1} s that were measured; {}",
                point.spec.text,
                self.inlined(point).unwrap_or_else(|| "`whither causal suggest` proposes points that are".to_owned())
            ),
            _ if self.windows.iter().any(window::is_disturbed) => self.none_counts(),
            _ if self.group.in_scope == 0 && self.group.sampled == 0 => format!(
                "the program used no CPU time that could be sampled in {seconds:.2} s: it is too short or only waits; repeat \
                 it with -n 30, or make its waits targets with --off-cpu all"
            ),
            _ if self.group.in_scope == 0 && !self.options.targets.is_empty() => {
                let names = self.group.targets.list.iter().take(8).map(|t| t.name.clone()).collect::<Vec<_>>().join(", ");
                format!("none of the samples lies in the target; they lie in {names}{}", self.instead_of_targets())
            }
            _ if self.group.in_scope == 0 && self.options.unit == UnitChoice::Line && self.group.without_lines().is_some() => {
                "the program has no debug information, so its lines are not known; compile it with -g, or use --unit function"
                    .into()
            }
            _ if self.group.in_scope == 0 => {
                "none of the samples lies in the program's own code; --binary and --source say what is".into()
            }
            _ if self.windows.is_empty() && self.is_whole() && self.end == CausalEnd::Time => format!(
                "the first run, which is only watched, takes longer than the {seconds:.1} s that were allowed (-d); allow several \
                 runs, or name something that the program does again and again with --progress (`whither causal suggest`)"
            ),
            _ if self.windows.is_empty() && self.is_whole() => format!(
                "{} took {seconds:.2} s in all, too little to choose a target by: give each run more work, or ask for more of \
                 them (-n {})",
                if self.runs == 1 { "the one run".to_owned() } else { format!("{} runs", self.runs) },
                (u64::from(self.runs) * 10).max(30)
            ),
            _ if self.windows.is_empty() => format!(
                "the program ended after {seconds:.2} s, before the first experiment; repeat it with -n 30, or give it more \
                 work"
            ),
            _ => too_short(&self.windows, seconds / f64::from(self.runs.max(1))).unwrap_or_else(|| self.none_counts()),
        })
    }

    /// What the program has that resembles targets in which no sample lay, or where their code is instead.
    fn instead_of_targets(&self) -> String {
        let group = &self.group;
        let instead = |target: &TargetSpec| {
            let place = match target {
                TargetSpec::Line(line) => PointPlace::Line(line.clone()),
                TargetSpec::Function(name, _) => PointPlace::Function(name.clone()),
            };
            group.program.files.iter().find_map(|of| points::instead(&place, of, &group.code))
        };
        self.options.targets.iter().filter_map(instead).map(|text| format!("; {text}")).collect()
    }

    fn none_counts(&self) -> String {
        format!(
            "none of the {} windows counts ({}); measure longer with -d, or repeat the command with -n",
            self.windows.len(),
            reasons(&self.windows)
        )
    }

    pub(super) fn described(&mut self) -> CausalRun {
        let machine = proc::machine();
        let loads = self.group.exec.loads();
        let times = self.first_window.zip(self.last_window);
        let duration = times.map_or(Duration::ZERO, |(first, last)| last.saturating_duration_since(first));
        let (executor, spun) = really(self.executor, &self.of_one_kind(&loads));
        CausalRun {
            meta: CausalMeta {
                command: self.command.clone(),
                pid: self.pid,
                processes: self.group.most_processes.max(1),
                threads: self.threads,
                began_ns: self.began_ns,
                duration_ns: nanos(duration),
                host: machine.host,
                kernel: machine.kernel,
                version: env!("CARGO_PKG_VERSION").into(),
                executor,
                executor_reason: self.executor_reason.clone(),
                goroutines_move: self.group.goroutines.change_threads(),
                period_ns: if loads.tick_ns > 0 { loads.tick_ns } else { self.config.tick_ns },
                seed: self.options.seed,
                load: self.options.load.unwrap_or(if self.paced * 2 > self.windows.len() {
                    LoadKind::Open
                } else {
                    LoadKind::Unknown
                }),
                asked: None,
                launched: matches!(self.options.whom, CausalWhom::Command(_)),
                runs: self.runs.max(1),
                status: None,
            },
            points: self.group.points.iter().map(Point::described).collect(),
            targets: self.group.targets.list.clone(),
            windows: settled(self.windows.clone()),
            samples: self.group.targets.samples(),
            turns: self.turns.clone(),
            asked: self.asked.clone(),
            waits: Vec::new(),
            takes_over: Vec::new(),
            elsewhere: self.group.elsewhere(),
            overhead: CausalOverhead {
                startup_ns: self.first_window.map_or(0, |f| nanos(f.saturating_duration_since(self.ordered))),
                handlers_ns: loads.handlers_ns,
                user_ns: clock::own_cpu_ns(),
                inserted_ns: loads.inserted_ns,
                target_cpu_ns: loads.run_ns.saturating_add(loads.inserted_ns),
                tick_cost_ns: loads.tick_cost_ns,
                points_ns: loads.points_ns,
                spun: self.group.spinning.share(),
                spun_of: self.group.spinning.samples(),
                spacing_ns: loads.spacing_ns,
                atomic: self.group.atomics.share(),
            },
            notes: self.group.notes.iter().cloned().chain(spun).collect(),
        }
    }
}

/// With the requests that had begun before anybody looked, and whose ends alone were seen: at a time with the fewest under way there
/// were none.
fn settled(mut windows: Vec<Window>) -> Vec<Window> {
    let mut fewest: HashMap<(u32, u32), i64> = HashMap::new();
    for (run, v) in windows.iter().flat_map(|w| w.visits.iter().map(|v| (w.run, v))) {
        let least = fewest.entry((run, v.point)).or_insert(0);
        *least = v.under_way.min(*least);
    }
    for w in &mut windows {
        for v in &mut w.visits {
            v.under_way = v.under_way.saturating_sub(fewest.get(&(w.run, v.point)).copied().unwrap_or(0));
        }
    }
    windows
}

/// How delays were really inserted: threads that cannot be made to sleep spin, and what holds for spinning then holds for the run.
fn really(asked: Executor, loads: &Loads) -> (Executor, Option<String>) {
    let slept = loads.slept_ns as f64 / loads.inserted_ns.max(1) as f64;
    if asked != Executor::Sleep || loads.inserted_ns < LEAST_DELAY_NS || slept >= 0.5 {
        return (asked, None);
    }
    let why = format!(
        "executor sleep: only {:.0} % of the delays could be slept, the others were spun, as they are in threads that block \
         the signal, are traced or have their system calls filtered; this run counts as spun",
        100.0 * slept
    );
    (Executor::Spin, Some(why))
}

/// Why there is no answer where the program ended in each window; `run_s`: how long it runs.
fn too_short(windows: &[Window], run_s: f64) -> Option<String> {
    let ended = !windows.is_empty() && windows.iter().all(|w| w.dropped == Some(DropReason::Ended));
    ended.then(|| {
        format!(
            "the program ended in each of the {} windows, and a run takes {run_s:.2} s; compare whole runs with --end-to-end, \
             or give it more work",
            windows.len()
        )
    })
}

/// The sentence about a command that a signal ended.
fn killed(status: i32) -> Option<String> {
    const BY_SIGNAL: i32 = 128;
    (BY_SIGNAL + 1..=BY_SIGNAL + 64).contains(&status).then(|| {
        let signal = status - BY_SIGNAL;
        format!("the command ended with status {status}, as by signal {signal}: what was measured until then counts")
    })
}

fn reasons(windows: &[Window]) -> String {
    use DropReason as R;
    let all = [
        (R::ForeignLoad, "others used the CPUs"),
        (R::Steal, "the hypervisor used the CPUs"),
        (R::NoVisits, "fewer than two visits"),
        (R::Ended, "the program ended"),
        (R::Stopped, "the program was stopped"),
        (R::Lost, "observations were lost"),
        (R::Spun, "their delays were spun, before it was seen that threads wait for cores because of them"),
        (
            R::Started,
            "programs had just been started, whose code could not be made faster yet: name the long-lived ones with -p, or give each more to do",
        ),
        (R::NotDrained, "delays could not be paid in time (threads of a real-time policy are never delayed)"),
    ];
    let count = |r: R| windows.iter().filter(|w| w.dropped == Some(r)).count();
    let told: Vec<String> =
        all.iter().filter(|(r, _)| count(*r) > 0).map(|(r, text)| format!("{}: {text}", count(*r))).collect();
    told.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_store::causal::PointVisits;

    #[test]
    fn runs_that_are_shorter_than_a_window_are_told_what_helps() {
        let dropped = |dropped| Window { dropped, ..Window::default() };
        let ended = || dropped(Some(DropReason::Ended));
        let why = too_short(&[ended(), ended()], 0.02).expect("none was over");
        assert!(
            why.contains("each of the 2 windows") && why.contains("0.02 s") && why.contains("--end-to-end"),
            "{why}"
        );
        assert_eq!(too_short(&[ended(), dropped(Some(DropReason::ForeignLoad))], 0.02), None);
        assert_eq!(too_short(&[], 0.02), None);
    }

    #[test]
    fn requests_that_were_under_way_before_anybody_looked_are_counted() {
        let window = |run, under_way: &[i64]| Window {
            run,
            visits: (0..)
                .zip(under_way)
                .map(|(point, n)| PointVisits { point, under_way: *n, ..PointVisits::default() })
                .collect(),
            ..Window::default()
        };
        // Two requests of the first point of run 0 had begun before; the others began with the program.
        let of = [window(0, &[-2, 1]), window(0, &[-1, 0]), window(1, &[0, 3])];
        let told: Vec<Vec<i64>> =
            settled(of.to_vec()).iter().map(|w| w.visits.iter().map(|v| v.under_way).collect()).collect();
        assert_eq!(told, [[0, 1], [1, 0], [0, 3]]);
    }

    #[test]
    fn a_command_that_a_signal_ended_is_told() {
        assert!(killed(137).is_some_and(|t| t.contains("signal 9")));
        assert_eq!((killed(0), killed(1), killed(128), killed(255)), (None, None, None, None));
    }

    #[test]
    fn a_run_that_was_asked_to_sleep_and_spun_is_told_as_spun() {
        let loads = |inserted_ns, slept_ns| Loads { inserted_ns, slept_ns, ..Loads::default() };
        let (executor, why) = really(Executor::Sleep, &loads(1_000_000_000, 100_000_000));
        assert_eq!(executor, Executor::Spin);
        assert!(why.unwrap().contains("only 10 % of the delays could be slept"));
        assert_eq!(really(Executor::Sleep, &loads(1_000_000_000, 900_000_000)), (Executor::Sleep, None));
        // Nothing was to be paid; a spinning session does not sleep.
        assert_eq!(really(Executor::Sleep, &loads(1_000_000, 0)), (Executor::Sleep, None));
        assert_eq!(really(Executor::Spin, &loads(1_000_000_000, 0)), (Executor::Spin, None));
    }
}
