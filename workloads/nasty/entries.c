/* 11-15, 42, 46: functions whose first bytes are hard to move (odd.S), each called 1000 times and its
 * results added up; and tail calls (16), which leave a function without its `ret`. */
#include "nasty.h"

enum { CALLS = 1000 };

#define EACH_ODD(X) \
    X(glued3, i) X(glued4, i + 1) X(glued_next, i + 2) X(nop_behind, i + 3) X(int3_behind, i + 4) X(loop_back, i * (i + 1) / 2) \
    X(hopped, i + 5) X(early, i + 7) X(late, i + 6) X(call5, i + 11) X(call6, i + 12) X(call_short, i + 103) \
    X(call_memory, i + 14) X(getpc, i) X(rip_load, i + 77) X(rip_lea, i) X(rip_compare, i) X(jcc, i + 14) X(xbegin, i + 15) \
    X(endbr, i + 16) X(endbr_short, i) X(notrack, i + 100) X(jump8, i + 17) X(jump32, i + 10) X(fs, i) \
    X(red_zone, i + 18) X(stack_first, i) X(flags, i < 500 ? i : i + 19) X(long_first, 0x123456789a + i) X(tail, i + 101) \
    X(alias_a, i + 22) X(fallen, i + 21) X(jrcxz, i + 11) X(loop, i + 8)

typedef long odd(long x, void *pointer, long zero, long number);
#define DECLARE(name, value) extern odd odd_##name;
EACH_ODD(DECLARE)
extern odd odd_hopper, odd_pops, odd_call_pops, odd_falls, odd_alias_b, odd_call_r10, odd_only_ret, odd_rep, odd_loop_start;

static uint64_t n_even, n_tail_end, n_pointee;

PROBED long pointee(long x)
{
    count(&n_pointee);
    return x + 100;
}

PROBED long even(long left, long sum);
PROBED long tail_end(long sum)
{
    count(&n_tail_end);
    return sum * 3;
}
PROBED long odd_even(long left, long sum) { return left == 0 ? tail_end(sum) : even(left - 1, sum + 2); }
PROBED long even(long left, long sum)
{
    count(&n_even);
    return left == 0 ? tail_end(sum) : odd_even(left - 1, sum + 1);
}

static long wrong;

static long total(const char *name, odd *function, long (*value)(long))
{
    long sum = 0;
    /* Through a volatile pointer: the compiler must not know the callee. */
    odd *volatile callee = function;
    for (long i = 1; i <= CALLS; i++) {
        long got = callee(i, (void *)pointee, 0, 9);
        if (value && got != value(i) && wrong++ < 5)
            printf("odd_%s(%ld) = %ld, not %ld\n", name, i, got, value(i));
        sum += got;
    }
    return sum;
}

#define VALUE(name, value) \
    static long value_##name(long i) { return value; }
EACH_ODD(VALUE)
static long value_hopper(long i) { return i * 2 + 5; }
static long value_call_pops(long i) { return i + 20; }
static long value_falls(long i) { return i + 1021; }
static long value_alias_b(long i) { return i + 22; }
static long value_call_r10(long i) { return i + 24; }

int main(void)
{
    long sum = 0;
#define RUN(name, value) sum += total(#name, odd_##name, value_##name);
    EACH_ODD(RUN)
    RUN(hopper, ) RUN(call_pops, ) RUN(falls, ) RUN(alias_b, ) RUN(call_r10, )
    for (long i = 0; i < CALLS; i++) {
        odd_only_ret(i, NULL, 0, 0);
        long stored = odd_loop_start(i + 8, NULL, 0, 0);
        wrong += stored != 28;
        sum += stored;
    }
    char filled[64] = {0};
    for (long i = 0; i < CALLS; i++)
        /* rdi = where, rsi = where (subtracted), rcx = how much; al is not defined: only the length counts. */
        sum += odd_rep((long)filled, filled, 0, i % 64);
    for (long i = 0; i < 200; i++)
        sum += even(i, 0);
    printf("%ld %ld wrong\n", sum, wrong);
#define TELL(name, value) \
    if (strcmp(#name, "alias_a") && strcmp(#name, "fallen") && strcmp(#name, "early") && strcmp(#name, "late")) \
        tell("odd_" #name, CALLS, "either");
    EACH_ODD(TELL)
    /* Two names: one function. Run into from the one before: called as often again. */
    tell("odd_alias_a", 2 * CALLS, "either");
    tell("odd_fallen", 2 * CALLS, "either");
    tell("odd_early", CALLS, "either");
    tell("odd_late", 2 * CALLS, "either");
    tell("odd_hopper", CALLS, "either");
    tell("odd_pops", CALLS, "entry");
    tell("odd_call_pops", CALLS, "either");
    tell("odd_falls", CALLS, "either");
    tell("odd_r10", CALLS, "either");
    tell("odd_only_ret", CALLS, "either");
    tell("odd_rep", CALLS, "either");
    tell("odd_loop_start", CALLS, "either");
    tell("even", n_even, "exact");
    tell("tail_end", n_tail_end, "exact");
    tell("pointee", n_pointee, "exact");
}
