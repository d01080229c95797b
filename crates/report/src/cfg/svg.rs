//! The graph as SVG: a file of its own, or a part of the page. Names of instructions come from foreign programs, so
//! every text passes `escape::Text`. Heat is a layer with opacity, which every viewer knows and which suits light
//! and dark alike.

use super::layout::{Drawing, Point, draw};
use super::{Graph, MOST_BLOCKS, above, dashes, lines};
use crate::html::escape::{Text, put};
use crate::text::{at_most, executions};
use whither_cycles::results::analysis::{Analysis, EdgeAnalysis};

/// Narrowest box, and the width of a character.
const WIDTH: f64 = 178.0;
const CHARACTER: f64 = 6.63;
/// Characters of a line above the picture, where the picture itself is narrower.
const HEAD_WIDTH: usize = 100;
const LINE: f64 = 14.0;
const MARGIN: f64 = 34.0;
const UNKNOWN: Point = (30.0, 26.0);

/// Style of a picture, for a file of its own; the page's style sheet has the same classes with its colours.
const STYLE: &str = ".cfg text{font:11px ui-monospace,'DejaVu Sans Mono',monospace;fill:#1c1d21}\
.cfg .dim{fill:#6b6f78}.cfg .over{paint-order:stroke;stroke:#fff;stroke-width:3px}.cfg .box{fill:#fff;stroke:#6b6f78;stroke-width:1.3}.cfg .heat{fill:#e8590c}\
.cfg .e{fill:none;stroke:#6b6f78}.cfg .back{stroke:#0b5cad}.cfg .lost{stroke:#c92a2a;stroke-dasharray:4 4}\
.cfg .tip{fill:#6b6f78}.cfg .tip.back{fill:#0b5cad}.cfg .tip.lost{fill:#c92a2a}.cfg .paper{fill:#fff}";

/// A file.
#[must_use]
pub fn svg(a: &Analysis) -> String {
    let graph = Graph::new(a, MOST_BLOCKS);
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let mut head = vec![format!("{} ({})", a.annotation.procedure, a.annotation.image)];
    head.extend(above(a, &graph).iter().flat_map(|sentence| lines(sentence, HEAD_WIDTH)));
    picture(&mut out, &graph, &head, None);
    out.push('\n');
    out
}

/// A part of a page; blocks link to the rows of procedure `index`.
pub(crate) fn embedded(out: &mut String, graph: &Graph<'_>, index: usize) {
    picture(out, graph, &[], Some(index));
}

fn picture(out: &mut String, graph: &Graph<'_>, head: &[String], links: Option<usize>) {
    let blocks = graph.nodes.len();
    let mut sizes: Vec<Point> = (0..blocks).map(|at| size(&graph.lines(at))).collect();
    let mut edges: Vec<(usize, usize)> = graph.edges.iter().map(|e| (e.0, e.1)).collect();
    for &from in &graph.unknown {
        edges.push((from, sizes.len()));
        sizes.push(UNKNOWN);
    }
    let drawing = draw(&sizes, &edges);
    let top = MARGIN + if head.is_empty() { 0.0 } else { head.len() as f64 * LINE + 8.0 };
    let inside = drawing.size.0.max(head.iter().map(|l| length(l)).fold(0.0, f64::max));
    let (w, h) = (inside + 2.0 * MARGIN, drawing.size.1 + top + MARGIN);
    put!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"cfg\" width=\"{w:.0}\" height=\"{h:.0}\" \
         viewBox=\"0 0 {w:.0} {h:.0}\" role=\"img\" aria-label=\"Control-flow graph of {blocks} blocks\">"
    );
    if !head.is_empty() {
        put!(out, "<style>{STYLE}</style><rect class=\"paper\" width=\"{w:.0}\" height=\"{h:.0}\"/>");
    }
    for (i, line) in head.iter().enumerate() {
        let class = if i == 0 { "" } else { " class=\"dim\"" };
        put!(out, "<text{class} x=\"{MARGIN}\" y=\"{:.0}\">{}</text>", 20.0 + i as f64 * LINE, Text(line));
    }
    put!(out, "<g transform=\"translate({MARGIN} {top})\">");
    // Above the lines of other edges.
    let mut labels = String::new();
    for (e, line) in drawing.lines.iter().enumerate() {
        match graph.edges.get(e) {
            Some(&(from, to, edge)) => {
                let middle = drawing.boxes[from].0 + sizes[from].0 / 2.0;
                let upward = line.last().is_some_and(|l| l.1 < line[0].1);
                let anchor = Anchor::of(from == to, upward, line[0].0 < middle);
                edge_line(out, graph, edge, line, matches!(anchor, Anchor::Above | Anchor::Beside));
                if let Some(text) = graph.edge_label(edge) {
                    label(&mut labels, &text, line[0], anchor);
                }
            }
            None => lost_line(out, line),
        }
    }
    for (at, size) in sizes.iter().enumerate().take(blocks) {
        block(out, graph, &drawing, at, *size, links);
    }
    for (at, size) in sizes.iter().enumerate().skip(blocks) {
        let (x, y) = drawing.boxes[at];
        put!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">?<title>targets that are not known</title></text>",
            x + size.0 / 2.0,
            y + 17.0
        );
    }
    out.push_str(&labels);
    out.push_str("</g></svg>");
}

/// Of a box with these lines.
fn size(lines: &[String]) -> Point {
    let widest = lines.iter().map(|l| length(l)).fold(0.0, f64::max);
    ((widest + 16.0).max(WIDTH), lines.len() as f64 * LINE + 12.0)
}

fn length(line: &str) -> f64 {
    line.chars().count() as f64 * CHARACTER
}

fn block(out: &mut String, graph: &Graph<'_>, d: &Drawing, at: usize, (w, h): Point, links: Option<usize>) {
    let (x, y) = d.boxes[at];
    let b = graph.block(at);
    let heat = if b.share.is_finite() { b.share.clamp(0.0, 1.0).sqrt() * 0.75 } else { 0.0 };
    if let Some(index) = links {
        put!(out, "<a href=\"#i{index}-{:x}\">", b.address);
    }
    put!(
        out,
        "<g><title>{}</title><rect class=\"box\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" rx=\"4\"",
        Text(&graph.tooltip(at))
    );
    dash(out, dashes(b.frequency.confidence));
    put!(
        out,
        "/><rect class=\"heat\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" rx=\"4\" opacity=\"{heat:.2}\"/>"
    );
    for (i, line) in graph.lines(at).iter().enumerate() {
        put!(out, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + 8.0, y + 16.0 + i as f64 * LINE, Text(line));
    }
    out.push_str("</g>");
    if links.is_some() {
        out.push_str("</a>");
    }
    let middle = x + w / 2.0;
    if let Some(f) = graph.entered(at) {
        stub(
            out,
            &[(middle, y - 24.0), (middle, y)],
            &format!("called {}{}", at_most(graph.a), executions(f)),
            y - 18.0,
        );
    }
    if let Some(f) = graph.left(at) {
        stub(
            out,
            &[(middle, y + h), (middle, y + h + 22.0)],
            &format!("leaves {}{}", at_most(graph.a), executions(f)),
            y + h + 18.0,
        );
    }
}

/// An arrow into or out of the procedure.
fn stub(out: &mut String, line: &[Point], label: &str, y: f64) {
    path(out, "e", line, 1.2, "");
    tip(out, "tip", line);
    put!(out, "<text class=\"dim\" x=\"{:.1}\" y=\"{y:.1}\">{}</text>", line[0].0 + 6.0, Text(label));
}

fn edge_line(out: &mut String, graph: &Graph<'_>, e: &EdgeAnalysis, line: &[Point], back: bool) {
    let (class, tip_class) = if back { ("e back", "tip back") } else { ("e", "tip") };
    put!(out, "<g><title>{}</title>", Text(&graph.edge_tooltip(e)));
    path(out, class, line, graph.width(e.frequency.value), dashes(e.frequency.confidence));
    tip(out, tip_class, line);
    out.push_str("</g>");
}

/// Where an edge's label stands, so that those of neighbours do not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anchor {
    Beside,
    Above,
    Left,
    Right,
}

impl Anchor {
    fn of(to_itself: bool, upward: bool, left: bool) -> Self {
        match (to_itself, upward, left) {
            (true, ..) => Self::Beside,
            (_, true, _) => Self::Above,
            (_, _, true) => Self::Left,
            _ => Self::Right,
        }
    }
}

fn label(out: &mut String, text: &str, (x, y): Point, anchor: Anchor) {
    let (dx, dy, side) = match anchor {
        Anchor::Beside => (22.0, -14.0, "start"),
        Anchor::Above => (4.0, -3.0, "start"),
        Anchor::Left => (-4.0, 11.0, "end"),
        Anchor::Right => (4.0, 11.0, "start"),
    };
    put!(
        out,
        "<text class=\"dim over\" text-anchor=\"{side}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        x + dx,
        y + dy,
        Text(text)
    );
}

fn lost_line(out: &mut String, line: &[Point]) {
    out.push_str("<g><title>targets that are not known</title>");
    path(out, "e lost", line, 1.4, "");
    tip(out, "tip lost", line);
    out.push_str("</g>");
}

fn path(out: &mut String, class: &str, line: &[Point], width: f64, dashes: &str) {
    put!(out, "<path class=\"{class}\" stroke-width=\"{width:.1}\"");
    dash(out, dashes);
    out.push_str(" d=\"");
    for (i, (x, y)) in line.iter().enumerate() {
        put!(out, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
    }
    out.push_str("\"/>");
}

fn dash(out: &mut String, dashes: &str) {
    if !dashes.is_empty() {
        put!(out, " stroke-dasharray=\"{dashes}\"");
    }
}

/// An arrow head in the direction of the last piece.
fn tip(out: &mut String, class: &str, line: &[Point]) {
    let [.., (x0, y0), (x, y)] = line else { return };
    let length = (x - x0).hypot(y - y0).max(1e-6);
    let (dx, dy) = ((x - x0) / length * 7.0, (y - y0) / length * 7.0);
    put!(
        out,
        "<path class=\"{class}\" d=\"M{x:.1} {y:.1}L{:.1} {:.1}L{:.1} {:.1}Z\"/>",
        x - dx - dy * 0.45,
        y - dy + dx * 0.45,
        x - dx + dy * 0.45,
        y - dy - dx * 0.45
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis_fixture;

    #[test]
    fn the_picture_of_the_copy_loop() {
        insta::assert_snapshot!(svg(&analysis_fixture::analysis()));
    }

    #[test]
    fn hostile_names_stay_text() {
        let mut a = analysis_fixture::analysis();
        a.annotation.procedure = "</text><script>alert(1)</script>".into();
        a.annotation.insns[0].text = "\"><image href=x>".into();
        let text = svg(&a);
        assert!(!text.contains("<script") && !text.contains("<image"), "{text}");
    }

    #[test]
    fn missing_targets_are_dashed_to_a_question_mark() {
        let mut a = analysis_fixture::analysis();
        a.edges.retain(|e| e.from != 2);
        a.missing = vec!["a jump".into()];
        let text = svg(&a);
        assert!(text.contains("class=\"e lost\"") && text.contains(">?<title>"), "{text}");
    }
}
