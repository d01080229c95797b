/* Reads sleeps, `deadline now` a line, and prints whether the world has set each. */
#include <stdio.h>
#include "whither_debt.h"

int main(void)
{
	struct wh_deadline last = {0, 0, 0};
	unsigned long long at, now;
	while (scanf("%llu %llu", &at, &now) == 2)
		printf("%d", wh_debt_is_set_by_the_world(&last, at, now));
	return 0;
}
