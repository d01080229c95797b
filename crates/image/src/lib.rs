//! What a program image says of itself: ELF structure, symbols, lines, inlined functions, unwind
//! rules and machine code. Bytes come in, values go out: no file is opened here, so every parser can
//! be fuzzed and used on bytes from anywhere. Broken input yields an error or a partial value with
//! a list of problems, never a panic.

#![forbid(unsafe_code)]

pub mod functions;
pub mod ids;

pub use functions::{Function, FunctionTable, NameSource};
pub use ids::{IdKind, ImageId, ImageKind, ImageOffset, Segment, Svma, to_offset, to_svma};

pub mod source;
pub use source::SourceFrame;
