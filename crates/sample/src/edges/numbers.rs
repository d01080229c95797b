//! Numbers of instructions by address. Code is looked up instruction after instruction, so what lies together is kept together:
//! with one entry each in one table of hashes, a compiler's 600,000 were a miss of the cache per question.

use rustc_hash::FxHashMap;
use std::hash::Hash;

/// Bytes of code whose numbers are kept together.
const PAGE: usize = 256;

/// Numbers, never 0, of the code of several spaces.
#[derive(Debug)]
pub(super) struct Numbers<S> {
    pages: FxHashMap<(S, u64), Box<[u32; PAGE]>>,
}

impl<S> Default for Numbers<S> {
    fn default() -> Self {
        Self { pages: FxHashMap::default() }
    }
}

impl<S: Copy + Eq + Hash> Numbers<S> {
    pub(super) fn get(&self, space: S, at: u64) -> Option<u32> {
        let (page, within) = split(at);
        self.pages.get(&(space, page)).map(|numbers| numbers[within]).filter(|&number| number != 0)
    }

    pub(super) fn insert(&mut self, space: S, at: u64, number: u32) {
        let (page, within) = split(at);
        self.pages.entry((space, page)).or_insert_with(|| Box::new([0; PAGE]))[within] = number;
    }
}

fn split(at: u64) -> (u64, usize) {
    (at / PAGE as u64, (at % PAGE as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_space_has_its_own() {
        let mut numbers = Numbers::default();
        for (space, at, number) in [('a', 0, 1), ('a', 255, 2), ('a', 256, 3), ('b', 0, 4), ('b', u64::MAX, 5)] {
            numbers.insert(space, at, number);
        }
        let found = [('a', 0), ('a', 255), ('a', 256), ('b', 0), ('b', u64::MAX)].map(|(s, at)| numbers.get(s, at));
        assert_eq!(found, [1, 2, 3, 4, 5].map(Some));
        assert_eq!([('a', 1), ('b', 255), ('c', 0)].map(|(s, at)| numbers.get(s, at)), [None; 3]);
        numbers.insert('a', 255, 9);
        assert_eq!(numbers.get('a', 255), Some(9));
    }
}
