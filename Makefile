# `make demo` and `make test` work on a fresh machine with Python 3.11+; everything else is for contributors.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
unexport PYTHONDONTWRITEBYTECODE  # each worker of Spark would compile our modules anew

.PHONY: demo test test-fast lint soak bench-spark bench-kafka bench-models bench-control bench-sim bench-elastic bench-latency
.PHONY: java chromium kafka clean

demo: $(READY) java
	@$(BIN)/penstock demo

test: test-fast java chromium kafka
	@$(MAKE) --no-print-directory test-undisturbed
	@$(MAKE) --no-print-directory --jobs=3 --output-sync test-in-one-session $(OWN_PROCESSES) test-pages

# What measures comes first and alone. The others wait a lot, for Spark and for each other, so three go at once: one
# session for most files, and those that start drivers, clusters and brokers of their own. The JVM's better compiler
# never earns back what it costs in so short a life, and half of a start is the reading of classes: the first session
# leaves them ready for all that follow.
UNDISTURBED   := $(patsubst %,tests/engines/spark/test_%.py,measurement spark_contract watch)
OWN_PROCESSES := $(patsubst %,tests/engines/spark/test_%.py,kafka topics kill) \
                 tests/engines/spark/cluster tests/cli/test_cli_on_spark.py tests/apps
CLASSES       := $(abspath $(VENV))/spark-classes.jsa
SHORT_LIFE    := -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC
SPARK_TEST     = $(BIN)/python -m pytest --durations=3 -m "spark and not soak"
.PHONY: test-undisturbed test-in-one-session $(OWN_PROCESSES)
test-in-one-session $(OWN_PROCESSES): export JDK_JAVA_OPTIONS = $(SHORT_LIFE) -XX:SharedArchiveFile=$(CLASSES)
test-undisturbed:                     export JDK_JAVA_OPTIONS = $(SHORT_LIFE) -XX:ArchiveClassesAtExit=$(CLASSES)
test-undisturbed:
	$(SPARK_TEST) $(UNDISTURBED)
test-in-one-session:
	$(SPARK_TEST) tests $(patsubst %,--ignore=%,$(UNDISTURBED) $(OWN_PROCESSES) tests/soak)
$(OWN_PROCESSES):
	@echo $@ && $(SPARK_TEST) $@

.PHONY: test-pages
test-pages:
	@echo $@ && $(BIN)/python -m pytest -rs -m browser tests/report

test-fast: $(READY)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync lint test-simulated
	$(BIN)/python -m pytest -n 3 -m "not spark and not soak and not browser" --ignore=tests/engines/simulated src tests

# Beside the lint, which takes one core, and in one process: two would both compile the loops.
.PHONY: test-simulated
test-simulated: $(READY)
	$(BIN)/python -m pytest tests/engines/simulated

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

soak: $(READY) java
	PENSTOCK_SEQUENCES=20 $(BIN)/python -m pytest --timeout 7200 tests/engines/spark/test_exactness.py
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

bench-elastic: $(READY) java
	$(BIN)/python -m benchmarks.elastic

bench-sim: $(READY)
	$(BIN)/python -m benchmarks.simulated

bench-latency: $(READY) java
	$(BIN)/python -m benchmarks.latency

java:
	@sh tools/java.sh

chromium:
	@sh tools/chromium.sh

kafka: $(READY)
	@sh tools/kafka.sh $(BIN)/python || \
	  { [ "$$PENSTOCK_KAFKA" != required ] && echo "Kafka cannot be had here (see above): its tests are SKIPPED."; }

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Penstock needs Python 3.11 or newer: run 'make PYTHON=/path/to/python3.11'."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $(READY)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
