//! Perf maps: where a process that makes code at run time says what it made. Finding and reading the
//! file is here; its format is in `whither_image::perfmap`.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use whither_kernel::proc;

/// A file is not older than what wrote it; clocks of file systems tick more coarsely than others.
const COARSE: Duration = Duration::from_millis(20);

/// Where a process writes its map: in its own /tmp (containers), named after its own idea of its pid. What is not told of
/// the dead is read while it lives.
#[derive(Clone, Debug)]
pub struct Home {
    pid: u32,
    /// Its process id in its own namespace.
    inner: u32,
    /// Its /tmp, kept where that is not ours.
    tmp: Option<Arc<OwnedFd>>,
}

impl Home {
    /// Of a process that may be alive.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let tmp = is_elsewhere(pid).then(|| proc::open_tmp(pid)).flatten().map(Arc::new);
        Self { pid, inner: proc::inner_pid(pid), tmp }
    }

    /// Lets go of the directory: what could be read there has been.
    pub fn let_go(&mut self) {
        self.tmp = None;
    }

    /// The map, if the process `started` then (wall time, ns; 0: not known): one that was last written before is of an
    /// earlier process of that number.
    #[must_use]
    pub fn map(&self, started: u64) -> Option<PathBuf> {
        let Self { pid, inner, tmp } = self;
        let kept = tmp.as_ref().map(|fd| format!("/proc/self/fd/{}/perf-{inner}.map", fd.as_raw_fd()));
        let here = [
            format!("/proc/{pid}/root/tmp/perf-{inner}.map"),
            format!("/tmp/perf-{pid}.map"),
            format!("/tmp/perf-{inner}.map"),
        ];
        kept.into_iter().chain(here).map(PathBuf::from).find(|p| written_since(p, started))
    }
}

/// Whether a process has another view of the file system than we.
fn is_elsewhere(pid: u32) -> bool {
    use std::os::unix::fs::MetadataExt;
    let of = |path: String| std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    ["ns/mnt", "root"].iter().any(|what| of(format!("/proc/{pid}/{what}")) != of(format!("/proc/self/{what}")))
}

fn written_since(path: &Path, started: u64) -> bool {
    let Some(meta) = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file) else { return false };
    let started = UNIX_EPOCH + Duration::from_nanos(started);
    meta.modified().map_or(true, |written| written + COARSE >= started)
}

/// The text of the map, at most 64 MiB; `None` when there is none or it is not a plain file.
#[must_use]
pub fn read_perf_map(home: &Home, started: u64) -> Option<Vec<u8>> {
    use std::io::Read;
    let file = proc::open_plain(&home.map(started)?)?;
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
        let found = |started| Home::of(pid).map(started).is_some();
        let seen = [found(0), found(now - 1_000_000_000), found(now + 1_000_000_000)];
        std::fs::remove_file(&path).expect("ours");
        assert_eq!(seen, [true, true, false]);
    }
}
