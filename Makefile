# Every target sets the project up first, in .venv: python3 and make are all that must be there.
BIN := .venv/bin
MINUTES ?= 10
LOAD ?= 0
TESTS ?=
PYTHONS ?=
JOBS ?= 3

# Hundreds of processes are begun by the tests; each would compile all that it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test quick pythons orders lint docs release clauses bench soak lock clean

help:  ## what there is
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/'

setup:  ## install what the lock names into .venv (does nothing the second time)
	@tools/setup.sh

demo: setup  ## show what it does (INPUT=file: on that file; STORE=postgres: on PostgreSQL too)
	$(BIN)/gapless demo $(if $(INPUT),--input '$(INPUT)') $(if $(STORE),--store '$(STORE)')

test: setup  ## prove it
	$(BIN)/python -m pytest -m "not long" -n 4 --dist loadfile --no-loadscope-reorder

quick: setup  ## a minute of it: kernel, steps, properties broken by hand, contracts of stores on SQLite, the smallest of the stale certificates
	$(BIN)/python -m pytest -q -n 2 -m "not long" -k "not postgres" tests/kernel tests/*/steps tests/*/test_*_watch.py tests/*/drivers/test_*_contract.py tests/shared_subscriptions/drivers/test_store*
	timeout 20 $(BIN)/gapless check --certificates --stale || [ $$? -eq 124 ]

pythons: setup  ## the tests on every Python from 3.11 to 3.14 that is there, each in out/pythons/VERSION (TESTS=tests/kernel PYTHONS=3.13 JOBS=2: only those)
	@PYTHONS='$(PYTHONS)' JOBS='$(JOBS)' tools/pythons.sh $(TESTS)

orders: setup  ## the tests in three orders and numbers of workers, verdicts compared (LOAD=4: on a busy machine)
	$(BIN)/python tools/orders.py --load $(LOAD)

lint: setup  ## ruff, mypy strict, import contracts, citations of the sources, the ceiling of weight
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/sources.py
	$(BIN)/python tools/weigh.py

docs: setup  ## build the documentation site into out/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo 'out/site/index.html; with search: $(BIN)/python -m http.server --directory out/site'

release: setup  ## build the source distribution and the wheel into dist/, and try the wheel in a fresh environment
	$(BIN)/python tools/release.py

clauses: setup  ## take each clause away: does a test named after it fail?
	$(BIN)/python tools/clauses.py

bench: setup  ## measure against the baselines; each row is kept in out/bench.json (RESUME=1: only those that are not there yet)
	@mkdir -p out
	$(BIN)/gapless bench --save out/bench.json $(if $(RESUME),--resume)

soak: setup  ## explore every certificate again, run the long tests, let implementations of others pass 1 000 seeds and find what is planted in them, then run for long under failures (MINUTES=10; 60: sessions hurt a thousand times in a run)
	$(BIN)/gapless check --certificates --jobs 2
	$(BIN)/python -m pytest -m long -n 2 --dist loadfile --no-loadscope-reorder
	$(BIN)/python -m pytest -m "hypothesis and not long" --hypothesis-profile soak -n 2 --dist loadfile --no-loadscope-reorder
	$(BIN)/python tools/soak_foreign.py
	$(BIN)/python tools/soak.py --minutes $(MINUTES)

lock:  ## write requirements.lock anew from pyproject.toml
	@tools/lock.sh

clean:  ## remove everything that was made
	rm -rf .venv out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache spark-warehouse metastore_db
