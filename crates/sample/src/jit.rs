//! Perf maps: where a process that makes code at run time says what it made. Finding and reading the
//! file is here; its format is in `whither_image::perfmap`.

use std::path::PathBuf;
use whither_kernel::proc;

/// The perf map of a process: in its own /tmp first (containers), named after its own idea of its pid.
#[must_use]
pub fn perf_map_path(pid: u32) -> Option<PathBuf> {
    let inner = proc::inner_pid(pid);
    [format!("/proc/{pid}/root/tmp/perf-{inner}.map"), format!("/tmp/perf-{pid}.map"), format!("/tmp/perf-{inner}.map")]
        .into_iter()
        .map(PathBuf::from)
        .find(|p| p.is_file())
}

/// The text of the map, at most 64 MiB; `None` when there is none or it is not a plain file.
#[must_use]
pub fn read_perf_map(pid: u32) -> Option<Vec<u8>> {
    use std::io::Read;
    let file = proc::open_plain(&perf_map_path(pid)?)?;
    let mut text = Vec::new();
    file.take(64 << 20).read_to_end(&mut text).ok()?;
    Some(text)
}
