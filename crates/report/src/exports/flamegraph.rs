//! A flame graph as one SVG file, made by `inferno` from the folded stacks.

use super::{Figure, Options, event_of, failed, folded, title_of};
use crate::error::Error;
use inferno::flamegraph::{self, color::Palette};
use std::io::Write;
use whither_store::model::{EventUnit, Profile};
use whither_store::symbols::Symbols;

/// Writes the SVG of one event.
///
/// # Errors
/// See [`super::write`].
pub fn write(profile: &Profile, symbols: &dyn Symbols, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let event = profile.event(event_of(profile, options)?);
    let lines: Vec<String> =
        folded::fold(profile, symbols, options)?.into_iter().map(|(s, n)| format!("{s} {n}")).collect();
    let mut style = flamegraph::Options::default();
    style.title = title_of(profile, options);
    style.count_name = match (options.figure, event.unit) {
        (Figure::Samples, _) => "samples".into(),
        (Figure::Weight, EventUnit::Nanoseconds) => "ns".into(),
        (Figure::Weight, EventUnit::Count) => event.name.clone(),
    };
    style.subtitle = Some(event.name.clone());
    style.colors = Palette::Multi(flamegraph::color::MultiPalette::Java);
    // Equal input gives an equal picture.
    style.deterministic = true;
    flamegraph::from_lines(&mut style, lines.iter().map(String::as_str), out).map_err(failed("flamegraph"))
}
