//! The control-flow graph of one function from its machine code: blocks, edges, and what is missing.
//! Jump tables are resolved, cold parts belong to their function, jumps to other functions leave (tail
//! calls), calls that never return end their block. An indirect jump that is not understood makes the
//! graph *incomplete*, and it says where: whoever reasons about it must know (DCPI section 6.1.1).

mod exits;
mod height;

use crate::disasm::{Flow, Insn, decode};
use crate::graph::{Graph, Loop};
use crate::ids::Svma;
use crate::jump_tables::{Data, JumpTable, lacks_its_table, resolve};
use exits::Exits;
use std::ops::Range;

/// More parts than this are no function any more.
const MOST_PARTS: usize = 32;

/// What must be known of the image around a function. Addresses are stated ones.
pub trait Surroundings: Data {
    /// Extent of the function or part that holds an address.
    fn extent(&self, at: Svma) -> Option<Range<u64>>;
    /// Whether the part that begins here belongs to the function named by its first address: a cold
    /// part. Without names this is decided by whether it jumps back.
    fn is_part_of(&self, part: Svma, function: Svma) -> Option<bool>;
    /// Whether a call of this address comes back (`abort` and the like do not).
    fn returns(&self, callee: Svma) -> bool;
}

/// Why a block is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EdgeKind {
    /// The next instruction follows.
    Fall,
    /// A direct branch is taken.
    Taken,
    /// By a jump table.
    Table,
    /// Back to the caller, or to a function that returns there in its stead.
    Leave,
    /// From outside into the function.
    Enter,
}

/// One edge. [`Cfg::start`] and [`Cfg::end`] stand for the outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Edge {
    /// Block it leaves, or [`Cfg::start`].
    pub from: usize,
    /// Block it enters, or [`Cfg::end`].
    pub to: usize,
    /// Why.
    pub kind: EdgeKind,
}

/// Instructions executed one after the other; calls that return do not end a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CfgBlock {
    /// Indices into [`Cfg::insns`]; never empty.
    pub insns: Range<usize>,
}

/// Where edges are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// An indirect jump that fits no known shape: table not found, computed goto, or tail call.
    IndirectJump(Svma),
    /// An indirect jump by a table whose bytes are not there.
    TableGone(Svma),
    /// A table whose length is a guess.
    Unbounded(Svma),
    /// Bytes that do not decode, reached from code.
    Undecodable(Svma),
    /// A branch into the middle of an instruction.
    Inside(Svma),
}

/// A function's graph.
#[derive(Clone, Debug)]
pub struct Cfg {
    /// Instructions of all parts, by address; parts are not adjacent.
    pub insns: Vec<Insn>,
    /// In order of addresses. Block 0 need not be the entry: see the `Enter` edge.
    pub blocks: Vec<CfgBlock>,
    /// Sorted, without repetitions.
    pub edges: Vec<Edge>,
    /// The function and its cold parts.
    pub parts: Vec<Range<u64>>,
    /// Resolved tables.
    pub tables: Vec<JumpTable>,
    /// Indirect jumps that hand the frame on to a function known by pointer only.
    pub tail_jumps: Vec<Svma>,
    /// Empty when the graph is complete.
    pub missing: Vec<Missing>,
}

impl Cfg {
    /// The graph of the function at `function`.
    #[must_use]
    pub fn new(function: Range<u64>, around: &dyn Surroundings) -> Self {
        let mut cfg = Self {
            insns: Vec::new(),
            blocks: Vec::new(),
            edges: Vec::new(),
            parts: vec![function],
            tables: Vec::new(),
            tail_jumps: Vec::new(),
            missing: Vec::new(),
        };
        cfg.collect_parts(around);
        cfg.resolve_tables(around);
        cfg.cut(around);
        cfg
    }

    /// Number that stands for the callers in edges.
    #[must_use]
    pub fn start(&self) -> usize {
        self.blocks.len()
    }

    /// Number that stands for wherever the function leaves to.
    #[must_use]
    pub fn end(&self) -> usize {
        self.blocks.len() + 1
    }

    /// The block that holds an address.
    #[must_use]
    pub fn block_at(&self, at: Svma) -> Option<usize> {
        let i = self.blocks.partition_point(|b| self.insns[b.insns.start].address <= at).checked_sub(1)?;
        let last = &self.insns[self.blocks[i].insns.end - 1];
        (at.0 < last.end().0).then_some(i)
    }

    /// Blocks and edges as one graph in which cycle classes can be told: block `b` is the edge from node
    /// `2b` to `2b + 1`, in the order of [`Self::blocks`]; then come [`Self::edges`], then the edge from
    /// the end back to the start. Blocks that cannot reach the end (endless loops), or cannot be reached,
    /// are tied to it by further edges, so that the graph is strongly connected.
    #[must_use]
    pub fn flow_graph(&self) -> Graph {
        let n = self.blocks.len();
        let (start, end) = (2 * n, 2 * n + 1);
        let leave = |b: usize| if b == n { start } else { 2 * b + 1 };
        let enter = |b: usize| if b == n + 1 { end } else { 2 * b };
        let mut graph = Graph { nodes: 2 * n + 2, edges: (0..n).map(|b| (2 * b, 2 * b + 1)).collect() };
        graph.edges.extend(self.edges.iter().map(|e| (leave(e.from), enter(e.to))));
        graph.edges.push((end, start));
        tie(&mut graph, start, false, |node| (start, node));
        tie(&mut graph, end, true, |node| (node, end));
        graph
    }

    /// Natural loops of blocks, outer ones before inner ones.
    #[must_use]
    pub fn loops(&self) -> Vec<Loop> {
        let edges = self.edges.iter().map(|e| (e.from, e.to)).collect();
        Graph { nodes: self.end() + 1, edges }.loops(self.start())
    }

    /// Class of each block, then of each edge: members of one class are executed equally often. With
    /// missing edges nothing can be concluded: every block and edge is alone.
    #[must_use]
    pub fn classes(&self) -> (Vec<usize>, Vec<usize>) {
        let (n, m) = (self.blocks.len(), self.edges.len());
        if !self.missing.is_empty() {
            return ((0..n).collect(), (n..n + m).collect());
        }
        let all = self.flow_graph().cycle_classes();
        (all[..n].to_vec(), all[n..n + m].to_vec())
    }

    /// Follows jumps and branches out of the known parts into the function's cold parts.
    fn collect_parts(&mut self, around: &dyn Surroundings) {
        let entry = Svma(self.parts[0].start);
        let mut next = 0;
        while let Some(part) = self.parts.get(next).cloned() {
            next += 1;
            let len = (part.end - part.start) as usize;
            let Some(bytes) = around.bytes(Svma(part.start), len) else {
                self.missing.push(Missing::Undecodable(Svma(part.start)));
                continue;
            };
            let insns = decode(bytes, Svma(part.start));
            for insn in &insns {
                let conditional = matches!(insn.flow, Flow::Branch(_));
                let (Flow::Jump(to) | Flow::Branch(to)) = insn.flow else { continue };
                if self.holds(to) || self.parts.len() >= MOST_PARTS {
                    continue;
                }
                let Some(extent) = around.extent(to) else { continue };
                // A jump to a function's entry is a tail call; a conditional one is hardly ever.
                let named = around.is_part_of(Svma(extent.start), entry);
                if named.unwrap_or_else(|| conditional || self.jumps_back(&extent, around)) {
                    self.parts.push(extent);
                }
            }
            self.insns.extend(insns);
        }
        self.insns.sort_by_key(|i| i.address);
        self.insns.dedup_by_key(|i| i.address);
    }

    fn holds(&self, at: Svma) -> bool {
        self.parts.iter().any(|p| p.contains(&at.0))
    }

    fn jumps_back(&self, part: &Range<u64>, around: &dyn Surroundings) -> bool {
        let Some(bytes) = around.bytes(Svma(part.start), (part.end - part.start) as usize) else { return false };
        let entry = self.parts[0].start;
        decode(bytes, Svma(part.start))
            .iter()
            .any(|i| matches!(i.flow, Flow::Jump(t) | Flow::Branch(t) if t.0 != entry && self.holds(t)))
    }

    fn resolve_tables(&mut self, around: &dyn Surroundings) {
        let indirect = |i: &(usize, &Insn)| i.1.flow == Flow::IndirectJump;
        for (i, insn) in self.insns.iter().enumerate().filter(indirect) {
            if let Some(table) = resolve(&self.insns, i, &self.parts, around) {
                if !table.bounded && !self.ends_by_itself(&table, around) {
                    self.missing.push(Missing::Unbounded(insn.address));
                }
                self.tables.push(table);
            }
        }
        self.tail_jumps = height::tail_jumps(&self.insns, Svma(self.parts[0].start), &self.tables);
        for (i, insn) in self.insns.iter().enumerate().filter(indirect) {
            let known = self.tables.iter().any(|t| t.jump == insn.address) || self.leaves_by_pointer(insn);
            if !known {
                let gone = lacks_its_table(&self.insns, i, around);
                let of = if gone { Missing::TableGone } else { Missing::IndirectJump };
                self.missing.push(of(insn.address));
            }
        }
    }

    /// Through one fixed pointer (a procedure-linkage stub, or a tail call), or a tail call by any pointer.
    fn leaves_by_pointer(&self, insn: &Insn) -> bool {
        insn.raw.is_ip_rel_memory_operand() || self.tail_jumps.contains(&insn.address)
    }

    /// Whether what stands behind the entries read of a table leads to no place a table could lead to: then all of
    /// the table was read. More may have been, which adds edges that are never taken.
    fn ends_by_itself(&self, table: &JumpTable, around: &dyn Surroundings) -> bool {
        let Some(beyond) = table.beyond(around) else { return true };
        let Some(extent) = around.extent(beyond) else { return true };
        around.is_part_of(Svma(extent.start), Svma(self.parts[0].start)) == Some(false)
    }

    /// Cuts instructions into blocks and joins them by edges.
    fn cut(&mut self, around: &dyn Surroundings) {
        let exits = Exits::of(self, around);
        let entry = Svma(self.parts[0].start);
        let mut leaders = vec![entry];
        let unknown = |m: &Missing| matches!(m, Missing::IndirectJump(_) | Missing::TableGone(_));
        if self.missing.iter().any(unknown) {
            leaders.extend(height::own_addresses(&self.insns, entry, &self.tables));
        }
        for (i, insn) in self.insns.iter().enumerate() {
            let ends = ends_block(insn, around) || !self.adjacent(i);
            if ends && let Some(next) = self.insns.get(i + 1) {
                leaders.push(next.address);
            }
            if ends && !exits.from(i).iter().any(|t| t.1 == EdgeKind::Fall) {
                // Padding is no head of what stands behind it, which may be entered by a jump nobody understands.
                leaders.extend(self.behind_padding(i));
            }
        }
        for to in exits.jumped_to() {
            match self.index_of(to) {
                Some(there) => leaders.push(self.insns[there].address),
                None if self.holds(to) => self.missing.push(Missing::Inside(to)),
                None => {}
            }
        }
        leaders.sort_unstable();
        leaders.dedup();
        let starts: Vec<usize> = leaders.iter().filter_map(|&l| self.index_of(l)).collect();
        let ends = starts.iter().skip(1).copied().chain([self.insns.len()]);
        let all: Vec<Range<usize>> = starts.iter().copied().zip(ends).map(|(a, b)| a..b).collect();
        self.blocks = all
            .into_iter()
            .filter(|r| !r.is_empty())
            .filter(|r| !self.is_filler(r, &exits, entry))
            .map(|insns| CfgBlock { insns })
            .collect();
        self.connect(&exits, entry);
    }

    fn connect(&mut self, exits: &Exits, entry: Svma) {
        let (start, end) = (self.start(), self.end());
        let blocks: Vec<Option<usize>> = exits.places().iter().map(|to| self.block_at(*to)).collect();
        if let Some(to) = self.block_at(entry) {
            self.edges.push(Edge { from: start, to, kind: EdgeKind::Enter });
        }
        for (from, block) in self.blocks.iter().enumerate() {
            let last = &self.insns[block.insns.end - 1];
            for &(to, kind) in exits.from(block.insns.end - 1) {
                let place = exits.place(to).filter(|_| kind != EdgeKind::Leave);
                let inside = place.and_then(|place| blocks[place]);
                let kind = if inside.is_some() { kind } else { EdgeKind::Leave };
                self.edges.push(Edge { from, to: inside.unwrap_or(end), kind });
            }
            if last.flow == Flow::Invalid {
                self.missing.push(Missing::Undecodable(last.address));
            }
        }
        self.edges.sort_unstable();
        self.edges.dedup();
    }

    /// The instruction at an address. One byte behind a LOCK prefix is the same instruction too: the C library
    /// jumps there while there is one thread.
    fn index_of(&self, at: Svma) -> Option<usize> {
        match self.insns.binary_search_by_key(&at, |i| i.address) {
            Ok(i) => Some(i),
            Err(behind) => {
                let i = behind.checked_sub(1)?;
                let insn = &self.insns[i];
                (insn.raw.has_lock_prefix() && at.0 == insn.address.0.wrapping_add(1)).then_some(i)
            }
        }
    }

    /// Whether the next instruction stands directly behind this one.
    fn adjacent(&self, i: usize) -> bool {
        self.insns.get(i + 1).is_none_or(|n| n.address == self.insns[i].end())
    }

    /// The first instruction behind an instruction and the padding that follows it.
    fn behind_padding(&self, i: usize) -> Option<Svma> {
        let padding = (i..).take_while(|&i| self.adjacent(i) && self.insns.get(i + 1).is_some_and(Insn::is_idle));
        self.insns.get(i + padding.count() + 1).map(|behind| behind.address)
    }

    /// Padding between code: nothing but no-operations or traps, and nobody goes there.
    fn is_filler(&self, block: &Range<usize>, exits: &Exits, entry: Svma) -> bool {
        let first = self.insns[block.start].address;
        first != entry && exits.place(first).is_none() && self.insns[block.clone()].iter().all(Insn::is_idle)
    }
}

fn ends_block(insn: &Insn, around: &dyn Surroundings) -> bool {
    match insn.flow {
        Flow::Next | Flow::IndirectCall => false,
        Flow::Call(to) => !around.returns(to),
        _ => true,
    }
}

/// Adds an edge for every part of the graph that `from` does not reach (or that does not reach it).
fn tie(graph: &mut Graph, from: usize, against: bool, edge: impl Fn(usize) -> (usize, usize)) {
    loop {
        let seen = graph.reachable(from, against);
        let Some(first) = (0..graph.nodes).find(|&n| !seen[n]) else { return };
        // The node to tie is one from which nothing further back is unreached: a header of the part.
        let mut node = first;
        let mut visited = vec![false; graph.nodes];
        let steps = if against { graph.outgoing() } else { graph.incoming() };
        while !std::mem::replace(&mut visited[node], true) {
            let other = |&e: &usize| if against { graph.edges[e].1 } else { graph.edges[e].0 };
            match steps[node].iter().map(other).find(|&n| !seen[n] && !visited[n]) {
                Some(next) => node = next,
                None => break,
            }
        }
        graph.edges.push(edge(node));
    }
}

#[cfg(test)]
mod tests;
