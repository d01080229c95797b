/*
 * Clients that no task of this machine stands for: they ask over a network, or look at their sockets without ever sleeping. A socket
 * keeps the clock of the thread of the group that last sent on it; what arrives there next is taken to be the reply to that, and
 * who is woken by it has that clock, as if the sender had woken it. Lives here: that clock, what is known of who asks, and what
 * threads are asked to pay that nothing known has woken. Not here: clients that are tasks of this machine and were woken by the
 * group (causal_relay.h).
 * Constraint: a client that asks at times of its own gets a clock, too; from outside nothing tells it from one that waits.
 */
#ifndef WHITHER_CAUSAL_SOCKET_H
#define WHITHER_CAUSAL_SOCKET_H
#include "causal_maps.h"
#include "causal_relay.h"

#define SOCKETS 16384
/* TCP_ESTABLISHED, which connected sockets of other families have as well. */
#define CONNECTED 1
/* TCP_SYN_SENT, TCP_SYN_RECV, TCP_CLOSE, TCP_CLOSE_WAIT, TCP_LAST_ACK */
#define CONNECTING 2
#define ACCEPTING 3
#define CLOSED 7
#define PEER_IS_DONE 8
#define BOTH_ARE_DONE 9
#define TCP 6

struct socket_clock {
	__s64 d;
	__u32 epoch;
	__u32 flags;
};

/* The group asks there. Of TCP: it has connected, and that was seen; on a connection that was there before, who attaches may come upon a
 * request that is being answered, and which end asks is not known. Of others: it sent before anything arrived. */
#define ASKS 1u
/* The group has sent on it. */
#define ANSWERED 2u

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SOCKETS);
	__type(key, __u64);
	__type(value, struct socket_clock);
} sockets SEC(".maps");

/* A connection of TCP begins, or ends: the next socket may have its address. When its peer ends it, who reads from it is woken before
 * the kernel tells of any data: that is as much of a reply to what was sent last as data. */
static void connects(__u64 socket, int before, int state)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	struct socket_clock fresh = {.flags = ASKS};
	struct wh_cz_cpu *cpu = cpu_now();
	int is_over = state == PEER_IS_DONE || (state == CLOSED && before != BOTH_ARE_DONE);
	if (is_over && cpu && cpu->in_softirq) {
		cpu->arrival_of_many = 0;
		cpu->arrival = socket;
	} else if (state == CLOSED || state == ACCEPTING)
		bpf_map_delete_elem(&sockets, &socket);
	else if (state == CONNECTING && bpf_map_lookup_elem(&threads, &tid))
		bpf_map_update_elem(&sockets, &socket, &fresh, BPF_ANY);
}

/* A thread of the group has sent on a socket. */
static void sent(__u64 socket, int is_tcp)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	struct wh_cz_thread *t = bpf_map_lookup_elem(&threads, &tid);
	struct wh_cz_ctl *c = ctl_now();
	if (!t || !c)
		return;
	wh_debt_sync(&t->clock, (__u32)c->epoch);
	struct socket_clock *known = bpf_map_lookup_elem(&sockets, &socket);
	if (known) {
		/* In this order: of a clock whose epoch is an old one nothing is believed. */
		*(volatile __s64 *)&known->d = t->clock.d;
		*(volatile __u32 *)&known->epoch = (__u32)c->epoch;
		*(volatile __u32 *)&known->flags = known->flags | ANSWERED;
		return;
	}
	struct socket_clock fresh = {t->clock.d, (__u32)c->epoch, is_tcp ? ANSWERED : ASKS | ANSWERED};
	bpf_map_update_elem(&sockets, &socket, &fresh, BPF_ANY);
}

/* What woke a thread of the group that no thread of the group has woken. */
struct asked {
	__s64 d;     /* the clock that comes with it */
	__u32 known; /* there is one */
	__u32 from;  /* enum asker */
};
enum asker {
	NO_ASKER = 0, /* no data: a timer, a disk, a signal */
	SOMEBODY = 1,
	ANSWERER = 2, /* whom the group had asked */
	THE_WORLD = 3 /* it sleeps to times that the world sets */
};

static struct asked asked_by(const struct wh_cz_ctl *c, const struct wh_cz_cpu *cpu, __u32 waker_tid, __u32 class)
{
	struct asked a = {};
	__u64 socket = class == WH_CZ_NET && !cpu->in_timer ? cpu->arrival : 0;
	const struct relay *r = relay_of(cpu, waker_tid);
	struct socket_clock *s = socket && !cpu->arrival_of_many ? bpf_map_lookup_elem(&sockets, &socket) : 0;
	if (socket && !s && !cpu->arrival_of_many) {
		struct socket_clock fresh = {};
		bpf_map_update_elem(&sockets, &socket, &fresh, BPF_ANY);
	}
	if (socket)
		a.from = s && s->flags & ASKS ? ANSWERER : r && r->world ? THE_WORLD : SOMEBODY;
	else if (!c->sees_sockets && class == WH_CZ_NET && cpu->in_softirq)
		a.from = SOMEBODY;
	if (r && (r->world || r->epoch == (__u32)c->epoch)) {
		a.known = !r->world;
		a.d = r->d;
	} else if (s && s->flags & ANSWERED) {
		/* R8: an answer of an older window was given at 0. */
		a.known = 1;
		a.d = s->epoch == (__u32)c->epoch ? s->d : 0;
	}
	return a;
}

/* Counts who asks; and what a thread that somebody unknown has woken owes now, if it was not counted already. Had he
 * waited for an answer of the group he would have asked so much earlier. */
static void is_asked(struct wh_cz_thread *t, const struct asked *a, const struct wh_cz_ctl *c, struct wh_cz_cpu *cpu)
{
	cpu->asked += a->from == SOMEBODY || a->from == THE_WORLD;
	cpu->asked_by_world += a->from == THE_WORLD;
	if (a->known || (a->from != SOMEBODY && a->from != ANSWERER))
		return;
	cpu->asked_unknown++;
	__s64 from = t->told_epoch == (__u32)c->epoch && t->told_d > t->clock.d ? t->told_d : t->clock.d;
	if (c->g <= from)
		return;
	cpu->unknown_debt += c->g - from;
	t->told_d = c->g;
	t->told_epoch = (__u32)c->epoch;
}

#endif
