//! What /proc and /sys say of the machine and its processes, as values. Everything here races with
//! the processes it looks at, so a vanished file is an empty answer, not an error.

use crate::KernelError;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// One executable mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// File offset of the first byte.
    pub offset: u64,
    /// Device major and minor number, 0 without a file.
    pub device: (u32, u32),
    /// Inode, 0 without a file.
    pub inode: u64,
    /// Path as the kernel prints it; may end in ` (deleted)`; empty for anonymous memory.
    pub path: String,
}

/// A file of /proc in whole. What the kernel makes up as it is read has no size to be known before: `fs::read` asks for it, begins with
/// 32 bytes, and needs 10 system calls for a line of `stat`. One read and the end are enough for nearly all of them here.
///
/// # Errors
/// The kernel's.
pub fn read_bytes(path: impl AsRef<Path>) -> std::io::Result<Vec<u8>> {
    /// The kernel hands out a page at a time.
    const PAGE: usize = 4096;
    let mut file = fs::File::open(path)?;
    let (mut bytes, mut filled) = (vec![0; 2 * PAGE], 0);
    loop {
        if bytes.len() - filled < PAGE {
            bytes.resize(2 * bytes.len(), 0);
        }
        match file.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// The same as text.
///
/// # Errors
/// The kernel's, or that it is no text.
pub fn read_text(path: impl AsRef<Path>) -> std::io::Result<String> {
    String::from_utf8(read_bytes(path)?).map_err(|e| std::io::Error::new(std::io::ErrorKind::InvalidData, e))
}

/// Process ids that exist now.
#[must_use]
pub fn pids() -> Vec<u32> {
    numbers("/proc")
}

/// Thread ids of a process; empty when it is gone.
#[must_use]
pub fn threads(pid: u32) -> Vec<u32> {
    numbers(&format!("/proc/{pid}/task"))
}

/// Child processes; empty where the kernel does not list them.
#[must_use]
pub fn children(pid: u32) -> Vec<u32> {
    let of_thread = |tid: u32| {
        let text = read_text(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
        text.split_whitespace().filter_map(|w| w.parse().ok()).collect::<Vec<u32>>()
    };
    threads(pid).into_iter().flat_map(of_thread).collect()
}

/// Whether a thread runs or waits for a CPU.
#[must_use]
pub fn is_running(pid: u32, tid: u32) -> bool {
    let stat = read_text(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
    // The name before the state may hold anything, brackets too.
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('R'))
}

/// Whether every thread of a process is stopped, by a signal or job control.
#[must_use]
pub fn is_stopped(pid: u32) -> bool {
    let stopped = |tid: u32| {
        let stat = read_text(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    };
    // Most processes are not: one look at the first thread tells that.
    stopped(pid) && threads(pid).into_iter().all(stopped)
}

fn numbers(dir: &str) -> Vec<u32> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut all: Vec<u32> = entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    all.sort_unstable();
    all
}

/// The number by which /proc shows the memory of a process: its own, but that of another thread when the first one has ended
/// (`pthread_exit` in `main`) and took its view with it.
#[must_use]
pub fn with_memory(pid: u32) -> u32 {
    let ended = |path: String| {
        let stat = read_bytes(path).unwrap_or_default();
        let stat = String::from_utf8_lossy(&stat);
        stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
    };
    if !ended(format!("/proc/{pid}/stat")) {
        return pid;
    }
    let lives = |tid: &u32| !ended(format!("/proc/{pid}/task/{tid}/stat"));
    threads(pid).into_iter().find(lives).unwrap_or(pid)
}

/// Executable mappings of a process; empty when it is gone, a kernel thread, or not ours to see.
#[must_use]
pub fn executable_mappings(pid: u32) -> Vec<Mapping> {
    let mut text = read_bytes(format!("/proc/{pid}/maps")).unwrap_or_default();
    if text.is_empty() {
        text = read_bytes(format!("/proc/{}/maps", with_memory(pid))).unwrap_or_default();
    }
    let text = String::from_utf8_lossy(&text);
    text.lines().filter_map(parse_mapping).collect()
}

/// The process of a thread; itself for a process, `None` when there is no such thread.
#[must_use]
pub fn process_of(tid: u32) -> Option<u32> {
    let status = read_text(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// Pages that a process maps; 0 when it is gone.
#[must_use]
pub fn mapped_pages(pid: u32) -> u64 {
    let text = read_text(format!("/proc/{pid}/statm")).unwrap_or_default();
    text.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

/// Whether a process has a device in its address space, where reading may have effects; not when it is gone.
#[must_use]
pub fn maps_device(pid: u32) -> bool {
    let text = read_bytes(format!("/proc/{pid}/maps")).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .lines()
        .filter_map(|line| line.splitn(6, ' ').nth(5))
        .any(|path| is_device(path.trim_start()))
}

/// Whether a mapping of this name is of anything but plain memory and files: device nodes, resources of devices in sysfs,
/// buffers that devices share.
fn is_device(path: &str) -> bool {
    let plain = ["/dev/zero", "/dev/shm/", "/dev/hugepages", "anon_inode:[io_uring]", "anon_inode:[perf_event]"];
    let devices = ["/dev/", "/sys/", "/proc/", "anon_inode:", "/dmabuf", "/drm"];
    devices.iter().any(|d| path.starts_with(d)) && !plain.iter().any(|p| path.starts_with(p))
}

/// Reads a line of /proc/PID/maps; `None` when it is not executable or malformed.
#[must_use]
pub fn parse_mapping(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    if rights.as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let (major, minor) = words.next()?.split_once(':')?;
    let inode = words.next()?.parse().ok()?;
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        offset,
        device: (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?),
        inode,
        path: words.next().unwrap_or("").trim_start().to_string(),
    })
}

/// Command name; empty when the process is gone.
#[must_use]
pub fn comm(pid: u32) -> String {
    read_line(&format!("/proc/{pid}/comm"))
}

/// Name of a thread of a process, empty when it is gone.
#[must_use]
pub fn thread_comm(pid: u32, tid: u32) -> String {
    read_line(&format!("/proc/{pid}/task/{tid}/comm"))
}

/// Path of the executable; empty for kernel threads or when not ours to see.
#[must_use]
pub fn exe(pid: u32) -> String {
    let of_thread = |tid: u32| fs::read_link(format!("/proc/{pid}/task/{tid}/exe")).ok();
    let link = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let link = link.or_else(|| threads(pid).into_iter().find_map(of_thread)).unwrap_or_default();
    link.to_string_lossy().into_owned()
}

/// Path in the unified cgroup hierarchy, else in the first named one that is not the root; empty
/// when not known.
#[must_use]
pub fn cgroup(pid: u32) -> String {
    let text = read_text(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mut best = String::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(_), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if number == "0" && path != "/" {
            return path.to_string();
        }
        if best.len() <= 1 {
            best = path.to_string();
        }
    }
    best
}

/// Id of the thread that traces a process, 0 when there is none.
#[must_use]
pub fn tracer(pid: u32) -> u32 {
    status_word(pid, "TracerPid:").and_then(|w| w.parse().ok()).unwrap_or(0)
}

/// Thread-group id of a thread; `None` when it is gone.
#[must_use]
pub fn tgid(tid: u32) -> Option<u32> {
    status_word(tid, "Tgid:")?.parse().ok()
}

/// The process's own id inside its innermost pid namespace (what a JIT names its perf map after).
#[must_use]
pub fn inner_pid(pid: u32) -> u32 {
    let words = status_word(pid, "NSpid:");
    words.and_then(|w| w.split_whitespace().last()?.parse().ok()).unwrap_or(pid)
}

/// Whether our process ids are the kernel's own (not those of a container's pid namespace).
#[must_use]
pub fn in_first_pid_namespace() -> bool {
    use std::os::unix::fs::MetadataExt;
    /// `PROC_PID_INIT_INO` of the kernel.
    const FIRST: u64 = 0xEFFF_FFFC;
    fs::metadata("/proc/self/ns/pid").is_ok_and(|m| m.ino() == FIRST)
}

/// The /tmp of a process, which outlives it as long as this is held: of its root only what is not mounted below would.
#[must_use]
pub fn open_tmp(pid: u32) -> Option<std::os::fd::OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(format!("/proc/{pid}/root/tmp"), flags, Mode::empty()).ok()
}

/// Opens a path that somebody else chose, if it is a plain file: opening a FIFO or a device by mistake
/// would hang us or do something to it.
#[must_use]
pub fn open_plain(path: &Path) -> Option<fs::File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let probe = rustix::fs::open(path, flags | OFlags::PATH, Mode::empty()).ok()?;
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&probe).ok()?.st_mode);
    if !kind.is_file() {
        return None;
    }
    use std::os::fd::AsRawFd;
    fs::File::open(format!("/proc/self/fd/{}", probe.as_raw_fd())).ok()
}

/// The rest of a line of /proc/PID/status, by its start (`Tgid:`).
#[must_use]
pub fn status_word(pid: u32, key: &str) -> Option<String> {
    let text = read_text(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|l| l.strip_prefix(key)).map(|v| v.trim().to_string())
}

/// A thread of the process that runs under a real-time policy (FIFO, round robin, deadline), if there is one.
#[must_use]
pub fn realtime_thread(pid: u32) -> Option<u32> {
    threads(pid).into_iter().find(|tid| {
        let stat = read_text(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
        policy(&stat).is_some_and(|p| matches!(p, 1 | 2 | 6))
    })
}

/// Scheduling policy in a line of /proc/PID/stat: its 41st word. The name in brackets may hold anything.
fn policy(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(38)?.parse().ok()
}

/// Whether this kernel promises real-time behaviour (PREEMPT_RT).
#[must_use]
pub fn is_realtime_kernel() -> bool {
    fs::read_to_string("/sys/kernel/realtime").is_ok_and(|text| text.trim() == "1")
}

/// CPUs that the process's cgroup, or one above it, may use at the most; `None`: no limit.
#[must_use]
pub fn cpu_quota(pid: u32) -> Option<f64> {
    let group = cgroup(pid);
    let below = Path::new(group.trim_start_matches('/'));
    let limits = below.ancestors().filter_map(|path| {
        let text = fs::read_to_string(Path::new("/sys/fs/cgroup").join(path).join("cpu.max")).ok()?;
        quota(&text)
    });
    limits.min_by(f64::total_cmp)
}

/// `cpu.max`: quota and period in microseconds, or `max`.
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0.0).then(|| quota / period)
}

/// Whether a process exists.
#[must_use]
pub fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Whether a process runs: it exists, and is more than a body that its parent has not looked at yet.
#[must_use]
pub fn runs(pid: u32) -> bool {
    let stat = read_text(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    // A leader that has ended is one, too, while other threads of it run.
    !state.is_empty() && (!state.starts_with(['Z', 'X']) || threads(pid).len() > 1)
}

/// Places where the bytes of a mapping can be read, best first: the mapping itself (right across
/// mount namespaces and for deleted files), the process's root, our own root.
#[must_use]
pub fn mapped_file_candidates(pid: u32, start: u64, end: u64, path: &str) -> Vec<PathBuf> {
    let clean = path.strip_suffix(" (deleted)").unwrap_or(path);
    let mut all = vec![PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{end:x}"))];
    if clean.starts_with('/') {
        all.push(PathBuf::from(format!("/proc/{pid}/root{clean}")));
        all.push(PathBuf::from(clean));
    }
    all
}

/// The machine as `EpochMeta` describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// Boot id.
    pub boot_id: String,
    /// `uname -r`.
    pub kernel: String,
    /// CPU model name.
    pub cpu: String,
    /// CPUs on line.
    pub cpus: Vec<u32>,
}

/// Describes the machine.
#[must_use]
pub fn machine() -> Machine {
    let uname = rustix::system::uname();
    Machine {
        host: uname.nodename().to_string_lossy().into_owned(),
        boot_id: read_line("/proc/sys/kernel/random/boot_id"),
        kernel: uname.release().to_string_lossy().into_owned(),
        cpu: cpu_model(),
        cpus: online_cpus(),
    }
}

fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split_once(':'));
    model.map(|(_, v)| v.trim().to_string()).unwrap_or_default()
}

/// Which kind of CPU this is: model name, and the numbers that tell steppings apart.
#[must_use]
pub fn cpu_identity() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let first = text.split("\n\n").next().unwrap_or_default();
    let field = |name: &str| {
        let line = first.lines().find(|l| l.split(':').next().is_some_and(|key| key.trim() == name));
        line.and_then(|l| l.split_once(':')).map_or("?", |(_, v)| v.trim()).to_owned()
    };
    format!(
        "{} family {} model {} stepping {}",
        field("model name"),
        field("cpu family"),
        field("model"),
        field("stepping")
    )
}

/// CPUs on line now.
#[must_use]
pub fn online_cpus() -> Vec<u32> {
    OnlineCpus::open().now()
}

/// The list of CPUs on line, for who asks again and again: opening it takes 50 times what reading it takes.
#[derive(Debug)]
pub struct OnlineCpus(Option<fs::File>);

impl OnlineCpus {
    /// Opens the list.
    #[must_use]
    pub fn open() -> Self {
        Self(fs::File::open("/sys/devices/system/cpu/online").ok())
    }

    /// CPUs on line now; the first one where the list cannot be read.
    #[must_use]
    pub fn now(&self) -> Vec<u32> {
        // A page is the most that a file of sysfs has.
        let mut text = [0; 4096];
        let length = self.0.as_ref().and_then(|f| f.read_at(&mut text, 0).ok()).unwrap_or(0);
        let list = parse_cpu_list(&String::from_utf8_lossy(&text[..length]));
        if list.is_empty() { vec![0] } else { list }
    }
}

/// CPUs that may ever come on line: what per-CPU tables are sized for.
#[must_use]
pub fn possible_cpus() -> u32 {
    parse_cpu_list(&read_line("/sys/devices/system/cpu/possible")).last().map_or(1, |&n| n + 1)
}

/// Reads `0-3,8`. Malformed parts are passed over; ranges are cut at 8,192 CPUs.
#[must_use]
pub fn parse_cpu_list(text: &str) -> Vec<u32> {
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.parse::<u32>(), to.parse::<u32>()) {
            all.extend(from..=to.min(8191));
        }
    }
    all
}

/// A sysctl under /proc/sys as a number.
#[must_use]
pub fn sysctl(name: &str) -> Option<i64> {
    read_line(&format!("/proc/sys/{}", name.replace('.', "/"))).parse().ok()
}

/// Idle and steal time of one CPU since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Idle, waiting for I/O included, ns.
    pub idle_ns: u64,
    /// Taken away by the hypervisor, ns.
    pub steal_ns: u64,
}

/// Times per CPU, from /proc/stat, in steps of 10 ms (USER_HZ is 100 on every Linux port of ours).
#[must_use]
pub fn cpu_times() -> Vec<(u32, CpuTimes)> {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix("cpu")?.split_whitespace();
            let cpu = words.next()?.parse().ok()?;
            // cpuN user nice system idle iowait irq softirq steal
            let ticks: Vec<u64> = words.map_while(|w| w.parse().ok()).collect();
            let ns = |i: usize| ticks.get(i).map(|t| t * 10_000_000);
            Some((cpu, CpuTimes { idle_ns: ns(3)? + ns(4)?, steal_ns: ns(7)? }))
        })
        .collect()
}

/// A whole file as bytes.
///
/// # Errors
/// [`KernelError::Read`].
pub fn read(path: &str) -> Result<Vec<u8>, KernelError> {
    fs::read(path).map_err(|source| KernelError::Read { path: path.into(), source })
}

fn read_line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

/// Id of a process's cgroup in the unified hierarchy, as BPF tells it: its directory's inode. 0 when not known.
#[must_use]
pub fn cgroup_id(pid: u32) -> u64 {
    let text = read_text(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let Some(path) = text.lines().find_map(|line| line.strip_prefix("0::")) else { return 0 };
    let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let inode = |root: &str| fs::metadata(format!("{root}{path}")).map(|m| std::os::unix::fs::MetadataExt::ino(&m));
    roots.into_iter().find_map(|root| inode(root).ok()).unwrap_or(0)
}

/// Cgroup ids to paths, by walking the unified hierarchy: a cgroup's id is its directory's inode.
#[must_use]
pub fn cgroup_paths() -> Vec<(u64, String)> {
    let root = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
        .into_iter()
        .map(Path::new)
        .find(|p| p.join("cgroup.procs").exists() || p.join("cgroup.controllers").exists());
    let mut found = Vec::new();
    let mut todo: Vec<PathBuf> = root.into_iter().map(Path::to_path_buf).collect();
    while let (Some(dir), true) = (todo.pop(), found.len() < 20_000) {
        use std::os::unix::fs::MetadataExt;
        let Ok(meta) = fs::metadata(&dir) else {
            continue;
        };
        let inside = root.and_then(|r| dir.strip_prefix(r).ok()).unwrap_or(&dir);
        let name = format!("/{}", String::from_utf8_lossy(inside.as_os_str().as_bytes()));
        found.push((meta.ino(), name));
        let children = fs::read_dir(&dir).into_iter().flatten().flatten();
        todo.extend(children.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_files_are_read_in_whole() {
        for name in ["cmdline", "maps", "status", "auxv"] {
            let path = format!("/proc/{}/{name}", std::process::id());
            assert!(!read_bytes(&path).unwrap().is_empty(), "{name}");
        }
        let zeros = tempfile::NamedTempFile::new().unwrap();
        fs::write(zeros.path(), vec![b'7'; 100_000]).unwrap();
        assert_eq!(read_text(zeros.path()).unwrap().len(), 100_000, "longer than the first read");
    }

    #[test]
    fn a_stopped_process_is_told_from_one_that_sleeps() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = child.id();
        let signal = |signal| {
            let child = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(child, signal).expect("our own child");
        };
        // The state follows the signal a moment later.
        let becomes = |wanted| {
            (0..500).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                is_stopped(pid) == wanted
            })
        };
        let sleeping = is_stopped(pid);
        signal(rustix::process::Signal::STOP);
        let stopped = becomes(true);
        signal(rustix::process::Signal::CONT);
        let goes_on = becomes(false);
        child.kill().expect("our own child");
        child.wait().expect("our own child");
        assert_eq!((sleeping, stopped, goes_on, is_stopped(pid)), (false, true, true, false));
    }

    #[test]
    fn scheduling_policies_and_quotas() {
        let line = |policy: u32| {
            let words: Vec<String> =
                (4..=52).map(|n| if n == 41 { policy.to_string() } else { n.to_string() }).collect();
            format!("7 (a) b) R {}", words.join(" "))
        };
        assert_eq!((policy(&line(1)), policy(&line(0)), policy("7 (x) R 1")), (Some(1), Some(0), None));
        assert_eq!(realtime_thread(std::process::id()), None);
        assert_eq!(
            (quota("max 100000\n"), quota("150000 100000\n"), quota("1 0"), quota("")),
            (None, Some(1.5), None, None)
        );
    }

    #[test]
    fn lines_of_maps() {
        let m = parse_mapping("7f10-7f20 r-xp 00002000 fd:01 42                         /usr/lib/a b.so (deleted)");
        let want = Mapping {
            start: 0x7f10,
            end: 0x7f20,
            offset: 0x2000,
            device: (0xfd, 1),
            inode: 42,
            path: "/usr/lib/a b.so (deleted)".into(),
        };
        assert_eq!(m, Some(want));
        assert_eq!(parse_mapping("7f10-7f20 rw-p 0 0:0 0"), None);
        assert_eq!(parse_mapping("garbage"), None);
        assert_eq!(parse_mapping("1-2 r-xp 0 0:0 0").map(|m| m.path), Some(String::new()));
    }

    #[test]
    fn devices_in_memory_are_told_from_memory() {
        let devices = [
            "/dev/uio0",
            "/dev/nvidia0",
            "/sys/devices/pci0000:00/0000:00:03.0/resource0",
            "anon_inode:[vfio-device]",
            "/dmabuf:",
        ];
        let plain =
            ["", "[heap]", "/usr/lib/a.so", "/dev/shm/x", "/dev/zero (deleted)", "/memfd:x (deleted)", "/SYSV00000000"];
        assert!(devices.iter().all(|d| is_device(d)) && !plain.iter().any(|p| is_device(p)));
        assert!(!maps_device(std::process::id()));
    }

    #[test]
    fn only_plain_files_are_opened() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (plain, fifo) = (dir.path().join("plain"), dir.path().join("fifo"));
        fs::write(&plain, b"x").expect("writable");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
        assert!(open_plain(&plain).is_some());
        assert!(open_plain(&fifo).is_none() && open_plain(Path::new("/dev/null")).is_none());
        assert!(open_plain(dir.path()).is_none() && open_plain(&dir.path().join("none")).is_none());
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpu_list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(parse_cpu_list("x,3"), [3]);
    }

    #[test]
    fn this_very_process() {
        let me = std::process::id();
        assert!(exists(me) && pids().contains(&me) && threads(me).contains(&me));
        assert!(executable_mappings(me).iter().any(|m| m.path.contains("whither_kernel")));
        assert_eq!((tgid(me), inner_pid(me) > 0, tracer(u32::MAX)), (Some(me), true, 0));
        assert!(!machine().kernel.is_empty() && possible_cpus() >= machine().cpus.len() as u32);
    }

    #[test]
    fn a_process_that_waits_for_its_parent_runs_no_more() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        assert!(runs(pid) && exists(pid));
        drop(child.stdin.take());
        // SAFETY: an all-zero siginfo is a value, and the call writes no further.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: our own child's number; it stays to be waited for (WNOWAIT).
        let ended = unsafe { libc::waitid(libc::P_PID, pid, &raw mut info, libc::WEXITED | libc::WNOWAIT) };
        assert_eq!(ended, 0);
        assert!(exists(pid) && !runs(pid), "a zombie");
        child.wait().unwrap();
        assert!(!exists(pid) && !runs(pid));
    }

    #[test]
    fn memory_is_shown_by_another_thread_once_the_first_has_ended() {
        // `exit` of the first thread alone.
        let code = "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); ctypes.CDLL(None).syscall(60, 0)";
        let mut child = std::process::Command::new("python3").args(["-c", code]).spawn().expect("python3");
        let pid = child.id();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while with_memory(pid) == pid && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        let shown = with_memory(pid);
        assert!(shown != pid && threads(pid).contains(&shown) && runs(pid));
        assert!(!executable_mappings(pid).is_empty() && crate::memory::Memory::open(pid).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
