//! What a session adds to the notes of a snapshot: why nothing may have been counted. Pure: whoever
//! knows processes says which of them are stopped.

use super::options::{CallsOptions, CallsTarget};
use whither_store::calls::CallSnapshot;

/// What is known of a session that matters for its notes.
#[derive(Clone, Debug, Default)]
pub(super) struct Remarks {
    /// The target ran before.
    attached: bool,
}

impl Remarks {
    pub(super) fn of(options: &CallsOptions) -> Self {
        Self { attached: matches!(options.target, CallsTarget::Process(_)) }
    }

    /// Sentences about a snapshot.
    pub(super) fn on(&self, snapshot: &CallSnapshot, is_stopped: impl Fn(u32) -> bool) -> Vec<String> {
        let called =
            snapshot.paths.iter().any(|p| p.totals.calls > 0 || p.totals.done > 0) || !snapshot.in_progress.is_empty();
        let mut notes = stopped(snapshot, is_stopped);
        // Where nothing ran, nothing else needs to be said of why nothing was seen.
        if self.attached && !called && notes.is_empty() && !snapshot.points.is_empty() {
            notes.push(
                "no call was seen: a call that had begun before whither attached is not seen; its function counts once it is \
                 entered anew"
                    .into(),
            );
        }
        notes
    }
}

/// Processes in which nothing runs.
pub(super) fn stopped(snapshot: &CallSnapshot, is_stopped: impl Fn(u32) -> bool) -> Vec<String> {
    let mut pids: Vec<u32> = snapshot.processes.iter().filter(|p| p.status.is_none()).map(|p| p.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let stopped = pids.into_iter().filter(|pid| is_stopped(*pid));
    let told = stopped.map(|pid| {
        format!(
            "process {pid} is stopped (by SIGSTOP or job control): nothing runs in it, so no call is made; kill -CONT {pid} lets it go on"
        )
    });
    told.collect()
}

/// What is to be known before it runs: which functions make it slow.
pub(super) fn by_kernel(names: &[String]) -> Option<String> {
    const NAMED: usize = 3;
    let named = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let (more, are) = match names.len() {
        0 => return None,
        1 => (String::new(), "is"),
        n if n <= NAMED => (String::new(), "are"),
        n => (format!(" and {} more", n - NAMED), "are"),
    };
    Some(format!(
        "{named}{more} {are} measured by breakpoints of the kernel (uprobes), some 10 us a call: called often, they make the program \
         many times slower (-x leaves them out, --backend patch refuses what needs them, --dry-run lists it)"
    ))
}

/// Who goes on without being measured when the program that was has ended: daemons, jobs of a shell.
pub(super) fn left_running(snapshot: &CallSnapshot, exists: impl Fn(u32) -> bool) -> Option<String> {
    const NAMED: usize = 5;
    let mut pids: Vec<u32> = snapshot.processes.iter().filter(|p| p.status.is_none()).map(|p| p.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    pids.retain(|pid| exists(*pid));
    let named: Vec<String> = pids.iter().take(NAMED).map(u32::to_string).collect();
    let more = if pids.len() > NAMED { ", ..." } else { "" };
    let (processes, go) = if pids.len() == 1 { ("process", "goes") } else { ("processes", "go") };
    (!pids.is_empty()).then(|| {
        format!(
            "{} {processes} of the program ({}{more}) {go} on after it has ended, not measured any further: calls from now on are in no \
             number; -p PID measures one of them",
            pids.len(),
            named.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_store::calls::{CallPath, CallPoint, CallProcess, PathTotals, PointState};

    fn snapshot(calls: u64) -> CallSnapshot {
        let point = CallPoint {
            id: 1,
            names: vec!["forever".into()],
            module: 0,
            offset: 0x10,
            size: 64,
            patch: None,
            state: PointState::On,
            entry_only: None,
            refused: None,
            values: Vec::new(),
        };
        let path = CallPath {
            id: 1,
            point: 0,
            frame: u32::MAX,
            parent: None,
            same: 0,
            folded: false,
            totals: PathTotals { calls, ..PathTotals::default() },
            threads: Vec::new(),
        };
        let process = CallProcess { pid: 42, exe: "/bin/app".into(), command: "app".into(), status: None, since_ns: 0 };
        CallSnapshot { points: vec![point], paths: vec![path], processes: vec![process], ..CallSnapshot::default() }
    }

    fn remarks(attached: bool) -> Remarks {
        Remarks { attached }
    }

    #[test]
    fn calls_begun_before_are_spoken_of_where_nothing_was_seen_of_a_running_process() {
        let notes = remarks(true).on(&snapshot(0), |_| false);
        assert!(
            notes.len() == 1 && notes[0].contains("had begun before") && notes[0].contains("entered anew"),
            "{notes:?}"
        );
        assert!(remarks(true).on(&snapshot(1), |_| false).is_empty());
        assert!(remarks(false).on(&snapshot(0), |_| false).is_empty(), "a command's calls are all seen");
    }

    #[test]
    fn what_breakpoints_serve_is_told_before() {
        let names: Vec<String> = ["f", "g", "h", "i", "j"].map(str::to_owned).to_vec();
        assert_eq!(by_kernel(&[]), None);
        assert!(by_kernel(&names[..1]).is_some_and(|note| note.starts_with("f is measured by breakpoints")));
        assert!(by_kernel(&names[..3]).is_some_and(|note| note.starts_with("f, g, h are measured")));
        assert!(by_kernel(&names).is_some_and(|note| note.starts_with("f, g, h and 2 more are measured")));
    }

    #[test]
    fn who_goes_on_unmeasured_is_named() {
        let mut last = snapshot(1);
        assert_eq!(left_running(&last, |_| false), None, "all have ended");
        let one = left_running(&last, |_| true).expect("one lives");
        assert!(one.starts_with("1 process of the program (42) goes on") && one.contains("-p PID"), "{one}");
        let process = last.processes[0].clone();
        last.processes.extend((43..60).map(|pid| CallProcess { pid, ..process.clone() }));
        last.processes.extend((70..80).map(|pid| CallProcess { pid, status: Some(0), ..process.clone() }));
        let many = left_running(&last, |pid| pid != 50).expect("many live");
        assert!(many.starts_with("17 processes of the program (42, 43, 44, 45, 46, ...) go on"), "{many}");
    }

    #[test]
    fn a_stopped_process_is_the_reason() {
        let notes = remarks(true).on(&snapshot(0), |pid| pid == 42);
        assert!(
            notes.len() == 1 && notes[0].contains("process 42 is stopped") && notes[0].contains("kill -CONT 42"),
            "{notes:?}"
        );
        let mut ended = snapshot(0);
        ended.processes[0].status = Some(0);
        assert!(!remarks(true).on(&ended, |_| true)[0].contains("stopped"));
    }
}
