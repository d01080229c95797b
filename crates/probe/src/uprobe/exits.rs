//! Where a function is left: every `ret` and every jump to another function, its cold parts included.
//! A uprobe stands on each; a function whose exits cannot all be told is probed at its entry only.

use std::collections::BTreeSet;
use std::ops::Range;
use whither_image::jump_tables::{Data, resolve};
use whither_image::{Flow, Insn, Svma, decode};

/// More parts than this are no function any more.
const MOST_PARTS: usize = 16;

/// What is asked of the image the function lies in. Addresses are stated ones.
pub trait Code {
    /// Bytes of a range, code or data; `None` when it is not in the file.
    fn bytes(&self, range: Range<u64>) -> Option<&[u8]>;
    /// Extent of the function, or part of one, that holds an address.
    fn extent(&self, address: u64) -> Option<Range<u64>>;
}

/// Stated addresses of all instructions by which the function leaves for its caller (or for a function
/// that returns there in its stead).
///
/// # Errors
/// The reason for which they cannot be told, ready for printing.
pub fn exits(function: Range<u64>, code: &dyn Code) -> Result<Vec<u64>, String> {
    let mut parts = vec![function];
    let mut found = BTreeSet::new();
    let mut next = 0;
    while let Some(part) = parts.get(next).cloned() {
        next += 1;
        let bytes = code.bytes(part.clone()).ok_or("its code is not in the file")?;
        let insns = decode(bytes, Svma(part.start));
        for (i, insn) in insns.iter().enumerate() {
            match insn.flow {
                Flow::Return => {
                    found.insert(insn.address.0);
                }
                Flow::Invalid => return Err("part of it does not decode".into()),
                // A guarded table stays inside; anything else may be a tail call.
                Flow::IndirectJump => {
                    let table = resolve(&insns, i, &parts, &Reader(code));
                    table.filter(|t| t.bounded).ok_or("an indirect jump may leave it")?;
                }
                Flow::Jump(to) => leave(insn, to.0, &mut parts, &mut found, code)?,
                Flow::Branch(to) if !inside(&parts, to.0) => {
                    parts.push(code.extent(to.0).ok_or("a branch leaves it for unknown code")?);
                }
                _ => {}
            }
        }
        if parts.len() > MOST_PARTS {
            return Err("it has too many parts".into());
        }
    }
    if found.is_empty() { Err("it never returns".into()) } else { Ok(found.into_iter().collect()) }
}

/// Tables lie in read-only data of the same image.
struct Reader<'a>(&'a dyn Code);

impl Data for Reader<'_> {
    fn bytes(&self, at: Svma, len: usize) -> Option<&[u8]> {
        self.0.bytes(at.0..at.0.checked_add(len as u64)?)
    }
}

fn inside(parts: &[Range<u64>], address: u64) -> bool {
    parts.iter().any(|p| p.contains(&address))
}

/// A jump out of the known parts: into a cold part if that one jumps back, else the exit itself.
fn leave(
    insn: &Insn,
    to: u64,
    parts: &mut Vec<Range<u64>>,
    found: &mut BTreeSet<u64>,
    code: &dyn Code,
) -> Result<(), String> {
    if inside(parts, to) {
        return Ok(());
    }
    let extent = code.extent(to).ok_or("a jump leaves it for unknown code")?;
    let bytes = code.bytes(extent.clone()).ok_or("a jump leaves it for code that is not in the file")?;
    let there = decode(bytes, Svma(extent.start));
    let back = there.iter().any(|i| match i.flow {
        // Back to its beginning is a tail call of it, not a part of it.
        Flow::Jump(t) | Flow::Branch(t) => inside(parts, t.0) && parts.first().is_some_and(|p| p.start != t.0),
        _ => false,
    });
    // A landing pad whose end unwinds further returns to nobody: such calls are left by the exception.
    let returns = there.iter().any(|i| match i.flow {
        Flow::Return | Flow::IndirectJump | Flow::Invalid => true,
        Flow::Jump(t) | Flow::Branch(t) => !extent.contains(&t.0),
        _ => false,
    });
    if back {
        parts.push(extent);
    } else if returns {
        found.insert(insn.address.0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of code at addresses.
    struct Pieces(Vec<(u64, Vec<u8>)>);

    impl Code for Pieces {
        fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
            self.0.iter().find(|p| p.0 == range.start).map(|p| p.1.as_slice())
        }
        fn extent(&self, address: u64) -> Option<Range<u64>> {
            self.0.iter().map(|p| p.0..p.0 + p.1.len() as u64).find(|r| r.contains(&address))
        }
    }

    fn of(pieces: Vec<(u64, Vec<u8>)>) -> Result<Vec<u64>, String> {
        let code = Pieces(pieces);
        exits(code.extent(0x1000).expect("first piece"), &code)
    }

    #[test]
    fn every_return_and_every_tail_jump() {
        // jne +1; ret; ret; jmp 0x2000
        let f = vec![0x75, 0x01, 0xc3, 0xc3, 0xe9, 0xf7, 0x0f, 0, 0];
        assert_eq!(of(vec![(0x1000, f), (0x2000, vec![0xc3])]), Ok(vec![0x1002, 0x1003, 0x1004]));
    }

    #[test]
    fn a_cold_part_belongs_to_the_function() {
        // jne 0x2000 (cold); ret; the cold part: nop; jmp 0x1006
        let f = vec![0x0f, 0x85, 0xfa, 0x0f, 0, 0, 0xc3];
        let cold = vec![0x90, 0xe9, 0x00, 0xf0, 0xff, 0xff];
        assert_eq!(of(vec![(0x1000, f), (0x2000, cold)]), Ok(vec![0x1006]));
    }

    #[test]
    fn a_landing_pad_that_unwinds_further_is_no_exit() {
        // ret; jmp 0x2000; there: call _Unwind_Resume, and nothing behind it
        let f = vec![0xc3, 0xe9, 0xfa, 0x0f, 0, 0];
        assert_eq!(of(vec![(0x1000, f), (0x2000, vec![0xe8, 0, 0, 0, 0])]), Ok(vec![0x1000]));
    }

    #[test]
    fn what_cannot_be_told_is_said() {
        assert!(of(vec![(0x1000, vec![0xff, 0xe0])]).expect_err("jmp *%rax").contains("indirect"));
        assert!(of(vec![(0x1000, vec![0x0f, 0x0b])]).expect_err("ud2").contains("never returns"));
        assert!(of(vec![(0x1000, vec![0xe9, 0, 0, 1, 0])]).expect_err("far away").contains("unknown code"));
    }
}
