# The targets set themselves up: all they need is Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TRAIN_VENV := .venv-train
TRAIN_STAMP := $(TRAIN_VENV)/.installed
SEED ?= 0
PACKAGES := nemo_gym resources_servers responses_api_agents responses_api_models
# constraints.txt is uv.lock for those who install with pip, or from an index of their own.
# Without the extra `train`: its torch is for the user to choose, and the newest brings gigabytes of CUDA along.
EXPORT := --frozen --all-extras --no-extra train --no-default-groups --no-emit-project --no-hashes --no-annotate --no-header
# Two more than there are processors: tests that start processes and servers wait for them half of their time.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 2)

.PHONY: help install check docs screenshots test test-thorough test-all train-test demo train-demo bench format lock

help:
	@echo "make demo     evaluate a real model in a small environment; no key needed"
	@echo "make train-demo  watch a small model learn, on the CPU; no key needed"
	@echo "make test     run the tests"
	@echo "make test-thorough  real libraries, programs and guides besides, as CI does"
	@echo "make test-all all tests, also those that take minutes"
	@echo "make check    formatting, lint, types, layers, documentation"
	@echo "make docs     build the documentation site in site/"
	@echo "make screenshots  take the pictures of the documentation again"
	@echo "make bench    measure this installation, as ratios within one run"
	@echo "make format   format the code, and write the table of flags anew"
	@echo "make install  set up $(VENV) (the others do it by themselves)"

$(STAMP): pyproject.toml constraints.txt scripts/install.sh
	@PYTHON=$(PYTHON) VENV=$(VENV) bash scripts/install.sh
	@touch $@

install: $(STAMP)

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory docs

# A link, an anchor or a picture that leads nowhere is an error; with --quiet, mkdocs would not count it.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

screenshots: $(STAMP)
	@scripts/system-packages.sh chromium=chromium
	@$(BIN)/python scripts/take_screenshots.py

test: $(STAMP)
	@scripts/system-packages.sh bwrap=bubblewrap chromium=chromium
	@# Tests start many interpreters; compiling everything anew in each would double their time.
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n $(WORKERS) --dist worksteal

test-thorough: $(STAMP)
	@scripts/system-packages.sh bwrap=bubblewrap chromium=chromium
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n $(WORKERS) --dist worksteal -m "thorough and not exhaustive"

test-all: $(STAMP)
	@scripts/system-packages.sh bwrap=bubblewrap chromium=chromium
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n $(WORKERS) --dist worksteal -m ""
	@$(MAKE) --no-print-directory train-test

# What needs torch, which the environment of all other tests does not have.
train-test: $(TRAIN_STAMP)
	$(TRAIN_VENV)/bin/python -m pytest -m "" tests/integrations/test_trl_async.py tests/integrations/test_trl_training.py \
		responses_api_models/transformers_model tests/e2e/test_train_demo.py

demo: $(STAMP)
	@$(BIN)/gym demo

$(TRAIN_STAMP): pyproject.toml scripts/install-train.sh
	@PYTHON=$(PYTHON) TRAIN_VENV=$(TRAIN_VENV) bash scripts/install-train.sh
	@touch $@

train-demo: $(TRAIN_STAMP)
	@$(TRAIN_VENV)/bin/gym demo --train --seed $(SEED)

bench: $(STAMP)
	@$(BIN)/gym bench

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python -m scripts.write_command_flags

lock:
	@test -x $(BIN)/uv || (echo "lock: run 'make install' once first" >&2; exit 1)
	$(BIN)/uv lock --upgrade --default-index https://pypi.org/simple
	$(BIN)/uv export $(EXPORT) -q -o constraints.txt
