//! What stands out: a call site whose calls last much longer than those from its siblings (one end of an
//! exchange that waits for the other), and a function with one caller that matters (a cache belongs there).

use crate::analysis::Analysis;
use crate::frames::Function;
use crate::names::frame_text;
use crate::results::{Group, Mark};
use rustc_hash::FxHashMap;
use whither_store::calls::FrameKind;

/// A site is slow when its average is that many times the median of the others'.
const SLOWER: f64 = 5.0;
/// ... and it holds this part of the function's time.
const WORTH: f64 = 0.01;
/// ... and had so many calls.
const ENOUGH_CALLS: u64 = 3;
/// Siblings with a smaller part of the function's calls say nothing about how long they usually last.
const USUAL: f64 = 0.01;
/// A caller is the one when it makes this part of the calls.
const NEARLY_ALL: f64 = 0.8;

#[derive(Default)]
struct Site {
    paths: Vec<usize>,
    calls: u64,
    done: u64,
    wall: u64,
}

/// Which marks concern rows of one kind, found by what they are made of: a table may have as many rows as paths, and as many marks.
#[derive(Default)]
pub(crate) struct Marked {
    /// Of ids of paths.
    by_path: FxHashMap<u32, Vec<usize>>,
    /// Of ids of functions.
    by_function: FxHashMap<u32, Vec<usize>>,
}

impl Marked {
    /// Indices of the marks of a row of these paths, whose functions have these ids.
    pub(crate) fn of(&self, paths: &[u32], functions: impl Iterator<Item = u32>) -> Vec<usize> {
        let mut found: Vec<usize> = Vec::new();
        if !self.by_path.is_empty() {
            found.extend(paths.iter().filter_map(|path| self.by_path.get(path)).flatten());
        }
        if !self.by_function.is_empty() {
            found.extend(functions.filter_map(|function| self.by_function.get(&function)).flatten());
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl Analysis<'_> {
    /// Slow sites concern paths and call sites, callers concern functions.
    pub(crate) fn marked(&self, group: Group) -> Marked {
        let mut marked = Marked::default();
        for (index, mark) in self.marks().iter().enumerate() {
            match (mark, group) {
                (Mark::SlowSite { paths, .. }, Group::Path | Group::Callsite) => {
                    paths.iter().for_each(|path| marked.by_path.entry(*path).or_default().push(index));
                }
                (Mark::OneCaller { func, .. }, Group::Function) => {
                    marked.by_function.entry(*func).or_default().push(index);
                }
                _ => {}
            }
        }
        marked
    }

    pub(crate) fn all_marks(&self) -> Vec<Mark> {
        let mut by_point: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
        for (i, path) in self.snapshot.paths.iter().enumerate() {
            by_point.entry(self.functions.of(path.point)).or_default().push(i);
        }
        let mut points: Vec<u32> = by_point.keys().copied().collect();
        points.sort_unstable();
        points.into_iter().flat_map(|p| self.marks_of(p, &by_point[&p])).collect()
    }

    fn marks_of(&self, point: u32, paths: &[usize]) -> Vec<Mark> {
        let id = self.snapshot.points.get(point as usize).map_or(0, |p| p.id);
        let mut marks = self.slow_sites(id, paths);
        marks.extend(self.one_caller(id, paths));
        marks
    }

    fn slow_sites(&self, func: u32, paths: &[usize]) -> Vec<Mark> {
        let mut sites: FxHashMap<u32, Site> = FxHashMap::default();
        for &path in paths {
            let caller = self.frames.caller(path);
            if let Some(frame) = caller.filter(|f| self.frames.rows[*f as usize].kind == FrameKind::Caller) {
                self.put(sites.entry(frame).or_default(), path);
            }
        }
        let whole = sites.values().fold(0_u64, |all, s| all.saturating_add(s.wall));
        let calls = sites.values().fold(0_u64, |all, s| all.saturating_add(s.calls));
        let timed: Vec<(u32, Site)> = sites.into_iter().filter(|(_, s)| s.done > 0 && s.wall > 0).collect();
        let mut marks: Vec<(f64, Mark)> = Vec::new();
        let is_usual = |s: &Site| s.calls as f64 >= USUAL * calls as f64;
        let mut usual: Vec<f64> = timed.iter().filter(|(_, s)| is_usual(s)).map(|(_, s)| average(s)).collect();
        usual.sort_by(f64::total_cmp);
        for (frame, site) in &timed {
            let own = is_usual(site).then(|| average(site));
            let Some(others_ns) = lower_median(&usual, own) else { continue };
            let (average_ns, share) = (average(site), site.wall as f64 / whole.max(1) as f64);
            if average_ns >= SLOWER * others_ns && share >= WORTH && site.calls >= ENOUGH_CALLS {
                let paths = site.paths.iter().map(|&p| self.snapshot.paths[p].id).collect();
                let label = frame_text(&self.frames.rows[*frame as usize], true, self.options.inlines);
                marks.push((share, Mark::SlowSite { func, site: label, average_ns, others_ns, share, paths }));
            }
        }
        marks.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.sentence().cmp(&b.1.sentence())));
        marks.into_iter().map(|(_, mark)| mark).collect()
    }

    fn put(&self, site: &mut Site, path: usize) {
        let sum = &self.sums[path];
        site.paths.push(path);
        site.calls = site.calls.saturating_add(sum.calls);
        site.done = site.done.saturating_add(sum.done);
        site.wall = site.wall.saturating_add(sum.wall);
    }

    /// Only where there is a choice: a function with a single caller says nothing.
    fn one_caller(&self, func: u32, paths: &[usize]) -> Option<Mark> {
        let mut callers: FxHashMap<&Function, (u64, &str)> = FxHashMap::default();
        let mut all = 0_u64;
        for &path in paths {
            let calls = self.sums[path].calls;
            all = all.saturating_add(calls);
            if let Some(frame) = self.frames.caller(path) {
                let row = &self.frames.rows[frame as usize];
                let caller = callers.entry(&self.frames.functions[frame as usize]).or_insert((0, &row.name));
                caller.0 = caller.0.saturating_add(calls);
            }
        }
        let most = callers.iter().filter(|(f, _)| !matches!(f, Function::Label(_))).map(|(_, c)| *c).max()?;
        let share = most.0 as f64 / all.max(1) as f64;
        let mark = Mark::OneCaller { func, caller: most.1.to_owned(), share, calls: most.0 };
        (callers.len() > 1 && share >= NEARLY_ALL && most.0 >= ENOUGH_CALLS).then_some(mark)
    }
}

fn average(site: &Site) -> f64 {
    site.wall as f64 / site.done.max(1) as f64
}

/// Of sorted values, without one of them. Of an even number the smaller one in the middle: half of the sites may be slow.
fn lower_median(sorted: &[f64], without: Option<f64>) -> Option<f64> {
    let n = sorted.len().checked_sub(usize::from(without.is_some()))?;
    let middle = n.checked_sub(1)? / 2;
    let left_out = without.map_or(usize::MAX, |own| sorted.partition_point(|v| v.total_cmp(&own).is_lt()));
    sorted.get(if middle < left_out { middle } else { middle + 1 }).copied()
}

/// A time in the unit that suits it.
fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

impl Mark {
    /// What it says, in words.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Self::SlowSite { site, average_ns, others_ns, share, .. } => format!(
                "calls from {site} last {:.0}x as long as those from the other call sites ({}, others {}) and hold {:.1} % of the function's time",
                average_ns / others_ns.max(1.0),
                time(*average_ns),
                time(*others_ns),
                share * 100.0
            ),
            Self::OneCaller { caller, share, .. } => {
                // Nearly all is not all.
                let percent = if *share < 1.0 { (share * 100.0).min(99.9) } else { 100.0 };
                format!("{percent:.1} % of its calls come from {caller}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_the_others() {
        let all = [1.0, 2.0, 2.0, 5.0, 9.0];
        assert_eq!(lower_median(&all, None), Some(2.0));
        assert_eq!(lower_median(&all, Some(1.0)), Some(2.0));
        assert_eq!(lower_median(&all, Some(9.0)), Some(2.0));
        assert_eq!(lower_median(&[1.0, 5.0, 9.0], Some(1.0)), Some(5.0));
        assert_eq!(lower_median(&[1.0, 5.0, 9.0], Some(5.0)), Some(1.0));
        assert_eq!((lower_median(&[3.0], Some(3.0)), lower_median(&[], None)), (None, None));
    }
}
