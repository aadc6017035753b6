# Every target sets up what it needs: a virtual environment in $(VENV), filled from a lock whose hashes pip checks.

PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help serve test check lint format docs completions lock clean

help:  ## show what there is to make
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

serve: $(VENV)/.installed  ## set up, then serve the starter model (ARGS="..." for more flags)
	$(BIN)/turbospark serve $(ARGS)

test: $(VENV)/.tools  ## set up, then run all tests (ARGS="..." for pytest)
	$(BIN)/python -m pytest $(ARGS)

check: lint test  ## what must be green before a commit: format, lint, types, imports, tests

lint: $(VENV)/.tools  ## check format, lint, types and who imports whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.tools  ## format the code and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.tools  ## write docs/reference from the code
	$(BIN)/python docs/generate.py

completions: $(VENV)/.tools  ## write completions/ from the command line
	$(BIN)/turbospark completion bash > completions/turbospark.bash
	$(BIN)/turbospark completion zsh > completions/_turbospark
	$(BIN)/turbospark completion fish > completions/turbospark.fish

lock: $(VENV)/.tools  ## choose newer versions of the dependencies and write the locks
	$(PIP) install --quiet uv
	$(LOCK) --upgrade --extra cpu --extra test --output-file requirements-test.lock
	$(LOCK) --upgrade --extra cpu --constraint requirements-test.lock --output-file requirements.lock

LOCK = $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --group build

clean:  ## remove the virtual environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

# Some systems have Python without ensurepip: there, their own pip fills the environment.
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "error: turbospark needs Python 3.11 or newer" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { $(PYTHON) -m venv --clear --without-pip $(VENV) && \
		$(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }

$(VENV)/.installed: requirements.lock pyproject.toml | $(BIN)/python
	@echo "Setting up $(VENV): a few hundred MB to download, a minute or two." >&2
	@$(PIP) install --quiet --require-hashes --requirement requirements.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.tools: $(VENV)/.installed requirements-test.lock
	@echo "Adding what the tests need." >&2
	@$(PIP) install --quiet --require-hashes --requirement requirements-test.lock
	@touch $@
