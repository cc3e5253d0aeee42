# Every target sets up what it needs: on a fresh machine it installs, the second time it starts at once.
#
#   make demo              see it work (ARGS="--events 100000" passes arguments)
#   make test              all checks and all tests, as CI runs them (ARGS="-k segment" passes arguments to pytest)
#   make check             format, lint, types, layers
#   make bench             measure (SECTION=log runs one section)
#   make soak              kill, compact, delete and restart under load, check all answers, plot what it takes (MINUTES=3)
#   make clean             remove everything that was made here

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
SETUP  := $(VENV)/.setup-complete
KERNEL := $(VENV)/.kernel-complete
KERNEL_SOURCES := $(addprefix src/barnabas/,broker/produce_frame.py storage/log_end.py \
  $(addprefix records/,batch_walk.py columns.py compaction.py kernel.py))

# How many processes share the tests. Brokers, Kafka and Spark run beside them, so that more gain nothing on two cores.
WORKERS ?= 2

.PHONY: setup demo test check bench soak clean
.DEFAULT_GOAL := test

setup: $(KERNEL)

# The build tools are installed at their pinned versions and used as they are (no isolation), so that nothing unpinned runs.
$(SETUP): pyproject.toml setup.py constraints.txt tools/system-packages
	@tools/system-packages $(PYTHON)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "barnabas: installing into $(VENV)"
	@$(PIP) install -c constraints.txt setuptools Cython
	@BARNABAS_KERNEL=no $(PIP) install -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

# The compiled kernel shadows its source, so it is rebuilt whenever the source changes.
$(KERNEL): $(SETUP) $(KERNEL_SOURCES)
	@rm -f src/barnabas/*/*.so
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@test "$$CI" != true || ls $(KERNEL_SOURCES:.py=.*.so) >/dev/null || { echo "barnabas: CI=true, and the kernel is not compiled" >&2; exit 1; }
	@touch $@

demo: setup
	@$(BIN)/python -m demo $(ARGS)

test: check
	@$(BIN)/python -X dev -m pytest --dist loadgroup $(patsubst %,--tx '%*popen//python=$(abspath $(BIN)/python) -X dev',$(WORKERS)) $(ARGS)

check: setup
	@$(BIN)/ruff format --check --quiet . || { echo "barnabas: '$(BIN)/ruff format .' puts the format right" >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy src tests bench checker demo
	@$(BIN)/lint-imports --no-cache --no-logo

bench: setup
	@$(BIN)/python -m bench $(SECTION)

soak: setup
	@$(BIN)/python -m checker --minutes $(or $(MINUTES),3) $(if $(SEED),--seed $(SEED))

clean:
	@rm -rf $(VENV) build dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache bench/results
	@rm -rf src/*.egg-info src/barnabas/*/*.so $(KERNEL_SOURCES:.py=.c)
	@find src tests bench checker demo -name __pycache__ -type d -prune -exec rm -rf {} +
