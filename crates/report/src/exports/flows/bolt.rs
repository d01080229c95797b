//! Branches for `llvm-bolt -data=FILE`: `1 FROM offset 1 TO offset mispredictions count`, offsets in hexadecimal from
//! the symbol. Mispredictions are not known and written as 0; fall-throughs BOLT works out itself.

use super::{Counted, symbol_at};
use std::io::{self, Write};
use std::sync::Arc;
use whither_image::{Flow, FunctionTable, ImageOffset, NameSource, Svma, decode, to_offset};
use whither_store::symbols::Symbols;

pub(super) fn write(all: &[Counted<'_>], symbols: &dyn Symbols, out: &mut dyn Write) -> io::Result<()> {
    for f in all {
        let functions = symbols.functions(f.flows.image);
        jumps(f, &functions, out)?;
        calls(f, &functions, symbols, out)?;
    }
    Ok(())
}

fn jumps(f: &Counted<'_>, functions: &FunctionTable, out: &mut dyn Write) -> io::Result<()> {
    let a = f.analysis();
    for e in a.edges.iter().filter(|e| e.kind == "taken" || e.kind == "table") {
        let (Some(from), Some(to)) = (a.blocks.get(e.from), a.blocks.get(e.to)) else { continue };
        let Some(last) = f.last(from) else { continue };
        let places = symbol_at(functions, f, last).zip(symbol_at(functions, f, to.address));
        if let Some((from, to)) = places {
            branch(out, &from, &to, f.count(e.frequency.value))?;
        }
    }
    Ok(())
}

/// Direct calls run as often as their block.
fn calls(f: &Counted<'_>, functions: &FunctionTable, symbols: &dyn Symbols, out: &mut dyn Write) -> io::Result<()> {
    for (at, to, count) in direct_calls(f, symbols) {
        let callee = to_offset(&f.flows.image.segments, to)
            .and_then(|o| functions.find(o).map(|c| (o, c)))
            .filter(|(_, c)| matches!(c.source, NameSource::Symbol | NameSource::Plt));
        let Some((offset, callee)) = callee else { continue };
        if let Some(from) = symbol_at(functions, f, at) {
            branch(out, &from, &(Arc::from(&*callee.name), offset.0 - callee.start.0), count)?;
        }
    }
    Ok(())
}

/// Address, target and count of each direct call.
pub(super) fn direct_calls(f: &Counted<'_>, symbols: &dyn Symbols) -> Vec<(u64, Svma, u64)> {
    let a = f.analysis();
    let mut out = Vec::new();
    for b in &a.blocks {
        let count = f.count(b.frequency.value);
        for i in a.insns.iter().skip(b.first).take(b.len) {
            if let Some(Flow::Call(to)) = flow_at(f, i.address, symbols) {
                out.push((i.address, to, count));
            }
        }
    }
    out
}

fn flow_at(f: &Counted<'_>, address: u64, symbols: &dyn Symbols) -> Option<Flow> {
    const LONGEST: u64 = 15;
    let start = f.offset(address)?;
    let end = ImageOffset(start.0.saturating_add(LONGEST));
    let whole = symbols.code(f.flows.image, start..end);
    // At the end of a segment there are fewer bytes.
    let code = whole.or_else(|| symbols.code(f.flows.image, start..ImageOffset(start.0 + 5)))?;
    decode(&code, Svma(address)).first().map(|i| i.flow)
}

fn branch(out: &mut dyn Write, from: &(Arc<str>, u64), to: &(Arc<str>, u64), count: u64) -> io::Result<()> {
    if count == 0 || !is_writable(&from.0) || !is_writable(&to.0) {
        return Ok(());
    }
    writeln!(out, "1 {} {:x} 1 {} {:x} 0 {count}", from.0, from.1, to.0, to.1)
}

/// The format is separated by spaces.
fn is_writable(name: &str) -> bool {
    !name.is_empty() && !name.contains(char::is_whitespace)
}
