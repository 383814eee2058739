# `make` alone lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check
# The GPU tests and the benchmarks on a lent machine bring their own site directory.
export PYTHONPATH :=

.DEFAULT_GOAL := help
.PHONY: help run test lint types contracts lit unit accept bench test-gpu format clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(VENV)/.venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "trc needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: pyproject.toml $(VENV)/.venv
	@$(PIP) -e .
	@touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.venv
	@$(PIP) -e '.[test,dev,cuda,cudnn]'
	@touch $@ $(VENV)/.core

run: $(VENV)/.core ## Install, fetch MNIST, train the MLP and print the table
	@$(BIN)/trc-run train examples/models/mlp.bp --data mnist --epochs 5 --checkpoint build/mlp.safetensors

test: lint types contracts lit unit ## Everything CI runs: lint, types, lit and unit tests

lint: $(VENV)/.test ## Style, with ruff
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.test ## Types, with pyright (strict)
	@$(BIN)/pyright --threads 2

contracts: $(VENV)/.test ## Which package may import which
	@$(BIN)/lint-imports --no-logo

lit: $(VENV)/.test ## Text formats, passes and tools, with lit and FileCheck
	@$(BIN)/lit -sv -j 2 tests/lit

unit: $(VENV)/.test ## Unit tests
	@$(BIN)/python -m pytest tests/unit -n 2 --dist loadfile -m "not accept and not gpu"

accept: $(VENV)/.test ## What is too long for `make test`: accuracy, many generated networks, speed ratios
	@$(BIN)/python -m pytest tests/unit tests/accept -n 0 -m accept
	@$(BIN)/python bench/compile_time.py
	@$(BIN)/python bench/cpu_step.py

bench: $(VENV)/.test ## Benchmarks that need no GPU
	@$(BIN)/python bench/compile_time.py
	@$(BIN)/python bench/cpu_step.py

test-gpu: $(VENV)/.test ## Tests that need a GPU, and the extras cuda and cudnn
	@$(BIN)/python -m pytest tests/gpu -m gpu

format: $(VENV)/.test ## Rewrite the sources in the house style
	@$(BIN)/ruff check --fix -q .
	@$(BIN)/ruff format -q .

clean: ## Remove what is built
	@rm -rf build dist .pytest_cache .ruff_cache .hypothesis
