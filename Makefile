# The two commands of README are `make demo` and `make test`; the rest serves developers and packagers.
SHELL  := /bin/bash
PREFIX ?= /usr/local
CARGO  ?= cargo

.PHONY: demo test acceptance bench fuzz install fmt lint bootstrap

## demo: install what is missing, build, record the whole system for 10 s, show where the time went
demo: bootstrap
	./scripts/demo

## test: everything CI runs; the last line is "N passed, N failed, N skipped"
test: bootstrap
	./scripts/test

## acceptance: the bars of the design on this machine (root; minutes), and cargo-deny
acceptance: bootstrap
	./scripts/acceptance

## bench: overhead, size and speed beside the peers; writes docs/benchmarks.md
bench: bootstrap
	./benches/run --write

## fuzz: every target for SECONDS each (nightly toolchain and cargo-fuzz)
fuzz:
	./scripts/fuzz $(or $(SECONDS_EACH),60)

## install: binary, man pages, completions and systemd unit below PREFIX (honours DESTDIR)
install:
	./scripts/install "$(DESTDIR)" "$(PREFIX)"

## fmt: format everything
fmt:
	$(CARGO) fmt --all

## lint: what clippy and rustfmt object to
lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

bootstrap:
	./scripts/bootstrap
