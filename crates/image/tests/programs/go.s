# Functions that begin as those compiled from Go, and one that only seems to.
	.section .gopclntab,"a"
	.quad 0
	.text
	.globl _start
_start:	call	asks
	nop

	.type	asks, @function
	.p2align 5
asks:	lea	-0xd0(%rsp), %r12
	cmp	0x10(%r14), %r12
	jbe	1f
	push	%rbp
	mov	%rsp, %rbp
	sub	$0x148, %rsp
	leave
	ret
1:	mov	%rax, 8(%rsp)
	call	more
	mov	8(%rsp), %rax
	jmp	asks
	.size	asks, . - asks

	.type	huge, @function
	.p2align 5
huge:	mov	%rsp, %r12
	sub	$0x20000, %r12
	jb	1f
	cmp	0x10(%r14), %r12
	jbe	1f
	push	%rbp
	mov	%rsp, %rbp
	sub	$0x20000, %rsp
	leave
	ret
1:	call	more
	jmp	huge
	.size	huge, . - huge

# Asks nothing: the branch leads to its own work.
	.type	small, @function
	.p2align 5
small:	cmp	0x10(%r14), %rsp
	jbe	1f
	mov	$1, %eax
	ret
1:	mov	$2, %eax
	ret
	.size	small, . - small

# Something leads behind the question, which so tells nothing of calls.
	.type	again, @function
	.p2align 5
again:	cmp	0x10(%r14), %rsp
	jbe	1f
2:	mov	$1, %eax
	dec	%ecx
	jne	2b
	ret
1:	call	more
	jmp	again
	.size	again, . - again

# The bytes behind the question cannot be replaced: its entry is.
	.type	bound, @function
	.p2align 5
bound:	cmp	0x10(%r14), %rsp
	jbe	1f
	nop
3:	inc	%eax
	cmp	%ecx, %eax
	jne	3b
	ret
1:	call	more
	jmp	bound
	.size	bound, . - bound

	.type	more, @function
	.p2align 5
more:	mov	$1, %eax
	mov	$1, %edx
	ret
	.size	more, . - more
