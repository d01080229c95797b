/* Chains in which each round needs the one before, one for each kind of instruction that compilers and libraries use: how
 * long their results take is measured here and told by the processor model there. Every chain is a function of its own (`chain_NAME`),
 * a loop of 16 turns of the body; the least of many runs is printed in cycles of one turn, with the bytes of the loop. The unit is the
 * dependent addition. What the CPU has not got is left out. Registers: rax is what most chains go through, and rcx, rsi, rdx, xmm0 to xmm5, k1. */
#include <stdint.h>
#include <stdio.h>
#include <x86intrin.h>

#define ROUNDS 400
#define TURNS 16
#define RUNS 60

static _Alignas(128) uint64_t place[64];

#define BASE 1
#define BMI __builtin_cpu_supports("bmi2")
#define SSE4 __builtin_cpu_supports("sse4.2")
#define AES __builtin_cpu_supports("aes")
#define CLMUL __builtin_cpu_supports("pclmul")
#define AVX __builtin_cpu_supports("avx")
#define AVX2 __builtin_cpu_supports("avx2")
#define FMA __builtin_cpu_supports("fma")
#define AVX512 __builtin_cpu_supports("avx512vl")

#define CHAINS(X)                                                                                                      \
    X(add, BASE, "add %%rcx, %%rax")                                                                                   \
    X(add_constant, BASE, "add $1000, %%rax")                                                                          \
    X(adc, BASE, "adc %%rcx, %%rax")                                                                                   \
    X(sub, BASE, "sub %%rcx, %%rax")                                                                                   \
    X(and, BASE, "and %%rcx, %%rax")                                                                                   \
    X(neg, BASE, "neg %%rax")                                                                                          \
    X(not, BASE, "not %%rax")                                                                                          \
    X(bts, BASE, "bts $5, %%rax")                                                                                      \
    X(cmove, BASE, "test %%rax, %%rax\ncmove %%rcx, %%rax")                                                            \
    X(cmova, BASE, "cmp %%rcx, %%rax\ncmova %%rcx, %%rax")                                                             \
    X(setb, BASE, "cmp %%rcx, %%rax\nsetb %%al")                                                                       \
    X(seta, BASE, "cmp %%rcx, %%rax\nseta %%al")                                                                       \
    X(sbb, BASE, "cmp %%rcx, %%rax\nsbb %%rax, %%rax")                                                                 \
    X(movsx, BASE, "movslq %%eax, %%rax")                                                                              \
    X(movsbq, BASE, "movsbq %%al, %%rax")                                                                              \
    X(movzbl, BASE, "movzbl %%al, %%eax")                                                                              \
    X(movzwl, BASE, "movzwl %%ax, %%eax")                                                                              \
    X(cdqe, BASE, "cltq")                                                                                              \
    X(mov, BASE, "mov %%rax, %%rcx\nmov %%rcx, %%rax")                                                                 \
    X(xchg, BASE, "xchg %%rax, %%rcx")                                                                                 \
    X(xadd, BASE, "xadd %%rax, %%rcx")                                                                                 \
    X(cmpxchg, BASE, "cmpxchg %%rcx, %%rax")                                                                           \
    X(bswap32, BASE, "bswap %%eax")                                                                                    \
    X(bswap64, BASE, "bswap %%rax")                                                                                    \
    X(shl, BASE, "shl $3, %%rax")                                                                                      \
    X(shl1, BASE, "shl %%rax")                                                                                         \
    X(shl_cl, BASE, "shl %%cl, %%rax")                                                                                 \
    X(rol, BASE, "rol $3, %%rax")                                                                                      \
    X(rol_cl, BASE, "rol %%cl, %%rax")                                                                                 \
    X(rcl, BASE, "rcl $1, %%rax")                                                                                      \
    X(rcl_more, BASE, "rcl $3, %%rax")                                                                                 \
    X(shld, BASE, "shld $3, %%rcx, %%rax")                                                                             \
    X(shld_cl, BASE, "shld %%cl, %%rsi, %%rax")                                                                        \
    X(shlx, BMI, "shlx %%rcx, %%rax, %%rax")                                                                           \
    X(rorx, BMI, "rorx $3, %%rax, %%rax")                                                                              \
    X(lea, BASE, "lea (%%rax,%%rcx), %%rax")                                                                           \
    X(lea_constant, BASE, "lea 8(%%rax), %%rax")                                                                       \
    X(lea_scaled, BASE, "lea (%%rcx,%%rax,4), %%rax")                                                                  \
    X(lea_three, BASE, "lea 8(%%rcx,%%rax), %%rax")                                                                    \
    X(lea_three_scaled, BASE, "lea 8(%%rcx,%%rax,4), %%rax")                                                           \
    X(imul, BASE, "imul %%rcx, %%rax")                                                                                 \
    X(imul32, BASE, "imul $77, %%eax, %%eax")                                                                          \
    X(mul, BASE, "mul %%rcx")                                                                                          \
    X(mul_high, BASE, "mul %%rcx\nmov %%rdx, %%rax")                                                                   \
    X(mulx_high, BMI, "mulx %%rcx, %%rsi, %%rdx")                                                                      \
    X(popcnt, SSE4, "popcnt %%rax, %%rax")                                                                             \
    X(lzcnt, BMI, "lzcnt %%rax, %%rax")                                                                                \
    X(tzcnt, BMI, "tzcnt %%rax, %%rax")                                                                                \
    X(bsf, BASE, "bsf %%rax, %%rax")                                                                                   \
    X(bsr, BASE, "bsr %%rax, %%rax")                                                                                   \
    X(pdep, BMI, "pdep %%rcx, %%rax, %%rax")                                                                           \
    X(pext, BMI, "pext %%rcx, %%rax, %%rax")                                                                           \
    X(crc32, SSE4, "crc32q %%rcx, %%rax")                                                                              \
    X(crc32_byte, SSE4, "crc32b %%cl, %%eax")                                                                          \
    X(bextr, BMI, "bextr %%rcx, %%rax, %%rax")                                                                         \
    X(bzhi, BMI, "bzhi %%rcx, %%rax, %%rax")                                                                           \
    X(andn, BMI, "andn %%rcx, %%rax, %%rax")                                                                           \
    X(blsr, BMI, "blsr %%rax, %%rax")                                                                                  \
    X(lahf, BASE, "add %%rcx, %%rax\nlahf")                                                                            \
    X(div32, BASE, "xor %%edx, %%edx\nmov $3, %%eax\ndiv %%ecx\nor %%eax, %%ecx")                                      \
    X(load, BASE, "mov (%%rdi,%%rsi), %%rsi")                                                                          \
    X(load_movzx, BASE, "movzbl (%%rdi,%%rsi), %%esi")                                                                 \
    X(load_add, BASE, "add (%%rdi,%%rsi), %%rsi")                                                                      \
    X(memory_add, BASE, "add %%rcx, 128(%%rdi)")                                                                       \
    X(forward, BASE, "mov %%rax, 128(%%rdi)\nmov 128(%%rdi), %%rax")                                                   \
    X(push_pop, BASE, "push %%rax\npop %%rax")                                                                         \
    X(addsd, BASE, "addsd %%xmm1, %%xmm0")                                                                             \
    X(addss, BASE, "addss %%xmm1, %%xmm0")                                                                             \
    X(addps, BASE, "addps %%xmm1, %%xmm0")                                                                             \
    X(vaddpd_256, AVX, "vaddpd %%ymm1, %%ymm0, %%ymm0")                                                                \
    X(mulsd, BASE, "mulsd %%xmm1, %%xmm0")                                                                             \
    X(vmulps_256, AVX, "vmulps %%ymm1, %%ymm0, %%ymm0")                                                                \
    X(fma, FMA, "vfmadd213sd %%xmm2, %%xmm1, %%xmm0")                                                                  \
    X(fma_addend, FMA, "vfmadd231ps %%ymm2, %%ymm1, %%ymm0")                                                           \
    X(minsd, BASE, "minsd %%xmm1, %%xmm0")                                                                             \
    X(maxps, BASE, "maxps %%xmm1, %%xmm0")                                                                             \
    X(cmpltpd, BASE, "cmpltpd %%xmm1, %%xmm0")                                                                         \
    X(divss, BASE, "divss %%xmm1, %%xmm0")                                                                             \
    X(divsd, BASE, "divsd %%xmm1, %%xmm0")                                                                             \
    X(divps, BASE, "divps %%xmm1, %%xmm0")                                                                             \
    X(divpd, BASE, "divpd %%xmm1, %%xmm0")                                                                             \
    X(vdivss, AVX, "vdivss %%xmm1, %%xmm0, %%xmm0")                                                                    \
    X(vdivps_256, AVX, "vdivps %%ymm1, %%ymm0, %%ymm0")                                                                \
    X(vdivpd_256, AVX, "vdivpd %%ymm1, %%ymm0, %%ymm0")                                                                \
    X(sqrtss, BASE, "sqrtss %%xmm0, %%xmm0")                                                                           \
    X(sqrtsd, BASE, "sqrtsd %%xmm0, %%xmm0")                                                                           \
    X(sqrtps, BASE, "sqrtps %%xmm0, %%xmm0")                                                                           \
    X(sqrtpd, BASE, "sqrtpd %%xmm0, %%xmm0")                                                                           \
    X(rcpss, BASE, "rcpss %%xmm0, %%xmm0")                                                                             \
    X(rsqrtps, BASE, "rsqrtps %%xmm0, %%xmm0")                                                                         \
    X(roundsd, SSE4, "roundsd $0, %%xmm0, %%xmm0")                                                                     \
    X(haddpd, SSE4, "haddpd %%xmm0, %%xmm0")                                                                           \
    X(haddps, SSE4, "haddps %%xmm0, %%xmm0")                                                                           \
    X(dpps, SSE4, "dpps $0xff, %%xmm1, %%xmm0")                                                                        \
    X(dppd, SSE4, "dppd $0xff, %%xmm1, %%xmm0")                                                                        \
    X(cvtdq2ps, BASE, "cvtdq2ps %%xmm0, %%xmm0")                                                                       \
    X(cvttps2dq, BASE, "cvttps2dq %%xmm0, %%xmm0")                                                                     \
    X(cvtss2sd, BASE, "cvtss2sd %%xmm0, %%xmm0")                                                                       \
    X(cvtsd2ss, BASE, "cvtsd2ss %%xmm0, %%xmm0")                                                                       \
    X(cvtps2pd, BASE, "cvtps2pd %%xmm0, %%xmm0")                                                                       \
    X(cvtpd2ps, BASE, "cvtpd2ps %%xmm0, %%xmm0")                                                                       \
    X(cvtdq2pd, BASE, "cvtdq2pd %%xmm0, %%xmm0")                                                                       \
    X(vcvtps2pd_256, AVX, "vcvtps2pd %%xmm0, %%ymm0")                                                                  \
    X(cvt_round_trip, BASE, "cvttsd2si %%xmm0, %%rax\ncvtsi2sd %%rax, %%xmm0")                                         \
    X(cvt_round_trip32, BASE, "cvttss2si %%xmm0, %%eax\ncvtsi2ss %%eax, %%xmm0")                                       \
    X(cvtsi2sd_merge, BASE, "cvtsi2sd %%rcx, %%xmm0")                                                                  \
    X(movq_round_trip, BASE, "movq %%xmm0, %%rax\nmovq %%rax, %%xmm0")                                                 \
    X(movd_round_trip, BASE, "movd %%xmm0, %%eax\nmovd %%eax, %%xmm0")                                                 \
    X(cvtsi2sd_movq, BASE, "cvtsi2sd %%rax, %%xmm0\nmovq %%xmm0, %%rax")                                               \
    X(pmovmskb_movd, BASE, "pmovmskb %%xmm0, %%eax\nmovd %%eax, %%xmm0")                                               \
    X(movmskpd_movq, BASE, "movmskpd %%xmm0, %%eax\nmovq %%rax, %%xmm0")                                               \
    X(pextrq_movq, SSE4, "pextrq $1, %%xmm0, %%rax\nmovq %%rax, %%xmm0")                                               \
    X(pextrw_movd, BASE, "pextrw $1, %%xmm0, %%eax\nmovd %%eax, %%xmm0")                                               \
    X(pinsrq_movq, SSE4, "pinsrq $0, %%rax, %%xmm0\nmovq %%xmm0, %%rax")                                               \
    X(pinsrq_merge, SSE4, "pinsrq $0, %%rcx, %%xmm0")                                                                  \
    X(comisd_setb_movd, BASE, "comisd %%xmm1, %%xmm0\nsbb %%eax, %%eax\nmovd %%eax, %%xmm0")                           \
    X(ptest_setb_movd, SSE4, "ptest %%xmm1, %%xmm0\nsbb %%eax, %%eax\nmovd %%eax, %%xmm0")                             \
    X(paddd, BASE, "paddd %%xmm1, %%xmm0")                                                                             \
    X(vpaddd_256, AVX2, "vpaddd %%ymm1, %%ymm0, %%ymm0")                                                               \
    X(pand, BASE, "pand %%xmm1, %%xmm0")                                                                               \
    X(xorps, BASE, "xorps %%xmm1, %%xmm0")                                                                             \
    X(paddusb, BASE, "paddusb %%xmm1, %%xmm0")                                                                         \
    X(pminsd, SSE4, "pminsd %%xmm1, %%xmm0")                                                                           \
    X(pminub, BASE, "pminub %%xmm1, %%xmm0")                                                                           \
    X(pabsd, SSE4, "pabsd %%xmm0, %%xmm0")                                                                             \
    X(pavgb, BASE, "pavgb %%xmm1, %%xmm0")                                                                             \
    X(pcmpeqb, BASE, "pcmpeqb %%xmm1, %%xmm0")                                                                         \
    X(pcmpgtd, BASE, "pcmpgtd %%xmm1, %%xmm0")                                                                         \
    X(pcmpgtq, SSE4, "pcmpgtq %%xmm1, %%xmm0")                                                                         \
    X(psllq, BASE, "psllq $3, %%xmm0")                                                                                 \
    X(psllq_by, BASE, "psllq %%xmm1, %%xmm0")                                                                          \
    X(vpsllvq, AVX2, "vpsllvq %%ymm1, %%ymm0, %%ymm0")                                                                 \
    X(pmullw, BASE, "pmullw %%xmm1, %%xmm0")                                                                           \
    X(pmuludq, BASE, "pmuludq %%xmm1, %%xmm0")                                                                         \
    X(pmaddwd, BASE, "pmaddwd %%xmm1, %%xmm0")                                                                         \
    X(pmaddubsw, SSE4, "pmaddubsw %%xmm1, %%xmm0")                                                                     \
    X(pmulld, SSE4, "pmulld %%xmm1, %%xmm0")                                                                           \
    X(psadbw, BASE, "psadbw %%xmm1, %%xmm0")                                                                           \
    X(mpsadbw, SSE4, "mpsadbw $0, %%xmm1, %%xmm0")                                                                     \
    X(phminposuw, SSE4, "phminposuw %%xmm0, %%xmm0")                                                                   \
    X(phaddd, SSE4, "phaddd %%xmm0, %%xmm0")                                                                           \
    X(pshufb, SSE4, "pshufb %%xmm1, %%xmm0")                                                                           \
    X(pshufd, BASE, "pshufd $0x1b, %%xmm0, %%xmm0")                                                                    \
    X(punpcklbw, BASE, "punpcklbw %%xmm1, %%xmm0")                                                                     \
    X(packuswb, BASE, "packuswb %%xmm1, %%xmm0")                                                                       \
    X(palignr, SSE4, "palignr $3, %%xmm1, %%xmm0")                                                                     \
    X(shufps, BASE, "shufps $0x1b, %%xmm1, %%xmm0")                                                                    \
    X(unpcklpd, BASE, "unpcklpd %%xmm1, %%xmm0")                                                                       \
    X(movss_merge, BASE, "movss %%xmm0, %%xmm1\nmovaps %%xmm1, %%xmm0")                                                \
    X(pblendw, SSE4, "pblendw $0x55, %%xmm1, %%xmm0")                                                                  \
    X(blendvps, SSE4, "blendvps %%xmm0, %%xmm1, %%xmm0")                                                               \
    X(vblendvps, AVX, "vblendvps %%xmm2, %%xmm1, %%xmm0, %%xmm0")                                                      \
    X(vpblendvb_256, AVX2, "vpblendvb %%ymm2, %%ymm1, %%ymm0, %%ymm0")                                                 \
    X(insertps, SSE4, "insertps $0x10, %%xmm1, %%xmm0")                                                                \
    X(pmovzxbw, SSE4, "pmovzxbw %%xmm0, %%xmm0")                                                                       \
    X(vpmovzxbw_256, AVX2, "vpmovzxbw %%xmm0, %%ymm0")                                                                 \
    X(vpermd, AVX2, "vpermd %%ymm0, %%ymm1, %%ymm0")                                                                   \
    X(vpermd_index, AVX2, "vpermd %%ymm1, %%ymm0, %%ymm0")                                                             \
    X(vpermq, AVX2, "vpermq $0x1b, %%ymm0, %%ymm0")                                                                    \
    X(vperm2f128, AVX, "vperm2f128 $1, %%ymm0, %%ymm0, %%ymm0")                                                        \
    X(vpermilps, AVX, "vpermilps $0x1b, %%ymm0, %%ymm0")                                                               \
    X(vinserti128, AVX2, "vinserti128 $1, %%xmm0, %%ymm0, %%ymm0")                                                     \
    X(vextracti128, AVX2, "vextracti128 $1, %%ymm0, %%xmm0")                                                           \
    X(vbroadcastss, AVX2, "vbroadcastss %%xmm0, %%ymm0")                                                               \
    X(vpbroadcastd, AVX2, "vpbroadcastd %%xmm0, %%ymm0")                                                               \
    X(vpunpckldq_256, AVX2, "vpunpckldq %%ymm1, %%ymm0, %%ymm0")                                                       \
    X(aesenc, AES, "aesenc %%xmm1, %%xmm0")                                                                            \
    X(aesdeclast, AES, "aesdeclast %%xmm1, %%xmm0")                                                                    \
    X(aesimc, AES, "aesimc %%xmm0, %%xmm0")                                                                            \
    X(aeskeygenassist, AES, "aeskeygenassist $1, %%xmm0, %%xmm0")                                                      \
    X(pclmulqdq, CLMUL, "pclmulqdq $0, %%xmm1, %%xmm0")                                                                \
    X(pcmpistri, SSE4, "pcmpistri $0, %%xmm1, %%xmm0\nmovd %%ecx, %%xmm0")                                             \
    X(pcmpestri, SSE4, "pcmpestri $0, %%xmm1, %%xmm0\nmovd %%ecx, %%xmm0")                                             \
    X(vec_load, BASE, "movd (%%rdi,%%rax), %%xmm0\nmovd %%xmm0, %%eax")                                               \
    X(vpternlogd, AVX512, "vpternlogd $0x96, %%xmm1, %%xmm2, %%xmm0")                                                  \
    X(vpermt2d, AVX512, "vpermt2d %%ymm1, %%ymm2, %%ymm0")                                                             \
    X(vpcmpd_mask, AVX512, "vpcmpeqd %%ymm1, %%ymm0, %%k1\nvpmovm2d %%k1, %%ymm0")                                     \
    X(kmov_round_trip, AVX512, "kmovd %%eax, %%k1\nkmovd %%k1, %%eax")                                                 \
    X(kand, AVX512, "kandw %%k1, %%k1, %%k1")                                                                          \
    X(kadd, AVX512, "kaddw %%k1, %%k1, %%k1")                                                                          \
    X(kshift, AVX512, "kshiftlw $1, %%k1, %%k1")                                                                       \
    X(kortest, AVX512, "kortestw %%k1, %%k1\nsbb %%eax, %%eax\nkmovd %%eax, %%k1")                                     \
    X(lock_add, BASE, "lock addq $1, 192(%%rdi)")                                                                      \
    X(lock_xadd, BASE, "lock xaddq %%rax, 192(%%rdi)")                                                                 \
    X(xchg_memory, BASE, "xchg %%rax, 192(%%rdi)")                                                                     \
    X(lock_cmpxchg, BASE, "lock cmpxchgq %%rcx, 192(%%rdi)")                                                           \
    X(mfence, BASE, "mfence")                                                                                          \
    X(lfence, BASE, "lfence")                                                                                          \
    X(sfence, BASE, "sfence")                                                                                          \
    X(pause, BASE, "pause")                                                                                            \
    X(rdtsc, BASE, "rdtsc")                                                                                            \
    X(rdtscp, BASE, "rdtscp")                                                                                          \
    X(cpuid, BASE, "push %%rbx\nxor %%eax, %%eax\nxor %%ecx, %%ecx\ncpuid\npop %%rbx")                                 \
    X(xgetbv, AVX, "xor %%ecx, %%ecx\nxgetbv")                                                                         \
    X(pushf_pop, BASE, "pushf\npop %%rax")                                                                             \
    X(push_popf, BASE, "pushf\npopf")                                                                                  \
    X(rep_movsb_none, BASE, "xor %%ecx, %%ecx\nlea 128(%%rdi), %%rsi\nrep movsb")                                      \
    X(rep_movsb_one, BASE, "mov $1, %%ecx\nmov %%r10, %%rdi\nlea 128(%%r10), %%rsi\nrep movsb")                        \
    X(rep_movsq_64, BASE, "mov $8, %%ecx\nmov %%r10, %%rdi\nlea 128(%%r10), %%rsi\nrep movsq")                         \
    X(rep_stosb_one, BASE, "mov $1, %%ecx\nmov %%r10, %%rdi\nrep stosb")                                               \
    X(movsb, BASE, "mov %%r10, %%rdi\nlea 128(%%r10), %%rsi\nmovsb")                                                   \
    X(lodsb, BASE, "mov %%r10, %%rsi\nlodsb")                                                                          \
    X(fadd, BASE, "fadd %%st(1), %%st")                                                                                \
    X(fmul, BASE, "fmul %%st(1), %%st")                                                                                \
    X(fdiv, BASE, "fdiv %%st(1), %%st")                                                                                \
    X(fsqrt, BASE, "fsqrt")                                                                                            \
    X(fxch, BASE, "fxch %%st(1)")                                                                                      \
    X(fchs, BASE, "fchs")                                                                                              \
    X(fsin, BASE, "fsin")                                                                                              \
    X(leave_call, BASE, "call 5f\njmp 6f\n5: ret\n6:")

#define DEFINE(name, feature, body)                                                                                    \
    extern const uint8_t *const code_##name[2];                                                                        \
    __attribute__((noinline, noclone)) static void chain_##name(uint64_t rounds, uint64_t *at)                         \
    {                                                                                                                  \
        __asm__ volatile("fld1\nfld1\n"                                                                                \
                         "mov $5, %%ecx\nxor %%eax, %%eax\nxor %%edx, %%edx\nxor %%esi, %%esi\n"                       \
                         "movups %[ones], %%xmm0\nmovups %[ones], %%xmm1\nmovups %[ones], %%xmm2\n"            \
                         "mov %[at], %%rdi\nmov %[at], %%r10\n"                                                        \
                         ".p2align 6\n1:\n.rept 16\n" body "\n.endr\n"                                                 \
                         "dec %[rounds]\njnz 1b\n2:\n"                                                                 \
                         ".pushsection .data.rel.ro, \"aw\"\n.balign 8\ncode_" #name ": .quad 1b, 2b\n.popsection\n"      \
                         "fstp %%st(0)\nfstp %%st(0)\n"                                                                \
                         : [rounds] "+r"(rounds)                                                                       \
                         : [at] "r"(at), [ones] "m"(ones)                                                                \
                         : "rax", "rcx", "rdx", "rsi", "rdi", "r10", "xmm0", "xmm1", "xmm2", "st", "st(1)", "cc",     \
                           "memory");                                                                                  \
    }

/* As singles and as doubles neither tiny nor a quotient out of range. */
static const uint64_t ones[2] = {0x3f8000003f800000, 0x3f8000003f800000};

CHAINS(DEFINE)

static double ticks(void (*chain)(uint64_t, uint64_t *), uint64_t rounds)
{
    uint64_t best = UINT64_MAX;
    for (int run = 0; run < RUNS; run++) {
        unsigned aux;
        uint64_t start = __rdtscp(&aux);
        chain(rounds, place);
        uint64_t took = __rdtscp(&aux) - start;
        best = took < best ? took : best;
    }
    return (double)best / ((double)rounds * TURNS);
}

#define MEASURE(name, feature, body)                                                                                   \
    if (feature) {                                                                                                     \
        uint64_t rounds = ROUNDS;                                                                                      \
        for (int i = 0; i < 64; i++) place[i] = 0;                                                                     \
        if (ticks(chain_##name, 1) > 400) rounds = 1;                                                                  \
        double unit = ticks(chain_add, ROUNDS);                                                                        \
        printf("%s %.2f ", #name, ticks(chain_##name, rounds) / unit);                                                 \
        for (const uint8_t *byte = code_##name[0]; byte < code_##name[1]; byte++) printf("%02x", *byte);               \
        putchar('\n');                                                                                                 \
        if (AVX) __asm__ volatile("vzeroupper");                                                                       \
    }

int main(void)
{
    __builtin_cpu_init();
    ticks(chain_add, 100 * ROUNDS);
    CHAINS(MEASURE)
    return 0;
}
