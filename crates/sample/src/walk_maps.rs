//! What walks know, in the kernel's memory: instructions by number, and the numbers of those that stand in each 256 bytes of code. Both
//! are written through mappings: a compiler's half a million instructions as entries of a hash table were most of what the collector
//! spent. So are processes told. Not here: which code is prepared (`edges/walks.rs`). Constraint: a walk may read at any moment, so an instruction is
//! there before its number can be found.

use crate::edges::{OP_ROOM, WalkOrders, image_number};
use crate::error::SampleError;
use libbpf_rs::{MapCore, MapFlags};
use rustc_hash::{FxHashMap, FxHashSet};
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::{Relaxed, Release};
use whither_abi::path::{Chunk, Life, Op, space_bytes};
use whither_kernel::shared::SharedWords;

/// Stretches of code that the kernel side has room for; a compiler executes some 20,000.
pub(crate) const SLOT_ROOM: u32 = 1 << 15;
/// Bytes of code in a stretch, as `WH_CHUNK`.
const CHUNK_BITS: u32 = 8;
const OP_WORDS: usize = Op::SIZE / 8;
/// Two numbers in a word.
const SLOT_WORDS: usize = (1 << CHUNK_BITS) / 2;

/// The kernel's tables: stretches of code, and processes.
pub(crate) struct Tables<'m, C, S> {
    pub(crate) chunks: &'m C,
    pub(crate) spaces: &'m S,
}

pub(crate) struct WalkMaps {
    ops: SharedWords,
    slots: SharedWords,
    /// Stretches that have numbers.
    chunks: FxHashMap<Chunk, u32>,
    /// Processes that the kernel knows.
    lives: FxHashSet<Life>,
    used: u32,
}

impl WalkMaps {
    pub(crate) fn map(ops: BorrowedFd<'_>, slots: BorrowedFd<'_>) -> Result<Self, SampleError> {
        Ok(Self {
            ops: SharedWords::map(ops, OP_ROOM as usize * OP_WORDS)?,
            slots: SharedWords::map(slots, SLOT_ROOM as usize * SLOT_WORDS)?,
            chunks: FxHashMap::default(),
            lives: FxHashSet::default(),
            used: 0,
        })
    }

    /// Forgets all, while nobody walks.
    pub(crate) fn clear(&mut self, tables: &Tables<'_, impl MapCore, impl MapCore>) {
        let keys: Vec<u8> = self.chunks.keys().flat_map(Chunk::bytes).collect();
        // libbpf-rs divides by the number of keys.
        if !keys.is_empty() {
            let _ = tables.chunks.delete_batch(&keys, self.chunks.len() as u32, MapFlags::ANY, MapFlags::ANY);
        }
        for life in self.lives.drain() {
            let _ = tables.spaces.delete(&life.bytes());
        }
        self.slots.words()[..self.used as usize * SLOT_WORDS].iter().for_each(|word| word.store(0, Relaxed));
        self.chunks.clear();
        self.used = 0;
    }

    /// Writes what is new; whether there was room.
    pub(crate) fn put(&mut self, tables: &Tables<'_, impl MapCore, impl MapCore>, orders: &WalkOrders) -> bool {
        for (number, op) in &orders.ops {
            let to = self.ops.words().chunks_exact(OP_WORDS).nth(*number as usize);
            let words = op.bytes();
            for (to, word) in to.into_iter().flatten().zip(words.as_chunks::<8>().0) {
                to.store(u64::from_le_bytes(*word), Relaxed);
            }
        }
        let (mut recent, mut new) = (None, Vec::new());
        for &(image, at, number) in &orders.places {
            let key = Chunk { number: at >> CHUNK_BITS, image: image_number(image), spare: 0 };
            let slot = match recent.filter(|(at, _)| *at == key) {
                Some((_, slot)) => slot,
                None => match self.slot(key, &mut new) {
                    Some(slot) => slot,
                    None => return false,
                },
            };
            recent = Some((key, slot));
            self.number(slot, at as usize & ((1 << CHUNK_BITS) - 1), number);
        }
        tell(tables.chunks, &new) && orders.spaces.iter().all(|(life, parts)| self.space(tables.spaces, *life, parts))
    }

    /// What a process has mapped; whether there was room.
    fn space(&mut self, table: &impl MapCore, life: Life, parts: &[whither_abi::path::Part]) -> bool {
        if parts.is_empty() {
            self.lives.remove(&life);
            let _ = table.delete(&life.bytes());
            return true;
        }
        self.lives.insert(life);
        table.update(&life.bytes(), &space_bytes(parts), MapFlags::ANY).is_ok()
    }

    /// Where the numbers of a stretch stand.
    fn slot(&mut self, key: Chunk, new: &mut Vec<(Chunk, u32)>) -> Option<u32> {
        if let Some(slot) = self.chunks.get(&key) {
            return Some(*slot);
        }
        let slot = self.used;
        if slot == SLOT_ROOM {
            return None;
        }
        self.used += 1;
        self.chunks.insert(key, slot);
        new.push((key, slot));
        Some(slot)
    }

    fn number(&self, slot: u32, at: usize, number: u32) {
        let Some(word) = self.slots.words().get(slot as usize * SLOT_WORDS + at / 2) else { return };
        let shift = at % 2 * 32;
        let others = word.load(Relaxed) & !(0xffff_ffff << shift);
        word.store(others | u64::from(number) << shift, Release);
    }
}

/// Puts new entries into the kernel's table; whether there was room.
fn tell(table: &impl MapCore, new: &[(Chunk, u32)]) -> bool {
    let keys: Vec<u8> = new.iter().flat_map(|(key, _)| key.bytes()).collect();
    let values: Vec<u8> = new.iter().flat_map(|(_, value)| value.to_le_bytes()).collect();
    new.is_empty() || table.update_batch(&keys, &values, new.len() as u32, MapFlags::ANY, MapFlags::ANY).is_ok()
}
