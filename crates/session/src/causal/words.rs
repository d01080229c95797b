//! What the user writes for progress points, latency pairs and targets. Only the form is looked at here,
//! before anything is launched; whether a program has such a place is found out by `points` and `code`.

use crate::SessionError;
use regex::Regex;

/// A progress point as written.
#[derive(Clone, Debug)]
pub struct PointSpec {
    /// As written.
    pub text: String,
    /// What it means.
    pub place: PointPlace,
}

/// Where a point is.
#[derive(Clone, Debug)]
pub enum PointPlace {
    /// First instruction of a source line, all inlined copies.
    Line(FileLine),
    /// Entry of functions.
    Function(NamePattern),
    /// Every return of functions.
    Return(NamePattern),
    /// A mark of `whither.h`.
    Mark(String),
    /// A mark for tracers: provider and name.
    Usdt(String, String),
    /// A system call, by number.
    Syscall(u32),
    /// A tracepoint of the kernel: group and name.
    Tracepoint(String, String),
    /// A counter in memory, by the name of the variable.
    Counter(String),
    /// Samples in a source line.
    Sampled(FileLine),
    /// The end of the program.
    End,
}

/// A source line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLine {
    /// End of the path.
    pub file: String,
    /// From 1.
    pub line: u32,
}

/// Functions by name, or by a regular expression over the whole name; the module may be named.
#[derive(Clone, Debug)]
pub struct NamePattern {
    /// As written, without the module.
    pub text: String,
    /// Regular expression on the module's path.
    pub module: Option<Regex>,
    name: Option<Regex>,
}

impl NamePattern {
    /// `name`, or `MODULE!NAME` with regular expressions.
    fn parse(text: &str) -> Result<Self, SessionError> {
        let (module, name) = match text.split_once('!') {
            Some((module, name)) => (Some(expression(text, module)?), name),
            None => (None, text),
        };
        if name.is_empty() {
            return Err(slip(text, "the name of a function is missing"));
        }
        // A name that is no regular expression (`operator()`, `a::b<c*>`) still is a name.
        let whole = Regex::new(&format!("^(?:{name})$")).ok();
        Ok(Self { text: name.to_owned(), module, name: whole })
    }

    /// Whether a function is meant exactly.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.text == name
    }

    /// Whether the expression holds for the whole name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.is(name) || self.name.as_ref().is_some_and(|r| r.is_match(name))
    }

    /// Whether a module may hold it.
    #[must_use]
    pub fn may_be_in(&self, path: &str) -> bool {
        self.module.as_ref().is_none_or(|r| r.is_match(path))
    }
}

/// Reads a progress point.
///
/// # Errors
/// [`SessionError::Point`] when it can mean nothing.
pub fn point(text: &str) -> Result<PointSpec, SessionError> {
    let place = place(text)?;
    Ok(PointSpec { text: text.to_owned(), place })
}

fn place(text: &str) -> Result<PointPlace, SessionError> {
    if let Some((kind, rest)) = text.split_once(':') {
        let named = |what: &str| if rest.is_empty() { Err(slip(text, what)) } else { Ok(rest.to_owned()) };
        match kind {
            "mark" => return Ok(PointPlace::Mark(named("the name of the mark is missing")?)),
            "counter" => return Ok(PointPlace::Counter(named("the name of the variable is missing")?)),
            "syscall" => return syscall(text, rest),
            "usdt" => return two(text, rest, "usdt:PROVIDER:NAME").map(|(a, b)| PointPlace::Usdt(a, b)),
            "tp" => return two(text, rest, "tp:GROUP:NAME").map(|(a, b)| PointPlace::Tracepoint(a, b)),
            "sampled" => {
                let line = file_line(rest).ok_or_else(|| slip(text, "write it as sampled:FILE:LINE"))?;
                return Ok(PointPlace::Sampled(line));
            }
            "hw" => return Err(slip(text, "hardware breakpoints are not used; FILE:LINE works without one")),
            _ => {}
        }
    }
    if let Some(line) = file_line(text) {
        return Ok(PointPlace::Line(line));
    }
    match text.strip_suffix(":ret") {
        Some(function) => NamePattern::parse(function).map(PointPlace::Return),
        None => NamePattern::parse(text).map(PointPlace::Function),
    }
}

fn syscall(text: &str, name: &str) -> Result<PointPlace, SessionError> {
    let number = whither_kernel::syscalls::number(name);
    number.map(PointPlace::Syscall).ok_or_else(|| {
        let near = whither_kernel::syscalls::near(name);
        let near = if near.is_empty() { String::new() } else { format!("; there are {}", near.join(", ")) };
        slip(text, &format!("there is no system call `{name}`{near}"))
    })
}

fn two(text: &str, rest: &str, form: &str) -> Result<(String, String), SessionError> {
    let parts = rest.split_once(':').filter(|(a, b)| !a.is_empty() && !b.is_empty());
    parts.map(|(a, b)| (a.to_owned(), b.to_owned())).ok_or_else(|| slip(text, &format!("write it as {form}")))
}

/// `FILE:LINE`, also of files with colons in their names.
pub(super) fn file_line(text: &str) -> Option<FileLine> {
    let (file, line) = text.rsplit_once(':')?;
    let line = line.parse().ok().filter(|l| *l > 0)?;
    (!file.is_empty() && !file.ends_with(':')).then(|| FileLine { file: file.to_owned(), line })
}

/// Reads a latency pair `BEGIN,END`; `mark:NAME` alone stands for the marks `NAME_begin` and `NAME_end`.
///
/// # Errors
/// [`SessionError::Point`] when it can mean nothing.
pub fn pair(text: &str) -> Result<(PointSpec, PointSpec), SessionError> {
    if let Some((begin, end)) = text.split_once(',') {
        return Ok((point(begin)?, point(end)?));
    }
    match text.strip_prefix("mark:") {
        Some(name) if !name.is_empty() => {
            Ok((point(&format!("mark:{name}_begin"))?, point(&format!("mark:{name}_end"))?))
        }
        _ => Err(slip(text, "a latency is measured between two points: write BEGIN,END")),
    }
}

/// A target as written: `FILE:LINE`, a function, or `FUNCTION<CALLER<...` for the function when called so.
#[derive(Clone, Debug)]
pub enum TargetSpec {
    /// A source line.
    Line(FileLine),
    /// Functions, and the callers they are limited to, the nearest first.
    Function(NamePattern, Vec<NamePattern>),
}

impl TargetSpec {
    /// The place itself, as written.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Line(line) => format!("{}:{}", line.file, line.line),
            Self::Function(name, _) => name.text.clone(),
        }
    }
}

/// Reads a target.
///
/// # Errors
/// [`SessionError::Point`] when it can mean nothing.
pub fn target(text: &str) -> Result<TargetSpec, SessionError> {
    if let Some(line) = file_line(text) {
        return Ok(TargetSpec::Line(line));
    }
    // ` < ` cannot be part of a C++ name, `<` can.
    let mut names = text.split(" < ").map(str::trim);
    let first = NamePattern::parse(names.next().unwrap_or_default())?;
    let callers = names.map(NamePattern::parse).collect::<Result<Vec<_>, _>>()?;
    if callers.len() > 1 {
        return Err(slip(text, "one caller can be given: `FUNCTION < CALLER`"));
    }
    Ok(TargetSpec::Function(first, callers))
}

/// A regular expression of the user's.
///
/// # Errors
/// [`SessionError::Point`].
pub(super) fn expression(text: &str, pattern: &str) -> Result<Regex, SessionError> {
    Regex::new(pattern).map_err(|e| {
        let why = e.to_string();
        slip(text, &format!("not a regular expression: {}", why.lines().last().unwrap_or_default()))
    })
}

fn slip(text: &str, why: &str) -> SessionError {
    SessionError::Point { text: text.to_owned(), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_points() {
        let is = |text: &str, wanted: fn(&PointPlace) -> bool| {
            let place = point(text).expect(text).place;
            assert!(wanted(&place), "{text}: {place:?}");
        };
        is("server.c:412", |p| matches!(p, PointPlace::Line(l) if l.line == 412 && l.file == "server.c"));
        is("a::b", |p| matches!(p, PointPlace::Function(n) if n.is("a::b")));
        is("libx.so!f.*", |p| matches!(p, PointPlace::Function(n) if n.may_be_in("/lib/libx.so") && n.matches("foo")));
        is("f:ret", |p| matches!(p, PointPlace::Return(n) if n.is("f")));
        is("mark:orders", |p| matches!(p, PointPlace::Mark(n) if n == "orders"));
        is("usdt:libc:setjmp", |p| matches!(p, PointPlace::Usdt(a, b) if a == "libc" && b == "setjmp"));
        is("syscall:accept4", |p| matches!(p, PointPlace::Syscall(288)));
        is("tp:sched:sched_switch", |p| matches!(p, PointPlace::Tracepoint(..)));
        is("counter:done", |p| matches!(p, PointPlace::Counter(_)));
        is("sampled:a.c:7", |p| matches!(p, PointPlace::Sampled(l) if l.line == 7));
        is("operator()", |p| matches!(p, PointPlace::Function(n) if n.matches("operator()")));
        for wrong in ["", "mark:", "usdt:x", "syscall:raed", "tp:a", "sampled:x", "a(b!c", "x!", "hw:a.c:3"] {
            assert_eq!(point(wrong).expect_err(wrong).exit_code(), 2, "{wrong}");
        }
        assert!(point("syscall:accep").expect_err("unknown").to_string().contains("accept4"));
    }

    #[test]
    fn pairs_and_targets() {
        let (begin, end) = pair("mark:req").expect("a pair");
        assert_eq!((begin.text.as_str(), end.text.as_str()), ("mark:req_begin", "mark:req_end"));
        assert!(pair("a,b").is_ok() && pair("a").is_err());
        assert!(matches!(target("a.c:7"), Ok(TargetSpec::Line(_))));
        let Ok(TargetSpec::Function(name, callers)) = target("find<int> < lookup") else { panic!("a path") };
        assert!(name.is("find<int>") && callers.len() == 1 && callers[0].is("lookup"));
    }
}
