# `make` lists what there is to do; PYTHON picks the interpreter that makes the environments.
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin

.PHONY: help demo test versions lint format benchmarks clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(BIN)/activate: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) torch
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --editable '.[tests]'
	touch $@

demo: $(BIN)/activate  ## set up, fine-tune on the built-in data, reload in a fresh process, predict
	$(BIN)/accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
		recipes/finetune_classification.py --dataset_name generated --output_dir runs/demo --overwrite_output_dir
	$(BIN)/python recipes/predict.py runs/demo "a warm and funny film" "a dull and lifeless film"

test: $(BIN)/activate  ## set up and run the tests
	$(BIN)/python -m pytest -n 2 --dist loadscope $(TESTS)

versions:  ## run those of equivalence, remote code and the block with the oldest and the newest transformers
	.ci/versions

lint: $(BIN)/activate  ## what CI checks of the style
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

format: $(BIN)/activate  ## put the style right
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

benchmarks: $(BIN)/activate  ## time the zoo against the native classes (a quiet machine, about half an hour)
	$(BIN)/python -m tests.benchmarks

clean:  ## remove the environment and what runs left
	rm -rf $(VENV) runs build dist *.egg-info
