//! How well the times of a row are known, and the signs that say so beside them, in tables, trees, pages and on the live screen alike.
//! Not here: how far off they may be (sums, cpu).

use crate::metric::{Metric, Unit};
use crate::results::Figures;

/// The part of a time that makes it rough.
const PART: u64 = 50;

/// How well a time is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Known {
    /// As it is told.
    #[default]
    Well,
    /// `~`: off by more than 2 % perhaps.
    Roughly,
    /// `>`: something is missing from it.
    AtLeast,
    /// `<`: no more than so many nanoseconds.
    AtMost(u64),
    /// There is nothing to be told.
    Not,
}

impl Known {
    /// What a part of such a time, or another time that hangs on it, looks like.
    #[must_use]
    pub fn beside(self, text: String) -> String {
        match self {
            Self::Well => text,
            Self::Roughly => format!("~{text}"),
            Self::AtLeast => format!(">{text}"),
            Self::AtMost(_) | Self::Not => "-".into(),
        }
    }
}

impl Figures {
    /// Of what a metric weighs by.
    #[must_use]
    pub fn known(&self, metric: &Metric) -> Known {
        match metric {
            _ if metric.unit() != Unit::Time => Known::Well,
            Metric::Cpu => self.cpu_known(),
            Metric::Off => self.off_known(),
            _ => self.wall_known(),
        }
    }

    /// Of the wall time.
    #[must_use]
    pub fn wall_known(&self) -> Known {
        match (self.wall_below_ns, self.lacking) {
            (Some(most), _) => Known::AtMost(most),
            (None, true) if self.wall_ns > 0 && (self.done > 0 || self.running.calls > 0) => Known::AtLeast,
            (None, true) => Known::Not,
            (None, false) if self.rough => Known::Roughly,
            (None, false) => Known::Well,
        }
    }

    /// Of the CPU time.
    #[must_use]
    pub fn cpu_known(&self) -> Known {
        match (self.wall_known(), self.cpu_below_ns) {
            (Known::AtMost(_) | Known::Not, _) => Known::Not,
            (Known::AtLeast, _) => Known::AtLeast,
            (_, Some(most)) if !self.lacks_cpu() => Known::AtMost(most),
            _ if self.lacks_cpu() => Known::AtLeast,
            _ if self.cpu_rough => Known::Roughly,
            _ => Known::Well,
        }
    }

    /// Of the time off the CPU, which is what CPU time leaves of wall time.
    #[must_use]
    pub fn off_known(&self) -> Known {
        match self.wall_known() {
            Known::AtMost(_) | Known::Not => Known::Not,
            Known::AtLeast => Known::AtLeast,
            _ if self.lacks_cpu() => Known::AtLeast,
            Known::Roughly => Known::Roughly,
            Known::Well
                if self.cpu_unsure_ns > self.off_cpu_ns / PART && (self.cpu_rough || self.cpu_below_ns.is_some()) =>
            {
                Known::Roughly
            }
            Known::Well => Known::Well,
        }
    }

    /// Whether calls in progress may have used more CPU time than is known, by as much as makes times rough.
    #[must_use]
    pub fn lacks_cpu(&self) -> bool {
        self.running.cpu_unknown > 0 && self.running.elapsed_ns > self.cpu_ns / PART
    }

    /// Whether there were more switches and faults than were counted: calls that have returned in order have them alone.
    #[must_use]
    pub fn lacks_usage(&self) -> bool {
        self.running.calls > 0 || self.lacking
    }
}
