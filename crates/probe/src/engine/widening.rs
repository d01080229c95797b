//! Points that measure the calls from some modules only, when another of those is loaded: their gates are widened
//! where they stand. Names and numbers stay, so only the same order may do it.

use super::points::Point;
use super::{Engine, Hold};
use crate::api::{Added, Candidate, PointId, PointSpec};
use crate::apply;
use crate::error::ProbeError;
use crate::gate::Gate;

impl Engine {
    /// The point that a candidate would widen: it has the same name, and does not know all of its callers.
    pub(super) fn widened_by(&self, candidate: &Candidate) -> Option<PointId> {
        let point = self.book.get(self.book.at(candidate.address)?)?;
        let mut gate = gate_of(point)?.clone();
        let same = point.candidate.names == candidate.names && !candidate.callers.is_empty();
        let is_new = same && gate.widen(&candidate.callers).map_or(true, |new| !new.is_empty());
        is_new.then_some(point.id)
    }

    /// Widens those that stand; the others come back.
    pub(super) fn widen(&mut self, specs: &[PointSpec], added: &mut Added) -> Result<Vec<PointSpec>, ProbeError> {
        let mut others = Vec::new();
        for spec in specs {
            match self.widened_by(&spec.candidate) {
                Some(id) => self.widen_one(id, &spec.candidate, added)?,
                None => others.push(spec.clone()),
            }
        }
        Ok(others)
    }

    fn widen_one(&mut self, id: PointId, wider: &Candidate, added: &mut Added) -> Result<(), ProbeError> {
        let alive = self.tree.alive();
        let Some(point) = self.book.get_mut(id) else { return Ok(()) };
        let Some(patch) = &mut point.patch else { return Ok(()) };
        let Some(gate) = &mut patch.gate else { return Ok(()) };
        let pieces = match gate.widen(&wider.callers) {
            Ok(pieces) => pieces,
            Err(refusal) => {
                added.refused.push((super::adding::name(wider), refusal));
                return Ok(());
            }
        };
        for (at, bytes) in &pieces {
            if let Some(own) = patch.stub.bytes.get_mut(*at..*at + bytes.len()) {
                own.copy_from_slice(bytes);
            }
        }
        let writes: Vec<(u64, &[u8])> =
            pieces.iter().map(|(at, bytes)| (patch.stub_at + *at as u64, bytes.as_slice())).collect();
        point.candidate.callers.clone_from(&wider.callers);
        for pid in alive {
            let held = match &self.hold {
                Hold::Borrowed(caller) => Some(&**caller),
                _ => None,
            };
            match apply::rewrite(pid, held, &writes) {
                Ok(pause) => added.pause = added.pause.max(pause),
                Err(ProbeError::Ended { .. } | ProbeError::Executed { .. }) => {}
                Err(_) if !super::polling::has_memory(pid) => {}
                Err(error) => return Err(error),
            }
        }
        added.ids.push(id);
        Ok(())
    }
}

fn gate_of(point: &Point) -> Option<&Gate> {
    point.patch.as_ref()?.gate.as_ref()
}
