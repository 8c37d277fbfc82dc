# Two commands for a newcomer: make demo, make test. With the real vLLM, on this machine's CPU: make test-vllm.
# In a real browser: make test-browser, which wants Chromium. The README's examples: make test-rag.
PYTHON ?= python3
VENV := .venv
VLLM := .venv-vllm
FILES ?= samples/sample.pdf
BIN := $(VENV)/bin

.PHONY: demo gpu test test-browser test-rag test-vllm check bench sample docs clean

demo: $(VENV)/run
	$(BIN)/python handler.py

gpu: # vLLM 0.26 and runpod 1.12 name fastapis that exclude each other; vLLM works with runpod's
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check vllm==0.26.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/run.txt --editable .

test: $(VENV)/test
	$(BIN)/python -m pytest

test-browser: $(VENV)/browser
	$(BIN)/python -m pytest tests_browser

test-rag: $(VENV)/rag
	$(BIN)/python -m pytest -W default tests_rag

test-vllm: $(VLLM)/ready
	$(VLLM)/bin/python -m pytest -W default tests_vllm

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

$(VENV)/browser: $(VENV)/test requirements/browser.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/browser.txt
	touch $@

$(VENV)/rag: $(VENV)/test requirements/rag.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/rag.txt
	touch $@

$(VLLM)/ready: requirements/run.txt requirements/test.txt requirements/vllm.txt pyproject.toml
	test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.11.0 torchvision==0.26.0
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
		-r requirements/run.txt -r requirements/test.txt -r requirements/vllm.txt
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

clean:
	rm -rf $(VENV) $(VLLM) output .mypy_cache .pytest_cache .ruff_cache .hypothesis
