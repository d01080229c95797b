/*
 * What the agent's files share: its global words, the private memory of a thread, the calls between
 * the files. Constraint: everything a handler touches is either in the shared segment (one writer per
 * block, see whither_agent.h) or in private memory that a forked child finds wiped.
 */
#ifndef WH_AGENT_INTERNAL_H
#define WH_AGENT_INTERNAL_H

#include "offsets.h"
#include "sys.h"

/* From a return slot to its shadow; the unwind description of entry.S holds the same number. Not a multiple of 2^28: at 2^44
 * exactly an exit took 19 ns on Zen 4, and with 64 KiB more 15. (AMD's first-level cache guesses the way of a line by a hash
 * of bits 12 to 27 of its address, so that two lines with equal bits may throw each other out; that this is why was not shown.) */
#define WH_SHADOW (-0x100000000000ll + 0x10000)
_Static_assert(WH_SHADOW & 0xffff000, "a slot and its shadow would share a place in caches");
#define BLOCK_BYTES 0x10000ull
#define SHADOW_SET 65536u

/* The agent's own code. */
exported extern const char wh_code_begin[], wh_code_end[];

/* Registers as entry.S saved them. */
struct regs {
	u64 r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax;
};

/* What an entry answers to entry.S: where to go on, and by which place of wh_exits; 0: leave the return slot alone. */
struct answer {
	u64 to;
	u64 exit;
};

/* Brackets of an update that readers see whole or not at all: an odd number, then the next even one. A
 * handler left by siglongjmp in between leaves an odd number behind, which the next update takes up. */
static inline void update_begin(u32 *seq)
{
	*(volatile u32 *)seq |= 1;
	barrier();
}

static inline void update_end(u32 *seq)
{
	barrier();
	*(volatile u32 *)seq |= 1; /* a signal handler's update in between has made it even */
	*(volatile u32 *)seq += 1;
}

struct global {
	char *segment;     /* 0 before wh_start and after wh_stop */
	u64 cookie;        /* tells this life of the agent from one before an exec */
	u32 way;           /* wh_start.way */
	u32 fsgsbase;      /* way 2: the thread pointer can be read by an instruction */
	u32 locked;        /* the program forbids itself system calls: the agent makes none any more */
	u32 pid;           /* of the process that was asked in */
	s32 often;         /* after so many entries: look at the heartbeat, and in way 2 at the thread id */
	u64 fast;          /* `segment` while fast.c may do its part: way 1, not locked; else 1, which no segment is */
	u64 near_end, end; /* of the first thread's stack: a little above the lowest address that it may grow to, and that; 0: not known */
};
extern struct global G;

/* A stack of the thread. Slots in [lo, hi) have their shadow (or none can be had); words in [lo, top)
 * can be read. Both grow when needed. */
struct stack {
	u64 lo, hi, top;
	u64 lasting;                /* its end, where it stays as long as its thread; 0: the program may unmap what lies around the frames */
	u32 no_shadow;
	u32 first, count;           /* its calls in progress stand together, see active.c; of the one in use `first` alone holds */
};
#define STACKS 16384u
#define FEW_STACKS 8u               /* so many are looked through */
#define STACK_PLACES 65536u

static inline int is_on(const struct stack *s, u64 slot)
{
	return slot - s->lo < s->hi - s->lo;
}

/* Sites met, by return address; paths met, by a hash of their frames. Both only spare a search. */
#define KNOWN 4096u
#define CACHE 8192u
struct known {
	u64 ra;
	u32 site, rule;
};
/* Words asked for at once. */
#define FAR 512u
/* Active records beyond WH_ACTIVE, in chunks. */
#define CHUNK 65536u
#define CHUNKS 64u
#define MAX_WORDS 16u

/* Templates: whole paths met before, compared with the stack without following them frame by frame.
 * A shape is where the words lie, seen from the slot; a template which values they had. */
#define WORDS 72u /* the usual limit of a path, 64, and its end */
#define SHAPES 512u
#define TEMPLATES 2048u
#define ROOM 80u /* a caller found by a frame pointer takes two: some 40 of them */
struct shape {
	u64 ra;                     /* of the innermost frame */
	u32 point;
	u32 serial;                 /* templates of another serial belong to another shape; 0 = unused */
	u32 words;                  /* a multiple of 4: the last are repeated */
	u32 spare;
	u64 reach;                  /* bytes from the slot that are read */
	u32 offset[WORDS];
};
struct template {
	u32 serial;
	u32 path;                   /* with WH_FOLDED and UNSEEN */
	u32 relatives;
	u32 join_path;              /* the innermost call in progress must have this path, */
	u64 join;                   /* its slot being so far away; 0 = no join */
	u64 live;                   /* rbp - slot at entry, if a rule used it; ~0 = none did */
	u64 room[ROOM];             /* the words' values from the front; from the back the relatives: */
} __attribute__((aligned(64)));

/* A saved frame pointer that a rule used: where it is and where it points, both seen from the slot. */
struct relative {
	u32 offset;
	s32 value;
};

static inline struct relative relative(const struct template *t, u32 i)
{
	struct relative r;

	__builtin_memcpy(&r, &t->room[ROOM - 1 - i], sizeof r);
	return r;
}

/* What a walk has seen, to make a template of. */
struct trace {
	u32 usable;
	struct shape shape;
	struct template template;
};

/* What template_search has found. It may be overwritten: it was not if local.learnt is still `learnt`. */
struct match {
	const struct shape *shape;
	const struct template *template;
	u32 learnt;
};

/* What quick entries know of an ordinary call at a return slot: all that must be as it was then for the
 * path to be the same, by address and value. Filled while `slot` is 0. */
#define WAYS 2u /* at each place: a call site that two paths take in turns was learnt anew at each turn, 130 ns on Zen 4 */
#define HOT_WORDS 72u /* a multiple of 4 */
/* By its address: a signal handler's call may fill an entry anew amid the comparing, and a distance of that
 * filling would lead from this call's frame to where there may be no memory. */
struct word {
	const u64 *at;
	u64 value;
};
struct hot {
	struct word word[HOT_WORDS]; /* the last `words` of them, from the slot outwards */
	u64 slot, ra;
	u32 point;                  /* with HOT_JOINED */
	u32 serial;                 /* another for each filling */
	u64 key;                    /* `counter` and `serial` in one */
	u64 gate;                   /* state and flags of the point */
	u64 code;                   /* where entry.S compares so many words */
	u64 relocated;              /* of the point */
	u64 top_slot;               /* innermost call in progress, 0 when there was none */
	u32 top_path;
	u32 words;                  /* `varied`: a multiple of 4, the last is repeated */
	u64 record;                 /* path and point as a record holds them */
	u64 block;                  /* of the path, from the segment's start, with HOT_ bits */
	u64 *counter;               /* its calls */
	u64 owner;                  /* slot ^ ra of who filled it */
	u64 calls;                  /* of the block at that time */
	u64 exit;                   /* start of the place of wh_exits for `ra` */
	u16 skip, left;             /* the path is another each time: fillings to be left out, still */
	u32 varied;                 /* the values are those of variants[], found by a hash of the words */
} __attribute__((aligned(256))); /* 5 * 256 bytes: no power of two */
/* What is to be kept in one of them; its words stand here. */
struct fresh {
	struct hot hot;
	struct word word[HOT_WORDS];
	u32 real;                   /* words that are not repeated */
};
/* The values of one path through a call site that is reached by many. */
#define VARIANTS 1024u
struct variant {
	u32 owner;                  /* `serial` of the hot entry; 0 while it is filled */
	u32 serial;                 /* another for each filling */
	u64 record, block;          /* as in the entry */
	u64 value[HOT_WORDS];
} __attribute__((aligned(64)));
/* In wh_active.major of a record with HOT_OURS: its block, a multiple of 64, and what its exit has to do, by the bits of offsets.h.
 * A record that slow handlers have made holds major faults there, shifted, and none of those bits.
 * Of such a record that slow handlers have made: `usage` holds WH_LOST_APART at its entry. In one with HOT_TIMED it does, too. */
#define APART_NOTED 16u
#define MAJOR_SHIFT 6

/* Private memory of a thread, zeroed by the kernel in a forked child: `home` then says that nothing in
 * it holds. It goes on to the thread that takes over the block. */
struct local {
	char *home;                 /* segment of `block`; not G.segment: join first */
	struct wh_thread *block;
	u32 enabled;                /* 1: as in the header, where it is followed by */
	u32 generation;             /* header.generation that known, cache and templates belong to */
	s32 credit;                 /* entries left until the heartbeat is looked at */
	u32 clock_seen;
	u64 deadline;               /* TSC from which on the heartbeat must be looked at; 0 while deaf */
	volatile u32 *clock;        /* word that changes with each scheduling; 0 = not set up */
	u64 pending;                /* cpu0 of a record whose t0 belongs to this anchor: even, another for each */
	u8 way[HOTS];               /* which of hot[] served last */
	u8 filled[HOTS];            /* whether one of them was filled */
	struct hot hot[HOTS][WAYS];
	struct stack stack;         /* the one in use */
	u32 stack_now, stack_next;  /* its place in stacks[]; place to be used next, modulo STACKS */
	u32 tidy_at;                /* so many records and holes among them are made dense */
	u32 deaf;                   /* the controller has not been heard for too long */
	u32 strict;                 /* not even the time stamp counter may be read: nothing is recorded */
	u32 no_clock;               /* what `clock` points to where there is none */
	u32 asks;                   /* readings of the thread clock left until an event is opened for it */
	u32 more_page, more_used;   /* page that wh_more blocks are taken from */
	u64 cpu_ns, cpu_ticks;      /* anchor: CPU time at a TSC value */
	u64 checked;                /* way 2: when the thread id was last compared */
	u64 (*words)[MAX_WORDS];    /* captured words of active[i], for event records; of events, see events.c */
	u64 event[WH_EVENTS];       /* pages of the processor's counters; 0 not opened yet, 1 refused */
	struct wh_active *chunk[CHUNKS];
	struct stack stacks[STACKS];
	u16 stack_place[STACK_PLACES]; /* by page of a slot: which stack it was found on last, + 1; used beyond FEW_STACKS */
	u32 serial, misses;
	u32 learning, learning_seen; /* hot_learn is at it, as this serial; the same when recheck last looked */
	u64 learning_since;         /* TSC */
	u32 learnt;                 /* templates written or forgotten so far */
	struct trace trace;
	struct known known[KNOWN];
	u32 cache[CACHE];
	u64 far[FAR], far_at;       /* words of the stack that the walk under way has asked for, from there on */
	u32 far_words;
	u32 frames[WH_MOST_DEPTH];  /* of the walk under way, innermost first, without FIRST and LAST */
	struct shape shapes[SHAPES][2];
	struct template templates[TEMPLATES];
	struct fresh fresh;
	struct variant variants[VARIANTS];
};

/* Whether the word at `address`, further out than `slot`, can be read whatever has become of the frames there. */
static inline int lasts(const struct local *l, u64 slot, u64 address)
{
	return address + 8 <= l->stack.lasting || (slot ^ address) < PAGE;
}

/* From the slot in use up to here all can be read, whatever has become of the frames there. */
static inline u64 surely_up_to(const struct local *l, u64 slot)
{
	return l->stack.lasting ? l->stack.lasting : (slot | (PAGE - 1)) + 1;
}

/* 0 stands for none. */
static inline u32 next_serial(struct local *l)
{
	u32 serial = ++l->serial;

	return likely(serial) ? serial : ++l->serial;
}

/* exits.c, and its places in entry.S */
#define WH_EXITS EXITS
#define EXIT_BYTES (1u << EXIT_SHIFT)
extern const char wh_exits[];
extern u64 wh_returns[WH_EXITS];
u64 exit_for(u64 ra);

static inline u64 exit_start(u32 index)
{
	return (u64)wh_exits + (u64)index * EXIT_BYTES;
}

/* Whether a return address leads to one of them: the exit of the call is seen. */
static inline int is_exit(u64 ra)
{
	return ra - (u64)wh_exits < (u64)WH_EXITS * EXIT_BYTES;
}

static inline u64 exit_index(u64 ra)
{
	return (ra - (u64)wh_exits) >> EXIT_SHIFT;
}

/* Where a call goes on that returns by that place, at `slot`. */
static inline u64 returns_to(u64 index, u64 slot)
{
	return likely(wh_returns[index]) ? wh_returns[index] : *(const u64 *)(slot + WH_SHADOW);
}

static inline struct wh_header *header(void)
{
	return (struct wh_header *)G.segment;
}

static inline struct wh_point *point_at(u64 index)
{
	return (struct wh_point *)(G.segment + WH_AT_POINTS) + index;
}

static inline struct wh_site *site_at(u32 index)
{
	return (struct wh_site *)(G.segment + WH_AT_SITES) + index;
}

static inline u32 *path_frame(u32 path)
{
	return (u32 *)(G.segment + WH_AT_PATH_FRAMES) + path;
}

static inline u32 *path_link(u32 path)
{
	return (u32 *)(G.segment + WH_AT_PATH_LINKS) + path;
}

static inline u16 *path_point(u32 path)
{
	return (u16 *)(G.segment + WH_AT_PATH_POINTS) + path;
}

/* A frame of the walk: its site, and whether frame pointers led to it. */
#define BY_FP 0x80000000u

/* thread.c */
struct own {
	struct local *local;
	struct wh_thread *block;    /* local->block, once local->home is set */
};
extern __thread struct own wh_own __attribute__((tls_model("initial-exec"), visibility("hidden")));
struct local *local_by_base(void);
struct local *thread_join(void);
int same_thread(struct local *l);
void count_lost(enum wh_lost cause);
int outsider(void);

static inline struct local *local_of_thread(void)
{
	return likely(G.way == 1) ? wh_own.local : local_by_base();
}

/* maps.c */
void *map_own(u64 bytes);
int map_listed(u64 address, u32 pid);
void unmap_own(u64 address, u64 bytes);

/* shadow.c */
s32 stack_of(struct local *l, u64 slot);
int stack_enter(struct local *l, u64 slot, u64 rbp);
u64 slot_around(const struct local *l, u64 slot, u32 rule, u64 *rbp);
#define MOST_STEPS 64u /* of a walk that is not for a path */
int outlying(struct local *l, u64 at, u64 *word);
u64 thread_pointer(void);
void stack_reserve(struct local *l);
int is_roomy(void);
int untouched_is_free(u64 fresh);
void shadows_ahead(u64 mapped);

/* What was done since `began` is no part of an ordinary call's cost. */
static inline void spent_apart(struct local *l, u64 began)
{
	l->block->lost[WH_LOST_APART] += ticks() - began;
}

/* mark.c */
#define BUSY_SHIFT 28 /* 2^28 ticks, about 100 ms: no one stays in the agent that long */
int entry_inside(struct local *l, u64 slot, u64 rbp);
int exit_inside(struct local *l, u64 slot);

/* Ticks that calls inside of `r` have cost apart, of which the program knows nothing. */
static inline u64 apart_since(const struct wh_thread *t, const struct wh_active *r)
{
	return t->lost[WH_LOST_APART] - r->usage;
}

/* Without them. More than there is are another thread's: the record has come from there. */
static inline u64 without_apart(u64 wall, u64 apart)
{
	return likely(apart < wall) ? wall - apart : wall;
}

/* active.c */
struct wh_active *record_slow(struct local *l, u32 index);
void records_leave(struct local *l);
void records_join(struct local *l);
void drop_stale(struct local *l, u64 slot);
int take_record(struct local *l, u64 slot, struct wh_active *out);
struct wh_active *find_record(struct local *l, u64 slot);
int in_progress(struct local *l, u32 path);

static inline struct wh_active *record(struct local *l, u32 index)
{
	return likely(index < WH_ACTIVE) ? &l->block->active[index] : record_slow(l, index);
}

/* With a path that was found: the caller is such that its exit must be left alone (WH_RULE_FOREIGN). No record has it. */
#define UNSEEN 0x40000000u

/* path.c, walk.c: `WH_FOLDED | id` when the call is counted in a path it is itself part of. */
u32 path_of_frames(struct local *l, const struct wh_point *p, u32 point, u32 root, u32 n);
u32 find_path(struct local *l, const struct wh_point *p, u32 point, u64 slot, u64 rbp);
u32 unseen_from(struct local *l, u64 ra);

/* The point's own path; 0 when the controller has not given it one. */
static inline u32 root_path(const struct wh_point *p)
{
	return likely(p->root < WH_MAX_PATHS) ? p->root : 0;
}

/* template.c */
u32 template_search(struct local *l, u32 point, u64 slot, u64 rbp, struct match *match);
void template_learn(struct local *l, u32 point, u64 slot, u32 path);
void templates_forget(struct local *l);

/* rules.c */
u32 rule_of(u64 ra);
u32 rule_of_caller(u64 ra);
int plausible(u64 ra);
int big_step(u32 rule, u64 slot, u64 *rbp, u64 low, u64 top, u64 *next);

static inline int is_foreign(u32 rule)
{
	u32 plain = rule & ~WH_RULE_FRAMED;

	return plain == (WH_RULE_NONE | WH_RULE_FOREIGN) || plain == (WH_RULE_FP | WH_RULE_FOREIGN);
}

/* Whether a caller is known to be none whose exits must be left alone. */
static inline int is_native(const struct local *l, u64 ra)
{
	const struct known *known = &l->known[(u32)(ra * 0x9e3779b97f4a7c15ull >> 40) % KNOWN];

	return known->ra == ra && !is_foreign(known->rule);
}

/* block.c */
struct wh_block *block_new(struct local *l, u32 path);
struct wh_more *more_of(struct local *l, struct wh_block *b);

static inline struct wh_block *block_of(struct local *l, u32 path)
{
	u32 page = l->block->directory[path / 64];

	if (unlikely(!page))
		return block_new(l, path);
	return (struct wh_block *)(G.segment + WH_AT_PAGES + (u64)page * PAGE) + path % 64;
}

/* pool.c */
struct local *pool_take(void);

/* clock.c */
int clock_anchor(struct local *l);

static inline int clock_anchored(const struct local *l)
{
	return l->clock && *l->clock == l->clock_seen;
}

static inline u64 ns_of(const struct wh_header *h, u64 t)
{
	u64 mult = h->tsc_mult;

	if (likely(!((t | mult) >> 32))) /* a multiplication and a shift less */
		return t * mult >> (h->tsc_shift & 63);
	return (u64)((unsigned __int128)t * mult >> h->tsc_shift);
}

/* Place of a call of so many ticks in wh_more.hist. */
static inline u32 bin_of(const struct wh_header *h, u64 wall)
{
	u64 inside = h->cost_inside;

	return 63u - (u32)__builtin_clzll(ns_of(h, wall > inside ? wall - inside : 0) | 1);
}

static inline u64 ticks_to_ns(u64 t)
{
	return ns_of(header(), t);
}

/* An anchor set so shortly after `now` tells of the time before it: hardly anybody is scheduled in between and back, and
 * then it is off by no more than that. */
#define SHORTLY (1 << 14) /* ticks */

static inline u64 clock_cpu(const struct local *l, u64 now)
{
	s64 since = (s64)(now - l->cpu_ticks);

	if (likely(since > 0))
		return l->cpu_ns + ticks_to_ns((u64)since);
	return since > -SHORTLY ? l->cpu_ns - ticks_to_ns((u64)-since) : l->cpu_ns;
}

/* CPU time when a call was entered, 0: not known. Right until the next anchor is set. */
static inline u64 clock_at_entry(const struct local *l, const struct wh_active *r)
{
	if (r->cpu0 & 1)
		return r->cpu0;
	return r->cpu0 && r->cpu0 == l->pending ? clock_cpu(l, r->t0) | 1 : 0;
}

/* learn.c */
void hot_learn(struct local *l, u32 flags, u32 point, u64 slot, u64 rbp, u32 found, const struct match *match);
void hot_forget(struct local *l);

static inline const struct wh_extra *extra_at(const struct wh_point *p, u32 i)
{
	return (const struct wh_extra *)(G.segment + WH_AT_EXTRAS) + p->extras + i;
}

static inline u32 extras(const struct wh_point *p)
{
	u32 n = p->n_extras < MAX_WORDS ? p->n_extras : MAX_WORDS;

	return p->extras && p->extras + n <= WH_MAX_EXTRAS ? n : 0;
}

/* events.c */
void events_at_entry(struct local *l, const struct wh_point *p, u32 index, int counts);
void events_at_exit(struct local *l, const struct wh_point *p, u32 index, struct wh_block *b);
void events_drop(struct local *l);

/* record.c */
u64 read_asking(const struct local *l, u64 at, void *to, u64 bytes);
void values_at_entry(struct local *l, const struct wh_point *p, u32 index, u64 slot, const struct regs *regs,
		     struct wh_block *b);
void values_at_exit(const struct wh_point *p, u64 ret, struct wh_block *b);
void emit(struct local *l, const struct wh_point *p, const struct wh_active *r, u32 index, u64 end, u64 ret);
void usage_now(u64 *usage, u64 *major);

/* start.c */
void loader_changed(void);

/* lock.c */
void before_lock(const struct wh_point *p, u64 slot, const struct regs *regs);

#endif
