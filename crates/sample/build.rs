//! Compiles the kernel-side programs with clang and generates their skeletons. Without clang there is no
//! build: the objects are made for the running architecture and embedded as bytes.

use std::env;
use std::path::PathBuf;

/// Programs and the files they include.
const PROGRAMS: &[(&str, &[&str])] = &[
    (
        "sample",
        &[
            "bpf/kernel_types.h",
            "bpf/paths.h",
            "include/whither_abi.h",
            "include/whither_find.h",
            "include/whither_known.h",
            "include/whither_path.h",
            "include/whither_product.h",
            "include/whither_vector.h",
            "include/whither_walk.h",
        ],
    ),
    (
        "causal",
        &[
            "bpf/causal_maps.h",
            "bpf/causal_nap.h",
            "bpf/causal_points.h",
            "bpf/causal_time.h",
            "bpf/causal_relay.h",
            "bpf/causal_sleeps.h",
            "bpf/causal_socket.h",
            "bpf/causal_walk.h",
            "bpf/walk.h",
            "include/whither_agent.h",
            "include/whither_causal.h",
            "include/whither_debt.h",
            "include/whither_rest.h",
        ],
    ),
];

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for (name, includes) in PROGRAMS {
        let source = format!("bpf/{name}.bpf.c");
        libbpf_cargo::SkeletonBuilder::new()
            .source(root.join(&source))
            // Atomic operations that return a value came with this instruction set (Linux 5.12).
            .clang_args(["-Wall", "-Werror", "-Wno-unknown-attributes", "-mcpu=v3"])
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .unwrap_or_else(|e| panic!("compiling {source} failed: is clang installed (apt-get install clang)? {e:#}"));
        println!("cargo:rerun-if-changed={}", root.join(&source).display());
        for file in *includes {
            println!("cargo:rerun-if-changed={}", root.join(file).display());
        }
    }
}
