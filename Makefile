# Hocket: `make demo` shows it, `make test` proves it. Everything installs into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := src reproductions tests benchmarks examples docs/*.py

.DEFAULT_GOAL := help
.PHONY: help setup demo test check docs bench chaos clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml reproductions/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hocket needs Python 3.11 or newer; this is " + sys.version.split()[0] + " (set PYTHON=...)")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -e reproductions
	@$(BIN)/python -m compileall -q src reproductions/src  # as pip does with all that it copies; some machines let no run write bytecode
	@touch $(STAMP)

setup: $(STAMP) ## create .venv with .venv/bin/hocket

demo: $(STAMP) ## run real jobs on four virtual devices; a table, and plots in demo-out/
	$(BIN)/hocket demo

# One worker more than there are cores: many tests wait for processes of their own. Idle workers take tests from others.
test: $(STAMP) ## run every test
	$(BIN)/python -m pytest -n $$($(BIN)/python -c 'import os; print(os.cpu_count() + 1)') --dist worksteal

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
	$(BIN)/python -m benchmarks.resize
	$(BIN)/python -m benchmarks.pack
	$(BIN)/python -m benchmarks.tune

chaos: $(STAMP) ## kill everything at random while jobs run (SECONDS=600 SEED=7 POLICY=restless)
	$(BIN)/python -m tests.live.chaos --seconds $(or $(SECONDS),60) --policy $(or $(POLICY),las) $(if $(SEED),--seed $(SEED))

clean: ## remove what was built
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist demo-out
