//! Heat maps: the main event's weight of the top procedures over time.

use crate::error::Error;
use crate::listing::{By, Query, grouped};
use crate::results::HeatMap;
use whither_store::model::Profile;
use whither_store::symbols::Symbols;

/// Label of the row that holds everything not shown.
pub const REST: &str = "(all others)";

/// The `rows` largest procedures (or whatever `query.by` groups by) and a row for all others, over
/// at most `columns` slices; longer recordings join neighbouring slices. Every sample of the
/// selection is in exactly one cell.
///
/// # Errors
/// Those of [`crate::listing()`].
pub fn heat_map(
    profile: &Profile,
    symbols: &dyn Symbols,
    query: &Query,
    rows: usize,
    columns: usize,
) -> Result<HeatMap, Error> {
    let by = if query.by.is_empty() { vec![By::Proc] } else { query.by.clone() };
    let main = query.events.first().or(profile.events.first().map(|e| &e.name));
    let events = main.into_iter().cloned().collect();
    let groups = grouped(profile, symbols, &Query { by, events, limit: Some(rows), ..query.clone() })?;
    let times = Times::of(profile, columns);
    let mut out: Vec<(String, Vec<u64>)> =
        groups.labels.iter().map(|l| (l.clone(), vec![0; times.starts.len()])).collect();
    let mut rest = vec![0u64; times.starts.len()];
    for (row, group) in &groups.of_row {
        let s = &profile.samples[*row as usize];
        let cells = group.map_or(&mut rest, |g| &mut out[g].1);
        let cell = &mut cells[times.index(s.slice)];
        *cell = cell.saturating_add(s.weight());
    }
    if rest.iter().any(|w| *w > 0) {
        out.push((REST.to_owned(), rest));
    }
    Ok(HeatMap { slices: times.starts, rows: out })
}

/// The time axis: equal steps from the first slice to the last.
struct Times {
    starts: Vec<u32>,
    step: u32,
}

impl Times {
    fn of(profile: &Profile, columns: usize) -> Self {
        let slices = || profile.samples.iter().map(|s| s.slice);
        let (first, last) = (slices().min().unwrap_or(0), slices().max().unwrap_or(0));
        let slice = profile.epochs.iter().map(|e| e.slice_s).max().unwrap_or(1).max(1);
        let wanted = u32::try_from(columns.max(1)).unwrap_or(u32::MAX);
        let slices = (last - first) / slice + 1;
        let step = slice.saturating_mul(slices.div_ceil(wanted));
        let starts = (0..=(last - first) / step).map(|i| first + i * step).collect();
        Self { starts, step }
    }

    fn index(&self, slice: u32) -> usize {
        ((slice - self.starts[0]) / self.step) as usize
    }
}
