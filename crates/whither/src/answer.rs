//! The answer on stdout, and nothing else there. Colour codes are dropped when nobody can see them;
//! a reader that has seen enough (a closed pipe) comes back as an error that `failure` keeps quiet.

use crate::cli::Color;
use anstream::ColorChoice;
use std::io::{self, Write};

/// Applies `--color` to everything printed from now on.
pub(crate) fn set_color(color: Color) {
    let choice = match color {
        Color::Auto => ColorChoice::Auto,
        Color::Always => ColorChoice::Always,
        Color::Never => ColorChoice::Never,
    };
    choice.write_global();
}

/// Prints text, ending in exactly one newline.
///
/// # Errors
/// stdout cannot be written.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.trim_end_matches('\n').as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes bytes untouched.
///
/// # Errors
/// stdout cannot be written.
pub(crate) fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}
