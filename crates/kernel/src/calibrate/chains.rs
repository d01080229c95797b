//! Kinds of instructions whose latency differs between vendors, or is not 1: each measured in a chain, by the name that the processor
//! model knows it by. What cannot be chained by itself is chained with something whose latency is known, which is taken off.

use super::Figures;
use super::loops::{Loop, ticks_per_round};
use core::arch::asm;

/// A chain, what of its cycles is not the instruction's, and whether this CPU has it.
struct Chain {
    name: &'static str,
    run: Loop,
    /// Figures measured before, so many times each.
    less: &'static [(&'static str, f64)],
    /// Cycles of additions and the like.
    alu: f64,
    most: f64,
    has: fn() -> bool,
}

/// Measures all of them into `figures`, which has what others measured. `unit`: ticks of a dependent addition.
pub(super) fn measure(figures: &mut Figures, unit: f64) {
    for chain in CHAINS.iter().filter(|c| (c.has)()) {
        let known = |(name, times): &(&str, f64)| figures.get(name).map(|value| value * times);
        let Some(less) = chain.less.iter().map(known).sum::<Option<f64>>() else { continue };
        let cycles = ticks_per_round(&chain.run) / unit - chain.alu - less;
        figures.put(chain.name, cycles, 0.1..=chain.most);
    }
}

/// Whether a figure is one of these.
pub(super) fn is_one(name: &str) -> bool {
    CHAINS.iter().any(|c| c.name == name)
}

fn always() -> bool {
    true
}

macro_rules! feature {
    ($name:ident: $feature:tt) => {
        fn $name() -> bool {
            std::arch::is_x86_feature_detected!($feature)
        }
    };
}

feature!(sse41: "sse4.1");
feature!(sse42: "sse4.2");
feature!(popcnt: "popcnt");
feature!(bmi1: "bmi1");
feature!(bmi2: "bmi2");
feature!(avx: "avx");
feature!(avx2: "avx2");
feature!(aes: "aes");
feature!(pclmul: "pclmulqdq");
feature!(sha: "sha");
feature!(avx512: "avx512dq");

/// Chains by name: on which CPUs, how often the body is repeated, what is taken off, the most that can be right, and the body, with as many
/// steps as told. `rax` to `r11` but for `rbx` are the body's, and the first three vectors, which hold ones; `rdi` holds the
/// place, `rcx` 5 and `rax`, `rdx`, `rsi` 0.
macro_rules! chains {
    ($($name:ident, $has:ident, $rounds:literal x $unrolled:literal, [$($less:ident $times:literal),*] $alu:literal, $most:literal:
       $body:literal $steps:literal;)*) => {
        const CHAINS: &[Chain] = &[$(Chain {
            name: stringify!($name),
            run: Loop {
                run: {
                    fn run(rounds: u64, place: *mut u64) {
                        // SAFETY: the assembly changes the registers named and the 128 bytes at `place`, which `ticks_per_round` owns; what it
                        // pushes it pops, and it ends after `rounds`.
                        unsafe {
                            asm!(
                                "mov ecx, 1",
                                "cvtsi2sd xmm0, rcx",
                                "unpcklpd xmm0, xmm0",
                                "movaps xmm1, xmm0",
                                "movaps xmm2, xmm0",
                                "mov ecx, 5",
                                "xor eax, eax",
                                "xor edx, edx",
                                "xor esi, esi",
                                "mov r10, rdi",
                                "2:",
                                concat!(".rept ", $unrolled),
                                $body,
                                ".endr",
                                "dec r15",
                                "jnz 2b",
                                inout("r15") rounds => _, inout("rdi") place => _,
                                out("rax") _, out("rcx") _, out("rdx") _, out("rsi") _,
                                out("r8") _, out("r9") _, out("r10") _, out("r11") _,
                                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("k1") _,
                            );
                        }
                    }
                    run
                },
                rounds: $rounds,
                unrolled: $unrolled * $steps,
            },
            less: &[$((stringify!($less), $times)),*],
            alu: $alu,
            most: $most,
            has: $has,
        },)*];
    };
}

chains! {
    two_flags, always, 50 x 50, [] 1.0, 9.0: "cmp rax, rcx
        cmova rax, rcx" 1;
    exchange, always, 50 x 50, [] 0.0, 9.0: "xchg rax, rcx" 1;
    compare_exchange, always, 50 x 50, [] 0.0, 20.0: "cmpxchg rax, rcx" 1;
    shift, always, 50 x 50, [] 0.0, 9.0: "shl rax, 3" 1;
    shift_double, always, 50 x 50, [] 0.0, 9.0: "shld rax, rcx, 3" 1;
    rotate_carry, always, 50 x 50, [] 0.0, 9.0: "rcl rax, 1" 1;
    lea_slow, always, 50 x 50, [] 0.0, 9.0: "lea rax, [rcx + rax + 8]" 1;
    lea_scaled, always, 50 x 50, [] 0.0, 9.0: "lea rax, [rcx + 4 * rax]" 1;
    // Copies are nothing on some cores and a cycle on others, so the high half goes where it is taken from.
    mul_high, bmi2, 50 x 50, [] 0.0, 12.0: "mulx rdx, rsi, rcx" 1;
    bits, popcnt, 50 x 50, [] 0.0, 9.0: "popcnt rax, rax" 1;
    bits_every, popcnt, 50 x 10, [] 0.0, 4.0: "popcnt rax, rcx
        popcnt rdx, rcx
        popcnt rsi, rcx
        popcnt r8, rcx
        popcnt r9, rcx
        popcnt r11, rcx" 6;
    lowest, bmi1, 50 x 50, [] 0.0, 9.0: "blsr rax, rax" 1;
    bit_field, bmi1, 50 x 50, [] 0.0, 9.0: "bextr rax, rax, rcx" 1;
    deposit, bmi2, 20 x 50, [] 0.0, 400.0: "pdep rax, rax, rcx" 1;
    crc, sse42, 50 x 50, [] 0.0, 12.0: "crc32 rax, rcx" 1;
    fp_compare, always, 50 x 50, [] 0.0, 9.0: "minsd xmm0, xmm1" 1;
    fp_div_single, always, 20 x 50, [] 0.0, 60.0: "divss xmm0, xmm1" 1;
    sqrt_single, always, 20 x 50, [] 0.0, 80.0: "sqrtss xmm0, xmm0" 1;
    convert, always, 50 x 50, [] 0.0, 12.0: "cvtdq2ps xmm0, xmm0" 1;
    convert_width, always, 50 x 50, [] 0.0, 15.0: "cvtss2sd xmm0, xmm0" 1;
    // There and back; half of it each, as who goes there comes back.
    transfer, always, 50 x 25, [] 0.0, 12.0: "movq rax, xmm0
        movq xmm0, rax" 2;
    convert_from_int, always, 50 x 25, [transfer 1.0] 0.0, 20.0: "cvtsi2sd xmm0, rax
        movq rax, xmm0" 1;
    convert_to_int, always, 50 x 25, [transfer 1.0] 0.0, 20.0: "cvttsd2si rax, xmm0
        movq xmm0, rax" 1;
    round, sse41, 50 x 50, [] 0.0, 20.0: "roundsd xmm0, xmm0, 0" 1;
    reciprocal, always, 50 x 50, [] 0.0, 20.0: "rcpss xmm0, xmm0" 1;
    horizontal, sse41, 50 x 25, [] 0.0, 20.0: "haddpd xmm0, xmm1" 1;
    dot, sse41, 50 x 25, [] 0.0, 40.0: "dpps xmm0, xmm1, 0x11" 1;
    dot_double, sse41, 50 x 25, [] 0.0, 40.0: "dppd xmm0, xmm1, 0x31" 1;
    vec_alu, always, 50 x 50, [] 0.0, 9.0: "paddd xmm0, xmm1" 1;
    vec_mul, always, 50 x 50, [] 0.0, 12.0: "pmaddwd xmm0, xmm1" 1;
    vec_mul_wide, sse41, 50 x 50, [] 0.0, 30.0: "pmulld xmm0, xmm1" 1;
    vec_sums, always, 50 x 50, [] 0.0, 12.0: "psadbw xmm0, xmm1" 1;
    vec_compare64, sse42, 50 x 50, [] 0.0, 12.0: "pcmpgtq xmm0, xmm1" 1;
    vec_horizontal, sse41, 50 x 50, [] 0.0, 12.0: "phaddd xmm0, xmm1" 1;
    vec_string, sse42, 50 x 10, [transfer 1.0] 0.0, 60.0: "pcmpistri xmm0, xmm1, 0
        movd xmm0, ecx" 1;
    vec_flags, always, 50 x 25, [transfer 1.0] 1.0, 20.0: "ucomisd xmm0, xmm1
        sbb eax, eax
        movd xmm0, eax" 1;
    vec_test, sse41, 50 x 25, [transfer 1.0] 1.0, 20.0: "ptest xmm0, xmm1
        sbb eax, eax
        movd xmm0, eax" 1;
    mask_shift, avx512, 50 x 50, [] 0.0, 12.0: "kshiftlw k1, k1, 1" 1;
    vec_shuffle, always, 50 x 50, [] 0.0, 9.0: "pshufd xmm0, xmm0, 0x1b" 1;
    pack, always, 50 x 50, [] 0.0, 9.0: "packuswb xmm0, xmm1" 1;
    blend_by, avx, 50 x 50, [] 0.0, 9.0: "vblendvps xmm0, xmm0, xmm1, xmm2" 1;
    cross, avx2, 50 x 50, [] 0.0, 15.0: "vpermd ymm0, ymm1, ymm0" 1;
    halves, avx2, 50 x 50, [] 0.0, 15.0: "vextracti128 xmm0, ymm0, 1" 1;
    lane, sse41, 50 x 25, [transfer 1.0] 0.0, 15.0: "pextrq rax, xmm0, 1
        movq xmm0, rax" 1;
    vec_load, always, 50 x 25, [transfer 1.0] 0.0, 20.0: "movq xmm0, [rdi + rax + 64]
        movq rax, xmm0" 1;
    aes, aes, 50 x 50, [] 0.0, 20.0: "aesenc xmm0, xmm1" 1;
    aes_key, aes, 50 x 20, [] 0.0, 40.0: "aesimc xmm0, xmm0" 1;
    carry_less, pclmul, 50 x 50, [] 0.0, 20.0: "pclmulqdq xmm0, xmm1, 0" 1;
    sha_rounds, sha, 50 x 50, [] 0.0, 20.0: "sha256rnds2 xmm1, xmm2, xmm0" 1;
    load_fence, always, 50 x 10, [] 0.0, 200.0: "lfence" 1;
    fence, always, 20 x 10, [] 0.0, 400.0: "mfence" 1;
    store_fence, always, 50 x 10, [] 0.0, 200.0: "sfence" 1;
    pause, always, 20 x 10, [] 0.0, 1000.0: "pause" 1;
    // What hypervisors do instead of the processor is worth knowing as well, and slow: once each.
    read_clock, always, 4 x 5, [] 0.0, 60000.0: "rdtsc" 1;
    cpuid, always, 1 x 2, [] 0.0, 60000.0: "mov r11, rbx
        xor eax, eax
        xor ecx, ecx
        cpuid
        mov rbx, r11" 1;
    pop_flags, always, 20 x 10, [] 0.0, 400.0: "pushfq
        popfq" 1;
    rep, always, 50 x 10, [] 0.0, 200.0: "mov ecx, 1
        mov rdi, r10
        rep stosb" 1;
}
