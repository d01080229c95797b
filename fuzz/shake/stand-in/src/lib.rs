//! `fuzz_target!` without a fuzzer: the body becomes `run`, the preparation `init`, in the module the
//! target's file is read into.

/// As `libfuzzer_sys::fuzz_target!`, for the forms the targets use.
#[macro_export]
macro_rules! fuzz_target {
    (|$input:ident: &[u8]| $body:block $(,)?) => {
        $crate::fuzz_target!(init: {}, |$input: &[u8]| $body);
    };
    (|$input:ident: &str| $body:block $(,)?) => {
        $crate::fuzz_target!(init: {}, |bytes: &[u8]| {
            let Ok($input) = std::str::from_utf8(bytes) else { return };
            $body
        });
    };
    (init: $init:block, |$input:ident: &[u8]| $body:block $(,)?) => {
        pub(crate) fn init() $init

        pub(crate) fn run($input: &[u8]) $body
    };
}
