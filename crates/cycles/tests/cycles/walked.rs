//! Programs with random control flow, walked to the last execution, and recorded on the way as a CPU would record them.
//! Branches are not coins only: some loops have a fixed number of turns, some branches go by a pattern.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use whither_cycles::accuracy::callgrind::{Exact, ExactObject};
use whither_cycles::results::accuracy::Accuracy;
use whither_cycles::results::analysis::Confidence;
use whither_image::{Function, FunctionTable, ImageOffset, NameSource, SourceFrame, StatedBytes, Svma};
use whither_store::model::Image;
use whither_store::symbols::Symbols;

/// Where it is called from: `call` and a jump back to it.
const CALLER: u64 = 0x9000;
/// Where its image says it is.
pub(crate) const BASE: u64 = 0x1000;
pub(crate) const PATH: &str = "/usr/bin/app";

pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn chance(&mut self) -> f64 {
        self.roll(1 << 30) as f64 / f64::from(1 << 30)
    }
}

/// How a branch decides.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    /// Taken with this probability.
    Coin(f64),
    /// Taken so many times, then not once.
    Turns(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Exit {
    Branch(usize, Rule),
    Jump(usize),
    Fall,
    Return,
}

pub(crate) struct Block {
    pub(crate) start: u64,
    /// The last instruction.
    end: u64,
    length: u64,
    pub(crate) exit: Exit,
    /// Time of one execution.
    cost: f64,
}

pub(crate) struct Program {
    pub(crate) blocks: Vec<Block>,
    pub(crate) code: Vec<u8>,
}

impl Program {
    pub(crate) fn new(dice: &mut Dice) -> Self {
        let n = 6 + dice.roll(18) as usize;
        let mut blocks: Vec<Block> = (0..n).map(|i| Self::block(dice, i, n)).collect();
        let mut at = BASE;
        for b in &mut blocks {
            (b.start, b.end) = (at, at + 2 * b.length);
            at = b.end + b.exit.bytes();
            // Without an instruction of its own the last of the others ends it.
            b.end -= if matches!(b.exit, Exit::Fall) { 2 } else { 0 };
        }
        let mut code = Vec::new();
        for b in &blocks {
            code.extend([0xff, 0xc0].repeat(b.length as usize));
            let distance = |to: usize, next: u64| (blocks[to].start.wrapping_sub(next) as u32).to_le_bytes();
            match b.exit {
                Exit::Branch(to, _) => code.extend([&[0x0f, 0x85][..], &distance(to, b.end + 6)].concat()),
                Exit::Jump(to) => code.extend([&[0xe9][..], &distance(to, b.end + 5)].concat()),
                Exit::Return => code.push(0xc3),
                Exit::Fall => {}
            }
        }
        Self { blocks, code }
    }

    fn block(dice: &mut Dice, i: usize, n: usize) -> Block {
        let forwards = |dice: &mut Dice| i + 1 + dice.roll((n - i - 1).min(4) as u64) as usize;
        let back = |dice: &mut Dice| i - dice.roll((i + 1).min(5) as u64) as usize;
        let exit = match dice.roll(10) {
            _ if i + 1 == n => Exit::Return,
            0 => Exit::Fall,
            1 if i > 0 => Exit::Jump(forwards(dice)),
            2 | 3 => Exit::Branch(back(dice), Rule::Coin(0.5 + 0.48 * dice.chance())),
            4 | 5 => Exit::Branch(back(dice), Rule::Turns(2 + dice.roll(30))),
            6 => Exit::Branch(forwards(dice), Rule::Turns(1 + dice.roll(4))),
            _ => Exit::Branch(forwards(dice), Rule::Coin(dice.chance())),
        };
        let cost = 0.3 * (1.0 - dice.chance()).powi(-2).min(300.0);
        Block { start: 0, end: 0, length: 1 + dice.roll(6), exit, cost }
    }
}

impl Exit {
    fn bytes(self) -> u64 {
        match self {
            Self::Branch(..) => 6,
            Self::Jump(_) => 5,
            Self::Return => 1,
            Self::Fall => 0,
        }
    }
}

/// What was executed, and what was recorded of it.
#[derive(Default)]
pub(crate) struct Walk {
    blocks: Vec<u64>,
    jumps: BTreeMap<(u64, u64), u64>,
    /// Time of each block.
    pub(crate) time: Vec<f64>,
    /// The block under way, and the branches before it, the last one first.
    pub(crate) stacks: Vec<(usize, Vec<(u64, u64)>)>,
}

/// When records are asked for.
#[allow(dead_code, reason = "each test asks in its own way")]
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Ask {
    /// Every so many taken branches.
    Branches(u64),
    /// After so much time.
    Time(f64),
}

struct Recorder {
    depth: usize,
    last: VecDeque<(u64, u64)>,
    ask: Ask,
    left: f64,
    dice: Dice,
    /// The block under way.
    at: usize,
}

impl Recorder {
    fn taken(&mut self, walk: &mut Walk, from: u64, to: u64) {
        *walk.jumps.entry((from, to)).or_default() += 1;
        self.last.push_front((from, to));
        self.last.truncate(self.depth);
        if matches!(self.ask, Ask::Branches(_)) {
            self.passes(walk, 1.0);
        }
    }

    fn took(&mut self, walk: &mut Walk, time: f64) {
        if matches!(self.ask, Ask::Time(_)) {
            self.passes(walk, time);
        }
    }

    fn passes(&mut self, walk: &mut Walk, amount: f64) {
        self.left -= amount;
        if self.left > 0.0 {
            return;
        }
        let every = match self.ask {
            Ask::Branches(n) => n as f64,
            Ask::Time(t) => t,
        };
        self.left = every * (0.5 + self.dice.chance());
        walk.stacks.push((self.at, self.last.iter().copied().collect()));
    }
}

pub(crate) fn walk(program: &Program, steps: u64, depth: usize, ask: Ask, seed: u64) -> Walk {
    let n = program.blocks.len();
    let mut walk = Walk { blocks: vec![0; n], time: vec![0.0; n], ..Walk::default() };
    let dice = Dice(seed ^ 0x5bd1_e995);
    let mut recorder = Recorder { depth, last: VecDeque::new(), ask, left: 1000.0, dice, at: 0 };
    let (mut dice, mut turn, mut at) = (Dice(seed), vec![0_u64; n], 0);
    for _ in 0..steps {
        let b = &program.blocks[at];
        walk.blocks[at] += 1;
        walk.time[at] += b.cost;
        recorder.at = at;
        recorder.took(&mut walk, b.cost);
        let next = match b.exit {
            Exit::Branch(to, rule) => {
                let taken = match rule {
                    Rule::Coin(p) => dice.chance() < p,
                    Rule::Turns(most) => {
                        turn[at] = (turn[at] + 1) % (most + 1);
                        turn[at] != 0
                    }
                };
                if taken { Some(to) } else { None }
            }
            Exit::Jump(to) => Some(to),
            Exit::Fall => None,
            Exit::Return => {
                recorder.taken(&mut walk, b.end, CALLER + 5);
                recorder.taken(&mut walk, CALLER + 5, CALLER);
                recorder.taken(&mut walk, CALLER, BASE);
                at = 0;
                continue;
            }
        };
        if let Some(to) = next {
            recorder.taken(&mut walk, b.end, program.blocks[to].start);
        }
        at = next.unwrap_or(at + 1);
    }
    walk
}

/// How often everything ran.
pub(crate) fn exact(program: &Program, walk: &Walk) -> Exact {
    let mut o = ExactObject { path: PATH.into(), ..ExactObject::default() };
    for (b, &count) in program.blocks.iter().zip(&walk.blocks) {
        let all = (b.start..=b.end).step_by(2).chain([b.end]);
        o.counts.extend(all.map(|at| (at, count)));
    }
    o.jumps = walk.jumps.iter().map(|(k, n)| (*k, *n)).collect();
    Exact { objects: vec![o], command: None }
}

/// The program's name and code.
pub(crate) struct Walked<'p>(pub(crate) &'p Program);

impl Symbols for Walked<'_> {
    fn functions(&self, _: &Image) -> Arc<FunctionTable> {
        let function = Function {
            start: ImageOffset(BASE),
            size: self.0.code.len() as u64,
            name: "walked".into(),
            source: NameSource::Symbol,
        };
        Arc::new(FunctionTable::new(vec![function], ImageOffset(u64::MAX)))
    }

    fn frames(&self, _: &Image, _: ImageOffset) -> Vec<SourceFrame> {
        Vec::new()
    }

    fn code(&self, _: &Image, range: Range<ImageOffset>) -> Option<Vec<u8>> {
        let at = |offset: ImageOffset| usize::try_from(offset.0.checked_sub(BASE)?).ok();
        let (from, to) = (at(range.start)?, at(range.end)?);
        self.0.code.get(from..to.min(self.0.code.len())).map(<[u8]>::to_vec)
    }

    fn stated(&self, _: &Image) -> Option<Arc<StatedBytes>> {
        Some(Arc::new(StatedBytes::from_pieces([(Svma(BASE), &self.0.code[..])])))
    }

    fn source(&self, _: &str) -> Option<Arc<Vec<String>>> {
        None
    }

    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Means over programs: what lies within 5, 10 and 15 % of the truth, of sample weight and of edges; and of the weight
/// called sure, what lies within 15 %.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    pub(crate) instructions: [f64; 3],
    pub(crate) edges: [f64; 3],
    pub(crate) sure: (f64, f64),
    programs: f64,
}

/// The paper's figures 8 and 9.
const BARS: [f64; 3] = [0.73, 0.87, 0.92];
const EDGE_BAR: f64 = 0.58;

impl Shares {
    pub(crate) fn add(&mut self, a: &Accuracy) {
        for i in 0..3 {
            self.instructions[i] += a.instructions.within[i];
            self.edges[i] += a.edges.within[i];
        }
        for (_, share, errors) in a.confidence.iter().filter(|c| c.0 == Confidence::High) {
            self.sure.0 += share;
            self.sure.1 += errors.within[2] * share;
        }
        self.programs += 1.0;
    }

    pub(crate) fn mean(mut self) -> Self {
        self.instructions.iter_mut().chain(&mut self.edges).for_each(|s| *s /= self.programs);
        self.sure = (self.sure.0 / self.programs, self.sure.1 / self.sure.0.max(1e-9));
        self
    }

    pub(crate) fn meets_the_bars(&self) -> bool {
        self.instructions.iter().zip(BARS).all(|(s, bar)| *s >= bar) && self.edges[1] >= EDGE_BAR
    }
}
