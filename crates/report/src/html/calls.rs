//! One page on a call-path profile: what was measured and how well, tables of paths and functions, the
//! call-path tree and its flame graph, calls in progress, and the comparison with an earlier profile.

use super::calls_tree;
use super::escape::{Text, put};
use super::number::{fine_percent, fraction, grouped, percent};
use super::summary::{Tile, Tone, put_remarks, put_tiles};
use super::{banner, flame, foot, head};
use crate::text::{
    beside, calls_warnings, cost_share, cpu_total, duration, is_timed, nanoseconds, per_call, probed_part, silent,
    total, uncounted, whole_time,
};
use whither_calls::{
    CallDifference, CallProfile, DifferenceRow, Figures, Group, Listing, Mark, Metric, OwnCostRow, Rest, Sort,
    TreeNode, Unit,
};
use whither_cycles::results::FlameNode;

/// Everything a page of call paths shows.
#[derive(Clone, Debug)]
pub struct CallsPage<'a> {
    /// Heading.
    pub title: String,
    /// The profile.
    pub profile: &'a CallProfile,
    /// Tables, in the order shown; the first one should be by path.
    pub listings: Vec<Listing>,
    /// The call-path tree by metric; the first one is shown first.
    pub trees: Vec<(Metric, TreeNode)>,
    /// Comparison with an earlier profile.
    pub difference: Option<CallDifference>,
}

/// Rows open at first sight; the rest is one click away.
const FIRST_ROWS: usize = 25;

/// The page as one string of UTF-8 HTML.
#[must_use]
pub fn calls_page(data: &CallsPage<'_>) -> String {
    let mut out = String::with_capacity(128 * 1024);
    head(&mut out, &data.title);
    banner(&mut out, &data.title, &contents(data));
    out.push_str("<main>");
    summary(&mut out, data);
    if let Some(d) = &data.difference {
        difference(&mut out, d);
    }
    for (i, listing) in data.listings.iter().enumerate() {
        section(&mut out, i, listing);
    }
    let flames: Vec<(&str, &str, FlameNode)> =
        data.trees.iter().map(|(metric, root)| (metric.name(), unit(metric), flame_node(root))).collect();
    flame::calls_section(&mut out, &flames);
    if let Some((metric, root)) = data.trees.iter().find(|(_, root)| root.total > 0) {
        calls_tree::section(&mut out, metric, root);
    }
    in_progress(&mut out, data);
    out.push_str("</main>");
    foot(
        &mut out,
        "Times are exact but for the cost of measuring, which is taken off; % exec is CPU time of the process tree, % wall of all thread lifetimes.",
    );
    out
}

fn contents(data: &CallsPage<'_>) -> Vec<(String, String)> {
    let mut list = vec![("summary".to_owned(), "Summary".to_owned())];
    if data.difference.is_some() {
        list.push(("diff".into(), "Difference".into()));
    }
    list.extend(data.listings.iter().enumerate().map(|(i, l)| (format!("list-{i}"), heading(l))));
    if data.trees.iter().any(|(_, root)| root.total > 0) {
        list.extend([("flame".into(), "Flame graph".into()), ("tree".into(), "Call tree".into())]);
    }
    if !data.profile.in_progress.is_empty() {
        list.push(("progress".into(), "In progress".into()));
    }
    list
}

fn heading(l: &Listing) -> String {
    let what = match l.group {
        Group::Path => "call path",
        Group::Callsite => "call site",
        Group::Caller => "caller",
        Group::Function => "function",
        Group::Thread => "thread",
        Group::Process => "process",
    };
    format!("By {what}")
}

fn unit(metric: &Metric) -> &'static str {
    if metric.unit() == Unit::Time { "ns" } else { "count" }
}

/// Chains are cut at some hundred frames, which a stack holds.
fn flame_node(node: &TreeNode) -> FlameNode {
    FlameNode {
        name: node.name.clone(),
        image: node.module.clone(),
        kernel: false,
        inlined: node.inlined,
        own: node.own,
        total: node.total,
        children: node.children.iter().map(flame_node).collect(),
    }
}

fn summary(out: &mut String, data: &CallsPage<'_>) {
    let p = data.profile;
    put!(
        out,
        "<section id=\"summary\" aria-label=\"Summary\"><p class=\"scope\"><code>{}</code></p>",
        Text(&p.target.command)
    );
    put_tiles(out, &tiles(p));
    let mut list: Vec<(&str, String)> = p.marks.iter().map(|m| ("note", mark(p, m))).collect();
    list.extend(silent(&p.functions, uncounted(&p.lost)).map(|s| ("note", s)));
    list.extend(probed_part(p).map(|s| ("note", s)));
    list.extend(calls_warnings(p, usize::MAX).into_iter().map(|w| ("warn", w)));
    put_remarks(out, &list);
    out.push_str("</section>");
}

fn mark(p: &CallProfile, mark: &Mark) -> String {
    let (Mark::SlowSite { func, .. } | Mark::OneCaller { func, .. }) = mark;
    let function = p.functions.iter().find(|f| f.id == *func).and_then(|f| f.names.first());
    format!("{}: {}", function.map_or("?", String::as_str), mark.sentence())
}

fn tiles(p: &CallProfile) -> Vec<Tile> {
    let seconds = whole_time;
    let not_counted = p.lost.busy.saturating_add(p.lost.depth).saturating_add(p.lost.table);
    let all = not_counted.saturating_add(p.whole.calls).max(1);
    let names: Vec<&str> = p.functions.iter().take(3).filter_map(|f| f.names.first()).map(String::as_str).collect();
    let more = if p.functions.len() > 3 { ", ..." } else { "" };
    let tile = |label, figure, detail, tone| Tile { label, figure, detail, tone };
    let plural = |n: u32, word: &str| format!("{} {word}{}", grouped(u64::from(n)), if n == 1 { "" } else { "s" });
    // None are left of a program that has ended: those that were there.
    let lived = p.whole.threads.saturating_add(p.whole.threads_ended);
    let threads = if lived > 0 { plural(lived, "thread") + ", " } else { String::new() };
    vec![
        tile("Calls", grouped(p.whole.calls), format!("{} paths", grouped(p.facts().all.paths)), Tone::Plain),
        tile("Functions", grouped(p.functions.len() as u64), names.join(", ") + more, Tone::Plain),
        tile(
            "Wall time",
            seconds(p.whole.wall_ns),
            format!("{}{} of thread lifetimes", threads, seconds(p.whole.thread_ns)),
            Tone::Plain,
        ),
        tile("CPU time", seconds(p.whole.cpu_ns), format!("of {}", processes(p.whole.processes)), Tone::Plain),
        tile(
            "Lost",
            grouped(not_counted),
            format!("{}\u{2009}% of calls", fine_percent(not_counted as f64 / all as f64)),
            Tone::by(not_counted as f64 / all as f64, 1e-6, 1e-3),
        ),
        tile(
            "Own cost",
            match p.own_cost {
                cost if cost.ns == 0 && (cost.open || cost.share.is_nan()) => "unknown".into(),
                cost if !cost.share.is_nan() => format!("{}\u{2009}%", cost_share(&cost)),
                cost => format!("about {}", duration(cost.ns as f64 / 1e9)),
            },
            taken_off(&p.own_cost),
            if p.own_cost.share.is_nan() { Tone::Plain } else { Tone::by(p.own_cost.share, 0.02, 0.1) },
        ),
    ]
}

fn taken_off(cost: &OwnCostRow) -> String {
    let of_uprobes = duration(cost.kernel_ns as f64 / 1e9);
    if cost.apart_ns > cost.ns / 2 {
        return format!(
            "of CPU time; {} of calls that take longer to record than most",
            nanoseconds(cost.apart_ns as f64)
        );
    }
    match (cost.ns > cost.kernel_ns, cost.kernel_ns > 0) {
        (true, false) => format!("of CPU time; {:.1} ns a call, taken off", cost.ns_per_call),
        (true, true) => {
            format!("of CPU time; {:.1} ns a call and {of_uprobes} of uprobes, taken off", cost.ns_per_call)
        }
        (false, true) => format!("of CPU time; {of_uprobes} of uprobes, taken off"),
        (false, false) => "nothing is taken off".into(),
    }
}

fn processes(n: u32) -> String {
    if n == 1 { "1 process".into() } else { format!("{} processes", grouped(u64::from(n))) }
}

/// A table with its heading and filter.
fn section(out: &mut String, index: usize, l: &Listing) {
    let (id, title) = (format!("list-{index}"), heading(l));
    put!(
        out,
        "<section id=\"{id}\" aria-labelledby=\"{id}-h\"><div class=\"bar-line\"><h2 id=\"{id}-h\">{title}</h2>\
         <label class=\"find\" hidden>Filter <input type=\"search\" data-filter=\"{id}-t\" placeholder=\"words, or /regex/\" \
         autocomplete=\"off\" spellcheck=\"false\"></label>\
         <output class=\"count\" for=\"{id}-t\" data-count=\"{id}-t\" aria-live=\"polite\"></output></div>"
    );
    if l.rows.is_empty() && l.rest.is_none() {
        out.push_str("<p class=\"empty\">No call was seen.</p></section>");
        return;
    }
    put!(
        out,
        "<div class=\"scroll\"><table class=\"grid sortable\" id=\"{id}-t\" data-first=\"{FIRST_ROWS}\"><caption class=\"sr\">{title}</caption><thead><tr>"
    );
    let columns = columns(&l.all);
    let ordering = ordering(l, &columns);
    for (i, column) in columns.iter().enumerate() {
        let wide = if i == 0 { " w-share" } else { "" };
        let sorted = if ordering == Some(i) { " aria-sort=\"descending\"" } else { "" };
        let narrow = if column.optional { " opt" } else { "" };
        put!(out, "<th scope=\"col\" class=\"n{narrow}{wide}\"{sorted}>{}</th>", Text(&column.title));
    }
    put!(out, "<th scope=\"col\" class=\"t\">{}</th></tr></thead><tbody>", title.trim_start_matches("By "));
    let most = l.rows.iter().map(|r| main_share(&r.figures)).fold(0.0, f64::max);
    for row in &l.rows {
        put!(out, "<tr>");
        cells(out, &columns, &row.figures, most);
        label(out, l.group, &row.label, &row.remarks);
        out.push_str("</tr>");
    }
    out.push_str("</tbody>");
    if let Some(rest) = &l.rest {
        rest_row(out, &columns, rest, most);
    }
    out.push_str("</table></div></section>");
}

fn rest_row(out: &mut String, columns: &[Column], rest: &Rest, most: f64) {
    out.push_str("<tfoot><tr class=\"rest\">");
    cells(out, columns, &rest.figures, most);
    put!(out, "<td class=\"t\">{} more rows, added up</td></tr></tfoot>", grouped(rest.rows));
}

/// Longer paths show their innermost frames, the others when asked.
const FRAMES: usize = 10;
/// Fewer are not worth hiding.
const HIDDEN: usize = 3;

fn put_frames(out: &mut String, frames: &[&str]) {
    for frame in frames {
        put!(out, "<span class=\"f\">{}</span> ", Text(frame));
    }
}

/// Frames apart, so that a path wraps between them.
fn label(out: &mut String, group: Group, text: &str, remarks: &[String]) {
    if group == Group::Path {
        out.push_str("<td class=\"t path\">");
        let frames: Vec<&str> = text.split(" > ").collect();
        let outer = Some(frames.len().saturating_sub(FRAMES)).filter(|n| *n >= HIDDEN).unwrap_or(0);
        if outer > 0 {
            put!(out, "<details><summary>{} outer frames</summary>", grouped(outer as u64));
            put_frames(out, &frames[..outer]);
            out.push_str("</details>");
        }
        put_frames(out, &frames[outer..]);
    } else {
        put!(out, "<td class=\"t\" title=\"{0}\">{0}", Text(text));
    }
    for remark in remarks {
        put!(out, " <abbr class=\"mark\" title=\"{}\">*</abbr>", Text(remark));
    }
    out.push_str("</td>");
}

/// Sort value and text of a figure.
type Shown = Box<dyn Fn(&Figures) -> (f64, String)>;

struct Column {
    title: String,
    optional: bool,
    /// Sort value and text.
    figure: Shown,
}

fn main_share(f: &Figures) -> f64 {
    if f.timed { f.share_wall } else { f.share_listed }
}

/// The columns that have numbers.
fn columns(all: &Figures) -> Vec<Column> {
    let (wall, cpu) = (is_timed(all), all.cpu_timed && all.cpu_ns > 0);
    let column = |title: &str, optional, figure: fn(&Figures) -> (f64, String)| Column {
        title: title.into(),
        optional,
        figure: Box::new(figure),
    };
    let optional_ns = |ns: Option<f64>| ns.map_or((-1.0, "-".to_owned()), |n| (n, nanoseconds(n)));
    let mut list = vec![if wall {
        column("wall\u{2009}%", false, |f| (fraction(f.share_wall), beside(f, percent(f.share_wall))))
    } else {
        column("listed\u{2009}%", false, |f| (fraction(f.share_listed), percent(f.share_listed)))
    }];
    if cpu {
        list.push(column("exec\u{2009}%", false, |f| {
            (fraction(f.share_exec), f.cpu_known().beside(percent(f.share_exec)))
        }));
    }
    if wall {
        list.push(column("total", false, |f| (f.wall_ns as f64, total(f))));
        list.push(column("self", true, |f| (f.self_wall_ns as f64, beside(f, nanoseconds(f.self_wall_ns as f64)))));
    }
    if cpu {
        list.push(column("cpu", true, |f| (f.cpu_ns as f64, cpu_total(f))));
    }
    if wall && cpu {
        list.push(column("off cpu", true, |f| {
            (f.off_cpu_ns as f64, f.off_known().beside(nanoseconds(f.off_cpu_ns as f64)))
        }));
    }
    let optional = |title: &str, is_optional, figure: fn(&Figures) -> Option<f64>| Column {
        title: title.into(),
        optional: is_optional,
        figure: Box::new(move |f| optional_ns(figure(f))),
    };
    if wall {
        let shown = |f: &Figures| (f.average_ns.unwrap_or(-1.0), per_call(f));
        list.push(column("avg", false, shown));
        list.push(column("min", true, |f| match (f.min_ns, f.min_below_ns) {
            (Some(ns), _) => (ns as f64, nanoseconds(ns as f64)),
            (None, Some(below)) => (0.0, format!("<{}", nanoseconds(below as f64))),
            (None, None) => (-1.0, "-".into()),
        }));
        list.push(optional("max", true, |f| f.max_ns.map(|n| n as f64)));
    }
    if all.p50.is_some() {
        list.push(optional("p50 \u{2264}", true, |f| f.p50.map(|b| b.high_ns as f64)));
        list.push(optional("p90 \u{2264}", true, |f| f.p90.map(|b| b.high_ns as f64)));
        list.push(optional("p99 \u{2264}", true, |f| f.p99.map(|b| b.high_ns as f64)));
    }
    list.extend(all.values.keys().map(|name| value_column(name)));
    if all.usage.is_some() {
        list.push(column("switches", true, |f| f.usage.map_or((-1.0, "-".into()), |u| counted(f, u.switches))));
        list.push(column("faults", true, |f| {
            f.usage.map_or((-1.0, "-".into()), |u| counted(f, u.faults_minor.saturating_add(u.faults_major)))
        }));
    }
    list.push(column("calls", false, |f| count(f.calls)));
    list
}

/// The column that rows are ordered by: the one asked for, where there is one.
fn ordering(l: &Listing, columns: &[Column]) -> Option<usize> {
    let title = match &l.sort {
        Sort::Wall => "total".into(),
        Sort::Off => "off cpu".into(),
        Sort::Count => "calls".into(),
        // It has no column.
        Sort::SelfCpu => return None,
        sort => sort.to_string(),
    };
    let is_sorted = |c: &Column| l.rows.is_sorted_by_key(|r| -(c.figure)(&r.figures).0);
    columns.iter().position(|c| c.title == title).or_else(|| columns.iter().position(is_sorted))
}

/// Switches or faults: those of calls in progress are added when they return.
fn counted(f: &Figures, n: u64) -> (f64, String) {
    let text = grouped(n);
    (n as f64, if f.lacks_usage() { format!(">{text}") } else { text })
}

fn count(n: u64) -> (f64, String) {
    (n as f64, grouped(n))
}

fn value_column(name: &str) -> Column {
    let wanted = name.to_owned();
    let figure = move |f: &Figures| match f.values.get(&wanted) {
        Some(v) => (v.sum as f64, format!("{}{}", if v.sum < 0 { "-" } else { "" }, grouped(v.sum.unsigned_abs()))),
        None => (0.0, "-".into()),
    };
    Column { title: name.to_owned(), optional: true, figure: Box::new(figure) }
}

fn cells(out: &mut String, columns: &[Column], f: &Figures, most: f64) {
    for (i, column) in columns.iter().enumerate() {
        let (value, text) = (column.figure)(f);
        let narrow = if column.optional { " opt" } else { "" };
        if i == 0 {
            let width = if most > 0.0 { fraction(value / most) * 100.0 } else { 0.0 };
            put!(out, "<td class=\"n bar\" data-v=\"{value:.9}\" style=\"--w:{width:.2}%\">{}</td>", Text(&text));
        } else {
            put!(out, "<td class=\"n{narrow}\" data-v=\"{value}\">{}</td>", Text(&text));
        }
    }
}

fn in_progress(out: &mut String, data: &CallsPage<'_>) {
    const MOST: usize = 100;
    let p = data.profile;
    if p.in_progress.is_empty() {
        return;
    }
    out.push_str(
        "<section id=\"progress\" aria-labelledby=\"progress-h\"><div class=\"bar-line\"><h2 id=\"progress-h\">Calls in progress</h2></div>\
         <div class=\"scroll\"><table class=\"grid sortable\" id=\"progress-t\"><caption class=\"sr\">Calls in progress</caption><thead><tr>\
         <th scope=\"col\" class=\"n\">since</th><th scope=\"col\" class=\"n\">process</th><th scope=\"col\" class=\"n\">thread</th>\
         <th scope=\"col\" class=\"t\">function</th></tr></thead><tbody>",
    );
    for call in p.in_progress.iter().take(MOST) {
        let path = p.paths.iter().find(|row| row.id == call.path);
        let function = path.and_then(|row| p.functions.iter().find(|f| f.id == row.func)).and_then(|f| f.names.first());
        put!(
            out,
            "<tr><td class=\"n\" data-v=\"{}\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"t\">{}</td></tr>",
            call.elapsed_ns,
            nanoseconds(call.elapsed_ns as f64),
            call.pid,
            call.tid,
            Text(function.map_or("?", String::as_str))
        );
    }
    out.push_str("</tbody></table></div></section>");
}

/// Before and after: paths that changed most.
fn difference(out: &mut String, d: &CallDifference) {
    out.push_str(
        "<section id=\"diff\" aria-labelledby=\"diff-h\"><div class=\"bar-line\"><h2 id=\"diff-h\">Difference</h2>\
         <label class=\"find\" hidden>Filter <input type=\"search\" data-filter=\"cdiff-t\" placeholder=\"words, or /regex/\" \
         autocomplete=\"off\" spellcheck=\"false\"></label><output class=\"count\" for=\"cdiff-t\" data-count=\"cdiff-t\" aria-live=\"polite\"></output></div>",
    );
    if d.rebuilt {
        out.push_str(
            "<p class=\"hint\">The program was rebuilt: call sites are matched by their order, not by address.</p>",
        );
    }
    put!(
        out,
        "<div class=\"scroll\"><table class=\"grid sortable\" id=\"cdiff-t\" data-first=\"{FIRST_ROWS}\"><caption class=\"sr\">Paths before and after</caption><thead><tr>"
    );
    for title in ["total before", "after", "change", "avg before", "after", "calls before", "after"] {
        put!(out, "<th scope=\"col\" class=\"n\">{title}</th>");
    }
    out.push_str("<th scope=\"col\" class=\"t\">call path</th></tr></thead><tbody>");
    for row in &d.paths {
        difference_row(out, row);
    }
    out.push_str("</tbody></table></div></section>");
}

fn difference_row(out: &mut String, row: &DifferenceRow) {
    let sides = [&row.before, &row.after];
    let wall = sides.map(|f| f.as_ref().map_or(0.0, |f| f.wall_ns as f64));
    let class = if wall[1] > wall[0] * 1.1 {
        "slower"
    } else if wall[1] < wall[0] * 0.9 {
        "faster"
    } else {
        "same"
    };
    put!(out, "<tr class=\"{class}\">");
    let cell = |out: &mut String, value: Option<f64>, text: Option<String>| {
        let text = text.unwrap_or_else(|| "-".into());
        put!(out, "<td class=\"n\" data-v=\"{}\">{}</td>", value.unwrap_or(-1.0), Text(&text));
    };
    for f in sides.map(Option::as_ref) {
        cell(out, f.map(|f| f.wall_ns as f64), f.map(total));
    }
    let change = wall[1] - wall[0];
    let text = match change {
        0.0 => "=".to_owned(),
        c => format!("{}{}", if c < 0.0 { "-" } else { "+" }, nanoseconds(c.abs())),
    };
    put!(out, "<td class=\"n\" data-v=\"{change}\"><span class=\"verdict\">{text}</span></td>");
    for f in sides.map(Option::as_ref) {
        cell(out, f.and_then(|f| f.average_ns), f.map(per_call));
    }
    for f in sides.map(Option::as_ref) {
        cell(out, f.map(|f| f.calls as f64), f.map(|f| grouped(f.calls)));
    }
    label(out, Group::Path, &row.label, &[]);
    out.push_str("</tr>");
}
