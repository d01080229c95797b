//! Where a session's points and its target are in the program: waited for while libraries load and wrappers execute, and
//! refused with what there is instead. How a place is found in one file: `points`.

use super::super::alive::Alive;
use super::super::code::readable;
use super::super::group::Point;
use super::super::options::CausalEvent;
use super::super::points;
use super::super::policy::CausalPolicy;
use super::super::program::CodeFile;
use super::super::window::Limits;
use super::super::words::{self, NamePattern, PointPlace, TargetSpec};
use super::{LOOK, Session};
use crate::SessionError;
use std::time::{Duration, Instant};
use whither_store::causal::{CHEAPER_POINT, PointKind};
use whither_store::symbols::Symbols;

/// A point that is nowhere is waited for so long where it may come: libraries are loaded, wrappers execute the program.
const PATIENCE: Duration = Duration::from_secs(2);
/// Marks of Coz are there once they are reached: those that come within so long of the first one are all that count.
const TOGETHER: Duration = Duration::from_millis(300);
/// A program without marks may still be a wrapper for so long.
const WRAPPED: Duration = Duration::from_millis(200);

impl Session<'_> {
    /// Waits until every point is somewhere, or until it is clear that one is nowhere.
    pub(super) fn find_points(
        &mut self,
        alive: &mut Alive,
        policy: &mut dyn CausalPolicy,
        limits: &Limits<'_>,
        on: &mut dyn FnMut(CausalEvent),
    ) -> Result<(), SessionError> {
        self.name_points(alive, limits, on)?;
        let patience = if alive.is_ours() { PATIENCE } else { Duration::ZERO };
        let began = Instant::now();
        let mut pause = Duration::from_millis(1);
        let (mut told, mut complete) = (false, false);
        while self.group.points.iter().any(|p| !p.is_placed()) {
            let may_come = began.elapsed() >= patience && self.may_all_come();
            if may_come && !told {
                told = true;
                let text = "waiting for the program to reach its marks: nothing is measured before".to_owned();
                self.tell(text, on);
            }
            let waited = began.elapsed() >= patience && !may_come;
            if waited || complete || alive.is_over() || limits.are_reached() {
                return self.missing(alive);
            }
            alive.sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
            // It is looked at once more when it is known to be complete.
            complete = self.are_in_code() && self.group.is_complete(alive.pid);
            self.group.look_now(&[])?;
            self.group.drain(policy, self.stratum, true);
        }
        Ok(())
    }

    /// Counters that are polled tell how often, and not when.
    pub(super) fn pairs_have_times(&self) -> Result<(), SessionError> {
        let points = &self.group.points;
        let is_polled = |p: &Point| p.index.is_none() && p.kind == PointKind::Counter;
        let end = |p: &Point| p.end.and_then(|end| points.get(end as usize));
        let without = |p: &&Point| end(p).is_some_and(|end| is_polled(p) || is_polled(end));
        let Some(pair) = points.iter().find(without) else { return Ok(()) };
        let why = "it is a counter, which tells how often it was reached and not when: a latency needs marks of whither.h \
                   (WHITHER_BEGIN, WHITHER_END; `whither causal marks --c`) or places in the code (FUNCTION,FUNCTION:ret); as a \
                   point of --progress it can be measured";
        let text = if is_polled(pair) { &pair.spec.text } else { &end(pair).unwrap_or(pair).spec.text };
        Err(SessionError::Point { text: text.clone(), why: why.to_owned() })
    }

    /// Whether all that are nowhere yet would be code: marks have names once they are reached, and the nearest ones are told of those.
    fn are_in_code(&self) -> bool {
        let in_code = |place: &PointPlace| {
            matches!(
                place,
                PointPlace::Line(_) | PointPlace::Function(_) | PointPlace::Return(_) | PointPlace::Sampled(_)
            )
        };
        self.group.points.iter().filter(|p| !p.is_placed()).all(|p| in_code(&p.spec.place))
    }

    /// Whether all that are nowhere yet are marks that the program has and will reach.
    fn may_all_come(&self) -> bool {
        self.group.points.iter().filter(|p| !p.is_placed()).all(|p| self.group.coz.may_come(&p.spec))
    }

    /// Waits for the library that has the target, as [`Self::find_points`] does for points.
    pub(super) fn find_target(
        &mut self,
        alive: &mut Alive,
        policy: &mut dyn CausalPolicy,
        limits: &Limits<'_>,
    ) -> Result<(), SessionError> {
        let patience = if alive.is_ours() { PATIENCE } else { Duration::ZERO };
        let began = Instant::now();
        let mut complete = false;
        while let Err(missing) = self.check_target(alive) {
            if began.elapsed() >= patience || complete || alive.is_over() || limits.are_reached() {
                return Err(missing);
            }
            alive.sleep(Duration::from_millis(5));
            complete = self.group.is_complete(alive.pid);
            self.group.look_now(&[])?;
            self.group.drain(policy, self.stratum, true);
        }
        Ok(())
    }

    /// A target that cannot be anywhere is told at once.
    fn check_target(&self, alive: &Alive) -> Result<(), SessionError> {
        self.options.targets.iter().try_for_each(|target| self.check_one(target, alive))
    }

    fn check_one(&self, target: &TargetSpec, alive: &Alive) -> Result<(), SessionError> {
        let group = &self.group;
        let modules = group.program.modules_of(alive.pid);
        let files: Vec<usize> = modules
            .iter()
            .filter(|m| {
                group.program.files.get(m.file).is_some_and(|f| group.code.scope().has_module(&f.seen_as, m.main))
            })
            .map(|m| m.file)
            .collect();
        let place = match target {
            TargetSpec::Line(line) => PointPlace::Line(line.clone()),
            TargetSpec::Function(name, _) => PointPlace::Function(name.clone()),
        };
        let code = &group.code;
        let mut of = files.iter().filter_map(|f| group.program.files.get(*f));
        let there = |f: &CodeFile| match &place {
            PointPlace::Line(l) => code.service().statements(&f.image, &l.file).iter().any(|s| s.line == l.line),
            PointPlace::Function(name) => {
                !code.named(f, |n| name.matches(n)).is_empty() || self.may_be_inlined(name, f)
            }
            _ => true,
        };
        // A wrapper executes the program later.
        if files.is_empty() || of.clone().any(there) || (alive.is_ours() && group.processes.len() > 1) {
            return Ok(());
        }
        let instead = of.find_map(|f| points::instead(&place, f, code)).map(|i| format!("; {i}")).unwrap_or_default();
        Err(SessionError::Point { text: target.text(), why: format!("the program has no such code{instead}") })
    }

    /// A function may be inlined everywhere, and names of waits are those of their kinds, too.
    fn may_be_inlined(&self, name: &NamePattern, of: &CodeFile) -> bool {
        let service = self.group.code.service();
        let lacks = || service.declared(&of.image, &[]).lacks(|n| name.matches(n) || name.matches(&readable(n)));
        service.has_lines(&of.image) && (!self.options.waits.is_empty() || !lacks())
    }

    /// Without a point of the user's, the marks in the program; without those, the end of each run.
    fn name_points(
        &mut self,
        alive: &mut Alive,
        limits: &Limits<'_>,
        on: &mut dyn FnMut(CausalEvent),
    ) -> Result<(), SessionError> {
        if !self.options.marks || !self.group.points.is_empty() {
            return Ok(());
        }
        let marks = self.marks(alive, limits)?;
        if marks.is_empty() && alive.is_ours() {
            let text = "no progress point was named and the program has no marks: its whole runs are compared, as with \
                        --end-to-end; --progress names something that it does again and again (`whither causal suggest`)";
            self.tell(text.to_owned(), on);
            self.group.add_end();
        }
        let pairs = |name: &str, this: &str, other: &str| {
            name.strip_suffix(this).is_some_and(|stem| marks.contains(&format!("{stem}{other}")))
        };
        for name in &marks {
            // Both ends of a request have one rate; one of them is enough.
            if pairs(name, "_end", "_begin") {
                continue;
            }
            let spec = words::point(&format!("mark:{name}"))?;
            self.group.points.push(Point::new(spec, false, None));
        }
        self.group.forget_places();
        Ok(())
    }

    /// Names of the program's marks.
    fn marks(&mut self, alive: &mut Alive, limits: &Limits<'_>) -> Result<Vec<String>, SessionError> {
        let mut marks = self.group.own_marks();
        // A wrapper executes the program a little later; marks of Coz are there once they are reached.
        let patience = if self.group.coz.are_counted() { PATIENCE } else { WRAPPED };
        let mut until = Instant::now() + if marks.is_empty() { patience } else { Duration::ZERO };
        while alive.is_ours() && !alive.is_over() && !limits.are_reached() && Instant::now() < until {
            alive.sleep(Duration::from_millis(5));
            self.group.look_now(&[])?;
            if marks.is_empty() && self.group.coz.names().next().is_some() {
                until = Instant::now() + TOGETHER;
            }
            marks = self.group.own_marks();
            if !marks.is_empty() && !self.group.coz.are_counted() {
                break;
            }
        }
        Ok(marks)
    }

    /// A program that breakpoints of points make twice as slow is not measured, and is left alone.
    pub(super) fn points_are_cheap(&mut self) -> Result<(), SessionError> {
        /// So long it must have run, less than is watched before the first window.
        const ENOUGH_NS: u64 = 30_000_000;
        // Each look reads a dozen files of the kernel's, which takes a CPU from the program.
        if self.priced.is_some_and(|at| at.elapsed() < LOOK) {
            return Ok(());
        }
        let loads = self.group.exec.loads();
        if loads.run_ns < ENOUGH_NS {
            return Ok(());
        }
        self.priced = Some(Instant::now());
        if loads.points_ns < loads.run_ns / 2 {
            return Ok(());
        }
        let texts: Vec<&str> = self.group.points.iter().map(|p| p.spec.text.as_str()).collect();
        let share = (100 * loads.points_ns / loads.run_ns).min(99);
        let why = format!("its breakpoint takes {share} % of the program's time; {CHEAPER_POINT}");
        Err(SessionError::Point { text: texts.join(", "), why })
    }

    fn marks_of_coz(&self, point: &Point) -> Option<String> {
        let files: Vec<_> = self.group.program.files.iter().map(|of| of.image.path.clone().into()).collect();
        self.group.coz.missing(&point.spec, &files)
    }

    /// The error for a point that is nowhere.
    fn missing(&self, alive: &mut Alive) -> Result<(), SessionError> {
        let Some(point) = self.group.points.iter().find(|p| !p.is_placed()) else { return Ok(()) };
        let why = point.refused.clone().or_else(|| self.marks_of_coz(point)).or_else(|| {
            let group = &self.group;
            // The program itself has nothing like it: a library may.
            let in_library = || {
                let is_name = matches!(point.spec.place, PointPlace::Function(_) | PointPlace::Return(_));
                let mut files = group.program.files.iter().filter(|_| is_name);
                files.find_map(|of| points::instead(&point.spec.place, of, &group.code))
            };
            let instead = point
                .instead
                .as_ref()
                .map(|(_, text)| text.clone())
                .or_else(in_library)
                .map(|i| format!("; {i}"))
                .unwrap_or_default();
            Some(format!("the program has no such place{instead}"))
        });
        let ended = if alive.is_over() { " (it has ended meanwhile)" } else { "" };
        let why = format!("{}{ended}", why.unwrap_or_default());
        Err(SessionError::Point { text: point.spec.text.clone(), why })
    }
}
