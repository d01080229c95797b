//! Who is behind a pile-up: time spent with interrupts off is sampled where they are switched on again, in a function whose
//! name alone tells nothing (`_raw_spin_unlock_irqrestore`). Where stacks were recorded, its callers tell.
//!
//! The samples stay where they were taken, so totals and other tools agree; the callers are part of the row's remark.

use crate::names::demangled;
use crate::remark::{self, IRQS_OFF};
use crate::selection::{Filter, Selection};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use whither_image::FunctionTable;
use whither_store::model::{EventIx, Frame, ImageIx, ImageKind, Profile};
use whither_store::symbols::Symbols;

/// Callers named in a remark.
const NAMED: usize = 3;
/// Fewer stacks tell nothing of shares.
const FEWEST: u64 = 10;

/// Weights of the callers of every function at which kernel time piles up, by the function's mangled name.
#[derive(Debug, Default)]
pub(crate) struct PileUps {
    callers: FxHashMap<Arc<str>, Callers>,
    stacks: bool,
}

#[derive(Debug, Default)]
struct Callers {
    stacks: u64,
    weights: FxHashMap<Arc<str>, u64>,
}

impl PileUps {
    /// From the stacks that pass the filter (its image and procedure filters are about the samples' own places, which
    /// are those of the rows).
    pub(crate) fn of(selection: &Selection<'_>, symbols: &dyn Symbols, filter: &Filter) -> Self {
        let profile = selection.profile;
        let passes = Selection::stack_filter(profile, filter);
        let mut names = Names { profile, symbols, tables: FxHashMap::default() };
        let mut out = Self { callers: FxHashMap::default(), stacks: !profile.stack_samples.is_empty() };
        let event: EventIx = selection.columns[0];
        for s in profile.stack_samples.iter().filter(|s| s.event == event && passes(s)) {
            let frames = &profile.stacks[s.stack.0 as usize].frames;
            let Some((pile, caller)) = names.behind(frames) else { continue };
            let callers = out.callers.entry(pile).or_default();
            callers.stacks += u64::from(s.count);
            *callers.weights.entry(caller).or_default() += u64::from(s.count).saturating_mul(s.period);
        }
        out
    }

    /// The remark on a pile-up in this function.
    pub(crate) fn remark(&self, function: &str) -> String {
        match self.callers.get(function).filter(|c| c.stacks >= FEWEST) {
            Some(callers) => format!("{IRQS_OFF}; by the stacks it was called from {}", callers.told()),
            None if self.stacks => IRQS_OFF.to_owned(),
            None => format!("{IRQS_OFF} (recorded with -g, its callers are named)"),
        }
    }
}

impl Callers {
    /// The largest ones with their shares.
    fn told(&self) -> String {
        let all: u64 = self.weights.values().sum();
        let mut sorted: Vec<(&Arc<str>, u64)> = self.weights.iter().map(|(n, w)| (n, *w)).collect();
        sorted.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        let share = |w: u64| 100.0 * w as f64 / all.max(1) as f64;
        let named: Vec<String> = sorted.iter().take(NAMED).map(|(n, w)| format!("{n} {:.0} %", share(*w))).collect();
        let left = sorted.len().saturating_sub(NAMED);
        let rest = if left > 0 { format!(" and {left} more") } else { String::new() };
        format!("{}{rest}", named.join(", "))
    }
}

/// Functions of kernel frames.
struct Names<'a> {
    profile: &'a Profile,
    symbols: &'a dyn Symbols,
    tables: FxHashMap<ImageIx, Arc<FunctionTable>>,
}

impl Names<'_> {
    /// The function a kernel stack's innermost frame is in, if time piles up there, and the first one outward that is not of
    /// that kind itself.
    fn behind(&mut self, frames: &[Frame]) -> Option<(Arc<str>, Arc<str>)> {
        let pile = self.function(frames.first()?)?;
        if !remark::follows_irqs_off(&pile) {
            return None;
        }
        let outward = frames[1..].iter().map_while(|f| self.function(f)).find(|n| !remark::follows_irqs_off(n));
        let caller = outward.map_or_else(|| "user code".into(), |n| Arc::from(demangled(&n)));
        Some((pile, caller))
    }

    /// Mangled name; `None` outside the kernel and where nothing is known.
    fn function(&mut self, frame: &Frame) -> Option<Arc<str>> {
        let (profile, symbols) = (self.profile, self.symbols);
        let image = profile.image(frame.image);
        if !matches!(image.kind, ImageKind::Kernel | ImageKind::Module) {
            return None;
        }
        let table = self.tables.entry(frame.image).or_insert_with(|| symbols.functions(image));
        table.find(frame.offset).map(|f| Arc::from(&*f.name))
    }
}
