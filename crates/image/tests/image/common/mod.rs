//! Shared by the tests that compile programs and compare with other tools: finding tools, and
//! skipping aloud when one is missing.

#![allow(dead_code, clippy::print_stdout, reason = "helpers; a skip is told")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

static SKIPPED: AtomicUsize = AtomicUsize::new(0);

/// Prints and counts why something was not compared.
pub(crate) fn skip(reason: &str) {
    let number = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    println!("skipped (number {number} of this run): {reason}");
}

/// Runs a tool and returns what it printed; `None`, with a skip, when it cannot be started.
pub(crate) fn run(tool: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(tool).args(arguments).output() {
        Ok(output) => {
            assert!(output.status.success(), "{tool} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Err(e) => {
            skip(&format!("{tool} cannot be started: {e}"));
            None
        }
    }
}

/// Compiles `tests/programs/SOURCE` into `dir`; `None`, with a skip, without the compiler.
pub(crate) fn compile(compiler: &str, source: &str, flags: &[&str], dir: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let out = dir.join("program");
    let mut arguments: Vec<&str> = flags.to_vec();
    arguments.extend([source.to_str()?, "-o", out.to_str()?]);
    run(compiler, &arguments).map(|_| out)
}
