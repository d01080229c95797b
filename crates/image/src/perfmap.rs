//! Functions of code made at run time, from the text of `/tmp/perf-PID.map`: one line
//! `START SIZE NAME` (hexadecimal, the name may hold spaces) per function, in the order made.

use crate::error::Problem;
use crate::functions::{Function, FunctionTable, NameSource};
use crate::ids::ImageOffset;
use std::collections::BTreeMap;

/// Reads a perf map. Offsets are addresses. Where entries overlap the later line wins, as the engine
/// put new code over old; what is left of the older entry keeps its name.
#[must_use]
pub fn parse_perf_map(text: &[u8]) -> (FunctionTable, Vec<Problem>) {
    let mut layers = Layers::default();
    let mut problems = Vec::new();
    for (i, line) in text.split(|&b| b == b'\n').enumerate().filter(|(_, l)| !l.is_empty()) {
        match entry(line) {
            Some((start, size, name)) => layers.put(start, size, name),
            None if problems.is_empty() => {
                let shown = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
                let sentence = format!("not `START SIZE NAME` but `{shown}`; such lines are left out");
                problems.push(Problem::new(format!("perf map, line {}", i + 1), sentence));
            }
            None => {}
        }
    }
    (layers.into_table(), problems)
}

/// One line; `None` when it is broken or cut, or covers nothing.
fn entry(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (start, rest) = split_at_space(line)?;
    let (size, name) = split_at_space(rest)?;
    let (start, size) = (hex(start)?, hex(size)?);
    start.checked_add(size).filter(|end| *end > start && !name.is_empty())?;
    Some((start, size, name))
}

fn split_at_space(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|b| *b == b' ' || *b == b'\t')?;
    Some((&line[..at], line[at..].trim_ascii_start()))
}

fn hex(digits: &[u8]) -> Option<u64> {
    let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
    let digits = std::str::from_utf8(digits).ok().filter(|d| !d.starts_with('+'))?;
    u64::from_str_radix(digits, 16).ok()
}

/// Disjoint pieces of code, the latest on top.
#[derive(Default)]
pub(crate) struct Layers<'a> {
    /// By start: end and name.
    pieces: BTreeMap<u64, (u64, &'a [u8])>,
}

impl<'a> Layers<'a> {
    /// Puts `name` on `size` > 0 bytes, over what was there.
    pub(crate) fn put(&mut self, start: u64, size: u64, name: &'a [u8]) {
        let end = start.saturating_add(size);
        // The one piece that begins before may reach in, and even beyond.
        let before = self.pieces.range(..start).next_back().map(|(s, p)| (*s, *p));
        if let Some((from, (to, old))) = before.filter(|(_, (to, _))| *to > start) {
            self.pieces.insert(from, (start, old));
            if to > end {
                self.pieces.insert(end, (to, old));
            }
        }
        while let Some((from, (to, old))) = self.pieces.range(start..end).next().map(|(s, p)| (*s, *p)) {
            self.pieces.remove(&from);
            if to > end {
                self.pieces.insert(end, (to, old));
            }
        }
        self.pieces.insert(start, (end, name));
    }

    pub(crate) fn into_table(self) -> FunctionTable {
        let function = |(start, (end, name)): (u64, (u64, &[u8]))| Function {
            start: ImageOffset(start),
            size: end - start,
            name: String::from_utf8_lossy(name).into(),
            source: NameSource::Symbol,
        };
        FunctionTable::new(self.pieces.into_iter().map(function).collect(), ImageOffset(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Vec<(u64, u64, String)> {
        let (table, _) = parse_perf_map(text.as_bytes());
        table.functions().iter().map(|f| (f.start.0, f.size, f.name.to_string())).collect()
    }

    #[test]
    fn plain_lines() {
        assert_eq!(
            parse("7f00 10 LazyCompile:~f a.js:1\n0x8000 0x20 b\r\n"),
            [(0x7f00, 0x10, "LazyCompile:~f a.js:1".into()), (0x8000, 0x20, "b".into())]
        );
    }

    #[test]
    fn broken_lines_are_left_out_and_told() {
        let (table, problems) = parse_perf_map(b"100 10 a\n200\nxyz 10 b\n300 0 empty\nffffffffffffffff 10 c\n400 8 ");
        assert_eq!(table.functions().len(), 1);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].context.ends_with("line 2"));
    }

    proptest! {
        /// Against painting byte by byte.
        #[test]
        fn later_lines_win(entries in proptest::collection::vec((0u64..200, 1u64..50), 1..30)) {
            let mut painted = [None; 300];
            let mut text = String::new();
            for (i, (start, size)) in entries.iter().enumerate() {
                painted[*start as usize..(start + size) as usize].fill(Some(i));
                text.push_str(&format!("{start:x} {size:x} f{i}\n"));
            }
            let (table, problems) = parse_perf_map(text.as_bytes());
            prop_assert!(problems.is_empty());
            for (at, owner) in painted.iter().enumerate() {
                let found = table.find(ImageOffset(at as u64)).map(|f| f.name.to_string());
                prop_assert_eq!(found, owner.map(|i| format!("f{i}")));
            }
        }
    }
}
