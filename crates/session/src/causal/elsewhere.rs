//! Samples in libraries and other code that is not in scope, by module: who looks for targets in the program alone
//! is to know how much of the time lies elsewhere, and where.

use rustc_hash::FxHashMap;
use whither_store::causal::{Elsewhere as Stored, ModuleSamples};

/// Samples of running threads by the file of the innermost frame; `None`: code of no file.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    all: u64,
    files: FxHashMap<Option<usize>, Samples>,
}

#[derive(Debug, Default)]
struct Samples {
    outside: u64,
    charged: u64,
}

/// What became of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// In code in scope, or in the kernel for it.
    Here,
    /// In code that is not, for a call that code in scope had made.
    Charged,
    /// With no code in scope on its stack.
    Outside,
}

impl Counted {
    /// `site`: of the first frame in scope; `in_scope`: the innermost frame is; `hit`: a target has the sample.
    pub(super) fn of(site: u64, kernel: bool, in_scope: bool, hit: bool) -> Self {
        match site {
            0 => Self::Outside,
            // What the kernel does for a call is the call's.
            _ if kernel || in_scope => Self::Here,
            _ if hit => Self::Charged,
            _ => Self::Outside,
        }
    }
}

impl Elsewhere {
    /// Counts a sample whose innermost frame is in `file`.
    pub(super) fn count(&mut self, what: Counted, file: Option<usize>, weight: u64) {
        self.all = self.all.saturating_add(weight);
        if what == Counted::Here {
            return;
        }
        let samples = self.files.entry(file).or_default();
        let sum = if what == Counted::Outside { &mut samples.outside } else { &mut samples.charged };
        *sum = sum.saturating_add(weight);
    }

    /// As it is stored; `path`: what a file is called.
    pub(super) fn stored(&self, path: impl Fn(usize) -> Option<String>) -> Stored {
        let mut modules: Vec<ModuleSamples> = Vec::new();
        for (file, samples) in &self.files {
            let module = file.and_then(&path).unwrap_or_default();
            let at = modules.iter().position(|m| m.module == module).unwrap_or_else(|| {
                modules.push(ModuleSamples { module, ..ModuleSamples::default() });
                modules.len() - 1
            });
            modules[at].outside = modules[at].outside.saturating_add(samples.outside);
            modules[at].charged = modules[at].charged.saturating_add(samples.charged);
        }
        let all = |m: &ModuleSamples| m.outside.saturating_add(m.charged);
        modules.sort_by(|a, b| all(b).cmp(&all(a)).then_with(|| a.module.cmp(&b.module)));
        Stored { all: self.all, modules }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_the_callers_if_one_is_in_scope() {
        assert_eq!(Counted::of(0, false, false, false), Counted::Outside);
        assert_eq!(Counted::of(0, true, false, false), Counted::Outside);
        assert_eq!(Counted::of(7, false, true, true), Counted::Here);
        assert_eq!(Counted::of(7, true, false, true), Counted::Here);
        assert_eq!(Counted::of(7, false, false, true), Counted::Charged);
        // The kernel side took a frame for in scope that is not.
        assert_eq!(Counted::of(7, false, false, false), Counted::Outside);
    }

    #[test]
    fn samples_are_summed_by_module_the_largest_first() {
        let mut elsewhere = Elsewhere::default();
        elsewhere.count(Counted::Here, Some(0), 10);
        elsewhere.count(Counted::Charged, Some(1), 3);
        elsewhere.count(Counted::Outside, Some(2), 20);
        elsewhere.count(Counted::Outside, Some(1), 1);
        elsewhere.count(Counted::Outside, None, 2);
        let stored = elsewhere.stored(|file| Some(format!("lib{file}.so")));
        let rows: Vec<_> = stored.modules.iter().map(|m| (m.module.as_str(), m.outside, m.charged)).collect();
        assert_eq!((stored.all, rows), (36, vec![("lib2.so", 20, 0), ("lib1.so", 1, 3), ("", 2, 0)]));
    }
}
