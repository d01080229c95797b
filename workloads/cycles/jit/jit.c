/* Code made at run time in anonymous memory, named by a perf map: two functions, about 73 and 18
 * percent of the time, and one that nobody names. The map is left behind for the reader of the profile.
 * usage: jit SECONDS [late]; late: the map is written at the end, as the JVM does. */
#define _GNU_SOURCE
#include "../work.h"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef uint64_t (*function)(uint64_t rounds);

/* mov %rdi,%rax; 1: imul $3,%rax; sub $1,%rdi; jnz 1b; ret */
static const unsigned char CODE[] = {0x48, 0x89, 0xf8, 0x48, 0x6b, 0xc0, 0x03, 0x48,
                                     0x83, 0xef, 0x01, 0x75, 0xf6, 0xc3};

static function compile(unsigned char *at)
{
    memcpy(at, CODE, sizeof CODE);
    return (function)(uintptr_t)at;
}

static void write_map(const unsigned char *hot, const unsigned char *cold)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(path, "w");
    if (!map)
        abort();
    fprintf(map, "%" PRIxPTR " %zx jit_hot\n%" PRIxPTR " %zx jit cold(int)\n", (uintptr_t)hot, sizeof CODE,
            (uintptr_t)cold, sizeof CODE);
    fclose(map);
    printf("map %s\n", path);
}

int main(int argc, char **argv)
{
    uint64_t length = (uint64_t)(seconds_argument(argc, argv) * 1e9);
    unsigned char *area = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        abort();
    function hot = compile(area), cold = compile(area + 256), unnamed = compile(area + 512);
    if (mprotect(area, 4096, PROT_READ | PROT_EXEC))
        abort();
    int late = argc > 2 && !strcmp(argv[2], "late");
    if (!late)
        write_map(area, area + 256);
    uint64_t done[3] = {0}, random = 5, spent = 0;
    uint64_t per_ms = rounds_per_ms(hot);
    while (spent < length) {
        uint64_t scale = per_ms * (50 + next_random(&random) % 101) / 100;
        const uint64_t rounds[] = {scale * 4 / 5, scale / 5, scale / 10};
        uint64_t start = cpu_ns();
        hot(rounds[0]);
        cold(rounds[1]);
        unnamed(rounds[2]);
        spent += cpu_ns() - start;
        for (int i = 0; i < 3; i++)
            done[i] += rounds[i];
    }
    if (late)
        write_map(area, area + 256);
    const char *names[] = {"jit_hot", "jit_cold", "unnamed"};
    double all = (double)(done[0] + done[1] + done[2]);
    for (int i = 0; i < 3; i++)
        printf("share_%s %.2f\n", names[i], 100.0 * (double)done[i] / all);
}
