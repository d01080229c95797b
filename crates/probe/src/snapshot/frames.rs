//! Frames of call paths. Nodes grow from the probed function outwards, frames of a snapshot are shared
//! from the outermost inwards: each path is turned round once, equal tails become one.

use crate::segment::Segment;
use rustc_hash::FxHashMap;
use whither_abi::agent as abi;
use whither_store::calls::{CallFrame, FrameKind};

/// Most frames followed of a chain: more than any honest one has.
const MOST: usize = 1 << 16;
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
        if path.node == 0 || path.point == 0 {
            return Known::default();
        }
        let mut frame = NONE;
        let mut node = segment.node(path.node);
        if node.flags & abi::NODE_FULL != 0 && node.parent == 0 {
            frame = self.frame(FrameKind::Other, 0, NONE, false, &|_| (u32::MAX, 0));
        }
        if node.flags & abi::NODE_TRUNCATED != 0 {
            frame = self.frame(FrameKind::Truncated, 0, NONE, false, &|_| (u32::MAX, 0));
        }
        // From the outermost node inwards; the root stands for the function itself.
        for _ in 0..MOST {
            if node.parent == 0 {
                break;
            }
            if node.ra & abi::JOIN == 0 && node.ra > abi::RA_UNREAD {
                let by_fp = node.flags & abi::NODE_FP != 0;
                frame = self.frame(FrameKind::Caller, node.ra, frame, by_fp, place);
            }
            node = segment.node(node.parent);
        }
        Known { point: path.point, parent: path.parent, same: path.same, frame, valid: true }
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
