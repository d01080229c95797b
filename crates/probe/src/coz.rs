//! Marks of Coz in programs that are launched: whether a program has some, the shared object that gives them counters
//! (`agent/coz/`), and its table in a process. Its layout is that of the C file.

use crate::ProbeError;
use object::{Object, ObjectSection, ObjectSymbol};
use regex::bytes::Regex;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use whither_image::{Bytes, ElfSummary, load_bias};
use whither_kernel::memory::Memory;
use whither_kernel::proc;
use whither_store::open_bytes;

/// The shared object.
const IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/coz.so"));
/// Name of its memfd.
const NAME: &str = "whither-coz";
/// What the marks look for.
pub const LOOKED_FOR: &str = "_coz_get_counter";
/// Bytes before the first entry, of an entry, and before its name.
const HEADER: usize = 64;
const ENTRY: usize = 512;
const BEFORE_NAME: usize = 32;
/// `FILLED`.
const FILLED: u64 = 2;
const ENTRIES: usize = 256;
/// Programs rarely have so many descriptors, and may have more (`RLIMIT_NOFILE` is 1024 at the least, mostly).
const HIGH: i32 = 900;

/// What a mark says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CozKind {
    /// `COZ_PROGRESS`, `COZ_PROGRESS_NAMED`.
    Progress,
    /// `COZ_BEGIN`.
    Begin,
    /// `COZ_END`.
    End,
}

/// A mark that a process has reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CozMark {
    /// Its place in the table; one mark may have several.
    pub entry: usize,
    /// What it says.
    pub kind: CozKind,
    /// `FILE:LINE` where its author gave none.
    pub name: String,
    /// Address of its count.
    pub at: u64,
}

impl CozMark {
    /// As marks of `whither.h` are named: a begin is `NAME_begin`, an end `NAME_end`.
    #[must_use]
    pub fn whole_name(&self) -> String {
        let end = match self.kind {
            CozKind::Progress => "",
            CozKind::Begin => "_begin",
            CozKind::End => "_end",
        };
        format!("{}{end}", self.name)
    }

    /// Whether the user means it: by its name, or by `FILE:LINE` with as much of the path as it takes.
    #[must_use]
    pub fn is(&self, wanted: &str) -> bool {
        let name = self.whole_name();
        let is_end = |path: &str| path.strip_suffix(wanted).is_some_and(|before| before.ends_with('/'));
        name == wanted || (wanted.contains(':') && is_end(&name))
    }
}

/// Whether the marks of a program can be given counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CozUse {
    /// It has none.
    None,
    /// They can; the files that have them.
    Possible(Vec<PathBuf>),
    /// It has some, and this is in the way.
    Refused(String),
}

/// Looks for marks of Coz in a program that is going to be executed, and in the libraries it is linked with.
#[must_use]
pub fn look_for(program: &Path) -> CozUse {
    let Ok(bytes) = open_bytes(program) else { return CozUse::None };
    let Ok(elf) = object::File::parse(&*bytes) else { return CozUse::None };
    let loader = loader(&elf);
    let ours = loader.as_deref().filter(|loader| is_glibc(loader));
    let libraries = ours.map_or_else(Vec::new, |loader| libraries(loader, program));
    let mut files: Vec<PathBuf> = libraries.iter().filter(|file| has(file, LOOKED_FOR)).cloned().collect();
    if find(&bytes, LOOKED_FOR) {
        files.insert(0, program.to_owned());
    }
    if files.is_empty() {
        return CozUse::None;
    }
    match refusal(program, loader.as_deref(), &libraries) {
        Some(why) => CozUse::Refused(why.to_owned()),
        None => CozUse::Possible(files),
    }
}

/// Whether files have a text that ends so, as a mark has its name.
#[must_use]
pub fn is_named_in(files: &[PathBuf], name: &str) -> bool {
    let text = format!("{name}\0");
    files.iter().any(|file| has(file, &text))
}

/// What stands against preloading.
fn refusal(program: &Path, loader: Option<&Path>, libraries: &[PathBuf]) -> Option<&'static str> {
    let Some(loader) = loader else { return Some("it is linked statically, so that nothing can be preloaded") };
    if !is_glibc(loader) {
        return Some("its loader is not that of glibc for x86-64");
    }
    if libraries.iter().any(|l| named(l, "libasan") || named(l, "libclang_rt.asan")) {
        return Some("its address sanitizer lets nothing be preloaded before it");
    }
    is_privileged(program).then_some("it runs with other rights than its caller's, so that its loader preloads nothing")
}

/// Others call constructors without arguments, by which our library finds the environment.
fn is_glibc(loader: &Path) -> bool {
    named(loader, "ld-linux-x86-64")
}

fn named(path: &Path, begin: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begin))
}

/// Set-user-ID, set-group-ID or with capabilities.
fn is_privileged(program: &Path) -> bool {
    let bits = program.metadata().map_or(0, |m| m.permissions().mode());
    let mut none = [0_u8; 0];
    bits & 0o6000 != 0 || rustix::fs::getxattr(program, "security.capability", &mut none).is_ok()
}

/// The program's interpreter; none: it is linked statically.
fn loader(elf: &object::File<'_>) -> Option<PathBuf> {
    let section = elf.section_by_name(".interp")?.data().ok()?;
    let text = section.split(|b| *b == 0).next()?;
    Some(PathBuf::from(String::from_utf8_lossy(text).into_owned()))
}

/// As the loader itself finds them; it executes none of their code.
fn libraries(loader: &Path, program: &Path) -> Vec<PathBuf> {
    // A name alone would be looked for among libraries.
    let Ok(program) = program.canonicalize() else { return Vec::new() };
    let mut list = Command::new(loader);
    list.arg("--list").arg(program).stdin(Stdio::null()).stderr(Stdio::null());
    let Ok(listed) = list.output() else { return Vec::new() };
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let path = |line: &str| {
        let path = line.rsplit_once(" (0x")?.0;
        let path = path.split_once(" => ").map_or(path, |(_, path)| path).trim();
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    text.lines().filter_map(path).collect()
}

fn has(file: &Path, text: &str) -> bool {
    open_bytes(file).is_ok_and(|bytes| find(&bytes, text))
}

fn find(bytes: &Bytes, text: &str) -> bool {
    Regex::new(&format!("(?-u){}", regex::escape(text))).is_ok_and(|wanted| wanted.is_match(bytes))
}

/// The shared object in a file without a name, which nobody can change.
///
/// # Errors
/// The kernel's reason.
pub fn library() -> Result<OwnedFd, ProbeError> {
    let fail = |source: rustix::io::Errno| ProbeError::Preload(source.into());
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag.
    let file = memfd_create(NAME, flags | MemfdFlags::EXEC).or_else(|_| memfd_create(NAME, flags)).map_err(fail)?;
    let mut rest = IMAGE;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest).map_err(fail)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).map_err(fail)?;
    // The loader keeps the path, `/proc/self/fd/N`, for good: it should not become that of another file.
    Ok(rustix::io::fcntl_dupfd_cloexec(&file, HIGH).unwrap_or(file))
}

/// The table in a process.
#[derive(Debug)]
pub struct CozTable {
    memory: Memory,
    at: u64,
    filled: u64,
}

impl CozTable {
    /// Of a process that was launched with [`library`]; `None` where it is not loaded.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let is_ours = |m: &proc::Mapping| m.path.starts_with("/memfd:") && m.path["/memfd:".len()..].starts_with(NAME);
        let code = proc::executable_mappings(pid).into_iter().find(is_ours)?;
        let segments = ElfSummary::parse(IMAGE).ok()?.segments;
        let bias = load_bias(&segments, code.start, code.offset)?;
        let memory = Memory::open(pid).ok()?;
        Some(Self { memory, at: stated_table()?.wrapping_add(bias), filled: 0 })
    }

    /// All marks reached so far, if there are more than at the last look.
    pub fn look(&mut self) -> Vec<CozMark> {
        let filled = self.memory.word(self.at).unwrap_or(0);
        if filled == self.filled {
            return Vec::new();
        }
        let mut bytes = vec![0; ENTRIES * ENTRY];
        let got = self.memory.read_some(self.at + HEADER as u64, &mut bytes);
        bytes.truncate(got);
        self.filled = filled;
        marks(&bytes, self.at + HEADER as u64)
    }

    /// The next look tells all.
    pub fn forget(&mut self) {
        self.filled = 0;
    }

    /// Whether marks found the table full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.memory.word(self.at.wrapping_add(8)).unwrap_or(0) > 0
    }
}

fn stated_table() -> Option<u64> {
    let elf = object::File::parse(IMAGE).ok()?;
    let symbol = elf.dynamic_symbols().find(|s| s.name() == Ok("whither_coz_table"));
    symbol.map(|s| s.address())
}

/// Marks in a copy of the entries, which begin at `start`.
fn marks(entries: &[u8], start: u64) -> Vec<CozMark> {
    let one = |(i, entry): (usize, &[u8])| {
        let word = |at: usize| entry.get(at..at + 8).and_then(|w| Some(u64::from_le_bytes(w.try_into().ok()?)));
        if word(0)? != FILLED {
            return None;
        }
        let kind = match word(8)? {
            1 => CozKind::Progress,
            2 => CozKind::Begin,
            3 => CozKind::End,
            _ => return None,
        };
        let name = entry.get(BEFORE_NAME..)?.split(|b| *b == 0).next()?;
        let name = String::from_utf8_lossy(name).into_owned();
        Some(CozMark { entry: i, kind, name, at: start + (i * ENTRY) as u64 + 16 })
    };
    entries.chunks(ENTRY).enumerate().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::fd::{AsFd, AsRawFd};

    /// What a mark does when it is first reached, and then once more.
    type Get = unsafe extern "C" fn(libc::c_int, *const libc::c_char) -> *mut [u64; 2];

    fn loaded() -> Get {
        let library = library().expect("a library");
        let path = CString::new(format!("/proc/self/fd/{}", library.as_raw_fd())).expect("a path");
        // SAFETY: a shared object of ours, which needs no other; it stays loaded.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        // SAFETY: the handle is that of a loaded object.
        let found = unsafe { libc::dlsym(handle, c"_coz_get_counter".as_ptr()) };
        assert!(!found.is_null());
        // SAFETY: the function has this type.
        unsafe { std::mem::transmute::<*mut libc::c_void, Get>(found) }
    }

    #[test]
    fn marks_get_counters_that_are_found_from_outside() {
        let get = loaded();
        let mark = |kind: i32, name: &str| {
            let name = CString::new(name).expect("a name");
            // SAFETY: the name is one, and read during the call only.
            unsafe { get(kind, name.as_ptr()) }
        };
        let mut table = CozTable::of(std::process::id()).expect("it is loaded");
        assert_eq!((table.look(), table.is_full()), (Vec::new(), false));
        assert!(mark(4, "x").is_null() && mark(0, "x").is_null());
        let long = format!("{}/deep/file.c:12", "x".repeat(600));
        let (progress, begin, line) = (mark(1, "order"), mark(2, "order"), mark(1, &long));
        assert!(!progress.is_null() && progress != begin && progress == mark(1, "order"));
        // SAFETY: a counter of the table, which stays.
        unsafe { (*progress)[0] += 3 };
        let seen = table.look();
        let names: Vec<String> = seen.iter().map(CozMark::whole_name).collect();
        assert_eq!(names[..2], ["order", "order_begin"]);
        assert!(names[2].ends_with("/deep/file.c:12") && names[2].len() == 479);
        assert_eq!([&seen[0], &seen[1], &seen[2]].map(|m| m.at), [progress, begin, line].map(|p| p as u64));
        let memory = Memory::open(std::process::id()).expect("our own");
        assert_eq!(memory.word(seen[0].at).expect("reads"), 3);
        let is: Vec<bool> =
            ["file.c:12", "ile.c:12", "order", "deep/file.c:12"].iter().map(|w| seen[2].is(w)).collect();
        assert_eq!(is, [true, false, false, true]);
        assert!(seen[0].is("order") && seen[1].is("order_begin") && !seen[1].is("order"));
        assert!(table.look().is_empty());
        // Many threads at once: nobody waits, each has a counter, and there are as many as names or a few more.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|i| assert!(!mark(3, &format!("n{i}")).is_null())));
            }
        });
        let many = table.look();
        assert!((0..50).all(|i| many.iter().any(|m| m.whole_name() == format!("n{i}_end"))), "{many:?}");
        let last = (0..ENTRIES).find(|i| mark(2, &format!("fill{i}")).is_null());
        assert!(last.is_some() && table.is_full());
        // Those that have one keep it.
        assert_eq!(mark(1, "order"), progress);
    }

    /// A program that tells what it finds in its environment and among its descriptors.
    fn told() -> String {
        let library = library().expect("a library");
        let dir = tempfile::tempdir().expect("a directory");
        let told = dir.path().join("told");
        let script = format!(
            "{{ echo \"${{LD_PRELOAD-none}}\"; [ -e /proc/self/fd/{} ] || echo closed; env | grep -c LD_PRELOAD; }} >{}",
            library.as_raw_fd(),
            told.display()
        );
        let words = ["sh".to_owned(), "-c".to_owned(), format!("{script}; exit 0")];
        let held = whither_kernel::launch::hold_preloaded(&words, library.as_fd()).expect("forks");
        assert_eq!(held.release().expect("runs").wait(), 0);
        std::fs::read_to_string(told).expect("told")
    }

    #[test]
    fn a_program_sees_nothing_of_it() {
        assert_eq!(told(), "none\nclosed\n0\n");
    }

    #[test]
    fn programs_without_marks_are_left_alone() {
        assert_eq!(look_for(Path::new("/bin/sh")), CozUse::None);
        assert_eq!(look_for(Path::new("/no/such/program")), CozUse::None);
        let me = std::env::current_exe().expect("a program");
        assert_eq!(look_for(&me), CozUse::Possible(vec![me.clone()]));
        assert!(is_named_in(&[me], "_coz_get_counter") && !is_named_in(&["/bin/sh".into()], "_coz_get_counter"));
        assert_eq!(
            refusal(Path::new("/bin/sh"), None, &[]),
            Some("it is linked statically, so that nothing can be preloaded")
        );
        let glibc = Path::new("/lib64/ld-linux-x86-64.so.2");
        assert_eq!(refusal(Path::new("/bin/sh"), Some(glibc), &[]), None);
        assert!(refusal(Path::new("/bin/sh"), Some(Path::new("/lib/ld-musl-x86_64.so.1")), &[]).is_some());
        assert!(refusal(Path::new("/bin/sh"), Some(glibc), &["/usr/lib/libasan.so.8".into()]).is_some());
    }
}
