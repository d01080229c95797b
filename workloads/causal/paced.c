/* K28: a round is draw 1 to 3 ms and fill 1 ms, then a wait for what remains of `interval`, counted from where the round began, or from one
 * deadline to the next: draw and fill gain nothing, the rate is fixed, however it waits. Modes: "nanosleep", "deadline" (absolute sleep),
 * "timerfd" (periodic), "oneshot" (a timerfd set anew each round), "poll" and "epoll" (time-out in milliseconds, rounded up), "ppoll", "cond" (until a time),
 * "vsync" (a thread that beats signals a condition), "bucket" (tokens come by the time, and may be saved up), "setitimer" (sigwait).
 * Mode "relative": a wait of 3 ms, whatever the work took: draw 2 s / 6, fill s / 6; "pollsame" the same by poll, "condsame" by a condition. */
#include "causal.h"
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <sys/timerfd.h>

PART(draw, 2000)
PART(fill, 1000)
NUMBER(interval, 8000)
NUMBER(even, 0)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t beat;
static uint64_t beats, every;
static int timer, set;

static struct timespec span(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

static uint64_t remains(uint64_t due)
{
    uint64_t now = wall_ns();
    return due > now ? due - now : 0;
}

static void wait_rest(uint64_t due) { nap_ns(remains(due)); }
static void wait_ms(uint64_t due) { (void)poll(NULL, 0, (int)((remains(due) + 999999) / 1000000)); }

static void wait_fds_ms(uint64_t due)
{
    struct pollfd none = {timer, POLLIN, 0};
    (void)poll(&none, 1, (int)((remains(due) + 999999) / 1000000));
}

static void wait_epoll(uint64_t due)
{
    struct epoll_event event;
    (void)epoll_wait(set, &event, 1, (int)((remains(due) + 999999) / 1000000));
}

static void wait_ppoll(uint64_t due)
{
    struct pollfd none = {timer, POLLIN, 0};
    struct timespec left = span(remains(due));
    (void)ppoll(&none, 1, &left, NULL);
}

static void wait_cond(uint64_t due)
{
    struct timespec when = span(due);
    pthread_mutex_lock(&lock);
    while (pthread_cond_timedwait(&beat, &lock, &when) != ETIMEDOUT)
        ;
    pthread_mutex_unlock(&lock);
}

static void wait_timer(uint64_t due)
{
    uint64_t times;
    (void)due;
    MUST(read(timer, &times, sizeof times) == sizeof times);
}

static void wait_oneshot(uint64_t due)
{
    struct itimerspec once = {{0, 0}, span(remains(due) + 1)};
    MUST(timerfd_settime(timer, 0, &once, NULL) == 0);
    wait_timer(due);
}

static void wait_beat(uint64_t due)
{
    static uint64_t seen;
    (void)due;
    pthread_mutex_lock(&lock);
    while (seen == beats)
        pthread_cond_wait(&beat, &lock);
    seen = beats;
    pthread_mutex_unlock(&lock);
}

static void wait_signal(uint64_t due)
{
    sigset_t alarms;
    int got;
    (void)due;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    sigwait(&alarms, &got);
}

static void *beats_on(void *none)
{
    for (uint64_t due = wall_ns();;) {
        sleep_until(due += every);
        pthread_mutex_lock(&lock);
        beats++;
        pthread_cond_signal(&beat);
        pthread_mutex_unlock(&lock);
    }
    return none;
}

static void arm(int absolute_beat)
{
    struct itimerspec spec = {span(every), span(every)}, never = {{0, 0}, {0, 0}};
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&beat, &monotonic);
    MUST((timer = timerfd_create(CLOCK_MONOTONIC, 0)) >= 0 && (set = epoll_create1(0)) >= 0);
    MUST(timerfd_settime(timer, 0, absolute_beat ? &spec : &never, NULL) == 0);
    struct epoll_event in = {EPOLLIN, {0}};
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, timer, &in) == 0);
}

/* Whether a round begins where the last one should have ended, and not where it did. */
struct way {
    const char *mode;
    void (*wait)(uint64_t due);
    int from_due;
};

static const struct way ways[] = {
    {"nanosleep", wait_rest, 0}, {"next", wait_rest, 1},      {"deadline", sleep_until, 1}, {"timerfd", wait_timer, 1}, {"oneshot", wait_oneshot, 0},
    {"poll", wait_fds_ms, 0},    {"sleepms", wait_ms, 0},     {"polldue", wait_fds_ms, 1},  {"epoll", wait_epoll, 0},   {"epolldue", wait_epoll, 1},
    {"ppoll", wait_ppoll, 0},    {"cond", wait_cond, 0},      {"conddue", wait_cond, 1},    {"vsync", wait_beat, 1},    {"bucket", wait_rest, 1},
    {"setitimer", wait_signal, 1}, {"relative", wait_rest, 0}, {"pollsame", wait_fds_ms, 0}, {"condsame", wait_cond, 0},
};

static const struct way *way_of(void)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (mode_is(ways[i].mode))
            return &ways[i];
    return &ways[0];
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    const struct way *way = way_of();
    int same = mode_is("relative") || mode_is("pollsame") || mode_is("condsame");
    every = (uint64_t)(VALUE(interval) * 1000.0);
    arm(mode_is("timerfd"));
    if (mode_is("setitimer")) {
        struct itimerval spec = {{0, (suseconds_t)(every / 1000)}, {0, (suseconds_t)(every / 1000)}};
        sigset_t alarms;
        sigemptyset(&alarms);
        sigaddset(&alarms, SIGALRM);
        sigprocmask(SIG_BLOCK, &alarms, NULL);
        setitimer(ITIMER_REAL, &spec, NULL);
    }
    if (mode_is("vsync"))
        spawn(beats_on, NULL);
    uint64_t due = wall_ns(), dice = 7;
    for (uint64_t round = 0; more(round); round++) {
        uint64_t start = wall_ns();
        dice = dice * 6364136223846793005u + 1442695040888963407u;
        /* 0.5 to 1.5 of it. */
        draw(VALUE(even) ? draw_part.steps : draw_part.steps / 2 + (uint64_t)((double)draw_part.steps * (double)(dice >> 40) / (double)(1 << 24)));
        RUN(fill);
        /* A bucket holds four tokens. */
        uint64_t least = mode_is("bucket") && start > 4 * every ? start - 4 * every : start;
        due = (way->from_due && due + every > least ? due : start) + every;
        way->wait(same ? wall_ns() + 3000000 : due);
        progress();
    }
    finish();
}
