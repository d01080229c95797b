//! The agent put into a process, and the segment shared with it. Way 1: the process's own loader maps it
//! (`dlopen` of a memfd), so that unwinders and debuggers know it. Way 2, for static programs and where
//! the loader refuses or is busy: mapped and relocated by hand. Whatever fails is undone; no descriptor is left.

use super::image::Image;
use super::library::{Library, libraries};
use super::maps::{self, Map};
use super::opens::Opens;
use super::own_fs;
use super::remote::Caller;
use crate::ProbeError;
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use whither_kernel::memory::Memory;
use whither_kernel::proc;

/// Name of the segment's memfd; /proc/PID/maps shows it.
const SEGMENT_NAME: &str = "whither-segment";
/// Name of the agent's memfd where the loader maps it.
const AGENT_NAME: &str = "whither-agent";
/// Name of its memfd where it is mapped by hand.
const BY_HAND_NAME: &str = "whither-agent-by-hand";
const MFD_NOEXEC_SEAL: u64 = 8;
const MFD_EXEC: u64 = 16;

/// How the agent came into the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Mapped by the loader, which gave this handle.
    Loader {
        /// What `dlopen` returned.
        handle: u64,
    },
    /// Mapped by us.
    Mapped,
}

/// An agent in a process.
#[derive(Debug)]
pub struct Placed {
    /// The process.
    pub pid: u32,
    /// How it came there.
    pub way: Way,
    /// Addresses of its image; symbols are offsets from the start.
    pub image: Range<u64>,
    /// Where the target has the segment.
    pub segment: u64,
    /// Bytes of the segment.
    pub segment_bytes: u64,
    /// The segment, to be mapped shared.
    pub file: File,
}

/// What is to be put into a process.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The agent, a shared object.
    pub agent: &'a [u8],
    /// Offset of its `wh_start`.
    pub start: u64,
    /// Bytes of the segment.
    pub segment_bytes: u64,
    /// Distance from a return slot to its shadow.
    pub shadow: i64,
    /// Layout version the agent must agree with.
    pub abi: u32,
    /// Do not ask the loader.
    pub by_hand: bool,
}

/// Puts the agent in. `prepare` is given the segment before the agent sees it.
///
/// # Errors
/// [`ProbeError`] with the reason; nothing of the agent is left in the process.
pub fn inject(
    caller: &mut Caller,
    load: &Load<'_>,
    prepare: &mut dyn FnMut(&File) -> Result<(), ProbeError>,
) -> Result<Placed, ProbeError> {
    let errno = Errno::keep(caller);
    let result = sweep(caller).and_then(|()| inject_all(caller, load, prepare));
    errno.give_back(caller);
    result
}

fn inject_all(
    caller: &mut Caller,
    load: &Load<'_>,
    prepare: &mut dyn FnMut(&File) -> Result<(), ProbeError>,
) -> Result<Placed, ProbeError> {
    let (segment, file) = make_segment(caller, load.segment_bytes)?;
    let placed = prepare(&file).and_then(|()| place(caller, load, segment));
    let (way, image) = match placed {
        Ok(placed) => placed,
        Err(e) => {
            let _ = caller.unmap(segment, load.segment_bytes);
            return Err(e);
        }
    };
    Ok(Placed { pid: caller.pid(), way, image, segment, segment_bytes: load.segment_bytes, file })
}

fn place(caller: &mut Caller, load: &Load<'_>, segment: u64) -> Result<(Way, Range<u64>), ProbeError> {
    let mut refused = String::new();
    if !load.by_hand {
        match by_loader(caller, load.agent) {
            Ok(Some((way, image))) => return start(caller, load, segment, way, image),
            Ok(None) => refused = "another thread loads or unloads a library and holds the loader's lock; ".to_string(),
            Err(e @ (ProbeError::Ended { .. } | ProbeError::RemoteFault { .. })) => return Err(e),
            Err(e) => refused = format!("by its loader: {e}; "),
        }
        if handles_exceptions(caller.pid()) {
            let why = format!("{refused}mapped by hand, exceptions could not pass through it: try again later");
            return Err(ProbeError::Injection { pid: caller.pid(), why });
        }
    }
    match by_hand(caller, load.agent) {
        Ok(image) => start(caller, load, segment, Way::Mapped, image),
        Err(e) => Err(ProbeError::Injection { pid: caller.pid(), why: format!("{refused}by hand: {e}") }),
    }
}

/// Whether a library unwinds stacks in it: that one asks the loader where unwind rules are, which does not
/// know what is mapped by hand. A program that loads its first one later is not foreseen.
fn handles_exceptions(pid: u32) -> bool {
    const UNWINDERS: [&str; 4] = ["libgcc_s", "libunwind", "libstdc++", "libc++abi"];
    maps::read(pid).iter().any(|m| UNWINDERS.iter().any(|name| m.file_name().starts_with(name)))
}

/// Whether a program without a loader unwinds stacks itself: its unwinder cannot be told of an agent mapped by
/// hand, and an exception through a return address of ours would end it. What is looked for is the name of the
/// section that every function with a handler needs.
pub fn throws_alone(pid: u32) -> bool {
    const HANDLERS: &[u8] = b".gcc_except_table";
    let loader = |m: &maps::Map| m.file_name().starts_with("ld-") || m.file_name().starts_with("ld.");
    if maps::read(pid).iter().any(loader) {
        return false;
    }
    std::fs::read(format!("/proc/{pid}/exe")).is_ok_and(|file| file.windows(HANDLERS.len()).any(|w| w == HANDLERS))
}

fn start(
    caller: &mut Caller,
    load: &Load<'_>,
    segment: u64,
    way: Way,
    image: Range<u64>,
) -> Result<(Way, Range<u64>), ProbeError> {
    // struct wh_start
    let by_storage = matches!(way, Way::Loader { .. }) && !own_fs::is_set(caller.pid(), caller.memory());
    let number: u32 = if by_storage { 1 } else { 2 };
    let mut words = Vec::with_capacity(24);
    words.extend(segment.to_le_bytes());
    words.extend(load.shadow.to_le_bytes());
    words.extend(number.to_le_bytes());
    words.extend(load.abi.to_le_bytes());
    words.extend(u32::from(may_read_thread_pointer()).to_le_bytes());
    words.extend(0_u32.to_le_bytes());
    let answer =
        caller.scratch(&words).and_then(|at| caller.call("the agent's start", image.start + load.start, &[at]));
    let why = match answer {
        Ok(0) => return Ok((way, image)),
        Ok(code) => ProbeError::Injection { pid: caller.pid(), why: format!("it refused to start (code {code})") },
        Err(e) => e,
    };
    take_out(caller, way, &image);
    Err(why)
}

/// Whether the kernel lets programs read their thread pointer by an instruction, as it tells each of them. Without it an agent mapped by
/// hand asks for the thread's number at every call, which costs a system call.
fn may_read_thread_pointer() -> bool {
    const FSGSBASE: u64 = 2;
    // SAFETY: it reads a word that the kernel has given this process.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & FSGSBASE != 0 }
}

/// Takes the image out again; what is left of it shows in the maps.
pub(super) fn take_out(caller: &mut Caller, way: Way, image: &Range<u64>) {
    match way {
        Way::Loader { handle } => {
            if let Some(dlclose) = function(caller.pid(), &["dlclose"]) {
                let errno = Errno::keep(caller);
                let _ = caller.call("dlclose", dlclose.1, &[handle]);
                errno.give_back(caller);
            }
        }
        Way::Mapped => drop(caller.unmap(image.start, image.end - image.start)),
    }
}

/// The thread's `errno`, which calls may change.
struct Errno(Option<(u64, [u8; 4])>);

impl Errno {
    fn keep(caller: &mut Caller) -> Self {
        let Some((_, location)) = function(caller.pid(), &["__errno_location"]) else { return Self(None) };
        let kept = caller.call("__errno_location", location, &[]).ok().and_then(|at| {
            let mut bytes = [0; 4];
            caller.memory().read(at, &mut bytes).ok()?;
            Some((at, bytes))
        });
        Self(kept)
    }

    fn give_back(self, caller: &Caller) {
        if let Some((at, bytes)) = self.0 {
            // The process ended otherwise, which others report.
            let _ = caller.memory().write(at, &bytes);
        }
    }
}

/// Makes the segment in the target: mapped there, opened here, no descriptor left.
fn make_segment(caller: &mut Caller, bytes: u64) -> Result<(u64, File), ProbeError> {
    let (fd, file) = memfd(caller, SEGMENT_NAME, MFD_NOEXEC_SEAL)?;
    let mapped = file
        .set_len(bytes)
        .map_err(|source| ProbeError::RemoteCall { what: "sizing the segment", pid: caller.pid(), source })
        .and_then(|()| {
            let rights = (libc::PROT_READ | libc::PROT_WRITE) as u64;
            let flags = (libc::MAP_SHARED | libc::MAP_NORESERVE) as u64;
            caller.syscall("mapping the segment", libc::SYS_mmap, [0, bytes, rights, flags, fd, 0])
        });
    close(caller, fd);
    Ok((mapped?, file))
}

/// A memfd of the target, with its number there.
fn memfd(caller: &mut Caller, name: &str, flag: u64) -> Result<(u64, File), ProbeError> {
    let at = caller.scratch(format!("{name}\0").as_bytes())?;
    let flags = u64::from(libc::MFD_CLOEXEC);
    let mut made = caller.syscall("memfd_create", libc::SYS_memfd_create, [at, flags | flag, 0, 0, 0, 0]);
    // Kernels before 6.3 do not know the flag.
    if made.is_err() {
        made = caller.syscall("memfd_create", libc::SYS_memfd_create, [at, flags, 0, 0, 0, 0]);
    }
    let fd = made?;
    // The thread's own table: threads need not share descriptors.
    let path = format!("/proc/{}/task/{}/fd/{fd}", caller.pid(), caller.tid());
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => Ok((fd, file)),
        Err(source) => {
            close(caller, fd);
            Err(ProbeError::RemoteCall { what: "opening its memfd", pid: caller.pid(), source })
        }
    }
}

fn close(caller: &mut Caller, fd: u64) {
    let _ = caller.syscall("close", libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
}

const DESCRIPTORS: &str = "/proc/thread-self/fd/";
/// Bytes of the agent's path, filled with slashes: as many as the name has that it is replaced with, at least.
const NAME: usize = 60;

/// Way 1; `None` when the loader is not to be had.
fn by_loader(caller: &mut Caller, agent: &[u8]) -> Result<Option<(Way, Range<u64>)>, ProbeError> {
    let pid = caller.pid();
    let refuse = |why: &str| ProbeError::Injection { pid, why: why.to_string() };
    let (name, dlopen) = function(pid, &["dlopen", "__libc_dlopen_mode"])
        .ok_or_else(|| refuse("it has no dlopen (a static program)"))?;
    let (fd, file) = memfd(caller, AGENT_NAME, MFD_EXEC)?;
    let opened = file
        .write_all_at(agent, 0)
        .map_err(|source| ProbeError::RemoteCall { what: "filling its memfd", pid, source })
        .and_then(|()| {
            // thread-self: threads need not share descriptors.
            let file_name = format!("{DESCRIPTORS}{fd:/>0$}", NAME - DESCRIPTORS.len());
            let path = caller.scratch(format!("{file_name}\0").as_bytes())?;
            // glibc's inner function wants to be told that it is called from outside.
            let inner = if name == "dlopen" { 0 } else { 0x8000_0000 };
            caller.opens = Some(Opens { name: file_name, fd });
            caller.call_unless_locked("dlopen", dlopen, &[path, libc::RTLD_NOW as u64 | inner])
        });
    caller.opens = None;
    close(caller, fd);
    let Some(handle) = opened? else { return Ok(None) };
    if handle == 0 {
        let said = loader_error(caller).unwrap_or_else(|| "dlopen failed".to_string());
        return Err(refuse(&said));
    }
    let way = Way::Loader { handle };
    // The entry's first word is where it is mapped, in glibc and in musl.
    let base = caller.memory().word(handle).unwrap_or(0);
    match images(caller.memory(), &maps::read(pid)).into_iter().find(|image| image.start == base) {
        Some(image) => {
            rename(caller, handle, base);
            Ok(Some((way, image)))
        }
        None => {
            take_out(caller, way, &(0..0));
            Err(refuse("dlopen succeeded, but its mapping cannot be found"))
        }
    }
}

/// Gives the loader's entry of the agent a name that leads to it from everywhere: a debugger opens that file in
/// its own process, where the descriptor's number means another file, or a pipe it would wait on for ever. By this
/// one, which is for root, it finds the unwind rules. `handle` is the entry, whose second word points to the name
/// in glibc and in musl.
fn rename(caller: &mut Caller, handle: u64, base: u64) {
    let Ok(name) = caller.memory().word(handle.wrapping_add(8)) else { return };
    let mapped = maps::read(caller.pid()).into_iter().find(|m| m.start == base);
    let Some(path) =
        mapped.map(|m| format!("/proc/{}/map_files/{:x}-{:x}\0", proc::with_memory(caller.pid()), m.start, m.end))
    else {
        return;
    };
    let text = caller.memory().text(name, 2 * NAME).unwrap_or_default();
    if text.starts_with(DESCRIPTORS.as_bytes()) && text.len() + 1 >= path.len() {
        // Without it only debuggers are worse off.
        let _ = caller.memory().write(name, path.as_bytes());
    }
}

fn loader_error(caller: &mut Caller) -> Option<String> {
    let (_, dlerror) = function(caller.pid(), &["dlerror"])?;
    let at = caller.call("dlerror", dlerror, &[]).ok().filter(|&at| at != 0)?;
    caller.memory().text(at, 512).map(|text| String::from_utf8_lossy(&text).into_owned())
}

/// Way 2. From a memfd, so that /proc/PID/maps names it for a later controller; where a memfd may not be
/// executed, in anonymous memory.
fn by_hand(caller: &mut Caller, agent: &[u8]) -> Result<Range<u64>, ProbeError> {
    let image = Image::parse(agent)?;
    let base = caller.map_anonymous(None, image.bytes(), libc::PROT_READ | libc::PROT_WRITE)?;
    let placed = image.relocated(base).and_then(|bytes| {
        from_memfd(caller, &image, base, &bytes).or_else(|_| from_nothing(caller, &image, base, &bytes))
    });
    if let Err(e) = placed {
        let _ = caller.unmap(base, image.bytes());
        return Err(e);
    }
    Ok(base..base + image.bytes())
}

fn from_memfd(caller: &mut Caller, image: &Image<'_>, base: u64, bytes: &[u8]) -> Result<(), ProbeError> {
    let (fd, file) = memfd(caller, BY_HAND_NAME, MFD_EXEC)?;
    let filled = file.write_all_at(bytes, 0).map_err(|source| ProbeError::RemoteCall {
        what: "filling its memfd",
        pid: caller.pid(),
        source,
    });
    let mapped = filled.and_then(|()| {
        image.parts().iter().try_for_each(|part| {
            let flags = (libc::MAP_PRIVATE | libc::MAP_FIXED) as u64;
            let args = [base + part.start, part.bytes, part.rights as u64, flags, fd, part.start];
            caller.syscall("mapping the agent", libc::SYS_mmap, args).map(drop)
        })
    });
    close(caller, fd);
    mapped
}

fn from_nothing(caller: &mut Caller, image: &Image<'_>, base: u64, bytes: &[u8]) -> Result<(), ProbeError> {
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;
    let rights = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    caller.syscall("mmap", libc::SYS_mmap, [base, image.bytes(), rights, flags, u64::MAX, 0])?;
    caller.memory().write(base, bytes)?;
    image.parts().iter().try_for_each(|part| caller.protect(base + part.start, part.bytes, part.rights))
}

/// The first of some functions that a library of the process exports.
fn function(pid: u32, names: &[&'static str]) -> Option<(&'static str, u64)> {
    let all: Vec<Library> = libraries(pid, &maps::read(pid));
    names.iter().find_map(|name| all.iter().find_map(|library| Some((*name, library.symbol(name)?.0))))
}

/// Whether a descriptor's link leads to one of our files.
pub(super) fn is_file_of_ours(link: &Path) -> bool {
    let link = link.to_string_lossy();
    [SEGMENT_NAME, AGENT_NAME, BY_HAND_NAME].iter().any(|name| {
        let rest = link.strip_prefix("/memfd:").and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest.is_empty() || rest == " (deleted)")
    })
}

fn is_agent(map: &Map) -> bool {
    map.path.starts_with("/memfd:whither-agent")
}

fn is_segment(map: &Map) -> bool {
    map.path.starts_with("/memfd:whither-segment")
}

/// Addresses of the images of agents. Zeroed data at their ends is anonymous memory right behind.
fn images(memory: &Memory, maps: &[Map]) -> Vec<Range<u64>> {
    let mut images: Vec<Range<u64>> = Vec::new();
    let mut limit = 0;
    for map in maps {
        let behind = images.last().is_some_and(|image| image.end == map.start) && map.start < limit;
        match images.last_mut() {
            Some(image) if behind && is_agent(map) => image.end = map.end,
            // The program's own memory may follow in the same mapping.
            Some(image) if behind && map.path.is_empty() && map.write => image.end = map.end.min(limit),
            _ if is_agent(map) => {
                images.push(map.start..map.end);
                limit = map.start.saturating_add(extent(memory, map.start).unwrap_or(0));
            }
            _ => {}
        }
    }
    images
}

/// Bytes of an image, as its own headers tell.
fn extent(memory: &Memory, start: u64) -> Option<u64> {
    const LOAD: u32 = 1;
    let mut header = [0; 4096];
    memory.read(start, &mut header).ok()?;
    let bytes = |at: usize, count: usize| header.get(at..at.checked_add(count)?);
    let number = |at: usize, count: usize| Some(bytes(at, count)?.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)));
    if bytes(0, 4)? != b"\x7fELF" {
        return None;
    }
    let (table, size, count) = (number(32, 8)? as usize, number(54, 2)? as usize, number(56, 2)? as usize);
    let mut end = 0;
    for program in (0..count).map(|i| table.saturating_add(i * size)) {
        if number(program, 4)? == u64::from(LOAD) {
            end = end.max(number(program.checked_add(16)?, 8)?.checked_add(number(program.checked_add(40)?, 8)?)?);
        }
    }
    end.checked_next_multiple_of(4096)
}

/// Whether mappings of an agent or its segment are in a process, and which: to report what is left.
#[must_use]
pub fn remains(pid: u32) -> Vec<String> {
    let ours = maps::read(pid).into_iter().filter(|m| is_agent(m) || is_segment(m));
    ours.map(|m| format!("{} at {:#x}-{:#x}", m.path, m.start, m.end)).collect()
}

/// Finds an agent that another controller left behind. One that was never started, or was on its way out
/// when its controller died, is none: [`inject`] takes its remains away.
///
/// # Errors
/// When its segment cannot be opened.
pub fn find_agent(pid: u32) -> Result<Option<Placed>, ProbeError> {
    let maps = maps::read(pid);
    if !maps.iter().any(is_agent) {
        return Ok(None);
    }
    let memory = Memory::open(pid)?;
    let started = |image: &Range<u64>, m: &Map| is_segment(m) && !pointers(&memory, &maps, image, m.start).is_empty();
    let found = images(&memory, &maps).into_iter().find_map(|image| {
        let segment = maps.iter().find(|m| started(&image, m))?;
        Some((image, segment))
    });
    let Some((image, segment)) = found else { return Ok(None) };
    let file = open_segment(pid, segment)?;
    // The loader's handle is asked for when it is needed.
    let way = if is_by_hand(&maps, &image) { Way::Mapped } else { Way::Loader { handle: 0 } };
    let segment_bytes = segment.end - segment.start;
    Ok(Some(Placed { pid, way, image, segment: segment.start, segment_bytes, file }))
}

fn open_segment(pid: u32, segment: &Map) -> Result<File, ProbeError> {
    let path = format!("/proc/{}/map_files/{:x}-{:x}", proc::with_memory(pid), segment.start, segment.end);
    OpenOptions::new().read(true).write(true).open(&path).map_err(|e| ProbeError::Injection {
        pid,
        why: format!("the segment left in it cannot be opened ({path}: {e}); this needs root"),
    })
}

/// An agent that was on its way out when its controller died: nobody is in it, and no way leads there.
#[derive(Debug)]
pub struct Retired {
    /// Addresses of its image.
    pub image: Range<u64>,
    /// Segments that are still mapped, one of which was its.
    pub segments: Vec<File>,
}

/// Finds those; also such as were never started. [`inject`] takes the images and segments away, but knows nothing
/// of what they have mapped.
#[must_use]
pub fn retired(pid: u32) -> Vec<Retired> {
    let maps = maps::read(pid);
    let Ok(memory) = Memory::open(pid) else { return Vec::new() };
    if !maps.iter().any(is_agent) || !matches!(find_agent(pid), Ok(None)) {
        return Vec::new();
    }
    let segments = || maps.iter().filter(|m| is_segment(m)).filter_map(|m| open_segment(pid, m).ok()).collect();
    images(&memory, &maps).into_iter().map(|image| Retired { image, segments: segments() }).collect()
}

fn is_by_hand(maps: &[Map], image: &Range<u64>) -> bool {
    maps.iter().any(|m| image.contains(&m.start) && m.path.contains(BY_HAND_NAME))
}

/// Where the agent's data holds an address: that of the segment it was started with.
fn pointers(memory: &Memory, maps: &[Map], image: &Range<u64>, to: u64) -> Vec<u64> {
    const LARGEST: u64 = 64 << 20;
    let mut found = Vec::new();
    for map in maps.iter().filter(|m| image.contains(&m.start) && m.write) {
        // Zeroed data may have grown together with what is mapped behind it.
        let mut bytes = vec![0; (map.end - map.start).min(LARGEST) as usize];
        let got = memory.read_some(map.start, &mut bytes);
        let hits = super::safe::words(&bytes[..got]).enumerate().filter(|(_, word)| *word == to);
        found.extend(hits.map(|(n, _)| map.start + 8 * n as u64));
    }
    found
}

/// Makes an agent in which no thread is, and to which no way leads, forget that it was started.
pub(super) fn retire(memory: &Memory, placed: &Placed) {
    for at in pointers(memory, &maps::read(placed.pid), &placed.image, placed.segment) {
        // The process is gone otherwise.
        let _ = memory.set_word(at, 0);
    }
}

/// Takes away what controllers left that died while their agent came or went.
fn sweep(caller: &mut Caller) -> Result<(), ProbeError> {
    /// More than ever were left.
    const MOST: u32 = 16;
    if find_agent(caller.pid())?.is_some() {
        return Ok(());
    }
    for _ in 0..MOST {
        let maps = maps::read(caller.pid());
        let Some(image) = images(caller.memory(), &maps).into_iter().next() else { break };
        if is_by_hand(&maps, &image) {
            take_out(caller, Way::Mapped, &image);
        } else if let Some(handle) = handle_of(caller, &image) {
            take_out(caller, Way::Loader { handle }, &image);
        } else {
            break;
        }
    }
    for map in maps::read(caller.pid()).iter().filter(|m| is_segment(m)) {
        caller.unmap(map.start, map.end - map.start)?;
    }
    Ok(())
}

/// The loader's handle of an agent found in a process.
pub(super) fn handle_of(caller: &mut Caller, image: &Range<u64>) -> Option<u64> {
    /// `RTLD_DL_LINKMAP`.
    const LINK_MAP: u64 = 2;
    let (_, dladdr1) = function(caller.pid(), &["dladdr1"])?;
    // Dl_info is 32 bytes; the answer follows it.
    let at = caller.scratch(&[0; 48]).ok()?;
    let found = caller.call("dladdr1", dladdr1, &[image.start, at, at + 32, LINK_MAP]).ok()?;
    let handle = caller.memory().word(at + 32).ok()?;
    (found as u32 != 0 && handle != 0).then_some(handle)
}
