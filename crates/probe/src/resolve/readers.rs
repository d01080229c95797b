//! Who reads the return addresses of other functions' frames while a program runs: sanitizers, for their reports and the
//! suppressions that decide on the exit status, and gprof, for its table of callers. They would find ours where a timed call's
//! caller belongs, so that calls are counted there and not timed. What a single function reads of its own frame is told
//! by its code, in `describe.rs`.

use super::image::ModuleImage;
use super::{ModuleView, file_name};

/// Why calls of a program with a sanitizer are not timed.
const OF_SANITIZERS: &str = "the program's sanitizer reads return addresses for its reports and suppressions";
/// The same, of code that was compiled for gprof.
const OF_GPROF: &str = "it was built with -pg, whose profiler reads return addresses for its table of callers";

/// Beginnings of the file names of gcc's and LLVM's run-time libraries.
const SANITIZERS: [&str; 10] = [
    "libasan.so",
    "liblsan.so",
    "libhwasan.so",
    "libtsan.so",
    "libmsan.so",
    "libclang_rt.asan",
    "libclang_rt.lsan",
    "libclang_rt.hwasan",
    "libclang_rt.tsan",
    "libclang_rt.msan",
];
/// Called by code, or by what every program with a sanitizer links, before anything else runs.
const BEGIN_SANITIZERS: [&str; 5] = ["__asan_init", "__lsan_init", "__hwasan_init", "__tsan_init", "__msan_init"];
/// Called by every function that was compiled for gprof; glibc's two names and that of `-mfentry`.
const COUNT_CALLS: [&str; 3] = ["mcount", "_mcount", "__fentry__"];
/// What links the counting to the start of a program (`gcrt1.o`): without, nobody keeps what the calls tell.
const BEGINS_GPROF: &str = "__monstartup";

/// What a file shows of it; kept with the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Readers {
    sanitizer: bool,
    gprof: bool,
}

impl Readers {
    /// Of a file's names, its own and those that it calls elsewhere.
    pub(super) fn of(image: &ModuleImage) -> Self {
        let mut names: Vec<&str> = image.names().iter().map(|n| &*n.name).collect();
        names.sort_unstable();
        let has = |name: &str| names.binary_search(&name).is_ok() || image.imports(name);
        Self {
            sanitizer: BEGIN_SANITIZERS.into_iter().any(has),
            gprof: has(BEGINS_GPROF) && COUNT_CALLS.into_iter().any(has),
        }
    }
}

/// Why exits of a module's functions are not to be seen, if somebody reads return addresses there.
pub(super) fn why_not_timed<M: ModuleView>(modules: &[M], module: &M) -> Option<&'static str> {
    let shown = |m: &M| m.image().map(ModuleImage::readers).unwrap_or_default();
    let program = |m: &M| m.is_main() && shown(m).sanitizer;
    if modules.iter().any(|m| is_sanitizer(m.path()) || program(m)) {
        Some(OF_SANITIZERS)
    } else if module.is_main() && shown(module).gprof {
        Some(OF_GPROF)
    } else {
        None
    }
}

fn is_sanitizer(path: &str) -> bool {
    SANITIZERS.iter().any(|known| file_name(path).starts_with(known))
}
