//! What a probed call costs: as it is kept and handed on, and the most of it, measured where nothing hides any part of a
//! probe. Not here: the usual cost, which is taken off times (seat.rs).
//!
//! Processors do most of a probe beside the work that calls hold and stand in, so what it costs differs from program to
//! program by some times. Two ends are known: with much to hide behind, and with nothing. The second is measured on
//! a function with nothing in it, each call of which begins when all before it is done; and once more by paths in no order,
//! where each call also costs the jumps that nobody can foresee, and counters out of the first cache. What is
//! not in it: caches that others have used meanwhile.

use super::seat::Seat;
use crate::agent::Symbol;
use crate::apply::arena::Arenas;
use crate::error::ProbeError;
use crate::segment::field;
use crate::target::Caller;
use whither_abi::agent as abi;

/// What was measured in one program holds for all: it is the same machine and the same agent. In ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// With times, when only counted, what of it is in the call's own times, and what is missing there.
    usual: [u64; 4],
    /// As [`field::MOST`].
    most: [u64; 6],
}

const USUAL: [crate::segment::Field; 4] = [field::COST_WHOLE, field::COST_COUNT, field::COST_INSIDE, field::COST_EARLY];

/// How often each is visited: enough for one visit without an interruption. A thread of the target stands still meanwhile.
const VISITS: usize = 6;
/// Of 64 calls each: for the least of them, and for a mean over paths.
const FEW: u64 = 4;
const MANY: u64 = 16;

impl Seat {
    pub(crate) fn cost(&self) -> Cost {
        Cost { usual: USUAL.map(|f| self.segment.header(f)), most: field::MOST.map(|f| self.segment.header(f)) }
    }

    /// Takes over what was measured in another program.
    pub(crate) fn set_cost(&self, cost: Cost) {
        let all = USUAL.into_iter().zip(cost.usual).chain(field::MOST.into_iter().zip(cost.most));
        all.for_each(|(field, ticks)| self.segment.set_header(field, ticks));
    }

    /// Ticks of one probed call, as [`field::MOST`].
    pub(super) fn measure_most(&self, caller: &mut Caller, arenas: &mut Arenas) -> Result<[u64; 6], ProbeError> {
        let timed = abi::DO_EXIT | abi::DO_PATH | abi::DO_WALL | abi::DO_HIST;
        let plain = self.three_ways(caller)?;
        let with = |symbol_and_flags, caller: &mut Caller, arenas: &mut Arenas| {
            self.with_own_probed(caller, arenas, symbol_and_flags, |caller, _| self.three_ways(caller))
        };
        let timed = with((Symbol::Bare, timed), caller, arenas)?;
        let counted = with((Symbol::Bare, abi::DO_PATH), caller, arenas)?;
        let mut most = [0; 6];
        for (i, ticks) in timed.into_iter().chain(counted).enumerate() {
            most[i] = ticks.saturating_sub(plain[i % 3]).div_ceil(64);
        }
        Ok(most)
    }

    /// Ticks of 64 calls by one path, by a deeper one, and by varied ones.
    fn three_ways(&self, caller: &mut Caller) -> Result<[u64; 3], ProbeError> {
        let ways = [
            (FEW, abi::CALIBRATE_ALONE),
            (FEW, abi::CALIBRATE_ALONE | abi::CALIBRATE_DEEP),
            (MANY, abi::CALIBRATE_ALONE | abi::CALIBRATE_VARIED),
        ];
        let mut all = [u64::MAX; 3];
        for (least, (rounds, how)) in all.iter_mut().zip(ways) {
            for _ in 0..VISITS {
                let args = [rounds, u64::from(how)];
                *least = (*least).min(caller.call("the agent's calibration", self.symbol(Symbol::Calibrate), &args)?);
            }
        }
        Ok(all)
    }
}
