//! What a live screen shows of two snapshots, as plain rows: the tree of call paths or a listing, each
//! with the figures of the last interval and of the epoch; calls in progress; histograms. Knows no screen.

use rustc_hash::FxHashMap;
use std::fmt::Write as _;
use whither_calls::{
    Analysis, CallProfile, Figures, Group, Known, ListQuery, Metric, Names, Options, TreeNode, TreeQuery, difference,
};
use whither_report::text::{FEW_NAMES, calls_header, calls_warnings};
use whither_store::calls::{CallSnapshot, LatePoint, PointState};

/// Names from the root to a node: what stays the same from picture to picture.
pub(super) type Key = Vec<String>;

/// One line of the tree or listing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ViewRow {
    pub(super) key: Key,
    /// Probe, when it is one.
    pub(super) point: Option<u32>,
    /// It passes without counting.
    pub(super) off: bool,
    /// Calls a second in the last interval.
    pub(super) rate: f64,
    /// Part of the whole in the last interval.
    pub(super) now: f64,
    /// Part of its parent in the last interval: what was added later than its parent has less of the epoch.
    pub(super) of_parent: Option<f64>,
    /// Part of the whole in the epoch.
    pub(super) epoch: f64,
    /// Weight in the epoch: nanoseconds or calls.
    pub(super) total: u64,
    pub(super) known: Known,
    /// Calls in the epoch.
    pub(super) calls: u64,
    pub(super) children: bool,
    /// How long the epoch had lasted when its probe was added.
    pub(super) after_ns: Option<u64>,
}

/// A call in progress.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProgressLine {
    pub(super) tid: u32,
    pub(super) elapsed_ns: u64,
    pub(super) path: String,
}

/// Calls by duration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Histogram {
    pub(super) point: u32,
    pub(super) name: String,
    /// `[i]`: calls of `[2^i, 2^(i+1))` ns.
    pub(super) bins: Vec<u64>,
}

/// A picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct View {
    pub(super) head: String,
    /// The first sentence about missing data.
    pub(super) warning: String,
    pub(super) rows: Vec<ViewRow>,
    /// What was measured.
    pub(super) metrics: Vec<Metric>,
    pub(super) progress: Vec<ProgressLine>,
    pub(super) histograms: Vec<Histogram>,
}

impl View {
    /// From the state now and that of the last picture.
    pub(super) fn new(
        now: &CallSnapshot,
        before: Option<&CallSnapshot>,
        names: &dyn Names,
        metric: &Metric,
        group: Group,
    ) -> Self {
        let interval = before.map_or_else(|| now.clone(), |b| difference(now, b));
        let (epoch, last) =
            (Analysis::new(now, names, Options::default()), Analysis::new(&interval, names, Options::default()));
        let profile = epoch.brief();
        let rows = match group {
            Group::Path => tree_rows(&epoch, &last, now, &interval, metric),
            _ => list_rows(&epoch, &last, metric, group),
        };
        let warning = calls_warnings(&profile, FEW_NAMES).into_iter().next().unwrap_or_default();
        let progress = profile.in_progress.iter().map(|c| ProgressLine {
            tid: c.tid,
            elapsed_ns: c.elapsed_ns,
            path: epoch.label(c.path).unwrap_or_default(),
        });
        Self {
            head: without_folder(&calls_header(&profile).replacen("whither calls: ", "", 1)).to_owned(),
            warning,
            rows,
            metrics: Metric::measured(now),
            progress: progress.collect(),
            histograms: histograms(&profile),
        }
    }
}

/// The line with its command's name alone: what stands behind it is cut off on narrow terminals.
fn without_folder(head: &str) -> &str {
    let word = head.split([' ', ',']).next().unwrap_or(head);
    word.rfind('/').and_then(|at| head.get(at + 1..)).unwrap_or(head)
}

/// What a part is a part of: of all time there was, or of all that was counted.
fn whole(snapshot: &CallSnapshot, tree: &TreeNode, metric: &Metric) -> u64 {
    match metric {
        Metric::Cpu => snapshot.whole.cpu_ns,
        Metric::Wall | Metric::Off => snapshot.whole.thread_ns,
        Metric::Count | Metric::Switches | Metric::Faults | Metric::Value(_) => tree.total,
    }
}

fn part(of: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { of as f64 / whole as f64 }
}

fn per_second(calls: u64, wall_ns: u64) -> f64 {
    if wall_ns == 0 { 0.0 } else { calls as f64 * 1e9 / wall_ns as f64 }
}

struct TreeRows<'a> {
    epoch: &'a Analysis<'a>,
    last: FxHashMap<Key, (u64, u64)>,
    off: Vec<u32>,
    late: &'a [LatePoint],
    metric: &'a Metric,
    rows: Vec<ViewRow>,
    interval: &'a CallSnapshot,
    /// What parts are parts of, in the epoch and in the last interval.
    wholes: (u64, u64),
}

fn tree_rows(
    epoch: &Analysis<'_>,
    last: &Analysis<'_>,
    now: &CallSnapshot,
    interval: &CallSnapshot,
    metric: &Metric,
) -> Vec<ViewRow> {
    let least = if now.paths.len() > MANY { LEAST } else { 0.0 };
    let query = TreeQuery { metric: metric.clone(), least, ..TreeQuery::default() };
    let mut weights = FxHashMap::default();
    let (tree, recent) = (epoch.tree(&query), last.tree(&query));
    collect(&recent, &mut Vec::new(), &mut weights);
    let off = now.points.iter().filter(|p| p.state == PointState::Off).map(|p| p.id).collect();
    let wholes = (whole(now, &tree, metric), whole(interval, &recent, metric));
    let mut made = TreeRows { epoch, last: weights, off, late: &now.late, metric, rows: Vec::new(), interval, wholes };
    for child in &tree.children {
        made.add(child, &mut Vec::new(), None);
    }
    made.rows
}

/// So many paths are shown without what nobody would page to.
const MANY: usize = 5000;
/// Nodes of theirs below this part of the whole.
const LEAST: f64 = 1e-4;

/// Calls and weight of every node.
fn collect(node: &TreeNode, key: &mut Key, out: &mut FxHashMap<Key, (u64, u64)>) {
    for child in &node.children {
        key.push(child.name.clone());
        out.insert(key.clone(), (child.calls, child.total));
        collect(child, key, out);
        key.pop();
    }
}

impl TreeRows<'_> {
    /// A node's part of the epoch: of a function that was not probed all the time, what its calls took of the time in which it was.
    /// (What is counted below it afterwards belongs to no call of its own: with that it was up to 181 %.) Of a caller that is not
    /// probed, all parts below it.
    fn part_of(&self, node: &TreeNode, below: f64) -> f64 {
        let Some(id) = node.func else { return below };
        let unseen = self.epoch.unseen(id).map_or(0, |spent| match self.metric {
            Metric::Cpu => spent.cpu_ns,
            Metric::Wall | Metric::Off => spent.thread_ns,
            Metric::Count | Metric::Switches | Metric::Faults | Metric::Value(_) => 0,
        });
        let weight = if unseen > 0 { node.seen.unwrap_or(node.total) } else { node.total };
        part(weight, self.wholes.0.saturating_sub(unseen))
    }

    /// `parent`: its weight in the epoch, and in the last interval. Returns the node's part of the epoch.
    fn add(&mut self, node: &TreeNode, key: &mut Key, parent: Option<(u64, u64)>) -> f64 {
        key.push(node.name.clone());
        let (calls, total) = self.last.get(key).copied().unwrap_or_default();
        let of_parent = parent.map(|(all, last)| if last > 0 { part(total, last) } else { part(node.total, all) });
        let row = self.rows.len();
        self.rows.push(ViewRow {
            key: key.clone(),
            point: node.func,
            off: node.func.is_some_and(|id| self.off.contains(&id)),
            rate: per_second(calls, self.interval.whole.wall_ns),
            now: part(total, self.wholes.1),
            of_parent,
            epoch: 0.0,
            total: node.total,
            known: node.times.known(self.metric),
            calls: node.calls,
            children: !node.children.is_empty(),
            after_ns: self.late.iter().find(|late| Some(late.id) == node.func).map(|late| late.after_ns),
        });
        let mut below = part(node.small.total, self.wholes.0);
        for child in &node.children {
            below += self.add(child, key, Some((node.total, total)));
        }
        let epoch = self.part_of(node, below);
        self.rows[row].epoch = epoch;
        key.pop();
        epoch
    }
}

fn list_rows(epoch: &Analysis<'_>, last: &Analysis<'_>, metric: &Metric, group: Group) -> Vec<ViewRow> {
    let sort = metric.sort();
    let query = ListQuery { group, sort: sort.clone(), top: Some(MANY), ..ListQuery::default() };
    let (Ok(all), Ok(now)) = (epoch.listing(&query), last.listing(&query)) else { return Vec::new() };
    let recent: FxHashMap<&str, &Figures> = now.rows.iter().map(|r| (r.label.as_str(), &r.figures)).collect();
    let (wall, functions) = (last.whole().wall_ns, epoch.brief().functions);
    let point = |label: &str| functions.iter().find(|f| f.names.iter().any(|n| n == label));
    let row = |r: &whither_calls::ListRow| {
        let figures = recent.get(r.label.as_str());
        let point = if group == Group::Function { point(&r.label) } else { None };
        ViewRow {
            key: vec![r.label.clone()],
            point: point.map(|f| f.id),
            off: point.is_some_and(|f| f.state == PointState::Off),
            rate: per_second(figures.map_or(0, |f| f.calls), wall),
            now: figures.map_or(0.0, |f| share(f, &now.all, metric)),
            of_parent: None,
            epoch: share(&r.figures, &all.all, metric),
            total: sort.of(&r.figures) as u64,
            known: r.figures.known(metric),
            calls: r.figures.calls,
            children: false,
            after_ns: point.and_then(|f| f.after_ns),
        }
    };
    all.rows.iter().map(row).collect()
}

fn share(f: &Figures, all: &Figures, metric: &Metric) -> f64 {
    match metric {
        Metric::Cpu => f.share_exec,
        Metric::Wall => f.share_wall,
        Metric::Off => f.share_wall * part(f.off_cpu_ns, f.wall_ns),
        Metric::Count | Metric::Switches | Metric::Faults | Metric::Value(_) => {
            let (sort, whole) = (metric.sort(), metric.sort().of(all));
            if whole > 0.0 { sort.of(f) / whole } else { 0.0 }
        }
    }
}

fn histograms(profile: &CallProfile) -> Vec<Histogram> {
    let of = |f: &whither_calls::FunctionRow| {
        let name = f.names.first().cloned().unwrap_or_default();
        Some(Histogram { point: f.id, name, bins: f.totals.hist.clone()? })
    };
    profile.functions.iter().filter_map(of).collect()
}

/// Where a function of the tree stands and from where it is called, as far as line information tells.
pub(super) fn source(now: &CallSnapshot, names: &dyn Names, key: &Key) -> String {
    let profile = Analysis::new(now, names, Options::default()).brief();
    let Some(name) = key.last().map(|n| n.split(" @").next().unwrap_or(n)) else { return String::new() };
    let caller = key.len().checked_sub(2).and_then(|i| key.get(i)).map(|n| n.split(" @").next().unwrap_or(n));
    let mut text = format!("{name}\n");
    if let Some(f) = profile.functions.iter().find(|f| f.names.iter().any(|n| n == name)) {
        let _ = writeln!(text, "  probe #{} at {}+{:#x}, {} bytes", f.id, f.module, f.offset, f.size);
        if !f.file.is_empty() {
            let _ = writeln!(text, "  {}:{}", f.file, f.line);
        }
    }
    let sites = profile.frames.iter().filter(|f| Some(f.name.as_str()) == caller.or(Some(name)));
    for site in sites.take(SITES) {
        let within = site.within.map_or_else(String::new, |w| format!("+{w:#x}"));
        let line = if site.file.is_empty() { String::new() } else { format!("  {}:{}", site.file, site.line) };
        let _ = writeln!(text, "  a call in {}{within} ({}+{:#x}){line}", site.name, site.module, site.offset);
        let _ = code(&site.file, site.line).into_iter().try_for_each(|l| writeln!(text, "      {l}"));
    }
    text
}

/// Call sites shown of one function.
const SITES: usize = 6;
/// Lines shown around a call.
const AROUND: u32 = 1;
/// Larger files are no source.
const LARGEST: u64 = 16 << 20;

/// Lines of a source file around one, if the file is on this machine.
fn code(file: &str, line: u32) -> Vec<String> {
    let readable = line > 0 && std::fs::metadata(file).is_ok_and(|m| m.is_file() && m.len() <= LARGEST);
    let Some(text) = readable.then(|| std::fs::read(file).ok()).flatten() else { return Vec::new() };
    let text = String::from_utf8_lossy(&text);
    let numbered = (1_u32..).zip(text.lines());
    let near = numbered.skip_while(|(n, _)| n + AROUND < line).take_while(|(n, _)| *n <= line + AROUND);
    near.map(|(n, l)| format!("{}{n:>5}  {}", if n == line { '>' } else { ' ' }, l.replace('\t', "    "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_calls::NoNames;
    use whither_store::calls::{
        CallFrame, CallModule, CallPath, CallPlace, CallPoint, FrameKind, Gap, Moment, PatchKind, PathTotals, Spent,
        Whole,
    };

    /// `outer` lies at 0, `inner` at 0x100.
    struct Known;

    impl Names for Known {
        fn place(&self, _: &CallModule, address: u64) -> CallPlace {
            let (function, start) = if address < 0x100 { ("outer", 0) } else { ("inner", 0x100) };
            CallPlace { function: function.into(), start: Some(start), ..CallPlace::default() }
        }
    }

    /// `outer` calls `inner`; both probed, `calls` calls each, 1 ms of wall time per call of outer, half of it inner's.
    fn snapshot(calls: u64, seconds: u64) -> CallSnapshot {
        let point = |id: u32, name: &str, state| CallPoint {
            id,
            names: vec![name.into()],
            module: 0,
            offset: u64::from(id) * 0x100,
            size: 64,
            patch: Some(PatchKind::Jump),
            state,
            entry_only: None,
            refused: None,
            values: Vec::new(),
        };
        let path = |id: u32, parent: Option<u32>, each: u64| CallPath {
            id,
            point: id,
            frame: if parent.is_some() { 0 } else { u32::MAX },
            parent,
            same: 0,
            folded: false,
            totals: PathTotals { calls, done: calls, wall_ns: calls * each, ..PathTotals::default() },
            threads: Vec::new(),
        };
        CallSnapshot {
            at_ns: seconds * 1_000_000_000,
            whole: Whole {
                wall_ns: seconds * 1_000_000_000,
                thread_ns: seconds * 1_000_000_000,
                threads: 1,
                ..Whole::default()
            },
            modules: vec![CallModule { path: "/bin/app".into(), id: None, bias: 0, start: 0, end: 0x1000 }],
            points: vec![point(0, "outer", PointState::On), point(1, "inner", PointState::Off)],
            frames: vec![CallFrame {
                kind: FrameKind::Caller,
                module: 0,
                offset: 0x20,
                caller: u32::MAX,
                by_frame_pointer: false,
            }],
            paths: vec![path(0, None, 1_000_000), path(1, Some(0), 500_000)],
            ..CallSnapshot::default()
        }
    }

    #[test]
    fn the_command_stands_without_its_folder() {
        let heads = ["/usr/bin/app a/b, 1 s wall", "app, 1/2", ""].map(without_folder);
        assert_eq!(heads, ["app a/b, 1 s wall", "app, 1/2", ""]);
    }

    #[test]
    fn rows_tell_the_interval_beside_the_epoch() {
        let (before, now) = (snapshot(100, 1), snapshot(700, 2));
        let view = View::new(&now, Some(&before), &Known, &Metric::Wall, Group::Path);
        let [outer, inner] = &view.rows[..] else { panic!("{:?}", view.rows) };
        assert_eq!((outer.key.as_slice(), outer.point), (&["outer".to_owned()][..], Some(0)));
        assert_eq!(inner.key, ["outer", "inner"]);
        assert!((outer.rate - 600.0).abs() < 1e-9 && (outer.now - 0.6).abs() < 1e-9, "{outer:?}");
        assert!((outer.epoch - 0.35).abs() < 1e-9 && outer.total == 700_000_000, "{outer:?}");
        assert_eq!((inner.of_parent, inner.off, outer.off), (Some(0.5), true, false));
        assert_eq!(view.metrics, [Metric::Wall, Metric::Count]);
    }

    #[test]
    fn what_was_added_later_is_compared_with_its_parent_since() {
        let (mut before, mut now) = (snapshot(100, 1), snapshot(700, 2));
        before.paths.pop();
        let inner = &mut now.paths[1].totals;
        (inner.calls, inner.done, inner.wall_ns) = (600, 600, 300_000_000);
        now.late = vec![LatePoint {
            id: 1,
            after_ns: 1_000_000_000,
            spent: Some(Spent { cpu_ns: 0, thread_ns: 1_000_000_000 }),
        }];
        let view = View::new(&now, Some(&before), &Known, &Metric::Wall, Group::Path);
        assert_eq!(view.rows[1].of_parent, Some(0.5), "300 of 600 ms, not of 700");
        assert!(
            (view.rows[0].epoch - 0.35).abs() < 1e-9 && (view.rows[1].epoch - 0.3).abs() < 1e-9,
            "of the second since"
        );
        assert_eq!([view.rows[0].after_ns, view.rows[1].after_ns], [None, Some(1_000_000_000)]);
        let listed = View::new(&now, Some(&before), &Known, &Metric::Count, Group::Function).rows;
        assert_eq!(listed.iter().find(|r| r.key[0] == "inner").unwrap().after_ns, Some(1_000_000_000));
    }

    /// Half of the time `outer` was probed, and had 0.7 of it; the calls of `inner` go on by themselves, and stand below it as before.
    #[test]
    fn parts_of_a_caller_whose_probe_was_removed_are_no_more_than_they_were() {
        let mut now = snapshot(700, 2);
        let moment = |ms: u64| Moment {
            after_ns: ms * 1_000_000,
            spent: Spent { cpu_ns: ms * 1_000_000, thread_ns: ms * 1_000_000 },
        };
        now.gaps = vec![Gap { id: 0, from: moment(1_000), until: None }];
        now.points[0].state = PointState::Removed;
        let since = CallPath { id: 2, parent: None, ..now.paths[1].clone() };
        now.paths.push(since);
        let view = View::new(&now, None, &Known, &Metric::Wall, Group::Path);
        let parts: Vec<(&str, f64)> = view.rows.iter().map(|r| (r.key[r.key.len() - 1].as_str(), r.epoch)).collect();
        let [("outer", outer), ("inner", inner)] = parts[..] else { panic!("{parts:?}") };
        assert!((outer - 0.7).abs() < 1e-9 && (inner - 0.35).abs() < 1e-9, "{parts:?}");
    }

    #[test]
    fn functions_are_listed_with_their_numbers() {
        let view = View::new(&snapshot(10, 1), None, &Known, &Metric::Count, Group::Function);
        let shown: Vec<_> = view.rows.iter().map(|r| (r.key[0].as_str(), r.point, r.calls)).collect();
        assert_eq!(shown, [("inner", Some(1), 10), ("outer", Some(0), 10)]);
        assert!(source(&snapshot(1, 1), &NoNames, &vec!["outer".into()]).contains("probe #0 at /bin/app+0x0"));
    }

    #[test]
    fn nothing_measured_is_a_picture_too() {
        let view = View::new(&CallSnapshot::default(), None, &NoNames, &Metric::Cpu, Group::Caller);
        assert!(view.rows.is_empty() && view.progress.is_empty());
        assert_eq!(source(&CallSnapshot::default(), &NoNames, &Vec::new()), "");
    }
}
