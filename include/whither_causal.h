/*
 * Words shared between bpf/causal.bpf.c and crate sample (mirrored in crate abi): what a window speeds up,
 * the clocks of the watched threads, what ticks and visits left behind. Unwind rows and rules are those of
 * whither_agent.h. Not stored on disk. All times are ns of CLOCK_MONOTONIC.
 */
#ifndef WHITHER_CAUSAL_H
#define WHITHER_CAUSAL_H
#include "whither_agent.h"
#include "whither_debt.h"
#include "whither_rest.h"

#define WH_CZ_FRAMES 16u   /* kept in a record */
#define WH_CZ_DEPTH 32u    /* looked at; power of two */
#define WH_CZ_POINTS 32u   /* progress points; power of two */
#define WH_CZ_THREADS 8192u
#define WH_CZ_PROCESSES 4096u
#define WH_CZ_LAYOUTS 1024u
#define WH_CZ_MODULES 16384u
#define WH_CZ_MARKS 8192u
#define WH_CZ_RULES 16384u /* power of two */
#define WH_CZ_CALLERS 4u
#define WH_CZ_SYSCALLS 512u
#define WH_CZ_NAPPER 4096u /* bytes of code around the handler */
/* A heartbeat older than this: nobody is credited, nobody pays. */
#define WH_CZ_SILENCE_NS 100000000ull

enum wh_cz_state {
	WH_CZ_OFF = 0,
	WH_CZ_ON = 1,    /* credits and pays */
	WH_CZ_DRAIN = 2, /* pays */
};
enum wh_cz_unit {
	WH_CZ_NOTHING = 0,
	WH_CZ_FIRST = 1,     /* the first frame in scope decides, then the callers */
	WH_CZ_INCLUSIVE = 2, /* any frame */
	WH_CZ_OFF_CPU = 3,
};
enum wh_cz_class {
	WH_CZ_SLEEP = 0,
	WH_CZ_IO = 1,
	WH_CZ_NET = 2,
	WH_CZ_LOCK = 3,
	WH_CZ_OTHER = 4,
};

/* What user space says. Written while the state is OFF, but for `state`, `beat`. G has a line of its own. */
struct wh_cz_ctl {
	wh_u64 state; /* enum wh_cz_state */
	wh_u64 beat;
	wh_u64 epoch; /* number of the window, 32 bits */
	wh_u64 begin; /* of the window */
	wh_u64 percent;
	wh_u64 cap;
	wh_u64 record_every; /* ticks of the group on a CPU */
	wh_u64 credit_every;
	wh_u64 unit; /* enum wh_cz_unit */
	wh_u64 callers;
	wh_u64 classes; /* 1 << enum wh_cz_class */
	wh_u64 any_site;
	wh_u64 sampled; /* points counted by ticks, one bit each */
	wh_u64 kernel_time;
	wh_u64 follow;
	wh_u64 margin; /* a delay ends so long before the next tick is due, so that this tick is not lost */
	wh_debt_s64 g;
	wh_u64 stopped;         /* a thread of the group was stopped or traced */
	wh_u64 absolute_points; /* points visited by threads that absolute time had woken, one bit each */
	wh_u64 counted;         /* visits under another number are forgotten */
	wh_u64 nap_signal;      /* threads that have a handler for it sleep their delays; 0: all spin */
	wh_u64 sees_sockets;    /* data that comes for a socket, and what is sent on it (Linux 6.3) */
	wh_u64 spare2[2];
};

/* One CPU; written by what runs on it. From `samples` on: counts that never go down, but for max_debt. */
struct wh_cz_cpu {
	wh_u64 tick;  /* ns between two ticks; written by user space, as is the next one */
	wh_u64 worth; /* delay paid by 1,024 ns of spinning in a tick */
	wh_u32 in_timer, in_device, in_softirq, out_tid; /* contexts; last thread of the group to leave the core */
	wh_debt_s64 out_d;
	wh_u64 out_t;
	wh_u64 out_epoch;
	wh_u64 idle_since;
	wh_u64 idle; /* since out_t */
	wh_u64 ticks;
	wh_u64 credit; /* ns not yet credited */
	wh_u64 record; /* ns not yet recorded */
	wh_u64 waits;  /* of the time not yet credited: waits that other threads of the group have ended */
	wh_u64 blocks; /* switches since `blocks_at`, and how many of them are looked at: 1 in 2^shift */
	wh_u64 blocks_at;
	wh_u64 shift;
	wh_u64 draw;
	wh_u64 owing; /* debt the last tick left */
	wh_u64 samples;
	wh_u64 sample_ns;
	wh_u64 hit_ns;
	wh_u64 threads;
	wh_u64 max_debt;
	wh_u64 lost;
	wh_u64 own_wait;
	wh_u64 foreign_wait;
	wh_u64 inserted;
	wh_u64 handler;
	wh_u64 absolute;    /* threads woken by absolute time */
	wh_u64 woken_in;    /* by a thread of the group */
	wh_u64 woken_out;   /* by anything else */
	wh_u64 handed;      /* cores handed over after a wait */
	wh_u64 hit_waits;   /* `waits` of the time in hit_ns */
	wh_u64 slept;       /* of `inserted` */
	wh_u64 unknown_ns;  /* of `sample_ns`, in programs whose code is not known yet */
	wh_u64 others_ns;   /* run time of programs that are not watched, kernel threads left out */
	wh_u64 others_at;   /* when one of them got this core; 0: none has it */
	wh_u64 hasty;       /* turns of threads that the world had woken, over before a tick could let them pay, or begun with a debt */
	wh_u64 arrival;     /* socket whose data wakes threads just now, see bpf/causal_socket.h; 0: none */
	wh_u64 arrival_of_many; /* that socket has no one peer (it listens, or takes datagrams of all): nobody knows whose answer came before */
	wh_u64 asked;       /* threads woken by data from outside that the group had not asked for */
	wh_u64 asked_by_world; /* by who sleeps to times that the world sets */
	wh_u64 asked_unknown;  /* woken by data from outside of which nobody knows what it waited for */
	wh_u64 unknown_debt;   /* what those owed then, all threads */
};

struct wh_cz_visits {
	wh_u64 count;
	wh_u64 first_t; /* since the window's begin */
	wh_debt_s64 first_v;
	wh_u64 last_t;
	wh_debt_s64 last_v;
	wh_debt_s64 sum_v;
	wh_u64 ever; /* visits since the point was attached, in and outside windows */
	wh_u64 counted; /* the control's word when these were counted; another one: nothing was yet */
};

/* A watched thread, by thread id. */
struct wh_cz_thread {
	struct wh_clock clock;
	wh_u32 tgid;
	wh_u32 sampled;  /* epoch of its last tick */
	wh_u64 start;    /* tells lives of one id apart */
	wh_u32 class_;   /* of the wait under way */
	wh_u32 absolute; /* enum wh_sleep */
	wh_u32 absolute_epoch; /* last window in which it was woken so */
	wh_u32 looked;   /* the wait is recorded, and stands for so many */
	wh_debt_s64 early_d; /* a wake-up seen before the switch that it ends */
	wh_u64 early_t;
	wh_u64 site;
	wh_u32 marks;    /* of the site, in window `marks_epoch`: another window has other targets */
	wh_u32 marks_epoch;
	wh_u64 from;     /* run time before this is accounted for, or in `run` */
	wh_u64 spun;     /* delay inserted since then */
	wh_u64 run;      /* run time that no tick has met yet, of window `run_epoch` */
	wh_u32 run_epoch;
	wh_u32 n;
	wh_u32 nap;       /* enum wh_cz_nap */
	wh_u32 nap_epoch; /* window of the nap */
	wh_u64 nap_from;  /* when it was asked for */
	wh_u32 waits;     /* ended by other threads of the group since its last tick */
	wh_u32 fresh;     /* enum wh_cz_fresh; from WH_CZ_TURN on: turns since another thread of the group and it met */
	struct wh_deadline deadline;
	struct wh_rest rest;
	wh_u32 wait;      /* which one is under way */
	wh_u32 handed;    /* another thread of the group has woken it since a timer did */
	wh_debt_s64 told_d; /* up to here its debt is in unknown_debt, in window `told_epoch` */
	wh_u64 told_epoch;
	wh_u64 frames[WH_CZ_FRAMES];
};

enum wh_cz_nap {
	WH_CZ_AWAKE = 0,
	WH_CZ_ASKED = 1,   /* the signal is on its way */
	WH_CZ_ASLEEP = 2,  /* the handler sleeps */
};

/* A thread that the world has woken, a relative timer say, has been delayed by nobody meanwhile. */
enum wh_cz_fresh {
	WH_CZ_STALE = 0,
	WH_CZ_FRESH = 1,  /* it has not paid since */
	WH_CZ_PAYING = 2, /* it does, on its way out of the system call: ticks that it meets are not its time */
};
#define WH_CZ_TURN 16u
/* A thread that met nobody for so many turns works for itself: a timer, a scheduler that looks after the others. */
#define WH_CZ_ALONE (8u * WH_CZ_TURN)

struct wh_cz_process {
	wh_u32 layout; /* 0: code not known */
	wh_u32 spare;
	wh_u64 napper; /* address of the handler that sleeps; 0: none */
	struct wh_rest rest; /* of threads that take turns */
};
/* Code of processes with equal mappings: sorted modules, and in them sorted marks. */
struct wh_cz_layout {
	wh_u32 first_module, n_modules;
	wh_u32 first_mark, n_marks;
};
struct wh_cz_module {
	wh_u64 start, end;
	wh_u64 base;
	wh_u32 first_row, n_rows;
	wh_u64 in_scope;
};
/* Bits of a mark. */
#define WH_CZ_TARGET 1ull
#define WH_CZ_CALLER 2ull /* << level */
#define WH_CZ_SITE 32ull  /* of an off-CPU target */
#define WH_CZ_POINT 256ull /* << point */
struct wh_cz_mark {
	wh_u64 start, end;
	wh_u64 bits;
};

enum wh_cz_kind {
	WH_CZ_RUN = 1,
	WH_CZ_BLOCKED = 2,
	WH_CZ_FORKED = 3, /* tgid, and in tid its parent */
	WH_CZ_EXECED = 4,
};
#define WH_CZ_NOBODY 0u
struct wh_cz_record {
	wh_u32 kind;
	wh_u32 kernel; /* taken in kernel mode; of a wait: its class */
	wh_u32 tgid;
	wh_u32 tid;
	wh_u64 t;
	wh_u64 ns; /* run time it stands for; length of the wait */
	wh_u64 site;
	wh_u64 waker_site;
	wh_u32 waker; /* 0: nobody of the group */
	wh_u32 times; /* waits it stands for */
	wh_u32 n;
	wh_u32 spare;
	wh_u64 frames[WH_CZ_FRAMES];
};

#endif
