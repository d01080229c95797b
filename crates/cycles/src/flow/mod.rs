//! How often each block and edge of a function runs: the flow that conserves itself at every block and agrees
//! best with what is known of branches and of time. Nothing of machine code or samples here:
//! numbers come in, numbers go out; `frequency` makes the one from the other.
//!
//! Why not a minimum-cost flow, as profile inference in compilers has it: its costs are about each edge alone, so a loop of
//! a thousand turns whose exit was seen three times costs as little at 500 turns as at 2,000. Here unknowns are the
//! *probabilities* at each branch. Whatever they are, the flow conserves itself, nothing is negative, trip
//! counts keep their precision (`eliminate`), and evidence of any kind is weighed by its own likelihood (`fit`).

mod eliminate;
mod fit;

pub(crate) use fit::solve;

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
    /// Per edge: what to believe of the way taken while nothing was seen, in observations. Above 0.
    pub(crate) belief: Vec<f64>,
    /// Per block.
    pub(crate) time: Vec<Time>,
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
}

/// Whether errors are wanted: they cost a few times what the flow itself does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errors {
    /// By redrawing the evidence.
    Drawn,
    /// All infinite.
    Skipped,
}
