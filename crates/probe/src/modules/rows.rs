//! Unwind rows of modules, worked out by several threads, the biggest file first. Constraint: a process
//! that maps 100 MB of code must be ready in little more than a second.

use super::{Module, known};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use whither_abi::agent as abi;
use whither_image::{Bytes, UnwindRows, is_go_program};

/// Rows of one module, before they are given a place in the tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    /// Stated address that offsets count from.
    pub(crate) base: u64,
    /// Shared: kept for further processes, and 16 MB for 100 MB of code.
    rows: Arc<[abi::Row]>,
    /// Rare rules; rows name them by index into this.
    pub(crate) big: Arc<[abi::Rule]>,
    /// What has no rows keeps frame pointers: code compiled from Go.
    pub(crate) framed: bool,
}

impl Rows {
    /// Rows with the rare rules' numbers moved to where they stand in the common table.
    pub(crate) fn moved(&self, first_rule: u32) -> Vec<abi::Row> {
        self.pieces(first_rule, self.rows.len()).flatten().collect()
    }

    /// The same in pieces of so many rows.
    pub(crate) fn pieces(&self, first_rule: u32, length: usize) -> impl Iterator<Item = Vec<abi::Row>> + '_ {
        let moved = move |row: &abi::Row| {
            let big = row.rule & 7 == abi::RULE_BIG;
            abi::Row { rule: if big { row.rule.wrapping_add(first_rule << 3) } else { row.rule }, ..*row }
        };
        self.rows.chunks(length.max(1)).map(move |piece| piece.iter().map(moved).collect())
    }

    /// Bytes of code that a rule holds for.
    pub(crate) fn covered(&self) -> u64 {
        let pairs = self.rows.iter().zip(self.rows.iter().skip(1));
        let ruled = pairs.filter(|(row, _)| row.rule & 7 != abi::RULE_NONE);
        ruled.map(|(row, next)| u64::from(next.offset.saturating_sub(row.offset))).sum()
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    fn of(file: &Bytes) -> Self {
        let framed = is_go_program(file);
        match UnwindRows::from_elf(file) {
            Ok(rows) => Self { base: rows.base.0, rows: rows.rows.into(), big: rows.big.into(), framed },
            Err(_) => Self { framed, ..Self::default() },
        }
    }

    /// Rows of the agent's own code, made once. Its frames that need a rare rule are not among those that measure.
    pub(crate) fn of_agent() -> &'static Self {
        static ROWS: OnceLock<Rows> = OnceLock::new();
        ROWS.get_or_init(|| Self::of(&Bytes::new(crate::agent::IMAGE.to_vec())))
    }

    /// Rows of some modules, in their order; empty where a file has none.
    pub(crate) fn of_all(modules: &[&Module]) -> Vec<Self> {
        let mut all: Vec<Option<Self>> = modules.iter().map(|m| known::rows(m)).collect();
        let new: Vec<usize> = (0..all.len()).filter(|&i| all[i].is_none()).collect();
        let made = Self::make(&new.iter().map(|&i| modules[i]).collect::<Vec<_>>());
        for (&index, rows) in new.iter().zip(made) {
            known::keep_rows(modules[index], &rows);
            all[index] = Some(rows);
        }
        all.into_iter().map(Option::unwrap_or_default).collect()
    }

    fn make(modules: &[&Module]) -> Vec<Self> {
        let mut order: Vec<(usize, Bytes)> =
            modules.iter().enumerate().filter_map(|(i, m)| Some((i, m.file.clone()?))).collect();
        order.sort_by_key(|(_, file)| std::cmp::Reverse(file.len()));
        let done: Vec<Mutex<Self>> = modules.iter().map(|_| Mutex::new(Self::default())).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((index, file)) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                let rows = Self::of(file);
                if let Ok(mut place) = done[*index].lock() {
                    *place = rows;
                }
            }
        };
        std::thread::scope(|scope| {
            let workers = std::thread::available_parallelism().map_or(1, |n| n.get().min(4));
            for _ in 1..workers {
                scope.spawn(work);
            }
            work();
        });
        done.into_iter().map(|m| m.into_inner().unwrap_or_default()).collect()
    }
}
