/*
 * Waits for what remains of a round that a timer ends: frames, polls, limiters of rates, whatever the wait is made with (time-outs
 * of poll, epoll_wait and conditions, timers that a descriptor or a signal tells of). Lives here: how they are told from waits of one length
 * by what is seen of them alone, and what their end does to a clock. Not here: sleeps whose length is read (whither_debt.h).
 * Constraint: as whither_debt.h, integers only, no loops. Lengths are as rough as the program's clock: time-outs are in milliseconds,
 * and timers come some ten microseconds late. So no round tells it, but how lengths go with work over many.
 */
#ifndef WHITHER_REST_H
#define WHITHER_REST_H
#include "whither_debt.h"

/* A thread's waits that a timer has ended, and the rounds between them. */
struct wh_rest {
	wh_debt_u64 woke;      /* when the last one was over; 0: there was none */
	wh_debt_s64 from;      /* its clock then, or when such a wait was last ended otherwise, in window `epoch` */
	wh_debt_s64 awake;     /* from the end of one to the next one's begin */
	wh_debt_s64 length;    /* of the last one */
	wh_debt_s64 whole;     /* of the last round that was about as long as the one before */
	wh_debt_s64 together;  /* sums over pairs of rounds in us^2, fading: how much longer the wait was, times how much longer awake */
	wh_debt_s64 awakes;    /* squares of the latter */
	wh_debt_s64 lengths;   /* squares of the former */
	wh_debt_s64 asked;     /* the length that the wait under way was asked for; 0: not known */
	wh_debt_u32 epoch;
	wh_debt_u32 pairs;
	wh_debt_u32 wait;      /* which one it was */
	wh_debt_u32 mixed;     /* it was also ended otherwise since */
	wh_debt_u32 always;    /* of 65536: rounds that ended by what remained */
	wh_debt_u32 keeps;     /* waits were what remained, when that was last known */
};

/* Pairs fade by this part with each that comes; so many count at most. */
#define WH_REST_FADES 5
#define WH_REST_MOST 32u
/* Fewer pairs, or rounds that are as long to within this on average (us), tell nothing. */
#define WH_REST_PAIRS 10u
#define WH_REST_EVEN 16
/* Differences that count, in us: a second. */
#define WH_REST_FARTHEST (1ll << 20)

static inline wh_debt_s64 wh_rest_us(wh_debt_s64 ns)
{
	wh_debt_s64 us = ns >> 10;

	return us > WH_REST_FARTHEST ? WH_REST_FARTHEST : us < -WH_REST_FARTHEST ? -WH_REST_FARTHEST : us;
}

/* Whether waits get as much shorter as rounds get longer: the slope is -1 within a quarter, and known that well. Once it was, it is until the slope
 * is off by half: time-outs of whole milliseconds are rough, and what one lapse leaves is told as a gain. */
static inline int wh_rest_keeps(struct wh_rest *r)
{
	wh_debt_s64 against = -r->together, off = r->lengths + r->awakes - 2 * against, part = r->keeps ? 2 : 1;

	if (r->pairs < WH_REST_PAIRS || r->awakes < (wh_debt_s64)r->pairs * WH_REST_EVEN * WH_REST_EVEN)
		return r->keeps != 0;
	r->keeps = 4 * against >= (4 - part) * r->awakes && 4 * against <= (4 + part) * r->awakes &&
		   16 * off <= part * part * (wh_debt_s64)r->pairs * r->awakes;
	return r->keeps != 0;
}

/* A wait that began at once behind the last one, and is short beside a round, is what that has left: Go's runtime waits whole milliseconds first. */
static inline int wh_rest_goes_on(const struct wh_rest *r, wh_debt_s64 awake, wh_debt_s64 length)
{
	return r->pairs && 32 * awake < r->whole && 2 * length < r->whole;
}

/* Takes note of a round. One in which no time was left goes on with the next, and tells nothing. */
static inline void wh_rest_learns(struct wh_rest *r, wh_debt_s64 awake, wh_debt_s64 length)
{
	wh_debt_s64 before = r->awake + r->length, whole = awake + length, less = whole < before ? whole : before;
	wh_debt_s64 more = wh_rest_us(awake - r->awake), longer = wh_rest_us(length - r->length);

	if (wh_rest_goes_on(r, awake, length))
		return;
	r->awake = awake;
	r->length = length;
	if (before <= 0 || wh_debt_size(whole - before) > less >> 1)
		return;
	r->whole = whole;
	r->together += more * longer - (r->together >> WH_REST_FADES);
	r->awakes += more * more - (r->awakes >> WH_REST_FADES);
	r->lengths += longer * longer - (r->lengths >> WH_REST_FADES);
	if (r->pairs < WH_REST_MOST)
		r->pairs++;
}

/* What the thread had saved when its round began. */
static inline wh_debt_s64 wh_rest_from(const struct wh_rest *r, const struct wh_clock *c)
{
	return r->epoch == c->epoch ? r->from : 0;
}

static inline void wh_rest_begins(struct wh_rest *r, const struct wh_clock *c)
{
	r->from = c->d;
	r->epoch = c->epoch;
}

/* A timer has ended a wait of so long. `kept`: its end follows from when the round began, as is known otherwise. Whether it was so: then what the
 * round has saved is void, since the wait would have been longer by that. */
static inline int wh_rest_timed_out(struct wh_rest *r, struct wh_clock *c, int kept, wh_debt_u32 wait, wh_debt_u64 since, wh_debt_s64 length,
				    wh_debt_u64 now)
{
	int mixed = r->wait == wait && r->mixed;

	if (r->woke && (wh_debt_s64)(since - r->woke) >= 0 && length >= 0)
		wh_rest_learns(r, (wh_debt_s64)(since - r->woke), length);
	kept = kept || wh_rest_keeps(r);
	/* Rounds are as rough as time-outs are: one that is longer by less than a quarter is not two. */
	if (kept)
		wh_debt_keeps_saved(c, wh_rest_from(r, c), r->awake, r->whole + (r->whole >> 2), r->length);
	r->always = kept && !mixed ? r->always + ((65536 - r->always) >> 5) : r->always - (r->always >> 5);
	r->woke = now;
	r->wait = wait;
	r->mixed = 0;
	wh_rest_begins(r, c);
	return kept;
}

/* Somebody else has ended a wait. If it was one that else the timer ends, rounds begin with what comes, as those of a server that now and then looks
 * after itself, and what was saved before would have brought that sooner. */
static inline void wh_rest_met(struct wh_rest *r, const struct wh_clock *c, wh_debt_u32 wait)
{
	if (!r->woke || r->wait != wait)
		return;
	r->mixed = 1;
	wh_rest_begins(r, c);
}

#endif
