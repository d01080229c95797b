//! Call paths as folded stacks, the input of flame graph tools: one line per path that ends in a measured
//! function, outermost caller first, weighted by the metric the tree was built with.

use super::failed;
use super::folded::clean;
use crate::error::Error;
use std::io::Write;
use whither_calls::TreeNode;

/// Writes the paths of a tree; own weights, so that the lines add up to the whole.
///
/// # Errors
/// [`Error::Empty`] when the tree weighs nothing, [`Error::Write`] when `out` fails.
pub fn folded(root: &TreeNode, out: &mut dyn Write) -> Result<(), Error> {
    if root.total == 0 {
        return Err(Error::Empty { event: "call paths".into() });
    }
    let mut work: Vec<(&TreeNode, String)> = root.children.iter().rev().map(|c| (c, text(c))).collect();
    while let Some((node, path)) = work.pop() {
        if node.own > 0 {
            writeln!(out, "{path} {}", node.own).map_err(failed("folded"))?;
        }
        work.extend(node.children.iter().rev().map(|c| (c, format!("{path};{}", text(c)))));
    }
    Ok(())
}

fn text(node: &TreeNode) -> String {
    clean(&node.name) + if node.inlined { "_[i]" } else { "" }
}
