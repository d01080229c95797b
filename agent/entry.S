/*
 * Where stubs jump to. Lives here: saving registers, the balanced call, its unwind description, telling calls that are
 * as one before, and both ends of those with times. Not here: anything else that decides. Constraints: argument registers, al (varargs), r10 (static chain) and
 * r11 reach the function as they were, rax and rdx come back as they were, vectors are never touched;
 * a signal may arrive between any two instructions, so a word is read only where it cannot be
 * overwritten; return and call stay paired, else each call costs a mispredicted return.
 *
 * A stub pushes its point's index: 0(rsp) = index, 8(rsp) = return address (the slot).
 */
#include "offsets.h"
	.set D, -0x100000000000 + 0x10000	/* WH_SHADOW: from a return slot to its shadow */
	.text

/* Unwinders may come by between any two instructions: each push and pop has its row. */
.macro save_registers
	.irp register, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11
	push %\register
	.cfi_adjust_cfa_offset 8
	.endr
.endm

.macro restore_registers
	.irp register, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax
	pop %\register
	.cfi_adjust_cfa_offset -8
	.endr
.endm

/* Calls a C handler on an aligned stack; rbx is saved and carries the stack pointer meanwhile. */
.macro call_handler name, rbx_at
	push %rbx
	.cfi_adjust_cfa_offset 8
	.cfi_offset rbx, \rbx_at
	mov %rsp, %rbx
	.cfi_def_cfa_register rbx
	and $-16, %rsp
	call \name
	mov %rbx, %rsp
	.cfi_def_cfa_register rsp
	pop %rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbx
.endm

/* What functions of fast.c change, but for what they save themselves. */
.macro save_few
	.irp register, rax, rcx, rdx, rsi, rdi
	push %\register
	.cfi_adjust_cfa_offset 8
	.endr
.endm

.macro restore_few
	.irp register, rdi, rsi, rdx, rcx, rax
	pop %\register
	.cfi_adjust_cfa_offset -8
	.endr
.endm

/* What known_call, or an exit, has saved without pushing it. */
.macro restore_below
	mov -8(%rsp), %rax
	mov -16(%rsp), %rcx
	mov -24(%rsp), %rdx
	mov -32(%rsp), %rsi
	mov -40(%rsp), %rdi
.endm

/* Calls a function of fast.c with the address of struct frame, of which known_call has filled the most. It has done its part if an
 * address stands where the index was: "above". */
.macro call_fast name
	mov %rcx, -16(%rsp)
	lea -80(%rsp), %rsp		/* from its end on an address that is still wanted when all this is dropped */
	.cfi_adjust_cfa_offset 80
	mov %rsp, %rdi
	call \name
	lea 40(%rsp), %rsp
	.cfi_adjust_cfa_offset -40
	restore_few
	cmpq $0xffff, (%rsp)
.endm

/* One of the words that tell a path; `number` of them are still to be compared. */
.macro same_word kind, number
.Lwords\number\kind:
	mov -WORD_BYTES*\number(%rdx), %rsi
	mov (%rsi), %rsi
	cmp -WORD_BYTES*\number+8(%rdx), %rsi
	jne .Lothers\kind
.endm

/* Tells most calls: what as_it_was and words_fit of fast.c have, with fewer accesses to memory than a function needs, which are what
 * such a call costs. Goes on behind itself where all is as it was, with the address of what was known in rdx and its key in rax; at
 * .Lvaried, the same, where all but the words is; else at .Lothers. Nothing is pushed: below the stack pointer of a function that
 * begins nobody keeps anything yet, and signals leave 128 bytes there alone. What is saved there is where struct frame has it. */
.macro known_call kind
	cmp G+AT_NEAR_END(%rip), %rsp	/* the stacks of other threads lie below, too */
	jb .Lnear\kind
.Lroom\kind:
	mov %rax, -8(%rsp)
	mov %rdx, -24(%rsp)
	mov %rsi, -32(%rsp)
	mov %rdi, -40(%rsp)
	mov %rbp, -48(%rsp)
	lea 8(%rsp), %rdx
	test $0xfff, %edx		/* of no function that was called, and perhaps not there: behind the end of a stack */
	jz .Lodd\kind
	mov G+AT_FAST(%rip), %rsi
	test $1, %sil			/* without way 1 there may be no fs */
	jnz .Lothers\kind
	mov wh_own@gottpoff(%rip), %rax
	mov %fs:(%rax), %rdi
	test %rdi, %rdi
	jz .Lothers\kind
	shr $3, %rdx
	add 8(%rsp), %edx		/* the return address */
	movzbl %dl, %edx
	lea (%rdx,%rdx,4), %eax
	shl $9, %eax
	cmpb $0, AT_WAY(%rdi,%rdx)	/* a jump that is foreseen, and no address that would be waited for */
	lea AT_HOT+AT_HEAD(%rdi,%rax), %rdx
	jne .Lsecond\kind
.Lway\kind:
	cmp %rsi, AT_HOME(%rdi)
	jne .Lothers\kind
	mov AT_HEADER_ENABLED(%rsi), %rax
	cmp %rax, AT_ENABLED(%rdi)
	jne .Lothers\kind
	.ifc \kind, _count		/* others are told by the clock, or fast.c does this */
	subl $1, AT_CREDIT(%rdi)
	js .Lothers\kind
	.endif
	mov AT_BLOCK(%rdi), %rdi
	mov AT_KEY(%rdx), %rax
	cmpq $0, AT_BUSY(%rdi)
	jne .Lothers\kind
	cmpl $0, AT_N_ACTIVE(%rdi)
	jne .Lnested\kind
	mov (%rsp), %edi
	cmp %edi, AT_POINT(%rdx)
	jne .Lothers\kind
.Lgate\kind:
	shl $POINT_SHIFT, %rdi
	mov AT_STATES(%rsi,%rdi), %rsi
	cmp %rsi, AT_GATE(%rdx)
	jne .Lothers\kind
	mov 8(%rsp), %rsi
	cmp %rsi, AT_RA(%rdx)
	jne .Lothers\kind
	lea 8(%rsp), %rdi
	cmp %rdi, (%rdx)
	jne .Lothers\kind
	notrack jmp *AT_CODE(%rdx)	/* into what follows, or to .Lvaried */
.Lsecond\kind:
	add $HOT_BYTES, %rdx
	jmp .Lway\kind
/* Calls are in progress: the innermost must be what it was, and the point is said to need that. */
.Lnested\kind:
	mov %rcx, -16(%rsp)
	mov AT_N_ACTIVE(%rdi), %ecx
	cmp $MOST_ACTIVE, %ecx
	jae .Lmany\kind
	lea (%rcx,%rcx,2), %rcx
	shl $4, %rcx
	add %rcx, %rdi
	mov AT_ACTIVE-48(%rdi), %rcx
	cmp %rcx, AT_TOP_SLOT(%rdx)
	mov AT_ACTIVE-48+AT_ACTIVE_PATH(%rdi), %edi
	mov -16(%rsp), %rcx
	jne .Lothers\kind
	cmp %edi, AT_TOP_PATH(%rdx)
	jne .Lothers\kind
	mov (%rsp), %edi
	or $HOT_JOINED, %edi
	cmp %edi, AT_POINT(%rdx)
	jne .Lothers\kind
	mov (%rsp), %edi
	jmp .Lgate\kind
.Lmany\kind:
	mov -16(%rsp), %rcx
	jmp .Lothers\kind
/* Close to where the first thread's stack ends nothing is written below the stack pointer: programs that look at what instruction
 * ran beyond it (OCaml makes an exception of that, if it was one of its own) would find one of ours. The call is not counted. */
.Lnear\kind:
	cmp G+AT_END(%rip), %rsp
	jb .Lroom\kind
	xchg %rax, (%rsp)
	shl $POINT_SHIFT, %rax
	add G(%rip), %rax
	lock incq AT_PASSED(%rax)
	mov AT_POINTS_RELOCATED(%rax), %rax
	xchg %rax, (%rsp)
	lea 8(%rsp), %rsp
	.cfi_remember_state
	.cfi_def_cfa_offset 8
	jmp *-8(%rsp)
	.cfi_restore_state
	.altmacro
	.set number, MOST_WORDS
	.rept MOST_WORDS
	same_word \kind, %number
	.set number, number - 1
	.endr
	.noaltmacro
.Lwords0\kind:
.endm

/* The entry of a call with wall time, and CPU time if `cpu`: what finish_entry and admit of C do, in their order. */
.macro timed_entry cpu
	mov %rcx, -16(%rsp)
	mov AT_EXIT(%rdx), %rdi
	mov %rdi, -80(%rsp)
	mov AT_RELOCATED(%rdx), %rdi
	mov AT_RECORD(%rdx), %rsi
	mov AT_MAJOR(%rdx), %rcx
	cmp AT_KEY(%rdx), %rax
	jne .Lmany_entry
	mov %rdi, (%rsp)		/* its index, should it be wanted once more, is the point of the record */
	mov %rsi, -56(%rsp)
	shr $KEY_SHIFT, %rax
	mov %rax, %rdi
	.if \cpu
	mov wh_own@gottpoff(%rip), %rdx
	mov %fs:(%rdx), %rdx
	mov AT_PENDING(%rdx), %rdx
	mov %rdx, -64(%rsp)
	.endif
	rdtsc
	shl $32, %rdx
	or %rdx, %rax
	mov wh_own@gottpoff(%rip), %rdx
	mov %fs:(%rdx), %rdx
	cmp AT_DEADLINE(%rdx), %rax
	jae .Llate
	.if \cpu
	mov AT_CLOCK(%rdx), %rsi
	mov (%rsi), %esi
	cmp %esi, AT_CLOCK_SEEN(%rdx)
	jne .Llate
	.endif
	incq (%rdi)			/* one instruction: a signal in between cannot lose a count */
	mov AT_BLOCK(%rdx), %rdx
	mov AT_N_ACTIVE(%rdx), %edi
	lea (%rdi,%rdi,2), %rdi
	shl $4, %rdi
	add %rdx, %rdi
	lea 8(%rsp), %rsi
	mov %rsi, AT_ACTIVE(%rdi)	/* before the place is taken: a signal handler's call judges the record by it */
	incl AT_N_ACTIVE(%rdx)
	mov %rsi, AT_ACTIVE(%rdi)	/* and behind: a handler's call may have used the place */
	mov %rax, AT_ACTIVE+AT_ACTIVE_T0(%rdi)
	mov -56(%rsp), %rsi
	mov %rcx, AT_ACTIVE+AT_ACTIVE_MAJOR(%rdi)
	mov AT_APART(%rdx), %rcx
	mov %rsi, AT_ACTIVE+AT_ACTIVE_PATH(%rdi)
	mov %rcx, AT_ACTIVE+AT_ACTIVE_USAGE(%rdi)
	mov 8(%rsp), %rsi
	movabs $D, %rax
	.if \cpu
	mov -64(%rsp), %rcx
	mov %rcx, AT_ACTIVE+AT_ACTIVE_CPU0(%rdi)
	.else
	movq $0, AT_ACTIVE+AT_ACTIVE_CPU0(%rdi)
	.endif
	mov AT_SEQ_ACTIVE(%rdx), %ecx
	mov %rsi, 8(%rsp,%rax)
	or $1, %ecx
	inc %ecx
	mov %ecx, AT_SEQ_ACTIVE(%rdx)
	restore_below
.endm

/* At an exit: ticks since the record at rcx began in rax, at least 1; of the thread at rdi. At 5 if calls inside have cost apart. */
.macro wall_of_call
	rdtsc
	shl $32, %rdx
	or %rdx, %rax
	mov AT_APART(%rdi), %rdx
	sub AT_ACTIVE+AT_ACTIVE_T0(%rcx), %rax
	cmp AT_ACTIVE+AT_ACTIVE_USAGE(%rcx), %rdx
	jne 5f
	cmp $1, %rax
	jl 5f				/* fast.c knows what to do */
.endm

/* Where so many words are compared and, the last, what is done with values of several paths: seen from here. */
.macro code_of kind, number
	.long .Lwords\number\kind - wh_code_of\kind
.endm
.macro known_code kind
	.section .rodata
	.globl wh_code_of\kind
	.hidden wh_code_of\kind
	.p2align 2
wh_code_of\kind:
	.altmacro
	.set number, 0
	.rept MOST_WORDS + 1
	code_of \kind, %number
	.set number, number + 1
	.endr
	.noaltmacro
	.long .Lvaried\kind - wh_code_of\kind
	.text
.endm

	.globl wh_entry_exit
	.type wh_entry_exit, @function
	.p2align 6
wh_entry_exit:
	.cfi_startproc
	.cfi_def_cfa rsp, 16
	endbr64
	known_call _entry
	testb $HOT_PLAIN, AT_MAJOR(%rdx)
	jz .Lclocks
	timed_entry 0
1:	lea 16(%rsp), %rsp		/* drops two words: where to go on, and the slot, whose call comes again */
	.cfi_remember_state
	/* From here the return address is in the shadow: CFA = rsp + 8 is eight above the true one so
	 * that two frames never have the same, rsp comes back as CFA - 8, the address from CFA - 16 + D. */
	.cfi_def_cfa rsp, 8
	.cfi_offset rip, D - 16
	.cfi_escape 0x14, 7, 1		/* DW_CFA_val_offset rsp, CFA - 8 */
	notrack jmp *-96(%rsp)		/* 80 below the index; 128 bytes are left alone by signals */
2:	.cfi_restore_state
	save_registers
	mov 72(%rsp), %rdi
	lea 80(%rsp), %rsi
	mov %rsp, %rdx
	mov %rbp, %rcx
	call_handler wh_on_entry, -96
	mov %rax, 72(%rsp)
	.cfi_remember_state
	test %rdx, %rdx
	jz 4f
	mov %rdx, -8(%rsp)		/* 80 below the index */
	restore_registers
	jmp 1b
4:	.cfi_restore_state
	restore_registers
	lea 8(%rsp), %rsp
	.cfi_def_cfa_offset 8
	jmp *-8(%rsp)
	.cfi_def_cfa_offset 16
/* The heartbeat is to be looked at: the other way, from the begin. */
.Llate:	mov -52(%rsp), %eax
	mov %rax, (%rsp)
	restore_below
	jmp 2b
.Lclocks:
	testb $HOT_CPU, AT_MAJOR(%rdx)
	jz .Lclock_less
	timed_entry 1
	jmp 1b
.Lclock_less:
	lea -AT_HEAD(%rdx), %rsi
	mov %rax, %rdx
	call_fast wh_fast_entry
	ja 1b
	jmp 2b
.Lodd_entry:
	call_fast wh_without_call
	jbe 2b
	.cfi_remember_state
	lea 8(%rsp), %rsp
	.cfi_def_cfa_offset 8
	jmp *-8(%rsp)
	.cfi_restore_state
.Lvaried_entry:
	lea -AT_HEAD(%rdx), %rsi
	mov %rax, %rdx
	call_fast wh_varied_entry
	ja 1b
	jmp 2b
.Lothers_entry:
	call_fast wh_other_entry
	ja 1b
	jmp 2b
	.cfi_endproc
	.size wh_entry_exit, . - wh_entry_exit
	known_code _entry

/* Calls whose exit is seen are made here, each where the address that it is to return to has its place: exits.c. Where to
 * stands in -16(rsp), and the slot, in which the call puts the way back to here, is the word below rsp again behind it. */
	.globl wh_exits
	.type wh_exits, @object
	.p2align 6
	.cfi_startproc
	.cfi_def_cfa rsp, 8
	.cfi_offset rip, D - 16
	.cfi_escape 0x14, 7, 1
wh_exits:
	.rept EXITS
	call *-16(%rsp)
	jmp wh_exit
	.p2align EXIT_SHIFT, 0xcc
	.endr
	.size wh_exits, . - wh_exits
wh_exit:
	lea -8(%rsp), %rsp
	.cfi_def_cfa_offset 16
	/* The exit of such a call: what wh_fast_exit does, in its order. What is saved below the stack pointer is where save_few has it. */
	mov %rax, -8(%rsp)
	mov %rcx, -16(%rsp)
	mov %rdx, -24(%rsp)
	mov %rsi, -32(%rsp)
	mov %rdi, -40(%rsp)
	mov (%rsp), %rax		/* where it goes on, by its place; what the shadow says must be the same */
	lea wh_exits(%rip), %rcx
	sub %rcx, %rax
	shr $EXIT_SHIFT, %rax
	lea wh_returns(%rip), %rcx
	mov (%rcx,%rax,8), %rax
	movabs $D, %rcx
	cmp (%rsp,%rcx), %rax
	jne 5f
	mov %rax, -56(%rsp)
	mov G+AT_FAST(%rip), %rsi
	test $1, %sil			/* there may be no fs */
	jnz 5f
	mov wh_own@gottpoff(%rip), %rax
	mov %fs:(%rax), %rdx
	test %rdx, %rdx
	jz 5f
	cmp %rsi, AT_HOME(%rdx)
	jne 5f
	mov AT_BLOCK(%rdx), %rdi
	cmpq $0, AT_BUSY(%rdi)
	jne 5f
	mov AT_N_ACTIVE(%rdi), %eax
	dec %eax
	cmp $MOST_ACTIVE, %eax
	jae 5f
	mov %eax, -48(%rsp)
	lea (%rax,%rax,2), %rcx
	shl $4, %rcx
	add %rdi, %rcx
	cmp %rsp, AT_ACTIVE(%rcx)
	jne 5f
	mov AT_ACTIVE+AT_ACTIVE_MAJOR(%rcx), %rdx
	test $HOT_PLAIN, %dl
	jz 12f
	and $~HOT_BITS, %rdx
	add %rdx, %rsi
	wall_of_call
6:	orl $1, (%rsi)
7:	add %rax, AT_WALL(%rsi)
	cmp AT_MAX(%rsi), %rax
	ja 8f
9:	lea -1(%rax), %rdx
	mov AT_MIN(%rsi), %rcx
	dec %rcx			/* 0: none yet */
	cmp %rcx, %rdx
	jb 10f
11:	mov (%rsi), %eax
	or $1, %eax			/* a signal handler's update in between has made it even */
	inc %eax
	mov %eax, (%rsi)
	mov -48(%rsp), %eax		/* and another stack may have come into use and gone */
	mov %eax, AT_N_ACTIVE(%rdi)
	mov -56(%rsp), %rax
	mov %rax, (%rsp)
	restore_below
	ret
8:	mov %rax, AT_MAX(%rsi)
	jmp 9b
10:	mov %rax, AT_MIN(%rsi)
	jmp 11b
12:	mov %edx, %eax
	and $HOT_OURS | HOT_TIMED | HOT_CPU | HOT_HIST, %eax
	cmp $HOT_OURS, %eax
	je 13f
	cmp $HOT_OURS | HOT_TIMED | HOT_CPU, %eax
	jne 5f
	and $~HOT_BITS, %rdx
	add %rdx, %rsi
	wall_of_call
	mov wh_own@gottpoff(%rip), %rdx
	mov %fs:(%rdx), %rdx
	mov AT_ACTIVE+AT_ACTIVE_CPU0(%rcx), %rcx
	cmp %rcx, AT_PENDING(%rdx)
	jne 5f
	mov AT_CLOCK(%rdx), %rcx
	mov (%rcx), %ecx
	cmp %ecx, AT_CLOCK_SEEN(%rdx)
	jne 5f
	mov AT_HOME(%rdx), %rcx		/* ns_of */
	mov AT_MULT(%rcx), %rdx
	mov %rax, %rdi
	or %rdx, %rdi
	shr $32, %rdi
	jnz 5f
	mov AT_SHIFT(%rcx), %ecx
	imul %rax, %rdx
	shr %cl, %rdx
	mov wh_own@gottpoff(%rip), %rdi
	mov %fs:8(%rdi), %rdi
	orl $1, (%rsi)
	add %rdx, AT_CPU(%rsi)
	jmp 7b
13:	and $~HOT_BITS, %rdx		/* without a clock */
	add %rdx, %rsi
	jmp 11b
5:	lea -40(%rsp), %rsp
	.cfi_adjust_cfa_offset 40
	lea 40(%rsp), %rdi
	call wh_fast_exit
	restore_few
	cmpq $0xffff, (%rsp)		/* which place it was, if nothing is done yet */
	jbe 3f
	ret
3:	save_registers
	lea 72(%rsp), %rdi
	mov %rsp, %rsi
	call_handler wh_on_exit, -96
	mov %rax, 72(%rsp)
	restore_registers
	ret
	.cfi_endproc

	.globl wh_entry_only
	.type wh_entry_only, @function
	.p2align 6
wh_entry_only:
	.cfi_startproc
	.cfi_def_cfa rsp, 16
	endbr64
	known_call _count
	mov AT_RELOCATED(%rdx), %rdi
	cmp AT_KEY(%rdx), %rax
	jne .Lothers_count
	shr $KEY_SHIFT, %rax
	incq (%rax)			/* one instruction: a signal in between cannot lose a count */
	mov %rdi, (%rsp)
	mov -8(%rsp), %rax
	mov -24(%rsp), %rdx
	mov -32(%rsp), %rsi
	mov -40(%rsp), %rdi
1:	lea 8(%rsp), %rsp
	.cfi_remember_state
	.cfi_def_cfa_offset 8
	jmp *-8(%rsp)
	.cfi_restore_state
.Lodd_count:
	call_fast wh_without_call
	ja 1b
	jmp 2f
.Lvaried_count:
	lea -AT_HEAD(%rdx), %rsi
	mov %rax, %rdx
	call_fast wh_varied_count
	ja 1b
	jmp 2f
.Lothers_count:
	call_fast wh_other_count
	ja 1b
2:	save_registers
	mov 72(%rsp), %rdi
	lea 80(%rsp), %rsi
	mov %rsp, %rdx
	mov %rbp, %rcx
	call_handler wh_on_count, -96
	mov %rax, 72(%rsp)
	restore_registers
	jmp 1b
	.cfi_endproc
	.size wh_entry_only, . - wh_entry_only

	known_code _count

/* _Unwind_Find_FDE(pc, bases) of a program without a loader, which knows its own rules only: those of the agent are
 * found here. What asks for others goes on as any function that is counted, and is not. */
	.globl wh_entry_unwind
	.type wh_entry_unwind, @function
	.p2align 6
wh_entry_unwind:
	.cfi_startproc
	.cfi_def_cfa rsp, 16
	endbr64
	lea wh_code_begin(%rip), %rax
	cmp %rax, %rdi
	jb wh_entry_only
	lea wh_code_end(%rip), %rax
	cmp %rax, %rdi
	jae wh_entry_only
	lea 8(%rsp), %rsp		/* the index: what is left is a plain call */
	.cfi_def_cfa_offset 8
	jmp wh_find_rules
	.cfi_endproc
	.size wh_entry_unwind, . - wh_entry_unwind

/* Called from a stub at any instruction: 0(rsp) is its return address, 8(rsp) the point's index. All registers come
 * back as they were, flags included; below the index lies what the program keeps under its stack pointer. */
	.globl wh_entry_site
	.type wh_entry_site, @function
	.p2align 6
wh_entry_site:
	.cfi_startproc
	.cfi_undefined rip		/* the stub has no rules */
	endbr64
	pushfq
	.cfi_adjust_cfa_offset 8
	cld
	save_registers
	mov 88(%rsp), %rdi
	mov %rsp, %rsi
	call_handler wh_on_site, -96
	restore_registers
	popfq
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size wh_entry_site, . - wh_entry_site

/* Where the handler of ticks returns to: unwinders know a signal's frame by these bytes. */
	.globl wh_tick_end
	.hidden wh_tick_end
	.p2align 4
	nop
wh_tick_end:
	mov $15, %rax
	syscall
	int3

/* For remote system calls: the controller sets the registers and an instruction pointer here. */
	.globl wh_syscall_insn
	.type wh_syscall_insn, @function
	.p2align 4
wh_syscall_insn:
	.cfi_startproc
	syscall
	int3
	.cfi_endproc
	.size wh_syscall_insn, . - wh_syscall_insn

/* `u64 wh_calibrate(u64 rounds, u32 how)`: the outermost frame of calibration, said to be one. */
	.globl wh_calibrate
	.type wh_calibrate, @function
	.p2align 4
wh_calibrate:
	.cfi_startproc
	.cfi_undefined rip
	endbr64
	sub $8, %rsp
	.cfi_adjust_cfa_offset 8
	call calibrate
	add $8, %rsp
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size wh_calibrate, . - wh_calibrate

/* What calibration probes, behind enough bytes for a jump: some 20 ns of work, each step of which waits for the
 * one before. With nothing to do in it a call would show all of the agent's own cost; processors do most of that
 * beside the work that calls hold. */
	.globl wh_empty
	.type wh_empty, @function
	.p2align 4
wh_empty:
	.cfi_startproc
	endbr64
	.byte 0x0f, 0x1f, 0x44, 0, 0	/* nopl 0(%rax, %rax), five bytes long whatever the assembler prefers */
	mov %rdi, %rax
	.rept 24
	imul $0x5bd1e995, %rax, %rax
	.endr
	ret
	.cfi_endproc
	.p2align 4, 0xcc
	.size wh_empty, . - wh_empty

/* The same with nothing in it. */
	.globl wh_bare
	.type wh_bare, @function
	.p2align 4
wh_bare:
	.cfi_startproc
	endbr64
	.byte 0x0f, 0x1f, 0x44, 0, 0
	mov %rdi, %rax
	ret
	.cfi_endproc
	.p2align 4, 0xcc
	.size wh_bare, . - wh_bare

	.section .note.GNU-stack, "", @progbits
