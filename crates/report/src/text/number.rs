//! Numbers for people: thousands separated, shares as percent, times with a unit.

use whither_cycles::results::analysis::Estimate;

/// A sentence that begins with a count: `2500000 calls` has separators then.
pub(super) fn begins_with_count(sentence: &str) -> String {
    let count = sentence.split_once(' ').and_then(|(n, rest)| Some((n.parse().ok()?, rest)));
    count.map_or_else(|| sentence.to_owned(), |(n, rest)| format!("{} {rest}", thousands(n)))
}

/// `1234567` as `1,234,567`.
#[must_use]
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A share of 0 to 1 as `33.87`, without the sign. What is not 0 never shows as 0.00; a share that is not known
/// (NaN) is `?`.
#[must_use]
pub fn percent(share: f64) -> String {
    if share.is_nan() {
        return "?".into();
    }
    // Adding 0 makes -0 the 0 it means.
    let p = share * 100.0 + 0.0;
    if p > 0.0 && p < 0.005 { "<0.01".into() } else { format!("{p:.2}") }
}

/// A change with its sign.
#[must_use]
pub(super) fn signed_percent(share: f64) -> String {
    format!("{:+.2}", share * 100.0)
}

/// Samples that may have been split: whole ones without, others with one decimal.
#[must_use]
pub(super) fn fractional(samples: f64) -> String {
    let whole = samples.trunc();
    let tenths = ((samples - whole) * 10.0).round() as u64;
    match (whole as u64, tenths) {
        (n, 0) => thousands(n),
        (n, 10) => thousands(n + 1),
        (n, t) => format!("{}.{t}", thousands(n)),
    }
}

/// Executions: whole numbers below a million, `1.53e9` above; below 100 with decimals, as relative ones need.
#[must_use]
pub(crate) fn executions(f: f64) -> String {
    match f {
        f if !f.is_finite() => "?".into(),
        f if f <= 0.0 => "0".into(),
        f if f < 10.0 => trimmed_to(f, 3),
        f if f < 100.0 => trimmed_to(f, 1),
        f if f < 1e6 => thousands(f.round() as u64),
        f => format!("{f:.2e}"),
    }
}

fn trimmed_to(x: f64, decimals: usize) -> String {
    let text = format!("{x:.decimals$}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "0" { format!("<0.{}1", "0".repeat(decimals - 1)) } else { text.to_owned() }
}

/// ` +-4 %` where both sides are alike, else ` (120..310)`; nothing for a figure that is exact or without interval.
#[must_use]
pub(crate) fn interval(e: &Estimate) -> String {
    let known = e.value > 0.0 && e.low.is_finite() && e.low <= e.value && e.high >= e.value && e.high > e.low;
    if !known {
        return String::new();
    }
    if !e.high.is_finite() {
        return format!(" (at least {})", executions(e.low));
    }
    let (down, up) = ((e.value - e.low) / e.value, (e.high - e.value) / e.value);
    let half = down.max(up);
    if half < 0.5 && (up - down).abs() <= 0.25 * half + 0.01 {
        let p = half * 100.0;
        return if p < 0.95 { format!(" +-{p:.1} %") } else { format!(" +-{p:.0} %") };
    }
    format!(" ({}..{})", executions(e.low), executions(e.high))
}

/// Cycles: one decimal, whole from 1,000 on.
#[must_use]
pub(crate) fn cycles(c: f64) -> String {
    match c {
        c if !c.is_finite() => "?".into(),
        c if c >= 999.95 => thousands(c.round() as u64),
        // Adding 0 makes -0 the 0 it means.
        c => format!("{:.1}", (c * 10.0).round() / 10.0 + 0.0),
    }
}

/// `640 ns`, `1.1 us`, `18.3 ms`, `60.74 s`: at least two digits, at most four.
#[must_use]
pub fn nanoseconds(ns: f64) -> String {
    let ns = if ns.is_finite() { ns.max(0.0) } else { 0.0 };
    // Limits lie where rounding would show 1000 of the smaller unit.
    let (value, unit) = match ns {
        n if n < 999.5 => return if n > 0.0 && n < 9.95 { format!("{n:.1} ns") } else { format!("{n:.0} ns") },
        n if n < 999_500.0 => (n / 1e3, "us"),
        n if n < 999_500_000.0 => (n / 1e6, "ms"),
        n => return format!("{:.2} s", n / 1e9),
    };
    if value < 99.95 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// `9.87 s`, `12 min 5 s`, `3.2 h`.
#[must_use]
pub fn duration(seconds: f64) -> String {
    if seconds < 100.0 {
        format!("{} s", trimmed(seconds))
    } else if seconds < 7200.0 {
        format!("{} min {:.0} s", (seconds / 60.0).floor(), (seconds % 60.0).floor())
    } else {
        format!("{:.1} h", seconds / 3600.0)
    }
}

/// At most two decimals, no trailing zeros.
fn trimmed(x: f64) -> String {
    let text = format!("{x:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_begin_a_sentence_are_separated() {
        let told = ["2500000 calls: why", "f: 2500000 calls", "2048-game: why", "7 calls"].map(begins_with_count);
        assert_eq!(told, ["2,500,000 calls: why", "f: 2500000 calls", "2048-game: why", "7 calls"]);
    }

    #[test]
    fn thousands_are_separated() {
        let shown: Vec<String> = [0, 7, 999, 1000, 12345, 6_095_201].map(thousands).into();
        assert_eq!(shown, ["0", "7", "999", "1,000", "12,345", "6,095,201"]);
        assert_eq!(thousands(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn small_shares_are_not_shown_as_zero() {
        assert_eq!(percent(-0.0), "0.00");
        assert_eq!([percent(0.0), percent(0.00001), percent(0.33871)], ["0.00", "<0.01", "33.87"]);
    }

    #[test]
    fn split_samples_show_a_decimal() {
        let shown = [0.0, 2.5, 1999.96, 3.04].map(fractional);
        assert_eq!(shown, ["0", "2.5", "2,000", "3"]);
    }

    #[test]
    fn times_take_the_unit_that_fits() {
        let shown = [0.0, 3.12, 640.2, 999.4, 999.6, 1_100.0, 692_600.0, 18_300_000.0, 999_600_000.0, 6.074e10]
            .map(nanoseconds);
        let expect =
            ["0 ns", "3.1 ns", "640 ns", "999 ns", "1.0 us", "1.1 us", "693 us", "18.3 ms", "1.00 s", "60.74 s"];
        assert_eq!(shown, expect);
        assert_eq!([f64::NAN, -1.0].map(nanoseconds), ["0 ns", "0 ns"]);
    }

    #[test]
    fn executions_and_cycles_keep_what_matters() {
        let shown = [0.0, 0.0001, 0.25, 12.34, 250.4, 12_345.6, 1.53e9, f64::NAN].map(executions);
        assert_eq!(shown, ["0", "<0.001", "0.25", "12.3", "250", "12,346", "1.53e9", "?"]);
        assert_eq!([-0.04, 0.25, 28.94, 1234.5].map(cycles), ["0.0", "0.3", "28.9", "1,235"]);
    }

    #[test]
    fn intervals_are_told_as_they_are() {
        let shown = |low, high| interval(&Estimate { value: 100.0, low, high, ..Estimate::default() });
        assert_eq!([shown(96.0, 104.0), shown(99.7, 100.3)], [" +-4 %", " +-0.3 %"]);
        assert_eq!([shown(20.0, 310.0), shown(90.0, f64::INFINITY)], [" (20..310)", " (at least 90)"]);
        assert_eq!([shown(100.0, 100.0), shown(0.0, 0.0), shown(f64::NAN, 300.0)], ["", "", ""]);
    }

    #[test]
    fn durations_have_a_fitting_unit() {
        let shown = [9.871, 10.0, 125.9, 86400.0].map(duration);
        assert_eq!(shown, ["9.87 s", "10 s", "2 min 5 s", "24.0 h"]);
    }
}
