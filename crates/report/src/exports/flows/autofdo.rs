//! LLVM's text format of sample profiles: per function its lines, counted from the line of its declaration, inlined
//! calls nested. A line counts as often as the most frequent of its instructions.
//!
//! ```text
//! function:TOTAL:HEAD
//!  line[.discriminator]: COUNT [callee:COUNT ...]
//!  line[.discriminator]: inlined:TOTAL
//!   line: COUNT
//! ```

use super::Counted;
use super::bolt::direct_calls;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use whither_image::{Declared, FunctionTable, NameSource, SourceFrame, Svma, to_offset};
use whither_store::model::{Image, ImageId};
use whither_store::symbols::Symbols;

/// Line from the declaration, and discriminator.
type Place = (u32, u32);

/// What one function, or one inlined call of it, counted.
#[derive(Default)]
struct Node {
    lines: BTreeMap<Place, Line>,
    inlined: BTreeMap<(Place, Arc<str>), Node>,
}

#[derive(Default)]
struct Line {
    count: u64,
    calls: BTreeMap<Arc<str>, u64>,
}

impl Node {
    fn total(&self) -> u64 {
        let own = self.lines.values().fold(0u64, |sum, l| sum.saturating_add(l.count));
        self.inlined.values().fold(own, |sum, n| sum.saturating_add(n.total()))
    }

    fn write(&self, depth: usize, out: &mut dyn Write) -> io::Result<()> {
        let indent = " ".repeat(depth);
        for (place, line) in &self.lines {
            write!(out, "{indent}{}: {}", shown(*place), line.count)?;
            for (callee, count) in &line.calls {
                write!(out, " {callee}:{count}")?;
            }
            writeln!(out)?;
        }
        for ((place, function), node) in &self.inlined {
            writeln!(out, "{indent}{}: {function}:{}", shown(*place), node.total())?;
            node.write(depth + 1, out)?;
        }
        Ok(())
    }
}

fn shown((line, discriminator): Place) -> String {
    if discriminator == 0 { line.to_string() } else { format!("{line}.{discriminator}") }
}

/// Writes all functions, most counted first; returns how many had to be left out.
pub(super) fn write(all: &[Counted<'_>], symbols: &dyn Symbols, out: &mut dyn Write) -> io::Result<usize> {
    let declared = declarations(all, symbols);
    let mut functions: FxHashMap<Arc<str>, (Node, u64)> = FxHashMap::default();
    let mut left_out = 0;
    for f in all {
        let known = &declared[&f.flows.image.id];
        let mut node = Node::default();
        count(f, known, symbols, &mut node);
        if node.total() == 0 || !is_writable(&f.flows.name) {
            left_out += 1;
            continue;
        }
        // Functions of one name in several images are one to the compiler.
        let entry = functions.entry(Arc::from(base_name(&f.flows.name))).or_default();
        merge(&mut entry.0, node);
        entry.1 = entry.1.saturating_add(f.entries());
    }
    let mut sorted: Vec<(Arc<str>, (Node, u64))> = functions.into_iter().collect();
    sorted.sort_by(|a, b| b.1.0.total().cmp(&a.1.0.total()).then(a.0.cmp(&b.0)));
    for (name, (node, head)) in &sorted {
        writeln!(out, "{name}:{}:{head}", node.total())?;
        node.write(1, out)?;
    }
    Ok(left_out)
}

/// One reading of the debug information per image.
fn declarations(all: &[Counted<'_>], symbols: &dyn Symbols) -> FxHashMap<ImageId, Declared> {
    let mut images: FxHashMap<ImageId, (&Image, Vec<std::ops::Range<Svma>>)> = FxHashMap::default();
    for f in all {
        let addresses = || f.analysis().insns.iter().map(|i| i.address);
        let range = addresses().min().zip(addresses().max());
        let entry = images.entry(f.flows.image.id).or_insert_with(|| (f.flows.image, Vec::new()));
        entry.1.extend(range.map(|(first, last)| Svma(first)..Svma(last)));
    }
    images.into_iter().map(|(id, (image, ranges))| (id, symbols.declared(image, &ranges))).collect()
}

fn count(f: &Counted<'_>, declared: &Declared, symbols: &dyn Symbols, root: &mut Node) {
    let functions = symbols.functions(f.flows.image);
    let calls: FxHashMap<u64, (Svma, u64)> =
        direct_calls(f, symbols).into_iter().map(|(at, to, n)| (at, (to, n))).collect();
    let a = f.analysis();
    for b in &a.blocks {
        let n = f.count(b.frequency.value);
        for i in a.insns.iter().skip(b.first).take(b.len) {
            let Some(offset) = f.offset(i.address) else { continue };
            let frames = symbols.frames(f.flows.image, offset);
            let discriminator = declared.discriminator(Svma(i.address));
            let Some((node, place)) = find(root, &frames, declared, discriminator) else { continue };
            let line = node.lines.entry(place).or_default();
            line.count = line.count.max(n);
            if let Some((to, n)) = calls.get(&i.address) {
                add_call(line, *to, *n, f, &functions);
            }
        }
    }
}

fn add_call(line: &mut Line, to: Svma, n: u64, f: &Counted<'_>, functions: &FunctionTable) {
    let callee = to_offset(&f.flows.image.segments, to).and_then(|o| functions.find(o).filter(|c| c.start == o));
    if let Some(callee) = callee.filter(|c| c.source == NameSource::Symbol && is_writable(&c.name) && n > 0) {
        let sum = line.calls.entry(Arc::from(base_name(&callee.name))).or_default();
        *sum = sum.saturating_add(n);
    }
}

/// The node of an inline chain, and the place in it; `None` where a line is not known.
fn find<'n>(
    root: &'n mut Node,
    frames: &[SourceFrame],
    declared: &Declared,
    discriminator: u32,
) -> Option<(&'n mut Node, Place)> {
    let mut node = root;
    for (depth, frame) in frames.iter().enumerate().rev() {
        let function = frame.function.as_ref()?;
        let first = declared.line(function).filter(|_| frame.line > 0)?;
        // The compiler keeps 16 bits of the distance, also of a negative one.
        let line = frame.line.wrapping_sub(first) & 0xffff;
        if depth == 0 {
            return Some((node, (line, discriminator)));
        }
        let callee = frames[depth - 1].function.clone().filter(|c| is_writable(c))?;
        node = node.inlined.entry(((line, 0), callee)).or_default();
    }
    None
}

fn merge(into: &mut Node, from: Node) {
    for (place, line) in from.lines {
        let known = into.lines.entry(place).or_default();
        known.count = known.count.saturating_add(line.count);
        for (callee, n) in line.calls {
            let sum = known.calls.entry(callee).or_default();
            *sum = sum.saturating_add(n);
        }
    }
    for (key, node) in from.inlined {
        merge(into.inlined.entry(key).or_default(), node);
    }
}

/// Clones are the same function to the compiler, which makes them anew.
fn base_name(name: &str) -> &str {
    let suffixes = [".isra.", ".constprop.", ".part.", ".cold", ".llvm.", ".lto_priv."];
    suffixes.iter().filter_map(|s| name.find(s)).min().map_or(name, |i| &name[..i])
}

/// The format is separated by spaces and colons.
fn is_writable(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c == ':')
}
