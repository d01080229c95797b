//! Single instructions, executed by the kernel side's rules (compiled here for user space) and by this machine's processor, from
//! random registers and memory: what the rules call known must be what the processor made. Twice: with everything known
//! before, when all but what is rounded must be known afterwards, and with some bytes of vectors and masks unknown. What this
//! processor does not have is left out, and said.

use super::*;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// What a processor must have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Sse = 0,
    Avx2 = 1,
    Avx512 = 2,
}

/// Instructions in the assembler's words, and whether all of their results are known when all inputs are.
fn snippets() -> Vec<(String, Level, bool)> {
    let mut all = Vec::new();
    let mut add = |text: String, level, exact| all.push((text, level, exact));
    let two = "pand pandn por pxor andps andnpd orps xorpd paddb paddw paddd paddq psubb psubw psubd psubq pcmpeqb pcmpeqw pcmpeqd \
               pcmpeqq pcmpgtb pcmpgtw pcmpgtd pcmpgtq pminub pminuw pminud pmaxub pmaxuw pmaxud pminsb pminsw pminsd pmaxsb \
               pmaxsw pmaxsd punpcklbw punpcklwd punpckldq punpcklqdq punpckhbw punpckhwd punpckhdq punpckhqdq unpcklps \
               unpckhpd pshufb";
    for name in two.split_whitespace() {
        for src in ["%xmm1", "%xmm2", "(%rsi)"] {
            add(format!("{name} {src}, %xmm2"), Level::Sse, true);
            add(format!("v{name} {src}, %xmm2, %xmm3"), Level::Avx2, true);
            add(format!("v{name} {}, %ymm2, %ymm3", src.replace('x', "y")), Level::Avx2, true);
        }
    }
    let stated = "pshufd:27 pshufd:228 pshuflw:57 pshufhw:147";
    for (name, imm) in stated.split_whitespace().filter_map(|s| s.split_once(':')) {
        for src in ["%xmm1", "(%rsi)"] {
            add(format!("{name} ${imm}, {src}, %xmm2"), Level::Sse, true);
            add(format!("v{name} ${imm}, {}, %ymm2", src.replace('x', "y")), Level::Avx2, true);
        }
    }
    for imm in [0, 1, 7, 8, 15, 16, 17, 31, 40] {
        for name in ["psllw", "pslld", "psllq", "psrlw", "psrld", "psrlq", "psraw", "psrad", "pslldq", "psrldq"] {
            add(format!("{name} ${imm}, %xmm2"), Level::Sse, true);
            add(format!("v{name} ${imm}, %ymm1, %ymm2"), Level::Avx2, true);
        }
        add(format!("palignr ${imm}, %xmm1, %xmm2"), Level::Sse, true);
        add(format!("vpalignr ${imm}, %ymm1, %ymm4, %ymm2"), Level::Avx2, true);
        add(format!("shufps ${imm}, %xmm1, %xmm2"), Level::Sse, true);
    }
    for imm in 0..128 {
        add(format!("pcmpistri ${imm}, %xmm1, %xmm4"), Level::Sse, true);
        add(format!("vpcmpistri ${imm}, (%rsi), %xmm4"), Level::Avx2, true);
    }
    for imm in 0..4 {
        add(format!("shufpd ${imm}, %xmm1, %xmm2"), Level::Sse, true);
        add(format!("vshufpd ${imm}, (%rsi), %xmm1, %xmm2"), Level::Avx2, true);
    }
    for text in MOVES.lines() {
        add(text.to_owned(), Level::Sse, true);
    }
    for text in AVX.lines() {
        add(text.to_owned(), Level::Avx2, true);
    }
    for text in FLOATS.lines() {
        add(text.to_owned(), Level::Sse, false);
    }
    for text in EVEX.lines() {
        add(text.to_owned(), Level::Avx512, true);
    }
    for size in ["b", "w", "d", "q"] {
        for imm in 0..8 {
            for sign in ["", "u"] {
                add(format!("vpcmp{sign}{size} ${imm}, %ymm17, %ymm18, %k2"), Level::Avx512, true);
                add(format!("vpcmp{sign}{size} ${imm}, (%rsi), %zmm18, %k2{{%k3}}"), Level::Avx512, true);
            }
        }
        add(format!("vptestm{size} %ymm17, %ymm18, %k2"), Level::Avx512, true);
        add(format!("vptestnm{size} (%rsi), %xmm18, %k2{{%k5}}"), Level::Avx512, true);
        add(format!("vpbroadcast{size} {}, %ymm19", if size == "q" { "%rax" } else { "%eax" }), Level::Avx512, true);
        add(format!("vpbroadcast{size} %xmm19, %zmm20{{%k1}}"), Level::Avx512, true);
        add(format!("kortest{size} %k2, %k3"), Level::Avx512, true);
        add(format!("ktest{size} %k2, %k3"), Level::Avx512, true);
    }
    for text in GENERAL.lines() {
        add(text.to_owned(), Level::Avx2, true);
    }
    all
}

const MOVES: &str = "\
movdqu 3(%rsi), %xmm4
movups 5(%rsi), %xmm4
movaps %xmm1, %xmm4
movapd (%rsi), %xmm4
lddqu 7(%rsi), %xmm4
movdqu %xmm4, 9(%rsi)
movaps %xmm4, (%rsi)
movd %eax, %xmm4
movq %rax, %xmm4
movd (%rsi), %xmm4
movq (%rsi), %xmm4
movd %xmm1, %eax
movq %xmm1, %rax
movd %xmm1, (%rsi)
movq %xmm1, 5(%rsi)
movq %xmm1, %xmm4
movss (%rsi), %xmm4
movsd 3(%rsi), %xmm4
movss %xmm1, %xmm4
movsd %xmm1, %xmm4
movss %xmm1, (%rsi)
movsd %xmm1, (%rsi)
movhps (%rsi), %xmm4
movhpd %xmm4, (%rsi)
movlps (%rsi), %xmm4
movlpd %xmm4, 1(%rsi)
movlhps %xmm1, %xmm4
pmovmskb %xmm1, %eax
movmskps %xmm1, %eax
movmskpd %xmm1, %eax
ptest %xmm1, %xmm4
ptest %xmm4, %xmm4
pinsrb $5, %eax, %xmm4
pinsrw $3, %eax, %xmm4
pinsrd $2, %eax, %xmm4
pinsrq $1, %rax, %xmm4
pinsrw $7, (%rsi), %xmm4
pextrw $3, %xmm1, %eax
pextrd $1, %xmm1, %eax
pextrq $1, %xmm1, %rax
pextrd $3, %xmm1, (%rsi)
cvtsi2sd %ecx, %xmm4";

const AVX: &str = "\
vmovdqu 3(%rsi), %ymm4
vmovdqu %ymm4, 11(%rsi)
vmovdqa %ymm1, %ymm4
vmovdqa %xmm1, %xmm4
vmovd %eax, %xmm4
vmovq %xmm1, %xmm4
vmovss %xmm1, %xmm2, %xmm4
vmovsd (%rsi), %xmm4
vmovhps (%rsi), %xmm1, %xmm4
vpmovmskb %ymm1, %eax
vmovmskps %ymm1, %eax
vmovmskpd %ymm1, %eax
vptest %ymm1, %ymm4
vpbroadcastb %xmm1, %ymm4
vpbroadcastw (%rsi), %ymm4
vbroadcastss (%rsi), %ymm4
vbroadcastsd %xmm1, %ymm4
vzeroupper
vpcmpeqb %ymm3, %ymm3, %ymm3
vpxor %xmm3, %xmm3, %xmm3";

const FLOATS: &str = "\
ucomisd %xmm1, %xmm4
comisd (%rsi), %xmm4
ucomiss %xmm1, %xmm4
comiss (%rsi), %xmm4
cvttsd2si %xmm1, %eax
cvttsd2si %xmm1, %rax
cvttsd2si (%rsi), %rax
cvttss2si %xmm1, %eax
cvttss2si %xmm1, %rax
cvtsi2sd %rax, %xmm4
cvtsi2sdq (%rsi), %xmm4
addsd %xmm1, %xmm4
subsd %xmm1, %xmm4
mulsd %xmm1, %xmm4
divsd %xmm1, %xmm4
addsd (%rsi), %xmm4";

const EVEX: &str = "\
vmovdqu64 3(%rsi), %ymm17
vmovdqu64 (%rsi), %zmm17
vmovdqu64 %zmm17, 5(%rsi)
vmovdqu64 %ymm17, (%rsi)
vmovdqu8 %zmm17, 5(%rsi){%k3}
vmovdqu8 %xmm17, (%rsi){%k1}
vmovdqu16 %ymm18, 3(%rsi){%k2}
vmovups %zmm4, 7(%rsi){%k4}
vmovdqu64 %zmm17, (%rsi){%k5}
vmovdqa64 %xmm17, %xmm18
vmovdqu8 (%rsi), %ymm18{%k2}
vmovdqu8 (%rsi), %ymm18{%k2}{z}
vmovdqu16 (%rsi), %zmm18{%k2}{z}
vmovdqu32 %ymm17, %ymm18{%k3}
vmovdqa64 %zmm17, %zmm18{%k3}{z}
vpxorq %xmm17, %xmm18, %xmm19
vpxorq %ymm16, %ymm16, %ymm16
vpandq (%rsi), %zmm18, %zmm19
vpandnd %ymm17, %ymm18, %ymm19{%k1}
vpord %ymm17, %ymm18, %ymm19{%k1}{z}
vpminub %ymm17, %ymm18, %ymm19
vpminub (%rsi), %zmm18, %zmm19{%k4}{z}
vpminud %ymm17, %ymm18, %ymm19
vpcmpeqb (%rsi), %ymm17, %k1
vpcmpeqb (%rsi), %ymm17, %k1{%k2}
vpcmpeqd %ymm16, %ymm17, %k3
vpcmpgtb %ymm16, %ymm17, %k3
vpternlogd $0xde, %ymm17, %ymm18, %ymm19
vpternlogq $0x96, (%rsi), %zmm18, %zmm19
vpternlogd $0xff, %ymm17, %ymm17, %ymm17
vpsubb %ymm16, %ymm17, %ymm18
vpaddb %zmm16, %zmm17, %zmm18{%k7}
vpshufb %ymm16, %ymm17, %ymm18
vpsrlw $3, %zmm16, %zmm17
kmovb %k1, %eax
kmovw %k1, %eax
kmovd %k1, %eax
kmovq %k1, %rax
kmovd %ecx, %k3
kmovq %rax, %k3
kmovd (%rsi), %k3
kmovq %k5, %k6
kmovw %k5, (%rsi)
kunpckbw %k1, %k2, %k3
kunpckwd %k1, %k2, %k3
kunpckdq %k1, %k2, %k3";

const GENERAL: &str = "\
rep stosb
rep stosl
rep stosq
stosw
rep movsb
rep movsl
rep movsq
movsq
movsb
repe cmpsb
repne scasb
repe cmpsl
scasw
lock xaddl %ecx, (%rsi)
xaddq %rcx, %rdx
lock cmpxchgl %ecx, (%rsi)
cmpxchgq %rcx, (%rsi)
cmpxchgb %cl, (%rsi)
xchgl %ecx, (%rsi)
xchgb %cl, 3(%rsi)
lock addl $3, (%rsi)
lock decq (%rsi)
lock orb %cl, (%rsi)
bswap %ecx
bswap %rcx
andn %rcx, %rdx, %rax
andn (%rsi), %edx, %eax
bzhi %ecx, %edx, %eax
bzhi %rcx, (%rsi), %rax
bzhi %rdx, %rcx, %rax
blsr %ecx, %eax
blsr %r8, %rax
blsi %ecx, %eax
blsi %r8, %rax
blsmsk %ecx, %eax
blsmsk (%rsi), %rax
shlx %rcx, %rdx, %rax
shlx %ecx, (%rsi), %eax
shrx %rcx, %rdx, %rax
sarx %ecx, %edx, %eax
rorx $13, %rdx, %rax
rorx $0, %edx, %eax
shld $7, %rcx, %rdx
shld %cl, %eax, %edx
shrd $9, %eax, (%rsi)
shrd %cl, %rax, %rdx
shld $1, %rax, %rdx
imulq %rcx, %rdx
imulq (%rsi), %rdx
imull %ecx, %edx
imulw %cx, %dx
imulq $-77, %rcx, %rdx
imull $1000, (%rsi), %edx
mulq %rcx
mull %ecx
imulq %rcx
imull (%rsi)
stc
clc
cmc";

const HARNESS: &str = r#"
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#define WH_READ_USER(to, size, from) (memcpy((to), (void *)(from), (size)), 0)
#include "whither_walk.h"
typedef unsigned long long u64;
struct state { u64 gpr[16], flags, k[8], pad[7]; u64 vec[32][8]; };
extern void run(void *code, struct state *in, struct state *out, long level);
extern unsigned char snippets[];
static u64 seed = 0x9e3779b97f4a7c15ull;
static u64 rnd(void) { seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17; return seed; }
static u64 word(void) {
    double d; float f[2]; u64 v = rnd();
    switch (rnd() % 8) {
    case 0: return 0;
    case 1: return ~0ull;
    case 2: case 3: return v & 0x0301030103010301ull & rnd();
    case 4: d = (double)((long long)(v % 2001) - 1000) / (rnd() % 3 ? 1 : 4); memcpy(&v, &d, 8); return v;
    case 5: f[0] = (float)(v % 100) / 4; f[1] = -f[0]; memcpy(&v, f, 8); return v;
    case 6: return v % 50 ? 0x7ff8000000000000ull >> (v & 1) : 1ull << 63;
    default: return v;
    }
}
static unsigned char memory[4096] __attribute__((aligned(64))), before[4096], after[4096];
static struct wh_walk w;
static struct state in, out;
static int steps(const struct wh_op *op) {
    int went, n = 0;
    while ((went = wh_walk_step(&w, op)) == WH_WENT_ROUND && n++ < 1000) {}
    return went;
}
int main(void) {
    struct { u64 at, level, exact; struct wh_op op; } s;
    long level = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") ? 2
        : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") ? 1 : 0;
    for (long n = 0; fread(&s, sizeof s, 1, stdin) == 1; n++) {
        if ((long)s.level > level || !level) { printf("%ld left out\n", n); continue; }
        u64 unknown = 0, bad = 0;
        for (int round = 0; round < 400 && !bad; round++) {
            int partly = round & 1, vectors = level == 2 ? 32 : 16, words = level == 2 ? 8 : 4;
            memset(&in, 0, sizeof in); memset(&out, 0, sizeof out);
            for (int r = 0; r < 16; r++) in.gpr[r] = word();
            in.gpr[1] = rnd() % 4 ? rnd() % 70 : word();
            if (rnd() % 4 == 0) in.gpr[0] = in.gpr[1];
            if (s.op.kind >= WH_OP_STRING_STORE && s.op.kind <= WH_OP_STRING_SCAN) in.gpr[1] = rnd() % 24;
            in.gpr[6] = (u64)(memory + 1024 + 64 * (rnd() % 8)); in.gpr[7] = in.gpr[6] + rnd() % 600 - 300;
            in.flags = 2 | (rnd() & WH_STATUS);
            for (int v = 0; v < vectors; v++) for (int i = 0; i < words; i++) in.vec[v][i] = word();
            if (rnd() % 4 == 0) memcpy(in.vec[1], in.vec[4], 64);
            for (int v = 0; v < 8 && level == 2; v++) in.k[v] = word();
            for (int i = 0; i < 512; i++) ((u64 *)memory)[i] = word();
            if (rnd() % 3 == 0) memcpy((void *)in.gpr[7], (void *)in.gpr[6], 24);
            memcpy(before, memory, sizeof memory);
            if (s.op.kind == WH_OP_SWAP_IF_EQUAL && rnd() % 2) memcpy(in.gpr, (void *)in.gpr[6], 8);
            w.number++; w.known = 0xffff & ~(1u << WH_RSP); w.flags = in.flags; w.flags_known = WH_STATUS;
            memcpy(w.gpr, in.gpr, sizeof w.gpr);
            for (int v = 0; v < 32; v++) {
                memcpy(w.vec[v].v, in.vec[v], 64);
                w.vec[v].sure = partly ? rnd() | (rnd() % 2 ? ~0ull : 0) : ~0ull;
                for (int b = 0; b < 64; b++) if (!(w.vec[v].sure >> b & 1)) ((unsigned char *)w.vec[v].v)[b] = rnd();
            }
            for (int v = 0; v < 8; v++) {
                w.k_sure[v] = partly ? rnd() | rnd() : ~0ull;
                w.k[v] = (in.k[v] & w.k_sure[v]) | (rnd() & ~w.k_sure[v]);
            }
            /* Of memory, too, some bytes are not known, and some are as the walk has written them. */
            for (int i = 0; i < 4 && partly; i++) {
                u64 at = in.gpr[6] + rnd() % 80 - 8, v;
                if (rnd() % 2) wh_blur(&w, at, 1 + rnd() % 9);
                else { memcpy(&v, (void *)at, 8); wh_store(&w, at, 8, v, WH_SURE); }
            }
            int went = steps(&s.op);
            if (went == WH_LOST || went == WH_FULL) { unknown += !partly; continue; }
            run(snippets + s.at, &in, &out, level);
            memcpy(after, memory, sizeof memory);
            for (int r = 0; r < 16; r++) {
                if (r == WH_RSP) continue;
                if (!(w.known >> r & 1)) { unknown += !partly; continue; }
                if (w.gpr[r] != out.gpr[r]) { printf("%ld register %d: %llx for %llx\n", n, r, w.gpr[r], out.gpr[r]); bad++; }
            }
            if (s.op.kind >= WH_OP_MULTIPLY && s.op.kind <= WH_OP_IMUL) unknown += !partly && (~w.flags_known & (WH_CF | WH_OF));
            if ((w.flags ^ out.flags) & w.flags_known & WH_STATUS) { printf("%ld flags: %x for %llx, known %x, %d\n", n, w.flags, out.flags, w.flags_known, partly); bad++; }
            for (int v = 0; v < vectors; v++) for (int b = 0; b < words * 8; b++) {
                if (!(w.vec[v].sure >> b & 1)) { unknown += !partly; continue; }
                unsigned char is = ((unsigned char *)w.vec[v].v)[b], must = ((unsigned char *)out.vec[v])[b];
                if (is != must) { printf("%ld byte %d of vector %d: %x for %x, %d\n", n, b, v, is, must, partly); bad++; }
            }
            for (int v = 0; v < 8 && level == 2; v++) {
                unknown += !partly && ~w.k_sure[v];
                if ((w.k[v] ^ out.k[v]) & w.k_sure[v]) { printf("%ld mask %d: %llx for %llx, known %llx\n", n, v, w.k[v], out.k[v], w.k_sure[v]); bad++; }
            }
            for (int i = 0; i < WH_WORDS; i++) for (int b = 0; b < 8; b++) {
                struct wh_word *word = &w.word[i];
                if (word->walk != w.number) break;
                unsigned char *at = (unsigned char *)word->at + b;
                if (at < memory || at >= memory + sizeof memory) { printf("%ld stores elsewhere\n", n); bad++; break; }
                if (word->sure >> b & 1) {
                    if (*at != (word->value >> b * 8 & 255)) { printf("%ld stores %llx at %p, not %x\n", n, word->value >> b * 8 & 255, at, *at); bad++; }
                } else unknown += !partly && word->have >> b & 1;
                if (word->have >> b & 1) after[at - memory] = before[at - memory];
            }
            if (memcmp(after, before, sizeof memory)) { printf("%ld: a store was missed\n", n); bad++; }
        }
        if (s.exact && unknown) printf("%ld not known %llu times\n", n, unknown);
    }
    return 0;
}
"#;

/// Calls one snippet with registers from one state and puts them into another.
fn caller() -> String {
    let mut out = String::from(".text\n.globl run\nrun:\n");
    for r in ["rbx", "rbp", "r12", "r13", "r14", "r15", "rdx", "rcx", "rdi"] {
        let _ = writeln!(out, "push %{r}");
    }
    let registers =
        ["rax", "rcx", "rdx", "rbx", "", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];
    let vectors = |out: &mut String, base: &str, load: bool, mark: u8| {
        let mut both = |register: &str, how: &str, at: usize| {
            let (from, to) = (format!("{at}(%{base})"), format!("%{register}"));
            let _ = if load { writeln!(out, "{how} {from}, {to}") } else { writeln!(out, "{how} {to}, {from}") };
        };
        (0..32).for_each(|v| both(&format!("zmm{v}"), "vmovdqu64", 256 + 64 * v));
        (0..8).for_each(|k| both(&format!("k{k}"), "kmovq", 136 + 8 * k));
        let _ = writeln!(out, "jmp {mark}2f\n{mark}1:");
        let mut both = |v: usize| {
            let (from, to) = (format!("{}(%{base})", 256 + 64 * v), format!("%ymm{v}"));
            let _ = if load { writeln!(out, "vmovdqu {from}, {to}") } else { writeln!(out, "vmovdqu {to}, {from}") };
        };
        (0..16).for_each(&mut both);
        let _ = writeln!(out, "{mark}2:");
    };
    out += "cmp $2, %rcx\njne 11f\n";
    vectors(&mut out, "rsi", true, 1);
    out += "pushq 128(%rsi)\npopfq\n";
    for (n, r) in registers.iter().enumerate().filter(|(n, _)| *n != 4 && *n != 6) {
        let _ = writeln!(out, "movq {}(%rsi), %{r}", 8 * n);
    }
    out += "movq 48(%rsi), %rsi\ncall *(%rsp)\nxchg %rax, 16(%rsp)\npushfq\npopq 128(%rax)\ncld\n";
    for (n, r) in registers.iter().enumerate().filter(|(n, _)| *n != 4 && *n != 0) {
        let _ = writeln!(out, "movq %{r}, {}(%rax)", 8 * n);
    }
    out += "movq 16(%rsp), %rcx\nmovq %rcx, (%rax)\ncmpq $2, 8(%rsp)\njne 21f\n";
    vectors(&mut out, "rax", false, 2);
    out += "vzeroupper\nadd $24, %rsp\n";
    for r in ["r15", "r14", "r13", "r12", "rbp", "rbx"] {
        let _ = writeln!(out, "pop %{r}");
    }
    out + "ret\n"
}

#[test]
fn vectors_and_rarities_are_walked_as_the_processor_executes_them() {
    let all = snippets();
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let mut source = caller() + ".globl snippets\nsnippets:\n";
    for (text, ..) in &all {
        let _ = writeln!(source, "{text}\nret");
    }
    source += ".globl end\nend:\n.section .note.GNU-stack\n";
    std::fs::write(path("s.S"), source).expect("written");
    std::fs::write(path("h.c"), HARNESS).expect("written");
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../include");
    let run = |command: &mut Command| assert!(command.status().expect("the compiler").success(), "{command:?}");
    run(Command::new("cc").args(["-c", "-o"]).args([path("s.o"), path("s.S")]));
    run(Command::new("objcopy").args(["-O", "binary", "-j", ".text"]).args([path("s.o"), path("s.bin")]));
    run(Command::new("cc").args(["-O1", "-I", include, "-o"]).args([path("h"), path("h.c"), path("s.o")]));
    let code = std::fs::read(path("s.bin")).expect("made");
    let mut child = Command::new(path("h")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("just built");
    let mut input = child.stdin.take().expect("piped");
    // Snippets stand at the end; the caller before them ends in the same bytes on every run.
    let decoded: Vec<Instruction> = Decoder::with_ip(64, &code, 0, DecoderOptions::NONE).into_iter().collect();
    let first = decoded.len() - 2 * all.len();
    let start = decoded[first].ip();
    let mut forgotten = Vec::new();
    for (n, (text, level, exact)) in all.iter().enumerate() {
        let raw = decoded[first + 2 * n];
        let op = Preparer::default().prepared(&raw).op;
        if matches!(op.kind, Kind::Forget | Kind::End) {
            forgotten.push(text.as_str());
        }
        let mut bytes = Vec::new();
        [raw.ip() - start, *level as u64, u64::from(*exact)].iter().for_each(|v| bytes.extend(v.to_le_bytes()));
        bytes.extend(op.bytes());
        input.write_all(&bytes).expect("read");
    }
    drop(input);
    let out = child.wait_with_output().expect("ended");
    assert!(out.status.success(), "{:?}", out.status);
    assert!(forgotten.is_empty(), "no operation for {forgotten:?}");
    let said = String::from_utf8_lossy(&out.stdout);
    let (left_out, wrong): (Vec<&str>, Vec<&str>) = said.lines().partition(|l| l.ends_with("left out"));
    let named = |line: &&str| {
        let n: usize = line.split([' ', ':']).next().and_then(|n| n.parse().ok()).unwrap_or(0);
        format!("{} | {line}", all[n].0)
    };
    let wrong: Vec<String> = wrong.iter().take(60).map(named).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    if !left_out.is_empty() {
        println!("skipped: {} of {} instructions this processor does not have", left_out.len(), all.len());
    }
}

/// An array of words, and then words elsewhere that would have its places in the table.
const ARRAY: &str = r#"
#include <string.h>
#define WH_READ_USER(to, size, from) (memcpy((to), (void *)(from), (size)), 0)
#include "whither_walk.h"
static struct wh_walk w;
int main(void) {
    int full = 0;
    w.number = 1;
    for (int i = 0; i < 512; i++) full += wh_store(&w, 0x7f0000001000ull + 8 * i, 8, i, WH_SURE);
    for (int i = 0; i < 256; i++) full += wh_store(&w, 0x55550000ull + 0x1238ull * i, 8, i, WH_SURE);
    WH_U64 v = 0;
    for (int i = 0; i < 512; i++) full += !wh_load(&w, 0x7f0000001000ull + 8 * i, 8, &v) || v != (WH_U64)i;
    return full > 255 ? 255 : full;
}
"#;

#[test]
fn an_array_leaves_room_for_other_words() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("a.c"), ARRAY).expect("written");
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../include");
    let built = Command::new("cc").args(["-O1", "-w", "-I", include, "-o"]).args([path("a"), path("a.c")]).status();
    assert!(built.expect("the compiler").success());
    let status = Command::new(path("a")).status().expect("just built");
    assert_eq!(status.code(), Some(0), "so many found no room");
}
