# Every target sets up what it needs. PYTHON=... picks the interpreter that makes the virtual environment.
# PYTEST_ARGS=... is passed to pytest, for example: make test PYTEST_ARGS="tests/unit -k mask"

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -q
STATED := pyproject.toml constraints.txt

# Threads that wait by spinning starve each other where cores are few; waiting asleep costs idle machines nothing.
export OMP_WAIT_POLICY ?= PASSIVE

# Tests start hundreds of processes: without its compiled modules each would read and compile all of Espalier again.
export PYTHONDONTWRITEBYTECODE :=

# For llama-cpp-python, which pip compiles once and then keeps in its cache: all cores, no image models, no TLS, and for
# any x86-64 CPU with AVX2, since the cache may move and logits should not differ. See docs/dependencies.md.
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
export CMAKE_ARGS ?= -DLLAVA_BUILD=OFF -DLLAMA_OPENSSL=OFF -DGGML_NATIVE=OFF

.PHONY: help setup demo test test-all test-vllm check check-types check-rest docs sbom audit lock wheel test-compiled bench bench-compare soak fuzz mutants \
	train-demo clean
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

setup: .setup-dev ## make .venv and install espalier-llm[transformers,llamacpp,server,postgres,parquet,otel,activations,mcp,ray] and the tools of development

demo: .setup-demo ## answer freely, then under a schema, with the demo model, and write the trace page
	@mkdir -p out
	$(BIN)/espalier generate --seed 2 "Generate user info"
	$(BIN)/espalier generate --schema examples/user.schema.json --seed 2 --trace out/trace.html "Generate user info"
	@echo "The trace is in out/trace.html: open it in a browser."

# One process for each core, a module's tests in one process, so that what a module sets up is set up once. Each process
# computes with one thread: more would only wait for one another. Modules go out in the order of their names: those of
# tests/acceptance and tests/integration take longest and begin first, so that no core waits for one of them at the end.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder --durations=10

test: .setup-dev ## run the tests but the slow ones, property tests and long tables with a share of their examples
	TEST_EXAMPLES=$${TEST_EXAMPLES:-0.25} TEST_ROWS=$${TEST_ROWS:-$${TEST_EXAMPLES:-0.1}} $(PYTEST) -m "not slow" $(PYTEST_ARGS)

test-all: .setup-dev ## run every test with every example, as CI does
	$(PYTEST) $(PYTEST_ARGS)

test-vllm: .setup-dev ## install vLLM for CPUs in an environment of its own, and run the tests inside it
	scripts/setup_vllm.sh
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 0 tests/integration/vllm $(PYTEST_ARGS)

check: .setup-dev ## lint, format, types, import contracts and style
	@$(MAKE) --no-print-directory -j2 check-types check-rest

# mypy takes as long as all else together and more: the two run beside one another.
check-types: .setup-dev
	$(BIN)/mypy

check-rest: .setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/check_style.py

docs: .setup-docs ## build the docs as a site, into out/site; broken links and anchors are errors; compiles nothing
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "The docs are in out/site: open out/site/index.html in a browser."

sbom: .setup-supply ## write out/sbom.json (CycloneDX): the wheel with all extras, and the llama.cpp inside
	$(BIN)/python scripts/supply_chain.py sbom

audit: .setup-supply ## the licences of all extras, and known vulnerabilities of requirements.lock
	$(BIN)/python scripts/supply_chain.py licences
	$(BIN)/python scripts/supply_chain.py audit

lock: .setup-supply ## write requirements.lock: the versions of constraints.txt with digests
	$(BIN)/python scripts/supply_chain.py lock

BUILD_COMPILED := HATCH_BUILD_HOOK_ENABLE_MYPYC=1 $(BIN)/python -m build --no-isolation --outdir

wheel: .setup-dev ## build dist/*.whl for this platform and Python, with the modules of masks compiled: two minutes
	$(BUILD_COMPILED) dist

# Unpacked, with its source beside it: what a user of the wheel runs, to be measured and tested.
out/compiled: $(shell find src -name '*.py') pyproject.toml | .setup-dev
	rm -rf $@
	$(BUILD_COMPILED) $@
	cd $@ && $(CURDIR)/$(BIN)/python -m zipfile -e *.whl . && rm *.whl *.tar.gz && touch .

test-compiled: out/compiled ## run the tests of automata and constraints on compiled modules, as wheels hold them
	PYTHONPATH=$(CURDIR)/out/compiled TEST_EXAMPLES=$${TEST_EXAMPLES:-0.25} TEST_ROWS=$${TEST_ROWS:-0.1} $(PYTEST) \
		-m "not slow" -p no:cacheprovider tests/unit/test_compiled.py tests/unit/automata tests/unit/constraints $(PYTEST_ARGS)

bench: .setup-bench out/compiled ## measure Espalier beside other engines, and write docs/benchmarks.md, or the page in OUT=FOLDER; QUICK=1 takes 4 minutes
	PYTHONPATH=$(CURDIR)/out/compiled $(BIN)/python -m benchmarks.page $(if $(QUICK),--quick --out out/bench) $(if $(OUT),--out $(OUT))

bench-compare: .setup-bench ## BASE=COMMIT: measure a commit beside this one, and say what changed beyond noise
	@test -n "$(BASE)" || { echo "say which commit: make bench-compare BASE=main" >&2; exit 2; }
	$(BIN)/python -m benchmarks.page --compare "$(BASE)" $(if $(QUICK),--quick)

HOURS ?= 1

soak: .setup-dev ## run servers of both engines under load for HOURS, and say whether memory and all else is flat
	$(BIN)/python -m benchmarks.soak --hours $(HOURS)

MINUTES ?= 30
SEED ?= 1
fuzz: .setup-dev ## fuzz every parser, guided by coverage, each for its share of MINUTES=30; FUZZ_PARSERS=gguf,trace picks some
	$(BIN)/python -m benchmarks.fuzz parsers --coverage --seconds $$(($(MINUTES) * 60)) --seed $(SEED)

mutants: .setup-dev ## change the code one place at a time and see whether a test notices; MUTANTS="admission --count 20" picks
	$(BIN)/python -m scripts.mutants $(MUTANTS)

train-demo: .setup-dev ## train the demo model again, into models/demo
	$(BIN)/python scripts/train_demo_model.py

clean: ## remove the virtual environment and everything that was built
	rm -rf $(VENV) .setup-bench .setup-demo .setup-docs .setup-supply .setup-dev build dist out
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# Debian may have pip but no ensurepip: then the new environment gets its pip from the one outside.
$(VENV)/pyvenv.cfg:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer was not found; say where: make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) 2>/dev/null || { $(PYTHON) -m venv --clear --without-pip $(VENV) \
		&& $(PYTHON) -m pip --python $(BIN)/python install -q pip; } || { rm -rf $(VENV); exit 1; }

.setup-demo: $(VENV)/pyvenv.cfg $(STATED)
	$(PIP) -c constraints.txt -e '.[transformers]'
	$(BIN)/espalier doctor --warm
	@touch $@

# The reference of the site is made by the command line and the server; neither needs a model's library.
.setup-docs: $(VENV)/pyvenv.cfg $(STATED)
	$(PIP) --upgrade 'pip>=25.1'
	$(PIP) -c constraints.txt -e '.[server]' --group docs
	@touch $@

# The engines that are measured beside Espalier, and the library that draws: 100 MB. The tests of constraints
# written for others, and of the plots, need them too.
.setup-bench: .setup-dev
	$(PIP) -c constraints.txt --group bench
	$(PIP) -c constraints.txt --no-deps --group peers
	@touch $@

.setup-supply: .setup-dev
	$(PIP) -c constraints.txt -e '.[all]' --group supply
	@touch $@

# pip reads dependency groups from 25.1 on. What has to be compiled comes first: where that fails, it fails at once.
.setup-dev: $(VENV)/pyvenv.cfg $(STATED)
	$(PIP) --upgrade 'pip>=25.1'
	@echo "installing llama-cpp-python; the first time it is compiled, which takes minutes"
	@$(PIP) -c constraints.txt llama-cpp-python || { command -v "$${CXX:-c++}" >/dev/null || \
		echo "make: llama-cpp-python has to be compiled and there is no C++ compiler:" \
			"install one (Debian, Ubuntu: apt-get install build-essential)" >&2; exit 1; }
	$(PIP) -c constraints.txt -e '.[transformers,llamacpp,server,postgres,parquet,otel,activations,mcp,ray]' --group dev --group docs
	$(BIN)/espalier doctor --warm
	@touch .setup-demo .setup-docs $@
