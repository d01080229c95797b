//! Counters of the processor that a thread can read by itself, between two instructions: which of them this machine
//! offers to user code, and why not. Lives here: the choice. What reads them is in the target (`agent/`); sampling by
//! them is the collectors' business.
//!
//! Constraints: reading is by an instruction that the processor refuses, with a signal, where the kernel has not
//! allowed it; and a counter's number means something else on the other kind of core of a hybrid processor.

use crate::events::{self, EventSpec};
use crate::perf::{Attr, PerfEvent, Watch};
use crate::{KernelError, ring};

/// A counter that can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
}

/// Why a counter cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoCounter {
    /// Not an event of the processor.
    #[error("it is not counted by the processor")]
    NotCounted,
    /// Virtual machines often have none.
    #[error("this machine offers no processor counters")]
    NoPmu,
    /// Cores of two kinds.
    #[error("this processor has cores of two kinds, whose counters differ")]
    Hybrid,
    /// The kernel lets no user code read counters.
    #[error("the kernel lets programs read no counters (/sys/bus/event_source/devices/cpu/rdpmc is 0)")]
    Forbidden,
    /// This one is refused, or is not of the kind that can be read so.
    #[error("the kernel does not offer it to programs: {0}")]
    Refused(String),
}

/// What has to be known of a machine.
pub trait Machine {
    /// Text of a file below `/sys/bus/event_source/devices`; `None`: there is none.
    fn attribute(&self, path: &str) -> Option<String>;
    /// Opens a counter for the calling thread, and tells whether its page allows to read it by an instruction.
    ///
    /// # Errors
    /// The kernel's reason.
    fn try_counter(&self, kind: u32, config: u64) -> Result<bool, KernelError>;
}

/// The machine this runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisMachine;

impl Machine for ThisMachine {
    fn attribute(&self, path: &str) -> Option<String> {
        let at = std::path::Path::new("/sys/bus/event_source/devices").join(path);
        // A directory counts as there.
        if at.is_dir() { Some(String::new()) } else { std::fs::read_to_string(at).ok() }
    }

    fn try_counter(&self, kind: u32, config: u64) -> Result<bool, KernelError> {
        let attr = Attr { kind, config, exclude_kernel: true, ..Attr::default() };
        ring::allows_reading(&PerfEvent::open(&attr, Watch::Thread(0))?)
    }
}

/// Users' short names for events.
const ALSO: [(&str, &str); 3] =
    [("llc-miss", "cache-misses"), ("llc-misses", "cache-misses"), ("branch-miss", "branch-misses")];

/// Whether a word names a counter of the processor, offered here or not.
#[must_use]
pub fn is_named(word: &str) -> bool {
    spec(word).is_some()
}

/// Whether a word is the number of an event (`r1a8`), which nobody would take for its name (`rc`, the return code).
#[must_use]
pub fn is_number(word: &str) -> bool {
    let digits = word.strip_prefix('r').unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

fn spec(word: &str) -> Option<EventSpec> {
    const HARDWARE: u32 = 0;
    const CACHE: u32 = 3;
    const RAW: u32 = 4;
    let name = ALSO.iter().find(|(short, _)| *short == word).map_or(word, |(_, name)| name);
    events::parse(name).ok().filter(|s| matches!(s.kind, HARDWARE | CACHE | RAW) && s.config1 == 0)
}

/// The counter that a word names, if threads of this machine can read it.
///
/// # Errors
/// [`NoCounter`] with the reason.
pub fn choose(machine: &dyn Machine, word: &str) -> Result<Counter, NoCounter> {
    let spec = spec(word).ok_or(NoCounter::NotCounted)?;
    if machine.attribute("cpu_core").is_some() && machine.attribute("cpu_atom").is_some() {
        return Err(NoCounter::Hybrid);
    }
    if machine.attribute("cpu").is_none() {
        return Err(NoCounter::NoPmu);
    }
    if machine.attribute("cpu/rdpmc").is_some_and(|text| text.trim() == "0") {
        return Err(NoCounter::Forbidden);
    }
    match machine.try_counter(spec.kind, spec.config) {
        Ok(true) => Ok(Counter { kind: spec.kind, config: spec.config }),
        Ok(false) => Err(NoCounter::Refused("its page gives no leave to read it".into())),
        Err(error) => Err(NoCounter::Refused(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake {
        files: &'static [(&'static str, &'static str)],
        readable: Option<bool>,
    }

    impl Machine for Fake {
        fn attribute(&self, path: &str) -> Option<String> {
            self.files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned())
        }

        fn try_counter(&self, _: u32, _: u64) -> Result<bool, KernelError> {
            let source = std::io::Error::from_raw_os_error(libc::EACCES);
            self.readable.ok_or(KernelError::Call { what: "opening a counter", source })
        }
    }

    #[test]
    fn every_kind_of_machine_is_told() {
        const CPU: &[(&str, &str)] = &[("cpu", ""), ("cpu/rdpmc", "1\n")];
        let of = |files, readable| choose(&Fake { files, readable }, "cycles").map_err(|e| e.to_string());
        assert_eq!(of(CPU, Some(true)), Ok(Counter { kind: 0, config: 0 }));
        for (files, readable, word) in [
            (&[][..], Some(true), "offers no processor counters"),
            (&[("cpu", ""), ("cpu/rdpmc", "0\n")], Some(true), "rdpmc is 0"),
            (&[("cpu_core", ""), ("cpu_atom", "")], Some(true), "two kinds"),
            (CPU, Some(false), "no leave"),
            (CPU, None, "opening a counter"),
        ] {
            let why = of(files, readable).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn names_are_those_of_processors_events() {
        let machine = Fake { files: &[("cpu", "")], readable: Some(true) };
        let config = |word: &str| choose(&machine, word).unwrap().config;
        assert_eq!((config("instructions"), config("llc-miss"), config("branch-miss")), (1, 3, 5));
        assert!(is_named("LLC-load-misses") && is_named("ref-cycles"));
        assert!(!is_named("page-faults") && !is_named("wall") && !is_named("sched:sched_switch"));
        assert!(matches!(choose(&machine, "context-switches"), Err(NoCounter::NotCounted)));
    }

    #[test]
    fn this_machine_answers_one_way_or_the_other() {
        match choose(&ThisMachine, "instructions") {
            Ok(counter) => assert_eq!(counter, Counter { kind: 0, config: 1 }),
            Err(why) => assert!(!why.to_string().is_empty()),
        }
    }
}
