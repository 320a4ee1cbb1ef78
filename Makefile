# Two commands do everything on a fresh machine with Python: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test lint types unit docs format clean
.DEFAULT_GOAL := demo

demo: $(INSTALLED)  ## four layers print the formula that they learned; then the papers' multiplication benchmark
	$(BIN)/python examples/learn_operations.py
	@echo
	$(BIN)/nalm bench single-module --operation mul --module nalu,inalu,nac-mul,npu,real-npu,nmu,snmu --out results/demo

test: lint types unit  ## everything that continuous integration checks

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy --strict src/nalm

unit: $(INSTALLED)
	$(BIN)/pytest --cov --cov-report=term --cov-fail-under=95 --durations=15 --numprocesses=auto --dist=worksteal

docs: $(INSTALLED)  ## write the generated parts of docs/
	$(BIN)/python docs/generate.py

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) results .pytest_cache .mypy_cache .ruff_cache .coverage

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/pip install --quiet --editable '.[dev]' -c constraints.txt
	touch $@
