#!/usr/bin/env bash
# What CI runs beside `make test`: format, lint, warnings as errors, core's files one by one, core under
# address and undefined-behaviour sanitizers, ThreadComm and executor under the thread sanitizer, the long
# tests.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}

echo "check: format"
git ls-files '*.h' '*.cc' | xargs clang-format-14 --dry-run --Werror
.venv/bin/ruff format --quiet --check --line-length 100 tools tests benchmarks entrain/python
.venv/bin/ruff check --quiet --line-length 100 tools tests benchmarks entrain/python

echo "check: each file of core by itself"
cmake --preset each-file >/dev/null
cmake --build --preset each-file -j "$jobs" --target entrain

echo "check: core under asan and ubsan, warnings as errors"
cmake --preset asan >/dev/null
cmake --build --preset asan -j "$jobs"
ctest --preset asan -j "$jobs" || { tools/show_failures.sh build/asan; exit 1; }

echo "check: ThreadComm and executor under tsan, engine warnings as errors"
cmake --preset tsan >/dev/null
cmake --build --preset tsan -j "$jobs" --target entrain entrain_comm_test entrain_pipeline_test
TSAN_OPTIONS="suppressions=$PWD/tools/tsan.supp halt_on_error=1 allocator_may_return_null=1" \
  ctest --preset tsan -R '^engine/(comm|pipeline)$' || { tools/show_failures.sh build/tsan; exit 1; }

echo "check: the long tests"
make --no-print-directory long-test JOBS="$jobs"
echo "check: all passed"
