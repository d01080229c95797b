//! First claim on a CPU while the target waits for us: on a machine with more running threads than CPUs a
//! stop would otherwise last until the scheduler comes round to its controller, and short sleeps until it
//! has something else to do.

/// Raises this thread's priority until it is dropped; without the right to, nothing changes.
#[derive(Debug)]
pub(crate) struct Haste {
    before: i32,
    /// Nanoseconds that sleeps may take longer.
    slack: libc::c_int,
}

impl Haste {
    const MOST: i32 = -20;

    /// Begins to hurry.
    pub(crate) fn begin() -> Self {
        // SAFETY: takes plain numbers; 0 is the calling thread.
        let before = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        // SAFETY: takes plain numbers.
        let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
        set(Self::MOST);
        set_slack(1);
        Self { before, slack }
    }
}

/// Sleeps no longer than that, as far as the kernel's clock is concerned: else it may take 50 us more. Programs that are started meanwhile
/// would inherit it, so it is for the one sleep.
pub(crate) fn sleep_promptly(time: std::time::Duration) {
    // SAFETY: takes plain numbers.
    let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
    set_slack(1);
    std::thread::sleep(time);
    set_slack(slack.max(1));
}

impl Drop for Haste {
    fn drop(&mut self) {
        set(self.before);
        // 0 would mean the default.
        set_slack(self.slack.max(1));
    }
}

fn set(nice: i32) {
    // SAFETY: takes plain numbers; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

fn set_slack(nanoseconds: libc::c_int) {
    // SAFETY: takes plain numbers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, libc::c_ulong::from(nanoseconds.unsigned_abs())) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slack_is_given_back() {
        // SAFETY: takes plain numbers.
        let slack = || unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
        let before = slack();
        sleep_promptly(std::time::Duration::from_micros(1));
        assert_eq!(slack(), before);
    }

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
