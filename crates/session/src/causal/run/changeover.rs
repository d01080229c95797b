//! From delays that are spun to delays that are slept, while a session runs: watched for in every window, done
//! between two windows, never within one. What was spun until then does not count any more: the estimate is of one kind of
//! delays. When it is time: `choice`.

use super::super::alive::Alive;
use super::super::choice::{Choice, Seen};
use super::super::nap::Napping;
use super::super::options::{CausalEvent, ExecutorChoice};
use super::super::policy::CausalPolicy;
use super::super::window::Limits;
use super::Session;
use crate::SessionError;
use std::time::Instant;
use whither_kernel::proc;
use whither_sample::causal::Loads;
use whither_store::causal::{DropReason, Executor, SLEEP_REFUSED};

/// Between two looks at whether the handler is in place.
const TRY_NS: u64 = 50_000_000;
/// How far the choice is.
#[derive(Debug)]
pub(super) enum Changeover {
    /// It is made.
    Made,
    /// The program is watched.
    Watching(Choice),
    /// It is time to sleep, for this reason; the handler is being put into the program.
    Entering(String),
}

impl Changeover {
    /// The user's word, or what remains to be seen; and the reason for the executor that it begins with.
    pub(super) fn new(asked: ExecutorChoice) -> (Self, String) {
        match asked {
            ExecutorChoice::Auto => {
                (Self::Watching(Choice::default()), "chosen: spun delays make nobody wait for cores".into())
            }
            ExecutorChoice::Spin | ExecutorChoice::Sleep => (Self::Made, "as asked".into()),
        }
    }
}

impl Session<'_> {
    /// Takes in what was seen; `delayed`: with delays for this target.
    pub(super) fn saw(&mut self, seen: Seen, delayed: Option<u32>) {
        if let Changeover::Watching(choice) = &mut self.changeover {
            match delayed {
                Some(target) => choice.saw_delayed(target, seen),
                None => choice.saw_plain(seen),
            }
        }
    }

    /// Brings the choice forward. Whether no window may begin yet.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn change_over(
        &mut self,
        alive: &mut Alive,
        policy: &mut dyn CausalPolicy,
        limits: &Limits<'_>,
        on: &mut dyn FnMut(CausalEvent),
    ) -> Result<bool, SessionError> {
        if let Changeover::Watching(choice) = &self.changeover
            && let Some(crowd) = choice.crowd().filter(|_| !self.is_late(limits))
        {
            self.changeover = Changeover::Entering(crowd.told(proc::online_cpus().len()));
            self.group.napping = Napping::try_it();
        }
        let Changeover::Entering(why) = &self.changeover else { return Ok(false) };
        let why = why.clone();
        self.group.look_now(&[])?;
        match std::mem::take(&mut self.group.napping) {
            Napping::Refused(error) => self.stays(&why, &error, on),
            Napping::Sleep(naps) => {
                self.group.napping = Napping::Sleep(naps);
                self.changed(why, policy, on);
            }
            other => {
                self.group.napping = other;
                // Whole runs are not cut into pieces: the next one tries again.
                if self.is_whole() {
                    return Ok(false);
                }
                self.observe(TRY_NS, alive, policy, limits)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sleeping from here on.
    fn changed(&mut self, why: String, policy: &mut dyn CausalPolicy, on: &mut dyn FnMut(CausalEvent)) {
        let spun = self.windows.len();
        self.windows.iter_mut().for_each(|w| w.dropped = Some(DropReason::Spun));
        self.turns.clear();
        self.asked.clear();
        self.paced = 0;
        policy.anew();
        self.spun = self.group.exec.loads();
        self.executor = Executor::Sleep;
        self.executor_reason = format!("chosen: {why}");
        self.changeover = Changeover::Made;
        let before = match spun {
            0 => String::new(),
            1 => "; the window before, whose delays were spun, does not count".into(),
            n => format!("; the {n} windows before, whose delays were spun, do not count"),
        };
        self.tell(
            format!(
                "{why}: from here on they are slept, by a handler that is put into the program (--executor spin \
                 keeps it out){before}"
            ),
            on,
        );
    }

    /// Spinning as before.
    fn stays(&mut self, why: &str, error: &SessionError, on: &mut dyn FnMut(CausalEvent)) {
        self.changeover = Changeover::Made;
        self.executor_reason = format!("{SLEEP_REFUSED} ({why}), but it is not possible: {error}");
        self.tell(
            format!(
                "{why}, so they had better be slept, but that is not possible here ({error}): they are spun on, intervals are wider, \
                 and for some targets nothing can be said"
            ),
            on,
        );
    }

    /// Whether what has been measured is worth more than what can still be.
    pub(super) fn is_late(&self, limits: &Limits<'_>) -> bool {
        let left = limits.deadline.map(|d| d.saturating_duration_since(Instant::now()));
        self.first_window.zip(left).is_some_and(|(first, left)| left * 2 < first.elapsed())
    }

    /// What was delayed since delays are of one kind.
    pub(super) fn of_one_kind(&self, all: &Loads) -> Loads {
        Loads {
            inserted_ns: all.inserted_ns.saturating_sub(self.spun.inserted_ns),
            slept_ns: all.slept_ns.saturating_sub(self.spun.slept_ns),
            ..*all
        }
    }
}
