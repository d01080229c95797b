/* The case of a lattice code: two ranks (threads) solve with ks_congrad, which gathers halos from eight
 * directions. wait_gather waits for the send, then for the receive: 16 paths to MPI_Wait, together a
 * good half of the solver's time; the first wait of each pair lasts 20 times the second, because the send is
 * synchronous; MPI_Allreduce takes 22 %. Variants without one or both faults serve to compare.
 *   halo [original|gather|reduce|both] [ITERATIONS] */
#include "../cycles/work.h"
#include "../nasty/nasty.h"
#include "fakempi.h"
#include <pthread.h>

enum { RANKS = 2, DIRECTIONS = 8 };

/* An iteration of 7.3 ms: waiting 4 (8 x (476 + 24) us), reducing 1.6, computing 1.7. */
static uint64_t send_ns = 476000, receive_ns = 24000, reduce_ns = 1600000, rounds;
static long iterations = 60;
static uint64_t n_wait, n_reduce, solver_ns, first_ns, second_ns, reducing_ns;

static void add(uint64_t *sum, uint64_t start) { __atomic_fetch_add(sum, wall_ns() - start, __ATOMIC_RELAXED); }

PROBED uint64_t compute(uint64_t n) { return spin(n, 0x9e3779b97f4a7c15u); }

PROBED int wait_gather(MPI_Request *send, MPI_Request *receive)
{
    uint64_t start = wall_ns();
    int y = MPI_Wait(send);
    KEEP(y);
    add(&first_ns, start);
    /* What is left of a message that arrived in the meantime. */
    receive->ready_ns = wall_ns() + receive_ns;
    start = wall_ns();
    y += MPI_Wait(receive);
    KEEP(y);
    add(&second_ns, start);
    __atomic_fetch_add(&n_wait, 2, __ATOMIC_RELAXED);
    return y;
}

static void start_gather(MPI_Request *send, MPI_Request *receive)
{
    MPI_Isend(send_ns, send);
    MPI_Irecv(receive_ns, receive);
}

/* Eight call sites of wait_gather: written out, as the original has them. */
PROBED double ks_congrad(double residue)
{
    MPI_Request send, receive;
    int y = 0;
#define GATHER() \
    start_gather(&send, &receive); \
    y += wait_gather(&send, &receive); \
    KEEP(y);
    GATHER()
    GATHER()
    GATHER()
    GATHER()
    GATHER()
    GATHER()
    GATHER()
    GATHER()
    uint64_t x = compute(rounds);
    uint64_t start = wall_ns();
    MPI_Allreduce(&residue, reduce_ns);
    add(&reducing_ns, start);
    __atomic_fetch_add(&n_reduce, 1, __ATOMIC_RELAXED);
    return residue + (double)(x & 1) + y;
}

PROBED double update(long steps)
{
    double residue = 1;
    for (long i = 0; i < steps; i++) {
        uint64_t start = wall_ns();
        residue = ks_congrad(residue);
        add(&solver_ns, start);
    }
    return residue;
}

static void *rank(void *unused)
{
    volatile double residue = update(iterations);
    (void)residue;
    return unused;
}

int main(int argc, char **argv)
{
    const char *variant = argc > 1 ? argv[1] : "original";
    pthread_t ranks[RANKS];
    iterations = argc > 2 ? atol(argv[2]) : iterations;
    /* An asynchronous send: -75 % of all waiting. Fewer reductions: -30 %. */
    if (!strcmp(variant, "gather") || !strcmp(variant, "both"))
        send_ns = 101000;
    if (!strcmp(variant, "reduce") || !strcmp(variant, "both"))
        reduce_ns = reduce_ns * 7 / 10;
    rounds = (uint64_t)(1.2 * (double)rounds_per_ms(compute));
    for (int i = 0; i < RANKS; i++)
        pthread_create(&ranks[i], NULL, rank, NULL);
    for (int i = 0; i < RANKS; i++)
        pthread_join(ranks[i], NULL);
    printf("solver_ms %.1f\nshare_wait %.2f\nshare_reduce %.2f\nfirst_over_second %.2f\n", (double)solver_ns / 1e6,
           100 * (double)(first_ns + second_ns) / (double)solver_ns, 100 * (double)reducing_ns / (double)solver_ns,
           (double)first_ns / (double)second_ns);
    printf("calls_MPI_Wait %" PRIu64 "\nsites 16\n", n_wait);
    tell("MPI_Wait", n_wait, "exact");
    tell("MPI_Allreduce", n_reduce, "exact");
    tell("ks_congrad", n_reduce, "exact");
}
