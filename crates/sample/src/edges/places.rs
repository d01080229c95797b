//! Places where samples were blocked by memory, and what to load there. Two generations bound the memory: what was
//! not asked for while a whole generation filled is forgotten.

use crate::lives::ImageNo;
use rustc_hash::FxHashMap;
use std::rc::Rc;
use whither_image::interp::RecipeStep;

/// Places of one generation.
const GENERATION: usize = 8192;

/// A place: image, and file offset.
pub(crate) type At = (ImageNo, u64);

/// What is known of a place.
#[derive(Clone, Default)]
pub(crate) struct Known {
    /// Blocked samples so far.
    pub(crate) met: u32,
    /// What to load; empty when nothing helps, `None` before it was worked out.
    pub(crate) recipe: Option<Rc<[RecipeStep]>>,
}

/// All places.
#[derive(Default)]
pub(crate) struct Places {
    young: FxHashMap<At, Known>,
    old: FxHashMap<At, Known>,
}

impl Places {
    /// The place, new or known.
    pub(crate) fn get(&mut self, at: At) -> &mut Known {
        if !self.young.contains_key(&at) {
            let known = self.old.remove(&at).unwrap_or_default();
            if self.young.len() >= GENERATION {
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(at, known);
        }
        self.young.get_mut(&at).expect("inserted above")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_use_stay_and_others_go() {
        let mut places = Places::default();
        let used = (ImageNo(1), 7);
        places.get(used).met = 7;
        let cold = (ImageNo(1), 8);
        places.get(cold).recipe = Some(Rc::from([]));
        for n in 0..3 * GENERATION as u64 {
            places.get((ImageNo(2), n));
            assert_eq!(places.get(used).met, 7);
        }
        assert!(places.young.len() + places.old.len() <= 2 * GENERATION);
        assert!(places.get(cold).recipe.is_none(), "it was forgotten");
    }
}
