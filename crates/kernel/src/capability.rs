//! What this kernel and these rights allow, found by *trying*: each finding says yes or no, what is
//! lost without it, and the narrowest fix. The rules are pure and see the kernel only through
//! [`System`], so that every kind of machine can be a test (`fake`). How the trying is done lives in
//! `capability/linux.rs`, the rules by subject in `capability/rules.rs`.

#[cfg(test)]
mod fake;
mod linux;
mod rights;
mod rules;
#[cfg(test)]
mod tests;

pub use linux::{Linux, TryBpf};
pub use rights::{Capability, Rights};

use serde::Serialize;
use std::io;

/// An event worth trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Try {
    /// Hardware cycles of this thread, user mode.
    Cycles,
    /// Hardware cycles with the precise address (`precise_ip` 2).
    PreciseCycles,
    /// The timer event on this thread, user mode.
    OwnProcess,
    /// The timer event on this thread, kernel mode included.
    Kernel,
    /// The timer event on a whole CPU.
    WholeSystem,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Opened, and counted above zero while a loop ran.
    Counts,
    /// Opened but stayed at zero: some hypervisors offer counters that never move.
    CountsNothing,
    /// Refused with this `errno`.
    Refused(i32),
}

/// The kernel as the probe sees it.
pub trait System {
    /// Contents of a small text file.
    ///
    /// # Errors
    /// As reading it fails.
    fn read(&self, path: &str) -> io::Result<String>;

    /// Whether a path exists and may be seen.
    fn exists(&self, path: &str) -> bool;

    /// Opens an event, lets it count for some milliseconds, closes it.
    fn try_event(&self, which: Try) -> Outcome;

    /// What a hit of a hardware breakpoint costs a thread of this process; `Err` with the `errno` where none can be had.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn breakpoint_cost(&self) -> Result<std::time::Duration, i32>;

    /// Loads the smallest BPF program there is; `Err` with the reason.
    ///
    /// # Errors
    /// Why the kernel refused.
    fn try_bpf(&self) -> Result<(), String>;
}

/// Whether something can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It can.
    Yes,
    /// It can, with limits the detail tells.
    Partly,
    /// It cannot.
    No,
}

/// One line of the diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable short name for scripts (`hardware-cycles`).
    pub id: &'static str,
    /// What was tried, in words.
    pub what: &'static str,
    /// Whether it can be had.
    pub answer: Answer,
    /// What was seen: a value, an error.
    pub detail: String,
    /// What is lost without it; empty when nothing is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub lost: String,
    /// The narrowest fix; empty when there is none or none is needed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fix: String,
}

impl Finding {
    fn yes(id: &'static str, what: &'static str, detail: impl Into<String>) -> Self {
        Self { id, what, answer: Answer::Yes, detail: detail.into(), lost: String::new(), fix: String::new() }
    }

    fn no(id: &'static str, what: &'static str, detail: impl Into<String>) -> Self {
        Self { answer: Answer::No, ..Self::yes(id, what, detail) }
    }

    fn partly(id: &'static str, what: &'static str, detail: impl Into<String>) -> Self {
        Self { answer: Answer::Partly, ..Self::yes(id, what, detail) }
    }

    fn lost(self, lost: impl Into<String>) -> Self {
        Self { lost: lost.into(), ..self }
    }

    fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: fix.into(), ..self }
    }
}

/// Where the probe ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// `uname -r`.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// `bare metal`, `virtual machine`, with ` in a container` behind it.
    pub kind: String,
    /// Effective user id.
    pub uid: u32,
}

/// Everything the probe found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Always `whither.doctor/1`.
    pub schema: &'static str,
    /// Where.
    pub machine: Machine,
    /// What a recording would do here, in a sentence.
    pub verdict: String,
    /// Line by line.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// The finding with this id.
    #[must_use]
    pub fn finding(&self, id: &str) -> Option<&Finding> {
        self.findings.iter().find(|f| f.id == id)
    }

    fn has(&self, id: &str) -> bool {
        self.finding(id).is_some_and(|f| f.answer != Answer::No)
    }
}

/// Tries everything and says what it means.
#[must_use]
pub fn diagnose(system: &dyn System) -> Diagnosis {
    let facts = rules::Facts::gather(system);
    let mut diagnosis = Diagnosis {
        schema: "whither.doctor/1",
        machine: facts.machine.clone(),
        verdict: String::new(),
        findings: rules::findings(system, &facts),
    };
    diagnosis.verdict = verdict(&diagnosis);
    diagnosis
}

fn verdict(d: &Diagnosis) -> String {
    let source = if d.has("hardware-cycles") { "hardware cycles" } else { "the cpu-clock timer" };
    let collector = if d.has("bpf") { "aggregated in the kernel by BPF" } else { "through perf rings" };
    match (d.has("whole-system"), d.has("own-process")) {
        (true, _) => format!("whither record samples the whole system by {source}, {collector}"),
        (false, true) => {
            let kernel = if d.has("kernel-samples") { "with" } else { "without" };
            format!(
                "whither record samples only your own processes by {source}, {kernel} the kernel's part, {collector}"
            )
        }
        (false, false) => "whither record cannot sample here; the first failed line below says what to change".into(),
    }
}

/// Effective user id of this process.
#[must_use]
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}
