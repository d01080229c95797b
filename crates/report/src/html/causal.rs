//! One page on a causal profile: what was measured and how well, the ranking, a plot per target, latencies,
//! waits that no speed-up applies to, and how steady the program was.

use super::causal_plot::{Scale, plot};
use super::escape::{Text, put};
use super::number::{finite, grouped, percent};
use super::summary::{Tile, Tone, put_remarks, put_tiles};
use super::{banner, foot, head};
use crate::text::{
    SHARES, a_good_part_elsewhere, causal_place, causal_target, causal_warnings, drop_reason, duration, effect,
    executor, hangs_on_load, has_shares_of_two_kinds, nanoseconds, no_gain,
};
use whither_causal::{CausalAnswer, DriftRow, Gain, LatencyRow, TargetRow, Verdict};
use whither_store::causal::LoadKind;

/// Everything a page of causal profiling shows.
#[derive(Clone, Debug)]
pub struct CausalPage<'a> {
    /// Heading.
    pub title: String,
    /// The answer.
    pub answer: &'a CausalAnswer,
    /// Lines of source around a target by its id: number and text, the target's own line among them.
    pub sources: Vec<(u32, Vec<(u32, String)>)>,
}

/// The page as one string of UTF-8 HTML.
#[must_use]
pub fn causal_page(data: &CausalPage<'_>) -> String {
    let a = data.answer;
    let mut out = String::with_capacity(128 * 1024);
    head(&mut out, &data.title);
    banner(&mut out, &data.title, &contents(a));
    out.push_str("<main>");
    summary(&mut out, a);
    ranking(&mut out, a);
    plots(&mut out, data);
    latencies(&mut out, a);
    waits(&mut out, a);
    steadiness(&mut out, a);
    out.push_str("</main>");
    foot(
        &mut out,
        "Effects are reductions of the time per visit of the first progress point, predicted from delays inserted while the program ran; \
         a real change may also change what other code does.",
    );
    out
}

fn contents(a: &CausalAnswer) -> Vec<(String, String)> {
    let all = [
        ("summary", "Summary", true),
        ("ranking", "Ranking", true),
        ("curves", "Curves", a.targets.iter().any(|t| !t.curve.is_empty())),
        ("latency", "Latency", !a.latency.is_empty()),
        ("waits", "Waits", !a.waits.is_empty()),
        ("steady", "Steadiness", !a.drift.is_empty() || !a.dropped.is_empty()),
    ];
    all.into_iter().filter(|(.., there)| *there).map(|(id, label, _)| (id.into(), label.into())).collect()
}

fn summary(out: &mut String, a: &CausalAnswer) {
    put!(
        out,
        "<section id=\"summary\" aria-label=\"Summary\"><p class=\"scope\"><code>{}</code></p>",
        Text(&a.meta.command)
    );
    put_tiles(out, &tiles(a));
    let mut list: Vec<(&str, String)> = causal_warnings(a).into_iter().map(|w| ("warn", w)).collect();
    list.extend(a_good_part_elsewhere(a).map(|text| ("warn", text.to_owned())));
    let is_told = a.load_reason.is_empty() || a.warnings.contains(&a.load_reason);
    list.extend((!is_told).then(|| ("note", a.load_reason.clone())));
    put_remarks(out, &list);
    out.push_str("</section>");
}

fn tiles(a: &CausalAnswer) -> Vec<Tile> {
    let all = f64::from(a.windows.kept + a.windows.dropped).max(1.0);
    let lost = f64::from(a.windows.dropped) / all;
    let load = match a.load {
        LoadKind::Closed => "closed loop",
        LoadKind::Open => "open loop",
        LoadKind::Unknown if hangs_on_load(a) => "closed or open loop: not known",
        LoadKind::Unknown => "closed loop assumed",
    };
    let mut tiles = vec![
        Tile {
            label: "Measured",
            figure: duration(a.meta.duration_ns as f64 / 1e9),
            detail: format!("pid {}, {} threads, executor {}", a.meta.pid, a.meta.threads, executor(a)),
            tone: Tone::Plain,
        },
        Tile {
            label: "Windows",
            figure: grouped(u64::from(a.windows.kept)),
            detail: format!("{} dropped, {:.1} a second", a.windows.dropped, finite(a.windows.per_second)),
            tone: Tone::by(lost, 0.1, 0.3),
        },
    ];
    for (i, p) in a.points.iter().enumerate() {
        let detail = if i == 0 { format!("a second, {load}: {}", p.name) } else { format!("a second: {}", p.name) };
        tiles.push(Tile { label: "Point", figure: format!("{:.1}", finite(p.per_second)), detail, tone: Tone::Plain });
    }
    tiles.extend(a.overhead.as_ref().map(|o| Tile {
        label: "Own cost",
        figure: format!("{} %", percent(o.own_cost())),
        detail: format!(
            "of the program's CPU time, besides delays of {} %; start-up {}",
            percent(o.delay),
            nanoseconds(o.startup_ns as f64)
        ),
        tone: Tone::by(o.own_cost(), 0.05, 0.2),
    }));
    tiles
}

fn class(v: &Verdict) -> &'static str {
    match v {
        Verdict::FixThis | Verdict::HelpsUntil { .. } | Verdict::HelpsOther { .. } => "fix",
        Verdict::Contention { .. } => "hurts",
        Verdict::DoNotBother { .. } => "flat",
        Verdict::CausedBy { .. }
        | Verdict::RateFixed
        | Verdict::DependsOnLoad { .. }
        | Verdict::NotEnoughData { .. }
        | Verdict::CannotSay { .. } => "open",
    }
}

fn ranking(out: &mut String, a: &CausalAnswer) {
    out.push_str("<section id=\"ranking\" aria-labelledby=\"ranking-h\"><div class=\"bar-line\"><h2 id=\"ranking-h\">What a fix would buy</h2></div>");
    if a.targets.is_empty() {
        out.push_str("<p class=\"empty\">No target was measured.</p></section>");
        return;
    }
    put!(
        out,
        "<div class=\"scroll\"><table class=\"grid sortable\" id=\"ranking-t\"><caption class=\"sr\">Targets by gain</caption><thead><tr>\
         <th scope=\"col\" class=\"n\">at {} % faster</th><th scope=\"col\" class=\"n\">share of samples</th>\
         <th scope=\"col\" class=\"n\">windows</th><th scope=\"col\" class=\"t\">target</th><th scope=\"col\">verdict</th></tr></thead><tbody>",
        a.assume
    );
    for t in &a.targets {
        let (value, gain) = t.gain.as_ref().map_or((-9.0, no_gain(t).to_owned()), |g| (finite(g.y), effect(g)));
        put!(
            out,
            "<tr class=\"{}\"><td class=\"n\" data-v=\"{value}\">{gain}</td><td class=\"n bar\" data-v=\"{}\" style=\"--w:{:.2}%\">{} %</td>\
             <td class=\"n\" data-v=\"{}\">{}</td><td class=\"t\"><a href=\"#target-{}\">{}</a></td><td class=\"said\">{}</td></tr>",
            class(&t.verdict),
            finite(t.share),
            finite(t.share) * 100.0,
            percent(t.share),
            t.windows,
            t.windows,
            t.id,
            Text(&causal_target(t)),
            Text(&t.reason)
        );
    }
    out.push_str("</tbody></table></div>");
    if has_shares_of_two_kinds(a) {
        put!(out, "<p class=\"hint\">{SHARES}.</p>");
    }
    out.push_str("</section>");
}

fn plots(out: &mut String, data: &CausalPage<'_>) {
    let with: Vec<&TargetRow> = data.answer.targets.iter().filter(|t| !t.curve.is_empty()).collect();
    if with.is_empty() {
        return;
    }
    out.push_str(
        "<section id=\"curves\" aria-labelledby=\"curves-h\"><div class=\"bar-line\"><h2 id=\"curves-h\">Curves</h2></div>\
         <p class=\"hint\">Across: how much faster the target was made virtually. Upwards: how much less time passes per visit, in percent. \
         Small dots are single windows (hollow: dropped), large ones means with 95 % intervals.</p><div class=\"plots\">",
    );
    let scale = Scale::of(with.iter().flat_map(|t| &t.curve));
    for t in with {
        put!(
            out,
            "<figure class=\"{}\" id=\"target-{}\"><figcaption><code>{}</code><span>{}</span></figcaption>",
            class(&t.verdict),
            t.id,
            Text(&causal_target(t)),
            Text(&t.reason)
        );
        plot(out, &t.curve, &t.fit, &t.dots, scale);
        also(out, data.answer, t);
        if let Some((_, lines)) = data.sources.iter().find(|(id, _)| *id == t.id) {
            excerpt(out, t.line, lines);
        }
        out.push_str("</figure>");
    }
    out.push_str("</div></section>");
}

/// Other names, the effect on other points, and that while the target runs where it differs from that over the run.
fn also(out: &mut String, a: &CausalAnswer, t: &TargetRow) {
    let mut parts = Vec::new();
    if !t.aliases.is_empty() {
        parts.push(format!("same code: {}", t.aliases.join(", ")));
    }
    if let (Some(local), Some(phase)) = (&t.local, t.phase.filter(|p| p.applied)) {
        parts.push(format!("{} while it runs; it is active {:.2} of the run", effect(local), phase.factor));
    }
    let certain = |g: &Gain| (g.low > 0.0 || g.high < 0.0) && g.y.abs() >= 0.02;
    for (e, g) in t.other_points.iter().filter_map(|e| Some((e, e.over_the_run.filter(certain)?))) {
        let name = a.points.get(e.point as usize).map_or("?", |p| p.name.as_str());
        parts.push(format!("{} at {} % for {name}", effect(&g), g.percent));
    }
    if !parts.is_empty() {
        put!(out, "<p class=\"hint\">{}</p>", Text(&parts.join("; ")));
    }
}

fn excerpt(out: &mut String, own: u32, lines: &[(u32, String)]) {
    out.push_str("<pre class=\"excerpt\">");
    for (number, text) in lines {
        let class = if *number == own { " class=\"own\"" } else { "" };
        put!(out, "<span{class}><i>{number}</i>{}</span>\n", Text(text));
    }
    out.push_str("</pre>");
}

fn latencies(out: &mut String, a: &CausalAnswer) {
    if a.latency.is_empty() {
        return;
    }
    out.push_str(
        "<section id=\"latency\" aria-labelledby=\"latency-h\"><div class=\"bar-line\"><h2 id=\"latency-h\">Latency</h2></div>\
         <div class=\"scroll\"><table class=\"grid\"><caption class=\"sr\">Latency between points</caption><thead><tr><th scope=\"col\">between</th>\
         <th scope=\"col\" class=\"n\">mean</th><th scope=\"col\" class=\"n\">under way</th><th scope=\"col\" class=\"t\">target</th>\
         <th scope=\"col\">shorter by</th></tr></thead><tbody>",
    );
    for row in &a.latency {
        latency(out, row);
    }
    out.push_str("</tbody></table></div></section>");
}

fn latency(out: &mut String, l: &LatencyRow) {
    let said = match (&l.gain, &l.cannot_say) {
        _ if l.is_noise() => "not enough data".into(),
        (_, Some(why)) => why.clone(),
        (Some(gain), None) => format!("{} at {} %", effect(gain), gain.percent),
        (None, None) => "-".into(),
    };
    put!(
        out,
        "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{:.2}</td><td class=\"t\">{}</td><td class=\"said\">{}</td></tr>",
        Text(&l.name),
        nanoseconds(finite(l.mean_ns)),
        finite(l.under_way),
        Text(if l.target.is_none() { "as it is" } else { &l.target_name }),
        Text(&said)
    );
}

fn waits(out: &mut String, a: &CausalAnswer) {
    if a.waits.is_empty() {
        return;
    }
    out.push_str(
        "<section id=\"waits\" aria-labelledby=\"waits-h\"><div class=\"bar-line\"><h2 id=\"waits-h\">Waits for other threads</h2></div>\
         <p class=\"hint\">These end when another thread gets somewhere: what it does until then counts, not the wait.</p>\
         <div class=\"scroll\"><table class=\"grid\"><caption class=\"sr\">Waits</caption><thead><tr><th scope=\"col\" class=\"n\">share</th>\
         <th scope=\"col\" class=\"n\">waited</th><th scope=\"col\" class=\"t\">where</th><th scope=\"col\">ended by</th></tr></thead><tbody>",
    );
    for w in &a.waits {
        let place = causal_place(&w.file, w.line);
        let who: Vec<String> = w
            .woken_by
            .iter()
            .map(|k| format!("{} {} ({} %)", k.name, causal_place(&k.file, k.line), percent(k.share)))
            .collect();
        put!(
            out,
            "<tr><td class=\"n\">{} %</td><td class=\"n\">{}</td><td class=\"t\">{}</td><td class=\"said\">{}</td></tr>",
            percent(w.share),
            nanoseconds(w.blocked_ns as f64),
            Text(&format!("{}  {place}", w.name)),
            Text(&who.join(", "))
        );
    }
    out.push_str("</tbody></table></div></section>");
}

fn steadiness(out: &mut String, a: &CausalAnswer) {
    if a.drift.is_empty() && a.dropped.is_empty() {
        return;
    }
    out.push_str("<section id=\"steady\" aria-labelledby=\"steady-h\"><div class=\"bar-line\"><h2 id=\"steady-h\">Steadiness</h2></div>");
    if !a.drift.is_empty() {
        drift(out, &a.drift);
    }
    if !a.dropped.is_empty() {
        let parts: Vec<String> = a.dropped.iter().map(|d| format!("{} {}", d.n, drop_reason(d.reason))).collect();
        put!(out, "<p class=\"hint\">Windows that do not count: {}.</p>", Text(&parts.join(", ")));
    }
    out.push_str("</section>");
}

/// Time per visit without speed-up, a bar per stratum.
fn drift(out: &mut String, rows: &[DriftRow]) {
    let most = rows.iter().map(|r| finite(r.period_ns)).fold(0.0, f64::max).max(1.0);
    out.push_str(
        "<div class=\"scroll\"><table class=\"grid narrow\"><caption class=\"sr\">Time per visit without speed-up</caption><thead><tr>\
         <th scope=\"col\" class=\"n\">from</th><th scope=\"col\" class=\"n w-share\">time per visit</th><th scope=\"col\" class=\"n\">windows of 0 %</th></tr></thead><tbody>",
    );
    for r in rows {
        put!(
            out,
            "<tr><td class=\"n\">{}</td><td class=\"n bar\" style=\"--w:{:.1}%\">{}</td><td class=\"n\">{}</td></tr>",
            duration(finite(r.at_s)),
            finite(r.period_ns) / most * 100.0,
            nanoseconds(finite(r.period_ns)),
            r.windows
        );
    }
    out.push_str("</tbody></table></div>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causal_fixture::answer;

    fn page() -> String {
        let a = answer();
        let sources = vec![(0, vec![(216, "{".into()), (217, "  while (p && p->key != <k>)".into())])];
        causal_page(&CausalPage { title: "causal".into(), answer: &a, sources })
    }

    #[test]
    fn every_section_that_is_linked_is_there() {
        let page = page();
        for id in ["summary", "ranking", "curves", "latency", "waits", "steady"] {
            assert!(page.contains(&format!("href=\"#{id}\"")) && page.contains(&format!("id=\"{id}\"")), "{id}");
        }
        assert_eq!(page.matches("<svg class=\"causal\"").count(), 3);
        assert!(page.contains("knee between 48 and 61 %"));
    }

    #[test]
    fn names_cannot_leave_their_place() {
        let page = page();
        assert!(page.contains("compress&lt;script&gt;") && !page.contains("compress<script>"));
        assert!(page.contains("key != &lt;k&gt;"));
    }

    #[test]
    fn a_reason_that_is_a_warning_too_stands_there_once() {
        let mut a = answer();
        a.load_reason = "delays left the visits as they were".into();
        let times = |a: &CausalAnswer| {
            let page = causal_page(&CausalPage { title: "causal".into(), answer: a, sources: Vec::new() });
            page.matches("delays left the visits as they were").count()
        };
        assert_eq!(times(&a), 1);
        a.warnings.push(a.load_reason.clone());
        assert_eq!(times(&a), 1);
    }

    #[test]
    fn an_empty_answer_makes_a_page() {
        let mut a = answer();
        (a.targets, a.latency, a.waits, a.drift, a.dropped) = Default::default();
        let page = causal_page(&CausalPage { title: "causal".into(), answer: &a, sources: Vec::new() });
        assert!(page.contains("No target was measured") && !page.contains("id=\"curves\""));
    }
}
