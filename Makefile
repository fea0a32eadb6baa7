# All targets install what they need from pyproject.toml into $(VENV).
PYTHON ?= python3
PYTHONS ?= python3.11 python3.12 python3.13 python3.14
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-long test-ring test-pythons lint docs bench clean

demo: $(VENV)/installed
	$(BIN)/ooc demo

# Three test processes on two cores, because some tests wait for a process or a browser. If a test hangs,
# faulthandler_timeout prints its stack before `timeout` in pyproject.toml ends it.
# Bytecode is compiled first, in case PYTHONDONTWRITEBYTECODE is set: without it, every command takes 0.3 s longer.
test: $(VENV)/tested lint
	$(BIN)/python -m compileall -q blocks ooc samplers
	$(BIN)/python -m pytest -m "not long and not ring" -n 3 --dist worksteal -o faulthandler_timeout=800

test-long: $(VENV)/tested
	$(BIN)/python -m compileall -q blocks ooc samplers
	$(BIN)/python -m pytest -m "long or not ring" -n 3 --dist worksteal

# Several machines, simulated on this one: ranks started over ssh, by MPI, by Dask and as pods, and network namespaces.
# Requires root, sshd, and ip from iproute2.
test-ring: $(VENV)/tested
	$(BIN)/python -m pytest -m "ring and not long"

# With each supported version of Python, in its own environment.
test-pythons:
	for python in $(PYTHONS); do $(MAKE) test PYTHON=$$python VENV=.venv-$$(basename $$python) || exit; done

lint: $(VENV)/tested
	$(BIN)/ruff check .
	$(BIN)/mypy

# Builds build/docs/index.html. Warnings are errors.
docs: $(VENV)/documented
	$(BIN)/sphinx-build --fresh-env --fail-on-warning --keep-going --quiet docs build/docs

# Installs the packages that the benchmarks compare with. LIBMF needs these flags to reach its full speed.
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
