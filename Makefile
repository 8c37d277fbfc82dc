# Two commands for a newcomer: make demo, make test.
PYTHON ?= python3
VENV := .venv
FILES ?= samples/sample.pdf
BIN := $(VENV)/bin

.PHONY: demo test check bench sample docs clean

demo: $(VENV)/run
	$(BIN)/python handler.py

test: $(VENV)/test
	$(BIN)/python -m pytest

check: $(VENV)/test
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

bench: $(VENV)/test
	$(BIN)/python scripts/bench.py $(FILES) --memory

sample: $(VENV)/run
	$(BIN)/python scripts/make_sample.py

docs: $(VENV)/run
	$(BIN)/python scripts/make_docs.py && $(BIN)/python scripts/make_schema.py

$(VENV)/run: requirements/run.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/run.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

$(VENV)/test: $(VENV)/run requirements/test.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/test.txt
	touch $@

clean:
	rm -rf $(VENV) output .mypy_cache .pytest_cache .ruff_cache .hypothesis
