//! The findings, one function each: what was seen, what it costs the user, the narrowest fix. Facts
//! that several rules need are gathered once. Only [`System`] is asked; nothing is opened here.

use super::{Capability, Finding, Machine, Outcome, Rights, System, Try};

/// What several rules look at.
pub(super) struct Facts {
    pub(super) machine: Machine,
    rights: Rights,
    paranoid: Option<i32>,
    kptr_restrict: Option<i32>,
    virtual_machine: bool,
    container: bool,
    /// The mode in force: `none`, `integrity`, `confidentiality`.
    lockdown: String,
}

impl Facts {
    pub(super) fn gather(system: &dyn System) -> Self {
        let cpuinfo = read(system, "/proc/cpuinfo");
        let rights = Rights::from_status(&read(system, "/proc/self/status"));
        let virtual_machine =
            cpuinfo.lines().any(|l| l.starts_with("flags") && l.split_whitespace().any(|f| f == "hypervisor"));
        let container = in_container(system);
        Self {
            machine: Machine {
                kernel: read(system, "/proc/sys/kernel/osrelease").trim().to_owned(),
                cpu: cpu_model(&cpuinfo),
                kind: machine_kind(virtual_machine, container),
                uid: rights.uid(),
            },
            rights,
            paranoid: number(system, "/proc/sys/kernel/perf_event_paranoid"),
            kptr_restrict: number(system, "/proc/sys/kernel/kptr_restrict"),
            virtual_machine,
            container,
            lockdown: lockdown_mode(&read(system, "/sys/kernel/security/lockdown")),
        }
    }

    /// How to get a capability here: a container's is given at its start, a file's by `setcap`.
    fn grant(&self, capabilities: &[Capability]) -> String {
        let names: Vec<&str> = capabilities.iter().map(|c| c.name()).collect();
        if self.container {
            let flags: Vec<String> =
                names.iter().map(|n| format!("--cap-add {}", n.trim_start_matches("CAP_"))).collect();
            return format!(
                "start the container with {} (and a seccomp profile that lets perf_event_open and bpf pass)",
                flags.join(" ")
            );
        }
        let names = names.join(",").to_lowercase();
        format!("run as root, or: sudo setcap {names}=ep \"$(command -v whither)\"")
    }
}

/// Every finding, most important first.
pub(super) fn findings(system: &dyn System, facts: &Facts) -> Vec<Finding> {
    vec![
        own_process(system, facts),
        whole_system(system, facts),
        kernel_samples(system, facts),
        hardware_cycles(system, facts),
        precise(system, facts),
        branch_records(system),
        bpf(system, facts),
        btf(system),
        kernel_symbols(system, facts),
        kernel_code(system, facts),
        other_processes(facts),
        other_files(facts),
        process_view(facts),
        paranoid(facts),
        ring_memory(system, facts),
        sample_rate(system),
        tracepoints(system, facts),
        breakpoints(system),
        uprobes(system),
        lockdown(facts),
        debug_files(system),
    ]
}

fn own_process(system: &dyn System, facts: &Facts) -> Finding {
    let (id, what) = ("own-process", "sample your own processes");
    match system.try_event(Try::OwnProcess) {
        Outcome::Counts | Outcome::CountsNothing => Finding::yes(id, what, "cpu-clock opens and counts"),
        Outcome::Refused(errno) => Finding::no(id, what, refused(errno)).lost("nothing can be sampled").fix(perf_fix(
            facts,
            2,
            "kernel.perf_event_paranoid=2",
        )),
    }
}

fn whole_system(system: &dyn System, facts: &Facts) -> Finding {
    let (id, what) = ("whole-system", "sample the whole system");
    match system.try_event(Try::WholeSystem) {
        Outcome::Counts | Outcome::CountsNothing => Finding::yes(id, what, "cpu-clock opens on a whole CPU"),
        Outcome::Refused(errno) => Finding::no(id, what, refused(errno))
            .lost("record -a, daemon, other users' processes, interrupts")
            .fix(perf_fix(facts, 0, "kernel.perf_event_paranoid=0")),
    }
}

fn kernel_samples(system: &dyn System, facts: &Facts) -> Finding {
    let (id, what) = ("kernel-samples", "sample kernel code");
    match system.try_event(Try::Kernel) {
        Outcome::Counts | Outcome::CountsNothing => Finding::yes(id, what, "kernel mode is included"),
        Outcome::Refused(errno) => Finding::no(id, what, refused(errno))
            .lost("time inside system calls, page faults and interrupts is invisible")
            .fix(perf_fix(facts, 1, "kernel.perf_event_paranoid=1")),
    }
}

/// A sysctl opens the door for everybody, a capability for one program: the latter comes first.
fn perf_fix(facts: &Facts, level: i32, sysctl: &str) -> String {
    if facts.lockdown == "confidentiality" {
        return "boot without lockdown=confidentiality; it closes perf to everybody".into();
    }
    let grant = facts.grant(&[Capability::Perfmon]);
    match facts.paranoid {
        Some(now) if now > level && !facts.rights.has(Capability::Perfmon) => {
            format!("{grant}; for every user: sysctl {sysctl} (now {now})")
        }
        _ if facts.rights.has(Capability::Perfmon) => {
            "rights suffice, so a seccomp filter or security module refuses perf_event_open: allow it there".into()
        }
        _ => grant,
    }
}

fn hardware_cycles(system: &dyn System, facts: &Facts) -> Finding {
    let (id, what) = ("hardware-cycles", "hardware counters");
    let lost = "cycles, cache-misses, branch-misses ...; time comes from the cpu-clock timer, which cannot interrupt code with \
                interrupts off (that time shows where they come back on)";
    match system.try_event(Try::Cycles) {
        Outcome::Counts => Finding::yes(id, what, "cycles opens and counts"),
        Outcome::CountsNothing => {
            Finding::no(id, what, "cycles opens but stays at 0: the hypervisor offers a counter that does not count")
                .lost(lost)
                .fix(vpmu_fix())
        }
        Outcome::Refused(libc::EACCES | libc::EPERM) => {
            Finding::no(id, what, "no right to ask").lost(lost).fix(perf_fix(facts, 2, "kernel.perf_event_paranoid=2"))
        }
        Outcome::Refused(errno) if facts.virtual_machine => {
            Finding::no(id, what, format!("this virtual machine has none ({})", error_name(errno)))
                .lost(lost)
                .fix(vpmu_fix())
        }
        Outcome::Refused(errno) => Finding::no(id, what, refused(errno))
            .lost(lost)
            .fix("check that the firmware does not disable the counters and that the kernel has a driver for this CPU"),
    }
}

fn vpmu_fix() -> &'static str {
    "give the guest a virtual PMU (KVM: -cpu host,pmu=on; clouds: a bare-metal or full-socket instance type)"
}

fn precise(system: &dyn System, facts: &Facts) -> Finding {
    let (id, what) = ("precise", "precise sample addresses");
    let lost =
        "a sample shows the instruction after the one waited for; annotate moves it back (--raw shows it as delivered)";
    match system.try_event(Try::PreciseCycles) {
        Outcome::Counts | Outcome::CountsNothing => Finding::yes(id, what, "precise cycles open"),
        Outcome::Refused(errno) if facts.virtual_machine => {
            Finding::no(id, what, refused(errno)).lost(lost).fix(vpmu_fix())
        }
        Outcome::Refused(errno) => Finding::no(id, what, refused(errno)).lost(lost),
    }
}

fn branch_records(system: &dyn System) -> Finding {
    let (id, what) = ("branch-records", "branch records (LBR)");
    match number(system, "/sys/bus/event_source/devices/cpu/caps/branches") {
        Some(n) if n > 0 => Finding::yes(id, what, format!("{n} branches deep; record --edges records")),
        _ => Finding::no(id, what, "the PMU offers none")
            .lost("how often branches go each way is interpreted from sampled registers"),
    }
}

fn bpf(system: &dyn System, facts: &Facts) -> Finding {
    let (id, what) = ("bpf", "aggregate samples in the kernel (BPF)");
    let lost = "samples go through perf rings and are aggregated here: about 0.5 us more per sample and more of our own CPU time";
    let Err(reason) = system.try_bpf() else {
        return Finding::yes(id, what, "a program loads");
    };
    let missing: Vec<Capability> =
        [Capability::Bpf, Capability::Perfmon].into_iter().filter(|c| !facts.rights.has(*c)).collect();
    let fix = if facts.lockdown == "confidentiality" {
        "boot without lockdown=confidentiality; it forbids BPF to read the kernel".into()
    } else if missing.is_empty() {
        "rights suffice, so the kernel lacks a feature or a seccomp filter refuses bpf: see the reason".into()
    } else {
        facts.grant(&missing)
    };
    Finding::no(id, what, reason).lost(lost).fix(fix)
}

fn btf(system: &dyn System) -> Finding {
    let (id, what) = ("btf", "kernel type information (BTF)");
    if system.exists("/sys/kernel/btf/vmlinux") {
        return Finding::yes(id, what, "/sys/kernel/btf/vmlinux");
    }
    Finding::no(id, what, "/sys/kernel/btf/vmlinux is missing")
        .lost("the BPF programs cannot fit themselves to this kernel")
        .fix("use a kernel built with CONFIG_DEBUG_INFO_BTF=y (every large distribution since 2021)")
}

fn kernel_symbols(system: &dyn System, facts: &Facts) -> Finding {
    let (id, what) = ("kernel-symbols", "names of kernel functions");
    let lost = "kernel samples cannot be given to procedures";
    match system.read("/proc/kallsyms") {
        Ok(text) if text.lines().take(64).any(shows_address) => {
            Finding::yes(id, what, "/proc/kallsyms shows addresses")
        }
        Ok(_) => Finding::no(
            id,
            what,
            format!("/proc/kallsyms hides addresses (kptr_restrict {})", shown(facts.kptr_restrict)),
        )
        .lost(lost)
        .fix(kallsyms_fix(facts)),
        Err(error) => Finding::no(id, what, format!("/proc/kallsyms: {error}"))
            .lost(lost)
            .fix("build the kernel with CONFIG_KALLSYMS=y"),
    }
}

fn kernel_code(system: &dyn System, facts: &Facts) -> Finding {
    let (id, what) = ("kernel-code", "machine code of the kernel");
    let lost = "kernel procedures are listed, but not annotated instruction by instruction";
    if !system.exists("/proc/kcore") {
        return Finding::no(id, what, "there is no /proc/kcore")
            .lost(lost)
            .fix("build the kernel with CONFIG_PROC_KCORE=y (kernels of distributions have it; containers hide it)");
    }
    if facts.rights.uid() == 0 {
        return Finding::yes(id, what, "/proc/kcore");
    }
    Finding::no(id, what, "/proc/kcore is root's alone").lost(lost).fix("record as root")
}

fn kallsyms_fix(facts: &Facts) -> String {
    match facts.kptr_restrict {
        Some(2) => "sysctl kernel.kptr_restrict=1".into(),
        _ => facts.grant(&[Capability::Syslog]),
    }
}

fn shows_address(line: &str) -> bool {
    line.split_whitespace().next().is_some_and(|a| a.bytes().any(|c| c != b'0'))
}

fn other_processes(facts: &Facts) -> Finding {
    let (id, what) = ("other-processes", "look into other users' processes");
    if facts.rights.has(Capability::SysPtrace) {
        return Finding::yes(id, what, "CAP_SYS_PTRACE");
    }
    Finding::no(id, what, "no CAP_SYS_PTRACE")
        .lost("mappings of other users' processes that ran before the start: their samples stay unknown")
        .fix(facts.grant(&[Capability::SysPtrace]))
}

fn other_files(facts: &Facts) -> Finding {
    let (id, what) = ("other-files", "read any binary");
    if facts.rights.uid() == 0 || facts.rights.has(Capability::DacReadSearch) {
        return Finding::yes(id, what, if facts.rights.uid() == 0 { "root" } else { "CAP_DAC_READ_SEARCH" });
    }
    Finding::partly(id, what, "only files this user may read")
        .lost("names and code of programs whose files are closed to this user")
}

fn process_view(facts: &Facts) -> Finding {
    let (id, what) = ("process-view", "see the host's processes");
    if !facts.container {
        return Finding::yes(id, what, "not in a container");
    }
    Finding::partly(id, what, "in a container: /proc shows its own processes unless the pid namespace is the host's")
        .lost("names and mappings of processes outside; their samples stay unknown")
        .fix("run on the host, or start the container with --pid=host")
}

fn paranoid(facts: &Facts) -> Finding {
    let (id, what) = ("perf-event-paranoid", "kernel.perf_event_paranoid");
    let detail = shown(facts.paranoid);
    match facts.paranoid {
        _ if facts.rights.has(Capability::Perfmon) => {
            Finding::yes(id, what, format!("{detail}, which CAP_PERFMON passes"))
        }
        Some(level) if level < 1 => Finding::yes(id, what, detail),
        Some(_) => Finding::partly(id, what, detail).lost("see the lines on sampling above"),
        None => Finding::no(id, what, "the file is missing")
            .lost("the kernel has no perf events")
            .fix("use a kernel built with CONFIG_PERF_EVENTS=y"),
    }
}

/// What a ring per CPU of the default size needs, in KiB.
const RING_KIB: i32 = 516;

fn ring_memory(system: &dyn System, facts: &Facts) -> Finding {
    let (id, what) = ("ring-memory", "memory for perf rings");
    let limit = number(system, "/proc/sys/kernel/perf_event_mlock_kb");
    let detail = format!("perf_event_mlock_kb {}", shown(limit));
    match limit {
        Some(kib) if kib < RING_KIB && !facts.rights.has(Capability::IpcLock) => Finding::partly(id, what, detail)
            .lost("rings shrink, and bursts of samples may be dropped (and counted)")
            .fix(format!("sysctl kernel.perf_event_mlock_kb={RING_KIB}")),
        _ => Finding::yes(id, what, detail),
    }
}

/// The default rate per CPU.
const RATE_HZ: i32 = 5200;

fn sample_rate(system: &dyn System) -> Finding {
    let (id, what) = ("sample-rate", "sample at the default rate");
    let limit = number(system, "/proc/sys/kernel/perf_event_max_sample_rate");
    let detail = format!("perf_event_max_sample_rate {}", shown(limit));
    match limit {
        Some(rate) if rate < RATE_HZ => Finding::partly(id, what, detail)
            .lost(format!("rates above {rate} Hz; the kernel lowers this figure itself when interrupts took too long"))
            .fix(format!("sysctl kernel.perf_event_max_sample_rate={}", RATE_HZ * 2)),
        _ => Finding::yes(id, what, detail),
    }
}

fn tracepoints(system: &dyn System, facts: &Facts) -> Finding {
    let (id, what) = ("tracepoints", "tracepoints as events");
    let roots = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let found = roots.iter().find(|r| system.read(&format!("{r}/events/sched/sched_switch/id")).is_ok());
    let fix = if facts.rights.uid() == 0 {
        "mount -t tracefs tracefs /sys/kernel/tracing"
    } else {
        "run as root (tracefs is closed to others)"
    };
    found.map_or_else(
        || Finding::no(id, what, "tracefs cannot be read").lost("events like sched:sched_switch").fix(fix),
        |root| Finding::yes(id, what, *root),
    )
}

fn breakpoints(system: &dyn System) -> Finding {
    let (id, what) = ("breakpoints", "hardware breakpoints");
    match system.breakpoint_cost() {
        Ok(cost) => Finding::yes(id, what, format!("a hit costs {:.1} us", cost.as_nanos() as f64 / 1e3)),
        Err(errno) => Finding::no(id, what, breakpoint_refused(errno)).lost("exact execution counts (record --exact)"),
    }
}

fn breakpoint_refused(errno: i32) -> String {
    match errno {
        libc::ENOSPC => "another tool holds all of them".into(),
        errno => refused(errno),
    }
}

fn uprobes(system: &dyn System) -> Finding {
    pmu(system, "uprobes", "probes in programs (uprobes)", "uprobe", "events at functions of programs")
}

fn pmu(system: &dyn System, id: &'static str, what: &'static str, name: &str, lost: &str) -> Finding {
    let path = format!("/sys/bus/event_source/devices/{name}");
    if system.exists(&path) {
        Finding::yes(id, what, path)
    } else {
        Finding::no(id, what, format!("{path} is missing")).lost(lost)
    }
}

fn lockdown(facts: &Facts) -> Finding {
    let (id, what) = ("lockdown", "kernel not locked down");
    match facts.lockdown.as_str() {
        "confidentiality" => Finding::no(id, what, "lockdown=confidentiality")
            .lost("perf events on the kernel, BPF reading kernel memory, tracefs")
            .fix("boot with lockdown=integrity or none (Secure Boot alone needs no more than integrity)"),
        mode => Finding::yes(id, what, format!("lockdown={mode}")),
    }
}

fn debug_files(system: &dyn System) -> Finding {
    let (id, what) = ("debug-files", "debug information of system packages");
    if system.exists("/usr/lib/debug/.build-id") {
        return Finding::yes(id, what, "/usr/lib/debug/.build-id");
    }
    Finding::partly(id, what, "/usr/lib/debug/.build-id is missing")
        .lost("static functions, inlined functions and source lines of stripped system binaries")
        .fix("install the -dbgsym packages of what you look into (Debian and Ubuntu keep them in an archive of their own)")
}

fn in_container(system: &dyn System) -> bool {
    let marks = ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"];
    let words = ["docker", "kubepods", "containerd", "lxc", "libpod"];
    let cgroup = read(system, "/proc/1/cgroup");
    marks.iter().any(|m| system.exists(m)) || words.iter().any(|w| cgroup.contains(w))
}

fn machine_kind(virtual_machine: bool, container: bool) -> String {
    let base = if virtual_machine { "virtual machine" } else { "bare metal" };
    if container { format!("{base}, in a container") } else { base.into() }
}

fn cpu_model(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|l| l.starts_with("model name"));
    line.and_then(|l| l.split_once(':')).map_or_else(|| "unknown CPU".into(), |(_, name)| name.trim().to_owned())
}

/// `none [integrity] confidentiality`: the bracketed word is in force.
fn lockdown_mode(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or("none", |(mode, _)| mode).to_owned()
}

fn read(system: &dyn System, path: &str) -> String {
    system.read(path).unwrap_or_default()
}

fn number(system: &dyn System, path: &str) -> Option<i32> {
    read(system, path).trim().parse().ok()
}

fn shown(value: Option<i32>) -> String {
    value.map_or_else(|| "unreadable".into(), |v| v.to_string())
}

fn refused(errno: i32) -> String {
    format!("the kernel refuses: {}", error_name(errno))
}

fn error_name(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split_once(" (os error").map_or(text.clone(), |(words, _)| words.to_owned())
}
