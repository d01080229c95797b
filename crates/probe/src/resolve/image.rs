//! What is known of a module's file, each part made when it is first asked for: names, code, linkage,
//! unwind rules, lines. One per file, kept as long as its module.

use super::describe::Told;
use super::file_name;
use super::readers::Readers;
use crate::select::Pattern;
use rustc_hash::FxHashMap;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;
use whither_abi::agent::{RULE_END, RULE_NONE, RULE_RSP};
use whither_image::{
    Bytes, CodeMap, CodeName, Form, LineService, Linkage, NameKind, Signature, SlotTarget, StatedBytes, Svma,
    UnwindRows,
};
use whither_image::{code_names, demangle};
use whither_store::DebugFiles;

/// Lines further behind the one asked for are another place.
const NEAR_LINE: u32 = 20;

/// Patterns whose names are kept, of a file.
const MOST_PATTERNS: usize = 256;

/// A module's file.
pub struct ModuleImage {
    file: Bytes,
    debug: Option<DebugFiles>,
    stated: Option<StatedBytes>,
    names: OnceCell<Vec<CodeName>>,
    /// By pattern; each program that is followed through an exec asks the same again.
    meant: RefCell<FxHashMap<String, Rc<[usize]>>>,
    told: RefCell<FxHashMap<Svma, Rc<Told>>>,
    code: OnceCell<Option<CodeMap>>,
    linkage: OnceCell<Option<Linkage>>,
    rows: OnceCell<Option<UnwindRows>>,
    lines: OnceCell<Option<LineService>>,
    readers: OnceCell<Readers>,
}

/// How an address begins, by the unwind rules there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// As a function does: the return address is on top of the stack.
    Entry,
    /// Nothing is told.
    Unknown,
    /// The outermost code of a thread: there is no return address.
    Outermost,
    /// The middle of a function, or a part that was moved away from it.
    Middle,
}

impl ModuleImage {
    /// From the bytes of the file, and what was found beside it.
    #[must_use]
    pub fn new(file: Bytes, debug: Option<DebugFiles>) -> Self {
        Self {
            stated: StatedBytes::from_elf(&file).ok(),
            file,
            debug,
            names: OnceCell::new(),
            meant: RefCell::default(),
            told: RefCell::default(),
            code: OnceCell::new(),
            linkage: OnceCell::new(),
            rows: OnceCell::new(),
            lines: OnceCell::new(),
            readers: OnceCell::new(),
        }
    }

    /// Where its functions are; `None` for what is not x86-64 code.
    #[must_use]
    pub fn code(&self) -> Option<&CodeMap> {
        self.code.get_or_init(|| CodeMap::from_elf(&self.file, self.names()).ok()).as_ref()
    }

    /// Its bytes by stated address.
    pub(crate) fn stated(&self) -> Option<&StatedBytes> {
        self.stated.as_ref()
    }

    /// Its unwind rules.
    #[must_use]
    pub fn rows(&self) -> Option<&UnwindRows> {
        self.rows.get_or_init(|| UnwindRows::from_elf(&self.file).ok()).as_ref()
    }

    /// All names at a stated address, as people write them, preferred first.
    #[must_use]
    pub fn names_at(&self, at: u64) -> Vec<String> {
        let mut names: Vec<&CodeName> = self.raw_names_at(Svma(at)).iter().collect();
        names.sort_by_key(|n| (n.kind == NameKind::Mark, underscores(&n.name), n.name.len()));
        let mut out: Vec<String> = Vec::new();
        for name in names {
            let readable = demangle(&name.name, Form::Short).into_owned();
            if !out.contains(&readable) {
                out.push(readable);
            }
        }
        out
    }

    /// The preferred name with parameters; of parts of a coroutine with what part it is.
    pub(super) fn full_name_at(&self, at: Svma) -> Option<String> {
        const PARTS: [&str; 4] = [".actor", ".resume", ".destroy", ".cleanup"];
        let raw = self
            .raw_names_at(at)
            .iter()
            .min_by_key(|n| (n.kind == NameKind::Mark, underscores(&n.name), n.name.len()))?;
        let part = PARTS.iter().find(|part| raw.name.ends_with(**part));
        Some(match part {
            Some(part) => demangle(&raw.name, Form::Short).into_owned() + part,
            None => demangle(&raw.name, Form::Full).into_owned(),
        })
    }

    pub(super) fn raw_names_at(&self, at: Svma) -> &[CodeName] {
        let names = self.names();
        let from = names.partition_point(|n| n.address < at);
        let to = names.partition_point(|n| n.address <= at);
        names.get(from..to).unwrap_or_default()
    }

    pub(super) fn names(&self) -> &[CodeName] {
        self.names
            .get_or_init(|| code_names(&self.file, self.debug.as_ref().and_then(DebugFiles::separate).map(|b| &**b)))
    }

    /// The names of functions and resolvers that a pattern means, by their place in [`Self::names`].
    pub(super) fn named(&self, pattern: &Pattern) -> Rc<[usize]> {
        if let Some(known) = self.meant.borrow().get(pattern.text()) {
            return Rc::clone(known);
        }
        let meant = |n: &CodeName| matches(pattern, &n.name) && (n.kind == NameKind::Resolver || self.is_function(n));
        let found: Rc<[usize]> = self.names().iter().enumerate().filter(|(_, n)| meant(n)).map(|(i, _)| i).collect();
        let mut known = self.meant.borrow_mut();
        if known.len() >= MOST_PATTERNS {
            known.clear();
        }
        known.insert(pattern.text().to_owned(), Rc::clone(&found));
        found
    }

    /// What was worked out of a function before, or is now.
    pub(super) fn told(&self, at: Svma, make: impl FnOnce() -> Option<Told>) -> Option<Rc<Told>> {
        if let Some(known) = self.told.borrow().get(&at) {
            return Some(Rc::clone(known));
        }
        let made = Rc::new(make()?);
        self.told.borrow_mut().insert(at, Rc::clone(&made));
        Some(made)
    }

    pub(super) fn linkage(&self) -> Option<&Linkage> {
        self.linkage.get_or_init(|| Linkage::from_elf(&self.file).ok()).as_ref()
    }

    /// Whether it calls a function of this name in another module.
    pub(crate) fn imports(&self, name: &str) -> bool {
        let is = |target: &SlotTarget| matches!(target, SlotTarget::Name(wanted) if wanted == name);
        self.linkage().is_some_and(|linkage| !linkage.slots(is).is_empty())
    }

    /// What reads return addresses in a program of this file.
    pub(super) fn readers(&self) -> Readers {
        *self.readers.get_or_init(|| Readers::of(self))
    }

    pub(super) fn lines(&self) -> Option<&LineService> {
        let open = || match &self.debug {
            Some(debug) => debug.lines(),
            None => LineService::new(&self.file, None).ok(),
        };
        self.lines.get_or_init(open).as_ref()
    }

    /// What functions are declared to take.
    pub(super) fn signatures(&self, functions: &[Svma]) -> Vec<Option<Signature>> {
        let Some(lines) = self.lines() else { return vec![None; functions.len()] };
        let mut told = lines.signatures(functions);
        for (at, signature) in functions.iter().zip(&mut told) {
            if self.raw_names_at(*at).iter().any(|n| takes_otherwise(&n.name)) {
                *signature = None;
            }
        }
        told
    }

    /// Whether an address is in executable bytes; quick, nothing has to be made for it.
    pub(super) fn is_code(&self, at: Svma) -> bool {
        self.stated.as_ref().is_some_and(|s| s.is_code(at))
    }

    pub(super) fn beginning(&self, at: Svma) -> Beginning {
        // The frame address is one word above the stack pointer.
        const ENTRY: u32 = RULE_RSP | 1 << 3;
        let rule = self.rows().map_or(RULE_NONE, |rows| rows.find(at));
        match rule {
            ENTRY => Beginning::Entry,
            RULE_NONE => Beginning::Unknown,
            RULE_END => Beginning::Outermost,
            _ => Beginning::Middle,
        }
    }

    /// Whether a name stands for a function of its own.
    pub(super) fn is_function(&self, name: &CodeName) -> bool {
        if is_part(&name.name) || !self.code().is_some_and(|c| c.is_code(name.address)) {
            return false;
        }
        match (name.kind, self.beginning(name.address)) {
            (NameKind::Resolver, _) | (_, Beginning::Middle) => false,
            (NameKind::Mark, beginning) => beginning == Beginning::Entry && self.is_unwound(name.address),
            _ => true,
        }
    }

    fn is_unwound(&self, at: Svma) -> bool {
        self.code().is_some_and(|c| c.function_of(at) == Some(at))
    }

    /// Functions that only the unwind rules know of.
    pub(super) fn nameless_starts(&self) -> Vec<Svma> {
        let Some(code) = self.code() else { return Vec::new() };
        let named: BTreeSet<Svma> = self.names().iter().map(|n| n.address).collect();
        let begins = |at: &Svma| !named.contains(at) && self.beginning(*at) == Beginning::Entry;
        let mut starts: Vec<Svma> = code.unwind_starts().filter(begins).collect();
        starts.dedup();
        starts
    }

    /// Functions around a line: those that hold its code, and where it was inlined also into others, only
    /// the one it was written in if that exists.
    pub(super) fn functions_of_line(&self, lines: &LineService, file: &str, line: u32) -> Vec<Svma> {
        let Some(code) = self.code() else { return Vec::new() };
        let pieces = lines.lines_of(file);
        // A line without code (a comment, a brace) means the next one that has some.
        let near = |l: u32| (line..line.saturating_add(NEAR_LINE)).contains(&l);
        let Some(nearest) = pieces.iter().map(|(_, l)| *l).filter(|l| near(*l)).min() else { return Vec::new() };
        let addresses: Vec<Svma> = pieces.iter().filter(|(_, l)| *l == nearest).map(|(r, _)| r.start).collect();
        let depths = lines.frames_at(&addresses);
        let shallowest = depths.iter().map(Vec::len).min().unwrap_or(0);
        let own = addresses.iter().zip(&depths).filter(|(_, frames)| shallowest > 1 || frames.len() == shallowest);
        let starts: BTreeSet<Svma> = own.filter_map(|(at, _)| code.function_of(*at)).collect();
        let known = |at: &Svma| !self.raw_names_at(*at).is_empty() || self.beginning(*at) != Beginning::Middle;
        let whole: BTreeSet<Svma> = starts.into_iter().filter(known).filter_map(|at| self.entered_at(at)).collect();
        whole.into_iter().collect()
    }

    /// Where the function is entered that code belongs to: of a part that was moved away, the function's own begin. Nobody
    /// calls a part: what lies on the stack there is no return address. `None` where the file does not tell which function's it is.
    pub(super) fn entered_at(&self, start: Svma) -> Option<Svma> {
        let Some(part) = self.raw_names_at(start).iter().find(|n| is_part(&n.name)) else { return Some(start) };
        let whole = part.name.get(..part.name.find(".cold")?)?;
        let mut entries = self.names().iter().filter(|n| &*n.name == whole && self.is_function(n)).map(|n| n.address);
        let entry = entries.next()?;
        // Functions local to their files may share a name.
        entries.all(|other| other == entry).then_some(entry)
    }
}

impl fmt::Debug for ModuleImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModuleImage").field("file", &self.file).field("debug", &self.debug).finish_non_exhaustive()
    }
}

/// Whether a pattern means a name of a symbol table, in any of its forms.
fn matches(pattern: &Pattern, name: &str) -> bool {
    if is_part(name) {
        return false;
    }
    let base = without_clone(name);
    if pattern.matches(name) || base.len() < name.len() && pattern.matches(base) {
        return true;
    }
    if !is_mangled(base) || pattern.needle().is_some_and(|needle| !base.contains(needle)) {
        return false;
    }
    pattern.matches(&demangle(base, Form::Short))
        || pattern.text().contains(['<', '(', '[']) && matches_whole(pattern, base)
}

/// With template arguments; with or without parameters, and what templates of functions tell before their names: the type returned.
fn matches_whole(pattern: &Pattern, name: &str) -> bool {
    let whole = demangle(name, Form::Full);
    let bare = whole.strip_suffix(" const").unwrap_or(&whole);
    let head = parameters(bare).map_or(bare, |at| bare.get(..at).unwrap_or(bare));
    [&*whole, head].iter().any(|form| pattern.matches(form) || pattern.matches(without_return(form)))
}

/// `calc::twice<double>` of `double calc::twice<double>`.
fn without_return(name: &str) -> &str {
    let mut depth = 0_usize;
    let mut begins = 0;
    for (at, byte) in name.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'[' => depth += 1,
            b'>' | b')' | b']' => depth = depth.saturating_sub(1),
            b' ' if depth == 0 && !name[..at].ends_with("operator") => begins = at + 1,
            _ => {}
        }
    }
    name.get(begins..).unwrap_or(name)
}

/// Where the parameter list at the end of a name begins.
fn parameters(name: &str) -> Option<usize> {
    let mut depth = 0_usize;
    name.strip_suffix(')')?;
    for (at, byte) in name.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return (at > 0 && !name.get(..at)?.ends_with("operator")).then_some(at);
        }
    }
    None
}

fn is_mangled(name: &str) -> bool {
    ["_Z", "__Z", "_R"].iter().any(|prefix| name.starts_with(prefix))
}

/// A part of a function that the compiler moved away.
pub(super) fn is_part(name: &str) -> bool {
    // Hundreds of thousands of names are asked, and few have a dot: one byte is found many times faster than a word.
    name.contains('.') && (name.ends_with(".cold") || name.contains(".cold."))
}

/// Whether a name is that of a compiler's copy that has lost or split arguments.
fn takes_otherwise(name: &str) -> bool {
    const SUFFIXES: [&str; 5] = [".constprop.", ".isra.", ".part.", ".clone.", ".ipa."];
    name.contains('.') && SUFFIXES.iter().any(|s| name.contains(s))
}

/// Without what the compiler appended for its copies of a function (`f.constprop.0`).
fn without_clone(name: &str) -> &str {
    const SUFFIXES: [&str; 8] =
        [".constprop.", ".isra.", ".part.", ".lto_priv.", ".llvm.", ".localalias", ".clone.", ".ipa."];
    if !name.contains('.') {
        return name;
    }
    let at = SUFFIXES.iter().filter_map(|s| name.find(s)).filter(|at| *at > 0).min();
    at.and_then(|at| name.get(..at)).unwrap_or(name)
}

/// What a function without a name is called.
pub(super) fn nameless(path: &str, at: Svma) -> String {
    format!("{}+{:#x}", file_name(path), at.0)
}

fn underscores(name: &str) -> usize {
    name.bytes().take_while(|b| *b == b'_').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_name() {
        let matched = |pattern: &str, name: &str| matches(&Pattern::new(pattern).unwrap(), name);
        assert!(matched("a::b", "_ZN1a1bEi") && matched("_ZN1a1bEi", "_ZN1a1bEi") && !matched("b", "_ZN1a1bEi"));
        assert!(matched("helper", "helper.constprop.0.isra.0") && !matched("helper", "helper.cold"));
        assert!(matched("foo", "_Z3fooILi1EEvi") && matched("void foo<1>", "_Z3fooILi1EEvi"));
        assert!(
            matched("foo<1>", "_Z3fooILi1EEvi")
                && matched("foo<1>(int)", "_Z3fooILi1EEvi")
                && !matched("foo<2>", "_Z3fooILi1EEvi")
        );
        assert_eq!(without_return("std::map<int, long> f<a b>(int, long)"), "f<a b>(int, long)");
        assert_eq!(without_return("A::operator long"), "A::operator long");
        assert!(matched("std::vector::push_back", "_ZNSt6vectorIiSaIiEE9push_backERKi"));
        assert!(matched(r".*vector<int.*>::push_back", "_ZNSt6vectorIiSaIiEE9push_backERKi"));
        assert!(matched("operator<<", "_ZlsRSoRK3Foo") && matched("A::operator()", "_ZN1AclEi"));
        assert!(matched("core::fmt::write", "_ZN4core3fmt5write17h0123456789abcdefE"));
        assert!(matched("a::bcd", "_ZN1a3bcdEi") && !matched("a::bcx", "_ZN1a3bcdEi"));
    }
}
