# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Modules are compiled when they are first imported: pip would compile all of torch's, of which few are used.
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
# Many small tests: two processes of one thread each beat one process of two threads. Byte code is kept, whatever the
# environment says: to compile all tests, with their rewritten asserts, takes longer than to collect them.
PYTEST := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

.PHONY: demo test setup suite test-slow lint style types docs bench clean

demo: $(VENV)/.base
	$(BIN)/tangentkit explain --out runs/why.html

# The type checker takes one core for most of a minute: beside the tests, it fills what they leave idle.
test: style
	@$(MAKE) --no-print-directory --jobs=2 types suite

suite: $(VENV)/.test
	$(PYTEST) -n auto --dist worksteal -m "not slow"

setup: $(VENV)/.test

test-slow: $(VENV)/.test
	$(PYTEST) -m slow

lint: style types

style: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(VENV)/.test
	$(BIN)/pyright

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .venv-neural-tangents .cache docs/_build build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp for each set of packages; a changed pyproject.toml or constraints.txt installs again.
$(VENV)/.base: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e .
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e ".[test]"
	@touch $(VENV)/.base $@

$(VENV)/.bench: $(VENV)/.base
	$(PIP) --no-deps nngeometry==0.4  # it asks for torchvision, which it does not import
	@touch $@

$(VENV)/.docs: $(VENV)/.base
	$(PIP) -e ".[docs]"
	@touch $@
