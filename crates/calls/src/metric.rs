//! What a call path is weighed by, and what rows are ordered by. The words are what users write; a value that was
//! summed (`-m bytes=arg3`, `-m cycles`) is written by its own name, so which names there are only a snapshot tells.

use crate::results::Figures;
use crate::sums::clocks;
use serde::{Serialize, Serializer};
use whither_store::calls::CallSnapshot;

/// Weight of a call tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    /// Wall time.
    #[default]
    Wall,
    /// CPU time.
    Cpu,
    /// Time off the CPU.
    Off,
    /// Calls.
    Count,
    /// Context switches.
    Switches,
    /// Page faults, with I/O and without.
    Faults,
    /// A summed integer, by its name. Each call has its own: one around another does not include it.
    Value(String),
}

/// What a weight counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Time,
    /// Calls.
    Calls,
    /// Anything else that can be counted.
    Number,
}

impl Metric {
    /// Those that a snapshot has numbers of; calls are always counted.
    #[must_use]
    pub fn measured(snapshot: &CallSnapshot) -> Vec<Self> {
        let totals = || snapshot.paths.iter().map(|p| &p.totals);
        let open = || snapshot.in_progress.iter();
        let wall = totals().any(|t| t.wall_ns > 0) || open().any(|call| call.elapsed_ns > 0);
        let cpu = totals().any(|t| t.cpu_ns > 0) || open().any(|call| call.cpu_ns.is_some_and(|ns| ns > 0));
        let usage = totals().any(|t| t.usage.is_some());
        let fixed = [
            (Self::Wall, wall),
            (Self::Cpu, cpu),
            (Self::Off, wall && cpu),
            (Self::Count, true),
            (Self::Switches, usage),
            (Self::Faults, usage),
        ];
        let fixed = fixed.into_iter().filter(|(_, there)| *there).map(|(metric, _)| metric);
        fixed.chain(value_names(snapshot).into_iter().map(Self::Value)).collect()
    }

    /// Which unit its numbers have.
    #[must_use]
    pub fn unit(&self) -> Unit {
        match self {
            Self::Wall | Self::Cpu | Self::Off => Unit::Time,
            Self::Count => Unit::Calls,
            Self::Switches | Self::Faults | Self::Value(_) => Unit::Number,
        }
    }

    /// Its name for people, in the middle of a sentence.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Wall => "wall time",
            Self::Cpu => "CPU time",
            Self::Off => "time off CPU",
            Self::Count => "calls",
            Self::Switches => "context switches",
            Self::Faults => "page faults",
            Self::Value(name) => name,
        }
    }

    /// Its name as the head of a narrow column.
    #[must_use]
    pub fn head(&self) -> &str {
        match self {
            Self::Switches => "switches",
            _ => self.name(),
        }
    }

    /// The order that puts the largest of it first.
    #[must_use]
    pub fn sort(&self) -> Sort {
        match self {
            Self::Wall => Sort::Wall,
            Self::Cpu => Sort::Cpu,
            Self::Off => Sort::Off,
            Self::Count => Sort::Count,
            Self::Switches => Sort::Switches,
            Self::Faults => Sort::Faults,
            Self::Value(name) => Sort::Value(name.clone()),
        }
    }
}

/// Names of the values that probes sum, each once, sorted.
fn value_names(snapshot: &CallSnapshot) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = snapshot.points.iter().flat_map(|p| &p.values).collect();
    names.into_iter().cloned().collect()
}

/// What rows are ordered by, largest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Total wall time.
    #[default]
    Wall,
    /// Total CPU time.
    Cpu,
    /// Time off the CPU.
    Off,
    /// Wall time without probed callees.
    SelfWall,
    /// CPU time without probed callees.
    SelfCpu,
    /// Calls.
    Count,
    /// Average wall time.
    Average,
    /// Longest call.
    Max,
    /// Shortest call.
    Min,
    /// Context switches.
    Switches,
    /// Page faults.
    Faults,
    /// A summed integer, by its name.
    Value(String),
}

/// An order by something that was not measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsorted {
    /// A word of no meaning here.
    #[error("`{word}` is none of {}{}", words(), or_values(.values))]
    Unknown {
        /// What was written.
        word: String,
        /// Values that were measured.
        values: Vec<String>,
    },
    /// Context switches and page faults.
    #[error("{0} were not measured; ask for them with -m usage")]
    Usage(&'static str),
    /// CPU time, and what is told from it.
    #[error("CPU time was not measured; ask for it with -m cpu")]
    Cpu,
}

/// What rows can be ordered by besides wall time and calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sortable {
    /// Names of summed values.
    pub values: Vec<String>,
    /// CPU time.
    pub cpu: bool,
    /// Context switches and page faults.
    pub usage: bool,
}

fn words() -> String {
    Sort::WORDS.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ")
}

fn or_values(values: &[String]) -> String {
    match values {
        [] => ", and no value was measured (-m NAME=argN or NAME=ret measures one)".into(),
        names => format!(", nor a value that was measured ({})", names.join(", ")),
    }
}

impl Sort {
    /// All but values, by the word the user writes.
    pub const WORDS: [(&'static str, Self); 11] = [
        ("wall", Self::Wall),
        ("cpu", Self::Cpu),
        ("off", Self::Off),
        ("self", Self::SelfWall),
        ("self-cpu", Self::SelfCpu),
        ("count", Self::Count),
        ("avg", Self::Average),
        ("max", Self::Max),
        ("min", Self::Min),
        ("switches", Self::Switches),
        ("faults", Self::Faults),
    ];

    /// The figure.
    #[must_use]
    pub fn of(&self, f: &Figures) -> f64 {
        let n = |n: u64| n as f64;
        match self {
            Self::Wall => n(f.wall_ns),
            Self::Cpu => n(f.cpu_ns),
            Self::Off => n(f.off_cpu_ns),
            Self::SelfWall => n(f.self_wall_ns),
            Self::SelfCpu => n(f.self_cpu_ns),
            Self::Count => n(f.calls),
            Self::Average => f.average_ns.unwrap_or(0.0),
            Self::Max => f.max_ns.map_or(0.0, n),
            Self::Min => f.min_ns.or(f.min_below_ns).map_or(0.0, n),
            Self::Switches => f.usage.map_or(0.0, |u| n(u.switches)),
            Self::Faults => f.usage.map_or(0.0, |u| n(u.faults_minor) + n(u.faults_major)),
            Self::Value(name) => f.values.get(name).map_or(0.0, |v| v.sum as f64),
        }
    }

    /// What a tree is weighed by when rows are ordered so: averages and extremes of a call cannot be added up.
    #[must_use]
    pub fn metric(&self) -> Metric {
        match self {
            Self::Cpu | Self::SelfCpu => Metric::Cpu,
            Self::Off => Metric::Off,
            Self::Count => Metric::Count,
            Self::Switches => Metric::Switches,
            Self::Faults => Metric::Faults,
            Self::Value(name) => Metric::Value(name.clone()),
            Self::Wall | Self::SelfWall | Self::Average | Self::Max | Self::Min => Metric::Wall,
        }
    }

    /// Whether a snapshot has what it asks for. Where no probe is or no call was seen there is nothing to order.
    ///
    /// # Errors
    /// [`Unsorted`]: a name of no value, or what was not measured.
    pub fn check(&self, snapshot: &CallSnapshot) -> Result<(), Unsorted> {
        let called = !snapshot.paths.is_empty();
        let usage = !called || snapshot.paths.iter().any(|p| p.totals.usage.is_some());
        let cpu = !called || clocks(snapshot).cpu;
        let there = Sortable { values: value_names(snapshot), cpu, usage };
        if snapshot.points.is_empty() { Ok(()) } else { self.check_among(&there) }
    }

    /// Whether what it asks for is there.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn check_among(&self, there: &Sortable) -> Result<(), Unsorted> {
        match self {
            Self::Value(name) if !there.values.contains(name) => {
                Err(Unsorted::Unknown { word: name.clone(), values: there.values.clone() })
            }
            Self::Switches if !there.usage => Err(Unsorted::Usage("context switches")),
            Self::Faults if !there.usage => Err(Unsorted::Usage("page faults")),
            Self::Cpu | Self::Off | Self::SelfCpu if !there.cpu => Err(Unsorted::Cpu),
            _ => Ok(()),
        }
    }
}

impl std::str::FromStr for Sort {
    type Err = std::convert::Infallible;

    /// What is no known word is the name of a value.
    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let known = Self::WORDS.into_iter().find(|(name, _)| *name == word);
        Ok(known.map_or_else(|| Self::Value(word.into()), |(_, sort)| sort))
    }
}

impl std::fmt::Display for Sort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Value(name) => f.write_str(name),
            known => f.write_str(Self::WORDS.iter().find(|(_, s)| s == known).map_or("wall", |(word, _)| word)),
        }
    }
}

impl Serialize for Sort {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}
