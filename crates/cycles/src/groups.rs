//! Rows of a selection gathered by the values of several axes: sums, order and labels of the groups.

use crate::axis::Axis;
use crate::listing::By;
use crate::places::{PlaceKind, Places};
use crate::remark;
use crate::results::{Cell, EventTotals};
use crate::selection::Selection;
use rustc_hash::FxHashMap;
use whither_stats::interval;

/// The groups of a listing and their sums.
pub(crate) struct Groups {
    columns: usize,
    /// One value per axis, group after group.
    keys: Vec<Vec<u32>>,
    /// Group of each row of the selection.
    pub(crate) of_row: Vec<u32>,
    /// First row (index into the selection) of each group.
    first: Vec<usize>,
    /// Samples and weight per column, group after group.
    sums: Vec<(u64, u64)>,
}

impl Groups {
    pub(crate) fn new(selection: &Selection<'_>, axes: &[Axis<'_>]) -> Self {
        let columns = selection.columns.len();
        let (of_row, keys) = combine(selection.rows.len(), axes);
        let mut sums = vec![(0u64, 0u64); keys.len() * columns];
        let mut first = vec![usize::MAX; keys.len()];
        for (i, (&row, &group)) in selection.rows.iter().zip(&of_row).enumerate() {
            let sample = selection.sample(row);
            let column = selection.column(sample.event).expect("selected rows have a column");
            let group = group as usize;
            let sum = &mut sums[group * columns + column];
            sum.0 += u64::from(sample.count);
            sum.1 = sum.1.saturating_add(sample.weight());
            first[group] = first[group].min(i);
        }
        Self { columns, keys, of_row, first, sums }
    }

    pub(crate) fn sums(&self, group: usize) -> &[(u64, u64)] {
        &self.sums[group * self.columns..][..self.columns]
    }

    /// By weight in the first event, then the others; equal ones in order of first appearance.
    pub(crate) fn largest_first(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.keys.len()).collect();
        let weights = |g: usize| self.sums(g).iter().map(|s| s.1);
        order.sort_by(|&a, &b| weights(b).cmp(weights(a)).then(self.first[a].cmp(&self.first[b])));
        order
    }

    pub(crate) fn labels(&self, group: usize, axes: &[Axis<'_>]) -> Vec<String> {
        self.keys[group].iter().zip(axes).map(|(&v, axis)| (axis.label)(v)).collect()
    }

    pub(crate) fn cells(&self, group: usize, totals: &[EventTotals]) -> Vec<Cell> {
        self.sums(group).iter().zip(totals).map(|(s, t)| cell(*s, t)).collect()
    }

    pub(crate) fn rest(&self, groups: &[usize], totals: &[EventTotals]) -> Option<(usize, Vec<Cell>)> {
        let mut sums = vec![(0u64, 0u64); self.columns];
        for &g in groups {
            for (sum, part) in sums.iter_mut().zip(self.sums(g)) {
                sum.0 += part.0;
                sum.1 = sum.1.saturating_add(part.1);
            }
        }
        let cells = sums.iter().zip(totals).map(|(s, t)| cell(*s, t)).collect();
        (!groups.is_empty()).then_some((groups.len(), cells))
    }

    pub(crate) fn remark(&self, group: usize, by: &[By], selection: &Selection<'_>, places: &Places) -> Option<String> {
        if !by.contains(&By::Image) {
            return None;
        }
        let row = self.first[group];
        let sample = selection.sample(selection.rows[row]);
        let image = selection.profile.image(sample.image);
        let name = if by.iter().any(|b| b.needs_places()) { self.function(group, places) } else { None };
        remark::of(image, name, selection.profile.event(selection.columns[0]))
    }

    /// Mangled name of the function a group's first row is in.
    pub(crate) fn function<'a>(&self, group: usize, places: &'a Places) -> Option<&'a str> {
        match &places.get(places.of_row[self.first[group]]).kind {
            PlaceKind::Function { name, .. } => Some(name),
            _ => None,
        }
    }
}

fn cell((samples, weight): (u64, u64), total: &EventTotals) -> Cell {
    Cell { samples, weight, share: ratio(weight, total.weight) }
}

/// 0 of 0 is 0.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Numbers the distinct combinations of the axes' values: for each row its group, and per group
/// the values.
pub(crate) fn combine(rows: usize, axes: &[Axis<'_>]) -> (Vec<u32>, Vec<Vec<u32>>) {
    let mut group = vec![0u32; rows];
    let mut keys: Vec<Vec<u32>> = vec![Vec::new()];
    for axis in axes {
        let mut seen: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        let mut next: Vec<Vec<u32>> = Vec::new();
        for (g, &value) in group.iter_mut().zip(&axis.of_row) {
            *g = *seen.entry((*g, value)).or_insert_with(|| {
                let mut key = keys[*g as usize].clone();
                key.push(value);
                next.push(key);
                u32::try_from(next.len() - 1).expect("fewer groups than sample rows")
            });
        }
        keys = next;
    }
    (group, keys)
}

/// How many independent samples the first column is worth.
#[derive(Clone, Copy)]
pub(crate) struct Sampling {
    effective: f64,
}

impl Sampling {
    /// Samples of unequal periods are worth fewer than their number (Kish): the square of the sum
    /// of weights over the sum of their squares.
    pub(crate) fn of(selection: &Selection<'_>) -> Self {
        let (mut sum, mut squares) = (0.0, 0.0);
        for &row in &selection.rows {
            let s = selection.sample(row);
            if selection.column(s.event) == Some(0) {
                let (n, period) = (f64::from(s.count), s.period as f64);
                sum += n * period;
                squares += n * period * period;
            }
        }
        Self { effective: if squares > 0.0 { sum * sum / squares } else { 0.0 } }
    }

    /// Half width of the 95 % interval; it does not claim certainty for shares of 0 or 1 seen in few
    /// samples.
    pub(crate) fn half_width(self, share: f64) -> f64 {
        interval::share_at(share * self.effective, self.effective, 0.95).half_width()
    }
}
