/*
 * memcpy and memset for the compiler, which may call them where the source has an assignment.
 * Constraint: no vector registers; never called on a hot path.
 */
#include "sys.h"

void *memcpy(void *to, const void *from, unsigned long bytes)
{
	void *start = to;

	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
	return start;
}

void *memset(void *to, int byte, unsigned long bytes)
{
	void *start = to;

	__asm__ volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(byte) : "memory");
	return start;
}
