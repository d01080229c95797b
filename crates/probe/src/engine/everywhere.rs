//! Points of all the programs of a tree, which have tables of their own: what is added, taken back or
//! switched in one is so in all. Lives here: which point of one program is which of another. A function is
//! the same when it stands at the same stated address of the same file.

use super::Engine;
use crate::api::{Added, Order, PointAction, PointId, PointSpec, Removed};
use crate::error::ProbeError;
use rustc_hash::FxHashSet;
use whither_store::calls::PointState;

/// Path of a module, and stated address.
type Place = (String, u64);

impl Engine {
    /// What the standing orders want in this program, without what was taken back.
    pub(super) fn ordered(&mut self) -> Result<Vec<PointSpec>, ProbeError> {
        let mut specs = Vec::new();
        self.missed.clear();
        for (orders, actions) in self.standing.clone() {
            let found = self.resolve(&orders)?;
            let spec = |candidate| PointSpec { candidate, actions: actions.clone() };
            specs.extend(found.into_iter().map(spec));
        }
        specs.retain(|s| !self.follow.withdrawn.contains(&self.place_of(s.candidate.module, s.candidate.offset)));
        Ok(specs)
    }

    /// Whether anything in this program could be counted.
    pub(super) fn has_match(&mut self) -> Result<bool, ProbeError> {
        Ok(self.ordered()?.iter().any(|s| s.candidate.patch.is_ok()))
    }

    fn place_of(&self, module: usize, offset: u64) -> Place {
        (self.modules.list().get(module).map(|m| m.path.clone()).unwrap_or_default(), offset)
    }

    /// Adds to all programs but this one, which has been asked already. What matches nothing anywhere is
    /// forgotten.
    pub(super) fn add_everywhere(&mut self, orders: &[Order], actions: &[PointAction]) -> Result<Added, ProbeError> {
        let mut places = self.matching(orders)?;
        let mut all = Added::default();
        let mut others = std::mem::take(&mut self.follow.others);
        for other in &mut others {
            let found = other.matching(orders).and_then(|found| Ok((found, other.add_here(orders, actions)?)));
            match found {
                Ok((found, added)) => {
                    places.extend(found);
                    all.ids.extend(added.ids);
                    all.refused.extend(added.refused);
                    all.pause = all.pause.max(added.pause);
                }
                Err(ProbeError::Ended { .. } | ProbeError::Executed { .. }) => {}
                Err(e) => self.note(format!("process {}: nothing could be added: {e}", other.pid)),
            }
        }
        self.follow.others = others;
        if !places.is_empty() {
            self.stand_by(orders, actions, &places);
            self.follow.others.iter_mut().for_each(|other| other.stand_by(orders, actions, &places));
        }
        Ok(all)
    }

    fn matching(&mut self, orders: &[Order]) -> Result<Vec<Place>, ProbeError> {
        let found = self.resolve(orders)?;
        Ok(found.iter().map(|c| self.place_of(c.module, c.offset)).collect())
    }

    fn stand_by(&mut self, orders: &[Order], actions: &[PointAction], places: &[Place]) {
        self.standing.push((orders.to_vec(), actions.to_vec()));
        for place in places {
            self.follow.withdrawn.remove(place);
        }
    }

    /// Adds what matches in this program and is not there.
    fn add_here(&mut self, orders: &[Order], actions: &[PointAction]) -> Result<Added, ProbeError> {
        let mut found = self.resolve(orders)?;
        found.retain(|c| self.book.at(c.address).is_none());
        let spec = |candidate| PointSpec { candidate, actions: actions.to_vec() };
        let specs: Vec<PointSpec> = found.into_iter().map(spec).collect();
        self.add_points(&specs)
    }

    /// Takes points back in every program that has them.
    pub(super) fn remove_everywhere(&mut self, ids: &[PointId]) -> Result<Removed, ProbeError> {
        let elsewhere = self.elsewhere(ids);
        let places = self.places(ids);
        let mut all = self.remove_points(&self.standing_for(ids))?;
        all.ids = all.ids.into_iter().map(|id| self.shown(id)).collect();
        all.ids.dedup();
        for (other, theirs) in elsewhere {
            let Some(other) = self.follow.others.get_mut(other) else { continue };
            match other.remove_points(&theirs) {
                Ok(removed) => all.pause = all.pause.max(removed.pause),
                Err(ProbeError::Ended { .. } | ProbeError::Executed { .. }) => {}
                Err(e) => {
                    let pid = other.pid;
                    self.note(format!("process {pid}: probes could not be taken back: {e}"));
                }
            }
        }
        for (id, place) in places {
            for other in &mut self.follow.others {
                other.follow.withdrawn.insert(place.clone());
            }
            self.follow.withdrawn.insert(place);
            // Those that only other programs have.
            if self.book.get(id).is_none() && !all.ids.contains(&id) {
                all.ids.push(id);
            }
        }
        Ok(all)
    }

    /// The points that numbers of a snapshot mean here: those of a library that was unloaded and loaded again are new
    /// ones, shown under the first one's number.
    pub(super) fn standing_for(&self, ids: &[PointId]) -> Vec<PointId> {
        let living = |id: &PointId| self.book.get(*id).is_some_and(|p| p.state != PointState::Removed);
        let mut all = ids.to_vec();
        if self.follow.merge.is_none() {
            return all;
        }
        for place in ids.iter().filter(|id| !living(id)).filter_map(|&id| self.place_told(id)) {
            let same = |c: &crate::api::Candidate| self.place_of(c.module, c.offset) == place;
            let others = self.book.list().iter().filter(|p| living(&p.id) && same(&p.candidate));
            all.extend(others.map(|p| p.id));
        }
        all
    }

    /// The number that a snapshot shows for a point.
    pub(super) fn shown(&self, id: PointId) -> PointId {
        let Some(place) = self.place_told(id).filter(|_| self.follow.merge.is_some()) else { return id };
        let same = |c: &crate::api::Candidate| self.place_of(c.module, c.offset) == place;
        self.book.list().iter().find(|p| same(&p.candidate)).map_or(id, |p| p.id)
    }

    /// Points of the other programs that are meant by numbers of a snapshot.
    pub(super) fn elsewhere(&mut self, ids: &[PointId]) -> Vec<(usize, Vec<PointId>)> {
        if self.follow.others.is_empty() {
            return Vec::new();
        }
        let wanted: FxHashSet<Place> = self.places(ids).into_iter().map(|(_, place)| place).collect();
        let theirs = |other: &Self| -> Vec<PointId> {
            let living = other.book.list().iter().filter(|p| p.state != PointState::Removed);
            let meant = |c: &crate::api::Candidate| wanted.contains(&other.place_of(c.module, c.offset));
            living.filter(|p| meant(&p.candidate)).map(|p| p.id).collect()
        };
        self.follow.others.iter().map(theirs).enumerate().filter(|(_, ids)| !ids.is_empty()).collect()
    }

    /// Where points stand whose numbers a snapshot has told.
    fn places(&self, ids: &[PointId]) -> Vec<(PointId, Place)> {
        ids.iter().filter_map(|&id| Some((id, self.place_told(id)?))).collect()
    }

    fn place_told(&self, id: PointId) -> Option<Place> {
        match self.book.get(id) {
            Some(point) => Some(self.place_of(point.candidate.module, point.candidate.offset)),
            None => self.follow.merge.as_ref()?.place(id.0),
        }
    }
}
