//! What the user writes after `-f`, read into a [`Select`], and the patterns in it. A pattern has to match
//! a whole name. C++ names hold characters that mean something in regular expressions (`operator+`,
//! `{lambda()#1}`, `vector<int>::at`): a pattern that *is* a name letter by letter also matches.
//!
//! ```text
//! MPI_Wait   MPI_.*   mod!re   mod+0x1a2b   0x1a2b   file.c:120   #12   malloc@libfoo.so
//! ```

use crate::api::{PointId, Select};
use regex::Regex;

/// Why a pattern cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// Nothing there.
    #[error("an empty pattern matches nothing: write a function's name, or .* for all")]
    Empty,
    /// Nothing on one side of `!` or `@`.
    #[error(
        "{text:?} lacks the {missing} {side} the `{sign}`: write MODULE!FUNCTION, as in 'libpg.so!.*Lookup.*', and \
         FUNCTION@MODULE for the calls from one module alone"
    )]
    Half {
        /// The pattern.
        text: String,
        /// What is missing.
        missing: &'static str,
        /// Where.
        side: &'static str,
        /// Of which.
        sign: char,
    },
    /// Not a number behind `#`.
    #[error("{text:?} is no point: write # and the number that `whither calls list` shows, as in '#12'")]
    Point {
        /// The pattern.
        text: String,
    },
    /// Not an address.
    #[error("{text:?} is no address: write MODULE+0x1a2b or 0x1a2b, hexadecimal, at most 16 digits")]
    Address {
        /// The pattern.
        text: String,
    },
    /// Not a line.
    #[error("{text:?} is no source line: write FILE:LINE with a line from 1 on, as in 'solver.c:120'")]
    Line {
        /// The pattern.
        text: String,
    },
    /// Callers of what is no function.
    #[error("{text:?}: write FUNCTION@MODULE for the calls from one module, as in 'malloc@libfoo.so'")]
    Callers {
        /// The pattern.
        text: String,
    },
    /// Calls from some modules are not left out alone.
    #[error(
        "{text:?}: calls from some modules only cannot be left out; choose those that are wanted with -f FUNCTION@MODULE"
    )]
    WithoutCallers {
        /// The pattern.
        text: String,
    },
    /// Not a regular expression, and no name either.
    #[error("{text:?} is no regular expression: {why}; put a \\ before characters meant as they are")]
    Regex {
        /// The pattern.
        text: String,
        /// What the compiler says of it.
        why: String,
    },
}

/// The function's part of a name that tells callers too: `malloc` of `malloc@libfoo.so`.
#[must_use]
pub fn callee(name: &str) -> &str {
    name.rsplit_once('@').map_or(name, |(callee, _)| callee)
}

/// Reads a pattern; regular expressions in it are compiled once to tell at once what is wrong with them.
///
/// # Errors
/// [`SelectError`] says what to write instead.
pub fn parse(text: &str) -> Result<Select, SelectError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(SelectError::Empty);
    }
    if let Some((callee, callers)) = at_sign(text) {
        return called_from(text, callee, callers);
    }
    if let Some(number) = text.strip_prefix('#') {
        let number = number.parse().map_err(|_| SelectError::Point { text: text.into() })?;
        return Ok(Select::Point(PointId(number)));
    }
    match address(text).or_else(|| line(text)) {
        Some(found) => found,
        None => name(text),
    }
}

/// The two sides of the `@` in front of a module: the last one that no backslash stands before.
fn at_sign(text: &str) -> Option<(&str, &str)> {
    let at = text.rmatch_indices('@').map(|(at, _)| at).find(|&at| !text[..at].ends_with('\\'))?;
    Some((&text[..at], &text[at + 1..]))
}

fn called_from(text: &str, callee: &str, callers: &str) -> Result<Select, SelectError> {
    let callee = match parse(callee) {
        Ok(Select::Point(_) | Select::CalledFrom { .. }) | Err(SelectError::Empty) => {
            return Err(SelectError::Callers { text: text.into() });
        }
        other => other?,
    };
    if callers.is_empty() {
        return Err(SelectError::Half { text: text.into(), missing: "module", side: "behind", sign: '@' });
    }
    Pattern::new(callers)?;
    Ok(Select::CalledFrom { callee: Box::new(callee), callers: callers.into() })
}

/// `0x1a2b`, `mod+0x1a2b`.
fn address(text: &str) -> Option<Result<Select, SelectError>> {
    let (module, digits) = match text.strip_prefix("0x") {
        Some(digits) => (None, digits),
        None => {
            let (module, digits) = text.rsplit_once("+0x")?;
            if module.is_empty() || module.ends_with("operator") {
                return None;
            }
            (Some(module.to_owned()), digits)
        }
    };
    let offset = u64::from_str_radix(digits, 16);
    let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
    Some(match offset {
        Ok(offset) if plain => Ok(Select::Address { module, offset }),
        _ => Err(SelectError::Address { text: text.into() }),
    })
}

/// `file.c:120`: a file has an extension, which tells it from a name with a colon.
fn line(text: &str) -> Option<Result<Select, SelectError>> {
    let (file, number) = text.rsplit_once(':')?;
    let (stem, extension) = file.rsplit_once('.')?;
    let plain = |c: char| c.is_alphanumeric() || "+_".contains(c);
    let is_file = !stem.is_empty()
        && !file.contains("::")
        && !file.ends_with(':')
        && !extension.is_empty()
        && extension.chars().all(plain)
        && number.bytes().all(|b| b.is_ascii_digit());
    if !is_file {
        return None;
    }
    Some(match number.parse() {
        Ok(line) if line > 0 => Ok(Select::Line { file: file.into(), line }),
        _ => Err(SelectError::Line { text: text.into() }),
    })
}

/// `re`, `mod!re`.
fn name(text: &str) -> Result<Select, SelectError> {
    let half = |missing, side| SelectError::Half { text: text.into(), missing, side, sign: '!' };
    let (module, function) = match bang(text) {
        Some(0) => return Err(half("module", "before")),
        Some(at) if at + 1 == text.len() => return Err(half("function", "behind")),
        Some(at) => (Some(text[..at].to_owned()), &text[at + 1..]),
        None => (None, text),
    };
    Pattern::new(function)?;
    module.as_deref().map(Pattern::new).transpose()?;
    Ok(Select::Name { function: function.into(), module })
}

/// Position of the `!` that ends a module: not the one of `operator!`, and none behind a backslash.
fn bang(text: &str) -> Option<usize> {
    text.match_indices('!').map(|(at, _)| at).find(|&at| {
        let before = &text[..at];
        !before.ends_with("operator") && !before.ends_with('\\')
    })
}

/// A pattern over whole names.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    /// `None`: the text is a name and no regular expression, or one that means nothing but itself.
    regex: Option<Regex>,
}

impl Pattern {
    /// Compiles it.
    ///
    /// # Errors
    /// [`SelectError::Regex`] when it is no regular expression and cannot be a name either.
    pub fn new(text: &str) -> Result<Self, SelectError> {
        if text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Ok(Self { text: text.into(), regex: None });
        }
        let regex = match Regex::new(&format!("^(?:{text})$")) {
            Ok(regex) => Some(regex),
            Err(_) if may_be_a_name(text) => None,
            // Compiled alone, so that the message shows what the user wrote.
            Err(e) => {
                let why = Regex::new(text).map_or_else(|alone| reason(&alone), |_| reason(&e));
                return Err(SelectError::Regex { text: text.into(), why });
            }
        };
        Ok(Self { text: text.into(), regex })
    }

    /// Whether it matches a whole name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.text == name || self.regex.as_ref().is_some_and(|r| r.is_match(name))
    }

    /// What was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A part that every name it matches contains, the mangled form too: lets most names pass without
    /// demangling. Only for patterns that are plain identifiers, joined by `::` or not.
    #[must_use]
    pub fn needle(&self) -> Option<&str> {
        let plain = self.text.chars().all(|c| c.is_alphanumeric() || "_:".contains(c));
        let last = self.text.rsplit(':').next().unwrap_or_default();
        // Short names of the standard library are abbreviated, those of operators and of constructors,
        // which repeat the class, are not spelled.
        (plain && last.len() >= 3 && !last.starts_with("operator") && !self.names_constructor(last)).then_some(last)
    }

    fn names_constructor(&self, last: &str) -> bool {
        let mut parts = self.text.rsplit("::");
        parts.next();
        parts.next() == Some(last)
    }
}

/// Characters as in names, none that only an expression has.
fn may_be_a_name(text: &str) -> bool {
    (text.contains("operator") || text.contains("{{") || text.contains("}::"))
        && !text.contains(".*")
        && !text.contains(['\\', '^', '$'])
}

/// The last line of the compiler's picture: the reason.
fn reason(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default().trim();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(function: &str, module: Option<&str>) -> Result<Select, SelectError> {
        Ok(Select::Name { function: function.into(), module: module.map(str::to_owned) })
    }

    #[test]
    fn each_form() {
        assert_eq!(parse("MPI_Wait"), name("MPI_Wait", None));
        assert_eq!(parse("libpg.so!.*Lookup.*"), name(".*Lookup.*", Some("libpg.so")));
        assert_eq!(parse(" #12 "), Ok(Select::Point(PointId(12))));
        assert_eq!(parse("0x1a2B"), Ok(Select::Address { module: None, offset: 0x1a2b }));
        let address = Select::Address { module: Some("libstdc++.so.6".into()), offset: 0x10 };
        assert_eq!(parse("libstdc++.so.6+0x10"), Ok(address));
        assert_eq!(parse("src/a b.c:120"), Ok(Select::Line { file: "src/a b.c".into(), line: 120 }));
        assert_eq!(parse("x.c++:7"), Ok(Select::Line { file: "x.c++".into(), line: 7 }));
    }

    #[test]
    fn callers() {
        let from = |callee: &str, callers: &str| {
            Ok(Select::CalledFrom { callee: Box::new(parse(callee).unwrap()), callers: callers.into() })
        };
        assert_eq!(parse("malloc@libfoo.so"), from("malloc", "libfoo.so"));
        assert_eq!(parse("libc.so.6!(m|c)alloc@lib(a|b)"), from("libc.so.6!(m|c)alloc", "lib(a|b)"));
        assert_eq!(parse("libc.so.6+0x1a2b@app"), from("libc.so.6+0x1a2b", "app"));
        assert_eq!(parse("a.c:7@app"), from("a.c:7", "app"));
        assert_eq!(parse(r"a\@b"), name(r"a\@b", None));
    }

    #[test]
    fn names_that_look_like_something_else() {
        for text in
            ["a::b", "std::vector<int>::at", "A::operator!", "operator!=", "operator+", "A::operator+0x", "f.*:12"]
        {
            assert_eq!(parse(text), name(text, None), "{text}");
        }
        assert_eq!(parse("lib.*!A::operator!="), name("A::operator!=", Some("lib.*")));
        assert_eq!(parse(r"a\!b"), name(r"a\!b", None));
        assert_eq!(parse("a::x.y::1"), name("a::x.y::1", None));
    }

    #[test]
    fn whole_names_and_letter_by_letter() {
        let matches = |pattern: &str, text: &str| Pattern::new(pattern).unwrap().matches(text);
        assert!(
            matches("MPI_Wait", "MPI_Wait") && !matches("MPI_Wait", "PMPI_Wait") && !matches("MPI_Wait", "MPI_Waitall")
        );
        assert!(matches("a|b", "b") && !matches("a|b", "ab"));
        assert!(matches("operator+", "operator+") && matches("A::operator[]", "A::operator[]"));
        assert!(matches("f()::{lambda()#1}::operator()", "f()::{lambda()#1}::operator()"));
        assert!(matches("(anonymous namespace)::f", "(anonymous namespace)::f"));
        assert!(matches("<a as b>::c", "<a as b>::c"));
        assert!(matches("operator*", "operator*") && matches("operator()", "operator()"));
    }

    #[test]
    fn errors_say_what_to_write() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert!(error("").contains(".*"));
        assert!(error("#x").contains("#12") && error("#-1").contains("#12") && error("#99999999999").contains("#12"));
        assert!(error("lib!").contains("function behind") && error("!f").contains("module before"));
        assert!(error("a.so+0x").contains("MODULE+0x") && error("0x+1").contains("hexadecimal"));
        assert!(error("0x11112222333344445").contains("16 digits"));
        assert!(error("a.c:0").contains("line from 1") && error("a.c:99999999999").contains("line"));
        assert!(error("f@").contains("module behind the `@`") && error("#3@m").contains("FUNCTION@MODULE"));
        assert!(error("f@(").contains("unclosed group"));
        let broken = error("MPI_(Wait");
        assert!(broken.contains("unclosed group") && broken.contains("MPI_(Wait"), "{broken}");
        assert!(error("[a!f").contains("unclosed character class"));
    }

    #[test]
    fn needles_only_where_the_mangled_name_must_hold_them() {
        let needle = |text: &str| Pattern::new(text).unwrap().needle().map(str::to_owned);
        assert_eq!(needle("a::lookup").as_deref(), Some("lookup"));
        for text in ["a::lookup.*", "Foo::Foo", "operator", "ab", "a::"] {
            assert_eq!(needle(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_an_answer(text in "\\PC{0,40}") {
            if let Ok(Select::Name { function, .. }) = parse(&text) {
                prop_assert!(Pattern::new(&function).unwrap().matches(&function) || function.contains('\n'));
            }
        }
    }
}
