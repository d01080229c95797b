//! Effects on points beside the first one, which the verdicts are about: what gains nothing for one kind of work may gain
//! a good deal for another.

use crate::analyse::Analysis;
use crate::phase::over_the_run;
use crate::results::{Phase, PointEffect, PointRow, Verdict};
use crate::series::{Baselines, Measure};
use whither_store::causal::CausalRun;

/// A smaller gain is not worth a word.
const WORTH: f64 = 0.02;

/// Of a target; `many`: intervals that hold at once.
pub(crate) fn others(analysis: &Analysis<'_>, id: u32, many: usize, phase: Option<Phase>) -> Vec<PointEffect> {
    let points = (1..analysis.run.points.len() as u32).filter(|_| analysis.by_target.contains_key(&id));
    let tells = analysis.quality.cannot_say.is_none() && analysis.is_told(id);
    let effects = points.filter_map(|point| {
        let measure = Measure::Period(point);
        let baselines = Baselines::new(analysis.kept.iter().copied(), measure);
        let e = analysis.estimate(id, measure, &baselines)?;
        let whole = || {
            let gain = analysis.gain(id, &e, many, measure);
            phase.map_or(gain, |p| over_the_run(&gain, &p))
        };
        Some(PointEffect {
            point,
            curve: analysis.curve(id, &e, measure),
            fit: e.fit,
            gain: Some(analysis.gain(id, &e, 1, measure)),
            over_the_run: tells.then(whole),
        })
    });
    effects.collect()
}

/// What is said of points that nothing can be told for: a slip in a name is easily made. The first one is not among them, as no
/// window counts without it.
pub(crate) fn never_reached(rows: &[PointRow]) -> Option<String> {
    let missed: Vec<&str> = rows.iter().skip(1).filter(|p| p.visits == 0).map(|p| p.name.as_str()).collect();
    let (what, was) = if missed.len() == 1 { ("the point", "was") } else { ("the points", "were") };
    (!missed.is_empty()).then(|| format!("{what} {} {was} never reached in any window that counts", missed.join(", ")))
}

/// Nobody is told not to bother with what gains for another point.
pub(crate) fn with_others(verdict: Verdict, run: &CausalRun, others: &[PointEffect]) -> Verdict {
    let Verdict::DoNotBother { up_to, within } = verdict else { return verdict };
    let is_end = |point: u32| run.points.iter().any(|p| p.end == Some(point));
    let gains = |e: &&PointEffect| !is_end(e.point) && e.over_the_run.is_some_and(|g| g.low > 0.0 && g.y >= WORTH);
    let points: Vec<u32> = others.iter().filter(gains).map(|e| e.point).collect();
    if points.is_empty() {
        Verdict::DoNotBother { up_to, within }
    } else {
        Verdict::HelpsOther { points, up_to, within }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::tests::{named, two};
    use crate::{AnalyseOptions, analyse};
    use whither_store::causal::{DropReason, PointKind, PointVisits, ProgressPoint};

    /// `two()` with a second point that `f1` alone makes faster, by `part` of itself.
    fn with_second(part: f64) -> CausalRun {
        let mut run = two().run(300, 1);
        run.points.push(ProgressPoint { name: "q".to_owned(), kind: PointKind::Probe, end: None });
        for w in &mut run.windows {
            let s = if w.target == 1 { f64::from(w.percent) / 100.0 } else { 0.0 };
            let first = w.visits[0];
            let noise = 1.0 + 0.02 * ((w.begin_ns / 320_000_000 % 7) as f64 - 3.0) / 3.0;
            let last_virtual_ns = (300e6 * (1.0 - part * s) * noise) as i64;
            w.visits.push(PointVisits { point: 1, last_virtual_ns, ..first });
        }
        run
    }

    #[test]
    fn what_gains_for_another_point_is_worth_the_work() {
        let answer = analyse(&with_second(0.7), &AnalyseOptions::default());
        let row = named(&answer, "f1");
        assert!(matches!(&row.verdict, Verdict::HelpsOther { points, .. } if points == &[1]), "{:?}", row.verdict);
        assert!(
            row.reason.starts_with("helps q (+21 ") && row.reason.contains("p gains less than 2 %"),
            "{}",
            row.reason
        );
        // One that is certain of its own point stays as it was.
        assert!(matches!(named(&answer, "f0").verdict, Verdict::HelpsUntil { .. }));
        let nothing = analyse(&with_second(0.0), &AnalyseOptions::default());
        assert!(
            matches!(named(&nothing, "f1").verdict, Verdict::DoNotBother { .. }),
            "{:?}",
            named(&nothing, "f1").other_points
        );
    }

    #[test]
    fn a_point_that_is_never_reached_is_told() {
        let told = |run: &CausalRun| {
            let answer = analyse(run, &AnalyseOptions::default());
            answer.warnings.iter().chain(&answer.notes).any(|n| n.starts_with("the point q was never reached"))
        };
        let mut run = with_second(0.7);
        assert!(!told(&run));
        run.windows.iter_mut().for_each(|w| w.visits[1] = PointVisits { point: 1, ..PointVisits::default() });
        assert!(told(&run));
    }

    #[test]
    fn a_disturbed_run_tells_nothing_of_other_points() {
        let mut run = with_second(0.7);
        run.windows.iter_mut().step_by(2).for_each(|w| w.dropped = Some(DropReason::ForeignLoad));
        let answer = analyse(&run, &AnalyseOptions::default());
        let other = &named(&answer, "f1").other_points[0];
        assert!(other.gain.is_some() && other.over_the_run.is_none(), "{other:?}");
    }
}
