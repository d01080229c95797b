//! Function names of stripped Go programs: the runtime needs them for its own stack traces, so they stay in the file
//! (`.gopclntab`) when the symbol table goes (`-ldflags=-s`). The layout is that of Go 1.18 and later; where files and
//! lines of instructions are is not read.

use crate::bytes::Bytes;
use crate::view::{View, string_at};

/// Beginning of the table, since Go 1.18 and since Go 1.20.
const MAGICS: [u32; 2] = [0xffff_fff0, 0xffff_fff1];

/// A function: stated address, size, name.
pub(crate) type GoFunction<'a> = (u64, u64, &'a [u8]);

/// All functions in the table; none where there is no table, or it cannot be told where its code lies.
pub(crate) fn go_functions<'a>(view: &View<'a>) -> Vec<GoFunction<'a>> {
    read(view).unwrap_or_default()
}

/// Whether a file was made by Go's linker: its run-time system is in it, and its functions keep frame pointers.
#[must_use]
pub fn is_go_program(file: &Bytes) -> bool {
    View::parse(file).is_ok_and(|view| is_go(&view))
}

pub(crate) fn is_go(view: &View<'_>) -> bool {
    TABLES.iter().any(|name| view.section(name).is_some())
}

/// Sections that hold the table.
const TABLES: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

fn read<'a>(view: &View<'a>) -> Option<Vec<GoFunction<'a>>> {
    let section = TABLES.iter().find_map(|name| view.section(name))?;
    let table = Table::new(view, view.bytes(section)?)?;
    let text = table.text(view)?;
    let function = |i: usize| {
        let (start, name) = table.function(i)?;
        let (end, _) = table.entry(i + 1)?;
        let size = u64::from(end).checked_sub(start.into()).filter(|size| *size > 0)?;
        Some((text.checked_add(start.into())?, size, name))
    };
    Some((0..table.count).filter_map(function).collect())
}

/// The parts of a table.
struct Table<'v, 'a> {
    view: &'v View<'a>,
    count: usize,
    /// Where the code begins; 0 when that is only known once the program is loaded.
    text: u64,
    names: &'a [u8],
    /// Pairs of start and place of the description, both as distances; the descriptions follow.
    functions: &'a [u8],
}

impl<'v, 'a> Table<'v, 'a> {
    fn new(view: &'v View<'a>, bytes: &'a [u8]) -> Option<Self> {
        let wide = match bytes.get(7)? {
            8 => true,
            4 => false,
            _ => return None,
        };
        let word = |i: usize| {
            if wide { view.u64(bytes, 8 + 8 * i) } else { view.u32(bytes, 8 + 4 * i).map(u64::from) }
        };
        let from = |i: usize| bytes.get(usize::try_from(word(i)?).ok()?..);
        let (functions, names) = (from(7)?, from(3)?);
        let count = usize::try_from(word(0)?).ok().filter(|n| *n < functions.len() / 8)?;
        let known = MAGICS.contains(&view.u32(bytes, 0)?);
        known.then_some(Self { view, count, text: word(2)?, names, functions })
    }

    /// Start of a function, and where it is described; behind the last one, where it ends.
    fn entry(&self, i: usize) -> Option<(u32, usize)> {
        let start = self.view.u32(self.functions, 8 * i)?;
        let described = if i < self.count { self.view.u32(self.functions, 8 * i + 4)? as usize } else { 0 };
        Some((start, described))
    }

    fn function(&self, i: usize) -> Option<(u32, &'a [u8])> {
        let (start, described) = self.entry(i)?;
        let name = self.view.u32(self.functions, described.checked_add(4)?)? as usize;
        Some((start, string_at(self.names, name).filter(|name| !name.is_empty())?))
    }

    /// Stated address of the code. Linkers that leave it to the loader tell by the program's first instruction, which
    /// is that of a function whose name is known.
    fn text(&self, view: &View<'_>) -> Option<u64> {
        let start = match self.text {
            0 => {
                let mut all = (0..self.count).filter_map(|i| self.function(i));
                let (first, _) = all.find(|(_, name)| is_first(name))?;
                view.entry.0.checked_sub(first.into())?
            }
            stated => stated,
        };
        let holds = |s: &crate::ids::Segment| start >= s.address && start - s.address < s.size;
        view.code_segments().iter().any(holds).then_some(start)
    }
}

/// `_rt0_ARCHITECTURE_SYSTEM`, where a program begins that Go's own linker made.
fn is_first(name: &[u8]) -> bool {
    let parts: Vec<&[u8]> = name.split(|b| *b == b'_').collect();
    matches!(parts[..], [b"", b"rt0", _, system] if system != b"lib")
}

#[cfg(test)]
mod tests {
    use crate::functions::{FunctionTable, NameSource};
    use crate::symbols::function_table;
    use crate::view::View;
    use std::path::Path;
    use std::process::Command;

    const PROGRAM: &str = "package main\n//go:noinline\nfunc busy(n int) int { s := 0; for i := 0; i < n; \
                           i++ { s += i ^ s>>3 }; return s }\nfunc main() { println(busy(9)) }\n";

    /// A program built by the Go that is installed; `None` when there is none.
    fn built(dir: &Path, name: &str, flags: &[&str]) -> Option<Vec<u8>> {
        let source = dir.join("main.go");
        std::fs::write(&source, PROGRAM).expect("a scratch directory");
        let out = dir.join(name);
        let mut go = Command::new("go");
        go.arg("build").args(flags).arg("-o").arg(&out).arg(&source);
        go.env("GO111MODULE", "off").env("CGO_ENABLED", "0");
        let done = go.output().ok()?;
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Some(std::fs::read(out).expect("built"))
    }

    fn named<'t>(table: &'t FunctionTable, name: &str) -> Vec<&'t crate::functions::Function> {
        table.functions().iter().filter(|f| &*f.name == name).collect()
    }

    /// What probes are asked for by is what samples are told by.
    #[test]
    fn functions_of_a_stripped_program_are_found_by_name() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let Some(stripped) = built(dir.path(), "bare", &["-ldflags=-s -w"]) else {
            return eprintln!("SKIP: go is not installed");
        };
        let names = crate::code_names::code_names(&stripped, None);
        let found: Vec<_> = names.iter().filter(|n| &*n.name == "main.busy").collect();
        let [one] = found[..] else { panic!("{} names, of these {found:?}", names.len()) };
        let (table, _) = function_table(&stripped, None);
        let View { entry, .. } = View::parse(&stripped).expect("an ELF file");
        assert!(one.size > 0 && one.address != entry);
        assert_eq!(named(&table, "main.busy")[0].size, one.size);
    }

    #[test]
    fn a_stripped_program_keeps_the_names_it_had() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let Some(whole) = built(dir.path(), "whole", &[]) else {
            eprintln!("SKIP: go is not installed");
            return;
        };
        let stripped = built(dir.path(), "stripped", &["-ldflags=-s -w"]).expect("go is installed");
        let movable = built(dir.path(), "movable", &["-buildmode=pie", "-ldflags=-s -w"]).expect("go is installed");
        let (truth, _) = function_table(&whole, None);
        let of_truth = named(&truth, "main.busy")[0];
        let (table, problems) = function_table(&stripped, None);
        let found = named(&table, "main.busy");
        assert_eq!(found.len(), 1, "{problems:?}");
        let code = |file: &[u8], f: &crate::functions::Function, n: u64| {
            let start = usize::try_from(f.start.0).expect("in the file");
            file[start..start + usize::try_from(n).expect("short")].to_vec()
        };
        let n = of_truth.size.min(found[0].size);
        assert_eq!(code(&stripped, found[0], n), code(&whole, of_truth, n), "the same code");
        let named_by_symbol =
            |t: &FunctionTable| t.functions().iter().filter(|f| f.source == NameSource::Symbol).count();
        assert!(named_by_symbol(&table) * 10 > named_by_symbol(&truth) * 9, "nearly all of them");
        let (table, _) = function_table(&movable, None);
        let found = named(&table, "main.busy");
        assert_eq!(found.len(), 1, "a program that is loaded anywhere");
        assert_eq!(code(&movable, found[0], 16), code(&whole, of_truth, 16), "the same code");
    }

    #[test]
    fn a_table_cut_anywhere_ends() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let Some(file) = built(dir.path(), "stripped", &["-ldflags=-s -w"]) else {
            eprintln!("SKIP: go is not installed");
            return;
        };
        for parts in 1..8 {
            let _ = function_table(&file[..file.len() * parts / 8], None);
        }
        let mut wild = file;
        let magic = [0xf1, 0xff, 0xff, 0xff, 0, 0];
        let at = wild.windows(6).position(|w| w == magic).expect("the table");
        for byte in &mut wild[at + 8..at + 80] {
            *byte ^= 0xa5;
        }
        let (table, _) = function_table(&wild, None);
        assert!(named(&table, "main.busy").is_empty());
    }
}
