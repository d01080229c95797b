# The programs of causal/, target/workloads/causal-NAME[-VARIANT]. What needs a tool that is not here is left out; the
# tests then say so. lld comes with rustc.
Z := $(OUT)/causal
CAUSAL_C := serial example sleepy phases hammer queue1 callers over iobar ticker warmup eintr feeder rwlock execs clients counted asked served paced
CAUSAL_SYNC := mutex atomicwait cppsem sem pipe socket eventfd c11 spinfutex
# Those that are semaphores themselves.
CAUSAL_TURNS := atomicwait sem pipe eventfd spinfutex
# How serial (C) and prodcons (C++) are built besides.
CAUSAL_BUILDS := static nopie dwarf4 dwarf5 stripped debuglink splitdwarf nodebug
CAUSAL := $(CAUSAL_C:%=$(Z)-%) $(Z)-twothread $(Z)-twothread-barrier $(Z)-twothread-latch $(Z)-scope \
	$(CAUSAL_SYNC:%=$(Z)-prodcons-%) $(CAUSAL_SYNC:%=$(Z)-lockc-%) $(CAUSAL_TURNS:%=$(Z)-pingpong-%) \
	$(foreach b,$(CAUSAL_BUILDS),$(Z)-serial-$b $(Z)-build-prodcons-$b)
LLD_DIR := $(wildcard $(if $(shell command -v rustc),$(shell rustc --print sysroot 2>/dev/null)/lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld))
CAUSAL_LINKERS := $(if $(shell command -v ld.lld)$(LLD_DIR),lld) $(if $(shell command -v mold),mold)
CAUSAL_EXTRA := $(foreach b,$(CAUSAL_LINKERS) $(if $(shell command -v clang),clang) $(if $(shell command -v musl-gcc),musl),$(Z)-serial-$b) \
	$(foreach b,$(CAUSAL_LINKERS) $(if $(shell command -v clang++),clang),$(Z)-build-prodcons-$b) \
	$(if $(shell command -v rustc),$(Z)-prodcons-rust $(Z)-lockc-rust) $(if $(shell command -v go),$(Z)-prodcons-go)
CAUSAL_COZ := serial sleepy twothread prodcons lockc

causal: $(CAUSAL) $(CAUSAL_EXTRA)
# Debian's Coz 0.2.2 understands nothing newer than DWARF 3, and needs its own progress points.
causal-coz: $(CAUSAL_COZ:%=$(Z)-%-coz)

CAUSAL_HEAD := causal/causal.h cycles/work.h ../include/whither.h causal/rules.mk Makefile
$(CAUSAL) $(CAUSAL_EXTRA) $(CAUSAL_COZ:%=$(Z)-%-coz): $(CAUSAL_HEAD) | $(OUT)
$(CAUSAL_SYNC:%=$(Z)-prodcons-%) $(CAUSAL_SYNC:%=$(Z)-lockc-%) $(CAUSAL_TURNS:%=$(Z)-pingpong-%) $(Z)-build-prodcons-lld $(Z)-prodcons-coz $(Z)-lockc-coz: causal/sync.hpp

# Functions of equal bodies stay apart, and bodies as they are written: one function, one line, one part.
ZFLAGS := -O2 -g -fno-ipa-icf -pthread
ZWARN := -Wall -Wextra -Werror
ZC = $(CC) -std=gnu11 $(ZFLAGS) $(ZWARN) $(ZEXTRA) -o $@ $(filter %.c,$^) -lm
ZX = $(CXX) -std=gnu++20 $(ZFLAGS) $(ZWARN) $(ZEXTRA) -o $@ $(filter %.cpp,$^)
$(Z)-%-static: ZEXTRA := -static
$(Z)-%-nopie: ZEXTRA := -no-pie -fno-pie
$(Z)-%-dwarf4: ZEXTRA := -gdwarf-4
$(Z)-%-dwarf5: ZEXTRA := -gdwarf-5
$(Z)-%-stripped: ZEXTRA := -s -rdynamic
$(Z)-%-nodebug: ZEXTRA := -g0
$(Z)-%-splitdwarf: ZEXTRA := -gsplit-dwarf
$(Z)-%-lld: ZEXTRA := -fuse-ld=lld $(LLD_DIR:%=-B%)
$(Z)-%-mold: ZEXTRA := -fuse-ld=mold
$(Z)-%-coz: ZEXTRA := -DCOZ -gdwarf-3 -gstrict-dwarf -ldl
$(Z)-%-clang: ZWARN := -Wno-everything
$(Z)-%-clang: ZFLAGS := -O2 -g -pthread
$(Z)-%-clang: private CC := clang
$(Z)-%-clang: private CXX := clang++
$(Z)-%-musl: private CC := musl-gcc
$(Z)-twothread-barrier: ZEXTRA := -DSYNC_barrier
$(Z)-twothread-latch: ZEXTRA := -DSYNC_latch

$(CAUSAL_C:%=$(Z)-%): $(Z)-%: causal/%.c
	$(ZC)
$(Z)-twothread $(Z)-twothread-barrier $(Z)-twothread-latch: causal/twothread.cpp
	$(ZX)
$(Z)-scope: causal/scope.cpp
	$(ZX)
$(CAUSAL_SYNC:%=$(Z)-prodcons-%): $(Z)-prodcons-%: causal/prodcons.cpp
	$(ZX) -DSYNC_$*
$(CAUSAL_SYNC:%=$(Z)-lockc-%): $(Z)-lockc-%: causal/lockc.cpp
	$(ZX) -DSYNC_$*
$(CAUSAL_TURNS:%=$(Z)-pingpong-%): $(Z)-pingpong-%: causal/pingpong.cpp
	$(ZX) -DSYNC_$*
$(Z)-serial-%: causal/serial.c
	$(ZC)
	$(ZAFTER)
$(Z)-build-prodcons-%: causal/prodcons.cpp
	$(ZX)
	$(ZAFTER)
$(Z)-%-coz: causal/%.c
	$(ZC)
$(Z)-%-coz: causal/%.cpp
	$(ZX)
# The debug information goes into a file beside it, to which the program points.
$(Z)-serial-debuglink $(Z)-build-prodcons-debuglink: ZAFTER = objcopy --only-keep-debug $@ $@.debug && objcopy --strip-all --add-gnu-debuglink=$@.debug $@
$(Z)-%-rust: causal/%.rs
	env -u MAKEFLAGS -u MFLAGS rustc --edition 2024 -C opt-level=2 -g -o $@ $<
$(Z)-prodcons-go: causal/prodcons.go
	go build -o $@ $<
