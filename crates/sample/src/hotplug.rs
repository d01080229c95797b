//! CPUs that come and go while samples are collected: what changed since the last look, and the
//! sentences for the user. Opening and closing events is the collector's.

/// A CPU that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuChange {
    /// It is on line now.
    Came(u32),
    /// It is off line now; its events are dead.
    Went(u32),
}

/// What turns the CPUs watched into those on line, departures first. A machine without any CPU on line
/// is a reading that failed, and changes nothing.
#[must_use]
pub fn changes(watched: &[u32], online: &[u32]) -> Vec<CpuChange> {
    if online.is_empty() {
        return Vec::new();
    }
    let went = watched.iter().filter(|cpu| !online.contains(cpu)).map(|&cpu| CpuChange::Went(cpu));
    let came = online.iter().filter(|cpu| !watched.contains(cpu)).map(|&cpu| CpuChange::Came(cpu));
    went.chain(came).collect()
}

/// The sentence for a change that could be followed.
#[must_use]
pub fn followed(change: CpuChange) -> String {
    match change {
        CpuChange::Came(cpu) => {
            format!("CPU {cpu} came on line meanwhile; it is sampled since (what ran on it in the first second is not)")
        }
        CpuChange::Went(cpu) => format!("CPU {cpu} went off line meanwhile; it is sampled up to then"),
    }
}

/// The sentence for a CPU that came and cannot be sampled.
#[must_use]
pub fn refused(cpu: u32, why: &dyn std::fmt::Display) -> String {
    format!("CPU {cpu} came on line meanwhile and is not sampled: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_lead_from_one_set_to_the_other() {
        use CpuChange::{Came, Went};
        assert_eq!(changes(&[0, 1], &[0, 1]), []);
        assert_eq!(changes(&[0, 1], &[0]), [Went(1)]);
        assert_eq!(changes(&[0], &[0, 1, 7]), [Came(1), Came(7)]);
        assert_eq!(changes(&[0, 2], &[0, 1]), [Went(2), Came(1)]);
        assert_eq!(changes(&[0, 1], &[]), [], "a failed reading is no departure of all");
    }
}
