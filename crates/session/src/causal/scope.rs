//! What counts as the program's own code. A sample elsewhere is charged to the last call made from it, so
//! the scope decides which lines and functions can be targets at all.

use super::words::expression;
use crate::SessionError;
use regex::Regex;

/// Sources that are not the user's although they were compiled into the program: headers of the system and
/// the standard libraries of C++ and Rust.
const SYSTEM: [&str; 6] =
    ["/usr/include/", "/usr/lib/", "/usr/local/include/", "/rustc/", "/.cargo/registry/", "/usr/src/"];

/// The scope of a session.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Sources; all but those of the system when empty.
    sources: Vec<Regex>,
    /// Modules; each process's own executable when `None`.
    binary: Option<Regex>,
    /// Functions that are not in it wherever they are.
    excluded: Vec<Regex>,
}

impl Scope {
    /// From the user's words: globs on source paths, regular expressions on module paths and function names.
    ///
    /// # Errors
    /// [`SessionError::Point`] for a regular expression that is none.
    pub fn new(sources: &[String], binary: Option<&str>, excluded: &[String]) -> Result<Self, SessionError> {
        let binary = binary.map(|b| expression(b, b)).transpose()?;
        let excluded = excluded.iter().map(|x| expression(x, &format!("^(?:{x})$"))).collect::<Result<_, _>>()?;
        let sources = sources.iter().map(|s| expression(s, &glob(s))).collect::<Result<_, _>>()?;
        Ok(Self { sources, binary, excluded })
    }

    /// Whether a module is in it; `main`: it is the process's executable.
    #[must_use]
    pub fn has_module(&self, path: &str, main: bool) -> bool {
        self.binary.as_ref().map_or(main, |b| b.is_match(path))
    }

    /// Whether code from a source file is in it.
    #[must_use]
    pub fn has_source(&self, file: &str) -> bool {
        if self.sources.is_empty() {
            return !SYSTEM.iter().any(|s| if s.starts_with("/.") { file.contains(s) } else { file.starts_with(s) });
        }
        self.sources.iter().any(|s| s.is_match(file))
    }

    /// Whether a function is, for its source is.
    #[must_use]
    pub fn has_function(&self, name: &str) -> bool {
        !self.excluded.iter().any(|x| x.is_match(name))
    }

    /// Whether code of unknown source can be in it: not if the user names sources.
    #[must_use]
    pub fn has_unknown_source(&self) -> bool {
        self.sources.is_empty()
    }
}

/// A glob as a regular expression over the end of a path: `*` and `%` (as Coz writes it) stand for anything,
/// `?` for one character.
fn glob(pattern: &str) -> String {
    let mut text = String::from(if pattern.starts_with(['/', '*', '%']) { "^" } else { "(?:^|/)" });
    for c in pattern.chars() {
        match c {
            '*' | '%' => text.push_str(".*"),
            '?' => text.push('.'),
            c => text.push_str(&regex::escape(&c.to_string())),
        }
    }
    text.push('$');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes() {
        let all = Scope::default();
        assert!(all.has_source("/home/me/a.c") && !all.has_source("/usr/include/c++/12/bits/stl_algo.h"));
        assert!(!all.has_source("/root/.cargo/registry/src/x/lib.rs"));
        assert!(all.has_module("/bin/a", true) && !all.has_module("/lib/libc.so.6", false));
        let some = Scope::new(&["src/*.c".into(), "%/x?.h".into()], Some("libz"), &["log_.*".into()]).expect("a scope");
        assert!(some.has_source("/home/src/a.c") && !some.has_source("/home/mysrc/a.h") && some.has_source("/a/x1.h"));
        assert!(some.has_module("/lib/libz.so.1", false) && !some.has_module("/bin/a", true));
        assert!(!some.has_function("log_write") && some.has_function("blog_write"));
        assert!(Scope::new(&[], Some("("), &[]).is_err());
    }
}
