/*
 * Where entry.S finds words of C structures; fast.c asserts each. Constraint: also read by the assembler.
 */
#ifndef WH_OFFSETS_H
#define WH_OFFSETS_H

/* struct global */
#define AT_FAST 0x28
#define AT_NEAR_END 0x30
#define AT_END 0x38
/* struct local */
#define AT_HOME 0
#define AT_BLOCK 8
#define AT_ENABLED 16
#define AT_CREDIT 24
#define AT_CLOCK_SEEN 28
#define AT_DEADLINE 32
#define AT_CLOCK 40
#define AT_PENDING 48
#define AT_WAY 56
#define AT_HOT 768
#define HOTS 256 /* a byte tells the place */
/* struct wh_header */
#define AT_MULT 24
#define AT_HEADER_ENABLED 32
#define AT_SHIFT 116
/* struct wh_thread; a record of wh_active has 48 bytes */
#define AT_BUSY 24
#define AT_N_ACTIVE 40
#define AT_SEQ_ACTIVE 44
#define AT_APART 136
#define AT_ACTIVE 0x40f0
#define AT_ACTIVE_T0 8
#define AT_ACTIVE_CPU0 16
#define AT_ACTIVE_PATH 24
#define AT_ACTIVE_USAGE 32
#define AT_ACTIVE_MAJOR 40
#define MOST_ACTIVE 1024
/* struct hot, its bytes: where it is looked at from, and from there on */
#define HOT_BYTES 1280
#define AT_HEAD 1152
#define AT_RA 8
#define AT_POINT 16
#define AT_KEY 24
#define AT_GATE 32
#define AT_CODE 40
#define AT_RELOCATED 48
#define AT_TOP_SLOT 56
#define AT_TOP_PATH 64
#define AT_RECORD 72
#define AT_MAJOR 80
#define AT_EXIT 112
/* struct wh_block */
#define AT_WALL 16
#define AT_CPU 24
#define AT_MIN 32
#define AT_MAX 40
/* In a record's `major` and in struct hot, below a block's place. PLAIN: timed, and nothing more. */
#define HOT_OURS 1
#define HOT_TIMED 2
#define HOT_CPU 4
#define HOT_HIST 8
#define HOT_PLAIN 32
#define HOT_BITS 63
/* Places of wh_exits, of so many bytes: the index of one is no address. */
#define EXITS 16384
#define EXIT_SHIFT 4
/* struct word, and how many of them there are before AT_HEAD */
#define WORD_BYTES 16
#define MOST_WORDS 72
/* Beside a point's index, which is smaller: the path needs a call in progress to be what it was. */
#define HOT_JOINED 0x10000
/* A key's low bits are the serial's; above stands a counter's address, which has 47 bits. */
#define KEY_SHIFT 17
/* From a segment to the state and the flags of point 0; each has 64 bytes. */
#define AT_STATES 0x10010
#define AT_POINTS_RELOCATED 0x10008
#define AT_PASSED 0x410000
#define POINT_SHIFT 6

#endif
