# The programs of calls/, target/workloads/calls-NAME, and builds of pathtruth and callcost.
K := $(OUT)/calls
CALLS_C := cputruth spans toggle recur forktree signals manythreads lookup together
PATHTRUTH := O0 O1 O2 O3 Os fp truth
CALLS := $(CALLS_C:%=$(K)-%) $(PATHTRUTH:%=$(K)-pathtruth-%) $(K)-callcost $(K)-callcost-pg $(K)-callcost-nop $(K)-callcost-lib $(K)-together-pg $(K)-target.so \
	$(K)-fakempi.so $(K)-halo $(K)-shapes-O1 $(K)-shapes-O2 $(K)-shapes-O3
CALLS_EXTRA := $(if $(shell command -v clang),$(K)-pathtruth-clangO2 $(K)-pathtruth-clangO3 $(K)-shapes-clang) \
	$(if $(shell command -v rustc),$(K)-shapes-rust)

calls: $(CALLS) $(CALLS_EXTRA)

$(CALLS): calls/rules.mk nasty/nasty.h cycles/work.h Makefile | $(OUT)

KC = $(CC) -O2 -g -std=gnu11 -Wall -Wextra -Werror -Wno-infinite-recursion -pthread $(KEXTRA) -o $@ $(filter %.c,$^) $(KLIBS)
$(K)-pathtruth-O0: KEXTRA := -O0
$(K)-pathtruth-O1: KEXTRA := -O1
$(K)-pathtruth-O3: KEXTRA := -O3
$(K)-pathtruth-Os: KEXTRA := -Os
$(K)-pathtruth-fp: KEXTRA := $(FP)
$(K)-pathtruth-truth: KEXTRA := -DTRUTH -finstrument-functions
# For tools that need room at function entries (-pg, nop5) or calls between modules.
$(K)-callcost-pg $(K)-together-pg: KEXTRA := -pg -fno-omit-frame-pointer
$(K)-callcost-nop: KEXTRA := -pg -mfentry -mnop-mcount -fno-pie -no-pie
$(K)-target.so: KEXTRA := -shared -fPIC -Wl,-soname,calls-target.so
$(K)-fakempi.so: KEXTRA := -shared -fPIC -Wl,-soname,calls-fakempi.so
$(K)-callcost-lib $(K)-halo: private KEXTRA := -Wl,-rpath,'$$ORIGIN'
$(K)-callcost-lib: private KLIBS = $(K)-target.so
$(K)-halo: private KLIBS = $(K)-fakempi.so

$(CALLS_C:%=$(K)-%): $(K)-%: calls/%.c
	$(KC)
$(PATHTRUTH:%=$(K)-pathtruth-%): calls/pathtruth.c
	$(KC)
$(K)-pathtruth-clang%: calls/pathtruth.c nasty/nasty.h | $(OUT)
	clang -Wno-everything -$* -g -std=gnu11 -o $@ $<
$(K)-callcost $(K)-callcost-pg $(K)-callcost-nop: calls/callcost.c calls/calltarget.c
	$(KC)
$(K)-together-pg: calls/together.c
	$(KC)
$(K)-callcost-lib: calls/callcost.c $(K)-target.so
	$(KC)
$(K)-target.so: calls/calltarget.c
	$(KC)
$(K)-fakempi.so: calls/fakempi.c calls/fakempi.h
	$(KC)
$(K)-halo: calls/halo.c calls/fakempi.h $(K)-fakempi.so
	$(KC)
$(K)-shapes-O%: calls/shapes.cpp
	$(CXX) $(CXXFLAGS) -O$* -o $@ $<
$(K)-shapes-clang: calls/shapes.cpp nasty/nasty.h | $(OUT)
	clang++ -Wno-everything -O2 -g -std=gnu++17 -o $@ $<
$(K)-shapes-rust: calls/shapes.rs | $(OUT)
	env -u MAKEFLAGS -u MFLAGS rustc --edition 2024 -C opt-level=2 -g -o $@ $<
