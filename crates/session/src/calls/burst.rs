//! A look at the target's stacks in a thread of its own, so that the session goes on meanwhile. Nothing of the engine is
//! used there: it stays on its own thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::JoinHandle;
use whither_sample::burst::Stacks;

/// A look in progress; dropping it ends it.
pub(super) struct Burst {
    stacks: Receiver<Stacks>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Burst {
    /// Begins; `look` ends early when it is told to stop.
    pub(super) fn begin(look: impl FnOnce(&AtomicBool) -> Stacks + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, stacks) = channel();
        let told = Arc::clone(&stop);
        let looking = move || {
            // Whoever wanted it may be gone.
            let _ = tell.send(look(&told));
        };
        let thread = std::thread::Builder::new().name("stacks".into()).spawn(looking).ok();
        Self { stacks, stop, thread }
    }

    /// What was seen, once it is over.
    pub(super) fn done(&self) -> Option<Stacks> {
        match self.stacks.try_recv() {
            Ok(stacks) => Some(stacks),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Stacks { refused: Some("no thread could be had for it".into()), ..Stacks::default() })
            }
        }
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What went wrong there was told as stacks that are missing.
            let _ = thread.join();
        }
    }
}
