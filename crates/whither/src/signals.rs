//! Ctrl-C and termination while collecting: the first signal asks for a tidy stop that keeps the
//! data, the second leaves at once, a third kills. A thread of its own waits, so that no work happens in a handler.

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use whither_session::StopFlag;

/// A flag that the signals set from now on.
///
/// # Errors
/// The handlers could not be installed.
pub(crate) fn stop_flag() -> anyhow::Result<StopFlag> {
    let flag = StopFlag::default();
    let told = flag.clone();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot install signal handlers")?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                // The third is for a session that does not even leave at once.
                if told.request_by(signal) > 2 && low_level::emulate_default_handler(signal).is_err() {
                    low_level::abort();
                }
            }
        })
        .context("cannot start the thread that waits for signals")?;
    Ok(flag)
}
