/* `until`, `on`: reads sleeps until a time, or of a length, `at now woke` a line, and prints what the end of each follows from. `rest`: reads
 * `saved awake whole left`, and prints how much of it is left after a sleep that was what remained. */
#include <stdio.h>
#include <string.h>
#include "whither_debt.h"

static struct wh_deadline last;
static struct wh_clock thread;

static void rest(void)
{
	while (scanf("%lld %lld %lld %lld", &thread.d, &last.awake, &last.whole, &last.left) == 4) {
		wh_debt_woken_after_the_rest(&thread, &last);
		printf("%lld ", thread.d);
	}
}

int main(int argc, char **argv)
{
	unsigned long long at, now, woke;

	if (argc != 2)
		return 1;
	if (!strcmp(argv[1], "rest"))
		rest();
	while (scanf("%llu %llu %llu", &at, &now, &woke) == 3) {
		wh_debt_wakes(&last, &thread, woke);
		printf("%d", argv[1][0] == 'o' ? wh_debt_sleeps(&last, (wh_debt_s64)at, now) : wh_debt_sleeps_until(&last, at, now));
	}
	return 0;
}
