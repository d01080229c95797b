//! Results as JSON: the result values as they are, inside an envelope that names schema and kind.
//! The schema only ever gains fields under its number.

use serde::Serialize;
use whither_causal::CausalAnswer;
use whither_cycles::results::accuracy::Accuracy;
use whither_cycles::results::analysis::{Analysis, Summary};
use whither_cycles::results::runs::RunStatistics;
use whither_cycles::results::{Annotation, CallTree, Difference, HeatMap, Listing, Provenance};

/// Version of the field names, see `docs/`.
pub const SCHEMA: &str = "whither.cycles/1";

/// A result that has a name of its own in JSON.
pub trait Kind: Serialize {
    /// Value of the field `kind`.
    const KIND: &'static str;

    /// The result on one line, with a newline at the end.
    fn json(&self) -> String
    where
        Self: Sized,
    {
        line(&Envelope { schema: SCHEMA, kind: Self::KIND, value: self })
    }
}

impl Kind for Listing {
    const KIND: &'static str = "listing";
}
impl Kind for Annotation {
    const KIND: &'static str = "annotation";
}
/// An annotation that gained a field `analysis`: who reads annotations goes on reading them.
impl Kind for Analysis {
    const KIND: &'static str = "annotation";

    fn json(&self) -> String {
        line(&Envelope {
            schema: SCHEMA,
            kind: Self::KIND,
            value: &Analysed { annotation: &self.annotation, analysis: self },
        })
    }
}
impl Kind for Accuracy {
    const KIND: &'static str = "accuracy";
}
impl Kind for Summary {
    const KIND: &'static str = "summary";
}
impl Kind for RunStatistics {
    const KIND: &'static str = "runs";
}
impl Kind for Difference {
    const KIND: &'static str = "difference";
}
impl Kind for CallTree {
    const KIND: &'static str = "calltree";
}
impl Kind for HeatMap {
    const KIND: &'static str = "heatmap";
}
impl Kind for Provenance {
    const KIND: &'static str = "provenance";
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    schema: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    value: &'a T,
}

#[derive(Serialize)]
struct Analysed<'a> {
    #[serde(flatten)]
    annotation: &'a Annotation,
    analysis: &'a Analysis,
}

/// One result on one line, with a newline at the end; numbers that do not exist are `null`.
#[must_use]
pub fn json<T: Kind>(value: &T) -> String {
    value.json()
}

/// A result of the call-path lens on one line, with a newline at the end. Its values carry the name of
/// their schema, `whither.calls/1`, themselves.
#[must_use]
pub fn calls<T: Serialize>(value: &T) -> String {
    line(value)
}

/// The same written as it is made: a document with all paths of an interpreter has hundreds of megabytes.
///
/// # Errors
/// `out` cannot be written.
pub fn write_calls<T: Serialize>(value: &T, mut out: impl std::io::Write) -> std::io::Result<()> {
    serde_json::to_writer(&mut out, value)?;
    out.write_all(b"\n")
}

/// A causal answer on one line, with a newline at the end; schema `whither.causal/1`.
#[must_use]
pub fn causal(answer: &CausalAnswer) -> String {
    line(answer)
}

fn line<T: Serialize>(value: &T) -> String {
    let mut text =
        serde_json::to_string(value).expect("results hold only strings, numbers and lists, which always serialise");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_cycles::results::{Cell, ListingRow};

    #[test]
    fn the_envelope_names_schema_and_kind_and_the_fields_stand_beside_it() {
        let listing = Listing {
            by: vec!["proc".into()],
            rows: vec![ListingRow {
                labels: vec!["work".into()],
                cells: vec![Cell { samples: 3, weight: 3000, share: 0.75 }],
                cumulative: 0.75,
                error: 0.5,
                remark: None,
            }],
            ..Listing::default()
        };
        let text = json(&listing);
        let back: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(text.starts_with(r#"{"schema":"whither.cycles/1","kind":"listing","#), "{text}");
        assert!(text.ends_with("}\n") && !text[..text.len() - 1].contains('\n'));
        assert_eq!(back["rows"][0]["cells"][0]["samples"], 3);
        assert_eq!(back["rows"][0]["labels"][0], "work");
        assert!(back["rows"][0].get("remark").is_none());
        assert!(back["provenance"]["own_cost"].is_null());
    }

    #[test]
    fn an_analysis_is_an_annotation_with_more() {
        let back: serde_json::Value = serde_json::from_str(&json(&crate::analysis_fixture::analysis())).unwrap();
        assert_eq!((&back["kind"], &back["procedure"]), (&"annotation".into(), &"copy".into()));
        assert_eq!(back["analysis"]["blocks"][1]["frequency"]["confidence"], "high");
        assert_eq!(back["analysis"]["scale"]["kind"], "absolute");
        assert_eq!(back["analysis"]["insns"][2]["culprits"][0]["cause"], "d-cache");
        assert!(back["analysis"].get("annotation").is_none(), "the listing is not told twice");
    }

    #[test]
    fn numbers_that_do_not_exist_are_null() {
        let p = Provenance { unknown_share: f64::NAN, ..Provenance::default() };
        let back: serde_json::Value = serde_json::from_str(&json(&p)).unwrap();
        assert!(back["unknown_share"].is_null());
    }
}
