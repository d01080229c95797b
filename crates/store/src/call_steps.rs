//! What a session of call paths was asked for and then told to do while it ran, in words that hold in another run
//! of the program, or of a fixed one: functions by name and file, never by the numbers of probes. So the same steps
//! can be taken again, at the same times.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display};

/// How a session began, and what was changed in it. Its metrics stand in the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallScript {
    /// Patterns of the functions probed from the begin, as written.
    pub functions: Vec<String>,
    /// Patterns of those left out, as written.
    pub exclude: Vec<String>,
    /// In order of time.
    pub steps: Vec<CallStep>,
}

/// A change of probes or epochs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallStep {
    /// Nanoseconds since the session's begin.
    pub after_ns: u64,
    /// What was done.
    #[serde(flatten)]
    pub change: CallChange,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum CallChange {
    /// Probes functions.
    Add {
        /// Patterns, as written.
        patterns: Vec<String>,
        /// Patterns of those left out, as written.
        exclude: Vec<String>,
    },
    /// Takes probes back.
    Remove {
        /// Which.
        functions: Vec<CallFunction>,
    },
    /// Lets probes count or pass.
    Switch {
        /// Which.
        functions: Vec<CallFunction>,
        /// Whether they count.
        on: bool,
    },
    /// Probes what a probed function calls.
    Expand {
        /// The caller.
        function: CallFunction,
        /// Some of those it calls; all of them when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        only: Option<Vec<CallFunction>>,
    },
    /// Probes what calls a probed function.
    Callers {
        /// The one called.
        function: CallFunction,
    },
    /// Begins a new epoch.
    Reset {
        /// Name of the epoch that ended.
        label: String,
    },
    /// A step that only a newer whither knows.
    #[serde(other)]
    Unknown,
}

/// A function by what stays the same from build to build.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallFunction {
    /// Its preferred name; `file+0xoffset` when it has none.
    pub name: String,
    /// Name of the file that holds it, without folders; absent for the program's own executable, which may be called
    /// otherwise when it is fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

impl Display for CallStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{:.2} s  {}", self.after_ns as f64 / 1e9, self.change)
    }
}

impl Display for CallChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add { patterns, exclude } => {
                f.write_str("add")?;
                patterns.iter().try_for_each(|p| write!(f, " '{p}'"))?;
                exclude.iter().try_for_each(|p| write!(f, " -x '{p}'"))
            }
            Self::Remove { functions } => write!(f, "remove {}", listed(functions)),
            Self::Switch { functions, on: true } => write!(f, "enable {}", listed(functions)),
            Self::Switch { functions, on: false } => write!(f, "disable {}", listed(functions)),
            Self::Expand { function, only: None } => write!(f, "expand {function}"),
            Self::Expand { function, only: Some(only) } => write!(f, "expand {function} into {}", listed(only)),
            Self::Callers { function } => write!(f, "expand --callers {function}"),
            Self::Reset { label } => write!(f, "reset --label '{label}'"),
            Self::Unknown => f.write_str("a step that this version of whither does not know"),
        }
    }
}

impl Display for CallFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) if !self.name.starts_with(file.as_str()) => write!(f, "{file}!{}", self.name),
            _ => f.write_str(&self.name),
        }
    }
}

/// `f, g, lib.so!h and 12 more`.
fn listed(functions: &[CallFunction]) -> String {
    /// Functions named in one line: one key may remove hundreds.
    const MOST: usize = 8;
    let shown: Vec<String> = functions.iter().take(MOST).map(ToString::to_string).collect();
    let rest = functions.len() - shown.len();
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    shown.join(", ") + &more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_read_as_the_verbs_that_they_were() {
        let solve = CallFunction { name: "solve".into(), file: None };
        let sin = CallFunction { name: "sin".into(), file: Some("libm.so.6".into()) };
        let nameless = CallFunction { name: "libm.so.6+0x10".into(), file: Some("libm.so.6".into()) };
        let said = |change| CallStep { after_ns: 1_250_000_000, change }.to_string();
        let expand = |only| CallChange::Expand { function: solve.clone(), only };
        assert_eq!(
            said(CallChange::Add { patterns: vec!["a.*".into(), "b".into()], exclude: vec!["ab".into()] }),
            "+1.25 s  add 'a.*' 'b' -x 'ab'"
        );
        assert_eq!(said(expand(None)), "+1.25 s  expand solve");
        assert_eq!(
            said(expand(Some(vec![sin.clone(), nameless]))),
            "+1.25 s  expand solve into libm.so.6!sin, libm.so.6+0x10"
        );
        let many = CallChange::Remove { functions: vec![sin; 10] };
        assert!(said(many).ends_with("libm.so.6!sin and 2 more"));
    }

    #[test]
    fn what_a_newer_whither_adds_does_not_make_a_recording_unreadable() {
        let step: CallStep = serde_json::from_str(r#"{"after_ns":5,"step":"dance","with":"solve"}"#).unwrap();
        assert_eq!(step, CallStep { after_ns: 5, change: CallChange::Unknown });
        assert!(serde_json::from_str::<CallStep>(r#"{"after_ns":5,"step":"remove"}"#).is_err(), "half a step");
    }
}
