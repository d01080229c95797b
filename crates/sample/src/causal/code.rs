//! Code of the watched processes as the kernel side needs it: modules with their unwind rows, and the
//! marks of what is speeded up. Processes with equal mappings share a layout; rows are kept once per key,
//! for good. Constraint: programs read these tables at any moment, so what a layout names is written
//! before the layout, and given to another only after every CPU has passed a barrier.

use super::skel::CausalSkel;
use super::{CausalModule, CodeRange, marks};
use crate::SampleError;
use libbpf_rs::{MapCore, MapFlags};
use rustc_hash::{FxHashMap, FxHashSet};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};
use whither_abi::causal as abi;
use whither_kernel::shared::{SharedWords, barrier_on_all_cpus};

/// Unwind rows that fit, all images together: 16 MB.
pub(super) const ROWS: usize = 1 << 21;
const MODULE_WORDS: usize = size_of::<abi::Module>() / 8;
const MARK_WORDS: usize = size_of::<abi::Mark>() / 8;

/// A stretch of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stretch {
    first: u32,
    n: u32,
}

impl Stretch {
    fn word(self) -> u64 {
        u64::from(self.first) | u64::from(self.n) << 32
    }
}

/// The tables.
pub(super) struct Code {
    rows: SharedWords,
    rules: SharedWords,
    modules: SharedWords,
    layouts: SharedWords,
    marks: SharedWords,
    used_rows: usize,
    used_rules: usize,
    known: FxHashMap<u64, Stretch>,
    /// By number; number 0 is "not known".
    taken: Vec<Option<(Vec<abi::Module>, Stretch)>>,
    used_marks: usize,
    /// What marks are made from, for layouts that come later.
    wanted: Vec<(u32, u64, u64, u64)>,
    /// Modules that had to do without rows.
    pub(super) without_rows: u32,
}

impl Code {
    pub(super) fn new(skel: &CausalSkel<'static>) -> Result<Self, SampleError> {
        let maps = &skel.maps;
        Ok(Self {
            rows: SharedWords::map(maps.rows.as_fd(), ROWS)?,
            rules: SharedWords::map(maps.rules.as_fd(), abi::RULES * 2)?,
            modules: SharedWords::map(maps.modules.as_fd(), abi::MODULES * MODULE_WORDS)?,
            layouts: SharedWords::map(maps.layouts.as_fd(), abi::LAYOUTS * 2)?,
            marks: SharedWords::map(maps.marks.as_fd(), abi::MARKS * MARK_WORDS)?,
            used_rows: 0,
            used_rules: 0,
            known: FxHashMap::default(),
            taken: vec![Some((Vec::new(), Stretch::default()))],
            used_marks: 0,
            wanted: Vec::new(),
            without_rows: 0,
        })
    }

    /// Gives a process the layout of these modules.
    pub(super) fn map(
        &mut self,
        skel: &CausalSkel<'static>,
        pid: u32,
        modules: &[CausalModule],
    ) -> Result<(), SampleError> {
        let mut all: Vec<abi::Module> = modules.iter().filter(|m| m.start < m.end).map(|m| self.module(m)).collect();
        all.sort_by_key(|m| m.start);
        all.dedup_by(|later, before| later.start < before.end);
        let number = match self.taken.iter().position(|t| t.as_ref().is_some_and(|t| t.0 == all)) {
            Some(number) => number as u32,
            None => self.lay_out(skel, all)?,
        };
        // A process that has ended meanwhile is not watched any more.
        let Some(known) = process(skel, pid) else { return Ok(()) };
        let value = abi::Process { layout: number, ..known }.bytes();
        match skel.maps.processes.update(&pid.to_le_bytes(), &value, MapFlags::EXIST) {
            Err(e) if e.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(SampleError::bpf("telling the code of a process", e)),
            Ok(()) => self.mark(number, &self.ranges_of(pid)),
        }
    }

    fn module(&mut self, m: &CausalModule) -> abi::Module {
        let rows = self.rows_of(m);
        abi::Module {
            start: m.start,
            end: m.end,
            base: m.base,
            first_row: rows.first,
            n_rows: rows.n,
            in_scope: m.in_scope.into(),
        }
    }

    /// Rows of a module, taken in at first sight. Without room there are none: frame pointers serve.
    fn rows_of(&mut self, m: &CausalModule) -> Stretch {
        if let Some(known) = self.known.get(&m.key) {
            return *known;
        }
        let free = self.rows.words().get(self.used_rows..).unwrap_or_default();
        let rules = self.rules.words().get(2 * self.used_rules..).unwrap_or_default();
        if m.rows.rows.len() > free.len() || m.rows.big.len() * 2 > rules.len() {
            self.without_rows += 1;
            self.known.insert(m.key, Stretch::default());
            return Stretch::default();
        }
        for (words, rule) in rules.chunks_exact(2).zip(&m.rows.big) {
            let [reg, deref, rbp] = [rule.reg, rule.deref, rule.rbp].map(u64::from);
            let low = |n: i32| u64::from(n.cast_unsigned());
            words[0].store(reg | deref << 8 | rbp << 16 | low(rule.cfa_offset) << 32, Relaxed);
            words[1].store(low(rule.rbp_offset) | low(rule.more) << 32, Relaxed);
        }
        for (word, row) in free.iter().zip(m.rows.rebased(self.used_rules as u32)) {
            word.store(u64::from(row.offset) | u64::from(row.rule) << 32, Relaxed);
        }
        let stretch = Stretch { first: self.used_rows as u32, n: m.rows.rows.len() as u32 };
        self.used_rows += m.rows.rows.len();
        self.used_rules += m.rows.big.len();
        self.known.insert(m.key, stretch);
        stretch
    }

    /// Writes modules into a free stretch and gives them a number.
    fn lay_out(&mut self, skel: &CausalSkel<'static>, all: Vec<abi::Module>) -> Result<u32, SampleError> {
        let place = self.room(all.len()).or_else(|| {
            self.forget_unused(skel);
            self.room(all.len())
        });
        let Some((number, stretch)) = place else {
            let why = "too many different processes, or too many modules".into();
            return Err(SampleError::Bpf { what: "telling the code of a process", why });
        };
        for (i, module) in all.iter().enumerate() {
            store(&self.modules.words()[(stretch.first as usize + i) * MODULE_WORDS..], &module.words());
        }
        let words = &self.layouts.words()[number as usize * 2..];
        words[1].store(0, Relaxed);
        words[0].store(stretch.word(), Release);
        if self.taken.len() <= number as usize {
            self.taken.resize(number as usize + 1, None);
        }
        self.taken[number as usize] = Some((all, stretch));
        Ok(number)
    }

    /// A free number, and a free stretch of the module table.
    fn room(&self, n: usize) -> Option<(u32, Stretch)> {
        let number = self.taken.iter().position(Option::is_none).unwrap_or(self.taken.len());
        let mut used: Vec<Stretch> = self.taken.iter().flatten().map(|t| t.1).filter(|s| s.n > 0).collect();
        used.sort_by_key(|s| s.first);
        let mut first = 0;
        for stretch in used {
            if (stretch.first - first) as usize >= n {
                break;
            }
            first = stretch.first + stretch.n;
        }
        let fits = number < abi::LAYOUTS && first as usize + n <= abi::MODULES;
        fits.then_some((number as u32, Stretch { first, n: n as u32 }))
    }

    fn forget_unused(&mut self, skel: &CausalSkel<'static>) {
        let used: FxHashSet<u32> = layouts_in_use(skel).into_iter().map(|(_, layout)| layout).collect();
        for (number, taken) in self.taken.iter_mut().enumerate().skip(1) {
            if !used.contains(&(number as u32)) {
                *taken = None;
            }
        }
        barrier_on_all_cpus();
    }

    /// Takes over what is to be marked, for all processes. Only while no window is open.
    pub(super) fn arm(&mut self, skel: &CausalSkel<'static>, wanted: Vec<(CodeRange, u64)>) -> Result<(), SampleError> {
        self.wanted = wanted.into_iter().map(|((pid, start, end), bits)| (pid, start, end, bits)).collect();
        self.used_marks = 0;
        for words in self.layouts.words().chunks_exact(2) {
            words[1].store(0, Relaxed);
        }
        let mut by_layout: FxHashMap<u32, Vec<(u64, u64, u64)>> = FxHashMap::default();
        for (pid, layout) in layouts_in_use(skel) {
            by_layout.entry(layout).or_default().extend(self.ranges_of(pid));
        }
        by_layout.iter().try_for_each(|(layout, ranges)| self.mark(*layout, ranges))
    }

    /// The same for a process whose code came later. Windows go on.
    pub(super) fn rearm(
        &mut self,
        skel: &CausalSkel<'static>,
        pid: u32,
        wanted: Vec<(CodeRange, u64)>,
    ) -> Result<(), SampleError> {
        self.wanted.retain(|w| w.0 != pid);
        let own = wanted.into_iter().filter(|((of, ..), _)| *of == pid);
        self.wanted.extend(own.map(|((pid, start, end), bits)| (pid, start, end, bits)));
        // A process that has ended meanwhile is not watched any more.
        process(skel, pid)
            .filter(|p| p.layout > 0)
            .map_or(Ok(()), |known| self.mark(known.layout, &self.ranges_of(pid)))
    }

    fn ranges_of(&self, pid: u32) -> Vec<(u64, u64, u64)> {
        self.wanted.iter().filter(|w| w.0 == pid).map(|w| (w.1, w.2, w.3)).collect()
    }

    /// Appends the marks of a layout and names them in it.
    fn mark(&mut self, layout: u32, ranges: &[(u64, u64, u64)]) -> Result<(), SampleError> {
        let marks = marks::pieces(ranges);
        if marks.is_empty() {
            return Ok(());
        }
        if self.used_marks + marks.len() > abi::MARKS {
            let why = format!("its code lies in more than {} pieces", abi::MARKS);
            return Err(SampleError::Bpf { what: "arming a target", why });
        }
        let stretch = Stretch { first: self.used_marks as u32, n: marks.len() as u32 };
        for (i, mark) in marks.iter().enumerate() {
            let at = (self.used_marks + i) * MARK_WORDS;
            store(&self.marks.words()[at..], &[mark.start, mark.end, mark.bits]);
        }
        self.used_marks += marks.len();
        self.layouts.words()[layout as usize * 2 + 1].store(stretch.word(), Release);
        Ok(())
    }
}

fn store(words: &[AtomicU64], values: &[u64]) {
    for (word, value) in words.iter().zip(values) {
        word.store(*value, Relaxed);
    }
}

/// A process of the table as the kernel side keeps it.
pub(super) fn process(skel: &CausalSkel<'static>, pid: u32) -> Option<abi::Process> {
    abi::Process::read(&skel.maps.processes.lookup(&pid.to_le_bytes(), MapFlags::ANY).ok()??)
}

/// Watched processes with the numbers of their layouts.
pub(super) fn layouts_in_use(skel: &CausalSkel<'static>) -> Vec<(u32, u32)> {
    let map = &skel.maps.processes;
    let word = |bytes: &[u8]| Some(u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?));
    map.keys()
        .filter_map(|key| {
            let value = map.lookup(&key, MapFlags::ANY).ok()??;
            Some((word(&key)?, word(&value)?)).filter(|p| (p.1 as usize) < abi::LAYOUTS)
        })
        .collect()
}
