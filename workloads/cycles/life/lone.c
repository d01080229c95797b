/* The program that runs from a deleted file or from a memfd only: what is shown of it cannot have
 * been read from a path after the fact. */
#include "life.h"

#include "../work.h"
#include <unistd.h>

SPINNER(lone_deleted, 0x8ebc6af09c88c6e3u)
SPINNER(lone_memfd, 0x589965cc75374cc3u)

/* Arguments as for `after`. */
int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    uint64_t start = cpu_ns();
    (atoi(argv[1]) ? lone_memfd : lone_deleted)(strtoull(argv[2], NULL, 10));
    struct spent spent = {(uint32_t)atoi(argv[3]), (uint32_t)getpid(), cpu_ns() - start};
    return write(atoi(argv[4]), &spent, sizeof spent) != sizeof spent;
}
