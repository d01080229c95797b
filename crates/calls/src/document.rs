//! A profile as it is written, with its paths made one by one meanwhile: those of an interpreter take gigabytes together.

use crate::analysis::Analysis;
use crate::results::CallProfile;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// A profile without paths, and whom to ask for them.
pub struct Document<'a> {
    profile: &'a CallProfile,
    analysis: &'a Analysis<'a>,
}

impl<'a> Document<'a> {
    /// `profile` is [`Analysis::brief`], to which something may have been added.
    #[must_use]
    pub fn new(profile: &'a CallProfile, analysis: &'a Analysis<'a>) -> Self {
        Self { profile, analysis }
    }
}

/// The paths of an analysis, most time first.
struct Paths<'a>(&'a Analysis<'a>);

impl Serialize for Paths<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.order().into_iter().map(|i| self.0.path(i)))
    }
}

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Every field, so that none can be forgotten.
        let CallProfile {
            schema,
            epoch,
            target,
            whole,
            functions,
            paths: _,
            facts: _,
            listing,
            frames,
            in_progress,
            lost,
            refused,
            own_cost,
            marks,
            steps,
            notes,
        } = self.profile;
        let mut out = serializer.serialize_struct("CallProfile", 15)?;
        out.serialize_field("schema", schema)?;
        if !epoch.is_empty() {
            out.serialize_field("epoch", epoch)?;
        }
        out.serialize_field("target", target)?;
        out.serialize_field("whole", whole)?;
        out.serialize_field("functions", functions)?;
        out.serialize_field("paths", &Paths(self.analysis))?;
        if let Some(listing) = listing {
            out.serialize_field("listing", listing)?;
        }
        out.serialize_field("frames", frames)?;
        out.serialize_field("in_progress", in_progress)?;
        out.serialize_field("lost", lost)?;
        out.serialize_field("refused", refused)?;
        out.serialize_field("own_cost", own_cost)?;
        out.serialize_field("marks", marks)?;
        if !steps.is_empty() {
            out.serialize_field("steps", steps)?;
        }
        out.serialize_field("notes", notes)?;
        out.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Named, Take, call, leaf};
    use crate::{Group, ListQuery, Options};

    /// Made path by path, the document is the same.
    #[test]
    fn documents_are_the_profile() {
        let main = call(0, 0, 50, 1, vec![leaf(1, 16, 300, 1), call(1, 32, 300, 2, vec![leaf(2, 48, 5, 3)])]);
        let snapshot = Take::of([1, 2]).snapshot(&main);
        let analysis = Analysis::new(&snapshot, &Named, Options::default());
        let dressed = |mut profile: CallProfile| {
            profile.epoch = "warm".into();
            profile.listing = analysis.listing(&ListQuery { group: Group::Function, ..ListQuery::default() }).ok();
            profile
        };
        let text = |document: &dyn Fn() -> Result<String, serde_json::Error>| document().unwrap();
        for (whole, brief) in
            [(analysis.profile(), analysis.brief()), (dressed(analysis.profile()), dressed(analysis.brief()))]
        {
            assert_eq!(brief.facts(), whole.facts());
            assert_eq!(
                text(&|| serde_json::to_string(&Document::new(&brief, &analysis))),
                text(&|| serde_json::to_string(&whole))
            );
        }
    }
}
