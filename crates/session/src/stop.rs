//! The one way a user ends a session: a flag set by a signal handler or a control command.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};

/// Shared wish to stop. The first request asks for a tidy end that keeps the data, the second to
/// leave at once.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<Wish>);

#[derive(Debug, Default)]
struct Wish {
    times: AtomicU8,
    /// The first signal that asked for it, 0 without one.
    signal: AtomicI32,
    /// The session is over, and what it has measured is kept.
    over: AtomicBool,
}

impl StopFlag {
    /// Asks to stop because of a signal; returns how often a stop was asked for.
    pub fn request_by(&self, signal: i32) -> u8 {
        // A later signal does not change why the session ends.
        let _ = self.0.signal.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
        self.request()
    }

    /// The signal that asked first.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        Some(self.0.signal.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
    }

    /// Asks to stop; returns how often that was asked.
    pub fn request(&self) -> u8 {
        self.0
            .times
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| Some(n.saturating_add(1)))
            .map_or(u8::MAX, |n| n.saturating_add(1))
    }

    /// How often a stop was asked for.
    #[must_use]
    pub fn requests(&self) -> u8 {
        self.0.times.load(Ordering::SeqCst)
    }

    /// Nothing is left to be ended tidily: whoever asks once more gets an end at once.
    pub fn set_over(&self) {
        self.0.over.store(true, Ordering::SeqCst);
    }

    /// Whether a request is to end everything at once.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.over.load(Ordering::SeqCst)
    }

    /// Whether a stop was asked for.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.times.load(Ordering::SeqCst) > 0
    }

    /// How a command that still runs can be left running by whoever waits for its end. Ctrl-C is no way: a terminal sends it to all that
    /// runs in its foreground.
    #[must_use]
    pub fn way_out(&self) -> String {
        let times = if self.is_set() { "once more" } else { "twice" };
        format!("Ctrl-C is sent to the command, too; `kill -INT {}` {times} leaves it running", std::process::id())
    }

    /// Whether it was asked for twice.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.0.times.load(Ordering::SeqCst) > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_a_session_is_over_every_request_is_the_last() {
        let flag = StopFlag::default();
        assert_eq!((flag.request_by(15), flag.is_over(), flag.requests()), (1, false, 1));
        flag.clone().set_over();
        assert!(flag.is_over() && flag.is_set() && !flag.is_urgent());
    }
}
