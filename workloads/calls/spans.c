/* Time per call, from 20 ns to 20 ms: each function has a twin that is not to be probed; the program times
 * the twins in the same loop, so that the truth is free of the probes' cost. By the CPU clock, so
 * that other programs do not lengthen it: the averages are to be compared. On a busy machine a neighbour on the same core
 * lengthens one slice more than another: the probed calls' own slices are timed too, probes included (loop_NAME). */
#include "../cycles/work.h"
#include "../nasty/nasty.h"

#define PAIR(name, salt) SPINNER(name, salt) SPINNER(twin_##name, salt)
PAIR(span_20ns, 0x9e3779b97f4a7c15u)
PAIR(span_200ns, 0xbf58476d1ce4e5b9u)
PAIR(span_5us, 0x94d049bb133111ebu)
PAIR(span_200us, 0x2545f4914f6cdd1du)
PAIR(span_20ms, 0xd6e8feb86659fd93u)

static struct row {
    const char *name;
    uint64_t (*probed)(uint64_t), (*twin)(uint64_t);
    double ns;
    uint64_t calls;
    double twin_ns, loop_ns;
} rows[] = {{"span_20ns", span_20ns, twin_span_20ns, 20, 0, 0, 0},
            {"span_200ns", span_200ns, twin_span_200ns, 200, 0, 0, 0},
            {"span_5us", span_5us, twin_span_5us, 5e3, 0, 0, 0},
            {"span_200us", span_200us, twin_span_200us, 2e5, 0, 0, 0},
            {"span_20ms", span_20ms, twin_span_20ms, 2e7, 0, 0, 0}};

NOINLINE uint64_t nothing(uint64_t rounds) { return rounds; }

/* What a round of the loop takes without the function's work. */
static double empty_round(void)
{
    uint64_t x = 0, start = cpu_ns();
    for (long k = 0; k < 100000; k++) {
        x ^= nothing(k & 1);
        __builtin_ia32_lfence();
    }
    KEEP(x);
    return (double)(cpu_ns() - start) / 100000;
}

int main(int argc, char **argv)
{
    double empty = 0;
    long turns = 0;
    uint64_t length = (uint64_t)(seconds_argument(argc, argv) * 1e9), begin = wall_ns(), x = 0;
    uint64_t per_ms = rounds_per_ms(twin_span_200us);
    while (wall_ns() - begin < length) {
        empty += empty_round();
        turns++;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            struct row *row = &rows[i];
            long n = (long)(5e6 / row->ns) + 1;
            uint64_t rounds = (uint64_t)(row->ns / 1e6 * (double)per_ms);
            uint64_t start = cpu_ns();
            /* One at a time: calls that overlap in the CPU would seem shorter than each is. */
            for (long k = 0; k < n; k++) {
                x ^= row->twin(rounds);
                __builtin_ia32_lfence();
            }
            row->twin_ns += (double)(cpu_ns() - start);
            start = cpu_ns();
            for (long k = 0; k < n; k++, row->calls++) {
                x ^= row->probed(rounds);
                __builtin_ia32_lfence();
            }
            row->loop_ns += (double)(cpu_ns() - start);
        }
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        printf("calls_%s %" PRIu64 "\nns_%s %.2f\n", rows[i].name, rows[i].calls, rows[i].name, rows[i].twin_ns / (double)rows[i].calls - empty / (double)turns);
        printf("loop_%s %.2f\n", rows[i].name, rows[i].loop_ns / (double)rows[i].calls - empty / (double)turns);
        tell(rows[i].name, rows[i].calls, "exact");
    }
    return x == 1;
}
