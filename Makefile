# `make` lists the targets. Those that need them first bring .venv and .jars up to their lock files, which takes a moment if they already are.
PYTHON ?= python3
BIN    := .venv/bin
PY     := $(BIN)/python
READY  := .venv/.requirements.sha256
# Another Spark, Airflow or Python of this machine must not leak into ours. Without bytecode, each process would compile what it imports.
unexport SPARK_HOME SPARK_CONF_DIR PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYSPARK_SUBMIT_ARGS AIRFLOW_HOME
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo up cluster down status sql backup restore test soak bench lint vulnerabilities format

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' Makefile

setup: ## the virtual environment and the jars, from their lock files
	@$(PYTHON) include/setup/install.py

demo: setup ## the whole pipeline on embedded services, which keep running; GATE=closed: and then a bad batch that closes a gate; WAREHOUSE=s3: its tables in S3
	@$(PY) -m include.demo $(if $(call given,GATE),--gate "$$GATE") $(if $(call given,WAREHOUSE),--warehouse "$$WAREHOUSE")

up: setup ## start the embedded services: Kafka, Postgres, Airflow; WITH=prometheus: metrics, too; WITH=s3: tables in an S3 server
	@$(PY) -m include.stack up $(if $(call given,WITH),--with "$$WITH")

cluster: setup ## the same, and a Spark master with two workers where all jobs run from then on
	@$(PY) -m include.stack up --with cluster $(if $(call given,WITH),--with "$$WITH")

down: ## stop whatever this LEDGER_HOME started
	@if [ -e $(READY) ]; then $(PY) -m include.stack down; else echo "not set up (make setup), so nothing was started here"; fi

status: ## what runs, and where, as lines of NAME=value
	@if [ -e $(READY) ]; then $(PY) -m include.stack status; else echo "not set up (make setup), so nothing runs" >&2; fi

# Read from the command line only, and by the shell from the environment, so that no quote within a query ends it.
given = $(findstring command line,$(origin $(1)))
sql: setup ## an SQL prompt on the newest release; RELEASE=N for another one, QUERY="select ..." for one answer
	@$(PY) -m include.reader $(if $(call given,RELEASE),--release "$$RELEASE") $(if $(call given,QUERY),--query "$$QUERY")

backup: setup ## TO=FOLDER: one moment of the warehouse, checkpoints, reports and databases, copied to a new folder
	@$(PY) -m include.backup create "$${TO:?name a new folder: make backup TO=FOLDER}"

restore: setup ## FROM=FOLDER: a backup, brought into an empty LEDGER_HOME, and audited
	@$(PY) -m include.backup restore "$${FROM:?name a backup: make restore FROM=FOLDER}"

test: setup ## every test, few seeds
	@$(PY) -m pytest --numprocesses 3 --dist loadgroup

soak: setup ## the long tests, many seeds
	@$(PY) -m pytest -m soak

bench: setup ## bronze, silver and gold beside other engines: a table, JSON, a plot. ROWS=N transactions, REPEATS=N, ONLY=NAME,...; COMPARE=FILE with an earlier one
	@[ -x .bench/bin/pip ] || $(PYTHON) -m venv .bench
	@.bench/bin/pip install --quiet --disable-pip-version-check --requirement tests/benchmarks/peers/requirements.txt
	@$(PY) -m tests.benchmarks.peers.flink
	@mkdir -p artifacts
	@$(PY) -m tests.benchmarks.bench --json artifacts/bench.json --plot artifacts/bench.svg \
		$(if $(call given,COMPARE),--compare "$$COMPARE") $(if $(call given,ROWS),--transactions "$$ROWS") \
		$(if $(call given,REPEATS),--repeats "$$REPEATS") $(if $(call given,ONLY),--only "$$ONLY") $(if $(call given,FOLDER),--folder "$$FOLDER")

lint: setup ## format, lint, types, and the files that no test runs; repairs nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yaml
	$(BIN)/hadolint include/docker/Dockerfile
	$(PY) -m include.setup.check_files
	$(PY) -m include.docs.generate --check

vulnerabilities: setup ## known vulnerabilities of the locked packages, where a service answers
	@$(PY) -m include.setup.vulnerabilities

format: setup ## let ruff repair what it can, and regenerate the generated pages
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(PY) -m include.docs.generate
