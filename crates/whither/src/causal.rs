//! `whither causal`: from flags to a session, and from its windows to answers. Sessions live in
//! `whither_session::causal`, policy and analysis in `whither_causal`, printing in `whither_report`.

mod bridge;
mod change;
mod cost;
mod extend;
mod keep;
mod like;
mod marks;
mod measure;
mod proposals;
mod show;

use crate::cli::{CausalArgs, CausalVerb, Common};
use crate::failure::Ending;

/// `whither causal ...`.
pub(crate) fn causal(args: CausalArgs, common: Common) -> anyhow::Result<Ending> {
    match args.verb {
        None => measure::measure(&args.measure, false, common),
        Some(CausalVerb::Top(measure)) => measure::measure(&measure, true, common),
        Some(CausalVerb::Report(args)) => keep::report(&args, common),
        Some(CausalVerb::Import(args)) => keep::import(&args, common),
        Some(CausalVerb::Extend(args)) => extend::extend(&args, common),
        Some(CausalVerb::Suggest(args)) => proposals::suggest(&args, common),
        Some(CausalVerb::Verify(args)) => change::verify(&args, common),
        Some(CausalVerb::Overhead(args)) => cost::overhead(&args, common),
        Some(CausalVerb::Marks(args)) => marks::marks(&args),
    }
}
