//! Function tables on disk, by image id, so that a listing of hundreds of images parses no ELF file.
//! A table depends on the content its id names, so it stays right when the file is replaced; it is
//! made again only when a debug file turned up that it was made without. Best effort: a cache that
//! cannot be read or written costs time, nothing else.
//!
//! ```text
//! "WSC" version:u8 | debug file used:u8 | FunctionTable::to_bytes (checked by its own checksum)
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use whither_image::{FunctionTable, ImageId};

/// Grows whenever function tables of the same bytes would come out differently.
const VERSION: u8 = 4;
const MAGIC: [u8; 3] = *b"WSC";

/// Whether a table was made with a separate debug file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MadeWith {
    ImageOnly,
    DebugFile,
}

/// The cache directory.
#[derive(Debug)]
pub(crate) struct Cache {
    dir: PathBuf,
}

impl Cache {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.join("functions") }
    }

    pub(crate) fn get(&self, id: ImageId) -> Option<(FunctionTable, MadeWith)> {
        let bytes = fs::read(self.path(id)).ok()?;
        let (head, table) = bytes.split_first_chunk::<5>()?;
        let made = match head {
            [b'W', b'S', b'C', VERSION, 0] => MadeWith::ImageOnly,
            [b'W', b'S', b'C', VERSION, 1] => MadeWith::DebugFile,
            _ => return None,
        };
        Some((FunctionTable::from_bytes(table).ok()?, made))
    }

    pub(crate) fn put(&self, id: ImageId, table: &FunctionTable, made: MadeWith) {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([VERSION, u8::from(made == MadeWith::DebugFile)]);
        bytes.extend(table.to_bytes());
        if let Err(e) = self.write(id, &bytes) {
            tracing::debug!(error = %e, "function table not cached");
        }
    }

    /// By rename, so that a reader sees all of it; without fsync, as its checksum guards it.
    fn write(&self, id: ImageId, bytes: &[u8]) -> std::io::Result<()> {
        let path = self.path(id);
        let dir = path.parent().unwrap_or(&self.dir);
        crate::durable::create_dirs(dir).map_err(std::io::Error::other)?;
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        std::io::Write::write_all(&mut file, bytes)?;
        file.persist(path)?;
        Ok(())
    }

    fn path(&self, id: ImageId) -> PathBuf {
        let hex = id.to_hex();
        let (head, tail) = hex.split_at(2);
        self.dir.join(head).join(tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_image::{Function, ImageOffset, NameSource};

    #[test]
    fn what_was_put_is_found_and_damage_is_a_miss() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path());
        let id = ImageId([7; 20]);
        assert!(cache.get(id).is_none());
        let f = Function { start: ImageOffset(16), size: 8, name: "f".into(), source: NameSource::Symbol };
        let table = FunctionTable::new(vec![f], ImageOffset(24));
        cache.put(id, &table, MadeWith::DebugFile);
        assert_eq!(cache.get(id), Some((table, MadeWith::DebugFile)));
        let path = cache.path(id);
        let bytes = fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            fs::write(&path, &damaged).unwrap();
            assert!(
                cache.get(id).is_none_or(|(t, _)| t == FunctionTable::from_bytes(&bytes[5..]).unwrap()),
                "byte {at}"
            );
            fs::write(&path, &bytes[..at]).unwrap();
            assert!(cache.get(id).is_none());
        }
    }
}
