#!/usr/bin/env bash
# What CI runs beside `make test`: format, lint, core's files one by one, Clang's warnings as errors, core and
# engine under address and undefined-behaviour sanitizers, ThreadComm and executor under the thread sanitizer,
# the long tests.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}

echo "check: format"
git ls-files '*.h' '*.cc' | xargs clang-format-14 --dry-run --Werror
.venv/bin/ruff format --quiet --check --line-length 100 tools tests benchmarks examples entrain/python
.venv/bin/ruff check --quiet --line-length 100 tools tests benchmarks examples entrain/python

# Not several as one, so that a missing #include is found. Headers that are not ours are parsed once: that one of
# those is missing is found by tests/end_to_end/includes_test.py.
echo "check: each file of core by itself"
core=$(mktemp -d)
trap 'rm -rf "$core"' EXIT
printf '#include <%s>\n' algorithm chrono filesystem functional map numeric optional set span string vector \
  nlohmann/json.hpp fmt/format.h >"$core/common.h"
compile=(clang++-14 -std=c++20 -Wall -Wextra -Werror -I. -DENTRAIN_VERSION='""' -DENTRAIN_CONFIGURED_PYTHON='""')
"${compile[@]}" -fpch-instantiate-templates -x c++-header "$core/common.h" -o "$core/common.pch"
git ls-files 'entrain/core/*.cc' | grep -v '_test\.cc$' |
  xargs -n 8 -P "$jobs" "${compile[@]}" -fsyntax-only -include-pch "$core/common.pch"

# That it is used under its mutex is a warning of the sanitized builds.
echo "check: what a mutex guards is declared with it"
if git grep -nE 'std::(mutex|lock_guard|unique_lock|scoped_lock)' -- \
    'entrain/*.h' 'entrain/*.cc' ':!*_test.cc' ':!entrain/core/base/thread_safety.h'; then
  echo "check: use Mutex and MutexLock of entrain/core/base/thread_safety.h" >&2
  exit 1
fi

echo "check: the site builds without a warning"
make --no-print-directory docs JOBS="$jobs"

echo "check: packages and properties under asan and ubsan, warnings as errors"
cmake --preset asan >/dev/null
cmake --build --preset asan -j "$jobs" --target fast_tests
export UBSAN_OPTIONS=print_stacktrace=1
ctest --preset asan -L '^fast$' -j "$jobs" || { tools/show_failures.sh build/asan; exit 1; }

echo "check: ThreadComm, executor and assigning on threads under tsan"
cmake --preset tsan >/dev/null
cmake --build --preset tsan -j "$jobs" --target entrain_comm_test entrain_pipeline_test \
  entrain_assigner_test
# Torch's own loops on one thread: how OpenMP's threads wait for each other is not instrumented, so that every
# buffer which they share would be reported. Our threads are all there.
OMP_NUM_THREADS=1 TSAN_OPTIONS="suppressions=$PWD/tools/tsan.supp halt_on_error=1 allocator_may_return_null=1" \
  ctest --preset tsan -R '^engine/(comm|pipeline)$' || { tools/show_failures.sh build/tsan; exit 1; }
GTEST_FILTER='*Threads*' TSAN_OPTIONS="halt_on_error=1" ctest --preset tsan -R '^core/assigner$' ||
  { tools/show_failures.sh build/tsan; exit 1; }

echo "check: the long tests"
ENTRAIN_KILLS=${ENTRAIN_KILLS:-8} ENTRAIN_OPTION_CASES=${ENTRAIN_OPTION_CASES:-500} \
  make --no-print-directory long-test JOBS="$jobs"
echo "check: all passed"
