//! Name filters as users write them: `/regular expression/`, a glob, or plain text found anywhere.

use crate::error::Error;
use regex::Regex;

/// One compiled filter.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    test: Test,
    /// A path that passes whatever the text says.
    path: Option<String>,
}

#[derive(Clone, Debug)]
enum Test {
    Substring,
    Regex(Regex),
}

impl Pattern {
    /// `/RE/` is a regular expression, text with `*` or `?` a glob over the whole name, anything
    /// else is searched for as it stands.
    ///
    /// # Errors
    /// [`Error::Pattern`] when the regular expression is malformed.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let inner = text.strip_prefix('/').and_then(|t| t.strip_suffix('/'));
        let test = match inner {
            Some(re) if !re.is_empty() => Test::Regex(compile(text, re)?),
            _ if text.contains(['*', '?']) => Test::Regex(compile(text, &glob_to_regex(text))?),
            _ => Test::Substring,
        };
        Ok(Self { text: text.to_owned(), test, path: None })
    }

    /// The same, which a file passes too whose whole path is this: where `./server` lies only the caller knows.
    #[must_use]
    pub fn or_path(self, path: Option<String>) -> Self {
        Self { path, ..self }
    }

    /// Whether a name passes.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match &self.test {
            Test::Substring => name.contains(&self.text),
            Test::Regex(re) => re.is_match(name),
        }
    }

    /// Whether a path passes, or its last component by itself: `libc*` is a file's name.
    #[must_use]
    pub fn matches_path(&self, path: &str) -> bool {
        let named = || self.matches(path) || path.rsplit_once('/').is_some_and(|(_, name)| self.matches(name));
        self.path.as_deref() == Some(path) || named()
    }

    /// As the user wrote it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

fn compile(text: &str, re: &str) -> Result<Regex, Error> {
    Regex::new(re).map_err(|e| Error::Pattern {
        pattern: text.to_owned(),
        // The last line of the parser's message is the reason; the others draw the position.
        why: e.to_string().lines().last().unwrap_or_default().trim().to_owned(),
    })
}

fn glob_to_regex(glob: &str) -> String {
    let mut re = String::from("^(?s:");
    for c in glob.chars() {
        match c {
            '*' => re.push_str(".*"),
            '?' => re.push('.'),
            c => re.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    re.push_str(")$");
    re
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, name: &str, expect: bool) {
        assert_eq!(Pattern::parse(pattern).unwrap().matches(name), expect, "{pattern} on {name}");
    }

    #[test]
    fn plain_text_is_found_anywhere_and_brackets_are_plain() {
        check("kernel", "[kernel]", true);
        check("[kernel]", "[kernel]", true);
        check("operator[]", "A::operator[](int)", true);
        check("Kernel", "[kernel]", false);
    }

    #[test]
    fn a_glob_may_be_of_a_files_name() {
        let path = "/usr/lib/x86_64-linux-gnu/libc.so.6";
        let passes = |pattern: &str| Pattern::parse(pattern).unwrap().matches_path(path);
        assert!(passes("libc*") && passes("/usr/*") && passes("/^libc/") && passes("gnu/libc"));
        assert!(!passes("libm*") && !passes("usr*"));
    }

    #[test]
    fn a_file_passes_by_its_whole_path_too() {
        let here = Pattern::parse("./server").unwrap().or_path(Some("/home/a/server".into()));
        assert!(here.matches_path("/home/a/server"));
        assert!(!here.matches_path("/home/b/server") && !here.matches_path("/home/a/server2"));
        assert_eq!(here.text(), "./server");
    }

    #[test]
    fn globs_cover_the_whole_name() {
        check("lib*.so", "libc.so", true);
        check("lib*.so", "libc.so.6", false);
        check("std::vec?", "std::vec1", true);
        check("a.c*", "abc", false);
    }

    #[test]
    fn slashes_mean_a_regular_expression_but_a_path_still_works() {
        check("/^mem(cpy|set)$/", "memset", true);
        check("/^mem(cpy|set)$/", "memmove", false);
        check("/usr/lib/", "/usr/lib/libc.so", true);
        check("/usr", "/usr/lib/libc.so", true);
    }

    #[test]
    fn a_malformed_expression_says_why() {
        let message = Pattern::parse("/a(/").unwrap_err().to_string();
        assert!(message.contains("/a(/") && message.contains("unclosed group"), "{message}");
    }
}
