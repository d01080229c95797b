//! What a controller that was killed left of a thread it had borrowed: the detour in the text, the stack and the
//! code for its calls, descriptors. Lives here: finding it and taking it away before another controller begins.
//! Constraints: the thread may still be on its way home, which must be waited for; memory is unmapped only where
//! the detour says so and /proc/PID/maps shows exactly what would be there.

use super::detour::{self, Left};
use super::home::{PAD_PAGE, STACK};
use super::inject;
use super::leave::inside;
use super::maps::{self, Map};
use super::remote::Caller;
use super::stop::Stopped;
use crate::ProbeError;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use whither_kernel::memory::Memory;

/// How long a call begun by a killed controller may go on. On a busy machine it may not get its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// Takes away what killed controllers left of borrowed threads; nothing happens where none did.
///
/// # Errors
/// When the process cannot be stopped, or a call that was begun does not come to its end.
pub fn heal(pid: u32) -> Result<(), ProbeError> {
    // Whoever comes next says why it cannot be opened.
    let Ok(memory) = Memory::open(pid) else { return Ok(()) };
    let maps = maps::read(pid);
    let left = detour::left(&memory, &maps);
    if left.is_empty() {
        return Ok(());
    }
    wait_for_return(pid, &left)?;
    // Nobody leads a thread there any more.
    let mut caller = Caller::pick(pid)?;
    let all = maps::read(pid);
    for ground in left.iter().filter_map(|one| ground(*one, &all)) {
        // On no ground of its own: should we be killed too, there is no more to be taken away than before.
        caller.bare("munmap", libc::SYS_munmap, [ground.start, ground.end - ground.start, 0, 0, 0, 0])?;
    }
    close_descriptors(&mut caller);
    let _ = caller.release();
    left.iter().for_each(|one| one.clear(&memory));
    Ok(())
}

fn wait_for_return(pid: u32, left: &[Left]) -> Result<(), ProbeError> {
    let all = maps::read(pid);
    let grounds: Vec<Range<u64>> = left.iter().filter_map(|one| ground(*one, &all)).collect();
    let mut code = grounds.clone();
    code.extend(left.iter().map(|one| one.range()));
    let began = Instant::now();
    let mut pause = Duration::from_micros(500);
    loop {
        let stopped = Stopped::stop(pid)?;
        let on_stack = stopped.places().iter().any(|(_, _, sp)| grounds.iter().any(|g| g.contains(sp)));
        let caught = on_stack || !inside(&stopped, &code).is_empty();
        let _ = stopped.release();
        if !caught {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            let why = "a call that a killed whither began in it does not come to its end".to_string();
            return Err(ProbeError::Injection { pid, why });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// What is mapped of the memory that a detour tells of: the stack, or the stack and the code behind it.
fn ground(left: Left, maps: &[Map]) -> Option<Range<u64>> {
    let stack = left.ground..left.ground.checked_add(STACK)?;
    let pad = stack.end..stack.end.checked_add(PAD_PAGE)?;
    let is = |range: &Range<u64>, write: bool| {
        maps.iter().any(|m| {
            let nameless = m.inode == 0 && m.path.is_empty() && !m.shared;
            nameless && (m.start, m.end) == (range.start, range.end) && m.write == write && m.execute != write
        })
    };
    match (left.ground != 0 && is(&stack, true), is(&pad, false)) {
        (true, true) => Some(stack.start..pad.end),
        (true, false) => Some(stack),
        // The code goes first.
        (false, _) => None,
    }
}

/// Closes descriptors of our files, which are open for moments only.
fn close_descriptors(caller: &mut Caller) {
    if is_one_of_us(caller.pid()) {
        return;
    }
    let folder = format!("/proc/{}/task/{}/fd", caller.pid(), caller.tid());
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let is_ours = std::fs::read_link(entry.path()).is_ok_and(|link| inject::is_file_of_ours(&link));
        if let (Some(number), true) = (number, is_ours) {
            let _ = caller.bare("close", libc::SYS_close, [number, 0, 0, 0, 0, 0]);
        }
    }
}

/// Another controller holds such descriptors for good.
fn is_one_of_us(pid: u32) -> bool {
    let identity = |path: String| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    identity(format!("/proc/{pid}/exe")).is_none_or(|exe| Some(exe) == identity("/proc/self/exe".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(range: Range<u64>, rights: &str) -> Map {
        let right = |letter| rights.contains(letter);
        let (read, write, execute) = (right('r'), right('w'), right('x'));
        let (device, path) = (String::new(), String::new());
        Map {
            start: range.start,
            end: range.end,
            read,
            write,
            execute,
            shared: false,
            offset: 0,
            device,
            inode: 0,
            path,
        }
    }

    #[test]
    fn only_memory_exactly_as_announced_is_taken_away() {
        let at = 0x1000_0000;
        let (stack, pad) = (at..at + STACK, at + STACK..at + STACK + PAD_PAGE);
        let left = |ground| {
            let mut left = detour::Left::default();
            left.ground = ground;
            left
        };
        let all = [map(stack.clone(), "rw"), map(pad.clone(), "rx")];
        assert_eq!(ground(left(at), &all), Some(at..pad.end));
        assert_eq!(ground(left(at), &all[..1]), Some(stack.clone()), "killed between the two");
        assert_eq!(ground(left(0), &all), None);
        assert_eq!(ground(left(at + 0x1000), &all), None);
        assert_eq!(ground(left(u64::MAX), &all), None);
        let grown = [map(stack.start..stack.end + 0x1000, "rw")];
        assert_eq!(ground(left(at), &grown), None, "somebody else's");
        let other = [map(stack.clone(), "rw"), map(pad.clone(), "rw")];
        assert_eq!(ground(left(at), &other), Some(stack), "what follows is somebody else's");
        assert_eq!(ground(left(at), &[map(pad, "rx")]), None);
    }
}
