//! Folded stacks, the input of flame graph tools: one line per stack, outermost first, command name
//! as root, frames marked `_[k]` (kernel), `_[i]` (inlined) and `_[j]` (made at run time) as the
//! `perf` collapsers do with annotations on.

use super::names::{Namer, in_kernel};
use super::rows::{Row, rows};
use super::{Figure, Options, event_of, failed};
use crate::error::Error;
use std::collections::BTreeMap;
use std::io::Write;
use whither_image::ImageKind;
use whither_store::model::{Frame, Profile};
use whither_store::symbols::Symbols;

/// Writes folded stacks of one event.
///
/// # Errors
/// See [`super::write`].
pub fn write(profile: &Profile, symbols: &dyn Symbols, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    for (stack, n) in fold(profile, symbols, options)? {
        writeln!(out, "{stack} {n}").map_err(failed("folded"))?;
    }
    Ok(())
}

/// Distinct stacks with their sums, in order of their text.
pub(super) fn fold(
    profile: &Profile,
    symbols: &dyn Symbols,
    options: &Options,
) -> Result<BTreeMap<String, u64>, Error> {
    let event = event_of(profile, options)?;
    let mut namer = Namer::new(profile, symbols, options.lines);
    let mut folded: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows(profile).iter().filter(|r| r.event == event) {
        let n = match options.figure {
            Figure::Weight => row.weight,
            Figure::Samples => row.samples,
        };
        if n > 0 {
            *folded.entry(line(profile, &mut namer, row)).or_default() += n;
        }
    }
    if folded.is_empty() {
        return Err(Error::Empty { event: profile.event(event).name.clone() });
    }
    Ok(folded)
}

fn line(profile: &Profile, namer: &mut Namer<'_>, row: &Row) -> String {
    let mut text = clean(&profile.process(row.process).comm);
    if text.is_empty() {
        text.push_str("[unnamed]");
    }
    if let Some(mark) = row.mark(profile) {
        text.push(';');
        text.push_str(mark);
    }
    for frame in row.frames(profile).iter().rev() {
        push_frame(&mut text, profile, namer, *frame);
    }
    text
}

fn push_frame(text: &mut String, profile: &Profile, namer: &mut Namer<'_>, frame: Frame) {
    let image = profile.image(frame.image);
    let kind = match image.kind {
        _ if in_kernel(image) => "_[k]",
        ImageKind::Jit | ImageKind::Anon => "_[j]",
        _ => "",
    };
    for f in namer.frame(frame).iter().rev() {
        text.push(';');
        text.push_str(&clean(&f.name));
        text.push_str(if f.inlined { "_[i]" } else { kind });
    }
}

/// A semicolon separates frames and a line break lines, so names may hold neither.
pub(super) fn clean(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c == ';' {
                ':'
            } else if c.is_control() {
                ' '
            } else {
                c
            }
        })
        .collect()
}
