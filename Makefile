# Everything a fresh machine needs is installed here, into $(VENV), from pyproject.toml.
PYTHON ?= python3
PYTHONS ?= python3.11 python3.12 python3.13 python3.14
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-long test-ring test-pythons lint docs bench clean

demo: $(VENV)/installed
	$(BIN)/ooc demo

# On two cores; some tests wait for a process that ends or a browser, hence three at once. Where a test hangs is told
# before it is taken to: see `timeout` in pyproject.toml.
# Bytecode is made beforehand, as the environment may say not to: without it each of the many commands takes 0.3 s more.
test: $(VENV)/tested lint
	$(BIN)/python -m compileall -q blocks ooc samplers
	$(BIN)/python -m pytest -m "not long and not ring" -n 3 --dist worksteal -o faulthandler_timeout=800

test-long: $(VENV)/tested
	$(BIN)/python -m compileall -q blocks ooc samplers
	$(BIN)/python -m pytest -m "long or not ring" -n 3 --dist worksteal

# Several machines on this one: ranks started over ssh, by MPI, by Dask or as pods, and network namespaces, which need
# root, sshd, and ip of iproute2.
test-ring: $(VENV)/tested
	$(BIN)/python -m pytest -m "ring and not long"

# With every version of Python that is supported, each in an environment of its own.
test-pythons:
	for python in $(PYTHONS); do $(MAKE) test PYTHON=$$python VENV=.venv-$$(basename $$python) || exit; done

lint: $(VENV)/tested
	$(BIN)/ruff check .
	$(BIN)/mypy

# To build/docs/index.html; a warning is an error.
docs: $(VENV)/documented
	$(BIN)/sphinx-build --fresh-env --fail-on-warning --keep-going --quiet docs build/docs

# The peers of the benchmarks. LIBMF is only as fast as it can be with these flags.
bench: $(VENV)/installed
	CXXFLAGS="-O3 -march=native -DUSEAVX -DUSEOMP -fopenmp" LDFLAGS=-fopenmp \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-binary libmf --no-cache-dir --editable ".[bench]"

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/tested: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[test,lint]"
	touch $@

$(VENV)/documented: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	touch $@

clean:
	rm -rf .venv .venv-* demo-run build dist *.egg-info
