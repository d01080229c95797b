//! The socket of a session: `calls-PID.sock` in the user's runtime directory. One JSON line in, one out,
//! per connection. Both ends trust only the same user and root, read bounded amounts and wait a bounded
//! time: a session never waits for an asker (threads of their own talk), an asker not for a session that
//! hangs.

use super::wire::{self, Ask, Reply, Verb};
use crate::SessionError;
use rustix::net::sockopt::socket_peercred;
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an asker waits for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a session gives an asker to say what it wants.
const MANNERS: Duration = Duration::from_secs(2);
/// How long an asker may take to read its answer.
const READING: Duration = Duration::from_secs(20);
/// Longest question: many patterns.
const LONGEST_ASK: u64 = 1 << 20;
/// Longest answer: a hundred thousand paths over a thousand threads.
const LONGEST_REPLY: u64 = 1 << 30;
/// Conversations at a time.
const TALKS: usize = 16;

/// Tells the session that measures `pid` something.
///
/// # Errors
/// [`SessionError::NoCallSession`] when none answers, [`SessionError::Deaf`] when one does not answer in
/// time or says what cannot be read.
pub fn ask(runtime: &Path, pid: u32, verb: &Verb) -> Result<Reply, SessionError> {
    ask_within(runtime, pid, verb, PATIENCE)
}

fn ask_within(runtime: &Path, pid: u32, verb: &Verb, patience: Duration) -> Result<Reply, SessionError> {
    let none = || SessionError::NoCallSession { pid, running: sessions(runtime) };
    let stream = UnixStream::connect(socket_path(runtime, pid)).map_err(|_| none())?;
    if !is_trusted(&stream) {
        return Err(none());
    }
    exchange(&stream, verb, patience).map_err(|why| SessionError::Deaf { pid, why: why.to_string() })
}

/// Processes that are measured now by sessions of this user.
#[must_use]
pub fn sessions(runtime: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(runtime) else { return Vec::new() };
    let pid = |name: &str| name.strip_prefix("calls-")?.strip_suffix(".sock")?.parse().ok();
    let pids = entries.flatten().filter_map(|e| pid(e.file_name().to_str()?));
    let mut alive: Vec<u32> = pids.filter(|&pid| UnixStream::connect(socket_path(runtime, pid)).is_ok()).collect();
    alive.sort_unstable();
    alive
}

fn exchange(mut stream: &UnixStream, verb: &Verb, patience: Duration) -> io::Result<Reply> {
    stream.set_write_timeout(Some(patience))?;
    let mut line = serde_json::to_string(verb)?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    let text = read_line(stream, LONGEST_REPLY, patience)?;
    Ok(serde_json::from_str(&text)?)
}

/// Reads up to a newline, a limit, or a moment, whatever the other end does.
fn read_line(stream: &UnixStream, limit: u64, patience: Duration) -> io::Result<String> {
    let deadline = Instant::now() + patience;
    let mut reader = BufReader::with_capacity(1 << 16, stream.take(limit));
    let mut line = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(ErrorKind::TimedOut, format!("no answer within {} s", patience.as_secs())));
        }
        stream.set_read_timeout(Some(left))?;
        let (used, done) = match reader.fill_buf() {
            Ok([]) => (0, true),
            Ok(bytes) => match bytes.iter().position(|&b| b == b'\n') {
                Some(end) => {
                    line.extend_from_slice(&bytes[..end]);
                    (end + 1, true)
                }
                None => {
                    line.extend_from_slice(bytes);
                    (bytes.len(), false)
                }
            },
            Err(e) if e.kind() == ErrorKind::Interrupted => (0, false),
            // The next round tells that the time is over.
            Err(e) if e.kind() == ErrorKind::WouldBlock => (0, false),
            Err(e) => return Err(e),
        };
        reader.consume(used);
        if done {
            return String::from_utf8(line).map_err(|e| io::Error::new(ErrorKind::InvalidData, e));
        }
    }
}

fn socket_path(runtime: &Path, pid: u32) -> PathBuf {
    runtime.join(format!("calls-{pid}.sock"))
}

/// Same user, or root on the other end.
fn is_trusted(stream: &UnixStream) -> bool {
    let me = rustix::process::geteuid();
    socket_peercred(stream).is_ok_and(|peer| peer.uid == me || peer.uid.is_root() || me.is_root())
}

/// A session's end of the socket. Dropping it removes the socket.
#[derive(Debug)]
pub(super) struct Counter {
    path: PathBuf,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Counter {
    /// Listens; questions go to `desk`.
    ///
    /// # Errors
    /// [`SessionError::CallSessionRuns`] when another session measures the process,
    /// [`SessionError::Io`] when the directory cannot be made or is somebody else's.
    pub(super) fn open(runtime: &Path, pid: u32, desk: Sender<Ask>) -> Result<Self, SessionError> {
        let path = socket_path(runtime, pid);
        let io = |source| SessionError::Io { what: format!("cannot listen on {}", path.display()), source };
        own_directory(runtime).map_err(io)?;
        if UnixStream::connect(&path).is_ok() {
            return Err(SessionError::CallSessionRuns { pid });
        }
        // A socket that nobody answers is what a killed session left.
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(io(e)),
            _ => {}
        }
        sweep(runtime);
        let socket = UnixListener::bind(&path).map_err(io)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(io)?;
        let over = Arc::new(AtomicBool::new(false));
        let told = over.clone();
        let serve = move || serve(&socket, &told, &desk);
        let thread = std::thread::Builder::new().name("counter".into()).spawn(serve).map_err(io)?;
        Ok(Self { path, over, thread: Some(thread) })
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Wakes the thread out of accept; it then sees that it is over.
        if UnixStream::connect(&self.path).is_ok()
            && let Some(thread) = self.thread.take()
        {
            // It has nothing to tell.
            let _ = thread.join();
        }
        // At worst a dead socket stays, which the next session removes.
        let _ = fs::remove_file(&self.path);
    }
}

/// Takes away what killed sessions left of processes that have ended since: nobody will measure these and do it.
fn sweep(runtime: &Path) {
    let sockets = fs::read_dir(runtime).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in sockets {
        let name = path.file_name().and_then(|name| name.to_str());
        let pid = name.and_then(|name| name.strip_prefix("calls-")?.strip_suffix(".sock")?.parse::<u32>().ok());
        let ended = pid.is_some_and(|pid| !whither_kernel::proc::exists(pid));
        // One that is about to listen refuses as well, but its process lives.
        let refused = || UnixStream::connect(&path).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused);
        if ended && refused() {
            // Another session may have been quicker.
            let _ = fs::remove_file(&path);
        }
    }
}

/// Makes the directory, or sees to it that it is ours alone.
fn own_directory(dir: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => return Ok(()),
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
        Err(_) => {}
    }
    let meta = fs::symlink_metadata(dir)?;
    if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() {
        let why = format!("{} belongs to somebody else", dir.display());
        return Err(io::Error::new(ErrorKind::PermissionDenied, why));
    }
    if meta.mode() & 0o077 != 0 {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

fn serve(socket: &UnixListener, over: &AtomicBool, desk: &Sender<Ask>) {
    let talks = Arc::new(AtomicUsize::new(0));
    for stream in socket.incoming() {
        if over.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        if !is_trusted(&stream) || talks.load(Ordering::SeqCst) >= TALKS {
            continue;
        }
        let (desk, here) = (desk.clone(), talks.clone());
        talks.fetch_add(1, Ordering::SeqCst);
        let talk = move || {
            // A peer that goes away in the middle is its own problem.
            let _ = talk(&stream, &desk);
            here.fetch_sub(1, Ordering::SeqCst);
        };
        if std::thread::Builder::new().name("talk".into()).spawn(talk).is_err() {
            talks.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn talk(mut stream: &UnixStream, desk: &Sender<Ask>) -> io::Result<()> {
    let line = read_line(stream, LONGEST_ASK, MANNERS)?;
    let reply = match wire::verb_of(&line) {
        Ok(verb) => answer(verb, desk),
        Err(why) => Reply::No { why },
    };
    stream.set_write_timeout(Some(READING))?;
    let mut text = serde_json::to_vec(&reply)?;
    text.push(b'\n');
    stream.write_all(&text)
}

fn answer(verb: Verb, desk: &Sender<Ask>) -> Reply {
    let (answer, reply) = channel();
    let ended = || Reply::No { why: "the session is ending".into() };
    if desk.send(Ask { verb, answer }).is_err() {
        return ended();
    }
    reply.recv_timeout(PATIENCE).unwrap_or_else(|_| ended())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn a_verb_goes_in_and_its_reply_comes_out() {
        let (dir, (desk, asks)) = (dir(), channel());
        let runtime = dir.path().join("whither");
        let counter = Counter::open(&runtime, 42, desk).unwrap();
        let desk = std::thread::spawn(move || {
            let Ask { verb, answer } = asks.recv().unwrap();
            answer.send(Reply::Done { text: format!("{verb:?}") }).unwrap();
        });
        let reply = ask(&runtime, 42, &Verb::Callees { point: 7 }).unwrap();
        assert_eq!(reply, Reply::Done { text: "Callees { point: 7 }".into() });
        desk.join().unwrap();
        assert_eq!(sessions(&runtime), [42]);
        assert_eq!(fs::metadata(&runtime).unwrap().mode() & 0o777, 0o700);
        drop(counter);
        assert!(matches!(ask(&runtime, 42, &Verb::List), Err(SessionError::NoCallSession { pid: 42, .. })));
        assert!(!socket_path(&runtime, 42).exists());
    }

    #[test]
    fn one_session_per_process_and_a_dead_socket_is_none() {
        let (dir, (desk, _asks)) = (dir(), channel());
        drop(UnixListener::bind(socket_path(dir.path(), 5)).unwrap());
        let first = Counter::open(dir.path(), 5, desk.clone()).unwrap();
        assert!(matches!(Counter::open(dir.path(), 5, desk), Err(SessionError::CallSessionRuns { pid: 5 })));
        drop(first);
    }

    /// Numbers above the kernel's largest (`pid_max`, 4,194,304 at most) are no processes.
    #[test]
    fn sockets_that_killed_sessions_left_of_ended_processes_go_with_the_next_session() {
        let (dir, (desk, _asks)) = (dir(), channel());
        let [dead, deaf, lives] = [4_200_001, 4_200_002, std::process::id()].map(|pid| socket_path(dir.path(), pid));
        let other = dir.path().join("calls-x.sock");
        for path in [&dead, &lives, &other] {
            drop(UnixListener::bind(path).unwrap());
        }
        let _somebody = UnixListener::bind(&deaf).unwrap();
        let _counter = Counter::open(dir.path(), 5, desk).unwrap();
        assert_eq!([dead, deaf, lives, other].map(|path| path.exists()), [false, true, true, true]);
    }

    #[test]
    fn a_session_that_hangs_does_not_hang_the_asker() {
        let dir = dir();
        let _deaf = UnixListener::bind(socket_path(dir.path(), 6)).unwrap();
        let began = Instant::now();
        let error = ask_within(dir.path(), 6, &Verb::Show, Duration::from_millis(100)).unwrap_err();
        assert!(matches!(error, SessionError::Deaf { pid: 6, .. }), "{error}");
        assert!(began.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn nonsense_gets_a_sentence_and_silence_no_thread_for_ever() {
        let (dir, (desk, _asks)) = (dir(), channel());
        let _counter = Counter::open(dir.path(), 7, desk).unwrap();
        let mut stream = UnixStream::connect(socket_path(dir.path(), 7)).unwrap();
        stream.write_all(b"{\"verb\":\"fly\"}\n").unwrap();
        let text = read_line(&stream, 1 << 16, Duration::from_secs(5)).unwrap();
        assert!(text.contains("does not understand"), "{text}");
        // An asker that sends no newline is cut off at the limit.
        let mut long = UnixStream::connect(socket_path(dir.path(), 7)).unwrap();
        let sent = long.write_all(&vec![b'x'; 3 << 20]);
        let text = read_line(&long, 1 << 16, Duration::from_secs(5)).unwrap_or_default();
        assert!(sent.is_err() || text.contains("does not understand"), "{text}");
    }

    #[test]
    fn a_directory_open_to_others_is_closed_first() {
        let dir = dir();
        let open = dir.path().join("whither");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        own_directory(&open).unwrap();
        assert_eq!(fs::metadata(&open).unwrap().mode() & 0o777, 0o700);
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(own_directory(&file).is_err());
    }
}
