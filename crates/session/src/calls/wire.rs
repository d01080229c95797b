//! Verbs and replies of a running session: values, and one JSON line each on the socket. Fields are added,
//! never renamed; an unknown verb is answered with a sentence, so that an older session and a newer asker
//! understand that much.

use serde::{Deserialize, Serialize};
use std::sync::mpsc::Sender;
use whither_store::calls::{CallSnapshot, PatchKind, PointState};

/// What a session can be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum Verb {
    /// Probe more functions.
    Add {
        /// As after `-f`.
        patterns: Vec<String>,
        /// As after `-x`.
        #[serde(default)]
        exclude: Vec<String>,
    },
    /// Take probes back.
    Remove {
        /// Names, or `#12`.
        patterns: Vec<String>,
    },
    /// Let probes count or pass.
    Switch {
        /// Names, or `#12`.
        patterns: Vec<String>,
        /// Whether they count.
        on: bool,
    },
    /// Tell which probes are meant.
    Which {
        /// Names, or `#12`.
        patterns: Vec<String>,
    },
    /// Tell the probes.
    List,
    /// Tell everything counted.
    Show,
    /// Begin a new epoch.
    Reset {
        /// Name of the epoch that ends; its number when empty.
        #[serde(default)]
        label: String,
    },
    /// Probe the functions that a probed one calls.
    Callees {
        /// Its number.
        point: u32,
    },
    /// Tell the functions that a probed one calls.
    LookCallees {
        /// Its number.
        point: u32,
    },
    /// Probe some of the functions that a probed one calls.
    AddCallees {
        /// Its number.
        point: u32,
        /// Which of them.
        chosen: Vec<Place>,
    },
    /// Probe the functions that call a probed one.
    Callers {
        /// Its number.
        point: u32,
    },
    /// Leave the target and end the session.
    Stop,
}

/// What a session answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum Reply {
    /// Probes were added.
    Added {
        /// New ones.
        added: Vec<AddedPoint>,
        /// Asked for and there before.
        already: Vec<u32>,
        /// Name and reason of those that cannot be.
        refused: Vec<(String, String)>,
        /// How long no thread of the target ran, nanoseconds.
        pause_ns: u64,
        /// How long one of its threads was held at most.
        held_ns: u64,
        /// Of callees: sentences about calls through pointers.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// Functions called by a probed one.
    Found {
        /// Them, each once.
        callees: Vec<Found>,
        /// Sentences about calls through pointers.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// Probes were taken back.
    Removed {
        /// Their numbers and names.
        removed: Vec<AddedPoint>,
        /// How long no thread of the target ran, nanoseconds.
        pause_ns: u64,
        /// How long one of its threads was held at most.
        held_ns: u64,
    },
    /// Probes were switched.
    Switched {
        /// Which.
        points: Vec<AddedPoint>,
    },
    /// Probes that are meant.
    Meant {
        /// Their numbers and names.
        points: Vec<AddedPoint>,
    },
    /// The probes.
    Points {
        /// All of them, refused ones too.
        points: Vec<PointLine>,
    },
    /// Everything counted.
    Counted {
        /// At this moment.
        snapshot: Box<CallSnapshot>,
    },
    /// Done; a sentence about it.
    Done {
        /// For the user.
        text: String,
    },
    /// Nothing matched.
    Nothing {
        /// Names like it.
        near: Vec<String>,
    },
    /// Not done.
    No {
        /// Why.
        why: String,
    },
}

impl Reply {
    /// With what is to be said of calls through pointers.
    pub(super) fn noting(mut self, said: Vec<String>) -> Self {
        if let Self::Added { notes, .. } | Self::Found { notes, .. } = &mut self {
            notes.extend(said);
        }
        self
    }
}

/// A function by file and address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Path of the module.
    pub module: String,
    /// Stated address.
    pub offset: u64,
}

/// A function that a probed one calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Where.
    pub place: Place,
    /// Preferred name.
    pub name: String,
    /// Why it cannot be probed.
    pub refused: Option<String>,
}

/// A probe in a reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedPoint {
    /// Number.
    pub id: u32,
    /// Preferred name.
    pub name: String,
}

/// A probe of `list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointLine {
    /// Number; 0 for refused functions.
    pub id: u32,
    /// Names, the preferred first.
    pub names: Vec<String>,
    /// Path of the module.
    pub module: String,
    /// Stated address.
    pub offset: u64,
    /// How it is instrumented.
    pub patch: Option<PatchKind>,
    /// State.
    pub state: PointState,
    /// Calls counted.
    pub hits: u64,
    /// What they cost so far, nanoseconds.
    pub cost_ns: u64,
    /// Why it is refused, or why only entries count.
    pub remark: Option<String>,
}

/// A verb on its way to the session, with the way back.
#[derive(Debug)]
pub struct Ask {
    /// What.
    pub verb: Verb,
    /// Where the answer goes.
    pub answer: Sender<Reply>,
}

/// Reads a verb; what cannot be read gives the sentence to answer.
pub(super) fn verb_of(line: &str) -> Result<Verb, String> {
    serde_json::from_str(line).map_err(|e| format!("this session does not understand that: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_survive_the_wire_and_strangers_get_a_sentence() {
        let verbs = [
            Verb::Add { patterns: vec!["a\nb".into()], exclude: vec![] },
            Verb::Remove { patterns: vec!["#3".into()] },
            Verb::Switch { patterns: vec!["x".into()], on: false },
            Verb::Which { patterns: vec!["x".into()] },
            Verb::List,
            Verb::Show,
            Verb::Reset { label: "after".into() },
            Verb::Callees { point: 4 },
            Verb::Callers { point: 4 },
            Verb::LookCallees { point: 4 },
            Verb::AddCallees { point: 4, chosen: vec![Place { module: "/m".into(), offset: 9 }] },
            Verb::Stop,
        ];
        for verb in verbs {
            let line = serde_json::to_string(&verb).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(verb_of(&line).unwrap(), verb);
        }
        assert_eq!(
            verb_of(r#"{"verb":"add","patterns":["f"]}"#).unwrap(),
            Verb::Add { patterns: vec!["f".into()], exclude: vec![] }
        );
        for broken in ["", "{", r#"{"verb":"dance"}"#, r#"{"verb":"callees","point":-1}"#, "[[[["] {
            assert!(verb_of(broken).unwrap_err().contains("does not understand"), "{broken}");
        }
    }
}
