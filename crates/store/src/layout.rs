//! Names on disk: the files of an epoch, the ranges in segment names, the directories of a database,
//! and the calendar they are named by. Pure.

use std::path::{Path, PathBuf};

/// Format version of `epoch.json`, `segment.json` and `db.toml`.
pub const FORMAT_VERSION: u32 = 1;

/// Version of segments that this build writes; it reads all up to this one. In version 1 sample rows were sorted
/// by process, thread and slice before the position.
pub(crate) const SEGMENT_VERSION: u32 = 2;

pub(crate) const EPOCH_FILE: &str = "epoch.json";
pub(crate) const SEGMENT_FILE: &str = "segment.json";
pub(crate) const DATABASE_FILE: &str = "db.toml";
pub(crate) const SEALED_FILE: &str = "SEALED";
pub(crate) const LOCK_FILE: &str = "LOCK";
pub(crate) const COMPACT_LOCK_FILE: &str = "COMPACT.LOCK";
/// In a merged epoch: the epochs it replaces, until they are removed.
pub(crate) const REPLACES_FILE: &str = "replaces.json";
pub(crate) const SYMBOLS_DIR: &str = "symbols";

/// The sequence numbers a segment covers; the name of its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SegmentRange {
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl SegmentRange {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (first, last) = name.strip_prefix("seg-")?.split_once('-')?;
        let range = Self { first: first.parse().ok()?, last: last.parse().ok()? };
        (range.first <= range.last && range.name() == name).then_some(range)
    }

    pub(crate) fn name(self) -> String {
        format!("seg-{:06}-{:06}", self.first, self.last)
    }

    pub(crate) fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

/// Leaves out segments that a wider one covers: compaction was interrupted before removing them.
pub(crate) fn split_covered(mut ranges: Vec<SegmentRange>) -> (Vec<SegmentRange>, Vec<SegmentRange>) {
    ranges.sort_by_key(|r| (r.first, std::cmp::Reverse(r.last)));
    let (mut live, mut covered) = (Vec::<SegmentRange>::new(), Vec::new());
    for range in ranges {
        match live.last() {
            Some(wider) if wider.covers(range) => covered.push(range),
            _ => live.push(range),
        }
    }
    (live, covered)
}

/// `DB/host=H/date=D`, where an epoch that starts at `start_ns` belongs.
pub(crate) fn epoch_parent(db: &Path, host: &str, start_ns: u64) -> PathBuf {
    db.join(format!("host={}", host_word(host))).join(format!("date={}", date_text(start_ns)))
}

/// Directory name of the `n`-th epoch that starts in this second.
pub(crate) fn epoch_name(start_ns: u64, n: u32) -> String {
    let time = start_ns / 1_000_000_000 % 86_400;
    let date = date_text(start_ns).replace('-', "");
    format!("epoch={date}T{:02}{:02}{:02}Z-{n}", time / 3600, time / 60 % 60, time % 60)
}

/// Host name as a directory name; names that had to be changed get a hash, so that two hosts
/// never share a directory.
pub(crate) fn host_word(host: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let word: String = host.chars().map(|c| if allowed(c) { c } else { '_' }).take(64).collect();
    if word == host && !word.is_empty() && !word.starts_with('.') {
        return word;
    }
    let hash = sha1_smol::Sha1::from(host).digest().to_string();
    format!("_{word}-{}", &hash[..8])
}

/// UTC date of a time since the Unix epoch, `2026-11-20`.
pub(crate) fn date_text(ns: u64) -> String {
    let (y, m, d) = civil(ns / 86_400_000_000_000);
    format!("{y:04}-{m:02}-{d:02}")
}

/// Gregorian date of a day number since 1970-01-01. Years are counted from March so that the leap
/// day comes last and month lengths follow one formula.
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expect) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_709_164_800, "2024-02-29"),
            (1_795_046_400, "2026-11-19"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(date_text(seconds * 1_000_000_000), expect);
        }
        assert_eq!(epoch_name(1_709_164_800_000_000_000 + 3_723_000_000_000, 2), "epoch=20240229T010203Z-2");
    }

    #[test]
    fn segment_names_round_trip_and_refuse_the_rest() {
        let range = SegmentRange { first: 1, last: 7 };
        assert_eq!(SegmentRange::parse(&range.name()), Some(range));
        for bad in ["seg-000002-000001", "seg-1-2", "seg-000001", ".tmp-seg-000001-000001", "seg-000001-00000x"] {
            assert_eq!(SegmentRange::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn covered_segments_are_left_out() {
        let r = |first, last| SegmentRange { first, last };
        let (live, covered) = split_covered(vec![r(3, 3), r(1, 2), r(1, 1), r(1, 4), r(5, 5)]);
        assert_eq!(live, [r(1, 4), r(5, 5)]);
        assert_eq!(covered, [r(1, 2), r(1, 1), r(3, 3)]);
    }

    #[test]
    fn hosts_never_share_a_directory() {
        assert_eq!(host_word("web-1.example"), "web-1.example");
        assert_ne!(host_word("a/b"), host_word("a_b"));
        assert!(!host_word("..").starts_with('.'));
        assert!(!host_word("").is_empty());
    }
}
