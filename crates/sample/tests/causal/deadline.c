/* `until`, `on`: reads sleeps until a time, or of a length, `at now woke` a line, and prints what the end of each follows from. `rest`: reads
 * `saved awake whole left`, and prints how much of it is left after a sleep that was what remained. `seen`: reads waits that a timer has ended,
 * `saved met since now`, the first of what the thread has saved since the one before, the second of it before such a wait was ended otherwise, and prints
 * what of it is left. */
#include <stdio.h>
#include <string.h>
#include "whither_debt.h"
#include "whither_rest.h"

static struct wh_deadline last;
static struct wh_clock thread;

static void rest(void)
{
	while (scanf("%lld %lld %lld %lld", &thread.d, &last.awake, &last.whole, &last.left) == 4) {
		wh_debt_woken_after_the_rest(&thread, &last);
		printf("%lld ", thread.d);
	}
}

static void seen(void)
{
	struct wh_rest rest = {0};
	long long saved, met;
	unsigned long long since, now;

	while (scanf("%lld %lld %llu %llu", &saved, &met, &since, &now) == 4) {
		thread.d = met;
		if (met)
			wh_rest_met(&rest, &thread, 1);
		thread.d = saved;
		wh_rest_timed_out(&rest, &thread, 0, 1, since, (wh_debt_s64)(now - since), now);
		printf("%lld ", thread.d);
		thread.d = 0;
		wh_rest_begins(&rest, &thread);
	}
}

int main(int argc, char **argv)
{
	unsigned long long at, now, woke;

	if (argc != 2)
		return 1;
	if (!strcmp(argv[1], "rest"))
		rest();
	if (!strcmp(argv[1], "seen"))
		seen();
	while (scanf("%llu %llu %llu", &at, &now, &woke) == 3) {
		wh_debt_wakes(&last, &thread, woke);
		printf("%d", argv[1][0] == 'o' ? wh_debt_sleeps(&last, (wh_debt_s64)at, now) : wh_debt_sleeps_until(&last, at, now));
	}
	return 0;
}
