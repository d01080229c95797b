//! Putting foreign text into HTML and into the JSON block of the page. Nothing else in `html`
//! writes a string that came from a target.

use serde::Serialize;
use std::fmt;

/// Appends formatted text to a `String`; formatting into memory cannot fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {{
        use std::fmt::Write as _;
        let _ = write!($out, $($arg)*);
    }};
}
pub(crate) use put;

/// Text for element content and double-quoted attributes. Control characters that HTML forbids
/// become the replacement character, as do the bidirectional overrides that could make one name
/// look like another.
pub(crate) struct Text<'a>(pub(crate) &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut plain = 0;
        for (at, c) in self.0.char_indices() {
            if let Some(with) = replacement(c) {
                f.write_str(&self.0[plain..at])?;
                f.write_str(with)?;
                plain = at + c.len_utf8();
            }
        }
        f.write_str(&self.0[plain..])
    }
}

fn replacement(c: char) -> Option<&'static str> {
    match c {
        '&' => Some("&amp;"),
        '<' => Some("&lt;"),
        '>' => Some("&gt;"),
        '"' => Some("&quot;"),
        '\'' => Some("&#39;"),
        '\t' | '\n' | '\r' => None,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => Some("\u{fffd}"),
        c if c.is_control() => Some("\u{fffd}"),
        _ => None,
    }
}

/// JSON that cannot end its `<script>` element, open a comment in it, or break a line of script.
pub(super) fn json(value: &impl Serialize) -> String {
    let plain = serde_json::to_string(value).expect("plain values with string keys always serialise");
    let mut out = String::with_capacity(plain.len());
    for c in plain.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => put!(out, "\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_names_is_text() {
        let name = "std::vector<a&&>::operator\"'";
        assert_eq!(Text(name).to_string(), "std::vector&lt;a&amp;&amp;&gt;::operator&quot;&#39;");
    }

    #[test]
    fn controls_and_direction_overrides_are_replaced() {
        assert_eq!(Text("a\0b\u{202e}c\u{1b}[31m").to_string(), "a\u{fffd}b\u{fffd}c\u{fffd}[31m");
    }

    #[test]
    fn json_cannot_close_its_element() {
        let text = json(&"</script><!--<script>\u{2028}");
        assert!(!text.contains('<') && !text.contains('\u{2028}'), "{text}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), "</script><!--<script>\u{2028}");
    }
}
