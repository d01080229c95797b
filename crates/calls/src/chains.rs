//! Chains of frames, kept once as far as they are the same from the outermost frame on: a quarter of a million paths of an
//! interpreter had sixteen million frames, and as trees of these a few times as many nodes as paths.

use rustc_hash::FxHashMap;

/// The chain without frames.
pub(crate) const NOTHING: u32 = 0;

/// Chains by the number of their last frame's node.
#[derive(Debug)]
pub(crate) struct Chains {
    nodes: Vec<Node>,
    index: FxHashMap<(u32, u32), u32>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// The chain without its innermost frame; smaller than the node's own number.
    outer: u32,
    /// The innermost frame.
    frame: u32,
    /// Frames of the chain.
    depth: u32,
}

impl Default for Chains {
    fn default() -> Self {
        Self { nodes: vec![Node { outer: NOTHING, frame: u32::MAX, depth: 0 }], index: FxHashMap::default() }
    }
}

impl Chains {
    /// A chain with one frame more within.
    pub(crate) fn with(&mut self, chain: u32, frame: u32) -> u32 {
        let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let node = *self.index.entry((chain, frame)).or_insert(next);
        if node == next {
            self.nodes.push(Node { outer: chain, frame, depth: self.nodes[chain as usize].depth + 1 });
        }
        node
    }

    /// All chains, those without a frame first, each behind the ones that it goes on from.
    pub(crate) fn all(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)
    }

    /// Frames of a chain.
    pub(crate) fn depth(&self, chain: u32) -> u32 {
        self.nodes[chain as usize].depth
    }

    /// Its innermost frame.
    pub(crate) fn last(&self, chain: u32) -> Option<u32> {
        (chain != NOTHING).then(|| self.nodes[chain as usize].frame)
    }

    /// A chain without its innermost frame.
    pub(crate) fn outer(&self, chain: u32) -> u32 {
        self.nodes[chain as usize].outer
    }

    /// A chain and those that it goes on from, but for the one without frames.
    pub(crate) fn outwards(&self, chain: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(chain), |&c| Some(self.outer(c))).take_while(|&c| c != NOTHING)
    }

    /// Frames, innermost first.
    pub(crate) fn frames(&self, chain: u32) -> impl Iterator<Item = u32> + '_ {
        self.outwards(chain).map(|c| self.nodes[c as usize].frame)
    }

    /// Frames, outermost first.
    pub(crate) fn outermost_first(&self, chain: u32) -> Vec<u32> {
        let mut frames: Vec<u32> = self.frames(chain).collect();
        frames.reverse();
        frames
    }

    /// The outermost `depth` frames of a chain.
    fn part(&self, chain: u32, depth: u32) -> u32 {
        self.outwards(chain).find(|&c| self.depth(c) <= depth).unwrap_or(NOTHING)
    }

    /// The frames of `chain` within `outer`, innermost first, where it begins with that; else all of it.
    pub(crate) fn inside(&self, chain: u32, outer: u32) -> Vec<u32> {
        let (own, around) = (self.depth(chain), self.depth(outer));
        let goes_on = own > around && self.part(chain, around) == outer;
        self.frames(chain).take(if goes_on { own - around } else { own } as usize).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_chains_have_in_common_is_kept_once() {
        let mut chains = Chains::default();
        let both = [7, 8].into_iter().fold(NOTHING, |c, f| chains.with(c, f));
        let (one, other) = (chains.with(both, 1), chains.with(both, 2));
        assert_eq!((chains.with(both, 1), chains.all().len()), (one, 5));
        assert_eq!(chains.outermost_first(other), [7, 8, 2]);
        assert_eq!((chains.inside(other, both), chains.inside(other, one)), (vec![2], vec![2, 8, 7]));
        assert_eq!(
            (chains.inside(both, both), chains.last(NOTHING)),
            (vec![8, 7], None),
            "the call has an address of its own"
        );
    }
}
