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
    /// Nothing is known but the section: pieces of at most 4 KiB, named `.text+OFFSET`.
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
    /// Sorts, keeps the best of those that start at one place (the best source, then the shortest
    /// name without leading underscores), and resolves overlaps: the function that starts later
    /// owns its bytes, and what remains of the earlier one behind it is a further entry of the same
    /// name. Functions of size 0 reach to the next start, or to `end` for the last one.
    #[must_use]
    pub fn new(mut functions: Vec<Function>, end: ImageOffset) -> Self {
        functions.sort_by(|a, b| preference(a).cmp(&preference(b)));
        functions.dedup_by(|later, kept| {
            let same = later.start == kept.start;
            if same && kept.size == 0 {
                kept.size = later.size;
            }
            same
        });
        Self { functions: Sweep::default().run(functions, end.0) }
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

    /// From functions that are already sorted and disjoint; `None` when they are not.
    pub(crate) fn from_sorted(functions: Vec<Function>) -> Option<Self> {
        let whole = functions.iter().all(|f| f.size > 0 && f.start.0.checked_add(f.size).is_some());
        let disjoint = functions.windows(2).all(|w| w[0].start.0 + w[0].size <= w[1].start.0);
        (whole && disjoint).then_some(Self { functions })
    }
}

/// What makes one of two functions at the same place the better one, after the place itself.
fn preference(f: &Function) -> (ImageOffset, NameSource, usize, usize, &str) {
    (f.start, f.source, leading_underscores(&f.name), f.name.len(), &f.name)
}

fn leading_underscores(name: &str) -> usize {
    name.bytes().take_while(|&b| b == b'_').count()
}

/// Walks functions by start and hands out every byte to the innermost one open there.
#[derive(Default)]
struct Sweep {
    /// Functions that began and did not end yet, with their ends; the last is the innermost.
    open: Vec<(Function, u64)>,
    done: Vec<Function>,
    /// Everything below is handed out.
    position: u64,
}

impl Sweep {
    fn run(mut self, functions: Vec<Function>, end: u64) -> Vec<Function> {
        self.done.reserve(functions.len());
        let mut functions = functions.into_iter().peekable();
        while let Some(f) = functions.next() {
            self.advance(f.start.0);
            let next = functions.peek().map_or(end, |n| n.start.0);
            let stop = if f.size == 0 { self.room(f.start.0, next) } else { f.start.0.saturating_add(f.size) };
            self.position = f.start.0;
            self.open.push((f, stop));
        }
        self.advance(u64::MAX);
        self.done
    }

    /// Where a function without size ends: at the next start, but not behind the one around it.
    fn room(&self, start: u64, next: u64) -> u64 {
        let around = self.open.last().map(|(_, stop)| *stop).filter(|stop| *stop > start);
        around.map_or(next, |stop| stop.min(next)).max(start)
    }

    /// Hands out the bytes below `limit`.
    fn advance(&mut self, limit: u64) {
        while let Some((f, stop)) = self.open.last() {
            let until = (*stop).min(limit);
            if self.position < until {
                let (start, size) = (ImageOffset(self.position), until - self.position);
                self.done.push(Function { start, size, ..f.clone() });
                self.position = until;
            }
            if *stop > limit {
                return;
            }
            self.open.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn function(start: u64, size: u64, name: &str, source: NameSource) -> Function {
        Function { start: ImageOffset(start), size, name: name.into(), source }
    }

    fn symbols(list: &[(u64, u64, &str)], end: u64) -> Vec<(u64, u64, String)> {
        let functions =
            list.iter().map(|(start, size, name)| function(*start, *size, name, NameSource::Symbol)).collect();
        let table = FunctionTable::new(functions, ImageOffset(end));
        table.functions().iter().map(|f| (f.start.0, f.size, f.name.to_string())).collect()
    }

    #[test]
    fn best_name_at_one_place() {
        assert_eq!(
            symbols(&[(0, 4, "__write"), (0, 4, "write"), (0, 4, "_w"), (0, 4, "write64")], 9),
            [(0, 4, "write".into())]
        );
        let mixed = vec![function(0, 8, "a", NameSource::Unwind), function(0, 4, "__b", NameSource::Symbol)];
        assert_eq!(FunctionTable::new(mixed, ImageOffset(8)).functions(), [function(0, 4, "__b", NameSource::Symbol)]);
    }

    #[test]
    fn sizes_are_filled_in_and_overlaps_resolved() {
        assert_eq!(symbols(&[(2, 0, "a"), (5, 0, "b")], 9), [(2, 3, "a".into()), (5, 4, "b".into())]);
        // A size from an alias serves the better name without one.
        assert_eq!(symbols(&[(2, 0, "a"), (2, 3, "_a")], 9), [(2, 3, "a".into())]);
        // What is left of the outer function behind the inner one keeps its name.
        assert_eq!(
            symbols(&[(0, 10, "outer"), (4, 2, "inner")], 0),
            [(0, 4, "outer".into()), (4, 2, "inner".into()), (6, 4, "outer".into())]
        );
        assert_eq!(
            symbols(&[(0, 10, "outer"), (4, 0, "mark"), (20, 1, "far")], 0),
            [(0, 4, "outer".into()), (4, 6, "mark".into()), (20, 1, "far".into())]
        );
        assert_eq!(symbols(&[(3, 0, "behind the end")], 2), []);
    }

    proptest! {
        /// Every byte belongs to the function with a size that starts last at or before it.
        #[test]
        fn against_painting(list in proptest::collection::vec((0u64..100, 1u64..40), 0..25)) {
            let functions: Vec<_> = list.iter().map(|(start, size)| function(*start, *size, &format!("f{start}"), NameSource::Symbol)).collect();
            let table = FunctionTable::new(functions.clone(), ImageOffset(0));
            let mut kept: BTreeMap<u64, u64> = BTreeMap::new();
            // The sort is stable and names at one place are equal: the first one stays.
            for f in &functions {
                kept.entry(f.start.0).or_insert(f.size);
            }
            for at in 0..150 {
                let expected = kept.range(..=at).rev().find(|(start, size)| at - **start < **size).map(|(start, _)| format!("f{start}"));
                prop_assert_eq!(table.find(ImageOffset(at)).map(|f| f.name.to_string()), expected, "at {}", at);
            }
            for pair in table.functions().windows(2) {
                prop_assert!(pair[0].start.0 + pair[0].size <= pair[1].start.0);
            }
        }
    }

    use std::collections::BTreeMap;
}
