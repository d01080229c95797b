//! What the user writes after `-f` and `-x`, as values: `re`, `module!re`, `module+0x1a2b`, `0x1a2b`,
//! `file.c:120`, `#12`. A regular expression is tried here, so that a slip is found before anything is
//! launched or attached.

use crate::SessionError;
use regex::Regex;
use whither_probe::{Order, PointId, Select};

/// Functions to probe.
///
/// # Errors
/// [`SessionError::Pattern`] for what can never match.
pub fn including(text: &str) -> Result<Order, SessionError> {
    select(text).map(Order::Include)
}

/// Functions to leave out of those.
///
/// # Errors
/// [`SessionError::Pattern`] for what can never match.
pub fn excluding(text: &str) -> Result<Order, SessionError> {
    select(text).map(Order::Exclude)
}

/// One pattern.
pub(super) fn select(text: &str) -> Result<Select, SessionError> {
    let text = text.trim();
    let wrong = |why: &str| SessionError::Pattern { pattern: text.into(), why: why.into() };
    if text.is_empty() {
        return Err(wrong("it is empty"));
    }
    if let Some(number) = text.strip_prefix('#') {
        let number = number.parse().map_err(|_| wrong("after # comes the number of a probe, as `list` shows it"))?;
        return Ok(Select::Point(PointId(number)));
    }
    if let Some(found) = address(text).or_else(|| line(text)) {
        return Ok(found);
    }
    let (module, function) = match split_module(text) {
        Some((module, function)) => (Some(module), function),
        None => (None, text),
    };
    for part in module.iter().chain([&function]) {
        whole(part).map_err(|e| wrong(&reason(&e)))?;
    }
    Ok(Select::Name { function: function.into(), module: module.map(Into::into) })
}

/// A regular expression over a whole name.
///
/// # Errors
/// As `regex` says.
pub(super) fn whole(pattern: &str) -> Result<Regex, regex::Error> {
    Regex::new(&format!("^(?:{pattern})$"))
}

/// The last line of the library's answer says what is wrong; the others draw it.
fn reason(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default().trim();
    format!("it is no regular expression ({})", last.strip_prefix("error: ").unwrap_or(last))
}

/// `module+0x1a2b` or `0x1a2b`.
fn address(text: &str) -> Option<Select> {
    let (module, digits) = match text.rsplit_once("+0x") {
        Some((module, digits)) if !module.is_empty() => (Some(module.to_owned()), digits),
        _ => (None, text.strip_prefix("0x")?),
    };
    let offset = u64::from_str_radix(digits, 16).ok()?;
    Some(Select::Address { module, offset })
}

/// `file.c:120`; a C++ name has two colons and no number behind them.
fn line(text: &str) -> Option<Select> {
    let (file, line) = text.rsplit_once(':')?;
    let line = line.parse().ok().filter(|l| *l > 0)?;
    (file.contains('.') && !file.ends_with(':')).then(|| Select::Line { file: file.into(), line })
}

/// `libpg.so!re`; `operator!` and `operator!=` are names.
fn split_module(text: &str) -> Option<(&str, &str)> {
    let (module, function) = text.split_once('!')?;
    (!module.is_empty() && !function.is_empty() && !module.ends_with("operator")).then_some((module, function))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(function: &str, module: Option<&str>) -> Select {
        Select::Name { function: function.into(), module: module.map(Into::into) }
    }

    #[test]
    fn every_form_is_told_apart() {
        let cases = [
            ("MPI_Wait", name("MPI_Wait", None)),
            (" MPI_.* ", name("MPI_.*", None)),
            ("libpg.so!.*Lookup.*", name(".*Lookup.*", Some("libpg.so"))),
            ("ns::T::operator!=", name("ns::T::operator!=", None)),
            ("ns::f", name("ns::f", None)),
            ("a::b::(c|d)", name("a::b::(c|d)", None)),
            ("libc.so.6+0x1a2b", Select::Address { module: Some("libc.so.6".into()), offset: 0x1a2b }),
            ("0xff", Select::Address { module: None, offset: 255 }),
            ("d_congrad.c:212", Select::Line { file: "d_congrad.c".into(), line: 212 }),
            ("#12", Select::Point(PointId(12))),
        ];
        for (text, wanted) in cases {
            assert_eq!(select(text).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn slips_are_told_in_words() {
        for (text, word) in [("", "empty"), ("#x", "number of a probe"), ("a(b", "no regular expression")] {
            let error = select(text).unwrap_err();
            assert!(error.to_string().contains(word), "{text}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
    }
}
