//! How often each block and edge of a function runs: the flow that conserves itself at every block and agrees
//! best with what is known of branches and of time. Nothing of machine code or samples here:
//! numbers come in, numbers go out; `frequency` makes the one from the other.
//!
//! Why not a minimum-cost flow, as profile inference in compilers has it: its costs are about each edge alone, so a loop of
//! a thousand turns whose exit was seen three times costs as little at 500 turns as at 2,000. Here unknowns are the
//! *probabilities* at each branch. Whatever they are, the flow conserves itself, nothing is negative, trip
//! counts keep their precision (`eliminate`), and evidence of any kind is weighed by its own likelihood (`fit`).

mod condense;
mod eliminate;
mod fit;

pub(crate) use fit::Problem;

/// A function's graph. Blocks are nodes 0 to `blocks`; `blocks` stands for the callers, `blocks + 1` for wherever
/// it leaves to, as in [`whither_image::Cfg`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    pub(crate) blocks: usize,
    /// (from, to).
    pub(crate) edges: Vec<(usize, usize)>,
}

/// What is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Per edge: how often it was seen to be taken, in independent observations; fractions allowed. The observations at
    /// one block are a sample of its executions.
    pub(crate) seen: Vec<f64>,
    /// Per edge: how far the logarithm of its odds may be off, however often it was seen. For errors only.
    pub(crate) doubt: Vec<f64>,
    /// Per edge: how far the logarithm of its odds may be off together with those of all others that lead to the same node. Empty: not
    /// at all. For errors only.
    pub(crate) doubt_of_target: Vec<f64>,
    /// Per edge: what to believe of the way taken while nothing was seen, in observations. Above 0.
    pub(crate) belief: Vec<f64>,
    /// Evidence is redrawn as if beliefs were so many times as much: a way that was never seen may have been missed once.
    pub(crate) missed: f64,
    /// Per block.
    pub(crate) time: Vec<Time>,
    /// Per block, what a sample of all executions has of it. Empty where there is none; nodes behind those told are left
    /// out of the comparison.
    pub(crate) ran: Vec<Ran>,
    /// Per edge, how many observations tell as much as one by chance: 1 or more. Empty: each does. For errors only.
    pub(crate) together: Vec<f64>,
    /// Standard deviation of how far the logarithms of the odds of all rarer ways may be off at once. For errors only.
    pub(crate) lean: f64,
    /// Blocks counted against each other.
    pub(crate) ratios: Vec<Ratio>,
    /// Blocks counted against time.
    pub(crate) counts: Vec<Count>,
    /// Logarithm of what the unit of counts is in executions while sampled, where that is known: then counts and time are of one scale.
    pub(crate) unit: Option<f64>,
    /// What errors are of.
    pub(crate) against: Against,
}

impl Known {
    /// `of_blocks`: how many observations of each tell as much as one by chance. What is `told` of edges, as part of what was seen, does
    /// by itself.
    pub(crate) fn put_together(&mut self, network: &Network, told: &[f64], of_blocks: &[f64]) {
        let of = |b: usize| of_blocks.get(b).copied().unwrap_or(1.0);
        let by_itself = |e: usize| if self.seen[e] > 0.0 { (told[e] / self.seen[e]).min(1.0) } else { 0.0 };
        let of_edge = |(e, edge): (usize, &(usize, usize))| 1.0 + (of(edge.0) - 1.0) * (1.0 - by_itself(e));
        self.together = network.edges.iter().enumerate().map(of_edge).collect();
        self.ran.iter_mut().enumerate().for_each(|(b, ran)| ran.together = of(b));
    }
}

/// What the errors of a flow are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Against {
    /// Shares in all executions.
    #[default]
    All,
    /// Executions in the unit of counts.
    Counts,
    /// The greater one of shares in all executions and of executions over those of the blocks that were counted.
    Both,
}

/// What a sample of all executions has of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Ran {
    /// Independent observations of its executions.
    pub(crate) seen: f64,
    /// How likely one execution of it is to be seen, against those of the other blocks: 1 where a sample is of executions of
    /// blocks, the number of its instructions where it is of those.
    pub(crate) chance: f64,
    /// How far the logarithm of what was seen may be off, however much it is. For errors only.
    pub(crate) doubt: f64,
    /// How many observations tell as much as one by chance, where more than one do. For errors only.
    pub(crate) together: f64,
    /// Executions are one sample within an island only: how often those of different ones were seen tells nothing of how often they
    /// run against each other.
    pub(crate) island: usize,
}

/// Executions of one block over those of another, as counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Logarithm.
    pub(crate) log: f64,
    /// Standard deviation of the logarithm.
    pub(crate) error: f64,
}

/// Executions of a block as counted, in a unit that is the same for all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Count {
    pub(crate) block: usize,
    /// Logarithm.
    pub(crate) log: f64,
    /// Standard deviation of the logarithm.
    pub(crate) error: f64,
}

/// What logarithms of a flow must be raised by to fit counts best, and how far each is above its count then, over its
/// variance. `unit`: where the counts' own is known, by which they must be raised instead.
pub(crate) fn misfit(counts: &[Count], flow: &[f64], unit: Option<f64>) -> (f64, Vec<f64>) {
    let off = |c: &Count| flow.get(c.block).map_or(0.0, |f| f.max(1e-300).ln()) - c.log;
    let weight = |c: &Count| 1.0 / (c.error * c.error).max(1e-9);
    let all: f64 = counts.iter().map(weight).sum();
    let fits_best = || counts.iter().map(|c| weight(c) * off(c)).sum::<f64>() / all.max(f64::MIN_POSITIVE);
    let mean = unit.unwrap_or_else(fits_best);
    (-mean, counts.iter().map(|c| weight(c) * (off(c) - mean)).collect())
}

/// The time a block took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Time {
    /// Samples.
    pub(crate) samples: f64,
    /// What one execution takes at the very least, in units of one sample's weight (cycles over cycles).
    pub(crate) least: f64,
}

/// The answer, in executions while sampled, as far as `Time` bounds them; what a caller knows better it scales.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    /// Executions per block.
    pub(crate) blocks: Vec<f64>,
    /// Executions per edge.
    pub(crate) edges: Vec<f64>,
    /// Standard deviation of the logarithm, per block, of its share in all executions of blocks.
    pub(crate) block_error: Vec<f64>,
    /// The same of each edge.
    pub(crate) edge_error: Vec<f64>,
    /// The same of executions in the unit of counts, where [`Against::Both`] asks for them: blocks, and edges.
    pub(crate) by_counts: Option<(Vec<f64>, Vec<f64>)>,
}

/// Whether errors are wanted: they cost a few times what the flow itself does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errors {
    /// By redrawing the evidence.
    Drawn,
    /// All infinite.
    Skipped,
}
