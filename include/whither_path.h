/*
 * Words of walks: what the tool tells the kernel side of code (`struct wh_op`, prepared by the crate `image`), and what
 * comes back of one walk from a sampled place on (`struct wh_path`). What operations do is in whither_walk.h. Mirrored in
 * Rust by crates/abi/src/path.rs; a test compares both.
 */
#ifndef WHITHER_PATH_H
#define WHITHER_PATH_H
#include "whither_abi.h"

/* wh_op.kind. Those from PUSH to RETURN use the stack. */
enum wh_op_kind {
	WH_OP_END, /* not to be passed: a system call, code that is no instructions */
	WH_OP_NOP,
	WH_OP_JUMP,
	WH_OP_BRANCH,
	WH_OP_BRANCH_IF_NONE, /* when rcx, `size` bytes of it, is 0 */
	WH_OP_JUMP_FAR,	      /* to src */
	WH_OP_PUSH,	      /* src */
	WH_OP_POP,	      /* to register dst */
	WH_OP_LEAVE,
	WH_OP_CALL,	/* to `taken`; imm: the address behind it */
	WH_OP_CALL_FAR, /* to src */
	WH_OP_RETURN,	/* imm: bytes to drop */
	WH_OP_FORGET,	/* anything else: registers, flags or memory are not known any more */
	WH_OP_LEA,
	WH_OP_MOVE,
	WH_OP_MOVE_SIGNED,
	WH_OP_ADD,
	WH_OP_ADC,
	WH_OP_SUB,
	WH_OP_SBB,
	WH_OP_NEG,
	WH_OP_ZERO_BORROW,
	WH_OP_AND,
	WH_OP_OR,
	WH_OP_XOR,
	WH_OP_ZERO,
	WH_OP_INC,
	WH_OP_DEC,
	WH_OP_NOT,
	WH_OP_SHL,
	WH_OP_SHR,
	WH_OP_SAR,
	WH_OP_ROL,
	WH_OP_ROR,
	WH_OP_MULTIPLY,
	WH_OP_MUL,
	WH_OP_IMUL,
	WH_OP_DIV,
	WH_OP_IDIV,
	WH_OP_BIT_TEST,
	WH_OP_BIT_SET,
	WH_OP_BIT_RESET,
	WH_OP_BIT_FLIP,
	WH_OP_BSF,
	WH_OP_BSR,
	WH_OP_TZCNT,
	WH_OP_LZCNT,
	WH_OP_POPCNT,
	WH_OP_MOVE_IF,
	WH_OP_SET_IF,
	WH_OP_SIGN, /* all bits of dst are the sign of src */
	WH_OP_SWAP, /* two registers */
};

/* wh_op.bits */
#define WH_BIT_ADDRESS 1 /* there is a memory operand */
#define WH_BIT_READS 2	 /* it is read */
#define WH_BIT_WRITES 4	 /* it is written */
#define WH_BIT_SHORT 8	 /* addresses have 32 bits */
#define WH_BIT_FS 16	 /* relative to thread-local data */
#define WH_BIT_STRANGE 32 /* the address is never known */
#define WH_BIT_KEEPS 64	 /* only flags change: cmp, test, bt */
#define WH_BIT_FLAGS 128 /* of FORGET: flags too */

/* wh_op.dst and src: 0 to 15 a register, 16 to 31 its bits 8 to 15, or: */
#define WH_IN_MEMORY 32
#define WH_IMMEDIATE 33
#define WH_NOWHERE 34

/* No such instruction; of wh_op.base and index: no such register. */
#define WH_NO_OP 0
#define WH_NO_GPR 16

/* One instruction at its place in one process. Number 0 is none. */
struct wh_op {
	WH_U64 disp; /* of the address; all of it when it is absolute */
	WH_U64 imm;
	WH_U32 next;  /* number of the instruction behind, WH_NO_OP: not known yet */
	WH_U32 taken; /* of the target */
	WH_U16 forgets; /* bit per register */
	unsigned char kind;
	unsigned char size; /* bytes of the result */
	unsigned char from; /* bytes of src, or of memory read */
	unsigned char dst;
	unsigned char src;
	unsigned char base;
	unsigned char index;
	unsigned char shift; /* of the index: 0 to 3 */
	unsigned char condition; /* as in machine code */
	unsigned char bits;
	unsigned char third; /* 1: multiply src by imm, not dst */
	unsigned char spare[3];
};

/* Where walks may begin or go on: a place in one life of a process. */
struct wh_start {
	WH_U64 pc;
	WH_U32 tgid;
	WH_U32 tag;
};

/* A transfer of control within a walk. */
struct wh_hop {
	WH_U32 from; /* number of the instruction */
	WH_U32 to;
};

/* wh_path.end */
enum wh_path_end {
	WH_END_LENGTH,	 /* as long as walks get */
	WH_END_UNKNOWN,	 /* something is not known that it needs */
	WH_END_STORES,	 /* too many stores */
	WH_END_NEW_CODE, /* at `wanted`, or behind or at the target of `last` */
	WH_END_HOPS,	 /* no room for more */
};

#define WH_HOPS 128
struct wh_path {
	WH_U32 kind; /* WH_PATH */
	WH_U32 tgid;
	WH_U64 pc;
	WH_U64 time; /* CLOCK_MONOTONIC ns */
	WH_U64 wanted; /* address of code that is not prepared, 0: none, or `last` tells */
	WH_U32 tag;
	WH_U32 code; /* wh_paths_code at its beginning: which preparation the numbers are of */
	WH_U32 last;   /* instruction it ended at */
	WH_U16 went;   /* of WH_END_NEW_CODE without `wanted`: 0 behind `last`, 1 at its target */
	WH_U16 end;
	WH_U32 steps;
	WH_U32 hops;
	struct wh_hop hop[WH_HOPS];
};

#endif
