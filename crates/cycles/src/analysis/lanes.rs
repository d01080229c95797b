//! Many procedures studied at once on all CPUs. What is asked of an image's other functions is remembered, and answers to
//! recursive ones depend on who asked first: so procedures go through a fixed number of lanes with a memory each, and
//! the answers are the same on every machine.

use crate::around::Around;
use crate::find::Procedure;
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use whither_store::model::{ImageIx, Profile};
use whither_store::symbols::Symbols;

const LANES: usize = 16;

/// What `study` says of each procedure, in their order.
pub(crate) fn in_lanes<T: Send>(
    profile: &Profile,
    symbols: &dyn Symbols,
    wanted: &[Procedure],
    study: impl Fn(&Procedure, &Around<'_>) -> T + Sync,
) -> Vec<T> {
    let lane = |lane: usize| -> Vec<T> {
        let mut memory: FxHashMap<ImageIx, Around<'_>> = FxHashMap::default();
        let mine = wanted.iter().skip(lane).step_by(LANES);
        mine.map(|p| {
            let around = memory.entry(p.image).or_insert_with(|| Around::new(profile.image(p.image), symbols));
            study(p, around)
        })
        .collect()
    };
    let mut lanes: Vec<_> =
        (0..LANES).into_par_iter().map(lane).collect::<Vec<_>>().into_iter().map(Vec::into_iter).collect();
    (0..wanted.len()).filter_map(|i| lanes.get_mut(i % LANES)?.next()).collect()
}
