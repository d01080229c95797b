//! Breakpoints that are set and taken away many at a time. Lives here: which ones share links, how some of them go
//! while the others stay, which functions are to blame when the kernel refuses. Not here: what a link is.
//!
//! Constraint: each link costs two grace periods of the kernel, one after the other, when it is closed (46 functions
//! with a link for their entries and one for their exits took more than four seconds, nine thousand a quarter of an
//! hour), and single breakpoints cannot leave a link. So what stays is set once more, under a new turn, before the links
//! of the turn before are closed. Where both stand, the kernel runs the newer one first, and the older one passes
//! (`is_second` in bpf/calls.bpf.c): no call is missed or counted twice, however long the older one stands. It does so
//! past its closing where a process that is being started, by any thread of ours, has a copy of our descriptors until
//! it executes its program.

use super::{UprobeError, UprobePoint};
use std::path::{Path, PathBuf};
use whither_abi::uprobe::cookie;

/// Where breakpoints of one link stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Entries,
    Exits,
}

/// What the kernel's side does for groups.
pub(super) trait Setter {
    type Link;

    /// One link for offsets of a file in a process, each with its cookie.
    fn set(&self, side: Side, pid: u32, file: &Path, at: &[(u64, u64)]) -> Result<Self::Link, UprobeError>;

    /// From now on two turns of a point may stand at the same place.
    fn begin_change(&self) -> Result<(), UprobeError>;

    /// The breakpoints of this turn are none, though some of them may have been met.
    fn forget(&self, turn: u32);
}

/// All groups of a session.
#[derive(Debug)]
pub(super) struct Groups<L> {
    list: Vec<Group<L>>,
    turn: u32,
}

#[derive(Debug)]
struct Group<L> {
    pid: u32,
    file: PathBuf,
    points: Vec<UprobePoint>,
    links: Vec<L>,
}

impl<L> Default for Groups<L> {
    fn default() -> Self {
        Self { list: Vec::new(), turn: 0 }
    }
}

impl<L> Groups<L> {
    /// Sets breakpoints in a process; those that the kernel refuses, by index.
    pub(super) fn add<S: Setter<Link = L>>(
        &mut self,
        kernel: &S,
        pid: u32,
        file: &Path,
        points: &[UprobePoint],
    ) -> Vec<(u32, UprobeError)> {
        let mut set = Attempt { links: Vec::new(), refused: Vec::new() };
        set.go(kernel, &Place { pid, file, turn: self.turn }, points);
        let stays = |p: &&UprobePoint| !set.refused.iter().any(|(index, _)| *index == p.index);
        let points: Vec<UprobePoint> = points.iter().filter(stays).cloned().collect();
        if !points.is_empty() {
            self.list.push(Group { pid, file: file.into(), points, links: set.links });
        }
        set.refused
    }

    /// Takes points away everywhere. The links to be closed, and what kept some from going.
    pub(super) fn remove<S: Setter<Link = L>>(
        &mut self,
        kernel: &S,
        is_over: impl Fn(u32) -> bool,
    ) -> (Vec<L>, Result<(), UprobeError>) {
        let is_whole = |g: &mut Group<L>| g.points.iter().all(|p| is_over(p.index));
        let mut gone: Vec<L> = self.list.extract_if(.., is_whole).flat_map(|g| g.links).collect();
        let touched = |g: &&mut Group<L>| g.points.iter().any(|p| is_over(p.index));
        let mut partly = self.list.iter_mut().filter(touched).peekable();
        if partly.peek().is_none() {
            return (gone, Ok(()));
        }
        let mut failed = kernel.begin_change();
        if failed.is_ok() {
            for group in partly {
                self.turn = self.turn.wrapping_add(1);
                match group.shrink(kernel, self.turn, &is_over) {
                    Ok(links) => gone.extend(links),
                    Err(e) => {
                        // Those of the turn before would pass where these are still believed to have run.
                        kernel.forget(self.turn);
                        failed = Err(e);
                    }
                }
            }
        }
        (gone, failed)
    }

    /// All that stands in a process; the links to be closed.
    pub(super) fn leave(&mut self, pid: u32) -> Vec<L> {
        self.list.extract_if(.., |g| g.pid == pid).flat_map(|g| g.links).collect()
    }

    /// Processes with breakpoints, some more than once.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.list.iter().map(|g| g.pid)
    }
}

impl<L> Group<L> {
    /// Sets what stays under the next turn; the links of the turn before.
    fn shrink<S: Setter<Link = L>>(
        &mut self,
        kernel: &S,
        turn: u32,
        is_over: impl Fn(u32) -> bool,
    ) -> Result<Vec<L>, UprobeError> {
        let stay: Vec<UprobePoint> = self.points.iter().filter(|p| !is_over(p.index)).cloned().collect();
        let links = Place { pid: self.pid, file: &self.file, turn }.set(kernel, &stay)?;
        self.points = stay;
        Ok(std::mem::replace(&mut self.links, links))
    }
}

struct Place<'a> {
    pid: u32,
    file: &'a Path,
    turn: u32,
}

impl Place<'_> {
    /// Links for all of these points. Exits first: an entry seen before its exit is watched would stay in progress for
    /// ever.
    fn set<S: Setter>(&self, kernel: &S, points: &[UprobePoint]) -> Result<Vec<S::Link>, UprobeError> {
        let named = |p: &UprobePoint| cookie(p.index, self.turn);
        let exits: Vec<_> = points.iter().flat_map(|p| p.exits.iter().map(move |&at| (at, named(p)))).collect();
        let entries: Vec<_> = points.iter().map(|p| (p.entry, named(p))).collect();
        let mut links = Vec::new();
        if !exits.is_empty() {
            links.push(kernel.set(Side::Exits, self.pid, self.file, &exits)?);
        }
        links.push(kernel.set(Side::Entries, self.pid, self.file, &entries)?);
        Ok(links)
    }
}

/// Links set so far, and the points that none can be set for.
struct Attempt<L> {
    links: Vec<L>,
    refused: Vec<(u32, UprobeError)>,
}

impl<L> Attempt<L> {
    /// A link is refused as a whole: halves tell who is to blame.
    fn go<S: Setter<Link = L>>(&mut self, kernel: &S, there: &Place<'_>, points: &[UprobePoint]) {
        match (there.set(kernel, points), points) {
            (Ok(links), _) => self.links.extend(links),
            (Err(e), [one]) => self.refused.push((one.index, e)),
            (Err(_), _) => {
                let (left, right) = points.split_at(points.len() / 2);
                self.go(kernel, there, left);
                self.go(kernel, there, right);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;
    use std::rc::Rc;

    type Standing = Rc<RefCell<Vec<(u32, u64, u64)>>>;

    /// A kernel that refuses some offsets and knows what stands where.
    #[derive(Default)]
    struct Fake {
        standing: Standing,
        refuses: Vec<u64>,
        calls: Cell<u32>,
        changing: Cell<bool>,
        forgotten: RefCell<Vec<u32>>,
    }

    struct FakeLink(Standing, Vec<(u32, u64, u64)>);

    impl Drop for FakeLink {
        fn drop(&mut self) {
            for mine in &self.1 {
                let at = self.0.borrow().iter().position(|x| x == mine).expect("it stands");
                self.0.borrow_mut().swap_remove(at);
            }
        }
    }

    impl Setter for Fake {
        type Link = FakeLink;

        fn set(&self, _: Side, pid: u32, file: &Path, at: &[(u64, u64)]) -> Result<FakeLink, UprobeError> {
            self.calls.set(self.calls.get() + 1);
            if let Some((offset, _)) = at.iter().find(|(offset, _)| self.refuses.contains(offset)) {
                let (file, reason) = (file.into(), "no".into());
                return Err(UprobeError::Attach { file, offset: *offset, reason });
            }
            let mine: Vec<_> = at.iter().map(|(offset, cookie)| (pid, *offset, *cookie)).collect();
            self.standing.borrow_mut().extend(mine.iter().copied());
            Ok(FakeLink(Rc::clone(&self.standing), mine))
        }

        fn begin_change(&self) -> Result<(), UprobeError> {
            self.changing.set(true);
            Ok(())
        }

        fn forget(&self, turn: u32) {
            self.forgotten.borrow_mut().push(turn);
        }
    }

    impl Fake {
        /// How many turns of which point stand at each place.
        fn there(&self) -> BTreeMap<(u32, u64, u32), usize> {
            let mut all = BTreeMap::new();
            for &(pid, offset, cookie) in self.standing.borrow().iter() {
                *all.entry((pid, offset, cookie as u32)).or_insert(0) += 1;
            }
            assert!(self.changing.get() || all.values().all(|n| *n == 1));
            all
        }
    }

    fn point(index: u32) -> UprobePoint {
        let entry = u64::from(index) * 16;
        UprobePoint { index, entry, exits: vec![entry + 8, entry + 9], by_path: true, values: Vec::new() }
    }

    fn places(pid: u32, indexes: impl IntoIterator<Item = u32>) -> BTreeMap<(u32, u64, u32), usize> {
        let of = |i: u32| [0, 8, 9].map(|d| ((pid, u64::from(i) * 16 + d, i), 1));
        indexes.into_iter().flat_map(of).collect()
    }

    fn add(kernel: &Fake, groups: &mut Groups<FakeLink>, pid: u32, range: std::ops::Range<u32>) -> Vec<u32> {
        let points: Vec<_> = range.map(point).collect();
        let refused = groups.add(kernel, pid, Path::new("/x"), &points);
        refused.into_iter().map(|(index, _)| index).collect()
    }

    #[test]
    fn a_thousand_functions_take_two_links_and_those_refused_are_named() {
        let kernel = Fake { refuses: vec![77 * 16, 500 * 16 + 9], ..Fake::default() };
        let mut groups = Groups::default();
        assert_eq!(add(&kernel, &mut groups, 7, 0..1000), [77, 500]);
        assert_eq!(kernel.there(), places(7, (0..1000).filter(|i| ![77, 500].contains(i))));
        assert!(kernel.calls.get() < 100);
        let willing = Fake::default();
        assert!(add(&willing, &mut Groups::default(), 7, 0..1000).is_empty());
        assert_eq!(willing.calls.get(), 2);
    }

    #[test]
    fn some_go_and_the_others_stand_all_the_time() {
        let kernel = Fake::default();
        let mut groups = Groups::default();
        add(&kernel, &mut groups, 7, 0..10);
        add(&kernel, &mut groups, 7, 10..20);
        add(&kernel, &mut groups, 8, 0..20);
        let stay = || (0..5).chain(15..20);
        let (gone, failed) = groups.remove(&kernel, |i| (5..15).contains(&i));
        assert!(failed.is_ok() && kernel.changing.get());
        assert!(places(7, stay()).into_iter().chain(places(8, stay())).all(|(at, _)| kernel.there()[&at] == 2));
        drop(gone);
        kernel.changing.set(false);
        let expected: BTreeMap<_, _> = places(7, stay()).into_iter().chain(places(8, stay())).collect();
        assert_eq!(kernel.there(), expected);
        drop(groups.leave(8));
        assert_eq!(kernel.there(), places(7, stay()));
        // A whole group goes without anything set anew.
        let (gone, _) = groups.remove(&kernel, |i| i < 5);
        assert!(!kernel.changing.get());
        drop(gone);
        assert_eq!(kernel.there(), places(7, 15..20));
        drop(groups.remove(&kernel, |_| true).0);
        assert_eq!((kernel.there().len(), groups.pids().count()), (0, 0));
    }

    #[test]
    fn what_cannot_be_set_again_stays_as_it_was() {
        let mut kernel = Fake::default();
        let mut groups = Groups::default();
        add(&kernel, &mut groups, 7, 0..4);
        kernel.refuses = vec![0];
        let (gone, failed) = groups.remove(&kernel, |i| i == 2);
        assert!(gone.is_empty() && failed.is_err());
        assert_eq!((kernel.there(), kernel.forgotten.take()), (places(7, 0..4), vec![1]));
    }
}
