/*
 * Delays that are slept instead of spun, for the kernel side of the causal profiler. Lives here: whether the
 * running thread can be asked to sleep, the request, what its nap has paid. The nap itself is made by a handler
 * in the target that does nothing else: it sleeps for as many nanoseconds as the signal carries.
 * Constraints: a signal is sent only where it cannot do harm: to the running thread, while it is in user mode
 * (so that no system call is interrupted), does not block that signal, is not traced, has no filter on its
 * system calls, and only while the kernel's own table says that the handler is ours. It is then delivered
 * before the thread's next instruction.
 */
#ifndef WHITHER_CAUSAL_NAP_H
#define WHITHER_CAUSAL_NAP_H

#include "causal_time.h"

/* Debts below this wait for more: a nap is some ten microseconds longer than it should be. */
#define LEAST_NAP_NS 50000ull
/* Longest one. */
#define MOST_NAP_NS 4000000ull
/* A request that led to no nap in this time went astray. */
#define ASTRAY_NS 20000000ull
#define CLOCK_NANOSLEEP 230

/* Its parameters must have the kernel's types in kind: with a number in place of the enumeration the loader takes
 * the function for missing, and says nothing since it is weak. */
enum pid_type {
	PIDTYPE_PID,
};
extern int bpf_send_signal_task(struct task_struct *task, int sig, enum pid_type type, __u64 value) __ksym __weak;

/* Whether a signal finds our handler and nothing else in the way. */
static int has_napper(struct task_struct *task, const struct wh_cz_process *p, __u32 signal)
{
	__u64 bit = 1ull << ((signal - 1) & 63), handler = 0;
	if (BPF_CORE_READ(task, blocked.sig[0]) & bit || BPF_CORE_READ(task, ptrace))
		return 0;
	if (bpf_core_field_exists(task->seccomp) && BPF_CORE_READ(task, seccomp.mode))
		return 0;
	__u64 at = (__u64)BPF_CORE_READ(task, sighand);
	if (!at)
		return 0;
	at += bpf_core_field_offset(struct sighand_struct, action);
	at += ((signal - 1) & 63) * (__u64)bpf_core_type_size(struct k_sigaction);
	return !bpf_probe_read_kernel(&handler, sizeof(handler), (void *)at) && handler == p->napper;
}

/* Asks the running thread to sleep what it owes. 0: it cannot; it has to spin. */
static int naps(struct wh_cz_thread *t, const struct wh_cz_ctl *c, struct wh_cz_cpu *cpu, __u64 owed, __u64 now)
{
	__u32 tgid = t->tgid, signal = c->nap_signal;
	if (!signal || signal > 64 || !bpf_ksym_exists(bpf_send_signal_task))
		return 0;
	struct wh_cz_process *p = bpf_map_lookup_elem(&processes, &tgid);
	struct task_struct *task = bpf_get_current_task_btf();
	if (!p || !p->napper || !has_napper(task, p, signal))
		return 0;
	if (t->nap == WH_CZ_ASKED && now - t->nap_from < ASTRAY_NS)
		return 1;
	if (owed < LEAST_NAP_NS || is_realtime(task) || !cpu->worth)
		return 1;
	__u64 ask = owed * 1024 / cpu->worth;
	if (bpf_send_signal_task(task, signal, PIDTYPE_PID, ask < MOST_NAP_NS ? ask : MOST_NAP_NS))
		return 0;
	t->nap = WH_CZ_ASKED;
	t->nap_from = now;
	t->nap_epoch = (__u32)c->epoch;
	return 1;
}

/* Whether a thread that blocks does so in the handler. */
static int falls_asleep(struct wh_cz_thread *t, const struct pt_regs *regs)
{
	__u32 tgid = t->tgid;
	if (t->nap != WH_CZ_ASKED || (__s64)regs->orig_ax != CLOCK_NANOSLEEP)
		return 0;
	struct wh_cz_process *p = bpf_map_lookup_elem(&processes, &tgid);
	if (!p || regs->ip - p->napper >= WH_CZ_NAPPER)
		return 0;
	t->nap = WH_CZ_ASLEEP;
	return 1;
}

/* A nap is over: all of it was delay, from the request on. */
static void wakes_up(struct wh_cz_thread *t, const struct wh_cz_ctl *c, struct wh_cz_cpu *cpu, __u64 now)
{
	__u64 slept = now - t->nap_from;
	t->nap = WH_CZ_AWAKE;
	if (t->nap_epoch != (__u32)c->epoch || (__s64)slept < 0)
		return;
	wh_debt_paid(&t->clock, slept * cpu->worth / 1024);
	cpu->inserted += slept;
	cpu->slept += slept;
}

#endif
