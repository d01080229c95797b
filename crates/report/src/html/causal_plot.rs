//! One plot of a causal profile as inline SVG: every window a dot, the mean of each amount with its
//! interval, the fitted line with its knee. All plots of a page share their scale, so that a flat curve
//! looks flat. Every mark has a title: the plot reads without a script.

use super::escape::put;
use crate::text::{drop_reason, signed};
use whither_causal::{CurvePoint, Dot, Fit, FitKind};

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 210.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 30.0;
/// Dots beyond the scale stand at its edge; the scale follows the intervals, not the outliers.
const LEAST_SPAN: f64 = 0.1;

/// Effects that the vertical axis reaches, as shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// Room for every interval.
    pub(super) fn of<'a>(curves: impl Iterator<Item = &'a CurvePoint>) -> Self {
        let mut scale = Self { low: 0.0, high: 0.0 };
        for p in curves {
            for y in [p.y, p.low, p.high] {
                if y.is_finite() {
                    (scale.low, scale.high) = (scale.low.min(y.max(-2.0)), scale.high.max(y.min(1.0)));
                }
            }
        }
        let margin = 0.05 * (scale.high - scale.low).max(LEAST_SPAN);
        Self { low: (scale.low - margin).min(-LEAST_SPAN / 4.0), high: (scale.high + margin).max(LEAST_SPAN) }
    }

    fn y(self, effect: f64) -> f64 {
        let share = ((effect - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        TOP + (1.0 - share) * (HEIGHT - TOP - BOTTOM)
    }

    /// Multiples of a round step within the scale.
    fn ticks(self) -> Vec<f64> {
        let span = self.high - self.low;
        let steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0];
        let step = steps.into_iter().find(|s| span / s <= 6.0).unwrap_or(1.0);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }
}

fn x(percent: f64) -> f64 {
    LEFT + percent.clamp(0.0, 100.0) / 100.0 * (WIDTH - LEFT - RIGHT)
}

pub(super) fn plot(out: &mut String, curve: &[CurvePoint], fit: &Fit, dots: &[Dot], scale: Scale) {
    put!(
        out,
        "<svg class=\"causal\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Effect by virtual speed-up, {} amounts\">",
        curve.len()
    );
    axes(out, scale);
    for dot in dots {
        window(out, dot, scale);
    }
    line(out, fit, scale);
    for p in curve {
        mean(out, p, scale);
    }
    out.push_str("</svg>");
}

fn axes(out: &mut String, scale: Scale) {
    let (left, right, bottom) = (x(0.0), x(100.0), HEIGHT - BOTTOM);
    for tick in scale.ticks() {
        let y = scale.y(tick);
        let class = if tick.abs() < 1e-9 { "zero" } else { "grid-line" };
        put!(out, "<line class=\"{class}\" x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>");
        put!(
            out,
            "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{:.0}</text>",
            left - 5.0,
            y + 3.5,
            tick * 100.0
        );
    }
    for percent in [0, 25, 50, 75, 100] {
        let at = x(f64::from(percent));
        put!(
            out,
            "<text class=\"axis\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{percent}</text>",
            bottom + 13.0
        );
    }
    put!(
        out,
        "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">target faster by, %</text>",
        (left + right) / 2.0,
        HEIGHT - 4.0
    );
}

fn window(out: &mut String, dot: &Dot, scale: Scale) {
    let Some(effect) = dot.y.filter(|y| y.is_finite()) else { return };
    let class = if dot.dropped.is_some() { "dot dropped" } else { "dot" };
    let why = dot.dropped.map_or(String::new(), |d| format!(", dropped: {}", drop_reason(d)));
    put!(
        out,
        "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.2\"><title>{} % faster: {} % at {:.1} s{why}</title></circle>",
        x(f64::from(dot.percent)),
        scale.y(effect),
        dot.percent,
        signed(effect),
        dot.at_s
    );
}

fn line(out: &mut String, fit: &Fit, scale: Scale) {
    let mut corners = vec![0.0];
    corners.extend(fit.knee.filter(|_| fit.kind == FitKind::Knee));
    corners.push(100.0);
    if let (Some(low), Some(high)) = (fit.knee_low, fit.knee_high) {
        put!(
            out,
            "<rect class=\"knee\" x=\"{:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"><title>knee between {low:.0} and {high:.0} %</title></rect>",
            x(low),
            (x(high) - x(low)).max(1.0),
            HEIGHT - TOP - BOTTOM
        );
    }
    out.push_str("<polyline class=\"fit\" points=\"");
    for percent in corners {
        put!(out, "{:.1},{:.1} ", x(percent), scale.y(fit.at(percent)));
    }
    out.push_str("\"/>");
}

fn mean(out: &mut String, p: &CurvePoint, scale: Scale) {
    if !p.y.is_finite() {
        return;
    }
    let at = x(f64::from(p.percent));
    if p.low.is_finite() && p.high.is_finite() {
        let (low, high) = (scale.y(p.low), scale.y(p.high));
        put!(out, "<line class=\"bar\" x1=\"{at:.1}\" y1=\"{low:.1}\" x2=\"{at:.1}\" y2=\"{high:.1}\"/>");
    }
    put!(
        out,
        "<circle class=\"mean\" cx=\"{at:.1}\" cy=\"{:.1}\" r=\"3.4\"><title>{} % faster: {} % ({} to {}), {} windows</title></circle>",
        scale.y(p.y),
        p.percent,
        signed(p.y),
        signed(p.low),
        signed(p.high),
        p.windows
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(y: f64, low: f64, high: f64) -> CurvePoint {
        CurvePoint { percent: 50, windows: 3, visits: 9, y, low, high, plain_mean: y }
    }

    #[test]
    fn scales_hold_intervals_and_zero_but_no_nonsense() {
        let points = [point(0.3, 0.2, 0.4), point(f64::NAN, f64::NEG_INFINITY, f64::INFINITY)];
        let scale = Scale::of(points.iter());
        assert!(scale.low < 0.0 && scale.high > 0.4 && scale.high < 0.5, "{scale:?}");
        assert!(scale.ticks().len() >= 3 && scale.ticks().len() <= 8, "{:?}", scale.ticks());
        assert!(scale.ticks().iter().any(|t| t.abs() < 1e-9));
        let none = Scale::of([].iter());
        assert!(none.high - none.low >= LEAST_SPAN);
    }

    #[test]
    fn marks_stay_inside_the_picture() {
        let curve = [point(0.3, 0.2, 5.0), point(f64::NAN, 0.0, 0.0)];
        let dot =
            Dot { percent: 50, y: Some(99.0), at_s: 1.0, stratum: 0, selection: Default::default(), dropped: None };
        let mut out = String::new();
        plot(&mut out, &curve, &Fit::NOTHING, &[dot], Scale::of(curve.iter()));
        assert!(!out.contains("NaN") && !out.contains("inf"), "{out}");
        assert!(out.contains(&format!("cy=\"{TOP:.1}\"")), "the far dot stands at the edge: {out}");
    }
}
