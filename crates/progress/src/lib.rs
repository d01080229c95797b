//! Progress points in Rust programs, for `whither causal`: where a program makes progress, and where requests
//! begin and end. The Rust twin of `include/whither.h`; programs that are measured use this crate, whither itself
//! does not.
//!
//! ```
//! fn serve(order: u32) -> u32 {
//!     whither_progress::begin!("order");
//!     let done = order + 1;
//!     whither_progress::end!("order");
//!     whither_progress::progress!("orders");
//!     done
//! }
//! assert_eq!(serve(1), 2);
//! ```
//!
//! `whither causal --progress mark:orders --latency mark:order -- ./program` finds them by the notes they leave in the
//! file (`stapsdt`, provider `whither`). A point is one 1-byte nop: nothing is called, allocated or registered, and a
//! program that nobody watches runs as if it were not there. On systems other than x86-64 Linux the macros are empty.
//! A crate that *forbids* unsafe code cannot use them: the nop is inline assembly.

#![no_std]

/// The program has made one step of progress.
#[macro_export]
macro_rules! progress {
    ($name:literal) => {
        $crate::__point!($name)
    };
}

/// A request of this kind begins; by any thread.
#[macro_export]
macro_rules! begin {
    ($name:literal) => {
        $crate::__point!(concat!($name, "_begin"))
    };
}

/// A request of this kind ends; by any thread.
#[macro_export]
macro_rules! end {
    ($name:literal) => {
        $crate::__point!(concat!($name, "_end"))
    };
}

/// The nop and its note, laid out as in `include/whither.h`.
#[doc(hidden)]
#[macro_export]
macro_rules! __point {
    ($name:expr) => {{
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        #[allow(unsafe_code, named_asm_labels, reason = "the label is weak and the same for every point of a file")]
        // SAFETY: one nop; everything else goes into sections that are not executed, nor loaded but for one byte.
        unsafe {
            ::core::arch::asm!(
                "990: nop",
                ".pushsection .note.stapsdt,\"?\",\"note\"",
                ".balign 4",
                ".4byte 992f-991f, 994f-993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b",
                ".8byte _.stapsdt.base",
                ".8byte 0",
                ".asciz \"whither\"",
                concat!(".asciz \"", $name, "\""),
                ".asciz \"\"",
                "994: .balign 4",
                ".popsection",
                ".ifndef _.stapsdt.base",
                ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat",
                ".weak _.stapsdt.base",
                ".hidden _.stapsdt.base",
                "_.stapsdt.base: .space 1",
                ".size _.stapsdt.base, 1",
                ".popsection",
                ".endif",
                options(att_syntax, nomem, nostack, preserves_flags)
            );
        }
    }};
}
