//! Durations, sizes, shares and rates as users write them (`5s`, `64MiB`, `1%`, `5kHz`). Every
//! option with a unit goes through here, so the words and the messages are the same everywhere.
//! A bare number is accepted only where one reading is natural: seconds, bytes and hertz.

use std::time::Duration;

/// A process id.
///
/// # Errors
/// A sentence for clap to print.
pub(crate) fn pid(text: &str) -> Result<u32, String> {
    let number = text.trim().parse().ok().filter(|pid| *pid > 0);
    number.ok_or_else(|| "a process is named by its number, as `ps` and `pgrep` show it".to_owned())
}

/// `250ms`, `5s`, `2m`, `1h`, `7d`, `1h30m`; a bare number is seconds.
///
/// # Errors
/// A sentence for clap to print.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = match text.trim().parse::<f64>() {
        Ok(bare) => bare,
        Err(_) => sum_of_parts(text)?,
    };
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|d| !d.is_zero())
        .ok_or_else(|| format!("`{text}` is not a duration above zero; write for example 5s, 250ms, 1h30m"))
}

fn sum_of_parts(text: &str) -> Result<f64, String> {
    let mut rest = text.trim();
    let mut seconds = 0.0;
    let mut parts = 0;
    while !rest.is_empty() {
        let (number, unit, tail) = leading_part(rest);
        let value: f64 = number.parse().map_err(|_| not_a_duration(text))?;
        seconds += value * seconds_in(unit).ok_or_else(|| not_a_duration(text))?;
        rest = tail;
        parts += 1;
    }
    if parts == 0 { Err(not_a_duration(text)) } else { Ok(seconds) }
}

/// Splits `1h30m` into (`1`, `h`, `30m`).
fn leading_part(text: &str) -> (&str, &str, &str) {
    let unit_at = text.find(|c: char| !is_numeric(c)).unwrap_or(text.len());
    let (number, rest) = text.split_at(unit_at);
    let next_at = rest.find(is_numeric).unwrap_or(rest.len());
    let (unit, tail) = rest.split_at(next_at);
    (number, unit.trim(), tail)
}

fn is_numeric(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

fn seconds_in(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" | "sec" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        "w" => 604_800.0,
        _ => return None,
    })
}

fn not_a_duration(text: &str) -> String {
    format!(
        "`{text}` is not a duration; write a number and a unit (ns, us, ms, s, m, h, d, w), for example 5s or 1h30m"
    )
}

/// Seconds since the Unix epoch of `2026-11-23 08:10:00Z`, as answers show times; also without the `Z`, the seconds or the
/// time of day, and with a `T` between.
///
/// # Errors
/// A sentence for clap to print.
pub(crate) fn utc(text: &str) -> Result<u64, String> {
    let parsed = (|| {
        let plain = text.trim().trim_end_matches('Z');
        let (date, time) = plain.split_once([' ', 'T']).unwrap_or((plain, "0:0"));
        let numbers = |text: &str, between| text.split(between).map(|n| n.parse().ok()).collect::<Option<Vec<u64>>>();
        let (date, time) = (numbers(date, '-')?, numbers(time, ':')?);
        let [year @ 1970..=9999, month @ 1..=12, day @ 1..=31] = date[..] else { return None };
        let seconds = match time[..] {
            [h @ 0..=23, m @ 0..=59] => 60 * (60 * h + m),
            [h @ 0..=23, m @ 0..=59, s @ 0..=60] => 60 * (60 * h + m) + s,
            _ => return None,
        };
        Some(86_400 * days_before(year, month, day) + seconds)
    })();
    parsed.ok_or_else(|| format!("`{text}` is not a time; write for example 2026-11-23 08:10:00Z (always UTC)"))
}

/// Days from 1970-01-01 to a day of the Gregorian calendar; years begin in March, so that a leap day is the last one.
fn days_before(year: u64, month: u64, day: u64) -> u64 {
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468
}

/// `512`, `64KiB`, `16MiB`, `1GiB` (powers of 1024) or `10kB`, `5MB`, `1GB` (powers of 1000).
///
/// # Errors
/// A sentence for clap to print.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let (number, unit, tail) = leading_part(text.trim());
    let value = number.parse::<f64>().ok().filter(|v| tail.is_empty() && v.is_finite());
    let bytes = value.zip(bytes_in(unit)).map(|(v, scale)| v * scale);
    match bytes {
        // Above 2^63 the float no longer counts bytes, and no disk does either.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in 1..2^63")]
        Some(b) if (1.0..9.2e18).contains(&b) => Ok(b as u64),
        _ => {
            Err(format!("`{text}` is not a size; write a number and a unit (B, KiB, MiB, GiB, TiB), for example 64MiB"))
        }
    }
}

fn bytes_in(unit: &str) -> Option<f64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1_048_576.0,
        "g" | "gib" => 1_073_741_824.0,
        "t" | "tib" => 1_099_511_627_776.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return None,
    })
}

/// `1%` to a share in 0 to 1. The sign is required: `--budget 1` would read as "all of it" to some.
///
/// # Errors
/// A sentence for clap to print.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let percent = text.trim().strip_suffix('%').and_then(|n| n.trim().parse::<f64>().ok());
    percent
        .filter(|p| *p > 0.0 && *p <= 100.0)
        .map(|p| p / 100.0)
        .ok_or_else(|| format!("`{text}` is not a share; write a percentage above 0, for example 1% or 0.5%"))
}

/// The same, or nothing: `0%`, below which there is nothing to be left out.
///
/// # Errors
/// A sentence for clap to print.
pub(crate) fn share_or_none(text: &str) -> Result<f64, String> {
    if text.trim().strip_suffix('%').is_some_and(|n| n.trim().parse() == Ok(0.0)) { Ok(0.0) } else { share(text) }
}

/// `5200`, `5200Hz`, `5kHz`: samples per second and CPU.
///
/// # Errors
/// A sentence for clap to print.
pub(crate) fn hertz(text: &str) -> Result<u32, String> {
    let lower = text.trim().to_ascii_lowercase();
    let (number, scale) = match lower.strip_suffix("khz").or_else(|| lower.strip_suffix('k')) {
        Some(n) => (n, 1e3),
        None => (lower.strip_suffix("hz").unwrap_or(&lower), 1.0),
    };
    let hertz = number.trim().parse::<f64>().ok().map(|v| (v * scale).round());
    match hertz {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in 1..=1e6")]
        Some(h) if (1.0..=1e6).contains(&h) => Ok(h as u32),
        _ => Err(format!(
            "`{text}` is not a rate; write samples per second and CPU from 1 to 1000000, for example 5200 or 5kHz"
        )),
    }
}

/// Bytes for people: `812 B`, `1.4 KiB`, `3.2 MiB`.
pub(crate) fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    #[allow(clippy::cast_precision_loss, reason = "two digits are shown")]
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Counts for people: thousands separated by commas.
pub(crate) fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_may_be_compound() {
        let cases = [
            ("5s", 5.0),
            ("250ms", 0.25),
            ("1h30m", 5400.0),
            ("2", 2.0),
            ("0.5", 0.5),
            ("7d", 604_800.0),
            ("10 s", 10.0),
        ];
        for (text, seconds) in cases {
            assert_eq!(duration(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
    }

    #[test]
    fn times_are_utc_as_answers_show_them() {
        let cases = [
            ("1970-01-01 00:16:40Z", 1000),
            ("2026-11-23 08:10:53Z", 1_795_421_453),
            ("2026-11-23T08:10", 1_795_421_400),
            ("2024-02-29", 1_709_164_800),
            ("2100-03-01 00:00:00Z", 4_107_542_400),
        ];
        for (text, seconds) in cases {
            assert_eq!(utc(text), Ok(seconds), "{text}");
        }
        for text in
            ["2026-13-01", "2026-11-23 25:00", "2026-11", "2026-11-23 8", "1066-10-14", "-", "99999999999999999999-1-1"]
        {
            assert!(utc(text).expect_err(text).contains(text));
        }
    }

    #[test]
    fn nonsense_durations_name_themselves() {
        for text in ["", "5 parsecs", "s", "-1s", "0", "0s", "1e400", "nan", "1h30", "inf"] {
            let said = duration(text).expect_err(text);
            assert!(said.contains(&format!("`{text}`")), "{said}");
        }
    }

    #[test]
    fn sizes_know_both_families_of_units() {
        let cases =
            [("64MiB", 64 << 20), ("1GiB", 1 << 30), ("512", 512), ("10kB", 10_000), ("16k", 16_384), ("1.5KiB", 1536)];
        for (text, bytes) in cases {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "0", "MiB", "5 apples", "-3MiB", "99999999TiB", "1MiB2"] {
            size(text).expect_err(text);
        }
    }

    #[test]
    fn shares_need_the_sign() {
        assert_eq!(share("1%"), Ok(0.01));
        assert_eq!(share("0.5 %"), Ok(0.005));
        assert_eq!(share_or_none("0%"), Ok(0.0));
        assert_eq!(share_or_none("2%"), Ok(0.02));
        for text in ["1", "0%", "101%", "%", "-2%", "nan%"] {
            share(text).expect_err(text);
        }
    }

    #[test]
    fn rates_accept_kilohertz() {
        let cases = [("5200", 5200), ("5kHz", 5000), ("99Hz", 99), ("5.2k", 5200)];
        for (text, rate) in cases {
            assert_eq!(hertz(text), Ok(rate), "{text}");
        }
        for text in ["0", "fast", "2000000", "-5", ""] {
            hertz(text).expect_err(text);
        }
    }

    #[test]
    fn figures_for_people() {
        assert_eq!(show_bytes(812), "812 B");
        assert_eq!(show_bytes(3 << 20), "3.0 MiB");
        assert_eq!(show_count(1_234_567), "1,234,567");
        assert_eq!(show_count(12), "12");
    }
}
