//! Registers sampled in the kernel, and recipes that say what to compute and load with them. Mirrors `struct wh_regs`,
//! `wh_step`, `wh_place` and `wh_recipe`. Constraint: register values are the target's secrets; nothing here prints
//! or keeps them.

use crate::{KIND_REGS, Words};

/// General registers, numbered as instructions number them: rax rcx rdx rbx rsp rbp rsi rdi r8..r15.
pub const GPRS: usize = 16;
/// Most steps of a recipe.
pub const STEPS: usize = 6;
/// Most terms of a step.
pub const TERMS: usize = 3;

/// Registers of one sample and what was found with them, `struct wh_regs`.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Regs {
    /// [`KIND_REGS`].
    pub kind: u32,
    /// Thread-group id.
    pub tgid: u32,
    /// Program counter.
    pub pc: u64,
    /// `CLOCK_MONOTONIC`, ns.
    pub time: u64,
    /// Flags register.
    pub flags: u64,
    /// The recipe that was followed, 0 for none.
    pub recipe: u32,
    /// Bit i: step i succeeded.
    pub known: u32,
    /// General registers.
    pub gpr: [u64; GPRS],
    /// Values of the steps.
    pub steps: [u64; STEPS],
}

impl std::fmt::Debug for Regs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Regs").field("tgid", &self.tgid).field("time", &self.time).finish_non_exhaustive()
    }
}

impl Regs {
    /// Bytes of a record.
    pub const SIZE: usize = 216;

    /// Reads a record; `None` when it is short or of another kind.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let w = Words(bytes.get(..Self::SIZE)?);
        if w.u32(0)? != KIND_REGS {
            return None;
        }
        let mut r = Self {
            kind: KIND_REGS,
            tgid: w.u32(4)?,
            pc: w.u64(8)?,
            time: w.u64(16)?,
            flags: w.u64(24)?,
            recipe: w.u32(32)?,
            known: w.u32(36)?,
            ..Self::default()
        };
        for (i, to) in r.gpr.iter_mut().chain(&mut r.steps).enumerate() {
            *to = w.u64(40 + 8 * i)?;
        }
        Some(r)
    }

    /// The values of the steps as far as they succeeded.
    #[must_use]
    pub fn found(&self) -> [Option<u64>; STEPS] {
        let mut found = self.steps.map(Some);
        for (i, value) in found.iter_mut().enumerate() {
            *value = value.filter(|_| self.known & (1 << i) != 0);
        }
        found
    }
}

/// One step of a recipe, `struct wh_step`: the sum of sources times scales and `disp`, shifted left and then right; or
/// what stands in memory there.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Added to the terms.
    pub disp: u64,
    /// What the sources are multiplied by; 0: no such term.
    pub scale: [i16; TERMS],
    /// Registers (0 to 15) or earlier steps (16 to 21).
    pub source: [u8; TERMS],
    /// Shift to the left.
    pub up: u8,
    /// Shift to the right after it.
    pub down: u8,
    /// 1: the shift to the right repeats the sign.
    pub signed: u8,
    /// Bytes to load: 1, 2, 4, 8; 0: none.
    pub width: u8,
    /// 1; 0 ends the recipe.
    pub used: u8,
    /// Padding.
    pub spare: u16,
}

impl Step {
    const SIZE: usize = 24;

    fn bytes(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        out[..8].copy_from_slice(&self.disp.to_le_bytes());
        for (scale, to) in self.scale.iter().zip(out[8..14].chunks_exact_mut(2)) {
            to.copy_from_slice(&scale.to_le_bytes());
        }
        out[14..17].copy_from_slice(&self.source);
        out[17..22].copy_from_slice(&[self.up, self.down, self.signed, self.width, self.used]);
        out
    }
}

/// Key of a recipe, `struct wh_place`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// Program counter.
    pub pc: u64,
    /// Thread-group id.
    pub tgid: u32,
    /// Padding.
    pub spare: u32,
}

impl Place {
    /// The bytes of the key.
    #[must_use]
    pub fn bytes(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.pc.to_le_bytes());
        out[8..12].copy_from_slice(&self.tgid.to_le_bytes());
        out
    }
}

/// A recipe, `struct wh_recipe`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recipe {
    /// Comes back in [`Regs::recipe`]; not 0.
    pub id: u32,
    /// Padding.
    pub spare: u32,
    /// Steps.
    pub step: [Step; STEPS],
    /// The id once more; [`Self::bytes`] fills it in.
    pub again: u32,
    /// Padding.
    pub spare2: u32,
}

impl Recipe {
    const SIZE: usize = 16 + Step::SIZE * STEPS;

    /// The bytes of the value.
    #[must_use]
    pub fn bytes(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        for at in [0, Self::SIZE - 8] {
            out[at..at + 4].copy_from_slice(&self.id.to_le_bytes());
        }
        for (step, to) in self.step.iter().zip(out[8..].chunks_exact_mut(Step::SIZE)) {
            to.copy_from_slice(&step.bytes());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::run_c;
    use std::mem::{offset_of, size_of};

    #[test]
    fn layouts_are_the_c_compilers() {
        let rows = format!(
            "{} {} {} {} {} {}\n{} {} {} {} {} {} {} {}\n{} {}\n{} {} {}\n",
            size_of::<Regs>(),
            offset_of!(Regs, pc),
            offset_of!(Regs, recipe),
            offset_of!(Regs, known),
            offset_of!(Regs, gpr),
            offset_of!(Regs, steps),
            size_of::<Step>(),
            offset_of!(Step, scale),
            offset_of!(Step, source),
            offset_of!(Step, up),
            offset_of!(Step, down),
            offset_of!(Step, signed),
            offset_of!(Step, width),
            offset_of!(Step, used),
            size_of::<Place>(),
            offset_of!(Place, tgid),
            size_of::<Recipe>(),
            offset_of!(Recipe, step),
            offset_of!(Recipe, again),
        );
        let program = r#"
            #include <stdio.h>
            #include <stddef.h>
            #include "whither_abi.h"
            #define O(s, f) offsetof(struct s, f)
            int main(void) {
                printf("%zu %zu %zu %zu %zu %zu\n", sizeof(struct wh_regs), O(wh_regs, pc), O(wh_regs, recipe),
                       O(wh_regs, known), O(wh_regs, value), O(wh_regs, value[WH_GPRS]));
                printf("%zu %zu %zu %zu %zu %zu %zu %zu\n", sizeof(struct wh_step), O(wh_step, scale),
                       O(wh_step, source), O(wh_step, up), O(wh_step, down), O(wh_step, is_signed),
                       O(wh_step, width), O(wh_step, used));
                printf("%zu %zu\n", sizeof(struct wh_place), O(wh_place, tgid));
                printf("%zu %zu %zu\n", sizeof(struct wh_recipe), O(wh_recipe, step), O(wh_recipe, again));
            }"#;
        assert_eq!(run_c("regs", program), rows);
        assert_eq!(Regs::SIZE, size_of::<Regs>());
        assert_eq!((Step::SIZE, Recipe::SIZE), (size_of::<Step>(), size_of::<Recipe>()));
    }

    #[test]
    fn records_read_back_or_are_refused() {
        let mut bytes = vec![0_u8; Regs::SIZE];
        (bytes[0], bytes[4], bytes[36]) = (3, 77, 0b101);
        for i in 0..GPRS + STEPS {
            bytes[40 + 8 * i] = i as u8 + 1;
        }
        let r = Regs::read(&bytes).expect("well formed");
        assert_eq!((r.tgid, r.gpr[0], r.gpr[15]), (77, 1, 16));
        assert_eq!(r.found(), [Some(17), None, Some(19), None, None, None]);
        assert!((0..bytes.len()).all(|n| Regs::read(&bytes[..n]).is_none()));
        bytes[0] = 2;
        assert!(Regs::read(&bytes).is_none(), "a stack");
        assert!(!format!("{r:?}").contains("16"), "registers are secrets: {r:?}");
    }
}
