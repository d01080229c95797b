/* The library of `halo`. MPI_X is a weak alias of PMPI_X. */
#include "fakempi.h"
#include "../cycles/work.h"

/* Sleeps most of the time and spins the rest: right to a microsecond, and two ranks share a CPU. */
static void wait_until(uint64_t moment)
{
    const uint64_t late = 150000;
    uint64_t now = wall_ns();
    if (moment > now + late) {
        uint64_t until = moment - late;
        struct timespec t = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    }
    while (wall_ns() < moment)
        ;
}

int PMPI_Isend(uint64_t lasts_ns, MPI_Request *request);
int PMPI_Isend(uint64_t lasts_ns, MPI_Request *request)
{
    request->ready_ns = wall_ns() + lasts_ns;
    return 0;
}

int PMPI_Irecv(uint64_t lasts_ns, MPI_Request *request);
int PMPI_Irecv(uint64_t lasts_ns, MPI_Request *request)
{
    request->ready_ns = wall_ns() + lasts_ns;
    return 0;
}

int PMPI_Wait(MPI_Request *request);
int PMPI_Wait(MPI_Request *request)
{
    wait_until(request->ready_ns);
    return 0;
}

int PMPI_Allreduce(double *value, uint64_t lasts_ns);
int PMPI_Allreduce(double *value, uint64_t lasts_ns)
{
    *value *= 0.5;
    wait_until(wall_ns() + lasts_ns);
    return 0;
}

extern __typeof__(PMPI_Isend) MPI_Isend __attribute__((weak, alias("PMPI_Isend")));
extern __typeof__(PMPI_Irecv) MPI_Irecv __attribute__((weak, alias("PMPI_Irecv")));
extern __typeof__(PMPI_Wait) MPI_Wait __attribute__((weak, alias("PMPI_Wait")));
extern __typeof__(PMPI_Allreduce) MPI_Allreduce __attribute__((weak, alias("PMPI_Allreduce")));
