# make demo    set everything up and speed up a bundled kernel
# make test    set everything up, then contracts, types, style and tests
# make lint    contracts, types and style alone        make fmt    format the code
# make snapshots  keep the cockpit's screens as they are now, for the tests to compare with
# make screenshots    the pictures in docs/pictures; JOURNAL=path draws another run's
# make venv    the virtual environment alone           make clean  remove it and every cache
#
# PYTHON=python3.12                      the interpreter to build on (3.11 or newer)
# JOBS=2                                  how many tests run at a time
# VENV_FLAGS=--system-site-packages      use the torch and triton that it already has

PYTHON ?= python3
VENV ?= .venv
VENV_FLAGS ?=
TORCH_CPU ?= 2.13.0
PROBLEM ?= softmax
JOBS ?= 2

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PIP_PROGRESS_BAR := off
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test lint fmt snapshots venv clean
.DEFAULT_GOAL := demo

demo: venv
	@if [ -t 0 ] && [ -t 1 ]; then \
	  exec $(BIN)/kbtui run $(PROBLEM) --generator rewrite; \
	else \
	  exec $(BIN)/kbtui run $(PROBLEM) --generator rewrite --headless --iterations 6; \
	fi

# pytest comes last, so that its closing line is what one sees. The tests of a file stay together: they share lanes.
test: lint
	$(BIN)/pytest -q -n $(JOBS) --dist loadfile

lint: venv
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

fmt: venv
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

snapshots: venv
	UPDATE_SNAPSHOTS=1 $(BIN)/pytest -q tests/tui/test_snapshots.py
	$(BIN)/kbtui keys --markdown > docs/keys.md

screenshots: venv
	$(BIN)/python docs/screenshots.py $(JOURNAL)

venv: $(STAMP)

# Where there is no NVIDIA driver, torch is pinned to a CPU build before anything else could bring a CUDA one of several GB.
# Where there is one, torch is whatever the extra's range takes, or what the machine has (VENV_FLAGS).
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "kbtui needs Python 3.11 or newer, and $(PYTHON) is not: make PYTHON=python3.12" >&2; exit 1; }
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV_FLAGS) $(VENV)
	@if [ -e /dev/nvidiactl ] || command -v nvidia-smi >/dev/null 2>&1; then \
	  echo "NVIDIA driver found: torch stays as the machine has it, or as pip finds it"; \
	else \
	  echo "$(BIN)/pip install -q torch==$(TORCH_CPU)"; \
	  $(BIN)/pip install -q torch==$(TORCH_CPU); \
	fi
	$(BIN)/pip install -q -e ".[torch,llm,dev]"
	$(BIN)/pip install -q -e ".[ray]" || echo "no ray for this Python: the tests that need it skip"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find kbtui tests benchmarks -type d -name __pycache__ -exec rm -rf {} +
