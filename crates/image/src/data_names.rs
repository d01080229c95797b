//! Where variables live: data symbols by name, for counters that are read in a program's memory.

use crate::demangle::{Form, demangle};
use crate::ids::Svma;
use object::{Object, ObjectSymbol, SymbolKind};

/// A variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Stated address.
    pub at: Svma,
    /// Bytes.
    pub size: u64,
    /// As in the symbol table.
    pub name: String,
}

/// Variables of a file for whose name (as it is, or demangled) `wanted` holds; thread-local ones have no one place
/// and are left out.
#[must_use]
pub fn variables(file: &[u8], wanted: impl Fn(&str) -> bool) -> Vec<Variable> {
    let Ok(elf) = object::File::parse(file) else { return Vec::new() };
    let mut found: Vec<Variable> = elf
        .symbols()
        .chain(elf.dynamic_symbols())
        .filter(|s| s.kind() == SymbolKind::Data && s.is_definition() && s.address() > 0)
        .filter_map(|s| {
            let name = s.name().ok()?;
            let fits = wanted(name) || wanted(&demangle(name, Form::Short));
            fits.then(|| Variable { at: Svma(s.address()), size: s.size(), name: name.to_owned() })
        })
        .collect();
    found.sort_by(|a, b| (a.at, &a.name).cmp(&(b.at, &b.name)));
    found.dedup_by(|later, kept| later.at == kept.at);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_c_library() {
        let Ok(file) = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6") else {
            return eprintln!("SKIP: no C library in Debian's place");
        };
        let found = variables(&file, |name| name == "stdout");
        assert_eq!((found.len(), found[0].size), (1, 8));
        assert!(variables(&file, |name| name == "qsort").is_empty(), "a function is no variable");
        assert!(variables(&file[..1000], |_| true).is_empty());
    }
}
