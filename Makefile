# There is no go.work, and none counts: with compat/bbolt in a workspace each
# import of bbolt would be ourselves.
export GOWORK := off

GO ?= go
BENCH ?=
BENCHFLAGS ?=
AGEFLAGS ?=
SNAPSHOTFLAGS ?=
DEMOFLAGS ?=
PARTS ?=
PROGRAMFLAGS ?=
# Anything: Dolt takes part in bench-blob. It takes minutes to build, once.
DOLT ?=
# How long a soak takes, about.
DURATION ?= 10m

.DEFAULT_GOAL := help

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: bin/holdfast ## bin/holdfast, and bin/holdfastd (static: it needs no library, and no loader) for machines that run builds
	cd worker && CGO_ENABLED=0 $(GO) build -o ../bin/holdfastd ./cmd/holdfastd

.PHONY: bin/holdfast
bin/holdfast:
	cd command && $(GO) build -o ../bin/holdfast ./holdfast

.PHONY: man
man: bin/holdfast ## bin/man: manual pages
	bin/holdfast man --dir bin/man

.PHONY: demo
demo: ## an aged file, worked on by Holdfast and by bbolt side by side (DEMOFLAGS=...); a build step, run twice
	cd bench && $(GO) run ./cmd/demo $(DEMOFLAGS)
	@GO='$(GO)' scripts/demo-step

.PHONY: test
test: ## everything: format, lint, cross-compiles, all tests, bbolt's own tests, adoption
	scripts/test

.PHONY: lint
lint: ## gofmt; golangci-lint with go vet, staticcheck and the import order
	scripts/test tools format lint

.PHONY: race
race: ## the tests of the engine and blobs, and those of the command that are concurrent, with the race detector
	scripts/test race

.PHONY: cross
cross: ## vet, and both programs, for every supported system
	scripts/test cross

.PHONY: windows
windows: ## the tests of the engine, blobs and command as Windows programs, under wine
	scripts/windows/test

.PHONY: dropin
dropin: ## bbolt's own black-box tests on Holdfast
	scripts/dropin-suite

.PHONY: downstream
downstream: ## the tests of programs that embed bbolt, on bbolt and on Holdfast (SUITES="raft-boltdb")
	cd test && $(GO) run ./cmd/downstream $(SUITES)

.PHONY: cluster
cluster: ## etcd on Holdfast, and beside bbolt: members killed, paused, filled, replaced, with no write lost (FOR=2m SEED=1)
	cd test && $(GO) run ./cmd/cluster -for $(or $(FOR),2m) $(if $(SEED),-seed $(SEED))

.PHONY: programs
programs: ## etcd, BuildKit, containerd and dockerd on bbolt and on Holdfast, as root: measured side by side, killed, their databases damaged (PARTS="etcd-young buildkit-kill" PROGRAMFLAGS="-rounds 3")
	bash -c "set -e; . scripts/packages; install_package runc runc; install_package busybox busybox-static; install_package mkfs.ext4 e2fsprogs"
	cd test && $(GO) run ./cmd/programs $(PROGRAMFLAGS) $(PARTS)

.PHONY: e2e
e2e: ## containerd (a current one and Debian's) and BuildKit with their storage in holdfastd serve, as root: used, and killed (PARTS="service-buildkit")
	bash -c "set -e; . scripts/packages; install_package runc runc; install_package busybox busybox-static; install_package mkfs.ext4 e2fsprogs; install_package mkfs.erofs erofs-utils"
	scripts/debian-containerd bin/debian-containerd
	cd test && $(GO) run ./cmd/programs -debian ../bin/debian-containerd/usr/bin $(PROGRAMFLAGS) $(or $(PARTS),service)

.PHONY: page
page: ## the page of holdfastd serve in Debian's Chromium, as root: looked at, and its figures (PAGEFLAGS="-snapshots 1000 -pictures ../worker/page/pictures")
	bash -c "set -e; . scripts/packages; install_package chromium chromium; install_package busybox busybox-static"
	cd worker && $(GO) build -o ../bin/holdfastd ./cmd/holdfastd
	cd test && $(GO) run ./cmd/page $(PAGEFLAGS)

# bench runs a program of bench, built with the peers that can be had, in the directory bench, on a file system of as many GiB (BENCHGIB=4).
define bench
	tags=$${BENCHTAGS-$$(scripts/bench-tags)} && cd bench && $(GO) build -tags "$$tags" -o ../bin/$(1) ./cmd/$(1)
	cd bench && ../scripts/with-journal $(or $(BENCHGIB),$(2)) ../bin/$(1) $(3)
endef

.PHONY: bench
bench: ## tables compared with bbolt and LMDB (BENCH="read readers write load aged grow compact" BENCHFLAGS="-full -v")
	$(call bench,bench,8,$(BENCHFLAGS) $(BENCH))

.PHONY: bench-commit
bench-commit: ## commits and opening compared with bbolt, Pebble, SQLite; which targets are met (BENCH="emptied age opening writers relaxed readers seals free" BENCHFLAGS="-full -v -json")
	$(call bench,bench-commit,$(if $(findstring -full,$(BENCHFLAGS)),36,4),$(BENCHFLAGS) $(BENCH))

.PHONY: bench-share
bench-share: ## what it costs that other processes read an open database, and a copy and a read by another process; which targets are met (BENCH="shared-cost shared-copy shared-get" BENCHFLAGS="-full -v -json")
	cd command && $(GO) build -o ../bin/holdfast-measured ./holdfast
	HOLDFAST_COMMAND=$(CURDIR)/bin/holdfast-measured && export HOLDFAST_COMMAND && cd bench && $(GO) build -o ../bin/bench-share ./cmd/bench-share && ../scripts/with-journal $(or $(BENCHGIB),8) ../bin/bench-share $(BENCHFLAGS) $(BENCH)

.PHONY: bench-vacuum
bench-vacuum: ## vacuum during reads and writes, and compacting; which targets are met (BENCH="vacuum-emptied vacuum-thinned vacuum-loose vacuum-offline" BENCHFLAGS="-full -v -json")
	cd bench && $(GO) run ./cmd/bench-vacuum $(BENCHFLAGS) $(BENCH)

.PHONY: bench-blob
bench-blob: ## blobs compared with SHA-256, pwrite, bbolt, files and, with DOLT=1, Dolt; which targets are met (BENCH="blob-write blob-bytes blob-rows blob-memory blob-read blob-remove blob-small" BENCHFLAGS="-full -v -json")
	$(if $(DOLT),cd bench/dolt && $(GO) build -tags gms_pure_go -o ../../bin/bench-dolt .)
	cd bench && HOLDFAST_DOLT=$(if $(DOLT),$(CURDIR)/bin/bench-dolt) $(GO) run ./cmd/bench-blob $(BENCHFLAGS) $(BENCH)

.PHONY: bench-age
bench-age: ## days of a build worker's database on every embedded store and, as root, of its snapshots beside containerd's, measured as they pass: ten minutes, or two hours (AGEFLAGS="-full -check -html results/lives.html" SNAPSHOTFLAGS="-peers holdfast")
	SNAPSHOTFLAGS='$(SNAPSHOTFLAGS)' scripts/bench-age $(AGEFLAGS)

.PHONY: bench-worker
bench-worker: ## steps, pruning, and snapshots compared with containerd's overlay snapshotter, as root; which targets are met (BENCH="step prune snapshots" BENCHFLAGS=-json)
	scripts/bench-worker "$(BENCH)" $(BENCHFLAGS)

.PHONY: figures
figures: ## the pictures of the README, drawn from the data in bench/results
	cd bench && $(GO) run ./cmd/figures results

.PHONY: soak
soak: ## all oracles with new seeds, for about DURATION=10m, or PARTS="crash vm" of them
	scripts/soak $(DURATION) $(PARTS)

.PHONY: model
model: ## the models in test/model, complete
	MODEL=full scripts/test model

.PHONY: clean
clean: ## what was built here
	rm -rf bin
