# Everyday commands. `make` lists them; PYTHON chooses the interpreter (3.11 or newer) and CMAKE_ARGS reaches CMake.
# Every path is relative: the folder of the checkout may have any name.

PYTHON ?= python3
PIP := .venv/bin/python -m pip --disable-pip-version-check
export PROMPT_TEXT := $(value PROMPT)

# With the folders, so that a file that was removed counts as a change too.
SOURCES := $(wildcard pyproject.toml CMakeLists.txt README.md LICENSE cmake/* vendor/PIN) \
	$(shell find native python -name __pycache__ -prune -o -name _native.pyi -prune -o -print)

.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := help
.PHONY: help venv provision build install chat test lint types unit test-archs test-constraints test-vulkan tools sanitize \
	bench bench-unit bench-tools sdist wheel wheel-native wheel-cuda test-wheel vulkan-packages cuda-toolkit clean FORCE

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

venv: .venv/made ## make .venv with the tools that a build needs

provision: .venv/made ## fill vendor/llama.cpp
	@.venv/bin/python vendor/provision.py

install: .venv/installed ## build causerie with llama.cpp and install it into .venv
	@echo "causerie is installed; .venv/bin/causerie runs it"

build: install ## the same as install

chat: .venv/installed ## chat in the terminal; PROMPT="..." asks one question
	@if [ -n "$$PROMPT_TEXT" ]; then .venv/bin/causerie chat "$$PROMPT_TEXT"; else .venv/bin/causerie chat; fi

test: lint types unit ## all that CI checks: lint, types and tests

lint: .venv/installed ## ruff: rules and format
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types: .venv/installed ## mypy --strict, with the stub that the build generated for the native module
	@cmp -s .venv/lib/python*/site-packages/causerie/_native.pyi python/causerie/_native.pyi || \
		cp .venv/lib/python*/site-packages/causerie/_native.pyi python/causerie/_native.pyi
	.venv/bin/mypy

unit: .venv/tools sanitize ## the tests alone; ARGS="tests/llama -k name" reaches pytest
ifdef ARGS
	.venv/bin/python -m pytest $(ARGS)
else
	.venv/bin/python -m pytest -m "not several_threads" -n auto --maxprocesses 4 --dist worksteal
	.venv/bin/python -m pytest -m several_threads
endif

test-archs: .venv/tools ## the engine on every architecture that llama.cpp can write a tiny model of
	CAUSERIE_ALL_ARCHITECTURES=1 .venv/bin/python -m pytest tests/engine/test_architectures.py

test-constraints: .venv/tools ## 200 hot replies to every kind of constraint; RUNS=200
	CAUSERIE_CONSTRAINT_RUNS=$(or $(RUNS),200) .venv/bin/python -m pytest tests/conversation/test_constraints.py -s -o timeout=7200

test-vulkan: build/vulkan/installed .venv/tools ## the tests marked `backend` on Vulkan, which the CPU computes (lavapipe)
	GGML_VK_VISIBLE_DEVICES=0 CAUSERIE_TEST_DEVICE=Vulkan0 PYTHONPATH="$$PWD/build/vulkan/site" \
		.venv/bin/python -m pytest -m backend $(or $(ARGS),-n auto --maxprocesses 4 --dist worksteal tests)

tools: .venv/tools ## llama.cpp's own programs, as references for tests and benchmarks

sanitize: .venv/tools ## the shim's tests and fuzzer under AddressSanitizer and UBSan; FUZZ_RUNS=2000
	@. .venv/paths && .venv/bin/cmake --build "$$BUILD_DIR" --target shim_test shim_fuzz
	@. .venv/paths && "$$BUILD_DIR/native/shim_test" && "$$BUILD_DIR/native/shim_fuzz" $(or $(FUZZ_RUNS),2000)

bench: .venv/bench-tools ## causerie beside other libraries, with a report; ARGS="--quick", "--help": benchmarks/README.md
	.venv/bin/python -m benchmarks.side_by_side $(ARGS)

bench-unit: .venv/bench-tools ## the benchmarks of single parts; ARGS="-k name" reaches pytest
	.venv/bin/python -m pytest $(or $(ARGS),benchmarks)

bench-tools: .venv/bench-tools ## llama-server too, which only benchmarks need

sdist: .venv/made .venv/settings ## a source distribution in dist/
	.venv/bin/python -m build --sdist --no-isolation

wheel: .venv/wheel-tools .venv/settings ## a portable wheel in dist/, with the CPU backend for every generation of processors
	@rm -rf build/wheel
	CAUSERIE_PORTABLE=1 .venv/bin/python -m build --wheel --no-isolation --outdir build/wheel
	@if [ "$$(uname)" = Linux ]; then set -x; PATH=$$PWD/.venv/bin:$$PATH .venv/bin/auditwheel repair --wheel-dir dist build/wheel/*.whl; \
		else mkdir -p dist && mv build/wheel/*.whl dist; fi
	.venv/bin/abi3audit --strict --summary "$$(ls -t dist/*.whl | head -1)"

wheel-native: .venv/made .venv/settings ## a wheel in dist/, compiled for this machine alone
	.venv/bin/python -m build --wheel --no-isolation

test-wheel: .venv/tools ## the tests of a portable wheel; WHEEL=dist/causerie-....whl, the newest one otherwise
	CAUSERIE_WHEEL="$(or $(WHEEL),$(shell ls -t dist/*manylinux*.whl 2>/dev/null | head -1))" .venv/bin/python -m pytest $(or $(ARGS),tests/wheel)

vulkan-packages: ## what Vulkan builds need on Debian: installs packages as root, headers into build/vulkan/sdk
	@$(PYTHON) toolchains/vulkan.py build/vulkan/sdk

cuda-toolkit: .venv/made ## NVIDIA's toolkit from wheels, to compile with, into build/cuda/toolkit
	@.venv/bin/python toolchains/cuda.py build/cuda/toolkit

# The portable wheel with one more plugin. Plugins are not linked to: without a driver, or the libraries of NVIDIA's, the
# others work. CUDAToolkit_ROOT names an installed toolkit instead.
wheel-cuda: .venv/made .venv/settings ## a wheel with CUDA in dist/ (half an hour on 2 cores); CUDA_ARCHS=90
	@[ -n "$$CUDAToolkit_ROOT" ] || .venv/bin/python toolchains/cuda.py build/cuda/toolkit
	@export CUDAToolkit_ROOT="$${CUDAToolkit_ROOT:-$$PWD/build/cuda/toolkit}"; export CUDACXX="$$CUDAToolkit_ROOT/bin/nvcc"; \
	CAUSERIE_PORTABLE=1 .venv/bin/python -m build --wheel --no-isolation -C build-dir=build/cuda/cmake \
		-C cmake.define.GGML_CUDA=ON -C cmake.define.GGML_CUDA_NO_VMM=ON -C cmake.define.GGML_CUDA_NCCL=OFF \
		-C "cmake.define.CMAKE_CUDA_ARCHITECTURES=$(or $(CUDA_ARCHS),90)"

clean: ## remove all that was made, except vendor/llama.cpp and the download cache
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks

# The build tools come before the package: pip's own isolated build environment has a new path each time, at which
# CMake would configure, and ninja compile, everything again.
.venv/made: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: make needs Python 3.11 or newer")'
	@echo "Making .venv"
	@$(PYTHON) -m venv .venv
	@.venv/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' > .venv/build-requirements.txt
	@$(PIP) install --quiet --requirement .venv/build-requirements.txt build cmake ninja
	@touch $@

.venv/wheel-tools: .venv/made pyproject.toml
	@.venv/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["wheel"], sep="\n")' > .venv/wheel-requirements.txt
	@$(PIP) install --quiet --requirement .venv/wheel-requirements.txt
	@touch $@

# What no file's date shows: the pin of llama.cpp and the options for CMake. Unchanged text keeps its date.
.venv/settings: .venv/made FORCE
	@.venv/bin/python vendor/provision.py --quiet
	@{ git ls-files --stage vendor/llama.cpp 2>/dev/null; echo "CMAKE_ARGS=$$CMAKE_ARGS"; } > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

# The stamp's date is the build's start, and the build writes nothing beside the sources: a file that is edited
# meanwhile is newer, and nothing else is.
.venv/installed: .venv/made .venv/settings $(SOURCES)
	@echo "Building causerie and installing it into .venv (the first time compiles llama.cpp: some 5 minutes on 2 cores)"
	@touch $@.new
	@PYTHONDONTWRITEBYTECODE=1 $(PIP) install --quiet --no-build-isolation ".[dev]"
	@mv $@.new $@

# A second build, beside the environment that has the tools for tests.
build/vulkan/installed: toolchains/vulkan.py .venv/made .venv/settings $(SOURCES)
	@$(PYTHON) toolchains/vulkan.py build/vulkan/sdk
	@echo "Building causerie with Vulkan (the first time: some 8 minutes on 2 cores)"
	@touch $@.new
	@VULKAN_SDK="$$PWD/build/vulkan/sdk" PYTHONDONTWRITEBYTECODE=1 $(PIP) install --quiet --no-build-isolation --no-deps \
		--upgrade --target build/vulkan/site -C build-dir=build/vulkan/cmake -C cmake.define.GGML_VULKAN=ON \
		-C cmake.define.GGML_RPC=ON .
	@mv $@.new $@

# llama.cpp's programs are further targets of the package's build folder: its libraries are compiled once.
.venv/tools: .venv/installed
	@echo "Building llama.cpp's programs for the tests"
	@.venv/bin/python -c 'import glob; print("BUILD_DIR=" + glob.glob("build/cp*/CMakeCache.txt")[0].rpartition("/")[0])' > .venv/paths
	@. .venv/paths && .venv/bin/cmake -DCAUSERIE_BUILD_TOOLS=ON "$$BUILD_DIR" > .venv/tools.log
	@. .venv/paths && .venv/bin/cmake --build "$$BUILD_DIR" --target llama-bench llama-batched-bench llama-completion test-llama-archs
	@touch $@

.venv/bench-tools: .venv/tools
	@echo "Building llama-server for the benchmarks (some 5 minutes on 2 cores)"
	@. .venv/paths && .venv/bin/cmake -DLLAMA_BUILD_SERVER=ON -DLLAMA_USE_PREBUILT_UI=OFF "$$BUILD_DIR" > .venv/bench-tools.log
	@. .venv/paths && .venv/bin/cmake --build "$$BUILD_DIR" --target llama-server
	@touch $@
