//! Before and after: two profiles of one program, path by path.
//!
//! Paths are the same when they call the same functions by name from the same call sites. Where the files
//! differ (the program was rebuilt), addresses of call sites mean nothing: sites of equal names are then
//! matched in order of address when both sides have equally many, and put together when they do not.

use crate::results::{CallDifference, CallProfile, DifferenceRow, Figures, PathRow, SCHEMA};
use std::collections::BTreeMap;

/// Call sites, and the rows with them before and after.
type Pair<'a> = (Vec<u64>, Option<&'a Vec<PathRow>>, Option<&'a Vec<PathRow>>);
type Sides = (Vec<PathRow>, Vec<PathRow>);

/// Compares two profiles.
#[must_use]
pub fn compare(before: &CallProfile, after: &CallProfile) -> CallDifference {
    let rebuilt = before.target.build_ids != after.target.build_ids;
    let mut by_names: BTreeMap<Vec<String>, Sides> = BTreeMap::new();
    for path in &before.paths {
        by_names.entry(names(before, path)).or_default().0.push(path.clone());
    }
    for path in &after.paths {
        by_names.entry(names(after, path)).or_default().1.push(path.clone());
    }
    let mut paths: Vec<DifferenceRow> =
        by_names.iter().flat_map(|(names, sides)| rows(names, sides, (before, after), rebuilt)).collect();
    paths.sort_by(by_change);
    CallDifference {
        schema: SCHEMA,
        whole: (before.whole, after.whole),
        functions: functions(before, after),
        paths,
        rebuilt,
    }
}

fn functions(before: &CallProfile, after: &CallProfile) -> Vec<DifferenceRow> {
    let mut by_name: BTreeMap<String, (Option<Figures>, Option<Figures>)> = BTreeMap::new();
    let name = |f: &crate::FunctionRow| f.names.first().cloned().unwrap_or_default();
    for f in &before.functions {
        let side = &mut by_name.entry(name(f)).or_default().0;
        *side = Some(merged(side.take(), &f.totals));
    }
    for f in &after.functions {
        let side = &mut by_name.entry(name(f)).or_default().1;
        *side = Some(merged(side.take(), &f.totals));
    }
    let rows = by_name.into_iter().map(|(label, (before, after))| DifferenceRow { label, before, after });
    let mut rows: Vec<DifferenceRow> = rows.collect();
    rows.sort_by(by_change);
    rows
}

/// Largest change of total wall time first, calls where there are no times.
fn by_change(a: &DifferenceRow, b: &DifferenceRow) -> std::cmp::Ordering {
    let change = |r: &DifferenceRow| {
        let of = |f: &Option<Figures>| f.as_ref().map_or((0, 0), |f| (f.wall_ns, f.calls));
        let (b, a) = (of(&r.before), of(&r.after));
        (a.0.abs_diff(b.0), a.1.abs_diff(b.1))
    };
    change(b).cmp(&change(a)).then_with(|| a.label.cmp(&b.label))
}

/// Functions of a path, outermost first, the probed one last.
fn names(profile: &CallProfile, path: &PathRow) -> Vec<String> {
    let frames = path.frames.iter().filter_map(|&f| profile.frames.get(f as usize)).map(|f| f.name.clone());
    let function = profile.functions.iter().find(|f| f.id == path.func).and_then(|f| f.names.first().cloned());
    frames.chain([function.unwrap_or_default()]).collect()
}

/// Offsets of the calls within their functions.
fn sites(profile: &CallProfile, path: &PathRow) -> Vec<u64> {
    let frames = path.frames.iter().filter_map(|&f| profile.frames.get(f as usize));
    frames.map(|f| f.within.unwrap_or(f.offset)).collect()
}

/// Rows of paths with the same names.
fn rows(names: &[String], sides: &Sides, profiles: (&CallProfile, &CallProfile), rebuilt: bool) -> Vec<DifferenceRow> {
    let (before, after) = (by_site(profiles.0, &sides.0), by_site(profiles.1, &sides.1));
    let sum = |side: Option<&Vec<PathRow>>| {
        side.and_then(|rows| rows.iter().fold(None, |all, r| Some(merged(all, &r.figures))))
    };
    let pairs: Vec<Pair<'_>> = if !rebuilt {
        let mut all: Vec<&Vec<u64>> = before.keys().chain(after.keys()).collect();
        all.sort();
        all.dedup();
        all.into_iter().map(|site| (site.clone(), before.get(site), after.get(site))).collect()
    } else if before.len() == after.len() {
        before.values().zip(&after).map(|(b, (site, a))| (site.clone(), Some(b), Some(a))).collect()
    } else {
        let flat = |side: &BTreeMap<Vec<u64>, Vec<PathRow>>| side.values().flatten().cloned().collect::<Vec<_>>();
        let some = |rows: Vec<PathRow>| (!rows.is_empty()).then_some(rows);
        let (before, after) = (some(flat(&before)), some(flat(&after)));
        return vec![DifferenceRow {
            label: label(names, &[], &[]),
            before: sum(before.as_ref()),
            after: sum(after.as_ref()),
        }];
    };
    let apart = differing(&pairs.iter().map(|(site, ..)| site).collect::<Vec<_>>());
    let row =
        |(site, b, a): &Pair<'_>| DifferenceRow { label: label(names, site, &apart), before: sum(*b), after: sum(*a) };
    pairs.iter().map(row).collect()
}

fn by_site(profile: &CallProfile, rows: &[PathRow]) -> BTreeMap<Vec<u64>, Vec<PathRow>> {
    let mut by_site: BTreeMap<Vec<u64>, Vec<PathRow>> = BTreeMap::new();
    for row in rows {
        by_site.entry(sites(profile, row)).or_default().push(row.clone());
    }
    by_site
}

/// Frames whose sites are not the same in all rows.
fn differing(sites: &[&Vec<u64>]) -> Vec<bool> {
    let longest = sites.iter().map(|s| s.len()).max().unwrap_or(0);
    (0..longest).map(|i| sites.iter().any(|s| s.get(i) != sites[0].get(i))).collect()
}

/// `main > solve+0x31 > MPI_Wait`; sites only where they tell rows apart.
fn label(names: &[String], sites: &[u64], apart: &[bool]) -> String {
    let main = names.iter().position(|n| n == "main");
    let first = main.unwrap_or_else(|| names.iter().take_while(|n| crate::names::is_startup(n)).count());
    let part = |(i, name): (usize, &String)| match (sites.get(i), apart.get(i)) {
        (Some(site), Some(true)) => format!("{name}+{site:#x}"),
        _ => name.clone(),
    };
    let parts: Vec<String> =
        names.iter().enumerate().skip(first.min(names.len().saturating_sub(1))).map(part).collect();
    parts.join(" > ")
}

/// Two rows put together: what adds up is added, the average is weighted, percentiles are given up.
fn merged(all: Option<Figures>, f: &Figures) -> Figures {
    let Some(all) = all else { return f.clone() };
    let completed = |f: &Figures| f.average_ns.unwrap_or(0.0) * f.done as f64;
    let done = all.done.saturating_add(f.done);
    let average = (done > 0).then(|| (completed(&all) + completed(f)) / done as f64).filter(|a| *a > 0.0);
    // No longer than any of them, whether told exactly or as a bound.
    let least = [all.min_ns, f.min_ns, all.min_below_ns, f.min_below_ns].into_iter().flatten().min();
    let is_bound = all.min_below_ns.or(f.min_below_ns).is_some();
    let most = |f: &Figures| f.wall_below_ns.unwrap_or(f.wall_ns);
    let most_cpu = |f: &Figures| f.cpu_below_ns.unwrap_or(f.cpu_ns);
    let unclear = all.wall_below_ns.or(f.wall_below_ns).is_some() && !all.lacking && !f.lacking;
    Figures {
        calls: all.calls.saturating_add(f.calls),
        done,
        untimed: all.untimed.saturating_add(f.untimed),
        lacking: all.lacking || f.lacking,
        nested: all.nested.saturating_add(f.nested),
        timed: all.timed || f.timed,
        cpu_timed: all.cpu_timed || f.cpu_timed,
        wall_ns: all.wall_ns.saturating_add(f.wall_ns),
        self_wall_ns: all.self_wall_ns.saturating_add(f.self_wall_ns),
        cpu_ns: all.cpu_ns.saturating_add(f.cpu_ns),
        cpu_below_ns: all.cpu_below_ns.or(f.cpu_below_ns).map(|_| most_cpu(&all).saturating_add(most_cpu(f))),
        cpu_rough: all.cpu_rough || f.cpu_rough,
        cpu_unsure_ns: all.cpu_unsure_ns.saturating_add(f.cpu_unsure_ns),
        self_cpu_ns: all.self_cpu_ns.saturating_add(f.self_cpu_ns),
        off_cpu_ns: all.off_cpu_ns.saturating_add(f.off_cpu_ns),
        average_ns: average,
        rough: all.rough || f.rough,
        unsure_ns: all.unsure_ns.saturating_add(f.unsure_ns),
        wall_below_ns: unclear.then(|| most(&all).saturating_add(most(f))),
        min_ns: least.filter(|_| !is_bound),
        min_below_ns: least.filter(|_| is_bound),
        max_ns: all.max_ns.max(f.max_ns),
        share_exec: all.share_exec + f.share_exec,
        share_wall: all.share_wall + f.share_wall,
        share_listed: all.share_listed + f.share_listed,
        running: all.running.with(f.running),
        ..Figures::default()
    }
}
