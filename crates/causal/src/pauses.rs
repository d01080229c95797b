//! Programs that now and then do for long what makes no visits: garbage is collected, a checkpoint is written. The time per
//! visit runs from a window's first visit to its last, and a pause that is not much shorter than the window seldom lies
//! between two visits of one: the ends of windows cut it off, and what runs in it would look as if it mattered to nobody. How
//! much is cut off is seen from the whole length of windows. The policy makes them longer then; what is still cut off may have
//! gained all or nothing, and intervals hold both.

use whither_store::causal::Window;

/// Part of the time, cut off, from which on it matters.
const LEAST_PART: f64 = 0.02;
/// Visits that would have had their place in what is cut off from a window. Where visits come evenly it is none, where they come
/// at random one, whatever windows are like.
const LEAST_VISITS: f64 = 2.0;
/// Its error, that many times over, must be less; and so it is told.
const CERTAIN: f64 = 2.0;
/// Windows without speed-up that tell of it.
const ENOUGH: usize = 6;
/// Windows that must be left when shorter ones than the longest do not count.
const LEFT: usize = 12;
/// A window is so many times as long as the longest pause that was seen of.
const WINDOW: f64 = 8.0;

/// What windows cut off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pauses {
    /// Part of the time, and how little and much of it that may be.
    part: f64,
    least: f64,
    most: f64,
    /// Longest time at an end of a window without a visit; the pause may have been longer.
    longest_ns: f64,
    /// Mean length of windows.
    window_ns: f64,
}

impl Pauses {
    /// Of a point, by the windows without speed-up of those that count; `None` where nothing is cut off that matters, or visits
    /// have no times. Windows without visits do not count: those are phases of the run (`phase.rs`).
    pub(crate) fn of<'a>(windows: impl Iterator<Item = &'a Window>, point: u32) -> Option<Self> {
        let ends: Vec<Ends> = windows.filter(|w| w.percent == 0).filter_map(|w| Ends::of(w, point)).collect();
        let sum = |of: &dyn Fn(&Ends) -> f64| ends.iter().map(of).sum::<f64>();
        let time = sum(&|e| e.wall);
        let period = sum(&|e| e.span) / sum(&|e| e.visits - 1.0);
        if ends.len() < ENOUGH || !period.is_finite() {
            return None;
        }
        let cut = sum(&|e| e.cut(period)) / time;
        let mean = cut * time / ends.len() as f64;
        let scatter = sum(&|e| (e.cut(period) - mean).powi(2)).sqrt() / time;
        let matters = cut > LEAST_PART && mean > LEAST_VISITS * period && cut > CERTAIN * scatter;
        matters.then(|| Self {
            part: cut,
            least: cut - CERTAIN * scatter,
            most: (cut + CERTAIN * scatter).min(1.0),
            longest_ns: ends.iter().map(Ends::longest).fold(0.0, f64::max),
            window_ns: time / ends.len() as f64,
        })
    }

    /// An effect between visits of a window, as one over all the time: what is cut off gets no slower, and faster by the
    /// amount at most.
    pub(crate) fn effect(&self, percent: u8, y: f64) -> f64 {
        (1.0 - self.part) * y + self.part * f64::from(percent) / 200.0
    }

    /// Its interval.
    pub(crate) fn interval(&self, percent: u8, (low, high): (f64, f64)) -> (f64, f64) {
        let lowest = |part: f64| (1.0 - part) * low;
        let highest = |part: f64| (1.0 - part) * high + part * f64::from(percent) / 100.0;
        (lowest(self.least).min(lowest(self.most)), highest(self.least).max(highest(self.most)))
    }

    /// What of an interval's half is owed to it.
    pub(crate) fn half(&self, percent: u8) -> f64 {
        self.most * f64::from(percent) / 200.0
    }

    /// How long windows should be.
    pub(crate) fn wanted_ns(&self) -> Option<u64> {
        let wanted = WINDOW * self.longest_ns;
        (wanted > 2.0 * self.window_ns).then_some(wanted as u64)
    }

    /// What is seen, and what helps.
    pub(crate) fn told(&self) -> String {
        let seconds = (WINDOW * self.longest_ns / 1e9).round().clamp(1.0, 60.0);
        format!(
            "the program pauses between visits for about as long as a window lasts ({:.0} ms without a visit, windows of {:.0} ms), \
             and {:.0} % of its time lies beyond what they measure; longer windows help (--window {seconds:.0}s)",
            self.longest_ns / 1e6,
            self.window_ns / 1e6,
            100.0 * self.part
        )
    }
}

/// The shortest windows that count: where short ones cut pauses off, the long ones, if there are some.
pub(crate) fn shortest(kept: &[&Window]) -> u64 {
    // A window lasts up to twice as long as it should where visits are few; longer ones were made longer.
    let long = kept.iter().map(|w| w.wall_ns).max().unwrap_or(0) / 3;
    let short = kept.iter().copied().filter(|w| w.wall_ns < long);
    let left = kept.len() - short.clone().count();
    if left >= LEFT && Pauses::of(short, 0).is_some() { long } else { 0 }
}

/// A window and the part of it that visits enclose.
struct Ends {
    wall: f64,
    span: f64,
    visits: f64,
    first: f64,
}

impl Ends {
    /// Without speed-up virtual time is real.
    fn of(window: &Window, point: u32) -> Option<Self> {
        let visits = window.visits.iter().find(|v| v.point == point).filter(|v| v.visits > 0 && v.last_ns > 0)?;
        Some(Self {
            wall: window.wall_ns as f64,
            span: visits.last_virtual_ns.saturating_sub(visits.first_virtual_ns) as f64,
            visits: visits.visits as f64,
            first: visits.first_virtual_ns as f64,
        })
    }

    /// Time outside of it, beyond the period that belongs to its visits.
    fn cut(&self, period: f64) -> f64 {
        self.wall - self.span - period
    }

    fn longest(&self) -> f64 {
        self.first.max(self.wall - self.first - self.span)
    }
}

#[cfg(test)]
mod tests;
