//! Where things are by default: the recording in the current directory, the profile database.

use std::path::{Path, PathBuf};

/// Recording made and read when the user names none.
const RECORDING: &str = "whither.wh";

/// `whither.wh` in the current directory.
pub(crate) fn default_recording() -> PathBuf {
    PathBuf::from(RECORDING)
}

/// The database the user named, else `$WHITHER_DB`, else the default one.
pub(crate) fn database(named: Option<PathBuf>) -> PathBuf {
    let told = || std::env::var_os("WHITHER_DB").filter(|d| !d.is_empty()).map(PathBuf::from);
    named.or_else(told).unwrap_or_else(|| {
        let data_home = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
        default_database(is_root(), data_home.as_deref(), home().as_deref())
    })
}

/// A system service keeps its state in /var/lib, a user's in the data directory.
fn default_database(root: bool, data_home: Option<&Path>, home: Option<&Path>) -> PathBuf {
    if root {
        return PathBuf::from("/var/lib/whither");
    }
    match (data_home, home) {
        (Some(data), _) if data.is_absolute() => data.join("whither"),
        (_, Some(home)) => home.join(".local/share/whither"),
        _ => PathBuf::from("whither.db"),
    }
}

fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from)
}

fn is_root() -> bool {
    whither_kernel::capability::effective_uid() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_follows_who_runs() {
        let home = Path::new("/home/ada");
        assert_eq!(default_database(true, None, Some(home)), Path::new("/var/lib/whither"));
        assert_eq!(default_database(false, None, Some(home)), Path::new("/home/ada/.local/share/whither"));
        assert_eq!(default_database(false, Some(Path::new("/data")), Some(home)), Path::new("/data/whither"));
        assert_eq!(
            default_database(false, Some(Path::new("relative")), Some(home)),
            Path::new("/home/ada/.local/share/whither")
        );
        assert_eq!(default_database(false, None, None), Path::new("whither.db"));
    }
}
