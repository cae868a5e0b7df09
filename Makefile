# `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types unit format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

setup: $(VENV)/.core ## create .venv with the pinned versions and fedfuse in it

$(VENV)/.core: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedfuse needs Python 3.11 or newer: make PYTHON=python3.11 setup")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.core # what the checks need besides
	$(PIP) --editable '.[dev]'
	@touch $@

# 20 % of the digits are the unlabeled pool, 2 batches: schedules are cut to its size, and digits are not flipped.
FEDDF := 'feddf(steps=500)'
FEDBE := 'fedbe(epochs=150, lr=0.01, swa_start=50, augment="none")'
# Clients of two architectures, and the digits' larger model at the server.
FEDET := 'fed-et(lr=0.01, momentum=0.9, models.clients={"mlp:64-32"=1, "mlp:32"=1})'

demo: setup ## compare the algorithms on real digits, in under two minutes
	$(BIN)/fedfuse compare digits -a fedavg -a $(FEDDF) -a $(FEDBE) -a $(FEDET) --target 0.85 --out runs/demo

test: lint types unit ## all checks: ruff, mypy --strict, pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

unit: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist worksteal

format: $(VENV)/.dev ## put the code into its format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment, caches and runs
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis runs
