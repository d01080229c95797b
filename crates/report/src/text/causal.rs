//! A causal profile as text: the header, the ranking with its verdicts, latencies, waits, what the curves
//! look like, and the sentences on disturbance and losses that go to standard error.

use super::number::{duration, nanoseconds, percent, thousands};
use super::table::{Column, Table, Tone};
use super::{Layout, tone_of};
use whither_causal::{CausalAnswer, Gain, LatencyRow, TargetRow, Verdict};
use whither_store::causal::{DropReason, Executor, LoadKind, PointKind, Unit};

/// How much is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CausalView {
    /// Targets without enough data are listed too, not only counted.
    pub all: bool,
    /// The figures of each curve under its target.
    pub curves: bool,
}

/// The ranking under its header.
#[must_use]
pub fn causal(answer: &CausalAnswer, view: CausalView, layout: &Layout) -> String {
    let mut out = layout.style.paint(Tone::Head, &causal_header(answer)) + "\n";
    for line in points(answer) {
        out.push_str(&line);
        out.push('\n');
    }
    if let Some(elsewhere) = a_good_part_elsewhere(answer) {
        out.push_str(&layout.style.paint(Tone::Warm, elsewhere));
        out.push('\n');
    }
    let (said, unsaid): (Vec<_>, Vec<_>) = answer.targets.iter().partition(|t| view.all || is_told(t, &answer.targets));
    if said.is_empty() {
        out.push_str(if may_come(answer) {
            "nothing can be said of any target yet\n"
        } else {
            "nothing can be said of any target: more time would not help\n"
        });
    } else {
        out.push_str(&ranking(answer, &said, layout));
    }
    out.push_str(&other_points(answer, view, layout));
    if view.curves {
        for target in said.iter().filter(|t| !t.curve.is_empty()) {
            out.push_str(&curve(target, layout));
        }
        out.push('\n');
    }
    for line in footer(answer, &unsaid) {
        out.push_str(&layout.style.paint(Tone::Faint, &line));
        out.push('\n');
    }
    out
}

/// What lies outside of what is measured, where that is much.
pub(crate) fn a_good_part_elsewhere(a: &CausalAnswer) -> Option<&str> {
    a.elsewhere.as_ref().map(|e| e.reason.as_str()).filter(|reason| !reason.is_empty())
}

/// Whether more time may bring an answer: of code that does next to nothing none comes.
fn may_come(a: &CausalAnswer) -> bool {
    const LITTLE: f64 = 0.02;
    let comes = |v: &Verdict| matches!(v, Verdict::NotEnoughData { more_seconds: Some(_), .. });
    a.targets.is_empty() || a.targets.iter().any(|t| comes(&t.verdict) || t.share >= LITTLE)
}

/// Smaller targets are listed for what is known of them, not for their size.
const LARGE: f64 = 0.05;
/// So many targets of which nothing can be said for one and the same reason are listed all the same, the largest ones.
const FEW: usize = 3;

/// Whether a target is listed without being asked for: for its verdict, or since it is a large one; of those that lack data one of
/// which a good deal is known already, or which is larger than another one that is listed.
fn is_told(t: &TargetRow, all: &[TargetRow]) -> bool {
    match &t.verdict {
        Verdict::NotEnoughData { .. } => {
            let smaller = |other: &TargetRow| other.share < t.share && is_told_for_itself(other, all);
            t.share >= LARGE && (is_known(t) || all.iter().any(smaller))
        }
        _ => is_told_for_itself(t, all),
    }
}

fn is_known(t: &TargetRow) -> bool {
    const NARROW: f64 = 0.3;
    t.gain.is_some_and(|g| g.high - g.low <= NARROW)
}

/// The same, whatever else is listed.
fn is_told_for_itself(t: &TargetRow, all: &[TargetRow]) -> bool {
    match &t.verdict {
        Verdict::NotEnoughData { .. } => is_known(t) && t.share >= LARGE,
        Verdict::CannotSay { why } => {
            let larger = |o: &&TargetRow| cannot_say_why(o) == Some(why) && (o.share, t.id) > (t.share, o.id);
            t.share >= LARGE || all.iter().filter(larger).count() < FEW
        }
        _ => true,
    }
}

fn cannot_say_why(t: &TargetRow) -> Option<&String> {
    match &t.verdict {
        Verdict::CannotSay { why } => Some(why),
        _ => None,
    }
}

/// `whither causal: kvd (pid 4711, 18 threads), 60.0 s, 291 windows kept, ...`.
#[must_use]
pub fn causal_header(a: &CausalAnswer) -> String {
    let m = &a.meta;
    let mut who = vec![if m.pid > 0 { format!("pid {}", m.pid) } else { "imported".to_owned() }];
    if m.processes > 1 {
        who.push(format!("{} processes", thousands(u64::from(m.processes))));
    }
    if m.threads > 0 {
        who.push(plural(u64::from(m.threads), "thread"));
    }
    if m.runs > 1 {
        who.push(format!("{} runs", thousands(u64::from(m.runs))));
    }
    let mut parts = vec![
        format!("{} ({})", program(&m.command), who.join(", ")),
        duration(m.duration_ns as f64 / 1e9),
        format!("{} kept", plural(u64::from(a.windows.kept), "window")),
    ];
    if a.windows.dropped > 0 {
        let mut why: Vec<&str> = a.dropped.iter().map(|d| drop_reason(d.reason)).collect();
        // Those that nobody disturbed, and that had less time to settle than later ones.
        let told = a.dropped.iter().map(|d| d.n).sum::<u32>() + a.windows.outgrown;
        if told < a.windows.dropped {
            why.push("too little time to settle");
        }
        if a.windows.outgrown > 0 {
            why.push("shorter than pauses of the program");
        }
        parts.push(format!("{} dropped ({})", thousands(u64::from(a.windows.dropped)), why.join(", ")));
    }
    parts.push(format!("executor {}", executor(a)));
    parts.push(match &a.overhead {
        Some(o) => format!("own cost {} %", percent(o.own_cost())),
        None => "own cost not known".to_owned(),
    });
    format!("whither causal: {}", parts.join(", "))
}

/// Sentences on disturbances and losses.
#[must_use]
pub fn causal_warnings(a: &CausalAnswer) -> Vec<String> {
    let lost = a.lost.observations;
    let lost = (lost > 0).then(|| format!("{} lost in windows: full tables", plural(lost, "observation")));
    a.warnings.iter().cloned().chain(lost).chain(a.notes.iter().cloned()).collect()
}

/// Other names of the same code: which of them is meant is not known.
fn also(aliases: &[String]) -> String {
    const SHOWN: usize = 2;
    let shown = aliases.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match aliases.len().saturating_sub(SHOWN) {
        0 => format!(" (also {shown})"),
        more => format!(" (also {shown} and {more} more)"),
    }
}

/// Name of an off-CPU class, a line, or a function with its place.
#[must_use]
pub fn causal_target(t: &TargetRow) -> String {
    let place = causal_place(&t.file, t.line);
    let mut name = match t.unit {
        Unit::Line if !place.is_empty() => return with_path(format!("{place}  {}", t.name), &t.path),
        Unit::Inclusive => format!("{} and callees", t.name),
        Unit::OffCpu => format!("{} (off CPU)", t.name),
        Unit::Line | Unit::Function | Unit::Path => t.name.clone(),
    };
    if t.unit != Unit::OffCpu && !t.aliases.is_empty() {
        name.push_str(&also(&t.aliases));
    }
    if !place.is_empty() {
        name = format!("{name}  {place}");
    }
    with_path(name, &t.path)
}

/// `table.c:217`, the file without its directories; empty when not known.
pub(crate) fn causal_place(file: &str, line: u32) -> String {
    let base = file.rsplit('/').next().unwrap_or_default();
    match (base.is_empty(), line) {
        (true, _) => String::new(),
        (false, 0) => base.to_owned(),
        (false, line) => format!("{base}:{line}"),
    }
}

/// Short words for a dropped window.
pub(crate) fn drop_reason(reason: DropReason) -> &'static str {
    match reason {
        DropReason::ForeignLoad => "foreign load",
        DropReason::Steal => "CPUs taken by the hypervisor",
        DropReason::NoVisits => "fewer than two visits",
        DropReason::Ended => "program ended",
        DropReason::Stopped => "program stopped",
        DropReason::Lost => "observations lost",
        DropReason::NotDrained => "delays not paid in time",
        DropReason::Spun => "delays still spun",
        DropReason::Started => "programs just started",
        DropReason::Ticks => "ticks too rare",
    }
}

/// In place of a gain: none can be had, or it is not known.
pub(crate) fn no_gain(t: &TargetRow) -> &'static str {
    if t.verdict == Verdict::RateFixed { "-" } else { "?" }
}

/// `+12.3 ±2.0 %`.
pub(crate) fn effect(g: &Gain) -> String {
    format!("{} \u{b1}{} %", signed(g.y), points_of((g.high - g.low) / 2.0))
}

/// A share with its sign in percent, one decimal.
pub(crate) fn signed(y: f64) -> String {
    if y.is_nan() {
        return "?".into();
    }
    let text = format!("{:+.1}", y * 100.0);
    if text == "-0.0" { "+0.0".into() } else { text }
}

fn points_of(y: f64) -> String {
    if y.is_nan() { "?".into() } else { format!("{:.1}", y * 100.0) }
}

/// How delays were made. Why, where the session changed it by itself; what was to be changed and could not is in the notes.
pub(crate) fn executor(a: &CausalAnswer) -> String {
    if a.executor_reason.starts_with("not known") {
        return "not known".to_owned();
    }
    match a.executor {
        Executor::Spin => "spin".to_owned(),
        Executor::Sleep if a.executor_reason.starts_with("chosen") => format!("sleep ({})", a.executor_reason),
        Executor::Sleep => "sleep".to_owned(),
        Executor::Agent => "agent (without BPF)".to_owned(),
    }
}

fn with_path(name: String, path: &[String]) -> String {
    if path.is_empty() { name } else { format!("{name} < {}", path.join(" < ")) }
}

fn program(command: &str) -> &str {
    let first = command.split_whitespace().next().unwrap_or("a program");
    first.rsplit('/').next().unwrap_or(first)
}

fn plural(n: u64, what: &str) -> String {
    format!("{} {what}{}", thousands(n), if n == 1 { "" } else { "s" })
}

fn points(a: &CausalAnswer) -> Vec<String> {
    let ends: Vec<u32> = a.points.iter().filter_map(|p| p.end).collect();
    let load = match a.load {
        LoadKind::Closed => "closed loop",
        LoadKind::Open => "open loop",
        LoadKind::Unknown if hangs_on_load(a) => "closed or open loop: not known",
        LoadKind::Unknown => "closed loop assumed",
    };
    let others = a.points.iter().enumerate().skip(1).any(|(i, p)| p.end.is_none() && !ends.contains(&(i as u32)));
    let line = |(i, p): (usize, &whither_causal::PointRow)| {
        let what = match (p.kind, p.end) {
            (PointKind::End, _) => {
                return format!("measure: the run time of the command ({})", plural(p.visits, "run"));
            }
            (_, Some(end)) => {
                format!("latency: {} to {}", p.name, a.points.get(end as usize).map_or("?", |e| e.name.as_str()))
            }
            _ => format!("point: {}", p.name),
        };
        let sampled = if p.kind == PointKind::Sampled { " samples" } else { "" };
        let several = if others { ": the verdicts are for this one" } else { "" };
        let first = if i == 0 { format!(", {load}{several}") } else { String::new() };
        format!("{what}, {}{sampled}/s{first}", rate(p.per_second))
    };
    let indexed = a.points.iter().enumerate();
    indexed.filter(|(i, _)| !ends.iter().any(|e| *e as usize == *i)).map(line).collect()
}

/// Whether what is told hangs on who decides about the visits, which nobody knows.
pub(crate) fn hangs_on_load(a: &CausalAnswer) -> bool {
    a.targets.iter().any(|t| matches!(t.verdict, Verdict::DependsOnLoad { .. }))
}

fn rate(per_second: f64) -> String {
    if per_second >= 100.0 { thousands(per_second.round() as u64) } else { format!("{per_second:.2}") }
}

fn ranking(a: &CausalAnswer, rows: &[&TargetRow], layout: &Layout) -> String {
    let mut table = Table::new(vec![Column::Number, Column::Number, Column::Name, Column::Mark]);
    table.row(Tone::Head, vec![format!("at {} %", a.assume), "share".into(), "target".into(), "verdict".into()]);
    for (i, t) in rows.iter().enumerate() {
        let gain = t.gain.as_ref().map_or_else(|| no_gain(t).into(), effect);
        let gain = if matches!(t.verdict, Verdict::DependsOnLoad { .. }) { format!("0 or {gain}") } else { gain };
        let tone = match t.verdict {
            Verdict::Contention { .. } => Tone::Hot,
            Verdict::FixThis | Verdict::HelpsUntil { .. } | Verdict::HelpsOther { .. } => Tone::Warm,
            _ => tone_of(0.0),
        };
        table.row(
            tone,
            vec![gain, format!("{} %", percent(t.share)), causal_target(t), reason(t, &rows[..i]).to_owned()],
        );
    }
    table.render(layout.style, layout.width.max(WIDEST_NAME + longest(rows)))
}

/// A verdict in words; that nothing can be said, for a reason that stands above, is said in three.
fn reason<'a>(t: &'a TargetRow, above: &[&TargetRow]) -> &'a str {
    let why = cannot_say_why(t);
    if why.is_some() && above.iter().any(|o| cannot_say_why(o) == why) { "cannot say, as above" } else { &t.reason }
}

/// What targets are certainly worth for points beside the first one, most first.
fn other_points(a: &CausalAnswer, view: CausalView, layout: &Layout) -> String {
    const LISTED: usize = 10;
    const WORTH: f64 = 0.02;
    let is_end = |point: u32| a.points.iter().any(|p| p.end == Some(point));
    let mut rows: Vec<(u32, Gain, &TargetRow)> = Vec::new();
    for t in a.targets.iter().filter(|t| t.verdict != Verdict::RateFixed) {
        let effects = t.other_points.iter().filter(|e| !is_end(e.point));
        let certain = effects.filter_map(|e| {
            Some((e.point, e.over_the_run.filter(|g| (g.low > 0.0 || g.high < 0.0) && g.y.abs() >= WORTH)?))
        });
        rows.extend(certain.map(|(point, gain)| (point, gain, t)));
    }
    let named = |point: u32| a.points.get(point as usize).map_or("?", |p| p.name.as_str());
    // A point by itself may be the begin of a latency, too.
    let mut told: Vec<(&str, &TargetRow)> = Vec::new();
    rows.retain(|(point, _, t)| {
        let known = told.iter().any(|(name, of)| *name == named(*point) && std::ptr::eq(*of, *t));
        told.push((named(*point), *t));
        !known
    });
    if rows.is_empty() {
        return String::new();
    }
    rows.sort_by(|x, y| x.0.cmp(&y.0).then(y.1.low.total_cmp(&x.1.low)));
    let left = if view.all { 0 } else { rows.len().saturating_sub(LISTED) };
    rows.truncate(rows.len() - left);
    let mut table = Table::new(vec![Column::Number, Column::Name, Column::Mark]);
    table.row(Tone::Head, vec![format!("at {} %", a.assume), "target".into(), "for another point".into()]);
    for (point, gain, t) in rows {
        let tone = if gain.low > 0.0 { Tone::Warm } else { Tone::Hot };
        table.row(tone, vec![effect(&gain), causal_target(t), named(point).to_owned()]);
    }
    let more = if left > 0 { format!("and {left} more (list: -v)\n") } else { String::new() };
    table.render(layout.style, layout.width) + &more
}

/// Verdicts are never cut, so that the line grows with them; names keep at least this much.
const WIDEST_NAME: usize = 60;

fn longest(rows: &[&TargetRow]) -> usize {
    rows.iter().map(|t| t.reason.chars().count()).max().unwrap_or(0)
}

fn curve(t: &TargetRow, layout: &Layout) -> String {
    let mut table = Table::new(vec![Column::Number; 5]);
    table.row(Tone::Head, ["faster by", "effect", "95 % interval", "windows", "visits"].map(Into::into).into());
    for p in &t.curve {
        let interval = format!("{} .. {}", signed(p.low), signed(p.high));
        let cells = vec![
            format!("{} %", p.percent),
            signed(p.y),
            interval,
            thousands(u64::from(p.windows)),
            thousands(p.visits),
        ];
        table.row(Tone::Plain, cells);
    }
    format!("\n{}\n{}", layout.style.paint(Tone::Head, &causal_target(t)), table.render(layout.style, layout.width))
}

fn footer(a: &CausalAnswer, unsaid: &[&TargetRow]) -> Vec<String> {
    let mut lines = Vec::new();
    let (mute, lacking): (Vec<&TargetRow>, Vec<&TargetRow>) = unsaid.iter().partition(|t| cannot_say_why(t).is_some());
    lines.extend(counted("cannot say, for reasons above", &mute));
    lines.extend(counted("not enough data", &lacking));
    if has_shares_of_two_kinds(a) {
        lines.push(SHARES.to_owned());
    }
    // What is said of the latency itself holds for all targets, and is not said of each again.
    let said = |l: &LatencyRow| {
        let whole = a.latency.iter().find(|w| w.target.is_none() && (w.begin, w.end) == (l.begin, l.end));
        l.target.is_some() && l.cannot_say.is_some() && whole.is_some_and(|w| w.cannot_say == l.cannot_say)
    };
    lines.extend(a.latency.iter().filter(|l| !l.is_noise() && !said(l)).filter_map(latency));
    let noise = a.latency.iter().filter(|l| l.is_noise()).count();
    if noise > 0 {
        lines.push(format!("latency: not enough data for {}; measure longer with -d", plural(noise as u64, "target")));
    }
    lines.extend(a.waits.iter().map(|w| format!("wait, not speedable: {}", w.reason)));
    let cost = a.overhead.as_ref().map_or_else(String::new, |o| {
        // Of points that are no breakpoints of the kernel it is not measured.
        let points = if o.points > 0.0 { format!("points {} %, ", percent(o.points)) } else { String::new() };
        format!(
            "; delays {} % of the program's CPU time, sampling {} %, {points}whither {} %, start-up {}",
            percent(o.delay),
            percent(o.sampling),
            percent(o.own),
            nanoseconds(o.startup_ns as f64)
        )
    });
    let settle = a.windows.settle.map_or_else(String::new, |part| format!(", after {part:.2} of a window to settle"));
    lines.push(format!("% are reductions of the time per visit{settle}{cost}"));
    lines
}

/// Targets that are not listed, and how long the largest of them would take.
fn counted(what: &str, targets: &[&TargetRow]) -> Option<String> {
    let largest = targets.iter().max_by(|a, b| a.share.total_cmp(&b.share))?;
    let time = largest.verdict.more_time().map(|time| format!(": {time}")).unwrap_or_default();
    let share = format!(", the largest {} % of the samples", percent(largest.share));
    let share = if largest.share > 0.0 { share } else { String::new() };
    Some(format!("{what}: {}{share}{time} (list: -v)", plural(targets.len() as u64, "target")))
}

/// What is said where code and waits stand in one table.
pub(crate) const SHARES: &str = "shares are of the time on CPUs; of waits (off CPU), of the time in such waits";

/// Whether code and waits stand in one table.
pub(crate) fn has_shares_of_two_kinds(a: &CausalAnswer) -> bool {
    let waits = a.targets.iter().filter(|t| t.unit == Unit::OffCpu).count();
    waits > 0 && waits < a.targets.len()
}

fn latency(l: &LatencyRow) -> Option<String> {
    if l.target.is_none() {
        let why = l.cannot_say.as_ref().map_or(String::new(), |why| format!("; {why}"));
        let mean = if l.mean_ns > 0.0 { format!("{} on average", nanoseconds(l.mean_ns)) } else { "not known".into() };
        return Some(format!("latency {}: {mean}{why}", l.name));
    }
    if let Some(why) = &l.cannot_say {
        return Some(format!("latency {} by {}: cannot say: {why}", l.name, l.target_name));
    }
    let gain = l.gain.as_ref()?;
    Some(format!("latency {}: {} if {} is {} % faster", l.name, effect(gain), l.target_name, gain.percent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causal_fixture::answer;
    use whither_causal::{DroppedRow, ElsewhereRow};

    #[test]
    fn the_ranking() {
        let text = causal(&answer(), CausalView { all: false, curves: true }, &Layout::default());
        insta::assert_snapshot!(text);
    }

    #[test]
    fn latencies_that_are_noise_so_far_are_counted_only() {
        let mut some = answer();
        let told = some.latency[0].clone();
        let gain = told.gain.map(|g| whither_causal::Gain { y: -0.39, low: -2.02, high: 1.24, ..g });
        some.latency.push(whither_causal::LatencyRow { target_name: "rare_one".into(), gain, ..told });
        let text = causal(&some, CausalView::default(), &Layout::default());
        assert!(text.contains("if hash_find is 30 % faster") && !text.contains("if rare_one is"), "{text}");
        assert!(text.contains("latency: not enough data for 1 target"), "{text}");
    }

    #[test]
    fn latencies_of_a_disturbed_run_have_a_reason_once_and_no_figure() {
        let mut some = answer();
        let why = Some("other work on the machine disturbed 63 % of the windows".to_owned());
        some.latency[0].cannot_say = why.clone();
        let target = None;
        some.latency.insert(0, LatencyRow { target, gain: None, cannot_say: why, ..some.latency[0].clone() });
        let text = causal(&some, CausalView::default(), &Layout::default());
        let lines: Vec<&str> = text.lines().filter(|l| l.starts_with("latency")).collect();
        let told =
            "latency req_begin to req_end: 2.1 ms on average; other work on the machine disturbed 63 % of the windows";
        assert_eq!(lines, [told]);
        some.latency[0].mean_ns = 0.0;
        let text = causal(&some, CausalView::default(), &Layout::default());
        assert!(text.contains("latency req_begin to req_end: not known; other work"), "{text}");
    }

    #[test]
    fn other_names_of_the_same_code_are_told() {
        let mut target = answer().targets[0].clone();
        let mut named = |aliases: &[&str]| {
            target.aliases = aliases.iter().map(ToString::to_string).collect();
            causal_target(&target)
        };
        let plain = named(&[]);
        assert!(!plain.contains("also"), "{plain}");
        assert!(named(&["pack"]).contains(" (also pack)"));
        assert!(named(&["pack", "send", "wrap", "zip"]).contains(" (also pack, send and 2 more)"));
    }

    #[test]
    fn what_is_missing_is_listed_when_asked() {
        let short = causal(&answer(), CausalView::default(), &Layout::default());
        let long = causal(&answer(), CausalView { all: true, curves: false }, &Layout::default());
        assert!(short.contains("not enough data: 1 target") && !short.contains("rare_one"), "{short}");
        assert!(short.contains("the largest 10.00 % of the samples: about 30 s more (list"), "{short}");
        assert!(long.contains("rare_one") && !long.contains("not enough data: 1 target"), "{long}");
    }

    #[test]
    fn a_large_target_of_which_much_is_known_is_listed_before_it_has_a_verdict() {
        let mut some = answer();
        let last = some.targets.iter_mut().find(|t| t.name == "rare_one").unwrap();
        let about = |low, high| whither_causal::Gain { percent: 30, y: 0.01, low, high, rate_gain: 0.01 };
        // Less than that of any other one.
        (last.share, last.gain) = (0.06, Some(about(-0.05, 0.07)));
        let listed = |some: &CausalAnswer| {
            causal(some, CausalView::default(), &Layout::default()).lines().any(|l| l.contains("rare_one"))
        };
        assert!(listed(&some));
        some.targets.iter_mut().find(|t| t.name == "rare_one").unwrap().gain = Some(about(-0.5, 0.5));
        assert!(!listed(&some));
    }

    #[test]
    fn the_first_line_says_why_delays_were_slept_unless_that_was_asked_for() {
        let mut slept = answer();
        slept.executor = Executor::Sleep;
        slept.executor_reason = "chosen: spun delays made threads wait for cores".into();
        assert!(
            causal_header(&slept)
                .contains("executor sleep (chosen: spun delays made threads wait for cores), own cost")
        );
        slept.executor_reason = "as asked".into();
        assert!(causal_header(&slept).contains("executor sleep, own cost"));
        slept.dropped = vec![DroppedRow { reason: DropReason::Spun, n: 12 }];
        assert!(causal_header(&slept).contains("12 dropped (delays still spun)"));
    }

    #[test]
    fn windows_before_the_program_had_time_to_settle_have_a_reason() {
        let mut early = answer();
        early.dropped.clear();
        early.windows.dropped = 32;
        let text = causal(&early, CausalView::default(), &Layout::default());
        assert!(text.contains("32 dropped (too little time to settle)"), "{text}");
        early.windows.outgrown = 32;
        let text = causal(&early, CausalView::default(), &Layout::default());
        assert!(text.contains("32 dropped (shorter than pauses of the program)"), "{text}");
    }

    #[test]
    fn shares_of_code_and_of_waits_are_told_apart() {
        let said = |some: &CausalAnswer| causal(some, CausalView::default(), &Layout::default()).contains(SHARES);
        let mut some = answer();
        assert!(!said(&some));
        some.targets[0].unit = Unit::OffCpu;
        assert!(said(&some));
        some.targets.iter_mut().for_each(|t| t.unit = Unit::OffCpu);
        assert!(!said(&some));
    }

    #[test]
    fn work_outside_of_the_scope_is_told_before_the_ranking_and_no_time_is_promised() {
        let mut some = answer();
        some.targets.retain(|t| t.name == "rare_one");
        let reason = "outside of what is measured: 78 % of the samples are in no target".to_owned();
        some.elsewhere = Some(ElsewhereRow { outside: 0.78, charged: Some(0.0), modules: Vec::new(), reason });
        let told = |some: &CausalAnswer| causal(some, CausalView::default(), &Layout::default());
        let text = told(&some);
        let line = text.find("outside of what is measured: 78 %").expect("told");
        assert!(text.find("nothing can be said of any target yet").is_some_and(|at| line < at), "{text}");
        let none = Verdict::NotEnoughData { missing: "samples".into(), more_seconds: None };
        (some.targets[0].share, some.targets[0].verdict) = (0.003, none);
        assert!(told(&some).contains("nothing can be said of any target: more time would not help"));
    }

    #[test]
    fn the_heading_says_for_which_point_verdicts_are_and_others_have_a_table() {
        let mut some = answer();
        let text = causal(&some, CausalView::default(), &Layout::default());
        assert!(!text.contains("the verdicts are for this one") && !text.contains("for another point"), "{text}");
        some.points.push(whither_causal::PointRow { name: "flush".into(), ..some.points[0].clone() });
        let about = |low, high| Some(Gain { percent: 30, y: 0.22, low, high, rate_gain: 0.28 });
        let effect = |over_the_run| whither_causal::PointEffect {
            point: 1,
            curve: Vec::new(),
            fit: whither_causal::Fit::NOTHING,
            gain: over_the_run,
            over_the_run,
        };
        some.targets[0].other_points = vec![effect(about(-0.1, 0.5))];
        some.targets[1].other_points = vec![effect(about(0.2, 0.24))];
        let text = causal(&some, CausalView::default(), &Layout::default());
        let point =
            |name: &str| text.lines().find(|l| l.starts_with(&format!("point: {name}"))).unwrap_or("").to_owned();
        assert!(point("handle").ends_with(": the verdicts are for this one") && !point("flush").contains("verdicts"));
        let rows: Vec<&str> = text.lines().filter(|l| l.ends_with(" flush")).collect();
        assert!(rows.len() == 1 && rows[0].starts_with("+22.0 ±2.0 %") && rows[0].contains("compress"), "{text}");
        // It begins a latency, too.
        some.points.push(some.points[1].clone());
        let again = whither_causal::PointEffect { point: 2, ..some.targets[1].other_points[0].clone() };
        some.targets[1].other_points.push(again);
        let text = causal(&some, CausalView::default(), &Layout::default());
        assert_eq!(text.lines().filter(|l| l.ends_with(" flush")).count(), 1, "{text}");
    }

    fn cannot(why: &str) -> Verdict {
        Verdict::CannotSay { why: why.into() }
    }

    #[test]
    fn one_reason_for_all_is_told_once_and_the_small_ones_are_counted() {
        let mut some = answer();
        let row = some.targets[0].clone();
        let of = |i: u32| {
            let (share, name) = (0.4 / f64::from(1 << i), format!("t{i}"));
            let reason = "cannot say: the machine was busy".to_owned();
            TargetRow { id: i, share, name, verdict: cannot("the machine was busy"), reason, gain: None, ..row.clone() }
        };
        some.targets = (0..9).map(of).collect();
        let text = causal(&some, CausalView::default(), &Layout::default());
        assert_eq!(text.matches("the machine was busy").count(), 1, "{text}");
        // 40, 20, 10 and 5 %; the next one has 2.5.
        assert_eq!(text.matches("cannot say, as above").count(), 3, "{text}");
        assert!(text.contains("cannot say, for reasons above: 5 targets, the largest 2.50 % of the samples"), "{text}");
        let all = causal(&some, CausalView { all: true, curves: false }, &Layout::default());
        assert_eq!(all.matches("cannot say, as above").count(), 8, "{all}");
    }

    #[test]
    fn a_larger_target_is_not_counted_while_smaller_ones_are_listed() {
        let mut some = answer();
        let lacks = || Verdict::NotEnoughData { missing: "windows".into(), more_seconds: Some(60.0) };
        let wide = Gain { percent: 30, y: 0.16, low: -0.2, high: 0.5, rate_gain: 0.2 };
        (some.targets[0].share, some.targets[0].verdict, some.targets[0].gain) = (0.47, lacks(), Some(wide));
        some.targets[0].name = "decode".into();
        some.targets.truncate(2);
        (some.targets[1].share, some.targets[1].verdict) = (0.29, Verdict::FixThis);
        let text = causal(&some, CausalView::default(), &Layout::default());
        assert!(text.contains("decode") && !text.contains("not enough data: 1 target"), "{text}");
        // Nothing smaller is listed.
        some.targets[1].share = 0.6;
        let text = causal(&some, CausalView::default(), &Layout::default());
        assert!(!text.contains("decode") && text.contains("not enough data: 1 target"), "{text}");
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        let mut none = answer();
        none.targets.clear();
        let text = causal(&none, CausalView::default(), &Layout::default());
        assert!(text.contains("nothing can be said"), "{text}");
    }
}
