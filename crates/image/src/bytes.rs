//! Shared bytes of a file: a range of some owner (a mapping, a vector), cheap to clone and to cut.
//! Who maps the file is not decided here; this crate opens nothing.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A range of bytes that keeps its owner alive. Cloning copies a pointer.
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl Bytes {
    /// All bytes of `owner`, which must keep returning the same bytes (a mapping of a file that
    /// shrinks meanwhile is the owner's to guard against).
    pub fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        let range = 0..owner.as_ref().len();
        Self { owner: Arc::new(owner), range }
    }

    /// A part, counted from the start of this one; `None` when it does not lie inside.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > self.range.len() {
            return None;
        }
        let start = self.range.start + range.start;
        Some(Self { owner: Arc::clone(&self.owner), range: start..start + range.len() })
    }

    /// The part that `part`, a sub-slice of these very bytes, covers; a copy when it is not one.
    pub(crate) fn share(&self, part: &[u8]) -> Self {
        let start = (part.as_ptr() as usize).wrapping_sub(self.as_ptr() as usize);
        start.checked_add(part.len()).and_then(|end| self.slice(start..end)).unwrap_or_else(|| Self::new(part.to_vec()))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // An owner that shrank since gives an empty slice, not a panic.
        (*self.owner).as_ref().get(self.range.clone()).unwrap_or(&[])
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(bytes)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({} bytes)", self.range.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_stay_inside() {
        let all = Bytes::from(vec![1, 2, 3, 4, 5]);
        let mid = all.slice(1..4).unwrap();
        assert_eq!(&mid[..], [2, 3, 4]);
        assert_eq!(&mid.slice(1..2).unwrap()[..], [3]);
        assert!(mid.slice(1..4).is_none());
        assert_eq!(&all.share(&all[2..4])[..], [3, 4]);
        assert_eq!(&all.share(&[9, 9])[..], [9, 9]);
    }
}
