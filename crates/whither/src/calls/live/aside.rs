//! Standard streams of a command that runs below a screen: its input is empty, its output goes into a
//! file without a name and is shown when the screen has been left. A launched command inherits our own
//! streams, so these are exchanged around the launch.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Our own streams, while those of the command stand in their places.
pub(super) struct Aside {
    own: [OwnedFd; 3],
    output: File,
}

/// What the command wrote.
pub(super) struct Output(File);

impl Aside {
    /// Exchanges the streams.
    ///
    /// # Errors
    /// The file cannot be made.
    pub(super) fn begin() -> io::Result<Self> {
        let own = [
            io::stdin().as_fd().try_clone_to_owned()?,
            io::stdout().as_fd().try_clone_to_owned()?,
            io::stderr().as_fd().try_clone_to_owned()?,
        ];
        let output = nameless()?;
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        rustix::stdio::dup2_stdout(&output)?;
        rustix::stdio::dup2_stderr(&output)?;
        Ok(Self { own, output })
    }

    /// Takes our own back.
    ///
    /// # Errors
    /// As the kernel says.
    pub(super) fn end(self) -> io::Result<Output> {
        let [stdin, stdout, stderr] = &self.own;
        rustix::stdio::dup2_stdin(stdin)?;
        rustix::stdio::dup2_stdout(stdout)?;
        rustix::stdio::dup2_stderr(stderr)?;
        Ok(Output(self.output))
    }
}

impl Output {
    /// Copies everything to stdout.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub(super) fn show(mut self) -> io::Result<()> {
        self.0.seek(SeekFrom::Start(0))?;
        io::copy(&mut self.0, &mut io::stdout().lock()).map(drop)
    }
}

/// A file that vanishes with its last descriptor. Appending, so that both streams keep their order.
fn nameless() -> io::Result<File> {
    let path = std::env::temp_dir().join(format!("whither-output-{}", std::process::id()));
    let file = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
