//! Bytes of trampolines: what stands in front of the common entry of the agent for one point, with the
//! displaced instructions behind it, and the jumps that lead there. Where stubs lie and how text is
//! written is `engine`'s; how instructions are moved is `whither_image`'s.
//!
//! ```text
//!      0  push  imm32              the point's index
//!      5  jmp   *0(%rip)           to the agent's common entry
//!     11  .quad common             (an odd address costs nothing: it is read, seldom written)
//!     32  displaced instructions, and the jump behind them
//! ```

use crate::api::Refusal;
use whither_image::relocate::LONGEST_COPY;
use whither_image::{RelocateError, Svma, relocate};

/// Stubs begin at multiples of this.
pub const ALIGN: u64 = 16;
/// The displaced instructions stand here.
const COPY: usize = 32;
/// Most bytes of a stub.
pub const LONGEST: usize = COPY + LONGEST_COPY;

/// A stub for one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stub {
    /// To stand at the address it was made for.
    pub bytes: Vec<u8>,
    /// Address of the displaced instructions: where the agent goes on.
    pub relocated: u64,
    /// Addresses of each displaced instruction, in the text and in the stub, both rising.
    pub map: Vec<(u64, u64)>,
}

/// The stub of point `index` at `at`, a multiple of [`ALIGN`]: `window` are the bytes displaced at
/// `window_at`, `common` is the agent's entry. All addresses are those of the target.
///
/// # Errors
/// A [`Refusal`] when an instruction cannot be moved there.
pub fn stub(index: u32, common: u64, window_at: u64, window: &[u8], at: u64) -> Result<Stub, Refusal> {
    let relocated = at.wrapping_add(COPY as u64);
    let copy = relocate(window, Svma(window_at), Svma(relocated)).map_err(|e| refusal(&e))?;
    let mut bytes = Vec::with_capacity(COPY + copy.bytes.len());
    bytes.push(0x68);
    bytes.extend(index.to_le_bytes());
    bytes.extend([0xff, 0x25, 0, 0, 0, 0]);
    bytes.extend(common.to_le_bytes());
    bytes.resize(COPY, 0xcc);
    bytes.extend(&copy.bytes);
    let place =
        |(old, new): &(u8, u16)| (window_at.wrapping_add(u64::from(*old)), relocated.wrapping_add(u64::from(*new)));
    Ok(Stub { bytes, relocated, map: copy.map.iter().map(place).collect() })
}

/// Bytes by which [`begins`] knows a stub.
pub const HEAD: usize = 11;

/// Whether bytes look like the beginning of a stub.
#[must_use]
pub fn begins(bytes: &[u8; HEAD]) -> bool {
    bytes[0] == 0x68 && bytes[5..] == [0xff, 0x25, 0, 0, 0, 0]
}

impl Stub {
    /// Where a thread goes on that stands at `ip` in the text about to be replaced; `None` when that is
    /// no instruction of the window.
    #[must_use]
    pub fn moved(&self, ip: u64) -> Option<u64> {
        self.map.iter().find(|(old, _)| *old == ip).map(|(_, new)| *new)
    }

    /// Where a thread goes on that stands at `ip` in the copy about to be freed; `None` inside of what
    /// one instruction has become: it must be let run on a little.
    #[must_use]
    pub fn back(&self, ip: u64) -> Option<u64> {
        self.map.iter().find(|(_, new)| *new == ip).map(|(old, _)| *old)
    }
}

/// `jmp rel32` from an address to another; `None` out of reach.
#[must_use]
pub fn jump(from: u64, to: u64) -> Option<[u8; 5]> {
    let distance = to.wrapping_sub(from.wrapping_add(5)).cast_signed();
    let [a, b, c, d] = i32::try_from(distance).ok()?.to_le_bytes();
    Some([0xe9, a, b, c, d])
}

/// `jmp rel8` from an address to another; `None` out of reach.
#[must_use]
pub fn short_jump(from: u64, to: u64) -> Option<[u8; 2]> {
    let distance = to.wrapping_sub(from.wrapping_add(2)).cast_signed();
    let [a] = i8::try_from(distance).ok()?.to_le_bytes();
    Some([0xeb, a])
}

/// The same reason in the engine's words.
pub(crate) fn refusal(error: &RelocateError) -> Refusal {
    match error {
        RelocateError::Undecodable { .. } => Refusal::Undecodable,
        RelocateError::CallInside { .. } => Refusal::CallInside,
        RelocateError::OutOfReach { .. } => Refusal::NoRoom,
        other => Refusal::Immovable { what: other.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout() {
        // push rbp; mov rbp,rsp; push r15
        let stub = stub(0x1234, 0x7fff_1122_3344, 0x40_1004, &[0x55, 0x48, 0x89, 0xe5, 0x41, 0x57], 0x50_0000).unwrap();
        assert_eq!(stub.bytes[..5], [0x68, 0x34, 0x12, 0, 0]);
        assert_eq!(stub.bytes[5..11], [0xff, 0x25, 0, 0, 0, 0]);
        assert_eq!(stub.bytes[11..19], 0x7fff_1122_3344_u64.to_le_bytes());
        assert!(begins(stub.bytes[..HEAD].try_into().unwrap()) && !begins(&[0x68; HEAD]));
        assert_eq!(stub.relocated, 0x50_0020);
        assert_eq!(stub.bytes[32..38], [0x55, 0x48, 0x89, 0xe5, 0x41, 0x57]);
        assert_eq!(stub.bytes[38..], jump(0x50_0026, 0x40_100a).unwrap());
        assert_eq!(stub.moved(0x40_1005), Some(0x50_0021));
        assert_eq!(stub.moved(0x40_1006), None);
        assert_eq!(stub.back(0x50_0024), Some(0x40_1008));
        assert!(stub.bytes.len() <= LONGEST);
    }

    #[test]
    fn jumps_and_their_reach() {
        assert_eq!(jump(0x1000, 0x1000), Some([0xe9, 0xfb, 0xff, 0xff, 0xff]));
        assert_eq!(jump(0, 0x8000_0004), Some([0xe9, 0xff, 0xff, 0xff, 0x7f]));
        assert_eq!(jump(0, 0x8000_0005), None);
        assert_eq!(short_jump(0x1000, 0x1081), Some([0xeb, 0x7f]));
        assert_eq!(short_jump(0x1000, 0x1082), None);
        assert_eq!(short_jump(0x1000, 0xf82), Some([0xeb, 0x80]));
    }

    #[test]
    fn refusals_keep_their_reason() {
        assert_eq!(stub(1, 2, 0x1000, &[0xff, 0xd0, 0x90, 0x90, 0x90], 0x2000), Err(Refusal::CallInside));
        let far = stub(1, 2, 0x1000, &[0x48, 0x8b, 0x05, 0, 0, 0, 0], 0x7f00_0000_0000);
        assert_eq!(far, Err(Refusal::NoRoom));
    }
}
