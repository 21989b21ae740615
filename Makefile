# `make setup` needs python3 (3.11 or later), git and a C++20 compiler; everything else comes from PyPI into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?= -q
# What pip needs to build the C++ module, and the C++ tests need to build: kept in .venv so that a rebuild is incremental.
BUILD_TOOLS := 'scikit-build-core>=0.10' 'nanobind>=2.4' 'cmake>=3.20' 'ninja>=1.11'
CORE := $(shell find cpp/base cpp/exec cpp/fabric cpp/net cpp/bind -name '*.h' -o -name '*.cpp')
CMAKE = $(BIN)/cmake -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DWINDTUNNEL_PYTHON=OFF -DWINDTUNNEL_TESTS=ON
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-cpp test-python test-torch lint lint-imports bench sanitize clean

help:
	@echo "setup  demo  test  test-torch  lint  bench  sanitize  clean"

setup: $(VENV)/.installed

$(VENV)/.tools: Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "windtunnel needs Python 3.11 or later; name one with: make PYTHON=python3.11 setup" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(BUILD_TOOLS)
	@touch $@

$(VENV)/.installed: $(VENV)/.tools pyproject.toml CMakeLists.txt $(CORE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -e '.[dev]'
	@touch $@

demo: setup
	@mkdir -p out
	$(BIN)/windtunnel predict megascale-175b-12288 --trace out/demo.pftrace --html out/demo.html

test: test-cpp lint-imports test-python

test-cpp: setup
	$(CMAKE) -B build/cpp >/dev/null
	$(BIN)/cmake --build build/cpp -j $(JOBS)
	build/cpp/core_tests
	build/cpp/exec_fuzz 3000 1
	build/cpp/fabric_fuzz 3000 1
	build/cpp/flow_fuzz 2000 1
	build/cpp/packet_fuzz 300 1
	build/cpp/replay_fuzz 3000 1

lint-imports: setup
	$(BIN)/lint-imports

test-python: setup
	@$(BIN)/python -c 'import torch' 2>/dev/null || echo "torch is not installed, so tests that need it are skipped; 'make test-torch' installs it and runs them"
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# Tests marked `torch`; pytest's exit code 5 means that none is.
test-torch: setup
	@$(BIN)/python -c 'import torch, transformers' 2>/dev/null || { \
	  echo "torch or transformers is not installed; installing them as: $(BIN)/pip install -e '.[torch,hf]' --no-build-isolation"; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -e '.[torch,hf]' || { \
	    echo "torch could not be installed; with a network, type: $(BIN)/pip install 'torch==2.13.0'" >&2; exit 1; }; }
	@$(BIN)/python -m pytest $(PYTEST_ARGS) -m torch; code=$$?; \
	  if [ $$code -eq 5 ]; then echo "no test is marked torch"; else exit $$code; fi

lint: setup lint-imports
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy --strict src
	@if command -v clang-format >/dev/null; then clang-format --dry-run --Werror $$(git ls-files 'cpp/*.h' 'cpp/*.cpp'); \
	  else echo "clang-format is not installed: C++ layout is not checked"; fi

bench: setup
	$(CMAKE) -B build/cpp >/dev/null
	$(BIN)/cmake --build build/cpp -j $(JOBS) --target exec_bench flow_bench cc_bench
	build/cpp/exec_bench
	build/cpp/flow_bench
	build/cpp/cc_bench
	$(BIN)/python -m pytest benchmarks --benchmark-only -q
	$(BIN)/python benchmarks/network_bars.py

sanitize: setup
	$(CMAKE) -B build/asan -DCMAKE_BUILD_TYPE=RelWithDebInfo -DWINDTUNNEL_SANITIZE=address,undefined >/dev/null
	$(BIN)/cmake --build build/asan -j $(JOBS)
	UBSAN_OPTIONS=halt_on_error=1 build/asan/core_tests
	UBSAN_OPTIONS=halt_on_error=1 build/asan/exec_fuzz 2000 3
	UBSAN_OPTIONS=halt_on_error=1 build/asan/fabric_fuzz 2000 3
	UBSAN_OPTIONS=halt_on_error=1 build/asan/flow_fuzz 1000 3
	UBSAN_OPTIONS=halt_on_error=1 build/asan/packet_fuzz 200 3
	UBSAN_OPTIONS=halt_on_error=1 build/asan/replay_fuzz 2000 3
	$(CMAKE) -B build/tsan -DCMAKE_BUILD_TYPE=RelWithDebInfo -DWINDTUNNEL_SANITIZE=thread >/dev/null
	$(BIN)/cmake --build build/tsan -j $(JOBS)
	build/tsan/core_tests
	build/tsan/exec_fuzz 500 4
	build/tsan/packet_fuzz 60 4

clean:
	rm -rf build out
