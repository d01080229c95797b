/*
 * Programs that are not measured and through which threads of the group wait for one another: clients that ask again when they have
 * their answer, servers that are asked. A thread of another process that a thread of the group, or another such one, has woken
 * keeps that one's clock, and hands it on when it wakes the group: what it waited for came earlier in virtual time, so what it does next
 * does, too. It is never delayed itself. Constraint: only what wakes in its own system call hands on; kernel threads and
 * interrupts do not, and who sleeps until a time that the world sets (a beat) waits for nobody.
 */
#ifndef WHITHER_CAUSAL_RELAY_H
#define WHITHER_CAUSAL_RELAY_H
#include "causal_maps.h"
#include "causal_time.h"
#include "causal_walk.h"

/* PF_KTHREAD: much of what they do is done for the program. */
#define KERNEL_THREAD 0x200000u
#define RELAYS 4096

struct relay {
	__s64 d;
	__u32 epoch;
	__u32 world; /* it has slept to a time that the world sets since it was last woken by anybody */
	struct wh_deadline deadline;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, RELAYS);
	__type(key, __u32);
	__type(value, struct relay);
} relays SEC(".maps");

/* Whether the running thread wakes others by its own system call; in a software interrupt: by what it is sending. */
static int wakes_itself(const struct wh_cz_cpu *cpu)
{
	if (cpu->in_timer || cpu->in_device)
		return 0;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	__s64 call = (__s64)regs->orig_ax;
	return cpu->in_softirq ? sends(call) : call >= 0;
}

/* What is known of the running thread, which is not one of the group's, where it wakes somebody. */
static const struct relay *relay_of(const struct wh_cz_cpu *cpu, __u32 tid)
{
	const struct relay *r = bpf_map_lookup_elem(&relays, &tid);
	return r && wakes_itself(cpu) ? r : 0;
}

/* A thread that is not one of the group's leaves its core. Sleeps that are no beat may be thinking (Python sleeps until now and
 * so much), for as long as a die says: then nobody knows whether it waits for the group, as with sleeps of a length. */
static void passes_time(struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	if (task->flags & KERNEL_THREAD || regs->orig_ax != 230 || !(regs->si & 1) || !task->__state)
		return;
	__s64 until[2];
	__u32 tid = task->pid;
	if (bpf_probe_read_user(until, sizeof(until), (const void *)regs->dx))
		return;
	__u64 at = until[0] * 1000000000ll + until[1];
	struct relay fresh = {.deadline = {.at = at}}, *r = bpf_map_lookup_elem(&relays, &tid);
	if (r) {
		r->world = wh_debt_is_on_the_beat(&r->deadline, at);
		r->deadline.step = at - r->deadline.at;
		r->deadline.at = at;
	} else {
		bpf_map_update_elem(&relays, &tid, &fresh, BPF_ANY);
	}
}

/* A thread of another process is woken. */
static int passes_on(struct task_struct *task, __u32 waker_tid)
{
	struct wh_cz_ctl *c = ctl_now();
	struct wh_cz_cpu *cpu = cpu_now();
	if (!c || !cpu || !task || c->state != WH_CZ_ON)
		return 0;
	if (!wakes_itself(cpu))
		return 0;
	__u32 tid = task->pid;
	struct relay fresh = {.epoch = (__u32)c->epoch}, *known = bpf_map_lookup_elem(&relays, &tid);
	if (known)
		fresh.deadline = known->deadline;
	struct wh_cz_thread *w = bpf_map_lookup_elem(&threads, &waker_tid);
	if (w) {
		wh_debt_sync(&w->clock, (__u32)c->epoch);
		fresh.d = w->clock.d;
	} else {
		const struct relay *r = bpf_map_lookup_elem(&relays, &waker_tid);
		if (!r || r->epoch != fresh.epoch)
			return 0;
		fresh.d = r->d;
	}
	bpf_map_update_elem(&relays, &tid, &fresh, BPF_ANY);
	return 0;
}

#endif
