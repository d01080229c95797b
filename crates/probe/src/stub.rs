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
use crate::gate::{self, Gate};
use whither_image::relocate::LONGEST_COPY;
use whither_image::{RelocateError, Svma, relocate};

/// Stubs begin at multiples of this.
pub const ALIGN: u64 = 16;
/// The displaced instructions stand here.
pub(crate) const COPY: u64 = 32;
/// Most bytes of a stub.
pub const LONGEST: usize = SITE_COPY + LONGEST_COPY;

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
    gated_stub(index, common, window_at, window, at, None)
}

/// The same behind a gate, if there is one.
///
/// # Errors
/// As [`stub`].
pub(crate) fn gated_stub(
    index: u32,
    common: u64,
    window_at: u64,
    window: &[u8],
    at: u64,
    gate: Option<&Gate>,
) -> Result<Stub, Refusal> {
    let before = gate.map_or(0, |_| gate::BYTES);
    let displaced = (before + COPY as usize).next_multiple_of(ALIGN as usize);
    let relocated = at.wrapping_add(displaced as u64);
    let copy = relocate(window, Svma(window_at), Svma(relocated)).map_err(|e| refusal(&e))?;
    let mut bytes = gate.map(|gate| gate.bytes(displaced)).unwrap_or_default();
    bytes.push(0x68);
    bytes.extend(index.to_le_bytes());
    bytes.extend([0xff, 0x25, 0, 0, 0, 0]);
    bytes.extend(common.to_le_bytes());
    bytes.resize(displaced, 0xcc);
    bytes.extend(&copy.bytes);
    let place =
        |(old, new): &(u8, u16)| (window_at.wrapping_add(u64::from(*old)), relocated.wrapping_add(u64::from(*new)));
    Ok(Stub { bytes, relocated, map: copy.map.iter().map(place).collect() })
}

/// Of a stub for any instruction, see [`site_stub`].
const SITE_COPY: usize = 40;
const SITE_COMMON: usize = 32;
/// `lea -128(%rsp), %rsp`: what the program keeps below its stack pointer stays; and `push imm32`.
const SITE_HEAD: [u8; 6] = [0x48, 0x8d, 0x64, 0x24, 0x80, 0x68];

/// The stub of a place inside of a function, and where the jump in the text leads to.
///
/// ```text
///      0  lea   -128(%rsp), %rsp
///      5  push  imm32              the point's index
///     10  call  *32(stub)          the agent's entry for places
///     16  lea   136(%rsp), %rsp
///     24  jmp                      of a call: to the system call in the text; else to the displaced instructions
///     32  .quad common
///     40  displaced instructions; of a call they come first, and lead to 0
/// ```
///
/// # Errors
/// A [`Refusal`] when an instruction cannot be moved there.
pub fn site_stub(
    index: u32,
    common: u64,
    window_at: u64,
    window: &[u8],
    at: u64,
    is_call: bool,
) -> Result<(Stub, u64), Refusal> {
    let relocated = at.wrapping_add(SITE_COPY as u64);
    let mut copy = relocate(window, Svma(window_at), Svma(relocated)).map_err(|e| refusal(&e))?;
    let end = window_at.wrapping_add(window.len() as u64);
    let (first, then) = if is_call { (relocated, end) } else { (at, relocated) };
    let mut bytes = SITE_HEAD.to_vec();
    bytes.extend(index.to_le_bytes());
    bytes.extend([0xff, 0x15, (SITE_COMMON - 16) as u8, 0, 0, 0]);
    bytes.extend([0x48, 0x8d, 0xa4, 0x24, 0x88, 0, 0, 0]);
    bytes.extend(jump(at.wrapping_add(24), then).ok_or(Refusal::NoRoom)?);
    bytes.resize(SITE_COMMON, 0xcc);
    bytes.extend(common.to_le_bytes());
    if is_call {
        let last = copy.bytes.len().checked_sub(5).ok_or(Refusal::Undecodable)?;
        let from = relocated.wrapping_add(last as u64);
        let leads_on = jump(from, end).is_some_and(|jump| copy.bytes.get(last..) == Some(&jump[..]));
        let back = jump(from, at).filter(|_| leads_on);
        copy.bytes.truncate(last);
        copy.bytes.extend(back.ok_or_else(|| Refusal::Immovable { what: "they do not lead on".into() })?);
    }
    bytes.extend(&copy.bytes);
    let place =
        |(old, new): &(u8, u16)| (window_at.wrapping_add(u64::from(*old)), relocated.wrapping_add(u64::from(*new)));
    // Behind the agent's part of a call's stub nobody may be led back: it would be seen twice.
    Ok((Stub { bytes, relocated, map: copy.map.iter().map(place).collect() }, first))
}

/// Bytes by which [`begins`] knows a stub.
pub const HEAD: usize = 11;

/// Whether bytes look like the beginning of a stub.
#[must_use]
pub fn begins(bytes: &[u8; HEAD]) -> bool {
    (bytes[0] == 0x68 && bytes[5..] == [0xff, 0x25, 0, 0, 0, 0]) || bytes[..6] == SITE_HEAD || bytes[..4] == gate::BEGIN
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
    use crate::api::Caller;

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
    fn a_gate_stands_in_front() {
        let callers = [Caller { module: 0, code: 0x7000..0x8000 }];
        let gate = Gate::of(&callers).unwrap();
        let stub =
            gated_stub(7, 0x7fff_1122_3344, 0x40_1004, &[0x55, 0x48, 0x89, 0xe5, 0x41, 0x57], 0x50_0000, Some(&gate))
                .unwrap();
        let copy = (stub.relocated - 0x50_0000) as usize;
        assert_eq!(stub.bytes[..gate::BYTES], gate.bytes(copy));
        assert_eq!(stub.bytes[gate::BYTES..gate::BYTES + 5], [0x68, 7, 0, 0, 0]);
        assert_eq!(stub.bytes[copy..copy + 6], [0x55, 0x48, 0x89, 0xe5, 0x41, 0x57]);
        let head = stub.bytes[..HEAD].try_into().unwrap();
        assert!(begins(head) && stub.relocated.is_multiple_of(ALIGN));
    }

    #[test]
    fn places_inside_of_functions() {
        // mov eax, 202, in front of a system call at 0x401009; and a no-operation with what follows.
        let window = [0xb8, 0xca, 0, 0, 0];
        let (call, first) = site_stub(7, 0x7fff_1122_3344, 0x40_1004, &window, 0x50_0000, true).unwrap();
        assert_eq!((first, call.relocated), (0x50_0028, 0x50_0028));
        assert_eq!(call.bytes[24..29], jump(0x50_0018, 0x40_1009).unwrap());
        assert_eq!(call.bytes[40..45], window);
        assert_eq!(call.bytes[45..], jump(0x50_002d, 0x50_0000).unwrap());
        assert_eq!(call.bytes[32..40], 0x7fff_1122_3344_u64.to_le_bytes());
        let window = [0x90, 0x48, 0x89, 0xe5, 0x55];
        let (point, first) = site_stub(7, 1, 0x40_1004, &window, 0x50_0000, false).unwrap();
        assert_eq!((first, &point.bytes[24..29]), (0x50_0000, &jump(0x50_0018, 0x50_0028).unwrap()[..]));
        assert_eq!(point.bytes[40..45], window);
        assert_eq!(point.bytes[45..], jump(0x50_002d, 0x40_1009).unwrap());
        assert!(begins(point.bytes[..HEAD].try_into().unwrap()) && point.bytes.len() <= LONGEST);
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
