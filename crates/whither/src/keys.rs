//! What is typed at a live screen, and whether its terminal is still there. Constraint: where a terminal goes away the
//! library reads its end for ever, at full speed and past any time limit. So the waiting is done here, and it is asked only
//! right after the terminal was seen to be there.

use anyhow::Context;
use crossterm::event::{self, Event};
use ratatui::DefaultTerminal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// What came within a time.
pub(crate) enum Typed {
    /// A key, or another size of the terminal.
    Event(Event),
    Nothing,
    /// The terminal has been closed.
    Gone,
}

/// Gives the terminal back. One that has gone needs nothing: the library would complain of it, to it, and fail at that.
pub(crate) fn put_back(terminal: DefaultTerminal) {
    if ratatui::try_restore().is_err() {
        std::mem::forget(terminal);
    }
}

/// Where keys come from: standard input where that is a terminal, else the one that controls the process, as the library
/// has it.
pub(crate) struct Keys {
    terminal: Option<File>,
}

impl Keys {
    pub(crate) fn new() -> Self {
        let terminal = if io::stdin().is_terminal() { None } else { File::open("/dev/tty").ok() };
        Self { terminal }
    }

    /// Waits so long for something to be typed.
    ///
    /// # Errors
    /// The keyboard cannot be read.
    pub(crate) fn typed(&self, wait: Duration) -> anyhow::Result<Typed> {
        // What has been read already stands before what is still to come.
        for wait in [Duration::ZERO, wait] {
            if self.has_gone_within(wait) {
                return Ok(Typed::Gone);
            }
            if event::poll(Duration::ZERO).context("cannot read the keyboard")? {
                return Ok(Typed::Event(event::read().context("cannot read the keyboard")?));
            }
        }
        Ok(Typed::Nothing)
    }

    /// Waits so long, or until something can be read. A signal (another size of the terminal) ends it too.
    fn has_gone_within(&self, wait: Duration) -> bool {
        let stdin = io::stdin();
        let keyboard: BorrowedFd<'_> = self.terminal.as_ref().map_or_else(|| stdin.as_fd(), AsFd::as_fd);
        let mut fds = [PollFd::from_borrowed_fd(keyboard, PollFlags::IN)];
        let limit = Timespec::try_from(wait).ok();
        let ready = poll(&mut fds, limit.as_ref()).unwrap_or(0);
        ready > 0 && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
    }
}
