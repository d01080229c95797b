/* The interface of the pieces of `life`: how a short-lived process is told what to burn and how it
 * tells its parent what it spent. */
#ifndef WHITHER_WORKLOADS_LIFE_H
#define WHITHER_WORKLOADS_LIFE_H

#include <stdint.h>

/* What a process of the churn says on its way out, through a pipe (16 bytes: written whole). */
struct spent {
    uint32_t kind;
    uint32_t pid;
    uint64_t ns;
};

#endif
