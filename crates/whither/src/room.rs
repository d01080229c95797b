//! Whether answers can be put where the user wants them: found out before anything is measured.

use anyhow::Context;
use std::fs::OpenOptions;
use std::path::Path;

/// A page that is to be written: the file, or a new one in its directory.
///
/// # Errors
/// The system's, with the path.
pub(crate) fn for_page(path: Option<&Path>) -> anyhow::Result<()> {
    match path {
        Some(path) if path.is_file() => {
            OpenOptions::new().append(true).open(path).map(drop).with_context(|| cannot(path))
        }
        // A pipe or a terminal.
        Some(path) if path.exists() && !path.is_dir() => Ok(()),
        Some(path) if path.is_dir() => anyhow::bail!("cannot write {}: it is a directory", path.display()),
        other => for_recording(other),
    }
}

/// A recording that is to be created beside what else is in its directory.
///
/// # Errors
/// The system's, with the path.
pub(crate) fn for_recording(path: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    // Recordings make the directories that lead to them.
    let Some(there) = dir.ancestors().find(|dir| dir.is_dir()) else { return Ok(()) };
    let probe = there.join(format!(".whither-{}", std::process::id()));
    OpenOptions::new().write(true).create_new(true).open(&probe).with_context(|| cannot(path))?;
    let _ = std::fs::remove_file(&probe);
    Ok(())
}

fn cannot(path: &Path) -> String {
    format!("cannot write {}, so nothing was measured", path.display())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_cannot_be_written_is_found_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().join("page.html");
        std::fs::write(&there, "old").unwrap();
        for path in [dir.path().join("new.html"), there.clone()] {
            for_page(Some(&path)).unwrap();
        }
        for_recording(Some(&dir.path().join("a/b/run.wh"))).unwrap();
        for_page(Some(Path::new("/dev/null"))).unwrap();
        assert_eq!(std::fs::read_to_string(&there).unwrap(), "old");
        assert_eq!(dir.path().read_dir().unwrap().count(), 1, "nothing is left behind");
        assert!(for_page(Some(dir.path())).is_err());
        for path in ["/proc/x.wh", "/proc/self/x.html"] {
            let told = for_recording(Some(Path::new(path))).unwrap_err().to_string();
            assert!(told.contains(path) && told.contains("nothing was measured"), "{told}");
        }
        for_recording(None).unwrap();
    }
}
