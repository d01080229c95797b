//! The words of `-m` as actions of a probe: `count,wall,cpu,off,hist,ctxsw,faults,usage`, and integers of
//! a call under a name (`bytes=arg3`, `n=arg2:4:signed`, `got=ret`), and counters of the processor
//! (`cycles`, `instructions`, `llc-miss`), where threads can read them.

use crate::SessionError;
use whither_kernel::counters::{self, Machine, ThisMachine};
use whither_probe::{Counter, PointAction, Source, ValueSpec};

/// What a session measures per call path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// What the probes do; call paths are always kept apart.
    pub actions: Vec<PointAction>,
    /// Words of the columns that were asked for, in order.
    pub columns: Vec<String>,
}

/// Values that one probe can sum.
const VALUES: usize = 2;
/// Everything that can be written.
const KNOWN: &str = "count, wall, cpu, off, hist, ctxsw, faults, usage, cycles and other \
                     counters of the processor, NAME=argN[:WIDTH][:signed], NAME=ret";

/// Words that `-m` and `--sort` give a meaning, and heads of columns: a value of such a name could neither be ordered by
/// nor be told from what stands beside it.
const TAKEN: [&str; 23] = [
    "count", "calls", "wall", "cpu", "off", "self", "self-cpu", "avg", "average", "min", "max", "total", "exec",
    "hist", "p50", "p90", "p99", "usage", "ctxsw", "switches", "faults", "path", "function",
];

/// Turns the words into actions.
///
/// # Errors
/// [`SessionError::Metric`] for an unknown word, and for two values of one name; [`SessionError::Missing`] for an event that this kernel
/// does not count.
pub fn metrics(words: &[String], entry_only: bool) -> Result<Metrics, SessionError> {
    metrics_on(&ThisMachine, words, entry_only)
}

fn metrics_on(machine: &dyn Machine, words: &[String], entry_only: bool) -> Result<Metrics, SessionError> {
    let mut made = Metrics { actions: vec![PointAction::Path], columns: Vec::new() };
    let mut values = 0;
    for word in words.iter().map(|w| w.trim()).filter(|w| !w.is_empty()) {
        for action in actions(word, machine)? {
            values += usize::from(matches!(action, PointAction::Sum(_)));
            if entry_only && needs_exit(&action) {
                return Err(wrong(word, "it is known only when a call ends, and --entry-only looks at its beginning"));
            }
            if made.actions.contains(&action) {
                continue;
            }
            if let Some(name) = name_of(&action).filter(|n| made.actions.iter().filter_map(name_of).any(|m| m == *n)) {
                return Err(wrong(
                    word,
                    &format!("another value is called `{name}` already; give this one another name"),
                ));
            }
            made.actions.push(action);
        }
        made.columns.push(word.split_once('=').map_or(word, |(name, _)| name).to_owned());
    }
    if values > VALUES {
        return Err(wrong(&words.join(","), "a probe sums at most two values"));
    }
    Ok(made)
}

fn wrong(word: &str, why: &str) -> SessionError {
    SessionError::Metric { word: word.into(), why: why.into() }
}

/// Name of the value that is summed, if one is.
fn name_of(action: &PointAction) -> Option<&str> {
    if let PointAction::Sum(value) = action { Some(&value.name) } else { None }
}

fn needs_exit(action: &PointAction) -> bool {
    match action {
        PointAction::Path | PointAction::Emit(_) => false,
        PointAction::Sum(value) => matches!(value.source, Source::Ret | Source::Event(_)),
        _ => true,
    }
}

fn actions(word: &str, machine: &dyn Machine) -> Result<Vec<PointAction>, SessionError> {
    Ok(match word {
        "count" => vec![],
        "wall" => vec![PointAction::Wall],
        "cpu" => vec![PointAction::Cpu],
        "off" => vec![PointAction::Wall, PointAction::Cpu],
        "hist" => vec![PointAction::Wall, PointAction::Hist],
        "ctxsw" | "faults" | "usage" => vec![PointAction::Usage],
        _ if counters::is_named(word) => vec![counted(word, machine)?],
        _ => match word.split_once('=') {
            Some((name, source)) => vec![PointAction::Sum(value(word, name.trim(), source.trim())?)],
            None => return Err(wrong(word, &format!("it is none of {KNOWN}"))),
        },
    })
}

/// What a counter of the processor counts during a call, as a value of that name.
fn counted(word: &str, machine: &dyn Machine) -> Result<PointAction, SessionError> {
    let missing = |why: String| SessionError::Missing {
        what: format!("the metric `{word}`"),
        why,
        remedy: "Leave it out; `wall` and `cpu` need no counters.".into(),
    };
    let found = counters::choose(machine, word).map_err(|why| missing(why.to_string()))?;
    let source = Source::Event(Counter { kind: found.kind, config: found.config });
    Ok(PointAction::Sum(ValueSpec {
        name: word.into(),
        source,
        width: 8,
        signed: false,
        declared: false,
        loads: Vec::new(),
    }))
}

fn value(word: &str, name: &str, text: &str) -> Result<ValueSpec, SessionError> {
    let mut parts = text.split(':');
    let source =
        source(parts.next().unwrap_or_default()).ok_or_else(|| wrong(word, "after = comes arg1 to arg99, or ret"))?;
    if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-') {
        return Err(wrong(word, "a name of letters, digits, _ and - comes before ="));
    }
    if TAKEN.contains(&name) || (counters::is_named(name) && !counters::is_number(name)) {
        return Err(wrong(
            word,
            &format!("`{name}` is the name of a metric or a column; call the value something else"),
        ));
    }
    let mut made = ValueSpec { name: name.into(), source, width: 8, signed: false, declared: true, loads: Vec::new() };
    for part in parts {
        match part {
            "signed" => made.signed = true,
            "1" | "2" | "4" | "8" => (made.width, made.declared) = (part.parse().unwrap_or(8), false),
            _ => return Err(wrong(word, "behind the source comes :1, :2, :4 or :8 (bytes), and :signed")),
        }
    }
    Ok(made)
}

fn source(text: &str) -> Option<Source> {
    if text == "ret" {
        return Some(Source::Ret);
    }
    let number = text.strip_prefix("arg")?.parse().ok()?;
    (1..=99).contains(&number).then_some(Source::Arg(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct WithCounters;
    impl Machine for WithCounters {
        fn attribute(&self, path: &str) -> Option<String> {
            (path == "cpu").then(String::new)
        }
        fn try_counter(&self, _: u32, _: u64) -> Result<bool, whither_kernel::KernelError> {
            Ok(true)
        }
    }

    #[test]
    fn counters_are_values_where_the_machine_has_them() {
        let words = ["cycles".to_owned(), "llc-miss".to_owned()];
        let m = metrics_on(&WithCounters, &words, false).unwrap();
        let sources: Vec<_> =
            m.actions.iter().filter_map(|a| if let PointAction::Sum(v) = a { Some(v.source) } else { None }).collect();
        let counter = |config| Source::Event(Counter { kind: 0, config });
        assert_eq!(sources, [counter(0), counter(3)]);
        assert_eq!(m.columns, ["cycles", "llc-miss"]);
        assert!(metrics_on(&WithCounters, &words, true).is_err(), "they are known at the exit");
    }

    fn made(words: &[&str]) -> Result<Metrics, SessionError> {
        struct Without;
        impl Machine for Without {
            fn attribute(&self, _: &str) -> Option<String> {
                None
            }
            fn try_counter(&self, _: u32, _: u64) -> Result<bool, whither_kernel::KernelError> {
                Ok(false)
            }
        }
        metrics_on(&Without, &words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>(), false)
    }

    #[test]
    fn words_become_actions_once() {
        let m = made(&["count", "wall", "off", "hist", "ctxsw", "faults"]).unwrap();
        use PointAction::{Cpu, Hist, Path, Usage, Wall};
        assert_eq!(m.actions, [Path, Wall, Cpu, Hist, Usage]);
        assert_eq!(m.columns, ["count", "wall", "off", "hist", "ctxsw", "faults"]);
    }

    #[test]
    fn values_have_names_sources_and_widths() {
        let m = made(&["bytes=arg3:4:signed", "got=ret"]).unwrap();
        let wanted = ValueSpec {
            name: "bytes".into(),
            source: Source::Arg(3),
            width: 4,
            signed: true,
            declared: false,
            loads: vec![],
        };
        assert_eq!(m.actions[1], PointAction::Sum(wanted));
        assert!(matches!(&m.actions[2], PointAction::Sum(v) if v.source == Source::Ret && v.width == 8));
        assert_eq!(m.columns, ["bytes", "got"]);
        assert!(made(&["rc=ret"]).is_ok(), "a return code is no event 0xc");
        let open = made(&["a=ret:signed", "b=arg1:8"]).unwrap().actions;
        let open: Vec<bool> =
            open.iter().filter_map(|a| if let PointAction::Sum(v) = a { Some(v.declared) } else { None }).collect();
        assert_eq!(open, [true, false], "a sign alone leaves the width open");
        assert_eq!(made(&["got=ret", "got=ret"]).unwrap().actions.len(), 2, "the same value once");
    }

    #[test]
    fn what_cannot_be_measured_is_said() {
        for (words, code, word) in [
            (vec!["time"], 2, "none of count"),
            (vec!["a=arg0"], 2, "arg1"),
            (vec!["a=arg1:3"], 2, ":4"),
            (vec!["=arg1"], 2, "name"),
            (vec!["a=arg1", "b=arg2", "c=ret"], 2, "at most two"),
            (vec!["cycles"], 3, "counters"),
            (vec!["count", "count=arg1"], 2, "`count` is the name of a metric or a column"),
            (vec!["cycles=arg1"], 2, "`cycles` is the name"),
            (vec!["faults=ret"], 2, "call the value something else"),
            (vec!["x=arg1", "x=arg2"], 2, "another value is called `x` already"),
        ] {
            let error = made(&words).unwrap_err();
            assert_eq!(error.exit_code(), code, "{words:?}");
            assert!(error.to_string().contains(word), "{words:?}: {error}");
        }
        let error = metrics(&["wall".into()], true).unwrap_err();
        assert!(error.to_string().contains("--entry-only"));
        assert!(metrics(&["n=arg1".into()], true).is_ok());
    }
}
