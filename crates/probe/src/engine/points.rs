//! Probe points as the engine keeps them: what the user asked for, and the words the agent needs.

use crate::api::{Candidate, Counter, PointAction, PointId, Source, ValueSpec};
use crate::apply::Patch;
use crate::snapshot::Points;
use whither_abi::agent as abi;
use whither_abi::agent::Extra;
use whither_store::calls::{CallPoint, PatchKind, PointState};

/// A point.
#[derive(Debug)]
pub(crate) struct Point {
    /// Number the user sees.
    pub(crate) id: PointId,
    /// Index in the segment.
    pub(crate) index: u32,
    pub(crate) candidate: Candidate,
    pub(crate) flags: u32,
    pub(crate) values: Vec<String>,
    pub(crate) state: PointState,
    /// What was written; `None` for what the kernel's side serves.
    pub(crate) patch: Option<Patch>,
}

/// All points of a session, removed ones included; [`Book::list`] is in the order of their ids.
#[derive(Debug, Default)]
pub(crate) struct Book {
    list: Vec<Point>,
    /// Segment index to place in the list.
    by_index: Vec<Option<u32>>,
}

impl Book {
    pub(crate) fn list(&self) -> &[Point] {
        &self.list
    }

    pub(crate) fn get(&self, id: PointId) -> Option<&Point> {
        let place = (id.0 as usize).checked_sub(1)?;
        self.list.get(place)
    }

    pub(crate) fn get_mut(&mut self, id: PointId) -> Option<&mut Point> {
        let place = (id.0 as usize).checked_sub(1)?;
        self.list.get_mut(place)
    }

    /// The living point at an address.
    pub(crate) fn at(&self, address: u64) -> Option<PointId> {
        let alive = |p: &&Point| p.candidate.address == address && p.state != PointState::Removed;
        self.list.iter().find(alive).map(|p| p.id)
    }

    /// Enters a point; its id is the next one.
    pub(crate) fn push(&mut self, mut point: Point) -> PointId {
        let place = self.list.len() as u32;
        point.id = PointId(place + 1);
        let index = point.index as usize;
        if self.by_index.len() <= index {
            self.by_index.resize(index + 1, None);
        }
        self.by_index[index] = Some(place);
        let id = point.id;
        self.list.push(point);
        id
    }

    /// As a snapshot lists them.
    pub(crate) fn described(&self) -> Vec<CallPoint> {
        self.list.iter().map(described).collect()
    }
}

fn described(point: &Point) -> CallPoint {
    let candidate = &point.candidate;
    CallPoint {
        id: point.id.0,
        names: candidate.names.clone(),
        module: candidate.module as u32,
        offset: candidate.offset,
        size: candidate.size,
        patch: candidate.patch.as_ref().ok().copied(),
        state: point.state,
        entry_only: candidate.entry_only.clone(),
        refused: None,
        values: point.values.clone(),
    }
}

impl Points for Book {
    fn row(&self, point: u32) -> Option<u32> {
        self.by_index.get(point as usize).copied().flatten()
    }

    fn flags(&self, point: u32) -> u32 {
        let place = self.by_index.get(point as usize).copied().flatten();
        place.and_then(|p| self.list.get(p as usize)).map_or(0, |p| p.flags)
    }
}

/// The agent's words for what a point does; nothing that needs the exit when that cannot be seen.
pub(crate) fn flags(actions: &[PointAction], entry_only: bool) -> u32 {
    let word = |action: &PointAction| match action {
        PointAction::Path => abi::DO_PATH,
        PointAction::Wall => abi::DO_WALL | abi::DO_EXIT,
        PointAction::Cpu => abi::DO_CPU | abi::DO_EXIT,
        PointAction::Hist => abi::DO_HIST | abi::DO_WALL | abi::DO_EXIT,
        PointAction::Usage => abi::DO_USAGE | abi::DO_EXIT,
        PointAction::Sum(value) if value.source == Source::Ret => abi::DO_VALUES | abi::DO_EXIT,
        PointAction::Sum(ValueSpec { source: Source::Event(_), .. }) => abi::DO_EVENTS | abi::DO_VALUES | abi::DO_EXIT,
        PointAction::Sum(_) => abi::DO_VALUES,
        PointAction::Emit(_) => abi::DO_EMIT | abi::DO_EXIT,
    };
    let all = actions.iter().fold(0, |flags, action| flags | word(action));
    if entry_only { all & (abi::DO_PATH | abi::DO_VALUES | abi::DO_EMIT) } else { all }
}

/// Java's VM calls native methods from code made at run time, and finds such callers by what it has noted for itself, not by
/// return addresses.
pub(crate) fn of_callers(candidate: &Candidate) -> u32 {
    let native = candidate.names.iter().any(|name| name.starts_with("Java_"));
    if native { abi::DO_ANY_CALLER } else { 0 }
}

/// The words taken at a point, and the names of those that are summed. `number` tells the place of a counter.
pub(crate) fn extras(actions: &[PointAction], number: &dyn Fn(Counter) -> u8) -> (Vec<Extra>, Vec<String>) {
    let (mut extras, mut names) = (Vec::new(), Vec::new());
    for action in actions {
        match action {
            PointAction::Sum(value) if names.len() < 2 => {
                extras.push(extra(value, names.len() as u8, number));
                names.push(value.name.clone());
            }
            PointAction::Emit(words) => extras.extend(words.iter().map(|w| extra(w, u8::MAX, number))),
            _ => {}
        }
    }
    (extras, names)
}

fn extra(value: &ValueSpec, place: u8, number: &dyn Fn(Counter) -> u8) -> Extra {
    let (source, number) = match value.source {
        Source::Event(counter) => (abi::EVENT, number(counter)),
        Source::Ret => (abi::RET, 0),
        Source::Arg(n @ 1..=6) => (n, 0),
        Source::Arg(n) => (abi::STACK_ARG, n.saturating_sub(7)),
    };
    let offset = |i: usize| value.loads.get(i).copied().unwrap_or(0);
    Extra {
        source,
        number,
        width: value.width,
        flags: if value.signed { abi::SIGNED } else { 0 },
        loads: value.loads.len().min(2) as u8,
        value: place,
        spare: 0,
        offset: [offset(0), offset(1)],
    }
}

/// The agent's byte for a kind of patch, and back.
pub(crate) fn patch_number(kind: PatchKind) -> u8 {
    match kind {
        PatchKind::Jump => 1,
        PatchKind::PaddedJump => 2,
        PatchKind::ShortJump => 3,
        PatchKind::Trap => 4,
        PatchKind::Uprobe => 5,
    }
}

/// See [`patch_number`].
pub(crate) fn patch_kind(number: u8) -> Option<PatchKind> {
    Some(match number {
        1 => PatchKind::Jump,
        2 => PatchKind::PaddedJump,
        3 => PatchKind::ShortJump,
        4 => PatchKind::Trap,
        5 => PatchKind::Uprobe,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_agent() {
        let value =
            |source| ValueSpec { name: "n".into(), source, width: 4, signed: true, declared: false, loads: vec![8] };
        let actions = [PointAction::Path, PointAction::Hist, PointAction::Sum(value(Source::Arg(9)))];
        let all = abi::DO_PATH | abi::DO_HIST | abi::DO_WALL | abi::DO_EXIT | abi::DO_VALUES;
        assert_eq!(flags(&actions, false), all);
        assert_eq!(flags(&actions, true), abi::DO_PATH | abi::DO_VALUES);
        let (extras, names) = extras(&actions, &|_| 0);
        assert_eq!(names, ["n"]);
        assert_eq!((extras[0].source, extras[0].number, extras[0].width), (abi::STACK_ARG, 2, 4));
        assert_eq!((extras[0].loads, extras[0].offset, extras[0].value), (1, [8, 0], 0));
        let cycles = Counter { kind: 0, config: 1 };
        let actions = [PointAction::Sum(value(Source::Event(cycles)))];
        assert_eq!(flags(&actions, false), abi::DO_EVENTS | abi::DO_VALUES | abi::DO_EXIT);
        let (extras, _) = super::extras(&actions, &|c| if c == cycles { 3 } else { 9 });
        assert_eq!((extras[0].source, extras[0].number, extras[0].value), (abi::EVENT, 3, 0));
        for kind in [PatchKind::Jump, PatchKind::PaddedJump, PatchKind::ShortJump, PatchKind::Trap, PatchKind::Uprobe] {
            assert_eq!(patch_kind(patch_number(kind)), Some(kind));
        }
    }
}
