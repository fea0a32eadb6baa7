# Everything a fresh machine needs is installed here, into .venv, from pyproject.toml.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-long test-ring lint bench clean

demo: .venv/installed
	$(BIN)/ooc demo

test: .venv/tested lint
	$(BIN)/python -m pytest -m "not long and not ring" -n 2 --dist worksteal

test-long: .venv/tested
	$(BIN)/python -m pytest -m "not ring"

# Several machines on this one: needs root, sshd, and ip of iproute2.
test-ring: .venv/tested
	$(BIN)/python -m pytest -m ring

lint: .venv/tested
	$(BIN)/ruff check .
	$(BIN)/mypy

# The peers of the benchmarks. LIBMF is only as fast as it can be with these flags.
bench: .venv/installed
	CXXFLAGS="-O3 -march=native -DUSEAVX -DUSEOMP -fopenmp" LDFLAGS=-fopenmp \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-binary libmf --no-cache-dir --editable ".[bench]"

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/tested: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[test,lint]"
	touch $@

clean:
	rm -rf .venv demo-run build dist *.egg-info
