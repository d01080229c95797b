//! The heat map over time as inline SVG: one row per procedure, one column per time slice, colour
//! by share of the slice; above it the total per slice. Every cell has a title, so it reads
//! without a script.

use super::escape::{Text, put};
use super::number::{fraction, percent, weight};
use whither_cycles::heat::REST;
use whither_cycles::results::{HeatMap, Provenance};

/// Most columns drawn; more slices are added up in groups.
const COLUMNS: usize = 150;
const LABEL: usize = 300;
const WIDTH: usize = 1200;
const ROW: usize = 18;
const TOP: usize = 56;

/// The map with neighbouring slices added up so that it fits.
struct Grid {
    starts: Vec<u32>,
    rows: Vec<(String, Vec<u64>)>,
    totals: Vec<u64>,
}

impl Grid {
    fn new(h: &HeatMap) -> Self {
        let group = h.slices.len().div_ceil(COLUMNS).max(1);
        let starts: Vec<u32> = h.slices.iter().step_by(group).copied().collect();
        let rows: Vec<(String, Vec<u64>)> =
            h.rows.iter().map(|(name, w)| (name.clone(), grouped(w, group, starts.len()))).collect();
        let totals =
            (0..starts.len()).map(|c| rows.iter().fold(0_u64, |sum, (_, w)| sum.saturating_add(w[c]))).collect();
        Self { starts, rows, totals }
    }
}

/// Sums of `group` neighbours, `len` of them whatever the input's length.
fn grouped(weights: &[u64], group: usize, len: usize) -> Vec<u64> {
    let mut sums: Vec<u64> = weights.chunks(group).map(|c| c.iter().fold(0_u64, |a, b| a.saturating_add(*b))).collect();
    sums.resize(len, 0);
    sums
}

pub(super) fn section(out: &mut String, h: &HeatMap, p: &Provenance) {
    out.push_str("<section id=\"heat\" aria-labelledby=\"heat-h\"><div class=\"bar-line\"><h2 id=\"heat-h\">Over time</h2></div>");
    let grid = Grid::new(h);
    if grid.starts.is_empty() || grid.rows.is_empty() {
        out.push_str("<p class=\"empty\">No time slices were recorded.</p></section>");
        return;
    }
    let unit = p.events.first().map_or("count", |e| e.unit.as_str());
    put!(
        out,
        "<p class=\"hint\">Colour: share of the column. Bars above: total of the rows below. Times are UTC.</p>\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Heat map\"><svg class=\"heat\" width=\"{w}\" height=\"{t}\" viewBox=\"0 0 {w} {t}\" \
         role=\"img\" aria-label=\"Share of {n} procedures in {c} time slices\">",
        w = LABEL + WIDTH + 10,
        t = TOP + grid.rows.len() * ROW + 24,
        n = grid.rows.len(),
        c = grid.starts.len()
    );
    totals(out, &grid, unit);
    for (r, (name, weights)) in grid.rows.iter().enumerate() {
        row(out, &grid, r, name, weights);
    }
    axis(out, &grid);
    out.push_str("</svg></div></section>");
}

#[allow(clippy::cast_precision_loss)] // pixel positions
fn column(grid: &Grid, c: usize) -> (f64, f64) {
    let w = (WIDTH as f64 / grid.starts.len() as f64).min(120.0);
    (LABEL as f64 + c as f64 * w, w)
}

#[allow(clippy::cast_precision_loss)] // shares for drawing
fn totals(out: &mut String, grid: &Grid, unit: &str) {
    let most = grid.totals.iter().copied().max().unwrap_or(0).max(1);
    for (c, &total) in grid.totals.iter().enumerate() {
        let (x, w) = column(grid, c);
        let tall = 40.0 * total as f64 / most as f64;
        put!(
            out,
            "<rect class=\"sum\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{tall:.1}\"><title>{}: {}</title></rect>",
            TOP as f64 - 6.0 - tall,
            (w - 1.0).max(0.5),
            clock(grid.starts[c]),
            Text(&weight(total, unit))
        );
    }
}

#[allow(clippy::cast_precision_loss)] // shares for colour
fn row(out: &mut String, grid: &Grid, r: usize, name: &str, weights: &[u64]) {
    let y = TOP + r * ROW;
    let short = shortened(name);
    put!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}<title>{}</title></text>",
        LABEL - 8,
        y + 13,
        Text(&short),
        Text(name)
    );
    let class = if name == REST { " class=\"others\"" } else { "" };
    for (c, &n) in weights.iter().enumerate().filter(|(_, n)| **n > 0) {
        let (x, w) = column(grid, c);
        let share = fraction(n as f64 / grid.totals[c].max(1) as f64);
        put!(
            out,
            "<rect{class} x=\"{x:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\" style=\"--h:{:.0}%\"><title>{}, {}: {}\u{2009}%</title></rect>",
            (w - 0.5).max(0.5),
            ROW - 2,
            share.sqrt() * 100.0,
            Text(&short),
            clock(grid.starts[c]),
            percent(share)
        );
    }
}

/// A label that fits its column: of an image path behind the name only the last part.
fn shortened(name: &str) -> String {
    let short = match name.rsplit_once(' ') {
        Some((head, path)) if path.starts_with('/') => format!("{head} {}", path.rsplit('/').next().unwrap_or(path)),
        _ => name.to_owned(),
    };
    if short.chars().count() > 40 { short.chars().take(39).chain(['\u{2026}']).collect() } else { short }
}

fn axis(out: &mut String, grid: &Grid) {
    let y = TOP + grid.rows.len() * ROW + 15;
    let every = grid.starts.len().div_ceil(12).max(1);
    for (c, start) in grid.starts.iter().enumerate().step_by(every) {
        let (x, w) = column(grid, c);
        // Narrow columns, few of them: labels would overlap, so only every 60 pixels one is set.
        #[allow(clippy::cast_precision_loss)] // pixel positions
        if every > 1 || w >= 52.0 || (c as f64 * w) % 60.0 < w {
            put!(out, "<text class=\"axis\" x=\"{x:.1}\" y=\"{y}\">{}</text>", clock(*start));
        }
    }
}

/// `14:03:59` of the day, UTC.
fn clock(seconds: u32) -> String {
    let s = seconds % 86_400;
    format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_slices_are_added_up_without_loss() {
        let map = HeatMap { slices: (0..1000).collect(), rows: vec![("a".into(), vec![3; 1000])] };
        let grid = Grid::new(&map);
        assert!(grid.starts.len() <= COLUMNS);
        assert_eq!(grid.totals.iter().sum::<u64>(), 3000);
    }

    #[test]
    fn short_rows_are_filled() {
        let map = HeatMap { slices: vec![0, 1, 2], rows: vec![("a".into(), vec![5])] };
        assert_eq!(Grid::new(&map).totals, [5, 0, 0]);
    }

    #[test]
    fn clock_is_utc_of_day() {
        assert_eq!(clock(86_400 + 3_723), "01:02:03");
    }
}
