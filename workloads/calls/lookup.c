/* The case of a slow look-up: 107 requests to insert instrumentation, nearly all of their time in the
 * catch-up phase, nearly all of that in find_func_by_addr, because the table is keyed by a function's
 * entry address while 81 % of the calls ask for addresses inside a function, from one caller. An address
 * that is no entry costs a scan of the table. `lookup tree` looks up in a sorted array with a one-entry cache.
 *   lookup [hash|tree] [REQUESTS] */
#include "../cycles/work.h"
#include "../nasty/nasty.h"

enum { FUNCTIONS = 4096, BUCKETS = 1024, ENTRY_BYTES = 64, CALLS = 100, INSIDE = 81 };

struct function {
    uint64_t entry, end;
    struct function *next;
    long hits;
};

static struct function table[FUNCTIONS], *bucket[BUCKETS], *cached;
static int tree;
static uint64_t n_find, n_triggered, n_catchup, cpu_find, cpu_catchup, find_started;

static unsigned slot_of(uint64_t address) { return (unsigned)(address / ENTRY_BYTES * 2654435761u) % BUCKETS; }

static struct function *in_tree(uint64_t address)
{
    if (cached && address >= cached->entry && address < cached->end)
        return cached;
    long low = 0, high = FUNCTIONS - 1;
    while (low < high) {
        long middle = (low + high + 1) / 2;
        if (table[middle].entry <= address)
            low = middle;
        else
            high = middle - 1;
    }
    return cached = &table[low];
}

PROBED struct function *find_func_by_addr(uint64_t address)
{
    n_find++;
    if (tree)
        return in_tree(address);
    for (struct function *f = bucket[slot_of(address)]; f; f = f->next)
        if (f->entry == address)
            return f;
    for (int i = 0; i < BUCKETS; i++)
        for (struct function *f = bucket[i]; f; f = f->next)
            if (address >= f->entry && address < f->end)
                return f;
    return NULL;
}

/* Return addresses lie inside functions: the slow way, 81 of 100 calls. */
PROBED long triggered_in_stack_frame(uint64_t seed)
{
    long hits = 0;
    n_triggered++;
    for (int i = 0; i < INSIDE; i++) {
        struct function *f = find_func_by_addr(0x400000 + (seed * 131 + (uint64_t)i * 977) % (FUNCTIONS * ENTRY_BYTES));
        hits += f ? ++f->hits & 1 : 0;
    }
    return hits;
}

/* Entries: found at once. */
PROBED long resolve_calls(uint64_t seed)
{
    long hits = 0;
    for (int i = 0; i < CALLS - INSIDE; i++) {
        struct function *f = find_func_by_addr(0x400000 + (seed * 37 + (uint64_t)i * 11) % FUNCTIONS * ENTRY_BYTES);
        hits += f ? f->hits & 1 : 0;
    }
    return hits;
}

PROBED uint64_t relocate_code(uint64_t rounds) { return spin(rounds, 0x9e3779b97f4a7c15u); }
PROBED uint64_t write_patches(uint64_t rounds) { return spin(rounds, 0xbf58476d1ce4e5b9u); }

PROBED long catch_up(uint64_t seed)
{
    n_catchup++;
    uint64_t start = cpu_ns();
    long hits = 0;
    for (uint64_t frame = 0; frame < 4; frame++) {
        uint64_t before = cpu_ns();
        hits += triggered_in_stack_frame(seed * 4 + frame);
        cpu_find += cpu_ns() - before;
        hits += resolve_calls(seed * 4 + frame);
    }
    hits += (long)(relocate_code(find_started / 12) & 1);
    cpu_catchup += cpu_ns() - start;
    return hits;
}

PROBED long insert_instrumentation(uint64_t seed)
{
    long hits = catch_up(seed) + (long)(write_patches(find_started / 13) & 1);
    KEEP(hits);
    return hits;
}

/* Rounds of a spin that last as long as the look-ups of one request by the slow table. */
static uint64_t rounds_of_a_request(void)
{
    int wanted = tree;
    uint64_t per_ms = rounds_per_ms(relocate_code), best = UINT64_MAX;
    tree = 0;
    for (int i = 0; i < 3; i++) {
        uint64_t start = cpu_ns();
        for (uint64_t frame = 0; frame < 4; frame++)
            triggered_in_stack_frame(frame + (uint64_t)i);
        uint64_t took = cpu_ns() - start;
        best = took < best ? took : best;
    }
    tree = wanted;
    return (uint64_t)((double)best / 1e6 * (double)per_ms);
}

int main(int argc, char **argv)
{
    long requests = argc > 2 ? atol(argv[2]) : 107, hits = 0;
    tree = argc > 1 && !strcmp(argv[1], "tree");
    for (int i = 0; i < FUNCTIONS; i++) {
        table[i] = (struct function){0x400000 + (uint64_t)i * ENTRY_BYTES, 0x400000 + (uint64_t)(i + 1) * ENTRY_BYTES, NULL, 0};
        struct function **head = &bucket[slot_of(table[i].entry)];
        table[i].next = *head;
        *head = &table[i];
    }
    find_started = rounds_of_a_request();
    cpu_find = cpu_catchup = 0;
    uint64_t before = n_find, start = cpu_ns();
    for (long i = 0; i < requests; i++)
        hits += insert_instrumentation((uint64_t)i);
    double all = (double)(cpu_ns() - start);
    fprintf(stderr, "hits %ld\n", hits);
    printf("cpu_ms %.1f\nshare_catch_up %.1f\nshare_find %.1f\n", all / 1e6, 100 * (double)cpu_catchup / all, 100 * (double)cpu_find / all);
    printf("calls_find %" PRIu64 "\nshare_calls_triggered %.2f\n", n_find,
           100 * (double)(INSIDE * 4 * requests) / (double)(n_find - before));
    tell("find_func_by_addr", n_find, "exact");
    tell("triggered_in_stack_frame", n_triggered, "exact");
    tell("catch_up", n_catchup, "exact");
}
