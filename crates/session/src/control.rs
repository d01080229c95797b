//! The daemon's control socket: one line of command in, a few lines of answer out. A Unix socket in
//! the database directory, one per host that shares it, readable by its owner only; no network.

use crate::SessionError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use whither_kernel::proc;
use whither_store::{DaemonFiles, Database};

/// What a daemon can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// How it does.
    Status {
        /// As one JSON object.
        json: bool,
    },
    /// Store what is collected now.
    Flush,
    /// End the current epoch and begin another.
    NewEpoch {
        /// Label of the new one; may be empty.
        label: String,
    },
    /// Name the epoch that it writes.
    Label {
        /// Name of the epoch's directory.
        epoch: String,
        /// Its label; may be empty.
        label: String,
    },
    /// End.
    Stop,
}

impl Control {
    /// Answer to [`Control::Label`] when it was done.
    pub const NAMED: &str = "named\n";
}

/// A daemon that hangs must not hang those who ask.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest command line.
const LONGEST: u64 = 4096;

/// Tells the daemon of a database something and returns its answer.
///
/// # Errors
/// [`SessionError::NoDaemon`] when none answers, [`SessionError::NotYourDaemon`].
pub fn control(db: &Path, command: &Control) -> Result<String, SessionError> {
    let ask = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(files(db).socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(encode(command).as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().map_err(|source| match source.kind() {
        std::io::ErrorKind::PermissionDenied => SessionError::NotYourDaemon { db: db.to_path_buf() },
        _ => SessionError::NoDaemon { db: db.to_path_buf(), source },
    })
}

fn files(db: &Path) -> DaemonFiles {
    Database::daemon_files(db, &proc::machine().host)
}

fn encode(command: &Control) -> String {
    match command {
        Control::Status { json: false } => "status\n".into(),
        Control::Status { json: true } => "status-json\n".into(),
        Control::Label { epoch, label } => format!("label {epoch} {}\n", label.replace('\n', " ")),
        Control::Flush => "flush\n".into(),
        Control::NewEpoch { label } => format!("epoch {}\n", label.replace('\n', " ")),
        Control::Stop => "stop\n".into(),
    }
}

fn decode(line: &str) -> Option<Control> {
    let line = line.trim_end();
    match line.split_once(' ').unwrap_or((line, "")) {
        ("status", "") => Some(Control::Status { json: false }),
        ("status-json", "") => Some(Control::Status { json: true }),
        ("flush", "") => Some(Control::Flush),
        ("stop", "") => Some(Control::Stop),
        ("label", rest) => {
            let (epoch, label) = rest.split_once(' ').unwrap_or((rest, ""));
            Some(Control::Label { epoch: epoch.into(), label: label.into() })
        }
        ("epoch", label) => Some(Control::NewEpoch { label: label.into() }),
        _ => None,
    }
}

/// The daemon's end. Dropping it removes the socket.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: UnixListener,
    path: PathBuf,
    /// Held as long as it is open: of two daemons that start at once one wins.
    _lock: File,
}

impl Listener {
    /// Listens in the database directory.
    ///
    /// # Errors
    /// [`SessionError::DaemonRuns`] when another daemon answers there.
    pub(crate) fn open(db: &Path) -> Result<Self, SessionError> {
        let DaemonFiles { socket: path, lock } = files(db);
        let io = |source| SessionError::Io { what: format!("cannot listen on {}", path.display()), source };
        let held = File::options().create(true).append(true).mode(0o600).open(&lock).map_err(io)?;
        if flock(&held, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(SessionError::DaemonRuns { db: db.to_path_buf() });
        }
        // A socket nobody answers is what a killed daemon left.
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(io(e)),
            _ => {}
        }
        let socket = UnixListener::bind(&path).map_err(io)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(io)?;
        socket.set_nonblocking(true).map_err(io)?;
        Ok(Self { socket, path, _lock: held })
    }

    /// Answers whoever is waiting.
    pub(crate) fn serve(&self, mut answer: impl FnMut(Control) -> String) {
        // Asked four times a second: accepting makes a socket before it finds that nobody is there.
        while self.somebody_waits()
            && let Ok((stream, _)) = self.socket.accept()
        {
            // A peer that goes away in the middle is its own problem.
            let _ = talk(stream, &mut answer);
        }
    }

    fn somebody_waits(&self) -> bool {
        let mut fd = [PollFd::new(&self.socket, PollFlags::IN)];
        poll(&mut fd, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

fn talk(stream: UnixStream, answer: &mut impl FnMut(Control) -> String) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    // Sampling must not wait for a peer that says nothing.
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    stream.set_write_timeout(Some(Duration::from_millis(200)))?;
    let mut line = String::new();
    BufReader::new((&stream).take(LONGEST)).read_line(&mut line)?;
    let reply = decode(&line).map_or_else(
        || "unknown command; there are status, status-json, flush, epoch [LABEL], label EPOCH [LABEL], stop\n".into(),
        answer,
    );
    (&stream).write_all(reply.as_bytes())
}

impl Drop for Listener {
    fn drop(&mut self) {
        // At worst a dead socket stays, which the next daemon removes.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_survive_the_wire() {
        let (text, json) = (Control::Status { json: false }, Control::Status { json: true });
        let label = |label: &str| Control::Label { epoch: "epoch=1".into(), label: label.into() };
        let epoch = Control::NewEpoch { label: "after fix".into() };
        for c in [text, json, Control::Flush, Control::Stop, epoch, label("a b"), label("")] {
            assert_eq!(decode(&encode(&c)), Some(c));
        }
        assert_eq!(decode("status now\n"), None);
        assert_eq!(
            decode(&encode(&Control::NewEpoch { label: String::new() })),
            Some(Control::NewEpoch { label: String::new() })
        );
    }

    #[test]
    fn one_daemon_per_database_and_a_dead_socket_is_no_daemon() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        assert!(matches!(control(dir.path(), &Control::Status { json: false }), Err(SessionError::NoDaemon { .. })));
        drop(UnixListener::bind(files(dir.path()).socket).expect("bind"));
        let listener = Listener::open(dir.path()).expect("replaces a dead socket");
        let db = dir.path().to_path_buf();
        let asker = std::thread::spawn(move || control(&db, &Control::Flush));
        while !asker.is_finished() {
            listener.serve(|c| format!("{c:?}"));
            std::thread::yield_now();
        }
        assert_eq!(asker.join().expect("no panic").expect("answered"), "Flush");
        assert!(matches!(Listener::open(dir.path()), Err(SessionError::DaemonRuns { .. })));
        drop(listener);
        assert!(!files(dir.path()).socket.exists());
        assert!(Listener::open(dir.path()).is_ok(), "the lock goes with its holder");
    }
}
