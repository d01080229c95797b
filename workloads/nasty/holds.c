/* The library of `inside load`: its constructor waits, and the loader's lock is held meanwhile. */
extern void waiting(void);
__attribute__((constructor)) static void construct(void) { waiting(); }
