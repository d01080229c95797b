/* Four functions with known shares of CPU time: about 50, 30, 15 and 5 percent. Slices are of random
 * length so that no sampling period can fall into step with them; the program adds up the rounds of
 * each function and prints their shares. */
#include "../work.h"

SPINNER(alpha, 0x9e3779b97f4a7c15u)
SPINNER(beta, 0xbf58476d1ce4e5b9u)
SPINNER(gamma_, 0x94d049bb133111ebu)
SPINNER(delta, 0xd6e8feb86659fd93u)

static const struct {
    const char *name;
    uint64_t (*run)(uint64_t);
    uint64_t percent;
} PARTS[] = {{"alpha", alpha, 50}, {"beta", beta, 30}, {"gamma_", gamma_, 15}, {"delta", delta, 5}};
enum { PART_COUNT = sizeof PARTS / sizeof *PARTS };

int main(int argc, char **argv)
{
    uint64_t length = (uint64_t)(seconds_argument(argc, argv) * 1e9);
    uint64_t done[PART_COUNT] = {0}, all = 0, spent = 0, random = 42;
    uint64_t per_ms = rounds_per_ms(alpha);
    while (spent < length) {
        for (int i = 0; i < PART_COUNT; i++) {
            /* A turn of all four lasts 2 ms on average, each part half to one and a half of its share. */
            uint64_t rounds = per_ms * 2 * PARTS[i].percent * (50 + next_random(&random) % 101) / 10000;
            uint64_t start = cpu_ns();
            PARTS[i].run(rounds);
            spent += cpu_ns() - start;
            done[i] += rounds;
            all += rounds;
        }
    }
    for (int i = 0; i < PART_COUNT; i++)
        printf("share_%s %.2f\n", PARTS[i].name, 100.0 * (double)done[i] / (double)all);
    printf("cpu_s %.3f\n", (double)spent * 1e-9);
}
