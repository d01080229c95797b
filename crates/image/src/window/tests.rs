//! Entries of made-up code.
