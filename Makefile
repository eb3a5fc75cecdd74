# Bare `make` prints this help. CI runs only these targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO ?= go
BIN := bin
TOOLS := $(CURDIR)/bin/tools
export PATH := $(TOOLS):$(PATH)

BUF_VERSION := v1.75.0
STATICCHECK_VERSION := v0.8.2
PROTOBUF_VERSION := v1.36.12
GRPC_PLUGIN_VERSION := v1.6.2
GATEWAY_VERSION := v2.33.0
VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -X github.com/sealane/sealane/server.Version=$(VERSION)

.PHONY: help
help: ## what can be done here
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/sealane
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/sealane ./cmd/sealane

.PHONY: demo
demo: build ## see one node deliver, retry, hold, recover and account for everything
	$(BIN)/sealane demo

.PHONY: test
test: ## every test, the crash audit included
	$(GO) test -timeout 20m ./...

.PHONY: race
race: ## the tests of the concurrent packages under the race detector
	$(GO) test -race -timeout 20m ./storage/... ./replication/... ./shard/... ./delivery/... ./server/... ./sink/...

.PHONY: check
check: verify-format verify-vet verify-lint verify-proto verify-generated test ## all that CI runs

.PHONY: verify-format
verify-format: ## is the code formatted? (fix: make fix-format)
	@out="$$(gofmt -l $$(git ls-files '*.go' | grep -v '^api/gen/'))"; if [ -n "$$out" ]; then echo "not formatted:"; echo "$$out"; exit 1; fi

.PHONY: fix-format
fix-format: ## format the code
	gofmt -w $$(git ls-files '*.go' | grep -v '^api/gen/')

.PHONY: verify-vet
verify-vet: ## go vet
	$(GO) vet ./...

.PHONY: verify-lint
verify-lint: $(TOOLS)/staticcheck ## staticcheck; the house's own rules are in test/layering
	$(TOOLS)/staticcheck ./...

.PHONY: verify-proto
verify-proto: $(TOOLS)/buf ## lint the protos, and check that they do not break what was committed before
	$(TOOLS)/buf lint
	@if git rev-parse --verify --quiet HEAD~1 >/dev/null && git cat-file -e HEAD~1:buf.yaml 2>/dev/null; then $(TOOLS)/buf breaking --against '.git#ref=HEAD~1'; else echo "buf breaking: nothing earlier to compare with"; fi

.PHONY: proto
proto: $(TOOLS)/buf proto-plugins ## generate api/gen from api/proto
	$(TOOLS)/buf generate

.PHONY: proto-plugins
proto-plugins:
	GOBIN=$(TOOLS) $(GO) install google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOBUF_VERSION)
	GOBIN=$(TOOLS) $(GO) install google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(GRPC_PLUGIN_VERSION)
	GOBIN=$(TOOLS) $(GO) install github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-grpc-gateway@$(GATEWAY_VERSION)
	GOBIN=$(TOOLS) $(GO) install github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-openapiv2@$(GATEWAY_VERSION)

.PHONY: verify-generated
verify-generated: proto ## is api/gen what the protos generate? (fix: make proto)
	@if [ -n "$$(git status --porcelain api/gen)" ]; then echo "api/gen differs from the protos:"; git status --short api/gen; exit 1; fi

$(TOOLS)/buf:
	GOBIN=$(TOOLS) $(GO) install github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)

$(TOOLS)/staticcheck:
	GOBIN=$(TOOLS) $(GO) install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)

.PHONY: fuzz
fuzz: ## thirty seconds of each fuzz target
	@for pkg in $$($(GO) list ./... | grep -v /api/gen/); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime 30s $$pkg; done; done

SCENARIOS := TestTransfers|TestRollingRestart|TestGrowAndShrink|TestLeaderKilled|TestMinority|TestPausedLeader|TestReplaceDead

.PHONY: nightly
nightly: check race fuzz ## what takes longer: race, fuzzing, a million overdue, many seeds, two hundred kills, twenty minutes of chaos
	SEALANE_TEST_OVERDUE=1000000 $(GO) test -count=1 -timeout 30m -run TestIsolation -v ./test/integration
	$(GO) test -count=1 -timeout 30m -run TestSimulation ./test/sim -seeds=300
	SEALANE_TEST_KILLS=200 $(GO) test -count=1 -timeout 90m -run TestKillAudit -v ./test/robustness
	SEALANE_TEST_ROUNDS=300 SEALANE_TEST_TRAILING=1 $(GO) test -count=1 -timeout 60m -run '^TestPartitions$$' -v ./replication
	GOMAXPROCS=4 $(GO) test -count=1 -timeout 120m -v ./test/sim/whole -seeds=50
	$(GO) test -count=1 -race -tags faults ./server/fault
	SEALANE_TEST_ROUNDS=20 $(GO) test -count=1 -timeout 90m -run '$(SCENARIOS)' -v ./test/robustness
	SEALANE_TEST_CHAOS=20m $(GO) test -count=1 -timeout 60m -run 'TestChaos$$' -v ./test/robustness
	SEALANE_TEST_CHAOS=10m SEALANE_TEST_NODES=5 $(GO) test -count=1 -timeout 60m -run 'TestChaos$$' -v ./test/robustness

.PHONY: bench
bench: build ## measure one node beside a bare Go POST loop, and print a table
	$(GO) run ./test/bench
