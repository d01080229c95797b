//! Function tables on disk, by image id, so that a listing of hundreds of images parses no ELF file.
//! A table depends on the content its id names, so it stays right when the file is replaced; but a stripped copy has the id of
//! the whole file. What was made of one is made again when another file stands there, or when a debug file turned up. Best
//! effort: a cache that cannot be read or written costs time, nothing else.
//!
//! ```text
//! "WSC" version:u8 | 1 | FunctionTable::to_bytes (checked by its own checksum)
//! "WSC" version:u8 | 0 | size:u64 | modified:i64 | n:u8 | n bytes: name of the debug file | FunctionTable::to_bytes
//! ```

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use whither_image::{FunctionTable, ImageId};

/// Grows whenever function tables of the same bytes would come out differently.
const VERSION: u8 = 5;
const MAGIC: [u8; 3] = *b"WSC";

/// What a table was made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MadeWith {
    /// A whole symbol table, of the image or of its debug file.
    Symbols,
    /// What is left in a stripped file.
    Stripped(Stripped),
}

/// Which file that was, and which debug file it names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stripped {
    pub(crate) size: u64,
    /// Nanoseconds since 1970.
    pub(crate) modified: i64,
    /// Without directories; empty: none.
    pub(crate) link: String,
}

impl Stripped {
    pub(crate) fn of(path: &Path, link: Option<&str>) -> Self {
        let name = link.and_then(|l| Path::new(l).file_name()?.to_str()).filter(|l| l.len() <= usize::from(u8::MAX));
        let (size, modified) = fs::metadata(path)
            .map_or((0, 0), |m| (m.len(), m.mtime().saturating_mul(1_000_000_000).saturating_add(m.mtime_nsec())));
        Self { size, modified, link: name.unwrap_or_default().to_owned() }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.size.to_le_bytes().to_vec();
        bytes.extend(self.modified.to_le_bytes());
        bytes.push(u8::try_from(self.link.len()).unwrap_or(0));
        bytes.extend(self.link.as_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (size, rest) = bytes.split_first_chunk::<8>()?;
        let (modified, rest) = rest.split_first_chunk::<8>()?;
        let (n, rest) = rest.split_first()?;
        let (link, table) = rest.split_at_checked(usize::from(*n))?;
        let link = std::str::from_utf8(link).ok()?.to_owned();
        Some((Self { size: u64::from_le_bytes(*size), modified: i64::from_le_bytes(*modified), link }, table))
    }
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
        let (made, table) = match head {
            [b'W', b'S', b'C', VERSION, 0] => {
                let (stripped, table) = Stripped::from_bytes(table)?;
                (MadeWith::Stripped(stripped), table)
            }
            [b'W', b'S', b'C', VERSION, 1] => (MadeWith::Symbols, table),
            _ => return None,
        };
        Some((FunctionTable::from_bytes(table).ok()?, made))
    }

    pub(crate) fn put(&self, id: ImageId, table: &FunctionTable, made: &MadeWith) {
        let mut bytes = MAGIC.to_vec();
        match made {
            MadeWith::Symbols => bytes.extend([VERSION, 1]),
            MadeWith::Stripped(stripped) => {
                bytes.extend([VERSION, 0]);
                bytes.extend(stripped.to_bytes());
            }
        }
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
        let stripped = MadeWith::Stripped(Stripped { size: 7, modified: -9, link: "f.dbg".into() });
        cache.put(id, &table, &stripped);
        assert_eq!(cache.get(id), Some((table.clone(), stripped)));
        cache.put(id, &table, &MadeWith::Symbols);
        assert_eq!(cache.get(id), Some((table, MadeWith::Symbols)));
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
