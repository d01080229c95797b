//! What programs leave marks with, out of the binary: the files of this repository, for those who have no copy of it.

use crate::answer;
use crate::cli::CausalMarks;
use crate::failure::Ending;

const HEADER: &str = include_str!("../../../../include/whither.h");
const PYTHON: &str = include_str!("../../../../python/whither.py");
const RUST: &str = include_str!("../../../progress/src/lib.rs");

/// `whither causal marks`.
pub(super) fn marks(args: &CausalMarks) -> anyhow::Result<Ending> {
    answer::write(file(args).as_bytes())?;
    Ok(Ending::Done)
}

/// Exactly one is asked for.
fn file(args: &CausalMarks) -> &'static str {
    match args {
        CausalMarks { python: true, .. } => PYTHON,
        CausalMarks { rust: true, .. } => RUST,
        CausalMarks { .. } => HEADER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_language_has_its_file() {
        let of = |c, python, rust| file(&CausalMarks { c, python, rust });
        assert!(of(true, false, false).contains("#define WHITHER_PROGRESS(name)"));
        assert!(of(false, true, false).contains("def progress(name):"));
        assert!(of(false, false, true).contains("macro_rules! progress"));
    }
}
