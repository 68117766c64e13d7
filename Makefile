# `make demo` and `make test` each do all the set-up that they need.
CARGO ?= cargo

.PHONY: all setup build demo test chaos swarm mutants bench clean

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

# Real processes under fire, with seeds of your choice.
FROM ?= 1
SEEDS ?= 5
chaos: build
	PHOTON_CHAOS_FROM=$(FROM) PHOTON_CHAOS_SEEDS=$(SEEDS) \
	$(CARGO) test --release --locked --package photon --test chaos -- --nocapture

# The simulator over many seeds; and the bugs that it must find, built apart from everything else.
swarm: setup
	$(CARGO) run --release --locked --package photon-sim -- swarm --from $(FROM) --seeds 20000

mutants: setup
	$(CARGO) test --release --locked --package photon-sim --features mutants

bench: setup
	$(CARGO) bench --locked --package photon-benches

clean:
	$(CARGO) clean
