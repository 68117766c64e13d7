# `make demo` and `make test` each do all the set-up that they need.
CARGO ?= cargo

.PHONY: all setup build demo test bench clean

all: build

setup:
	@sh .ci/setup

build: setup
	$(CARGO) build --release --locked

# Two datacenters join generated click logs through three registries; one datacenter is killed.
demo: build
	$(CARGO) run --release --locked --quiet --bin photon -- demo

# The tests of real processes come last: they need the binaries, and take longest.
test: build
	$(CARGO) test --release --locked --workspace --exclude photon --lib --bins --tests
	$(CARGO) test --release --locked --package photon --bins --tests

bench: setup
	$(CARGO) bench --locked --package photon-benches

clean:
	$(CARGO) clean
