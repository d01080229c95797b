//! Call paths as folded stacks, the input of flame graph tools: one line per path that ends in a measured
//! function, outermost caller first, weighted by the metric the tree was built with.

use super::failed;
use super::folded::clean;
use crate::error::Error;
use std::io::Write;
use whither_calls::{Analysis, TreeQuery};

/// Writes the paths of a tree; own weights, so that the lines add up to the whole. Each line as it is met: all of them may be
/// hundreds of megabytes.
///
/// # Errors
/// [`Error::Empty`] when the tree weighs nothing, [`Error::Write`] when `out` fails.
pub fn folded(analysis: &Analysis<'_>, query: &TreeQuery, out: &mut dyn Write) -> Result<(), Error> {
    let mut path = String::new();
    // Where the names of the nodes around begin.
    let mut begins: Vec<usize> = Vec::new();
    let any = analysis.walk(query, &mut |node| {
        path.truncate(begins.get(node.depth).copied().unwrap_or(path.len()));
        begins.truncate(node.depth);
        begins.push(path.len());
        if node.depth > 0 {
            path.push(';');
        }
        path.push_str(&clean(node.name));
        path.push_str(if node.inlined { "_[i]" } else { "" });
        if node.own > 0 { writeln!(out, "{path} {}", node.own).map_err(failed("folded")) } else { Ok(()) }
    })?;
    if any { Ok(()) } else { Err(Error::Empty { event: "call paths".into() }) }
}
