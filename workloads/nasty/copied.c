/* 58: green threads that share one piece of stack: who is suspended has its frames copied to the heap, and back to the same
 * addresses when it goes on, as call/cc does in Scheme. One place then holds return addresses of several calls in turns, made from
 * unlike places by unlike functions. Not a library that one could know by its name. */
#include "nasty.h"
#include <setjmp.h>

enum { GREEN = 7, ROUNDS = 600, MARGIN = 256 };

static uint64_t n_leaf, n_left, n_right, n_step;

struct green {
    jmp_buf at;
    char *low, *copy;
    size_t bytes;
    long result;
    enum { FRESH, SUSPENDED, DONE } state;
};

static struct green all[GREEN], *running;
static jmp_buf scheduler;
static char *base; /* the frames of whoever runs lie below */

static __attribute__((noinline, noclone)) void suspend(void)
{
    struct green *me = running;
    if (setjmp(me->at))
        return;
    me->low = (char *)__builtin_frame_address(0) - MARGIN;
    me->bytes = (size_t)(base - me->low);
    me->copy = realloc(me->copy, me->bytes);
    memcpy(me->copy, me->low, me->bytes);
    me->state = SUSPENDED;
    longjmp(scheduler, 1);
}

/* Goes on below all that is to be written. */
static __attribute__((noinline, noclone)) void resume(struct green *who)
{
    char room[1024] = {0};
    KEEP(room[0]);
    if ((char *)__builtin_frame_address(0) > who->low - sizeof room)
        resume(who);
    memcpy(who->low, who->copy, who->bytes);
    longjmp(who->at, 1);
}

PROBED long leaf(long x)
{
    count(&n_leaf);
    suspend();
    KEEP(x);
    return x * 3 + 1;
}

PROBED long left(long x)
{
    count(&n_left);
    long y = leaf(x) ^ 5;
    KEEP(y);
    return y + leaf(y);
}

PROBED long right(long x)
{
    count(&n_right);
    long y = leaf(x + 2);
    KEEP(y);
    return y - 11;
}

PROBED long step(long x, long who)
{
    count(&n_step);
    long y = (x ^ who) % 3 ? left(x & 0xffff) : right(x & 0xffff);
    KEEP(y);
    return y ^ who;
}

static __attribute__((noinline, noclone)) void body(struct green *me)
{
    for (int i = 0; i < ROUNDS; i++)
        me->result = step(me->result + i, me - all);
    me = running;
    me->state = DONE;
    longjmp(scheduler, 1);
}

static __attribute__((noinline, noclone)) void first(struct green *who)
{
    base = (char *)__builtin_frame_address(0) + 16;
    body(who);
}

int main(void)
{
    static int turn, done;
    setjmp(scheduler);
    for (done = 0; done < GREEN && all[turn = (turn + 1) % GREEN].state == DONE;)
        done++;
    if (done < GREEN) {
        running = &all[turn];
        if (running->state == FRESH)
            first(running);
        resume(running);
    }
    long sum = 0;
    for (int i = 0; i < GREEN; i++)
        sum = sum * 31 + all[i].result;
    printf("sum %ld\n", sum);
    tell("leaf", n_leaf, "moved");
    tell("left", n_left, "moved");
    tell("right", n_right, "moved");
    tell("step", n_step, "moved");
}
