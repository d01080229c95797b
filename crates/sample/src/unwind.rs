//! Unwinding sampled user stacks by the images' own rules (`.eh_frame`), outside the target. Rules
//! are read once per image, and one unwinder is kept per life and rebuilt when its mappings change.

use crate::book::{Book, Who};
use crate::images::{Images, piece};
use crate::lives::{ImageNo, LifeNo, Mapped, Maps};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use whither_image::unwind::{self, ElfUnwindInfo, UnwindCache, Unwinder, UserRegs, load_bias};
use whither_image::{Bytes, ImageKind, rules_only};
use whither_store::model::StackEnd;

/// Largest image whose rules are read.
const SIZE_LIMIT: u64 = 1 << 30;

/// Unwinders of all lives.
#[derive(Default)]
pub struct Unwinders {
    lives: FxHashMap<LifeNo, (Arc<Maps>, Unwinder)>,
    rules: FxHashMap<ImageNo, Option<ElfUnwindInfo>>,
    cache: UnwindCache,
    beyond: u64,
}

/// Whose stack is walked.
pub(crate) struct Walk<'a> {
    pub(crate) images: &'a Images,
    pub(crate) no: LifeNo,
    pub(crate) maps: &'a Arc<Maps>,
    pub(crate) pid: u32,
}

impl std::fmt::Debug for Unwinders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unwinders").field("lives", &self.lives.len()).finish_non_exhaustive()
    }
}

impl Unwinders {
    /// Addresses of a user stack, innermost first, from registers `[ip, sp, bp]` and the bytes from sp
    /// upwards.
    pub fn unwind(&mut self, book: &Book, who: Who, regs: [u64; 3], stack: &[u8]) -> (Vec<u64>, StackEnd) {
        let Some((no, life)) = book.life_of(who) else { return (vec![regs[0]], StackEnd::Truncated) };
        self.walk(&Walk { images: book.images(), no, maps: &life.maps, pid: life.pid }, regs, stack)
    }

    /// The same for a life that is known.
    pub(crate) fn walk(&mut self, of: &Walk<'_>, [ip, sp, bp]: [u64; 3], stack: &[u8]) -> (Vec<u64>, StackEnd) {
        let fresh = self.lives.get(&of.no).is_some_and(|(maps, _)| Arc::ptr_eq(maps, of.maps));
        if !fresh {
            let unwinder = self.build(of);
            self.lives.insert(of.no, (Arc::clone(of.maps), unwinder));
        }
        let unwinder = &self.lives[&of.no].1;
        let walked = unwinder.unwind(&mut self.cache, UserRegs { ip, sp, bp }, stack, whither_abi::MAX_FRAMES);
        self.beyond += u64::from(walked.end == unwind::StackEnd::BeyondCopy);
        let end = if walked.end == unwind::StackEnd::Root { StackEnd::Complete } else { StackEnd::Truncated };
        let addresses = if walked.addresses.is_empty() { vec![ip] } else { walked.addresses };
        (addresses, end)
    }

    /// Stacks since the last call that go on behind what was copied of them.
    pub(crate) fn take_beyond(&mut self) -> u64 {
        std::mem::take(&mut self.beyond)
    }

    /// Forgets lives that the book has forgotten.
    pub fn forget(&mut self, book: &Book) {
        self.lives.retain(|no, _| book.knows(*no));
    }

    fn build(&mut self, of: &Walk<'_>) -> Unwinder {
        let mut unwinder = Unwinder::new();
        for m in of.maps.mappings() {
            let image = of.images.get(m.image);
            let bias = load_bias(&image.segments, m.start, m.offset).unwrap_or(m.start);
            let rules = self.rules.entry(m.image).or_insert_with(|| {
                let bytes = match image.kind {
                    ImageKind::Vdso => crate::images::own_vdso(),
                    ImageKind::Elf => read_rules(of, m),
                    _ => None,
                }?;
                ElfUnwindInfo::from_elf(&Bytes::from(bytes)).ok()
            });
            match rules {
                Some(info) => unwinder.add_module(m.start..m.end, bias, info),
                None => unwinder.add_module(m.start..m.end, bias, &ElfUnwindInfo::frame_pointers()),
            }
        }
        unwinder
    }
}

/// What unwinding needs of the file that was mapped, and zeros for the rest.
fn read_rules(of: &Walk<'_>, m: &Mapped) -> Option<Vec<u8>> {
    let file = of.images.open(m.image, of.pid, (m.start, m.end))?;
    let size = file.metadata().ok()?.len();
    (size <= SIZE_LIMIT).then(|| rules_only(size, |offset, n| piece(&file, offset, n)))?
}
