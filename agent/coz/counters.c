/*
 * Counters for programs with marks of Coz (COZ_PROGRESS, COZ_BEGIN, COZ_END): a shared object of its own that `whither causal`
 * has preloaded into a program that it launches. The marks look for `_coz_get_counter` once each, when they are first
 * reached, and add 1 to what it gives them from then on. Lives here: that function, and the table that whither reads.
 *
 * It calls nothing and waits for nobody: an entry that another thread (or the code that a signal has interrupted) is filling is
 * passed over, so that a mark may get two of them; whoever reads adds up. Reading needs no lock: what is in an entry is there
 * before its state says so, and stays. The layout is that of crates/probe/src/coz.rs.
 */

#define ENTRIES 256
#define NAME 480 /* with the NUL; of longer names the end is kept, where the line is */

typedef unsigned long long u64;
enum { FREE, CLAIMED, FILLED };

struct entry {
	u64 state;
	u64 type; /* 1: progress, 2: begin, 3: end */
	u64 count; /* what the mark adds to; with the next word Coz's coz_counter_t */
	u64 backoff; /* unused, by Coz too */
	char name[NAME];
};

struct table {
	u64 filled; /* entries */
	u64 refused; /* marks that found none free */
	u64 spare[6];
	struct entry entries[ENTRIES];
};

#define EXPORTED __attribute__((visibility("default")))

EXPORTED struct table whither_coz_table;

static const char *end_of(const char *name)
{
	u64 length = 0;
	while (name[length])
		length++;
	return length < NAME ? name : name + length - (NAME - 1);
}

static int same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

static void fill(struct entry *entry, u64 type, const char *name)
{
	entry->type = type;
	for (u64 i = 0; i < NAME - 1 && name[i]; i++)
		entry->name[i] = name[i];
	__atomic_store_n(&entry->state, FILLED, __ATOMIC_RELEASE);
	__atomic_fetch_add(&whither_coz_table.filled, 1, __ATOMIC_RELEASE);
}

EXPORTED void *_coz_get_counter(int type, const char *name);
EXPORTED void *_coz_get_counter(int type, const char *name)
{
	if (type < 1 || type > 3 || !name)
		return 0;
	name = end_of(name);
	for (int i = 0; i < ENTRIES; i++) {
		struct entry *entry = &whither_coz_table.entries[i];
		u64 state = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
		if (state == FREE && __atomic_compare_exchange_n(&entry->state, &state, CLAIMED, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			fill(entry, (u64)type, name);
			return &entry->count;
		}
		if (state == FILLED && entry->type == (u64)type && same(entry->name, name))
			return &entry->count;
	}
	__atomic_fetch_add(&whither_coz_table.refused, 1, __ATOMIC_RELAXED);
	return 0;
}

/* Behind `LD_PRELOAD=PREFIX` comes the number of the descriptor that this object was loaded from. */
static char preloaded[] = "LD_PRELOAD=/proc/self/fd/";

static char *behind_prefix(char *text)
{
	for (const char *p = preloaded; *p; p++, text++)
		if (*text != *p)
			return 0;
	return text;
}

static void close_descriptor(long number)
{
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "0"(3L), "D"(number) : "rcx", "r11", "memory");
}

/* What is in the environment and among the descriptors for our sake is taken away before the program begins: it does not see
 * it, and what it executes does not get it. glibc calls constructors with the arguments of main. */
__attribute__((constructor)) static void leave_no_trace(int argc, char **argv, char **envp)
{
	(void)argc, (void)argv;
	for (char **variable = envp; variable && *variable; variable++) {
		char *rest = behind_prefix(*variable);
		if (!rest)
			continue;
		long number = 0;
		for (; *rest >= '0' && *rest <= '9' && number < 100000000; rest++)
			number = 10 * number + (*rest - '0');
		if (*rest == ':') {
			/* What the user had preloaded stays. */
			char *to = *variable + sizeof("LD_PRELOAD=") - 1;
			do
				*to++ = *++rest;
			while (*rest);
		} else if (*rest == 0) {
			for (char **p = variable; *p; p++)
				p[0] = p[1];
		} else {
			return;
		}
		close_descriptor(number);
		return;
	}
}
