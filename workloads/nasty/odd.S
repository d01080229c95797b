/* The functions of `entries`: first bytes that are hard to move, or too few. Each takes (x, pointer, 0,
 * number) and returns a number that is wrong when its displaced instructions did not run as written.
 * No alignment between functions unless stated: what lies behind one belongs to the next. */
	.macro begin name
	.globl \name
	.type \name, @function
\name:
	.cfi_startproc
	.endm
	.macro end name
	.cfi_endproc
	.size \name, . - \name
	.endm

	.text
	.p2align 4
/* 11: three and four bytes, and the next one glued to them. */
begin odd_glued3
	mov %edi, %eax
	ret
end odd_glued3
begin odd_glued4
	lea 1(%rdi), %eax
	ret
end odd_glued4
begin odd_glued_next
	lea 2(%rdi), %rax
	ret
end odd_glued_next

/* Short, with filler behind. */
	.p2align 4
begin odd_nop_behind
	lea 3(%rdi), %eax
	ret
end odd_nop_behind
	.fill 12, 1, 0x90
	.p2align 4
begin odd_int3_behind
	lea 4(%rdi), %eax
	ret
end odd_int3_behind
	.fill 12, 1, 0xcc
	.p2align 4
begin odd_only_ret
	ret
end odd_only_ret
	.p2align 4

/* 12: a loop back to byte 2. */
begin odd_loop_back
	xor %eax, %eax
1:	add %edi, %eax
	dec %edi
	jnz 1b
	ret
end odd_loop_back

/* 12: a loop whose head is the entry itself, with the red zone in use: not a call each time round. From 8 on
 * the answer is 28, the sum of the last eight numbers stored. */
begin odd_loop_start
	lea -1(%rdi), %rdi
	mov %edi, %eax
	and $7, %eax
	neg %rax
	mov %rdi, -8(%rsp,%rax,8)
	test %rdi, %rdi
	jnz odd_loop_start
	mov -8(%rsp), %rax
	add -16(%rsp), %rax
	add -24(%rsp), %rax
	add -32(%rsp), %rax
	add -40(%rsp), %rax
	add -48(%rsp), %rax
	add -56(%rsp), %rax
	add -64(%rsp), %rax
	ret
end odd_loop_start

/* 13: odd_hopper jumps to byte 3 of odd_hopped; odd_late is a symbol on byte 2 of odd_early, reached
 * through a pointer only. */
begin odd_hopped
	mov %rdi, %rax
	add $5, %rax
	ret
end odd_hopped
begin odd_hopper
	lea (%rdi,%rdi), %rax
	jmp odd_hopped + 3
end odd_hopper
begin odd_early
	inc %edi
	.globl odd_late
	.type odd_late, @function
odd_late:
	lea 6(%rdi), %rax
	ret
	.size odd_late, . - odd_late
end odd_early

/* 14, 42: calls that end at byte 5, 6 and 2, and one that asks for its own place. */
	.p2align 4
odd_helper:
	.cfi_startproc
	lea 10(%rdi), %rax
	ret
	.cfi_endproc
begin odd_call5
	call odd_helper
	add $1, %rax
	ret
end odd_call5
begin odd_call6
	push %rbx
	.cfi_adjust_cfa_offset 8
	call odd_helper
	add $2, %rax
	pop %rbx
	.cfi_adjust_cfa_offset -8
	ret
end odd_call6
begin odd_call_short
	call *%rsi
	add $3, %rax
	ret
end odd_call_short
begin odd_call_memory
	call *odd_pointer(%rip)
	add $4, %rax
	ret
end odd_call_memory
begin odd_getpc
	call 1f
1:	.cfi_adjust_cfa_offset 8
	pop %rax
	.cfi_adjust_cfa_offset -8
	lea 1b(%rip), %rcx
	sub %rcx, %rax
	add %rdi, %rax
	ret
end odd_getpc

/* 15: displacements, short branches, prefixes. */
begin odd_rip_load
	mov odd_table(%rip), %eax
	add %edi, %eax
	ret
end odd_rip_load
begin odd_rip_lea
	lea odd_rip_lea(%rip), %rax
	lea odd_rip_lea(%rip), %rcx
	sub %rcx, %rax
	add %rdi, %rax
	ret
end odd_rip_lea
begin odd_rip_compare
	cmpl $77, odd_table(%rip)
	mov $0, %eax
	cmove %edi, %eax
	ret
end odd_rip_compare
begin odd_jrcxz
	jrcxz 1f
	lea 11(%rdi), %rax
	ret
1:	lea 12(%rdi), %rax
	ret
end odd_jrcxz
begin odd_loop
	loop 1f
	lea 13(%rdi), %rax
	ret
1:	lea (%rdi,%rcx), %rax
	ret
end odd_loop
begin odd_jcc
	test %edi, %edi
	js 1f
	lea 14(%rdi), %rax
	ret
1:	neg %edi
	mov %edi, %eax
	ret
end odd_jcc
begin odd_xbegin
	test %edx, %edx
	jz 1f
	xbegin 1f
	xend
1:	lea 15(%rdi), %rax
	ret
end odd_xbegin
begin odd_endbr
	endbr64
	lea 16(%rdi), %rax
	ret
end odd_endbr
begin odd_endbr_short
	endbr64
	mov %edi, %eax
	ret
end odd_endbr_short
begin odd_notrack
	notrack jmp *%rsi
end odd_notrack
	.fill 13, 1, 0xcc
begin odd_jump8
	jmp 1f
	.fill 6, 1, 0xcc
1:	lea 17(%rdi), %rax
	ret
end odd_jump8
begin odd_jump32
	.byte 0xe9
	.long odd_helper - (. + 4)
end odd_jump32
begin odd_rep
	rep stosb
	mov %rdi, %rax
	sub %rsi, %rax
	ret
end odd_rep
begin odd_fs
	mov %fs:0, %rax
	sub %fs:0, %rax
	add %rdi, %rax
	ret
end odd_fs
begin odd_red_zone
	mov %rdi, -8(%rsp)
	mov -8(%rsp), %rax
	add $18, %rax
	ret
end odd_red_zone
begin odd_stack_first
	lea -24(%rsp), %rax
	mov %rdi, (%rax)
	mov (%rax), %rax
	ret
end odd_stack_first
/* Its flags come from before the displaced bytes end, and are used behind them. */
begin odd_flags
	cmp $500, %edi
	lea 0(%rdi), %rax
	jl 1f
	add $19, %rax
1:	ret
end odd_flags
begin odd_long_first
	movabs $0x123456789a, %rax
	add %rdi, %rax
	ret
end odd_long_first

/* 46: pops its argument; odd_call_pops calls it as its callers do. */
begin odd_pops
	mov 8(%rsp), %rax
	add %rdi, %rax
	ret $8
end odd_pops
begin odd_call_pops
	push $20
	.cfi_adjust_cfa_offset 8
	call odd_pops
	.cfi_adjust_cfa_offset -8
	ret
end odd_call_pops

/* One function runs on into the next. */
begin odd_falls
	lea 1000(%rdi), %rdi
end odd_falls
begin odd_fallen
	lea 21(%rdi), %rax
	nop
	ret
end odd_fallen

/* Two names for one place. */
	.globl odd_alias_a
	.type odd_alias_a, @function
odd_alias_a:
begin odd_alias_b
	lea 22(%rdi), %rax
	nop
	ret
end odd_alias_b
	.size odd_alias_a, . - odd_alias_a

/* A tail call through a register that other probes must leave alone, and one that keeps r10 and r11. */
begin odd_tail
	lea 1(%rdi), %rdi
	jmp *%rsi
end odd_tail
begin odd_r10
	lea 0(%rdi,%r10), %rax
	add %r11, %rax
	ret
end odd_r10
begin odd_call_r10
	mov $23, %r10d
	mov $1, %r11d
	call odd_r10
	ret
end odd_call_r10

	.section .rodata
	.p2align 3
odd_table:
	.long 77
	.data
	.p2align 3
odd_pointer:
	.quad odd_helper
	.section .note.GNU-stack, "", @progbits
