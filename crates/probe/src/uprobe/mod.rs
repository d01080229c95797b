//! The uprobe back end: kernel breakpoints and `bpf/calls.bpf.c` count the calls that must not or cannot
//! be counted by patched code. Microseconds per call instead of nanoseconds, same rows in the answer.
//! Not here: which functions take this way (the engine), turning tables into a snapshot.
//!
//! Dropping [`Uprobes`] takes every breakpoint away; the kernel does the same when whither is killed.

mod cost;
pub mod exits;
mod groups;
mod spare;

#[allow(clippy::all, clippy::pedantic, missing_docs, unreachable_pub, unsafe_code, dead_code)]
#[allow(clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block, clippy::unwrap_used)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/calls.skel.rs"));
}

use crate::api::{Source, ValueSpec};
use groups::{Groups, Setter, Side};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject, UprobeMultiOpts};
use rustc_hash::{FxHashMap, FxHashSet};
use skeleton::{CallsSkel, CallsSkelBuilder};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use whither_abi::agent::{DO_EXIT, DO_PATH, Module, Row, Rule};
use whither_abi::uprobe::{
    Call, CallKey, Counts, Frames, Met, PathKey, UP_ON, UP_RANGES, UP_RET, UP_RULES, UP_VALUE_BITS, UP_VALUE_SHIFT,
};
use whither_kernel::shared::SharedWords;

/// What can go wrong with uprobes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UprobeError {
    /// The kernel refused the program or its maps.
    #[error(
        "the kernel refused the uprobe program: {0}; it needs CAP_BPF and CAP_PERFMON (`whither doctor` tells more)"
    )]
    Load(String),
    /// A breakpoint could not be set.
    #[error("cannot set a uprobe at {offset:#x} of {}: {reason}", .file.display())]
    Attach {
        /// The file.
        file: PathBuf,
        /// Offset in the file.
        offset: u64,
        /// The kernel's reason.
        reason: String,
    },
    /// A table could not be read or written.
    #[error("a table of the uprobe program could not be {0}")]
    Table(String),
}

/// A function to count by uprobes.
#[derive(Clone, Debug)]
pub struct UprobePoint {
    /// Index of the point within the session.
    pub index: u32,
    /// File offset of the function's first byte.
    pub entry: u64,
    /// File offsets of all its exits; empty = only entries are counted.
    pub exits: Vec<u64>,
    /// Keep call paths apart.
    pub by_path: bool,
    /// Integers to sum, at most two, arguments 1 to 6 or the return value.
    pub values: Vec<ValueSpec>,
}

/// All that the kernel side has counted so far.
#[derive(Debug, Default)]
pub struct UprobeTables {
    /// Counters by path.
    pub counts: Vec<(PathKey, Counts)>,
    /// Frames of each path hash.
    pub frames: FxHashMap<u64, Frames>,
    /// Calls that have not returned.
    pub in_progress: Vec<(CallKey, Call)>,
    /// Entries that found no room.
    pub lost_table: u64,
    /// Exits without their entry.
    pub lost_exit: u64,
    /// Calls left by a jump.
    pub lost_jumped: u64,
    /// Paths that found no room: counted without path.
    pub lost_paths: u64,
    /// Traps taken.
    pub traps: u64,
    /// Nanoseconds that the programs at the breakpoints took, without the traps themselves.
    pub spent_ns: u64,
}

/// The loaded program and its breakpoints.
pub struct Uprobes {
    // Links go before the object they run.
    groups: Groups<Link>,
    scheduler: Vec<Link>,
    rows: SharedWords,
    skel: CallsSkel<'static>,
    half: usize,
    used_rows: usize,
    used_rules: usize,
    trap_ns: Option<u64>,
    /// Traps, and nanoseconds in them, by which the cost of one was measured: whither's, and not the target's.
    ours: Option<(u64, u64)>,
}

impl std::fmt::Debug for Uprobes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uprobes").field("processes", &self.groups.pids().count()).finish_non_exhaustive()
    }
}

impl Uprobes {
    /// Loads the program with room for so many unwind rows.
    ///
    /// # Errors
    /// [`UprobeError::Load`] with the kernel's reason.
    pub fn new(rows: usize) -> Result<Self, UprobeError> {
        let rows = rows.max(4096).next_power_of_two();
        let made = spare::take(rows).map_or_else(|| Self::load(rows), Ok)?;
        spare::prepare(rows);
        Ok(made)
    }

    fn load(rows: usize) -> Result<Self, UprobeError> {
        let load = |e: libbpf_rs::Error| UprobeError::Load(e.to_string());
        // What it would print is in the error already, or only matters to developers.
        libbpf_rs::set_print(None);
        // One program per session: its few hundred bytes of book-keeping stay until whither ends.
        let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = CallsSkelBuilder::default().open(storage).map_err(load)?;
        open.maps.rows.set_max_entries(rows as u32).map_err(load)?;
        if let Some(data) = open.maps.rodata_data.as_deref_mut() {
            data.wh_rows_mask = rows as u32 - 1;
        }
        let skel = open.load().map_err(load)?;
        let mapped = SharedWords::map(skel.maps.rows.as_fd(), rows).map_err(|e| UprobeError::Load(e.to_string()))?;
        let scheduler = vec![skel.progs.wh_switch.attach().map_err(load)?, skel.progs.wh_exit.attach().map_err(load)?];
        Ok(Self {
            groups: Groups::default(),
            scheduler,
            rows: mapped,
            skel,
            half: 0,
            used_rows: 0,
            // Rule 0 is none.
            used_rules: 1,
            trap_ns: None,
            ours: None,
        })
    }

    /// First number of the rare rules given next: rows name their rules by it.
    #[must_use]
    pub fn next_rule(&self) -> u32 {
        self.used_rules as u32
    }

    /// Takes in unwind rows and their rare rules for good; the index of the first row, `None` when there
    /// is no room.
    ///
    /// # Errors
    /// [`UprobeError::Table`] when a table refuses.
    pub fn add_rows(&mut self, rows: &[Row], rules: &[Rule]) -> Result<Option<u32>, UprobeError> {
        let first = self.used_rows;
        let free = self.rows.words().get(first..).unwrap_or_default();
        if rows.len() > free.len() || self.used_rules + rules.len() > UP_RULES {
            return Ok(None);
        }
        for (word, row) in free.iter().zip(rows) {
            word.store(u64::from(row.offset) | u64::from(row.rule) << 32, Relaxed);
        }
        for (i, rule) in rules.iter().enumerate() {
            write(&self.skel.maps.rules, (self.used_rules + i) as u32, &rule_bytes(rule))?;
        }
        self.used_rows += rows.len();
        self.used_rules += rules.len();
        Ok(Some(first as u32))
    }

    /// Tells the program where return addresses are that an agent has taken from their slots.
    ///
    /// # Errors
    /// [`UprobeError::Table`] when its words are not mapped.
    pub fn set_agent(&mut self, exits: &Range<u64>, shadow: i64) -> Result<(), UprobeError> {
        let bss = self.skel.maps.bss_data.as_deref_mut().ok_or_else(|| UprobeError::Table("mapped".into()))?;
        bss.wh_agent_shadow = shadow;
        bss.wh_agent_exits = exits.start;
        bss.wh_agent_exit_bytes = exits.end.saturating_sub(exits.start);
        Ok(())
    }

    /// Gives the program the code now mapped, with indexes of its rows. Calls that are being walked
    /// meanwhile see the old ranges or the new ones, never a mixture.
    ///
    /// # Errors
    /// [`UprobeError::Table`] when a table refuses.
    pub fn set_code(&mut self, modules: &[Module]) -> Result<(), UprobeError> {
        let half = 1 - self.half;
        let mut ranges: Vec<&Module> = modules.iter().filter(|m| m.state == 1).collect();
        ranges.sort_by_key(|m| m.start);
        ranges.truncate(UP_RANGES);
        for (i, module) in ranges.iter().enumerate() {
            write(&self.skel.maps.ranges, (half * UP_RANGES + i) as u32, &module_bytes(module))?;
        }
        let bss = self.skel.maps.bss_data.as_deref_mut().ok_or_else(|| UprobeError::Table("mapped".into()))?;
        bss.wh_n_ranges[half] = ranges.len() as u32;
        bss.wh_ranges_half = half as u32;
        self.half = half;
        Ok(())
    }

    /// Sets the breakpoints of points of one file in one process; `file` is a path under which we can open what is
    /// mapped there. Those that the kernel refuses come back, by index.
    ///
    /// # Errors
    /// [`UprobeError::Table`] when the table of points refuses: nothing is set then.
    pub fn add(
        &mut self,
        pid: u32,
        file: &Path,
        points: &[UprobePoint],
    ) -> Result<Vec<(u32, UprobeError)>, UprobeError> {
        for point in points {
            write(&self.skel.maps.points, point.index, &word_of(point).to_le_bytes())?;
        }
        let kernel = Kernel(&self.skel);
        self.trap_ns = cost::of_a_trap(&kernel, spare::let_go);
        // No breakpoint of the target's is set before.
        self.ours = self.ours.or(Some(self.in_traps()));
        Ok(self.groups.add(&kernel, pid, file, points))
    }

    /// Takes the breakpoints of points away, in every process. Their counts stay.
    ///
    /// # Errors
    /// [`UprobeError::Table`] when a table refuses, [`UprobeError::Attach`] when the others of their group cannot be set
    /// without them: they stay then, and count nothing.
    pub fn remove(&mut self, indexes: &[u32]) -> Result<(), UprobeError> {
        let written = indexes.iter().try_for_each(|&index| write(&self.skel.maps.points, index, &0_u32.to_le_bytes()));
        let over: FxHashSet<u32> = indexes.iter().copied().collect();
        let (gone, removed) = self.groups.remove(&Kernel(&self.skel), |index| over.contains(&index));
        close(gone);
        written.and(removed)
    }

    /// Takes all breakpoints away from a process that has ended, or executes another program. Nobody waits for it.
    pub fn leave(&mut self, pid: u32) {
        spare::let_go(self.groups.leave(pid));
    }

    /// Lets a point count or pass.
    ///
    /// # Errors
    /// [`UprobeError::Table`] when the table of points refuses.
    pub fn enable(&mut self, point: &UprobePoint, on: bool) -> Result<(), UprobeError> {
        let word = if on { word_of(point) } else { word_of(point) & !UP_ON };
        write(&self.skel.maps.points, point.index, &word.to_le_bytes())
    }

    /// Nanoseconds that a trap costs the program it interrupts, once a breakpoint has been set.
    #[must_use]
    pub fn trap_ns(&self) -> Option<u64> {
        self.trap_ns
    }

    /// Traps so far, and nanoseconds that the programs took in them; whither's own too.
    fn in_traps(&self) -> (u64, u64) {
        self.skel.maps.bss_data.as_deref().map_or((0, 0), |bss| (bss.wh_traps, bss.wh_spent_ns))
    }

    /// What is counted so far; calls go on meanwhile.
    ///
    /// # Errors
    /// [`UprobeError::Table`] when the kernel refuses to read.
    pub fn read(&self) -> Result<UprobeTables, UprobeError> {
        let maps = &self.skel.maps;
        let mut tables = UprobeTables {
            counts: pairs(&maps.counts, PathKey::read, Counts::read)?,
            frames: pairs(&maps.paths, |k| Some(u64::from_le_bytes(k.try_into().ok()?)), Frames::read)?
                .into_iter()
                .collect(),
            in_progress: pairs(&maps.calls, CallKey::read, Call::read)?,
            ..UprobeTables::default()
        };
        if let Some(bss) = maps.bss_data.as_deref() {
            tables.lost_table = bss.wh_lost_table;
            tables.lost_exit = bss.wh_lost_exit;
            tables.lost_jumped = bss.wh_lost_jumped;
            tables.lost_paths = bss.wh_lost_paths;
        }
        let ((traps, ns), ours) = (self.in_traps(), self.ours.unwrap_or_default());
        (tables.traps, tables.spent_ns) = (traps.saturating_sub(ours.0), ns.saturating_sub(ours.1));
        Ok(tables)
    }
}

impl Drop for Uprobes {
    fn drop(&mut self) {
        let pids: FxHashSet<u32> = self.groups.pids().collect();
        // Where a process lives nothing of ours may be left when this returns.
        let (alive, gone): (Vec<u32>, Vec<u32>) = pids.into_iter().partition(|&pid| whither_kernel::proc::exists(pid));
        let mut leave = |pids: Vec<u32>| pids.into_iter().flat_map(|pid| self.groups.leave(pid)).collect::<Vec<Link>>();
        let (now, mut later) = (leave(alive), leave(gone));
        later.append(&mut self.scheduler);
        spare::let_go(later);
        close(now);
    }
}

/// Sets links with the loaded programs.
struct Kernel<'a>(&'a CallsSkel<'static>);

impl Setter for Kernel<'_> {
    type Link = Link;

    fn set(&self, side: Side, pid: u32, file: &Path, at: &[(u64, u64)]) -> Result<Link, UprobeError> {
        let program = match side {
            Side::Entries => &self.0.progs.wh_enter,
            Side::Exits => &self.0.progs.wh_leave,
        };
        let options = UprobeMultiOpts {
            offsets: at.iter().map(|(offset, _)| *offset as usize).collect(),
            cookies: at.iter().map(|(_, cookie)| *cookie).collect(),
            ..UprobeMultiOpts::default()
        };
        program.attach_uprobe_multi_with_opts(pid as i32, file, "", options).map_err(|e| UprobeError::Attach {
            file: file.into(),
            offset: at.first().map_or(0, |(offset, _)| *offset),
            reason: e.to_string(),
        })
    }

    fn begin_change(&self) -> Result<(), UprobeError> {
        write(&self.0.maps.changed, 0, &1_u32.to_le_bytes())
    }

    fn forget(&self, turn: u32) {
        let met = &self.0.maps.met;
        let is_of_it = |value: &[u8]| Met::read(value).is_none_or(|m| m.turn.contains(&turn));
        let threads: Vec<Vec<u8>> = met.keys().collect();
        for thread in threads {
            if met.lookup(&thread, MapFlags::ANY).is_ok_and(|v| v.is_some_and(|v| is_of_it(&v))) {
                // The thread that is gone meanwhile is as good.
                let _ = met.delete(&thread);
            }
        }
    }
}

/// Closes links side by side, and waits: each closing takes grace periods of the kernel, tens of milliseconds.
fn close(mut links: Vec<Link>) {
    const AT_ONCE: usize = 64;
    let share = links.len().div_ceil(AT_ONCE).max(1);
    std::thread::scope(|scope| {
        while !links.is_empty() {
            let part = links.split_off(links.len().saturating_sub(share));
            // Without a thread they are closed here.
            let _ = std::thread::Builder::new().spawn_scoped(scope, move || drop(part));
        }
    });
}

/// All pairs of a hash map; a row that vanishes while reading is left out.
fn pairs<K, V>(
    map: &dyn MapCore,
    key: impl Fn(&[u8]) -> Option<K>,
    value: impl Fn(&[u8]) -> Option<V>,
) -> Result<Vec<(K, V)>, UprobeError> {
    let mut out = Vec::new();
    for bytes in map.keys() {
        let found = map.lookup(&bytes, MapFlags::ANY).map_err(|e| UprobeError::Table(format!("read: {e}")))?;
        if let Some(row) = found.and_then(|v| Some((key(&bytes)?, value(&v)?))) {
            out.push(row);
        }
    }
    Ok(out)
}

fn write(map: &dyn MapCore, key: u32, value: &[u8]) -> Result<(), UprobeError> {
    map.update(&key.to_le_bytes(), value, MapFlags::ANY).map_err(|e| UprobeError::Table(format!("written: {e}")))
}

fn word_of(point: &UprobePoint) -> u32 {
    let mut word = UP_ON;
    if point.by_path {
        word |= DO_PATH;
    }
    if !point.exits.is_empty() {
        word |= DO_EXIT;
    }
    for (i, value) in point.values.iter().take(2).enumerate() {
        let from = match value.source {
            Source::Arg(n @ 1..=6) => u32::from(n),
            Source::Arg(_) | Source::Event(_) => 0,
            Source::Ret => UP_RET,
        };
        let how = value.width.trailing_zeros() << 3 | u32::from(value.signed) << 5;
        word |= (from | how) << (UP_VALUE_SHIFT + UP_VALUE_BITS * i as u32);
    }
    word
}

fn rule_bytes(rule: &Rule) -> Vec<u8> {
    let mut out = vec![rule.reg, rule.deref, rule.rbp, 0];
    for word in [rule.cfa_offset, rule.rbp_offset, rule.more] {
        out.extend(word.to_le_bytes());
    }
    out
}

fn module_bytes(module: &Module) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    for word in [module.start, module.end, module.base] {
        out.extend(word.to_le_bytes());
    }
    for word in [module.first_row, module.n_rows, module.state, module.flags] {
        out.extend(word.to_le_bytes());
    }
    out.resize(64, 0);
    out
}
