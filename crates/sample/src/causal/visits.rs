//! Visits of progress points as times of a window, whichever back end has stamped them. Pure.

use whither_store::causal::PointVisits;

/// Visits with times since the window began to count, which is `before` after its begin, of which `delay` was delay.
#[must_use]
pub fn since(mut visits: PointVisits, before: u64, delay: u64) -> PointVisits {
    if visits.visits == 0 {
        return visits;
    }
    let before_virtual = before.cast_signed() - delay.cast_signed();
    visits.first_ns = visits.first_ns.saturating_sub(before);
    visits.last_ns = visits.last_ns.saturating_sub(before);
    visits.first_virtual_ns -= before_virtual;
    visits.last_virtual_ns -= before_virtual;
    visits.sum_virtual_ns -= before_virtual.saturating_mul(visits.visits.cast_signed());
    visits
}
