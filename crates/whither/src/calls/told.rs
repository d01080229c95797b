//! What a session of `whither calls` says on stderr while it runs, and the sentences about what is
//! missing from its numbers.

use super::replay;
use crate::cli::Common;
use crate::tell::tell;
use std::time::Duration;
use whither_calls::CallProfile;
use whither_probe::{Detached, Pause};
use whither_report::text::{self, some_are};
use whither_session::calls::CallsEvent;

/// Sentences about single functions shown without `-v`.
const FEW: usize = 12;

/// Speaks on stderr.
#[derive(Clone, Copy)]
pub(super) struct Teller {
    common: Common,
    /// A command is run by us.
    launched: bool,
    refused: usize,
}

impl Teller {
    pub(super) fn new(common: Common, launched: bool) -> Self {
        Self { common, launched, refused: 0 }
    }

    /// Tells one event; summaries are somebody else's.
    pub(super) fn on(&mut self, event: &CallsEvent) {
        match event {
            CallsEvent::Started { pid, points, pause } => self.started(*pid, *points, *pause),
            CallsEvent::Note(text) => self.line(text),
            CallsEvent::Refused { names, reason } => self.refused(names, reason),
            CallsEvent::Replayed { step, verb, reply } => self.line(&replay::taken(step, verb, reply)),
            CallsEvent::Interval(_) => {}
            CallsEvent::Waiting { way_out } => self
                .line(&format!("measuring has ended, the command still runs: the table comes at its end ({way_out})")),
        }
    }

    fn started(&self, pid: u32, points: usize, pause: Pause) {
        if points == 0 {
            return;
        }
        let functions = if points == 1 { "1 function".into() } else { format!("{points} functions") };
        let paused = if pause.held.is_zero() { String::new() } else { format!(" ({})", held_up(pause)) };
        let end = if self.launched { "" } else { "; Ctrl-C leaves it and prints the table" };
        self.line(&format!("measuring {functions} of process {pid}{paused}{end}"));
    }

    fn refused(&mut self, names: &[String], reason: &str) {
        self.refused += 1;
        if self.refused <= FEW || self.common.verbose > 0 {
            self.line(&format!("{} not measured: {reason}", some_are(names, self.most_names())));
        } else if self.refused == FEW + 1 {
            self.line("more functions are not measured; -v names them all, so does --json");
        }
    }

    /// How the target was left.
    pub(super) fn left(&self, detached: &Detached, pid: Option<u32>) {
        for left in &detached.left {
            // Also with -q: the target is not what it was.
            tell!("whither: left in the target, and harmless there: {left}");
        }
        if !detached.left.is_empty() {
            let pid = pid.map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
            tell!(
                "whither: `whither calls -p {pid} ...` takes that away at its end, as soon as it can be; so does the end of the process"
            );
        }
        if self.common.verbose > 0 {
            self.line(&format!("{} functions restored; {}", detached.restored, held_up(detached.pause)));
        }
    }

    /// It could not be left.
    pub(super) fn stayed(&self, why: &str, pid: Option<u32>) {
        let again = pid.map_or_else(String::new, |pid| {
            format!("; to measure process {pid} again takes them over, and out at its end")
        });
        self.line(&format!("the probes are still in the target, and harmless there: {why}{again}"));
    }

    /// Losses, cut paths and notes of a profile. Refusals were told as they happened.
    pub(super) fn missing(&self, profile: &CallProfile) {
        let told = CallProfile { refused: Vec::new(), ..profile.clone() };
        self.some(&text::calls_warnings(&told, self.most_names()));
    }

    /// The same of a profile that somebody else measured: refusals too.
    pub(super) fn everything_missing(&self, profile: &CallProfile) {
        self.some(&text::calls_warnings(profile, self.most_names()));
    }

    /// Functions named in one sentence.
    fn most_names(&self) -> usize {
        if self.common.verbose > 0 { usize::MAX } else { text::FEW_NAMES }
    }

    fn some(&self, lines: &[String]) {
        let most = if self.common.verbose > 0 { lines.len() } else { FEW };
        lines.iter().take(most).for_each(|line| self.line(line));
        if lines.len() > most {
            self.line(&format!("{} more sentences like these; -v shows them all", lines.len() - most));
        }
    }

    /// One line.
    pub(super) fn line(&self, text: &str) {
        if !self.common.quiet {
            tell!("whither: {text}");
        }
    }

    /// One line that says why there is no answer: quiet or not.
    pub(super) fn failure(text: &str) {
        tell!("whither: {text}");
    }

    /// Text as it is.
    pub(super) fn text(&self, text: &str) {
        if !self.common.quiet {
            tell!("{}", text.trim_end());
        }
    }
}

/// `412 us`, `3.1 ms`.
pub(super) fn span(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    match us {
        us if us < 1000.0 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

/// Whether every call is in the numbers, with its whole path and time.
pub(super) fn is_complete(profile: &CallProfile) -> bool {
    let (l, facts) = (&profile.lost, profile.facts());
    let lost = [l.busy, l.depth, l.table, l.shadow, l.jumped, l.exit, l.ring, l.paths];
    lost.iter().all(|n| *n == 0) && profile.refused.is_empty() && (facts.truncated.paths, facts.other.paths) == (0, 0)
}

/// How long threads of the target waited for us.
pub(super) fn held_up(Pause { still, held }: Pause) -> String {
    format!("none of its threads ran for {}, none was held for more than {}", span(still), span(held))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_a_unit_of_their_size() {
        let shown = [412e-6, 3.14e-3, 2.0].map(|s| span(Duration::from_secs_f64(s)));
        assert_eq!(shown, ["412 us", "3.1 ms", "2.0 s"]);
    }
}
