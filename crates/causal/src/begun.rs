//! Programs that had just been begun: until their code is known nothing of them is made faster, and the others are spared what they
//! would have paid for it. Where a program is executed for each piece of work, that part of each is lost.

use crate::analyse::Analysis;

/// Part of the time of windows with speed-up that such programs ran.
fn share(analysis: &Analysis<'_>, target: u32) -> f64 {
    let begun: u64 = analysis.run.turns.iter().filter(|t| t.target == target).map(|t| t.begun_ns).sum();
    let own = analysis.by_target.get(&target).map_or(&[][..], Vec::as_slice);
    let wall: u64 = own.iter().filter(|w| w.percent > 0).map(|w| w.wall_ns).sum();
    if wall == 0 { 0.0 } else { (begun as f64 / wall as f64).min(1.0) }
}

/// By how much an effect may be told too small: all of that time may have been the target's.
pub(crate) fn hide(analysis: &Analysis<'_>, target: u32, percent: u8) -> f64 {
    f64::from(percent) / 100.0 * share(analysis, target)
}

/// Why there can be no verdict.
pub(crate) fn cannot_say(hidden: f64) -> String {
    format!(
        "programs are executed again and again, and nothing of one is made faster before it was looked at: the gain may be up to {:.0} \
         points more than was seen; give each more to do, or try the change itself (`whither causal verify`)",
        100.0 * hidden
    )
}

#[cfg(test)]
mod tests {
    use crate::analyse::tests::{Program, named};
    use crate::{AnalyseOptions, Verdict, analyse};
    use whither_store::causal::{CausalRun, LoadKind, Turns};

    /// A target that is told to gain nothing where programs that had just been begun ran for such a part of the time.
    fn flat(part: f64) -> CausalRun {
        let mut run = Program { y: |_, _| 0.0, shares: vec![0.35, 0.35], noise: 0.01 }.run(300, 4);
        run.meta.load = LoadKind::Closed;
        run.turns = (0..2)
            .map(|target| {
                let delayed = run.windows.iter().filter(|w| w.target == target && w.percent > 0);
                let wall: u64 = delayed.map(|w| w.wall_ns).sum();
                Turns { target, begun_ns: (part * wall as f64) as u64, ..Turns::default() }
            })
            .collect();
        run
    }

    #[test]
    fn what_was_too_new_to_be_made_faster_may_gain_more() {
        let answer = analyse(&flat(0.1), &AnalyseOptions::default());
        let (row, plain) = (named(&answer, "f0"), analyse(&flat(0.0), &AnalyseOptions::default()));
        let (gain, without) = (row.gain.expect("told"), named(&plain, "f0").gain.expect("told"));
        assert!(
            (gain.high - without.high - 0.03).abs() < 1e-6 && (gain.low - without.low).abs() < 1e-6,
            "{gain:?} {without:?}"
        );
        assert!(
            matches!(&row.verdict, Verdict::CannotSay { why } if why.contains("up to 3 points more")),
            "{:?}",
            row.verdict
        );
        assert!(matches!(named(&plain, "f0").verdict, Verdict::DoNotBother { .. }));
    }

    #[test]
    fn a_little_of_it_is_in_the_interval_alone() {
        let answer = analyse(&flat(0.02), &AnalyseOptions::default());
        assert!(
            matches!(named(&answer, "f0").verdict, Verdict::DoNotBother { .. }),
            "{:?}",
            named(&answer, "f0").verdict
        );
    }
}
