//! Numbers for people: thousands separated, shares as percent, times with a unit.

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
    fn durations_have_a_fitting_unit() {
        let shown = [9.871, 10.0, 125.9, 86400.0].map(duration);
        assert_eq!(shown, ["9.87 s", "10 s", "2 min 5 s", "24.0 h"]);
    }
}
