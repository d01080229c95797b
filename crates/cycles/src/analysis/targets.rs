//! Which ways branches were seen to go: conditional ones by the flow, calls and jumps through registers and memory by the targets that
//! interpretation, walks and records met.

use super::Study;
use super::frequency::Frequencies;
use super::subject::Places;
use super::tables::Tables;
use crate::culprits::{self, BranchSeen};
use crate::find::Procedure;
use std::collections::BTreeMap;
use whither_image::Flow;
use whither_image::cfg::EdgeKind;
use whither_store::model::{EdgeSample, Way};

impl Study {
    /// How a branch that is guessed went. `ways`: known edges out of each block.
    pub(super) fn branch_seen(
        &self,
        f: &Frequencies,
        ways: &[Vec<usize>],
        insn: usize,
    ) -> Option<culprits::BranchSeen> {
        if let Some(seen) = self.subject.targets.of(insn) {
            return Some(seen);
        }
        let block = self.subject.block_of(insn).filter(|&b| self.subject.cfg.blocks[b].insns.end == insn + 1)?;
        let out = || ways[block].iter().copied();
        let fall = out().find(|&e| self.subject.cfg.edges[e].kind == EdgeKind::Fall)?;
        let decided: f64 = out().map(|e| f.seen[e]).sum();
        let rarer = f.seen[fall].min(decided - f.seen[fall]);
        let through = f.flow.blocks[block];
        (through > 0.0).then(|| culprits::BranchSeen { taken: 1.0 - f.flow.edges[fall] / through, decided, rarer })
    }
}

/// Of each indirect call and jump, how often it was seen to go anywhere, and to the target that it was seen to go to most.
#[derive(Clone, Debug, Default)]
pub(crate) struct Targets {
    seen: BTreeMap<usize, (f64, f64)>,
}

impl Targets {
    pub(super) fn new(p: &Procedure, places: &Places<'_>, tables: &Tables<'_>) -> Self {
        let rows = places.parts().flat_map(|part| tables.edges_in(p.image, &part));
        Self::of_rows(places, rows)
    }

    fn of_rows<'r>(places: &Places<'_>, rows: impl Iterator<Item = &'r EdgeSample>) -> Self {
        let mut each: BTreeMap<usize, BTreeMap<Way, f64>> = BTreeMap::new();
        for row in rows.filter(|row| matches!(row.way, Way::To(_) | Way::Taken)) {
            let branch = places.insn(row.branch);
            let indirect = |i: &usize| matches!(places.cfg.insns[*i].flow, Flow::IndirectCall | Flow::IndirectJump);
            if let Some(branch) = branch.filter(indirect) {
                *each.entry(branch).or_default().entry(row.way).or_default() += f64::from(row.count);
            }
        }
        let sums = |ways: BTreeMap<Way, f64>| {
            // To nobody knows where may be to many places.
            let most = ways.iter().filter(|(way, _)| **way != Way::Taken).map(|(_, n)| *n).fold(0.0, f64::max);
            (ways.values().sum(), most)
        };
        Self { seen: each.into_iter().map(|(branch, ways)| (branch, sums(ways))).collect() }
    }

    /// What is known of an indirect branch: its likeliest target is the way that it goes.
    pub(super) fn of(&self, insn: usize) -> Option<BranchSeen> {
        let (decided, most) = *self.seen.get(&insn)?;
        (decided > 0.0).then(|| BranchSeen { taken: most / decided, decided, rarer: decided - most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_image::{Cfg, ImageOffset, Svma, decode};
    use whither_store::model::{EdgeSource, IdKind, Image, ImageIx, ImageKind};

    #[test]
    fn the_targets_of_calls_through_pointers_are_counted() {
        // 0: call *(%rax)   1: call 0x1007   2: ret
        let code = [0xff, 0x10, 0xe8, 0, 0, 0, 0, 0xc3];
        let cfg = Cfg {
            insns: decode(&code, Svma(0x1000)),
            blocks: vec![],
            edges: vec![],
            parts: vec![],
            tables: vec![],
            tail_jumps: vec![],
            missing: vec![],
        };
        let image = Image {
            id: Default::default(),
            id_kind: IdKind::Synthetic,
            kind: ImageKind::Elf,
            path: "/a".into(),
            segments: vec![],
            size: 0x2000,
        };
        let row = |branch: u64, way, count| EdgeSample {
            image: ImageIx(0),
            pc: ImageOffset(0x1000),
            branch: ImageOffset(branch),
            way,
            source: EdgeSource::Walks,
            count,
        };
        let of = |rows: &[EdgeSample], insn| {
            let seen = Targets::of_rows(&Places { image: &image, cfg: &cfg }, rows.iter()).of(insn);
            seen.map(|s| (s.decided, s.rarer))
        };
        let to = |at| Way::To(ImageOffset(at));
        assert_eq!(of(&[row(0x1000, to(0x1800), 1200), row(0x1000, to(0x1800), 10)], 0), Some((1210.0, 0.0)));
        assert_eq!(of(&[row(0x1000, to(0x1800), 9), row(0x1000, to(0x1900), 2)], 0), Some((11.0, 2.0)));
        assert_eq!(of(&[row(0x1000, Way::Taken, 40)], 0), Some((40.0, 40.0)), "another image has many places");
        assert_eq!(of(&[row(0x1002, to(0x1007), 40)], 1), None, "a direct call needs no guess");
    }
}
