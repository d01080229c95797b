//! Where functions are declared in the source, and which of several pieces of code on one line an address belongs to
//! (DWARF's discriminators): what compilers count lines of a profile by. Names that are declared on several lines are
//! left out rather than guessed.

use crate::dwarf::Slice;
use crate::ids::Svma;
use crate::split::{Split, left_out};
use gimli::{AttributeValue, DebuggingInformationEntry, Dwarf, Reader, Unit, constants as c};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// A hostile tree or table could go on for ever.
const MOST_ENTRIES: usize = 100_000_000;
/// A specification that points to itself ends here.
const MOST_STEPS: u32 = 4;

/// Declarations of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// Line of each function by linkage name; `None` where several functions share the name.
    lines: FxHashMap<Box<str>, Option<u32>>,
    /// Functions of which calls were inlined, by the same names.
    inlined: FxHashSet<Box<str>>,
    /// Functions without a line, by the same names: those that compilers make.
    unplaced: FxHashSet<Box<str>>,
    /// Something could not be read, and may hold more functions.
    partial: bool,
    /// Discriminators by the address at which they begin to hold, sorted.
    discriminators: Vec<(u64, u32)>,
}

impl Declared {
    /// Line on which the function is declared where it is defined.
    #[must_use]
    pub fn line(&self, function: &str) -> Option<u32> {
        self.lines.get(function).copied().flatten()
    }

    /// Whether calls of the function were inlined into its callers, some or all.
    #[must_use]
    pub fn is_inlined(&self, function: &str) -> bool {
        self.inlined.contains(function)
    }

    /// Whether a function of such a name is certainly not part of the image, under its own name or within others.
    #[must_use]
    pub fn lacks(&self, wanted: impl Fn(&str) -> bool) -> bool {
        !self.partial && !self.lines.keys().chain(&self.unplaced).any(|name| wanted(name))
    }

    /// Discriminator at an address, 0 without.
    #[must_use]
    pub fn discriminator(&self, at: Svma) -> u32 {
        let end = self.discriminators.partition_point(|(address, _)| *address <= at.0);
        end.checked_sub(1).map_or(0, |i| self.discriminators[i].1)
    }
}

/// Reads all units; discriminators only of code inside `ranges`. Broken units are passed over.
pub(crate) fn declared<'a>(dwarf: &Dwarf<Slice<'a>>, ranges: &[Range<Svma>], split: &'a Split) -> Declared {
    let mut out = Declared::default();
    let mut left = MOST_ENTRIES;
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        let Ok(unit) = dwarf.unit(header) else {
            out.partial = true;
            continue;
        };
        // What was read before the broken entry stays right.
        let here = functions(dwarf, &unit, &mut left, &mut out);
        let there = elsewhere(dwarf, &unit, split, &mut left, &mut out);
        out.partial |= here.is_err() || there.is_err();
        let _ = rows(&unit, ranges, &mut left, &mut out);
    }
    out.partial |= left == 0;
    // Where sequences meet, the one that begins wins over the one that ends.
    out.discriminators.sort_by_key(|(at, d)| (*at, *d));
    out.discriminators.reverse();
    out.discriminators.dedup_by_key(|(at, _)| *at);
    out.discriminators.reverse();
    out
}

/// Functions of the part of a unit that lies in a file of its own.
fn elsewhere<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    unit: &Unit<Slice<'a>>,
    split: &'a Split,
    left: &mut usize,
    out: &mut Declared,
) -> gimli::Result<()> {
    let Some((id, directory, name)) = left_out(dwarf, unit) else { return Ok(()) };
    let Some(dwarf) = split.open(id, &directory, &name, dwarf) else {
        out.partial = true;
        return Ok(());
    };
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        functions(&dwarf, &dwarf.unit(header)?, left, out)?;
    }
    Ok(())
}

fn functions<R: Reader>(dwarf: &Dwarf<R>, unit: &Unit<R>, left: &mut usize, out: &mut Declared) -> gimli::Result<()> {
    let mut entries = unit.entries();
    while let Some(entry) = entries.next_dfs()? {
        *left = left.saturating_sub(1);
        if *left == 0 {
            break;
        }
        // Concrete copies of inlined functions repeat what their origin says.
        let is_definition = entry.tag() == c::DW_TAG_subprogram
            && entry.attr(c::DW_AT_declaration).is_none()
            && entry.attr(c::DW_AT_abstract_origin).is_none();
        if !is_definition {
            continue;
        }
        let Some(name) = name(dwarf, unit, entry, MOST_STEPS) else {
            out.partial = true;
            continue;
        };
        let Some(line) = line(dwarf, unit, entry, MOST_STEPS) else {
            out.unplaced.insert(name.into());
            continue;
        };
        if is_inlined(entry) {
            out.inlined.insert(name.as_str().into());
        }
        let known = out.lines.entry(name.into()).or_insert(Some(line));
        if *known != Some(line) {
            *known = None;
        }
    }
    Ok(())
}

/// Whether the compiler inlined it somewhere, asked to or not (DWARF 5, 3.3.8.1).
fn is_inlined<R: Reader>(entry: &DebuggingInformationEntry<R>) -> bool {
    let told = entry.attr_value(c::DW_AT_inline);
    matches!(told, Some(AttributeValue::Inline(c::DW_INL_inlined | c::DW_INL_declared_inlined)))
}

/// The linkage name, else the plain one; of what the entry specifies if it has none itself.
fn name<R: Reader>(
    dwarf: &Dwarf<R>,
    unit: &Unit<R>,
    entry: &DebuggingInformationEntry<R>,
    steps: u32,
) -> Option<String> {
    for attribute in [c::DW_AT_linkage_name, c::DW_AT_MIPS_linkage_name] {
        if let Some(text) = text(dwarf, unit, entry, attribute) {
            return Some(text);
        }
    }
    let specified = specified(dwarf, unit, entry, steps, name);
    specified.or_else(|| text(dwarf, unit, entry, c::DW_AT_name))
}

fn text<R: Reader>(
    dwarf: &Dwarf<R>,
    unit: &Unit<R>,
    entry: &DebuggingInformationEntry<R>,
    attribute: gimli::DwAt,
) -> Option<String> {
    let raw = dwarf.attr_string(unit, entry.attr_value(attribute)?).ok()?;
    Some(raw.to_string_lossy().ok()?.into_owned())
}

fn line<R: Reader>(dwarf: &Dwarf<R>, unit: &Unit<R>, entry: &DebuggingInformationEntry<R>, steps: u32) -> Option<u32> {
    let own = entry.attr_value(c::DW_AT_decl_line).and_then(|v| v.udata_value());
    match own {
        Some(own) => u32::try_from(own).ok(),
        None => specified(dwarf, unit, entry, steps, line),
    }
}

type Asked<R, T> = fn(&Dwarf<R>, &Unit<R>, &DebuggingInformationEntry<R>, u32) -> Option<T>;

/// Asks the declaration that a definition specifies.
fn specified<R: Reader, T>(
    dwarf: &Dwarf<R>,
    unit: &Unit<R>,
    entry: &DebuggingInformationEntry<R>,
    steps: u32,
    ask: Asked<R, T>,
) -> Option<T> {
    let steps = steps.checked_sub(1)?;
    match entry.attr_value(c::DW_AT_specification)? {
        AttributeValue::UnitRef(at) => ask(dwarf, unit, &unit.entry(at).ok()?, steps),
        // In another unit only after link-time optimisation; that unit would have to be parsed for each function.
        AttributeValue::DebugInfoRef(at) => {
            let at = at.to_unit_offset(&unit.header)?;
            ask(dwarf, unit, &unit.entry(at).ok()?, steps)
        }
        _ => None,
    }
}

fn rows<R: Reader>(unit: &Unit<R>, ranges: &[Range<Svma>], left: &mut usize, out: &mut Declared) -> gimli::Result<()> {
    let Some(program) = unit.line_program.clone() else { return Ok(()) };
    let mut rows = program.rows();
    while let Some((_, row)) = rows.next_row()? {
        *left = left.saturating_sub(1);
        if *left == 0 {
            break;
        }
        let at = row.address();
        if ranges.iter().any(|r| r.start.0 <= at && at <= r.end.0) {
            let discriminator = if row.end_sequence() { 0 } else { row.discriminator() };
            out.discriminators.push((at, u32::try_from(discriminator).unwrap_or(0)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, LineService};

    /// Two functions on known lines; our own builds have line tables only, which declare nothing.
    const SOURCE: &str = "\n\nint first(int x)\n{\n    return x + 1;\n}\nint main(void) { return first(1); }\n";

    /// What a program in C declares, built at a level of optimisation.
    fn told(source: &str, level: &str) -> Declared {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (file, program) = (dir.path().join("s.c"), dir.path().join("s"));
        std::fs::write(&file, source).expect("writable");
        let built = std::process::Command::new("cc").args(["-g", level, "-o"]).arg(&program).arg(&file).status();
        assert!(built.expect("cc").success());
        let bytes = Bytes::from(std::fs::read(&program).expect("just built"));
        LineService::new(&bytes, None).expect("it has lines").declared(&[])
    }

    #[test]
    fn functions_are_declared_where_they_stand() {
        let all = told(SOURCE, "-O1");
        assert_eq!((all.line("first"), all.line("main"), all.line("no_such_function")), (Some(3), Some(7), None));
    }

    #[test]
    fn inlined_functions_are_told() {
        let source = "static int small(int x) { return x + 1; }\nint kept(int x) { return x * 3; }\n\
                      int main(int c, char **v) { return small(c) + small(c * 2); }\n";
        let all = told(source, "-O2");
        assert!(all.is_inlined("small") && !all.is_inlined("kept") && !all.is_inlined("main"));
        // Optimised away as a function of its own, and there all the same.
        assert!(!all.lacks(|name| name == "small") && all.lacks(|name| name == "smal"));
        assert!(!Declared { partial: true, ..all }.lacks(|name| name == "smal"), "it may be in what could not be read");
    }

    #[test]
    fn a_discriminator_holds_until_the_next_row() {
        let all = Declared { discriminators: vec![(0x10, 0), (0x18, 3), (0x20, 0)], ..Declared::default() };
        assert_eq!([0x8, 0x10, 0x18, 0x1f, 0x20].map(|at| all.discriminator(Svma(at))), [0, 0, 3, 3, 0]);
    }
}
