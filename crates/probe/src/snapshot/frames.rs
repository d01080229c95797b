//! Frames of call paths. The shared tables and the snapshot both share them from the outermost inwards, but by
//! numbers of their own: sites of a snapshot are places in modules, and stay when the modules go.

use crate::segment::{Frame, Segment};
use rustc_hash::FxHashMap;
use whither_abi::agent as abi;
use whither_store::calls::{CallFrame, FrameKind};

/// Most frames followed of a chain: more than any honest one has.
const MOST: usize = abi::MOST_DEPTH as usize;
/// No frame.
const NONE: u32 = u32::MAX;

/// A path, as it was when it was seen first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) point: u32,
    pub(crate) parent: u32,
    pub(crate) same: u16,
    /// Index of its innermost caller.
    pub(crate) frame: u32,
    /// It stands for calls.
    valid: bool,
}

/// All frames met so far.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    frames: Vec<CallFrame>,
    index: FxHashMap<CallFrame, u32>,
    paths: Vec<Known>,
}

impl Frames {
    /// Takes in the paths that are new; `place` tells module and stated address of a return address.
    pub(crate) fn absorb(&mut self, segment: &Segment, place: &dyn Fn(u64) -> (u32, u64)) {
        let count = segment.n_paths() as usize;
        // A path whose words are not written yet is looked at again next time.
        let first = self.paths.iter().position(|k| !k.valid && k.point == 0).unwrap_or(self.paths.len());
        self.paths.resize(count.max(self.paths.len()), Known::default());
        for id in first.max(1)..count {
            if !self.paths[id].valid {
                self.paths[id] = self.known(segment, id as u32, place);
            }
        }
        if let Some(none) = self.paths.first_mut() {
            // Index 0 is no path and needs no second look.
            none.point = NONE;
        }
    }

    fn known(&mut self, segment: &Segment, id: u32, place: &dyn Fn(u64) -> (u32, u64)) -> Known {
        let path = segment.path(id);
        if path.frame == 0 || path.point == 0 {
            return Known::default();
        }
        let (callers, root) = chain(segment, path.frame);
        let mut frame = match root {
            abi::ROOT_FULL => self.frame(FrameKind::Other, 0, NONE, false, &|_| (u32::MAX, 0)),
            abi::ROOT_END => NONE,
            joined if joined & abi::ROOT_JOIN != 0 => NONE,
            // And what is no root: nothing tells that such a path is whole.
            _ => self.frame(FrameKind::Truncated, 0, NONE, false, &|_| (u32::MAX, 0)),
        };
        for caller in callers.into_iter().rev() {
            let ra = segment.site(caller.site).ra;
            frame = self.frame(FrameKind::Caller, ra, frame, caller.by_frame_pointer, place);
        }
        let parent = if root & abi::ROOT_JOIN == 0 { 0 } else { root & !abi::ROOT_JOIN };
        Known { point: u32::from(path.point), parent, same: path.same, frame, valid: true }
    }

    fn frame(
        &mut self,
        kind: FrameKind,
        ra: u64,
        caller: u32,
        by_frame_pointer: bool,
        place: &dyn Fn(u64) -> (u32, u64),
    ) -> u32 {
        let (module, offset) = place(ra);
        let frame = CallFrame { kind, module, offset, caller, by_frame_pointer };
        *self.index.entry(frame).or_insert_with(|| {
            self.frames.push(frame);
            (self.frames.len() - 1) as u32
        })
    }

    /// A path; `None` when it stands for nothing.
    pub(crate) fn path(&self, id: u32) -> Option<&Known> {
        self.paths.get(id as usize).filter(|k| k.valid)
    }

    /// The forest.
    pub(crate) fn frames(&self) -> &[CallFrame] {
        &self.frames
    }
}

/// The frames from the innermost outwards, and the root that they end in. Rubbish ends them too.
fn chain(segment: &Segment, innermost: u32) -> (Vec<Frame>, u32) {
    let mut frames = Vec::new();
    let mut at = innermost;
    while let Some(frame) = segment.frame(at).filter(|_| frames.len() < MOST) {
        frames.push(frame);
        at = frame.outside;
    }
    (frames, at)
}
