//! A table of functions of one image: sorted, non-overlapping, searched by position. How it is
//! filled (symbol tables, unwind tables, kallsyms, perf maps) lives in the parsers beside it.

use crate::ids::ImageOffset;
use serde::{Deserialize, Serialize};

/// Where a function's name and extent come from; better sources first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NameSource {
    /// `.symtab` or `.dynsym` of the file, its debug file, kallsyms, or a perf map.
    Symbol,
    /// A procedure-linkage stub named after the symbol it jumps to (`puts@plt`).
    Plt,
    /// Extent from `.eh_frame`; no name, printed as `fn@ADDRESS`.
    Unwind,
    /// Nothing is known but the section (`.text+...`).
    Section,
}

/// One function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// First byte, in the unit of the image's kind.
    pub start: ImageOffset,
    /// Bytes; never 0 in a finished table.
    pub size: u64,
    /// Mangled name as in the symbol table.
    pub name: Box<str>,
    /// Where it comes from.
    pub source: NameSource,
}

/// Functions sorted by start, non-overlapping.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionTable {
    functions: Vec<Function>,
}

impl FunctionTable {
    /// Sorts, drops duplicates (the best source, then the shortest name without leading underscores,
    /// wins), and cuts a function where the next one starts. Functions of size 0 reach to the next
    /// start, or to `end` for the last one.
    #[must_use]
    pub fn new(mut functions: Vec<Function>, end: ImageOffset) -> Self {
        functions.sort_by(|a, b| {
            (a.start, a.source, leading_underscores(&a.name), a.name.len(), &a.name)
                .cmp(&(b.start, b.source, leading_underscores(&b.name), b.name.len(), &b.name))
        });
        functions.dedup_by(|later, kept| {
            let same = later.start == kept.start;
            if same && kept.size == 0 {
                kept.size = later.size;
            }
            same
        });
        for i in 0..functions.len() {
            let next = functions.get(i + 1).map_or(end.0, |f| f.start.0);
            let room = next.saturating_sub(functions[i].start.0);
            let f = &mut functions[i];
            if f.size == 0 || (f.size > room && room > 0) {
                f.size = room;
            }
        }
        functions.retain(|f| f.size > 0);
        Self { functions }
    }

    /// The function that holds `at`.
    #[must_use]
    pub fn find(&self, at: ImageOffset) -> Option<&Function> {
        let i = self.functions.partition_point(|f| f.start <= at).checked_sub(1)?;
        let f = &self.functions[i];
        (at.0 - f.start.0 < f.size).then_some(f)
    }

    /// All functions, sorted by start.
    #[must_use]
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }
}

fn leading_underscores(name: &str) -> usize {
    name.bytes().take_while(|&b| b == b'_').count()
}
