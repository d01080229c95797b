/* The little of MPI that `halo` uses, between threads of one process. Each call exists under its MPI and
 * its PMPI name at one address, as in real libraries. Times are made, not found: a request knows when
 * it will be complete, and waiting means waiting for that moment. */
#ifndef WHITHER_FAKEMPI_H
#define WHITHER_FAKEMPI_H

#include <stdint.h>

typedef struct {
    uint64_t ready_ns;
} MPI_Request;

/* A message that takes so long from now on. */
int MPI_Isend(uint64_t lasts_ns, MPI_Request *request);
int MPI_Irecv(uint64_t lasts_ns, MPI_Request *request);
int MPI_Wait(MPI_Request *request);
int MPI_Allreduce(double *value, uint64_t lasts_ns);

#endif
