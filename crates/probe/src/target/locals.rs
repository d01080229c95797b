//! What a thread's libraries keep for it, around a call that is given up: the C library puts addresses of a
//! called function's stack there (where errors of the loader are caught), which must not outlive the call.
//! Known by their values, not by their places, which differ between versions.

use super::safe::words;
use std::ops::Range;
use whither_kernel::memory::Memory;

const PAGE: u64 = 4096;
/// Pages in front of the thread pointer: thread-local storage of the libraries loaded at start.
const BEFORE: u64 = 4;
/// Pages from there on: the C library's own description of the thread.
const BEHIND: u64 = 2;

/// The words around a thread pointer.
#[derive(Debug)]
pub(super) struct Locals {
    pages: Vec<(u64, Vec<u8>)>,
}

impl Locals {
    /// Keeps them. A program without thread pointer has none.
    pub(super) fn keep(memory: &Memory, thread_pointer: u64) -> Self {
        let page = thread_pointer & !(PAGE - 1);
        let first = page.saturating_sub(BEFORE * PAGE);
        let all = (0..BEFORE + BEHIND).map(|n| first + n * PAGE).filter(|_| thread_pointer != 0);
        Self { pages: all.filter_map(|at| Some((at, read(memory, at)?))).collect() }
    }

    /// Gives those words back their values that now lead to `stack`.
    pub(super) fn forget(&self, memory: &Memory, stack: Range<u64>) {
        for (at, before) in &self.pages {
            let Some(now) = read(memory, *at) else { continue };
            for (n, (now, before)) in words(&now).zip(words(before)).enumerate() {
                if stack.contains(&now) && !stack.contains(&before) {
                    // The process is gone otherwise.
                    let _ = memory.set_word(at + 8 * n as u64, before);
                }
            }
        }
    }
}

fn read(memory: &Memory, at: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; PAGE as usize];
    memory.read(at, &mut bytes).is_ok().then_some(bytes)
}
