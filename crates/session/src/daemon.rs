//! `whither daemon`: samples all the time into a database. Segments are sealed every few minutes,
//! epochs begin by the clock or by command, old ones are dropped by age and size. A crash loses the
//! unsealed interval; a restart goes on in the open epoch of the same boot.

use crate::SessionError;
use crate::control::{Control, Listener};
use crate::engine::{Engine, Part, Setup, note};
use crate::options::{DaemonOptions, Progress, RecordOptions};
use crate::stop::StopFlag;
use crate::symbols;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use whither_kernel::{clock, proc};
use whither_sample::Folding;
use whither_store::model::{Losses, Profile};
use whither_store::{Database, EpochWriter, RetentionPolicy, Selection, StoreError, StoredSymbols, load};

/// More rows than these are sealed early, so that memory stays bounded.
const ROWS: usize = 150_000;
/// A segment that could not be written is kept in memory and tried again, up to so many rows.
const HELD_ROWS: usize = 300_000;
/// Retention is looked at after each seal, and this often.
const TIDY: Duration = Duration::from_secs(600);

/// Runs until a stop is asked for, by signal, command or duration.
///
/// # Errors
/// Why it could not start. Once it runs it goes on through full disks and the like.
pub fn daemon(options: &DaemonOptions, stop: &StopFlag, on: &mut dyn FnMut(Progress)) -> Result<(), SessionError> {
    let db = Database::open_or_create(&options.db)?;
    let listener = Listener::open(&options.db)?;
    let per_process = options.per_process.as_deref().map(regex::Regex::new).transpose();
    let per_process = per_process.map_err(|e| SessionError::Io {
        what: "--per-process is not a regular expression".into(),
        source: std::io::Error::other(e),
    })?;
    let setup = Setup { pids: Vec::new(), folding: Folding::ByCommand, per_process, drain: options.drain };
    let record = options.record.clone();
    let engine = Engine::start(&record, setup)?;
    let writer = open_epoch(&db, &engine, &record)?;
    // A resumed epoch has names already; some of them exist nowhere else any more.
    let known = load(&[writer.path().to_path_buf()], &Selection::default());
    let names = known.map(|l| l.stored).unwrap_or_default();
    on(Progress::Started {
        events: engine.event_names(),
        hertz: engine.hertz(),
        backend: engine.backend().into(),
        notes: engine.notes.clone(),
    });
    let now = Instant::now();
    let mut run = Daemon {
        db,
        engine,
        writer,
        options,
        record,
        held: None,
        began: now,
        sealed: round(options.seal),
        epoch_began: now,
        tidied: None,
        samples: 0,
        lost: 0,
        untold: Losses::default(),
        names,
        gatherers: Vec::new(),
    };
    run.until(stop, &listener, on);
    run.end(on);
    Ok(())
}

/// Rounds of so long since 1970. Slices begin at multiples of their length; segments do, too, so that one
/// is not in two slices, which would keep what both have in common twice.
fn round(length: Duration) -> u64 {
    (u128::from(clock::wall_ns()) / length.as_nanos().max(1)) as u64
}

/// The open epoch of this boot, if a daemon was here before; else a new one.
fn open_epoch(db: &Database, engine: &Engine, record: &RecordOptions) -> Result<EpochWriter, SessionError> {
    let machine = proc::machine();
    let (epochs, _) = db.epochs()?;
    let open = epochs.iter().rev().find(|e| !e.sealed && e.host == machine.host);
    if let Some(epoch) = open
        && let Ok(writer) = db.open_epoch(&epoch.path)
    {
        if writer.meta().boot_id == machine.boot_id && writer.meta().slice_s == engine.meta(record).slice_s {
            return Ok(writer);
        }
        let end = writer.meta().end_ns;
        writer.seal(end)?;
    }
    Ok(new_epoch(db, engine, record, "")?)
}

fn new_epoch(db: &Database, engine: &Engine, record: &RecordOptions, label: &str) -> Result<EpochWriter, StoreError> {
    let mut meta = engine.meta(record);
    meta.start_ns = clock::wall_ns();
    meta.folded = true;
    meta.label = label.to_string();
    db.new_epoch(meta)
}

struct Daemon<'a> {
    db: Database,
    engine: Engine,
    writer: EpochWriter,
    options: &'a DaemonOptions,
    record: RecordOptions,
    /// Rows of a segment that could not be written yet.
    held: Option<Part>,
    began: Instant,
    /// The round of sealing that the last segment was written in.
    sealed: u64,
    epoch_began: Instant,
    tidied: Option<Instant>,
    samples: u64,
    lost: u64,
    /// Losses that the epoch's account does not have yet: the disk was full then, too.
    untold: Losses,
    /// Names that exist only on this machine now, of functions sampled in this epoch.
    names: StoredSymbols,
    /// Processes that store symbols of closed epochs.
    gatherers: Vec<Child>,
}

impl Daemon<'_> {
    fn until(&mut self, stop: &StopFlag, listener: &Listener, on: &mut dyn FnMut(Progress)) {
        let deadline = self.options.duration.map(|d| self.began + d);
        while !stop.is_set() && deadline.is_none_or(|d| Instant::now() < d) {
            self.engine.sleep(Duration::MAX);
            if let Some(hertz) = self.engine.tick() {
                on(Progress::Rate { hertz });
            }
            if self.sealed != round(self.options.seal) || self.engine.exceeds(ROWS) {
                self.seal(on);
            }
            if self.epoch_began.elapsed() >= self.options.epoch {
                self.turn_epoch("", on);
            }
            if self.tidied.is_none_or(|t| t.elapsed() >= TIDY) {
                self.tidy(on);
            }
            let before = self.gatherers.len();
            self.gatherers.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            if self.gatherers.len() < before {
                // The epoch has grown by its names and code.
                self.tidied = None;
            }
            listener.serve(|command| self.obey(&command, stop, on));
        }
    }

    fn obey(&mut self, command: &Control, stop: &StopFlag, on: &mut dyn FnMut(Progress)) -> String {
        match command {
            Control::Status { json: true } => self.status().json(),
            Control::Status { json: false } => self.status().text(),
            Control::Label { epoch, label } => self.label(epoch, label),
            Control::Flush => {
                self.seal(on);
                match &self.held {
                    None => format!("stored; {} samples so far\n", self.samples),
                    Some(_) => "could not be stored (see the daemon's log); kept in memory\n".into(),
                }
            }
            Control::NewEpoch { label } => {
                let before = self.writer.path().to_path_buf();
                self.turn_epoch(label, on);
                match self.writer.path() {
                    path if path == before => "no new epoch could be begun (see the daemon's log)\n".into(),
                    path => format!("new epoch {}\n", path.display()),
                }
            }
            Control::Stop => {
                stop.request();
                "stopping\n".into()
            }
        }
    }

    fn status(&self) -> Status {
        let cost = self.engine.cost((0, 0));
        let (rows, waiting) = self.engine.waiting();
        Status {
            schema: "whither.daemon/1",
            events: self.engine.event_names(),
            backend: self.engine.backend().into(),
            hertz: self.engine.hertz(),
            seconds: self.began.elapsed().as_secs(),
            cost: cost.share,
            sample_ns: cost.interrupt_ns,
            stored: self.samples,
            waiting,
            waiting_rows: rows as u64,
            lost: self.lost,
            epoch: self.writer.path().to_path_buf(),
        }
    }

    /// Names the epoch that is being written, which only its writer may.
    fn label(&mut self, epoch: &str, label: &str) -> String {
        if self.writer.path().file_name().is_none_or(|name| name != epoch) {
            return format!("the daemon writes {}, not {epoch}\n", self.writer.path().display());
        }
        match self.writer.update_meta(|m| label.clone_into(&mut m.label)) {
            Ok(()) => Control::NAMED.into(),
            Err(e) => format!("could not be named: {e}\n"),
        }
    }

    /// Writes what was collected since the last time as a segment.
    fn seal(&mut self, on: &mut dyn FnMut(Progress)) {
        self.sealed = round(self.options.seal);
        if let Some(part) = self.held.take() {
            self.write(part, on);
        }
        self.engine.drain();
        let part = self.engine.cut();
        self.write(part, on);
    }

    fn write(&mut self, part: Part, on: &mut dyn FnMut(Progress)) {
        let samples = count(&part.profile);
        match self.writer.append(&part.profile, part.window) {
            Ok(info) => {
                self.samples += samples;
                self.tidied = None;
                self.describe(&part.losses, &part.happened, part.window.1, on);
                self.keep_names(&part.profile, on);
                on(Progress::Sealed { rows: info.rows, bytes: info.bytes });
            }
            Err(e) => self.hold(part, samples, &e, on),
        }
    }

    /// Keeps rows that cannot be written, as long as memory stays bounded: a full disk may be
    /// mended before the next try.
    fn hold(&mut self, part: Part, samples: u64, e: &StoreError, on: &mut dyn FnMut(Progress)) {
        if self.held.is_none() && part.profile.samples.len() <= HELD_ROWS {
            on(Progress::Warning(format!("a segment could not be written and will be tried again: {e}")));
            self.held = Some(part);
        } else {
            self.lost += samples;
            on(Progress::Warning(format!("{samples} samples are lost: {e}")));
            let losses = Losses { unwritten: samples, ..part.losses };
            self.describe(&losses, &part.happened, part.window.1, on);
        }
    }

    fn describe(&mut self, losses: &Losses, happened: &[String], end: u64, on: &mut dyn FnMut(Progress)) {
        let cost = self.engine.cost((0, 0));
        self.untold.add(losses);
        let untold = self.untold.clone();
        let done = self.writer.update_meta(|m| {
            m.losses.add(&untold);
            note(m, happened);
            m.cost = cost;
            m.end_ns = end;
        });
        match done {
            Ok(()) => self.untold = Losses::default(),
            Err(e) => on(Progress::Warning(format!("the account of the epoch could not be written: {e}"))),
        }
    }

    /// Keeps an open epoch readable: names of the kernel and of code made at run time.
    fn keep_names(&mut self, part: &Profile, on: &mut dyn FnMut(Progress)) {
        let before = self.names.funcs.len();
        self.names.merge(symbols::local_names(&self.engine.book, part));
        self.engine.book.let_go();
        if self.names.funcs.len() == before {
            return;
        }
        if let Err(e) = self.writer.put_symbols(&self.names) {
            on(Progress::Warning(format!("names of sampled functions could not be stored: {e}")));
        }
    }

    fn turn_epoch(&mut self, label: &str, on: &mut dyn FnMut(Progress)) {
        // First, so that a disk in trouble is not tried again at every tick.
        self.epoch_began = Instant::now();
        self.seal(on);
        if self.held.is_some() {
            on(Progress::Warning("the epoch goes on: its last segment is not written yet".into()));
            return;
        }
        match new_epoch(&self.db, &self.engine, &self.record, label) {
            Ok(next) => {
                let old = std::mem::replace(&mut self.writer, next);
                let path = old.path().to_path_buf();
                if let Err(e) = old.seal(clock::wall_ns()) {
                    on(Progress::Warning(format!("the epoch could not be closed: {e}")));
                }
                self.gather(&path, on);
                self.names = StoredSymbols::default();
            }
            // The old epoch goes on; the next turn tries again.
            Err(e) => on(Progress::Warning(format!("no new epoch could be made: {e}"))),
        }
    }

    /// Has names, code and lines of an epoch stored by a process of its own: reading symbols of big
    /// files takes memory that a sampler for weeks must not keep.
    fn gather(&mut self, epoch: &Path, on: &mut dyn FnMut(Progress)) {
        if !self.record.store_code {
            return;
        }
        let started = std::env::current_exe().and_then(|exe| {
            Command::new(exe)
                .args(["--quiet", "db", "symbols"])
                .arg(epoch)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
        });
        match started {
            Ok(child) => self.gatherers.push(child),
            Err(e) => on(Progress::Warning(format!("names of sampled functions are not stored: {e}"))),
        }
    }

    fn tidy(&mut self, on: &mut dyn FnMut(Progress)) {
        self.tidied = Some(Instant::now());
        if self.options.keep.is_none() && self.options.max_disk.is_none() {
            return;
        }
        let policy = RetentionPolicy { max_age: self.options.keep, max_bytes: self.options.max_disk };
        match self.db.gc(policy, clock::wall_ns()) {
            Ok(report) => {
                if !report.dropped.is_empty() {
                    on(Progress::Warning(format!(
                        "dropped {} epochs or segments by age or size",
                        report.dropped.len()
                    )));
                }
            }
            Err(e) => on(Progress::Warning(format!("old epochs could not be dropped: {e}"))),
        }
    }

    fn end(mut self, on: &mut dyn FnMut(Progress)) {
        self.engine.stop();
        self.seal(on);
        on(Progress::Finishing);
        // The epoch is left open: a restart within the same boot goes on in it.
        let path = self.writer.path().to_path_buf();
        self.gather(&path, on);
        for mut child in self.gatherers.drain(..) {
            if !child.wait().is_ok_and(|status| status.success()) {
                on(Progress::Warning("names of sampled functions could not be stored".into()));
            }
        }
    }
}

/// What a daemon tells of itself.
#[derive(Debug, serde::Serialize)]
struct Status {
    schema: &'static str,
    events: Vec<String>,
    backend: String,
    /// Per CPU.
    hertz: f64,
    /// Since it started.
    seconds: u64,
    /// Share of the time of what is recorded, 0 to 1 (`OwnCost::share`).
    cost: f64,
    /// Time that one sample takes.
    sample_ns: f64,
    stored: u64,
    waiting: u64,
    waiting_rows: u64,
    lost: u64,
    epoch: PathBuf,
}

impl Status {
    fn json(&self) -> String {
        serde_json::to_string(self).map_or_else(|e| format!("{e}\n"), |text| text + "\n")
    }

    fn text(&self) -> String {
        let Self { backend, hertz, seconds, stored, waiting, waiting_rows: rows, lost, .. } = self;
        format!(
            "sampling {} by {backend} at {hertz:.0} Hz per CPU for {seconds} s\nown cost {:.2} % of the time of what is recorded, one sample takes \
             {:.2} us\n{stored} samples stored, {waiting} in {rows} rows waiting, {lost} lost\nepoch {}\n",
            self.events.join(", "),
            self.cost * 100.0,
            self.sample_ns / 1000.0,
            self.epoch.display(),
        )
    }
}

fn count(profile: &Profile) -> u64 {
    profile.samples.iter().map(|s| u64::from(s.count)).sum()
}
