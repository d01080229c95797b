//! What walks know, in the kernel's memory: instructions by number, and the numbers of those that stand in each 256 bytes of code. Both
//! are written through mappings: a compiler's half a million instructions as entries of a hash table were most of what the collector
//! spent. Not here: which code is prepared (`edges/walks.rs`). Constraint: a walk may read at any moment, so an instruction is
//! there before its number can be found.

use crate::edges::{OP_ROOM, WalkOrders};
use crate::error::SampleError;
use libbpf_rs::{MapCore, MapFlags};
use rustc_hash::FxHashMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::{Relaxed, Release};
use whither_abi::path::{Op, Start};
use whither_kernel::shared::SharedWords;

/// Stretches of code that the kernel side has room for; a compiler executes some 20,000.
pub(crate) const SLOT_ROOM: u32 = 1 << 15;
/// Entries of the table that finds them, which also tells what processes share.
pub(crate) const CHUNK_ROOM: u32 = 2 * SLOT_ROOM;
/// Bytes of code in a stretch, as `WH_CHUNK`.
const CHUNK_BITS: u32 = 8;
const OP_WORDS: usize = Op::SIZE / 8;
/// Two numbers in a word.
const SLOT_WORDS: usize = (1 << CHUNK_BITS) / 2;

pub(crate) struct WalkMaps {
    ops: SharedWords,
    slots: SharedWords,
    /// Stretches that have numbers, by the keys of the kernel's table.
    chunks: FxHashMap<Start, u32>,
    /// Processes that share code at fixed addresses.
    joined: Vec<Start>,
    used: u32,
}

impl WalkMaps {
    pub(crate) fn map(ops: BorrowedFd<'_>, slots: BorrowedFd<'_>) -> Result<Self, SampleError> {
        Ok(Self {
            ops: SharedWords::map(ops, OP_ROOM as usize * OP_WORDS)?,
            slots: SharedWords::map(slots, SLOT_ROOM as usize * SLOT_WORDS)?,
            chunks: FxHashMap::default(),
            joined: Vec::new(),
            used: 0,
        })
    }

    /// Forgets all, while nobody walks.
    pub(crate) fn clear(&mut self, table: &impl MapCore) {
        let keys: Vec<u8> = self.chunks.keys().chain(&self.joined).flat_map(Start::bytes).collect();
        let all = (self.chunks.len() + self.joined.len()) as u32;
        // libbpf-rs divides by the number of keys.
        if all > 0 {
            let _ = table.delete_batch(&keys, all, MapFlags::ANY, MapFlags::ANY);
        }
        self.slots.words()[..self.used as usize * SLOT_WORDS].iter().for_each(|word| word.store(0, Relaxed));
        self.chunks.clear();
        self.joined.clear();
        self.used = 0;
    }

    /// Writes what is new; whether there was room.
    pub(crate) fn put(&mut self, table: &impl MapCore, orders: &WalkOrders) -> bool {
        for (number, op) in &orders.ops {
            let to = self.ops.words().chunks_exact(OP_WORDS).nth(*number as usize);
            let words = op.bytes();
            for (to, word) in to.into_iter().flatten().zip(words.as_chunks::<8>().0) {
                to.store(u64::from_le_bytes(*word), Relaxed);
            }
        }
        let (mut recent, mut new) = (None, Vec::new());
        for &(start, number) in &orders.starts {
            if start.pc == 0 {
                let key = Start { pc: u64::MAX, ..start };
                self.joined.push(key);
                new.push((key, number));
                continue;
            }
            let key = Start { pc: start.pc >> CHUNK_BITS, ..start };
            let slot = match recent.filter(|(at, _)| *at == key) {
                Some((_, slot)) => slot,
                None => match self.slot(key, &mut new) {
                    Some(slot) => slot,
                    None => return false,
                },
            };
            recent = Some((key, slot));
            self.number(slot, start.pc as usize & ((1 << CHUNK_BITS) - 1), number);
        }
        tell(table, &new)
    }

    /// Where the numbers of a stretch stand.
    fn slot(&mut self, key: Start, new: &mut Vec<(Start, u32)>) -> Option<u32> {
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
fn tell(table: &impl MapCore, new: &[(Start, u32)]) -> bool {
    let keys: Vec<u8> = new.iter().flat_map(|(key, _)| key.bytes()).collect();
    let values: Vec<u8> = new.iter().flat_map(|(_, value)| value.to_le_bytes()).collect();
    new.is_empty() || table.update_batch(&keys, &values, new.len() as u32, MapFlags::ANY, MapFlags::ANY).is_ok()
}
