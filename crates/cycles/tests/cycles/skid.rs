//! Moving samples keeps their sum, on any bytes taken for code.

use proptest::prelude::*;
use whither_cycles::skid::Moves;
use whither_image::{Blocks, Svma, decode};

proptest! {
    #[test]
    fn sums_are_kept_exactly(
        // Short jumps are over-represented so that there are many joins.
        code in prop::collection::vec(
            prop_oneof![any::<u8>(), Just(0x75), Just(0xeb), Just(0x90), Just(0xfc), Just(0x02), Just(0x39), Just(0xc3)],
            1..200,
        ),
        counts in prop::collection::vec(prop_oneof![Just(0u32), any::<u32>()], 200),
    ) {
        let insns = decode(&code, Svma(0x1000));
        let blocks = Blocks::new(&insns);
        let raw: Vec<f64> = counts.iter().take(insns.len()).map(|c| f64::from(*c)).collect();
        let moves = Moves::plan(&insns, &blocks, &raw);
        let moved = moves.apply(&raw);
        prop_assert_eq!(moved.iter().sum::<f64>(), raw.iter().sum::<f64>());
        prop_assert!(moved.iter().all(|m| *m >= 0.0));
    }
}
