# Hocket: `make demo` shows it, `make test` proves it. Everything installs into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is installed: for users and the demo, and for tests, checks and documents too.
USERS := $(VENV)/.installed-for-users
STAMP := $(VENV)/.installed
PIP := PYTHONUNBUFFERED=1 $(BIN)/python -m pip install --disable-pip-version-check --no-compile
# The names of packages as pip comes to them.
NAMES := awk '/^ *Collecting/ {sub(/[^A-Za-z0-9._-].*/, "", $$2); printf " %s", $$2; fflush()} /^Installing/ {printf "\n unpacking"; fflush()} END {print ""}'
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
SOURCES := src reproductions tests benchmarks examples docs/*.py

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long test-ray check docs bench chaos faultsim clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Bytecode is written when a module is first imported; some machines turn that off, and every process would compile all.
unexport PYTHONDONTWRITEBYTECODE

$(USERS): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hocket needs Python 3.11 or newer; this is " + sys.version.split()[0] + " (set PYTHON=...)")'
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@echo "installing hocket with what it needs: about 120 MB to download, 500 MB in $(VENV)"
	@$(PIP) -e . 2> $(VENV)/pip.log | $(NAMES) || { cat $(VENV)/pip.log >&2; exit 1; }
	@touch $(USERS)

$(STAMP): $(USERS) reproductions/pyproject.toml
	@echo "installing what tests, checks and documents need: torch and others, about 1.3 GB more in $(VENV)"
	@$(PIP) -e '.[dev]' -e reproductions 2> $(VENV)/pip.log | $(NAMES) || { cat $(VENV)/pip.log >&2; exit 1; }
	@$(BIN)/python -m compileall -qq -j 0 -x '/ray/(rllib|serve)/' $(VENV)/lib src reproductions/src || true  # Some packages have templates that are no Python.
# pytest rewrites the assertions of all tests: once here, or each of its workers would at the same time.
	@$(BIN)/python -m pytest --collect-only > /dev/null 2>&1 & $(BIN)/python -m tests.compile_kernels; wait $$! || true
	@touch $(STAMP)

setup: $(USERS) ## create .venv with .venv/bin/hocket

demo: $(USERS) ## run real jobs on four virtual devices; a table, and plots in demo-out/
	$(BIN)/hocket demo

# Two workers more than there are cores: many tests wait for processes of their own. Idle workers take tests from others.
PYTEST = $(BIN)/python -m pytest -n $$($(BIN)/python -c 'import os; print(os.cpu_count() + 2)') --dist worksteal
test: $(STAMP) ## run every test but the long ones and most of those on Ray
	$(PYTEST) -m 'not long and not ray'

test-long: $(STAMP) ## run the long tests: whole benchmarks, papers and PyTorch examples, and more random draws
	$(PYTEST) -m long

test-ray: $(STAMP) ## run all tests on Ray clusters, one after the other; Ray Tune is installed first
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'ray[tune]>=2.50'
	$(BIN)/python -m pytest tests/ray tests/unit/executors/ray

check: $(STAMP) ## lint, formatting and strict types
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

docs: $(STAMP) ## build the documentation site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

bench: $(STAMP) ## benchmarks, ratios side by side (HOCKET_DATA=folder with real traces)
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.service_load
	$(BIN)/python -m benchmarks.retention --quick
	$(BIN)/python -m benchmarks.resize
	$(BIN)/python -m benchmarks.pack
	$(BIN)/python -m benchmarks.tune
	$(BIN)/python -m benchmarks.paramserver

chaos: $(STAMP) ## kill everything at random while jobs run, then cut off machines (SECONDS=600 SEED=7 POLICY=restless)
	$(BIN)/python -m tests.live.chaos --seconds $(or $(SECONDS),60) --policy $(or $(POLICY),las) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.live.partition_chaos --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.live.standby_chaos --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

faultsim: $(STAMP) ## simulate clusters in which everything fails, one for each seed (SEEDS=10000 START=0 PROCESSES=2)
	$(BIN)/python -m tests.faultsim --seeds $(or $(SEEDS),1000) --start $(or $(START),0) --processes $(or $(PROCESSES),1)

clean: ## remove what was built
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist demo-out
