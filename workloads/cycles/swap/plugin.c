/* A plug-in of `swap`: its function bears the name that it is built with. */
#include "../work.h"

NOINLINE uint64_t PLUGIN(uint64_t rounds) { return spin(rounds, 5); }
