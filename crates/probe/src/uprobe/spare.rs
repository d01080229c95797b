//! What programs of a tree, one after the other, would each wait for: the kernel takes a tenth of a second to check the
//! program for the next one, and tens of milliseconds to let go of each breakpoint. Both are done aside. Constraint:
//! only from the second program on, as most sessions have one.

use super::Uprobes;
use libbpf_rs::Link;
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

struct Spare {
    /// Programs wanted so far.
    wanted: u32,
    /// Loaded, or being so, with so many rows.
    next: Option<(usize, JoinHandle<Option<Uprobes>>)>,
}

static SPARE: Mutex<Spare> = Mutex::new(Spare { wanted: 0, next: None });

/// The one loaded beforehand, if it is as large as wanted.
pub(super) fn take(rows: usize) -> Option<Uprobes> {
    let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    spare.wanted += 1;
    let (_, next) = spare.next.take_if(|(size, _)| *size == rows)?;
    drop(spare);
    next.join().ok().flatten()
}

/// Loads another one of that size, if more are to be expected.
pub(super) fn prepare(rows: usize) {
    let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    if spare.wanted >= 2 && spare.next.is_none() {
        let made = Builder::new().spawn(move || Uprobes::load(rows).ok());
        spare.next = made.ok().map(|thread| (rows, thread));
    }
}

/// Closes links without waiting for the kernel.
pub(super) fn let_go(links: Vec<Link>) {
    if !links.is_empty() {
        // Without a thread they are closed here.
        let _ = Builder::new().spawn(move || drop(links));
    }
}
