//! Which events this machine has, for people who ask: known names are opened on this thread and closed again, names of
//! tracepoints are read. Whether an event may be sampled system-wide is `capability`'s question.

use crate::events;
use crate::perf::{Attr, PerfEvent, Watch};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// An event by the name that `-e` takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Offer {
    /// Name.
    pub name: String,
    /// Where it comes from.
    pub family: Family,
    /// Whether the kernel opens it here.
    pub opens: bool,
}

/// Where an event comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Counted by the processor, under a name of its own.
    Hardware,
    /// Counted by the processor: caches and address translation.
    Cache,
    /// Counted by the kernel.
    Software,
    /// Of a PMU that sysfs describes: `cpu/mem-loads/`.
    Pmu,
    /// A tracepoint of the kernel.
    Tracepoint,
}

const PMUS: &str = "/sys/bus/event_source/devices";
const TRACING: [&str; 2] = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"];

/// All events with names, tracepoints last.
#[must_use]
pub fn offered() -> Vec<Offer> {
    let named = events::all().into_iter().map(|name| {
        let family = match events::parse(&name) {
            Ok(spec) if spec.is_software() => Family::Software,
            _ if name.contains("-misses") && name != "cache-misses" && name != "branch-misses" => Family::Cache,
            _ => Family::Hardware,
        };
        offer(name, family)
    });
    let described = pmu_events(Path::new(PMUS)).into_iter().map(|name| offer(name, Family::Pmu));
    let points = TRACING.iter().map(|root| tracepoints(Path::new(root))).find(|found| !found.is_empty());
    let points = points.unwrap_or_default().into_iter();
    // Opening thousands would take seconds, and those who may read them may open them.
    let points = points.map(|name| Offer { name, family: Family::Tracepoint, opens: true });
    named.chain(described).chain(points).collect()
}

fn offer(name: String, family: Family) -> Offer {
    let opens = events::parse(&name).is_ok_and(|spec| {
        let attr = Attr { kind: spec.kind, config: spec.config, config1: spec.config1, ..Attr::default() };
        let user = Attr { exclude_kernel: true, ..attr };
        // Thread 0 is the caller; uncore PMUs count on a CPU only.
        [(&attr, Watch::Thread(0)), (&user, Watch::Thread(0)), (&attr, Watch::Cpu(0))]
            .into_iter()
            .any(|(attr, watch)| PerfEvent::open(attr, watch).is_ok())
    });
    Offer { name, family, opens }
}

/// `pmu/event/` for each file in `PMU/events` that is no scale or unit of another.
fn pmu_events(root: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for pmu in entries(root) {
        for event in entries(&pmu.join("events")) {
            let (Some(pmu), Some(event)) = (name(&pmu), name(&event)) else { continue };
            if !event.contains('.') {
                names.push(format!("{pmu}/{event}/"));
            }
        }
    }
    names.sort();
    names
}

/// `group:event` for each directory that has an `id`.
fn tracepoints(root: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for group in entries(root).iter().filter(|path| path.is_dir()) {
        for event in entries(group).iter().filter(|path| path.join("id").exists()) {
            if let (Some(group), Some(event)) = (name(group), name(event)) {
                names.push(format!("{group}:{event}"));
            }
        }
    }
    names.sort();
    names
}

fn name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// What is in a directory; nothing when it cannot be read.
fn entries(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_the_trees_of_sysfs_and_tracefs() {
        let root = tempfile::tempdir().expect("a temporary directory");
        for file in
            ["cpu/events/mem-loads", "cpu/events/mem-loads.scale", "cpu/type", "sched/sched_switch/id", "sched/enable"]
        {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().expect("below the root")).expect("made");
            std::fs::write(path, "1").expect("written");
        }
        assert_eq!(pmu_events(root.path()), ["cpu/mem-loads/"]);
        assert_eq!(tracepoints(root.path()), ["sched:sched_switch"]);
        assert!(tracepoints(&root.path().join("absent")).is_empty());
    }
}
