//! The JSON files that describe an epoch or a segment: a version, checked first, and a checksum, so
//! that a flipped bit in a time or a name is damage and not another answer.
//!
//! The checksum is the last member of the object and covers every byte before it:
//! ```text
//! {
//!   "version": 1,
//!   ...,
//!   "crc32c": 123456789
//! }
//! ```

use crate::error::StoreError;
use crate::layout::FORMAT_VERSION;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::Path;

const MARK: &str = ",\n  \"crc32c\": ";

/// The text of a description; `value` must be a struct that is not empty.
pub(crate) fn to_text<T: Serialize>(value: &T) -> Vec<u8> {
    let text = serde_json::to_string_pretty(value).expect("structs of strings, numbers and lists are JSON");
    let body = text.strip_suffix("\n}").unwrap_or(&text);
    format!("{body}{MARK}{}\n}}\n", crc32c::crc32c(body.as_bytes())).into_bytes()
}

/// Reads what [`to_text`] wrote. Fields that are not known are ignored.
pub(crate) fn from_text<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, StoreError> {
    from_text_up_to(FORMAT_VERSION, path, bytes)
}

/// The same for what has versions up to `newest`, all of which can be read.
pub(crate) fn from_text_up_to<T: DeserializeOwned>(newest: u32, path: &Path, bytes: &[u8]) -> Result<T, StoreError> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let version: Version = serde_json::from_slice(bytes).map_err(|e| StoreError::corrupt(path, e))?;
    // Before the checksum: another version may have another one.
    if !(1..=newest).contains(&version.version) {
        return Err(StoreError::Version { path: path.to_owned(), found: version.version, supported: newest });
    }
    check(bytes).map_err(|what| StoreError::corrupt(path, what))?;
    serde_json::from_slice(bytes).map_err(|e| StoreError::corrupt(path, e))
}

fn check(bytes: &[u8]) -> Result<(), &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
    let (body, rest) = text.rsplit_once(MARK).ok_or("it has no checksum")?;
    let stated: u32 = rest.strip_suffix("\n}\n").and_then(|n| n.parse().ok()).ok_or("its checksum is broken")?;
    if stated == crc32c::crc32c(body.as_bytes()) {
        Ok(())
    } else {
        Err("its checksum does not match (edited or damaged)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::EpochMeta;

    #[test]
    fn every_changed_byte_is_noticed() {
        let meta = EpochMeta { version: FORMAT_VERSION, label: "l".into(), ..EpochMeta::default() };
        let text = to_text(&meta);
        let read = |bytes: &[u8]| from_text::<EpochMeta>(Path::new("epoch.json"), bytes);
        assert_eq!(read(&text).unwrap(), meta);
        for at in 0..text.len() {
            let mut damaged = text.clone();
            damaged[at] ^= 1;
            assert!(read(&damaged).is_err(), "byte {at}");
            assert!(read(&text[..at]).is_err(), "cut at {at}");
        }
    }
}
