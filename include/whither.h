/* Progress points in the source: where a program makes progress, and where requests begin and end.
 *
 *     WHITHER_PROGRESS("orders");                                whither causal --progress mark:orders ...
 *     WHITHER_BEGIN("request"); ... WHITHER_END("request");      whither causal --latency mark:request ...
 *
 * Each leaves one 1-byte nop in the code and a note in the file (`stapsdt`, provider `whither`) that says where
 * the nop is: nothing is called, loaded, allocated or registered, nothing is linked, and a program that nobody
 * watches runs as if they were not there. Other tools see them as `usdt:PROGRAM:whither:NAME`; a begin is
 * NAME_begin, an end NAME_end.
 *
 * The name is a string literal of letters, digits and `_`. A point in an inlined function, a template or
 * a macro has one nop per copy, and all copies count as one point. C, C++ and position-independent code; x86-64
 * ELF. Elsewhere, and with WHITHER_OFF defined, the macros are empty.
 *
 * The nop is one byte on purpose: the kernel may turn a probed 5-byte nop into a call, which overwrites what
 * leaf functions keep below their stack pointer. */
#ifndef WHITHER_H
#define WHITHER_H

#if defined(__x86_64__) && defined(__ELF__) && !defined(WHITHER_OFF)
/* The layout is that of <sys/sdt.h>; `.stapsdt.base` lets tools correct the address if a later step (prelink)
 * moves the program. The name is pasted between literals, so anything else does not compile. */
#define WHITHER_POINT_(name) \
    __asm__ volatile("990: nop\n" \
                     ".pushsection .note.stapsdt,\"?\",\"note\"\n" \
                     ".balign 4\n" \
                     ".4byte 992f-991f, 994f-993f, 3\n" \
                     "991: .asciz \"stapsdt\"\n" \
                     "992: .balign 4\n" \
                     "993: .8byte 990b\n" \
                     ".8byte _.stapsdt.base\n" \
                     ".8byte 0\n" \
                     ".asciz \"whither\"\n" \
                     ".asciz \"" name "\"\n" \
                     ".asciz \"\"\n" \
                     "994: .balign 4\n" \
                     ".popsection\n" \
                     ".ifndef _.stapsdt.base\n" \
                     ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
                     ".weak _.stapsdt.base\n" \
                     ".hidden _.stapsdt.base\n" \
                     "_.stapsdt.base: .space 1\n" \
                     ".size _.stapsdt.base, 1\n" \
                     ".popsection\n" \
                     ".endif\n" \
                     :)
#else
#define WHITHER_POINT_(name) ((void)sizeof("" name))
#endif

/* The program has made one step of progress. */
#define WHITHER_PROGRESS(name) WHITHER_POINT_(name)
/* A request of this kind begins, ends; by any thread. */
#define WHITHER_BEGIN(name) WHITHER_POINT_(name "_begin")
#define WHITHER_END(name) WHITHER_POINT_(name "_end")

#endif
