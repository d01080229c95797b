//! Which shapes may describe the windows, and how likely each is: a line, lines that bend, a line with a knee, and each of them
//! up to some amount only, with anything beyond. The choice between them is uncertain, and an interval that forgot it would be too narrow.

use super::Clean;
use crate::results::FitKind;
use crate::shape::{Group, Shape, beyond, fit, fit_bent};

/// How much lines bend that rise fast at first: with 1 an amount of 30 % has 46 % of what 100 % has. Of a queue before one server,
/// nine tenths busy, it is 4.
const FAST: [f64; 12] = [0.15, 0.3, 0.45, 0.6, 0.8, 1.0, 1.4, 2.0, 3.0, 4.0, 6.0, 8.0];

/// And that rise slowly at first, as harm does that grows the more often it is done: with -0.5 it has 18 %, with -0.9 4 %.
const SLOW: [f64; 7] = [-0.2, -0.35, -0.5, -0.65, -0.8, -0.9, -0.95];

/// Amounts behind the one of interest up to which shapes are tried that say nothing of what lies beyond.
const CUTS: [f64; 2] = [0.2, 0.35];

/// An effect is nearly another one from this part of it on.
const NEARLY: f64 = 0.9;

/// How likely shapes are before anything is known, beside a straight line and a knee: all that bend one way together, and each up to
/// one amount only.
const BENT: f64 = 0.3;
const CUT: f64 = 0.1;

/// What the measure may look like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ways {
    /// As latencies: of a queue the first part that is saved saves the most. Nothing else is known to happen to them.
    pub(super) queues: bool,
    /// The amount of interest.
    pub(super) assume: f64,
}

/// A shape, up to some amount.
#[derive(Clone, Copy, Debug)]
struct Part {
    shape: Shape,
    /// Beyond it each amount has a value of its own.
    upto: f64,
    weight: f64,
}

impl Part {
    fn value(&self, groups: &[Group], s: f64) -> f64 {
        match beyond(groups, self.upto, s) {
            Some(at) => groups[at].mean,
            None => self.shape.value(s),
        }
    }

    fn y(&self, groups: &[Group], s: f64) -> f64 {
        1.0 - self.value(groups, s) / self.shape.c
    }

    /// As [`Shape::influence`].
    fn influence(&self, groups: &[Group], s: f64) -> Vec<f64> {
        let inside = groups.partition_point(|g| g.s <= self.upto + 1e-9);
        let (shape, c) = (&self.shape, self.shape.c);
        let mut out = match beyond(groups, self.upto, s) {
            None => shape.influence(&groups[..inside], s),
            Some(at) => {
                let zero = shape.influence_of_zero(&groups[..inside]);
                zero.iter().map(|d| d * groups[at].mean / (c * c)).collect()
            }
        };
        out.resize(groups.len(), 0.0);
        if let Some(at) = beyond(groups, self.upto, s) {
            out[at] -= 1.0 / (c * groups[at].weight.max(f64::MIN_POSITIVE));
        }
        out
    }

    fn leverage(&self, groups: &[Group]) -> Vec<f64> {
        let inside = groups.partition_point(|g| g.s <= self.upto + 1e-9);
        let own = groups[inside..].iter().map(|g| (1.0 / g.weight.max(f64::MIN_POSITIVE)).min(1.0));
        self.shape.leverage(&groups[..inside]).into_iter().chain(own).collect()
    }

    fn parameters(&self, groups: &[Group]) -> f64 {
        let bend = usize::from(self.shape.bend != 0.0);
        (self.shape.parameters() + bend + groups.iter().filter(|g| g.s > self.upto + 1e-9).count()) as f64
    }
}

/// Shapes weighted by how well they describe the windows (Schwarz's weights).
#[derive(Clone, Debug)]
pub(super) struct Blend {
    /// The straight line, whatever its weight.
    pub(super) line: Shape,
    /// The knee over all amounts.
    pub(super) knee: Option<Shape>,
    /// Weight of knees.
    pub(super) weight: f64,
    /// All with some weight; these sum to 1.
    parts: Vec<Part>,
    /// Windows by amount.
    groups: Vec<Group>,
}

impl Blend {
    pub(super) fn of(clean: &Clean, ways: Ways) -> Option<Self> {
        Self::new(&clean.groups, clean.observations.len() as f64, clean.within, ways)
    }

    /// `within`: sum of squares within groups.
    pub(super) fn new(groups: &[Group], n: f64, within: f64, ways: Ways) -> Option<Self> {
        let (line, _) = fit(groups, FitKind::Line)?;
        let mut tried: Vec<(Part, f64)> = Vec::new();
        let cuts = CUTS.map(|cut| ways.assume + cut);
        let cuts = cuts.iter().filter(|c| !ways.queues && groups.iter().any(|g| g.s > **c + 1e-9));
        for (upto, prior) in std::iter::once((1.0, 1.0)).chain(cuts.map(|c| (*c, CUT))) {
            let inside = groups.partition_point(|g| g.s <= upto + 1e-9);
            let free = (groups.len() - inside) as f64;
            let groups = &groups[..inside];
            let mut put = |found: Option<(Shape, f64)>, prior: f64, parameters: f64| {
                let Some((shape, rest)) = found.filter(|_| n > parameters + free + 2.0) else { return };
                let criterion = n * (rest + within).max(1e-12).ln() + (parameters + free) * n.ln();
                tried.push((Part { shape, upto, weight: prior }, criterion));
            };
            put(fit(groups, FitKind::Line), prior, 2.0);
            put(fit(groups, FitKind::Knee), prior, 4.0);
            if ways.queues {
                FAST.iter().for_each(|bend| put(fit_bent(groups, *bend), prior, 2.0));
            } else {
                let each = prior * BENT / (FAST.len() + SLOW.len()) as f64;
                FAST.iter().chain(&SLOW).for_each(|bend| put(fit_bent(groups, *bend), each, 2.0));
            }
        }
        // A line is told of no matter how few windows there are.
        if tried.is_empty() {
            tried.push((Part { shape: line, upto: 1.0, weight: 1.0 }, 0.0));
        }
        let least = tried.iter().map(|(_, criterion)| *criterion).fold(f64::INFINITY, f64::min);
        let weighed = tried.into_iter().map(|(part, criterion)| {
            let weight = part.weight * ((least - criterion) / 2.0).exp();
            Part { weight, ..part }
        });
        let mut parts: Vec<Part> = weighed.filter(|part| part.weight > 1e-4).collect();
        let sum: f64 = parts.iter().map(|part| part.weight).sum();
        parts.iter_mut().for_each(|part| part.weight /= sum);
        let is_knee = |part: &&Part| part.shape.kind == FitKind::Knee;
        let weight = parts.iter().filter(is_knee).map(|part| part.weight).sum();
        let knee = parts.iter().filter(is_knee).find(|part| part.upto >= 1.0).map(|part| part.shape);
        Some(Self { line, knee, weight, parts, groups: groups.to_vec() })
    }

    /// The likeliest line, straight or bent.
    pub(super) fn likeliest_line(&self) -> Shape {
        let lines = self.parts.iter().filter(|part| part.shape.kind == FitKind::Line && part.upto >= 1.0);
        lines.max_by(|a, b| a.weight.total_cmp(&b.weight)).map_or(self.line, |part| part.shape)
    }

    /// Parameters fitted, on average.
    pub(super) fn parameters(&self) -> f64 {
        self.parts.iter().map(|part| part.weight * part.parameters(&self.groups)).sum()
    }

    pub(super) fn value(&self, s: f64) -> f64 {
        self.parts.iter().map(|part| part.weight * part.value(&self.groups, s)).sum()
    }

    pub(super) fn y(&self, s: f64) -> f64 {
        1.0 - self.value(s) / self.value(0.0)
    }

    /// Standard error at an amount: that of each shape, and how far apart they are.
    pub(super) fn error(&self, clean: &Clean, s: f64, residuals: &[f64], stretches: &[f64]) -> f64 {
        let y = self.y(s);
        let of = |part: &Part| {
            let own = clean.error(&part.influence(&self.groups, s), residuals, stretches);
            own.hypot(part.y(&self.groups, s) - y)
        };
        // Influences cost more than values: what has next to no weight is left out.
        self.parts.iter().filter(|part| part.weight > 1e-3).map(|part| part.weight * of(part)).sum()
    }

    /// How much larger the effect of an amount below all that were measured may be, where these leave that open.
    pub(super) fn unseen(&self, s: f64) -> f64 {
        let open = self.knee.zip(self.flat_from()).filter(|(_, first)| s < *first);
        open.map_or(0.0, |(knee, first)| self.weight * (s.min(knee.y(first)) - knee.y(s)).max(0.0))
    }

    /// The first amount, where already that is at the knee or beyond, as far as windows tell: they know nothing then of how steeply
    /// the curve rose to it, but that no part takes more than all of the time.
    pub(super) fn flat_from(&self) -> Option<f64> {
        let first = self.groups.iter().map(|g| g.s).find(|s| *s > 0.0)?;
        let shape = self.knee?;
        // By chance a knee is found a little behind an amount that is beyond it.
        let only = self.groups.iter().filter(|g| g.s > 0.0 && g.s <= shape.knee + 1e-9).count() <= 1;
        (only && shape.y(first) >= NEARLY * shape.y(shape.knee)).then_some(first)
    }

    /// How much smaller residuals are than the noise, by group.
    pub(super) fn stretches(&self) -> Vec<f64> {
        let heaviest = self.parts.iter().max_by(|a, b| a.weight.total_cmp(&b.weight));
        let leverage = heaviest.map_or_else(|| self.line.leverage(&self.groups), |part| part.leverage(&self.groups));
        leverage.iter().map(|h| 1.0 / (1.0 - h.min(0.8))).collect()
    }
}
