//! How figures are written on the page: grouped integers, shares, durations, and scaled weights.

/// `6,095,201`.
pub(super) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, d) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(d);
    }
    out
}

/// Samples after skid correction: whole when whole, else one decimal.
pub(super) fn samples(n: f64) -> String {
    if !n.is_finite() || n <= 0.0 {
        return "0".into();
    }
    if (n - n.round()).abs() < 0.05 { grouped(rounded(n)) } else { format!("{n:.1}") }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // callers pass finite, positive values
fn rounded(n: f64) -> u64 {
    n.round() as u64
}

/// A share of 0 to 1 as percent with two decimals, without the sign; `?` for NaN, a share that is not known.
pub(super) fn percent(share: f64) -> String {
    if share.is_nan() {
        return "?".into();
    }
    format!("{:.2}", finite(share) * 100.0)
}

/// As [`percent`], but small values keep their first significant digits: `0.0031`.
pub(super) fn fine_percent(share: f64) -> String {
    let p = finite(share) * 100.0;
    match p.abs() {
        0.0 => "0".into(),
        a if a >= 0.1 => format!("{p:.2}"),
        a if a >= 0.0001 => format!("{p:.4}"),
        _ => "<0.0001".into(),
    }
}

/// Weight in its unit: nanoseconds scale to seconds, counts to k, M, G.
pub(super) fn weight(n: u64, unit: &str) -> String {
    #[allow(clippy::cast_precision_loss)] // four digits are shown
    let v = n as f64;
    let steps: &[(f64, &str)] = if unit == "ns" {
        &[(1e9, "\u{2009}s"), (1e6, "\u{2009}ms"), (1e3, "\u{2009}\u{b5}s"), (1.0, "\u{2009}ns")]
    } else {
        &[(1e9, "\u{2009}G"), (1e6, "\u{2009}M"), (1e3, "\u{2009}k"), (1.0, "")]
    };
    let (div, mark) = steps.iter().find(|(d, _)| v >= *d).unwrap_or(&steps[steps.len() - 1]);
    let scaled = v / div;
    match scaled {
        s if s >= 100.0 || (s.fract() == 0.0 && *div == 1.0) => format!("{s:.0}{mark}"),
        s if s >= 10.0 => format!("{s:.1}{mark}"),
        s => format!("{s:.2}{mark}"),
    }
}

/// `9.9 s`, `9 min 46 s`, `3 h 2 min`.
pub(super) fn duration(seconds: f64) -> String {
    let s = finite(seconds);
    if s < 60.0 {
        return format!("{s:.1}\u{2009}s");
    }
    let whole = rounded(s);
    if whole < 3600 {
        return format!("{}\u{2009}min {}\u{2009}s", whole / 60, whole % 60);
    }
    format!("{}\u{2009}h {}\u{2009}min", whole / 3600, whole % 3600 / 60)
}

/// A fraction of 1 for a bar or a colour: always finite, 0 to 1.
pub(super) fn fraction(x: f64) -> f64 {
    finite(x).clamp(0.0, 1.0)
}

pub(super) fn finite(x: f64) -> f64 {
    if x.is_finite() { x } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_grouped() {
        assert_eq!([grouped(0), grouped(999), grouped(1000), grouped(6_095_201)], ["0", "999", "1,000", "6,095,201"]);
    }

    #[test]
    fn weights_scale_by_unit() {
        assert_eq!(weight(9_900_000_000, "ns"), "9.90\u{2009}s");
        assert_eq!(weight(1_234, "count"), "1.23\u{2009}k");
        assert_eq!(weight(7, "count"), "7");
        assert_eq!(weight(0, "ns"), "0\u{2009}ns");
    }

    #[test]
    fn broken_figures_do_not_reach_the_page() {
        assert_eq!(percent(f64::NAN), "?");
        assert_eq!(percent(f64::INFINITY), "0.00");
        assert_eq!(fraction(f64::INFINITY), 0.0);
        assert_eq!(samples(f64::NEG_INFINITY), "0");
    }

    #[test]
    fn small_shares_keep_digits() {
        assert_eq!([fine_percent(0.000_031), fine_percent(0.0), fine_percent(0.12)], ["0.0031", "0", "12.00"]);
    }
}
