/* Hundreds of processes that live for 3 to 11 ms each, in every way a process comes to its code:
 * fork, fork + exec, vfork + exec, posix_spawn, exec in place, a deleted file, a memfd, a library
 * loaded and unloaded, and a pid used twice in a row. Each kind burns its CPU time in a function of
 * its own; the shares of the rounds they did are printed.
 *
 * Constraint: children talk through one inherited pipe only, so that the programs they become may be
 * anything. */
#define _GNU_SOURCE
#include "life.h"

#include "../work.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum kind { FORK, EXEC, BEFORE, VFORK, SPAWN, REUSE, DELETED, MEMFD, PLUGIN, KINDS };
static const char *const FUNCTION[KINDS] = {"burn_fork",   "after_exec",  "before_exec", "after_vfork", "after_spawn",
                                            "after_reuse", "lone_deleted", "lone_memfd",   "burn_plugin"};
/* All different, so that two kinds mixed up show in the shares. */
static const uint64_t LENGTH_MS[KINDS] = {3, 4, 5, 6, 7, 8, 9, 10, 11};

SPINNER(burn_fork, 0x9e3779b97f4a7c15u)
SPINNER(before_exec, 0xd6e8feb86659fd93u)

static int report_to, report_from;
static uint64_t per_ms;
static char after_path[PATH_MAX], lone_path[PATH_MAX], plugin_path[PATH_MAX], directory[PATH_MAX];
static uint64_t spent_ns[KINDS], seen[KINDS], reused;

static void check(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static void report(enum kind kind, uint64_t ns)
{
    struct spent spent = {kind, (uint32_t)getpid(), ns};
    if (write(report_to, &spent, sizeof spent) != sizeof spent)
        _exit(1);
}

/* Arguments of `after` and `lone`, in static storage: safe between vfork and exec. */
static char **arguments(const char *program, int index, enum kind kind)
{
    static char texts[4][24];
    static char *vector[6];
    snprintf(texts[0], sizeof texts[0], "%d", index);
    snprintf(texts[1], sizeof texts[1], "%" PRIu64, per_ms * LENGTH_MS[kind]);
    snprintf(texts[2], sizeof texts[2], "%d", kind);
    snprintf(texts[3], sizeof texts[3], "%d", report_to);
    vector[0] = (char *)program;
    for (int i = 0; i < 4; i++)
        vector[i + 1] = texts[i];
    return vector;
}

static void reap(pid_t child)
{
    int status;
    check(child > 0 && waitpid(child, &status, 0) == child, "child");
    check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child failed");
}

static void by_fork(void)
{
    pid_t child = fork();
    if (child == 0) {
        uint64_t start = cpu_ns();
        burn_fork(per_ms * LENGTH_MS[FORK]);
        report(FORK, cpu_ns() - start);
        _exit(0);
    }
    reap(child);
}

/* Burns in this image, then becomes another one at the same addresses. */
static void by_exec_in_place(void)
{
    pid_t child = fork();
    if (child == 0) {
        uint64_t start = cpu_ns();
        before_exec(per_ms * LENGTH_MS[BEFORE]);
        report(BEFORE, cpu_ns() - start);
        execv(after_path, arguments(after_path, 1, EXEC));
        _exit(127);
    }
    reap(child);
}

static void by_vfork(void)
{
    char **vector = arguments(after_path, 2, VFORK);
    pid_t child = vfork();
    if (child == 0) {
        execv(after_path, vector);
        _exit(127);
    }
    reap(child);
}

static pid_t spawn(int index, enum kind kind)
{
    pid_t child;
    check(posix_spawn(&child, after_path, NULL, NULL, arguments(after_path, index, kind), environ) == 0, "spawn");
    return child;
}

static void by_spawn(void) { reap(spawn(3, SPAWN)); }

/* Asks the kernel to give the next child the pid of the last one; without the right to, just spawns. */
static void by_reuse(void)
{
    static pid_t last;
    int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && last > 1) {
        dprintf(fd, "%d", last - 1);
        close(fd);
    }
    pid_t child = spawn(4, REUSE);
    reused += child == last;
    last = child;
    reap(child);
}

static int copy_to(int to, const char *from)
{
    int in = open(from, O_RDONLY | O_CLOEXEC);
    struct stat status;
    check(in >= 0 && fstat(in, &status) == 0, from);
    for (off_t left = status.st_size; left > 0;) {
        ssize_t n = sendfile(to, in, NULL, (size_t)left);
        check(n > 0, "copy");
        left -= n;
    }
    close(in);
    return to;
}

/* A program whose file is gone before it does its work. */
static void by_deleted(void)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/short-lived", directory);
    close(copy_to(open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700), lone_path));
    char **vector = arguments(path, 0, DELETED);
    pid_t child = vfork();
    if (child == 0) {
        execv(path, vector);
        _exit(127);
    }
    unlink(path);
    reap(child);
}

/* A program that never had a file. */
static void by_memfd(void)
{
    int fd = copy_to(memfd_create("no-file", MFD_CLOEXEC), lone_path);
    char **vector = arguments("no-file", 1, MEMFD);
    pid_t child = vfork();
    if (child == 0) {
        fexecve(fd, vector, environ);
        _exit(127);
    }
    close(fd);
    reap(child);
}

static void by_plugin(void)
{
    void *library = dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL);
    check(library != NULL, plugin_path);
    uint64_t (*burn)(uint64_t) = (uint64_t(*)(uint64_t))(uintptr_t)dlsym(library, "burn_plugin");
    check(burn != NULL, "burn_plugin");
    uint64_t start = cpu_ns();
    burn(per_ms * LENGTH_MS[PLUGIN]);
    report(PLUGIN, cpu_ns() - start);
    dlclose(library);
}

static void collect(void)
{
    struct spent spent;
    while (read(report_from, &spent, sizeof spent) == sizeof spent) {
        spent_ns[spent.kind] += spent.ns;
        seen[spent.kind]++;
    }
}

static void set_up(void)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    check(n > 0, "readlink");
    self[n] = 0;
    const char *folder = dirname(self);
    check(snprintf(after_path, sizeof after_path, "%s/life-after", folder) < PATH_MAX, "path");
    check(snprintf(lone_path, sizeof lone_path, "%s/life-lone", folder) < PATH_MAX, "path");
    check(snprintf(plugin_path, sizeof plugin_path, "%s/life-plugin.so", folder) < PATH_MAX, "path");
    const char *tmp = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/whither-life-XXXXXX", tmp ? tmp : "/tmp");
    check(mkdtemp(directory) != NULL, directory);
    int ends[2];
    check(pipe(ends) == 0, "pipe");
    report_from = ends[0];
    report_to = ends[1];
    check(fcntl(report_from, F_SETFL, O_NONBLOCK) == 0, "pipe");
    check(fcntl(report_from, F_SETFD, FD_CLOEXEC) == 0, "pipe");
}

int main(int argc, char **argv)
{
    uint64_t length = (uint64_t)(seconds_argument(argc, argv) * 1e9);
    set_up();
    per_ms = rounds_per_ms(burn_fork);
    void (*const ways[])(void) = {by_fork,  by_exec_in_place, by_vfork, by_spawn,
                                  by_reuse, by_deleted,       by_memfd, by_plugin};
    uint64_t start = wall_ns();
    while (wall_ns() - start < length) {
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
            ways[i]();
        collect();
    }
    rmdir(directory);
    uint64_t all = 0, total = 0, all_ms = 0;
    for (int i = 0; i < KINDS; i++) {
        all += seen[i];
        total += spent_ns[i];
        all_ms += seen[i] * LENGTH_MS[i];
    }
    for (int i = 0; i < KINDS; i++)
        printf("share_%s %.2f\n", FUNCTION[i], 100.0 * (double)(seen[i] * LENGTH_MS[i]) / (double)all_ms);
    printf("burns %" PRIu64 "\nreused_pids %" PRIu64 "\nburnt_cpu_s %.3f\n", all, reused, (double)total * 1e-9);
}
