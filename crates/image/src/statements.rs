//! Where the statements of a source file begin in the code: the rows of the line tables that compilers
//! recommend for breakpoints. Rows without code of their own are kept (a statement that was merged with
//! the next one still has a place), and code that the linker dropped is left out.

use crate::ids::Svma;
use gimli::{AttributeValue, Dwarf, LineRow, Reader, Unit};
use std::collections::BTreeSet;

/// A hostile table could go on for ever.
const MOST_ROWS: usize = 50_000_000;

/// The first instruction of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Statement {
    /// Stated address.
    pub at: Svma,
    /// Line in the source file.
    pub line: u32,
}

/// Statements of files whose path ends in `file` (whole components), by address; broken units are passed over.
pub(crate) fn statements<R: Reader>(dwarf: &Dwarf<R>, file: &str) -> Vec<Statement> {
    let mut found = BTreeSet::new();
    let mut left = MOST_ROWS;
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        if let Ok(unit) = dwarf.unit(header) {
            // What was read before the broken row stays right.
            let _ = of_unit(dwarf, &unit, file, &mut left, &mut found);
        }
    }
    found.into_iter().collect()
}

fn of_unit<R: Reader>(
    dwarf: &Dwarf<R>,
    unit: &Unit<R>,
    file: &str,
    left: &mut usize,
    found: &mut BTreeSet<Statement>,
) -> gimli::Result<()> {
    let Some(program) = unit.line_program.clone() else { return Ok(()) };
    let names = program.header().file_names().len() as u64;
    let wanted: Vec<u64> = (0..=names).filter(|&i| is_wanted(dwarf, unit, i, file)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let mut rows = program.rows();
    // Code that was dropped keeps its rows, at address 0 or thereabouts.
    let mut dropped = true;
    let mut begins = true;
    while let Some((_, row)) = rows.next_row()? {
        *left = left.saturating_sub(1);
        if *left == 0 {
            break;
        }
        if begins {
            dropped = row.address() < 0x100;
        }
        begins = row.end_sequence();
        if !dropped && is_statement(row) && wanted.contains(&row.file_index()) {
            let line = row.line().and_then(|l| u32::try_from(l.get()).ok()).unwrap_or(0);
            if line > 0 {
                found.insert(Statement { at: Svma(row.address()), line });
            }
        }
    }
    Ok(())
}

fn is_statement(row: &LineRow) -> bool {
    row.is_stmt() && !row.end_sequence()
}

fn is_wanted<R: Reader>(dwarf: &Dwarf<R>, unit: &Unit<R>, index: u64, file: &str) -> bool {
    path(dwarf, unit, index).is_some_and(|path| ends_in(&path, file))
}

/// Whether a path ends in another one, component by component.
#[must_use]
pub fn ends_in(path: &str, file: &str) -> bool {
    path.strip_suffix(file).is_some_and(|rest| rest.is_empty() || rest.ends_with('/') || file.starts_with('/'))
}

fn path<R: Reader>(dwarf: &Dwarf<R>, unit: &Unit<R>, index: u64) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let entry = header.file(index)?;
    let text = |value: AttributeValue<R, R::Offset>| {
        let raw = dwarf.attr_string(unit, value).ok()?;
        Some(raw.to_string_lossy().ok()?.into_owned())
    };
    let name = text(entry.path_name())?;
    if name.starts_with('/') {
        return Some(name);
    }
    let directory = entry.directory(header).and_then(text).unwrap_or_default();
    let unit_directory = unit.comp_dir.as_ref().and_then(|d| Some(d.to_string_lossy().ok()?.into_owned()));
    let base = if directory.starts_with('/') { String::new() } else { unit_directory.unwrap_or_default() };
    Some([base, directory, name].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, LineService};

    #[inline(never)]
    fn marked() -> u32 {
        std::hint::black_box(line!())
    }

    #[test]
    fn our_own_statements() {
        let bytes = std::fs::read(std::env::current_exe().expect("a path")).expect("our own file");
        let lines = LineService::new(&Bytes::from(bytes), None).expect("tests have lines");
        let all = lines.statements("image/src/statements.rs");
        let line = marked();
        let ours: Vec<&Statement> = all.iter().filter(|s| s.line.abs_diff(line) <= 1).collect();
        assert!(!ours.is_empty(), "no statement of line {line} among {}", all.len());
        let here = lines.frames(ours[0].at);
        assert!(here.iter().any(|f| f.file.as_deref().is_some_and(|f| ends_in(f, "statements.rs"))), "{here:?}");
        assert!(lines.statements("no/such/file.rs").is_empty());
    }

    #[test]
    fn ends_of_paths() {
        assert!(ends_in("/a/b.c", "b.c") && ends_in("/a/b.c", "/a/b.c") && ends_in("b.c", "b.c"));
        assert!(!ends_in("/a/xb.c", "b.c") && !ends_in("/a/b.c", "c.c"));
    }
}
