# Functions whose entries can be replaced in different ways, or not.
        .text
        .macro begin name
        .globl  \name
        .type   \name, @function
\name:
        .cfi_startproc
        .endm
        .macro finish name
        .cfi_endproc
        .size   \name, .-\name
        .endm

        .p2align 5
        begin   plain
        push    %rbp
        mov     %rsp, %rbp
        sub     $32, %rsp
        leave
        ret
        finish  plain

        .p2align 5
        begin   landing
        endbr64
        sub     $8, %rsp
        mov     %edi, %eax
        add     $8, %rsp
        ret
        finish  landing

        .p2align 5
        begin   tiny
        xor     %eax, %eax
        ret
        finish  tiny

        .p2align 5
        begin   glued
        mov     %edi, %eax
        ret
        finish  glued
        begin   behind_glued
        lea     1(%rdi), %rax
        ret
        finish  behind_glued

        .p2align 5
        begin   hopeless
        ret
        finish  hopeless
        begin   behind_hopeless
        mov     $1, %eax
        ret
        finish  behind_hopeless

        .p2align 5
        begin   back_branch
        nop
1:      dec     %edi
        jne     1b
        xor     %eax, %eax
        ret
        finish  back_branch

        .p2align 5
        begin   jumped_into
        push    %rbx
.Linside:
        mov     %edi, %ebx
        mov     %ebx, %eax
        pop     %rbx
        ret
        finish  jumped_into

        .p2align 5
        begin   jumper
        mov     $3, %ebx
        push    %rbx
        .byte   0xe9                    # a jump with a 32-bit distance, from another function
        .long   .Linside - . - 4
        finish  jumper

        .p2align 5
        begin   taken
        mov     %edi, %eax
.Ltaken:
        lea     (%rax,%rax), %eax
        ret
        finish  taken

        .p2align 5
        begin   two_entries
        nop
        .globl  second_entry
        .type   second_entry, @function
second_entry:
        mov     %edi, %eax
        imul    %eax, %eax
        ret
        .size   second_entry, .-second_entry
        finish  two_entries

        .p2align 5
        begin   call_first
        call    *%rax
        inc     %eax
        inc     %eax
        ret
        finish  call_first

        .p2align 5
        begin   call_closes
        call    plain
        ret
        finish  call_closes

        .p2align 5
        begin   pops
        mov     %edi, %eax
        inc     %eax
        ret     $8
        finish  pops

        .p2align 5
        begin   never
        sub     $8, %rsp
        call    plain
        ud2
        finish  never

        .p2align 5
        begin   repeats
        movzbl  (%rdi), %eax
        inc     %rdi
        test    %al, %al
        jne     repeats
        ret
        finish  repeats

        .p2align 5
        begin   decoy
        mov     $0xe9, %eax             # bytes that only look like a jump into `plain`
        movabs  $0x1122334455667788, %rax
        ret
        finish  decoy

        .p2align 5
        begin   counts
        lock addq $1, word(%rip)
        ret
        finish  counts

        .p2align 5
        begin   marked
        xor     %ecx, %ecx
        jmp     2f
1:      nop
        nop
        .byte   0x8d, 0x49, 0            # lea 0(%rcx), %ecx
2:      cmp     %edi, %ecx
        jl      1b
        ret
        finish  marked

        .p2align 5
        begin   cramped
        xor     %ecx, %ecx
3:      nop
        inc     %ecx
4:      cmp     %edi, %ecx
        jl      3b
        jg      4b
        ret
        finish  cramped

        .p2align 5
        begin   entered
        xor     %ecx, %ecx
.Lhalf:
        mov     $2, %eax
        ret
        finish  entered
        .p2align 5
        begin   enters
        test    %edi, %edi
        je      .Lhalf
        .byte   0xe9                    # with a 32-bit distance, far behind an entry
        .long   .Ldeep - (. + 4)
        finish  enters

        .p2align 5
        begin   deep
        movabs  $0x1122334455667788, %rax
        inc     %eax
        xor     %ecx, %ecx
.Ldeep: mov     %ecx, %eax
        dec     %eax
        ret
        finish  deep

        .globl  _start
        .type   _start, @function
        .p2align 5
_start: .cfi_startproc
        .cfi_undefined %rip
        xor     %ebp, %ebp
        call    plain
        hlt
        .cfi_endproc
        .size   _start, .-_start

        .section .data.rel.ro, "aw"
        .quad   .Ltaken

        .data
word:   .quad   0
