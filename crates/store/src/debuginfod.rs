//! Fetching files by build-id from debuginfod servers: only when the user asked for it, from the
//! servers `DEBUGINFOD_URLS` names, by the `curl` of the system, so that proxies and certificates
//! are the user's own. Everything fetched is kept below the cache directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use whither_image::ImageId;

/// Seconds without a byte after which a server is given up.
const PATIENCE_S: &str = "20";

/// Which file of a build is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Artefact {
    Executable,
    DebugInfo,
}

/// Servers and the directory for what they send.
#[derive(Debug)]
pub(crate) struct Debuginfod {
    pub(crate) urls: Vec<String>,
    pub(crate) cache: PathBuf,
}

impl Debuginfod {
    /// From `DEBUGINFOD_URLS`; `None` when it names no server.
    pub(crate) fn from_env(cache: &Path) -> Option<Self> {
        let urls: Vec<String> = std::env::var("DEBUGINFOD_URLS")
            .ok()?
            .split_whitespace()
            .filter(|u| is_url(u))
            .map(str::to_owned)
            .collect();
        (!urls.is_empty()).then(|| Self { urls, cache: cache.join("debuginfod") })
    }

    /// Path of the file, fetched now unless it was before. The caller checks its identity.
    pub(crate) fn fetch(&self, id: ImageId, what: Artefact) -> Option<PathBuf> {
        let word = match what {
            Artefact::Executable => "executable",
            Artefact::DebugInfo => "debuginfo",
        };
        let dir = self.cache.join(id.to_hex());
        let path = dir.join(word);
        if path.is_file() {
            return Some(path);
        }
        crate::durable::create_dirs(&dir).ok()?;
        let part = dir.join(format!("{}{}-{word}", crate::durable::TMP, std::process::id()));
        let fetched = self.urls.iter().any(|url| {
            let address = format!("{}/buildid/{}/{word}", url.trim_end_matches('/'), id.to_hex());
            download(&address, &part) && std::fs::rename(&part, &path).is_ok()
        });
        if !fetched {
            // A part of a file is of no use; when it cannot be removed it is ignored all the same.
            let _ = std::fs::remove_file(&part);
        }
        fetched.then_some(path)
    }
}

fn is_url(text: &str) -> bool {
    text.starts_with("https://") || text.starts_with("http://")
}

/// A server on this machine, which no proxy can reach.
fn is_loopback(address: &str) -> bool {
    let host = address.split("//").nth(1).unwrap_or_default();
    ["127.0.0.1:", "localhost:", "[::1]:"].iter().any(|own| host.starts_with(own))
}

fn download(address: &str, to: &Path) -> bool {
    let status = Command::new("curl")
        .args(["--fail", "--silent", "--location", "--proto", "=http,https", "--connect-timeout", "5"])
        .args(if is_loopback(address) { &["--noproxy", "*"][..] } else { &[] })
        .args(["--speed-limit", "1", "--speed-time", PATIENCE_S, "--output"])
        .arg(to)
        .args(["--", address])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|s| s.success())
}

#[cfg(test)]
mod tests;
