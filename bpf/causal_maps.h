/*
 * Tables of the causal profiler's kernel side, and how its programs reach the words of their CPU. The
 * mappable ones are read and written by user space without a system call.
 */
#ifndef WHITHER_CAUSAL_MAPS_H
#define WHITHER_CAUSAL_MAPS_H
#include "../include/whither_causal.h"

/* Set before loading: rows - 1, a power of two. */
const volatile __u32 wh_rows_mask = 0xffff;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct wh_cz_ctl);
} ctl SEC(".maps");

/* By CPU; sized before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct wh_cz_cpu);
} cpus SEC(".maps");

/* By CPU and point; sized before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WH_CZ_POINTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct wh_cz_visits);
} visits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WH_CZ_LAYOUTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct wh_cz_layout);
} layouts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WH_CZ_MODULES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct wh_cz_module);
} modules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WH_CZ_MARKS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct wh_cz_mark);
} marks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct wh_row);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WH_CZ_RULES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct wh_rule);
} rules SEC(".maps");

/* Point + 1 of a system call; sys_exit is watched only while one is set. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WH_CZ_SYSCALLS);
	__type(key, __u32);
	__type(value, __u32);
} calls SEC(".maps");

/* Preallocated: entries are made and found where nothing may be allocated. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, WH_CZ_THREADS);
	__type(key, __u32);
	__type(value, struct wh_cz_thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, WH_CZ_PROCESSES);
	__type(key, __u32);
	__type(value, struct wh_cz_process);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} records SEC(".maps");

/* A thread's slot is too large for the stack of a program. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wh_cz_thread);
} blank SEC(".maps");

static struct wh_cz_ctl *ctl_now(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&ctl, &zero);
}

static struct wh_cz_cpu *cpu_now(void)
{
	__u32 number = bpf_get_smp_processor_id();
	return bpf_map_lookup_elem(&cpus, &number);
}

static struct wh_cz_thread *fresh_thread(void)
{
	__u32 zero = 0;
	struct wh_cz_thread *t = bpf_map_lookup_elem(&blank, &zero);
	if (t)
		__builtin_memset(t, 0, sizeof(*t));
	return t;
}

#endif
