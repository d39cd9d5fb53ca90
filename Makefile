# Everything a contributor calls. Needs Go (see go.mod) and bash; nothing else is
# installed, and what is downloaded are Go modules.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO        ?= go
FUZZTIME  ?= 60s
BENCHTIME ?= 1s
# Power cuts that make soak plays.
SEEDS     ?= 2000
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
PURE  := ^tidewire/(internal/(arch|cluster|fault|ident|pace|parts|record|wire|testkit/check)|broker/partition|coordinator/(layout|placement|state)|gateway/(access|cursor|topology))$$
# Real processes: they run the built binary.
E2E   := ^tidewire/e2e(/|$$)

pure_packages = $$($(GO) list ./... | grep -E '$(PURE)')
race_packages = $$($(GO) list ./... | grep -Ev '$(PURE)|$(E2E)')

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

.PHONY: build
build: ## ./bin/tidewire
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/tidewire

.PHONY: run
run: build ## build, and serve one node on the default addresses with its data in ./tidewire-data
	exec ./$(BIN) serve

.PHONY: test
test: check pure race e2e ## all that must be green before a change lands

.PHONY: check
check: ## go vet and gofmt
	$(GO) vet ./...
	@bad=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$bad" ]; then printf 'gofmt would change:\n%s\n' "$$bad"; exit 1; fi

.PHONY: pure
pure: ## tests of the pure packages, which have no goroutine to race
	$(GO) test -timeout 10m $(TESTFLAGS) $(pure_packages)

.PHONY: race
race: ## tests of everything else but e2e, with the race detector
	$(GO) test -race -timeout 10m $(TESTFLAGS) $(race_packages)

.PHONY: e2e
e2e: build ## tests with real processes, against ./bin/tidewire
	@if $(GO) list ./... | grep -qE '$(E2E)'; then \
		TEST_TIDEWIRE_BIN="$(CURDIR)/$(BIN)" $(GO) test -count=1 -timeout 10m $(TESTFLAGS) ./e2e/...; \
	fi

.PHONY: lint
lint: check ## go vet, staticcheck, gofumpt
	$(GO) run $(STATICCHECK) ./...
	@bad=$$($(GO) run $(GOFUMPT) -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$bad" ]; then printf 'gofumpt would change:\n%s\n' "$$bad"; exit 1; fi

.PHONY: fmt
fmt: ## rewrite every Go file as gofumpt wants it
	$(GO) run $(GOFUMPT) -w $$(git ls-files -co --exclude-standard '*.go')

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

.PHONY: bench
bench: ## every benchmark of the tree
	$(GO) test -run '^$$' -bench . -benchtime $(BENCHTIME) -benchmem $(TESTFLAGS) ./...

.PHONY: clean
clean: ## remove what was built; the data folder stays
	rm -rf bin
