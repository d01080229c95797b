//! A position in source text, as debug information tells it. The DWARF reading itself is in `dwarf`.

use std::sync::Arc;

/// One level of the inline chain at an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceFrame {
    /// Mangled (linkage) name of the function, when known.
    pub function: Option<Arc<str>>,
    /// Source file as the compiler recorded it, directory included.
    pub file: Option<Arc<str>>,
    /// Line, 1-based; 0 when not known.
    pub line: u32,
    /// Column, 1-based; 0 when not known.
    pub column: u32,
}
