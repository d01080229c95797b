//! Where threads wait, as the kernel tells it of those that are in a system call: nobody is stopped for it.

use crate::proc::read_text;

/// Where a thread that waits in the kernel left user code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// What it asked for, as the kernel tells it: number and arguments of the call.
    pub call: String,
    /// Stack pointer.
    pub sp: u64,
    /// Program counter.
    pub ip: u64,
}

/// Where a thread waits; `None` when it runs, or it is not told. The thread goes on undisturbed.
#[must_use]
pub fn waiting_at(pid: u32, tid: u32) -> Option<Waiting> {
    parse_waiting(&read_text(format!("/proc/{pid}/task/{tid}/syscall")).ok()?)
}

/// Of `35 0x7ffe 0x0 0x0 0x0 0x0 0x0 0x7ffd28 0x7f12a4` the last two, of `running` nothing.
fn parse_waiting(line: &str) -> Option<Waiting> {
    let (rest, ip) = line.trim_end().rsplit_once(' ')?;
    let (call, sp) = rest.rsplit_once(' ')?;
    let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    Some(Waiting { call: call.to_owned(), sp: hex(sp)?, ip: hex(ip)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_words_are_where_it_waits() {
        let at = parse_waiting("35 0x7ffe 0x0 0x0 0x0 0x0 0x0 0x7ffd28 0x7f12a4\n").unwrap();
        assert_eq!((at.call.as_str(), at.sp, at.ip), ("35 0x7ffe 0x0 0x0 0x0 0x0 0x0", 0x7f_fd28, 0x7f_12a4));
        assert_eq!(parse_waiting("-1 0x7ffd28 0x7f12a4").unwrap().ip, 0x7f_12a4, "not in a call");
        for none in ["running\n", "", "-1 0x7ffd28 12", "0x1 0x2"] {
            assert_eq!(parse_waiting(none), None, "{none}");
        }
    }

    #[test]
    fn a_thread_of_ours_is_found_where_it_waits() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let waiter = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            ended.recv()
        });
        let (pid, tid) = (std::process::id(), told.recv().unwrap());
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        let place = loop {
            if let Some(place) = waiting_at(pid, tid).filter(|p| !p.call.starts_with('-')) {
                break place;
            }
            assert!(std::time::Instant::now() < deadline, "it never waits");
        };
        assert!(crate::proc::executable_mappings(pid).iter().any(|m| (m.start..m.end).contains(&place.ip)));
        drop(end);
        let _ = waiter.join();
        assert_eq!(waiting_at(pid, tid), None, "it is gone");
    }
}
