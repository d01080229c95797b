//! Compiles the agent (`agent/`) that is put into targets, and links it into one small shared object; and another one
//! with counters for marks of Coz (`agent/coz/`), which is preloaded.
//! No C library and no vector registers: it runs inside arbitrary functions of arbitrary programs.
//! Beside it, the kernel-side programs of the uprobe back end (`bpf/calls.bpf.c`) and of following executed
//! programs (`bpf/follow.bpf.c`), and their skeletons.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What every C file of the agent is compiled with. `general-regs-only`: a handler may not clobber the
/// vector registers that hold arguments of the function it interrupts.
const C_FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O2",
    "-g0",
    "-ffreestanding",
    "-mgeneral-regs-only",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-stack-protector",
    "-fno-builtin",
    "-fno-tree-loop-distribute-patterns",
    "-fasynchronous-unwind-tables",
    "-fcf-protection=branch",
    "-Wall",
    "-Wextra",
    "-Werror",
];

/// For `fast.c` alone: entry.S does not save these registers for it, so that an entry saves few.
const QUICK_FLAGS: &[&str] = &["-ffixed-r8", "-ffixed-r9", "-ffixed-r10", "-ffixed-r11"];

const LINK_FLAGS: &[&str] = &[
    "-shared",
    "-nostdlib",
    "-Wl,-z,now",
    "-Wl,-z,noexecstack",
    "-Wl,-z,max-page-size=4096",
    "-Wl,-Bsymbolic",
    "-Wl,--hash-style=both",
    "-Wl,--build-id=none",
    "-Wl,--no-undefined",
];

fn main() {
    // Asked when it runs: a compiled build script may be reused for another checkout of the same tree.
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    let agent = root.join("agent");
    kernel_side(&root);
    println!("cargo:rerun-if-changed={}", agent.display());
    println!("cargo:rerun-if-changed={}", root.join("include/whither_agent.h").display());

    shared_object(sources(&agent), "agent", &["-T".into(), agent.join("agent.ld")]);
    shared_object(sources(&agent.join("coz")), "coz", &[]);
}

/// `NAME.so` of some sources.
fn shared_object(files: Vec<PathBuf>, name: &str, more: &[PathBuf]) {
    let (quick, others): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.ends_with("fast.c"));
    let mut objects = compiler(&[]).files(others).compile_intermediates();
    if !quick.is_empty() {
        objects.extend(compiler(QUICK_FLAGS).files(quick).compile_intermediates());
    }

    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join(format!("{name}.so"));
    let mut link = Command::new(compiler(&[]).get_compiler().path());
    link.args(LINK_FLAGS).arg(format!("-Wl,-soname,whither-{name}.so")).args(more).arg("-o").arg(&out).args(objects);
    match link.status() {
        Ok(status) if status.success() => {}
        other => fail(&format!("linking {} failed: {other:?}; {link:?}", out.display())),
    }
}

fn compiler(more: &[&str]) -> cc::Build {
    let mut build = cc::Build::new();
    build.no_default_flags(true).warnings(false).cargo_metadata(false);
    for flag in C_FLAGS.iter().chain(more) {
        build.flag(flag);
    }
    build
}

fn kernel_side(root: &Path) {
    for name in ["calls", "follow"] {
        skeleton(root, name);
    }
    for file in ["bpf/kernel_types.h", "bpf/walk.h", "include/whither_uprobe.h"] {
        println!("cargo:rerun-if-changed={}", root.join(file).display());
    }
}

fn skeleton(root: &Path, name: &str) {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join(format!("{name}.skel.rs"));
    let source = root.join(format!("bpf/{name}.bpf.c"));
    println!("cargo:rerun-if-changed={}", source.display());
    let built = libbpf_cargo::SkeletonBuilder::new()
        .source(&source)
        // Atomic compare-and-swap came with the third version of the instruction set (Linux 5.12).
        .clang_args(["-mcpu=v3", "-Wall", "-Werror", "-Wno-unknown-attributes"])
        .build_and_generate(&out);
    if let Err(error) = built {
        let source = source.display();
        fail(&format!("compiling {source} failed: {error:#}; is clang installed (apt-get install clang)?"));
    }
}

/// All C and assembly files, in a fixed order.
fn sources(agent: &Path) -> Vec<PathBuf> {
    let entries = match std::fs::read_dir(agent) {
        Ok(entries) => entries,
        Err(error) => fail(&format!("cannot list {}: {error}", agent.display())),
    };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "c" || end == "S"))
        .collect();
    files.sort();
    files
}

fn fail(message: &str) -> ! {
    // The way a build script fails: cargo shows the message.
    panic!("{message}")
}
