//! Mangled names nobody vouches for: bounded output, and no name gets lost.

#![no_main]

use libfuzzer_sys::fuzz_target;
use whither_image::{Form, demangle};

fuzz_target!(|name: &str| {
    for form in [Form::Full, Form::Short] {
        let readable = demangle(name, form);
        assert!(readable.len() <= name.len().max(70_000));
        assert!(name.is_empty() || !readable.is_empty(), "{name:?}");
    }
});
