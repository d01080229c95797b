//! Starting a target so that collectors can be attached before its first instruction: the child
//! waits at a gate (a pipe) between fork and exec. The target starts with default signal
//! dispositions and an empty mask, no descriptor of ours, our standard streams.

use crate::KernelError;
use std::ffi::CString;
use std::io::{Error, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// A child that waits at the gate.
#[derive(Debug)]
pub struct Held {
    pid: u32,
    gate: OwnedFd,
    report: OwnedFd,
    command: String,
}

/// A child that runs.
#[derive(Debug)]
pub struct Running {
    pid: u32,
    done: Option<i32>,
}

/// Forks a child that will exec `command` when released.
///
/// # Errors
/// [`KernelError::Launch`] when words contain NUL or fork fails.
pub fn hold(command: &[String]) -> Result<Held, KernelError> {
    held(command, None)
}

/// As [`hold`], with a library that the program's loader puts before all others: the child finds it by a descriptor of
/// the same number. Environment and descriptor are the library's to clear up.
///
/// # Errors
/// As [`hold`].
pub fn hold_preloaded(command: &[String], library: BorrowedFd<'_>) -> Result<Held, KernelError> {
    held(command, Some(library))
}

/// What is different in the child's environment and descriptors.
struct Preload {
    variables: Vec<CString>,
    library: i32,
}

impl Preload {
    /// What the user has preloaded comes behind it.
    fn of(library: BorrowedFd<'_>) -> Self {
        const NAME: &str = "LD_PRELOAD";
        let library = library.as_raw_fd();
        let mut ours = format!("{NAME}=/proc/self/fd/{library}").into_bytes();
        let mut variables = Vec::new();
        for (name, value) in std::env::vars_os() {
            if name != NAME {
                let variable = [name.into_vec(), value.into_vec()].join(&b'=');
                variables.extend(CString::new(variable));
            } else if !value.is_empty() {
                ours.push(b':');
                ours.extend(value.into_vec());
            }
        }
        variables.extend(CString::new(ours));
        Self { variables, library }
    }
}

fn held(command: &[String], library: Option<BorrowedFd<'_>>) -> Result<Held, KernelError> {
    let name = command.first().cloned().unwrap_or_default();
    let fail = |source: Error| KernelError::Launch { command: name.clone(), source };
    let words: Result<Vec<CString>, _> =
        command.iter().map(|w| CString::new(std::ffi::OsStr::new(w).as_bytes())).collect();
    let words = words.map_err(|e| fail(Error::new(std::io::ErrorKind::InvalidInput, e)))?;
    if words.is_empty() {
        return Err(fail(Error::new(std::io::ErrorKind::InvalidInput, "no command given")));
    }
    // Known before anything is prepared, or replaced, for its sake.
    find_program(&name).map_err(fail)?;
    let (gate_in, gate) = pipe().map_err(fail)?;
    let (report, report_out) = pipe().map_err(fail)?;
    let mut argv: Vec<*const libc::c_char> = words.iter().map(|w| w.as_ptr()).collect();
    argv.push(std::ptr::null());
    let preload = library.map(Preload::of);
    let mut envp: Vec<*const libc::c_char> =
        preload.iter().flat_map(|p| &p.variables).map(|variable| variable.as_ptr()).collect();
    envp.push(std::ptr::null());
    let other = preload.as_ref().map(|p| (envp.as_slice(), p.library));
    // SAFETY: the child calls only async-signal-safe functions before exec or _exit, on memory
    // prepared above.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(fail(Error::last_os_error()));
    }
    if pid == 0 {
        child(&argv, other, gate_in.as_raw_fd(), gate.as_raw_fd(), report_out.as_raw_fd());
    }
    Ok(Held { pid: pid as u32, gate, report, command: name })
}

/// The file that `execvp` would execute.
///
/// # Errors
/// `ENOENT` where there is none, `EACCES` where it may not be executed.
pub fn find_program(name: &str) -> Result<PathBuf, Error> {
    let executable = |file: PathBuf| {
        rustix::fs::access(&file, rustix::fs::Access::EXEC_OK)?;
        if file.is_dir() { Err(Error::from_raw_os_error(libc::EACCES)) } else { Ok(file) }
    };
    if name.contains('/') {
        return executable(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut refused = Error::from_raw_os_error(libc::ENOENT);
    for directory in std::env::split_paths(&path) {
        match executable(directory.join(name)) {
            Ok(file) => return Ok(file),
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => refused = e,
            Err(_) => {}
        }
    }
    Err(refused)
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// Runs in the forked child; never returns. `other`: another environment than ours, and a descriptor that stays open.
fn child(
    argv: &[*const libc::c_char],
    other: Option<(&[*const libc::c_char], i32)>,
    gate_in: i32,
    gate: i32,
    report: i32,
) -> ! {
    let mut word = 0_u8;
    // First of all: a Ctrl-C while waiting must end the child, not run a handler of ours in it.
    fresh_signals();
    // SAFETY: a descriptor of ours; the write end is closed first so that the parent's death opens the
    // gate with end-of-file.
    unsafe { libc::close(gate) };
    // SAFETY: reads one byte into a local.
    let opened = unsafe { libc::read(gate_in, (&raw mut word).cast(), 1) };
    if opened != 1 {
        // SAFETY: ends this child only; no destructor may run in it.
        unsafe { libc::_exit(127) };
    }
    match other {
        Some((envp, kept)) => {
            // SAFETY: clears the flags of a descriptor of ours.
            unsafe { libc::fcntl(kept, libc::F_SETFD, 0) };
            // SAFETY: both lists are NUL-terminated and their strings live in the copied address space.
            unsafe { libc::execvpe(argv[0], argv.as_ptr(), envp.as_ptr()) };
        }
        None => {
            // SAFETY: `argv` is NUL-terminated and its strings live in the copied address space.
            unsafe { libc::execvp(argv[0], argv.as_ptr()) };
        }
    }
    let errno = Error::last_os_error().raw_os_error().unwrap_or(0).to_le_bytes();
    // SAFETY: writes four bytes of ours into our pipe.
    unsafe { libc::write(report, errno.as_ptr().cast(), errno.len()) };
    // SAFETY: ends this child only; no destructor may run in it.
    unsafe { libc::_exit(127) }
}

/// Signal state as a fresh program expects it: Rust ignores SIGPIPE, which would be inherited.
fn fresh_signals() {
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills the set; async-signal-safe.
    unsafe { libc::sigemptyset(none.as_mut_ptr()) };
    // SAFETY: the set was filled above; async-signal-safe.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut()) };
    for signal in [libc::SIGPIPE, libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD] {
        // SAFETY: sets a default disposition; async-signal-safe.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

impl Held {
    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Opens the gate and waits until the exec has happened or failed.
    ///
    /// # Errors
    /// [`KernelError::Launch`] with the reason of a failed exec; the child is then reaped.
    pub fn release(self) -> Result<Running, KernelError> {
        let fail = |source: Error| KernelError::Launch { command: self.command.clone(), source };
        rustix::io::write(&self.gate, &[1]).map_err(|e| fail(e.into()))?;
        let mut errno = Vec::new();
        let mut report = std::fs::File::from(self.report);
        report.read_to_end(&mut errno).map_err(fail)?;
        let mut running = Running { pid: self.pid, done: None };
        if let Ok(code) = <[u8; 4]>::try_from(errno.as_slice()) {
            running.wait();
            return Err(fail(Error::from_raw_os_error(i32::from_le_bytes(code))));
        }
        Ok(running)
    }
}

impl Running {
    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Status as a shell tells it (128+n for a signal), when the child has ended.
    pub fn poll(&mut self) -> Option<i32> {
        self.reap(libc::WNOHANG)
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> i32 {
        self.reap(0).unwrap_or(127)
    }

    fn reap(&mut self, flags: i32) -> Option<i32> {
        if self.done.is_some() {
            return self.done;
        }
        let mut status = 0;
        let got = loop {
            // SAFETY: waits for our own child; the status word outlives the call.
            let got = unsafe { libc::waitpid(self.pid as i32, &raw mut status, flags) };
            if got >= 0 || Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                break got;
            }
        };
        if got == self.pid as i32 {
            self.done =
                Some(if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) });
        } else if got < 0 {
            self.done = Some(127);
        }
        self.done
    }

    /// Passes on a signal that was sent to us, where it was to end us. Ctrl-C reaches the command by itself, as the
    /// terminal sends it to the whole group.
    pub fn pass_on(&self, signal: i32) {
        if matches!(signal, libc::SIGTERM | libc::SIGHUP) {
            self.signal(signal);
        }
    }

    /// Sends a signal, for passing on Ctrl-C to a target in another session. Errors are ignored: the
    /// target may be gone.
    pub fn signal(&self, signal: i32) {
        if self.done.is_none() {
            // SAFETY: our own child that has not been reaped, so the pid cannot be anybody else's.
            unsafe { libc::kill(self.pid as i32, signal) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str]) -> Result<i32, KernelError> {
        let words: Vec<String> = words.iter().map(|w| (*w).to_string()).collect();
        Ok(hold(&words)?.release()?.wait())
    }

    #[test]
    fn statuses_are_a_shells() {
        assert_eq!(run(&["true"]).expect("runs"), 0);
        assert_eq!(run(&["sh", "-c", "exit 7"]).expect("runs"), 7);
        assert_eq!(run(&["sh", "-c", "kill -9 $$"]).expect("runs"), 137);
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let e = run(&["/no/such/program"]).expect_err("must fail");
        assert_eq!(e.errno(), Some(libc::ENOENT));
        assert!(run(&[]).is_err());
    }

    #[test]
    fn the_child_waits_and_starts_clean() {
        let words = ["sh", "-c", "trap '' PIPE; kill -PIPE $$; exit 3"].map(String::from);
        let held = hold(&words).expect("forks");
        assert!(std::path::Path::new(&format!("/proc/{}", held.pid())).exists());
        assert_eq!(held.release().expect("runs").wait(), 3);
        // SIGPIPE must be back at its default: this shell dies of it.
        assert_eq!(run(&["sh", "-c", "kill -PIPE $$; exit 3"]).expect("runs"), 128 + libc::SIGPIPE);
    }

    #[test]
    fn a_library_to_be_preloaded_is_named_and_open() {
        let file = std::fs::File::open("/dev/null").expect("opens");
        let number = file.as_raw_fd();
        let script = format!("[ \"${{LD_PRELOAD%%:*}}\" = /proc/self/fd/{number} ] && [ -e /proc/self/fd/{number} ]");
        let words = ["sh".to_owned(), "-c".to_owned(), script];
        let preloaded = hold_preloaded(&words, std::os::fd::AsFd::as_fd(&file)).expect("forks");
        assert_eq!(preloaded.release().expect("runs").wait(), 0);
        assert_ne!(hold(&words).expect("forks").release().expect("runs").wait(), 0);
    }

    #[test]
    fn an_unreleased_child_ends_with_us() {
        let held = hold(&["true".to_string()]).expect("forks");
        let mut running = Running { pid: held.pid(), done: None };
        drop(held);
        assert_eq!(running.wait(), 127);
    }
}
