//! Kernel symbols from the text of `/proc/kallsyms` and `/proc/modules`, as tables whose offsets do
//! not depend on where the kernel was put at boot: the kernel counts from `_stext`, each module from
//! the start of its text, BPF programs from the lowest of them.
//!
//! ```text
//! ffffffff81000000 T _stext
//! ffffffffc0201000 t ftrace_trampoline [__builtin__ftrace]
//! ffffffffc02a4f10 t bpf_prog_6deef7357e7b4530_sd_fw_egress [bpf]
//! ```

use crate::error::{ImageError, Problem};
use crate::functions::{Function, FunctionTable, NameSource};
use crate::ids::ImageOffset;
use std::collections::BTreeMap;

/// Symbols say where they start, not where they end; the last one of a module ends with its page.
const PAGE: u64 = 4096;

/// Functions of one kernel module, or of all BPF programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleSymbols {
    /// Name as the kernel prints it between brackets; `bpf` for BPF programs.
    pub name: String,
    /// Address in memory that the offsets count from.
    pub base: u64,
    /// Its functions.
    pub functions: FunctionTable,
}

impl ModuleSymbols {
    /// First address behind the last function.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.base + self.functions.functions().last().map_or(0, |f| f.start.0 + f.size)
    }
}

/// All symbols of a running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSymbols {
    /// Address of `_stext`, which the kernel's offsets count from.
    pub stext: u64,
    /// Address of `_etext`, behind the last function; of the last symbol's page end without it.
    pub etext: u64,
    /// Functions of the kernel proper.
    pub functions: FunctionTable,
    /// Modules sorted by base, with the pseudo-modules of trampolines.
    pub modules: Vec<ModuleSymbols>,
    /// BPF programs, trampolines and dispatchers.
    pub bpf: Option<ModuleSymbols>,
    /// Lines that could not be understood.
    pub problems: Vec<Problem>,
}

impl KernelSymbols {
    /// Reads the text of `/proc/kallsyms`, and of `/proc/modules` (empty when it cannot be had: the
    /// lowest symbol of a module then counts as its base).
    ///
    /// # Errors
    /// [`ImageError::KernelAddressesHidden`] when the kernel shows zeros only, and
    /// [`ImageError::NoKernelStart`] without `_stext`.
    pub fn parse(kallsyms: &[u8], modules: &[u8]) -> Result<Self, ImageError> {
        let mut problems = Vec::new();
        let mut lines = 0;
        let mut hidden = true;
        let mut landmarks = Landmarks::default();
        let mut groups: BTreeMap<&[u8], Vec<(u64, &[u8])>> = BTreeMap::new();
        for line in kallsyms.split(|&b| b == b'\n').filter(|l| !l.is_empty()) {
            lines += 1;
            let Some(symbol) = Symbol::parse(line) else {
                note_line(&mut problems, lines, line);
                continue;
            };
            hidden &= symbol.address == 0;
            landmarks.see(&symbol);
            if symbol.is_code() && symbol.address > 0 {
                groups.entry(symbol.module).or_default().push((symbol.address, symbol.name));
            }
        }
        if hidden && lines > 0 {
            return Err(ImageError::KernelAddressesHidden { lines });
        }
        let stext = landmarks.stext.ok_or(ImageError::NoKernelStart { lines })?;
        let mut kernel = groups.remove(b"".as_slice()).unwrap_or_default();
        kernel.retain(|(at, _)| *at >= stext && landmarks.etext.is_none_or(|end| *at < end));
        let etext = landmarks.etext.filter(|e| *e > stext).unwrap_or_else(|| page_end(&kernel, stext));
        let bpf = groups.remove(b"bpf".as_slice()).map(|symbols| module(b"bpf", None, &symbols));
        let bases = module_bases(modules);
        let mut modules: Vec<_> =
            groups.iter().map(|(name, symbols)| module(name, bases.get(name).copied(), symbols)).collect();
        modules.sort_by_key(|m| m.base);
        Ok(Self { stext, etext, functions: table(&kernel, stext, etext), modules, bpf, problems })
    }
}

/// One line of `/proc/kallsyms`.
struct Symbol<'a> {
    address: u64,
    kind: u8,
    name: &'a [u8],
    /// Empty for the kernel proper.
    module: &'a [u8],
}

impl<'a> Symbol<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|&b| b == b' ' || b == b'\t').filter(|f| !f.is_empty());
        let address = hex(fields.next()?)?;
        let &[kind] = fields.next()? else { return None };
        let name = fields.next()?;
        let module = match fields.next() {
            Some(field) => field.strip_prefix(b"[")?.strip_suffix(b"]")?,
            None => b"",
        };
        Some(Self { address, kind, name, module })
    }

    fn is_code(&self) -> bool {
        matches!(self.kind, b't' | b'T' | b'w' | b'W')
    }
}

#[derive(Default)]
struct Landmarks {
    stext: Option<u64>,
    etext: Option<u64>,
}

impl Landmarks {
    fn see(&mut self, symbol: &Symbol<'_>) {
        match symbol.name {
            b"_stext" if symbol.module.is_empty() => self.stext = Some(symbol.address),
            b"_etext" if symbol.module.is_empty() => self.etext = Some(symbol.address),
            _ => {}
        }
    }
}

/// Tells the first broken line only: the rest are mostly broken alike.
fn note_line(problems: &mut Vec<Problem>, number: usize, line: &[u8]) {
    if problems.is_empty() {
        let start = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
        problems.push(Problem::new(
            format!("kernel symbols, line {number}"),
            format!("not `ADDRESS TYPE NAME [MODULE]` but `{start}`; such lines are left out"),
        ));
    }
}

/// A module's symbols relative to its base; those below it (its read-only data on some kernels) go.
fn module(name: &[u8], base: Option<u64>, symbols: &[(u64, &[u8])]) -> ModuleSymbols {
    let lowest = symbols.iter().map(|s| s.0).min().unwrap_or(0);
    let base = base.filter(|b| symbols.iter().any(|s| s.0 >= *b)).unwrap_or(lowest);
    let end = page_end(symbols, base);
    ModuleSymbols { name: String::from_utf8_lossy(name).into_owned(), base, functions: table(symbols, base, end) }
}

fn page_end(symbols: &[(u64, &[u8])], base: u64) -> u64 {
    let highest = symbols.iter().map(|s| s.0).max().unwrap_or(base);
    highest.saturating_add(1).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX)
}

fn table(symbols: &[(u64, &[u8])], base: u64, end: u64) -> FunctionTable {
    let function = |(at, name): &(u64, &[u8])| {
        let start = ImageOffset(at.checked_sub(base)?);
        Some(Function { start, size: 0, name: String::from_utf8_lossy(name).into(), source: NameSource::Symbol })
    };
    FunctionTable::new(symbols.iter().filter_map(function).collect(), ImageOffset(end.saturating_sub(base)))
}

/// Text addresses by module name; hidden ones (0) are left out.
fn module_bases(modules: &[u8]) -> BTreeMap<&[u8], u64> {
    let base = |line: &'_ [u8]| -> Option<u64> {
        let address = line.split(|&b| b == b' ').find_map(|f| f.strip_prefix(b"0x"))?;
        hex(address).filter(|a| *a > 0)
    };
    let lines = modules.split(|&b| b == b'\n');
    lines.filter_map(|line| Some((line.split(|&b| b == b' ').next()?, base(line)?))).collect()
}

fn hex(digits: &[u8]) -> Option<u64> {
    // The library's reader also takes a sign, which no kernel writes.
    let digits = std::str::from_utf8(digits).ok().filter(|d| !d.starts_with('+'))?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff80ffff00 T before
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000000 T first
ffffffff81000040 t second
ffffffff81000080 D data
ffffffff81000100 W __third
ffffffff81000200 T _etext
ffffffff83783000 T init_function
ffffffffc0001000 t helper\t[mod_a]
ffffffffc0001080 t init_module\t[mod_a]
ffffffffc0101010 t other [mod_b]
ffffffffc0201000 t bpf_prog_a_x\t[bpf]
ffffffffc0201040 t bpf_prog_b_y\t[bpf]
";

    fn names(table: &FunctionTable) -> Vec<(u64, u64, &str)> {
        table.functions().iter().map(|f| (f.start.0, f.size, &*f.name)).collect()
    }

    #[test]
    fn kernel_modules_and_bpf_are_apart() {
        let modules = b"mod_b 16384 0 - Live 0xffffffffc0101000\nmod_a 1 0 - Live 0x0000000000000000 (OE)\n";
        let k = KernelSymbols::parse(TEXT.as_bytes(), modules).unwrap();
        assert_eq!((k.stext, k.etext), (0xffff_ffff_8100_0000, 0xffff_ffff_8100_0200));
        assert_eq!(names(&k.functions), [(0, 0x40, "first"), (0x40, 0xc0, "second"), (0x100, 0x100, "__third")]);
        let modules: Vec<_> = k.modules.iter().map(|m| (&*m.name, m.base, m.end(), names(&m.functions))).collect();
        let a = 0xffff_ffff_c000_1000;
        let b = 0xffff_ffff_c010_1000;
        assert_eq!(modules[0], ("mod_a", a, a + 0x1000, vec![(0, 0x80, "helper"), (0x80, 0xf80, "init_module")]));
        assert_eq!(modules[1], ("mod_b", b, b + 0x1000, vec![(0x10, 0xff0, "other")]));
        let bpf = k.bpf.unwrap();
        assert_eq!(names(&bpf.functions), [(0, 0x40, "bpf_prog_a_x"), (0x40, 0xfc0, "bpf_prog_b_y")]);
        assert_eq!(k.problems, []);
    }

    #[test]
    fn hidden_addresses_are_an_error_with_a_remedy() {
        let e = KernelSymbols::parse(b"0000000000000000 T _stext\n0000000000000000 t a\n", b"").unwrap_err();
        assert!(matches!(e, ImageError::KernelAddressesHidden { lines: 2 }));
        assert!(e.to_string().contains("kptr_restrict"));
        assert!(matches!(KernelSymbols::parse(b"", b""), Err(ImageError::NoKernelStart { lines: 0 })));
    }

    #[test]
    fn broken_lines_are_told_once() {
        let k =
            KernelSymbols::parse(b"ffffffff81000000 T _stext\nnonsense\n+1 T x\nffffffff81000000 TT y", b"").unwrap();
        assert_eq!(k.problems.len(), 1);
        assert!(k.problems[0].context.ends_with("line 2"));
        assert_eq!(names(&k.functions), [(0, 0x1000, "_stext")]);
    }

    #[test]
    fn the_running_kernel() {
        let text = std::fs::read("/proc/kallsyms").unwrap_or_default();
        match KernelSymbols::parse(&text, &std::fs::read("/proc/modules").unwrap_or_default()) {
            Ok(k) => assert!(k.functions.functions().len() > 10_000 && k.etext > k.stext),
            Err(e) => eprintln!("skipped: {e}"),
        }
    }
}
