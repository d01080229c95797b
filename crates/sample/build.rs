//! Compiles the kernel-side program with clang and generates its skeleton. Without clang there is no
//! build: the object is made for the running architecture and embedded as bytes.

use std::env;
use std::path::PathBuf;

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("sample.skel.rs");
    let source = root.join("bpf/sample.bpf.c");
    libbpf_cargo::SkeletonBuilder::new()
        .source(&source)
        .clang_args(["-Wall", "-Werror", "-Wno-unknown-attributes"])
        .build_and_generate(&out)
        .expect("compiling bpf/sample.bpf.c failed: is clang installed (apt-get install clang)?");
    for file in ["bpf/sample.bpf.c", "bpf/kernel_types.h", "include/whither_abi.h"] {
        println!("cargo:rerun-if-changed={}", root.join(file).display());
    }
}
