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

# Without precompiled headers, so that a missing #include is found.
echo "check: each file of core by itself"
git ls-files 'entrain/core/*.cc' | grep -v '_test\.cc$' |
  xargs -n 8 -P "$jobs" clang++-14 -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I. -DENTRAIN_VERSION='""' -DENTRAIN_CONFIGURED_PYTHON='""'

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
# Torch is not instrumented and frees nothing of its own at exit: no leaks in the engine. Tests ask for memory
# that nobody has, and for signals that the program itself handles.
ctest --preset asan -L '^fast$' -E '^engine/' -j "$jobs" || { tools/show_failures.sh build/asan; exit 1; }
ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:handle_segv=0:handle_abort=0 \
  ctest --preset asan -R '^engine/' -j "$jobs" || { tools/show_failures.sh build/asan; exit 1; }

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
ENTRAIN_KILLS=${ENTRAIN_KILLS:-12} ENTRAIN_OPTION_CASES=${ENTRAIN_OPTION_CASES:-700} \
  make --no-print-directory long-test JOBS="$jobs"
echo "check: all passed"
