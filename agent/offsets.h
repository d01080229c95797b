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
#define AT_WAY 32
#define AT_HOT 768
#define HOTS 256 /* a byte tells the place */
/* struct wh_header */
#define AT_HEADER_ENABLED 32
/* struct wh_thread; a record of wh_active has 48 bytes */
#define AT_BUSY 24
#define AT_N_ACTIVE 40
#define AT_ACTIVE 0x40f0
#define AT_ACTIVE_PATH 24
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
/* Places of wh_exits, of so many bytes: the index of one is no address. */
#define EXITS 32768
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
