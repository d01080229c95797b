//! Perf maps: where a process that makes code at run time says what it made. Finding and reading the
//! file is here; its format is in `whither_image::perfmap`.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use whither_kernel::proc;

/// A file is not older than what wrote it; clocks of file systems tick more coarsely than others.
const COARSE: Duration = Duration::from_millis(20);

/// The perf map of a process that `started` then (wall time, ns; 0: not known): in its own /tmp first (containers),
/// named after its own idea of its pid. A map that was last written before is one of an earlier process of that number.
#[must_use]
pub fn perf_map_path(pid: u32, started: u64) -> Option<PathBuf> {
    let inner = proc::inner_pid(pid);
    [format!("/proc/{pid}/root/tmp/perf-{inner}.map"), format!("/tmp/perf-{pid}.map"), format!("/tmp/perf-{inner}.map")]
        .into_iter()
        .map(PathBuf::from)
        .find(|p| written_since(p, started))
}

fn written_since(path: &Path, started: u64) -> bool {
    let Some(meta) = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file) else { return false };
    let started = UNIX_EPOCH + Duration::from_nanos(started);
    meta.modified().map_or(true, |written| written + COARSE >= started)
}

/// The text of the map, at most 64 MiB; `None` when there is none or it is not a plain file.
#[must_use]
pub fn read_perf_map(pid: u32, started: u64) -> Option<Vec<u8>> {
    use std::io::Read;
    let file = proc::open_plain(&perf_map_path(pid, started)?)?;
    let mut text = Vec::new();
    file.take(64 << 20).read_to_end(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn a_map_of_an_earlier_process_of_that_number_is_not_taken() {
        let pid = 4_194_301; // Larger than any pid in use here.
        let path = PathBuf::from(format!("/tmp/perf-{pid}.map"));
        std::fs::write(&path, "1000 10 f\n").expect("/tmp is writable");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
        let found = |started| perf_map_path(pid, started).is_some();
        let seen = [found(0), found(now - 1_000_000_000), found(now + 1_000_000_000)];
        std::fs::remove_file(&path).expect("ours");
        assert_eq!(seen, [true, true, false]);
    }
}
