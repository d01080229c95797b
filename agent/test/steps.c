/*
 * A signal between any two instructions of the agent: calls are made one instruction at a time, and at each
 * one that is the agent's a handler runs that calls probed functions, looks at the stack, jumps out or goes
 * away to another stack and back. Run: steps AGENT.SO [case...].
 */
#include "harness.h"
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

static volatile u64 sink;
PROBED u64 work(u64 x) { return x * 2654435761u + 1; }
PROBED u64 other(u64 x) { return x ^ 0x5555; }
PROBED u64 nested(u64 x) { return other(x) + 1; }
NOINLINE u64 via(u64 (*f)(u64), u64 x, u64 size) { volatile char *p = (volatile char *)__builtin_alloca(size); p[0] = 0; return f(x) + p[0]; }
static u64 right(u64 (*f)(u64), u64 x) { return f == work ? x * 2654435761u + 1 : f == other ? x ^ 0x5555 : (x ^ 0x5555) + 1; }

static u64 agent_begin, agent_end;
static int is_ours(u64 ip) { return ip - agent_begin < agent_end - agent_begin; }

/* What the handler does at the agent's instructions; `at` counts them, `only` is the one it is done at, 0: each. */
enum { NOTHING, COUNTS, CALLS, LOOKS, JUMPS, GOES };
static volatile int doing, steady; /* by the same path at each */
static volatile u64 at, only, in_handler, unseen;
static u64 (*volatile called)(u64);
static sigjmp_buf out;
static ucontext_t here, there;
static char *stack_there;
static void calls_there(void)
{
	for (;;) {
		for (int i = 0; i < 2; i++) { if (via(called, 7, 64) != right(called, 7)) failures++; in_handler++; }
		swapcontext(&there, &here);
	}
}
static NOINLINE int sees_main(void)
{
	void *frames[64];
	int n = backtrace(frames, 64);
	for (int i = 0; i < n; i++) {
		Dl_info in;
		if (dladdr(frames[i], &in) && in.dli_sname && !strcmp(in.dli_sname, "main")) return 1;
	}
	return 0;
}
static void on_step(int s, siginfo_t *i, void *context)
{
	ucontext_t *c = (ucontext_t *)context;
	(void)s; (void)i;
	if (!is_ours((u64)c->uc_mcontext.gregs[REG_RIP])) return;
	u64 now = ++at;
	if (only && now != only) return;
	switch (doing) {
	case CALLS:
		for (int k = 0; k < 3; k++) { if (via(called, now, steady ? 64 : k * 32 + 16) != right(called, now)) failures++; in_handler++; }
		break;
	case LOOKS: if (!sees_main()) unseen++; break;
	case JUMPS: if (now & 1) { if (called(now) != right(called, now)) failures++; in_handler++; } siglongjmp(out, 1);
	case GOES: swapcontext(&here, &there); break;
	}
}
#define FLAGS(change) __asm__ volatile("lea -128(%%rsp), %%rsp\n pushfq\n " change ", (%%rsp)\n popfq\n lea 128(%%rsp), %%rsp" : : : "memory", "cc")
/* One call, an instruction at a time if anything is to be done at them. */
static NOINLINE u64 stepped(u64 (*f)(u64), u64 x, u64 size)
{
	at = 0;
	if (doing != NOTHING) FLAGS("orq $0x100");
	u64 r = via(f, x, size);
	FLAGS("andq $-0x101");
	return r;
}

static const struct { const char *name; u32 flags; } forms[] = {
	{"count", 0}, {"count by path", WH_DO_PATH}, {"exit", WH_DO_EXIT}, {"wall", ALL_TIMES}, {"cpu", ALL_TIMES | WH_DO_CPU},
	{"histogram", ALL_TIMES | WH_DO_CPU | WH_DO_HIST}, {"usage", ALL_TIMES | WH_DO_CPU | WH_DO_USAGE}};
#define FORMS (sizeof forms / sizeof *forms)
/* Known again, another path than last time, and never met before. */
enum { AGAIN, ANOTHER, NEW, KINDS };
static u64 fresh_size = 4096;
static u64 size_of(int kind, u64 n) { return kind == AGAIN ? 64 : kind == ANOTHER ? 64 + n % 3 * 32 : (fresh_size += 16); }
static void warm(u64 (*f)(u64)) { for (u64 n = 0; n < 4000; n++) sink = via(f, n, 64 + (n > 2000 ? n % 3 * 32 : 0)); for (u64 n = 0; n < 200; n++) sink = via(f, n, 64); }

struct probed { u32 work, other, nested; u64 before, lost; };
static struct probed put(u32 flags)
{
	struct probed p = {probe((void *)work, flags), probe((void *)other, flags), probe((void *)nested, flags), 0, 0};
	warm(work); warm(nested);
	/* The stack is known as far as it will be used: where it grows signals are blocked, and a step would kill. */
	for (u64 size = 0; size < 400000; size += 16384) sink = via(work, size, size + 16);
	return p;
}
static void from_here(struct probed *p)
{
	p->before = sums(p->work).calls + sums(p->other).calls + sums(p->nested).calls;
	p->lost = lost(WH_LOST_BUSY);
}
/* The first call is made where the others will be, for the stack's sake as well. */
#define PUT(p, flags) struct probed p = put(flags); doing = NOTHING; sink = stepped(work, 1, 64); from_here(&p)
static void done(const struct probed *p, u64 least, u64 most, const char *what, const char *form, int kind)
{
	u64 calls = sums(p->work).calls + sums(p->other).calls + sums(p->nested).calls - p->before, missed = lost(WH_LOST_BUSY) - p->lost;
	CHECK(calls + missed >= least && calls + missed <= most, "%s, %s, kind %d: %llu + lost %llu, not %llu to %llu", what, form, kind, (unsigned long long)calls, (unsigned long long)missed, (unsigned long long)least, (unsigned long long)most);
	for (int i = 0; i < 300; i++) if (via(work, (u64)i, 64) != right(work, (u64)i)) failures++;
	u64 after = sums(p->work).calls + sums(p->other).calls + sums(p->nested).calls - p->before - calls;
	CHECK(after + lost(WH_LOST_BUSY) - p->lost - missed == 300, "%s, %s, kind %d: %llu of 300 afterwards", what, form, kind, (unsigned long long)after);
	CHECK(THREAD(0)->n_active == 0 && THREAD(0)->busy_sp == 0, "%s, %s, kind %d: %u calls in progress, mark %llx", what, form, kind, THREAD(0)->n_active, (unsigned long long)THREAD(0)->busy_sp);
	unprobe(p->work); unprobe(p->other); unprobe(p->nested);
}

static int has_quick(void) { const char *way = getenv("WAY"); return !way || atoi(way) == 1; }
/* ---- the quick entries are what is stepped through ---- */
static void quick(void)
{
	if (!has_quick()) { printf("  SKIP: there are none\n"); return; }
	for (unsigned k = 0; k < FORMS; k++) {
		PUT(p, forms[k].flags);
		u64 least = ~0ull;
		doing = COUNTS;
		for (u64 n = 0; n < 20; n++) { if (stepped(work, n, 64) != right(work, n)) failures++; if (at < least) least = at; }
		doing = NOTHING;
		printf("  %s: %llu instructions\n", forms[k].name, (unsigned long long)least);
		CHECK(forms[k].flags & WH_DO_CPU || (least > 10 && least < 600), "%s: %llu instructions", forms[k].name, (unsigned long long)least);
		done(&p, 20, 20, "quick", forms[k].name, AGAIN);
	}
}

/* ---- the handler calls the same function, and others; or its coroutine does ---- */
static void handlers(void)
{
	u64 (*const who[3])(u64) = {work, other, nested};
	for (int how = CALLS; how <= GOES; how += GOES - CALLS) /* and nothing between them */
		for (unsigned k = 0; k < FORMS; k++)
			for (int kind = 0; kind < KINDS; kind++) {
				PUT(p, forms[k].flags);
				u64 mine = 0, least = ~0ull, most = 0;
				in_handler = 0;
				steady = kind == AGAIN;
				for (u64 n = 0; n < 30; n++) {
					doing = n < 24 ? NOTHING : how; /* once it is known what follows on it */
					called = who[n % 3];
					u64 inside = in_handler;
					u64 (*f)(u64) = n < 28 ? work : nested;
					if (stepped(f, n, size_of(kind, n)) != right(f, n)) failures++;
					mine += f == nested ? 2 : 1;
					mine += (in_handler - inside) * (called == nested ? 2 : 1);
					if (at > most) most = at;
					if (at < least && doing != NOTHING) least = at;
				}
				doing = NOTHING;
				CHECK(most > 10, "%s: nothing was stepped through", forms[k].name);
				CHECK(!steady || !has_quick() || forms[k].flags & WH_DO_CPU || least < 700, "%s: no quick entry was interrupted, %llu instructions", forms[k].name, (unsigned long long)least);
				done(&p, mine, mine, how == CALLS ? "calls" : "another stack", forms[k].name, kind);
				if (how == CALLS) printf("  %s, kind %d: %llu to %llu instructions of the agent\n", forms[k].name, kind, (unsigned long long)least, (unsigned long long)most);
			}
}

/* ---- the handler jumps out, at each instruction in turn ---- */
static void jumps(void)
{
	for (unsigned k = 0; k < FORMS; k++)
		for (int kind = 0; kind < KINDS; kind++) {
			PUT(p, forms[k].flags);
			volatile u64 mine = 0, jumped = 0, turn = 1;
			called = other;
			in_handler = 0;
			for (;; turn = turn + (has_quick() && turn < 300 ? 1 : 1 + turn / 20)) {
				only = turn;
				doing = JUMPS;
				if (!sigsetjmp(out, 1)) {
					if (stepped(work, 3, size_of(kind, turn)) != right(work, 3)) failures++;
					doing = NOTHING;
					mine++;
					break; /* there are no more instructions than that */
				}
				doing = NOTHING;
				jumped++;
				/* The first from further in than the one that was left, with what that has put on the stack in a hole. */
				for (u64 i = 0; i < 3; i++) { if (via(work, i, i ? 32 + i * 32 : 12288) != right(work, i)) failures++; mine++; }
			}
			only = 0;
			mine += in_handler;
			u64 missed = lost(WH_LOST_BUSY) - p.lost;
			CHECK(missed <= in_handler, "%s, kind %d: %llu lost, of handlers %llu", forms[k].name, kind, (unsigned long long)missed, (unsigned long long)in_handler);
			CHECK(jumped > 10, "%s: %llu jumps", forms[k].name, (unsigned long long)jumped);
			done(&p, mine, mine + jumped, "jumps", forms[k].name, kind);
		}
}

/* ---- unwinders find main from each instruction ---- */
static void unwinding(void)
{
	for (unsigned k = 0; k < FORMS; k++)
		for (int kind = 0; kind < KINDS; kind++) {
			PUT(p, forms[k].flags);
			unseen = 0;
			doing = LOOKS;
			for (u64 n = 0; n < 2; n++) if (stepped(work, n, size_of(kind, n)) != right(work, n)) failures++;
			doing = NOTHING;
			CHECK(at > 10 && unseen == 0, "%s, kind %d: not from %llu of %llu", forms[k].name, kind, (unsigned long long)unseen, (unsigned long long)at);
			done(&p, 2, 2, "unwinding", forms[k].name, kind);
		}
}

int main(int argc, char **argv)
{
	struct { const char *name; void (*run)(void); } all[] = {{"quick", quick}, {"handlers", handlers}, {"jumps", jumps}, {"unwinding", unwinding}};
	setup(argv[1]);
	agent_begin = (u64)dlsym(agent, "wh_code_begin");
	Dl_info in;
	agent_end = (u64)dlsym(agent, "wh_code_end");
	if (!agent_begin || !agent_end) return 2;
	stack_there = (char *)mmap(0, 1 << 17, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	getcontext(&there);
	there.uc_stack.ss_sp = stack_there; there.uc_stack.ss_size = 1 << 17;
	makecontext(&there, calls_there, 0);
	(void)sees_main(); /* loads what it needs */
	struct sigaction sa = {0};
	sa.sa_sigaction = on_step; sa.sa_flags = SA_SIGINFO;
	sigaction(SIGTRAP, &sa, 0);
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
		int wanted = argc == 2;
		for (int k = 2; k < argc; k++) wanted |= !strcmp(argv[k], all[i].name);
		if (!wanted) continue;
		int before = failures;
		all[i].run();
		printf("%s %s\n", failures == before ? "ok    " : "FAILED", all[i].name);
	}
	return failures != 0;
}
