# Everything a contributor calls. Needs Go (see go.mod), Node 20.10 or later with npm for
# the SDK, the dashboard and the examples, and bash; nothing else is installed, and what is downloaded are
# Go modules and, into the node_modules of sdk-js and web, npm packages. Only generate needs protoc.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO        ?= go
NPM       ?= npm
FUZZTIME  ?= 60s
BENCHTIME ?= 1s
# Power cuts that make soak plays, and worlds that make sim plays.
SEEDS     ?= 2000
# The first of those worlds.
FROM      ?= 0
# Faults that make planted plants, by their names; all of them otherwise.
FAULTS    ?= all
# Scenarios that bench-peers plays, with commas between; all otherwise.
SCENARIOS ?=
# How often each system has its turn in bench-peers.
REPETITIONS ?= 3
# Tests that make acceptance runs.
LINES     ?= ^Test(AClusterForms|AFourthNodeJoinsUnderLoad|EachNodeIs.*|APausedLeaderReturns|CutLinks|DataFlowsWithoutCoordinators|AllNodesAreKilledAtOnce|AHarmedReplica.*|ACorruptJournal.*|AnotherFolderIsNoReplica|AFullDiskOfOneBroker|EveryNodeTellsTheTruth|MishapsOnMishaps)$$
# More flags for go test, for example TESTFLAGS=-v.
TESTFLAGS ?=

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT     := mvdan.cc/gofumpt@v0.12.0

BIN := bin/tidewire

# A release gives its name: make build VERSION=v1.2.3.
VERSION ?=
LDFLAGS := $(if $(VERSION),-X main.version=$(VERSION))

# Packages without a goroutine of their own: the race detector finds nothing
# there and makes their property tests several times slower.
PURE  := ^tidewire/(internal/(arch|cluster|fault|ident|inbox|pace|parts|record|wire|testkit/(check|redelivery|sim))|broker/(lease|partition|replication)|coordinator/(assign|balance|layout|liveness|placement|session|state)|gateway/(access|alert|cursor|group|topology)|cmd/tidewire/internal/capacity)$$
# Real processes: they run the built binary. Most of their tests wait most of the time,
# so more of them run at a time than there are cores; those that do not take turns.
E2E   := ^tidewire/e2e(/|$$)

pure_packages = $$($(GO) list ./... | grep -E '$(PURE)')
race_packages = $$($(GO) list ./... | grep -Ev '$(PURE)|$(E2E)')

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

.PHONY: build
build: ## ./bin/tidewire
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/tidewire

.PHONY: run
run: build ## build, and serve one node on the default addresses with its data in ./tidewire-data
	exec ./$(BIN) serve

# Node number $(1) of the cluster that make cluster runs; docker-compose.yml starts
# the same in containers, and a test holds both to one another. Each has ten ports.
cluster_seeds := 127.0.0.1:7402,127.0.0.1:7412,127.0.0.1:7422
cluster_node = ./$(BIN) serve --data tidewire-data/n$(1) --name n$(1) --bootstrap-expect 3 --join $(cluster_seeds) \
	--http 127.0.0.1:808$(2) --rpc 127.0.0.1:74$(2)0 --raft 127.0.0.1:74$(2)1 --gossip 127.0.0.1:74$(2)2

.PHONY: cluster
cluster: build ## build, and serve a cluster of three nodes, with data and logs in ./tidewire-data; Ctrl-C stops it
	@mkdir -p tidewire-data; pids=(); \
	stop() { kill -TERM "$${pids[@]}" 2>/dev/null || true; wait || true; }; \
	trap stop EXIT; trap 'exit 143' TERM; trap 'wait || true; exit 130' INT; \
	$(call cluster_node,1,0) >/dev/null 2>>tidewire-data/n1.log & pids+=($$!); \
	$(call cluster_node,2,1) >/dev/null 2>>tidewire-data/n2.log & pids+=($$!); \
	$(call cluster_node,3,2) >/dev/null 2>>tidewire-data/n3.log & pids+=($$!); \
	for i in 0 1 2; do \
		until ./$(BIN) healthcheck --server http://127.0.0.1:808$$i >/dev/null 2>&1; do \
			kill -0 "$${pids[$$i]}" 2>/dev/null || { tail -n 5 tidewire-data/n$$((i + 1)).log; exit 1; }; \
			sleep 0.1; \
		done; \
		echo "n$$((i + 1)) serves http://127.0.0.1:808$$i, its log is tidewire-data/n$$((i + 1)).log"; \
	done; \
	wait

.PHONY: test
test: check pure race e2e sdk-test web-test bench-test ## all that must be green before a change lands

.PHONY: check
check: ## go vet and gofmt
	$(GO) vet ./...
	cd bench && $(GO) vet ./...
	@bad=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$bad" ]; then printf 'gofmt would change:\n%s\n' "$$bad"; exit 1; fi

.PHONY: pure
pure: ## tests of the pure packages, which have no goroutine to race
	$(GO) test -timeout 10m $(TESTFLAGS) $(pure_packages)

.PHONY: race
race: ## tests of everything else but e2e, with the race detector
	$(GO) test -race -timeout 10m $(TESTFLAGS) $(race_packages)
	$(GO) test -race -tags faults -run Proxy -timeout 1m $(TESTFLAGS) ./internal/rpc
	$(GO) test -run OneAnothersAddresses -timeout 2m $(TESTFLAGS) ./coordinator

# What a lock file names, and nothing else; npm keeps a copy of it there.
SDK_MODULES := sdk-js/node_modules/.package-lock.json
WEB_MODULES := web/node_modules/.package-lock.json

%/node_modules/.package-lock.json: %/package-lock.json
	@command -v $(NPM) >/dev/null || { echo "$* needs Node 20.10 or later with npm: https://nodejs.org" >&2; exit 1; }
	cd $* && $(NPM) ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

.PHONY: e2e
e2e: build $(SDK_MODULES) ## tests with real processes, against ./bin/tidewire
	@if $(GO) list ./... | grep -qE '$(E2E)'; then \
		TEST_TIDEWIRE_BIN="$(CURDIR)/$(BIN)" $(GO) test -count=1 -timeout 20m -parallel 8 $(TESTFLAGS) ./e2e/...; \
	fi

.PHONY: sdk
sdk: $(SDK_MODULES) ## the JavaScript SDK: lint, types, ./sdk-js/dist, and whether the package is in shape and within its size
	cd sdk-js && $(NPM) run --silent lint && $(NPM) run --silent types && $(NPM) run --silent build && \
		$(NPM) run --silent size && $(NPM) run --silent package

.PHONY: sdk-test
sdk-test: sdk build ## sdk, and its tests, also against ./bin/tidewire
	cd sdk-js && TEST_TIDEWIRE_BIN="$(CURDIR)/$(BIN)" $(NPM) run --silent test

# Each runs a node with its data in ./tidewire-data/examples and serves its page; Ctrl-C stops it.
.PHONY: example-chat example-vehicles example-queue
example-chat: build $(SDK_MODULES) ## a chat room: prints the address of its page
	exec node examples/run.mjs chat
example-vehicles: build $(SDK_MODULES) ## a live map of made-up trams
	exec node examples/run.mjs vehicles
example-queue: build $(SDK_MODULES) ## a work queue with painters that come and go
	exec node examples/run.mjs queue

.PHONY: dashboard
dashboard: $(WEB_MODULES) ## ./web/assets, which is committed, from the source of the dashboard and the SDK
	cd web && $(NPM) run --silent build

.PHONY: web-test
web-test: $(WEB_MODULES) ## the dashboard: lint, types, tests of its pure parts, and whether ./web/assets is what its source makes
	cd web && $(NPM) run --silent lint && $(NPM) run --silent types && $(NPM) run --silent test && $(NPM) run --silent current

.PHONY: lint
lint: check ## go vet, staticcheck, gofumpt (generated code is as its generator wrote it)
	$(GO) run $(STATICCHECK) ./...
	cd bench && $(GO) run $(STATICCHECK) ./...
	@bad=$$($(GO) run $(GOFUMPT) -l $$(git ls-files -co --exclude-standard '*.go' ':!*.pb.go')); \
	if [ -n "$$bad" ]; then printf 'gofumpt would change:\n%s\n' "$$bad"; exit 1; fi

.PHONY: fmt
fmt: ## rewrite every Go file as gofumpt wants it
	$(GO) run $(GOFUMPT) -w $$(git ls-files -co --exclude-standard '*.go' ':!*.pb.go')

# What it writes is committed, so nobody needs protoc who does not change messages.
PROTO := internal/rpc/tidewirepb

.PHONY: generate
generate: ## the Go code of the messages between nodes (needs protoc)
	@command -v protoc >/dev/null || { \
		echo "make generate needs protoc: apt-get install protobuf-compiler, or https://github.com/protocolbuffers/protobuf/releases" >&2; exit 1; }
	@plugins=$$(mktemp -d); trap 'rm -rf "$$plugins"' EXIT; \
	$(GO) build -o "$$plugins/" google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc; \
	PATH="$$plugins:$$PATH" protoc -I $(PROTO) --go_out=$(PROTO) --go_opt=paths=source_relative \
		--go-grpc_out=$(PROTO) --go-grpc_opt=paths=source_relative tidewire.proto; \
	sed -i -E '/^\/\/ .*\bprotoc +v[0-9.]+$$/d' $(PROTO)/*.pb.go # any protoc will do

.PHONY: vectors
vectors: ## the vectors of e2e/conformance that are made from the node's code
	$(GO) test -count=1 -run '^TestGeneratedVectorsAreCurrent$$' ./e2e/conformance -rewrite

.PHONY: fuzz
fuzz: ## every fuzz target there is, FUZZTIME each
	@n=0; \
	for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u); do \
		for target in $$(grep -h '^func Fuzz' $$dir/*_test.go | sed -E 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/' | sort -u); do \
			echo "== $$dir $$target ($(FUZZTIME))"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$dir; \
			n=$$((n + 1)); \
		done; \
	done; \
	echo "$$n fuzz targets, no finding"

.PHONY: soak
soak: build ## the long forms: more seeds, more kills, more time
	TEST_TIDEWIRE_SOAK=1 TEST_TIDEWIRE_SEEDS=$(SEEDS) TEST_TIDEWIRE_BIN="$(CURDIR)/$(BIN)" \
		$(GO) test -count=1 -timeout 6h -v $(TESTFLAGS) ./...

.PHONY: acceptance
acceptance: build ## what a cluster has to live through, in the long forms, held to their bounds of time: half an hour on a machine that does nothing else; LINES=Kill for some
	TEST_TIDEWIRE_SOAK=1 TEST_TIDEWIRE_BIN="$(CURDIR)/$(BIN)" \
		$(GO) test -count=1 -timeout 2h -v -run '$(LINES)' $(TESTFLAGS) ./e2e

.PHONY: sim
sim: ## SEEDS simulated clusters under faults, from seed FROM on; SEED=n plays one again
	TEST_TIDEWIRE_SIM_SEEDS=$(SEEDS) TEST_TIDEWIRE_SIM_FROM=$(FROM) TEST_TIDEWIRE_SEED=$(SEED) \
		$(GO) test -count=1 -timeout 12h -v -run '^TestSimulation$$' $(TESTFLAGS) ./internal/testkit/sim

.PHONY: planted
planted: ## build the simulation with one fault after the other in it, and see that it is found
	TEST_TIDEWIRE_PLANTED="$(FAULTS)" \
		$(GO) test -count=1 -timeout 2h -v -run '^TestPlantedFaultsAreFound$$' $(TESTFLAGS) ./internal/testkit/sim

.PHONY: bench
bench: ## every benchmark of the tree
	$(GO) test -run '^$$' -bench . -benchtime $(BENCHTIME) -benchmem $(TESTFLAGS) ./...

# bench/ is a module of its own: other systems are its dependencies, and nobody's else.
.PHONY: bench-build
bench-build: build
	cd bench && $(GO) build -trimpath -o $(CURDIR)/bin/ ./cmd/...

.PHONY: bench-test
bench-test: bench-build ## tests of the module bench, and a moment of each kind of load on each system
	cd bench && TEST_TIDEWIRE_BIN="$(CURDIR)/$(BIN)" $(GO) test -count=1 -timeout 10m $(TESTFLAGS) ./...

.PHONY: bench-peers
bench-peers: bench-build ## Tidewire beside NATS, Centrifugo and Redis: bench/RESULTS.md, in 25 minutes; SCENARIOS=publish,fanout for some
	./bin/peers -scenarios "$(SCENARIOS)" -repetitions $(REPETITIONS) -keep bin/bench-peers.json -page bench/RESULTS.md

.PHONY: bench-quick
bench-quick: build ## what a message costs on the main paths, against the floors of the same run, in two minutes
	cd bench && $(GO) build -trimpath -o $(CURDIR)/bin/ ./cmd/quick
	./bin/quick

.PHONY: clean
clean: ## remove what was built; the data folder stays
	rm -rf bin sdk-js/dist sdk-js/build
