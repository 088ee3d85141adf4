# `make` lists the targets. PYTHON is the interpreter that makes the environment, VENV its folder, PRECISION the demo's;
# TESTS are the tests to run: `make test TESTS=tests/padding`.
PYTHON ?= python3
VENV ?= .venv
PRECISION ?= no
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin

# A worker for each core; the tests of one file run in one worker, in the order that tests/conftest.py gives them.
PYTEST := $(BIN)/python -m pytest -n auto --dist loadscope --no-loadscope-reorder

.PHONY: help demo test test-slow test-all test-cpus versions lint format benchmarks gpu docs release clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# what the recipes need (a folder that `python -m venv` has made already, and a torch in it, are taken as they are)
$(BIN)/tfm-zoo: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) torch
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --editable '.[recipes]'
	touch $@

# what tests, style and benchmarks need besides
$(BIN)/pytest: $(BIN)/tfm-zoo
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --editable '.[tests]'
	touch $@

demo: $(BIN)/tfm-zoo  ## show what the zoo is for, in one to two minutes on idle cores, once installed, on built-in data (PRECISION=bf16 is faster where a CPU has it)
	$(BIN)/python recipes/demo.py --mixed_precision $(PRECISION) --output_dir runs/demo

test: $(BIN)/pytest  ## run the tests but the slow ones (four to eight minutes on two cores), or a part: make test TESTS=tests/padding
	$(PYTEST) -m 'not slow and not by_hand' $(TESTS)

test-slow: $(BIN)/pytest  ## run the slow tests: those that start processes, compile, or follow documents
	$(PYTEST) -m 'slow and not by_hand' $(TESTS)

test-all: $(BIN)/pytest  ## run both (13 to 20 minutes on two cores)
	$(PYTEST) $(TESTS)

test-cpus: $(BIN)/pytest  ## run the quick tests as on other processors, with one thread and with two, and with other random inputs (12 times `make test`)
	.ci/cpus $(TESTS)

versions: $(BIN)/pytest  ## load checkpoints under five releases of transformers; run the main tests with the oldest and the newest
	PYTHONPATH=$(CURDIR) $(BIN)/python .ci/programs/other_releases.py
	.ci/versions

lint: $(BIN)/pytest  ## check the style, as CI does
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

format: $(BIN)/pytest  ## correct the style
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

benchmarks: $(BIN)/pytest  ## time the zoo against the official classes (on a quiet machine, 40 to 80 minutes)
	$(BIN)/python -m benchmarks speed

gpu: $(BIN)/pytest  ## compare with the official classes on a CUDA device, into recipes/results (in parts of at most 8 minutes), or a part: make gpu PART=backends (correctness, packing, waits, compiled, memory, speed)
	$(BIN)/python -m benchmarks gpu $(if $(PART),--part $(PART))

$(BIN)/mkdocs: $(BIN)/tfm-zoo
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --editable '.[docs]'
	touch $@

docs: $(BIN)/mkdocs  ## build the documentation in site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 PATH="$(abspath $(BIN)):$$PATH" $< build --strict

release:  ## build wheel and sdist, and try the wheel in an empty environment; upload nothing
	.ci/release

clean:  ## remove the environment and everything that runs wrote
	rm -rf $(VENV) runs build dist site *.egg-info
