//! Merging of sorted runs of rows that add up when their keys are equal. Pure; the order of the
//! runs does not matter, so segments of any hosts can be merged in any grouping.
//!
//! Rows come in groups (one image, event, process, thread, slice) that are long in every run. The groups
//! are walked first; inside a group only positions are compared, in buffers that fit the cache.

use crate::model::{
    EdgeSample, EdgeSource, EventIx, ImageIx, ImageOffset, ProcessIx, Sample, StackIx, StackSample, Way,
};
use rayon::prelude::*;

/// More rows than this are merged by several threads; fewer are done before threads have started.
const PARALLEL_ROWS: usize = 200_000;

/// A row that is counted. Its order is by group, then by place, then by count.
pub trait Counted: Ord + Copy + Send + Sync {
    /// The leading part of the key, shared by long stretches of rows.
    type Group: Ord + Copy + Send + Sync;
    /// The rest of the key.
    type Place: Ord + Copy;
    /// The group.
    fn group(&self) -> Self::Group;
    /// The rest of the key.
    fn place(&self) -> Self::Place;
    /// Samples.
    fn count(&self) -> u32;
    /// The same row with another count.
    #[must_use]
    fn with_count(self, count: u32) -> Self;
}

impl Counted for Sample {
    type Group = (ImageIx, EventIx, ProcessIx, u32, u32);
    type Place = (u64, u64);

    fn group(&self) -> Self::Group {
        (self.image, self.event, self.process, self.tid, self.slice)
    }

    fn place(&self) -> (u64, u64) {
        (self.offset.0, self.period)
    }

    fn count(&self) -> u32 {
        self.count
    }

    fn with_count(self, count: u32) -> Self {
        Self { count, ..self }
    }
}

impl Counted for StackSample {
    type Group = (StackIx, EventIx, ProcessIx, u32);
    type Place = (u64, u64);

    fn group(&self) -> Self::Group {
        (self.stack, self.event, self.process, self.tid)
    }

    fn place(&self) -> (u64, u64) {
        (u64::from(self.slice), self.period)
    }

    fn count(&self) -> u32 {
        self.count
    }

    fn with_count(self, count: u32) -> Self {
        Self { count, ..self }
    }
}

impl Counted for EdgeSample {
    type Group = ImageIx;
    type Place = (ImageOffset, ImageOffset, Way, EdgeSource);

    fn group(&self) -> Self::Group {
        self.image
    }

    fn place(&self) -> Self::Place {
        (self.pc, self.branch, self.way, self.source)
    }

    fn count(&self) -> u32 {
        self.count
    }

    fn with_count(self, count: u32) -> Self {
        Self { count, ..self }
    }
}

/// Sorts rows and adds up equal ones. Counts whose sum exceeds `u32` stay two rows: nothing is
/// counted twice or lost.
#[must_use]
pub fn into_run<T: Counted>(mut rows: Vec<T>) -> Vec<T> {
    if !rows.is_sorted() {
        rows.sort_unstable();
    }
    rows.dedup_by(|later, kept| {
        let same = later.place() == kept.place() && later.group() == kept.group();
        let sum = kept.count().checked_add(later.count()).filter(|_| same);
        sum.is_some_and(|sum| {
            *kept = kept.with_count(sum);
            true
        })
    });
    rows
}

/// Merges runs, each as [`into_run`] gives it, into one.
#[must_use]
pub fn merge_runs<T: Counted>(mut runs: Vec<Vec<T>>) -> Vec<T> {
    runs.retain(|r| !r.is_empty());
    if runs.len() < 2 {
        return runs.pop().unwrap_or_default();
    }
    let slices: Vec<&[T]> = runs.iter().map(Vec::as_slice).collect();
    let total: usize = slices.iter().map(|s| s.len()).sum();
    let threads = rayon::current_num_threads();
    if total < PARALLEL_ROWS || threads < 2 {
        return merge_slices(slices, total);
    }
    let merged: Vec<Vec<T>> = split(slices, threads * 4)
        .into_par_iter()
        .map(|part| {
            let total = part.iter().map(|s| s.len()).sum();
            merge_slices(part, total)
        })
        .collect();
    merged.concat()
}

/// Cuts all runs at the same groups, into about `parts` parts.
fn split<T: Counted>(mut slices: Vec<&[T]>, parts: usize) -> Vec<Vec<&[T]>> {
    let longest = slices.iter().max_by_key(|s| s.len()).copied().unwrap_or_default();
    let mut cuts: Vec<T::Group> =
        (1..parts).filter_map(|i| longest.get(longest.len() * i / parts)).map(T::group).collect();
    cuts.dedup();
    let mut out = Vec::with_capacity(parts);
    for cut in cuts {
        let heads = slices.iter_mut().map(|rest| {
            let (head, tail) = rest.split_at(rest.partition_point(|row| row.group() < cut));
            *rest = tail;
            head
        });
        out.push(heads.collect());
    }
    out.push(slices);
    out
}

fn merge_slices<T: Counted>(mut heads: Vec<&[T]>, total: usize) -> Vec<T> {
    let mut out = Vec::with_capacity(total);
    let mut members: Vec<&[T]> = Vec::with_capacity(heads.len());
    heads.retain(|h| !h.is_empty());
    while let Some(group) = heads.iter().map(|h| h[0].group()).min() {
        members.clear();
        for head in heads.iter_mut().filter(|h| h[0].group() == group) {
            let (part, rest) = head.split_at(group_length(head, group));
            members.push(part);
            *head = rest;
        }
        heads.retain(|h| !h.is_empty());
        merge_group(&members, &mut out);
    }
    out
}

/// Rows of the first group, found in steps that double: groups are long or short.
fn group_length<T: Counted>(rows: &[T], group: T::Group) -> usize {
    let mut step = 8;
    while step < rows.len() && rows[step].group() == group {
        step *= 2;
    }
    let from = step / 2;
    let to = rows.len().min(step);
    if step == 8 {
        return rows[..to].partition_point(|row| row.group() == group);
    }
    from + rows[from..to].partition_point(|row| row.group() == group)
}

/// Appends the merge of slices of one group.
fn merge_group<T: Counted>(members: &[&[T]], out: &mut Vec<T>) {
    match members {
        [] => {}
        [one] => out.extend_from_slice(one),
        [a, b] => merge_two(a, b, out),
        _ => {
            let (left, right) = members.split_at(members.len() / 2);
            let rows = |part: &[&[T]]| part.iter().map(|m| m.len()).sum();
            let (mut a, mut b) = (Vec::with_capacity(rows(left)), Vec::with_capacity(rows(right)));
            merge_group(left, &mut a);
            merge_group(right, &mut b);
            merge_two(&a, &b, out);
        }
    }
}

fn merge_two<T: Counted>(a: &[T], b: &[T], out: &mut Vec<T>) {
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let (px, py) = (x.place(), y.place());
        // Which of two is smaller is a coin toss, so it is computed, not branched on.
        let (from_a, from_b) = (px <= py, py <= px);
        let mut next = *if from_a { x } else { y };
        let (mut step_a, step_b) = (from_a, from_b);
        if from_a && from_b {
            match x.count().checked_add(y.count()) {
                Some(sum) => next = next.with_count(sum),
                // Two rows of one key, as in a single run; the smaller count first.
                None if x <= y => {
                    out.push(*x);
                    out.push(*y);
                    (i, j) = (i + 1, j + 1);
                    continue;
                }
                None => {
                    next = *y;
                    step_a = false;
                }
            }
        }
        out.push(next);
        i += usize::from(step_a);
        j += usize::from(step_b);
    }
    out.extend_from_slice(&a[i.min(a.len())..]);
    out.extend_from_slice(&b[j.min(b.len())..]);
}

#[cfg(test)]
mod tests;
