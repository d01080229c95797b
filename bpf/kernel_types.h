/*
 * The few kernel types the programs read, declared by the fields they use: CO-RE relocates each
 * access to the running kernel's layout, so order and missing fields do not matter. Kept by hand
 * instead of a generated vmlinux.h, which is 100,000 lines and clashes with common names.
 */
#ifndef WHITHER_KERNEL_TYPES_H
#define WHITHER_KERNEL_TYPES_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef int pid_t;

enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_EXIST = 2 };
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_LRU_HASH = 9, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_PERCPU_ARRAY = 6, BPF_MAP_TYPE_RINGBUF = 27 };
enum { BPF_F_NO_PREALLOC = 1u << 0, BPF_F_MMAPABLE = 1u << 10 };
enum { BPF_F_USER_STACK = 1ull << 8 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock_common {
	volatile unsigned char skc_state;
};
struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
};
struct kernfs_node {
	__u64 id;
};
struct cgroup {
	struct kernfs_node *kn;
};
struct css_set {
	struct cgroup *dfl_cgrp;
};
struct sched_entity {
	__u64 sum_exec_runtime;
};
struct super_block {
	__u32 s_dev;
};
struct inode {
	unsigned long i_ino;
	__u32 i_generation; /* counts files that bore one number */
	struct super_block *i_sb;
};
struct file {
	struct inode *f_inode;
};
struct mm_struct {
	unsigned long start_stack;
	unsigned long exec_vm;
	struct file *exe_file;
};
struct thread_struct {
	unsigned long fsbase;
};
struct seccomp {
	int mode;
};
/* Begins with the address of the handler. */
struct k_sigaction {
	char any[32];
};
struct sighand_struct {
	struct k_sigaction action[64];
};
typedef struct {
	unsigned long sig[1];
} sigset_t;
struct sched_info {
	unsigned long long run_delay;
};
struct task_struct {
	pid_t pid;
	pid_t tgid;
	__u32 __state;
	__u32 flags;
	unsigned int policy;
	__u32 self_exec_id;
	__u32 in_iowait : 1;
	__u64 start_time;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	struct task_struct *parent;
	struct mm_struct *mm;
	struct sched_entity se;
	struct css_set *cgroups;
	char comm[16];
	struct thread_struct thread;
	struct sighand_struct *sighand;
	sigset_t blocked;
	struct seccomp seccomp;
	unsigned int ptrace;
	unsigned long nvcsw;
	unsigned long nivcsw;
	struct sched_info sched_info;
};
struct pt_regs {
	unsigned long r10;
	unsigned long r8;
	unsigned long bp;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long cs;
	unsigned long sp;
};
struct linux_binprm;
struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
};
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/* What a perf_event program gets. On x86-64 the registers come first and the kernel rewrites the
 * accesses, so the full user-visible layout is spelled out and not relocated. */
struct bpf_user_pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax;
	unsigned long ip, cs, flags, sp, ss;
};
/* What a raw tracepoint program gets: the tracepoint's arguments in order. */
struct bpf_raw_tracepoint_args {
	__u64 args[12];
};
struct bpf_perf_event_data {
	struct bpf_user_pt_regs regs;
	__u64 sample_period;
	__u64 addr;
};

#endif
