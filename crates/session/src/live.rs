//! A collection that is looked at while it runs and never stored: what `whither top` shows. Collector
//! and books live on a thread of their own, because drawing must never delay a drain.

use crate::engine::{Engine, Part, Setup, note};
use crate::options::{RecordOptions, Scope};
use crate::{SessionError, symbols};
use rustc_hash::FxHashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use whither_image::{ImageId, ImageKind};
use whither_kernel::proc;
use whither_sample::{Book, Folding};
use whither_store::model::Profile;
use whither_store::{StoredSymbols, SymbolOptions, SymbolService};

/// What the thread is asked for.
enum Ask {
    Part(Sender<Profile>),
    Symbols(Box<Profile>, Box<Option<SymbolService>>, Sender<SymbolService>),
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

    /// Names for a profile that [`Self::poll`] gave: also of code that exists only now. `before` is what the last call
    /// gave: reading symbol tables anew for every picture would cost more than all sampling.
    ///
    /// # Errors
    /// When the collecting thread has died.
    pub fn symbols(&self, profile: &Profile, before: Option<SymbolService>) -> Result<SymbolService, SessionError> {
        self.request(|reply| Ask::Symbols(Box::new(profile.clone()), Box::new(before), reply))
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

/// Names of code made at run time are read again after this.
const MAP_AGE: Duration = Duration::from_secs(5);

/// Images whose names only this machine knows and a service has been told, and when.
#[derive(Debug, Default)]
struct Learned(FxHashMap<ImageId, Instant>);

impl Learned {
    /// Tells a service the names of such images of a profile that it does not know yet.
    fn extend(&mut self, service: &mut SymbolService, book: &Book, profile: &Profile) {
        let now = Instant::now();
        for image in &profile.images {
            let stale = |at: &Instant| image.kind == ImageKind::Jit && now - *at >= MAP_AGE;
            if self.0.get(&image.id).is_none_or(stale) {
                self.0.insert(image.id, now);
                if let Some(funcs) = symbols::local_functions(book, image) {
                    service.learn(image.id, funcs);
                }
            }
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
    let mut learned = Learned::default();
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
            Ok(Ask::Symbols(profile, before, reply)) => {
                let mut service = before.unwrap_or_else(|| {
                    learned = Learned::default();
                    let options = SymbolOptions { cache_dir: options.cache_dir.clone(), ..SymbolOptions::default() };
                    SymbolService::new(options, StoredSymbols::default())
                });
                learned.extend(&mut service, &engine.book, &profile);
                let _ = reply.send(service);
            }
            Err(RecvTimeoutError::Timeout) => {
                engine.tick();
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    engine.stop();
}
