//! A collection that is looked at while it runs and never stored: what `whither top` shows. Collector
//! and books live on a thread of their own, because drawing must never delay a drain.

use crate::engine::{Engine, Part, Setup, note};
use crate::options::{RecordOptions, Scope};
use crate::{SessionError, symbols};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use whither_kernel::proc;
use whither_sample::Folding;
use whither_store::SymbolService;
use whither_store::model::Profile;

/// What the thread is asked for.
enum Ask {
    Part(Sender<Profile>),
    Symbols(Box<Profile>, Sender<SymbolService>),
}

/// A running live view. Dropping it stops sampling.
#[derive(Debug)]
pub struct Live {
    ask: Option<Sender<Ask>>,
    thread: Option<JoinHandle<()>>,
    notes: Vec<String>,
}

impl Live {
    /// Starts sampling a running system or processes.
    ///
    /// # Errors
    /// Why sampling could not be started.
    pub fn start(options: &RecordOptions) -> Result<Self, SessionError> {
        let (ask, asked) = channel();
        let (ready, readied) = channel();
        let options = options.clone();
        let thread = std::thread::Builder::new()
            .name("live".into())
            .spawn(move || match start(&options) {
                Ok(engine) => {
                    // The other end waits for exactly this; it cannot be gone.
                    let _ = ready.send(Ok(engine.notes.clone()));
                    serve(engine, &options, &asked);
                }
                Err(e) => {
                    let _ = ready.send(Err(e));
                }
            })
            .map_err(|source| SessionError::Io { what: "cannot start the collecting thread".into(), source })?;
        let notes = readied.recv().map_err(|_| gone())??;
        Ok(Self { ask: Some(ask), thread: Some(thread), notes })
    }

    /// What was sampled since the last call, with one description of the collection.
    ///
    /// # Errors
    /// When the collecting thread has died.
    pub fn poll(&self) -> Result<Profile, SessionError> {
        self.request(Ask::Part)
    }

    /// Names for a profile that [`Self::poll`] gave: also of code that exists only now.
    ///
    /// # Errors
    /// When the collecting thread has died.
    pub fn symbols(&self, profile: &Profile) -> Result<SymbolService, SessionError> {
        self.request(|reply| Ask::Symbols(Box::new(profile.clone()), reply))
    }

    /// Plain sentences about what is sampled.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Stops sampling.
    pub fn stop(self) {}

    fn request<T>(&self, make: impl FnOnce(Sender<T>) -> Ask) -> Result<T, SessionError> {
        let (reply, replied) = channel();
        let ask = self.ask.as_ref().ok_or_else(gone)?;
        ask.send(make(reply)).map_err(|_| gone())?;
        replied.recv().map_err(|_| gone())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.ask = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

fn gone() -> SessionError {
    let source = std::io::Error::other("its thread has ended");
    SessionError::Io { what: "the collector stopped".into(), source }
}

fn start(options: &RecordOptions) -> Result<Engine, SessionError> {
    let pids = match &options.scope {
        Scope::Pids(pids) => pids.clone(),
        _ => Vec::new(),
    };
    if let Some(&pid) = pids.iter().find(|&&p| !proc::exists(p)) {
        return Err(SessionError::NoSuchProcess(pid));
    }
    let setup = Setup { pids, folding: Folding::PerProcess, per_process: None, drain: Duration::from_secs(1) };
    Engine::start(options, setup)
}

fn serve(mut engine: Engine, options: &RecordOptions, asked: &Receiver<Ask>) {
    loop {
        match asked.recv_timeout(engine.pause()) {
            Ok(Ask::Part(reply)) => {
                engine.drain();
                let Part { mut profile, losses, window, happened } = engine.cut();
                let mut meta = engine.meta(options);
                (meta.losses, meta.start_ns, meta.end_ns) = (losses, window.0, window.1);
                note(&mut meta, &happened);
                profile.epochs = vec![meta];
                // Who asked may have given up meanwhile.
                let _ = reply.send(profile);
            }
            Ok(Ask::Symbols(profile, reply)) => {
                let _ = reply.send(symbols::service(&engine.book, &profile, false));
            }
            Err(RecvTimeoutError::Timeout) => {
                engine.tick();
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    engine.stop();
}
