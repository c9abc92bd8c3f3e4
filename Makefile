# `make demo` and `make test` work on a fresh machine with Python 3.11+; everything else is for contributors.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test test-fast lint soak bench-spark bench-kafka bench-models bench-control bench-sim java clean

demo: $(READY) java
	@$(BIN)/penstock demo

test: lint java
	@sh tools/kafka.sh $(BIN)/python || echo "Kafka cannot be had here (see above): its tests are SKIPPED."
	$(BIN)/python -m pytest -n 2 -m "not spark and not soak" src tests
	$(BIN)/python -m pytest -m "spark and not soak" tests/apps
	@set -e; for file in tests/spark/test_*.py; do \
	  echo "$$file"; $(BIN)/python -m pytest -m "spark and not soak" $$file; \
	done

test-fast: lint
	$(BIN)/python -m pytest -n 2 -m "not spark and not soak" src tests

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

soak: $(READY) java
	PENSTOCK_SEQUENCES=20 $(BIN)/python -m pytest --timeout 7200 tests/spark/test_exactness.py
	$(BIN)/python -m pytest -m soak -s tests

bench-spark: $(READY) java
	$(BIN)/python -m benchmarks.spark

bench-kafka: $(READY) java
	sh tools/kafka.sh $(BIN)/python
	$(BIN)/python -m benchmarks.kafka

bench-models: $(READY)
	$(BIN)/python -m benchmarks.models_queueing
	$(BIN)/python -m benchmarks.models_curves
	$(BIN)/python -m benchmarks.models_mst

bench-control: $(READY)
	$(BIN)/python -m benchmarks.control

bench-sim: $(READY)
	$(BIN)/python -m benchmarks.simulated

java:
	@sh tools/java.sh

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Penstock needs Python 3.11 or newer: run 'make PYTHON=/path/to/python3.11'."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $(READY)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
