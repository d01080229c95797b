//! Names as people write them, from the mangled ones in symbol tables: C++ and Rust; other names are
//! returned as they are. Names come from files nobody vouches for, so length, depth and output are
//! limited, and a name beyond a limit stays mangled.

use cpp_demangle::{DemangleOptions, ParseOptions};
use std::borrow::Cow;
use std::fmt::{self, Write};

/// Longer names are not touched; the longest in a 300 MB browser is below 20 KiB.
const LONGEST_INPUT: usize = 32 << 10;
/// A short mangled name can stand for gigabytes of text by repeating itself. Of a short form most of that is left out again.
const LONGEST_OUTPUT: usize = 64 << 10;
const LONGEST_UNCUT: usize = 1 << 20;
/// Nesting; a level of the C++ parser takes about a kilobyte of stack.
const DEEPEST: u32 = 384;

/// How much of a name to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// Everything: parameters, template arguments, the hash of Rust names.
    Full,
    /// Path and name only.
    #[default]
    Short,
}

/// The readable form of a symbol's name; the short one where the full one is too long.
#[must_use]
pub fn demangle(name: &str, form: Form) -> Cow<'_, str> {
    let (base, suffix) = name.strip_suffix("@plt").map_or((name, ""), |base| (base, "@plt"));
    if base.len() > LONGEST_INPUT {
        return Cow::Borrowed(name);
    }
    match rust(base, form).or_else(|| cpp(base, form)) {
        Some(readable) if !readable.is_empty() => Cow::Owned(readable + suffix),
        _ if form == Form::Full => demangle(name, Form::Short),
        _ => Cow::Borrowed(name),
    }
}

fn rust(name: &str, form: Form) -> Option<String> {
    // Old Rust names are C++ names that end in a hash; without one they are really C++.
    if name.starts_with("_ZN") && !has_rust_hash(name) {
        return None;
    }
    let readable = rustc_demangle::try_demangle(name).ok()?;
    let mut out = Limited::of(form);
    match form {
        Form::Full => write!(out, "{readable}").ok()?,
        Form::Short => write!(out, "{readable:#}").ok()?,
    }
    out.finish(form)
}

/// Ends in `17h`, 16 hexadecimal digits, `E`, and maybe a suffix of the compiler (`.llvm.123`).
fn has_rust_hash(name: &str) -> bool {
    let Some(at) = name.rfind("17h") else { return false };
    // Points are part of names, too: `_$LT$a..B$GT$`.
    let Some((hash, suffix)) = name[at + 3..].split_at_checked(16) else { return false };
    let ends = suffix.strip_prefix('E').is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    ends && hash.bytes().all(|b| b.is_ascii_hexdigit())
}

fn cpp(name: &str, form: Form) -> Option<String> {
    if !name.starts_with("_Z") && !name.starts_with("__Z") {
        return None;
    }
    let limits = ParseOptions::default().recursion_limit(DEEPEST);
    let symbol = cpp_demangle::BorrowedSymbol::new_with_options(name.as_bytes(), &limits).ok()?;
    let options = DemangleOptions::new().recursion_limit(DEEPEST);
    let options = if form == Form::Short { options.no_params().no_return_type() } else { options };
    let mut out = Limited::of(form);
    symbol.structured_demangle(&mut out, &options).ok()?;
    let readable = out.finish(form)?;
    Some(match form {
        Form::Full => readable,
        // Left over from the parameter list of a member function.
        Form::Short => readable.strip_suffix(" const").map_or(readable.clone(), str::to_owned),
    })
}

/// A string that refuses to grow beyond the limit.
struct Limited {
    text: String,
    limit: usize,
}

impl Limited {
    fn of(form: Form) -> Self {
        let limit = if form == Form::Full { LONGEST_OUTPUT } else { LONGEST_UNCUT };
        Self { text: String::new(), limit }
    }

    fn finish(self, form: Form) -> Option<String> {
        let text = match form {
            Form::Full => self.text,
            Form::Short => without_arguments(&self.text).unwrap_or(self.text),
        };
        (text.len() <= LONGEST_OUTPUT).then_some(text)
    }
}

impl Write for Limited {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > self.limit {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

/// Drops `<…>` behind a name; keeps those that begin a path (`<T as Trait>::f`) and those of
/// operators. `None` when the brackets do not match up.
fn without_arguments(name: &str) -> Option<String> {
    let mut out = String::with_capacity(name.len());
    // For each open bracket, whether it is kept.
    let mut open: Vec<bool> = Vec::new();
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let kept = open.iter().all(|k| *k);
        let mut taken = c.len_utf8();
        match c {
            _ if operator(&out, rest) > 0 => {
                taken = operator(&out, rest);
                if kept {
                    out.push_str(&rest[..taken]);
                }
            }
            '<' => {
                let begins_path = kept && !behind_name(&out);
                open.push(begins_path);
                if begins_path {
                    out.push('<');
                } else if kept {
                    out.truncate(out.strip_suffix("::").unwrap_or(out.trim_end()).len());
                }
            }
            '>' if !rest_is_arrow(name, rest) => {
                open.pop()?;
                if open.iter().all(|k| *k) && kept {
                    out.push('>');
                }
            }
            _ if kept => out.push(c),
            _ => {}
        }
        rest = &rest[taken..];
    }
    open.is_empty().then_some(out)
}

/// A bracket here would hold the arguments of the name or operator that ends here.
fn behind_name(before: &str) -> bool {
    let operator = before.rfind("operator").map(|at| before[at + "operator".len()..].trim_end());
    let symbol = |c: char| !c.is_alphanumeric() && c != '_' && c != ':';
    operator.is_some_and(|o| !o.is_empty() && o.chars().all(symbol))
        || before.ends_with(|p: char| p.is_alphanumeric() || "_:}]'".contains(p))
}

/// The bracket just looked at is the head of `->`.
fn rest_is_arrow(name: &str, rest: &str) -> bool {
    name[..name.len() - rest.len()].ends_with('-')
}

/// Length of the operator's symbol at the start of `rest` when `before` ends in `operator`.
fn operator(before: &str, rest: &str) -> usize {
    const SYMBOLS: [&str; 11] = ["<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "<", ">"];
    let word = before.strip_suffix("operator");
    let whole_word = word.is_some_and(|w| !w.ends_with(|c: char| c.is_alphanumeric() || c == '_'));
    if !whole_word {
        return 0;
    }
    let symbol = SYMBOLS.iter().find(|s| rest.starts_with(**s));
    symbol.map_or(0, |s| s.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_each_language() {
        let check = |name: &str, full: &str, short: &str| {
            assert_eq!(demangle(name, Form::Full), full);
            assert_eq!(demangle(name, Form::Short), short);
        };
        check("main", "main", "main");
        check("_Z3fooILi1EEvi", "void foo<1>(int)", "foo");
        check(
            "_ZNSt6vectorIiSaIiEE9push_backERKi@plt",
            "std::vector<int, std::allocator<int> >::push_back(int const&)@plt",
            "std::vector::push_back@plt",
        );
        check("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write::h0123456789abcdef", "core::fmt::write");
        check(
            "_ZN48_$LT$pan..D$u20$as$u20$core..ops..drop..Drop$GT$4drop17h0123456789abcdefE.llvm.123",
            "<pan::D as core::ops::drop::Drop>::drop::h0123456789abcdef",
            "<pan::D as core::ops::drop::Drop>::drop",
        );
        check("_RNvCskwGfYPst2Cb_3foo3bar", "foo[ef17931c9e9b4641]::bar", "foo::bar");
        check("_ZlsRSoRK3Foo", "operator<<(std::ostream&, Foo const&)", "operator<<");
        check("_ZNK1AltERKS_", "A::operator<(A const&) const", "A::operator<");
        check("_ZNK1AIiEptEv", "A<int>::operator->() const", "A::operator->");
        check("_ZZ1fvENKUlvE_clEv", "f()::{lambda()#1}::operator()() const", "f()::{lambda()#1}::operator()");
        check("_Znot_a_name", "_Znot_a_name", "_Znot_a_name");
        check("__ZNE", "__ZNE", "__ZNE");
    }

    #[test]
    fn arguments_go_and_paths_stay() {
        let check = |name: &str, short: &str| assert_eq!(without_arguments(name).as_deref(), Some(short));
        check("<alloc::vec::Vec<T> as core::ops::Drop>::drop", "<alloc::vec::Vec as core::ops::Drop>::drop");
        check("core::iter::fold::<u32, fn(u8) -> u16>", "core::iter::fold");
        check("a<b<c> >::operator<< <d>", "a::operator<<");
        check("a::operator()<d>", "a::operator()");
        check("a<(x)(-> y)>::b", "a::b");
        assert_eq!(without_arguments("a<b"), None);
        assert_eq!(without_arguments("a>b"), None);
    }

    /// 260 characters that stand for 90,000, nearly all of them template arguments.
    #[test]
    fn names_too_long_to_write_out_are_short() {
        let name = "_ZN1XIJS_IJSt3mapINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt6vectorIS0_IS6_S7_IS6_SaIS6_EESt4less\
            IS6_ESaISt4pairIKS6_S9_EEESaISG_EESB_SaISC_ISD_SI_EEESL_SL_SL_SL_SL_SL_SL_EESM_SM_SM_SM_SM_EE4workEd";
        assert_eq!(demangle(name, Form::Short), "X::work");
        assert_eq!(demangle(name, Form::Full), "X::work");
    }

    #[test]
    fn hostile_names_stay_mangled_and_cost_little() {
        let nested = format!("_Z{}v", "N1a".repeat(20_000));
        assert_eq!(demangle(&nested, Form::Full), nested);
        // Each level repeats the one before twice: 2^40 characters if written out.
        let mut doubling = String::from("_Z1fI1aE");
        doubling.push_str("S_S_");
        let bomb = format!("_Z1fI{}{}E", "1a", "SaIS0_S0_E".repeat(40));
        assert!(demangle(&bomb, Form::Full).len() <= LONGEST_OUTPUT);
        assert!(demangle(&doubling, Form::Short).len() <= LONGEST_OUTPUT);
        let long = format!("_Z{}", "a".repeat(LONGEST_INPUT));
        assert_eq!(demangle(&long, Form::Full), long);
    }
}
