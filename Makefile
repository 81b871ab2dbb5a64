# Each target does its own set-up, in the environment .venv of this folder. Needed: Python 3.11 or later with headers and
# venv, and a C compiler. No Java: the spark extra brings one as a wheel.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := setup.py $(wildcard native/*/*.c native/*/*.h src/seqcast/include/*/*.h src/seqcast/*.pxd src/seqcast/_native/*.pyx src/seqcast/_native/*.px[di])

.PHONY: demo test test-all lint bench bench-hosts bench-figures bench-order bench-pipeline fuzz tsan interleave cross sim explore seeds-long mutants chaos services soak figures docs clean help
.DELETE_ON_ERROR:
# Tests start hundreds of interpreters; without bytecode, each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

demo: $(VENV)/.ready-demo ## a group on this machine: a crash, a join, and Spark's verdict (ARGS="--input FILE")
	$(BIN)/python -m seqcast demo $(ARGS)

test: $(VENV)/.ready-dev ## the tests but for the long ones, four at a time (ARGS="-k name"; ARGS="-n 0": one by one)
	$(BIN)/python -m pytest -n 4 --dist loadgroup -m "not long" $(ARGS)

test-all: $(VENV)/.ready-dev ## all tests; the long ones: chaos, many seeds, Spark at scale (ARGS="-m long": these alone)
	$(BIN)/python -m pytest -n 4 --dist loadgroup $(ARGS)

lint: $(VENV)/.ready-dev ## ruff, mypy, clang-format, lizard, cython-lint, the layer rule
	$(BIN)/ruff check .
	$(BIN)/mypy
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint src/seqcast examples/embed
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror native/*/*.[ch] tests/*/*.[ch] src/seqcast/include/*/*.h examples/*/*.c
	$(BIN)/lizard -C 15 -w native tests/fuzz tests/tsan tests/interleave tests/cross src/seqcast/include examples

bench: $(VENV)/.ready-dev ## benchmarks of the kernels
	$(BIN)/python -m pytest bench $(ARGS)

bench-hosts: $(VENV)/.built ## between hosts, by ssh: HOSTS=a,b,c (30 minutes for four; OUT=hosts.jsonl, resumed; ARGS="--via ...")
	$(BIN)/python -m seqcast perf --hosts $(HOSTS) --pairs 3 --matrix sizes=64,1024,8192:orders=fifo,total:transports=auto,unicast --out $(or $(OUT),hosts.jsonl) $(ARGS)

bench-figures: $(VENV)/.ready-dev ## docs/figures.jsonl and docs/figures.md (18 minutes; ARGS="--only latency")
	$(BIN)/python -m pip install --quiet 'seqcast[bench]'
	$(BIN)/python bench/figures.py $(ARGS)
	$(BIN)/python docs/render.py

bench-order: $(VENV)/.ready-dev ## docs/orders.md: each order beside FIFO and the raw limit (12 minutes; ARGS="--minutes 5")
	$(BIN)/python bench/orders.py $(ARGS)

bench-pipeline: $(VENV)/.ready-dev ## docs/pipeline.md: journals, the audit beside DuckDB, the Spark source (25 minutes; ARGS="--only audit")
	$(BIN)/python -m pip install --quiet 'seqcast[bench]'
	$(BIN)/python bench/pipeline.py $(ARGS)

fuzz: $(VENV)/.ready-dev ## sealed datagrams, the wire parser and the engine under ASan and UBSan (FUZZ_S=60), wrapped secrets (WRAPS=100000)
	tests/fuzz/run $(or $(FUZZ_S),60)
	PYTHONPATH=tests:tests/helpers $(BIN)/python tests/fuzz/wraps.py $(or $(WRAPS),100000)

tsan: ## driver and sockets under ThreadSanitizer (TSAN_S=60)
	tests/tsan/run $(or $(TSAN_S),60)

interleave: ## the driver's threads in drawn orders: is a wake-up lost? (SCHEDULES=100000 SEED=1)
	tests/interleave/run $(or $(SCHEDULES),100000) $(or $(SEED),1)

cross: $(VENV)/.built ## C for musl, macOS and Windows: compiled, linked, and run if an emulator is installed (ARGS="windows-x86_64")
	$(BIN)/python -m pip install --quiet 'seqcast[cross]'
	PYTHONPATH=tests $(BIN)/python -m cross $(ARGS)

sim: $(VENV)/.ready-dev ## simulated schedules (ARGS="--seeds 101..300")
	$(BIN)/python -m seqcast sim $(or $(ARGS),--seeds 101..300)

explore: $(VENV)/.ready-dev ## small worlds to the end: every order of control frames, a loss, a crash (ARGS="crash --depth 6")
	PYTHONPATH=tests:tests/helpers $(BIN)/python -m explore $(ARGS)

seeds-long: $(VENV)/.ready-dev ## 1,000 simulated schedules of each order (two hours; SEEDS=1..100, ORDERS="records": minutes)
	for order in $(or $(ORDERS),fifo sequencer records total-1999 grant causal); do \
	    $(BIN)/python -m seqcast sim --seeds $(or $(SEEDS),1..1000) --order $$order || exit 1; done

mutants: $(VENV)/.ready-dev ## breaks of the protocol on purpose, and the test that catches each (ARGS="--tenth 3", "--match merge")
	PYTHONPATH=tests:tests/helpers $(BIN)/python -m mutants $(ARGS)

chaos: $(VENV)/.ready-dev ## real processes, real faults, audited (ARGS="--seconds 600", "--seed 7"; needs root)
	PYTHONPATH=tests:tests/helpers $(BIN)/python -m chaos $(ARGS)

services: $(VENV)/.ready-dev ## the services of examples/ under kills, stops and cuts (ARGS="--faults 200 --seed 7"; needs root)
	PYTHONPATH=tests:tests/helpers $(BIN)/python -m chaos.services $(ARGS)

soak: $(VENV)/.ready-dev ## chaos in rounds of minutes: audited, and no process grows (HOURS=8; needs root)
	PYTHONPATH=tests:tests/helpers $(BIN)/python -m chaos.soak --hours $(or $(HOURS),1) $(ARGS)

figures: $(VENV)/.ready-dev ## the pages and tables of docs/ made from the code and docs/figures.jsonl
	$(BIN)/python docs/render.py

docs: $(VENV)/.built ## the documentation as a site in site/, with the reference of the Python API; any warning fails
	$(BIN)/python -m pip install --quiet 'seqcast[docs]'
	$(BIN)/python docs/render.py
	$(BIN)/zensical build --clean --strict
	! grep -q __pyx site/api.html # compiled modules are described by their stubs

clean: ## everything that was built, and the environment
	rm -rf build dist site $(VENV) src/*.egg-info src/seqcast/_native/*.so src/seqcast/_native/*.c tests/fuzz/build tests/tsan/build tests/interleave/build tests/cross/build

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/make \1\t\2/p' Makefile | expand -t 20

# The stamps are inside the environment and disappear with it. An environment without stamps, whoever made it, is
# completed; one whose Python is gone is recreated.
$(VENV)/.python: Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo 'seqcast needs Python 3.11 or later; say which: make PYTHON=python3.12' >&2; exit 1; }
	@test ! -e $(VENV) || $(BIN)/python -m pip --version >/dev/null 2>&1 || \
	    $(BIN)/python -m ensurepip >/dev/null 2>&1 || rm -rf $(VENV)
	@test -e $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip "setuptools>=77" wheel "Cython>=3.1" "numpy>=1.26"
	@touch $@

$(VENV)/.built: $(VENV)/.python pyproject.toml $(SOURCES)
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# seqcast is already installed, so pip adds only the packages of its extras.
$(VENV)/.ready-demo: pyproject.toml | $(VENV)/.built
	@test -e $@ || echo 'Installing the packages that the demo needs (PySpark, pyarrow, a Java runtime): once, a minute or two.'
	$(BIN)/python -m pip install --quiet 'seqcast[spark]'
	@touch $@

$(VENV)/.ready-dev: pyproject.toml | $(VENV)/.built
	@test -e $@ || echo 'Installing the packages that the tests need: once, a minute or two.'
	$(BIN)/python -m pip install --quiet 'seqcast[report,dev]'
	@$(BIN)/python -m pip install --quiet 'seqcast[readers]' || echo 'No DuckDB or Polars here: their tests are left out.'
	@touch $@
