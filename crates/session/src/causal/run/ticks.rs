//! How far apart ticks are, while a session runs: chosen before the first window, made shorter between two windows where the program
//! has become another one. Windows with other ticks then do not count any more: what ticks take is in the time of all visits. The
//! judgement: `pace`.

use super::super::alive::Alive;
use super::super::options::CausalEvent;
use super::super::policy::CausalPolicy;
use super::super::window::Limits;
use super::Session;
use crate::SessionError;
use whither_store::causal::{DropReason, PointKind};

/// How long the program is watched at once.
const LOOK_NS: u64 = 50_000_000;

impl Session<'_> {
    /// Brings the choice forward. Whether no window may begin yet.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn set_ticks(
        &mut self,
        alive: &mut Alive,
        policy: &mut dyn CausalPolicy,
        limits: &Limits<'_>,
        on: &mut dyn FnMut(CausalEvent),
    ) -> Result<bool, SessionError> {
        let ticks = self.group.exec.ticks();
        if self.pace.is_chosen() {
            if self.is_late(limits) {
                return Ok(false);
            }
            if let Some(ns) = self.pace.shorter(&ticks) {
                self.group.exec.tick_every(ns)?;
                self.begin_anew(policy, on);
            }
            return Ok(false);
        }
        let counted = self.group.points.iter().any(|p| p.kind == PointKind::Sampled);
        if let Some(ns) = self.pace.begin(&ticks, counted) {
            self.group.exec.tick_every(ns)?;
            return Ok(false);
        }
        // The first of several whole runs is watched in any case.
        if self.is_whole() {
            return Ok(false);
        }
        self.observe(LOOK_NS, alive, policy, limits)?;
        Ok(true)
    }

    fn begin_anew(&mut self, policy: &mut dyn CausalPolicy, on: &mut dyn FnMut(CausalEvent)) {
        self.windows.iter_mut().for_each(|w| w.dropped = Some(DropReason::Ticks));
        self.turns.clear();
        self.asked.clear();
        self.paced = 0;
        policy.anew();
        let text = "the program has more than one thread now: ticks come more often from here on, and windows before do not count";
        self.tell(text.to_owned(), on);
    }
}
