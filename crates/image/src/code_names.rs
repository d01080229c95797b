//! Every name that symbol tables give to places in the code of an image, aliases included. The table in
//! `functions` keeps one name for each byte, which is right for samples; a probe asks the other way round,
//! by name, and wants to know that two names are one function.

use crate::ids::Svma;
use crate::symbols::{code_ranges, debug_view, go_labels, symbols};
use crate::view::View;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NameKind {
    /// A function.
    Function,
    /// Code that is called once to choose the function (`IFUNC`): not what callers run.
    Resolver,
    /// A label in hand-written code; maybe a function, maybe not.
    Mark,
}

/// A name of a place in the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeName {
    /// Stated address.
    pub address: Svma,
    /// Bytes, 0 when not told.
    pub size: u64,
    /// As in the symbol table, without version.
    pub name: Box<str>,
    /// What it stands for.
    pub kind: NameKind,
}

/// All names in the symbol tables of `main` and of its separate `debug` file, by address and name, each
/// once. What cannot be read is left out: [`crate::function_table`] tells the problems of the same tables.
#[must_use]
pub fn code_names(main: &[u8], debug: Option<&[u8]>) -> Vec<CodeName> {
    let Ok(view) = View::parse(main) else { return Vec::new() };
    let mut ignored = Vec::new();
    let code = code_ranges(&view);
    let debug = debug.and_then(|debug| debug_view(&view, debug, &mut ignored));
    let mut labels = symbols(&view, &code, &mut ignored);
    match &debug {
        Some(debug) => labels.extend(symbols(debug, &code, &mut ignored)),
        None => labels.extend(go_labels(&view, &code)),
    }
    let mut names: Vec<CodeName> = labels
        .into_iter()
        .map(|label| CodeName {
            address: Svma(label.address),
            size: label.size,
            name: String::from_utf8_lossy(&label.name).into(),
            kind: if label.resolver {
                NameKind::Resolver
            } else if label.mark {
                NameKind::Mark
            } else {
                NameKind::Function
            },
        })
        .collect();
    names.sort_by(|a, b| (a.address, &a.name, a.kind).cmp(&(b.address, &b.name, b.kind)));
    names.dedup_by(|later, kept| later.address == kept.address && later.name == kept.name);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_and_resolvers_of_the_c_library() {
        let Ok(file) = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6") else {
            return eprintln!("SKIP: no C library in Debian's place");
        };
        let names = code_names(&file, None);
        let of = |name: &str| names.iter().find(|n| &*n.name == name).unwrap();
        assert_eq!(of("write").address, of("__write").address);
        assert_eq!(of("strlen").kind, NameKind::Resolver);
        assert_eq!(of("qsort").kind, NameKind::Function);
    }
}
