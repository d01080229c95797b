/*
 * Words of the causal profiler's back end without BPF: a region of the agent's segment, mirrored in crate abi. Lives
 * here: what a window speeds up, the clocks of the threads, what ticks and visits left behind. The rules of virtual
 * time are those of whither_debt.h; states, units, marks and visits are those of whither_causal.h.
 * The controller writes ctl (but for the words marked "agent"), marks and scopes; a thread writes its own slot, and
 * whoever wakes it the words of a grant. Times are ns of the TSC, by the factor in the segment's header.
 */
#ifndef WHITHER_PACE_H
#define WHITHER_PACE_H
#include "whither_causal.h"

#define WH_PACE_SLOTS 4096u
#define WH_PACE_INDEX 16384u  /* power of two */
#define WH_PACE_CPUS 1024u
#define WH_PACE_MARKS 8192u
#define WH_PACE_SCOPES 16384u
#define WH_PACE_RECORDS 8192u /* power of two */

struct wh_pace_ctl {
	wh_u64 state; /* enum wh_cz_state */
	wh_u64 beat;  /* ticks of the TSC */
	wh_u64 silence; /* a beat older than so many ticks: nobody is credited, nobody pays */
	wh_u64 epoch;
	wh_u64 begin;
	wh_u64 percent;
	wh_u64 unit; /* enum wh_cz_unit */
	wh_u64 callers;
	wh_u64 sampled; /* points counted by ticks, one bit each */
	wh_u64 counted; /* visits under another number are forgotten */
	wh_u64 n_marks;
	wh_u64 n_scopes;
	wh_u64 layout; /* odd while marks or scopes change */
	wh_u64 signal; /* by which threads are ticked; 0: no handler is in place */
	wh_u64 period; /* ns of CPU time between two ticks */
	wh_u64 spare;
	wh_debt_s64 g; /* agent, as all that follows */
	wh_u64 spare2[7];
	wh_u64 n_slots;
	wh_u64 next_record;
	wh_u64 births; /* calls that may have made threads */
	wh_debt_s64 born_d;
	wh_u64 born_epoch;
	wh_u64 absolute_points; /* visited by threads that absolute time had woken, one bit each */
	wh_u64 lost;
	wh_u64 spare3;
};

/* A word of WH_AT_PACE_WAITING, one for each slot: 0, or the futex that the thread is about to wait for, with: */
#define WH_PACE_CLAIMED (1ull << 63) /* a waker writes the grant */
#define WH_PACE_GRANTED (1ull << 62)

struct wh_pace_slot {
	wh_u32 tid;
	wh_u32 sampled;    /* window of its last tick */
	struct wh_clock clock;
	wh_u64 busy_sp;    /* stack pointer of whoever is at it */
	wh_u64 cpu;        /* CPU time that is accounted for */
	wh_u64 looked;     /* when that was */
	wh_u64 blocks;     /* how often it had given up its core by then */
	wh_debt_s64 granted_d; /* of the thread that has woken it */
	wh_u64 granted_t;
	wh_u64 stack_low, stack_top; /* known to be readable */
	wh_u32 absolute;   /* it is about to wait for an absolute time */
	wh_u32 absolute_epoch; /* last window in which absolute time had woken it */
	wh_u64 samples;    /* from here on: counts that never go down, but for max_debt and owing */
	wh_u64 sample_ns;
	wh_u64 hit_ns;
	wh_u64 hit_waits;
	wh_u64 waits;      /* ended by other threads since its last tick */
	wh_u64 inserted;
	wh_u64 handler;
	wh_u64 granted;    /* futex waits that a thread of the program has ended */
	wh_u64 alone;      /* and the others */
	wh_u64 absolutes;
	wh_u64 handed;
	wh_u64 queued;     /* ns that it was found to have waited for a core */
	wh_u64 max_debt;
	wh_u64 owing;
	wh_u64 hits;       /* its last tick found it in the target */
	wh_u64 wait_blocks; /* as `blocks`, when it was about to wait */
	wh_u64 takes_signals; /* it waits for signals: it must never be ticked */
	wh_u64 rest_since; /* when it began a wait with a time-out that is not known to be over; 0: none */
	wh_u64 rest_cpu;   /* CPU time that it had used by then */
	wh_u64 rest_wait;  /* which one it is */
	struct wh_rest rest;
	struct wh_cz_visits visits[WH_CZ_POINTS];
};

/* Who was last seen on a core, and with which clock. */
struct wh_pace_cpu {
	wh_u64 tid;
	wh_debt_s64 d;
	wh_u64 t;
	wh_u64 epoch;
	wh_u64 hits; /* its last tick found it in the target */
	wh_u64 spare[3];
};

struct wh_pace_scope {
	wh_u64 start, end;
	wh_u64 in_scope;
};

struct wh_pace_record {
	wh_u64 seq; /* its number plus one, once it is complete */
	wh_u64 t;
	wh_u64 ns;  /* CPU time it stands for */
	wh_u64 site;
	wh_u32 tid;
	wh_u32 n;
	wh_u64 frames[WH_CZ_FRAMES];
};

#define WH_AT_PACE_MARKS (WH_AT_PACE + 4096)
#define WH_AT_PACE_SCOPES (WH_AT_PACE_MARKS + (wh_u64)WH_PACE_MARKS * 24)
#define WH_AT_PACE_RECORDS (WH_AT_PACE_SCOPES + (wh_u64)WH_PACE_SCOPES * 24)
#define WH_AT_PACE_CPUS (WH_AT_PACE_RECORDS + (wh_u64)WH_PACE_RECORDS * 168)
#define WH_AT_PACE_INDEX (WH_AT_PACE_CPUS + (wh_u64)WH_PACE_CPUS * 64) /* tid << 32 | slot + 1 */
#define WH_AT_PACE_WAITING (WH_AT_PACE_INDEX + (wh_u64)WH_PACE_INDEX * 8)
#define WH_AT_PACE_SLOTS (WH_AT_PACE_WAITING + (wh_u64)WH_PACE_SLOTS * 8)

enum wh_pace_answer {
	WH_PACE_DONE = 0,
	WH_PACE_TAKEN = 1,   /* the program has a handler for the signal */
	WH_PACE_REFUSED = 2,
};

#endif
