//! The code that may run after a sampled address, as far as decisions can follow each other: a small graph of
//! steps, grown breadth first, past a branch only if registers or the recipe can decide it.

use super::lower::{Barrier, Op, Operand, Step, lower};
use super::machine::{Kept, Machine, Memory, little_endian};
use super::recipe::Recipe;
use super::symbolic::{Around, Hidden, State, Symbol};
use super::value::{Value, holds};
use super::{Decision, Ending, MOST_STEPS, RecipeStep, Registers, Source};
use crate::ids::Svma;
use crate::jump_tables::Data;
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Instructions interpreted for one sample; also those of a slice.
pub(super) const LONGEST: usize = 64;
/// Bytes of the longest instruction.
pub(super) const MOST_BYTES: usize = 15;
const NOWHERE: u16 = u16::MAX;

#[derive(Clone, Debug)]
struct Node {
    step: Step,
    at: Svma,
    /// Node of the next instruction.
    next: u16,
    /// Node at the target of a direct jump or branch.
    taken: u16,
}

/// Read-only data of the image that the slice's loads need.
#[derive(Clone, Debug, Default)]
struct Constants(Vec<(Svma, u8, [u8; 8])>);

impl Data for Constants {
    fn bytes(&self, at: Svma, len: usize) -> Option<&[u8]> {
        let hit = self.0.iter().find(|c| c.0 == at && usize::from(c.1) == len)?;
        hit.2.get(..len)
    }
}

/// What may follow a sampled address.
#[derive(Clone, Debug)]
pub struct Slice {
    nodes: Vec<Node>,
    constants: Constants,
    recipe: Vec<RecipeStep>,
    ending: Ending,
}

impl Slice {
    /// Follows the code from a stated address. `code` must hold the text and the read-only data of the image,
    /// and nothing that relocation or the program may change.
    #[must_use]
    pub fn new(code: &dyn Data, at: Svma) -> Self {
        let mut growth = Growth {
            code,
            infos: InstructionInfoFactory::new(),
            nodes: Vec::new(),
            known: FxHashMap::default(),
            constants: Constants::default(),
            recipe: Recipe::default(),
            ending: None,
            open: VecDeque::new(),
        };
        growth.open.push_back(Walk { at, state: State::sampled(), from: None });
        while let Some(walk) = growth.open.pop_front() {
            growth.follow(walk);
        }
        growth.nodes.shrink_to_fit();
        Self {
            nodes: growth.nodes,
            constants: growth.constants,
            recipe: growth.recipe.finish(),
            ending: growth.ending.unwrap_or(Ending::TooLong),
        }
    }

    /// Steps whose loads, read at the interrupt in this order, allow more decisions. Empty when registers alone
    /// decide, or nothing helps.
    #[must_use]
    pub fn recipe(&self) -> &[RecipeStep] {
        &self.recipe
    }

    /// What decides the first branch, or why nothing does.
    #[must_use]
    pub fn ending(&self) -> Ending {
        self.ending
    }

    /// The decisions that follow from registers and the values of the recipe's loads (absent or `None`: not
    /// read), in the order in which they are executed. Runtime addresses are stated ones plus `bias`.
    #[must_use]
    pub fn decide(&self, regs: &Registers, loads: &[Option<u64>], bias: u64) -> Vec<Decision> {
        self.decide_with(&self.constants, regs, loads, bias)
    }

    /// The same with read-only data of the image at hand, so that jump tables need no load. `code` is what the
    /// slice was made of.
    #[must_use]
    pub fn decide_with(&self, code: &dyn Data, regs: &Registers, loads: &[Option<u64>], bias: u64) -> Vec<Decision> {
        let kept = kept(&self.recipe, regs, loads, bias);
        let mut machine = Machine {
            gpr: regs.gpr.map(Value::exact),
            flags: Value::exact(regs.flags),
            memory: Memory::new(&kept, code, bias),
            bias,
        };
        let mut decisions = Vec::new();
        let mut at = 0;
        for _ in 0..LONGEST {
            let Some(node) = self.nodes.get(usize::from(at)) else { break };
            match node.pass(&mut machine, &mut decisions) {
                Some(next) => at = next,
                None => break,
            }
        }
        decisions
    }
}

/// Memory as the recipe's loads found it; `loads` are the values of those steps that load.
pub(super) fn kept(recipe: &[RecipeStep], regs: &Registers, loads: &[Option<u64>], bias: u64) -> Vec<Kept> {
    let mut values = [None; MOST_STEPS];
    let mut read = loads.iter().copied();
    let mut kept = Vec::new();
    for (n, step) in recipe.iter().enumerate().take(MOST_STEPS) {
        let value = |source: Source| match source {
            Source::Gpr(n) => regs.gpr.get(usize::from(n)).copied(),
            Source::Step(n) => values.get(usize::from(n)).copied().flatten(),
        };
        let sum = step.sum(value, bias);
        values[n] = match step.load {
            None => sum,
            Some(size) => {
                // Cut, should more have been read than was asked for.
                let found = read.next().flatten().map(|v| v & super::value::mask(size));
                kept.extend(sum.zip(found).map(|(at, v)| Kept { at, size, value: Value::exact(v) }));
                found.filter(|_| sum.is_some())
            }
        };
    }
    kept
}

impl Node {
    /// Executes one step; the node to go on with, unless nothing is certain any more.
    fn pass(&self, machine: &mut Machine<'_>, decisions: &mut Vec<Decision>) -> Option<u16> {
        let branch =
            |taken: bool| (Decision::Branch { at: self.at, taken }, if taken { self.taken } else { self.next });
        let (decision, next) = match self.step.op {
            Op::Jump(_) => return Some(self.taken),
            Op::Branch { condition, .. } => branch(holds(condition, machine.flags)?),
            Op::BranchIfNone { size, .. } => branch(machine.gpr[1].get(size)? == 0),
            Op::IndirectJump | Op::IndirectCall => {
                let to = machine.read(self.step.dst, &self.step).get(8)?;
                (Decision::Target { at: self.at, to }, NOWHERE)
            }
            _ => {
                machine.execute(&self.step).ok()?;
                return Some(self.next);
            }
        };
        decisions.push(decision);
        Some(next)
    }
}

/// A place that the graph still has to be grown from.
struct Walk {
    at: Svma,
    state: State,
    /// Node that leads here, and whether by its branch.
    from: Option<(usize, bool)>,
}

struct Growth<'a> {
    code: &'a dyn Data,
    infos: InstructionInfoFactory,
    nodes: Vec<Node>,
    known: FxHashMap<Svma, u16>,
    constants: Constants,
    recipe: Recipe,
    ending: Option<Ending>,
    open: VecDeque<Walk>,
}

impl Growth<'_> {
    /// Adds steps up to the next place where control may go two ways, or nowhere.
    fn follow(&mut self, mut walk: Walk) {
        loop {
            if let Some(&there) = self.known.get(&walk.at) {
                self.link(walk.from, there);
                return;
            }
            let (step, end) = match self.decode(walk.at) {
                Ok(found) => found,
                Err(why) => return self.end(why),
            };
            if self.nodes.len() >= LONGEST {
                return self.end(Ending::TooLong);
            }
            let here = self.nodes.len();
            self.nodes.push(Node { step, at: walk.at, next: NOWHERE, taken: NOWHERE });
            self.known.insert(walk.at, here as u16);
            self.link(walk.from, here as u16);
            match step.op {
                Op::Jump(to) => (walk.at, walk.from) = (Svma(to), Some((here, true))),
                Op::Branch { to, .. } | Op::BranchIfNone { to, .. } => {
                    let input =
                        if matches!(step.op, Op::Branch { .. }) { walk.state.flags() } else { walk.state.counter() };
                    if self.decidable(input) {
                        let state = walk.state.clone();
                        self.open.push_back(Walk { at: end, state, from: Some((here, false)) });
                        self.open.push_back(Walk { at: Svma(to), state: walk.state, from: Some((here, true)) });
                    }
                    return;
                }
                Op::IndirectJump | Op::IndirectCall => return self.indirect(&step, &mut walk.state),
                _ => {
                    self.around(|around| walk.state.step(&step, around));
                    (walk.at, walk.from) = (end, Some((here, false)));
                }
            }
        }
    }

    fn link(&mut self, from: Option<(usize, bool)>, to: u16) {
        if let Some((node, branch)) = from {
            let node = &mut self.nodes[node];
            *(if branch { &mut node.taken } else { &mut node.next }) = to;
        }
    }

    /// Only what is met first counts.
    fn end(&mut self, ending: Ending) {
        self.ending.get_or_insert(ending);
    }

    /// Whether an input can be known at the interrupt; takes the loads it needs into the recipe.
    fn decidable(&mut self, input: Symbol) -> bool {
        let ending = match input.loads() {
            Ok(0) => Ending::Registers,
            Ok(loads) if self.recipe.want(loads) => Ending::NeedsLoads,
            Ok(_) | Err(Hidden::Address) => Ending::Address,
            Err(Hidden::Aliased) => Ending::Aliased,
            Err(Hidden::Instruction) => Ending::Uninterpreted,
        };
        self.end(ending);
        matches!(ending, Ending::Registers | Ending::NeedsLoads)
    }

    fn indirect(&mut self, step: &Step, state: &mut State) {
        let address = &step.address;
        let fixed = matches!(step.dst, Operand::Memory { .. }) && address.base.is_none() && address.index.is_none();
        if fixed {
            // Always the same target, which the loader has put there: not worth a load.
            return self.end(if step.op == Op::IndirectCall { Ending::Call } else { Ending::IndirectUnknown });
        }
        let target = self.around(|around| state.read(step.dst, step, around));
        self.decidable(target);
    }

    /// Lends what a symbolic step needs.
    fn around<T>(&mut self, use_it: impl FnOnce(&mut Around<'_>) -> T) -> T {
        let (code, constants) = (self.code, &mut self.constants);
        let mut constant = |at: u64, size: u8| {
            let value = code.bytes(Svma(at), usize::from(size)).and_then(little_endian);
            if let Some(value) = value {
                constants.0.push((Svma(at), size, value.to_le_bytes()));
            }
            value.is_some()
        };
        use_it(&mut Around { recipe: &mut self.recipe, constant: &mut constant })
    }

    /// The step at an address, and where the next instruction is.
    fn decode(&mut self, at: Svma) -> Result<(Step, Svma), Ending> {
        let bytes = (1..=MOST_BYTES).rev().find_map(|len| self.code.bytes(at, len)).ok_or(Ending::Undecodable)?;
        let raw = Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE).decode();
        match lower(&raw, &mut self.infos) {
            Ok(step) => Ok((step, Svma(raw.next_ip()))),
            Err(Barrier::Call) => Err(Ending::Call),
            Err(Barrier::Return) => Err(Ending::Return),
            Err(Barrier::Unsupported) => Err(Ending::Unsupported),
            Err(Barrier::Undecodable) => Err(Ending::Undecodable),
        }
    }
}
