//! The processes of a session: who they are, how long their threads lived, how much CPU time they used,
//! and how they ended. Read from /proc and process clocks; the last value read before the end counts.

use super::lives::Lives;
use crate::target::{Lived, Queue};
use whither_kernel::clock::monotonic_ns;
use whither_kernel::proc;
use whither_store::calls::{CallProcess, Whole};

/// A process that shares the agent's segment.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) exe: String,
    pub(crate) command: String,
    /// When it began to execute this, or was met.
    since: u64,
    pub(crate) status: Option<i32>,
    pub(crate) alive: bool,
    /// When it ended.
    ended: Option<u64>,
    /// Its processor time is final.
    settled: bool,
    /// `starttime` of /proc/PID/stat: tells it from a later process of the same number.
    start: u64,
    cpu_first: u64,
    cpu_last: u64,
    lives: Lives,
}

/// Stands for the `starttime` of a process that nobody could read any more.
const GONE: u64 = u64::MAX;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) list: Vec<Process>,
    began: u64,
    /// CPU and thread time of those that a reset has left behind.
    base_cpu: u64,
    base_threads: u64,
    base_ended: u32,
    base_unsure: u64,
    base_queue: Queue,
    /// Ended, and not told yet.
    ended: Vec<u32>,
    /// Exact time of an end that somebody watched.
    watched: Option<(u32, u64)>,
}

impl Tree {
    /// A session that begins now. Of a process that ran before only what it does from now on counts.
    pub(crate) fn begin(pid: u32) -> Self {
        let mut tree = Self { began: monotonic_ns(), ..Self::default() };
        tree.add(pid, false);
        tree
    }

    /// Takes in a process; a forked child counts from its birth.
    pub(crate) fn add(&mut self, pid: u32, newborn: bool) -> bool {
        let Some(stat) = Stat::of(pid) else { return false };
        let start = stat.start;
        if self.list.iter().any(|p| p.pid == pid && p.start == start) {
            return false;
        }
        let cpu = if newborn { 0 } else { cpu_ns(pid).unwrap_or(0) };
        let mut process = Process {
            pid,
            exe: proc::exe(pid),
            command: command(pid),
            since: monotonic_ns(),
            status: None,
            alive: true,
            ended: None,
            settled: false,
            start,
            cpu_first: cpu,
            cpu_last: cpu,
            lives: Lives::since(if newborn { 0 } else { monotonic_ns() }),
        };
        process.see(monotonic_ns(), None, Some(stat));
        self.list.push(process);
        true
    }

    /// Takes in a forked child that somebody told of, and that may have ended and been waited for meanwhile: then
    /// it was what its parent is.
    pub(crate) fn add_child(&mut self, parent: u32, child: u32) -> bool {
        let Some(parent) = self.list.iter().rfind(|p| p.pid == parent) else { return false };
        let (exe, command, last) = (parent.exe.clone(), parent.command.clone(), parent.ended);
        // Whatever it has executed by now came later.
        let since = parent.since + 1;
        if Stat::of(child).is_some() {
            let new = self.add(child, true);
            // Of a process that nobody has waited for yet only the number can be read.
            if let Some(process) = self.list.last_mut().filter(|p| new && p.exe.is_empty()) {
                (process.exe, process.command, process.since) = (exe, command, since);
            }
            return new;
        }
        let known = self.list.iter().any(|p| p.pid == child && (p.alive || p.start == GONE));
        if !known {
            self.list.push(Process {
                pid: child,
                exe,
                command,
                since,
                status: None,
                alive: false,
                // When is not known; the session must not seem to go on behind its parent's end for it.
                ended: Some(last.unwrap_or_else(monotonic_ns)),
                settled: false,
                start: GONE,
                cpu_first: 0,
                cpu_last: 0,
                lives: Lives::since(0),
            });
        }
        !known
    }

    /// A process goes on as something else, which is not counted here.
    pub(crate) fn leave(&mut self, pid: u32) -> bool {
        let now = monotonic_ns();
        let mut any = false;
        for process in self.list.iter_mut().filter(|p| p.pid == pid) {
            any = true;
            if process.alive {
                process.look(now, None);
                process.lives.close(now);
                process.alive = false;
                process.settled = true;
            }
        }
        any
    }

    /// Takes in a process that executes something new here, or has come back.
    pub(crate) fn renew(&mut self, pid: u32) {
        if self.add(pid, false) {
            return;
        }
        let Some(process) = self.list.iter_mut().rfind(|p| p.pid == pid) else { return };
        process.exe = proc::exe(pid);
        process.command = command(pid);
        process.since = monotonic_ns();
        if !process.alive {
            // What it has used elsewhere is counted there.
            let cpu = cpu_ns(pid).unwrap_or(process.cpu_last).max(process.cpu_last);
            process.cpu_first += cpu - process.cpu_last;
            process.cpu_last = cpu;
            process.lives.close(monotonic_ns());
            process.alive = true;
            process.ended = None;
            process.settled = false;
        }
    }

    /// Gives processes that have ended the processor time they had at their end, as far as it is known.
    pub(crate) fn settle(&mut self, used: &dyn Fn(u32) -> Option<u64>) {
        for process in self.list.iter_mut().filter(|p| !p.alive && !p.settled && proc::threads(p.pid).len() <= 1) {
            process.settled = true;
            process.cpu_last = process.cpu_last.max(used(process.pid).unwrap_or(0));
        }
    }

    /// Takes over lifetimes of threads that have ended, from somebody who saw each of them.
    pub(crate) fn count_lives(&mut self, lived: &dyn Fn(u32) -> Option<Lived>) {
        for process in self.list.iter_mut().filter(|p| !p.settled) {
            let pid = process.pid;
            process.lives.count(&|| lived(pid), &|| proc::threads(pid));
        }
    }

    /// From when on the threads of a process count; 0: from their birth.
    pub(crate) fn since(&self, pid: u32) -> u64 {
        self.list.iter().rfind(|p| p.pid == pid).map_or_else(monotonic_ns, |p| p.lives.begin())
    }

    /// Whether a process has not ended yet.
    pub(crate) fn lives(pid: u32) -> bool {
        Stat::of(pid).is_some_and(|stat| !stat.ended)
    }

    /// Living processes.
    pub(crate) fn alive(&self) -> Vec<u32> {
        self.list.iter().filter(|p| p.alive).map(|p| p.pid).collect()
    }

    /// Looks at all.
    pub(crate) fn look(&mut self) {
        let now = monotonic_ns();
        for process in self.list.iter_mut().filter(|p| p.alive) {
            let watched = self.watched.filter(|(pid, _)| *pid == process.pid).map(|(_, at)| at);
            process.look(now, watched);
            if !process.alive {
                self.ended.push(process.pid);
            }
        }
    }

    /// The moment at which a process ended, from somebody who waited for it.
    pub(crate) fn saw_end(&mut self, pid: u32, at: u64) {
        self.watched = Some((pid, at));
    }

    /// Takes in a thread that was seen at work, from when on: it may have lived between two looks.
    pub(crate) fn meet(&mut self, pid: u32, tid: u32, since: u64) {
        let began = self.began;
        let Some(process) = self.list.iter_mut().rfind(|p| p.pid == pid) else { return };
        let first = since.max(began);
        process.lives.meet(tid, first, process.ended);
    }

    /// Those that were seen to have ended since this was asked last.
    pub(crate) fn take_ended(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.ended)
    }

    /// Children of the living processes, as the kernel lists them.
    pub(crate) fn children(&self) -> Vec<u32> {
        let known = self.alive();
        let mut children = Vec::new();
        for &pid in &known {
            for tid in proc::threads(pid) {
                let text = proc::read_text(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
                children.extend(text.split_whitespace().filter_map(|w| w.parse::<u32>().ok()));
            }
        }
        children.retain(|pid| !known.contains(pid));
        children
    }

    /// Totals since the begin or the last reset.
    pub(crate) fn whole(&mut self) -> Whole {
        self.look();
        let (cpu, threads) = self.sums();
        let lives = || self.list.iter().map(|p| &p.lives);
        let alive = self.list.iter().filter(|p| p.alive);
        let queue = self.queue().less(self.base_queue);
        Whole {
            wall_ns: self.end().unwrap_or_else(monotonic_ns).saturating_sub(self.began),
            cpu_ns: cpu.saturating_sub(self.base_cpu),
            thread_ns: threads.saturating_sub(self.base_threads),
            threads: alive.map(|p| p.lives.alive()).sum(),
            threads_ended: lives().map(Lives::ended).fold(0, u32::saturating_add).saturating_sub(self.base_ended),
            ran_ns: queue.ran_ns,
            queued_ns: queue.queued_ns,
            thread_unsure_ns: lives().map(Lives::unsure).sum::<u64>().saturating_sub(self.base_unsure),
        }
    }

    /// Totals count from here.
    pub(crate) fn reset(&mut self) {
        self.look();
        (self.base_cpu, self.base_threads) = self.sums();
        self.base_ended = self.list.iter().map(|p| p.lives.ended()).fold(0, u32::saturating_add);
        self.base_queue = self.queue();
        self.base_unsure = self.list.iter().map(|p| p.lives.unsure()).sum();
        self.began = monotonic_ns();
    }

    /// When the last process ended, if all have.
    fn end(&self) -> Option<u64> {
        self.list.iter().map(|p| p.ended).collect::<Option<Vec<u64>>>()?.into_iter().max()
    }

    fn queue(&self) -> Queue {
        self.list.iter().map(|p| p.lives.queue()).fold(Queue::default(), Queue::with)
    }

    fn sums(&self) -> (u64, u64) {
        let cpu = self.list.iter().map(|p| p.cpu_last.saturating_sub(p.cpu_first)).sum();
        let threads = self.list.iter().map(|p| p.lives.ns()).sum();
        (cpu, threads)
    }

    /// As a snapshot lists them.
    pub(crate) fn described(&self) -> Vec<CallProcess> {
        let described = |p: &Process| CallProcess {
            pid: p.pid,
            exe: p.exe.clone(),
            command: p.command.clone(),
            status: p.status,
            since_ns: p.since,
        };
        self.list.iter().map(described).collect()
    }
}

impl Process {
    /// `watched`: when it ended, if somebody knows.
    fn look(&mut self, now: u64, watched: Option<u64>) {
        self.see(now, watched, Stat::of(self.pid));
    }

    fn see(&mut self, now: u64, watched: Option<u64>, stat: Option<Stat>) {
        // Also of a process that has ended, until it is waited for.
        if let Some(cpu) = cpu_ns(self.pid) {
            self.cpu_last = self.cpu_last.max(cpu);
        }
        let stat = stat.filter(|stat| stat.start == self.start && !stat.ended);
        self.alive = stat.is_some();
        if let Some(stat) = stat {
            let mut tids = if stat.threads == 1 { vec![self.pid] } else { proc::threads(self.pid) };
            tids.retain(|tid| !stat.first_ended || *tid != self.pid);
            self.lives.look(now, &tids);
            self.lives.ask_queues(&|tid| Queue::of(self.pid, tid));
        } else if self.ended.is_none() {
            self.end(watched.unwrap_or(now).min(now));
        }
    }

    fn end(&mut self, at: u64) {
        self.ended = Some(at);
        self.lives.end(at);
    }
}

/// CPU time of a process by its own clock, in nanoseconds.
fn cpu_ns(pid: u32) -> Option<u64> {
    /// `CPUCLOCK_SCHED` of the whole process.
    const SCHED: i32 = 2;
    let clock = (!(pid as i32)) << 3 | SCHED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes one timespec.
    let answer = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let ns = u64::try_from(time.tv_sec).ok()? * 1_000_000_000 + u64::try_from(time.tv_nsec).ok()?;
    (answer == 0).then_some(ns)
}

/// What /proc/PID/stat says.
#[derive(Clone, Copy, Debug)]
struct Stat {
    /// It has ended, and nobody has waited for it yet.
    ended: bool,
    /// Its first thread has.
    first_ended: bool,
    /// The first one counts as long as nobody has waited for the process.
    threads: u32,
    /// Ticks since the system began.
    start: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        let bytes = proc::read_bytes(format!("/proc/{pid}/stat")).ok()?;
        // The name in front may be anything, also no text.
        let text = String::from_utf8_lossy(&bytes);
        let mut words = text.rsplit_once(')')?.1.split_whitespace();
        let first_ended = words.next()?.starts_with(['Z', 'X']);
        let threads = words.nth(16)?.parse().ok()?;
        let start = words.nth(1)?.parse().ok()?;
        Some(Self { ended: first_ended && threads <= 1, first_ended, threads, start })
    }
}

fn command(pid: u32) -> String {
    let bytes = proc::read_bytes(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = bytes.split(|&b| b == 0).filter(|w| !w.is_empty()).map(String::from_utf8_lossy).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_process_is_measured() {
        let mut tree = Tree::begin(std::process::id());
        assert!(!tree.add(std::process::id(), false), "twice");
        let until = whither_kernel::clock::own_cpu_ns() + 20_000_000;
        while whither_kernel::clock::own_cpu_ns() < until {}
        let whole = tree.whole();
        assert!(whole.wall_ns >= 1_000_000);
        assert!(whole.cpu_ns >= 15_000_000, "{whole:?}");
        assert!(whole.threads >= 1 && whole.thread_ns >= whole.wall_ns / 2, "{whole:?}");
        assert!(tree.described()[0].command.contains("probe"));
        tree.reset();
        assert!(tree.whole().wall_ns < whole.wall_ns + 1_000_000_000);
    }

    #[test]
    fn an_ended_process_is_noticed_and_keeps_its_time() {
        let mut child = std::process::Command::new("sh");
        child.args(["-c", "read x"]).stdin(std::process::Stdio::piped());
        let mut child = child.spawn().expect("a shell");
        let mut tree = Tree::begin(child.id());
        assert_eq!(tree.alive(), [child.id()]);
        drop(child.stdin.take());
        let until = monotonic_ns() + 5_000_000_000;
        while tree.take_ended().is_empty() {
            tree.look();
            assert!(monotonic_ns() < until, "its end was not noticed");
        }
        assert!(tree.alive().is_empty());
        let whole = tree.whole();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(tree.whole(), whole, "an ended session goes on");
        child.wait().expect("waits");
    }

    #[test]
    fn a_child_that_ended_before_anybody_looked_is_one_of_the_tree() {
        let mut child = std::process::Command::new("true").spawn().expect("true");
        let (us, gone) = (std::process::id(), child.id());
        child.wait().expect("waits");
        let mut tree = Tree::begin(us);
        assert!(!tree.add_child(1, gone), "a stranger's");
        assert!(tree.add_child(us, gone));
        assert!(!tree.add_child(us, gone), "twice");
        tree.settle(&|pid| (pid == gone).then_some(7_000_000));
        let described = tree.described();
        assert_eq!((described[1].pid, &described[1].exe), (gone, &described[0].exe));
        assert_eq!((tree.list[1].cpu_last, tree.alive()), (7_000_000, vec![us]));
    }

    #[test]
    fn a_short_process_between_two_looks_keeps_its_threads_and_its_time() {
        // Long enough that being put off the CPU between two readings, which busy machines do, is little beside it.
        let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; read x";
        let mut child = std::process::Command::new("sh");
        child.args(["-c", work]).stdin(std::process::Stdio::piped());
        let mut child = child.spawn().expect("a shell");
        let mut tree = Tree::begin(child.id());
        drop(child.stdin.take());
        let until = monotonic_ns() + 10_000_000_000;
        while !Stat::of(child.id()).is_none_or(|stat| stat.ended) {
            assert!(monotonic_ns() < until, "it does not end");
        }
        let end = monotonic_ns();
        tree.saw_end(child.id(), end);
        std::thread::sleep(std::time::Duration::from_millis(60));
        tree.look();
        assert_eq!(tree.take_ended(), [child.id()]);
        let whole = tree.whole();
        assert!(whole.wall_ns <= end - tree.began, "{whole:?} goes on behind the end");
        assert!(whole.thread_ns >= whole.wall_ns / 2 && whole.thread_ns <= whole.wall_ns, "{whole:?}");
        assert!(whole.cpu_ns > 0, "{whole:?}: a zombie's clock still stands");
        tree.meet(child.id(), 1, tree.began + whole.wall_ns / 2);
        let more = tree.whole().thread_ns - whole.thread_ns;
        assert!(more.abs_diff(whole.wall_ns / 2) < 1000, "a thread nobody saw lived {more} ns");
        child.wait().expect("waits");
    }
}
