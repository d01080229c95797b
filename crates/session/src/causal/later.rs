//! Whether a program can still get code that it does not have yet: libraries that it opens itself, another program that it
//! becomes. A point or a target that is nowhere is waited for then, and told at once otherwise. What a program calls of other
//! modules tells, so one that makes such system calls by itself is taken for one that
//! cannot. A program that calls nothing of others is static, and may do anything.

use super::program::{CodeFile, Mapped};
use rustc_hash::{FxHashMap, FxHashSet};
use whither_image::{Linkage, SlotTarget};
use whither_store::SymbolService;

/// What opens a library or begins another program.
const OPENERS: [&str; 16] = [
    "dlopen",
    "dlmopen",
    "execve",
    "execv",
    "execvp",
    "execvpe",
    "execl",
    "execle",
    "execlp",
    "execveat",
    "fexecve",
    "posix_spawn",
    "posix_spawnp",
    "system",
    "popen",
    "wordexp",
];

/// What is known of it, by file.
#[derive(Debug, Default)]
pub(super) struct Later {
    /// Executables that a sample lay in: what they are linked with is loaded.
    begun: FxHashSet<usize>,
    opens: FxHashMap<usize, bool>,
}

impl Later {
    /// A sample lies in this executable.
    pub(super) fn runs(&mut self, file: usize) {
        self.begun.insert(file);
    }

    /// Whether the process with these modules may get others, or has not got all yet that it begins with.
    pub(super) fn may_come(&mut self, modules: &[Mapped], files: &[CodeFile], service: &SymbolService) -> bool {
        let begun = modules.iter().any(|m| m.main && self.begun.contains(&m.file));
        !begun || modules.iter().any(|m| files.get(m.file).is_some_and(|of| self.opens(*m, of, service)))
    }

    fn opens(&mut self, module: Mapped, of: &CodeFile, service: &SymbolService) -> bool {
        let path = &of.image.path;
        if !path.starts_with('/') || is_of_the_system(path) {
            return false;
        }
        *self.opens.entry(module.file).or_insert_with(|| {
            let linkage = service.file(&of.image).and_then(|bytes| Linkage::from_elf(&bytes).ok());
            linkage.is_none_or(|linkage| opens(&linkage, module.main))
        })
    }
}

fn opens(linkage: &Linkage, main: bool) -> bool {
    let named = |target: &SlotTarget| matches!(target, SlotTarget::Name(_));
    let opener = |target: &SlotTarget| matches!(target, SlotTarget::Name(name) if OPENERS.contains(&plain(name)));
    (main && linkage.slots(named).is_empty()) || !linkage.slots(opener).is_empty()
}

fn plain(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

/// The C library and the loader have all of these functions themselves; others have them called.
fn is_of_the_system(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    ["libc.so", "libc-", "ld-linux", "ld-musl", "ld.so", "libdl.so", "libdl-", "libpthread"]
        .iter()
        .any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::is_of_the_system;

    #[test]
    fn the_c_library_is_known_by_its_name() {
        assert!(is_of_the_system("/usr/lib/x86_64-linux-gnu/libc.so.6"));
        assert!(is_of_the_system("/lib64/ld-linux-x86-64.so.2"));
        assert!(!is_of_the_system("/usr/lib/x86_64-linux-gnu/libcurl.so.4"));
        assert!(!is_of_the_system("/opt/libc.so.6.d/plugin.so"));
    }
}
