# The way in: `make demo` and `make test` work on a machine with only Python 3.11 to 3.13 and the package registries.
# Everything depends on `setup`, which takes a fraction of a second once everything is in place.

# Bytecode is kept, also where it is switched off: else each of the hundreds of processes of a test run compiles its modules anew.
export PYTHONDONTWRITEBYTECODE =

PYTHON ?= python3
RUN := .venv/bin/python
UV = $(firstword $(wildcard .streamproof/uv/*/bin/uv))
COMPILE = pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate \
	--custom-compile-command 'make lock'

DIST = dist
ENGINES = dstreams flink kafka_streams storm

# Unit tests share nothing. All others share a testbed: one for each of three processes, which take whole files in turn, the longest first.
# Where a test waits for what it broke, another one works.
SIDE_BY_SIDE = -n auto --maxprocesses 4
THREE_TESTBEDS = -n 3 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup demo ui test coverage test-all test-browser test-containers test-engines set-up-engines engines engine-matrix examples mutate sweep-windows zoo lint format wheel soak bench-run bench-sinks bench-oracle bench-suites bench-links bench-latency bench-explore bench-history bench-tables \
	down docs site lock clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 12

setup:  ## put everything in place: .venv, jars, Toxiproxy
	@$(PYTHON) bootstrap.py

demo: setup  ## break a pipeline on purpose and look at the verdict in Airflow
	@$(RUN) -m streamproof.airflow.demo

ui: setup  ## Airflow with its forms and the testbed behind them, until Ctrl-C
	@$(RUN) -m streamproof.airflow.ui

test: setup  ## the tests, with real Kafka, PostgreSQL, Spark and Toxiproxy; without the slow ones
	$(RUN) -m pytest $(SIDE_BY_SIDE) tests/unit tests/zoo
	$(RUN) -m pytest $(THREE_TESTBEDS) -m "not slow" tests/integration tests/faults tests/package

coverage: setup  ## how much of the code the unit tests run; build/coverage holds it line by line
	$(RUN) -m coverage run --source src/streamproof --data-file build/.coverage -m pytest -q tests/unit
	$(RUN) -m coverage report --data-file build/.coverage --format total
	$(RUN) -m coverage html --data-file build/.coverage --directory build/coverage --quiet

test-all: setup  ## every test, the slow ones and those in a browser too
	$(RUN) -m pytest $(SIDE_BY_SIDE) tests/unit tests/zoo
	$(RUN) -m pytest --ignore=tests/unit --ignore=tests/zoo tests

test-browser: setup  ## the tests in a browser: Airflow's form, a run, its report, the pages; pictures are in build/browser
	$(RUN) -m pytest tests/browser

test-containers: setup  ## build the stack of docker-compose.yml, start it, run the demonstration on it, break its containers; needs Docker with Compose
	$(RUN) -m pytest tests/containers

examples: setup  ## run every example and hold its outcome against what it shows; ONLY=go runs some: build/examples.json
	@$(RUN) -m examples.run $(ONLY)

set-up-engines: setup  ## put the engines beside Spark in place
	@set -e; for engine in $(ENGINES); do $(RUN) -m streamproof.cli.main setup $$engine; done

engines: set-up-engines  ## run what is claimed of each engine, and hold its outcome against what is expected; ONLY=flink runs some: build/engines.json
	@$(RUN) -m benchmarks.engines $(ONLY)

engine-matrix: set-up-engines  ## each engine with each guarantee under the same faults, three seeds each (more than an hour): build/engine-matrix.json
	@$(RUN) -m benchmarks.engine_matrix $(ONLY)

test-engines: set-up-engines  ## the tests of the engines beside Spark, which it sets up
	$(RUN) -m pytest tests/engines

mutate: setup  ## damage histories in every known way: does the verdict find each damage, and raise no false alarm?
	@$(RUN) -m tests.mutation.run $(if $(SEED),--seed $(SEED))

sweep-windows: setup  ## sweep our own strategies by their steps and by the windows seen from outside: do both find the same? (hours; ONLY=checkpoint compares some, RESUME=1 goes on): build/strategy-windows.json
	@$(RUN) -m benchmarks.strategy_windows $(ONLY) $(if $(RESUME),--resume)

zoo: setup  ## sweep every job of the zoo: is each planted bug found, and no repaired job accused? ONLY=autocommit runs some, RESUME=1 goes on: build/zoo.json
	$(RUN) -m tests.zoo.run $(ONLY) $(if $(RESUME),--resume)

lint: setup  ## format, lint, types and layers
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	$(RUN) -m mypy
	.venv/bin/lint-imports

format: setup  ## write the code as the format check wants it
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

wheel: setup  ## dist/: the wheels of the package and of the provider for Airflow, and the source archives that they are built from
	@rm -rf $(DIST)
	@for project in . provider; do \
		$(UV) build --quiet --no-build-isolation --offline --no-config --python $(RUN) --out-dir $(DIST) $$project || exit 1; done
	@rm -rf src/*.egg-info provider/src/*.egg-info  # beside the package it would be found, and grow old
	@ls $(DIST)

soak: setup  ## many random schedules, one run each; SEEDS=1-20 by default
	@.venv/bin/streamproof soak $(if $(SEEDS),--seeds $(SEEDS))

bench-run: setup  ## how long each part of a run takes
	@$(RUN) -m benchmarks.run

bench-sinks: setup  ## how fast each strategy is beside Spark's own sink; ROUNDS=3 by default
	@$(RUN) -m benchmarks.sinks $(if $(ROUNDS),--rounds $(ROUNDS))

bench-oracle: setup  ## how fast drain and check are beside Kafka's own consumer and others' joins; SIZES=1,10,50 for millions of records
	@$(RUN) -m benchmarks.oracle $(if $(SIZES),--sizes $(SIZES)) $(if $(PICTURE),--picture $(PICTURE))

bench-suites: setup  ## time and memory of the expectation suites' queries; SIZES=1,10,50 for millions of records
	@$(RUN) -m benchmarks.suites $(if $(SIZES),--sizes $(SIZES))

bench-links: setup  ## what message links cost a client, with and without them in turn; ROUNDS=5 by default
	@$(RUN) -m benchmarks.links $(if $(ROUNDS),--rounds $(ROUNDS))

bench-latency: set-up-engines  ## how long a record takes from sent to visible, engine by engine: build/bench-latency.json
	@$(RUN) -m benchmarks.latency $(ONLY)

bench-explore: setup  ## how many situations choosing finds, beside chance in the same time: build/bench-explore.json
	@$(RUN) -m benchmarks.explore

bench-history: setup  ## how long the pages of a history of 10,000 runs take: build/bench-history.json
	@$(RUN) -m benchmarks.history

bench-tables: setup  ## how fast tables of a lakehouse are drained, beside delta-rs and pyiceberg
	@$(RUN) -m benchmarks.tables

down: setup  ## stop the testbed
	@.venv/bin/streamproof down

docs: setup  ## write the parts of docs/ that come from the code
	$(RUN) docs/generate.py

site: setup  ## the documentation as a site that is read without a network: build/site
	@$(RUN) docs/site/build.py

lock: setup  ## resolve the requirements anew; UPGRADE=--upgrade takes newer versions
	for name in requirements requirements-build requirements-java requirements-go requirements-uv docs/site/requirements; do \
		$(UV) $(COMPILE) $(UPGRADE) $$name.in --output-file $$name.lock >/dev/null || exit 1; done

clean: down  ## remove all that was made here; downloads of pip, uv and Go stay in their own caches
	rm -rf .venv .venv-docs .streamproof
