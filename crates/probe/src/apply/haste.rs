//! First claim on a CPU while the target waits for us: on a machine with more running threads than CPUs a
//! stop would otherwise last until the scheduler comes round to its controller.

/// Raises this thread's priority until it is dropped; without the right to, nothing changes.
#[derive(Debug)]
pub(crate) struct Haste {
    before: i32,
}

impl Haste {
    const MOST: i32 = -20;

    /// Begins to hurry.
    pub(crate) fn begin() -> Self {
        // SAFETY: takes plain numbers; 0 is the calling thread.
        let before = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        set(Self::MOST);
        Self { before }
    }
}

impl Drop for Haste {
    fn drop(&mut self) {
        set(self.before);
    }
}

fn set(nice: i32) {
    // SAFETY: takes plain numbers; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_is_given_back() {
        // SAFETY: takes plain numbers.
        let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = nice();
        let haste = Haste::begin();
        assert!(nice() == Haste::MOST || nice() == before);
        drop(haste);
        assert_eq!(nice(), before);
    }
}
