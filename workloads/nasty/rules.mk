# The nasty programs, target/workloads/nasty-NAME. What needs a compiler that is not here is left out:
# the tests then say so.
N := $(OUT)/nasty
NASTY_C := jump threadend coroutine family churn reload deep args noreturn libc ifunc checksum seccomp shut traced stops inside \
	backtraces twice percpu altstack traps survivor unmapped copied ownfs overflow
NASTY_ARGS := static nopie stripped asan tsan O0 Os fp
NASTY := $(NASTY_C:%=$(N)-%) $(NASTY_ARGS:%=$(N)-args-%) $(N)-throw $(N)-entries $(N)-frames $(N)-coroutine-nopie \
	$(N)-jump-static $(N)-throw-static $(N)-threadend-static $(N)-plugin-a.so $(N)-plugin-b.so $(N)-holds.so
NASTY_EXTRA := $(if $(shell command -v musl-gcc),$(N)-args-musl $(N)-jump-musl) $(if $(shell command -v go),$(N)-go) \
	$(if $(shell command -v rustc),$(N)-panic)

nasty: $(NASTY) $(NASTY_EXTRA)

$(NASTY): nasty/nasty.h nasty/rules.mk Makefile | $(OUT)

# -rdynamic: the stripped program keeps names the dynamic linker needs; the others are found either way.
NC = $(CC) -O2 -g -std=gnu11 -Wall -Wextra -Werror -Wno-infinite-recursion -pthread $(NEXTRA) -o $@ $(filter %.c %.S,$^) -ldl -lm
$(N)-coroutine-nopie $(N)-args-nopie: NEXTRA := -no-pie
$(N)-args-static $(N)-jump-static $(N)-threadend-static: NEXTRA := -static
$(N)-args-stripped: NEXTRA := -rdynamic -s
$(N)-args-asan: NEXTRA := -fsanitize=address
$(N)-args-tsan: NEXTRA := -fsanitize=thread
$(N)-args-O0: NEXTRA := -O0
$(N)-args-Os: NEXTRA := -Os
$(N)-args-fp: NEXTRA := $(FP)
$(N)-inside: NEXTRA := -rdynamic
$(N)-plugin-a.so $(N)-holds.so: NEXTRA := -shared -fPIC
$(N)-plugin-b.so: NEXTRA := -shared -fPIC -DSHIFT

$(NASTY_C:%=$(N)-%): $(N)-%: nasty/%.c
	$(NC)
$(NASTY_ARGS:%=$(N)-args-%): nasty/args.c
	$(NC)
$(N)-coroutine-nopie: nasty/coroutine.c
	$(NC)
$(N)-jump-static $(N)-threadend-static: $(N)-%-static: nasty/%.c
	$(NC)
$(N)-entries: nasty/entries.c nasty/odd.S
	$(NC)
$(N)-frames: nasty/frames.c nasty/bare.S
	$(NC)
$(N)-plugin-a.so $(N)-plugin-b.so: nasty/plugin.c
	$(NC)
$(N)-holds.so: nasty/holds.c
	$(NC)
$(N)-throw: nasty/throw.cpp
	$(CXX) $(CXXFLAGS) -pthread -o $@ $<
$(N)-throw-static: nasty/throw.cpp
	$(CXX) $(CXXFLAGS) -static -pthread -o $@ $<
$(N)-args-musl $(N)-jump-musl: $(N)-%-musl: nasty/%.c nasty/nasty.h | $(OUT)
	musl-gcc -O2 -g -std=gnu11 -Wno-infinite-recursion -o $@ $< -lm
$(N)-go: nasty/sum.go | $(OUT)
	go build -o $@ $<
$(N)-panic: nasty/panic.rs | $(OUT)
	env -u MAKEFLAGS -u MFLAGS rustc --edition 2024 -O -g -o $@ $<
