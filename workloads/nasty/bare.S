/* The assembly of `frames`: callers of a probed function that have no unwind information, one of them
 * with rbp as data, so that a walk by frame pointers would be led astray. */
	.text
	.globl bare_caller
	.type bare_caller, @function
bare_caller:
	push %rbx
	mov %rdi, %rbx
	sub $48, %rsp
	call leaf
	add $48, %rsp
	add %rbx, %rax
	pop %rbx
	ret
	.size bare_caller, . - bare_caller

	.globl data_in_rbp
	.type data_in_rbp, @function
data_in_rbp:
	push %rbp
	push %rbx
	mov $0x1234567, %ebp
	mov %rdi, %rbx
	sub $8, %rsp
	call leaf
	add $8, %rsp
	add %rbp, %rax
	add %rbx, %rax
	pop %rbx
	pop %rbp
	ret
	.size data_in_rbp, . - data_in_rbp
	.section .note.GNU-stack, "", @progbits
