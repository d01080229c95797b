//! What a wait status of a traced thread means. Pure: tested on words.

/// Something that happened to a traced thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It stands still because it was asked to.
    Stopped,
    /// It stands still because its process was stopped (job control), by this signal.
    GroupStop(i32),
    /// It is about to receive this signal, and stands still; resume with the signal to deliver it.
    Signal(i32),
    /// It stands at the begin or end of a system call.
    Syscall,
    /// It has executed another program, and stands before the program's first instruction. The former
    /// thread id is inside: the thread now has the process's id.
    Exec(u32),
    /// It has made a process or thread of this id, which is traced too.
    Child(u32),
    /// It has ended with this status.
    Exited(i32),
    /// It was ended by this signal.
    Killed(i32),
}

impl Event {
    /// Whether the thread stands still now.
    #[must_use]
    pub fn stands(self) -> bool {
        !matches!(self, Self::Exited(_) | Self::Killed(_))
    }
}

/// Takes a status word apart; `message` gives the event's message where one belongs to it.
#[must_use]
pub fn decode(status: i32, message: impl FnOnce() -> u64) -> Event {
    if libc::WIFEXITED(status) {
        return Event::Exited(libc::WEXITSTATUS(status));
    }
    if libc::WIFSIGNALED(status) {
        return Event::Killed(libc::WTERMSIG(status));
    }
    let signal = (status >> 8) & 0xff;
    match status >> 16 {
        libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Event::Stopped,
        libc::PTRACE_EVENT_STOP => Event::GroupStop(signal),
        libc::PTRACE_EVENT_EXEC => Event::Exec(message() as u32),
        libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => Event::Child(message() as u32),
        0 if signal == libc::SIGTRAP | 0x80 => Event::Syscall,
        0 => Event::Signal(signal),
        _ => Event::Stopped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_apart() {
        let stop = |signal: i32, event: i32| (event << 16) | (signal << 8) | 0x7f;
        let of = |status| decode(status, || 42);
        assert_eq!(of(stop(libc::SIGTRAP, 128)), Event::Stopped);
        assert_eq!(of(stop(libc::SIGTSTP, 128)), Event::GroupStop(libc::SIGTSTP));
        assert_eq!(of(stop(libc::SIGTRAP, 4)), Event::Exec(42));
        assert_eq!(of(stop(libc::SIGTRAP, 1)), Event::Child(42));
        assert_eq!(of(stop(libc::SIGTRAP, 0)), Event::Signal(libc::SIGTRAP));
        assert_eq!(of(stop(libc::SIGTRAP | 0x80, 0)), Event::Syscall);
        assert_eq!(of(stop(libc::SIGUSR1, 0)), Event::Signal(libc::SIGUSR1));
        assert_eq!(of(7 << 8), Event::Exited(7));
        assert_eq!(of(9), Event::Killed(9));
        assert!(of(stop(libc::SIGUSR1, 0)).stands() && !of(9).stands());
    }
}
