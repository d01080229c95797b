/* 27: adds up its own text before, during and after the work. Patched text differs from the file, and
 * this program says so in the truth file (not on stdout); it must not crash, and after detaching the
 * sum must be that of the file again. */
#include "nasty.h"
#include <time.h>

extern const unsigned char etext[];
static uint64_t n_checked;

PROBED unsigned long checked(unsigned long x)
{
    count(&n_checked);
    return x * 3 + 1;
}

/* From this function on, to the end of the text: the part the probed function is in. */
static unsigned long text_sum(void)
{
    unsigned long sum = 0;
    for (const unsigned char *p = (const unsigned char *)checked; p < etext; p++)
        sum = sum * 31 + *p;
    return sum;
}

int main(void)
{
    unsigned long first = text_sum(), sum = 0, changed = 0;
    for (unsigned long i = 0; i < 2000; i++) {
        sum += checked(i);
        changed += text_sum() != first;
    }
    printf("%lu\n", sum);
    tell("checked", n_checked, "exact");
    tell("#text_changed", changed, "any");
}
