//! The answer on stdout, and nothing else there. Colour codes are dropped when nobody can see them;
//! a reader that has seen enough (a closed pipe) comes back as an error that `failure` keeps quiet.

use crate::cli::Color;
use anstream::ColorChoice;
use std::io::{self, IsTerminal, Write};
use whither_report::text::{Layout, Style};

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

/// Has something written as it is made, untouched.
///
/// # Errors
/// stdout cannot be written.
pub(crate) fn stream(make: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    make(&mut out)?;
    out.flush()
}

/// Whether colours are wanted and can be seen on stdout.
pub(crate) fn is_colored() -> bool {
    match ColorChoice::global() {
        ColorChoice::Auto => anstream::AutoStream::choice(&io::stdout()) != ColorChoice::Never,
        ColorChoice::Never => false,
        _ => true,
    }
}

/// Characters per line where nobody tells: enough for long names in a file, not endless.
const UNATTENDED_WIDTH: usize = 160;

/// How text answers are laid out here and now.
pub(crate) fn layout() -> Layout {
    let style = if is_colored() { Style::Ansi } else { Style::Plain };
    Layout { style, width: width() }
}

/// COLUMNS, else the terminal's width.
fn width() -> usize {
    let told = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    let terminal =
        || io::stdout().is_terminal().then(crossterm::terminal::size)?.ok().map(|(columns, _)| columns.into());
    told.or_else(terminal).filter(|w| *w >= 40).unwrap_or(UNATTENDED_WIDTH)
}
