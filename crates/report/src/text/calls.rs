//! Call paths as text: the header, the table with what it leaves out, the tree, and the sentences on
//! losses and refusals that go to standard error.

use super::calls_losses::losses;
use super::number::{begins_with_count, duration, nanoseconds, percent, thousands};
use super::paths::has_counted;
use super::table::{Column, Table, Tone, middle_cut};
use super::{Layout, tone_of};
use rustc_hash::FxHashMap;
use whither_calls::{
    CallProfile, Figures, FunctionRow, Group, Known, Listing, OwnCostRow, PathCount, PathFacts, ValueRow,
};
use whither_store::call_steps::CallStep;
use whither_store::calls::{CallLost, PatchKind, PointState};

/// A column of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallColumn {
    /// Part of the process tree's CPU time.
    Exec,
    /// Part of all thread lifetimes.
    WallShare,
    /// Own part of all that was measured.
    Listed,
    /// Total wall time.
    Total,
    /// Wall time without probed callees.
    SelfWall,
    /// CPU time.
    Cpu,
    /// Blocked or runnable.
    Off,
    /// Average wall time.
    Average,
    /// Shortest call.
    Min,
    /// Longest call.
    Max,
    /// Percentiles 50, 90 and 99.
    Percentiles,
    /// Summed integers.
    Values,
    /// Context switches and page faults.
    Usage,
    /// Calls per second.
    Rate,
    /// Calls.
    Count,
}

/// The table under its header. Without columns chosen those appear that have numbers.
#[must_use]
pub fn calls(profile: &CallProfile, listing: &Listing, columns: &[CallColumn], layout: &Layout) -> String {
    let chosen = if columns.is_empty() { usual(listing) } else { columns.to_vec() };
    let view = View { profile, listing, columns: &chosen };
    let mut out = layout.style.paint(Tone::Head, &calls_header(profile)) + "\n";
    if listing.rows.is_empty() && listing.rest.is_none() {
        out.push_str("no call was seen\n");
    } else {
        out.push_str(&view.table().render(layout.style, layout.width));
    }
    for line in view.footer(&out) {
        out.push_str(&layout.style.paint(Tone::Faint, &line));
        out.push('\n');
    }
    out
}

/// `whither calls: app, 4 processes, 71.2 s wall, ...`.
#[must_use]
pub fn calls_header(p: &CallProfile) -> String {
    let command = if p.target.command.is_empty() { &p.target.exe } else { &p.target.command };
    let mut parts = vec![middle_cut(command, 60)];
    if p.whole.processes > 1 {
        parts.push(format!("{} processes", thousands(u64::from(p.whole.processes))));
    }
    parts.push(format!("{} wall", whole_time(p.whole.wall_ns)));
    parts.push(format!("{} CPU", whole_time(p.whole.cpu_ns)));
    let epoch = if p.epoch.is_empty() { String::new() } else { format!(" [{}]", p.epoch) };
    format!(
        "whither calls{epoch}: {}; {}, {}, lost {}, own cost {}",
        parts.join(", "),
        functions(&p.functions),
        n_calls(p.whole.calls),
        thousands(lost(p)),
        own_cost(p)
    )
}

/// Of short runs more than "0 s", which shares are told of.
pub(crate) fn whole_time(ns: u64) -> String {
    if (1..10_000_000).contains(&ns) { nanoseconds(ns as f64) } else { duration(ns as f64 / 1e9) }
}

/// A part of the CPU time, or the estimate itself where that cannot be.
fn own_cost(p: &CallProfile) -> String {
    match p.own_cost {
        cost if cost.ns == 0 && (cost.open || cost.share.is_nan()) => "unknown".into(),
        cost if !cost.share.is_nan() => format!("{} % of CPU", cost_share(&cost)),
        cost => format!("about {}", nanoseconds(cost.ns as f64)),
    }
}

/// Both ends, `34 to 71`, where they are known and differ. An upper end of nearly all is none.
pub(crate) fn cost_share(cost: &OwnCostRow) -> String {
    const NEARLY_ALL: f64 = 0.95;
    let short = |share: f64| if share < 0.1 { percent(share) } else { format!("{:.0}", 100.0 * share) };
    let (least, most) = (cost.share, cost.share_most);
    if cost.open || most >= NEARLY_ALL {
        // There is no more than all, and no less than nearly all of it is known.
        format!("more than {}", percent(least.min(0.99)))
    } else if cost.rough {
        format!("about {}", short(least))
    } else if most.is_nan() || short(least) == short(most) {
        percent(least)
    } else {
        format!("{} to {}", short(least), short(most))
    }
}

pub(super) fn n_calls(n: u64) -> String {
    if n == 1 { "1 call".into() } else { format!("{} calls", thousands(n)) }
}

fn lost(p: &CallProfile) -> u64 {
    let l = &p.lost;
    [l.busy, l.depth, l.table].iter().fold(0, |sum: u64, n| sum.saturating_add(*n))
}

/// `1 function (MPI_Wait, jmp5)`, `12 functions (jmp5 10, uprobe 2)`.
fn functions(rows: &[FunctionRow]) -> String {
    if let [only] = rows {
        return format!("1 function ({}, {})", only.names.join(" = "), patch(only.patch));
    }
    let mut kinds: Vec<(&str, u64)> = Vec::new();
    for row in rows {
        match kinds.iter_mut().find(|(kind, _)| *kind == patch(row.patch)) {
            Some((_, n)) => *n += 1,
            None => kinds.push((patch(row.patch), 1)),
        }
    }
    let kinds: Vec<String> = kinds.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
    let detail = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    format!("{} functions{detail}", thousands(rows.len() as u64))
}

fn patch(kind: Option<PatchKind>) -> &'static str {
    match kind {
        Some(PatchKind::Jump) => "jmp5",
        Some(PatchKind::PaddedJump) => "pad",
        Some(PatchKind::ShortJump) => "short jump",
        Some(PatchKind::Trap) => "int3",
        Some(PatchKind::Uprobe) => "uprobe",
        None => "not patched",
    }
}

/// The columns that have numbers.
fn usual(listing: &Listing) -> Vec<CallColumn> {
    use CallColumn::*;
    let all = &listing.all;
    let (wall, cpu) = (is_timed(all), all.cpu_timed && all.cpu_ns > 0);
    let there = [
        (Exec, cpu),
        (WallShare, wall),
        (Listed, !wall && !cpu),
        (Total, wall),
        (Cpu, cpu && !wall),
        (Average, wall),
        (Min, wall),
        (Max, wall),
        (Percentiles, all.p50.is_some()),
        (Values, !all.values.is_empty()),
        (Usage, all.usage.is_some()),
        (Rate, !wall && !cpu),
        (Count, true),
    ];
    there.into_iter().filter(|(_, there)| *there).map(|(column, _)| column).collect()
}

/// Whether there is something to be said of times.
pub(crate) fn is_timed(f: &Figures) -> bool {
    f.wall_ns > 0 || f.wall_below_ns.is_some() || (f.timed && f.lacking)
}

/// Total wall time: `1.2 ms`, with `+` where calls go on, `<` and `>` where no more than a bound is known, `~` where that is rough.
pub(crate) fn total(f: &Figures) -> String {
    let open = if f.running.calls > 0 { "+" } else { "" };
    bounded(f.wall_known(), nanoseconds(f.wall_ns as f64) + open)
}

/// Total CPU time.
pub(crate) fn cpu_total(f: &Figures) -> String {
    bounded(f.cpu_known(), nanoseconds(f.cpu_ns as f64))
}

fn bounded(known: Known, text: String) -> String {
    match known {
        Known::AtMost(most) => format!("<{}", nanoseconds(most as f64)),
        known => known.beside(text),
    }
}

/// Wall time of a call.
pub(crate) fn per_call(f: &Figures) -> String {
    let rough = if f.rough { "~" } else { "" };
    f.average_ns.map_or_else(|| "-".into(), |a| format!("{rough}{}", average(a)))
}

/// Wall time without callees, or a part of all: not known where the total is not, at least so much where that is.
pub(crate) fn beside(f: &Figures, text: String) -> String {
    f.wall_known().beside(text)
}

struct View<'a> {
    profile: &'a CallProfile,
    listing: &'a Listing,
    columns: &'a [CallColumn],
}

impl View<'_> {
    fn table(&self) -> Table {
        let mut titles: Vec<String> = self.columns.iter().flat_map(|c| self.titles(*c)).collect();
        let mut columns = vec![Column::Number; titles.len()];
        columns.push(if self.listing.group == Group::Path { Column::Path } else { Column::Name });
        titles.push(name(self.listing.group).into());
        let mut table = Table::new(columns);
        table.row(Tone::Head, titles);
        for row in &self.listing.rows {
            let mut cells = self.cells(&row.figures);
            cells.push(row.label.clone() + if row.remarks.is_empty() { "" } else { " *" });
            table.row(tone_of(row.figures.share_exec.max(row.figures.share_wall)), cells);
        }
        table
    }

    fn titles(&self, column: CallColumn) -> Vec<String> {
        let one = |title: &str| vec![title.to_owned()];
        match column {
            CallColumn::Exec => one("% exec"),
            CallColumn::WallShare => one("% wall"),
            CallColumn::Listed => one("% listed"),
            CallColumn::Total => one("total"),
            CallColumn::SelfWall => one("self"),
            CallColumn::Cpu => one("cpu"),
            CallColumn::Off => one("off cpu"),
            CallColumn::Average => one("avg"),
            CallColumn::Min => one("min"),
            CallColumn::Max => one("max"),
            CallColumn::Percentiles => ["p50<=", "p90<=", "p99<="].map(Into::into).into(),
            CallColumn::Values => self.values().flat_map(|n| [n.clone(), format!("{n}/call")]).collect(),
            CallColumn::Usage => ["switches", "faults", "maj.faults"].map(Into::into).into(),
            CallColumn::Rate => one("calls/s"),
            CallColumn::Count => one("count"),
        }
    }

    fn values(&self) -> impl Iterator<Item = &String> {
        self.listing.all.values.keys()
    }

    fn cells(&self, f: &Figures) -> Vec<String> {
        self.columns.iter().flat_map(|c| self.cell(*c, f)).collect()
    }

    fn cell(&self, column: CallColumn, f: &Figures) -> Vec<String> {
        let timed = |text: String| vec![if f.timed { text } else { "-".into() }];
        let ns = |ns: Option<u64>| vec![ns.map_or_else(|| "-".into(), |n| nanoseconds(n as f64))];
        match column {
            CallColumn::Exec => timed(f.cpu_known().beside(percent(f.share_exec))),
            CallColumn::WallShare => timed(beside(f, percent(f.share_wall))),
            CallColumn::Listed => vec![percent(f.share_listed)],
            CallColumn::Total => timed(total(f)),
            CallColumn::SelfWall => timed(beside(f, nanoseconds(f.self_wall_ns as f64))),
            CallColumn::Cpu => timed(cpu_total(f)),
            CallColumn::Off => timed(f.off_known().beside(nanoseconds(f.off_cpu_ns as f64))),
            CallColumn::Average => vec![per_call(f)],
            CallColumn::Min => vec![match f.min_below_ns {
                Some(below) => format!("<{}", nanoseconds(below as f64)),
                None => ns(f.min_ns).concat(),
            }],
            CallColumn::Max => ns(f.max_ns),
            // The upper bound: that many calls took no longer.
            CallColumn::Percentiles => [f.p50, f.p90, f.p99].map(|b| ns(b.map(|b| b.high_ns)).concat()).into(),
            CallColumn::Values => self.values().flat_map(|n| value(f, n)).collect(),
            CallColumn::Usage => usage(f),
            CallColumn::Rate => {
                let seconds = self.profile.whole.wall_ns as f64 / 1e9;
                vec![if seconds > 0.0 { thousands((f.calls as f64 / seconds).round() as u64) } else { "-".into() }]
            }
            CallColumn::Count => vec![thousands(f.calls)],
        }
    }

    /// What the rows do not show, function totals, and what signs in the `table` mean.
    fn footer(&self, table: &str) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(rest) = &self.listing.rest {
            let what = counted(rest.rows, self.listing.group);
            let below = if rest.below > 0.0 { format!(" below {} %", percent(rest.below)) } else { String::new() };
            lines.push(format!("... {what}{below}, together {}", self.sum(&rest.figures)));
        }
        if self.listing.group != Group::Function {
            const MOST: usize = 10;
            let mut called: Vec<&FunctionRow> =
                self.profile.functions.iter().filter(|f| f.totals.is_active()).collect();
            let by = |f: &FunctionRow| self.listing.sort.of(&f.totals);
            called.sort_by(|a, b| by(b).total_cmp(&by(a)));
            for f in called.iter().take(MOST) {
                lines.push(format!(
                    "function total: {} {}",
                    told_apart(&self.profile.functions, f),
                    self.sum(&f.totals)
                ));
            }
            if called.len() > MOST {
                lines.push(format!("... and {} more functions", thousands((called.len() - MOST) as u64)));
            }
        }
        lines.extend(silent(&self.profile.functions, uncounted(&self.profile.lost)));
        lines.extend(probed_part(self.profile));
        if self.listing.all.running.calls > 0 {
            let n = thousands(self.listing.all.running.calls);
            lines.push(format!("+ includes calls that have not returned ({n}), with the time since their entry"));
        }
        let functions = self.profile.functions.iter().map(|f| &f.totals);
        if functions.chain(self.listing.rows.iter().map(|r| &r.figures)).any(|f| f.nested > 0 && f.average_ns.is_some())
        {
            lines.push(
                "of recursive functions totals hold the outermost calls, averages the calls of all levels".into(),
            );
        }
        // The middle of long paths is left out.
        if table.contains("[tail]") {
            lines.push(
                "[tail] left no frame: it ended in a jump to the function behind it, or to one that called that".into(),
            );
        }
        if has_counted(table) {
            lines.push("…12… stands for so many frames, where paths differ in their number only".into());
        }
        let shown = std::iter::once(&self.listing.all).chain(self.listing.rows.iter().map(|r| &r.figures));
        lines.extend(bounds(shown));
        let mut sentences: Vec<&String> = self.listing.rows.iter().flat_map(|r| &r.remarks).collect();
        let mut seen = std::collections::BTreeSet::new();
        sentences.retain(|s| seen.insert(*s));
        lines.extend(sentences.iter().map(|s| format!("* {s}")));
        lines
    }

    fn sum(&self, f: &Figures) -> String {
        let mut parts = Vec::new();
        // Where only calls are counted, no time is 0 ns.
        if f.timed && is_timed(&self.listing.all) {
            if self.listing.all.cpu_timed && self.listing.all.cpu_ns > 0 {
                parts.push(format!("{} % exec", f.cpu_known().beside(percent(f.share_exec))));
            }
            parts.push(format!("{} % wall", beside(f, percent(f.share_wall))));
            parts.push(total(f));
            parts.extend(f.average_ns.map(|_| format!("{} a call", per_call(f))));
        }
        parts.push(n_calls(f.calls));
        parts.join(", ")
    }
}

/// What `+` behind totals means.
pub(super) const RUNNING: &str = "+ includes calls that had not returned, with the time since their entry";

/// What signs beside totals mean, of those that are shown.
pub(super) fn bounds<'a>(shown: impl Iterator<Item = &'a Figures>) -> Vec<String> {
    let timed: Vec<&Figures> = shown.filter(|f| f.timed).collect();
    let shown = || timed.iter();
    let signs = [
        (
            shown().any(|f| f.wall_below_ns.is_some() || (f.cpu_timed && f.cpu_below_ns.is_some())),
            "< of totals: measuring cost as much as was measured, or nested calls may be counted twice; these times are known \
             no better (-m count counts without)",
        ),
        (
            shown().any(|f| (f.rough && f.wall_below_ns.is_none()) || (f.cpu_timed && f.cpu_known() == Known::Roughly)),
            "~ of times: may be off by more than 2 % (and 10 ns a call), by what measuring adds to such calls and to probed calls \
             inside them, or hides of them (some 50 ns each, by uprobes some us); of calls as short as that trust the numbers, not the times",
        ),
        (
            shown().any(|f| f.lacking),
            "> at least: calls without a time (left by an exception, or begun before their process was forked) are counted there",
        ),
        (
            shown().any(|f| f.cpu_timed && !f.lacking && f.lacks_cpu()),
            "> of CPU time: at least that of the probed calls inside; what calls that had not returned have used besides is not known",
        ),
    ];
    signs.into_iter().filter(|(is, _)| *is).map(|(_, text)| text.to_owned()).collect()
}

/// The name of a function, with its module where another one has the same name.
pub(super) fn told_apart(functions: &[FunctionRow], one: &FunctionRow) -> String {
    let name = &one.names[0];
    let base = one.module.rsplit('/').next().unwrap_or_default();
    match functions.iter().filter(|f| f.names.first() == Some(name)).count() {
        0 | 1 => name.clone(),
        _ if functions.iter().filter(|f| f.names[0] == *name && f.module == one.module).count() > 1 => {
            format!("{name} ({base}+{:#x})", one.offset)
        }
        _ => format!("{name} ({base})"),
    }
}

/// Calls that were seen and not counted: whose they were is not known.
pub(crate) fn uncounted(lost: &CallLost) -> u64 {
    lost.busy.saturating_add(lost.depth).saturating_add(lost.table)
}

/// Which functions were not probed all the time.
pub fn probed_part(profile: &CallProfile) -> impl Iterator<Item = String> {
    let partly = probed_partly(&profile.functions, profile.whole.wall_ns);
    probed_later(&profile.functions).into_iter().chain(partly)
}

/// `probed later, with numbers and shares of the time since only: mid (+3.2 s)`.
fn probed_later(functions: &[FunctionRow]) -> Option<String> {
    const MOST: usize = 10;
    let late = functions.iter().filter(|f| f.probed_ns.is_none()).filter_map(|f| Some((f, f.after_ns?)));
    let mut late: Vec<(&FunctionRow, u64)> = late.filter(|(f, _)| f.totals.is_active()).collect();
    late.sort_by_key(|(_, after)| *after);
    let name = |&(f, after): &(&FunctionRow, u64)| format!("{} ({})", told_apart(functions, f), since(after));
    let named: Vec<String> = late.iter().take(MOST).map(name).collect();
    let more = late.len() - named.len();
    let rest = if more > 0 { format!(", and {} more", thousands(more as u64)) } else { String::new() };
    (!named.is_empty())
        .then(|| format!("probed later, with numbers and shares of the time since only: {}{rest}", named.join(", ")))
}

/// `probed for a part of the 8.6 s, with numbers and shares of that part only: mid (6.2 s)`.
fn probed_partly(functions: &[FunctionRow], wall_ns: u64) -> Option<String> {
    const MOST: usize = 10;
    let partly = || functions.iter().filter(|f| f.totals.is_active()).filter_map(|f| Some((f, f.probed_ns?)));
    let name = |(f, ns)| format!("{} ({})", told_apart(functions, f), seconds(ns));
    let named: Vec<String> = partly().take(MOST).map(name).collect();
    let more = partly().count() - named.len();
    let rest = if more > 0 { format!(", and {} more", thousands(more as u64)) } else { String::new() };
    let whole = seconds(wall_ns);
    (!named.is_empty()).then(|| {
        format!(
            "probed for a part of the {whole}, with numbers and shares of that part only: {}{rest}",
            named.join(", ")
        )
    })
}

fn seconds(ns: u64) -> String {
    format!("{:.1} s", ns as f64 / 1e9)
}

/// What was changed while a recording was made; nothing where nothing was.
#[must_use]
pub fn call_steps(steps: &[&CallStep], recording: &str) -> Option<String> {
    let at = |ns: u64| format!("+{:.2} s", ns as f64 / 1e9);
    let line = |step: &&CallStep| format!("{:>11}  {}", at(step.after_ns), step.change);
    let lines: Vec<String> = steps.iter().map(line).collect();
    let head = format!("steps (whither calls --replay {recording} takes them again):");
    (!lines.is_empty()).then(|| format!("{head}\n{}\n", lines.join("\n")))
}

/// When a probe was added: `+3.2 s`.
#[must_use]
pub fn since(after_ns: u64) -> String {
    format!("+{}", seconds(after_ns))
}

/// `no call: PySequence_Contains, PyDict_Next`; where some were not counted these may be theirs.
pub(crate) fn silent(functions: &[FunctionRow], uncounted: u64) -> Option<String> {
    const MOST: usize = 10;
    let silent = || functions.iter().filter(|f| !f.totals.is_active() && f.state != PointState::Removed);
    let named: Vec<String> = silent().take(MOST).map(|f| told_apart(functions, f)).collect();
    let more = silent().count() - named.len();
    let rest = if more > 0 { format!(", and {} more", thousands(more as u64)) } else { String::new() };
    let what = if uncounted > 0 { "no call counted (some were not)" } else { "no call" };
    (!named.is_empty()).then(|| format!("{what}: {}{rest}", named.join(", ")))
}

fn name(group: Group) -> &'static str {
    match group {
        Group::Path => "call path",
        Group::Callsite => "call site",
        other => singular(other),
    }
}

fn singular(group: Group) -> &'static str {
    match group {
        Group::Path => "path",
        Group::Callsite => "call site",
        Group::Caller => "caller",
        Group::Function => "function",
        Group::Thread => "thread",
        Group::Process => "process",
    }
}

/// `14 more paths`.
fn counted(n: u64, group: Group) -> String {
    let ending = match (n, group) {
        (1, _) => "",
        (_, Group::Process) => "es",
        _ => "s",
    };
    format!("{} more {}{ending}", thousands(n), singular(group))
}

fn value(f: &Figures, name: &str) -> [String; 2] {
    // A sum that reached its limit stopped there.
    let stopped =
        |n: i64| [(i64::MAX, ">"), (i64::MIN, "<")].into_iter().find_map(|(end, sign)| (n == end).then_some(sign));
    let signed = |n: i64| {
        let sign = if n < 0 { "-" } else { "" };
        format!("{}{sign}{}", stopped(n).unwrap_or(""), thousands(n.unsigned_abs()))
    };
    let average = |v: &ValueRow| if stopped(v.sum).is_some() { "?".into() } else { format!("{:.1}", v.average) };
    f.values.get(name).map_or_else(|| ["-".into(), "-".into()], |v| [signed(v.sum), average(v)])
}

fn usage(f: &Figures) -> Vec<String> {
    let told = |n: u64| counted_of(f, n);
    f.usage.map_or_else(|| vec!["-".into(); 3], |u| [u.switches, u.faults_minor, u.faults_major].map(told).into())
}

/// Switches or faults: those of calls in progress are added when they return, those of calls without a time never.
fn counted_of(f: &Figures, n: u64) -> String {
    if f.lacks_usage() { format!(">{}", thousands(n)) } else { thousands(n) }
}

/// Functions named in a sentence that is true of many.
pub const FEW_NAMES: usize = 6;

/// `f is`, `f and g are`, `f, g and 12 more are`: with at most so many names.
#[must_use]
pub fn some_are(names: &[String], most: usize) -> String {
    format!("{} {}", several(names, most), if names.len() > 1 { "are" } else { "is" })
}

/// `f`, `f and g`, `f, g and 12 more`: with at most so many names.
fn several(names: &[String], most: usize) -> String {
    match (names, names.len().saturating_sub(most)) {
        ([], _) => "nothing".into(),
        ([only], _) => only.clone(),
        ([first @ .., last], 0) => format!("{} and {last}", first.join(", ")),
        (_, more) => format!("{} and {} more", names[..most].join(", "), thousands(more as u64)),
    }
}

/// Names of equal reasons, in the order of the first ones.
fn by_reason(each: impl Iterator<Item = (String, String)>) -> Vec<(String, Vec<String>)> {
    let mut places: FxHashMap<String, usize> = FxHashMap::default();
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for (name, reason) in each {
        let place = *places.entry(reason.clone()).or_insert(all.len());
        match all.get_mut(place) {
            Some((_, names)) => names.push(name),
            None => all.push((reason, vec![name])),
        }
    }
    all
}

/// What is lost, truncated, refused or otherwise to be known, one sentence each, with the remedy; of functions that
/// share a reason at most so many are named.
#[must_use]
pub fn calls_warnings(p: &CallProfile, names: usize) -> Vec<String> {
    let mut lines: Vec<String> = losses(p);
    lines.extend(unclear_paths(&p.facts(), p.lost.foreign > 0));
    lines.extend(spent_apart(p));
    lines.extend(unsure_lives(p));
    let refused = by_reason(p.refused.iter().map(|r| (r.name.clone(), r.reason.clone())));
    lines.extend(refused.iter().map(|(why, of)| format!("{} not measured: {why}", some_are(of, names))));
    let entry_only = p.functions.iter().filter_map(|f| Some((f.names[0].clone(), f.entry_only.clone()?)));
    let entry_only = by_reason(entry_only);
    lines.extend(entry_only.iter().map(|(why, of)| {
        format!("{} counted at their entries only, without times ({why})", some_are(of, names)).replacen(
            "is counted at their entries",
            "is counted at its entry",
            usize::from(of.len() == 1),
        )
    }));
    lines.extend(notes_together(&p.notes, names));
    lines
}

/// Costs that no calibration knows are told where they can be seen in times: the header has them in all. Without a cause that is known
/// they are the clocks' of calls behind a wait, mostly, which slows down nobody who waits.
fn spent_apart(p: &CallProfile) -> Option<String> {
    const LEAST: f64 = 0.01;
    const LEAST_WAITING: f64 = 0.1;
    let (ns, causes) = (p.own_cost.apart_ns, apart_causes(p));
    let share = ns as f64 / p.whole.cpu_ns.max(1) as f64;
    let least = if causes.is_empty() { LEAST_WAITING } else { LEAST };
    let causes = if causes.is_empty() { "on other stacks or behind waits".into() } else { causes.join(", ") };
    // Records of faults and switches have no room for what was spent before.
    let kept = p.functions.iter().any(|f| f.totals.usage.is_some());
    let off =
        if kept { "it is in the times of calls around them" } else { "times of calls around them are told without" };
    (share >= least).then(|| {
        format!(
            "{} of CPU time ({} %) went into recording calls {causes}; {off}",
            nanoseconds(ns as f64),
            percent(share)
        )
    })
}

/// What makes recording of calls slow, as far as it is known of a profile.
fn apart_causes(p: &CallProfile) -> Vec<&'static str> {
    /// So many are no few.
    const MANY: u64 = 100;
    let facts = p.facts();
    let causes = [
        (facts.recursive || facts.all.paths >= MANY, "by paths that keep changing"),
        (p.lost.jumped > 0, "left by jumps"),
        (p.functions.iter().any(|f| !f.totals.values.is_empty()), "with values"),
        (p.functions.iter().any(|f| f.totals.usage.is_some()), "with faults and switches"),
    ];
    causes.into_iter().filter(|(applies, _)| *applies).map(|(_, cause)| cause).collect()
}

/// What `% wall` is a part of, where nobody saw all threads.
fn unsure_lives(p: &CallProfile) -> Option<String> {
    let (ns, unsure) = (p.whole.thread_ns, p.whole.thread_unsure_ns);
    (unsure > ns / 50).then(|| {
        format!(
            "threads came and went between looks at them: that they lived {} together, what % wall is a part of, is an \
             estimate (exact where the kernel allows BPF, and programs are followed)",
            nanoseconds(ns as f64)
        )
    })
}

/// Notes that say the same of several functions, `f: why`, say it once.
fn notes_together(notes: &[String], names: usize) -> Vec<String> {
    let parts = |n: &String| n.split_once(": ").map_or((n.clone(), String::new()), |(f, why)| (f.into(), why.into()));
    let together = by_reason(notes.iter().map(parts));
    let sentences = together.into_iter().flat_map(|(why, of)| match (why.is_empty(), of.len()) {
        (true, _) => of,
        (false, 1) => vec![format!("{}: {why}", of[0])],
        (false, _) => vec![format!("{}: {why}", several(&of, names))],
    });
    sentences.map(|s| begins_with_count(&s)).collect()
}

/// `foreign`: calls came from code without unwind tables; a note says of these that they have no time, and that their paths may
/// be cut.
fn unclear_paths(facts: &PathFacts, foreign: bool) -> Vec<String> {
    let of = |count: PathCount| (count.paths > 0).then(|| (count.paths, thousands(count.calls)));
    let told = if foreign { facts.truncated_untimed } else { PathCount::default() };
    let cut = PathCount {
        paths: facts.truncated.paths - told.paths,
        calls: facts.truncated.calls.saturating_sub(told.calls),
    };
    let truncated = of(cut).map(|(n, calls)| {
        format!(
            "{} truncated ({calls} calls): outer callers are unknown (deeper than --depth, no unwind information there, or the \
             stack of a coroutine, which ends there)",
            paths_are(n)
        )
    });
    let folded = of(facts.folded).map(|(n, calls)| {
        format!("{} folded ({calls} calls, marked …): deeper recursion is counted there, its time is that of the calls around it, so \
             avg and min are without it, and self does not tell functions apart that call each other; raise --recursion to \
             keep levels apart",
            paths_are(n)
        )
    });
    truncated.into_iter().chain(folded).collect()
}

fn paths_are(n: u64) -> String {
    if n == 1 { "1 path is".into() } else { format!("{} paths are", thousands(n)) }
}

/// Time of a call. What measuring costs is taken off, and that is known to a few nanoseconds only.
fn average(ns: f64) -> String {
    const KNOWN_TO: f64 = 5.0;
    if ns < KNOWN_TO { format!("<{}", nanoseconds(KNOWN_TO)) } else { nanoseconds(ns) }
}
