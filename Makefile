# `make demo` and `make test` work on a fresh machine with Python 3.11 or newer. `make help` lists all targets.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
unexport PYTHONDONTWRITEBYTECODE  # Every Spark worker would compile the modules again.

.DEFAULT_GOAL := help
.PHONY: help
help: ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F '\t' '{printf "  %-15s %s\n", $$1, $$2}'

# ---- use

.PHONY: demo docs
demo: $(READY) java ## Run the two-minute demo on a local Spark.
	@$(BIN)/penstock demo

docs: $(READY) ## Build docs/_build/html; broken links and failing examples are errors.
	$(BIN)/python -m sphinx -q -W --keep-going -n -b html docs docs/_build/html
	$(BIN)/python -m sphinx -q -W --keep-going -b doctest docs docs/_build/doctest
	@echo "Open docs/_build/html/index.html."

# ---- test

.PHONY: test test-fast test-simulated lint soak
test: test-fast java chromium kafka ## Run all checks and tests, as CI does.
	@$(MAKE) --no-print-directory --jobs=3 --output-sync test-measurement test-packaging test-long test-sessions test-cluster test-pages docs
	@$(BIN)/python tools/skipped_tests.py $(REPORTS)

test-fast: $(READY) ## Run lint, type checks, the import contract and the quick tests without Spark.
	@rm -rf $(REPORTS)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync lint test-simulated
	$(PYTEST)/fast.xml -n 3 -m "not spark and not soak and not browser and not long" --ignore=tests/engines/simulated src tests

# The simulator's tests run beside the lint and in one process, because each process compiles the loops again.
test-simulated: $(READY)
	$(PYTEST)/simulated.xml tests/engines/simulated

lint: $(READY) ## Run ruff, mypy and the import contract.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

soak: $(READY) java ## Run random plan changes and kill -9 for a long time.
	PENSTOCK_SEQUENCES=20 $(BIN)/python -m pytest --timeout 7200 tests/engines/spark/test_exactness.py
	$(BIN)/python -m pytest -m soak -s tests

# The tests that measure start first; their JVM leaves an archive of its classes for the sessions after it, because class
# loading takes half of a start. All other Spark tests share three sessions, except those of a cluster and of the wheel,
# which need processes of their own. The optimizing JIT compiler does not pay off in short JVMs.
REPORTS     := build/tests
PYTEST      := $(BIN)/python -m pytest --durations=3 --junitxml=$(REPORTS)
MEASUREMENT := $(patsubst %,tests/engines/spark/test_%.py,measurement spark_contract watch)
CLUSTER     := tests/engines/spark/cluster
WHEEL       := tests/packaging
CLASSES     := $(abspath $(VENV))/spark-classes.jsa
SHORT_JVM   := -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC
SPARK_TESTS := -m "spark and not soak"
marked       = $(sort $(shell grep -rlE --include='test_*.py' 'mark\.$1\b' tests))  # imports of all other files take long
SESSIONS     = $(filter-out $(MEASUREMENT) $(CLUSTER)/% $(WHEEL)/% tests/soak/%,$(call marked,spark))
.PHONY: test-measurement test-cluster test-sessions test-packaging test-long test-pages
test-cluster test-sessions: private export JDK_JAVA_OPTIONS = $(SHORT_JVM) -XX:SharedArchiveFile=$(CLASSES)
test-measurement:           private export JDK_JAVA_OPTIONS = $(SHORT_JVM) -XX:ArchiveClassesAtExit=$(CLASSES)
test-measurement:
	@echo $@ && $(PYTEST)/measurement.xml $(SPARK_TESTS) $(MEASUREMENT)
test-cluster: | test-measurement
	@echo $@ && $(PYTEST)/cluster.xml $(SPARK_TESTS) $(CLUSTER)
test-sessions: | test-measurement
	@echo $@ && $(PYTEST)/sessions.xml $(SPARK_TESTS) -n 3 --dist loadfile --no-loadscope-reorder $(SESSIONS)
test-packaging:
	@echo $@ && $(PYTEST)/packaging.xml $(SPARK_TESTS) $(WHEEL)
test-long:
	@echo $@ && $(PYTEST)/long.xml -m long $(call marked,long)
test-pages:
	@echo $@ && $(PYTEST)/pages.xml -m browser tests/report

# ---- measure

.PHONY: bench-spark bench-nexmark bench-kafka bench-models bench-control bench-sim bench-elastic bench-latency \
        bench-startup bench-watch bench-profile bench-organic
bench-spark: $(READY) java ## Compare throughput, overhead, cuts and pauses with hand-written Spark.
	$(BIN)/python -m benchmarks.spark

bench-nexmark: $(READY) java ## Compare the throughput of the Nexmark queries with plain PySpark.
	$(BIN)/python -m benchmarks.nexmark

bench-kafka: $(READY) java ## Compare Kafka source, sink, load generator and cuts with hand-written Spark.
	sh tools/kafka.sh $(BIN)/python
	$(BIN)/python -m benchmarks.kafka

bench-models: $(READY) ## Compare models and planners with published figures.
	$(BIN)/python -m benchmarks.models_queueing
	$(BIN)/python -m benchmarks.models_curves
	$(BIN)/python -m benchmarks.models_mst

bench-control: $(READY) ## Compare the policies in simulation and time their decisions.
	$(BIN)/python -m benchmarks.control

.PHONY: bench-auto
bench-auto: $(READY) ## Compare policy auto with the best fixed plans on generated dataflows and loads.
	$(BIN)/python -m benchmarks.auto

.PHONY: bench-auto-spark
bench-auto-spark: $(READY) java ## Run policy auto on Spark: three applications, two traces of ten minutes.
	$(BIN)/python -m benchmarks.auto_spark

bench-elastic: $(READY) java ## Predict throughput on more executors and follow a load with few of them.
	$(BIN)/python -m benchmarks.elastic

bench-sim: $(READY) ## Compare the simulator with closed forms, SimPy and Ciw.
	$(BIN)/python -m benchmarks.simulated

bench-startup: $(READY) java ## Compare the phases of a start with plain PySpark.
	$(BIN)/python -m benchmarks.startup

bench-watch: $(READY) java ## Compare what watch says about twelve programs with their measured capacity.
	$(BIN)/python -m benchmarks.watch

bench-profile: $(READY) java ## Compare profiled plans with the best measured plans on Spark, and time word count.
	$(BIN)/python -m benchmarks.profile

bench-organic: $(READY) java ## Compare organic adaptation with an exhaustive search on Spark, and its variants.
	$(BIN)/python -m benchmarks.organic

bench-latency: $(READY) java ## Compare predicted with measured latency on Spark.
	$(BIN)/python -m benchmarks.latency

.PHONY: bench-threads
bench-threads: $(READY) java ## Compare one thread with 4, 16 and 64 threads per slot for calls of 5 ms.
	$(BIN)/python -m benchmarks.threads

.PHONY: bench-curves
bench-curves: $(READY) java ## Measure a waiting and a computing operator twice on Spark.
	$(BIN)/python -m benchmarks.curves

# ---- reproduce

.PHONY: reproduce
reproduce: $(READY) ## Compute figures of the papers in simulation and write docs/papers; PART=stepwise for one paper.
	$(BIN)/python -m benchmarks.papers $(PART)

# ---- install

.PHONY: java chromium kafka clean
java:
	@sh tools/java.sh

chromium:
	@sh tools/chromium.sh

kafka: $(READY)
	@sh tools/kafka.sh $(BIN)/python || \
	  { [ "$$PENSTOCK_KAFKA" != required ] && echo "Kafka is not available here (see above): its tests are SKIPPED."; }

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Penstock needs Python 3.11 or newer: run 'make PYTHON=/path/to/python3.11'."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $(READY)

clean: ## Delete the virtual environment and everything that was built.
	rm -rf $(VENV) build dist docs/_build .mypy_cache .ruff_cache .pytest_cache
