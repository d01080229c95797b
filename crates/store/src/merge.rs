//! Merging of sorted runs of rows that add up when their keys are equal. Pure; the order of the
//! runs does not matter, so segments of any hosts can be merged in any grouping.

use crate::model::{Sample, StackSample};

/// A row that is counted.
pub trait Counted: Ord + Copy + Send + Sync {
    /// Adds the count of `other` when everything else is equal and the sum fits.
    fn absorb(&mut self, other: &Self) -> bool;
}

impl Counted for Sample {
    fn absorb(&mut self, other: &Self) -> bool {
        let same = (self.offset, self.image, self.event, self.process, self.tid, self.slice, self.period)
            == (other.offset, other.image, other.event, other.process, other.tid, other.slice, other.period);
        add(same, &mut self.count, other.count)
    }
}

impl Counted for StackSample {
    fn absorb(&mut self, other: &Self) -> bool {
        let same = (self.stack, self.event, self.process, self.tid, self.slice, self.period)
            == (other.stack, other.event, other.process, other.tid, other.slice, other.period);
        add(same, &mut self.count, other.count)
    }
}

/// A sum beyond `u32` is left as two rows: nothing is counted twice or lost.
fn add(same: bool, count: &mut u32, more: u32) -> bool {
    match count.checked_add(more) {
        Some(sum) if same => {
            *count = sum;
            true
        }
        _ => false,
    }
}

/// Merges sorted runs into one sorted run without equal keys.
#[must_use]
pub fn merge_runs<T: Counted>(mut runs: Vec<Vec<T>>) -> Vec<T> {
    runs.retain(|r| !r.is_empty());
    merge_tree(runs)
}

/// Sorts rows and adds up equal ones.
#[must_use]
pub fn into_run<T: Counted>(mut rows: Vec<T>) -> Vec<T> {
    if !rows.is_sorted() {
        rows.sort_unstable();
    }
    rows.dedup_by(|later, kept| kept.absorb(later));
    rows
}

fn merge_tree<T: Counted>(mut runs: Vec<Vec<T>>) -> Vec<T> {
    match runs.len() {
        0 => Vec::new(),
        1 => runs.swap_remove(0),
        2 => merge_two(&runs[0], &runs[1]),
        n => {
            let right = runs.split_off(n / 2);
            let (a, b) = rayon::join(|| merge_tree(runs), || merge_tree(right));
            merge_two(&a, &b)
        }
    }
}

fn merge_two<T: Counted>(mut a: &[T], mut b: &[T]) -> Vec<T> {
    let mut out: Vec<T> = Vec::with_capacity(a.len() + b.len());
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        let next = if x <= y {
            a = &a[1..];
            *x
        } else {
            b = &b[1..];
            *y
        };
        push(&mut out, next);
    }
    for rest in a.iter().chain(b) {
        push(&mut out, *rest);
    }
    out
}

fn push<T: Counted>(out: &mut Vec<T>, row: T) {
    if !out.last_mut().is_some_and(|last| last.absorb(&row)) {
        out.push(row);
    }
}
