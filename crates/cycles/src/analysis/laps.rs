//! What pairs of moments say of one procedure: how often a place in a loop was executed, from how far a register got that it
//! steps (`image/counters`), and the time that was sampled there. Rows come in, executions with errors go out; `frequency` hands
//! them to the flow solver.
//!
//! A pair tells the truth when the loop was not left between its moments. How far the two are apart is drawn by chance, so true
//! pairs agree on the time of a round whatever their distance, and others do not: a loop that was entered anew moved its register by
//! something that the time between has nothing to do with. What most pairs agree on is believed, at the longest distance where
//! they do. A loop whose rounds are of different lengths (caches, locks) has true pairs that do not agree: only they and all
//! others together tell what happened in the time. What else moved registers moved them both ways, so that the pairs that went
//! backwards tell how many of those that went too far may be false. But where a loop is entered anew at what a loop around it steps, all
//! pairs agree on the pace of that one: it is believed only of pairs in whose time it is hardly left.

use super::subject::{Places, Subject, To};
use crate::flow::Count;
use std::ops::RangeInclusive;
use whither_image::Flow;
use whither_image::cfg::{Edge, EdgeKind, Missing};
use whither_image::counters::{Code, Counter};
use whither_store::model::{Course, Image, LapCount};

/// Paces that agree: a factor of two, in eighths of a power of two.
const AGREE: u16 = 8;
/// Share of the pairs within a stretch that must agree. Differences that have nothing to do with time are spread over
/// both signs and several powers of two.
const MOST: f64 = 0.65;
/// Fewer pairs that agree tell nothing, unless all do: four false ones of that kind are met once in a thousand times.
const FEWEST_PAIRS: u64 = 8;
const FEWEST_OF_ONE_MIND: u64 = 4;
/// Fewer samples in a stretch tell no time.
const FEWEST_SAMPLES: f64 = 10.0;
/// Distances believed: at shorter ones what interrupts take is a part of them.
const SPANS: RangeInclusive<u8> = 14..=26;
/// No answer is better than this: executions told were 1 % low to 4 % high on average, at 2,500 and at 8,000 samples a second.
const LEAST_ERROR: f64 = 0.05;
/// How far the time of a pair is from what its rounds take at least, as a part of it.
const SCATTER: f64 = 0.15;
/// What is believed of how far paces differ from one moment of a machine to another, as logarithms, and how many pairs that belief is worth:
/// beside what others run, a loop was met at 1.4 ns a round and at 3.9.
const SCATTER_OF_MOMENTS: f64 = 1.0;
const MOMENTS: f64 = 4.0;
/// Dissenters of which so many are true are no reason against the others.
const HONEST: f64 = 0.9;
/// What was seen less often than this part of the rest of a loop hardly comes.
const HARDLY: f64 = 0.02;
/// What is expected to be lost with each sample besides its handler, nanoseconds, and its standard deviation: interrupts, and caches
/// that handlers have used.
const LOST_NS: f64 = 8000.0;
const LOST_SCATTER: f64 = 8000.0;
/// Standard deviation of what is lost behind handlers for each nanosecond that they took: the longer ones use more of the caches.
const LOST_BEHIND: f64 = 0.3;
/// No more is lost than so many times what is expected.
const MOST_LOST: f64 = 3.0;
/// Handlers leave a program this part of the time at least: rates that are asked for may be too high for what can be told.
const LEAST_OWN: f64 = 0.5;
/// Pairs in whose time a stretch is left more often than this are no pairs of one stay.
const MOST_LEAVES: f64 = 1.0;
/// Part of a stay that pairs take on average, at most, and what may be missing of quick ones.
const MOST_LEFT: f64 = 0.7;
const MOST_MISSED: f64 = 0.3;
/// With less of the time after a moment in the stretch than this, it is not known what belongs to it.
const LEAST_WITHIN: f64 = 0.1;

/// Executions per block of the places that pairs tell of. `sample_ns`: what a sample stands for.
pub(super) fn executions(subject: &Subject, image: &Image, rows: &[LapCount], sample_ns: f64) -> Vec<Count> {
    let is_unknown =
        |m: &Missing| matches!(m, Missing::IndirectJump(_) | Missing::TableGone(_) | Missing::Unbounded(_));
    let unknown = subject.cfg.missing.iter().any(is_unknown);
    if rows.is_empty() || unknown {
        return Vec::new();
    }
    let places = Places { image, cfg: &subject.cfg };
    let code = Code::of(&subject.cfg);
    let counters = code.counters();
    let of = |rows: &[LapCount]| {
        let at = places.insn(rows[0].offset)?;
        let counter = counters.iter().find(|c| c.at == at)?;
        let leaves = if code.begins_at_constants(counter) { Leaves::default() } else { Leaves::of(subject, counter) };
        execution(subject, counter, &leaves, rows, sample_ns)
    };
    rows.chunk_by(|a, b| a.offset == b.offset).filter_map(of).collect()
}

/// `leaves`: how often the stretch is left, where entries anew may look like rounds.
fn execution(
    subject: &Subject,
    counter: &Counter,
    leaves: &Leaves,
    rows: &[LapCount],
    sample_ns: f64,
) -> Option<Count> {
    let block = subject.block_of(counter.at)?;
    let samples: f64 = counter.stretch.iter().map(|&i| subject.samples[i]).sum();
    if samples < FEWEST_SAMPLES {
        return None;
    }
    let pace = (*SPANS.start()..=*SPANS.end())
        .rev()
        .find_map(|longest| agreed(rows, longest).filter(|pace| leaves.in_a_pair(&pace.told) <= MOST_LEAVES))?;
    let (within, doubt) = match calls(subject, &counter.stretch) {
        true => pace.within,
        // Without calls what ended in other code had left the loop.
        false => pace.out_of_kernel,
    };
    if within < LEAST_WITHIN {
        return None;
    }
    let rounds = samples * pace.rounds_within(sample_ns) / within;
    let chance = 1.0 / samples + pace.told.variance;
    let missed = pace.told.missed(counted_out(subject, counter));
    let error = (chance + doubt * doubt + missed * missed + LEAST_ERROR * LEAST_ERROR).sqrt();
    Some(Count { block, log: rounds.ln() + missed, error }).filter(|c| c.log.is_finite())
}

/// How often a stretch is left for each execution of its counter by branches that leave by count, as far as they are known.
fn counted_out(subject: &Subject, counter: &Counter) -> f64 {
    let inside = |insn: usize| counter.stretch.binary_search(&insn).is_ok();
    subject.trips.iter().filter(|t| inside(t.branch)).map(|t| t.chance).sum()
}

/// How often a stretch is left, at most.
#[derive(Clone, Copy, Debug, Default)]
struct Leaves {
    /// By branches that leave by count, for each execution of the counter: from what is to go of them.
    by_count: f64,
    /// By others, for each execution of the counter, as far as they were seen: ways never seen to be gone may have been gone once
    /// more than was looked, which is no bound to speak of for loops of more rounds than walks show.
    seen: f64,
    /// By others, in a nanosecond, where what they lead to, or come from, was counted.
    per_ns: Option<f64>,
}

impl Leaves {
    fn of(subject: &Subject, counter: &Counter) -> Self {
        let walked = &subject.recorded;
        let round = subject.block_of(counter.at).map_or(0.0, |b| walked.blocks.get(b).copied().unwrap_or(0.0));
        let (mut out, mut left, mut looked) = (Self::default(), 0.0, round);
        let mut others = Vec::new();
        for exit in Exit::all(subject, counter) {
            if let Some(trip) = subject.trips.iter().find(|t| t.branch == exit.branch && t.leaves == exit.way) {
                out.by_count += trip.chance * (1.96 * trip.error).exp();
                continue;
            }
            others.push(exit);
            if round > 0.0 {
                left += walked.edges.get(exit.edge).copied().unwrap_or(0.0);
                continue;
            }
            for seen in subject.seen.iter().filter(|s| s.branch == exit.branch) {
                left += if seen.to == exit.way { seen.count } else { 0.0 };
                looked += seen.count;
            }
        }
        if !others.is_empty() {
            out.seen = (left + 1.0) / (looked + 1.0);
            out.per_ns = others.iter().map(|e| e.most_per_ns(subject)).sum();
        }
        out
    }

    /// In the time of a pair of a pace.
    fn in_a_pair(&self, told: &Progress) -> f64 {
        let seen = self.seen * told.laps;
        let others = self.per_ns.map_or(seen, |rate| seen.min(rate * told.laps / told.per_ns));
        self.by_count * told.laps + others
    }
}

/// A way out of a stretch.
#[derive(Clone, Copy)]
struct Exit {
    edge: usize,
    branch: usize,
    way: To,
}

impl Exit {
    fn all(subject: &Subject, counter: &Counter) -> Vec<Self> {
        let cfg = &subject.cfg;
        let inside = |insn: usize| counter.stretch.binary_search(&insn).is_ok();
        let of = |(edge, e): (usize, &Edge)| {
            let branch = cfg.blocks.get(e.from)?.insns.end - 1;
            let goes_on = cfg.blocks.get(e.to).is_some_and(|to| inside(to.insns.start));
            let way = if e.kind == EdgeKind::Fall { To::Fall } else { To::Taken };
            (inside(branch) && !goes_on).then_some(Self { edge, branch, way })
        };
        cfg.edges.iter().enumerate().filter_map(of).collect()
    }

    /// How often it is gone in a nanosecond, at most: no more often than what it leads to runs, nor than what it comes from.
    fn most_per_ns(&self, subject: &Subject) -> Option<f64> {
        let edge = subject.cfg.edges[self.edge];
        let rates = subject.counted.iter().flat_map(|c| &c.rates);
        let ends = rates.filter(|r| r.block == edge.to || r.block == edge.from);
        ends.map(|r| (r.log + 1.96 * r.error).exp()).min_by(f64::total_cmp)
    }
}

/// Whether a stretch calls something, as far as was seen: many loops have calls that hardly ever come, of what reports errors.
fn calls(subject: &Subject, stretch: &[usize]) -> bool {
    let blocks: Vec<(usize, usize)> = stretch.iter().filter_map(|&i| Some((i, subject.block_of(i)?))).collect();
    let walked = |block: usize| subject.recorded.blocks.get(block).copied().unwrap_or(0.0);
    let most = |of: &dyn Fn(usize) -> f64| blocks.iter().map(|b| of(b.1)).fold(0.0, f64::max);
    let (most_walked, most_sampled) = (most(&walked), most(&|b| subject.block_samples(b)));
    let comes = |b: usize| walked(b) > HARDLY * most_walked || subject.block_samples(b) > HARDLY * most_sampled;
    let is = |i: usize| matches!(subject.cfg.insns[i].flow, Flow::Call(_) | Flow::IndirectCall);
    blocks.iter().any(|&(i, block)| is(i) && comes(block))
}

/// What pairs agree on.
struct Pace {
    told: Progress,
    /// Share of a loop's time that is spent in its stretch, and the standard deviation of its logarithm: where all that ended in
    /// other code was called from there, and where none was.
    within: (f64, f64),
    out_of_kernel: (f64, f64),
}

/// The pace that most of the pairs agree on that are no further apart than `longest`.
fn agreed(rows: &[LapCount], longest: u8) -> Option<Pace> {
    let rows = || rows.iter().filter(|r| (*SPANS.start()..=longest).contains(&r.span));
    let pace_of = |r: &LapCount| if let Course::Steps(pace) = r.course { Some(pace) } else { None };
    let pairs = |which: &dyn Fn(&LapCount) -> bool| rows().filter(|r| which(r)).map(|r| r.pairs).sum::<u64>();
    let from_to = |from: u16| move |r: &LapCount| pace_of(r).is_some_and(|p| (from..from + AGREE).contains(&p));
    let from = rows().filter_map(pace_of).max_by_key(|&from| (pairs(&from_to(from)), std::cmp::Reverse(from)))?;
    let agree = from_to(from);
    let (agreeing, stepped) = (pairs(&agree), pairs(&|r| pace_of(r).is_some()));
    let stayed = stepped + pairs(&|r| r.course == Course::Otherwise);
    let honest = honest(stepped - agreeing, stayed - stepped);
    let fewest = if agreeing == stayed { FEWEST_OF_ONE_MIND } else { FEWEST_PAIRS };
    let most_agree = agreeing >= fewest && agreeing as f64 >= MOST * stayed as f64;
    if !most_agree && (stepped < FEWEST_PAIRS || honest < HONEST) {
        return None;
    }
    let few = Progress::of(&rows().filter(|r| agree(r)).collect::<Vec<_>>());
    let told = if stepped > agreeing {
        few.towards(&Progress::of(&rows().filter(|r| pace_of(r).is_some()).collect::<Vec<_>>()), honest)
    } else {
        few
    };
    Some(Pace {
        told,
        within: share(rows(), |c| c >= Course::Otherwise),
        out_of_kernel: share(rows(), |c| c != Course::Kernel),
    })
}

/// Share of the pairs that stepped otherwise than most that did so in the loop's own rounds: of false ones as many go backwards.
fn honest(dissenting: u64, backwards: u64) -> f64 {
    if dissenting == 0 { 0.0 } else { (1.0 - (backwards as f64 + 0.5) / dissenting as f64).max(0.0) }
}

/// How rounds go with time.
#[derive(Clone, Copy)]
struct Progress {
    /// Of a pair, on average.
    laps: f64,
    /// Rounds in each nanosecond, and nanoseconds in which there are none, of the time from one sample to the next: its handler, the
    /// way back from that, and what it cost the caches.
    per_ns: f64,
    lost_ns: f64,
    /// Variance of the logarithm of the former.
    variance: f64,
    /// How much paces of single pairs vary, as a square.
    unlike: f64,
}

impl Progress {
    fn of(rows: &[&LapCount]) -> Self {
        let spans = by_span(rows);
        let sum = |of: fn(&LapCount) -> u64| rows.iter().map(|r| of(r)).sum::<u64>() as f64;
        let (pairs, handlers) = (sum(|r| r.pairs), sum(|r| r.handler_ns));
        let about = sum(|r| r.laps) / (sum(|r| r.ns) + handlers);
        let squares = |expected: &dyn Fn(&LapCount) -> f64| -> f64 {
            rows.iter().map(|r| r.pairs as f64 * (r.laps as f64 / expected(r) - 1.0).powi(2)).sum()
        };
        let scatter = (squares(&|r| (r.ns + r.handler_ns) as f64 * about) / pairs).sqrt().max(SCATTER);
        let line = line(&spans, about, scatter);
        // Pairs hardly further apart than what is lost say little of the rest.
        let expected = |r: &LapCount| {
            let rest = r.ns as f64 - line.lost_ns * r.pairs as f64 - line.behind * r.handler_ns as f64;
            rest.max(r.ns as f64 / 4.0) * line.per_ns
        };
        // The scatter of few is hardly known: pairs of one moment agree however slow the machine is then.
        let unknown = MOMENTS * SCATTER_OF_MOMENTS.powi(2);
        let variance = squares(&expected) / (pairs * (pairs - 1.0).max(1.0));
        let variance = variance.max((unknown + pairs * variance * (pairs - 1.0)) / ((pairs + MOMENTS) * pairs));
        let of_handlers = (1.0 + line.behind) * handlers / pairs;
        Self {
            laps: sum(|r| r.laps) / pairs,
            per_ns: line.per_ns,
            lost_ns: line.lost_ns + of_handlers,
            variance,
            unlike: squares(&expected) / pairs,
        }
    }

    /// Between what few say and what all say, as far as the others are true.
    fn towards(&self, all: &Self, honest: f64) -> Self {
        let apart = (all.per_ns / self.per_ns).ln();
        let mixed = |few: f64, all: f64| few + honest * (all - few);
        Self {
            laps: self.laps,
            per_ns: self.per_ns * (honest * apart).exp(),
            lost_ns: mixed(self.lost_ns, all.lost_ns),
            variance: mixed(self.variance, all.variance) + honest * (1.0 - honest) * apart * apart,
            unlike: mixed(self.unlike, all.unlike),
        }
    }

    /// What the logarithm of rounds in time lacks, as pairs end in the loop the rarer the more rounds it made between them: where the machine
    /// was quick more of them are missing. `leaves`: for each round.
    fn missed(&self, leaves: f64) -> f64 {
        let left = (leaves * self.laps).min(MOST_LEFT);
        (self.unlike * left / (1.0 - left)).min(MOST_MISSED)
    }
}

/// Rounds as they go with time.
struct Line {
    per_ns: f64,
    /// Nanoseconds without any behind each handler, and for each nanosecond that it took.
    lost_ns: f64,
    behind: f64,
}

/// Rows of one span as one: rows of one pace are chosen by what they tell, and quick ones are those behind short handlers.
fn by_span(rows: &[&LapCount]) -> Vec<LapCount> {
    let mut spans: Vec<LapCount> = Vec::new();
    for row in rows {
        match spans.iter_mut().find(|s| s.span == row.span) {
            Some(sum) => sum.add(row),
            None => spans.push(**row),
        }
    }
    spans
}

/// Rounds against the time since the handler of the first moment was left, by least squares of what they differ by relatively, with what is
/// expected to be lost. While a handler runs there are no rounds: counted from where handlers begin, pairs behind long ones, which are
/// further apart, have fewer rounds, and all of them seemed to go slower the further they are apart (executions 3 to 10 % too few).
fn line(spans: &[LapCount], about: f64, scatter: f64) -> Line {
    // Unknown: rounds in a nanosecond, lost ones, and lost ones for each nanosecond of the handler; in units of about a nanosecond's rounds.
    let mut normal = [[0.0, 0.0, 0.0], [0.0, LOST_SCATTER.powi(-2), 0.0], [0.0, 0.0, LOST_BEHIND.powi(-2)]];
    let mut right = [0.0, LOST_NS * LOST_SCATTER.powi(-2), 0.0];
    for s in spans {
        let pairs = s.pairs as f64;
        let (ns, handler, laps) = (s.ns as f64 / pairs, s.handler_ns as f64 / pairs, s.laps as f64 / pairs / about);
        let (weight, row) = (pairs / (scatter * (ns + handler)).powi(2), [ns, -1.0, -handler]);
        for ((own, right), normal) in row.iter().zip(&mut right).zip(&mut normal) {
            *right += weight * own * laps;
            normal.iter_mut().zip(row).for_each(|(sum, other)| *sum += weight * own * other);
        }
    }
    let [_, lost, behind] = solved(normal, right);
    let (lost, behind) = (lost.clamp(0.0, MOST_LOST * LOST_NS), behind.clamp(-1.0, 1.0));
    // What was cut off changes the rest.
    let slope = (right[0] - normal[0][1] * lost - normal[0][2] * behind) / normal[0][0];
    Line { per_ns: slope * about, lost_ns: lost / slope, behind: behind / slope }
}

/// The solution of three equations whose matrix is symmetric and positive.
fn solved(mut of: [[f64; 3]; 3], mut right: [f64; 3]) -> [f64; 3] {
    for i in 0..3 {
        for below in i + 1..3 {
            let times = of[below][i] / of[i][i];
            let above = of[i];
            of[below].iter_mut().zip(above).skip(i).for_each(|(left, above)| *left -= times * above);
            right[below] -= times * right[i];
        }
    }
    let mut out = [0.0; 3];
    for i in (0..3).rev() {
        let known: f64 = (i + 1..3).map(|j| of[i][j] * out[j]).sum();
        out[i] = (right[i] - known) / of[i][i];
    }
    out
}

impl Pace {
    /// Rounds in the time that a sample stands for.
    fn rounds_within(&self, sample_ns: f64) -> f64 {
        self.told.per_ns * (sample_ns - self.told.lost_ns).max(LEAST_OWN * sample_ns)
    }
}

/// Share of the pairs that are `of` some courses, as it would be were both moments one: the further they are apart the more often
/// the loop was left in between.
fn share<'r>(rows: impl Iterator<Item = &'r LapCount>, of: impl Fn(Course) -> bool) -> (f64, f64) {
    let mut rows: Vec<&LapCount> = rows.collect();
    rows.sort_by_key(|r| r.ns / r.pairs.max(1));
    let all: u64 = rows.iter().map(|r| r.pairs).sum();
    // Pairs, those of the courses, their time: nearer ones, and further ones.
    let mut halves = [(0.0, 0.0, 0.0); 2];
    let mut before = 0;
    for r in rows {
        let half = &mut halves[usize::from(2 * before >= all)];
        before += r.pairs;
        half.0 += r.pairs as f64;
        half.1 += if of(r.course) { r.pairs as f64 } else { 0.0 };
        half.2 += r.ns as f64;
    }
    let [near, far] = halves.map(|(pairs, of, ns)| (of / pairs, ns / pairs));
    let (pairs, chosen) = (halves[0].0 + halves[1].0, halves[0].1 + halves[1].1);
    let mean = chosen / pairs;
    let slope = (near.0 - far.0) / (far.1 - near.1);
    let at_once = (near.0 + slope * near.1).clamp(mean, 1.0);
    let at_once = if at_once.is_finite() { at_once } else { mean };
    let chance = (1.0 - mean).max(1.0 / pairs) / chosen.max(1.0);
    (at_once, (chance + (0.5 * (at_once / mean).ln()).powi(2)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pair: nanoseconds between, rounds.
    fn pair(ns: u64, laps: u64) -> LapCount {
        let course = Course::steps(laps, ns).unwrap_or(Course::Otherwise);
        LapCount { span: ns.ilog2() as u8, course, pairs: 1, laps, ns, ..LapCount::default() }
    }

    fn other(ns: u64, course: Course) -> LapCount {
        LapCount { span: ns.ilog2() as u8, course, pairs: 1, ns, ..LapCount::default() }
    }

    /// Half of the handlers take a walk of 40 us; a round takes 10 ns, and 5 us are lost behind each handler.
    #[test]
    fn handlers_of_two_lengths_do_not_slow_rounds_down() {
        let mut rows = Vec::new();
        for i in 0..400_u64 {
            let handler_ns = if i % 2 == 0 { 300 } else { 40_000 };
            // Second moments are drawn evenly since handlers begin.
            let since = 20_000 + i * 7_919 % 100_000;
            let Some(ns) = u64::checked_sub(since, handler_ns).filter(|ns| *ns > 16_000) else { continue };
            let mut row = pair(ns, (ns - 5_000) / 10);
            (row.handler_ns, row.span) = (handler_ns, since.ilog2() as u8);
            rows.push(row);
        }
        let told = Progress::of(&rows.iter().collect::<Vec<_>>());
        assert!((told.per_ns * 10.0 - 1.0).abs() < 0.02, "{}", told.per_ns);
        let handlers = rows.iter().map(|r| r.handler_ns).sum::<u64>() as f64 / rows.len() as f64;
        assert!((told.lost_ns - handlers - 5000.0).abs() < 1500.0, "{} {handlers}", told.lost_ns);
    }

    #[test]
    fn pairs_that_agree_tell_the_time_of_a_round() {
        let mut rows: Vec<LapCount> = (1..=20).map(|i| pair(40_000 * i + 5_000, 4_000 * i)).collect();
        let pace = agreed(&rows, 26).expect("all agree");
        assert!(
            (pace.told.per_ns * 10.0 - 1.0).abs() < 0.02
                && (pace.told.lost_ns - 5000.0).abs() < 1500.0
                && pace.told.variance < 0.01
                && pace.within.0 > 0.999,
            "{} {} {}",
            pace.told.per_ns,
            pace.told.lost_ns,
            pace.told.variance
        );
        rows.extend((1..=20).map(|i| other(40_000 * i, Course::Left)));
        assert!(agreed(&rows, 26).is_some_and(|p| (p.within.0 - 0.5).abs() < 0.1 && p.out_of_kernel.0 > 0.999));
        rows.extend((1..=20).map(|i| other(40_000 * i, Course::Otherwise)));
        assert!(agreed(&rows, 26).is_none(), "half of them say something else");
        assert!(agreed(&rows[..4], 26).is_some() && agreed(&rows[..3], 26).is_none(), "too few");
        rows.drain(7..59);
        assert!(agreed(&rows, 26).is_none(), "too few, and one says something else");
    }

    #[test]
    fn a_loop_that_is_entered_anew_every_200_us_is_told_by_short_pairs_only() {
        // 10 ns a round; the register begins at 0 every 200 us.
        let mut rows = Vec::new();
        for i in 0..400_u64 {
            let (from, ns) = (i * 7_919 % 200_000, 33_000 + i * 2_477 % 900_000);
            let (before, after) = (from / 10, (from + ns) % 200_000 / 10);
            rows.push(match after.checked_sub(before) {
                // As much as is expected is lost between the moments.
                Some(laps) => pair(ns + LOST_NS as u64, laps),
                None => other(ns, Course::Otherwise),
            });
        }
        let longest = (15..=26).rev().find(|&l| agreed(&rows, l).is_some());
        assert!(longest.is_some_and(|l| l <= 16), "{longest:?}");
        let pace = agreed(&rows, longest.unwrap_or(0)).expect("found");
        assert!((pace.told.per_ns * 10.0 - 1.0).abs() < 0.03, "{}", pace.told.per_ns);
    }

    #[test]
    fn rounds_of_two_lengths_count_by_the_time_they_take() {
        // Half of the time rounds take 100 ns, else 4; pairs see one or the other, for phases are long.
        let slow = (1..=26).map(|i| pair(20_000 * i + 30_000 + LOST_NS as u64, (20_000 * i + 30_000) / 100));
        let quick = (1..=14).map(|i| pair(40_000 * i + 30_000 + LOST_NS as u64, (40_000 * i + 30_000) / 4));
        let truth = (26.0 / 100.0 + 14.0 / 4.0) / 40.0;
        let mut rows: Vec<LapCount> = slow.chain(quick).collect();
        let pace = agreed(&rows, 26).expect("none went backwards");
        let off = (pace.told.per_ns / truth).ln();
        assert!(off.abs() < 2.0 * pace.told.variance.sqrt().max(0.05), "{off} {}", pace.told.variance);
        assert!(pace.told.variance.sqrt() > 0.1, "two lengths make it unsure: {}", pace.told.variance);
        // As many went backwards as forwards otherwise: only those that agree are believed, and not here, where they are too few.
        rows.extend((1..=14).map(|i| other(40_000 * i + 30_000, Course::Otherwise)));
        assert!(agreed(&rows, 26).is_none());
    }

    #[test]
    fn pairs_that_a_quick_machine_carries_out_of_the_loop_are_missing() {
        // Stays of 20,000 rounds, half of the time at 45 ns a round and half at 95: pairs of up to 1 ms end in it, or do not.
        let mut rows = Vec::new();
        for i in 0..4000_u64 {
            let (each, ns) = (if i % 2 == 0 { 45 } else { 95 }, 40_000 + i * 2_477 % 900_000);
            let begun = i * 7_919 % 20_000;
            if begun + ns / each < 20_000 {
                rows.push(pair(ns + LOST_NS as u64, ns / each));
            }
        }
        let told = Progress::of(&rows.iter().collect::<Vec<_>>());
        let off = |per_ns: f64| (per_ns / (0.5 / 45.0 + 0.5 / 95.0)).ln();
        let missed = told.missed(1.0 / 20_000.0);
        assert!(off(told.per_ns) < -0.07, "they see the slow one more: {}", off(told.per_ns));
        let left = off(told.per_ns) + missed;
        assert!(left.abs() < 0.65 * off(told.per_ns).abs() && left.abs() < 1.96 * missed, "{left} {missed}");
        assert_eq!(told.missed(0.0), 0.0);
    }

    #[test]
    fn four_pairs_of_one_moment_are_not_sure() {
        let four: Vec<LapCount> =
            (1..=4).map(|i| pair(160_000 + i * 4_000 + LOST_NS as u64, 43_000 + i * 1_100)).collect();
        let error = |rows: &[LapCount]| agreed(rows, 26).expect("of one mind").told.variance.sqrt();
        assert!((0.25..0.5).contains(&error(&four)), "{}", error(&four));
        let many: Vec<LapCount> = (1..=100).map(|i| pair(160_000 + i * 4_000, 40_000 + i * 1_000)).collect();
        assert!(error(&many) < 0.03, "{}", error(&many));
    }

    #[test]
    fn a_few_pairs_that_stepped_too_far_widen_the_answer() {
        let mut rows: Vec<LapCount> = (1..=20).map(|i| pair(40_000 * i + 5_000, 4_000 * i)).collect();
        let sure = agreed(&rows, 26).expect("all agree").told;
        rows.extend([pair(200_000, 2_000_000), other(100_000, Course::Otherwise)]);
        let told = agreed(&rows, 26).expect("most agree").told;
        assert!(
            (told.per_ns / sure.per_ns).ln().abs() < 0.05,
            "one forwards for one backwards is nothing: {}",
            told.per_ns
        );
        rows.pop();
        let told = agreed(&rows, 26).expect("most agree").told;
        assert!(told.variance > 100.0 * sure.variance, "it may be true: {}", told.variance);
    }
}
