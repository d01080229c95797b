//! What is mapped executable in a process: files, their bias, names and unwind rows, and how the list
//! changes. Lives here: from /proc/PID/maps to modules, and rows into the shared tables. Not here:
//! what a pattern matches (`resolve`). Constraint: a module keeps its place for the whole session, for
//! points and frames refer to it by index; one that is unmapped is marked, never removed.

mod known;
mod rows;

pub(crate) use known::image;
pub(crate) use rows::Rows;

use crate::engine::Module;
use crate::resolve::ModuleView;
use crate::segment::{Segment, field};
use crate::target::maps::{self, Map};
use rustc_hash::FxHashMap;
use std::cell::OnceCell;
use std::fs::File;
use std::path::Path;
use whither_abi::agent as abi;
use whither_image::{Bytes, ElfSummary, ImageId, load_bias};
use whither_kernel::memory::Memory;
use whither_kernel::proc;
use whither_store::calls::CallModule;

/// All modules a process has or had.
#[derive(Debug)]
pub(crate) struct Modules {
    pid: u32,
    list: Vec<Module>,
    next_row: u32,
    next_rule: u32,
    /// Entries of the agent's table that another controller has filled.
    first_number: u32,
    /// What the loader's list or the maps looked like last time.
    seen: Vec<(u64, u64, u64, u64)>,
    /// See [`Self::runs_others`].
    runs_others: bool,
}

/// What a refresh found.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Indexes of new modules.
    pub(crate) loaded: Vec<usize>,
    /// Indexes of those that are gone.
    pub(crate) unmapped: Vec<usize>,
}

/// Identity of a mapping's file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FileKey {
    device: String,
    inode: u64,
    path: String,
}

impl Modules {
    /// Reads the list of a process.
    pub(crate) fn of(pid: u32) -> Self {
        let mut modules = Self {
            pid,
            list: Vec::new(),
            next_row: 0,
            next_rule: 1,
            first_number: 0,
            seen: Vec::new(),
            runs_others: false,
        };
        modules.refresh();
        modules
    }

    /// All, gone ones included.
    pub(crate) fn list(&self) -> &[Module] {
        &self.list
    }

    /// Reads the list again.
    pub(crate) fn refresh(&mut self) -> Changes {
        let maps = maps::read(self.pid);
        let code: Vec<&Map> = maps.iter().filter(|m| m.execute && is_code_of_interest(m)).collect();
        let seen: Vec<_> = code.iter().map(|m| (m.start, m.end, m.offset, m.inode)).collect();
        // A process that is gone, or going, has no maps: what it had stays as it was.
        if seen == self.seen || seen.is_empty() {
            return Changes::default();
        }
        self.seen = seen;
        let main = exe_inode(self.pid);
        let mut found = group(self.pid, &code);
        if !self.runs_others {
            self.runs_others = runs_others(&found, main);
        }
        if found.iter().any(|f| f.key.inode == main && is_valgrind(&f.key.path)) {
            self.runs_others = true;
            found.clear();
        } else if self.runs_others || is_beginning_another(&found, main) {
            found.retain(|f| f.key.inode == main);
        }
        let mut changes = Changes::default();
        for (index, module) in self.list.iter_mut().enumerate().filter(|(_, m)| !m.gone) {
            match found.iter().find(|f| f.is(module)) {
                Some(same) => (module.start, module.end) = (same.start, same.end),
                None => {
                    module.gone = true;
                    changes.unmapped.push(index);
                }
            }
        }
        for fresh in found {
            if !self.list.iter().any(|m| !m.gone && fresh.is(m)) {
                changes.loaded.push(self.list.len());
                self.list.push(fresh.module(main));
            }
        }
        changes
    }

    /// Whether the agent may map memory that is not touched yet: not where it counts, or the program may make it count, or lock it with all else.
    pub(crate) fn ahead(&self) -> u32 {
        const LIMITING: [&str; 5] = ["mlockall", "setrlimit", "setrlimit64", "prlimit", "prlimit64"];
        if maps::untouched_counts() || LIMITING.iter().any(|name| self.import(name)) {
            return abi::AHEAD_NOT;
        }
        if self.import("pthread_create") { abi::AHEAD_NOW } else { abi::AHEAD_LATER }
    }

    /// Whether one of them calls a function of this name in another.
    pub(crate) fn import(&self, name: &str) -> bool {
        self.list.iter().any(|module| !module.gone && module.image().is_some_and(|image| image.imports(name)))
    }

    /// Whether the program runs another one's code in its own way, as valgrind does: it reads that code, where a patch would be
    /// misread, and executes what it makes of it. Its own code alone is looked at.
    pub(crate) fn runs_others(&self) -> bool {
        self.runs_others
    }

    /// Whether a file that was unmapped has been mapped again.
    pub(crate) fn has_come_again(&self) -> bool {
        let again = |gone: &Module| self.list.iter().any(|m| !std::ptr::eq(m, gone) && is_same_file(m, gone));
        self.list.iter().any(|m| m.gone && again(m))
    }

    /// For each address whether it is in the code of no module, as the process has it mapped now: what was patched there
    /// is gone, or another file's.
    pub(crate) fn lost(&self, pid: u32, addresses: &[u64]) -> Vec<bool> {
        let maps = maps::read(pid);
        let is_ours = |map: &Map, at: u64| self.list.iter().any(|m| (m.start..m.end).contains(&at) && is_of(map, m));
        let stands = |at: u64| maps.iter().any(|map| map.execute && map.holds(at) && is_ours(map, at));
        addresses.iter().map(|&at| !stands(at)).collect()
    }

    /// Module and stated address of an address in the process; absolute when no module holds it.
    pub(crate) fn place(&self, address: u64) -> (u32, u64) {
        // A return address behind a call that ends its module still belongs to it.
        let probe = address.wrapping_sub(1);
        let holds = |m: &Module| (m.start..m.end).contains(&probe);
        let index = self.list.iter().position(|m| !m.gone && holds(m));
        let index = index.or_else(|| self.list.iter().rposition(holds));
        match index {
            Some(index) => (index as u32, address.wrapping_sub(self.list[index].bias)),
            None => (u32::MAX, address),
        }
    }

    /// Puts modules into the agent's table: first all of them without rows, then with theirs.
    pub(crate) fn publish(&mut self, segment: &Segment, indexes: &[usize], rows: Vec<Rows>) -> Vec<String> {
        let mut notes = Vec::new();
        for (&index, rows) in indexes.iter().zip(rows) {
            if let Err(note) = self.publish_one(segment, index, &rows) {
                notes.push(note);
            }
        }
        segment.set_header32(field::N_RULES, self.next_rule);
        notes
    }

    fn publish_one(&mut self, segment: &Segment, index: usize, rows: &Rows) -> Result<(), String> {
        let Some(module) = self.list.get_mut(index) else { return Ok(()) };
        let full = |what: &str| format!("{}: the table of {what} is full, paths through it are truncated", module.path);
        let number = u32::try_from(index).ok().and_then(|n| n.checked_add(self.first_number));
        let number = number.filter(|n| *n < abi::MAX_MODULES).ok_or_else(|| full("modules"))?;
        let rules = self.next_rule;
        if u64::from(rules) + rows.big.len() as u64 > u64::from(abi::MAX_RULES) {
            return Err(full("rules"));
        }
        for (i, rule) in rows.big.iter().enumerate() {
            segment.set_rule(rules + i as u32, rule);
        }
        let first = self.next_row;
        let n_rows = u32::try_from(rows.len()).map_err(|_| full("unwind rows"))?;
        for (piece, at) in rows.pieces(rules, PIECE as usize).zip((first..).step_by(PIECE as usize)) {
            if !segment.set_rows(at, &piece) {
                return Err(full("unwind rows"));
            }
        }
        self.next_rule += rows.big.len() as u32;
        self.next_row += n_rows;
        segment.set_header32(field::N_RULES, self.next_rule);
        let entry = abi::Module {
            start: module.start,
            end: module.end,
            base: module.bias.wrapping_add(rows.base),
            first_row: first,
            n_rows,
            state: 1,
            flags: flags(module, rows),
            ..abi::Module::default()
        };
        segment.set_module(number, &entry);
        if segment.header32(field::N_MODULES) <= number {
            segment.set_header32(field::N_MODULES, number + 1);
        }
        revise(segment, &entry);
        Ok(())
    }

    /// Tells the agent that modules are gone: their rows are not looked at any more, and sites in their code are
    /// given an address that nothing has, for another library may come to their place.
    pub(crate) fn withdraw(&self, segment: &Segment, indexes: &[usize]) {
        if indexes.is_empty() {
            return;
        }
        let gone: Vec<(u64, u64)> =
            indexes.iter().filter_map(|&i| self.list.get(i)).map(|m| (m.start, m.end)).collect();
        // By address: an earlier controller has numbered its modules in its own way.
        for number in 0..segment.header32(field::N_MODULES).min(abi::MAX_MODULES) {
            let entry = segment.module(number);
            if entry.state == 1 && gone.iter().any(|&(start, end)| start <= entry.start && entry.end <= end) {
                segment.set_module(number, &abi::Module { state: 2, ..entry });
            }
        }
        for site in 1..segment.n_sites() {
            let probe = segment.site(site).ra.wrapping_sub(1);
            if gone.iter().any(|&(start, end)| (start..end).contains(&probe)) {
                segment.poison(site, POISON);
            }
        }
        segment.set_header32(field::GENERATION, segment.header32(field::GENERATION).wrapping_add(1));
    }

    /// Goes on where another controller stopped: modules that it has published keep their rows, which are
    /// found by address; what is new here is put behind.
    pub(crate) fn adopt(&mut self, segment: &Segment) {
        let count = segment.header32(field::N_MODULES).min(abi::MAX_MODULES);
        self.next_rule = segment.header32(field::N_RULES).clamp(1, abi::MAX_RULES);
        for number in 0..count {
            let entry = segment.module(number);
            let end = u64::from(entry.first_row) + u64::from(entry.n_rows);
            self.next_row = self.next_row.max(end.min(u64::from(abi::MAX_ROWS)) as u32);
        }
        self.first_number = count;
    }

    /// Whether its functions were compiled by Go, whose callers keep neither unwind rules nor the alignment of C.
    pub(crate) fn is_of_go(&self, module: usize) -> bool {
        self.list.get(module).and_then(known::rows).is_some_and(|rows| rows.framed)
    }

    /// As a snapshot lists them.
    pub(crate) fn described(&self) -> Vec<CallModule> {
        let described =
            |m: &Module| CallModule { path: m.path.clone(), id: m.id, bias: m.bias, start: m.start, end: m.end };
        self.list.iter().map(described).collect()
    }
}

/// What is no ELF file holds code that was made at run time. In one whose code has unwind rules for the most part, what has none
/// is likely a run-time system's stubs; a program built without rules has some too, of the C library's start.
fn flags(module: &Module, rows: &Rows) -> u32 {
    let made = if module.id.is_none() { abi::MODULE_MADE } else { 0 };
    let covered = if rows.covered() * 2 > module.end - module.start { abi::MODULE_COVERED } else { 0 };
    let framed = if rows.framed { abi::MODULE_FRAMED } else { 0 };
    made | covered | framed
}

/// Sites that the agent met before their module had rows are followed by rows from now on.
fn revise(segment: &Segment, module: &abi::Module) {
    let mut any = false;
    for index in 1..segment.n_sites() {
        let site = segment.site(index);
        let within = (module.start..module.end).contains(&site.ra.wrapping_sub(1));
        if within && matches!(site.rule & 7, abi::RULE_NONE | abi::RULE_FP) {
            segment.forget_rule(index);
            any = true;
        }
    }
    if any {
        segment.set_header32(field::GENERATION, segment.header32(field::GENERATION).wrapping_add(1));
    }
}

/// Rows put into the table at a time.
const PIECE: u32 = 1 << 14;

/// Return address of sites whose code is gone: not canonical, so no stack holds it as one.
const POISON: u64 = 0x0bad_0bad_0bad_0bad;

fn is_code_of_interest(map: &Map) -> bool {
    let ours = map.path.starts_with("/memfd:whither-") || map.path.starts_with("[anon:whither-");
    !ours && (map.inode != 0 || map.path == "[vdso]")
}

fn exe_inode(pid: u32) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(format!("/proc/{}/exe", proc::with_memory(pid))).map_or(0, |m| m.ino())
}

/// Whether a program without a loader has mapped another program, which wants one. A loader that was started as a program has, too,
/// and runs it as it is.
fn runs_others(found: &[Found], main: u64) -> bool {
    let soname = |bytes: &Bytes| ElfSummary::parse(bytes).ok().and_then(|summary| summary.soname);
    let is_program = |f: &&Found| f.file.as_ref().is_some_and(|bytes| wants_loader(bytes) && soname(bytes).is_none());
    is_alone(found, main) && found.iter().filter(|f| f.key.inode != main).any(|f| is_program(&f))
}

/// Whether it may be about to: it has mapped a loader, and nothing yet that this could have been mapped for. Static programs that load
/// libraries have the C library before it.
fn is_beginning_another(found: &[Found], main: u64) -> bool {
    let is = |begin: &str| found.iter().any(|f| f.key.path.rsplit('/').next().is_some_and(|n| n.starts_with(begin)));
    is_alone(found, main) && found.iter().any(|f| is_loader(&f.key.path)) && !is("libc.")
}

/// Valgrind runs functions of its own as if they were the program's, so that it may not be patched itself either.
fn is_valgrind(path: &str) -> bool {
    path.contains("/valgrind/") && path.ends_with("-linux")
}

/// Whether the program has no loader, and is none.
fn is_alone(found: &[Found], main: u64) -> bool {
    let own = found.iter().find(|f| f.key.inode == main && main != 0);
    own.is_some_and(|f| f.file.as_ref().is_some_and(|bytes| !wants_loader(bytes)) && !is_loader(&f.key.path))
}

/// Whether an ELF file names an interpreter.
fn wants_loader(bytes: &[u8]) -> bool {
    let file = object::read::elf::ElfFile64::<object::Endianness>::parse(bytes);
    file.is_ok_and(|file| {
        file.elf_program_headers().iter().any(|header| header.p_type.get(file.endian()) == object::elf::PT_INTERP)
    })
}

pub(crate) fn is_loader(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.starts_with("ld-linux") || name.starts_with("ld-musl") || name.starts_with("ld-2.") || name == "ld.so"
}

/// Executable mappings of one file at one bias.
struct Found {
    key: FileKey,
    start: u64,
    end: u64,
    bias: u64,
    id: Option<ImageId>,
    file: Option<Bytes>,
}

impl Found {
    fn is(&self, module: &Module) -> bool {
        module.inode == self.key.inode
            && module.path == clean(&self.key.path)
            && module.bias == self.bias
            && self.start < module.end
            && module.start < self.end
    }

    fn module(self, main_inode: u64) -> Module {
        Module {
            path: clean(&self.key.path).to_string(),
            id: self.id,
            bias: self.bias,
            start: self.start,
            end: self.end,
            main: self.key.inode != 0 && self.key.inode == main_inode,
            gone: false,
            inode: self.key.inode,
            file: self.file,
            image: OnceCell::new(),
        }
    }
}

/// Whether a mapping is a module's code. Where its place cannot be told it is taken for that.
fn is_of(map: &Map, module: &Module) -> bool {
    let summary = || ElfSummary::parse(module.file.as_ref()?).ok();
    let bias = || load_bias(&summary()?.segments, map.start, map.offset);
    map.inode == module.inode && clean(&map.path) == module.path && bias().is_none_or(|bias| bias == module.bias)
}

fn is_same_file(one: &Module, other: &Module) -> bool {
    one.path == other.path && one.id == other.id
}

fn clean(path: &str) -> &str {
    path.strip_suffix(" (deleted)").unwrap_or(path)
}

fn group(pid: u32, code: &[&Map]) -> Vec<Found> {
    let mut files: FxHashMap<FileKey, (Option<Bytes>, Option<ElfSummary>)> = FxHashMap::default();
    let mut found: Vec<Found> = Vec::new();
    for map in code {
        let key = FileKey { device: map.device.clone(), inode: map.inode, path: map.path.clone() };
        let (file, summary) = files.entry(key.clone()).or_insert_with(|| {
            let file = bytes_of(pid, map);
            let summary = file.as_ref().and_then(|f| ElfSummary::parse(f).ok());
            (file, summary)
        });
        let bias = summary
            .as_ref()
            .and_then(|s| load_bias(&s.segments, map.start, map.offset))
            .unwrap_or_else(|| map.start.wrapping_sub(map.offset));
        match found.iter_mut().find(|f| f.key == key && f.bias == bias) {
            Some(same) => same.end = same.end.max(map.end),
            None => found.push(Found {
                key,
                start: map.start,
                end: map.end,
                bias,
                id: summary.as_ref().map(|s| s.id),
                file: file.clone(),
            }),
        }
    }
    found
}

/// Bytes of the file behind a mapping, found in a way that also works for deleted files and in other
/// mount namespaces; of the vDSO those in memory.
fn bytes_of(pid: u32, map: &Map) -> Option<Bytes> {
    if map.path == "[vdso]" {
        let mut bytes = vec![0; usize::try_from(map.end - map.start).ok()?];
        Memory::open(pid).ok()?.read(map.start, &mut bytes).ok()?;
        return Some(Bytes::new(bytes));
    }
    let places = proc::mapped_file_candidates(pid, map.start, map.end, &map.path);
    places.iter().find_map(|path| open(path, map.inode))
}

/// Opens a plain file, if it is the one wanted.
fn open(path: &Path, inode: u64) -> Option<Bytes> {
    use std::os::unix::fs::MetadataExt;
    let file = File::open(path).ok().filter(|f| f.metadata().is_ok_and(|m| m.is_file()))?;
    if file.metadata().map(|m| m.ino()).ok() != Some(inode) {
        return None;
    }
    // SAFETY: mapped for reading only. A file cut short meanwhile would raise SIGBUS here; the target runs
    // from the same mapping and would die of it first.
    unsafe { memmap2::Mmap::map(&file) }.ok().map(Bytes::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_mapped_any_more_is_lost() {
        let mut modules = Modules::of(std::process::id());
        let code = our_own_modules_are_read as fn() as usize as u64;
        let pid = std::process::id();
        assert_eq!(modules.lost(pid, &[code, 8]), [false, true]);
        // The same file elsewhere, and another file there.
        let main = modules.list.iter().position(|m| m.main).unwrap();
        modules.list[main].bias += 0x1000;
        assert_eq!(modules.lost(pid, &[code]), [true]);
        modules.list[main].bias -= 0x1000;
        modules.list[main].inode += 1;
        assert_eq!(modules.lost(pid, &[code]), [true]);
    }

    #[test]
    fn our_own_modules_are_read() {
        let mut modules = Modules::of(std::process::id());
        let main: Vec<&Module> = modules.list().iter().filter(|m| m.main).collect();
        assert_eq!(main.len(), 1, "{:#?}", modules.list().iter().map(|m| &m.path).collect::<Vec<_>>());
        assert!(main[0].file.is_some() && main[0].id.is_some());
        let code = our_own_modules_are_read as fn() as usize as u64;
        let (index, stated) = modules.place(code + 1);
        assert!(modules.list()[index as usize].main);
        assert_eq!(stated.wrapping_add(main[0].bias), code + 1);
        assert!(modules.list().iter().any(|m| m.path == "[vdso]" && m.file.is_some()));
        assert!(modules.refresh().loaded.is_empty(), "nothing was loaded meanwhile");
        assert_eq!(modules.place(8), (u32::MAX, 8));
    }

    #[test]
    fn a_program_that_runs_another_one_in_its_own_way_is_known() {
        let maps = maps::read(std::process::id());
        let bytes = |path: &str| Bytes::from(std::fs::read(path).unwrap());
        let of = |begin: &str| {
            maps.iter().map(|m| &m.path).find(|p| p.rsplit('/').next().is_some_and(|n| n.starts_with(begin)))
        };
        let loader = of("ld-").expect("tests have a loader");
        let libc = of("libc.").expect("and a C library");
        let own = proc::exe(std::process::id());
        let found = |inode, path: &str, file: &str| Found {
            key: FileKey { device: String::new(), inode, path: path.into() },
            start: 0,
            end: 1,
            bias: 0,
            id: None,
            file: Some(bytes(file)),
        };
        // The loader's file stands for a program that has none.
        let alone = || found(1, "/a/tool", loader);
        let (program, library) = (|| found(2, "/a/program", &own), || found(3, libc, libc));
        assert!(runs_others(&[program(), alone()], 1));
        assert!(!runs_others(&[alone(), library()], 1), "it loads libraries");
        assert!(!runs_others(&[program(), library()], 2), "it has a loader");
        assert!(!runs_others(&[found(1, loader, loader), program()], 1), "it is one");
        let beginning = |others: &[Found]| is_beginning_another(others, 1);
        assert!(
            beginning(&[alone(), found(4, loader, loader)])
                && !beginning(&[alone(), library(), found(4, loader, loader)])
        );
        assert!(is_valgrind("/usr/libexec/valgrind/memcheck-amd64-linux") && !is_valgrind("/usr/bin/valgrind.bin"));
    }
}
