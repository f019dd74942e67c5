# Waybill's everyday commands. `make` alone lists them.

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# Directories `make run` sends through the mesh; empty: two of Go's own.
ARGS     ?=
# What `make bench` measures; empty: all of it, in under ten minutes.
BENCH    ?=
# What it measures the mesh on and beside instead: rabbitmq, artemis or pulsar.
BROKER   ?=
# How long `make soak` goes on, per module.
SOAK     ?= 10m
# A guard against hanging, per test binary.
TIMEOUT  ?= 25m

# Git refuses to say what it knows to another user than the owner of the
# checkout (a container as root, say), and a build must not fail for that.
export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false)

# A program built with the race detector waits for a second before it ends; ours
# wait for all that they started.
export GORACE := $(strip $(GORACE) atexit_sleep_ms=0)

MODULES  := pkg internal $(patsubst %/go.mod,%,$(wildcard services/*/go.mod)) cmd/waybill test
PATTERNS := $(patsubst %,./%/...,$(MODULES))
MAINS    := ./cmd/waybill $(patsubst %,./%,$(wildcard services/*/cmd/*))
LDFLAGS  := -X main.version=$(VERSION)

# The race detector needs a C compiler; without one the tests still run.
RACE     := $(shell command -v $$($(GO) env CC) >/dev/null 2>&1 && echo -race)

LINT_VERSION := v2.15.0
LINT         := bin/golangci-lint-$(LINT_VERSION)

.DEFAULT_GOAL := help
.PHONY: help build run test unit soak bench lint vet fmt fmt-check tidy tidy-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build every binary into bin/
	@mkdir -p bin
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/ $(MAINS)

run: build ## start the mesh and send real input through it (ARGS="dir1 dir2" for your own)
	@bin/waybill demo $(ARGS)

# The tests spend much of their time waiting, for brokers and for time to pass, so
# that they, vet and lint go side by side, the longest first, and two packages of
# the tests of the whole mesh at once. In each of these several tests are under way
# already, so that more at once would be little faster. All run; one failure fails all.
SIDE_BY_SIDE = $(MAKE) --no-print-directory -k -j3 --output-sync=none
UNITS       := $(addprefix unit/,$(filter-out test,$(MODULES)))

test: fmt-check ## check everything: format, vet, lint, each module's tests on its own
	@$(SIDE_BY_SIDE) unit/test vet lint $(UNITS) || { echo "FAILED, see above"; exit 1; }; \
	echo "all passed"

unit: ## test each module, under the race detector where there is a C compiler
	@$(SIDE_BY_SIDE) unit/test $(UNITS) || { echo "FAILED, see above"; exit 1; }; \
	echo "all modules passed"

# Each module is tested without the workspace: go.work would hide a requirement
# missing from its go.mod. What go vet has to say is said by the target of that name.
unit/%:
	@echo "== $*$(if $(RACE),, without the race detector: there is no C compiler)"
	@cd $* && GOWORK=off $(GO) test $(RACE) -vet=off $(if $(filter test,$*),-p 2) -timeout $(TIMEOUT) ./...

# Tests that search read WAYBILL_SOAK and go on that long; what they find out
# is in their log, hence -v.
soak: ## run the simulations and the crash tests for long (SOAK=1h for longer)
	@for module in internal test; do \
		echo "== $$module for $(SOAK)"; \
		(cd $$module && GOWORK=off WAYBILL_SOAK=$(SOAK) $(GO) test $(RACE) -count=1 -timeout 0 -v ./...) || exit 1; \
	done

bench: ## measure the mesh beside raw JetStream, or BROKER=rabbitmq, artemis or pulsar (BENCH=--quick for a minute's worth, BENCH=--help for more)
	@mkdir -p bin
	@cd test && GOWORK=off $(GO) build -ldflags '$(LDFLAGS)' -o ../bin/bench ./bench
	@bin/bench $(if $(BROKER),--broker=$(BROKER)) $(BENCH)

vet: ## go vet, all modules together and each alone
	@$(GO) vet $(PATTERNS)
	@for module in $(MODULES); do (cd $$module && GOWORK=off $(GO) vet ./...) || exit 1; done

lint: $(LINT) ## golangci-lint, with the rules of .golangci.yaml
	@$(LINT) run --allow-parallel-runners $(PATTERNS)

$(LINT):
	@mkdir -p bin
	GOBIN=$(CURDIR)/bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	@mv bin/golangci-lint $@

fmt: $(LINT) ## format all code
	@$(LINT) fmt $(MODULES)

fmt-check:
	@unformatted=$$("$$($(GO) env GOROOT)/bin/gofmt" -l $(MODULES)); \
	if [ -n "$$unformatted" ]; then echo "not formatted (make fmt):"; echo "$$unformatted"; exit 1; fi

tidy: ## go mod tidy in every module
	@for module in $(MODULES); do (cd $$module && GOWORK=off $(GO) mod tidy) || exit 1; done

tidy-check: ## say where go mod tidy would change something
	@for module in $(MODULES); do (cd $$module && GOWORK=off $(GO) mod tidy -diff) || { echo "not tidy: $$module (make tidy)"; exit 1; }; done

clean: ## remove what was built
	rm -rf bin
