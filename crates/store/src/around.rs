//! What surrounds a function in its image, for its control-flow graph: bytes, extents of other functions,
//! which of them are cold parts of it, and which never return. Without the file only the bytes that were
//! stored with the recording are there: code, and the jump tables that it goes by.
//!
//! Here, because whoever plans what to count must see the same blocks as whoever analyses later.

use crate::model::Image;
use crate::symbols::Symbols;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use whither_image::cfg::Surroundings;
use whither_image::jump_tables::Data;
use whither_image::{
    Flow, Function, FunctionTable, ImageOffset, NameSource, StatedBytes, Svma, decode, to_offset, to_svma,
};

/// Functions that end the program or the frame they are called from, as the C library, the C++ and the Rust
/// run-time name them. Others are found out by reading their code.
const NEVER_RETURN: [&str; 33] = [
    "abort",
    "exit",
    "_exit",
    "_Exit",
    "quick_exit",
    "__stack_chk_fail",
    "__assert_fail",
    "__assert_perror_fail",
    "__assert",
    "__fortify_fail",
    "__chk_fail",
    "__longjmp_chk",
    "longjmp",
    "siglongjmp",
    "_longjmp",
    "pthread_exit",
    "err",
    "errx",
    "verr",
    "verrx",
    "__cxa_throw",
    "__cxa_rethrow",
    "__cxa_bad_cast",
    "__cxa_bad_typeid",
    "__cxa_throw_bad_array_new_length",
    "__cxa_call_terminate",
    "_Unwind_Resume",
    "_ZSt9terminatev",
    "__clang_call_terminate",
    "rust_panic",
    "rust_begin_unwind",
    "__libc_start_main",
    "__libc_fatal",
];

/// Deeper chains of functions that end in one that never returns are taken to return.
const DEEPEST: usize = 4;
/// Instructions of a callee read for it.
const MOST_READ: usize = 4_000;
/// Functions larger than this return.
const LONGEST: u64 = 1 << 14;

/// The surroundings of one image's functions. Answers are kept, so one value serves many functions.
pub struct Around<'a> {
    image: &'a Image,
    functions: Arc<FunctionTable>,
    bytes: Option<Arc<StatedBytes>>,
    returns: RefCell<FxHashMap<u64, bool>>,
}

impl<'a> Around<'a> {
    /// The surroundings of an image's functions.
    #[must_use]
    pub fn new(image: &'a Image, symbols: &'a dyn Symbols) -> Self {
        let (functions, bytes) = (symbols.functions(image), symbols.stated(image));
        Self { image, functions, bytes, returns: RefCell::default() }
    }

    /// Whether there is any code to read.
    #[must_use]
    pub fn has_code(&self) -> bool {
        self.bytes.is_some()
    }

    /// Functions of the image.
    #[must_use]
    pub fn functions(&self) -> &FunctionTable {
        &self.functions
    }

    /// The function that holds a stated address.
    #[must_use]
    pub fn function_at(&self, at: Svma) -> Option<&Function> {
        let offset = to_offset(&self.image.segments, at).unwrap_or(ImageOffset(at.0));
        self.functions.find(offset)
    }

    /// Stated addresses of a function.
    #[must_use]
    pub fn extent_of(&self, f: &Function) -> Range<u64> {
        let start = address(self.image, f.start);
        start..start.saturating_add(f.size)
    }

    /// Whether unwind rules say that a frame is already there.
    #[must_use]
    pub fn has_frame(&self, f: &Function) -> Option<bool> {
        self.bytes.as_ref()?.unwind_rows()?.has_frame(Svma(address(self.image, f.start)))
    }

    fn comes_back(&self, callee: Svma, depth: usize) -> bool {
        if let Some(&known) = self.returns.borrow().get(&callee.0) {
            return known;
        }
        let Some(f) = self.function_at(callee).filter(|f| address(self.image, f.start) == callee.0) else {
            return true;
        };
        // Taken to return meanwhile: a recursive function's other ways out decide.
        self.returns.borrow_mut().insert(callee.0, true);
        let answer = match f.source {
            NameSource::Plt => !never_returns(f.name.trim_end_matches("@plt")),
            _ if never_returns(&f.name) => false,
            _ => depth >= DEEPEST || f.size > LONGEST || self.finds_a_way_out(&self.extent_of(f), depth),
        };
        if depth < DEEPEST {
            self.returns.borrow_mut().insert(callee.0, answer);
        } else {
            self.returns.borrow_mut().remove(&callee.0);
        }
        answer
    }

    /// Follows the code of a function until something may leave it.
    fn finds_a_way_out(&self, extent: &Range<u64>, depth: usize) -> bool {
        let Some(code) = self.bytes(Svma(extent.start), (extent.end - extent.start) as usize) else { return true };
        let insns = decode(code, Svma(extent.start));
        let index = |at: Svma| insns.binary_search_by_key(&at, |i| i.address).ok();
        let mut seen = vec![false; insns.len()];
        let mut todo = vec![0];
        let mut read = 0;
        while let Some(i) = todo.pop() {
            let Some(insn) = insns.get(i) else { return true };
            if std::mem::replace(&mut seen[i], true) {
                continue;
            }
            read += 1;
            match insn.flow {
                _ if read > MOST_READ => return true,
                Flow::Return | Flow::IndirectJump => return true,
                Flow::Trap => {}
                // What does not decode is not understood.
                Flow::Invalid => return true,
                Flow::Next | Flow::IndirectCall => todo.push(i + 1),
                Flow::Call(to) if self.comes_back(to, depth + 1) => todo.push(i + 1),
                Flow::Call(_) => {}
                Flow::Jump(to) => match index(to) {
                    Some(next) => todo.push(next),
                    None if self.leaves_for_good(to, depth) => {}
                    None => return true,
                },
                Flow::Branch(to) => {
                    todo.push(i + 1);
                    match index(to) {
                        Some(next) => todo.push(next),
                        None if self.leaves_for_good(to, depth) => {}
                        None => return true,
                    }
                }
            }
        }
        false
    }

    /// Whether a jump out of a function ends in one that never returns.
    fn leaves_for_good(&self, to: Svma, depth: usize) -> bool {
        !self.comes_back(to, depth + 1)
    }
}

impl Data for Around<'_> {
    fn bytes(&self, at: Svma, len: usize) -> Option<&[u8]> {
        self.bytes.as_ref()?.bytes(at, len)
    }
}

impl Surroundings for Around<'_> {
    fn extent(&self, at: Svma) -> Option<Range<u64>> {
        self.function_at(at).filter(|f| f.source != NameSource::Section).map(|f| self.extent_of(f))
    }

    fn is_part_of(&self, part: Svma, function: Svma) -> Option<bool> {
        let (part, whole) = (self.function_at(part)?, self.function_at(function)?);
        if part.source != NameSource::Symbol || whole.source != NameSource::Symbol {
            // Without names: where a frame is already there, no function begins.
            return match (self.has_frame(part), self.has_frame(whole)) {
                // A part that lies elsewhere is no function that others could belong to.
                (_, Some(true)) => Some(false),
                (Some(true), _) => Some(true),
                _ => None,
            };
        }
        Some(is_part_name(&part.name, &whole.name))
    }

    fn returns(&self, callee: Svma) -> bool {
        self.comes_back(callee, 0)
    }
}

/// Stated address of a position, or the position where nothing is stated.
fn address(image: &Image, at: ImageOffset) -> u64 {
    to_svma(&image.segments, at).map_or(at.0, |a| a.0)
}

fn never_returns(name: &str) -> bool {
    let bare = name.split('@').next().unwrap_or(name);
    NEVER_RETURN.contains(&bare) || bare.starts_with("_ZSt") && bare.contains("__throw_")
}

/// `f.cold`, `f.cold.3`, `f.part.0.cold` belong to `f`, `f.part.0`; a piece of the same name, cut off by a
/// label inside, belongs to it too.
fn is_part_name(part: &str, whole: &str) -> bool {
    let head = part.split(".cold").next().unwrap_or(part);
    head == whole && (part.len() > head.len() || part == whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_parts_carry_the_name_of_their_function() {
        assert!(is_part_name("f.cold", "f") && is_part_name("f.part.0.cold.2", "f.part.0"));
        assert!(!is_part_name("g.cold", "f") && !is_part_name("f.part.0", "f") && !is_part_name("fa", "f"));
    }

    #[test]
    fn names_that_never_return() {
        for name in ["abort", "exit@GLIBC_2.2.5", "_ZSt20__throw_length_errorPKc", "_Unwind_Resume"] {
            assert!(never_returns(name), "{name}");
        }
        for name in ["exit_group_state", "aborted", "_ZSt4sortv", "err_msg"] {
            assert!(!never_returns(name), "{name}");
        }
    }
}
