/* Obeys lines of events with the rules of whither_debt.h and prints G and every D after each. */
#include <stdio.h>
#include "whither_debt.h"

#define N 4
static struct wh_clock c[N];
static wh_debt_s64 g;
static wh_debt_u64 now = 1000;
static wh_debt_u32 epoch = 1;

int main(void)
{
	char op;
	long long i, j, x;
	while (scanf(" %c %lld %lld %lld", &op, &i, &j, &x) == 4) {
		for (int k = 0; k < N; k++)
			wh_debt_sync(&c[k], epoch);
		switch (op) {
		case 't': now += x; break;
		case 'h': if (!wh_debt_credit(&c[i], &g, x)) return 1; break;
		case 'p': { wh_debt_s64 owed = wh_debt_owed(&c[i], &g); wh_debt_paid(&c[i], owed < x ? owed : x); break; }
		case 'e': wh_debt_paid(&c[i], x); break;
		case 'b': wh_debt_leaves(&c[i], now, 1); break;
		case 'q': wh_debt_leaves(&c[i], now, 0); break;
		case 'w': wh_debt_woken(&c[i], c[j].d, now, &g); wh_debt_queues(&c[i], now); break;
		case 'x': wh_debt_queues(&c[i], now); break;
		case 'a': wh_debt_woken_absolute(&c[i]); wh_debt_rebase(&g, &c[i]); wh_debt_queues(&c[i], now); break;
		case 'r': wh_debt_handed(&c[i], c[j].d, now, x, now, &g); c[i].state = WH_CLOCK_RUNS; break;
		case 'o': { wh_debt_s64 d = wh_debt_leaves_with(&c[x], 1, 1, c[j].d, 0, &g); wh_debt_handed(&c[i], d, now, 0, now, &g); c[i].state = WH_CLOCK_RUNS; break; }
		case 'd': { wh_debt_s64 q = c[i].d; wh_debt_displaced(&c[i], q, x, now, &g); c[i].state = WH_CLOCK_RUNS; break; }
		case 'f': wh_debt_born(&c[i], &c[j], now); break;
		case 'n': epoch++; g = 0; for (int k = 0; k < N; k++) wh_debt_sync(&c[k], epoch); break;
		}
		printf("%lld", g);
		for (int k = 0; k < N; k++)
			printf(" %lld", c[k].d);
		puts("");
	}
	return 0;
}
