//! What the user sees on stderr while samples are collected, and the closing line. Hidden bars and
//! plain lines when nobody watches; nothing here reaches stdout.

use crate::cli::Common;
use crate::tell::tell;
use crate::units::{show_bytes, show_count};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;
use whither_session::{Outcome, Progress};

/// Tells progress on stderr.
pub(crate) struct Reporter {
    common: Common,
    bar: ProgressBar,
}

impl Reporter {
    /// A bar towards `length` if there is one and a terminal to draw it on.
    pub(crate) fn new(common: Common, length: Option<Duration>) -> Self {
        let bar = match length {
            Some(length) => {
                ProgressBar::new(length.as_secs().max(1)).with_style(style("{bar:24} {pos}/{len} s  {msg}"))
            }
            None => ProgressBar::new_spinner().with_style(style("{spinner} {elapsed}  {msg}")),
        };
        if common.quiet || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        Self { common, bar }
    }

    /// Tells one event.
    pub(crate) fn on(&mut self, event: Progress) {
        match event {
            Progress::Started { events, hertz, backend, notes } => self.started(&events, hertz, &backend, &notes),
            Progress::Tick { samples, elapsed } => self.tick(samples, elapsed),
            Progress::Rate { hertz } => {
                self.detail(&format!("rate now {hertz:.0} Hz per CPU, to stay within the budget"))
            }
            Progress::Sealed { rows, bytes } => {
                self.detail(&format!("sealed {} rows, {}", show_count(rows), show_bytes(bytes)));
            }
            Progress::Warning(text) => self.line(&format!("warning: {text}")),
            Progress::Finishing => self.bar.set_message("storing symbols of what was sampled"),
        }
    }

    fn started(&self, events: &[String], hertz: f64, backend: &str, notes: &[String]) {
        let rate = if hertz > 0.0 { format!(" at {hertz:.0} Hz per CPU") } else { String::new() };
        self.line(&format!("sampling {}{rate} ({backend}); Ctrl-C stops and keeps the data", events.join(", ")));
        for note in notes {
            self.line(&format!("  {note}"));
        }
    }

    fn tick(&self, samples: u64, elapsed: Duration) {
        self.bar.set_position(elapsed.as_secs());
        self.bar.set_message(format!("{} samples", show_count(samples)));
    }

    /// The closing line, what to do otherwise another time, and what to do next.
    pub(crate) fn finished(&self, outcome: &Outcome, account: &str, advice: Option<&str>) {
        self.bar.finish_and_clear();
        let path = outcome.path.display();
        self.line(&format!(
            "{path}: {} samples, {} rows, {}{account}",
            show_count(outcome.samples),
            show_count(outcome.rows),
            show_bytes(outcome.bytes)
        ));
        if let Some(advice) = advice {
            self.line(&format!("  {advice}"));
        }
        if outcome.samples > 0 {
            self.line(&format!("next: whither prof {path}"));
        } else if outcome.unwritten > 0 {
            self.line("  none of its samples could be stored: make room there, or record to another disk with -o");
        } else {
            self.line("  nothing of it ran on a CPU while it was sampled, or no event of those asked for occurred: record for longer, \
                 or see 'whither doctor'");
        }
    }

    /// A line with `-v` only.
    fn detail(&self, text: &str) {
        if self.common.verbose > 0 {
            self.line(text);
        }
    }

    fn line(&self, text: &str) {
        if !self.common.quiet {
            self.bar.suspend(|| tell!("whither: {text}"));
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates are constants of this file")
}
