# Start with: make demo, make test. Further suites: make test-processes (the worker, the SDK and the command as processes),
# make test-vllm (the real vLLM on the CPU), make test-families (other models than DeepSeek-OCR in it), make test-scans (OCR),
# make test-browser (needs Chromium and npm), make test-cluster (what a cluster runs), make test-rag (the examples for retrieval), make test-install (a fresh environment),
# make test-chaos (kills and hostile files).
PYTHON ?= python3
VENV := .venv
VLLM := .venv-vllm
TOOLS := .venv-tools
SDK2 := .venv-sdk2
FILES ?= samples/sample.pdf
MEMORY := --memory
BIN := $(VENV)/bin
VLLM_TESTS := $(VLLM)/bin/python -m pytest -W default --durations=20 -n 2 --dist loadfile # two: a start uses one core; a process and its engines take 8 GB
TEST_PROCESSES := $(shell n=$$(nproc); echo $$((n < 4 ? n + 1 : 4))) # one more than cores: some tests wait

unexport PYTHONDONTWRITEBYTECODE # where it is set, every process of every suite would compile all modules anew

.PHONY: demo gpu test test-browser test-sdk2 test-rag test-cluster test-scans test-vllm test-families test-processes test-server test-install test-chaos chaos check bench sample pictures docs site image audit pins doors clean

demo: $(VENV)/run
	$(BIN)/python handler.py
	@echo "Read by the cpu engine: this ran no OCR model on a GPU, and used no bucket and no RunPod. README.md has the rest."

gpu: # vLLM 0.33 and runpod 1.12 require conflicting versions of fastapi; vLLM works with runpod's
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check vllm==0.33.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/run.txt --editable .

test: $(VENV)/test
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal

test-browser: $(VENV)/browser $(VENV)/marked/ready # needs Chromium and npm
	$(BIN)/python -m pytest tests/browser

test-scans: $(VENV)/test # what takes long with OCR; scans in other scripts need Debian's tesseract-ocr-ara, -ell, -eng, -hin, -kor and -rus
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) tests/scans

doors: $(VENV)/test # the commands of docs/quickstart.md, and the trial of a deployed endpoint
	$(BIN)/python -m pytest tests/quickstart

test-sdk2: $(SDK2)/ready # the tests that run RunPod's SDK, with the pre-release of its next version
	$(SDK2)/bin/python -m pytest -n $(TEST_PROCESSES) tests/telemetry/test_logs.py \
		$(addprefix tests/processes/,test_endings.py test_handler.py test_no_telemetry.py test_queue.py)

test-rag: $(VENV)/rag
	$(BIN)/python -m pytest -W default tests/rag

test-cluster: $(VENV)/cluster # what a cluster runs
	$(BIN)/python -m pytest --durations=10 tests/cluster

test-vllm: $(VLLM)/ready
	$(VLLM_TESTS) tests/vllm_kernels # in Triton's interpreter, where no engine can start
	$(VLLM_TESTS) tests/vllm

test-families: $(VLLM)/ready
	$(VLLM_TESTS) tests/vllm_families

test-processes: $(VENV)/test # handler.py, RunPod's SDK and the command in processes of their own; some need root and Debian's iproute2, libreoffice-writer, -calc, -impress and -math
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal tests/processes

test-server: $(VENV)/test # twopass serve and the Python API
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) tests/server tests/api

test-install: $(VENV)/test # wheel and sdist, installed into a fresh environment
	$(BIN)/python -m pytest tests/install

test-chaos: $(VENV)/test # a few kills, hostile files and small jobs: at most 15 minutes
	$(BIN)/python -m pytest tests/chaos

chaos: $(VENV)/test # all of them: an hour
	CHAOS_KILLS=50 CHAOS_FILES=2000 CHAOS_JOBS=1000 CHAOS_DOCUMENTS=300 $(BIN)/python -m pytest -s tests/chaos

check: $(VENV)/test
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

bench: $(VENV)/test
	$(BIN)/python -m scripts.bench stages $(FILES) $(MEMORY)

sample: $(VENV)/run
	$(BIN)/python scripts/make_sample.py

pictures: $(VENV)/browser # those of README and docs; it needs Chromium
	$(BIN)/python -m scripts.make_pictures

docs: $(VENV)/run
	$(BIN)/python -m scripts.generate all

site: $(TOOLS)/ready
	$(TOOLS)/bin/mkdocs build --strict # not --quiet, which ignores warnings

image: $(TOOLS)/ready # what can be checked without Docker: linter, workflows, pinned packages, the Dockerfile's steps
	$(TOOLS)/bin/hadolint --config .hadolint.yaml Dockerfile
	$(TOOLS)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	scripts/resolve.sh $(TOOLS)/bin/uv --check
	mkdir -p build && $(TOOLS)/bin/cyclonedx-py requirements requirements/image.txt --output-reproducible --output-file build/sbom.json
	scripts/install.sh build/image

audit: $(TOOLS)/ready # known vulnerabilities of all pins; it asks pypi.org
	$(TOOLS)/bin/pip-audit --no-deps --disable-pip --strict $(foreach pins,run test image,-r requirements/$(pins).txt)

pins: $(TOOLS)/ready $(VENV)/run
	scripts/resolve.sh $(TOOLS)/bin/uv
	$(BIN)/python -m scripts.generate licences --image $(TOOLS)/bin/python

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

$(VENV)/marked/ready: requirements/node.txt # a reader of Markdown in Node.js
	npm install --silent --no-save --prefix $(VENV)/marked $$(grep -v '^#' requirements/node.txt)
	touch $@

$(VENV)/rag: $(VENV)/test requirements/rag.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/rag.txt
	touch $@

$(VENV)/cluster: $(VENV)/test requirements/cluster.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/cluster.txt
	touch $@

$(VLLM)/ready: requirements/run.txt requirements/test.txt requirements/vllm.txt pyproject.toml # === leaves out +cpu builds of torch, beside which torchvision fails
	test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check torch===2.13.0 torchvision==0.28.0
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
		-r requirements/run.txt -r requirements/test.txt -r requirements/vllm.txt
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

$(SDK2)/ready: requirements/run.txt requirements/test.txt requirements/sdk2.txt pyproject.toml
	test -x $(SDK2)/bin/python || $(PYTHON) -m venv $(SDK2)
	$(SDK2)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/run.txt -r requirements/test.txt
	$(SDK2)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/sdk2.txt --editable .
	touch $@

$(TOOLS)/ready: requirements/tools.txt
	test -x $(TOOLS)/bin/python || $(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/tools.txt
	touch $@

clean:
	rm -rf $(VENV) $(VLLM) $(TOOLS) $(SDK2) build site output .mypy_cache .pytest_cache .ruff_cache .hypothesis
