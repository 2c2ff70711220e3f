# The front door. Each target does the set-up it needs; a second run does none again.
SHELL := /bin/bash
.DEFAULT_GOAL := help
JOBS ?= $(shell nproc)
CORE_READY := .venv/.entrain-core-ready
ENGINE_READY := .venv/.entrain-engine-ready
ENTRAIN := build/release/entrain/cli/entrain

CHECK_READY := .venv/.entrain-check-ready
DOCS_READY := .venv/.entrain-docs-ready
FUZZ_READY := .venv/.entrain-fuzz-ready
PARITY_READY := .venv-parity/.entrain-parity-ready
# Seconds for every fuzz target.
FUZZ_SECONDS ?= 60

.PHONY: help setup build package demo evaluate test long-test core-test record compare-record record-programs parity trainers \
  check docs fuzz gpu-check format bench results-index clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(CORE_READY): tools/setup.sh tools/requirements.txt
	@tools/setup.sh --core

$(ENGINE_READY): tools/setup.sh tools/requirements.txt
	@tools/setup.sh

setup: $(ENGINE_READY) ## install what is missing: distribution packages, .venv, torch

build: $(ENGINE_READY) ## build everything into build/release
	@JOBS=$(JOBS) tools/build.sh release

package: $(ENGINE_READY) ## the Python package that torchrun needs, into build/release/python (minutes less than all)
	@JOBS=$(JOBS) tools/build.sh release entrain entrain_python

demo: $(ENGINE_READY) ## draw charts, train a small VLM on 4 ranks, evaluate it (about 2 minutes, and 6 for a first build)
	@JOBS=$(JOBS) tools/build.sh release entrain
	@tools/demo/run.sh

# Size manifests for `make evaluate`; without them made-up data alone.
MANIFESTS ?= $(wildcard ../shared/data/manifests)
evaluate: $(CORE_READY) ## put the paper's claims to the test in build/evaluate (docs/study.md), EVALUATE=--quick in minutes
	@JOBS=$(JOBS) tools/build.sh core entrain
	@build/core/entrain/cli/entrain study paper --threads $(JOBS) -o build/evaluate$(if $(EVALUATE),-quick) \
	  $(if $(EVALUATE),$(EVALUATE),$(if $(MANIFESTS),--manifests $(MANIFESTS)))

test: build ## build, and run all tests but the long ones (5 to 6 minutes on 2 cores)
	@ctest --preset release -LE '^long$$' -j $(JOBS) || { tools/show_failures.sh build/release; exit 1; }

long-test: build ## the long tests: gradients of every layout, processes, kills, real data
	@ctest --preset release -L '^long$$' -j $(JOBS) || { tools/show_failures.sh build/release; exit 1; }

core-test: $(CORE_READY) ## the torch-free core: build and tests
	@JOBS=$(JOBS) tools/build.sh core
	@ctest --preset core -j $(JOBS) || { tools/show_failures.sh build/core; exit 1; }

record: record-programs ## write what assignments, programs, plans and tiny runs come out as to tests/golden
	@build/release/tests/entrain_record write tests/golden/record.txt
	@.venv/bin/python tests/record/training_record.py write tests/golden/training_record.json

compare-record: record-programs ## compute all of it again and show, case by case, what differs from tests/golden
	@ctest --preset release -R '^record/' --verbose

record-programs: $(ENGINE_READY)
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS) --target entrain entrain_record

$(PARITY_READY): tools/setup.sh tools/requirements-parity.txt
	@tools/setup.sh --parity

parity: $(ENGINE_READY) $(PARITY_READY) ## compare every family of models with transformers: logits, loss, gradients, tokens, sizes
	@JOBS=$(JOBS) tools/build.sh release entrain entrain_forward
	@.venv-parity/bin/python tests/parity/families.py --forward build/release/tests/entrain_forward
	@.venv-parity/bin/python tests/parity/tokens.py --entrain build/release/entrain/cli/entrain
	@.venv-parity/bin/python tests/parity/pixels.py --forward build/release/tests/entrain_forward
	@.venv-parity/bin/python tests/parity/video_files.py --forward build/release/tests/entrain_forward
	@.venv-parity/bin/python tests/parity/lora.py --forward build/release/tests/entrain_forward
	@.venv-parity/bin/python tests/parity/sizes.py --entrain build/release/entrain/cli/entrain

trainers: $(CORE_READY) $(PARITY_READY) ## balanced batches in other people's trainers, on Gloo processes, and a newcomer's path (about 7 minutes)
	@JOBS=$(JOBS) tools/build.sh core entrain_wheel
	@PYTHONPATH=build/core/python .venv-parity/bin/python tests/python/package_test.py
	@PYTHONPATH=build/core/python .venv-parity/bin/python tests/python/trainers_test.py
	@.venv-parity/bin/python tests/python/newcomer_test.py

$(CHECK_READY): tools/setup.sh tools/requirements.txt
	@tools/setup.sh --check

check: $(ENGINE_READY) $(CHECK_READY) ## what CI runs beside `make test`: format, lint, locks, sanitizers, the long tests
	@tools/check.sh

$(DOCS_READY): tools/setup.sh tools/requirements-docs.txt
	@tools/setup.sh --docs

docs: $(ENGINE_READY) $(DOCS_READY) ## the documentation as a site in build/site, with a reference made from the code; warnings are errors
	@JOBS=$(JOBS) tools/build.sh release entrain
	@NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict --clean

$(FUZZ_READY): tools/setup.sh tools/requirements.txt
	@tools/setup.sh --fuzz

fuzz: $(FUZZ_READY) ## every parser against mutated inputs, FUZZ_SECONDS (60) each; needs clang 14
	@cmake --preset fuzz >/dev/null
	@cmake --build --preset fuzz -j $(JOBS) --target fuzz_targets
	@.venv/bin/python tools/fuzz.py --seconds $(FUZZ_SECONDS)

gpu-check: ## build against ENTRAIN_PYTHON's torch, run the tests with label gpu, print a summary
	@tools/gpu_check.sh

format: $(CORE_READY) ## rewrite sources in the house format
	@git ls-files '*.h' '*.cc' | xargs clang-format-14 -i
	@.venv/bin/ruff format --quiet --line-length 100 tools tests benchmarks examples entrain/python
	@.venv/bin/ruff check --quiet --line-length 100 --fix tools tests benchmarks examples entrain/python

bench: build ## micro benchmarks and the scenarios of benchmarks/
	@for program in build/release/benchmarks/*_benchmark; do $$program; done

results-index: ## write benchmarks/results/README.md anew from the pages' claims
	@python3 tools/results_index.py

clean: ## remove build trees (not .venv)
	@rm -rf build
