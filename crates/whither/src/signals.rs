//! Ctrl-C and termination while collecting: the first signal asks for a tidy stop that keeps the
//! data, the second leaves at once, a third kills. Once a session is over the first one kills: what is left is an answer that nobody
//! waits for any more. A thread of its own waits, so that no work happens in a handler.

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
                if told.request_by(signal) > 2 || told.is_over() {
                    end_by(signal);
                }
            }
        })
        .context("cannot start the thread that waits for signals")?;
    Ok(flag)
}

/// From here on a signal ends whither at once, also one that came since a stop had been asked for `asked` times.
pub(crate) fn end_at_once(flag: &StopFlag, asked: u8) {
    flag.set_over();
    if flag.requests() > asked {
        end_by(flag.signal().unwrap_or(SIGTERM));
    }
}

fn end_by(signal: i32) {
    if low_level::emulate_default_handler(signal).is_err() {
        low_level::abort();
    }
}
