//! The one way a user ends a session: a flag set by a signal handler or a control command.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Shared wish to stop. The first request asks for a tidy end that keeps the data, the second to
/// leave at once.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicU8>);

impl StopFlag {
    /// Asks to stop; returns how often that was asked.
    pub fn request(&self) -> u8 {
        self.0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| Some(n.saturating_add(1)))
            .map_or(u8::MAX, |n| n.saturating_add(1))
    }

    /// Whether a stop was asked for.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    /// Whether it was asked for twice.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 1
    }
}
