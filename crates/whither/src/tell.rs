//! Sentences for the user, beside the answer: standard error. Constraint: that may be closed, or a terminal that has gone,
//! and a session that ends for it by a panic leaves its probes in the program that it measures. What cannot be said is not.

/// A line of standard error, formatted as by `format!`.
macro_rules! tell {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(anstream::stderr(), $($text)*);
    }};
}
pub(crate) use tell;
