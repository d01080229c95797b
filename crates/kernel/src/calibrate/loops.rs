//! The loops whose time is taken: each repeats one instruction or one chain often enough that the loop around it does
//! not count. Assembly, as no compiler may improve them.

/// Runs of each loop; the least counts.
const RUNS: usize = 40;

/// A loop of `rounds` times `unrolled` operations.
pub(super) struct Loop {
    pub(super) run: fn(u64, *mut u64),
    pub(super) rounds: u64,
    pub(super) unrolled: u64,
}

/// Time-stamp ticks of one operation at best.
pub(super) fn ticks_per_round(l: &Loop) -> f64 {
    let mut place = Place([0; 16]);
    // A pointer to itself, long before it is loaded: some cores take what was just stored at no cost.
    place.0[0] = std::ptr::addr_of!(place) as u64;
    std::hint::black_box(&mut place);
    let address = place.0.as_mut_ptr();
    let once = || {
        let start = ticks_now();
        (l.run)(l.rounds, address);
        ticks_now().wrapping_sub(start)
    };
    let best = (0..RUNS).map(|_| once()).min().unwrap_or(u64::MAX);
    best as f64 / (l.rounds * l.unrolled) as f64
}

/// Two cache lines of their own.
#[repr(align(128))]
struct Place([u64; 16]);

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{
    ADD, ADD_IMMEDIATE, ADDS, BRANCHES, DIV_EVERY, DIV32, DIV64, EXCHANGE, FAR_JUMPS, FMA, FORWARD, FORWARD_FAIL,
    FP_ADD, FP_DIV, FP_DIV_EVERY, FP_MUL, IMUL, JUMPS, LOAD, LOCK, MIX, ROUNDS, SQRT, SQRT_EVERY, mispredict_ticks,
    ticks_now,
};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Loop, RUNS};
    use core::arch::asm;
    use core::arch::x86_64::{_mm_lfence, _rdtsc};

    /// The time-stamp counter once everything before has ended.
    pub(crate) fn ticks_now() -> u64 {
        // SAFETY: the instruction exists on every x86-64 CPU and only orders.
        unsafe { _mm_lfence() };
        // SAFETY: the instruction exists on every x86-64 CPU and has no side effect.
        let now = unsafe { _rdtsc() };
        // SAFETY: as above.
        unsafe { _mm_lfence() };
        now
    }

    /// Loops by name: what is set up, how often the body is repeated within the loop, and the body. Registers `rax`,
    /// `rcx`, `rdx`, `rsi`, `r8` to `r14` and the first nine vectors are the body's; `rdi` holds the place.
    macro_rules! loops {
        ($($name:ident = $rounds:literal x $unrolled:literal: $setup:literal, $body:literal, $operations:literal;)*) => {
            $(pub(crate) const $name: Loop = Loop {
                run: {
                    fn run(rounds: u64, place: *mut u64) {
                        // SAFETY: the assembly changes the registers named and the 128 bytes at `place`, which
                        // `ticks_per_round` owns; it leaves stack and direction flag alone and ends after `rounds`.
                        unsafe {
                            asm!(
                                $setup,
                                "2:",
                                concat!(".rept ", $unrolled),
                                $body,
                                ".endr",
                                "dec r15",
                                "jnz 2b",
                                inout("r15") rounds => _, in("rdi") place,
                                out("rax") _, out("rcx") _, out("rdx") _, out("rsi") _,
                                out("r8") _, out("r9") _, out("r10") _, out("r11") _,
                                out("r12") _, out("r13") _, out("r14") _,
                                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
                                out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _,
                                options(nostack),
                            );
                        }
                    }
                    run
                },
                rounds: $rounds,
                unrolled: $unrolled * $operations,
            };)*
        };
    }

    loops! {
        ADD = 300 x 100: "mov ecx, 3", "add rax, rcx", 1;
        ADD_IMMEDIATE = 300 x 100: "mov ecx, 3", "add rax, 1", 1;
        ADDS = 300 x 10: "mov ecx, 3",
            "add rax, rcx
             add rdx, rcx
             add rsi, rcx
             add r8, rcx
             add r9, rcx
             add r10, rcx
             add r11, rcx
             add r12, rcx
             add r13, rcx
             add r14, rcx", 10;
        // Of everything less than any unit can take. No-operations would go through faster than work ever does.
        MIX = 300 x 25: "mov ecx, 3
             pxor xmm8, xmm8",
            "add rax, rcx
             paddd xmm0, xmm8
             mov r8, [rdi]
             add rdx, rcx
             movaps xmm1, xmm8
             add rsi, rcx
             paddd xmm2, xmm8
             mov r9, [rdi + 8]", 8;
        // Jumps within a line of code, from line to line, branches that are taken, and a loop as short as can be. What is jumped over is
        // never executed.
        JUMPS = 300 x 32: "xor eax, eax",
            "jmp 3f
             ud2
             3:", 1;
        FAR_JUMPS = 300 x 16: "xor eax, eax",
            "jmp 3f
             .skip 62, 0xcc
             3:", 1;
        BRANCHES = 300 x 32: "xor eax, eax
             test eax, eax",
            "test eax, eax
             jz 3f
             ud2
             3:", 1;
        ROUNDS = 30 x 1: "xor eax, eax",
            "mov ecx, 1000
             3:
             dec ecx
             jnz 3b", 1000;
        IMUL = 100 x 100: "mov eax, 3", "imul rax, rax", 1;
        // What divides has its least latency with the least quotient.
        DIV32 = 30 x 50: "mov ecx, 7
             mov esi, 3
             mov eax, esi",
            "xor edx, edx
             div ecx
             or eax, esi", 1;
        DIV64 = 30 x 50: "mov ecx, 7
             mov esi, 3
             mov eax, esi",
            "xor edx, edx
             div rcx
             or rax, rsi", 1;
        DIV_EVERY = 30 x 50: "mov ecx, 7
             mov esi, 3",
            "mov eax, esi
             xor edx, edx
             div ecx", 1;
        LOAD = 80 x 100: "mov rax, rdi", "mov rax, [rax]", 1;
        FP_ADD = 100 x 100: "mov ecx, 1
             cvtsi2sd xmm0, rcx
             cvtsi2sd xmm1, rcx", "addsd xmm0, xmm1", 1;
        FP_MUL = 80 x 100: "mov ecx, 1
             cvtsi2sd xmm0, rcx
             cvtsi2sd xmm1, rcx", "mulsd xmm0, xmm1", 1;
        // Only where the CPU has it: 1 times 1 plus 0.
        FMA = 80 x 100: "mov ecx, 1
             cvtsi2sd xmm0, rcx
             cvtsi2sd xmm1, rcx
             xorps xmm2, xmm2", "vfmadd213sd xmm0, xmm1, xmm2", 1;
        // Divisors near 1 keep the quotient in range without being 1, which some dividers see.
        FP_DIV = 30 x 50: "mov rcx, 0x3ff0000000001357
             movq xmm1, rcx
             movq xmm0, rcx", "divsd xmm0, xmm1", 1;
        FP_DIV_EVERY = 20 x 10: "mov rcx, 0x3ff0000000001357
             movq xmm8, rcx
             movq xmm0, rcx
             movq xmm1, rcx
             movq xmm2, rcx
             movq xmm3, rcx
             movq xmm4, rcx
             movq xmm5, rcx
             movq xmm6, rcx
             movq xmm7, rcx",
            "divsd xmm0, xmm8
             divsd xmm1, xmm8
             divsd xmm2, xmm8
             divsd xmm3, xmm8
             divsd xmm4, xmm8
             divsd xmm5, xmm8
             divsd xmm6, xmm8
             divsd xmm7, xmm8", 8;
        // x = 1.3 sqrt(x) settles at 1.69, which is no easy number.
        SQRT = 20 x 50: "mov rcx, 0x3ff4cccccccccccd
             movq xmm1, rcx
             movq xmm0, rcx",
            "sqrtsd xmm0, xmm0
             mulsd xmm0, xmm1", 1;
        SQRT_EVERY = 20 x 10: "mov rcx, 0x3ff4cccccccccccd
             movq xmm8, rcx",
            "sqrtsd xmm0, xmm8
             sqrtsd xmm1, xmm8
             sqrtsd xmm2, xmm8
             sqrtsd xmm3, xmm8
             sqrtsd xmm4, xmm8
             sqrtsd xmm5, xmm8
             sqrtsd xmm6, xmm8
             sqrtsd xmm7, xmm8", 8;
        LOCK = 20 x 50: "mov ecx, 3", "lock add qword ptr [rdi + 64], rcx", 1;
        EXCHANGE = 20 x 50: "mov ecx, 3", "xchg qword ptr [rdi + 64], rcx", 1;
        FORWARD = 80 x 50: "mov eax, 3",
            "mov [rdi + 64], rax
             mov rax, [rdi + 64]", 1;
        FORWARD_FAIL = 20 x 50: "mov eax, 3",
            "mov [rdi + 64], eax
             mov [rdi + 68], eax
             mov rax, [rdi + 64]", 1;
    }

    /// Ticks that one wrongly guessed branch costs: half of those of the first kind are.
    pub(crate) fn mispredict_ticks() -> f64 {
        const BRANCHES: u64 = 2000;
        let mut from = ticks_now();
        let mut best = [u64::MAX; 2];
        for run in 0..2 * RUNS {
            let kind = run % 2;
            let start = ticks_now();
            branches(&mut from, BRANCHES, kind as u64);
            best[kind] = best[kind].min(ticks_now().wrapping_sub(start));
        }
        2.0 * best[1].saturating_sub(best[0]) as f64 / BRANCHES as f64
    }

    /// Branches decided by bits of a hash of a number that never comes again (`mask` 1), or always the same way (0).
    fn branches(from: &mut u64, rounds: u64, mask: u64) {
        // SAFETY: only the registers named change, and it ends after `rounds`.
        unsafe {
            asm!(
                "2:",
                "inc {n}",
                "mov rax, {n}",
                "imul rax, {k}",
                "mov rdx, rax",
                "shr rdx, 32",
                "xor rax, rdx",
                "imul rax, {k}",
                "shr rax, 40",
                "test rax, {mask}",
                "jne 3f",
                "add rcx, 1",
                "3:",
                "dec {rounds}",
                "jnz 2b",
                n = inout(reg) *from,
                rounds = inout(reg) rounds => _,
                k = in(reg) 0x9e37_79b9_7f4a_7c15_u64,
                mask = in(reg) mask,
                out("rax") _, out("rdx") _, out("rcx") _,
                options(nostack, nomem),
            );
        }
    }
}
