/*
 * System calls without a C library, and the few compiler words everything uses. Constraint: the agent
 * must not touch errno, locks or memory of the program it lives in; a refused call is an answer < 0.
 */
#ifndef WH_SYS_H
#define WH_SYS_H

#include "../include/whither_agent.h"

typedef wh_u8 u8;
typedef wh_u16 u16;
typedef wh_u32 u32;
typedef wh_s32 s32;
typedef wh_u64 u64;
typedef long long s64;

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define slow_path __attribute__((noinline, cold))
#define exported __attribute__((visibility("default")))
/* Keeps the compiler from moving memory accesses; the CPU keeps stores in order by itself. */
#define barrier() __asm__ volatile("" ::: "memory")

enum {
	SYS_MMAP = 9, SYS_MUNMAP = 11, SYS_RT_SIGPROCMASK = 14, SYS_MINCORE = 27, SYS_MADVISE = 28, SYS_GETPID = 39,
	SYS_GETRUSAGE = 98, SYS_ARCH_PRCTL = 158, SYS_GETTID = 186, SYS_FUTEX = 202,
	SYS_CLOCK_GETTIME = 228, SYS_TGKILL = 234, SYS_PERF_EVENT_OPEN = 298, SYS_OPEN = 2, SYS_READ = 0,
	SYS_CLOSE = 3, SYS_PROCESS_VM_READV = 310, SYS_PRLIMIT64 = 302
};

static inline s64 sys6(u64 number, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
{
	register u64 r10 __asm__("r10") = d;
	register u64 r8 __asm__("r8") = e;
	register u64 r9 __asm__("r9") = f;
	s64 answer;

	__asm__ volatile("syscall"
			 : "=a"(answer)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return answer;
}

#define sys0(n) sys6(n, 0, 0, 0, 0, 0, 0)
#define sys2(n, a, b) sys6(n, (u64)(a), (u64)(b), 0, 0, 0, 0)
#define sys3(n, a, b, c) sys6(n, (u64)(a), (u64)(b), (u64)(c), 0, 0, 0)
#define sys4(n, a, b, c, d) sys6(n, (u64)(a), (u64)(b), (u64)(c), (u64)(d), 0, 0)

#define ESRCH_ 3
#define EFAULT_ 14
#define PAGE 4096ull

enum { MAP_PRIVATE_ = 2, MAP_SHARED_ = 1, MAP_ANONYMOUS_ = 0x20, MAP_NORESERVE_ = 0x4000, MAP_NOREPLACE_ = 0x100000,
       MADV_DONTDUMP_ = 16 };

/* Fresh zeroed memory that costs nothing until touched; 0 when refused. At `where` if that is free. */
static inline void *map_private(u64 where, u64 bytes)
{
	u64 flags = MAP_PRIVATE_ | MAP_ANONYMOUS_ | MAP_NORESERVE_ | (where ? MAP_NOREPLACE_ : 0);
	s64 got = sys6(SYS_MMAP, where, bytes, 3, flags, ~0ull, 0);

	if (got < 0 && got > -4096)
		return 0;
	if (where && (u64)got != where) { /* kernels before 4.17 take the address as a hint */
		sys2(SYS_MUNMAP, got, bytes);
		return 0;
	}
	return (void *)got;
}

/* The first page of a mapping that is used takes the lock of the address space, later ones that of the mapping. */
static inline void touch(u64 fresh)
{
	*(volatile u64 *)fresh = 0;
}

/* All signals off in slow paths that must not be left half-way; `signals_restore` gives them back. */
static inline u64 signals_block(void)
{
	u64 all = ~0ull, before = 0;

	sys4(SYS_RT_SIGPROCMASK, 0, &all, &before, 8);
	return before;
}

static inline void signals_restore(u64 before)
{
	sys4(SYS_RT_SIGPROCMASK, 2, &before, 0, 8);
}

/* Whether 8 bytes can be read: the kernel copies the set before it finds the request number wrong. */
static inline int readable(u64 address)
{
	return sys4(SYS_RT_SIGPROCMASK, 99, address, 0, 8) != -EFAULT_;
}

static inline u64 ticks(void)
{
	u32 low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (u64)high << 32 | low;
}

#endif
