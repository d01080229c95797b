//! Functions of the target's own libraries by name, read from the files it has mapped. Only what calls
//! made in the target need (`dlopen`, `malloc`'s place); names for users are resolved elsewhere.

use super::maps::Map;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Object, ObjectSymbol};
use std::collections::HashMap;
use std::path::Path;
use whither_kernel::proc;

/// Names that are looked for.
const WANTED: [&str; 20] = [
    "fork",
    "_Fork",
    "malloc",
    "malloc_info",
    "mallopt",
    "free",
    "realloc",
    "sbrk",
    "brk",
    "mmap",
    "munmap",
    "mremap",
    "madvise",
    "mprotect",
    "dlopen",
    "dlclose",
    "dlerror",
    "dladdr1",
    "__libc_dlopen_mode",
    "__errno_location",
];
/// Larger files are no C library, and would take long to read.
const LARGEST: u64 = 64 << 20;

/// A mapped file with the wanted functions it exports.
#[derive(Clone, Debug)]
pub(super) struct Library {
    path: String,
    symbols: HashMap<&'static str, (u64, u64)>,
}

impl Library {
    /// Address in the target, and size.
    pub(super) fn symbol(&self, name: &str) -> Option<(u64, u64)> {
        self.symbols.get(name).copied()
    }

    /// File name.
    pub(super) fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// Mapped files that could hold the C library, an allocator, or the loader; the program itself too.
pub(super) fn libraries(pid: u32, maps: &[Map]) -> Vec<Library> {
    let exe = proc::exe(pid);
    let first = maps.iter().filter(|m| m.offset == 0 && m.inode != 0 && m.path.starts_with('/'));
    let mut seen: Vec<&str> = Vec::new();
    let mut found = Vec::new();
    for map in first {
        let name = map.file_name();
        let likely = ["libc.", "libc-", "libdl", "ld-musl", "malloc"].iter().any(|part| name.contains(part));
        if !(likely || map.path == exe) || seen.contains(&map.path.as_str()) {
            continue;
        }
        seen.push(&map.path);
        found.extend(read(pid, map));
    }
    found
}

fn read(pid: u32, map: &Map) -> Option<Library> {
    let candidates = proc::mapped_file_candidates(pid, map.start, map.end, &map.path);
    let bytes = candidates.iter().find_map(|path| mapped(path))?;
    let file = ElfFile64::<object::Endianness>::parse(&*bytes).ok()?;
    let endian = file.endian();
    let lowest = file
        .elf_program_headers()
        .iter()
        .filter(|p| p.p_type(endian) == object::elf::PT_LOAD)
        .map(|p| p.p_vaddr(endian) & !4095)
        .min()?;
    let bias = map.start.wrapping_sub(lowest);
    let mut symbols = HashMap::new();
    for symbol in file.dynamic_symbols().filter(|s| s.is_definition()) {
        let Ok(name) = symbol.name() else { continue };
        if let Some(&wanted) = WANTED.iter().find(|w| **w == name) {
            symbols.insert(wanted, (symbol.address().wrapping_add(bias), symbol.size()));
        }
    }
    Some(Library { path: map.path.clone(), symbols })
}

fn mapped(path: &Path) -> Option<memmap2::Mmap> {
    let file = proc::open_plain(path)?;
    if file.metadata().ok()?.len() > LARGEST {
        return None;
    }
    // SAFETY: mapped for reading only. A file cut short meanwhile would raise SIGBUS; these are libraries
    // that a running program has mapped, which is the same risk that program runs.
    unsafe { memmap2::Mmap::map(&file) }.ok()
}
