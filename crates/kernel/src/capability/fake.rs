//! Kernels that are not here: files, answers to events and to BPF as tables, and one fixture per
//! kind of machine that users have.

use super::{Outcome, System, Try};
use std::collections::HashMap;
use std::io;

/// A made-up kernel.
#[derive(Clone)]
pub(super) struct Fake {
    files: HashMap<String, String>,
    events: HashMap<Try, Outcome>,
    bpf: Result<(), String>,
}

/// Every capability of a current kernel.
const ALL: u64 = 0x1ff_ffff_ffff;
/// What a container engine gives by default.
const CONTAINER_DEFAULT: u64 = 0xa804_25fb;

const REFUSED: Outcome = Outcome::Refused(libc::EACCES);
const NO_PMU: Outcome = Outcome::Refused(libc::ENOENT);

impl Fake {
    /// Root on a machine with everything.
    pub(super) fn bare_metal_intel() -> Self {
        let fake = Self { files: HashMap::new(), events: HashMap::new(), bpf: Ok(()) };
        fake.cpu("Intel(R) Xeon(R) Gold 6338", "fpu vme lahf_lm")
            .process(0, ALL)
            .file("/proc/sys/kernel/osrelease", "6.12.0-1-amd64\n")
            .file("/proc/sys/kernel/perf_event_paranoid", "2\n")
            .file("/proc/sys/kernel/kptr_restrict", "0\n")
            .file("/proc/sys/kernel/perf_event_mlock_kb", "516\n")
            .file("/proc/sys/kernel/perf_event_max_sample_rate", "100000\n")
            .file("/proc/kallsyms", "ffffffff81000000 T _stext\n")
            .file("/proc/kcore", "")
            .file("/proc/1/cgroup", "0::/init.scope\n")
            .file("/sys/kernel/security/lockdown", "[none] integrity confidentiality\n")
            .file("/sys/kernel/btf/vmlinux", "")
            .file("/sys/kernel/tracing/events/sched/sched_switch/id", "315\n")
            .file("/sys/bus/event_source/devices/cpu/caps/branches", "32\n")
            .file("/sys/bus/event_source/devices/breakpoint", "")
            .file("/sys/bus/event_source/devices/uprobe", "")
            .file("/usr/lib/debug/.build-id", "")
            .all_events(Outcome::Counts)
    }

    /// Root in a virtual machine without hardware counters.
    pub(super) fn vm_without_pmu() -> Self {
        Self::bare_metal_intel()
            .cpu("AMD EPYC 9R45", "fpu vme hypervisor lahf_lm")
            .without("/sys/bus/event_source/devices/cpu/caps/branches")
            .event(Try::Cycles, NO_PMU)
            .event(Try::PreciseCycles, NO_PMU)
    }

    /// A user of that virtual machine at Debian's old and the kernel's present default.
    pub(super) fn unprivileged_paranoid_2() -> Self {
        Self::vm_without_pmu()
            .process(1000, 0)
            .file("/proc/kallsyms", "0000000000000000 T _stext\n")
            .without("/sys/kernel/tracing/events/sched/sched_switch/id")
            .event(Try::Kernel, REFUSED)
            .event(Try::WholeSystem, REFUSED)
            .no_bpf("Operation not permitted")
    }

    /// The same on Ubuntu's default, where users get nothing.
    pub(super) fn unprivileged_paranoid_4() -> Self {
        Self::unprivileged_paranoid_2().file("/proc/sys/kernel/perf_event_paranoid", "4\n").all_events(REFUSED)
    }

    /// Root under lockdown=confidentiality.
    pub(super) fn locked_down() -> Self {
        Self::bare_metal_intel()
            .file("/sys/kernel/security/lockdown", "none integrity [confidentiality]\n")
            .without("/sys/kernel/tracing/events/sched/sched_switch/id")
            .event(Try::Kernel, Outcome::Refused(libc::EPERM))
            .event(Try::WholeSystem, Outcome::Refused(libc::EPERM))
            .no_bpf("Operation not permitted")
    }

    /// Root inside a container with the engine's default capabilities and seccomp profile.
    pub(super) fn container_without_capabilities() -> Self {
        Self::vm_without_pmu()
            .process(0, CONTAINER_DEFAULT)
            .file("/.dockerenv", "")
            .without("/sys/kernel/tracing/events/sched/sched_switch/id")
            .all_events(Outcome::Refused(libc::EPERM))
            .no_bpf("Operation not permitted")
    }

    /// Root where the hypervisor shows counters that never move.
    pub(super) fn vm_with_dead_counters() -> Self {
        Self::vm_without_pmu().event(Try::Cycles, Outcome::CountsNothing)
    }

    /// Nothing can be read at all.
    pub(super) fn blank() -> Self {
        Self { files: HashMap::new(), events: HashMap::new(), bpf: Err("no such system call".into()) }
            .all_events(Outcome::Refused(libc::ENOSYS))
    }

    /// Changes a file.
    pub(super) fn file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.to_owned(), text.to_owned());
        self
    }

    fn without(mut self, path: &str) -> Self {
        self.files.remove(path);
        self
    }

    fn cpu(self, model: &str, flags: &str) -> Self {
        self.file("/proc/cpuinfo", &format!("processor\t: 0\nmodel name\t: {model}\nflags\t\t: {flags}\n"))
    }

    fn process(self, uid: u32, capabilities: u64) -> Self {
        self.file(
            "/proc/self/status",
            &format!("Name:\twhither\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{capabilities:016x}\n"),
        )
    }

    fn event(mut self, which: Try, outcome: Outcome) -> Self {
        self.events.insert(which, outcome);
        self
    }

    fn all_events(self, outcome: Outcome) -> Self {
        let all = [Try::Cycles, Try::PreciseCycles, Try::OwnProcess, Try::Kernel, Try::WholeSystem];
        all.into_iter().fold(self, |fake, which| fake.event(which, outcome))
    }

    fn no_bpf(mut self, reason: &str) -> Self {
        self.bpf = Err(reason.to_owned());
        self
    }
}

impl System for Fake {
    fn read(&self, path: &str) -> io::Result<String> {
        self.files.get(path).cloned().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn exists(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    fn try_event(&self, which: Try) -> Outcome {
        self.events[&which]
    }

    fn breakpoint_cost(&self) -> Result<std::time::Duration, i32> {
        match self.events[&Try::OwnProcess] {
            Outcome::Refused(errno) => Err(errno),
            _ if self.exists("/sys/bus/event_source/devices/breakpoint") => Ok(std::time::Duration::from_nanos(9_840)),
            _ => Err(libc::ENOENT),
        }
    }

    fn try_bpf(&self) -> Result<(), String> {
        self.bpf.clone()
    }
}
