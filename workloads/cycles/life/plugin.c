/* A library that lives for one call: loaded, run, unloaded. */
#include "../work.h"

SPINNER(burn_plugin, 0xa0761d6478bd642fu)
