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
	WH_OP_CALL,	/* to `taken`; imm: the stated address behind it */
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
	WH_OP_SWAP, /* dst and src, a register */
	WH_OP_ADD_SWAP,	     /* dst = dst + src, src = what dst was */
	WH_OP_SWAP_IF_EQUAL, /* cmpxchg */
	WH_OP_AND_NOT,	     /* dst = ~with & src */
	WH_OP_ZERO_HIGH,     /* dst = src without its bits from number `with` on */
	WH_OP_CLEAR_LOWEST,  /* blsr, blsi, blsmsk */
	WH_OP_ISOLATE_LOWEST,
	WH_OP_MASK_LOWEST,
	WH_OP_SWAP_BYTES,
	WH_OP_SHIFT_QUIETLY, /* dst = src by `with`, or by imm where that is no register; condition: enum wh_towards */
	WH_OP_SHIFT_DOUBLE,  /* dst, filled from src, by `with` or imm; condition too */
	WH_OP_CARRY,	     /* condition 0, 1: clear, set; 2: flip */
	/* String instructions, one turn at a time; condition: 0 alone, 1 as long as rcx is not 0 (and for the last two, all are equal),
	 * 2 and all differ. */
	WH_OP_STRING_STORE,
	WH_OP_STRING_COPY,
	WH_OP_STRING_COMPARE,
	WH_OP_STRING_SCAN,
	/* Vectors (whither_vector.h). First input `with`, second src, `lane` bytes per element. */
	WH_OP_V_MOVE,	   /* from a vector, memory, or a register */
	WH_OP_V_STORE,	   /* src to memory */
	WH_OP_V_INSERT,	   /* with, but `from` bytes at imm are those of src */
	WH_OP_V_EXTRACT,   /* `from` bytes at imm to a register or memory */
	WH_OP_V_BROADCAST,
	WH_OP_V_ZERO,
	WH_OP_V_ONES,
	WH_OP_V_AND,
	WH_OP_V_AND_NOT,
	WH_OP_V_OR,
	WH_OP_V_XOR,
	WH_OP_V_TERNARY,   /* of dst, with and src by the table imm */
	WH_OP_V_ADD,
	WH_OP_V_SUB,
	WH_OP_V_COMPARE,   /* condition: enum wh_relation; to a vector or a mask */
	WH_OP_V_PICK,	   /* with where the relation holds, else src: smaller, larger */
	WH_OP_V_SHIFT,	   /* src by imm; condition: enum wh_towards */
	WH_OP_V_TEST,	   /* to a mask: where with & src is not 0, or with condition 1, is 0 */
	WH_OP_V_SIGNS,	   /* highest bits of elements to a register */
	WH_OP_V_ALL,	   /* ptest */
	WH_OP_V_FIND,	   /* pcmpistri: of `with` in src, as imm says; to rcx and flags */
	WH_OP_V_PERMUTE,   /* condition: enum wh_order */
	WH_OP_V_LOOK_UP,   /* pshufb */
	WH_OP_V_UPPER_ZERO, /* vzeroupper */
	WH_OP_F_COMPARE,   /* lowest elements to flags */
	WH_OP_F_FROM_INTEGER, /* `from` bytes of src */
	WH_OP_F_TO_INTEGER, /* cut off; to `size` bytes */
	WH_OP_F_ADD,	   /* these where all are whole numbers */
	WH_OP_F_SUB,
	WH_OP_F_MULTIPLY,
	WH_OP_F_DIVIDE,
	WH_OP_K_TEST,	   /* condition 0: of their union, 1: of what they share */
	WH_OP_K_JOIN,	   /* with above src, `size` bytes of each */
};

enum wh_towards { WH_LEFT, WH_RIGHT, WH_RIGHT_SIGNED, WH_ROUND_RIGHT };

/* Of unsigned numbers, or with WH_SIGNED; the numbers of EVEX comparisons. */
enum wh_relation { WH_EQUAL, WH_LESS, WH_LESS_EQUAL, WH_NEVER, WH_NOT_EQUAL, WH_NOT_LESS, WH_MORE, WH_ALWAYS };
#define WH_SIGNED 8

/* Where bytes of each block of 16 come from. */
enum wh_order {
	WH_UNPACK_LOW,
	WH_UNPACK_HIGH,
	WH_SHUFFLE,	 /* pshufd */
	WH_SHUFFLE_LOW,	 /* pshuflw */
	WH_SHUFFLE_HIGH,
	WH_SHUFFLE_TWO,	 /* shufps */
	WH_ALIGN,	 /* palignr */
	WH_BYTES_LEFT,	 /* pslldq, of src */
	WH_BYTES_RIGHT,
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
/* and of wh_op.with: */
#define WH_VECTOR 64 /* 64 to 95 */
#define WH_MASK 96 /* 96 to 103: k0 to k7 */

/* No such instruction; of wh_op.base and index: no such register. */
#define WH_NO_OP 0
#define WH_NO_GPR 16
#define WH_OF_IMAGE 17 /* of wh_op.base: what this process has added to stated addresses */

/* One instruction of an image, the same for all processes that have it mapped. Number 0 is none. */
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
	unsigned char with; /* one more input */
	unsigned char lane;
	unsigned char mask; /* elements of the result chosen by this k register, 0: all; WH_MASK_ZERO: others are 0; WH_KEEP: bytes of a
			       vector above the result stay */
};
#define WH_MASK_ZERO 8
#define WH_KEEP 16

/* WH_CHUNK bytes of an image's code. */
struct wh_chunk {
	WH_U64 number; /* stated address / WH_CHUNK */
	WH_U32 image;  /* its number, not 0 */
	WH_U32 spare;
};

/* A process that may be walked in. */
struct wh_life {
	WH_U32 tgid;
	WH_U32 tag;
};

/* What it has mapped in one place. */
struct wh_part {
	WH_U64 start;
	WH_U64 end;
	WH_U64 bias; /* what is added to stated addresses */
	WH_U32 image;
	WH_U32 spare;
};

/* All of it, by address; unused ones at the end start at ~0. The last one is always unused. */
#define WH_PARTS 64
struct wh_space {
	struct wh_part part[WH_PARTS];
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

#define WH_HOPS 1024
/* So many instructions from its beginning on are near it: they tell how long instructions took where it began. */
#define WH_NEAR 400
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
	WH_U32 took; /* ns */
	WH_U16 passed; /* hops that are passed over: what happens next to where time is spent is not what happens on average */
	WH_U16 near; /* hops of its first WH_NEAR instructions */
	struct wh_hop hop[WH_HOPS];
};

#endif
