/*
 * Stops a process that has the agent, or a child it has forked, when it has executed another program:
 * SIGSTOP to itself at sched_process_exec, so before the program's first instruction. The controller is
 * told and takes it from there. Nobody is stopped who is traced by somebody else or whom the controller cannot be told of, and the programs
 * go with the controller.
 */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define SIGSTOP 19

/* What the controller reads: three words. */
struct wh_followed {
	__u32 pid;
	__u32 parent; /* who has made it; 0 = it has executed a program */
	__u32 error;  /* error number when it could not be stopped */
};

#define STOP 1  /* it shares an agent: stop it when it executes something, tell of its children */
#define COUNT 2 /* it is traced: only its processor time is wanted */

/* Processes of the tree, and what is wanted of them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u32);
} tracked SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} events SEC(".maps");

/* Processes that were stopped, until the controller has them: whoever outlives it lets them go on. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u32);
} stopped SEC(".maps");

/* Processor time of the threads of a process that have ended, in nanoseconds. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u64);
} used SEC(".maps");

/* Threads of a process that have ended, and how long they lived: those of a server that makes one for each request
 * live between two looks at /proc. */
struct wh_lived {
	__u64 since;   /* what was before does not count; 0 = counts from its birth */
	__u64 ns;
	__u64 threads;
	__u64 ran;     /* of their CPU time, and of the time they waited for a CPU: 0 where the kernel does not note it */
	__u64 queued;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct wh_lived);
} lived SEC(".maps");

/* Programs executed that the controller could not be told of. */
__u64 wh_missed;
/* The controller: whom it traces itself it may stop. */
__u32 wh_controller;

#define EBUSY 16

SEC("tp_btf/sched_process_fork")
int wh_fork(__u64 *args)
{
	struct task_struct *parent = (void *)args[0], *child = (void *)args[1];
	__u32 from = BPF_CORE_READ(parent, tgid), to = BPF_CORE_READ(child, tgid);
	if (from == to)
		return 0;
	__u32 *wanted = bpf_map_lookup_elem(&tracked, &from);
	if (!wanted) {
		bpf_map_delete_elem(&tracked, &to);
		return 0;
	}
	__u32 copy = *wanted;
	bpf_map_delete_elem(&used, &to);
	struct wh_lived none = {};
	bpf_map_update_elem(&lived, &to, &none, BPF_ANY);
	if (bpf_map_update_elem(&tracked, &to, &copy, BPF_ANY))
		__sync_fetch_and_add(&wh_missed, 1);
	if (copy != STOP)
		return 0;
	struct wh_followed *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	/* Without it the child is found in the tables, at its first call. */
	if (event) {
		event->pid = to;
		event->parent = from;
		event->error = 0;
		bpf_ringbuf_submit(event, 0);
	}
	return 0;
}

SEC("tp_btf/sched_process_exec")
int wh_exec(__u64 *args)
{
	struct task_struct *task = (void *)args[0];
	__u32 tgid = BPF_CORE_READ(task, tgid);
	__u32 *wanted = bpf_map_lookup_elem(&tracked, &tgid);
	if (!wanted || *wanted != STOP)
		return 0;
	*wanted = COUNT;
	struct wh_followed *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&wh_missed, 1);
		return 0;
	}
	event->pid = tgid;
	event->parent = 0;
	/* A debugger would be told of our signals. While a thread is traced, its tracer stands where the parent did. */
	if (BPF_CORE_READ(task, ptrace) && BPF_CORE_READ(task, parent, tgid) != wh_controller) {
		event->error = EBUSY;
		bpf_ringbuf_submit(event, 0);
		return 0;
	}
	bpf_map_update_elem(&stopped, &tgid, &tgid, BPF_ANY);
	event->error = -bpf_send_signal(SIGSTOP);
	bpf_ringbuf_submit(event, 0);
	return 0;
}

static void add_life(struct task_struct *task, __u32 tgid)
{
	struct wh_lived *sum = bpf_map_lookup_elem(&lived, &tgid);
	if (!sum)
		return;
	__u64 start = BPF_CORE_READ(task, start_time);
	__u64 now = bpf_ktime_get_ns(), from = start > sum->since ? start : sum->since;
	if (now > from)
		__sync_fetch_and_add(&sum->ns, now - from);
	__sync_fetch_and_add(&sum->threads, 1);
	if (bpf_core_field_exists(task->sched_info.run_delay)) {
		__sync_fetch_and_add(&sum->ran, BPF_CORE_READ(task, se.sum_exec_runtime));
		__sync_fetch_and_add(&sum->queued, BPF_CORE_READ(task, sched_info.run_delay));
	}
}

/* Each thread as it ends: nobody can ask for its time when its parent has waited for it. */
SEC("tp_btf/sched_process_exit")
int wh_exit(__u64 *args)
{
	struct task_struct *task = (void *)args[0];
	__u32 tgid = BPF_CORE_READ(task, tgid);
	if (!bpf_map_lookup_elem(&tracked, &tgid))
		return 0;
	add_life(task, tgid);
	__u64 zero = 0, time = BPF_CORE_READ(task, se.sum_exec_runtime), *sum = bpf_map_lookup_elem(&used, &tgid);
	if (!sum) {
		bpf_map_update_elem(&used, &tgid, &zero, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&used, &tgid);
	}
	if (sum)
		__sync_fetch_and_add(sum, time);
	return 0;
}

/* The number may become another process's. */
SEC("tp_btf/sched_process_free")
int wh_free(__u64 *args)
{
	struct task_struct *task = (void *)args[0];
	__u32 tid = BPF_CORE_READ(task, pid), tgid = BPF_CORE_READ(task, tgid);
	if (tid == tgid)
		bpf_map_delete_elem(&tracked, &tgid);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
