# make run      everything from nothing: packages, models, build, serve on http://127.0.0.1:8080
# make test     everything that continuous integration checks
#
# Both may be run again at any time: what is there is not made again.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/voluble
# Outside the checkout, so that every checkout shares what was compiled.
export CARGO_TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CACHE)/target)
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin
# Where the suites outside cargo keep what they install.
export VOLUBLE_CACHE := $(CACHE)

RELEASE := $(CARGO_TARGET_DIR)/release/voluble
DEBUG := $(CARGO_TARGET_DIR)/debug/voluble
# Further flags: make run ARGS="--port 9000"; make bench-turn ARGS="--json report.json"
ARGS ?=

.PHONY: help run build models test setup setup-test check-fmt check-lint check-cargo check-doc check-suites fmt lint doc bench-turn

help:
	@sed -n '/^# make/,/^$$/p' $(firstword $(MAKEFILE_LIST)) | sed 's/^# \{0,1\}//'
	@echo 'also: build models fmt lint doc bench-turn'

setup:
	@.ci/setup run

setup-test:
	@.ci/setup test

build: setup
	@cargo build --release --locked

models: build
	@$(RELEASE) models pull

run: models
	@exec $(RELEASE) serve $(ARGS)

# In this order: the cheapest answers first.
test: setup-test
	@$(MAKE) --no-print-directory check-fmt
	@$(MAKE) --no-print-directory check-lint
	@$(MAKE) --no-print-directory check-cargo
	@$(MAKE) --no-print-directory check-doc
	@$(MAKE) --no-print-directory check-suites

check-fmt:
	@cargo fmt --all --check

check-lint:
	@cargo clippy --workspace --all-targets --locked -- -D warnings

check-cargo:
	@cargo build --locked
	@$(DEBUG) models pull default smollm2-135m-instruct
	@cargo test --workspace --locked

# Read by the people who work on it: private items are part of the pages, so links to them hold.
check-doc:
	@RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' cargo doc --workspace --no-deps --document-private-items --locked

check-suites:
	@VOLUBLE=$(DEBUG) .ci/suite server web

fmt:
	@cargo fmt --all

lint: setup check-fmt check-lint

doc: setup check-doc

# Speaks recordings to a server of its own over the public protocol and measures the gaps.
bench-turn: models
	@.ci/bench-turn $(RELEASE) $(ARGS)
