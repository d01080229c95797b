//! The graph in the language of Graphviz, for those who want its layouts.

use super::{Graph, MOST_BLOCKS, above, lines};
use std::fmt::Write as _;
use whither_cycles::results::analysis::{Analysis, Confidence};

/// Characters of a line of the graph's label.
const HEAD_WIDTH: usize = 120;

/// A `digraph`.
#[must_use]
pub fn dot(a: &Analysis) -> String {
    let graph = Graph::new(a, MOST_BLOCKS);
    let mut out = format!("digraph \"{}\" {{\n", quoted(&a.annotation.procedure));
    out.push_str("  node [shape=box, fontname=monospace, fontsize=10, style=filled];\n  edge [fontname=monospace, fontsize=9];\n");
    let told =
        above(a, &graph).iter().flat_map(|s| lines(s, HEAD_WIDTH)).map(|l| quoted(&l) + "\\l").collect::<String>();
    put(&mut out, format!("label=\"{}\\l{told}\", labelloc=t, labeljust=l", quoted(&a.annotation.procedure)));
    for at in 0..graph.nodes.len() {
        let b = graph.block(at);
        let heat = if b.share.is_finite() { b.share.clamp(0.0, 1.0).sqrt() * 0.7 } else { 0.0 };
        let lines: String = graph.lines(at).iter().map(|l| quoted(l) + "\\l").collect();
        put(
            &mut out,
            format!(
                "b{} [label=\"{lines}\", fillcolor=\"0.062 {heat:.2} 1.0\", style=\"filled,{}\", tooltip=\"{}\"]",
                graph.nodes[at],
                style(b.frequency.confidence),
                quoted(&graph.tooltip(at))
            ),
        );
    }
    for (from, to, e) in &graph.edges {
        put(
            &mut out,
            format!(
                "b{} -> b{} [label=\"{}\", penwidth={:.1}, style={}, tooltip=\"{}\"]",
                graph.nodes[*from],
                graph.nodes[*to],
                quoted(&graph.edge_label(e).unwrap_or_default()),
                graph.width(e.frequency.value),
                style(e.frequency.confidence),
                quoted(&graph.edge_tooltip(e))
            ),
        );
    }
    for (n, from) in graph.unknown.iter().enumerate() {
        put(&mut out, format!("u{n} [label=\"?\", shape=plaintext, style=\"\"]"));
        put(&mut out, format!("b{} -> u{n} [style=dashed, color=red]", graph.nodes[*from]));
    }
    out.push_str("}\n");
    out
}

fn put(out: &mut String, line: String) {
    // Writing into memory cannot fail.
    let _ = writeln!(out, "  {line};");
}

fn style(c: Confidence) -> &'static str {
    match c {
        Confidence::High => "solid",
        Confidence::Medium => "dashed",
        Confidence::Low => "dotted",
    }
}

/// Text between double quotes.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis_fixture;

    #[test]
    fn the_graph_of_the_copy_loop() {
        let mut a = analysis_fixture::analysis();
        a.annotation.procedure = "a\"b".into();
        insta::assert_snapshot!(dot(&a));
    }
}
