//! `whither calls`: from flags to a session and from its snapshots to answers. Sessions live in
//! `whither_session::calls`, analysis in `whither_calls`, tables in `whither_report`.

mod drill;
mod keep;
mod live;
mod measure;
mod names;
mod replay;
mod show;
mod told;
mod verbs;

use crate::cli::{CallsArgs, CallsVerb, Common};
use crate::failure::Ending;
use std::path::PathBuf;

/// `whither calls ...`.
pub(crate) fn calls(args: CallsArgs, common: Common) -> anyhow::Result<Ending> {
    match args.verb {
        None => measure::measure(args.measure, common),
        Some(CallsVerb::Top(measure)) => live::top(*measure, common),
        Some(CallsVerb::Report(args)) => keep::report(&args, common),
        Some(CallsVerb::Show(args)) => verbs::show(&args, common),
        Some(CallsVerb::Drill(args)) => drill::drill(&args, common),
        Some(verb) => verbs::obey(verb),
    }
}

/// Where sessions listen: `$XDG_RUNTIME_DIR/whither`, else `/tmp/whither-UID`.
fn runtime() -> PathBuf {
    let told = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|d| d.is_absolute() && d.is_dir());
    match told {
        Some(dir) => dir.join("whither"),
        None => PathBuf::from(format!("/tmp/whither-{}", whither_kernel::capability::effective_uid())),
    }
}
