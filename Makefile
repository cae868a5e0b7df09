# `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types unit federation faults browser picture format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Bytecode is written when a module is first imported (`--no-compile`), for all processes that are started later.
export PYTHONDONTWRITEBYTECODE :=

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

# Long local training, where distillation pays. 20 % of the digits are the unlabeled pool, 2 batches: schedules are cut to
# its size, and digits are not flipped.
DEMO := --rounds 6 --seeds 5 --set local.epochs=40
FEDDF := 'feddf(steps=300)'
FEDBE := 'fedbe(epochs=100, lr=0.01, swa_start=50, augment="none")'
FEDET := 'fed-et(lr=0.01, momentum=0.9)'
THREE := 'models.clients={"mlp:64-32"=1, "mlp:32"=1, "mlp:128"=1}'

demo: setup ## what distillation gains on real digits: one architecture, then three that cannot be averaged
	@echo "1. All clients have one small net."
	$(BIN)/fedfuse compare digits -a fedavg -a $(FEDDF) -a $(FEDBE) $(DEMO) --out runs/demo/one-architecture
	@echo "2. Clients have nets of three architectures: FedAvg averages each apart, FedDF fuses all, Fed-ET into a larger net."
	$(BIN)/fedfuse compare digits -a fedavg -a $(FEDDF) -a $(FEDET) $(DEMO) --set $(THREE) --out runs/demo/three-architectures

test: lint types unit ## all checks: ruff, mypy --strict, pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

unit: $(VENV)/.dev browser
	$(BIN)/pytest -n 2 --dist worksteal

federation: $(VENV)/.dev ## further checks that take minutes: kill -9, the README's commands, CIFAR-10's app, Ray
	$(BIN)/pytest -m federation tests/flower

AMOUNT ?= 6
SEED ?= 0

faults: $(VENV)/.dev ## a campaign of faults: kills, full disks, damaged files, hostile uploads, bad inputs
	$(BIN)/python -m tests.faults --seed $(SEED) --amount $(AMOUNT)

# The page of a report is tested in a real browser, where there is one or one may be installed.
browser:
	@command -v chromium chromedriver >/dev/null || \
	  { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo "installing chromium for the page's tests" && \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver >/dev/null; } || \
	  echo "no browser: the tests of the page in one are skipped"

CHROMIUM := chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --disable-background-networking \
  --disable-component-update --disable-sync --virtual-time-budget=10000

picture: browser ## draw the README's picture of the demo's report (after make demo)
	$(CHROMIUM) --window-size=1280,1560 --screenshot=docs/images/report.png "file://$(CURDIR)/runs/demo/three-architectures/report.html" 2>/dev/null

format: $(VENV)/.dev ## put the code into its format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: docs docs-serve
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs

docs: $(VENV)/.dev ## build the documentation into site/; a warning is an error
	$(MKDOCS) build --strict

docs-serve: $(VENV)/.dev # the same, at 127.0.0.1:8000, rebuilt when a page changes
	$(MKDOCS) serve --dev-addr 127.0.0.1:8000

clean: ## remove the environment, caches and runs
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis runs site
