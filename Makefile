# Every target builds .venv when it is missing. PYTHON chooses the interpreter it is built from.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test quick lint format benchmarks results docs screenshots
.DEFAULT_GOAL := demo

demo: .venv/ready
	$(BIN)/fewtags demo

test: .venv/ready-dev
	$(BIN)/pytest

# all but what trains, serves or builds something: an answer in a minute and a half
quick: .venv/ready-dev
	$(BIN)/pytest -m "not slow"

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

# tables and figures of every grid whose records are kept below results/; nothing is trained
results: .venv/ready
	for grid in $$(find results -name grid.json | sort); do folder=$$(dirname $$grid); \
	  paper=$$(grep -Eq '"data": "(voc|coco|nus):' $$grid && echo --paper); \
	  $(BIN)/fewtags bench table $$folder $$paper --out $$folder/table.md && \
	  $(BIN)/fewtags bench table $$folder $$paper --out $$folder/table.csv && \
	  $(BIN)/fewtags bench figures $$folder || exit; \
	done

docs: .venv/ready-dev
	$(BIN)/mkdocs build --strict

# pictures of report, review and explain for the documents; needs Chromium, trains on drawn scenes
screenshots: .venv/ready-dev
	$(BIN)/python docs/screenshots.py

# constraints.txt keeps pip from bringing gigabytes of CUDA packages to a machine without a GPU
.venv/ready: pyproject.toml constraints.txt
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[onnx,review]'
	touch $@

# all of the above and more, so it makes that one too: pip then looks for packages once, not twice; modules are
# compiled when they are first imported, which spares a minute for those that never are
.venv/ready-dev: pyproject.toml constraints.txt
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[onnx,bench,review,dev]'
	touch .venv/ready $@
