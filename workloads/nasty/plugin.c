/* The library of `reload`. Built twice: with SHIFT the function lies elsewhere and answers otherwise, so
 * that a stale patch or a stale name is noticed. */
#include "nasty.h"

#ifdef SHIFT
PROBED long plugin_other(long x) { return x * 11 + x / 3; }
PROBED long plugin_work(long x) { return plugin_other(x) - 7; }
#else
PROBED long plugin_work(long x) { return x * 2 + 1; }
#endif
