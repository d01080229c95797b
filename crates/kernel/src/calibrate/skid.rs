//! How far behind an instruction that waits the samples of an event are taken, in instructions: measured on a loop in which
//! a division is all that takes time. A timer's interrupt is taken when the oldest instruction has ended; a counter's may come
//! later, and then no correction is right for all samples.

use crate::KernelError;
use crate::perf::{Attr, PerfEvent, SampleFields, Watch};
use crate::records::{self, Body};
use crate::ring::Ring;
use std::time::{Duration, Instant};

/// Long enough for some hundred samples of a timer.
const SPAN: Duration = Duration::from_millis(40);
/// Pages of the ring: all samples of the span fit.
const PAGES: usize = 64;
/// Fewer samples tell nothing.
const FEWEST: u64 = 40;
/// Share of the samples that has to agree.
const AGREED: f64 = 0.6;

/// Where samples fell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skid {
    /// Samples at the instruction that waits, at the one executed next, and so on.
    pub behind: [u64; 8],
    /// Samples at other instructions of the loop.
    pub elsewhere: u64,
}

impl Skid {
    /// Samples in the loop.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.behind.iter().sum::<u64>() + self.elsewhere
    }

    /// Whether there are enough samples to judge.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.samples() >= FEWEST
    }

    /// The distance most samples agree on.
    #[must_use]
    pub fn usual(&self) -> Option<u8> {
        let enough = |n: &u64| *n as f64 >= AGREED * self.samples() as f64;
        let at = self.behind.iter().position(enough).filter(|_| self.is_known())?;
        u8::try_from(at).ok()
    }
}

/// Measures an event on the calling thread; a twentieth of a second.
///
/// # Errors
/// When the event or its ring cannot be opened.
pub fn skid(attr: &Attr) -> Result<Skid, KernelError> {
    let fields = SampleFields::default();
    let attr = Attr { exclude_kernel: true, disabled: true, fields: Some(fields), ..*attr };
    let event = PerfEvent::open(&attr, Watch::Thread(0))?;
    let mut ring = Ring::map(&event, PAGES)?;
    event.enable()?;
    let until = Instant::now() + SPAN;
    let mut places = Places { slow: 0, next: 0 };
    while Instant::now() < until {
        places = divide(2_000);
    }
    event.disable()?;
    let mut seen = Skid::default();
    ring.drain(&mut Vec::new(), |bytes| {
        if let Some(Body::Sample(s)) = records::parse(bytes, fields).map(|r| r.body) {
            places.count(s.ip, &mut seen);
        }
    });
    Ok(seen)
}

/// Addresses in the loop.
#[derive(Clone, Copy, Debug)]
struct Places {
    /// The division.
    slow: u64,
    /// The instruction behind it.
    next: u64,
}

/// Bytes of the instruction behind the division, and of each one after it; and how many there are.
const FIRST: u64 = 3;
const EACH: u64 = 4;
const ADDS: u64 = 6;
/// Bytes of what stands before the division in the loop, and of the jump back.
const BEFORE: u64 = 2;
const BACK: u64 = 5;

impl Places {
    fn count(self, ip: u64, seen: &mut Skid) {
        let inside = (self.slow - BEFORE..=self.next + FIRST + ADDS * EACH + BACK).contains(&ip);
        let distance = match ip.checked_sub(self.next) {
            _ if ip == self.slow => Some(0),
            Some(0) => Some(1),
            Some(at) if at >= FIRST && (at - FIRST).is_multiple_of(EACH) => Some(2 + (at - FIRST) / EACH),
            _ => None,
        };
        match distance.and_then(|d| seen.behind.get_mut(usize::try_from(d).ok()?)) {
            Some(n) if inside => *n += 1,
            _ if inside => seen.elsewhere += 1,
            // Before or behind the loop.
            _ => {}
        }
    }
}

/// Runs the loop and tells where it is.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn divide(rounds: u64) -> Places {
    let (slow, next): (u64, u64);
    // SAFETY: the assembly changes the registers named only and ends after `rounds`; the upper half of the
    // dividend is 0, so that every quotient fits.
    unsafe {
        core::arch::asm!(
            "lea {slow}, [rip + 3f]",
            "lea {next}, [rip + 4f]",
            "2:",
            "xor edx, edx",
            "3: div r8",
            "4: add rax, r9",
            "add r10, 1",
            "add r10, 1",
            "add r10, 1",
            "add r10, 1",
            "add r10, 1",
            "add r10, 1",
            "dec r11",
            "jnz 2b",
            slow = out(reg) slow, next = out(reg) next,
            inout("r11") rounds.max(1) => _, in("r8") 7_u64, in("r9") 0x1fff_ffff_8000_0000_u64,
            inout("rax") 0x1234_5678_9abc_u64 => _, out("rdx") _, inout("r10") 0_u64 => _,
            options(nostack, nomem),
        );
    }
    Places { slow, next }
}

#[cfg(not(target_arch = "x86_64"))]
fn divide(_rounds: u64) -> Places {
    Places { slow: 0, next: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events;

    #[test]
    fn a_timers_samples_stand_one_instruction_behind() {
        let spec = events::parse("cpu-clock").unwrap();
        let attr = Attr { kind: spec.kind, config: spec.config, period: 100_000, ..Attr::default() };
        let seen = match skid(&attr) {
            Ok(seen) => seen,
            Err(e) => return println!("SKIP: {e}"),
        };
        println!("{seen:?}");
        if !seen.is_known() {
            return println!("SKIP: others use this core: {} samples", seen.samples());
        }
        assert!(matches!(seen.usual(), Some(1) | None), "{seen:?}");
        assert!(seen.behind[1] == *seen.behind.iter().max().unwrap(), "{seen:?}");
    }

    #[test]
    fn addresses_become_distances() {
        let places = Places { slow: 0x1000, next: 0x1003 };
        let mut seen = Skid::default();
        for ip in [0x1000, 0x1003, 0x1003, 0x1006, 0x100a, 0x0ffe, 0x1004, 0x2000, 0x900] {
            places.count(ip, &mut seen);
        }
        assert_eq!(seen, Skid { behind: [1, 2, 1, 1, 0, 0, 0, 0], elsewhere: 2 });
    }

    #[test]
    fn no_agreement_is_no_distance() {
        let of = |behind: [u64; 8]| Skid { behind, elsewhere: 0 }.usual();
        assert_eq!(of([0, 90, 10, 0, 0, 0, 0, 0]), Some(1));
        assert_eq!(of([80, 10, 10, 0, 0, 0, 0, 0]), Some(0));
        assert_eq!(of([0, 40, 40, 20, 0, 0, 0, 0]), None);
        assert_eq!(of([0, 9, 0, 0, 0, 0, 0, 0]), None, "too few to tell");
    }
}
