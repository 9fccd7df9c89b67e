# Every target builds .venv when it is missing. PYTHON chooses the interpreter it is built from.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint format benchmarks
.DEFAULT_GOAL := demo

demo: .venv/ready
	$(BIN)/fewtags demo

test: .venv/ready-dev
	$(BIN)/pytest

lint: .venv/ready-dev
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/ready-dev
	$(BIN)/ruff format src tests benchmarks
	$(BIN)/ruff check --fix src tests benchmarks

benchmarks: .venv/ready-dev
	$(BIN)/python benchmarks/metrics.py
	$(BIN)/python benchmarks/forward.py

# constraints.txt keeps pip from bringing gigabytes of CUDA packages to a machine without a GPU
.venv/ready: pyproject.toml constraints.txt
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[onnx,review]'
	touch $@

.venv/ready-dev: .venv/ready
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[onnx,bench,review,dev]'
	touch $@
