# Everything a fresh machine needs is installed here, into .venv, from pyproject.toml.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-long lint clean

demo: .venv/installed
	$(BIN)/ooc demo

test: .venv/tested lint
	$(BIN)/python -m pytest -m "not long" -n 2 --dist worksteal

test-long: .venv/tested
	$(BIN)/python -m pytest

lint: .venv/tested
	$(BIN)/ruff check .
	$(BIN)/mypy

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/tested: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[test,lint]"
	touch $@

clean:
	rm -rf .venv demo-run build dist *.egg-info
