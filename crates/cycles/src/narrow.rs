//! A profile cut down to the rows that pass a filter, for what reads whole profiles (exports). A stack
//! stays where the position it was taken at has samples that stay, so that figures and call paths keep
//! speaking of the same samples.

use crate::error::Error;
use crate::listing::nothing_matched;
use crate::places::{Inlines, Places};
use crate::selection::{Filter, Selection};
use rustc_hash::FxHashSet;
use whither_store::model::{ImageIx, ImageOffset, Profile};
use whither_store::symbols::Symbols;

/// The profile without the samples that do not pass; the same filters as for a listing select the same
/// samples.
///
/// # Errors
/// [`Error::Empty`], or [`Error::NothingMatched`].
pub fn narrow(mut profile: Profile, symbols: &dyn Symbols, filter: &Filter) -> Result<Profile, Error> {
    let filters = filter.describe();
    if filters.is_empty() {
        return Ok(profile);
    }
    let rows = passing(&profile, symbols, filter)?;
    let leaves: FxHashSet<(ImageIx, ImageOffset)> = rows.iter().map(|&r| leaf(&profile, r)).collect();
    let stacks: Vec<bool> = {
        let passes = Selection::stack_filter(&profile, filter);
        let innermost = |ix: usize| profile.stacks[ix].frames.first();
        let known = |ix: usize| innermost(ix).is_some_and(|f| leaves.contains(&(f.image, f.offset)));
        profile.stack_samples.iter().map(|s| known(s.stack.0 as usize) && passes(s)).collect()
    };
    profile.samples = rows.iter().map(|&r| profile.samples[r as usize]).collect();
    let mut keep = stacks.into_iter();
    profile.stack_samples.retain(|_| keep.next().unwrap_or(false));
    let note = format!("only {}", filters.join(", "));
    profile.epochs.iter_mut().for_each(|e| e.notes.push(note.clone()));
    Ok(profile)
}

fn passing(profile: &Profile, symbols: &dyn Symbols, filter: &Filter) -> Result<Vec<u32>, Error> {
    let mut selection = Selection::new(profile, filter, &[])?;
    if !filter.procs.is_empty() {
        Places::resolve(&selection, symbols, Inlines::Outermost).retain(&mut selection, &filter.procs);
    }
    if selection.rows.is_empty() { Err(nothing_matched(profile, filter)) } else { Ok(selection.rows) }
}

fn leaf(profile: &Profile, row: u32) -> (ImageIx, ImageOffset) {
    let s = &profile.samples[row as usize];
    (s.image, s.offset)
}
