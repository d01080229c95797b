//! The text of a path: outermost caller first, call sites where they tell paths apart and at the innermost caller, the start of the
//! program left out. Made one by one, for those that are shown: the texts of a quarter of a million paths take gigabytes.

use crate::analysis::Analysis;
use crate::frames::{Frames, Function, base};
use crate::names::frame_text;
use rustc_hash::{FxHashMap, FxHashSet};
use whither_store::calls::FrameKind;

/// Which frames are told with their call sites.
#[derive(Debug)]
pub(crate) struct Sites(Vec<bool>);

impl Sites {
    /// Per chain: whether its innermost frame is one of several call sites of a function behind the same functions.
    pub(crate) fn new(frames: &Frames) -> Self {
        let chains = &frames.chains;
        let mut numbers: FxHashMap<&Function, u32> = FxHashMap::default();
        let functions: Vec<u32> = frames.functions.iter().map(|f| number(&mut numbers, f)).collect();
        // Per chain: the functions of its frames, by number; the first of their call sites, and whether there are others.
        let mut behind: Vec<u32> = vec![0];
        let mut known: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        let mut sites: Vec<(u32, bool)> = vec![(u32::MAX, false)];
        for chain in chains.all().skip(1) {
            let Some(frame) = chains.last(chain) else { continue };
            let next = u32::try_from(sites.len()).unwrap_or(u32::MAX);
            let key = (behind[chains.outer(chain) as usize], functions[frame as usize]);
            let at = *known.entry(key).or_insert(next);
            if at == next {
                sites.push((frame, false));
            }
            sites[at as usize].1 |= sites[at as usize].0 != frame;
            behind.push(at);
        }
        Self(behind.into_iter().map(|at| sites[at as usize].1).collect())
    }
}

fn number<'a>(numbers: &mut FxHashMap<&'a Function, u32>, function: &'a Function) -> u32 {
    let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    *numbers.entry(function).or_insert(next)
}

impl Analysis<'_> {
    /// The text of a path, by its index.
    pub(crate) fn label_of(&self, path: usize) -> String {
        self.label_with(path, &FxHashSet::default())
    }

    /// The same; frames with so many others inside are told with their call sites and where these are in their files.
    fn label_with(&self, path: usize, telling: &FxHashSet<usize>) -> String {
        let sites = self.sites.get_or_init(|| Sites::new(&self.frames));
        let chains = &self.frames.chains;
        let end = self.frames.ends[path];
        let first = self.frames.startup(end);
        let mut parts: Vec<String> = Vec::with_capacity(chains.depth(end) as usize + 1);
        let point = self.snapshot.paths[path].point;
        parts.push(self.point_name(point) + if self.snapshot.paths[path].folded { " …" } else { "" });
        for (inside, chain) in chains.outwards(end).enumerate() {
            let Some(frame) = chains.last(chain) else { continue };
            let row = &self.frames.rows[frame as usize];
            let is_call = row.kind == FrameKind::Caller;
            if chains.depth(chain) <= first && is_call {
                continue;
            }
            let is_telling = telling.contains(&inside);
            let apart = chain == end || sites.0[chain as usize] || is_telling;
            let mut text = frame_text(row, apart && is_call, self.options.inlines);
            if is_telling && !row.module.is_empty() {
                text.push_str(&format!(" ({}+{:#x})", base(&row.module), row.offset));
            }
            parts.push(text);
        }
        parts.reverse();
        parts.join(" > ")
    }

    /// Texts of paths, no two of them the same: where functions on them share their names, the places of their calls are told.
    pub(crate) fn labels_apart(&self, paths: &[usize]) -> Vec<String> {
        let mut labels: Vec<String> = paths.iter().map(|&path| self.label_of(path)).collect();
        let mut alike: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
        for (i, label) in labels.iter().enumerate() {
            alike.entry(label).or_default().push(i);
        }
        let alike: Vec<Vec<usize>> = alike.into_values().filter(|same| same.len() > 1).collect();
        for same in alike {
            let chains: Vec<Vec<u32>> =
                same.iter().map(|&i| self.frames.chains.frames(self.frames.ends[paths[i]]).collect()).collect();
            let longest = chains.iter().map(Vec::len).max().unwrap_or(0);
            let differ = |at: &usize| chains.iter().any(|c| c.get(*at) != chains[0].get(*at));
            let telling: FxHashSet<usize> = (0..longest).filter(differ).collect();
            if !telling.is_empty() {
                same.iter().for_each(|&i| labels[i] = self.label_with(paths[i], &telling));
            }
        }
        labels
    }
}
