//! What a visit of a progress point costs the thread that makes it: the kernel's breakpoint on two functions of whither itself, hit some
//! hundred times. Lives here: that measurement, and which of the two an instruction is like. Not here: setting breakpoints.
//!
//! Constraint: between half a microsecond and forty, by processor, by hypervisor and by what the kernel does with the instruction,
//! so nothing but measuring tells. The program at the breakpoint does next to nothing for us, whom nobody watches: some 200 ns
//! of a visit are not in it.

#![allow(unsafe_code, reason = "two functions whose first instructions are known")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;
use whither_image::is_emulated_by_uprobes;
use whither_kernel::proc;

const HITS: u32 = 25;
const ROUNDS: u32 = 5;

std::arch::global_asm!(
    ".pushsection .text.whither_landmarks,\"ax\",@progbits",
    ".p2align 4",
    ".globl whither_landmark_emulated",
    ".hidden whither_landmark_emulated",
    "whither_landmark_emulated:",
    "push %rax",
    "pop %rax",
    "ret",
    ".p2align 4",
    ".globl whither_landmark_stepped",
    ".hidden whither_landmark_stepped",
    "whither_landmark_stepped:",
    "mov %edi, %eax",
    "ret",
    ".popsection",
    options(att_syntax)
);

// SAFETY: both are defined above, take nothing and change no register but `rax`.
unsafe extern "C" {
    safe fn whither_landmark_emulated();
    safe fn whither_landmark_stepped();
}

/// How the kernel gets past an instruction at which a breakpoint was hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By doing what it does.
    Emulated,
    /// By a step of a copy of it, which ends in a second trap.
    Stepped,
}

impl Way {
    /// Of the instruction at a file's offset. One that cannot be read is the dearer kind: most are.
    pub(super) fn at(file: &Path, offset: u64) -> Self {
        let mut start = [0; 2];
        let read = File::open(file).and_then(|f| f.read_exact_at(&mut start, offset));
        if read.is_ok() && is_emulated_by_uprobes(&start) { Self::Emulated } else { Self::Stepped }
    }
}

/// Nanoseconds of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Costs {
    emulated: u64,
    stepped: u64,
}

impl Costs {
    /// Measures them; `set` sets breakpoints on offsets of a file, as long as they are wanted. 0 where none can be set.
    pub(super) fn measure(set: &mut dyn FnMut(&Path, u64) -> bool) -> Self {
        let mut one = |landmark: extern "C" fn()| {
            let before = least(landmark);
            let is_set = place(landmark).is_some_and(|at| set(Path::new("/proc/self/exe"), at));
            if is_set { least(landmark).saturating_sub(before) } else { 0 }
        };
        Self { emulated: one(whither_landmark_emulated), stepped: one(whither_landmark_stepped) }
    }

    pub(super) fn of(self, way: Way) -> u64 {
        match way {
            Way::Emulated => self.emulated,
            Way::Stepped => self.stepped,
        }
    }
}

/// Where it stands in our executable.
fn place(landmark: extern "C" fn()) -> Option<u64> {
    let address = landmark as usize as u64;
    let maps = proc::executable_mappings(std::process::id());
    let map = maps.into_iter().find(|m| (m.start..m.end).contains(&address))?;
    Some(address - map.start + map.offset)
}

/// Nanoseconds of one call. The least of some rounds: the first hit finds nothing prepared, and others may want the processor.
fn least(landmark: extern "C" fn()) -> u64 {
    let landmark = std::hint::black_box(landmark);
    let round = |_| {
        let from = Instant::now();
        (0..HITS).for_each(|_| landmark());
        u64::try_from(from.elapsed().as_nanos()).unwrap_or(u64::MAX) / u64::from(HITS)
    };
    (0..ROUNDS).map(round).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn landmarks_are_of_the_two_kinds() {
        let way = |landmark| Way::at(Path::new("/proc/self/exe"), place(landmark).expect("in our executable"));
        assert_eq!(way(whither_landmark_emulated), Way::Emulated);
        assert_eq!(way(whither_landmark_stepped), Way::Stepped);
        assert_eq!(Way::at(Path::new("/nowhere"), 0), Way::Stepped);
    }

    #[test]
    fn where_no_breakpoint_can_be_set_nothing_is_known() {
        assert_eq!(Costs::measure(&mut |_, _| false), Costs::default());
    }
}
