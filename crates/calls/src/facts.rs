//! What the paths of a profile are together, without any of them: what sentences about it need.

use crate::results::PathRow;
use std::collections::BTreeMap;

/// Some paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCount {
    /// How many.
    pub paths: u64,
    /// Calls by them.
    pub calls: u64,
}

/// Of all paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathFacts {
    /// All.
    pub all: PathCount,
    /// A probed function was called in a call of itself.
    pub recursive: bool,
    /// Paths whose outer callers are missing.
    pub truncated: PathCount,
    /// Those of them without any time.
    pub truncated_untimed: PathCount,
    /// Paths that hold deeper recursion.
    pub folded: PathCount,
    /// Paths that were not kept apart.
    pub other: PathCount,
    /// Calls that ended without a time, by [`crate::FunctionRow::id`].
    pub untimed: BTreeMap<u32, u64>,
}

/// Of one path, as in [`PathRow`].
#[derive(Clone, Copy, Debug)]
pub struct PathFact {
    /// [`PathRow::func`].
    pub func: u32,
    /// [`PathRow::level`].
    pub level: u16,
    /// [`PathRow::folded`].
    pub folded: bool,
    /// [`PathRow::truncated`].
    pub truncated: bool,
    /// [`PathRow::other`].
    pub other: bool,
    /// Entries.
    pub calls: u64,
    /// Calls that ended without a time.
    pub untimed: u64,
    /// Some have one, or go on.
    pub timed: bool,
}

impl PathFacts {
    /// Of some paths.
    #[must_use]
    pub fn of(paths: &[PathRow]) -> Self {
        let mut facts = Self::default();
        for row in paths {
            let f = &row.figures;
            facts.add(&PathFact {
                func: row.func,
                level: row.level,
                folded: row.folded,
                truncated: row.truncated,
                other: row.other,
                calls: f.calls,
                untimed: f.untimed,
                timed: f.done > 0 || f.running.calls > 0,
            });
        }
        facts
    }

    /// Takes one in.
    pub fn add(&mut self, path: &PathFact) {
        self.all.add(true, path.calls);
        self.recursive |= path.level > 0;
        self.truncated.add(path.truncated, path.calls);
        self.truncated_untimed.add(path.truncated && !path.timed, path.calls);
        self.folded.add(path.folded, path.calls);
        self.other.add(path.other, path.calls);
        if path.untimed > 0 {
            let sum = self.untimed.entry(path.func).or_default();
            *sum = sum.saturating_add(path.untimed);
        }
    }
}

impl PathCount {
    fn add(&mut self, is: bool, calls: u64) {
        if is {
            self.paths += 1;
            self.calls = self.calls.saturating_add(calls);
        }
    }
}
