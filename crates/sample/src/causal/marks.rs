//! What the kernel side looks an address up in: ranges of targets, callers and points, cut into pieces
//! that do not overlap. Pure.

use super::{Armed, CodeRange, Unit};
use whither_abi::causal as abi;
use whither_abi::causal::Mark;

/// A range of a process's code with its bits.
pub type Marked = (CodeRange, u64);

/// All ranges an armed target and the points counted by ticks ask for.
#[must_use]
pub fn wanted(armed: &Armed, points: &[(u32, Vec<CodeRange>)]) -> Vec<Marked> {
    let mut out = Vec::new();
    let mut add = |ranges: &[CodeRange], bits: u64| out.extend(ranges.iter().map(|r| (*r, bits)));
    match armed {
        Armed::Nothing => {}
        Armed::Code { ranges, callers, .. } => {
            add(ranges, abi::MARK_TARGET);
            for (level, ranges) in callers.iter().enumerate().take(abi::CALLERS) {
                add(ranges, abi::MARK_CALLER << level);
            }
        }
        Armed::OffCpu { sites, .. } => add(sites, abi::MARK_SITE),
    }
    for (point, ranges) in points {
        add(ranges, abi::MARK_POINT << point);
    }
    out
}

/// Number of the unit on the kernel side.
#[must_use]
pub fn unit_of(armed: &Armed) -> u64 {
    match armed {
        Armed::Nothing => abi::UNIT_NOTHING,
        Armed::Code { unit: Unit::Inclusive, .. } => abi::UNIT_INCLUSIVE,
        Armed::Code { .. } => abi::UNIT_FIRST,
        Armed::OffCpu { .. } => abi::UNIT_OFF_CPU,
    }
}

/// Ranges that may overlap, as sorted pieces that do not; equal neighbours are one.
#[must_use]
pub fn pieces(ranges: &[(u64, u64, u64)]) -> Vec<Mark> {
    let mut edges: Vec<(u64, u64, bool)> = Vec::with_capacity(2 * ranges.len());
    for &(start, end, bits) in ranges.iter().filter(|r| r.0 < r.1) {
        edges.push((start, bits, true));
        edges.push((end, bits, false));
    }
    edges.sort_unstable();
    // How many open ranges hold each bit.
    let mut open = [0_u32; 64];
    let mut out: Vec<Mark> = Vec::new();
    let mut from = 0;
    for (at, bits, opens) in edges {
        let held = (0..64).filter(|b| open[*b as usize] > 0).fold(0_u64, |all, b| all | 1 << b);
        if held != 0 && at > from {
            match out.last_mut() {
                Some(last) if last.end == from && last.bits == held => last.end = at,
                _ => out.push(Mark { start: from, end: at, bits: held }),
            }
        }
        from = at;
        for bit in (0..64).filter(|b| bits & 1 << b != 0) {
            let n = &mut open[bit as usize];
            *n = if opens { *n + 1 } else { n.saturating_sub(1) };
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mark(start: u64, end: u64, bits: u64) -> Mark {
        Mark { start, end, bits }
    }

    #[test]
    fn overlaps_are_cut_and_neighbours_joined() {
        let cut = pieces(&[(10, 30, 1), (20, 40, 2), (40, 50, 2), (5, 5, 4)]);
        assert_eq!(cut, [mark(10, 20, 1), mark(20, 30, 3), mark(30, 50, 2)]);
    }

    #[test]
    fn every_kind_has_its_bit() {
        let armed = Armed::Code {
            unit: Unit::Function,
            ranges: vec![(1, 10, 20)],
            callers: vec![vec![(1, 30, 40)], vec![(1, 50, 60)]],
        };
        let bits: Vec<u64> = wanted(&armed, &[(3, vec![(1, 0, 5)])]).into_iter().map(|(_, b)| b).collect();
        assert_eq!(bits, [1, 2, 4, 256 << 3]);
    }

    proptest! {
        #[test]
        fn pieces_say_of_each_address_what_the_ranges_say(
            ranges in proptest::collection::vec((0_u64..60, 0_u64..60, 1_u64..16), 0..12)
        ) {
            let cut = pieces(&ranges);
            prop_assert!(cut.windows(2).all(|w| w[0].end <= w[1].start));
            for at in 0..60 {
                let stated = ranges.iter().filter(|r| r.0 <= at && at < r.1).fold(0, |all, r| all | r.2);
                let found = cut.iter().find(|m| m.start <= at && at < m.end).map_or(0, |m| m.bits);
                prop_assert_eq!(stated, found);
            }
        }
    }
}
