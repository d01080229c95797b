//! What a trap costs here: the kernel's breakpoint on a function of whither itself, hit some hundred times. Lives here:
//! that measurement, once per run. Not here: how long the programs at the breakpoints take, which they count themselves.
//!
//! Constraint: between one and forty microseconds, by processor and by hypervisor, so nothing but measuring tells.

use super::UprobePoint;
use super::groups::{Groups, Setter};
use crate::target::maps;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

const HITS: u32 = 40;
const ROUNDS: u32 = 8;

/// Nanoseconds for one trap to the program that is hit; `None` where none can be set on whither. The least of some rounds:
/// the first hit finds nothing prepared, and others may want the processor.
pub(super) fn of_a_trap<S: Setter>(kernel: &S, let_go: impl FnOnce(Vec<S::Link>)) -> Option<u64> {
    static COST: OnceLock<Option<u64>> = OnceLock::new();
    *COST.get_or_init(|| {
        let me = std::process::id();
        let address = landmark as fn(u64) -> u64 as usize as u64;
        let map = maps::read(me).into_iter().find(|m| m.execute && m.holds(address))?;
        let entry = address - map.start + map.offset;
        // Nothing else has index 0, and its word stays 0: the programs return at once.
        let point = UprobePoint { index: 0, entry, exits: Vec::new(), by_path: false, values: Vec::new() };
        let least = || (0..ROUNDS).map(|_| time()).min().unwrap_or(0);
        let before = least();
        let mut groups = Groups::default();
        let is_set = groups.add(kernel, me, Path::new("/proc/self/exe"), &[point]).is_empty();
        let with = least();
        let_go(groups.leave(me));
        is_set.then(|| with.saturating_sub(before) / u64::from(HITS))
    })
}

/// The first instruction is neither `push` nor a jump, which kernels emulate at half the price.
#[inline(never)]
fn landmark(x: u64) -> u64 {
    std::hint::black_box(x.wrapping_mul(5)) ^ 0x55
}

fn time() -> u64 {
    let call = std::hint::black_box(landmark as fn(u64) -> u64);
    let from = Instant::now();
    let mut sum = 0;
    for i in 0..HITS {
        sum ^= call(u64::from(i));
    }
    std::hint::black_box(sum);
    u64::try_from(from.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
